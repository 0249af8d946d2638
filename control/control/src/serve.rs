//! Where connections begin and end: the local Unix socket with the credentials of its peer, and TLS
//! listeners that follow the document. Bounded in number, in time and in what a header may hold.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use crem_api::Management;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tower::ServiceExt;

use crate::clock;
use crate::engine::Engine;
use crate::enrol::{self, Enrolment};
use crate::http::auth::{Connection, Peer};
use crate::journal::Journal;
use crate::tls;

/// Connections at once over the network, and over the local socket: one side full leaves the other open.
const CONNECTIONS: usize = 512;
/// Longest time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Longest time for the header of a request.
const HEADER: Duration = Duration::from_secs(10);
/// Longest header, octets, and most fields in it.
const HEADER_OCTETS: usize = 32 << 10;
const HEADER_FIELDS: usize = 64;
/// Between an answer and the change of listeners that it told of.
const GRACE: Duration = Duration::from_millis(500);

/// Serves the local socket until the task is dropped.
///
/// # Errors
/// The socket cannot be made.
pub fn local(path: &Path, router: Router) -> io::Result<JoinHandle<()>> {
    let listener = UnixListener::from_std(crem_api::socket::listen(path)?)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    let own = nix::unistd::geteuid().as_raw();
    Ok(tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let place = Arc::clone(&places).acquire_owned().await;
            let accepted = listener.accept().await;
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let Ok(credentials) = stream.peer_cred() else {
                continue;
            };
            let peer = Peer::Local {
                uid: credentials.uid(),
                trusted: credentials.uid() == 0 || credentials.uid() == own,
            };
            let router = router.clone();
            tokio::spawn(async move {
                converse(stream, peer, router).await;
                drop(place);
            });
        }
    }))
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
) {
    let connection = Connection {
        peer,
        began_ms: clock::now().boot_ms,
    };
    let service = hyper::service::service_fn(move |request: hyper::Request<_>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(connection.clone());
        router.clone().oneshot(request)
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER)
        .max_headers(HEADER_FIELDS)
        .max_buf_size(HEADER_OCTETS);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(32 << 10)
        .max_concurrent_streams(64)
        .keep_alive_interval(Some(Duration::from_secs(30)));
    // A client that goes away is nobody's problem.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

/// Follows the document: opens, closes and keeps listeners as it says, and reads certificates anew when
/// its files change or [`Listeners::reload`] is called.
#[derive(Debug)]
pub struct Listeners {
    open: BTreeMap<SocketAddr, JoinHandle<()>>,
    router: Router,
    tls: watch::Sender<Option<tls::Tls>>,
    journal: Arc<Journal>,
    first: FirstWay,
}

/// Tells something to whoever sees the console.
pub type Tell = Box<dyn Fn(&str) + Send + Sync>;

/// What a box without any other access over the network does.
#[derive(Default)]
pub struct FirstWay {
    /// Where it listens for as long as the document has no listener, and with which certificate.
    pub fallback: Option<Management>,
    /// The code for the first token.
    pub code: Option<String>,
    /// Whether the code still opens something.
    pub enrolment: Arc<Enrolment>,
    /// Tells it on the console. It is in no log that leaves the machine.
    pub tell: Option<Tell>,
}

impl std::fmt::Debug for FirstWay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FirstWay")
            .field("fallback", &self.fallback)
            .finish_non_exhaustive()
    }
}

impl FirstWay {
    /// Listeners and certificate of the document, or what stands in for them.
    fn complete(&self, wanted: Option<Arc<Management>>) -> Option<Arc<Management>> {
        match wanted {
            Some(wanted) if !wanted.listeners.is_empty() => Some(wanted),
            _ => self.fallback.clone().map(Arc::new),
        }
    }

