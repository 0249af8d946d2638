//! PSNs that do not follow each other: READ spans, jumps, strays, another life of the QP.

use super::*;

fn read(rig: &mut Rig, psn: u32, octets: u32) -> Desc<Buf> {
    Desc {
        read_length: Some(octets),
        opcode: 0x0c,
        ..rig.desc(psn)
    }
}

// shows: CREM-BLOCK-05, CREM-BLOCK-12, AMB-READ0
#[test]
fn a_read_consumes_its_responses() {
    let mut rig = Rig::bound(config(), 0, 1000);
    let burst = [
        rig.desc(1000),
        read(&mut rig, 1001, 10 * 1024),
        rig.desc(1011),
        read(&mut rig, 1012, 0),
        rig.desc(1013),
    ];
    rig.descs(&burst);
    assert_eq!(rig.taken(), [1000, 1001, 1011, 1012, 1013]);
    rig.wait(200 * MS);
    assert!(rig.range_request().is_none());
    assert_eq!(rig.reports().expected, 85);
}

// shows: AMB-REREAD
#[test]
fn a_read_issued_again_in_its_span_passes() {
    let mut rig = Rig::bound(config(), 2, 1000);
    let burst = [read(&mut rig, 1000, 10 * 1024), rig.desc(1010)];
    rig.descs(&burst);
    let again = read(&mut rig, 1004, 6 * 1024);
    rig.descs(&[again]);
    rig.burst(&[1011]);
    assert_eq!(rig.taken(), [1000, 1010, 1004, 1011]);
    rig.wait(200 * MS);
    assert_eq!(rig.reports().expected, 83);
}

#[test]
fn a_read_longer_than_the_window_is_no_jump() {
    let mut rig = Rig::bound(config(), 0, 1000);
    let long = read(&mut rig, 1000, 1 << 30);
    rig.descs(&[long]);
    let next = 1000 + (1 << 20);
    rig.burst(&[next, next + 2]);
    rig.wait(A);
    let request = rig.range_request().unwrap();
    assert_eq!(
        (request.ranges.len(), first_of(&request).start),
        (1, Psn::new(next + 1))
    );
    assert_eq!((rig.count("jumps"), rig.count("stray_sources")), (0, 0));
    assert_eq!(rig.taken(), [1000, next, next + 2]);
}

// shows: AMB-LONGREAD, AMB-LREXP
#[test]
fn a_gap_before_a_long_read_is_given_up_and_not_called_lost() {
    let mut rig = Rig::bound(config(), 0, 1000);
    let burst = [rig.desc(1001), read(&mut rig, 1002, 1 << 30)];
    rig.descs(&burst);
    assert_eq!(rig.taken(), [1001, 1002], "the hold ends with the hope");
    assert_eq!(rig.count("positions_left"), 1);
    rig.wait(200 * MS);
    let r = rig.reports();
    assert_eq!(
        r.expected, r.received,
        "nobody said that it carried a packet"
    );
    assert_eq!(rig.count("gaps_evicted"), 1);
}

// shows: AMB-RDMAMTU
#[test]
fn a_present_bitmap_overrides_a_derived_span() {
    let mut rig = Rig::bound(config(), 1, 1000);
    // The real MTU is larger, so the span is shorter than derived: 1001 and 1003 carry packets.
    let burst = [
        read(&mut rig, 1000, 8 * 1024),
        rig.desc(1002),
        rig.desc(1003),
    ];
    rig.descs(&burst);
    assert_eq!(rig.taken(), [1000, 1002, 1003]);
    let header = RepairHeader {
        k: 4,
        present: Bitmap::first(4),
        ..rig.header(1000, 0)
    };
    rig.repair(&header);
    rig.wait(A);
    assert_eq!(rig.taken(), [1001]);
}

