//! Order and hold: what waits, for what, how long.

use super::*;
use crate::config::Hold;

/// H of the rig: max(8 x 10 µs, 200 µs burst timeout) + A.
const H: Duration = Duration::from_micros(300);

#[test]
fn packets_in_order_pass_at_once() {
    let mut rig = Rig::bound(config(), 2, 0xff_fffe);
    rig.burst(&[0xff_fffe, 0xff_ffff, 0, 1]);
    assert_eq!(rig.taken(), [0xff_fffe, 0xff_ffff, 0, 1]);
    let kept = rig.crf.references();
    assert_eq!(
        (kept.held, kept.kept),
        (0, 9),
        "only what the next gap could need is kept"
    );
}

// shows: CREM-RECV-06, CREM-RECV-07, CREM-RECV-08, AMB-HOLD
#[test]
fn packets_behind_a_gap_wait_for_h_and_leave_in_order() {
    let mut rig = Rig::bound(config(), 2, 1000);
    assert_eq!(rig.status().hold, Some(H));
    rig.burst(&[1000, 1003, 1002]);
    rig.now = rig.now + 50 * US;
    rig.burst(&[1005]);
    assert_eq!(rig.taken(), [1000]);
    rig.wait(H - 51 * US);
    assert_eq!(rig.taken(), [] as [u32; 0]);
    rig.wait(US);
    assert_eq!(
        rig.taken(),
        [1002, 1003, 1005],
        "all of it, in serial order"
    );
    assert_eq!(rig.count("holds_expired"), 1);
    let held = rig.crf.times().hold_ns;
    let longest = held.permille(1_000);
    assert_eq!(held.count(), 3);
    assert!((300_000..400_000).contains(&longest), "{longest}");
    rig.burst(&[1006]);
    assert_eq!(rig.taken(), [1006], "no second hold for the same gaps");
    rig.burst(&[1008]);
    assert_eq!(rig.taken(), [] as [u32; 0], "a new gap is held");
}

// shows: AMB-HOLD
#[test]
fn a_late_packet_ends_the_hold() {
    let mut rig = Rig::bound(config(), 2, 1000);
    rig.burst(&[1001, 1002, 1004]);
    rig.now = rig.now + 30 * US;
    rig.burst(&[1000]);
    assert_eq!(rig.taken(), [1000, 1001, 1002], "up to the next gap");
    rig.burst(&[1003]);
    assert_eq!(rig.taken(), [1003, 1004]);
    assert_eq!(rig.count("late_sources"), 2);
    assert_eq!(
        rig.status().allowance,
        Some(120 * US),
        "4 x 30 µs of displacement"
    );
}

#[test]
fn the_hold_restarts_for_what_waits_for_a_later_gap() {
    let mut rig = Rig::bound(config(), 2, 1000);
    rig.burst(&[1001]);
    rig.now = rig.now + 200 * US;
    rig.burst(&[1003]);
    rig.now = rig.now + 50 * US;
    rig.burst(&[1000]);
    assert_eq!(rig.taken(), [1000, 1001]);
    // 250 µs of displacement: A is 1 ms, H 1.2 ms, from the arrival of 1003.
    assert_eq!(rig.status().hold, Some(1200 * US));
    rig.wait(1149 * US);
    assert_eq!(rig.taken(), [] as [u32; 0]);
    rig.wait(US);
    assert_eq!(rig.taken(), [1003]);
}

#[test]
fn nothing_is_held_before_parameters_rate_and_rtt_are_known() {
    let mut rig = Rig::unbound_params(config(), params(FlowId::new(1).unwrap(), 1, 2, 0));
    rig.burst(&[5, 7, 9]);
    assert_eq!(rig.taken(), [5, 7, 9], "rate unknown");
    let mut rig = Rig::bound(config(), 2, 1000);
    let flow = rig.flow;
    rig.close(CloseReason::Normal);
    rig.burst(&[1002]);
    assert_eq!(rig.taken(), [1002]);
    assert_ne!(rig.hello(&hello(4)).unwrap().flow, flow);
    rig.burst(&[1010, 1012]);
    assert_eq!(rig.taken(), [1010, 1012], "offered is not bound");
}

