//! The part of the machine that takes answers: from a state that awaited one to the next.

use std::sync::Arc;

use crem_api::rest::{Cause, CommitPhase, Operation, OperationState, Plan, Problem, Written};

use super::{
    Action, BoxState, Change, Input, MAX_REPEATS, MAX_TRIES, Machine, NEWS_MS, RETRY_MS, State,
    Trouble, Wanted, Write,
};
use crate::health::{Health, problem as health_problem};
use crate::layers::Version;
use crate::memory::Attempt;
use crate::settings::LocalChanges;
use crate::status::{Phase, count_given_up};
use crate::store::{Halt, Store};

/// Prefix of the types of problems.
const PREFIX: &str = "urn:crem:problem:";
/// Problems that say nothing about the document: something else was in the way.
const IN_THE_WAY: [&str; 3] = ["commit-pending", "revision-conflict", "too-many-attempts"];

fn is(problem: &Problem, name: &str) -> bool {
    problem.kind.strip_prefix(PREFIX) == Some(name)
}

impl Machine {
    /// Takes what happened; gives the next request if it follows at once.
    pub(super) fn absorb(
        &mut self,
        now_ms: u64,
        store: Option<&Store>,
        input: Input,
    ) -> Option<Action> {
        if let Input::Box(told) = &input {
            self.the_box.clone_from(told);
        }
        let state = std::mem::replace(&mut self.state, State::Idle);
        match (state, input) {
            (State::Planning(version, document), Input::Planned(answer)) => {
                self.planned(now_ms, version, document, answer);
                None
            }
            (State::Taking(wanted), Input::Taken(ours)) => {
                self.take_at_ms = now_ms + NEWS_MS;
                self.state = if ours {
                    State::Measuring(wanted)
                } else {
                    State::Waiting(wanted)
                };
                None
            }
            (State::Measuring(wanted), Input::Box(Ok(told))) => self.measured(store, wanted, &told),
            (
                State::Writing {
                    wanted,
                    key,
                    before,
                    repeats,
                    ..
                },
                Input::Written(answer),
            ) => {
                self.written(now_ms, wanted, key, before, repeats, answer);
                None
            }
            (
                State::Writing {
                    wanted,
                    key,
                    before,
                    repeats,
                    asked: false,
                },
                Input::Box(Ok(_)),
            ) => Some(self.write(wanted, key, before, repeats)),
            (State::Gating(change), Input::Box(Ok(told))) => {
                self.gate(now_ms, store, change, &told)
            }
            (State::Confirming(change), Input::Confirmed(answer)) => {
                match answer {
                    Ok(()) => self.confirmed(&change),
                    Err(Trouble::Problem(_)) => {
                        self.state = State::Asking {
                            change,
                            asked: false,
                        }
                    }
                    Err(Trouble::NoAnswer(_)) => self.state = State::Gating(change),
                }
                None
            }
            (State::Cancelling(change), Input::Cancelled(_)) => {
                self.state = State::Asking {
                    change,
                    asked: false,
                };
                None
            }
            (
                State::Asking {
                    change,
                    asked: true,
                },
                Input::Operation(answer),
            ) => {
                self.outcome(now_ms, change, answer);
                None
            }
            (State::GivingBack, Input::GivenBack) => None,
            // Nothing that was awaited.
            (state, _) => {
                self.state = state;
                None
            }
        }
    }

    fn planned(
        &mut self,
        now_ms: u64,
        version: Version,
        document: Arc<serde_json::Value>,
        answer: Result<(String, Plan), Trouble>,
    ) {
        let (etag, plan) = match answer {
            Ok(answer) => answer,
            Err(Trouble::Problem(problem)) if (400..500).contains(&problem.status) => {
                return self.give_up(&version.to_string(), Phase::Refused, problem);
            }
            Err(_) => {
                self.retry_at_ms = now_ms + RETRY_MS;
                return;
            }
        };
        let told = version.to_string();
        let ours = self.memory.applied.as_ref() == Some(&told);
        if let Some(problem) = self.refusal(&plan) {
            self.give_up(&told, Phase::Refused, problem);
        } else if plan.diff.is_empty() {
            self.applied(&told);
            self.compared = Some((told, plan.base, false));
        } else if ours && self.local_changes != LocalChanges::Revert {
            let differs = self.local_changes == LocalChanges::Report;
            self.compared = Some((told, plan.base, differs));
        } else {
            self.state = State::Waiting(Wanted {
                version,
                document,
                etag,
                base: plan.base,
            });
        }
    }

