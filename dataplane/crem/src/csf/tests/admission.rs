//! The report budget, whose HELLO goes first, and what a flow says of itself while it waits.

use crem_wire::Psn;
use crem_wire::crem::{Limits, Message};

use super::rig::{MS, RTT, Rig, config};
use crate::config::CoreConfig;
use crate::csf::State;
use crate::csf::testing::{desc, key};
use crate::events::{Event, Unprotected};
use crate::packet::{Desc, StreamKey};
use crate::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Room for so many flows at the rig's round-trip time.
fn room_for(flows: u32) -> CoreConfig {
    let mut cfg = config();
    cfg.csf.report_budget = flows * 50;
    cfg.domain_rtt = Some(RTT);
    cfg
}

/// One packet of each flow every `n` milliseconds for so many milliseconds, with a report for each
/// protected flow every 20.
fn run(rig: &mut Rig, flows: &[(StreamKey, u32)], psns: &mut [u32], ms: u32) {
    for tick in 0..ms {
        for ((key, every), psn) in flows.iter().zip(psns.iter_mut()) {
            if tick.is_multiple_of(*every) {
                rig.psns(*key, [*psn]);
                *psn += 1;
            }
            let bound =
                tick % 20 == 0 && rig.csf.flows().any(|f| f.key == *key && f.bound.is_some());
            if bound {
                rig.report(*key, 1, 1);
            }
        }
        rig.wait(MS);
    }
}

fn protected(rig: &Rig) -> Vec<u32> {
    let mut qps: Vec<u32> = (rig.csf.flows())
        .filter(|f| f.unprotected.is_none())
        .map(|f| f.key.qp.get())
        .collect();
    qps.sort_unstable();
    qps
}

// shows: AMB-SCALE
#[test]
fn the_busiest_flows_get_the_report_budget_and_the_others_say_so() {
    let mut rig = Rig::new(room_for(2));
    // Two slow flows come first and get the places, ...
    let mut flows = vec![(key(1), 20), (key(2), 20)];
    let mut psns = vec![0; 4];
    run(&mut rig, &flows, &mut psns, 1500);
    assert_eq!(protected(&rig), [1, 2]);
    // ... then two that are twenty times as busy.
    flows.extend([(key(3), 1), (key(4), 1)]);
    run(&mut rig, &flows, &mut psns, 300);
    assert_eq!(
        rig.status(key(3)).unprotected,
        Some(Unprotected::ReportBudget)
    );
    run(&mut rig, &flows, &mut psns, 4000);
    assert_eq!(protected(&rig), [3, 4]);
    for slow in [1, 2] {
        let status = rig.status(key(slow));
        assert_eq!(status.unprotected, Some(Unprotected::ReportBudget));
        assert_eq!((status.state, status.bound), (State::Queued, None));
        let told = Event::FlowUnprotected(key(slow), Unprotected::ReportBudget);
        assert!(rig.events.contains(&told));
    }
    assert_eq!(rig.csf.counters().flows_displaced, 2);
    let reasons: Vec<u16> = rig.closes().iter().map(|c| c.reason).collect();
    assert_eq!(reasons, [0, 0], "their bindings were released");
    // The busy ones pause: their places go to those who send.
    run(&mut rig, &flows[..2], &mut psns, 35_000);
    assert_eq!(protected(&rig), [1, 2]);
}

// shows: AMB-SCALE
#[test]
fn flows_of_like_rate_do_not_push_each_other_out() {
    let mut rig = Rig::new(room_for(3));
    let flows: Vec<_> = (1..7).map(|qp| (key(qp), 5)).collect();
    let mut psns = vec![0; 6];
    run(&mut rig, &flows, &mut psns, 8000);
    assert_eq!(protected(&rig).len(), 3);
    assert_eq!(rig.csf.counters().flows_displaced, 0);
}

// shows: AMB-SCALE
#[test]
fn a_flow_costs_by_the_round_trip_time_of_its_peer() {
    // The domain says 20 ms, and room is for four; the round trip proves to be 20 ms, then the budget
    // is cut to half while they run.
    let mut rig = Rig::new(room_for(4));
    let flows: Vec<_> = (1..5).map(|qp| (key(qp), 5)).collect();
    let mut psns = vec![0; 4];
    run(&mut rig, &flows, &mut psns, 3000);
    assert_eq!(protected(&rig).len(), 4);
    rig.csf.set_config(rig.now, room_for(2));
    run(&mut rig, &flows, &mut psns, 3000);
    assert_eq!(protected(&rig).len(), 2);
    assert_eq!(rig.csf.counters().flows_displaced, 2);
}

