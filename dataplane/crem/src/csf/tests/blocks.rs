//! Block formation and ordinary repair.

use alloc::vec::Vec;
use crem_wire::Bitmap;

use super::rig::{MS, RTT, Rig, Sent, config};
use crate::actions::RepairKind;
use crate::config::CoreConfig;
use crate::csf::testing::{desc, key};
use crate::events::Event;
use crate::packet::Desc;
use crate::time::Duration;

fn first_of_each(sent: &[Sent]) -> Vec<(u32, u8, Bitmap)> {
    let header = |s: &Sent| {
        (
            s.emit.header.block_start.get(),
            s.emit.header.k,
            s.emit.header.present,
        )
    };
    let mut blocks: Vec<_> = sent.iter().map(header).collect();
    blocks.dedup();
    blocks
}

fn read(psn: u32, length: u32) -> Desc<u32> {
    let mut packet = desc(key(1), psn);
    (packet.opcode, packet.payload_len, packet.read_length) = (0x0c, 32, Some(length));
    packet
}

// shows: CREM-BLOCK-01, CREM-BLOCK-09, CREM-FEC-08, CREM-SEND-01, CREM-MSG-09, AMB-LAST
#[test]
fn full_blocks_of_consecutive_psns_with_m_symbols_each() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0xff_ff00);
    rig.psns(key(1), (psn..psn + 96).map(|p| p & 0xff_ffff));
    let all = Bitmap::first(32);
    let starts = [psn, psn + 32, psn + 64].map(|p| (p & 0xff_ffff, 32, all));
    assert_eq!(first_of_each(&rig.sent), starts);
    let m = usize::from(rig.status(key(1)).m);
    assert_eq!(rig.sent.len(), 3 * m);
    for block in rig.sent.chunks(m) {
        let indices: Vec<_> = block.iter().map(|s| s.emit.header.index).collect();
        assert_eq!(indices, (0..m as u8).collect::<Vec<_>>());
        let last: Vec<_> = block.iter().map(|s| s.emit.header.last).collect();
        assert_eq!(last.iter().filter(|l| **l).count(), 1);
        assert!(last[m - 1], "LAST on the last symbol");
        for symbol in block {
            assert_eq!(symbol.over, (0..32).collect::<Vec<_>>());
            let emit = &symbol.emit;
            assert_eq!(
                (emit.kind, emit.dscp, emit.stream),
                (RepairKind::Ordinary, 26, key(1))
            );
            assert_eq!(
                (
                    emit.header.session,
                    emit.header.lost,
                    emit.header.symbol_length
                ),
                (None, None, 1062)
            );
        }
    }
}

// shows: CREM-BLOCK-09, CREM-BLOCK-10, CREM-SEND-01, AMB-BURSTEND, AMB-EARLYM
#[test]
fn burst_end_closes_a_short_block() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    rig.psns(key(1), psn..psn + 5);
    assert!(rig.sent.is_empty());
    let start = rig.now;
    rig.wait(RTT);
    assert_eq!(first_of_each(&rig.sent), [(psn, 5, Bitmap::first(5))]);
    let waited = rig.sent[0].at.since(start);
    assert!(
        waited >= Duration::from_micros(200) && waited <= RTT / 4,
        "{waited:?}"
    );
    // One packet: never more symbols than sources.
    rig.sent.clear();
    rig.psns(key(1), [psn + 5]);
    rig.wait(RTT);
    assert_eq!(rig.sent.len(), 1);
}

/// The rate falls during the pause and the timeout hangs on it: the timer must not chase it.
#[test]
fn a_burst_end_costs_few_timers() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    rig.paced(key(1), psn..psn + 500, MS / 10);
    let open = rig.now;
    let mut fired = 0;
    while let Some(at) = rig.csf.next_timeout().filter(|at| *at < open + RTT) {
        rig.now = rig.now.max(at);
        rig.csf.on_timeout(rig.now, &mut rig.actions);
        fired += 1;
        assert!(fired < 10, "{fired} timers in {:?}", rig.now.since(open));
    }
    assert!(fired > 0);
}

// shows: AMB-BURSTEND
#[test]
fn slow_flow_is_not_cut_into_single_packets() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    // One packet per millisecond: the burst timeout adapts to four times that.
    rig.paced(key(1), psn..psn + 200, MS);
    rig.sent.clear();
    rig.paced(key(1), psn + 200..psn + 400, MS);
    let blocks = first_of_each(&rig.sent);
    assert!(blocks.iter().all(|b| b.1 == 32), "{blocks:?}");
}

