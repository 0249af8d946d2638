//! The thread that all changes go through, one after the other. It owns the store and the commit machine,
//! carries out what the machine asks for, and keeps its deadlines. Clients hold no lock and no session in
//! it: whatever they do, an expired commit is rolled back.

mod handle;
mod write;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crem_api::Document;
use crem_api::rest::{Cause, Operation, OperationState, Problem, Step};
use serde_json::Value;
use tokio::sync::watch;

use crate::commit::{Action, Input, Machine, Outcome, Refusal};
use crate::journal::Journal;
use crate::plan;
use crate::plane::{Plane, Taken};
use crate::problem::{self, Kind, problem};
use crate::store::{Store, StoreError};
use crate::view::View;
use crate::{audit, clock};

use handle::Command;
pub use handle::{CommitRequest, Engine, WriteRequest};

/// Commands that may wait.
const QUEUE: usize = 64;
/// Longest sleep without a deadline.
const LONG: Duration = Duration::from_secs(3600);

/// What the thread works with.
pub struct Parts {
    /// Where everything is kept.
    pub store: Store,
    /// The data plane.
    pub plane: Box<dyn Plane>,
    /// What happened.
    pub journal: Arc<Journal>,
    /// Who did what.
    pub audit: Arc<audit::Log>,
}

/// Starts the thread. What a stopped process left under way is rolled back before this returns.
///
/// # Errors
/// The store cannot be used.
pub fn start(parts: Parts) -> Result<(Engine, JoinHandle<()>), StoreError> {
    let core = Core::recover(parts)?;
    let (commands, queue) = sync_channel(QUEUE);
    let view = watch::Sender::new(Arc::new(core.picture()));
    let engine = Engine::new(commands, view.subscribe());
    let thread = std::thread::Builder::new()
        .name("crem-commit".to_owned())
        .spawn(move || core.run(&queue, &view))
        .map_err(|error| StoreError::Io {
            path: Path::new("thread").to_path_buf(),
            error,
        })?;
    Ok((engine, thread))
}

/// State of the thread.
pub(crate) struct Core {
    store: Store,
    plane: Box<dyn Plane>,
    journal: Arc<Journal>,
    audit: Arc<audit::Log>,
    machine: Machine,
    value: Arc<Value>,
    document: Option<Arc<Document>>,
    /// A revision that was just written, and its document as it was checked: it is not checked twice.
    planned: Option<(u64, Arc<Document>)>,
    /// The data plane that was given the running document.
    told: Option<String>,
    restart_needed: bool,
    rollbacks: BTreeMap<&'static str, u64>,
}

impl Core {
    pub(crate) fn recover(parts: Parts) -> Result<Self, StoreError> {
        let (confirmed, armed) = (parts.store.confirmed()?, parts.store.armed()?);
        let (machine, actions) = Machine::recover(confirmed, armed);
        let mut core = Self {
            store: parts.store,
            plane: parts.plane,
            journal: parts.journal,
            audit: parts.audit,
            machine,
            value: Arc::default(),
            document: None,
            planned: None,
            told: None,
            restart_needed: false,
            rollbacks: BTreeMap::new(),
        };
        core.load(core.machine.running())?;
        if !actions.is_empty() {
            core.perform(actions);
        }
        Ok(core)
    }

    fn run(mut self, queue: &Receiver<Command>, view: &watch::Sender<Arc<View>>) {
        loop {
            let wait = self.machine.deadline().map_or(LONG, |deadline| {
                Duration::from_millis(deadline.saturating_sub(clock::now().boot_ms).max(1))
            });
            let command = match queue.recv_timeout(wait) {
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(command) => Some(command),
                Err(RecvTimeoutError::Timeout) => None,
            };
            // Expiry first: a confirmation that comes too late is too late.
            self.take(Input::Tick).ok();
            let reply: Box<dyn FnOnce()> = match command {
                Some(Command::Write(request, answer)) => {
                    let written = self.write(*request);
                    Box::new(move || drop(answer.send(written)))
                }
                Some(Command::Commit(revision, request, answer)) => {
                    let done = self.commit(revision, request);
                    Box::new(move || drop(answer.send(done)))
                }
                Some(Command::Answer(answer)) => {
                    Box::new(move || answer.send(()).unwrap_or_default())
                }
                Some(Command::PlaneSeen(instance)) => {
                    self.plane_seen(instance);
                    Box::new(|| ())
                }
                Some(Command::Stop) | None => Box::new(|| ()),
            };
            // Whoever is answered sees what it is told.
            view.send_replace(Arc::new(self.picture()));
            reply();
        }
    }

