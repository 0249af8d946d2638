//! A control process in this process, a data plane that answers from a script, and a client that speaks
//! HTTP by hand so that it can also be wrong.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    unreachable_pub,
    reason = "each test uses a part"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crem_api::capture::{CaptureAsk, CaptureEnd, CaptureState};
use crem_api::protocol::{Applied, Ask, Body, ErrorReply, Get, Reply, Request};
use crem_api::state::{
    Counters, Flow, Flows, InbandStatus, PathStatus, PeerStatus, SegmentCounters, SegmentStatus,
    Status,
};
use crem_api::{Invalid, Issue};
use crem_control::run::{Failure, Options, run};
use crem_control::watcher::Sockets;
use serde_json::{Value, json};
use tokio::sync::oneshot;

static COUNT: AtomicU64 = AtomicU64::new(0);

/// A data plane at a socket, that takes every document.
pub struct Dataplane {
    socket: PathBuf,
    running: Arc<Mutex<Running>>,
}

/// Its instance, the revision and the document in force, and its last capture.
#[derive(Default)]
struct Running {
    instance: String,
    revision: Option<u64>,
    document: Value,
    capture: CaptureState,
}

/// What a capture holds here.
pub const CAPTURED: &[u8] = b"\x0a\x0d\x0d\x0aframes";

impl Dataplane {
    fn start(socket: &Path) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let running = Arc::new(Mutex::new(Running {
            instance: "first".to_owned(),
            ..Running::default()
        }));
        let state = Arc::clone(&running);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.unwrap(), Arc::clone(&state));
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Self {
            socket: socket.to_path_buf(),
            running,
        }
    }

    /// The revision and the document that it was given last.
    pub fn running(&self) -> (Option<u64>, Value) {
        let running = self.running.lock().unwrap();
        (running.revision, running.document.clone())
    }

    /// As if it had started anew.
    pub fn restart(&self) {
        let mut running = self.running.lock().unwrap();
        *running = Running {
            instance: format!("{}'", running.instance),
            ..Running::default()
        };
    }

    /// As if the time of the capture were over.
    pub fn end_capture(&self) {
        end(&mut self.running.lock().unwrap().capture, CaptureEnd::Time);
    }
}

impl Drop for Dataplane {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn end(capture: &mut CaptureState, how: CaptureEnd) {
    if capture.running {
        (capture.running, capture.ended) = (false, Some(how));
    }
}

/// As the data plane does: the file at once, one capture at a time.
fn capture(state: &mut CaptureState, ask: CaptureAsk) -> Body {
    match ask {
        CaptureAsk::Start(request) => {
            let mut issues = request.problems();
            if request.segment != "a" {
                issues.push(Issue::new("/capture/start/segment", "\"b\"", "a segment"));
            }
            if state.running {
                issues.push(Issue::new(
                    "/capture/start",
                    "one that runs",
                    "one at a time",
                ));
            }
            if !issues.is_empty() {
                return Body::Error(ErrorReply::invalid(Invalid { issues }));
            }
            std::fs::write(&request.file, CAPTURED).unwrap();
            *state = CaptureState {
                request: Some(*request),
                running: true,
                frames: 1,
                octets: 6,
                ..CaptureState::default()
            };
        }
        CaptureAsk::Stop => end(state, CaptureEnd::Stopped),
    }
    Body::Capture(state.clone())
}

fn serve(stream: UnixStream, state: &Mutex<Running>) {
    let mut to = stream.try_clone().unwrap();
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let body = match Request::parse(&line) {
            Ok(request) => answer(request, state),
            Err(refusal) => Body::Error(refusal),
        };
        if to
            .write_all(Reply::new(1, body).to_line().as_bytes())
            .is_err()
        {
            return;
        }
    }
}