// shows: CREM-BLOCK-03, CREM-BLOCK-04, CREM-BLOCK-07, AMB-UPGAP
#[test]
fn upstream_gaps_are_absent_unless_they_come_late_but_in_time() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    rig.psns(
        key(1),
        (psn..psn + 20).filter(|p| *p != psn + 3 && *p != psn + 7),
    );
    rig.psns(key(1), [psn + 7, psn + 7, psn + 5]);
    rig.psns(key(1), psn + 20..psn + 32);
    let mut present = Bitmap::first(32);
    present.remove(3);
    assert_eq!(first_of_each(&rig.sent), [(psn, 32, present)]);
    assert_eq!(rig.csf.counters().sources_late_kept, 1);
    let over: Bitmap = rig.sent[0].over.iter().copied().collect();
    assert_eq!(over, present);
    // After the block closed it changes nothing.
    rig.sent.clear();
    rig.psns(key(1), [psn + 3]);
    rig.wait(RTT);
    assert!(rig.sent.is_empty());
}

// shows: AMB-CONTIG
#[test]
fn blocks_start_at_the_next_source_not_at_the_next_psn() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    rig.psns(key(1), (psn..psn + 30).chain(psn + 40..psn + 72));
    let blocks = first_of_each(&rig.sent);
    assert_eq!(blocks[0], (psn, 32, Bitmap::first(30)));
    assert_eq!(blocks[1], (psn + 40, 32, Bitmap::first(32)));
}

// shows: AMB-NEWPSN
#[test]
fn a_jump_beyond_four_blocks_cuts_the_block() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    rig.psns(key(1), psn..psn + 10);
    rig.psns(key(1), [psn + 10_000]);
    assert_eq!(first_of_each(&rig.sent), [(psn, 10, Bitmap::first(10))]);
    assert_eq!(rig.csf.counters().psn_jumps, 1);
}

// shows: CREM-BLOCK-05, AMB-REREAD
#[test]
fn read_spans_stay_absent() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    rig.packets(&[
        desc(key(1), psn),
        read(psn + 1, 4096),
        desc(key(1), psn + 5),
    ]);
    // Re-issued in the middle of its span: forwarded, no source, bitmap unchanged.
    rig.packets(&[read(psn + 3, 2048)]);
    rig.packets(&[read(psn + 6, 0)]);
    rig.psns(key(1), psn + 7..psn + 32);
    let present = [2u8, 3, 4].iter().fold(Bitmap::first(32), |mut set, p| {
        set.remove(*p);
        set
    });
    assert_eq!(first_of_each(&rig.sent), [(psn, 32, present)]);
}

// shows: CREM-BLOCK-05, AMB-LONGREAD
#[test]
fn a_long_read_ends_the_block_at_k() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    rig.packets(&[desc(key(1), psn), read(psn + 1, 1 << 20)]);
    let blocks = first_of_each(&rig.sent);
    assert_eq!(blocks, [(psn, 32, Bitmap::first(2))]);
    rig.sent.clear();
    // The next source comes after the span of 1024 PSNs; no block in between.
    let next = psn + 1 + 1024;
    rig.psns(key(1), next..next + 32);
    assert_eq!(first_of_each(&rig.sent), [(next, 32, Bitmap::first(32))]);
}

// shows: CREM-SYM-02, AMB-OVERSIZE
#[test]
fn oversize_is_absent_and_asks_for_a_larger_t() {
    let mut cfg = config();
    cfg.path_mtu = 9000;
    let mut rig = Rig::new(cfg);
    let psn = rig.protect(key(1), 0);
    let mut big = desc(key(1), psn + 1);
    big.payload_len = 1061;
    rig.packets(&[desc(key(1), psn), big]);
    rig.psns(key(1), psn + 2..psn + 32);
    let mut present = Bitmap::first(32);
    present.remove(1);
    assert_eq!(first_of_each(&rig.sent), [(psn, 32, present)]);
    assert_eq!(rig.csf.counters().sources_oversize, 1);
    rig.paced(key(1), psn + 32..psn + 2000, MS / 10);
    assert_eq!(rig.updates().last().unwrap().1.t, 2086);
    assert!(
        rig.events
            .iter()
            .any(|e| matches!(e, Event::ConfigChanged { t: 2086, .. }))
    );
}

#[test]
fn oversize_beyond_the_path_stays_unprotected() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    let mut big = desc(key(1), psn);
    big.payload_len = 5000;
    rig.packets(&[big]);
    rig.paced(key(1), psn + 1..psn + 500, MS / 10);
    assert_eq!(rig.updates().last().unwrap().1.t, 1062);
    assert!(!rig.sent.is_empty());
}

