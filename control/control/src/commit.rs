//! The commit machine: a document is armed, brought into force, and then confirmed or rolled back. It has
//! no clock, no file and no socket: time, the stored state and the outcomes of actions are arguments, and
//! what is to be done comes back as actions in the order in which they have to be carried out.
//!
//! The invariants, each with the test that shows it in `commit/tests.rs`: nothing is touched before the
//! way back is on disk; nothing but confirm, cancel, extend, expiry, a restart or a failed apply moves a
//! pending commit; there is one at a time; the way back leads to the last confirmed revision, by its
//! number, also after extension; no client is needed for it; whoever starts finds the confirmed revision.

use crem_api::rest::{Cause, Commit, CommitPhase};
use serde::{Deserialize, Serialize};

/// Shortest and longest time for confirming, milliseconds.
pub const WINDOW_MS: std::ops::RangeInclusive<u64> = 1_000..=3_600_000;

/// A moment on two clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Milliseconds since the machine booted, time asleep included. Deadlines are kept on this clock: it
    /// cannot be set.
    pub boot_ms: u64,
    /// Milliseconds since 1970, for people.
    pub wall_ms: u64,
}

/// What is on disk before anything is touched: the way back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Armed {
    /// The operation that this is part of.
    pub operation: String,
    /// The revision on its way into force.
    pub revision: u64,
    /// The last confirmed revision, to come back; none if there never was one.
    pub rollback_to: Option<u64>,
    /// Time for confirming, milliseconds; without it success confirms at once.
    pub window_ms: Option<u64>,
    /// End of that time on the boot clock.
    pub deadline_boot_ms: u64,
    /// The same on the wall clock.
    pub deadline_wall_ms: u64,
    /// Whose commit it is.
    pub actor: String,
}

/// How an operation ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Confirmed.
    Succeeded,
    /// Never in force, with the reason in words.
    Failed(String),
    /// In force, and then no more.
    RolledBack(Cause),
}

/// What is to be done, in order. If one cannot be done, the next ones are not to be tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Put this on disk, durably.
    Arm(Armed),
    /// Take it off the disk.
    Disarm,
    /// Make this revision the one that a start begins with, durably and at once.
    Promote(u64),
    /// Bring this revision into force and tell the outcome as [`Input::Pushed`].
    Push(u64),
    /// Bring the confirmed revision back and tell that as [`Input::Restored`].
    Restore(Option<u64>),
    /// The commit waits to be confirmed from now on.
    Wait,
    /// The operation is over.
    Conclude {
        /// The operation.
        operation: String,
        /// Its revision.
        revision: u64,
        /// How it ended.
        outcome: Outcome,
    },
}

/// What happens to the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// A new revision is to be brought into force.
    Begin {
        /// Operation.
        operation: String,
        /// Revision.
        revision: u64,
        /// Time for confirming, milliseconds.
        window_ms: Option<u64>,
        /// Who.
        actor: String,
    },
    /// [`Action::Arm`] could not be done.
    NotArmed(String),
    /// [`Action::Push`] is over.
    Pushed(Result<(), String>),
    /// [`Action::Restore`] is over.
    Restored,
    /// Somebody confirms.
    Confirm {
        /// The revision that is meant.
        revision: u64,
        /// When the connection began over which this came, on the boot clock.
        connected_ms: u64,
    },
    /// Somebody cancels.
    Cancel {
        /// The revision that is meant.
        revision: u64,
    },
    /// Somebody asks for more time.
    Extend {
        /// The revision that is meant.
        revision: u64,
        /// How much more, milliseconds.
        by_ms: u64,
    },
    /// Time has passed.
    Tick,
    /// The data plane started anew, from the confirmed revision.
    DataplaneRestarted,
}

/// Why an input is not taken; the machine is as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Another commit is under way.
    Busy,
    /// Nothing waits to be confirmed.
    NothingPending,
    /// Another revision waits.
    OtherRevision(u64),
    /// The connection is older than the change, so it proves nothing about what the change did to new ones.
    OldConnection,
    /// The time would be outside [`WINDOW_MS`].
    Window,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Phase {
    Idle,
    Applying(Armed),
    /// With the moment at which the revision came into force, on the boot clock.
    Waiting(Armed, u64),
    RollingBack(Armed, Cause, Option<String>),
}

/// The machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    confirmed: Option<u64>,
    phase: Phase,
}

