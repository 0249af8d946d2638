//! Tests of the commit machine, one for each invariant.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;

use super::*;

fn at(ms: u64) -> Now {
    Now {
        boot_ms: ms,
        wall_ms: 1_000_000 + ms,
    }
}

fn begin(revision: u64, window_ms: Option<u64>) -> Input {
    Input::Begin {
        operation: format!("op-{revision}"),
        revision,
        window_ms,
        actor: "alice".to_owned(),
    }
}

fn confirm(revision: u64, connected_ms: u64) -> Input {
    Input::Confirm {
        revision,
        connected_ms,
    }
}

/// A machine in which revision 2 waits since 100 ms to be confirmed until 10,100 ms; 1 is confirmed.
fn waiting() -> Machine {
    let (mut machine, actions) = Machine::recover(Some(1), None);
    assert!(actions.is_empty());
    machine.input(at(0), begin(2, Some(10_000))).unwrap();
    machine.input(at(100), Input::Pushed(Ok(()))).unwrap();
    machine
}

fn names(actions: &[Action]) -> Vec<&'static str> {
    let name = |action: &Action| match action {
        Action::Arm(_) => "arm",
        Action::Disarm => "disarm",
        Action::Promote(_) => "promote",
        Action::Push(_) => "push",
        Action::Restore(_) => "restore",
        Action::Wait => "wait",
        Action::Conclude { .. } => "conclude",
    };
    actions.iter().map(name).collect()
}

fn outcome(actions: &[Action]) -> Outcome {
    match actions.last() {
        Some(Action::Conclude { outcome, .. }) => outcome.clone(),
        other => panic!("{other:?} concludes nothing"),
    }
}

#[test]
fn invariant_1_the_way_back_is_on_disk_before_anything_is_touched() {
    let (mut machine, _) = Machine::recover(Some(1), None);
    let actions = machine.input(at(5), begin(2, None)).unwrap();
    assert_eq!(names(&actions), ["arm", "push"]);
    let Some(Action::Arm(armed)) = actions.first() else {
        panic!("{actions:?}");
    };
    assert_eq!((armed.revision, armed.rollback_to), (2, Some(1)));
}

#[test]
fn invariant_1_what_cannot_be_armed_is_not_applied() {
    let (mut machine, _) = Machine::recover(Some(1), None);
    machine.input(at(0), begin(2, None)).unwrap();
    let actions = machine
        .input(at(1), Input::NotArmed("disk full".to_owned()))
        .unwrap();
    assert_eq!(outcome(&actions), Outcome::Failed("disk full".to_owned()));
    assert_eq!(machine.running(), Some(1));
    assert!(machine.input(at(2), begin(3, None)).is_ok());
}

#[test]
fn invariant_1_a_failed_apply_restores_and_disarms() {
    for window in [None, Some(5_000)] {
        let (mut machine, _) = Machine::recover(Some(1), None);
        machine.input(at(0), begin(2, window)).unwrap();
        let actions = machine
            .input(at(1), Input::Pushed(Err("no".to_owned())))
            .unwrap();
        assert_eq!(actions, [Action::Restore(Some(1))]);
        let actions = machine.input(at(2), Input::Restored).unwrap();
        assert_eq!(names(&actions), ["disarm", "conclude"]);
        assert_eq!(outcome(&actions), Outcome::Failed("no".to_owned()));
        assert_eq!(
            (machine.running(), machine.deadline()),
            (Some(1), None),
            "no timer is left behind"
        );
    }
}

#[test]
fn invariant_3_while_one_waits_there_is_no_other() {
    let mut machine = waiting();
    let before = machine.clone();
    assert_eq!(machine.input(at(200), begin(3, None)), Err(Refusal::Busy));
    assert_eq!(
        machine.input(at(200), begin(3, Some(5_000))),
        Err(Refusal::Busy)
    );
    assert_eq!(machine, before);
}

