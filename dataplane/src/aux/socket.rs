//! The status socket: one JSON line in, one out (`crem_api::protocol`).

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crem_api::capture::CaptureAsk;
use crem_api::protocol::{
    Apply, Ask, Body, ErrorCode, ErrorReply, Get, MAX_APPLY, MAX_REQUEST, Reply, Request,
};
use crem_api::{Invalid, Issue, socket};
use crem_dpdk::Clock;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::timeout;

use crate::aux::apply::Applier;
use crate::aux::capture::Captures;
use crate::aux::documents::{self, About};
use crate::aux::drivers::Drivers;
use crate::metering::relay::RelayState;
use crate::metering::utc_offset;
use crate::snapshot::Snapshot;

/// Clients served at once.
const CLIENTS: usize = 64;
/// How long a client may keep its place without asking.
const SILENCE: Duration = Duration::from_secs(60);
/// Longest wait for a snapshot.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether a status socket can be had at `path`; to be asked before anything is started, since nothing
/// else of a start is as cheap to refuse.
///
/// # Errors
/// What is wrong with the path, as a problem of the bootstrap.
pub fn check(path: &Path) -> Result<(), Invalid> {
    let issue = |found: String, expected: &str| Invalid {
        issues: vec![Issue::new("/status/socket", found, expected)],
    };
    socket::vacate(path).map_err(|e| {
        let expected = match e.kind() {
            io::ErrorKind::AddrInUse => "a socket of its own for each process",
            _ => "a path where a Unix socket can be made",
        };
        issue(format!("{path:?}: {e}"), expected)
    })
}

/// Listens at `path`. A socket that a killed process left there is replaced.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    socket::listen(path)
        .and_then(UnixListener::from_std)
        .map_err(|e| io::Error::new(e.kind(), format!("status socket {}: {e}", path.display())))
}

/// What answers are made from.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) about: watch::Receiver<Arc<About>>,
    /// Who replaces the document in force.
    pub(super) applier: Arc<Mutex<Applier>>,
    /// Who begins and ends captures.
    pub(super) captures: Arc<Mutex<Captures>>,
    /// The workers' clock.
    pub(super) clock: Clock,
    /// What drivers say of links.
    pub(super) drivers: Arc<std::sync::Mutex<Drivers>>,
    /// What became of records on their way to the exporting process.
    pub(super) export: Arc<RelayState>,
    /// The latest snapshot.
    pub(super) latest: watch::Receiver<Option<Arc<Snapshot>>>,
    /// The latest one that lists the flows.
    pub(super) listing: watch::Receiver<Option<Arc<Snapshot>>>,
    /// One for each worker.
    pub(super) list_flows: Vec<Arc<AtomicBool>>,
}