// shows: CREM-POL-08, AMB-M0, AMB-TAILINFO
#[test]
fn at_m_0_blocks_are_formed_but_no_symbol_is_sent() {
    let mut cfg = config();
    cfg.fec.initial_loss_ppm = 0;
    let mut rig = Rig::new(cfg);
    let psn = rig.protect(key(1), 0);
    assert_eq!(rig.status(key(1)).m, 0);
    rig.psns(key(1), psn..psn + 70);
    assert!(rig.sent.is_empty());
    let blocks = rig.csf.counters().blocks_full;
    assert!(blocks >= 2);
    // The end of the burst is told by an unsolicited INFO.
    rig.wait(RTT);
    let [info] = rig.sent.as_slice() else {
        panic!("{:?}", rig.sent)
    };
    let header = &info.emit.header;
    assert_eq!(
        (
            info.emit.kind,
            header.info,
            header.session,
            header.symbol_length
        ),
        (RepairKind::Info, true, None, 0)
    );
    assert_eq!(
        (header.block_start.get(), header.k, header.present),
        (psn + 64, 6, Bitmap::first(6))
    );
}

// shows: AMB-TAILINFO
#[test]
fn tail_info_has_a_bucket_and_a_switch() {
    let quiet = |tail_info| {
        let mut cfg = config();
        cfg.fec.initial_loss_ppm = 0;
        cfg.csf.tail_info = tail_info;
        let mut rig = Rig::new(cfg);
        let psn = rig.protect(key(1), 0);
        for n in 0..64 {
            rig.psns(key(1), [psn + n]);
            rig.wait(RTT);
            rig.report(key(1), 1, 1);
        }
        rig.sent.len()
    };
    assert_eq!(quiet(false), 0);
    // At most four saved up and one per 32 sources.
    let sent = quiet(true);
    assert!((2..=6).contains(&sent), "{sent}");
}

// shows: CREM-CC-02, CREM-SEND-03, AMB-RATECAP
#[test]
fn rate_cap_in_packets_over_bursts_of_one() {
    let mut cfg = config();
    cfg.fec.m_min = 2;
    let mut rig = Rig::new(cfg);
    let psn = rig.protect(key(1), 0);
    let m = u64::from(rig.status(key(1)).m);
    for n in 0..320 {
        rig.psns(key(1), [psn + n]);
        rig.wait(RTT);
        rig.report(key(1), 1, 1);
    }
    let symbols = rig
        .sent
        .iter()
        .filter(|s| s.emit.kind == RepairKind::Ordinary)
        .count() as u64;
    assert!(
        symbols <= m + 320 * m / 32,
        "{symbols} symbols for 320 sources at m={m}"
    );
    assert!(symbols >= 320 * m / 32);
    assert!(rig.csf.counters().blocks_token_limited > 0);
}

// shows: CREM-SEND-03, AMB-RATECAP
#[test]
fn rate_cap_in_octets_for_small_packets() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    let m = u64::from(rig.status(key(1)).m);
    let mut octets = 0;
    for n in 0..3200u32 {
        let mut small = desc(key(1), psn + n);
        small.payload_len = 80;
        octets += 80;
        rig.packets(&[small]);
    }
    let sent = rig
        .sent
        .iter()
        .filter(|s| s.emit.kind == RepairKind::Ordinary)
        .count() as u64
        * 1062;
    assert!(sent <= octets * 2 * m / 32 + m * 1062, "{sent}");
    assert!(
        sent * 2 >= octets * 2 * m / 32,
        "{sent} is far below the cap"
    );
    assert!(rig.csf.counters().blocks_octet_limited > 0);
}

#[test]
fn without_slots_nothing_is_coded() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    let slots = core::mem::take(&mut rig.actions.free_slots);
    rig.psns(key(1), psn..psn + 32);
    assert!(rig.sent.is_empty());
    let counters = rig.csf.counters();
    assert!(counters.no_slot > 0 && counters.blocks_bare > 0);
    rig.actions.free_slots = slots;
    rig.psns(key(1), psn + 32..psn + 64);
    assert!(!rig.sent.is_empty(), "the tokens were not spent");
}

// shows: CREM-POL-04, CREM-LR-03, AMB-HYST, CREM-OPS-03
#[test]
fn policy_follows_the_reports_with_hysteresis() {
    let mut rig = Rig::new(config());
    let mut psn = rig.protect(key(1), 0);
    let before = rig.updates().len();
    for _ in 0..200 {
        rig.paced(key(1), psn..psn + 20, MS);
        psn += 20;
        rig.report(key(1), 1000, 980);
    }
    assert_eq!(rig.status(key(1)).m, 5, "2 % at k = 32 and 1e-4");
    let updates = rig.updates()[before..].to_vec();
    for pair in updates.windows(2) {
        assert!(
            pair[1].0.since(pair[0].0) >= 2 * RTT,
            "twice within two SRTT"
        );
    }
    // A clean path gives the overhead back.
    for _ in 0..200 {
        rig.paced(key(1), psn..psn + 20, MS);
        psn += 20;
        rig.report(key(1), 1000, 1000);
    }
    assert_eq!(rig.status(key(1)).m, 0);
}

