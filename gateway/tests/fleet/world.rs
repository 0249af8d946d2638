//! A real etcd, a real control process without a data plane, and a real agent, on loopback, in a directory of their
//! own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// The program etcd, if there is one.
pub(crate) fn etcd_program() -> Option<PathBuf> {
    let found = std::env::var_os("ETCD").map(PathBuf::from);
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/etcd/usr/bin/etcd");
    let found = found.or(Some(unpacked)).filter(|path| path.is_file());
    if found.is_none() {
        println!("skipped: ETCD names no etcd");
    }
    found
}

/// A process that ends with its value.
#[derive(Debug)]
pub(crate) struct Running(Child);

impl Running {
    /// Ends it as a crash would.
    pub(crate) fn kill(mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until something is so.
pub(crate) fn until<T>(what: &str, so: impl Fn() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = so() {
            return value;
        }
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A port that nobody listens on: below those that the kernel gives away, and each only once in this process.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() * 31 % 20_000) as u16;
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Everything.
#[derive(Debug)]
pub(crate) struct World {
    /// Where files are.
    pub(crate) folder: PathBuf,
    etcd_program: PathBuf,
    /// Ports of etcd: without TLS, with TLS, and for its own.
    ports: [u16; 3],
    etcd: Option<Running>,
    control: Option<Running>,
    agent: Option<Running>,
}

impl World {
    /// With a control process that has no document, and etcd.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let mut world = Self::bare(name)?;
        world.start_etcd(&[]);
        world.start_control();
        Some(world)
    }

    /// With nothing running.
    pub(crate) fn bare(name: &str) -> Option<Self> {
        let etcd_program = etcd_program()?;
        let folder = std::env::temp_dir().join(format!("crem-fleet-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Some(Self {
            folder,
            etcd_program,
            ports: [free_port(), free_port(), free_port()],
            etcd: None,
            control: None,
            agent: None,
        })
    }

    /// URL of etcd with TLS.
    pub(crate) fn secure(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports[1])
    }

    /// Starts etcd; again it has what it had.
    pub(crate) fn start_etcd(&mut self, more: &[&str]) {
        let [plain, tls, own] = self.ports;
        let mut clients = format!("http://127.0.0.1:{plain}");
        if !more.is_empty() {
            clients.push_str(&format!(",https://127.0.0.1:{tls}"));
        }
        let own = format!("http://127.0.0.1:{own}");
        let log = std::fs::File::create(self.folder.join("etcd.log")).unwrap();
        let child = Command::new(&self.etcd_program)
            .args(["--data-dir".as_ref(), self.folder.join("etcd").as_os_str()])
            .args(["--listen-client-urls", &clients])
            .args(["--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &own])
            .args(["--initial-advertise-peer-urls", &own])
            .args(["--initial-cluster", &format!("default={own}")])
            .args(more)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.etcd = Some(Running(child));
        let asked = || self.etcd_answer("/v3/kv/range", &json!({"key": "AA=="}));
        until("etcd answers", || {
            asked().filter(|a| a["header"].is_object())
        });
    }

    /// Ends etcd as a crash would.
    pub(crate) fn kill_etcd(&mut self) {
        self.etcd.take().unwrap().kill();
    }

    /// What etcd answers without TLS.
    pub(crate) fn etcd_answer(&self, path: &str, body: &Value) -> Option<Value> {
        let stream = TcpStream::connect(("127.0.0.1", self.ports[0])).ok()?;
        let answer = ask(stream, "POST", path, "", &body.to_string())?;
        serde_json::from_str(&answer.1).ok()
    }

    /// Writes a key.
    pub(crate) fn put(&self, key: &str, value: &Value) {
        self.put_text(key, &value.to_string());
    }

    /// Writes a key with any text.
    pub(crate) fn put_text(&self, key: &str, value: &str) {
        let body = json!({"key": base64(key), "value": base64(value)});
        let answer = self.etcd_answer("/v3/kv/put", &body).unwrap();
        assert!(answer["header"]["revision"].is_string(), "{answer}");
    }

    /// What is in a key.
    pub(crate) fn read(&self, key: &str) -> Option<Value> {
        let answer = self.etcd_answer("/v3/kv/range", &json!({"key": base64(key)}))?;
        let text = unbase64(answer["kvs"][0]["value"].as_str()?);
        serde_json::from_slice(&text).ok()
    }

    /// The status that the agent tells.
    pub(crate) fn status(&self) -> Value {
        self.read("/crem/v1/nodes/gw-a/status").unwrap_or_default()
    }

    /// Waits for a state, and gives the status.
    pub(crate) fn wait_state(&self, state: &str) -> Value {
        self.wait_status(state, |status| status["state"] == state)
    }

    /// Waits for a status.
    pub(crate) fn wait_status(&self, what: &str, so: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if so(&status) {
                return status;
            }
            let log = || std::fs::read_to_string(self.folder.join("agent.log"));
            assert!(Instant::now() < end, "{what}: {status:#}\n{:?}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crem-gateway"));
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join(format!("{name}.log")));
        command.stdout(Stdio::piped()).stderr(log.unwrap());
        command
    }