// shows: AMB-INITCFG
#[test]
fn nothing_is_held_before_the_effective_psn() {
    let mut rig = Rig::unbound_params(config(), params(FlowId::new(1).unwrap(), 1, 2, 100));
    for n in 0..49 {
        rig.now = rig.now + 20 * US;
        rig.burst(&[2 * n, 2 * n + 1]);
    }
    rig.taken();
    rig.burst(&[99]);
    assert_eq!(rig.taken(), [99]);
    rig.wait(100 * MS);
    assert!(rig.range_request().is_none(), "nor asked for");
    rig.burst(&[100, 102]);
    assert_eq!(rig.taken(), [100]);
}

#[test]
fn hold_can_be_off_or_the_operators() {
    let mut off = config();
    off.crf.hold = Hold::Off;
    let mut rig = Rig::bound(off, 2, 1000);
    rig.burst(&[1001]);
    assert_eq!(rig.taken(), [1001]);
    let mut fixed = config();
    fixed.crf.hold = Hold::Fixed(3 * RTT);
    let mut rig = Rig::bound(fixed, 0, 1000);
    rig.burst(&[1001]);
    rig.wait(2 * RTT + 2 * A - US);
    assert_eq!(rig.taken(), [] as [u32; 0]);
    rig.wait(US);
    assert_eq!(rig.taken(), [1001], "a second round would come too late");
}

// shows: QOS-QP-02, AMB-HOLD
#[test]
fn an_operators_hold_fits_a_coded_round() {
    let mut fixed = config();
    fixed.crf.hold = Hold::Fixed(3 * RTT);
    let mut rig = Rig::bound(fixed, 0, 1000);
    rig.burst(&[1001, 1002]);
    rig.wait(A);
    let request = rig.range_request().unwrap();
    rig.wait(RTT);
    rig.coded(1000, 0, set(&[0]), request.request);
    assert_eq!(
        rig.taken(),
        [1000, 1001, 1002],
        "restored in order, nothing left early"
    );
    assert_eq!(rig.count("restored_coded"), 1);
}

#[test]
fn without_symbols_ahead_only_reordering_is_waited_for() {
    let mut rig = Rig::bound(config(), 0, 1000);
    assert_eq!(rig.status().hold, Some(A));
    rig.burst(&[1001]);
    rig.wait(A);
    assert_eq!(rig.taken(), [1001]);
}

#[test]
fn a_request_that_cannot_be_answered_in_time_ends_the_wait() {
    let mut rig = Rig::bound(config(), 1, 1000);
    rig.burst(&[1001, 1002, 1003, 1004, 1005, 1007, 1008]);
    rig.ordinary(1000, 0);
    assert_eq!(rig.taken(), [] as [u32; 0]);
    rig.wait(A);
    assert!(rig.block_request().is_some());
    assert_eq!(rig.taken(), [1001, 1002, 1003, 1004, 1005, 1007, 1008]);
    assert_eq!(rig.count("holds_expired"), 0);
}

// shows: CREM-RECV-07
#[test]
fn repair_that_lags_lengthens_the_hold() {
    let mut rig = Rig::bound(config(), 1, 1000);
    rig.burst(&[1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007]);
    rig.wait(2 * MS);
    rig.ordinary(1000, 0);
    rig.burst(&[1008]);
    // To a grain of RTT/256.
    let hold = rig.status().hold.unwrap();
    assert!(
        (H + 2 * MS..H + 2 * MS + RTT / 256).contains(&hold),
        "{hold:?}"
    );
    rig.wait(100 * MS);
    rig.burst(&[1009]);
    rig.wait(9 * MS);
    let start = 1002;
    rig.ordinary(start, 0);
    rig.burst(&[1010]);
    assert_eq!(
        rig.status().hold,
        Some(5 * MS),
        "a quarter of the RTT at most"
    );
}

// shows: CREM-OPS-02
#[test]
fn the_bound_on_held_frames_ends_holds_early() {
    let mut small = config();
    small.crf.hold_packets = 4;
    let mut rig = Rig::bound(small, 2, 1000);
    rig.burst(&[1001, 1002, 1003, 1004]);
    assert_eq!(rig.taken(), [] as [u32; 0]);
    rig.burst(&[1005, 1006]);
    assert_eq!(rig.taken(), [1001, 1002, 1003, 1004, 1005, 1006]);
    assert_eq!(rig.count("holds_cut"), 1);
}

