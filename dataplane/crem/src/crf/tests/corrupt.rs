//! Decodes that fail their check, and descriptions that contradict each other.

use super::*;

/// Three of eight lost, one symbol.
fn damaged_block(m: u8) -> Rig {
    let mut rig = Rig::bound(config(), m, 1000);
    rig.burst(&[1000, 1001, 1003, 1004, 1005, 1006, 1007, 1008]);
    rig.now = rig.now + A;
    rig
}

// shows: CREM-BLOCK-08, AMB-ICRCFAIL
#[test]
fn a_damaged_source_is_found_and_restored_too() {
    let mut rig = damaged_block(2);
    rig.judge = |job, _| {
        // Position 5 is damaged: any decode that trusts it is wrong.
        if job.sources.len() == 7 {
            Verdict::Corrupt
        } else {
            Verdict::Good
        }
    };
    rig.damaged = set(&[5]);
    rig.ordinary(1000, 0);
    assert_eq!(
        rig.jobs.len(),
        2,
        "once, and once more with a check of the sources"
    );
    assert!(rig.jobs[1].verify_sources);
    assert_eq!(rig.count("corrupt_sources"), 1);
    rig.taken();
    rig.damaged = Bitmap::EMPTY;
    rig.judge = |_, _| Verdict::Good;
    rig.ordinary(1000, 1);
    assert_eq!(
        rig.taken(),
        [1002, 1003, 1004, 1005, 1006, 1007, 1008, 1005]
    );
}

/// Left in its place the damaged packet would be found again by every further check, without end.
#[test]
fn what_is_restored_takes_the_place_of_the_damaged_source() {
    let mut rig = damaged_block(3);
    rig.judge = |job, _| {
        if job.verify_sources || job.sources.len() == 7 {
            Verdict::Corrupt
        } else {
            Verdict::Good
        }
    };
    rig.damaged = set(&[5]);
    rig.ordinary(1000, 0);
    rig.damaged = Bitmap::EMPTY;
    // The second unknown finds no buffer, so that the block stays open.
    rig.judge = |_, psn| {
        if psn == Psn::new(1002) {
            Verdict::NoBuffer
        } else {
            Verdict::Good
        }
    };
    rig.ordinary(1000, 1);
    rig.wait(A);
    let last = rig.sources.last().unwrap();
    let fifth = last.iter().find(|(position, _)| *position == 5);
    assert_eq!(fifth, Some(&(5, 0)), "the restored one, not the damaged");
}

// shows: CREM-RECV-04, AMB-ICRCFAIL
#[test]
fn a_poisoned_block_asks_for_copies_twice() {
    let mut rig = damaged_block(1);
    rig.judge = |_, _| Verdict::Corrupt;
    rig.ordinary(1000, 0);
    assert_eq!(rig.jobs.len(), 2);
    let first = rig.block_request().unwrap();
    assert!(first.fallback);
    assert_eq!((first.lost, first.held, first.suggested), (set(&[2]), 0, 1));
    assert_eq!(rig.crf.references().kept, 15, "the symbol is gone");
    rig.wait(2 * RTT + A);
    let second = rig.block_request().unwrap();
    assert!(second.fallback && second.request != first.request);
    rig.judge = |_, _| Verdict::Good;
    rig.taken();
    rig.copy(1000, 2, Some(second.request));
    assert_eq!(rig.taken(), [1002]);
    assert_eq!(rig.count("restored_copy"), 1);
}

#[test]
fn a_corrupt_copy_is_the_end() {
    let mut rig = damaged_block(1);
    rig.judge = |_, _| Verdict::Corrupt;
    rig.ordinary(1000, 0);
    let first = rig.block_request().unwrap();
    rig.wait(RTT);
    rig.copy(1000, 2, Some(first.request));
    assert_eq!((rig.count("blocks_left"), rig.status().open_blocks), (1, 0));
    rig.wait(10 * RTT);
    assert!(rig.block_request().is_none());
}

#[test]
fn without_scheme_0_a_poisoned_block_is_left() {
    let mut plain = config();
    plain.fec.schemes = 0b110;
    let mut rig = Rig::bound(plain, 1, 1000);
    rig.burst(&[1000, 1001, 1003, 1004, 1005, 1006, 1007, 1008]);
    rig.now = rig.now + A;
    rig.judge = |_, _| Verdict::Corrupt;
    rig.ordinary(1000, 0);
    assert_eq!(rig.count("blocks_left"), 1);
    assert!(rig.block_request().is_none());
    assert_eq!(
        rig.taken(),
        [1000, 1001, 1003, 1004, 1005, 1006, 1007, 1008]
    );
}

// shows: AMB-HDRREST
#[test]
fn a_position_without_neighbours_is_left_alone() {
    let mut rig = Rig::bound(config(), 2, 1000);
    rig.burst(&[1000, 1001, 1003, 1004, 1006, 1007, 1008]);
    rig.judge = |_, psn| {
        if psn == Psn::new(1002) {
            Verdict::NoNeighbour
        } else {
            Verdict::Good
        }
    };
    rig.ordinary(1000, 0);
    rig.ordinary(1000, 1);
    rig.wait(A);
    assert_eq!(
        rig.taken(),
        [1000, 1001, 1003, 1004, 1005, 1006, 1007, 1008]
    );
    assert_eq!(
        (rig.count("no_neighbour"), rig.count("positions_left")),
        (1, 1)
    );
    rig.wait(10 * RTT);
    assert!(rig.block_request().is_none());
}

