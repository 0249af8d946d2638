//! Finding out whether messages as long as REPAIR reach the peer.

use crem_wire::crem::{LossReport, Message};

use super::rig::{MS, RTT, Rig, config};
use crate::config::CoreConfig;
use crate::csf::testing::{desc, key};
use crate::events::{Event, Unprotected};
use crate::packet::StreamKey;
use crate::time::Duration;

/// A path without loss: policy sends no symbols.
fn probing() -> CoreConfig {
    let mut cfg = config();
    cfg.csf.probe_mtu = true;
    cfg.fec.initial_loss_ppm = 0;
    cfg
}

fn report(rig: &mut Rig, key: StreamKey, received: u32, repairs: u32) {
    let report = LossReport {
        flow: rig.flow_id(key),
        interval_us: 20_000,
        expected: 64,
        received,
        restored: 0,
        incomplete_blocks: 0,
        ce_marked: 0,
        repairs_received: repairs,
        repairs_ce_marked: 0,
    };
    rig.deliver(&Message::LossReport(report));
}

/// Round trips with two blocks and a report each, until the flow is not protected any more; how many.
fn rounds(rig: &mut Rig, key: StreamKey, psn: &mut u32, received: u32, most: u32) -> u32 {
    for round in 0..most {
        rig.psns(key, *psn..*psn + 64);
        *psn += 64;
        rig.wait(RTT);
        if rig.status(key).unprotected.is_some() {
            return round;
        }
        report(rig, key, received, 0);
        if rig.status(key).unprotected.is_some() {
            return round;
        }
    }
    most
}

fn counted(rig: &Rig) -> (u64, u64) {
    let counters = rig.csf.counters();
    (counters.mtu_probes, counters.mtu_refuted)
}

// shows: AMB-TMTU, CREM-OPS-01, QOS-MTU-04
#[test]
fn a_flow_whose_symbols_do_not_arrive_is_given_up_with_both_numbers() {
    let mut rig = Rig::new(probing());
    let mut psn = rig.protect(key(1), 0);
    assert_eq!(rig.status(key(1)).m, 0);
    let round = rounds(&mut rig, key(1), &mut psn, 64, 40);
    assert!((8..16).contains(&round), "{round}");
    assert_eq!(counted(&rig), (8, 1));
    let reason = Unprotected::PathMtu {
        // 1062, REPAIR 20 with both bitmaps 8, UDP 8, IPv4 20; 1040 and 28 are in the sources.
        needed: 1118,
        carried: 1068,
    };
    assert_eq!(rig.status(key(1)).unprotected, Some(reason));
    assert!(rig.events.contains(&Event::FlowUnprotected(key(1), reason)));
    assert_eq!(rig.closes().len(), 1);

    // Neither it nor another one is offered again; one of small packets is.
    let hellos = rig.hellos().len();
    rig.paced(key(1), psn..psn + 200, MS);
    rig.paced(key(2), 0..200, MS);
    assert_eq!(rig.hellos().len(), hellos);
    assert_eq!(rig.status(key(2)).unprotected, Some(reason));
    // After a while it is tried anew.
    rig.wait(Duration::from_secs(290));
    rig.paced(key(1), psn + 200..psn + 20_000, MS);
    assert!(rig.hellos().len() > hellos);
}

#[test]
fn once_a_symbol_arrived_none_is_sent_for_this() {
    let mut rig = Rig::new(probing());
    let psn = rig.protect(key(1), 0);
    report(&mut rig, key(1), 64, 1);
    let (probes, _) = counted(&rig);
    for round in 0..20 {
        rig.psns(key(1), psn + round * 64..psn + (round + 1) * 64);
        rig.wait(RTT);
        report(&mut rig, key(1), 64, 0);
    }
    assert_eq!(counted(&rig), (probes, 0));
    assert!(probes <= 2, "{probes}");
    assert_eq!(rig.status(key(1)).unprotected, None);
    // Other flows to the peer need not try either.
    rig.protect(key(2), 0);
    assert_eq!(counted(&rig), (probes, 0));
    // The finding grows old: one symbol is tried again.
    rig.wait(Duration::from_secs(30));
    rig.psns(key(2), [5_000_000]);
    let (_, refuted) = counted(&rig);
    assert_eq!(refuted, 0);
}

