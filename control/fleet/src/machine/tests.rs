//! A gateway and an etcd that exist only as values: what the machine asks of them is answered here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crem_api::rest::{
    Cause, Commit, CommitPhase, Operation, OperationState, Plan, Problem, Written,
};
use crem_api::{Change as Place, Impact, diff::diff};
use serde_json::{Value, json};

use super::*;
use crate::health::Plane;
use crate::store::tests::{keys, put};

const SETTINGS: &str = "node = \"a\"\nfleet = \"f\"\npair = \"p\"\n[etcd]\nprefix = \"/x\"\n\
                        endpoints = { \"http://e:2379\" = {} }\n[rollout]\nconfirm_s = 40\nsettle_s = 4\n";

/// How the gateway behaves.
#[derive(Clone, Default)]
struct Behaviour {
    plan_errors: usize,
    impact: Option<Impact>,
    write_problem: Option<Problem>,
    deaf_to_writes: u32,
    sick: bool,
}

/// The gateway, etcd and the agent.
struct World {
    now_ms: u64,
    settings: Settings,
    machine: Machine,
    store: Store,
    etcd_is_away: bool,
    memory: Memory,
    status: Status,
    halt: Option<Halt>,
    behaviour: Behaviour,
    documents: Vec<Value>,
    comments: Vec<String>,
    running: usize,
    confirmed: usize,
    deadline_ms: Option<u64>,
    outcome: Option<(OperationState, Option<Cause>)>,
    /// Names of what was asked for.
    log: Vec<&'static str>,
    keys_of_writes: Vec<String>,
}

fn problem(status: u16, name: &str) -> Problem {
    Problem {
        kind: format!("urn:crem:problem:{name}"),
        status,
        ..Problem::default()
    }
}

impl World {
    /// A gateway that runs `{"v": 0}` and has heard of nothing else.
    fn new() -> Self {
        Self::with("")
    }

    fn with(more: &str) -> Self {
        let settings = Settings::parse(&format!("{more}\n{SETTINGS}")).unwrap();
        Self {
            now_ms: 1_000,
            machine: Machine::new(&settings, "0.1", Memory::default()),
            settings,
            store: Store::new(keys(), 1, []),
            etcd_is_away: false,
            memory: Memory::default(),
            status: Status::default(),
            halt: None,
            behaviour: Behaviour::default(),
            documents: vec![json!({"v": 0})],
            comments: vec!["first".to_owned()],
            running: 0,
            confirmed: 0,
            deadline_ms: None,
            outcome: None,
            log: Vec::new(),
            keys_of_writes: Vec::new(),
        }
    }

    fn desire(&mut self, document: &Value) {
        let revision = self.store.revision() + 1;
        put(&mut self.store, &keys().base(), revision, document);
    }

    fn document(&self) -> &Value {
        &self.documents[self.running]
    }

    /// The agent ends without a word, and another one starts.
    fn restart(&mut self) {
        self.machine = Machine::new(&self.settings, "0.1", self.memory.clone());
    }

    fn told(&self) -> BoxState {
        let pending = self.deadline_ms.is_some();
        let plane = Plane {
            instance: "i".to_owned(),
            revision: Some(self.running as u64).filter(|_| !self.behaviour.sick),
            ..Plane::default()
        };
        BoxState {
            running: Some(self.running as u64),
            comment: Some(self.comments[self.running].clone()),
            commit: Commit {
                state: if pending {
                    CommitPhase::Pending
                } else {
                    CommitPhase::None
                },
                revision: pending.then_some(self.running as u64),
                remaining_ms: self.deadline_ms.map(|d| d - self.now_ms),
                operation: Some("op".to_owned()),
                ..Commit::default()
            },
            health: Health {
                dataplane: Some(plane),
                ..Health::default()
            },
        }
    }

    fn roll_back(&mut self, cause: Cause) {
        self.running = self.confirmed;
        self.deadline_ms = None;
        self.outcome = Some((OperationState::RolledBack, Some(cause)));
    }

