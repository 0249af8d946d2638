//! PATH_REPORT at the sender function: who is believed, which stream is meant, what is sent for packets
//! that a node dropped, and what never follows from a report.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use crem_wire::Psn;
use crem_wire::crem::{FlowDescriptor, HopEntry, Message, PathReport};
use hashbrown::HashSet;
use proptest::prelude::*;

use super::rig::{MS, RTT, Rig, config, gateway};
use crate::actions::RepairKind;
use crate::config::{CoreConfig, Prefix};
use crate::csf::CsfCounters;
use crate::csf::testing::{desc, key};
use crate::events::Unprotected;
use crate::packet::{PsnSpace, StreamKey};
use crate::policy::{Evidence, LossClass};
use crate::time::Duration;

/// Address of a node on the list.
fn node() -> SocketAddr {
    SocketAddr::new(IpAddr::from([198, 51, 100, 7]), 50_000)
}

fn with_reporters() -> CoreConfig {
    let mut cfg = config();
    cfg.reporters = vec![Prefix {
        address: IpAddr::from([198, 51, 100, 0]),
        length: 24,
    }];
    cfg
}

/// At an initial loss estimate that makes m = 2 for k = 32.
fn rig() -> Rig {
    let rig = Rig::new(with_reporters());
    assert_eq!(rig.csf.counters(), CsfCounters::default());
    rig
}

fn hop(period: u32, dropped: &[u32]) -> HopEntry {
    HopEntry {
        node: 9,
        period,
        lost: dropped.len() as u32,
        queue_delay_change_us: 0,
        cause: 2,
        dropped: dropped.iter().map(|psn| Psn::new(*psn)).collect(),
    }
}

fn report(key: StreamKey, hops: Vec<HopEntry>) -> Message {
    Message::PathReport(PathReport {
        truncated: false,
        method: 3,
        flow: FlowDescriptor {
            source: key.source,
            destination: key.destination,
            qp: key.qp,
        },
        hops,
    })
}

/// What was sent for the block that holds `psn`: index, positions covered, kind.
fn symbols(rig: &Rig, psn: u32) -> Vec<(u8, usize, RepairKind)> {
    let holds = |s: &&super::rig::Sent| {
        let header = &s.emit.header;
        let distance = Psn::new(psn).distance_from(header.block_start);
        s.emit.slot.is_some() && (0..i32::from(header.k)).contains(&distance)
    };
    let sent = rig.sent.iter().filter(holds);
    sent.map(|s| (s.emit.header.index, s.over.len(), s.emit.kind))
        .collect()
}

/// Protects a flow and gives the first PSN of a block of 32 that is closed, and the next one.
fn block(rig: &mut Rig, key: StreamKey) -> (u32, u32) {
    let first = rig.protect(key, 100);
    rig.psns(key, first..first + 32);
    assert_eq!(symbols(rig, first).len(), 2, "m = 2");
    (first, first + 32)
}

// shows: CREM-PR-02, CREM-PR-05, CREM-FEC-11, AMB-PREXTRA
#[test]
fn dropped_packets_beyond_m_get_further_ordinary_symbols_over_the_whole_block() {
    let mut rig = rig();
    let (first, next) = block(&mut rig, key(1));
    // Half of the next block earns one token, all of it two.
    rig.psns(key(1), next..next + 16);
    let drops = [first, first + 7, first + 31];
    rig.deliver_from(node(), &report(key(1), vec![hop(1, &drops)]));
    let sent = symbols(&rig, first);
    assert_eq!(sent.len(), 3, "three lost, two symbols sent already");
    assert_eq!(
        sent[2],
        (2, 32, RepairKind::Ordinary),
        "next index, L = all"
    );
    let header = &rig.sent.last().unwrap().emit.header;
    assert_eq!((header.lost, header.session), (None, None), "no RETX");
    let counters = rig.csf.counters();
    assert_eq!((counters.path_reports, counters.path_entries), (1, 1));
    assert_eq!((counters.path_psns, counters.path_symbols), (3, 1));
    assert_eq!(counters.path_blocks_covered, 1);
}

#[test]
fn what_the_symbols_sent_already_restore_costs_nothing() {
    let mut rig = rig();
    let (first, next) = block(&mut rig, key(1));
    rig.psns(key(1), next..next + 31);
    rig.deliver_from(node(), &report(key(1), vec![hop(1, &[first, first + 1])]));
    assert_eq!(symbols(&rig, first).len(), 2);
    assert_eq!(rig.csf.counters().path_blocks_covered, 1);
    // A third one of the same block, told later.
    rig.deliver_from(node(), &report(key(1), vec![hop(2, &[first + 2])]));
    assert_eq!(symbols(&rig, first).len(), 3);
}