impl Server {
    pub(super) async fn serve(self, listener: UnixListener) {
        let places = Arc::new(Semaphore::new(CLIENTS));
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                        let refusal = refuse(ErrorCode::Unknown, "too many clients");
                        // It fits a fresh socket's buffer.
                        let _ = stream.try_write(refusal.to_line().as_bytes());
                        continue;
                    };
                    let server = self.clone();
                    tokio::spawn(async move {
                        // A client that goes away in the middle of a line is nobody's problem.
                        let _ = server.client(stream).await;
                        drop(place);
                    });
                }
                Err(e) => {
                    tracing::warn!("status socket: {e}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn client(mut self, stream: UnixStream) -> io::Result<()> {
        let may_change = may_change(&stream);
        let limit = if may_change { MAX_APPLY } else { MAX_REQUEST };
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::new(read);
        loop {
            // Made anew each time: the line before may have been a document of megabytes.
            let mut line = Vec::new();
            let limit = u64::try_from(limit).unwrap_or(u64::MAX);
            let mut limited = (&mut read).take(limit);
            match timeout(SILENCE, limited.read_until(b'\n', &mut line)).await {
                Ok(Ok(0)) | Err(_) => return Ok(()),
                Ok(read) => read?,
            };
            if line.last() != Some(&b'\n') {
                let why = if (line.len() as u64) < limit {
                    "the line has no end"
                } else {
                    "the line is too long"
                };
                let refusal = refuse(ErrorCode::Malformed, why);
                return write.write_all(refusal.to_line().as_bytes()).await;
            }
            // What is no UTF-8 is no JSON either, and told as that.
            let reply = match Request::parse(&String::from_utf8_lossy(&line)).map(|r| r.ask) {
                Ok(Ask::Get(Get::Document)) => {
                    let running = self.applier.lock().await.running();
                    self.reply(Body::Document(running))
                }
                Ok(Ask::Get(Get::Capture)) => {
                    let state = self.captures.lock().await.state();
                    self.reply(Body::Capture(state))
                }
                Ok(Ask::Get(get)) => self.answer(get).await,
                Ok(Ask::Capture(ask)) if may_change => self.capture(ask).await,
                Ok(Ask::Apply(apply)) if may_change => self.apply(&apply).await,
                Ok(Ask::Apply(_) | Ask::Capture(_)) => refuse(
                    ErrorCode::Forbidden,
                    "only root and the user of the data plane bring documents into force and capture",
                ),
                Err(e) => Reply::new(0, Body::Error(e)),
            };
            write.write_all(reply.to_line().as_bytes()).await?;
        }
    }

    async fn apply(&self, apply: &Apply) -> Reply {
        match self.applier.lock().await.apply(apply).await {
            Ok(applied) => self.reply(Body::Applied(applied)),
            Err(refusal) => self.reply(Body::Error(refusal)),
        }
    }

    async fn capture(&self, ask: CaptureAsk) -> Reply {
        let mut captures = self.captures.lock().await;
        let done = match ask {
            CaptureAsk::Start(request) => {
                let running = self.applier.lock().await;
                captures.start(*request, running.document())
            }
            CaptureAsk::Stop => Ok(captures.stop()),
        };
        match done {
            Ok(state) => self.reply(Body::Capture(state)),
            Err(refusal) => self.reply(Body::Error(refusal)),
        }
    }

    /// A reply as of now.
    fn reply(&self, body: Body) -> Reply {
        let at_ns = self.latest.borrow().as_ref().map_or(0, |s| s.at_ns);
        Reply::new(at_ns / 1_000_000, body)
    }

    async fn answer(&mut self, get: Get) -> Reply {
        let found = async {
            if get == Get::Flows {
                // A list from before the question does not count.
                self.listing.mark_unchanged();
                let asked = self.list_flows.iter();
                asked.for_each(|flag| flag.store(true, Ordering::Relaxed));
                self.listing.changed().await.ok()?;
                self.listing.borrow_and_update().clone()
            } else {
                self.latest.wait_for(Option::is_some).await.ok()?.clone()
            }
        };
        match timeout(PATIENCE, found).await {
            Ok(Some(snapshot)) => {
                let about = Arc::clone(&self.about.borrow());
                let observing = self.export.observing.load(Ordering::Relaxed);
                let export = observing.then_some(&*self.export);
                let utc = utc_offset(crem_core::time::Instant(self.clock.now_ns()));
                let mut reply = documents::reply(&about, export, (&snapshot, utc), get);
                if let Body::Status(status) = &mut reply.body {
                    let drivers = self.drivers.lock();
                    let mut drivers = drivers.unwrap_or_else(PoisonError::into_inner);
                    drivers.complete(std::time::Instant::now(), &about, status);
                }
                reply
            }
            _ => refuse(ErrorCode::Unknown, "the worker gave no answer in time"),
        }
    }
}

/// Whether the client is root or of the user that this process runs as.
fn may_change(stream: &UnixStream) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    stream
        .peer_cred()
        .is_ok_and(|client| client.uid() == 0 || client.uid() == own)
}