// shows: AMB-SCALE
#[test]
fn first_hellos_go_out_busiest_first() {
    let mut cfg = config();
    cfg.csf.hello_rate = 500;
    cfg.csf.hello_outstanding = 10_000;
    let mut rig = Rig::new(cfg);
    // 600 flows: every sixth sends a packet each millisecond, the others one in ten.
    for qp in 0..600 {
        rig.psns(key(qp), 0..16);
    }
    let early = rig.hellos().len();
    assert!(early <= 16, "{early}: what the bucket holds");
    let mut psns = vec![16u32; 600];
    for tick in 0..240u32 {
        for qp in 0..600u32 {
            if qp % 6 == 0 || (tick + qp) % 10 == 0 {
                rig.psns(key(qp), [psns[qp as usize]]);
                psns[qp as usize] += 1;
            }
        }
        rig.wait(MS);
    }
    let mut qps: Vec<u32> = (rig.messages.iter())
        .filter_map(|m| match &m.2 {
            Message::Hello(hello) => Some(hello.flow.qp.get()),
            _ => None,
        })
        .collect();
    let mut seen = std::collections::HashSet::new();
    qps.retain(|qp| seen.insert(*qp));
    // Those after the first bucketful, in the order of their first HELLO: 120 tokens came meanwhile.
    let later = &qps[early..];
    assert!(later.len() >= 100, "{}", later.len());
    let busy = later.iter().take(80).filter(|qp| **qp % 6 == 0).count();
    assert!(busy >= 72, "{busy} of the first 80");
}

// shows: AMB-SCALE
#[test]
fn a_flow_that_met_a_full_table_of_peers_asks_again() {
    let mut cfg = config();
    cfg.csf.max_peers = 1;
    let mut rig = Rig::new(cfg);
    rig.protect(key(1), 0);
    let mut other = key(2);
    other.destination = [10, 0, 2, 99].into();
    rig.psns(other, 0..20);
    assert_eq!(rig.status(other).unprotected, Some(Unprotected::TableFull));
    for n in 0..35 {
        rig.psns(other, [20 + n]);
        rig.wait(SECOND);
    }
    rig.protect(other, 60);
}

#[test]
fn a_flow_says_how_many_hellos_went_unanswered() {
    let mut rig = Rig::new(config());
    rig.answer = false;
    rig.psns(key(1), 0..16);
    for sent in 1..=8 {
        let hello = Unprotected::NoHelloAck { sent, of: 8 };
        assert_eq!(rig.status(key(1)).unprotected, Some(hello));
        assert_eq!(
            (hello.name(), hello.values().collect::<Vec<_>>()),
            (
                "no_hello_ack",
                vec![("hello_sent", u64::from(sent)), ("hello_of", 8)]
            )
        );
        let next = rig.csf.next_timeout().expect("another try");
        rig.wait(next.since(rig.now));
    }
    assert_eq!(rig.status(key(1)).unprotected, Some(Unprotected::PeerDead));
}

// shows: AMB-REFUSE, AMB-SCALE
#[test]
fn a_refused_flow_waits_in_the_negative_cache_while_others_are_answered() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    rig.answer = false;
    rig.psns(key(2), 0..16);
    for n in 0..400 {
        rig.psns(key(1), [psn + n]);
        if n % 2 == 0 {
            rig.report(key(1), 10, 10);
        }
        rig.wait(10 * MS);
    }
    let status = rig.status(key(2));
    assert_eq!(status.unprotected, Some(Unprotected::NegativeCache));
    assert_eq!(status.state, State::HeldOff);
    assert_eq!(rig.csf.counters().peers_dead, 0);
}

// shows: AMB-TMTU, AMB-OVERSIZE
#[test]
fn small_packets_carry_small_symbols_until_a_large_one_shows() {
    let mut rig = Rig::new(wide(4096));
    let mut psn = protect_small(&mut rig);
    assert_eq!(rig.status(key(1)).t, 4134, "little is known yet");
    for _ in 0..1500 {
        rig.packets(&[small(psn)]);
        rig.wait(MS);
        psn += 1;
        if psn.is_multiple_of(100) {
            rig.report(key(1), 100, 100);
        }
    }
    assert_eq!(rig.status(key(1)).t, 294);
    for _ in 0..2000 {
        rig.psns(key(1), [psn]);
        rig.wait(MS / 10);
        psn += 1;
    }
    assert_eq!(rig.status(key(1)).t, 4134);
    assert!(
        rig.csf.counters().sources_oversize > 0,
        "bare until the larger T was in force"
    );
    // Long after the last large one T falls again.
    for _ in 0..25_000 {
        rig.packets(&[small(psn)]);
        rig.wait(MS);
        psn += 1;
        if psn.is_multiple_of(100) {
            rig.report(key(1), 100, 100);
        }
    }
    assert_eq!(rig.status(key(1)).t, 294);
}

