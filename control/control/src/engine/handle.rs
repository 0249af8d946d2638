//! The way to the thread of changes: what may be asked of it, and waiting for the answer. Nothing is decided here.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use crem_api::Impact;
use crem_api::rest::{Problem, Written};
use tokio::sync::{oneshot, watch};

use crate::plan::Edit;
use crate::problem::{Kind, problem};
use crate::view::View;

/// A change that a client asks for.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    /// What is to change.
    pub edit: Edit,
    /// JSON pointer of the part of the document that `edit` is about.
    pub pointer: String,
    /// `put`, `patch`, `restore` or `import`.
    pub source: &'static str,
    /// ETags of which the running document has to have one; `None` for whatever runs.
    pub expected: Option<Vec<String>>,
    /// Time for confirming, milliseconds.
    pub window_ms: Option<u64>,
    /// What it may disturb.
    pub max_impact: Impact,
    /// Why, in words.
    pub comment: Option<String>,
    /// Hash of the client's key, and hash of its request.
    pub idempotency: Option<(String, String)>,
    /// Who.
    pub actor: String,
}

/// What a commit's owner may ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitRequest {
    /// Keep it; with the time at which the connection began, on the boot clock.
    Confirm {
        /// When.
        connected_ms: u64,
    },
    /// Give it up.
    Cancel,
    /// Wait longer.
    Extend {
        /// By so many milliseconds.
        by_ms: u64,
    },
}

type Answer<T> = oneshot::Sender<Result<T, Box<Problem>>>;

pub(super) enum Command {
    Write(Box<WriteRequest>, Answer<Written>),
    Commit(u64, CommitRequest, Answer<()>),
    /// This data plane answers, and it did not before.
    PlaneSeen(String),
    /// Say that you are there.
    Answer(oneshot::Sender<()>),
    Stop,
}

/// The way to the thread.
#[derive(Clone, Debug)]
pub struct Engine {
    commands: SyncSender<Command>,
    view: watch::Receiver<Arc<View>>,
}

impl Engine {
    pub(super) fn new(commands: SyncSender<Command>, view: watch::Receiver<Arc<View>>) -> Self {
        Self { commands, view }
    }

    /// What readers see now.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.borrow())
    }

    /// Changes with every change.
    pub fn follow(&self) -> watch::Receiver<Arc<View>> {
        self.view.clone()
    }

    /// Asks for a change and waits until it is in force, or is not.
    ///
    /// # Errors
    /// Why nothing changed.
    pub async fn write(&self, request: WriteRequest) -> Result<Written, Box<Problem>> {
        let (answer, answered) = oneshot::channel();
        self.send(Command::Write(Box::new(request), answer))?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Asks something of the commit whose revision this is.
    ///
    /// # Errors
    /// Why nothing changed.
    pub async fn commit(&self, revision: u64, request: CommitRequest) -> Result<(), Box<Problem>> {
        let (answer, answered) = oneshot::channel();
        self.send(Command::Commit(revision, request, answer))?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Tells which data plane answers, when that is another one than before.
    pub fn plane_seen(&self, instance: String) {
        let _ = self.commands.send(Command::PlaneSeen(instance));
    }

    /// Whether the thread does its work: the answer comes when it has done what waits before.
    pub async fn answers(&self) -> bool {
        let (answer, answered) = oneshot::channel();
        self.commands.try_send(Command::Answer(answer)).is_ok() && answered.await.is_ok()
    }

    /// Ends the thread when it has done what it is at.
    pub fn stop(&self) {
        let _ = self.commands.send(Command::Stop);
    }

    fn send(&self, command: Command) -> Result<(), Box<Problem>> {
        self.commands
            .try_send(command)
            .map_err(|_| problem(Kind::TooManyAttempts, "Too many changes wait already."))
    }
}

fn gone() -> Box<Problem> {
    problem(Kind::Internal, "The process is about to end.")
}