// shows: AMB-RATECAP, CREM-CC-02
#[test]
fn further_symbols_wait_for_tokens_and_take_them_from_the_next_block() {
    let mut rig = rig();
    let (first, next) = block(&mut rig, key(1));
    let drops: Vec<u32> = (first..first + 4).collect();
    rig.deliver_from(node(), &report(key(1), vec![hop(1, &drops)]));
    assert_eq!(symbols(&rig, first).len(), 2, "the bucket is empty");
    rig.psns(key(1), next..next + 15);
    assert_eq!(symbols(&rig, first).len(), 2);
    rig.psns(key(1), next + 15..next + 16);
    assert_eq!(symbols(&rig, first).len(), 3, "16 sources at 2/32 earn one");
    rig.psns(key(1), next + 16..next + 32);
    assert_eq!(symbols(&rig, first).len(), 4);
    assert_eq!(
        symbols(&rig, next).len(),
        0,
        "what was known to be lost came first"
    );
    rig.psns(key(1), next + 32..next + 64);
    assert_eq!(
        symbols(&rig, first).len(),
        4,
        "not more than packets were dropped"
    );
    assert_eq!(symbols(&rig, next + 32).len(), 2);
}

#[test]
fn a_block_still_open_is_served_when_it_closes() {
    let mut rig = rig();
    let (_, next) = block(&mut rig, key(1));
    rig.psns(key(1), next..next + 20);
    let drops: Vec<u32> = (next..next + 4).collect();
    rig.deliver_from(node(), &report(key(1), vec![hop(1, &drops)]));
    assert_eq!(symbols(&rig, next).len(), 0, "k is not known yet");
    rig.psns(key(1), next + 20..next + 32);
    assert_eq!(symbols(&rig, next).len(), 2);
    rig.psns(key(1), next + 32..next + 64);
    assert_eq!(symbols(&rig, next).len(), 4);
}

// shows: CREM-PR-14
#[test]
fn a_node_that_is_not_on_the_list_is_refused_and_counted() {
    let mut rig = rig();
    let (first, next) = block(&mut rig, key(1));
    rig.psns(key(1), next..next + 31);
    let message = report(key(1), vec![hop(1, &[first, first + 1, first + 2])]);
    // The peer is no reporter either.
    for from in [gateway(), SocketAddr::new([198, 51, 101, 7].into(), 50_000)] {
        rig.deliver_from(from, &message);
    }
    let counters = rig.csf.counters();
    assert_eq!(counters.path_reports_forbidden, 2);
    assert_eq!((counters.path_reports, counters.path_entries), (0, 0));
    assert_eq!(symbols(&rig, first).len(), 2);
    // What was refused leaves no trace: the same entry counts from a node on the list.
    rig.deliver_from(node(), &message);
    assert_eq!(rig.csf.counters().path_entries_duplicate, 0);
    assert_eq!(symbols(&rig, first).len(), 3);
}

#[test]
fn nobody_is_a_reporter_unless_configured() {
    let mut rig = Rig::new(config());
    let (first, _) = block(&mut rig, key(1));
    rig.deliver_from(gateway(), &report(key(1), vec![hop(1, &[first])]));
    assert_eq!(rig.csf.counters().path_reports_forbidden, 1);
}

// shows: AMB-PRDUP
#[test]
fn an_entry_counts_once_however_often_it_comes() {
    let mut rig = rig();
    let (first, next) = block(&mut rig, key(1));
    rig.psns(key(1), next..next + 31);
    let drops = [first, first + 1, first + 2];
    let message = report(key(1), vec![hop(1, &drops), hop(1, &drops)]);
    rig.deliver_from(node(), &message);
    rig.deliver_from(node(), &message);
    let counters = rig.csf.counters();
    assert_eq!(
        (counters.path_entries, counters.path_entries_duplicate),
        (4, 3)
    );
    assert_eq!(counters.path_psns, 3);
    // Another node of the same number of periods is another matter.
    let mut other = hop(1, &drops);
    other.node = 10;
    rig.deliver_from(node(), &report(key(1), vec![other]));
    assert_eq!(rig.csf.counters().path_entries_duplicate, 3);
    assert_eq!(symbols(&rig, first).len(), 3, "the positions are the same");
}