#[test]
fn invariant_4_the_way_back_is_the_last_confirmed_revision_also_after_extension() {
    let mut machine = waiting();
    for n in 1..4 {
        let extend = Input::Extend {
            revision: 2,
            by_ms: 1_000,
        };
        let actions = machine.input(at(100 * n), extend).unwrap();
        let [Action::Arm(armed)] = actions.as_slice() else {
            panic!("{actions:?}");
        };
        assert_eq!(armed.rollback_to, Some(1));
        assert_eq!(armed.deadline_boot_ms, 10_100 + 1_000 * n);
    }
    assert!(machine.input(at(13_099), Input::Tick).unwrap().is_empty());
    let actions = machine.input(at(13_100), Input::Tick).unwrap();
    assert_eq!(actions, [Action::Restore(Some(1))]);
}

#[test]
fn invariant_5_the_way_back_is_a_number_and_survives_being_stored() {
    // More digits than a float keeps.
    let exact = 9_007_199_254_740_993;
    let (mut machine, _) = Machine::recover(Some(exact), None);
    let actions = machine.input(at(0), begin(exact + 1, None)).unwrap();
    let Some(Action::Arm(armed)) = actions.first() else {
        panic!("{actions:?}");
    };
    let text = serde_json::to_string(armed).unwrap();
    let back: Armed = serde_json::from_str(&text).unwrap();
    assert_eq!(back.rollback_to, Some(exact));
}

#[test]
fn invariant_6_time_alone_rolls_back() {
    let mut machine = waiting();
    assert_eq!(machine.deadline(), Some(10_100));
    let actions = machine.input(at(10_100), Input::Tick).unwrap();
    assert_eq!(actions, [Action::Restore(Some(1))]);
    // Whatever clients ask meanwhile.
    assert!(machine.input(at(10_101), confirm(2, 10_000)).is_err());
    assert!(machine.input(at(10_101), begin(3, None)).is_err());
    let actions = machine.input(at(10_102), Input::Restored).unwrap();
    assert_eq!(outcome(&actions), Outcome::RolledBack(Cause::Timeout));
    assert_eq!(machine.running(), Some(1));
}

#[test]
fn invariant_7_a_start_finds_the_confirmed_revision() {
    let (mut machine, _) = Machine::recover(Some(1), None);
    let actions = machine.input(at(0), begin(2, Some(10_000))).unwrap();
    let Some(Action::Arm(armed)) = actions.first().cloned() else {
        panic!("{actions:?}");
    };
    let (mut machine, actions) = Machine::recover(Some(1), Some(armed.clone()));
    assert_eq!(actions, [Action::Restore(Some(1))]);
    assert_eq!(machine.running(), Some(1));
    let actions = machine.input(at(0), Input::Restored).unwrap();
    assert_eq!(names(&actions), ["disarm", "conclude"]);
    assert_eq!(outcome(&actions), Outcome::RolledBack(Cause::Restart));
    // Killed between promotion and disarming: it had succeeded.
    let (machine, actions) = Machine::recover(Some(2), Some(armed));
    assert_eq!(names(&actions), ["disarm", "conclude"]);
    assert_eq!(outcome(&actions), Outcome::Succeeded);
    assert_eq!(machine.running(), Some(2));
}

#[test]
fn invariant_7_a_data_plane_that_starts_anew_rolls_back() {
    let mut machine = waiting();
    let actions = machine.input(at(300), Input::DataplaneRestarted).unwrap();
    assert_eq!(actions, [Action::Restore(Some(1))]);
    let actions = machine.input(at(301), Input::Restored).unwrap();
    assert_eq!(
        outcome(&actions),
        Outcome::RolledBack(Cause::DataplaneRestart)
    );
    assert!(
        machine
            .input(at(302), Input::DataplaneRestarted)
            .unwrap()
            .is_empty(),
        "without a commit it means nothing"
    );
}

