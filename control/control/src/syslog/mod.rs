//! Messages of this process to syslog servers elsewhere. [`layer`] takes them where they are logged and never
//! waits, [`message`] writes them as RFC 5424 has it, [`send`] brings them to a server. What a server does not
//! take in time is dropped and counted: nothing waits for one.

pub mod layer;
pub mod message;
mod send;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crem_api::SyslogServer;
use crem_api::rest::SyslogState;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use crate::engine::Engine;
use message::Line;

/// Lines that wait for a server.
pub const QUEUE: usize = 1024;
/// Between an answer and the change that it told of.
const GRACE: Duration = Duration::from_millis(100);

/// Where lines come from.
#[derive(Clone, Debug)]
pub struct Feed(broadcast::Sender<Arc<Line>>);

impl Default for Feed {
    fn default() -> Self {
        Self(broadcast::Sender::new(QUEUE))
    }
}

impl Feed {
    /// Gives a line to every server that there is.
    pub fn push(&self, line: Line) {
        // Without a server nobody wants it.
        let _ = self.0.send(Arc::new(line));
    }

    /// The lines from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Line>> {
        self.0.subscribe()
    }
}

/// How the servers stand, by name.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Mutex<BTreeMap<String, SyslogState>>>);

impl Board {
    /// All of them.
    pub fn all(&self) -> BTreeMap<String, SyslogState> {
        self.lock().clone()
    }

    fn update(&self, name: &str, work: impl FnOnce(&mut SyslogState)) {
        if let Some(state) = self.lock().get_mut(name) {
            work(state);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, SyslogState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Running {
    server: SyslogServer,
    task: JoinHandle<()>,
}

/// Serves the servers of the document until the task is dropped.
pub async fn follow(engine: Engine, feed: Feed, board: Board) {
    let mut changes = engine.follow();
    let mut running: BTreeMap<String, Running> = BTreeMap::new();
    let host = message::host_name();
    loop {
        let wanted = servers(&engine);
        running.retain(|name, run| {
            let keep = wanted.get(name) == Some(&run.server);
            if !keep {
                run.task.abort();
                board.lock().remove(name);
            }
            keep
        });
        for (name, server) in wanted {
            if running.contains_key(&name) {
                continue;
            }
            board.lock().insert(name.clone(), SyslogState::default());
            let sender = send::Sender {
                name: name.clone(),
                server: server.clone(),
                host: host.clone(),
                lines: feed.subscribe(),
                board: board.clone(),
            };
            let task = tokio::spawn(sender.run());
            running.insert(name, Running { server, task });
        }
        if changes.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(GRACE).await;
    }
}

fn servers(engine: &Engine) -> BTreeMap<String, SyslogServer> {
    let view = engine.view();
    let management = view.document.as_ref().and_then(|d| d.management.as_ref());
    management.map(|m| m.syslog.clone()).unwrap_or_default()
}