    /// What a plan is refused for before anything is changed.
    fn refusal(&self, plan: &Plan) -> Option<Box<Problem>> {
        let problem = |status, name: &str, title: &str, detail: String| {
            Box::new(Problem {
                kind: format!("{PREFIX}{name}"),
                title: title.to_owned(),
                status,
                detail,
                ..Problem::default()
            })
        };
        if !plan.valid {
            let title = "The document has problems";
            let detail = match plan.errors.len() {
                1 => "1 problem; nothing was changed.".to_owned(),
                n => format!("{n} problems; nothing was changed."),
            };
            let mut found = problem(422, "validation", title, detail);
            found.errors.clone_from(&plan.errors);
            return Some(found);
        }
        let most = self.rollout.max_impact;
        // Nothing runs that a first document could disturb.
        if plan.base.is_none() || plan.impact <= most {
            return None;
        }
        let title = "The change disturbs more than was allowed";
        let detail = format!("rollout.max_impact is {most:?}; nothing was changed.");
        let mut found = problem(409, "impact-not-allowed", title, detail);
        let fields = plan.fields.iter().filter(|field| field.impact > most);
        found.fields = fields.cloned().collect();
        Some(found)
    }

    /// The box is known as it is before the change.
    fn measured(
        &mut self,
        store: Option<&Store>,
        wanted: Wanted,
        told: &BoxState,
    ) -> Option<Action> {
        // Without etcd nobody knows whether the lock is still ours.
        let Some(taken) = store.and_then(|s| s.held(&self.node)) else {
            self.state = State::Waiting(wanted);
            return None;
        };
        if told.commit.state != CommitPhase::None || told.running != wanted.base {
            return None;
        }
        // The same lock, the same change: a request that is repeated is done once.
        let key = format!("fleet {} {taken} {}", self.node, wanted.version);
        let before = told.health.clone();
        self.memory.attempt = Some(Attempt {
            version: wanted.version.to_string(),
            key: key.clone(),
            before: before.clone(),
        });
        Some(self.write(wanted, key, before, 0))
    }

    fn write(&mut self, wanted: Wanted, key: String, before: Health, repeats: u32) -> Action {
        let write = Write {
            document: Arc::clone(&wanted.document),
            etag: wanted.etag.clone(),
            key: key.clone(),
        };
        self.state = State::Writing {
            wanted,
            key,
            before,
            repeats,
            asked: true,
        };
        Action::Write(write)
    }

    fn written(
        &mut self,
        now_ms: u64,
        wanted: Wanted,
        key: String,
        before: Health,
        repeats: u32,
        answer: Result<Written, Trouble>,
    ) {
        let version = wanted.version.to_string();
        match answer {
            Ok(Written {
                revision: Some(revision),
                operation: Some(operation),
                ..
            }) => {
                self.state = State::Gating(Change {
                    version,
                    operation,
                    revision,
                    before,
                    gate_end_ms: now_ms + self.rollout.gate_s() * 1000,
                    well_since_ms: None,
                    verdict: None,
                });
            }
            // It runs already.
            Ok(_) => self.applied(&version),
            Err(Trouble::Problem(problem)) if IN_THE_WAY.iter().any(|name| is(&problem, name)) => {
                self.memory.attempt = None;
                self.retry_at_ms = now_ms + RETRY_MS;
            }
            Err(Trouble::Problem(problem)) if (400..500).contains(&problem.status) => {
                self.give_up(&version, Phase::Refused, problem);
            }
            Err(Trouble::Problem(problem)) if is(&problem, "apply-failed") => {
                self.give_up(&version, Phase::Failed, problem);
            }
            Err(trouble) if repeats >= MAX_REPEATS => self.try_again(now_ms, &version, trouble),
            Err(_) => {
                self.state = State::Writing {
                    wanted,
                    key,
                    before,
                    repeats: repeats + 1,
                    asked: false,
                };
            }
        }
    }

