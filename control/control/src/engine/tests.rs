//! Tests of changes through the store: what clients are told, and what is on disk whenever the process
//! is killed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;
use std::sync::Mutex;

use crem_api::Impact;
use crem_api::rest::CommitPhase;
use serde_json::json;

use super::*;
use crate::plan::Edit;
use crate::store::Durability;

/// A data plane that takes what it is told to take, and remembers what runs in it.
#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<(Vec<Taken>, Option<u64>)>>);

impl Scripted {
    fn next(&self, taken: Taken) {
        // Once for the dry run, once for the real one.
        let mut script = self.0.lock().unwrap();
        script.0.push(Taken::InForce(Impact::Hot));
        script.0.push(taken);
    }

    fn running(&self) -> Option<u64> {
        self.0.lock().unwrap().1
    }
}

impl Plane for Scripted {
    fn apply(&mut self, revision: u64, _: &Value, dry_run: bool) -> Taken {
        let mut script = self.0.lock().unwrap();
        let taken = if script.0.is_empty() {
            Taken::InForce(Impact::Hot)
        } else {
            script.0.remove(0)
        };
        if !dry_run && matches!(taken, Taken::InForce(_)) {
            script.1 = Some(revision);
        }
        taken
    }

    fn instance(&mut self) -> Option<String> {
        Some("first".to_owned())
    }
}

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("crem-engine-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn core(&self, plane: &Scripted) -> Core {
        let store = Store::open(&self.0, Durability::Unflushed).unwrap();
        Core::recover(Parts {
            store,
            plane: Box::new(plane.clone()),
            journal: Arc::default(),
            audit: Arc::new(audit::Log::open(&self.0.join("audit.jsonl")).unwrap()),
        })
        .unwrap()
    }

    /// What a data plane that starts now begins with.
    fn booted(&self) -> Value {
        let text = std::fs::read_to_string(self.0.join("confirmed.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn document(k: u64) -> Value {
    json!({
        "version": 1,
        "segments": {"a": {
            "mode": "active", "crem_port": 4801, "path_mtu": 4500,
            "lan": {"interface": "lan0"}, "wan": {"interface": "wan0"},
            "served": {"10.0.1.0/24": {}}, "peers": {"10.0.2.0/24": {"address": "192.0.2.2"}},
            "inband": {"address": "192.0.2.1/24"}, "policy": {"k": k},
        }},
    })
}

fn put(value: Value) -> WriteRequest {
    WriteRequest {
        edit: Edit::Replace(value),
        pointer: String::new(),
        source: "put",
        expected: None,
        window_ms: None,
        max_impact: Impact::Hot,
        comment: None,
        idempotency: None,
        actor: "alice".to_owned(),
    }
}

fn kind(problem: &Problem) -> &str {
    problem.kind.trim_start_matches(problem::PREFIX)
}

#[test]
fn a_write_makes_a_revision_and_a_write_of_the_same_makes_none() {
    let place = Place::new("noop");
    let mut core = place.core(&Scripted::default());
    let written = core.write(put(document(32))).unwrap();
    assert_eq!((written.changed, written.revision), (true, Some(1)));
    let again = core.write(put(document(32))).unwrap();
    assert_eq!((again.changed, again.revision), (false, Some(1)));
    assert_eq!(core.store.revisions().len(), 1);
    assert_eq!(place.booted(), document(32));
}

#[test]
fn every_kind_of_edit_reaches_the_same_document() {
    let place = Place::new("edits");
    let mut core = place.core(&Scripted::default());
    core.write(put(document(32))).unwrap();
    let edits = [
        (
            "",
            Edit::Merge(json!({"segments": {"a": {"policy": {"k": 33}}}})),
            33,
        ),
        ("/segments/a/policy", Edit::Merge(json!({"k": 34})), 34),
        ("/segments/a/policy", Edit::Replace(json!({"k": 35})), 35),
        (
            "/segments/a",
            Edit::Operations(json!([
                {"op": "test", "path": "/policy/k", "value": 35},
                {"op": "replace", "path": "/policy/k", "value": 36},
            ])),
            36,
        ),
    ];
    for (pointer, edit, k) in edits {
        let request = WriteRequest {
            edit,
            pointer: pointer.to_owned(),
            ..put(Value::Null)
        };
        let written = core.write(request).unwrap();
        assert_eq!(place.booted(), document(k));
        assert_eq!(written.diff.len(), 1);
        assert_eq!(written.diff[0].pointer, "/segments/a/policy/k");
    }
    let failing = Edit::Operations(json!([{"op": "test", "path": "/version", "value": 9}]));
    let request = WriteRequest {
        edit: failing,
        ..put(Value::Null)
    };
    assert_eq!(kind(&core.write(request).unwrap_err()), "validation");
}

#[test]
fn an_expected_etag_that_does_not_run_is_a_conflict_with_the_difference() {
    let place = Place::new("etag");
    let mut core = place.core(&Scripted::default());
    core.write(put(document(32))).unwrap();
    let seen = core.picture().etag();
    core.write(put(document(40))).unwrap();
    let stale = WriteRequest {
        expected: Some(vec![seen]),
        ..put(document(50))
    };
    let problem = core.write(stale).unwrap_err();
    assert_eq!((problem.status, kind(&problem)), (412, "revision-conflict"));
    assert_eq!(problem.current_etag, Some(core.picture().etag()));
    assert_eq!(problem.diff.unwrap()[0].new, json!(40));
    let fresh = WriteRequest {
        expected: Some(vec![core.picture().etag()]),
        ..put(document(50))
    };
    core.write(fresh).unwrap();
}

#[test]
fn impact_above_the_allowed_one_names_its_fields_and_changes_nothing() {
    let place = Place::new("impact");
    let mut core = place.core(&Scripted::default());
    core.write(put(document(32))).unwrap();
    let mut other = document(33);
    other["segments"]["a"]["lan"] = json!({"interface": "lan1"});
    let problem = core.write(put(other.clone())).unwrap_err();
    assert_eq!(kind(&problem), "impact-not-allowed");
    assert_eq!(problem.fields[0].pointer, "/segments/a/lan/interface");
    let tried = WriteRequest {
        max_impact: Impact::Process,
        window_ms: Some(5000),
        ..put(other.clone())
    };
    let problem = core.write(tried).unwrap_err();
    assert_eq!(kind(&problem), "restart-not-confirmable");
    assert_eq!(place.booted(), document(32));
    assert_eq!(core.store.revisions().len(), 1);
    let meant = WriteRequest {
        max_impact: Impact::Process,
        ..put(other.clone())
    };
    assert_eq!(core.write(meant).unwrap().impact, Impact::Process);
    assert_eq!(place.booted(), other);
}

#[test]
fn the_same_key_gets_the_same_answer_and_another_request_does_not() {
    let place = Place::new("idempotent");
    let mut core = place.core(&Scripted::default());
    let request = |k: u64, content: &str| WriteRequest {
        idempotency: Some(("key".to_owned(), content.to_owned())),
        ..put(document(k))
    };
    let first = core.write(request(32, "x")).unwrap();
    let again = core.write(request(32, "x")).unwrap();
    assert_eq!(first.operation, again.operation);
    assert!(again.changed);
    let problem = core.write(request(33, "y")).unwrap_err();
    assert_eq!(kind(&problem), "idempotency-key-reused");
    // Also after a restart.
    let mut core = place.core(&Scripted::default());
    assert_eq!(
        core.write(request(32, "x")).unwrap().operation,
        first.operation
    );
}

#[test]
fn what_the_data_plane_refuses_is_no_revision() {
    let place = Place::new("refused");
    let plane = Scripted::default();
    let mut core = place.core(&plane);
    core.write(put(document(32))).unwrap();
    let issue = crem_api::Issue::new("/segments/a/lan", "lan0", "an interface that exists");
    let refused = Taken::Refused(crem_api::Invalid {
        issues: vec![issue],
    });
    plane.0.lock().unwrap().0.push(refused);
    let problem = core.write(put(document(33))).unwrap_err();
    assert_eq!(kind(&problem), "validation");
    assert_eq!(problem.errors[0].pointer, "/segments/a/lan");
    assert_eq!(core.store.revisions().len(), 1);
}

#[test]
fn a_document_that_fails_to_come_into_force_is_taken_back() {
    let place = Place::new("failed");
    let plane = Scripted::default();
    let mut core = place.core(&plane);
    core.write(put(document(32))).unwrap();
    plane.next(Taken::Failed("no room".to_owned()));
    let problem = core.write(put(document(33))).unwrap_err();
    assert_eq!(kind(&problem), "apply-failed");
    assert_eq!(plane.running(), Some(1));
    assert_eq!(place.booted(), document(32));
    assert_eq!(core.machine.commit(clock::now()).state, CommitPhase::None);
    let mut operations = core.store.operations().values();
    let operation = operations.find(|o| o.revision == 2).unwrap();
    assert_eq!(operation.state, OperationState::Failed);
    assert_eq!(core.store.armed().unwrap(), None);
}

fn pending(core: &mut Core) -> u64 {
    core.write(put(document(32))).unwrap();
    let tried = WriteRequest {
        window_ms: Some(60_000),
        ..put(document(33))
    };
    let written = core.write(tried).unwrap();
    assert_eq!(written.pending.unwrap().state, CommitPhase::Pending);
    written.revision.unwrap()
}

#[test]
fn a_pending_commit_runs_but_does_not_boot_until_it_is_confirmed() {
    let place = Place::new("pending");
    let plane = Scripted::default();
    let mut core = place.core(&plane);
    let number = pending(&mut core);
    assert_eq!(plane.running(), Some(number));
    assert_eq!(place.booted(), document(32));
    let problem = core.write(put(document(34))).unwrap_err();
    assert_eq!((problem.status, kind(&problem)), (409, "commit-pending"));
    assert_eq!(problem.commit.unwrap().revision, Some(number));
    let connected_ms = clock::now().boot_ms;
    core.commit(number, CommitRequest::Confirm { connected_ms })
        .unwrap();
    assert_eq!(place.booted(), document(33));
    core.write(put(document(34))).unwrap();
}

#[test]
fn a_killed_process_a_cancel_and_a_new_data_plane_bring_the_confirmed_revision_back() {
    let ways: [fn(&Place, &Scripted, Core) -> Core; 3] = [
        |place, plane, core| {
            drop(core);
            place.core(plane)
        },
        |_, _, mut core| {
            core.commit(2, CommitRequest::Cancel).unwrap();
            core
        },
        |_, _, mut core| {
            core.plane_seen("first".to_owned());
            assert!(
                core.machine.deadline().is_some(),
                "the same one is no restart"
            );
            core.plane_seen("second".to_owned());
            core
        },
    ];
    for (n, way) in ways.into_iter().enumerate() {
        let place = Place::new(&format!("back{n}"));
        let plane = Scripted::default();
        let mut core = place.core(&plane);
        pending(&mut core);
        let core = way(&place, &plane, core);
        assert_eq!(plane.running(), Some(1));
        assert_eq!(*core.value, document(32));
        assert_eq!(place.booted(), document(32));
        let mut operations = core.store.operations().values();
        let operation = operations.find(|o| o.revision == 2).unwrap();
        assert_eq!(operation.state, OperationState::RolledBack);
        assert!(operation.problem.as_ref().unwrap().cause.is_some());
        // Invariant 9: it is told.
        let records = core.audit.read(0, 10).unwrap();
        assert_eq!(records.last().unwrap().action, "rollback");
        assert_eq!(core.rollbacks.values().sum::<u64>(), 1);
    }
}

/// Stops every possible number of file changes into an apply, and boots.
#[test]
fn killed_anywhere_in_an_apply_it_boots_the_old_or_the_new_revision() {
    for window_ms in [None, Some(60_000)] {
        let (mut old, mut new) = (0, 0);
        for steps in 0..40 {
            let place = Place::new("killed");
            let mut core = place.core(&Scripted::default());
            core.write(put(document(32))).unwrap();
            core.store.steps_left = Some(steps);
            let tried = WriteRequest {
                window_ms,
                ..put(document(33))
            };
            let written = core.write(tried);
            let revision = written.as_ref().ok().and_then(|w| w.revision);
            if let (Some(revision), Some(_)) = (revision, window_ms) {
                let connected_ms = clock::now().boot_ms;
                core.commit(revision, CommitRequest::Confirm { connected_ms })
                    .ok();
            }
            // Killed: nothing of the process is left but the disk.
            std::mem::forget(core);
            let booted = place.booted();
            let core = place.core(&Scripted::default());
            assert_eq!(*core.value, booted, "control and data plane agree");
            match () {
                () if booted == document(32) => old += 1,
                () if booted == document(33) => new += 1,
                () => panic!("after {steps} steps {booted}"),
            }
            assert_eq!(core.store.armed().unwrap(), None);
            let mut core = core;
            core.write(put(document(40))).expect("it goes on");
        }
        assert!(old > 3 && new > 3, "{old} times old, {new} times new");
    }
}