    /// Time passes: the agent looks at the gateway every half second.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds * 2 {
            self.now_ms += 500;
            if self.deadline_ms.is_some_and(|d| self.now_ms >= d) {
                self.roll_back(Cause::Timeout);
            }
            let told = self.told();
            self.input(Input::Box(Ok(Box::new(told))));
        }
    }

    fn input(&mut self, input: Input) {
        let mut next = Some(input);
        for _ in 0..50 {
            let Some(input) = next.take() else { return };
            let store = (!self.etcd_is_away).then_some(&self.store);
            for action in self.machine.take(self.now_ms, store, input) {
                let answer = self.perform(action);
                assert!(next.is_none() || answer.is_none(), "two requests at once");
                next = next.or(answer);
            }
        }
        panic!("it asks without end: {:?}", self.log);
    }

    fn perform(&mut self, action: Action) -> Option<Input> {
        let (name, answer) = match action {
            Action::Save(memory) => {
                self.memory = memory;
                return None;
            }
            Action::Report(status) => {
                self.status = *status;
                return None;
            }
            Action::Halt(halt) => {
                let revision = self.store.revision() + 1;
                let value = serde_json::to_value(&halt).unwrap();
                put(&mut self.store, &keys().halted(), revision, &value);
                self.halt = Some(halt);
                return None;
            }
            Action::Plan(document) => ("plan", Input::Planned(Ok(self.plan(&document)))),
            Action::Take(turn) => ("take", Input::Taken(self.take(&turn))),
            Action::Write(write) => ("write", Input::Written(self.write(write))),
            Action::Confirm(revision) => {
                assert_eq!(revision, self.running as u64);
                self.confirmed = self.running;
                self.deadline_ms = None;
                self.outcome = Some((OperationState::Succeeded, None));
                ("confirm", Input::Confirmed(Ok(())))
            }
            Action::Cancel(_) => {
                self.roll_back(Cause::Cancelled);
                ("cancel", Input::Cancelled(Ok(())))
            }
            Action::Ask(_) => ("ask", Input::Operation(Ok(self.operation()))),
            Action::GiveBack(keys) => {
                let revision = self.store.revision() + 1;
                for (key, _) in keys {
                    self.store.note(key, revision, None);
                }
                ("give back", Input::GivenBack)
            }
        };
        self.log.push(name);
        Some(answer)
    }

    fn plan(&self, document: &Value) -> (String, Plan) {
        let diff = diff(self.document(), document);
        let impact = self.behaviour.impact.unwrap_or(Impact::Hot);
        let error = || crem_api::rest::FieldError {
            pointer: "/v".to_owned(),
            code: crem_api::Code::OutOfRange,
            limit: None,
            detail: "No.".to_owned(),
        };
        let plan = Plan {
            base: Some(self.running as u64),
            valid: self.behaviour.plan_errors == 0,
            errors: (0..self.behaviour.plan_errors).map(|_| error()).collect(),
            fields: vec![Place {
                pointer: "/v".to_owned(),
                impact,
            }],
            diff,
            impact,
            confirm_required: false,
        };
        (format!("\"{}\"", self.running), plan)
    }

    fn take(&mut self, turn: &Turn) -> bool {
        let revision = self.store.revision() + 1;
        let holder = serde_json::to_value(&turn.holder).unwrap();
        for (key, _) in [&turn.lock, &turn.place] {
            put(&mut self.store, key, revision, &holder);
        }
        true
    }

    fn write(&mut self, write: Write) -> Result<Written, Trouble> {
        self.keys_of_writes.push(write.key.clone());
        if let Some(problem) = &self.behaviour.write_problem {
            return Err(Trouble::Problem(Box::new(problem.clone())));
        }
        let again = self.comments.contains(&write.key);
        if !again {
            assert_eq!(write.etag, format!("\"{}\"", self.running));
            self.documents.push(Value::clone(&write.document));
            self.comments.push(write.key);
            self.running = self.documents.len() - 1;
            self.deadline_ms = Some(self.now_ms + 40_000);
            self.outcome = None;
        }
        if self.behaviour.deaf_to_writes > 0 {
            self.behaviour.deaf_to_writes -= 1;
            return Err(Trouble::NoAnswer("closed".to_owned()));
        }
        Ok(Written {
            changed: true,
            revision: Some(self.running as u64),
            diff: Vec::new(),
            impact: Impact::Hot,
            operation: Some("op".to_owned()),
            pending: None,
            restart_needed: false,
        })
    }

    fn operation(&self) -> Box<Operation> {
        let (state, cause) = self.outcome.unwrap_or((OperationState::Running, None));
        let problem = cause.map(|cause| {
            Box::new(Problem {
                cause: Some(cause),
                ..problem(200, "rolled-back")
            })
        });
        Box::new(Operation {
            id: "op".to_owned(),
            state,
            revision: self.running as u64,
            actor: "uid:0".to_owned(),
            steps: Vec::new(),
            problem,
            written: None,
            idempotency: None,
        })
    }
}

