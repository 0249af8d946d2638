//! Late repairs and needless resends: what is counted, and what is asked for once more.

use super::*;

/// A flow without symbols ahead that has delivered up to 1100 and whose host goes back, with a comparison.
fn rig() -> Rig {
    let mut rig = Rig::bound(config(), 0, 1000);
    rig.crf.compare_with(Same(|a, b| {
        (a.buf.psn, a.off, a.len) == (b.buf.psn, b.off, b.len)
    }));
    let psns: Vec<u32> = (1000..1100).collect();
    for chunk in psns.chunks(2) {
        rig.now = rig.now + 20 * US;
        rig.burst(chunk);
    }
    rig.taken();
    rig
}

/// Loses 1100 of 1100 .. 1110 and waits until it has been asked for.
fn lose_one(rig: &mut Rig) -> RangeRequest {
    rig.burst(&(1101..1110).collect::<Vec<_>>());
    rig.wait(5 * MS);
    assert_eq!(
        rig.taken(),
        (1101..1110).collect::<Vec<_>>(),
        "the hold is over"
    );
    rig.range_request().expect("1100 is asked for")
}

// shows: CREM-RECV-09
#[test]
fn a_packet_restored_late_is_passed_on_and_counted() {
    let mut rig = rig();
    let request = lose_one(&mut rig);
    rig.now = rig.now + RTT;
    rig.coded(1096, 0, set(&[4]), request.request);
    assert_eq!(rig.taken(), [1100]);
    assert_eq!(
        (
            rig.status().figures.restored_late,
            rig.count("restored_late")
        ),
        (1, 1)
    );
    rig.wait(100 * MS);
    let r = rig.reports();
    assert_eq!((r.expected - r.received, r.restored), (1, 1));
}

// shows: CREM-RECV-06
#[test]
fn a_packet_restored_in_time_is_not_late() {
    let mut rig = Rig::bound(config(), 2, 1000);
    rig.crf.compare_with(Same(|_, _| true));
    rig.burst(&[1000, 1001, 1003, 1004, 1005, 1006, 1007]);
    rig.ordinary(1000, 0);
    rig.wait(A);
    assert_eq!(rig.taken(), (1000..1008).collect::<Vec<_>>());
    assert_eq!(rig.status().figures.restored_late, 0);
}

// shows: CREM-RECV-09
#[test]
fn the_last_packet_is_late_once_its_host_has_gone_back() {
    for goes_back in [false, true] {
        let mut rig = Rig::bound(config(), 2, 1000);
        rig.crf.compare_with(Same(|_, _| true));
        rig.burst(&[1000, 1001, 1002, 1003, 1004, 1005, 1006]);
        rig.now = rig.now + RTT;
        if goes_back {
            rig.burst(&[1003, 1004]);
        }
        rig.taken();
        rig.ordinary(1000, 0);
        rig.wait(A);
        assert_eq!(rig.taken(), [1007]);
        let late = rig.status().figures.restored_late;
        assert_eq!(late, u64::from(goes_back));
    }
}

/// Lets every request for 1100 go unanswered, until it is left to the transport; the CSF keeps it for
/// some time yet.
fn leave_one(rig: &mut Rig) {
    lose_one(rig);
    rig.wait(125 * MS);
    assert_eq!(rig.status().figures.left, 1);
    rig.sent.clear();
    // The CSF is there: only these requests or their answers were lost.
    rig.info(1080, Bitmap::first(8), None);
}

// shows: AMB-RANGEWAIT
#[test]
fn a_run_that_begins_behind_a_packet_lost_again_asks_for_it_once_more() {
    let mut rig = rig();
    leave_one(&mut rig);
    rig.burst(&[1101, 1102]);
    assert_eq!(rig.taken(), [1101, 1102]);
    rig.wait(A);
    let request = rig.range_request().expect("another request");
    assert_eq!(
        (
            first_of(&request).start,
            first_of(&request).count,
            request.fallback
        ),
        (Psn::new(1100), 1, false)
    );
    assert_eq!(rig.count("gaps_reopened"), 1);
    // It comes before the adapter's timeout.
    rig.now = rig.now + RTT;
    rig.coded(1096, 0, set(&[4]), request.request);
    assert_eq!(rig.taken(), [1100]);
    rig.wait(200 * MS);
    let r = rig.reports();
    assert_eq!(r.expected - r.received, 1, "it is lost once only");
}

#[test]
fn a_hole_in_a_run_that_no_copy_can_fill_is_asked_for() {
    let mut rig = rig();
    leave_one(&mut rig);
    rig.burst(&[1098, 1099, 1101, 1102]);
    rig.wait(A);
    let request = rig.range_request().expect("another request");
    assert_eq!(first_of(&request).start, Psn::new(1100));
}

// shows: CREM-FB-04
#[test]
fn runs_sent_again_without_need_are_counted() {
    let mut rig = rig();
    rig.now = rig.now + RTT;
    rig.burst(&[1090, 1091, 1092]);
    assert_eq!(rig.status().figures.resent_needlessly, 1);
    let mut rig = self::rig();
    lose_one(&mut rig);
    rig.now = rig.now + RTT;
    rig.burst(&[1100, 1101, 1102]);
    assert_eq!(
        rig.status().figures.resent_needlessly,
        0,
        "the receiver waited for it"
    );
}

// shows: AMB-LREXP
#[test]
fn positions_nobody_answered_for_are_not_lost_when_room_runs_out() {
    // Half of the packets take another way round: far more gaps than a flow may have.
    let mut rig = Rig::bound(config(), 0, 1000);
    for n in 0..4000u32 {
        rig.now = rig.now + 10 * US;
        rig.burst(&[1000 + 2 * n]);
    }
    assert!(rig.count("gaps_evicted") > 1000);
    rig.wait(10 * MS);
    let (mut expected, mut received) = (0, 0);
    for (_, message) in rig.sent.drain(..) {
        if let Message::LossReport(report) = message {
            expected += report.expected;
            received += report.received;
        }
    }
    assert_eq!(expected, received);
    assert!(received > 2000);
}

#[test]
fn without_memory_for_notes_older_psns_are_given_up_and_every_packet_passes_once() {
    let mut config = config();
    // 29 pages of 16 PSNs.
    (config.crf.max_flows, config.crf.keep_packets) = (1, 100);
    let mut rig = Rig::bound(config, 0, 1000);
    let mut passed = 0;
    for n in 0..100u32 {
        // As long as the first one is missing the window cannot move by itself.
        rig.now = rig.now + 10 * US;
        let psns: Vec<u32> = (0..10).map(|m| 1001 + 10 * n + m).collect();
        rig.burst(&psns);
        passed += rig.taken().len();
    }
    rig.wait(RTT * 4);
    passed += rig.taken().len();
    assert_eq!(passed, 1000);
    assert!(rig.count("windows_cut") > 0);
    let pages = rig.crf.memory().packets;
    assert!(pages < 30 * 512, "29 pages and no more: {pages}");
}