    pub(crate) fn picture(&self) -> View {
        View {
            revisions: Arc::new(self.store.revisions().clone()),
            operations: Arc::new(self.store.operations().clone()),
            value: Arc::clone(&self.value),
            document: self.document.clone(),
            machine: self.machine.clone(),
            restart_needed: self.restart_needed,
            rollbacks: self.rollbacks.clone(),
        }
    }

    /// Makes a revision the one that readers see as running.
    fn load(&mut self, number: Option<u64>) -> Result<(), StoreError> {
        let Some(number) = number else {
            (self.value, self.document) = (Arc::default(), None);
            return Ok(());
        };
        let value = self.store.document(number)?;
        self.show(number, value);
        Ok(())
    }

    /// The same with the document as it was read.
    fn show(&mut self, number: u64, value: Value) {
        self.value = Arc::new(value);
        if let Some((_, document)) = self.planned.take().filter(|(of, _)| *of == number) {
            self.document = Some(document);
            return;
        }
        // Another version may have taken what this one refuses: it still runs.
        self.document = match plan::parse(&self.value) {
            Ok(document) => Some(Arc::new(document)),
            Err(invalid) => {
                tracing::error!("revision {number} is not accepted by this version: {invalid}");
                None
            }
        };
    }

    fn commit(&mut self, revision: u64, request: CommitRequest) -> Result<(), Box<Problem>> {
        let input = match request {
            CommitRequest::Confirm { connected_ms } => Input::Confirm {
                revision,
                connected_ms,
            },
            CommitRequest::Cancel => Input::Cancel { revision },
            CommitRequest::Extend { by_ms } => Input::Extend { revision, by_ms },
        };
        self.take(input).map_err(|refusal| self.refuse(refusal))
    }

    fn plane_seen(&mut self, instance: String) {
        if self.told.as_ref() == Some(&instance) {
            return;
        }
        self.told = Some(instance);
        let waited = self.machine.deadline().is_some();
        self.take(Input::DataplaneRestarted).ok();
        if waited {
            return;
        }
        self.restart_needed = false;
        let Some(number) = self.machine.running() else {
            return;
        };
        // It began with the confirmed document; should that have changed since, it gets the new one.
        if let Taken::NeedsRestart(_) = self.plane.apply(number, &self.value, false) {
            self.restart_needed = true;
        }
    }