#[test]
fn a_document_is_planned_written_watched_and_confirmed_under_the_lock() {
    let mut w = World::new();
    w.pass(1);
    assert_eq!((w.status.state, w.log.len()), (Phase::None, 0));
    w.desire(&json!({"v": 1}));
    w.pass(2);
    assert_eq!(w.log, ["plan", "take", "write"]);
    assert_eq!(w.status.state, Phase::RollingOut);
    assert_eq!(w.store.held("a"), Some(3));
    w.pass(5);
    assert_eq!(w.log[3..], ["confirm", "give back"]);
    assert_eq!((w.confirmed, w.document()), (1, &json!({"v": 1})));
    assert_eq!(w.status.state, Phase::Applied);
    assert_eq!(w.status.applied, w.status.desired);
    assert_eq!((w.store.held("a"), w.halt.is_some()), (None, false));
    w.pass(60);
    assert_eq!(w.log.len(), 5, "nothing is left to do");
    assert_eq!(counted(&w), [1, 0, 0, 0, 0]);
}

/// Documents applied, refused and given up, changes taken back, halts.
fn counted(w: &World) -> [u64; 5] {
    let c = w.machine.counts();
    [c.applied, c.refused, c.failed, c.rolled_back, c.halts]
}

#[test]
fn what_runs_already_is_applied_without_a_lock() {
    let mut w = World::new();
    w.desire(&json!({"v": 0}));
    w.pass(2);
    assert_eq!(
        (w.log.as_slice(), w.status.state),
        (&["plan"][..], Phase::Applied)
    );
    assert_eq!(counted(&w), [1, 0, 0, 0, 0]);
}

#[test]
fn a_document_with_problems_is_refused_once_and_halts_the_rollout() {
    let mut w = World::new();
    w.behaviour.plan_errors = 2;
    w.desire(&json!({"v": 1}));
    w.pass(60);
    assert_eq!(w.log, ["plan"]);
    assert_eq!(w.status.state, Phase::Refused);
    assert_eq!(w.status.problem.as_ref().unwrap().errors.len(), 2);
    assert_eq!(
        w.halt.as_ref().unwrap().version,
        w.status.desired.clone().unwrap()
    );
    assert_eq!(w.document(), &json!({"v": 0}));
    assert_eq!(counted(&w), [0, 1, 0, 0, 1]);
    assert_eq!(w.machine.counts().reasons["validation"], 1);
    // Neither a restart nor a halt of itself makes it try again.
    w.restart();
    w.pass(60);
    assert_eq!((w.log.len(), w.status.state), (1, Phase::Refused));
    // A newer one goes on, over the halt.
    w.behaviour.plan_errors = 0;
    w.desire(&json!({"v": 2}));
    w.pass(10);
    assert_eq!(
        (w.document(), w.status.state),
        (&json!({"v": 2}), Phase::Applied)
    );
    assert_eq!(w.status.problem, None);
}

#[test]
fn layers_that_make_no_document_are_refused() {
    let mut w = World::new();
    w.desire(&json!([1]));
    w.pass(10);
    assert_eq!((w.log.len(), w.status.state), (0, Phase::Refused));
    let told = w.status.problem.unwrap();
    assert_eq!(told.kind, "urn:crem:problem:fleet-layer");
}

