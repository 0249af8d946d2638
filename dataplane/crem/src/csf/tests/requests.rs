//! REPAIR_REQUEST in both forms.

use alloc::vec;
use alloc::vec::Vec;
use crem_wire::Bitmap;
use crem_wire::crem::Message;

use super::rig::{MS, RTT, Rig, Sent, config};
use crate::actions::RepairKind;
use crate::csf::testing::{desc, key};

/// A protected flow that has just sent one full block; returns its first symbol.
fn with_block(rig: &mut Rig) -> Sent {
    let psn = rig.protect(key(1), 0);
    rig.psns(key(1), psn..psn + 32);
    let block = rig.sent[0].clone();
    rig.sent.clear();
    block
}

fn set(positions: &[u8]) -> Bitmap {
    positions.iter().copied().collect()
}

// shows: CREM-FEC-09, CREM-RSP-02, CREM-RSP-04, CREM-RSP-05, CREM-MSG-11, AMB-IDXREUSE
#[test]
fn coded_retransmission_over_the_lost_set_with_unused_indices() {
    let mut rig = Rig::new(config());
    let block = with_block(&mut rig);
    let m = rig.status(key(1)).m;
    let request = rig.request(key(1), &block, &[3, 9, 20], 1, 7);
    rig.deliver(&Message::BlockRequest(request));
    assert_eq!(rig.sent.len(), 2, "X - r");
    for (n, symbol) in rig.sent.iter().enumerate() {
        let header = &symbol.emit.header;
        assert_eq!(symbol.emit.kind, RepairKind::Coded);
        assert_eq!(header.index, m + n as u8);
        assert_eq!(header.session.map(|s| s.get()), Some(7));
        assert_eq!(
            (header.lost, header.present),
            (Some(set(&[3, 9, 20])), Bitmap::first(32))
        );
        assert_eq!(header.last, n == 1);
        assert_eq!(symbol.over, [3, 9, 20]);
    }
    // A second round continues with fresh indices.
    rig.wait(RTT);
    rig.sent.clear();
    rig.deliver(&Message::BlockRequest(rig.request(
        key(1),
        &block,
        &[3, 9],
        0,
        8,
    )));
    let indices: Vec<_> = rig.sent.iter().map(|s| s.emit.header.index).collect();
    assert_eq!(indices, [m + 2, m + 3]);
    assert_eq!(rig.csf.counters().symbols_coded, 4);
}

// shows: CREM-RSP-07, CREM-SEC-02, AMB-ONEPERRTT
#[test]
fn one_answer_per_block_and_srtt_in_any_form() {
    let mut rig = Rig::new(config());
    let block = with_block(&mut rig);
    let start = block.emit.header.block_start.get();
    rig.deliver(&Message::BlockRequest(rig.request(
        key(1),
        &block,
        &[1],
        0,
        1,
    )));
    let sent = rig.sent.len();
    rig.deliver(&Message::BlockRequest(rig.request(
        key(1),
        &block,
        &[2],
        0,
        2,
    )));
    rig.deliver(&Message::RangeRequest(rig.ranges(key(1), &[(start, 3)], 3)));
    let fallback = crem_wire::crem::BlockRequest {
        fallback: true,
        ..rig.request(key(1), &block, &[1], 0, 4)
    };
    rig.deliver(&Message::BlockRequest(fallback));
    assert_eq!(rig.sent.len(), sent);
    assert_eq!(rig.csf.counters().requests_too_soon, 3);
    rig.wait(RTT);
    rig.deliver(&Message::BlockRequest(fallback));
    assert_eq!(rig.sent.len(), sent + 1);
}

// shows: CREM-FEC-03, CREM-FB-03, CREM-MSG-23, AMB-COPY, CREM-OPS-03
#[test]
fn fallback_is_answered_with_copies() {
    let mut rig = Rig::new(config());
    let block = with_block(&mut rig);
    let mut request = rig.request(key(1), &block, &[5, 6], 0, 9);
    request.fallback = true;
    rig.deliver(&Message::BlockRequest(request));
    assert_eq!(rig.sent.len(), 2);
    for (symbol, position) in rig.sent.iter().zip([5u8, 6]) {
        let header = &symbol.emit.header;
        assert_eq!(
            (symbol.emit.kind, header.scheme, header.index),
            (RepairKind::Copy, 0, position)
        );
        assert_eq!(
            (header.lost, header.session.map(|s| s.get())),
            (None, Some(9))
        );
        assert_eq!(header.last, position == 6);
    }
    // Copies use up no index.
    rig.wait(RTT);
    rig.sent.clear();
    rig.deliver(&Message::BlockRequest(rig.request(
        key(1),
        &block,
        &[5],
        0,
        10,
    )));
    assert_eq!(rig.sent[0].emit.header.index, rig.status(key(1)).m);
}