    /// Tells code and fingerprint, for listeners that opened.
    fn announce(&self, wanted: &Management) {
        let (Some(code), Some(tell), Some(tls)) = (&self.code, &self.tell, &wanted.tls) else {
            return;
        };
        if !self.enrolment.is_armed(clock::now().boot_ms) {
            return;
        }
        let fingerprint = enrol::fingerprint(&tls.certificate).unwrap_or_else(|e| e.to_string());
        let addresses: Vec<String> = wanted.listeners.keys().map(ToString::to_string).collect();
        tell(&format!(
            "enrolment code {code}, good for one token and for 30 minutes; {}; certificate SHA-256 {fingerprint}",
            addresses.join(", ")
        ));
    }
}

impl Listeners {
    /// No listener yet.
    pub fn new(router: Router, journal: Arc<Journal>, first: FirstWay) -> Self {
        Self {
            open: BTreeMap::new(),
            router,
            tls: watch::Sender::new(None),
            journal,
            first,
        }
    }

    /// Follows the engine's view until the task is dropped.
    pub async fn follow(mut self, engine: Engine) {
        let mut changes = engine.follow();
        let mut applied = None;
        loop {
            let wanted = self.first.complete(management(&engine));
            if applied.as_ref() != Some(&wanted) {
                if applied.is_some() {
                    // The answer that told of it has to get out first.
                    tokio::time::sleep(GRACE).await;
                }
                self.apply(wanted.as_deref()).await;
                applied = Some(wanted);
            }
            // Also without a change now and then: certificates are renewed.
            match tokio::time::timeout(Duration::from_secs(60), changes.changed()).await {
                Ok(Err(_)) => return,
                Ok(Ok(())) => {}
                Err(_) => self.reload(self.first.complete(management(&engine)).as_deref()),
            }
        }
    }

    fn say(&self, kind: &str, text: String) {
        self.journal.push(clock::now().wall_ms, kind, text, None);
    }

    /// Reads certificates anew, for connections to come; what cannot be read leaves the old ones.
    fn reload(&self, wanted: Option<&Management>) {
        let Some(wanted) = wanted else { return };
        match tls::server(wanted) {
            Ok(tls) => {
                self.tls.send_replace(Some(tls));
            }
            Err(error) => self.say("certificate_unusable", error.to_string()),
        }
    }

    async fn apply(&mut self, wanted: Option<&Management>) {
        self.reload(wanted);
        let addresses = wanted.map(|m| m.listeners.keys().copied().collect::<Vec<_>>());
        let addresses = addresses.unwrap_or_default();
        let mut opened = false;
        let mut closed = Vec::new();
        self.open.retain(|address, task| {
            let keep = addresses.contains(address);
            if !keep {
                task.abort();
                closed.push(*address);
            }
            keep
        });
        for address in closed {
            self.say("listener_closed", format!("{address} is closed."));
        }
        for address in addresses {
            if self.open.contains_key(&address) {
                continue;
            }
            match TcpListener::bind(address).await {
                Ok(listener) => {
                    self.say("listener_open", format!("{address} is open."));
                    let task = network(listener, self.router.clone(), self.tls.subscribe());
                    self.open.insert(address, tokio::spawn(task));
                    opened = true;
                }
                Err(e) => self.say("listener_failed", format!("{address}: {e}")),
            }
        }
        if let Some(wanted) = wanted.filter(|_| opened) {
            self.first.announce(wanted);
        }
    }
}

fn management(engine: &Engine) -> Option<Arc<Management>> {
    let view = engine.view();
    let document = view.document.as_ref()?;
    document.management.clone().map(Arc::new)
}

async fn network(listener: TcpListener, router: Router, tls: watch::Receiver<Option<tls::Tls>>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        let Ok((stream, address)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (router, tls) = (router.clone(), tls.borrow().clone());
        tokio::spawn(async move {
            let Some(tls) = tls else { return };
            let _ = stream.set_nodelay(true);
            let acceptor = tokio_rustls::TlsAcceptor::from(Arc::clone(&tls.config));
            let accepted = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await;
            if let Ok(Ok(stream)) = accepted {
                let shown = tls.shown(stream.get_ref().1);
                converse(stream, Peer::Remote { address, shown }, router).await;
            }
            drop(place);
        });
    }
}
