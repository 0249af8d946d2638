//! Runs that the transport sends again, with losses in them.

use super::*;

/// A flow that has delivered 1000 .. 1100 and lost nothing, with a comparison that `same` gives.
fn rig(same: fn(&Payload<'_, Buf>, &Payload<'_, Buf>) -> bool) -> Rig {
    let mut rig = Rig::bound(config(), 2, 1000);
    rig.crf.compare_with(Same(same));
    let psns: Vec<u32> = (1000..1100).collect();
    for chunk in psns.chunks(2) {
        rig.now = rig.now + 20 * US;
        rig.burst(chunk);
    }
    assert_eq!(rig.taken(), psns);
    rig.now = rig.now + RTT;
    rig
}

fn equal(a: &Payload<'_, Buf>, b: &Payload<'_, Buf>) -> bool {
    (a.buf.psn, a.off, a.len) == (b.buf.psn, b.off, b.len)
}

#[test]
fn holes_in_a_resent_run_are_filled() {
    let mut rig = rig(equal);
    assert!(rig.crf.references().kept >= 100, "copies are kept");
    rig.burst(&[1050, 1051, 1053, 1054]);
    rig.burst(&[1058]);
    assert_eq!(
        rig.taken(),
        [1050, 1051, 1052, 1053, 1054, 1055, 1056, 1057, 1058]
    );
    // Back again, further than before.
    rig.burst(&[1040, 1043]);
    assert_eq!(rig.taken(), [1040, 1041, 1042, 1043]);
    assert_eq!(
        (rig.count("replayed"), rig.status().figures.replayed),
        (6, 6)
    );
    rig.wait(100 * MS);
    let r = rig.reports();
    assert_eq!(
        (r.expected, r.received, r.restored),
        (180, 180, 0),
        "none of it is reported"
    );
}

#[test]
fn only_between_packets_that_equal_their_copies() {
    let cases: [Same<Buf>; 3] = [
        Same(|_, _| false),
        Same(|a, b| equal(a, b) && a.buf.psn != 1051),
        Same(|a, b| equal(a, b) && a.buf.psn != 1053),
    ];
    for same in cases {
        let mut rig = rig(same.0);
        rig.burst(&[1050, 1051, 1053]);
        assert_eq!(rig.taken(), [1050, 1051, 1053]);
        assert_eq!(rig.count("replayed"), 0);
    }
}

#[test]
fn a_hole_at_the_seam_is_filled_when_a_new_packet_comes() {
    let mut rig = rig(equal);
    rig.burst(&[1093, 1094, 1095, 1096, 1100]);
    assert_eq!(
        rig.taken(),
        [1093, 1094, 1095, 1096, 1097, 1098, 1099, 1100]
    );
    // A few packets may be a host that repeats single ones.
    rig.now = rig.now + RTT;
    rig.burst(&[1097, 1098, 1101]);
    assert_eq!(rig.taken(), [1097, 1098, 1101]);
    assert_eq!(rig.count("replayed"), 3);
}

#[test]
fn a_hole_at_the_head_is_filled_from_what_the_receiver_waits_for() {
    let mut rig = rig(equal);
    rig.burst(&[1100, 1102, 1103]);
    rig.wait(5 * MS);
    let request = rig.range_request().unwrap();
    rig.wait(RTT);
    // Restored behind its successors: a receiver in order has nothing of 1102 on.
    rig.coded(1096, 0, set(&[5]), request.request);
    assert_eq!(rig.taken(), [1100, 1102, 1103, 1101]);
    // The host goes back to 1102, and that packet is lost again.
    rig.burst(&[1103]);
    assert_eq!(rig.taken(), [1102, 1103]);
    assert_eq!(rig.count("replayed"), 1);
}

#[test]
fn what_comes_again_too_soon_is_not_the_hosts_doing() {
    let mut rig = rig(equal);
    rig.burst(&(1100..1120).collect::<Vec<_>>());
    rig.taken();
    rig.now = rig.now + 4 * MS;
    rig.burst(&[1105, 1109, 1110, 1111, 1112, 1120]);
    assert_eq!(rig.taken(), [1105, 1109, 1110, 1111, 1112, 1120]);
    assert_eq!(rig.count("replayed"), 0);
}

