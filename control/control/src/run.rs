//! The control process: everything joined, until it is told to stop. Nothing is decided here.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crem_api::{Confinement, Empty, Impact, Invalid, Management};
use tokio::sync::{Semaphore, oneshot};

use crate::access::{Attempts, Tokens};
use crate::audit;
use crate::captures::Captures;
use crate::clock;
use crate::engine::{self, Engine, Parts, WriteRequest};
use crate::enrol::{self, Enrolment};
use crate::host;
use crate::http::{self, App};
use crate::journal::Journal;
use crate::lldp;
use crate::metrics::Metrics;
use crate::plan::{self, Edit};
use crate::plane::SocketPlane;
use crate::serve::{self, FirstWay, Listeners, Tell};
use crate::store::{Durability, Store, StoreError};
use crate::support::Bundles;
use crate::syslog::{self, Board, Feed};
use crate::watcher::{Sockets, Watcher};

/// What a control process is started with.
pub struct Options {
    /// Directory for revisions, tokens and the audit log.
    pub state: PathBuf,
    /// Local socket of the API.
    pub socket: PathBuf,
    /// Sockets of the other processes.
    pub others: Sockets,
    /// File in which the fleet agent, if there is one, tells its status.
    pub fleet_status: PathBuf,
    /// What this process gave up.
    pub confinement: Confinement,
    /// A document to begin the history with, if there is none.
    pub import: Option<PathBuf>,
    /// Where to listen for as long as the document has no listener.
    pub first_listener: Option<SocketAddr>,
    /// Tells whoever sees the console how to get in for the first time.
    pub tell: Option<Tell>,
    /// What is logged, for syslog servers.
    pub log: Feed,
    /// Told when the process is to end.
    pub stop: oneshot::Receiver<()>,
    /// Called once, when the API answers.
    pub on_ready: Box<dyn FnOnce() + Send>,
    /// Whom to tell that the process is alive.
    pub alive: Option<Alive>,
}

/// Told again and again for as long as requests are served and changes are decided on.
pub struct Alive {
    /// How often.
    pub every: Duration,
    /// The telling.
    pub tell: Box<dyn Fn() + Send>,
}

impl Alive {
    async fn run(self, engine: Engine) {
        loop {
            tokio::time::sleep(self.every).await;
            // The thread of commits has to answer as well.
            if engine.answers().await {
                (self.tell)();
            }
        }
    }
}

/// Why a control process did not start.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The document to import has problems.
    #[error("{0}")]
    Invalid(Invalid),
    /// The history cannot be used.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// A socket or file cannot be used.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Runs until it is told to stop.