#[test]
fn release_all_keeps_the_binding() {
    let mut rig = Rig::bound(config(), 2, 1000);
    rig.burst(&[1003, 1001]);
    rig.crf.release_all(rig.now, &mut rig.out);
    rig.settle();
    assert_eq!(rig.taken(), [1001, 1003]);
    assert_eq!(rig.status().life, Life::Bound);
}

// shows: CREM-BLOCK-07
#[test]
fn a_window_sent_again_passes_at_once_and_changes_nothing() {
    let mut rig = Rig::bound(config(), 2, 1000);
    rig.burst(&[1000, 1001, 1003, 1004, 1005]);
    rig.wait(H);
    assert_eq!(rig.taken(), [1000, 1001, 1003, 1004, 1005]);
    let before = rig.reports();
    // Go-back-N from the lost packet, with further packets behind.
    rig.now = rig.now + RTT;
    rig.burst(&[1002, 1003, 1004, 1005, 1006, 1007]);
    assert_eq!(rig.taken(), [1002, 1003, 1004, 1005, 1006, 1007]);
    assert_eq!(
        rig.status().allowance,
        Some(A),
        "a retransmission is no reordering"
    );
    rig.burst(&[1003, 1005, 1001]);
    assert_eq!(rig.taken(), [1003, 1005, 1001]);
    rig.wait(200 * MS);
    let after = rig.reports();
    assert_eq!(
        before.received + after.received,
        80 + 5 + 2,
        "each position counts once"
    );
    assert_eq!(
        (rig.count("repeated_sources"), rig.count("late_sources")),
        (6, 1)
    );
    assert!(rig.crf.references().held == 0 && rig.jobs.is_empty());
}

#[test]
fn a_duplicate_of_a_held_packet_waits_with_it() {
    let mut rig = Rig::bound(config(), 2, 1000);
    rig.burst(&[1001, 1002, 1001]);
    assert_eq!(rig.taken(), [] as [u32; 0]);
    rig.burst(&[1000]);
    assert_eq!(rig.taken(), [1000, 1001, 1001, 1002]);
}

#[test]
fn what_is_held_goes_before_a_window_that_is_sent_again() {
    let mut fixed = config();
    fixed.crf.hold = Hold::Fixed(3 * RTT);
    let mut rig = Rig::bound(fixed, 2, 1000);
    rig.burst(&[1000, 1002, 1004]);
    rig.now = rig.now + RTT;
    rig.burst(&[1006]);
    assert_eq!(rig.taken(), [1000]);
    // A duplicate of what just came is not the host's doing.
    rig.burst(&[1006]);
    assert_eq!(rig.taken(), [] as [u32; 0]);
    rig.burst(&[1001, 1002, 1003]);
    assert_eq!(rig.taken(), [1002, 1004, 1006, 1006, 1001, 1002, 1003]);
    assert_eq!(rig.count("holds_overtaken"), 1);
}

// shows: AMB-HOLD, AMB-LATEDUP
#[test]
fn sources_that_their_repair_overtakes_are_given_the_time_they_take() {
    let mut rig = Rig::bound(config(), 2, 1000);
    let early = |rig: &mut Rig, start: u32, lead: Duration| {
        rig.burst(&(start..start + 6).collect::<Vec<_>>());
        rig.ordinary(start, 0);
        rig.ordinary(start, 1);
        rig.wait(lead);
        rig.burst(&[start + 6, start + 7]);
        assert_eq!(rig.status().figures.left, 0);
    };
    // Less than A: nothing is restored, and A learns of it.
    early(&mut rig, 1000, 60 * US);
    assert_eq!(rig.taken(), (1000..1008).collect::<Vec<_>>());
    assert_eq!(rig.status().allowance, Some(240 * US));
    // So does the next one, which would have been too far ahead before.
    early(&mut rig, 1008, 200 * US);
    assert_eq!(rig.count("restored"), 0);
    // One that comes sooner than that by far: what was restored comes twice, in order, and is counted.
    rig.taken();
    early(&mut rig, 1016, MS);
    let twice: Vec<u32> = (1016..1024).chain([1022, 1023]).collect();
    assert_eq!(rig.taken(), twice);
    let counts = ["restored", "restored_early", "repeated_sources"];
    assert_eq!(counts.map(|name| rig.count(name)), [2; 3]);
    early(&mut rig, 1024, MS);
    assert_eq!(rig.count("restored"), 2, "that was not to happen again");
}