    /// Looks at the box while the change waits to be confirmed.
    fn gate(
        &mut self,
        now_ms: u64,
        store: Option<&Store>,
        mut change: Change,
        told: &BoxState,
    ) -> Option<Action> {
        let commit = &told.commit;
        if commit.state == CommitPhase::None || commit.revision != Some(change.revision) {
            self.state = State::Asking {
                change,
                asked: false,
            };
            return None;
        }
        if commit.state != CommitPhase::Pending {
            self.state = State::Gating(change);
            return None;
        }
        let allowed = self.rollout.loss_ppm;
        let health = &told.health;
        let mut worse = health.worse_than(&change.before, change.revision, allowed);
        let only_etcd = worse.is_empty() && store.is_none();
        if store.is_none() {
            worse.push("etcd does not answer".to_owned());
        }
        if !worse.is_empty() {
            change.well_since_ms = None;
            if now_ms < change.gate_end_ms {
                self.state = State::Gating(change);
                return None;
            }
            let revision = change.revision;
            change.verdict = Some((health_problem(&worse), only_etcd));
            self.state = State::Cancelling(change);
            return Some(Action::Cancel(revision));
        }
        let since = *change.well_since_ms.get_or_insert(now_ms);
        if now_ms.saturating_sub(since) < self.rollout.settle_s * 1000 {
            self.state = State::Gating(change);
            return None;
        }
        let revision = change.revision;
        self.state = State::Confirming(change);
        Some(Action::Confirm(revision))
    }

    fn outcome(&mut self, now_ms: u64, change: Change, answer: Result<Box<Operation>, Trouble>) {
        let version = change.version.clone();
        let operation = match answer {
            Ok(operation) => operation,
            Err(Trouble::NoAnswer(words)) => {
                // Once the box is heard of again.
                self.the_box = Err(words);
                self.state = State::Asking {
                    change,
                    asked: false,
                };
                return;
            }
            Err(trouble) => return self.try_again(now_ms, &version, trouble),
        };
        match operation.state {
            OperationState::Succeeded => self.confirmed(&change),
            OperationState::Running => self.state = State::Gating(change),
            OperationState::Failed | OperationState::RolledBack => {
                self.counts.rolled_back += 1;
                let cause = operation.problem.as_ref().and_then(|p| p.cause);
                let nobody = matches!(cause, Some(Cause::Timeout | Cause::Restart));
                let found = operation.problem.unwrap_or_default();
                let (problem, again) = change.verdict.unwrap_or((found, nobody));
                if again {
                    self.try_again(now_ms, &version, Trouble::Problem(problem));
                } else {
                    self.give_up(&version, Phase::Failed, problem);
                }
            }
        }
    }

    fn confirmed(&mut self, change: &Change) {
        self.applied(&change.version);
        self.compared = Some((change.version.clone(), Some(change.revision), false));
    }

    pub(super) fn applied(&mut self, version: &str) {
        if self.memory.applied.as_deref() != Some(version) || self.memory.attempt.is_some() {
            self.memory.note_applied(version);
            self.counts.applied += 1;
        }
    }

    pub(super) fn give_up(&mut self, version: &str, phase: Phase, problem: Box<Problem>) {
        let wanted = self.wanted().map(|d| d.version.clone());
        let halt = Halt {
            node: self.node.clone(),
            version: version.to_owned(),
            problem: problem.clone(),
        };
        let newest = wanted.filter(|v| v.to_string() == version);
        self.halt = newest.map(|v| (v, halt));
        count_given_up(&mut self.counts, phase, &problem);
        self.memory.give_up(version, phase, problem);
    }

    /// What happened says nothing about the document: it is tried again, but not for ever.
    pub(super) fn try_again(&mut self, now_ms: u64, version: &str, trouble: Trouble) {
        self.memory.attempt = None;
        self.compared = None;
        self.retry_at_ms = now_ms + RETRY_MS;
        if self.memory.count_try(version) < MAX_TRIES {
            return;
        }
        let problem = match trouble {
            Trouble::Problem(problem) => problem,
            Trouble::NoAnswer(words) => health_problem(&[words]),
        };
        self.give_up(version, Phase::Failed, problem);
    }
}