// shows: AMB-COPY
#[test]
fn no_copies_without_common_scheme_zero() {
    let mut rig = Rig::new(config());
    rig.limits.schemes = 0b010;
    let block = with_block(&mut rig);
    let mut request = rig.request(key(1), &block, &[5], 0, 9);
    request.fallback = true;
    rig.deliver(&Message::BlockRequest(request));
    assert!(rig.sent.is_empty());
    assert_eq!(rig.csf.counters().requests_no_copy, 1);
}

// shows: CREM-REQ-08
#[test]
fn range_form_maps_to_blocks_with_r_zero() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0xff_ffc0);
    rig.psns(key(1), (psn..psn + 96).map(|p| p & 0xff_ffff));
    rig.sent.clear();
    // Unsorted, overlapping, and over a block boundary.
    let at = |n: u32| (psn + n) & 0xff_ffff;
    let ranges = [(at(62), 4), (at(5), 2), (at(6), 3), (at(62), 4)];
    rig.deliver(&Message::RangeRequest(rig.ranges(key(1), &ranges, 5)));
    let coded: Vec<_> = rig
        .sent
        .iter()
        .map(|s| (s.emit.header.block_start.get(), s.over.clone()))
        .collect();
    let mut expected = vec![(at(0), vec![5, 6, 7, 8]); 4];
    expected.extend(vec![(at(32), vec![30, 31]); 2]);
    expected.extend(vec![(at(64), vec![0, 1]); 2]);
    assert_eq!(coded, expected);
    assert!(
        rig.sent
            .iter()
            .all(|s| s.emit.header.session.map(|id| id.get()) == Some(5))
    );
    assert_eq!(rig.csf.counters().requests_too_soon, 0);
}

// shows: AMB-FBRANGE
#[test]
fn range_fallback_is_answered_with_copies() {
    let mut rig = Rig::new(config());
    let block = with_block(&mut rig);
    let start = block.emit.header.block_start.get();
    let mut request = rig.ranges(key(1), &[(start + 4, 2)], 3);
    request.fallback = true;
    rig.deliver(&Message::RangeRequest(request));
    let copies: Vec<_> = rig
        .sent
        .iter()
        .map(|s| (s.emit.kind, s.emit.header.index))
        .collect();
    assert_eq!(copies, [(RepairKind::Copy, 4), (RepairKind::Copy, 5)]);
}

// shows: CREM-BLOCK-13, AMB-ABSENTREQ, AMB-INFO
#[test]
fn absent_positions_get_info_first() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    rig.psns(key(1), (psn..psn + 32).filter(|p| *p != psn + 4));
    let block = rig.sent[0].clone();
    rig.sent.clear();
    rig.deliver(&Message::RangeRequest(rig.ranges(
        key(1),
        &[(psn + 4, 2)],
        3,
    )));
    // The rig collects symbols before INFO; the order is that of `emit`.
    let kinds: Vec<_> = rig.sent.iter().map(|s| s.emit.kind).collect();
    assert_eq!(kinds, [RepairKind::Coded, RepairKind::Info]);
    assert_eq!(rig.sent[0].over, [5]);
    let info = &rig.sent[1].emit.header;
    assert_eq!(
        (info.block_start.get(), info.k, info.index, info.scheme),
        (psn, 32, 0, 1)
    );
    assert_eq!(
        (info.present.contains(4), info.session.map(|s| s.get())),
        (false, Some(3))
    );
    // Only absent ones: INFO only.
    rig.wait(RTT);
    rig.sent.clear();
    rig.deliver(&Message::BlockRequest(rig.request(
        key(1),
        &block,
        &[4],
        0,
        4,
    )));
    let kinds: Vec<_> = rig.sent.iter().map(|s| s.emit.kind).collect();
    assert_eq!(kinds, [RepairKind::Info]);
}

// shows: CREM-BLOCK-13, AMB-LONGREAD
#[test]
fn stretches_without_blocks_get_a_made_up_block() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    let mut read = desc(key(1), psn);
    read.read_length = Some(1024 * 1000);
    rig.packets(&[read]);
    rig.psns(key(1), psn + 1000..psn + 1032);
    rig.sent.clear();
    rig.deliver(&Message::RangeRequest(rig.ranges(
        key(1),
        &[(psn + 100, 200), (psn + 990, 12)],
        3,
    )));
    let infos: Vec<_> = rig
        .sent
        .iter()
        .filter(|s| s.emit.kind == RepairKind::Info)
        .map(|s| {
            (
                s.emit.header.block_start.get(),
                s.emit.header.k,
                s.emit.header.present,
            )
        })
        .collect();
    assert_eq!(
        infos,
        [
            (psn + 100, 255, Bitmap::EMPTY),
            (psn + 990, 10, Bitmap::EMPTY)
        ]
    );
    let coded: Vec<_> = rig
        .sent
        .iter()
        .filter(|s| s.emit.kind == RepairKind::Coded)
        .collect();
    assert_eq!(coded.len(), 2);
    assert_eq!(coded[0].over, [0, 1]);
}