// shows: AMB-TMTU, CREM-OPS-01
#[test]
fn packets_that_do_not_fit_end_the_protection_of_small_ones_with_both_numbers() {
    let mut cfg = config();
    cfg.path_mtu = 1000;
    let mut rig = Rig::new(cfg);
    let psn = protect_small(&mut rig);
    assert_eq!(
        rig.status(key(1)).t,
        294,
        "small symbols fit a path that full ones do not"
    );
    rig.paced(key(1), psn..psn + 10, MS);
    let mtu = Unprotected::Mtu {
        needed: 1118,
        available: 1000,
    };
    assert_eq!(rig.status(key(1)).unprotected, Some(mtu));
    assert!(
        mtu.values()
            .eq([("path_mtu_needed", 1118), ("path_mtu", 1000)])
    );
    let reasons: Vec<u16> = rig.closes().iter().map(|c| c.reason).collect();
    assert_eq!(reasons, [0]);
    rig.paced(key(1), psn + 10..psn + 3000, MS);
    assert_eq!(rig.status(key(1)).unprotected, Some(mtu));
}

// shows: AMB-LIMITS
#[test]
fn packets_beyond_the_peers_limit_end_protection() {
    let mut rig = Rig::new(wide(1024));
    rig.limits = Limits {
        max_t: 500,
        ..rig.limits
    };
    let psn = protect_small(&mut rig);
    rig.paced(key(1), psn..psn + 10, MS);
    assert_eq!(rig.status(key(1)).unprotected, Some(Unprotected::Limits));
}

// shows: AMB-RDMAMTU, CREM-BLOCK-05
#[test]
fn the_psn_after_a_read_tells_the_rdma_mtu() {
    let mut rig = Rig::new(wide(256));
    let mut psn = 0;
    // READs of 64 KiB on a connection of 4096: 16 PSNs each, not 256.
    for _ in 0..200 {
        let mut read = desc(key(1), psn);
        read.opcode = 0x0c;
        read.payload_len = 32;
        read.read_length = Some(65_536);
        rig.packets(&[read]);
        rig.wait(MS);
        psn += 16;
    }
    let status = rig.status(key(1));
    assert_eq!((status.rdma_mtu, status.unprotected), (4096, None));
    assert_eq!(
        status.counts.behind, 0,
        "none looked like a repeated packet"
    );
}

#[test]
fn a_span_that_is_taken_back_ends_the_binding_before_another_block_begins() {
    let mut rig = Rig::new(wide(1024));
    let psn = rig.protect(key(1), 0);
    let mut read = desc(key(1), psn);
    read.read_length = Some(64 * 1024);
    // 64 PSNs at the guess of 1024, and 32 of them make a block; 16 at 4096.
    rig.packets(&[read, desc(key(1), psn + 16), desc(key(1), psn + 17)]);
    let reasons: Vec<u16> = rig.closes().iter().map(|c| c.reason).collect();
    assert_eq!(reasons, [0]);
    assert!(
        rig.sent
            .iter()
            .all(|s| s.emit.header.block_start.get() <= psn)
    );
    rig.protect(key(1), psn + 18);
    assert_eq!(rig.status(key(1)).rdma_mtu, 4096);
}

// shows: AMB-RDMAMTU
#[test]
fn the_other_direction_tells_the_rdma_mtu() {
    let mut rig = Rig::new(wide(1024));
    let psn = rig.protect(key(1), 0);
    rig.csf.learn_mtu(rig.now, &key(1), 1000);
    rig.csf.learn_mtu(rig.now, &key(9), 4096);
    rig.csf.learn_mtu(rig.now, &key(1), 1024);
    assert!(rig.closes().is_empty(), "nothing new");
    let mut rig2 = Rig::new(wide(1024));
    let psn2 = rig2.protect(key(1), 0);
    rig2.csf.learn_mtu(rig2.now, &key(1), 4096);
    rig2.protect(key(1), psn2);
    assert_eq!(rig2.status(key(1)).rdma_mtu, 4096);
    let reasons: Vec<u16> = rig2.closes().iter().map(|c| c.reason).collect();
    assert_eq!(reasons, [0]);
    rig.psns(key(1), [Psn::new(psn).get()]);
    assert_eq!(rig.status(key(1)).unprotected, None);
}

/// A path that lets everything through, with the RDMA MTU that is announced before one is seen.
fn wide(rdma_mtu: u16) -> CoreConfig {
    let mut cfg = config();
    cfg.path_mtu = 9000;
    cfg.fec.rdma_mtu = rdma_mtu;
    cfg
}

/// A packet that needs a symbol of 82 octets.
fn small(psn: u32) -> Desc<u32> {
    Desc {
        payload_len: 80,
        ..desc(key(1), psn)
    }
}

/// Sends small packets until they are protected; gives the next PSN.
fn protect_small(rig: &mut Rig) -> u32 {
    let mut psn = 0;
    while psn < 16 || rig.status(key(1)).unprotected.is_some() {
        rig.packets(&[small(psn)]);
        rig.wait(MS / 10);
        psn += 1;
    }
    psn
}