impl Machine {
    /// The machine after a start, from what is on disk. A commit that was under way is rolled back, unless
    /// its revision had become the confirmed one: that is the moment at which it succeeded.
    pub fn recover(confirmed: Option<u64>, armed: Option<Armed>) -> (Self, Vec<Action>) {
        let mut machine = Self {
            confirmed,
            phase: Phase::Idle,
        };
        let Some(armed) = armed else {
            return (machine, Vec::new());
        };
        if Some(armed.revision) == confirmed {
            let end = conclude(&armed, Outcome::Succeeded);
            return (machine, vec![Action::Disarm, end]);
        }
        let restore = Action::Restore(confirmed);
        machine.phase = Phase::RollingBack(armed, Cause::Restart, None);
        (machine, vec![restore])
    }

    /// The revision that a start begins with.
    pub fn confirmed(&self) -> Option<u64> {
        self.confirmed
    }

    /// The revision in force, or on its way there.
    pub fn running(&self) -> Option<u64> {
        match &self.phase {
            Phase::Idle | Phase::RollingBack(..) => self.confirmed,
            Phase::Applying(armed) | Phase::Waiting(armed, _) => Some(armed.revision),
        }
    }

    /// When the machine wants a [`Input::Tick`], on the boot clock.
    pub fn deadline(&self) -> Option<u64> {
        match &self.phase {
            Phase::Waiting(armed, _) => Some(armed.deadline_boot_ms),
            _ => None,
        }
    }

    /// What clients are shown.
    pub fn commit(&self, now: Now) -> Commit {
        let (armed, state) = match &self.phase {
            Phase::Idle => return Commit::default(),
            Phase::Applying(armed) => (armed, CommitPhase::Applying),
            Phase::Waiting(armed, _) => (armed, CommitPhase::Pending),
            Phase::RollingBack(armed, ..) => (armed, CommitPhase::RollingBack),
        };
        let waits = armed.window_ms.is_some();
        Commit {
            state,
            revision: Some(armed.revision),
            rollback_to: armed.rollback_to,
            deadline_ms: waits.then_some(armed.deadline_wall_ms),
            remaining_ms: waits.then(|| armed.deadline_boot_ms.saturating_sub(now.boot_ms)),
            actor: Some(armed.actor.clone()),
            operation: Some(armed.operation.clone()),
        }
    }