#[test]
fn what_disturbs_too_much_is_refused_with_its_places() {
    let mut w = World::new();
    w.behaviour.impact = Some(Impact::Segment);
    w.desire(&json!({"v": 1}));
    w.pass(5);
    assert_eq!(
        (w.log.as_slice(), w.status.state),
        (&["plan"][..], Phase::Refused)
    );
    assert_eq!(w.status.problem.unwrap().fields.len(), 1);
    let mut w = World::with("");
    w.settings.rollout.max_impact = Impact::Segment;
    w.restart();
    w.behaviour.impact = Some(Impact::Segment);
    w.desire(&json!({"v": 1}));
    w.pass(10);
    assert_eq!(w.status.state, Phase::Applied);
}

#[test]
fn the_other_one_of_the_pair_is_waited_for() {
    let mut w = World::new();
    let other = json!({"node": "b", "pair": "p", "version": "1-x"});
    put(&mut w.store, &keys().lock(), 2, &other);
    w.desire(&json!({"v": 1}));
    w.pass(30);
    assert_eq!(
        (w.log.as_slice(), w.status.state),
        (&["plan"][..], Phase::Waiting)
    );
    assert_eq!(
        w.status.waiting_for.as_deref(),
        Some("b of the pair is changing")
    );
    w.store.note(keys().lock(), 4, None);
    w.input(Input::News);
    assert_eq!(w.log, ["plan", "take"]);
    w.pass(10);
    assert_eq!(w.status.state, Phase::Applied);
}

#[test]
fn a_newer_document_takes_the_place_of_one_that_waits() {
    let mut w = World::new();
    put(&mut w.store, &keys().policy(), 2, &json!({"paused": true}));
    w.desire(&json!({"v": 1}));
    w.pass(2);
    w.desire(&json!({"v": 2}));
    w.pass(2);
    assert_eq!(w.log, ["plan", "plan"]);
    put(&mut w.store, &keys().policy(), 9, &json!({}));
    w.pass(10);
    assert_eq!(w.documents, [json!({"v": 0}), json!({"v": 2})]);
}

#[test]
fn a_sick_gateway_is_taken_back_and_the_document_not_tried_again() {
    let mut w = World::new();
    w.desire(&json!({"v": 1}));
    w.pass(2);
    w.behaviour.sick = true;
    w.pass(20);
    assert_eq!(
        w.status.state,
        Phase::RollingOut,
        "it may still become well"
    );
    w.pass(20);
    assert_eq!(w.log[3..], ["cancel", "ask", "give back"]);
    w.behaviour.sick = false;
    w.pass(60);
    assert_eq!((w.log.len(), w.document()), (6, &json!({"v": 0})));
    assert_eq!(w.status.state, Phase::Failed);
    let told = w.status.problem.as_ref().unwrap();
    assert_eq!(told.kind, "urn:crem:problem:fleet-health");
    assert!(told.detail.contains("does not run revision 1"), "{told:?}");
    assert!(w.halt.is_some());
    assert_eq!(counted(&w), [0, 0, 1, 1, 1]);
    assert_eq!(w.machine.counts().reasons["fleet-health"], 1);
    // The same document written once more is another try.
    w.desire(&json!({"v": 1}));
    w.pass(10);
    assert_eq!(
        (w.document(), w.status.state),
        (&json!({"v": 1}), Phase::Applied)
    );
}

#[test]
fn health_has_to_hold_without_a_break() {
    let mut w = World::new();
    w.desire(&json!({"v": 1}));
    w.pass(2);
    for _ in 0..4 {
        w.behaviour.sick = true;
        w.pass(1);
        w.behaviour.sick = false;
        w.pass(3);
    }
    assert!(!w.log.contains(&"confirm"));
    w.pass(3);
    assert!(w.log.contains(&"confirm"));
}