#[test]
fn a_hole_that_was_never_delivered_stays() {
    let mut rig = rig(equal);
    rig.burst(&[1100, 1102, 1103]);
    rig.wait(12 * MS);
    assert_eq!(rig.taken(), [1100, 1102, 1103]);
    rig.burst(&[1099, 1100, 1102]);
    assert_eq!(rig.taken(), [1099, 1100, 1102]);
    assert_eq!(rig.count("replayed"), 0);
    // The lost packet itself, sent again, belongs to the run.
    rig.burst(&[1101, 1103]);
    assert_eq!(rig.taken(), [1101, 1102, 1103]);
}

#[test]
fn reads_and_absent_positions_are_part_of_a_run() {
    let mut rig = rig(equal);
    let read = |rig: &mut Rig, psn| Desc {
        read_length: Some(4 * 1024),
        ..rig.desc(psn)
    };
    let burst = [
        read(&mut rig, 1100),
        rig.desc(1104),
        rig.desc(1105),
        rig.desc(1106),
    ];
    rig.descs(&burst);
    rig.taken();
    rig.now = rig.now + RTT;
    let again = [rig.desc(1099), rig.desc(1105)];
    rig.descs(&again);
    assert_eq!(
        rig.taken(),
        [1099, 1100, 1104, 1105],
        "the READ and what follows its span"
    );
    let again = [read(&mut rig, 1100), rig.desc(1104), rig.desc(1106)];
    rig.descs(&again);
    assert_eq!(
        rig.taken(),
        [1100, 1104, 1105, 1106],
        "no hole where the READ's span is"
    );
}

#[test]
fn the_operator_can_switch_it_off_and_the_caller_leave_it_out() {
    let mut off = config();
    off.crf.replay = false;
    let mut with_off = Rig::bound(off, 2, 1000);
    with_off.crf.compare_with(Same(equal));
    let mut without = Rig::bound(config(), 2, 1000);
    for rig in [&mut with_off, &mut without] {
        rig.burst(&(1000..1100).collect::<Vec<_>>());
        assert_eq!(rig.crf.references().kept, 9, "no copies either");
        rig.taken();
        rig.burst(&[1095, 1097]);
        assert_eq!(rig.taken(), [1095, 1097]);
    }
}

#[test]
fn copies_take_half_of_the_memory_at_most_and_go_first() {
    let mut small = config();
    small.crf.keep_packets = 60;
    let mut rig = Rig::bound(small, 2, 1000);
    rig.crf.compare_with(Same(equal));
    for n in 0..500u32 {
        rig.now = rig.now + 20 * US;
        rig.burst(&[1000 + 2 * n, 1000 + 2 * n + 1]);
        assert!(rig.crf.references().kept <= 32);
    }
    assert_eq!(rig.count("sources_evicted"), 0);
    rig.crf.give_up(rig.now, 10, &mut rig.out);
    assert_eq!(rig.crf.references().kept, 9);
}

#[test]
fn a_flow_that_rests_lets_go_of_its_copies_in_the_end() {
    let mut rig = rig(equal);
    rig.wait(120 * MS);
    assert!(
        rig.crf.references().kept >= 100,
        "the host may time out and go back"
    );
    rig.burst(&[1020, 1022]);
    assert_eq!(rig.taken(), [1020, 1021, 1022]);
    rig.wait(500 * MS);
    assert_eq!(
        rig.crf.references().kept,
        1,
        "a frame that can lend its headers"
    );
    rig.crf.give_up(rig.now, 1, &mut rig.out);
    assert_eq!(rig.crf.references(), References::default());
}

#[test]
fn copies_age_with_the_stream() {
    let mut rig = rig(equal);
    for n in 0..10_000u32 {
        rig.now = rig.now + 20 * US;
        rig.burst(&[1100 + 2 * n, 1101 + 2 * n]);
    }
    // Three RTT and two holds, 100 packets a millisecond.
    let kept = rig.crf.references().kept;
    assert!((6_000..7_000).contains(&kept), "{kept}");
}
