//! A path that carries less than it is configured for.

use super::*;

/// Longest frame that the path carries: packets pass, and what repairs them does not.
const LONGEST: usize = 1100;

fn count(pair: &mut Pair, name: &str) -> u64 {
    let sender = pair.snapshot(0);
    let found = sender.csf.iter().find(|(n, _)| *n == name);
    found.expect("a counter").1
}

/// Sends packets for so many milliseconds; how many arrived.
fn run(pair: &mut Pair, first: u32, ms: u32, longest: usize) -> u32 {
    let mut arrived = 0;
    for n in 0..25 * ms {
        pair.gateways[0].lan.device.arrive(&packet(first + n));
        for _ in 0..2 {
            pair.step(&mut |octets| octets.len() > longest);
        }
        arrived += psns(&pair.received()).len() as u32;
    }
    arrived
}

// shows: AMB-TMTU, QOS-MTU-04
#[test]
fn a_path_that_carries_no_repair_is_noticed_and_packets_go_on() {
    for policy in ["", "m_min = 2"] {
        let mut pair = Pair::with_policy(true, policy);
        let arrived = run(&mut pair, 0, 600, LONGEST);
        assert!(arrived >= 25 * 590, "{arrived}");
        assert_eq!(count(&mut pair, "mtu_refuted"), 1, "{policy}");
        assert_eq!(count(&mut pair, "close_sent"), 1);
        let probes = count(&mut pair, "mtu_probes");
        assert_eq!(probes, if policy.is_empty() { 8 } else { 0 });
        // It stays so: no further repair, no further HELLO.
        let sent = |pair: &mut Pair| {
            let messages = pair.snapshot(0).counters.messages;
            let mut all = 0;
            messages.for_each(|name, count| all += if name == "tx_hello" { count } else { 0 });
            (all, pair.snapshot(0).counters.coding.repair_ordinary)
        };
        let before = sent(&mut pair);
        run(&mut pair, 25 * 600, 200, LONGEST);
        assert_eq!(sent(&mut pair), before);
    }
}

#[test]
fn a_path_that_carries_repair_is_found_good_by_one_symbol() {
    let mut pair = Pair::with_policy(true, "");
    run(&mut pair, 0, 400, usize::MAX);
    let probes = count(&mut pair, "mtu_probes");
    assert!((1..=4).contains(&probes), "{probes}");
    assert_eq!(pair.snapshot(0).counters.coding.repair_ordinary, probes);
    assert_eq!(count(&mut pair, "mtu_refuted"), 0);
    let mut quiet = Pair::with_policy(true, "probe_mtu = false");
    run(&mut quiet, 0, 400, usize::MAX);
    assert_eq!(quiet.snapshot(0).counters.coding.repair_ordinary, 0);
}
