//! Mode `monitor`: what the path does to flows is counted and told, and nothing is sent.

use crate::flows::flow;
use crate::snapshot::FlowSnapshot;

use super::changes::{closes, reconfigure, transfer_with};
use super::*;

/// CE on these, as the path would mark it.
fn marked(psn: u32) -> Vec<u8> {
    let mut octets = packet(psn);
    let parsed = frame::parse(&octets, &ParseConfig::default());
    frame::set_tos(&mut octets, &parsed, 26 << 2 | 3);
    octets
}

fn is_crem(frame: &[u8]) -> bool {
    let config = ParseConfig {
        crem_port: Some(CREM_PORT),
        vxlan_port: None,
    };
    frame::parse(frame, &config).class == frame::Class::Crem
}

fn watched(pair: &Pair, at: usize) -> Vec<FlowSnapshot> {
    let mut flows = Vec::new();
    assert_eq!(pair.gateways[at].list_flows(0, &mut flows), 0);
    flows.into_iter().map(|(_, flow)| flow).collect()
}

fn monitored(pair: &mut Pair, at: usize) -> crate::counters::MonitorCounters {
    pair.snapshot(at).counters.monitor
}

#[test]
fn a_monitor_counts_what_the_path_did_and_sends_nothing() {
    let mut pair = Pair::new(true);
    for at in [0, 1] {
        reconfigure(&mut pair, at, true, |c| c.mode = Mode::Monitor);
    }
    // Of 2,950 packets 74 are lost in runs of one and two; each 100th is marked.
    let lost = |psn: u32| psn > 50 && (psn % 40 == 7 || psn % 160 == 8);
    let mut crem = 0;
    let mut lose = |frame: &[u8]| {
        crem += u32::from(is_crem(frame));
        psn_of(frame).is_some_and(lost)
    };
    let mut arrived = Vec::new();
    for n in 0..7_000 {
        if n % 2 == 0 && n < 6_000 {
            let psn = n / 2;
            let octets = if psn % 100 == 9 {
                marked(psn)
            } else {
                packet(psn)
            };
            pair.gateways[0].lan.device.arrive(&octets);
        }
        pair.step(&mut lose);
        arrived.extend(psns(&pair.received()));
    }
    let good: Vec<u32> = (0..3_000).filter(|psn| !lost(*psn)).collect();
    assert_eq!(arrived, good, "in order, and nothing is held");
    assert_eq!(crem, 0, "nothing is sent");
    let count = |f: &dyn Fn(u32) -> bool| (0..3_000).filter(|psn| f(*psn)).count() as u64;
    let seen = monitored(&mut pair, 1);
    assert_eq!(seen.packets, good.len() as u64);
    assert_eq!(seen.lost, count(&lost));
    assert_eq!(seen.gaps, count(&|psn| lost(psn) && !lost(psn - 1)));
    assert_eq!(seen.ce, count(&|psn| psn % 100 == 9 && !lost(psn)));
    assert_eq!((seen.duplicates, seen.resent, seen.behind), (0, 0, 0));
    // The sender's gateway gets nothing from the WAN.
    assert_eq!(monitored(&mut pair, 0).packets, 0);
    let flows = watched(&pair, 1);
    let [one] = flows.as_slice() else {
        panic!("one flow: {flows:?}");
    };
    let one = flow("a", one);
    assert_eq!(one.reason.as_deref(), Some("monitor"));
    assert_eq!(one.counters["lost"], seen.lost);
    let would = one.would_apply.unwrap();
    assert!(would.m > 0 && would.k > 0 && would.residual < 1e-2);
    let share = f64::from(would.m) / f64::from(would.k) * 1e6;
    assert!((would.overhead_ppm as f64 - share).abs() < 1.0);
    assert_eq!(pair.snapshot(1).mode, "monitor");
}

// Leaving active is told with CLOSE reason 0; what was counted stays.
#[test]
fn modes_change_between_watching_and_protecting_under_way() {
    let mut pair = Pair::new(true);
    reconfigure(&mut pair, 1, true, |c| c.mode = Mode::Monitor);
    let mut first = 0;
    let arrived = transfer_with(&mut pair, |pair, psn| match psn {
        // The peer of a gateway in monitor mode gets no answer.
        400 => {
            first = monitored(pair, 1).packets;
            assert!(first > 300);
            assert_eq!(pair.snapshot(0).counters.coding.repair_ordinary, 0);
            reconfigure(pair, 1, true, |_| {});
            assert_eq!(pair.snapshot(1).mode, "active");
            pair.now.set(pair.now.get() + 2_000_000_000);
        }
        2_000 => {
            assert!(pair.snapshot(1).counters.coding.restored >= 20);
            assert_eq!(closes(pair, 1), 0);
            assert!(monitored(pair, 1).packets <= first + 20);
            reconfigure(pair, 1, true, |c| c.mode = Mode::Monitor);
        }
        2_001 => assert!(closes(pair, 1) > 0),
        2_010 => {
            first = monitored(pair, 1).packets;
            // A change of something else leaves what is known of flows.
            reconfigure(pair, 1, false, |c| {
                c.mode = Mode::Monitor;
                c.policy.target_fec = Some(1e-9);
            });
            assert_eq!(watched(pair, 1).len(), 1);
        }
        _ => {}
    });
    let unique: std::collections::BTreeSet<u32> = arrived.iter().copied().collect();
    assert_eq!(arrived.len(), unique.len(), "nothing twice");
    let seen = monitored(&mut pair, 1);
    assert!(seen.packets > first + 900, "{seen:?}, {first} before");
    assert_eq!(pair.snapshot(1).counters.drops, Default::default());
}

#[test]
fn what_a_panic_leaves_of_a_monitor_is_a_wire() {
    let mut segment = segment(1, true, "");
    segment.mode = Mode::Monitor;
    let core = {
        let mut config = config(1, true, "");
        config.mode = Mode::Monitor;
        crate::core_config::core_config(&config, &crate::team::Place::ALONE)
    };
    segment.guard = crate::guard::Guard::new(None);
    let mut segment = segment.with_watch(Some(core));
    let arrive = |segment: &mut Segment<Heap>, psn: u32, at: u64| {
        segment.wan.device.arrive(&packet(psn));
        segment.turn(&|| Instant(at));
        psns(&std::mem::take(&mut segment.lan.device.sent))
    };
    assert_eq!(arrive(&mut segment, 1, 1_000), [1]);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    segment.guarded(Instant(2_000), |_| -> () { panic!("a fault of its own") });
    std::panic::set_hook(hook);
    let mut snapshot = SegmentSnapshot::default();
    segment.describe(&mut snapshot);
    assert_eq!(
        (snapshot.mode, snapshot.off_reason.is_some()),
        ("passthrough", true)
    );
    assert_eq!(arrive(&mut segment, 2, 3_000), [2]);
    for n in 0..64 {
        segment.turn(&|| Instant(11_000_000_000 + n));
    }
    assert_eq!(arrive(&mut segment, 3, 12_000_000_000), [3]);
    segment.describe(&mut snapshot);
    assert_eq!(
        (snapshot.mode, snapshot.counters.monitor.packets),
        ("monitor", 2)
    );
}
