//! Other configurations for gateways in the middle of a transfer.

use crate::apply::{MakeRemake, Order};
use crate::core_config::core_config;
use crate::snapshot::FlowSnapshot;

use super::*;

/// Changes gateway `at` as the auxiliary thread would.
pub(super) fn reconfigure(
    pair: &mut Pair,
    at: usize,
    anew: bool,
    change: impl FnOnce(&mut SegmentConfig),
) {
    let mut config = config(at, true, "m_min = 2, initial_loss = 0.02");
    change(&mut config);
    let gateway = &mut pair.gateways[at];
    let view = View {
        served: config.served.keys().copied().collect(),
        ..gateway.view.clone()
    };
    let core = core_config(&config, &crate::team::Place::ALONE);
    let mut order = Order {
        segment: 0,
        config,
        view,
        core,
        anew,
    };
    let make: MakeRemake<Heap> = Box::new(move |config, view, _| {
        (config.mode == Mode::Active).then(|| remake(at, config, view))
    });
    gateway.reconfigure(Instant(pair.now.get()), &mut order, &make);
}

/// A transfer of 3,000 packets, each 40th lost from the 1,000th on, with changes before some of them.
pub(super) fn transfer_with(pair: &mut Pair, mut change: impl FnMut(&mut Pair, u32)) -> Vec<u32> {
    let mut arrived = Vec::new();
    let mut lose = |frame: &[u8]| psn_of(frame).is_some_and(|p| p > 1000 && p % 40 == 7);
    for n in 0..7_000 {
        if n % 2 == 0 && n < 6_000 {
            change(pair, n / 2);
            pair.gateways[0].lan.device.arrive(&packet(n / 2));
        }
        pair.step(&mut lose);
        arrived.extend(psns(&pair.received()));
    }
    arrived
}

pub(super) fn closes(pair: &mut Pair, at: usize) -> u64 {
    let mut count = 0;
    let messages = pair.snapshot(at).counters.messages;
    messages.for_each(|name, value| {
        if name == "tx_close" {
            count = value;
        }
    });
    count
}

#[test]
fn hot_changes_leave_protection_as_it_is() {
    let mut pair = Pair::new(true);
    let arrived = transfer_with(&mut pair, |pair, psn| {
        if psn > 500 && psn % 10 == 0 {
            for at in [0, 1] {
                reconfigure(pair, at, false, |c| {
                    c.policy.target_fec = Some(if psn % 20 == 0 { 1e-6 } else { 1e-8 });
                    c.limits.retained_frames -= psn % 100;
                    c.limits.held_frames -= psn % 100;
                });
            }
        }
    });
    assert_eq!(arrived, (0..3_000).collect::<Vec<_>>());
    assert_eq!((closes(&mut pair, 0), closes(&mut pair, 1)), (0, 0));
    let coding = pair.snapshot(1).counters.coding;
    assert_eq!(coding.restored, 50, "each of the losses");
    assert_eq!(pair.snapshot(1).counters.drops, Default::default());
}

// Leaving the mode is told with CLOSE reason 0, flow by flow.
#[test]
fn leaving_active_takes_leave_and_loses_nothing_and_active_protects_again() {
    for at in [0, 1] {
        let mut pair = Pair::new(true);
        let arrived = transfer_with(&mut pair, |pair, psn| match psn {
            900 => reconfigure(pair, at, true, |c| c.mode = Mode::Passthrough),
            901 => {
                assert!(closes(pair, at) > 0, "gateway {at}");
                assert_eq!(pair.snapshot(at).mode, "passthrough");
                assert!(pair.snapshot(at).off_reason.is_none());
            }
            950 => reconfigure(pair, at, true, |_| {}),
            // A peer that took leave is asked again only after a while.
            960 => pair.now.set(pair.now.get() + 2_000_000_000),
            _ => {}
        });
        let unique: std::collections::BTreeSet<u32> = arrived.iter().copied().collect();
        assert_eq!(arrived.len(), unique.len(), "nothing twice");
        let lost: Vec<u32> = (0..3_000).filter(|p| !unique.contains(p)).collect();
        assert!(lost.iter().all(|p| p % 40 == 7 && *p < 2_000), "{lost:?}");
        assert_eq!(pair.snapshot(at).mode, "active");
        assert!(pair.snapshot(1).counters.coding.restored >= 25);
        assert_eq!(pair.snapshot(at).counters.drops, Default::default());
    }
}

// Each flow is told its end, also where there are more than a queue or a turn has room for.
#[test]
fn many_flows_are_told_their_end_a_few_a_turn() {
    const FLOWS: u32 = 1_500;
    let mut pair = Pair::new(true);
    let packet = |qp: u32, psn: u32| {
        let mut frame = packet(psn);
        // Behind Ethernet, IPv4, UDP and five octets of the BTH.
        frame[47..50].copy_from_slice(&qp.to_be_bytes()[1..]);
        frame
    };
    for psn in 0..24 {
        for qp in 0..FLOWS {
            pair.gateways[0]
                .lan
                .device
                .arrive(&packet(0x1000 + qp, psn));
            if qp % 16 == 0 {
                pair.now.set(pair.now.get() + 1_000_000);
                pair.step(&mut |_| false);
                pair.received();
            }
        }
    }
    let protected = |pair: &mut Pair| {
        let mut flows = Vec::new();
        pair.gateways[0].list_flows(0, &mut flows);
        let bound = |f: &(usize, FlowSnapshot)| matches!(&f.1, FlowSnapshot::Sender(flow) if flow.unprotected.is_none());
        flows.iter().filter(|f| bound(f)).count() as u64
    };
    let before = protected(&mut pair);
    assert!(before > 300, "{before}");
    reconfigure(&mut pair, 0, true, |c| c.mode = Mode::Passthrough);
    let mut most = 0;
    for _ in 0..400 {
        let told = closes(&mut pair, 0);
        pair.step(&mut |_| false);
        most = most.max(closes(&mut pair, 0) - told);
    }
    // Those that were only asked for are told as well.
    assert!(closes(&mut pair, 0) >= before);
    let mut far = Vec::new();
    pair.gateways[1].list_flows(0, &mut far);
    let bound = far
        .iter()
        .any(|f| matches!(&f.1, FlowSnapshot::Receiver(flow) if flow.config.is_some()));
    assert!(!bound, "the far gateway knows of each");
    assert!((1..=64).contains(&most), "{most} in one turn");
    assert!(pair.gateways[0].leaving.is_none());
    let drops = pair.snapshot(0).counters.drops;
    assert_eq!((drops.message_no_buffer, drops.tx_full_wan), (0, 0));
}

#[test]
fn other_flow_tables_are_negotiated_anew() {
    let mut pair = Pair::new(true);
    let arrived = transfer_with(&mut pair, |pair, psn| {
        if psn == 800 {
            reconfigure(pair, 0, true, |c| c.limits.flows = 7);
        }
    });
    assert!(arrived.len() >= 2_950, "{}", arrived.len());
    assert!(closes(&mut pair, 0) > 0);
    assert!(pair.snapshot(1).counters.coding.restored > 25);
}

#[test]
fn a_blocked_segment_forwards_nothing_and_counts_it() {
    let mut segment = segment(0, true, "");
    segment.mode = Mode::Block;
    segment.lan.device.arrive(&packet(1));
    segment.wan.device.arrive(&[0x11; 64]);
    segment.turn(&|| Instant(1_000));
    assert!(segment.wan.device.sent.is_empty() && segment.lan.device.sent.is_empty());
    assert_eq!(segment.counters.drops.blocked, 2);
}
