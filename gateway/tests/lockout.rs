//! Somebody locks himself out: in a network namespace, a real control process gets a document that closes
//! the listener over which it is managed. Nobody confirms, and the listener comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use rcgen::{CertificateParams, KeyPair};

const OLD: &str = "127.0.0.1:8443";
const NEW: &str = "127.0.0.1:9443";

struct Process {
    child: Child,
    directory: PathBuf,
}

impl Process {
    fn start(directory: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_crem-gateway"))
            .arg("control")
            .args(["--state".as_ref(), directory.as_os_str()])
            .args(["--socket".as_ref(), directory.join("c.sock").as_os_str()])
            .args([
                "--status-socket".as_ref(),
                directory.join("d.sock").as_os_str(),
            ])
            .args(["--log", "warn"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        Self {
            child,
            directory: directory.to_path_buf(),
        }
    }

    /// The local socket stays: it is only the way to make the mistake here.
    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = UnixStream::connect(self.directory.join("c.sock")).unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIf-Match: *\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(what: &str, so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn open(address: &str) -> bool {
    TcpStream::connect(address).is_ok()
}

fn document(directory: &Path, listener: &str) -> String {
    let path = |name: &str| directory.join(name).display().to_string();
    format!(
        r#"{{"version":1,
            "segments":{{"a":{{"mode":"passthrough","crem_port":4801,"path_mtu":1500,
                "lan":{{"interface":"lan0"}},"wan":{{"interface":"wan0"}}}}}},
            "management":{{"listeners":{{"{listener}":{{}}}},
                "tls":{{"certificate":"{}","key":"{}"}}}}}}"#,
        path("api.pem"),
        path("api.key")
    )
}

fn in_a_namespace(work: impl FnOnce() + Send + 'static) {
    let run = std::thread::spawn(move || {
        if let Err(e) = unshare(CloneFlags::CLONE_NEWNET) {
            println!("skipped: no network namespace: {e}");
            return;
        }
        let up = Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status();
        assert!(up.unwrap().success());
        work();
    });
    if let Err(panic) = run.join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn who_locks_himself_out_is_let_in_again() {
    let directory = std::env::temp_dir().join(format!("crem-lockout-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["gateway.example".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(directory.join("api.pem"), certificate.pem()).unwrap();
    std::fs::write(directory.join("api.key"), key.serialize_pem()).unwrap();
    let place = directory.clone();
    in_a_namespace(move || {
        let process = Process::start(&place);
        let answer = process.ask("PUT", "/v1/config", &document(&place, OLD));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        until("the first listener", || open(OLD));
        let unsafe_way = process.ask("PUT", "/v1/config", &document(&place, NEW));
        assert!(unsafe_way.contains("confirm-required"), "{unsafe_way}");
        let answer = process.ask("PUT", "/v1/config?confirm=3s", &document(&place, NEW));
        assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
        // The answer is there before the listener goes.
        until("the mistake", || !open(OLD) && open(NEW));
        until("the way back", || open(OLD) && !open(NEW));
        let commit = process.ask("GET", "/v1/commit", "");
        assert!(commit.contains(r#""state":"none""#), "{commit}");
        // Killed while it waits: the next one starts with the old listener.
        process.ask("PUT", "/v1/config?confirm=60s", &document(&place, NEW));
        until("the mistake again", || !open(OLD));
        drop(process);
        let _process = Process::start(&place);
        until("the old listener", || open(OLD) && !open(NEW));
    });
    std::fs::remove_dir_all(directory).unwrap();
}