fn refuse(code: ErrorCode, message: &str) -> Reply {
    Reply::new(0, Body::Error(ErrorReply::new(code, message)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use std::os::unix::net::UnixListener as StdListener;

    use crate::aux::{OrderEnds, Started};

    use super::*;

    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("crem-sock-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn problem(path: &Path) -> String {
        check(path).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_socket_stays() {
        let folder = Folder::new("file");
        let file = folder.0.join("precious");
        std::fs::write(&file, "keep").unwrap();
        let link = folder.0.join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&file, &link, &folder.0] {
            let text = problem(path);
            assert!(text.starts_with("/status/socket: found"), "{text}");
            assert!(text.contains("is no socket"), "{text}");
            assert_eq!(bind(path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "keep");
        assert!(link.symlink_metadata().unwrap().file_type().is_symlink());
    }

    #[test]
    fn a_socket_is_replaced_only_once_nobody_serves_it() {
        let folder = Folder::new("stale");
        let path = folder.0.join("deep/er/s.sock");
        check(&path).unwrap();
        let served = StdListener::bind(&path).unwrap();
        assert!(problem(&path).contains("another process serves it"));
        assert!(path.exists());
        drop(served);
        check(&path).unwrap();
        assert!(!path.exists());
    }

    async fn ask(client: UnixStream, request: &[u8]) -> String {
        let (read, mut write) = client.into_split();
        write.write_all(request).await.unwrap();
        drop(write);
        let mut line = String::new();
        BufReader::new(read).read_line(&mut line).await.unwrap();
        line
    }

    /// One whose worker is not there.
    fn idle_applier() -> Applier {
        let text = r#"
            version = 1
            [segments.a]
            mode = "passthrough"
            crem_port = 4801
            path_mtu = 4500
            lan = { vdev = "net_null0" }
            wan = { vdev = "net_null1" }
        "#;
        let document = crem_api::parse(text, crem_api::Syntax::Toml).unwrap();
        let about = About {
            version: String::new(),
            instance: String::new(),
            revision: None,
            instead: None,
            segments: Vec::new(),
            numa: Vec::new(),
            confinement: crem_api::Confinement::default(),
        };
        let started = Started {
            pool_frames: 8191,
            room: u16::MAX,
            known: crate::machine::Known::new(),
        };
        let (orders, _) = std::sync::mpsc::sync_channel(1);
        let (_, done) = tokio::sync::mpsc::channel(1);
        let (metered, _) = crate::metering::Metered::new(&document, 0);
        Applier::new(
            document,
            about,
            started,
            metered,
            OrderEnds {
                orders: vec![orders],
                done,
            },
            Box::new(|| crem_core::time::Instant(0)),
        )
    }

    async fn idle_clients_and_odd_requests(path: &Path) {
        let listener = bind(path).unwrap();
        let (_latest, latest) = watch::channel(None);
        let (_listing, listing) = watch::channel(None);
        let applier = idle_applier();
        let server = Server {
            about: applier.about(),
            applier: Arc::new(Mutex::new(applier)),
            captures: Arc::new(Mutex::new(Captures::new(Vec::new(), Clock::new()))),
            clock: Clock::new(),
            drivers: Arc::new(std::sync::Mutex::new(Drivers::new(Vec::new()))),
            export: Arc::default(),
            latest,
            listing,
            list_flows: Vec::new(),
        };
        let serving = tokio::spawn(server.serve(listener));
        let mut idle = Vec::new();
        for _ in 0..CLIENTS {
            idle.push(UnixStream::connect(path).await.unwrap());
        }
        let connect = || UnixStream::connect(path);
        let refused = ask(connect().await.unwrap(), b"").await;
        assert!(refused.contains("too many clients"), "{refused}");
        let long = vec![b'x'; MAX_APPLY + 1];
        for (request, expected) in [
            (&b"\xff\xfe\n"[..], "\"malformed\""),
            (b"{}", "the line has no end"),
            (&long, "the line is too long"),
        ] {
            let answer = ask(idle.pop().unwrap(), request).await;
            assert!(answer.contains(expected), "{answer}");
        }
        // Their places are free again.
        let document = ask(
            connect().await.unwrap(),
            b"{\"v\":1,\"get\":\"document\"}\n",
        );
        let document = document.await;
        assert!(document.contains("\"generation\":0"), "{document}");
        let none = b"{\"v\":1,\"apply\":{\"document\":{}}}\n";
        let answer = ask(connect().await.unwrap(), none).await;
        assert!(answer.contains("\"invalid\""), "{answer}");
        let answer = ask(connect().await.unwrap(), b"{\"v\":9}\n").await;
        assert!(answer.contains("\"version\""), "{answer}");
        serving.abort();
    }

    #[test]
    fn no_client_waits_for_an_answer_for_ever() {
        let folder = Folder::new("clients");
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(idle_clients_and_odd_requests(&folder.0.join("s.sock")));
    }

    #[test]
    fn paths_that_no_socket_can_have_are_refused() {
        let folder = Folder::new("paths");
        let file = folder.0.join("file");
        std::fs::write(&file, "").unwrap();
        for path in [
            folder.0.join("x".repeat(120)),
            folder.0.join("a\0b"),
            file.join("s.sock"),
        ] {
            let text = problem(&path);
            assert!(
                text.contains("a path where a Unix socket can be made"),
                "{text}"
            );
        }
    }
}