// shows: CREM-CC-06, CREM-CC-07, QOS-SCHED-02, AMB-CBNOW
#[test]
fn marks_on_repair_reduce_at_once() {
    let mut cfg = config();
    cfg.fec.m_min = 8;
    let mut rig = Rig::new(cfg);
    let mut psn = rig.protect(key(1), 0);
    assert_eq!(rig.status(key(1)).m, 8);
    rig.report_with(key(1), 100, 100, 0, 1);
    assert_eq!(rig.status(key(1)).m_allowed, 4);
    rig.psns(key(1), psn..psn + 32);
    assert_eq!(rig.sent.len(), 4);
    psn += 32;
    for _ in 0..60 {
        rig.paced(key(1), psn..psn + 20, MS);
        psn += 20;
        rig.report_with(key(1), 100, 100, 0, 1);
    }
    assert_eq!(rig.status(key(1)).m_allowed, 0);
    rig.sent.clear();
    rig.paced(key(1), psn..psn + 64, MS / 10);
    assert!(rig.sent.iter().all(|s| s.emit.kind == RepairKind::Info));
}

// shows: CREM-POL-02, CREM-POL-03, QOS-SCHED-02, AMB-MCONG
#[test]
fn congestion_on_sources_does_not_raise_m_beyond_m_cong() {
    let mut cfg = config();
    cfg.fec.initial_loss_ppm = 0;
    let mut rig = Rig::new(cfg);
    let mut psn = rig.protect(key(1), 0);
    for _ in 0..100 {
        rig.paced(key(1), psn..psn + 20, MS);
        psn += 20;
        rig.report_with(key(1), 1000, 950, 100, 0);
    }
    assert_eq!(rig.status(key(1)).m, 1);
}

// shows: AMB-OPENBLOCKS
#[test]
fn more_open_blocks_than_the_peer_holds_raise_k_then_leave_blocks_out() {
    let mut rig = Rig::new(config());
    rig.max_open_blocks = 4;
    // 10,000 packets a second over 30 ms are 300 positions: 9 blocks of 32.
    let mut psn = rig.protect(key(1), 0);
    for _ in 0..20 {
        rig.paced(key(1), psn..psn + 200, MS / 10);
        psn += 200;
        rig.report(key(1), 200, 200);
    }
    assert!(rig.status(key(1)).k >= 64, "{:?}", rig.status(key(1)));
    let mut cfg: CoreConfig = config();
    cfg.fec.max_k = 32;
    let mut rig = Rig::new(cfg);
    rig.max_open_blocks = 4;
    let psn = rig.protect(key(1), 0);
    rig.paced(key(1), psn..psn + 3200, MS / 10);
    let blocks = first_of_each(&rig.sent).len();
    assert!((30..=70).contains(&blocks), "{blocks} of 100");
    assert!(rig.csf.counters().blocks_skipped > 20);
}

// shows: CREM-OPS-02, AMB-KEEP
#[test]
fn retention_is_bounded_and_gives_up_the_oldest() {
    let mut cfg = config();
    cfg.csf.retain_packets = 100;
    let mut rig = Rig::new(cfg);
    let psn = rig.protect(key(1), 0);
    rig.psns(key(1), psn..psn + 320);
    assert!(rig.csf.retained().0 <= 100);
    assert!(rig.csf.counters().retain_evicted >= 7);
    assert_eq!(rig.csf.counters().sources_no_room, 0);
    // By octets.
    let mut cfg = config();
    cfg.csf.retain_octets = 50 * 1040;
    let mut rig = Rig::new(cfg);
    let psn = rig.protect(key(1), 0);
    rig.psns(key(1), psn..psn + 320);
    assert!(rig.csf.retained().1 <= 50 * 1040);
    // Per flow.
    let mut cfg = config();
    cfg.csf.retain_packets_per_flow = 64;
    let mut rig = Rig::new(cfg);
    let psn = rig.protect(key(1), 0);
    rig.psns(key(1), psn..psn + 320);
    assert!(rig.status(key(1)).retained <= 64);
    // By age: 8 SRTT.
    rig.wait(RTT * 12);
    assert_eq!(rig.csf.retained(), (0, 0));
    assert!(rig.csf.counters().retain_expired > 0);
}

#[test]
fn a_caller_short_of_buffers_gets_them_back() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    rig.psns(key(1), psn..psn + 320);
    let (before, _) = rig.csf.retained();
    assert!(rig.csf.give_up(50) >= 50);
    assert!(rig.csf.retained().0 <= before - 50);
    assert!(rig.csf.give_up(u32::MAX) > 0);
    assert_eq!(rig.csf.retained(), (0, 0));
    // Goes on as before.
    rig.sent.clear();
    rig.psns(key(1), psn + 320..psn + 352);
    assert!(!rig.sent.is_empty());
}