// shows: CREM-MSG-27
#[test]
fn flows_are_found_by_addresses_and_label_only() {
    let mut rig = rig();
    let (first, _) = block(&mut rig, key(1));
    let mut others = [key(2), key(1), key(1)];
    others[1].source = IpAddr::from([10, 0, 1, 2]);
    others[2].destination = IpAddr::from([10, 0, 2, 2]);
    for other in others {
        rig.deliver_from(node(), &report(other, vec![hop(1, &[first])]));
    }
    let counters = rig.csf.counters();
    assert_eq!(counters.path_reports_unknown_flow, 3);
    assert_eq!(counters.path_reports, 0);
}

#[test]
fn psns_that_no_block_carries_are_counted_and_nothing_else() {
    let mut rig = rig();
    let first = rig.protect(key(1), 100);
    // A READ of three packets at the second PSN: two positions are absent.
    let mut burst: Vec<_> = [0, 1, 4, 5].map(|n| desc(key(1), first + n)).into();
    burst[1].read_length = Some(3 * 1024);
    burst[1].opcode = 0x0c;
    rig.packets(&burst);
    rig.psns(key(1), first + 6..first + 32);
    let drops = [first + 2, first + 3, first + 5_000, 5];
    rig.deliver_from(node(), &report(key(1), vec![hop(1, &drops)]));
    let counters = rig.csf.counters();
    assert_eq!((counters.path_psns, counters.path_psns_unheld), (4, 4));
    assert_eq!(counters.path_symbols, 0);
}

/// Both streams toward one QP, their blocks of equal PSNs or not.
fn both_streams(responses_at: u32) -> (Rig, StreamKey, u32) {
    let mut cfg = with_reporters();
    cfg.responses = true;
    let mut rig = Rig::new(cfg);
    let mut responses = key(1);
    responses.space = PsnSpace::Responses;
    let (first, next) = block(&mut rig, key(1));
    rig.psns(key(1), next..next + 31);
    let other = rig.protect(responses, responses_at);
    rig.psns(responses, other..other + 63);
    // The requests have tokens for one symbol more, and their block is still kept.
    assert!(rig.status(key(1)).retained >= 63);
    rig.sent.clear();
    (
        rig,
        responses,
        if responses_at == 100 { first } else { other },
    )
}

// shows: AMB-PSNSPACE
#[test]
fn the_stream_whose_blocks_hold_the_psn_is_the_one_that_is_meant() {
    let (mut rig, responses, psn) = both_streams(1 << 20);
    let drops: Vec<u32> = (psn..psn + 3).collect();
    rig.deliver_from(node(), &report(key(1), vec![hop(1, &drops)]));
    let sent: Vec<_> = rig.sent.iter().map(|s| s.emit.stream).collect();
    assert_eq!(sent, [responses]);
    assert_eq!(rig.csf.counters().path_psns_ambiguous, 0);
}

#[test]
fn a_psn_that_both_streams_hold_counts_for_none() {
    let (mut rig, _, psn) = both_streams(100);
    let drops: Vec<u32> = (psn..psn + 3).collect();
    rig.deliver_from(node(), &report(key(1), vec![hop(1, &drops)]));
    assert_eq!(rig.sent.len(), 0);
    let counters = rig.csf.counters();
    assert_eq!((counters.path_psns, counters.path_psns_ambiguous), (3, 3));
}

// shows: CREM-PR-15
#[test]
fn a_report_never_releases_what_is_kept() {
    let mut rig = rig();
    let (first, next) = block(&mut rig, key(1));
    rig.psns(key(1), next..next + 31);
    let before = rig.csf.retained();
    let ordinary = rig.sent[0].clone();
    let drops = [first, first + 1, first + 2];
    rig.deliver_from(node(), &report(key(1), vec![hop(1, &drops)]));
    assert_eq!(rig.csf.retained(), before);
    let request = rig.request(key(1), &ordinary, &[0, 1, 2], 0, 1);
    rig.deliver(&Message::BlockRequest(request));
    let sent = symbols(&rig, first);
    assert_eq!(sent.len(), 2 + 1 + 3, "asked for, it is answered in full");
    let indices: Vec<u8> = sent.iter().map(|s| s.0).collect();
    assert_eq!(indices, [0, 1, 2, 3, 4, 5], "no index twice");
}

#[test]
fn what_the_crf_asked_for_already_is_left_to_that() {
    let mut rig = rig();
    let (first, next) = block(&mut rig, key(1));
    rig.psns(key(1), next..next + 31);
    let ordinary = rig.sent[0].clone();
    let request = rig.request(key(1), &ordinary, &[0, 1, 2], 2, 1);
    rig.deliver(&Message::BlockRequest(request));
    let answered = symbols(&rig, first).len();
    let drops: Vec<u32> = (first..first + 8).collect();
    rig.deliver_from(node(), &report(key(1), vec![hop(1, &drops)]));
    assert_eq!(symbols(&rig, first).len(), answered);
    assert_eq!(rig.csf.counters().path_blocks_late, 1);
}

