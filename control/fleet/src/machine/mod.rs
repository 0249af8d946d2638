//! What to do next: a machine that takes what happened and gives what is to be done. Every request has one answer,
//! and while one is awaited nothing else is asked.
//!
//! | state | what happened | what follows |
//! |---|---|---|
//! | `Idle` | the desired document or the running one is another | ask for a plan: `Planning` |
//! | `Planning` | the plan has problems | refused, `Idle` |
//! | | the plan changes nothing | applied, `Idle` |
//! | | the plan changes something | `Waiting` |
//! | `Waiting` | the lock of the pair and a place are free | take them: `Taking` |
//! | | another document is desired, or runs | `Idle` |
//! | `Taking` | ours | `Measuring`; else `Waiting` |
//! | `Measuring` | the box told how it is | keep that, ask for the change: `Writing` |
//! | `Writing` | in force, unconfirmed | `Gating` |
//! | | another change is in the way | another try, `Idle` |
//! | | refused, or failed | refused or failed, `Idle` |
//! | | no answer | ask once more with the same key |
//! | `Gating` | as well as before for long enough | `Confirming` |
//! | | not as well until the end of the gate | `Cancelling` |
//! | | the commit does not wait any more | `Asking` |
//! | `Confirming` | confirmed | applied, `Idle`; else `Asking` or `Gating` |
//! | `Cancelling` | cancelled | failed, `Idle`; else `Asking` |
//! | `Asking` | the outcome of the operation | applied, failed, or another try, `Idle` |
//!
//! In `Idle` what was taken is given back. A start begins in `Idle` with the memory of the last change: if that
//! still waits to be confirmed, it goes on with `Gating`.

mod answers;
mod decide;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crem_api::rest::{Commit, Operation, Plan, Problem, Written};
use serde_json::Value;

use crate::health::Health;
use crate::layers::{Desired, Version};
use crate::memory::Memory;
use crate::settings::{LocalChanges, Rollout, Settings};
use crate::status::{Counts, Phase, Status};
use crate::store::{Halt, Store, Turn};

/// Tries of a version that end without a verdict on it, until it is given up.
const MAX_TRIES: u32 = 3;
/// Between two of them, milliseconds.
const RETRY_MS: u64 = 5_000;
/// The same request again, when there was no answer.
const MAX_REPEATS: u32 = 5;
/// After a lock was taken or given back, until its news are here, milliseconds.
const NEWS_MS: u64 = 500;

/// How the box is.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BoxState {
    /// Revision that runs.
    pub running: Option<u64>,
    /// What its maker said about it.
    pub comment: Option<String>,
    /// The commit under way.
    pub commit: Commit,
    /// How it is otherwise.
    pub health: Health,
}

/// Why a request has no good answer.
#[derive(Clone, PartialEq, Debug)]
pub enum Trouble {
    /// The answer is a problem document.
    Problem(Box<Problem>),
    /// There was no answer, in words: nobody knows whether it was done.
    NoAnswer(String),
}

/// What happened.
#[derive(Clone, PartialEq, Debug)]
pub enum Input {
    /// News of etcd, or that it is away or back.
    News,
    /// The box told how it is, or did not answer.
    Box(Result<Box<BoxState>, String>),
    /// Answer to [`Action::Plan`]: ETag of the document that runs, and the plan.
    Planned(Result<(String, Plan), Trouble>),
    /// Answer to [`Action::Take`].
    Taken(bool),
    /// Answer to [`Action::Write`].
    Written(Result<Written, Trouble>),
    /// Answer to [`Action::Confirm`].
    Confirmed(Result<(), Trouble>),
    /// Answer to [`Action::Cancel`].
    Cancelled(Result<(), Trouble>),
    /// Answer to [`Action::Ask`].
    Operation(Result<Box<Operation>, Trouble>),
    /// Answer to [`Action::GiveBack`], whatever it was.
    GivenBack,
}

/// What is to be done. Those with an answer come one at a time.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Ask what a document would change.
    Plan(Arc<Value>),
    /// Take the lock of the pair and a place.
    Take(Turn),
    /// Replace the document.
    Write(Write),
    /// Confirm a revision, over a new connection.
    Confirm(u64),
    /// Cancel a revision.
    Cancel(u64),
    /// Ask for an operation.
    Ask(String),
    /// Give keys back that were made in these revisions.
    GiveBack(Vec<(String, u64)>),
    /// Tell the fleet that nobody should begin. No answer.
    Halt(Halt),
    /// Keep the memory, before the next action. No answer.
    Save(Memory),
    /// Tell the status. No answer.
    Report(Box<Status>),
}

/// A change to ask for.
#[derive(Clone, PartialEq, Debug)]
pub struct Write {
    /// The document.
    pub document: Arc<Value>,
    /// ETag of the one that it replaces.
    pub etag: String,
    /// `Idempotency-Key`, and the comment of the revision.
    pub key: String,
}

/// A document that is to be brought into force.
#[derive(Clone, PartialEq, Debug)]
struct Wanted {
    version: Version,
    document: Arc<Value>,
    etag: String,
    /// The revision that it was compared with.
    base: Option<u64>,
}

/// A change that is in force.
#[derive(Clone, PartialEq, Debug)]
struct Change {
    version: String,
    operation: String,
    revision: u64,
    before: Health,
    gate_end_ms: u64,
    well_since_ms: Option<u64>,
    /// Why we cancelled it, and whether that says nothing about the document.
    verdict: Option<(Box<Problem>, bool)>,
}