fn answer(request: Request, state: &Mutex<Running>) -> Body {
    let mut state = state.lock().unwrap();
    match request.ask {
        Ask::Apply(apply) => {
            if !apply.dry_run {
                (state.revision, state.document) = (apply.revision, apply.document);
            }
            Body::Applied(Applied {
                generation: 1,
                impact: crem_api::Impact::Hot,
                changes: Vec::new(),
            })
        }
        Ask::Capture(ask) => capture(&mut state.capture, ask),
        Ask::Get(Get::Capture) => Body::Capture(state.capture.clone()),
        Ask::Get(Get::Flows) => Body::Flows(flows()),
        Ask::Get(Get::Counters) => {
            let counters = SegmentCounters {
                drops: [("tx_full_wan".to_owned(), 3)].into(),
                lan: [("rx_frames".to_owned(), 7), ("rx_octets".to_owned(), 700)].into(),
                ..SegmentCounters::default()
            };
            Body::Counters(Counters {
                segments: [("a".to_owned(), counters)].into(),
                export: BTreeMap::new(),
            })
        }
        Ask::Get(_) => Body::Status(Status {
            version: "0".to_owned(),
            pid: 1,
            instance: state.instance.clone(),
            revision: state.revision,
            segments: [("a".to_owned(), segment())].into(),
            ..Status::default()
        }),
    }
}

/// A segment whose station is on the loopback interface.
fn segment() -> SegmentStatus {
    let station = InbandStatus {
        address: "127.0.0.1/8".to_owned(),
        interface: "lo".to_owned(),
        ..InbandStatus::default()
    };
    let path = PathStatus {
        breaker: "closed".to_owned(),
        ..PathStatus::default()
    };
    let path = PeerStatus {
        path: Some(path),
        ..PeerStatus::default()
    };
    let peers = ["192.0.2.2", "127.0.0.1"].map(|peer| (peer.parse().unwrap(), path.clone()));
    SegmentStatus {
        inband: Some(station),
        peers: peers.into(),
        ..SegmentStatus::default()
    }
}

fn flows() -> Flows {
    let flow = |n: u32| -> Flow {
        let reason = if n.is_multiple_of(2) {
            Value::Null
        } else {
            json!("mtu")
        };
        let flow = json!({
            "segment": "a", "role": "csf", "source": "10.0.1.1", "destination": "10.0.2.1", "qp": n,
            "space": "requests", "state": "protected", "reason": reason,
            "matched": {"peer": "192.0.2.2:4801", "answered": true},
        });
        serde_json::from_value(flow).unwrap()
    };
    Flows {
        flows: (0..250).map(flow).collect(),
        left_out: 0,
    }
}

/// A control process.
pub struct Control {
    pub state: PathBuf,
    pub socket: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
    keep: bool,
}

impl Control {
    /// With a data plane beside it, unless `alone`.
    pub fn start(alone: bool) -> (Self, Option<Dataplane>) {
        let state = Self::place();
        let dataplane = (!alone).then(|| Dataplane::start(&state.join("dataplane.sock")));
        (Self::at(&state), dataplane)
    }

    /// Over the state that another one left.
    pub fn at(state: &Path) -> Self {
        Self::with(state, |_| {})
    }

    /// Whose log is what the test gives it, without a data plane.
    pub fn logging(feed: crem_control::syslog::Feed) -> Self {
        let state = Self::place();
        Self::with(&state, move |options| options.log = feed)
    }

    /// With an address to listen at before there is a document, and what it tells on the console.
    pub fn new_box(address: SocketAddr) -> (Self, Receiver<String>) {
        Self::new_box_at(&Self::place(), address)
    }

    /// The same over the state that another one left.
    pub fn new_box_at(state: &Path, address: SocketAddr) -> (Self, Receiver<String>) {
        let (tell, told) = std::sync::mpsc::channel();
        let control = Self::with(state, move |options| {
            options.first_listener = Some(address);
            options.tell = Some(Box::new(move |text| {
                let _ = tell.send(text.to_owned());
            }));
        });
        (control, told)
    }

    fn place() -> PathBuf {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let state = std::env::temp_dir().join(format!("crem-api-{}-{n}", std::process::id()));
        let _ = std::fs::remove_dir_all(&state);
        std::fs::create_dir_all(&state).unwrap();
        state
    }