#[test]
fn one_stray_packet_leaves_no_trace() {
    let mut rig = Rig::bound(config(), 2, 1000);
    for stray in [
        1000 + 5000,
        1000 + (1 << 20),
        1000 + (1 << 22) + 7,
        1000 + (1 << 23) + 9,
    ] {
        rig.burst(&[stray]);
        let next = rig.crf.counters().sources;
        assert!(next > 80);
    }
    rig.burst(&[1000, 1001, 1003]);
    assert_eq!(rig.count("jumps"), 0);
    let taken = rig.taken();
    assert_eq!(taken[4..], [1000, 1001]);
    assert_eq!(rig.status().held, 1);
}

#[test]
fn a_jump_goes_on_behind_it() {
    let mut rig = Rig::bound(config(), 2, 1000);
    let to = 1000 + 100_000;
    rig.burst(&[to, to + 1, to + 2]);
    assert_eq!(rig.count("jumps"), 1);
    rig.burst(&[to + 3, to + 5]);
    assert_eq!(rig.taken(), [to, to + 1, to + 2, to + 3]);
    // What the packet before the jump may have been is still asked for.
    rig.wait(RTT);
    let request = rig.range_request();
    assert!(request.is_some());
    rig.ordinary(to, 0);
    let psns: Vec<u32> = (to + 6..to + 9).collect();
    rig.burst(&psns);
    rig.wait(A);
    assert!(rig.delivered.contains(&(Delivery::Restored, to + 4)));
}

// shows: AMB-QPREUSE
#[test]
fn another_life_of_the_qp_starts_anew() {
    for to in [1000 + (1 << 22) + 50, 1000 + (1 << 23) + 50] {
        let mut rig = Rig::bound(config(), 2, 1000);
        rig.burst(&[1001, 1002]);
        rig.ordinary(1000, 0);
        rig.burst(&[to, to + 1]);
        assert_eq!(rig.count("jumps"), 1);
        let mut taken = rig.taken();
        taken.sort_unstable();
        assert_eq!(taken, [1001, 1002, to, to + 1]);
        assert_eq!((rig.status().open_blocks, rig.status().gaps), (0, 0));
        rig.burst(&[to + 3]);
        assert_eq!(rig.status().held, 1);
        rig.wait(RTT);
    }
}

#[test]
fn a_window_far_behind_passes() {
    let mut rig = Rig::bound(config(), 2, 1 << 20);
    let back: Vec<u32> = (0..64).map(|n| (1 << 19) + n).collect();
    rig.burst(&back);
    assert_eq!(rig.taken(), back);
    assert_eq!((rig.count("jumps"), rig.count("repeated_sources")), (0, 64));
}

// shows: CREM-BLOCK-12, AMB-RDMAMTU
#[test]
fn the_stream_shows_the_mtu_of_its_reads() {
    for (octets, span) in [
        (64 * 1024, 256),
        (64 * 1024, 128),
        (64 * 1024, 32),
        (64 * 1024, 16),
    ] {
        let mut rig = Rig::bound(config(), 0, 1000);
        let mut psn = 1000;
        for _ in 0..10 {
            rig.now = rig.now + 20 * US;
            let read = read(&mut rig, psn, octets);
            rig.descs(&[read]);
            psn += span;
        }
        assert_eq!(rig.taken().len(), 10, "span {span}: none is held");
        rig.wait(200 * MS);
        assert!(rig.range_request().is_none());
        assert_eq!(rig.count("repeated_sources"), 0);
        assert_eq!(rig.reports().expected, 90, "span {span}");
        rig.burst(&[psn, psn + 2]);
        assert_eq!(rig.taken(), [psn], "a gap is still a gap");
    }
}

#[test]
fn a_learned_mtu_stands() {
    let mut rig = Rig::bound(config(), 0, 1000);
    let write = Desc {
        mtu_seen: Some(1024),
        ..rig.desc(1000)
    };
    let burst = [write, read(&mut rig, 1001, 64 * 1024), rig.desc(1001 + 256)];
    rig.descs(&burst);
    assert_eq!(rig.taken(), [1000, 1001], "192 PSNs are missing");
}