    /// Takes an input.
    ///
    /// | phase | input | next | actions |
    /// |---|---|---|---|
    /// | idle | begin | applying | arm, push |
    /// | applying | not armed | idle | conclude failed |
    /// | applying | pushed, no window | idle | promote, disarm, conclude |
    /// | applying | pushed, window | waiting | arm with the deadline from now on, wait |
    /// | applying | not pushed | rolling back | restore |
    /// | waiting | confirm | idle | promote, disarm, conclude |
    /// | waiting | extend | waiting | arm anew |
    /// | waiting | cancel, expiry, data plane restarted | rolling back | restore |
    /// | applying | data plane restarted | rolling back | restore |
    /// | rolling back | restored | idle | disarm, conclude |
    ///
    /// Everything else is refused or means nothing, and changes nothing.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn input(&mut self, now: Now, input: Input) -> Result<Vec<Action>, Refusal> {
        match input {
            Input::Begin {
                operation,
                revision,
                window_ms,
                actor,
            } => self.begin(now, operation, revision, window_ms, actor),
            Input::NotArmed(why) => Ok(self.not_armed(why)),
            Input::Pushed(result) => Ok(self.pushed(now, result)),
            Input::Restored => Ok(self.restored()),
            Input::Confirm {
                revision,
                connected_ms,
            } => self.confirm(revision, connected_ms),
            Input::Cancel { revision } => {
                self.waiting_for(revision)?;
                Ok(self.roll_back(Cause::Cancelled))
            }
            Input::Extend { revision, by_ms } => self.extend(now, revision, by_ms),
            Input::Tick => Ok(match self.deadline() {
                Some(deadline) if now.boot_ms >= deadline => self.roll_back(Cause::Timeout),
                _ => Vec::new(),
            }),
            Input::DataplaneRestarted => Ok(match self.phase {
                Phase::Applying(_) | Phase::Waiting(..) => self.roll_back(Cause::DataplaneRestart),
                _ => Vec::new(),
            }),
        }
    }

    /// Whether [`Input::Begin`] would be taken, to be asked before a revision is made.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn may_begin(&self, window_ms: Option<u64>) -> Result<(), Refusal> {
        if self.phase != Phase::Idle {
            Err(Refusal::Busy)
        } else if window_ms.is_some_and(|w| !WINDOW_MS.contains(&w)) {
            Err(Refusal::Window)
        } else {
            Ok(())
        }
    }

    fn begin(
        &mut self,
        now: Now,
        operation: String,
        revision: u64,
        window_ms: Option<u64>,
        actor: String,
    ) -> Result<Vec<Action>, Refusal> {
        self.may_begin(window_ms)?;
        let armed = Armed {
            operation,
            revision,
            rollback_to: self.confirmed,
            window_ms,
            deadline_boot_ms: now.boot_ms.saturating_add(window_ms.unwrap_or(0)),
            deadline_wall_ms: now.wall_ms.saturating_add(window_ms.unwrap_or(0)),
            actor,
        };
        self.phase = Phase::Applying(armed.clone());
        Ok(vec![Action::Arm(armed), Action::Push(revision)])
    }

    fn not_armed(&mut self, why: String) -> Vec<Action> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Applying(armed) => vec![conclude(&armed, Outcome::Failed(why))],
            other => {
                self.phase = other;
                Vec::new()
            }
        }
    }

    fn pushed(&mut self, now: Now, result: Result<(), String>) -> Vec<Action> {
        let Phase::Applying(armed) = &self.phase else {
            return Vec::new();
        };
        let mut armed = armed.clone();
        if let Err(why) = result {
            let back = Action::Restore(armed.rollback_to);
            self.phase = Phase::RollingBack(armed, Cause::ApplyFailed, Some(why));
            return vec![back];
        }
        let Some(window) = armed.window_ms else {
            return self.promote(&armed);
        };
        armed.deadline_boot_ms = now.boot_ms.saturating_add(window);
        armed.deadline_wall_ms = now.wall_ms.saturating_add(window);
        self.phase = Phase::Waiting(armed.clone(), now.boot_ms);
        vec![Action::Arm(armed), Action::Wait]
    }

    fn promote(&mut self, armed: &Armed) -> Vec<Action> {
        self.confirmed = Some(armed.revision);
        self.phase = Phase::Idle;
        let end = conclude(armed, Outcome::Succeeded);
        vec![Action::Promote(armed.revision), Action::Disarm, end]
    }

    fn waiting_for(&self, revision: u64) -> Result<(&Armed, u64), Refusal> {
        match &self.phase {
            Phase::Waiting(armed, since) if armed.revision == revision => Ok((armed, *since)),
            Phase::Waiting(armed, _) => Err(Refusal::OtherRevision(armed.revision)),
            _ => Err(Refusal::NothingPending),
        }
    }

    fn confirm(&mut self, revision: u64, connected_ms: u64) -> Result<Vec<Action>, Refusal> {
        let (armed, since) = self.waiting_for(revision)?;
        if connected_ms < since {
            return Err(Refusal::OldConnection);
        }
        let armed = armed.clone();
        Ok(self.promote(&armed))
    }

    fn extend(&mut self, now: Now, revision: u64, by_ms: u64) -> Result<Vec<Action>, Refusal> {
        let (armed, since) = self.waiting_for(revision)?;
        let deadline = armed.deadline_boot_ms.saturating_add(by_ms);
        if by_ms == 0 || deadline.saturating_sub(now.boot_ms) > *WINDOW_MS.end() {
            return Err(Refusal::Window);
        }
        let armed = Armed {
            deadline_boot_ms: deadline,
            deadline_wall_ms: armed.deadline_wall_ms.saturating_add(by_ms),
            ..armed.clone()
        };
        self.phase = Phase::Waiting(armed.clone(), since);
        Ok(vec![Action::Arm(armed)])
    }

    fn roll_back(&mut self, cause: Cause) -> Vec<Action> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Applying(armed) | Phase::Waiting(armed, _) => {
                let back = Action::Restore(armed.rollback_to);
                self.phase = Phase::RollingBack(armed, cause, None);
                vec![back]
            }
            other => {
                self.phase = other;
                Vec::new()
            }
        }
    }

    fn restored(&mut self) -> Vec<Action> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::RollingBack(armed, cause, why) => {
                let outcome = match why {
                    Some(why) => Outcome::Failed(why),
                    None => Outcome::RolledBack(cause),
                };
                vec![Action::Disarm, conclude(&armed, outcome)]
            }
            other => {
                self.phase = other;
                Vec::new()
            }
        }
    }
}

fn conclude(armed: &Armed, outcome: Outcome) -> Action {
    Action::Conclude {
        operation: armed.operation.clone(),
        revision: armed.revision,
        outcome,
    }
}

#[cfg(test)]
mod tests;