    fn with(state: &Path, change: impl FnOnce(&mut Options)) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let socket = state.join("control.sock");
        let mut options = Options {
            state: state.to_path_buf(),
            socket: socket.clone(),
            others: Sockets {
                dataplane: state.join("dataplane.sock"),
                export: state.join("export.sock"),
            },
            fleet_status: state.join("fleet-status.json"),
            confinement: crem_api::Confinement::default(),
            import: None,
            first_listener: None,
            tell: None,
            log: crem_control::syslog::Feed::default(),
            stop: stopped,
            on_ready: Box::new(move || ready.send(()).unwrap()),
            alive: None,
        };
        change(&mut options);
        let thread = std::thread::spawn(move || run(options));
        is_ready.recv_timeout(Duration::from_secs(10)).unwrap();
        Self {
            state: state.to_path_buf(),
            socket,
            stop: Some(stop),
            thread: Some(thread),
            keep: false,
        }
    }

    /// Ends it and leaves its state.
    pub fn leave(mut self) {
        self.keep = true;
    }

    /// Ends it and starts it again.
    pub fn again(self) -> Self {
        let state = self.state.clone();
        self.leave();
        Self::at(&state)
    }

    /// One request over a connection of its own.
    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let stream = UnixStream::connect(&self.socket).unwrap();
        ask_over(stream, method, path, headers, body)
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }

    /// Changes the running document whatever it is.
    pub fn change(&self, query: &str, patch: &Value) -> Answer {
        let headers = [
            ("If-Match", "*"),
            ("Content-Type", "application/merge-patch+json"),
        ];
        let path = format!("/v1/config{query}");
        self.ask("PATCH", &path, &headers, patch.to_string().as_bytes())
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        let headers = [("Content-Type", "application/json")];
        self.ask("POST", path, &headers, body.to_string().as_bytes())
    }

    /// Asks until the answer is as wanted.
    pub fn until(&self, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let answer = self.get(path);
            if wanted(&answer) {
                return answer;
            }
            assert!(Instant::now() < end, "{path}: {answer:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap().unwrap();
        }
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.state);
        }
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub text: String,
    pub octets: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Status and name of the problem that this has to be.
    pub fn problem(&self) -> (u16, String) {
        assert_eq!(
            self.headers["content-type"], "application/problem+json",
            "{self:?}"
        );
        let problem = self.json();
        assert!(!problem["title"].as_str().unwrap().is_empty());
        assert!(!problem["detail"].as_str().unwrap().is_empty());
        let kind = problem["type"].as_str().unwrap();
        (
            self.status,
            kind.trim_start_matches("urn:crem:problem:").to_owned(),
        )
    }
}

pub fn ask_over(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: crem\r\nConnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    stream.write_all(request.as_bytes()).unwrap();
    // A server may answer before it has read everything.
    let _ = stream.write_all(body);
    let _ = stream.flush();
    let mut octets = Vec::new();
    let _ = stream.read_to_end(&mut octets);
    parse(&octets)
}

fn parse(octets: &[u8]) -> Answer {
    let end = octets.windows(4).position(|w| w == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("{:?}", String::from_utf8_lossy(octets)));
    let (head, octets) = (String::from_utf8_lossy(&octets[..end]), &octets[end + 4..]);
    let mut lines = head.lines();
    let status = lines
        .next()
        .unwrap()
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    Answer {
        status,
        headers,
        text: String::from_utf8_lossy(octets).into_owned(),
        octets: octets.to_vec(),
    }
}

/// A document that is accepted.
pub fn document(k: u64) -> Value {
    json!({
        "version": 1,
        "segments": {"a": {
            "mode": "active", "crem_port": 4801, "path_mtu": 4500,
            "lan": {"interface": "lan0"}, "wan": {"interface": "wan0"},
            "served": {"10.0.1.0/24": {}}, "peers": {"10.0.2.0/24": {"address": "192.0.2.2"}},
            "inband": {"address": "192.0.2.1/24"}, "policy": {"k": k},
        }},
    })
}
