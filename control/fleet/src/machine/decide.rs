//! The part of the machine that asks: what to do from a state in which nothing is awaited.

use std::sync::Arc;

use crem_api::rest::CommitPhase;

use super::{Action, Change, Machine, NEWS_MS, State, Trouble};
use crate::status::Phase;
use crate::store::Store;

impl Machine {
    /// The next request, if there is one.
    pub(super) fn decide(&mut self, now_ms: u64, store: Option<&Store>) -> Option<Action> {
        self.waiting_for = None;
        match &self.state {
            State::Waiting(_) => self.wait_for_turn(now_ms, store),
            State::Asking { asked: false, .. } => self.ask_outcome(),
            State::Idle => self.begin(now_ms, store),
            _ => None,
        }
    }

    fn ask_outcome(&mut self) -> Option<Action> {
        // While the way back is under way there is no outcome yet.
        let told = self.the_box.as_ref().ok()?;
        let busy = matches!(
            told.commit.state,
            CommitPhase::Applying | CommitPhase::RollingBack
        );
        let State::Asking { change, asked } = &mut self.state else {
            return None;
        };
        if busy {
            return None;
        }
        *asked = true;
        Some(Action::Ask(change.operation.clone()))
    }

    fn wait(&mut self, what: impl Into<String>) -> Option<Action> {
        self.waiting_for = Some(what.into());
        None
    }

    /// From rest: what was begun before a restart, then what is desired.
    fn begin(&mut self, now_ms: u64, store: Option<&Store>) -> Option<Action> {
        let told = match &self.the_box {
            Ok(told) => told.clone(),
            Err(why) => {
                let why = format!("the control process: {why}");
                return self.wait(why);
            }
        };
        if self.memory.attempt.is_some() && self.resume(now_ms, &told) {
            return None;
        }
        let Some(store) = store else {
            return self.wait("etcd");
        };
        let Some(desired) = self.wanted().cloned() else {
            return self.give_back(now_ms, store);
        };
        let version = desired.version.to_string();
        let given_up = self.memory.given_up.as_ref();
        if given_up.is_some_and(|g| g.version == version) {
            return self.give_back(now_ms, store);
        }
        let document = match desired.document {
            Ok(document) => document,
            Err(problem) => {
                self.give_up(&version, Phase::Refused, problem);
                return self.give_back(now_ms, store);
            }
        };
        let compared = self.compared.as_ref();
        if compared.is_some_and(|(v, base, _)| (v, base) == (&version, &told.running)) {
            return self.give_back(now_ms, store);
        }
        if told.commit.state != CommitPhase::None {
            self.wait("another commit waits to be confirmed");
            return self.give_back(now_ms, store);
        }
        if now_ms < self.retry_at_ms {
            self.wait("the time for another try");
            return self.give_back(now_ms, store);
        }
        let document = Arc::new(document);
        self.state = State::Planning(desired.version, Arc::clone(&document));
        Some(Action::Plan(document))
    }

    /// A change that was begun before a restart: goes on with it, or notes what became of it. Tells whether nothing
    /// else may be begun.
    fn resume(&mut self, now_ms: u64, told: &super::BoxState) -> bool {
        let Some(attempt) = self.memory.attempt.clone() else {
            return false;
        };
        let ours = told.comment.as_deref() == Some(attempt.key.as_str());
        match told.commit.state {
            // It is becoming known.
            CommitPhase::Applying | CommitPhase::RollingBack => {
                self.wait("the end of a change from before");
                true
            }
            CommitPhase::Pending if ours => {
                let remaining = told.commit.remaining_ms.unwrap_or(0);
                self.state = State::Gating(Change {
                    version: attempt.version,
                    operation: told.commit.operation.clone().unwrap_or_default(),
                    revision: told.running.unwrap_or(0),
                    before: attempt.before,
                    gate_end_ms: now_ms + remaining * 3 / 4,
                    well_since_ms: None,
                    verdict: None,
                });
                true
            }
            CommitPhase::None if ours => {
                self.applied(&attempt.version);
                false
            }
            CommitPhase::Pending | CommitPhase::None => {
                let words = "the agent ended before the change was confirmed".to_owned();
                self.try_again(now_ms, &attempt.version, Trouble::NoAnswer(words));
                // Nothing disturbs the box now, and the way back has been gone: there is no need to wait.
                self.retry_at_ms = now_ms;
                false
            }
        }
    }

    fn give_back(&mut self, now_ms: u64, store: &Store) -> Option<Action> {
        let ours = store.ours(&self.node);
        if ours.is_empty() || now_ms < self.give_back_at_ms {
            return None;
        }
        self.give_back_at_ms = now_ms + NEWS_MS;
        self.state = State::GivingBack;
        Some(Action::GiveBack(ours))
    }

    fn wait_for_turn(&mut self, now_ms: u64, store: Option<&Store>) -> Option<Action> {
        let State::Waiting(wanted) = &self.state else {
            return None;
        };
        let wanted = wanted.clone();
        let Some(store) = store else {
            return self.wait("etcd");
        };
        let still = self.wanted().is_some_and(|d| d.version == wanted.version);
        let told = match &self.the_box {
            Ok(told) if still && told.running == wanted.base => told,
            // Another plan is needed.
            _ => {
                self.state = State::Idle;
                return self.begin(now_ms, Some(store));
            }
        };
        if told.commit.state != CommitPhase::None {
            return self.wait("another commit waits to be confirmed");
        }
        if now_ms < self.take_at_ms {
            return self.wait("news of who is changing");
        }
        match store.turn(&self.node, &self.pair, &wanted.version) {
            Ok(turn) => {
                self.state = State::Taking(wanted);
                Some(Action::Take(turn))
            }
            Err(words) => self.wait(words),
        }
    }
}