#[test]
fn confirming_takes_the_right_revision_and_a_new_connection() {
    let mut machine = waiting();
    let before = machine.clone();
    assert_eq!(
        machine.input(at(200), confirm(3, 150)),
        Err(Refusal::OtherRevision(2))
    );
    assert_eq!(
        machine.input(at(200), confirm(2, 99)),
        Err(Refusal::OldConnection)
    );
    assert_eq!(machine, before);
    let actions = machine.input(at(200), confirm(2, 150)).unwrap();
    assert_eq!(names(&actions), ["promote", "disarm", "conclude"]);
    assert_eq!(machine.confirmed(), Some(2));
    assert_eq!(
        machine.input(at(201), confirm(2, 150)),
        Err(Refusal::NothingPending)
    );
}

#[test]
fn a_commit_without_a_window_is_confirmed_by_success() {
    let (mut machine, _) = Machine::recover(None, None);
    machine.input(at(0), begin(1, None)).unwrap();
    assert_eq!(machine.confirmed(), None);
    let actions = machine.input(at(1), Input::Pushed(Ok(()))).unwrap();
    assert_eq!(names(&actions), ["promote", "disarm", "conclude"]);
    assert_eq!(machine.confirmed(), Some(1));
}

#[test]
fn cancelling_names_its_revision() {
    let mut machine = waiting();
    assert!(machine.input(at(1), Input::Cancel { revision: 1 }).is_err());
    let actions = machine.input(at(1), Input::Cancel { revision: 2 }).unwrap();
    assert_eq!(actions, [Action::Restore(Some(1))]);
    let actions = machine.input(at(2), Input::Restored).unwrap();
    assert_eq!(outcome(&actions), Outcome::RolledBack(Cause::Cancelled));
}

#[test]
fn windows_have_bounds() {
    let (mut machine, _) = Machine::recover(Some(1), None);
    for window in [0, 999, 3_600_001] {
        assert_eq!(
            machine.input(at(0), begin(2, Some(window))),
            Err(Refusal::Window)
        );
    }
    let mut machine = waiting();
    for by_ms in [0, 3_600_000, u64::MAX] {
        let extend = Input::Extend { revision: 2, by_ms };
        assert_eq!(machine.input(at(200), extend), Err(Refusal::Window));
    }
}

#[test]
fn the_boot_clock_counts_not_the_wall_clock() {
    let mut machine = waiting();
    let set_forward = Now {
        boot_ms: 5_000,
        wall_ms: u64::MAX / 2,
    };
    assert!(machine.input(set_forward, Input::Tick).unwrap().is_empty());
    assert_eq!(machine.commit(set_forward).remaining_ms, Some(5_100));
    let set_back = Now {
        boot_ms: 10_100,
        wall_ms: 0,
    };
    assert_eq!(machine.input(set_back, Input::Tick).unwrap().len(), 1);
}

/// Everything that is not meant to move a commit, in any order.
fn idle_inputs() -> impl Strategy<Value = Input> {
    prop_oneof![
        Just(Input::Tick),
        (3u64..9, proptest::option::of(1_000u64..5_000)).prop_map(|(r, w)| begin(r, w)),
        (3u64..9, 0u64..20_000).prop_map(|(r, c)| confirm(r, c)),
        (0u64..100).prop_map(|c| confirm(2, c)),
        (3u64..9).prop_map(|revision| Input::Cancel { revision }),
        (3u64..9).prop_map(|revision| Input::Extend { revision, by_ms: 1 }),
        Just(Input::Restored),
        Just(Input::Pushed(Ok(()))),
        Just(Input::Pushed(Err("late".to_owned()))),
        Just(Input::NotArmed("late".to_owned())),
    ]
}

proptest! {
    #[test]
    fn invariant_2_nothing_else_confirms_cancels_or_extends(
        inputs in proptest::collection::vec((100u64..10_100, idle_inputs()), 0..40),
    ) {
        let mut machine = waiting();
        let before = machine.clone();
        for (ms, input) in inputs {
            let actions = machine.input(at(ms), input).unwrap_or_default();
            prop_assert!(actions.is_empty());
        }
        prop_assert_eq!(machine, before);
    }
}