#[derive(Clone, PartialEq, Debug)]
enum State {
    Idle,
    Planning(Version, Arc<Value>),
    Waiting(Wanted),
    Taking(Wanted),
    Measuring(Wanted),
    Writing {
        wanted: Wanted,
        key: String,
        before: Health,
        repeats: u32,
        asked: bool,
    },
    Gating(Change),
    Confirming(Change),
    Cancelling(Change),
    Asking {
        change: Change,
        asked: bool,
    },
    GivingBack,
}

/// The machine.
#[derive(Debug)]
pub struct Machine {
    node: String,
    pair: String,
    rollout: Rollout,
    local_changes: LocalChanges,
    state: State,
    memory: Memory,
    saved: Memory,
    the_box: Result<Box<BoxState>, String>,
    /// The desired document, and the edition of the store that it was made of.
    desired: Option<((u64, u64), Option<Desired>)>,
    /// A version and the running revision that it was compared with; whether they differ.
    compared: Option<(String, Option<u64>, bool)>,
    retry_at_ms: u64,
    take_at_ms: u64,
    give_back_at_ms: u64,
    halt: Option<(Version, Halt)>,
    waiting_for: Option<String>,
    told: Option<Status>,
    template: Status,
    counts: Counts,
}

impl Machine {
    /// A machine after a start, with what it remembers of before.
    pub fn new(settings: &Settings, software: &str, memory: Memory) -> Self {
        let identity = &settings.identity;
        Self {
            node: identity.node.clone(),
            pair: identity.pair.clone(),
            rollout: settings.rollout.clone(),
            local_changes: settings.local_changes,
            state: State::Idle,
            saved: memory.clone(),
            memory,
            the_box: Err("not asked yet".to_owned()),
            desired: None,
            compared: None,
            retry_at_ms: 0,
            take_at_ms: 0,
            give_back_at_ms: 0,
            halt: None,
            waiting_for: None,
            told: None,
            counts: Counts::default(),
            template: Status {
                node: identity.node.clone(),
                fleet: identity.fleet.clone(),
                pair: identity.pair.clone(),
                software: software.to_owned(),
                ..Status::default()
            },
        }
    }

    /// Whether a change is under way: the box is to be looked at often, with its flows.
    pub fn is_changing(&self) -> bool {
        !matches!(
            self.state,
            State::Idle | State::Planning(..) | State::Waiting(_) | State::GivingBack
        )
    }

    /// What became of documents since the start.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The status is told again, since it is gone where it was told.
    pub fn forget_told(&mut self) {
        self.told = None;
    }

    /// Takes what happened at a time of a clock that cannot be set, milliseconds; `store` is what is in etcd, none
    /// while that is away. Gives what is to be done, in this order.
    pub fn take(&mut self, now_ms: u64, store: Option<&Store>, input: Input) -> Vec<Action> {
        self.follow(store);
        let mut actions = Vec::new();
        let asks = self.absorb(now_ms, store, input);
        let next = asks.or_else(|| self.decide(now_ms, store));
        if let Some(halt) = self.due_halt(store) {
            actions.push(Action::Halt(halt));
        }
        if self.memory != self.saved {
            self.saved = self.memory.clone();
            actions.push(Action::Save(self.memory.clone()));
        }
        let status = self.status(store);
        if self.told.as_ref() != Some(&status) {
            self.told = Some(status.clone());
            actions.push(Action::Report(Box::new(status)));
        }
        actions.extend(next);
        actions
    }

    fn follow(&mut self, store: Option<&Store>) {
        let Some(store) = store else { return };
        let known = self.desired.as_ref().map(|(at, _)| *at);
        if known != Some(store.edition()) {
            self.desired = Some((store.edition(), store.desired()));
        }
    }

    fn wanted(&self) -> Option<&Desired> {
        self.desired.as_ref()?.1.as_ref()
    }

    fn due_halt(&mut self, store: Option<&Store>) -> Option<Halt> {
        let store = store?;
        let (version, halt) = self.halt.take()?;
        let due = store.may_halt(&version);
        self.counts.halts += u64::from(due);
        due.then_some(halt)
    }

    fn status(&self, store: Option<&Store>) -> Status {
        let the_box = self.the_box.as_deref().ok();
        let plane = the_box.and_then(|b| b.health.dataplane.as_ref());
        let modes = plane.into_iter().flat_map(|p| &p.segments);
        let mut status = Status {
            desired: self.wanted().map(|d| d.version.to_string()),
            applied: self.memory.applied.clone(),
            running: the_box.and_then(|b| b.running),
            modes: modes.map(|(id, s)| (id.clone(), s.mode.clone())).collect(),
            waiting_for: self.waiting_for.clone(),
            ..self.template.clone()
        };
        self.stand(store, &mut status);
        status
    }

    /// How we stand to what is desired.
    fn stand(&self, store: Option<&Store>, status: &mut Status) {
        let known = |v: &str| status.desired.as_deref() == Some(v);
        let given_up = self.memory.given_up.as_ref();
        let given_up = given_up.filter(|g| known(&g.version));
        let compared = self.compared.as_ref();
        let compared = compared.filter(|(v, ..)| known(v));
        status.state = if self.is_changing() {
            Phase::RollingOut
        } else if let Some(given_up) = given_up {
            status.problem = Some(given_up.problem.clone());
            given_up.phase
        } else if status.desired.is_none() && store.is_some() {
            Phase::None
        } else if let (Some((.., differs)), State::Idle | State::GivingBack) =
            (compared, &self.state)
        {
            if *differs {
                Phase::ChangedLocally
            } else {
                Phase::Applied
            }
        } else {
            Phase::Waiting
        };
        if status.state != Phase::Waiting {
            status.waiting_for = None;
        }
    }
}