    /// Gives the machine an input and carries out what it asks for.
    fn take(&mut self, input: Input) -> Result<(), Refusal> {
        let actions = self.machine.input(clock::now(), input)?;
        self.perform(actions);
        Ok(())
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Arm(armed) => {
                    if let Err(error) = self.store.arm(&armed) {
                        self.not_armed(&error);
                        return;
                    }
                }
                Action::Disarm => self.log_failure(|store| store.disarm()),
                Action::Promote(number) => {
                    if let Err(error) = self.store.promote(number) {
                        self.not_promoted(&error);
                        return;
                    }
                    self.tell("commit_confirmed", "is confirmed", number);
                }
                Action::Push(number) => {
                    let pushed = self.push(number);
                    self.take(Input::Pushed(pushed)).ok();
                }
                Action::Restore(number) => {
                    self.restore(number);
                    self.take(Input::Restored).ok();
                }
                Action::Wait => {
                    let number = self.machine.running().unwrap_or(0);
                    self.tell("commit_pending", "waits to be confirmed", number);
                }
                Action::Conclude {
                    operation,
                    revision,
                    outcome,
                } => self.conclude(&operation, revision, outcome),
            }
        }
    }

    fn tell(&self, kind: &str, what: &str, number: u64) {
        let text = format!("Revision {number} {what}.");
        self.journal
            .push(clock::now().wall_ms, kind, text, Some(number));
    }

    fn log_failure(&mut self, work: impl FnOnce(&mut Store) -> Result<(), StoreError>) {
        if let Err(error) = work(&mut self.store) {
            tracing::error!("{error}");
        }
    }

    /// The way back could not be written down. At the start of a commit that ends it before anything was
    /// touched; later (a new deadline) the one on disk still leads to the same revision.
    fn not_armed(&mut self, error: &StoreError) {
        tracing::error!("{error}");
        self.take(Input::NotArmed(error.to_string())).ok();
    }

    /// The link still leads to the old revision, so that is what runs on.
    fn not_promoted(&mut self, error: &StoreError) {
        tracing::error!("{error}");
        let confirmed = self.store.confirmed().ok().flatten();
        let armed = self.store.armed().ok().flatten();
        let (machine, actions) = Machine::recover(confirmed, armed);
        self.machine = machine;
        self.perform(actions);
    }

    fn push(&mut self, number: u64) -> Result<(), String> {
        let value = self.store.document(number).map_err(|e| e.to_string())?;
        self.told = self.plane.instance();
        match self.plane.apply(number, &value, false) {
            Taken::InForce(_) => self.restart_needed = false,
            Taken::Absent => {}
            Taken::NeedsRestart(_) => self.restart_needed = true,
            Taken::Refused(invalid) => return Err(invalid.to_string()),
            Taken::Failed(why) => return Err(why),
        }
        self.show(number, value);
        Ok(())
    }

    fn restore(&mut self, number: Option<u64>) {
        if let Err(error) = self.load(number) {
            tracing::error!("{error}");
        }
        let Some(number) = number else {
            return;
        };
        self.told = self.plane.instance();
        match self.plane.apply(number, &self.value, false) {
            Taken::InForce(_) | Taken::Absent => self.restart_needed = false,
            Taken::NeedsRestart(_) => self.restart_needed = true,
            Taken::Refused(invalid) => {
                tracing::error!("revision {number} came back, but {invalid}")
            }
            Taken::Failed(why) => tracing::error!("revision {number} came back, but {why}"),
        }
    }

    fn conclude(&mut self, id: &str, revision: u64, outcome: Outcome) {
        let at_ms = clock::now().wall_ms;
        let Some(mut operation) = self.store.operations().get(id).cloned() else {
            return;
        };
        let text = match outcome {
            Outcome::Succeeded => {
                operation.state = OperationState::Succeeded;
                "confirmed".to_owned()
            }
            Outcome::Failed(why) => {
                operation.state = OperationState::Failed;
                let failed = Problem {
                    operation: Some(id.to_owned()),
                    cause: Some(Cause::ApplyFailed),
                    ..*problem(Kind::ApplyFailed, &why)
                };
                operation.problem = Some(Box::new(failed));
                *self.rollbacks.entry(Cause::ApplyFailed.name()).or_default() += 1;
                self.tell("commit_failed", &format!("failed: {why}"), revision);
                why
            }
            Outcome::RolledBack(cause) => {
                operation.state = OperationState::RolledBack;
                operation.problem = Some(problem::rolled_back(cause, id));
                *self.rollbacks.entry(cause.name()).or_default() += 1;
                let text = format!("was rolled back: {}", cause.name());
                self.tell("commit_rolled_back", &text, revision);
                // For whoever sits in front of the machine: the network may be what was lost.
                eprintln!("crem-gateway: revision {revision} {text}");
                self.audit.system(at_ms, "rollback", revision, &text);
                text
            }
        };
        operation.steps.push(Step { at_ms, text });
        self.save(&operation);
    }

    fn save(&mut self, operation: &Operation) {
        if let Err(error) = self.store.save(operation) {
            tracing::error!("{error}");
        }
    }

    fn refuse(&self, refusal: Refusal) -> Box<Problem> {
        let commit = self.machine.commit(clock::now());
        let with_commit = |kind, detail: String| {
            Box::new(Problem {
                commit: Some(commit.clone()),
                ..*problem(kind, detail)
            })
        };
        match refusal {
            Refusal::Busy => {
                let detail = "Confirm or cancel it first, or wait until it expires.".to_owned();
                with_commit(Kind::CommitPending, detail)
            }
            Refusal::NothingPending => with_commit(
                Kind::NoSuchCommit,
                "No commit waits to be confirmed.".to_owned(),
            ),
            Refusal::OtherRevision(number) => {
                let detail = format!("The commit that waits is that of revision {number}.");
                with_commit(Kind::NoSuchCommit, detail)
            }
            Refusal::OldConnection => {
                let detail =
                    "This connection began before the change was in force: it does not show \
                              that new ones still get through."
                        .to_owned();
                with_commit(Kind::OldConnection, detail)
            }
            Refusal::Window => problem(
                Kind::BadRequest,
                "A time for confirming is 1s to 3600s from now.",
            ),
        }
    }
}

#[cfg(test)]
mod tests;