// shows: AMB-OPENREQ
#[test]
fn a_request_for_the_open_block_waits_for_its_end() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    rig.psns(key(1), psn..psn + 10);
    rig.deliver(&Message::RangeRequest(rig.ranges(
        key(1),
        &[(psn + 2, 3)],
        3,
    )));
    assert!(rig.sent.is_empty());
    assert_eq!(rig.csf.counters().requests_deferred, 1);
    rig.wait(RTT);
    let coded: Vec<_> = rig
        .sent
        .iter()
        .filter(|s| s.emit.kind == RepairKind::Coded)
        .collect();
    assert_eq!(coded.len(), 3);
    assert_eq!(
        (coded[0].over.as_slice(), coded[0].emit.header.k),
        ([2u8, 3, 4].as_slice(), 10)
    );
}

// shows: CREM-RSP-10, AMB-UNHELD
#[test]
fn requests_for_what_is_not_held_are_counted() {
    let mut rig = Rig::new(config());
    let block = with_block(&mut rig);
    let start = block.emit.header.block_start.get();
    let mut wrong = rig.request(key(1), &block, &[1], 0, 1);
    wrong.k = 31;
    rig.deliver(&Message::BlockRequest(wrong));
    assert_eq!(rig.csf.counters().requests_mismatched, 1);
    let mut wrong = rig.request(key(1), &block, &[1], 0, 1);
    wrong.block_start = wrong.block_start.add(1);
    rig.deliver(&Message::BlockRequest(wrong));
    rig.deliver(&Message::RangeRequest(rig.ranges(
        key(1),
        &[(start + 5000, 3)],
        1,
    )));
    assert!(rig.sent.is_empty());
    rig.csf.give_up(u32::MAX);
    rig.deliver(&Message::BlockRequest(rig.request(
        key(1),
        &block,
        &[1],
        0,
        1,
    )));
    rig.deliver(&Message::RangeRequest(rig.ranges(key(1), &[(start, 3)], 1)));
    assert!(rig.sent.is_empty());
    assert_eq!(rig.csf.counters().requests_unheld, 3);
}

// shows: CREM-CC-03, AMB-VOLCAP
#[test]
fn volume_cap_bounds_what_forged_requests_draw() {
    let mut cfg = config();
    cfg.fec.k = 128;
    let mut rig = Rig::new(cfg);
    let psn = rig.protect(key(1), 0);
    rig.paced(key(1), psn..psn + 1280, MS / 100);
    rig.report(key(1), 1280, 1280);
    let blocks: Vec<_> = rig
        .sent
        .iter()
        .filter(|s| s.emit.header.index == 0)
        .cloned()
        .collect();
    assert!(blocks.len() >= 10);
    rig.sent.clear();
    let lost: Vec<u8> = (0..100).collect();
    for (n, block) in blocks.iter().cycle().take(200).enumerate() {
        rig.deliver(&Message::BlockRequest(rig.request(
            key(1),
            block,
            &lost,
            0,
            n as u16 + 1,
        )));
        rig.wait(MS / 2);
    }
    let drawn = rig.csf.counters().symbols_coded;
    let sources = u64::from(rig.status(key(1)).counts.sources as u32);
    assert!(
        drawn <= sources / 4,
        "{drawn} symbols for {sources} sources"
    );
    assert!(rig.csf.counters().requests_volume_capped > 0);
    // Reported losses raise it.
    rig.report(key(1), 1280, 680);
    let before = rig.csf.counters().symbols_coded;
    rig.wait(RTT);
    for (n, block) in blocks.iter().enumerate() {
        rig.deliver(&Message::BlockRequest(rig.request(
            key(1),
            block,
            &lost,
            0,
            n as u16 + 1,
        )));
    }
    assert!(rig.csf.counters().symbols_coded > before + 300);
}

#[test]
fn without_slots_an_answer_is_dropped_and_may_be_asked_again() {
    let mut rig = Rig::new(config());
    let block = with_block(&mut rig);
    let slots = core::mem::take(&mut rig.actions.free_slots);
    rig.deliver(&Message::BlockRequest(rig.request(
        key(1),
        &block,
        &[1, 2],
        0,
        1,
    )));
    assert!(rig.sent.is_empty());
    assert_eq!(rig.csf.counters().answers_no_slot, 1);
    rig.actions.free_slots = slots;
    rig.deliver(&Message::BlockRequest(rig.request(
        key(1),
        &block,
        &[1, 2],
        0,
        2,
    )));
    assert_eq!(rig.sent.len(), 2);
}

// shows: CREM-RSP-06, CREM-RSP-10, AMB-KEEP
#[test]
fn a_block_is_answered_until_it_is_given_up() {
    // After 8 SRTT, or a quarter of that later where no packet comes by.
    for (after, answered) in [(RTT * 7, true), (RTT * 12, false)] {
        let mut rig = Rig::new(config());
        let block = with_block(&mut rig);
        rig.wait(after);
        rig.sent.clear();
        let request = rig.request(key(1), &block, &[1, 2], 0, 1);
        rig.deliver(&Message::BlockRequest(request));
        assert_eq!(!rig.sent.is_empty(), answered, "after {after:?}");
        assert_eq!(rig.csf.counters().requests_unheld, u64::from(!answered));
    }
}
