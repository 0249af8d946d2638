//! The status socket: one JSON line in, one out (`crem_api::protocol`).

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crem_api::protocol::{Body, ErrorCode, ErrorReply, Get, MAX_REQUEST, Reply, Request};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};

use crate::aux::documents::{self, About};
use crate::snapshot::Snapshot;

/// Clients served at once.
const CLIENTS: usize = 64;
/// Longest wait for a snapshot.
const PATIENCE: Duration = Duration::from_secs(2);

/// Listens at `path`. A socket that a killed process left there is replaced.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    let fail =
        |e: io::Error| io::Error::new(e.kind(), format!("status socket {}: {e}", path.display()));
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(fail)?;
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        let taken = io::Error::new(io::ErrorKind::AddrInUse, "another process serves it");
        return Err(fail(taken));
    }
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(fail(e)),
        _ => {}
    }
    UnixListener::bind(path).map_err(fail)
}

/// What answers are made from.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) about: Arc<About>,
    /// The latest snapshot.
    pub(super) latest: watch::Receiver<Option<Arc<Snapshot>>>,
    /// The latest one that lists the flows.
    pub(super) listing: watch::Receiver<Option<Arc<Snapshot>>>,
    pub(super) list_flows: Arc<AtomicBool>,
}

impl Server {
    pub(super) async fn serve(self, listener: UnixListener) {
        let places = Arc::new(Semaphore::new(CLIENTS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, _)) => {
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
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::new(read);
        let mut line = String::new();
        loop {
            line.clear();
            let limit = u64::try_from(MAX_REQUEST).unwrap_or(u64::MAX);
            if (&mut read).take(limit).read_line(&mut line).await? == 0 {
                return Ok(());
            }
            if !line.ends_with('\n') {
                let refusal = refuse(ErrorCode::Malformed, "the line is too long");
                return write.write_all(refusal.to_line().as_bytes()).await;
            }
            let reply = match Request::parse(&line) {
                Ok(request) => self.answer(request.get).await,
                Err(e) => Reply::new(0, Body::Error(e)),
            };
            write.write_all(reply.to_line().as_bytes()).await?;
        }
    }

    async fn answer(&mut self, get: Get) -> Reply {
        let found = async {
            if get == Get::Flows {
                // A list from before the question does not count.
                self.listing.mark_unchanged();
                self.list_flows.store(true, Ordering::Relaxed);
                self.listing.changed().await.ok()?;
                self.listing.borrow_and_update().clone()
            } else {
                self.latest.wait_for(Option::is_some).await.ok()?.clone()
            }
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(Some(snapshot)) => documents::reply(&self.about, &snapshot, get),
            _ => refuse(ErrorCode::Unknown, "the worker gave no answer in time"),
        }
    }
}

fn refuse(code: ErrorCode, message: &str) -> Reply {
    Reply::new(
        0,
        Body::Error(ErrorReply {
            code,
            message: message.to_owned(),
        }),
    )
}