#[test]
fn without_etcd_nothing_begins_and_nothing_is_confirmed() {
    let mut w = World::new();
    w.desire(&json!({"v": 1}));
    w.pass(2);
    assert_eq!(w.log.last(), Some(&"write"));
    w.etcd_is_away = true;
    w.pass(32);
    assert_eq!(w.log[3..], ["cancel", "ask"]);
    assert_eq!(
        (w.document(), w.status.state),
        (&json!({"v": 0}), Phase::Waiting)
    );
    w.pass(100);
    assert_eq!(w.log.len(), 5);
    // It was not the document's fault: once etcd is back, it is tried again.
    w.etcd_is_away = false;
    w.pass(10);
    assert_eq!(
        (w.document(), w.status.state),
        (&json!({"v": 1}), Phase::Applied)
    );
}

#[test]
fn three_tries_without_a_verdict_are_enough() {
    let mut w = World::new();
    w.desire(&json!({"v": 1}));
    for _ in 0..5 {
        w.etcd_is_away = false;
        w.pass(2);
        w.etcd_is_away = true;
        w.pass(60);
    }
    assert_eq!(w.keys_of_writes.len(), 3);
    assert_eq!(w.status.state, Phase::Failed);
}

#[test]
fn what_the_gateway_took_back_is_tried_again_only_where_nobody_judged_it() {
    for (cause, phase) in [
        (Cause::Timeout, Phase::Applied),
        (Cause::Restart, Phase::Applied),
        (Cause::Cancelled, Phase::Failed),
        (Cause::ApplyFailed, Phase::Failed),
        (Cause::DataplaneRestart, Phase::Failed),
    ] {
        let mut w = World::new();
        w.desire(&json!({"v": 1}));
        w.pass(2);
        w.roll_back(cause);
        w.pass(1);
        assert_eq!(w.log[3..], ["ask", "give back"], "{cause:?}");
        w.pass(20);
        assert_eq!(w.status.state, phase, "{cause:?}");
        let told = w.status.problem.as_ref().and_then(|p| p.cause);
        assert_eq!(told, (phase == Phase::Failed).then_some(cause));
        let failed = u64::from(phase == Phase::Failed);
        assert_eq!(counted(&w), [1 - failed, 0, failed, 1, failed], "{cause:?}");
    }
}

#[test]
fn an_applied_document_stays_when_etcd_goes() {
    let mut w = World::new();
    w.desire(&json!({"v": 1}));
    w.pass(10);
    let asked = w.log.len();
    w.etcd_is_away = true;
    w.pass(100);
    assert_eq!((w.log.len(), w.status.state), (asked, Phase::Applied));
    assert_eq!(w.document(), &json!({"v": 1}));
}

#[test]
fn a_restart_in_the_gate_goes_on_with_it() {
    let mut w = World::new();
    w.desire(&json!({"v": 1}));
    w.pass(2);
    w.restart();
    w.pass(6);
    assert_eq!(w.log[3..], ["confirm", "give back"]);
    assert_eq!((w.confirmed, w.status.state), (1, Phase::Applied));
}

#[test]
fn a_restart_still_compares_with_the_box_from_before_the_change() {
    let mut w = World::new();
    w.desire(&json!({"v": 1}));
    w.pass(2);
    w.behaviour.sick = true;
    w.restart();
    w.pass(40);
    assert_eq!(w.log[3..], ["cancel", "ask", "give back"]);
    assert_eq!(w.status.state, Phase::Failed);
}

#[test]
fn an_agent_that_is_away_too_long_leaves_the_way_back_to_the_gateway_and_tries_again() {
    let mut w = World::new();
    w.desire(&json!({"v": 1}));
    w.pass(2);
    w.now_ms += 60_000;
    w.roll_back(Cause::Timeout);
    assert_eq!(w.document(), &json!({"v": 0}));
    w.restart();
    w.pass(10);
    assert_eq!(
        (w.document(), w.status.state),
        (&json!({"v": 1}), Phase::Applied)
    );
    let keys = &w.keys_of_writes;
    assert_eq!(keys.len(), 2);
}

#[test]
fn a_restart_after_the_confirmation_finds_it() {
    let mut w = World::new();
    w.desire(&json!({"v": 1}));
    w.pass(2);
    let memory = w.memory.clone();
    assert!(memory.attempt.is_some());
    w.pass(6);
    w.memory = memory;
    w.restart();
    w.pass(2);
    assert_eq!(w.memory.attempt, None);
    assert_eq!(w.status.state, Phase::Applied);
    assert_eq!(w.keys_of_writes.len(), 1);
}