///
/// # Errors
/// [`Failure`], when it does not start.
pub fn run(options: Options) -> Result<(), Failure> {
    let store = Store::open(&options.state, Durability::Flushed)?;
    let _lock = lock(&options.state)?;
    let audit = Arc::new(audit::Log::open(&options.state.join("audit.jsonl"))?);
    let journal = Arc::new(Journal::of_start(clock::now().wall_ms));
    let (engine, thread) = engine::start(Parts {
        store,
        plane: Box::new(SocketPlane::new(&options.others.dataplane)),
        journal: Arc::clone(&journal),
        audit: Arc::clone(&audit),
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let links = Arc::default();
    let (follower, machine) = host::Follower::new(
        Arc::clone(&journal),
        host::names::Places::below(options.socket.parent().unwrap_or(Path::new("."))),
        Arc::clone(&links),
    );
    let tokens = Arc::new(Tokens::open(&options.state.join("tokens.json"))?);
    let enrolment = Arc::new(Enrolment::default());
    let board = Board::default();
    let neighbours = lldp::Shared::default();
    let (interfaces, heard) = (machine.clone(), Arc::clone(&journal));
    let plane = SocketPlane::new(&options.others.dataplane);
    let app = App {
        machine,
        syslog: board.clone(),
        neighbours: Arc::clone(&neighbours),
        links,
        captures: Arc::new(Captures::open(&options.state.join("captures"), plane)?),
        support: Arc::new(Bundles::open(&options.state.join("support"))?),
        downloads: Arc::new(Semaphore::new(http::DOWNLOADS)),
        tests: Arc::new(Semaphore::new(http::TESTS)),
        watcher: Watcher::start(
            options.others,
            engine.clone(),
            Arc::clone(&journal),
            Arc::clone(&audit),
        )?,
        tokens: Arc::clone(&tokens),
        enrolment: Arc::clone(&enrolment),
        attempts: Arc::new(Attempts::default()),
        metrics: Arc::new(Metrics::new(&options.state, &options.fleet_status)),
        confinement: Arc::new(options.confinement),
        engine: engine.clone(),
        journal: Arc::clone(&journal),
        audit,
    };
    let ran = runtime.block_on(async {
        import(&engine, options.import.as_deref()).await?;
        let router = http::router(app);
        let local = serve::local(&options.socket, router.clone())
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", options.socket.display())))?;
        let first = FirstWay {
            tell: options.tell,
            ..first_way(
                options.first_listener,
                &options.state,
                &engine,
                &tokens,
                enrolment,
            )?
        };
        let listeners = Listeners::new(router, journal, first);
        let following = tokio::spawn(listeners.follow(engine.clone()));
        lldp::start(neighbours, interfaces, heard)?;
        let machine = tokio::spawn(follower.follow(engine.clone()));
        let syslog = tokio::spawn(syslog::follow(engine.clone(), options.log, board));
        let alive = options.alive.map(|a| tokio::spawn(a.run(engine.clone())));
        (options.on_ready)();
        let _ = options.stop.await;
        local.abort();
        following.abort();
        machine.abort();
        syslog.abort();
        alive.inspect(tokio::task::JoinHandle::abort);
        let _ = std::fs::remove_file(&options.socket);
        Ok(())
    });
    engine.stop();
    if thread.join().is_err() {
        tracing::error!("the thread of commits panicked");
    }
    ran
}

/// How to get in for the first time: with a code, while there is neither a token nor a client with a certificate.
fn first_way(
    listener: Option<SocketAddr>,
    state: &Path,
    engine: &Engine,
    tokens: &Tokens,
    enrolment: Arc<Enrolment>,
) -> io::Result<FirstWay> {
    let fallback = match listener {
        None => None,
        Some(address) => Some(Management {
            listeners: [(address, Empty {})].into(),
            tls: Some(enrol::own_certificate(state)?),
            ..Management::default()
        }),
    };
    let view = engine.view();
    let management = view.document.as_ref().and_then(|d| d.management.as_ref());
    let nobody = tokens.list().is_empty() && management.is_none_or(|m| m.clients.is_empty());
    let now_ms = clock::now().boot_ms;
    let code = if nobody {
        Some(enrolment.arm(now_ms)?)
    } else {
        None
    };
    Ok(FirstWay {
        fallback,
        code,
        enrolment,
        tell: None,
    })
}

/// Two processes must not write the same history.
fn lock(state: &Path) -> io::Result<nix::fcntl::Flock<std::fs::File>> {
    let path = state.join("lock");
    let file = std::fs::File::create(&path)?;
    nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock).map_err(|(_, e)| {
        io::Error::other(format!(
            "{}: {e}: another control process keeps its history there",
            path.display()
        ))
    })
}

async fn import(engine: &Engine, path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    if engine.view().machine.running().is_some() {
        tracing::info!("{}: not imported, there is a history", path.display());
        return Ok(());
    }
    let value = plan::import(path).map_err(Failure::Invalid)?;
    let request = WriteRequest {
        edit: Edit::Replace(value),
        pointer: String::new(),
        source: "import",
        expected: None,
        window_ms: None,
        max_impact: Impact::Process,
        comment: Some(format!("from {}", path.display())),
        idempotency: None,
        actor: "system".to_owned(),
    };
    let written = engine.write(request).await;
    written.map_err(|problem| io::Error::other(problem.detail.clone()))?;
    Ok(())
}