#[test]
fn want_of_buffers_is_tried_again_a_few_times() {
    let mut rig = damaged_block(1);
    rig.judge = |_, _| Verdict::NoBuffer;
    rig.ordinary(1000, 0);
    rig.wait(A);
    rig.judge = |_, _| Verdict::Good;
    rig.wait(A);
    assert_eq!(
        (
            rig.jobs.len(),
            rig.count("restored"),
            rig.count("no_buffer")
        ),
        (3, 1, 2)
    );
    let mut rig = damaged_block(1);
    rig.judge = |_, _| Verdict::NoBuffer;
    rig.ordinary(1000, 0);
    rig.wait(10 * RTT);
    assert_eq!((rig.jobs.len(), rig.count("blocks_left")), (3, 1));
}

// shows: AMB-BLOCKCONF
#[test]
fn a_wrong_description_gives_way_to_the_right_one() {
    let mut rig = Rig::bound(config(), 2, 1000);
    rig.burst(&[1000, 1001, 1003, 1005, 1006, 1007]);
    // A shifted start comes first; the block itself has more symbols.
    let wrong = RepairHeader {
        block_start: Psn::new(1001),
        ..rig.header(0, 3)
    };
    rig.repair(&wrong);
    rig.burst(&[1009, 1010]);
    rig.ordinary(1000, 0);
    rig.ordinary(1000, 1);
    assert_eq!(rig.status().open_blocks, 2);
    rig.wait(A);
    assert!(
        rig.delivered.contains(&(Delivery::Restored, 1002)),
        "{:?} {:?}",
        rig.status(),
        rig.crf.counters()
    );
    assert!(rig.delivered.contains(&(Delivery::Restored, 1004)));
    assert_eq!(
        (rig.count("blocks_conflicting"), rig.status().open_blocks),
        (1, 0)
    );
    // What only the wrong one had named is a gap again, and is asked for.
    rig.wait(RTT);
    let request = rig.range_request().unwrap();
    assert_eq!(first_of(&request).start, Psn::new(1008));
}

#[test]
fn a_wrong_description_that_decodes_first_fails_its_check_and_goes() {
    let mut rig = Rig::bound(config(), 1, 1000);
    rig.burst(&[1000, 1001, 1003, 1004, 1005, 1006, 1007, 1008]);
    rig.judge = |job, _| {
        if job.block_start == Psn::new(1000) {
            Verdict::Good
        } else {
            Verdict::Corrupt
        }
    };
    let wrong = RepairHeader {
        block_start: Psn::new(1001),
        ..rig.header(0, 0)
    };
    rig.repair(&wrong);
    rig.ordinary(1000, 0);
    rig.wait(A);
    assert!(rig.delivered.contains(&(Delivery::Restored, 1002)));
    assert_eq!(rig.status().open_blocks, 0);
    assert_eq!(rig.count("requests_fallback"), 0);
}

#[test]
fn a_third_description_is_dropped() {
    let mut rig = Rig::bound(config(), 1, 1000);
    rig.burst(&[1000, 1002, 1009]);
    for shift in 0..5u32 {
        let header = RepairHeader {
            block_start: Psn::new(999 + shift),
            ..rig.header(0, 0)
        };
        rig.repair(&header);
    }
    assert_eq!(
        (rig.status().open_blocks, rig.count("blocks_conflicting")),
        (2, 3)
    );
}

// shows: AMB-BADSRC
#[test]
fn sources_are_checked_from_the_start_where_configured() {
    let mut checked = config();
    checked.verify_sources = true;
    let mut rig = Rig::bound(checked, 1, 1000);
    rig.burst(&[1000, 1001, 1003, 1004, 1005, 1006, 1007, 1008]);
    rig.ordinary(1000, 0);
    rig.wait(A);
    assert!(rig.jobs[0].verify_sources);
    assert_eq!(rig.count("restored"), 1);
}

#[test]
fn an_answer_to_nothing_is_ignored() {
    let mut rig = Rig::bound(config(), 1, 1000);
    let mut decoded = Decoded {
        id: crate::actions::DecodeId(99),
        outcomes: Vec::new(),
        corrupt_sources: Bitmap::EMPTY,
    };
    rig.crf.on_decoded(rig.now, &mut decoded, &mut rig.out);
    assert_eq!(rig.count("restored"), 0);
}

// shows: CREM-BLOCK-08, AMB-RETXDIFF
#[test]
fn a_packet_that_was_sent_again_is_no_source_of_its_block() {
    let mut rig = Rig::bound(config(), 2, 1000);
    rig.burst(&[1000, 1001, 1003, 1005, 1006, 1007, 1008]);
    rig.wait(RTT);
    // 1002 comes from the host, with another ICRC than the one that was coded.
    rig.burst(&[1002, 1003]);
    rig.taken();
    rig.ordinary(1000, 0);
    assert!(rig.jobs.is_empty(), "two unknowns, one symbol");
    rig.ordinary(1000, 1);
    assert_eq!(rig.taken(), [1004]);
    let job = &rig.jobs[0];
    assert_eq!((job.sources.len(), job.unknowns.len()), (6, 1));
}