#[test]
fn a_request_without_an_answer_is_repeated_with_its_key() {
    let mut w = World::new();
    w.behaviour.deaf_to_writes = 2;
    w.desire(&json!({"v": 1}));
    w.pass(10);
    assert_eq!(w.keys_of_writes.len(), 3);
    assert!(
        w.keys_of_writes
            .iter()
            .all(|key| *key == w.keys_of_writes[0])
    );
    assert_eq!((w.documents.len(), w.status.state), (2, Phase::Applied));
}

#[test]
fn a_change_that_the_gateway_refuses_or_cannot_carry_out_is_not_repeated() {
    for (problem, phase) in [
        (problem(422, "validation"), Phase::Refused),
        (problem(409, "restart-not-confirmable"), Phase::Refused),
        (problem(502, "apply-failed"), Phase::Failed),
    ] {
        let mut w = World::new();
        w.behaviour.write_problem = Some(problem);
        w.desire(&json!({"v": 1}));
        w.pass(60);
        assert_eq!(w.log, ["plan", "take", "write", "give back"]);
        assert_eq!(w.status.state, phase);
    }
}

#[test]
fn who_is_overtaken_gives_the_lock_back_and_plans_anew() {
    let mut w = World::new();
    w.behaviour.write_problem = Some(problem(412, "revision-conflict"));
    w.desire(&json!({"v": 1}));
    w.pass(2);
    assert_eq!(w.log, ["plan", "take", "write", "give back"]);
    assert_eq!(w.status.state, Phase::Waiting);
    w.behaviour.write_problem = None;
    w.pass(12);
    assert_eq!(w.status.state, Phase::Applied);
}

#[test]
fn commits_of_others_are_waited_for() {
    let mut w = World::new();
    w.documents.push(json!({"v": 7}));
    w.comments.push("by hand".to_owned());
    w.running = 1;
    w.deadline_ms = Some(w.now_ms + 20_000);
    w.desire(&json!({"v": 1}));
    w.pass(15);
    assert_eq!((w.log.len(), w.status.state), (0, Phase::Waiting));
    w.pass(15);
    assert_eq!(
        (w.document(), w.status.state),
        (&json!({"v": 1}), Phase::Applied)
    );
}

fn changed_locally(setting: &str) -> World {
    let mut w = World::with(setting);
    w.desire(&json!({"v": 1}));
    w.pass(10);
    w.documents.push(json!({"v": 7}));
    w.comments.push("by hand".to_owned());
    (w.running, w.confirmed) = (2, 2);
    w.pass(20);
    w
}

#[test]
fn changes_at_the_gateway_are_left_reported_or_taken_back() {
    for (setting, document, phase) in [
        ("local_changes = \"allow\"", 7, Phase::Applied),
        ("", 7, Phase::ChangedLocally),
        ("local_changes = \"revert\"", 1, Phase::Applied),
    ] {
        let w = changed_locally(setting);
        assert_eq!(
            (w.document(), w.status.state),
            (&json!({"v": document}), phase)
        );
    }
}

#[test]
fn a_gateway_that_does_not_answer_is_told_and_left_alone() {
    let mut w = World::new();
    w.desire(&json!({"v": 1}));
    w.input(Input::Box(Err("no such file".to_owned())));
    assert_eq!((w.log.len(), w.status.state), (0, Phase::Waiting));
    let told = w.status.waiting_for.clone().unwrap();
    assert!(told.contains("no such file"), "{told}");
    w.pass(10);
    assert_eq!(w.status.state, Phase::Applied);
}

#[test]
fn a_status_is_told_when_it_changes_and_when_it_is_gone() {
    let mut w = World::new();
    w.pass(1);
    w.status.node = String::new();
    w.pass(5);
    assert_eq!(w.status.node, "", "nothing changed");
    w.machine.forget_told();
    w.pass(1);
    assert_eq!(w.status.node, "a");
}
