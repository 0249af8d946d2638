//! What real processes of the gateway have given up, as the kernel tells it to others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crem_api::client::Client;

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn start(place: &Path, process: &str, more: &[&str]) -> Self {
        // What everybody may write to is not where the state is.
        let temporary = place.join("tmp");
        std::fs::create_dir_all(&temporary).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_crem-gateway"))
            .env("TMPDIR", temporary)
            .arg(process)
            .args([
                "--config".as_ref(),
                place.join("bootstrap.toml").as_os_str(),
            ])
            .args(["--log", "warn"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut process = Self(child);
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        process
    }

    /// A field of `/proc/PID/status` of the main thread, then of all threads.
    fn field(&self, name: &str) -> (String, Vec<String>) {
        let read = |path: PathBuf| {
            let text = std::fs::read_to_string(path).unwrap();
            let found = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            found.unwrap().trim().to_owned()
        };
        let process = PathBuf::from(format!("/proc/{}", self.0.id()));
        let threads = std::fs::read_dir(process.join("task")).unwrap();
        let threads = threads
            .map(|t| read(t.unwrap().path().join("status")))
            .collect();
        (read(process.join("status")), threads)
    }

    fn capabilities(&self) -> (u64, Vec<u64>) {
        let number = |text: &String| u64::from_str_radix(text, 16).unwrap();
        let (main, all) = self.field("CapEff");
        (number(&main), all.iter().map(number).collect())
    }
}

fn place(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("crem-sandbox-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    let at = |name: &str| path.join(name).display().to_string();
    let bootstrap = format!(
        "document = {:?}\n[status]\nsocket = {:?}\n[export]\nsocket = {:?}\nstatus_socket = {:?}\n\
         [control]\nstate = {:?}\nsocket = {:?}\n[memory]\nkind = \"ordinary\"\n",
        at("document.toml"),
        at("d.sock"),
        at("e.sock"),
        at("s.sock"),
        at("state"),
        at("c.sock"),
    );
    std::fs::write(path.join("bootstrap.toml"), bootstrap).unwrap();
    let document = r#"
        version = 1
        [segments.a]
        mode = "passthrough"
        crem_port = 4801
        path_mtu = 1500
        lan = { vdev = "net_null0" }
        wan = { vdev = "net_null1" }
        [ipfix]
        domain = 1
        pen = 32473
        first_element = 1
        [ipfix.scopes]
        all = { source = "10.0.0.0/8", destination = "10.0.0.0/8" }
        [ipfix.points]
        out = { segment = "a", place = "wan_egress", base = 100, flows = true }
        [ipfix.collectors]
        a = { transport = "tcp", host = "127.0.0.1", port = 9 }
    "#;
    std::fs::write(path.join("document.toml"), document).unwrap();
    path
}

/// Asks the control process; the answer's status line and body.
fn ask(place: &Path, method: &str, path: &str, body: &str) -> (String, serde_json::Value) {
    let mut stream = UnixStream::connect(place.join("c.sock")).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.lines().next().unwrap().to_owned();
    (status, serde_json::from_str(body).unwrap())
}

fn state_of(place: &Path) -> serde_json::Value {
    let (status, body) = ask(place, "GET", "/v1/state/confinement", "");
    assert!(status.starts_with("HTTP/1.1 200"), "{status}");
    body
}

/// Numbers of capabilities (capabilities(7)).
const DAC_OVERRIDE: u64 = 1 << 1;
const NET_BIND_SERVICE: u64 = 1 << 10;
const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;
const IPC_LOCK: u64 = 1 << 14;
const SYS_NICE: u64 = 1 << 23;

#[test]
fn each_process_has_only_what_it_needs() {
    let place = place("on");
    let export = Process::start(&place, "export", &[]);
    let control = Process::start(&place, "control", &[]);
    let dataplane = Process::start(&place, "dataplane", &[]);
    let forwards = NET_ADMIN | NET_RAW | IPC_LOCK | SYS_NICE | DAC_OVERRIDE;
    for (process, may) in [
        (&export, DAC_OVERRIDE),
        (
            &control,
            NET_ADMIN | NET_RAW | NET_BIND_SERVICE | DAC_OVERRIDE,
        ),
        (&dataplane, forwards),
    ] {
        let (main, all) = process.capabilities();
        assert_eq!(main & !may, 0, "{main:x}");
        if nix::unistd::geteuid().is_root() {
            assert_eq!(main, may, "{main:x}");
        }
        // Threads of DPDK from before keep what starting took; all others have no more than the main one.
        let more = all.iter().filter(|&&has| has & !may != 0).count();
        let of_dpdk = if may == forwards { 4 } else { 0 };
        assert!(more <= of_dpdk && more < all.len(), "{all:x?}");
        for (field, wanted) in [("Seccomp", "2"), ("NoNewPrivs", "1")] {
            let (_, threads) = process.field(field);
            assert!(threads.iter().all(|t| t == wanted), "{field}: {threads:?}");
        }
    }
    // They say the same of themselves. The data plane is asked once a second.
    let end = std::time::Instant::now() + Duration::from_secs(10);
    let state = loop {
        let state = state_of(&place);
        if state["dataplane"].is_object() && state["export"].is_object() {
            break state;
        }
        assert!(std::time::Instant::now() < end, "{state}");
        std::thread::sleep(Duration::from_millis(50));
    };
    for process in ["control", "dataplane", "export"] {
        let told = &state[process];
        assert_eq!(told["system_calls_filtered"], true, "{told}");
        assert_eq!(told["no_new_privileges"], true, "{told}");
        assert_eq!(told["problems"], serde_json::json!([]), "{told}");
    }
    let mut client = Client::connect(&place.join("d.sock"), Duration::from_secs(5)).unwrap();
    assert_eq!(client.status().unwrap().segments["a"].mode, "passthrough");
    std::fs::remove_dir_all(place).unwrap();
}

#[test]
fn a_data_plane_that_came_first_writes_captures_below_the_state_of_control() {
    let place = place("first");
    let _dataplane = Process::start(&place, "dataplane", &[]);
    let _control = Process::start(&place, "control", &[]);
    let wanted = r#"{"segment": "a", "max_frames": 10}"#;
    let (status, capture) = ask(&place, "POST", "/v1/captures", wanted);
    assert!(status.starts_with("HTTP/1.1 201"), "{status} {capture}");
    std::fs::remove_dir_all(place).unwrap();
}

#[test]
fn the_switch_leaves_everything_as_it_was() {
    let place = place("off");
    let control = Process::start(&place, "control", &["--sandbox", "off"]);
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = own
        .lines()
        .find_map(|l| l.strip_prefix("CapEff:"))
        .unwrap()
        .trim();
    assert_eq!(control.field("CapEff").0, own);
    assert_eq!(control.field("Seccomp").0, "0");
    assert_eq!(state_of(&place)["control"]["enabled"], false);
    std::fs::remove_dir_all(place).unwrap();
}