// shows: AMB-TMTU
#[test]
fn an_outage_of_all_messages_is_not_taken_for_a_shorter_path() {
    let mut cfg = probing();
    cfg.fec.m_min = 2;
    let mut rig = Rig::new(cfg);
    let mut psn = rig.protect(key(1), 0);
    let arrives = |rig: &mut Rig| report(rig, key(1), 64, 1);
    arrives(&mut rig);
    for _ in 0..2 {
        // More round trips than a finding takes, and then some arrive again.
        assert_eq!(rounds(&mut rig, key(1), &mut psn, 64, 12), 12);
        arrives(&mut rig);
    }
    assert_eq!(counted(&rig).1, 0);
    // If none does it was the length all the same.
    let round = rounds(&mut rig, key(1), &mut psn, 64, 60);
    assert!((16..40).contains(&round), "{round}");
    assert_eq!(counted(&rig).1, 1);
}

#[test]
fn where_sources_are_lost_too_it_says_nothing_of_lengths() {
    let mut rig = Rig::new(probing());
    let mut psn = rig.protect(key(1), 0);
    let mut lost_too = |rig: &mut Rig| {
        // Below the breaker, but most of what is asked about is gone.
        for _ in 0..12 {
            rig.psns(key(1), psn..psn + 64);
            psn += 64;
            rig.wait(RTT);
            if rig.status(key(1)).unprotected.is_none() {
                report(rig, key(1), 20, 0);
            }
        }
    };
    lost_too(&mut rig);
    assert_eq!(counted(&rig).1, 0);
}

#[test]
fn without_the_switch_nothing_is_sent_and_nothing_given_up() {
    let mut cfg = probing();
    cfg.csf.probe_mtu = false;
    let mut rig = Rig::new(cfg);
    let mut psn = rig.protect(key(1), 0);
    assert_eq!(rounds(&mut rig, key(1), &mut psn, 64, 40), 40);
    assert_eq!(counted(&rig), (0, 0));
    assert_eq!(rig.sent.iter().filter(|s| s.emit.slot.is_some()).count(), 0);
}

#[test]
fn no_symbol_is_sent_where_none_may_be() {
    let mut cfg = probing();
    cfg.fec.m_max = 0;
    let mut rig = Rig::new(cfg);
    let mut psn = rig.protect(key(1), 0);
    assert_eq!(rounds(&mut rig, key(1), &mut psn, 64, 40), 40);
    assert_eq!(counted(&rig), (0, 0));
}

#[test]
fn symbols_that_policy_sends_show_it_as_well() {
    let mut cfg = probing();
    cfg.fec.m_min = 2;
    let mut rig = Rig::new(cfg);
    let mut psn = rig.protect(key(1), 0);
    let round = rounds(&mut rig, key(1), &mut psn, 64, 40);
    assert!((8..16).contains(&round), "{round}");
    assert_eq!(counted(&rig), (0, 1), "not one more than policy wanted");
}

#[test]
fn small_packets_are_protected_where_large_ones_are_not() {
    let mut rig = Rig::new(probing());
    let mut psn = rig.protect(key(1), 0);
    rounds(&mut rig, key(1), &mut psn, 64, 40);
    let small = |psn| {
        let mut packet = desc(key(3), psn);
        packet.payload_len = 80;
        packet
    };
    for psn in 0..20_000 {
        rig.packets(&[small(psn)]);
        rig.wait(MS / 10);
    }
    assert_eq!(rig.status(key(3)).unprotected, None);
    assert_eq!(
        rig.status(key(1)).unprotected.map(|r| r.name()),
        Some("path_mtu")
    );
}