#[test]
fn symbols_that_would_come_later_than_a_requested_round_are_not_sent() {
    let mut rig = rig();
    let (first, next) = block(&mut rig, key(1));
    let drops: Vec<u32> = (first..first + 4).collect();
    rig.deliver_from(node(), &report(key(1), vec![hop(1, &drops)]));
    rig.wait(RTT + MS);
    rig.psns(key(1), next..next + 32);
    assert_eq!(symbols(&rig, first).len(), 2);
    assert_eq!(symbols(&rig, next).len(), 2);
    assert_eq!(rig.csf.counters().path_blocks_late, 1);
}

// shows: AMB-REDUCE
#[test]
fn while_m_is_reduced_a_report_adds_no_symbols() {
    let mut rig = rig();
    let (first, next) = block(&mut rig, key(1));
    rig.psns(key(1), next..next + 31);
    // Marks on REPAIR halve m.
    rig.report_with(key(1), 100, 100, 0, 1);
    assert_eq!(rig.status(key(1)).m_allowed, 1);
    let drops: Vec<u32> = (first..first + 4).collect();
    rig.deliver_from(node(), &report(key(1), vec![hop(1, &drops)]));
    assert_eq!(symbols(&rig, first).len(), 2);
    let counters = rig.csf.counters();
    assert_eq!(
        (counters.path_blocks_refused, counters.path_symbols),
        (1, 0)
    );
}

// shows: AMB-CBCOPY, CREM-CC-10
#[test]
fn an_open_breaker_stops_what_reports_would_draw() {
    let mut rig = rig();
    let mut psn = rig.protect(key(1), 100);
    while rig.status(key(1)).unprotected != Some(Unprotected::Breaker) {
        assert!(psn < 10_000, "15 % of loss open it within seconds");
        rig.paced(key(1), psn..psn + 20, MS);
        psn += 20;
        rig.report_with(key(1), 1000, 850, 0, 0);
    }
    rig.paced(key(1), psn..psn + 300, MS / 50);
    rig.sent.clear();
    let drops: Vec<u32> = (psn..psn + 200).collect();
    rig.deliver_from(node(), &report(key(1), vec![hop(1, &drops)]));
    rig.paced(key(1), psn + 300..psn + 400, MS / 50);
    let symbols = rig.sent.iter().filter(|s| s.emit.slot.is_some()).count();
    assert_eq!(symbols, 0);
    let counters = rig.csf.counters();
    assert_eq!(counters.path_symbols, 0);
    assert!(counters.path_blocks_refused > 0 && counters.path_psns == 200);
}

// shows: AMB-KM
#[test]
fn no_index_beyond_the_code_is_used() {
    let mut cfg = with_reporters();
    cfg.fec.k = 128;
    cfg.fec.m_min = 126;
    cfg.fec.m_max = 126;
    let mut rig = Rig::new(cfg);
    rig.limits.max_m = 126;
    let first = rig.protect(key(1), 100);
    rig.psns(key(1), first..first + 128);
    rig.psns(key(1), first + 128..first + 200);
    let drops: Vec<u32> = (first..first + 128).collect();
    rig.deliver_from(node(), &report(key(1), vec![hop(1, &drops)]));
    let sent = symbols(&rig, first);
    assert_eq!(sent.len(), 128);
    let highest = sent.iter().map(|s| u16::from(s.0)).max().unwrap();
    assert!(highest + 128 <= 255, "index {highest} with k = 128");
}

#[test]
fn truncation_is_counted_and_the_rest_of_the_report_taken() {
    let mut rig = rig();
    let (first, _) = block(&mut rig, key(1));
    let Message::PathReport(mut cut) = report(key(1), vec![hop(1, &[first])]) else {
        unreachable!()
    };
    cut.truncated = true;
    rig.deliver_from(node(), &Message::PathReport(cut));
    let counters = rig.csf.counters();
    assert_eq!(
        (counters.path_reports_truncated, counters.path_psns),
        (1, 1)
    );
}