    /// Starts the control process.
    pub(crate) fn start_control(&mut self) {
        let path = |name: &str| self.folder.join(name).into_os_string();
        let mut command = self.program("control");
        command.arg("control");
        command.args(["--state".as_ref(), path("state").as_os_str()]);
        command.args(["--socket".as_ref(), path("c.sock").as_os_str()]);
        command.args(["--status-socket".as_ref(), path("d.sock").as_os_str()]);
        command.args(["--fleet-status".as_ref(), path("status.json").as_os_str()]);
        self.control = Some(started(command));
    }

    /// Starts the agent with these settings besides those of a world.
    pub(crate) fn start_agent(&mut self, more: &str) {
        let url = format!("http://127.0.0.1:{}", self.ports[0]);
        self.start_agent_at(&url, "", more);
    }

    /// The same with another address, and with settings for etcd.
    pub(crate) fn start_agent_at(&mut self, url: &str, etcd: &str, more: &str) {
        let path = |name: &str| self.folder.join(name).display().to_string();
        let settings = format!(
            "node = \"gw-a\"\nfleet = \"f\"\nsite = \"s\"\ncontrol = {:?}\nmemory = {:?}\nstatus = {:?}\n{more}\n\
             [etcd]\nendpoints = {{ \"{url}\" = {{}} }}\nlease_s = 5\n{etcd}\n",
            path("c.sock"),
            path("memory.json"),
            path("status.json"),
        );
        std::fs::write(self.folder.join("fleet.toml"), settings).unwrap();
        self.restart_agent();
    }

    /// Starts the agent with the settings from before.
    pub(crate) fn restart_agent(&mut self) {
        let mut command = self.program("agent");
        command.args([
            "fleet".as_ref(),
            "--config".as_ref(),
            self.folder.join("fleet.toml").as_os_str(),
        ]);
        self.agent = Some(started(command));
    }

    /// Ends the agent as a crash would.
    pub(crate) fn kill_agent(&mut self) {
        self.agent.take().unwrap().kill();
    }

    /// What the API answers to a GET.
    pub(crate) fn api(&self, path: &str) -> Value {
        let stream = UnixStream::connect(self.folder.join("c.sock")).unwrap();
        let answer = ask(stream, "GET", path, "", "").unwrap();
        serde_json::from_str(&answer.1).unwrap()
    }

    /// The metrics of control as text.
    pub(crate) fn metrics(&self) -> String {
        let stream = UnixStream::connect(self.folder.join("c.sock")).unwrap();
        let answer = ask(stream, "GET", "/metrics", "", "").unwrap();
        answer.1
    }

    /// Replaces a part of the document by the API, as somebody at the gateway would.
    pub(crate) fn put_by_hand(&self, path: &str, value: &Value) {
        let stream = UnixStream::connect(self.folder.join("c.sock")).unwrap();
        let headers = "If-Match: *\r\nContent-Type: application/json\r\n";
        let answer = ask(stream, "PUT", path, headers, &value.to_string()).unwrap();
        assert!(answer.0.starts_with("HTTP/1.1 200"), "{answer:?}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Who still runs would write into it again.
        (self.agent, self.control, self.etcd) = (None, None, None);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn started(mut command: Command) -> Running {
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let out = child.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    Running(child)
}

/// Header and body of an answer.
fn ask(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> Option<(String, String)> {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let length = head.to_ascii_lowercase().contains("content-length");
    // What is short comes with its length; of the rest the one chunk is wanted.
    let body = if length {
        body.to_owned()
    } else {
        body.split("\r\n")
            .filter(|part| part.starts_with('{'))
            .collect()
    };
    Some((head.to_owned(), body))
}

/// Base64 of a text, and back: what etcd speaks.
pub(crate) fn base64(text: &str) -> String {
    const SIGNS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let mut bits = 0u32;
        for at in 0..3 {
            bits = bits << 8 | u32::from(chunk.get(at).copied().unwrap_or(0));
        }
        for at in 0..4 {
            let sign = SIGNS[(bits >> (18 - 6 * at) & 63) as usize];
            out.push(if at <= chunk.len() { sign.into() } else { '=' });
        }
    }
    out
}

fn unbase64(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for sign in text.bytes() {
        let value = match sign {
            b'A'..=b'Z' => sign - b'A',
            b'a'..=b'z' => sign - b'a' + 26,
            b'0'..=b'9' => sign - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => break,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 255) as u8);
        }
    }
    out
}