// shows: AMB-PRDUP, AMB-CLASSIFY
#[test]
fn entries_tell_the_classification_of_congestion_once_each() {
    let mut rig = rig();
    rig.protect(key(1), 100);
    rig.report(key(1), 1000, 990);
    let delayed = |period, us| {
        let mut hop = hop(period, &[]);
        hop.queue_delay_change_us = us;
        report(key(1), vec![hop])
    };
    for _ in 0..5 {
        rig.deliver_from(node(), &delayed(1, 60));
    }
    assert_eq!(
        rig.status(key(1)).class,
        LossClass::Transmission,
        "60 us, told five times"
    );
    rig.deliver_from(node(), &delayed(2, -10));
    rig.deliver_from(node(), &delayed(3, 50));
    assert_eq!(
        rig.status(key(1)).class,
        LossClass::Transmission,
        "100 us in all"
    );
    rig.deliver_from(node(), &delayed(4, 1));
    let class = LossClass::Congestion(Evidence::QueueDelay);
    assert_eq!(rig.status(key(1)).class, class);
}

// shows: AMB-METHOD
#[test]
fn overflow_is_congestion_and_an_unknown_cause_is_none() {
    let mut rig = rig();
    rig.protect(key(1), 100);
    rig.report(key(1), 1000, 990);
    for (cause, class) in [
        (0, LossClass::Transmission),
        (2, LossClass::Transmission),
        (77, LossClass::Transmission),
        (1, LossClass::Congestion(Evidence::Overflow)),
    ] {
        let mut hop = hop(u32::from(cause), &[]);
        hop.cause = cause;
        rig.deliver_from(node(), &report(key(1), vec![hop]));
        assert_eq!(rig.status(key(1)).class, class, "cause {cause}");
    }
    // The rate of losses comes from LOSS_REPORT only.
    assert_eq!(rig.csf.counters().lost_congestion, 0);
}

/// One step of a run: packets, a pause, and a report of drops among the last blocks.
type Step = (u8, u16, u16, Vec<u16>, bool);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let drops = prop::collection::vec(0u16..200, 0..40);
    let step = (1u8..60, 16u16..1060, 0u16..2_000, drops, any::<bool>());
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever nodes report: the caps of ordinary symbols hold with those that reports draw, each covers all
    /// sources of its block, no index is used twice, and nothing kept is let go for it.
    // shows: AMB-RATECAP, AMB-PREXTRA, AMB-IDXREUSE, CREM-FEC-11, CREM-PR-15, CREM-CC-02
    #[test]
    fn caps_and_indices_hold_whatever_is_reported(steps in steps(), m in 1u8..8) {
        let mut cfg = with_reporters();
        (cfg.fec.m_min, cfg.fec.m_max) = (m, m);
        let mut rig = Rig::new(cfg);
        let mut psn = rig.protect(key(1), 0xff_ff00);
        let before = rig.csf.counters().symbols_ordinary;
        let (mut sources, mut octets) = (0u64, 0u64);
        for (n, (count, len, wait_us, drops, twice)) in steps.into_iter().enumerate() {
            let burst: Vec<_> = (0..u32::from(count)).map(|i| {
                let mut packet = desc(key(1), psn.wrapping_add(i) & 0xff_ffff);
                packet.payload_len = len;
                packet
            }).collect();
            rig.packets(&burst);
            psn = psn.wrapping_add(u32::from(count)) & 0xff_ffff;
            sources += u64::from(count);
            octets += u64::from(count) * u64::from(len);
            let dropped: Vec<u32> = drops.iter().map(|d| psn.wrapping_sub(u32::from(*d)) & 0xff_ffff).collect();
            let message = report(key(1), vec![hop(n as u32, &dropped)]);
            let kept = rig.csf.retained();
            for _ in 0..=u8::from(twice) {
                rig.deliver_from(node(), &message);
            }
            prop_assert_eq!(rig.csf.retained(), kept);
            rig.wait(Duration::from_micros(wait_us.into()));
            let sent = rig.csf.counters().symbols_ordinary - before;
            let (m, k, t) = (u64::from(m), 32, 1062);
            prop_assert!(sent * k <= sources * m + m * k);
            prop_assert!(sent * t * k <= 2 * m * octets + m * t * k);
        }
        check_extra(&rig)?;
    }
}

fn check_extra(rig: &Rig) -> Result<(), TestCaseError> {
    let mut indices = HashSet::new();
    for s in rig.sent.iter().filter(|s| s.emit.slot.is_some()) {
        let header = &s.emit.header;
        prop_assert_eq!(s.emit.kind, RepairKind::Ordinary);
        prop_assert_eq!((header.lost, header.session), (None, None));
        prop_assert!(header.present.iter().eq(s.over.iter().copied()));
        prop_assert!(u16::from(header.index) + u16::from(header.k) <= 255);
        prop_assert!(indices.insert((header.block_start, header.index)));
    }
    Ok(())
}
