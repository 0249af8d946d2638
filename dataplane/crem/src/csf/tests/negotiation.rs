//! HELLO, parameters, silence, CLOSE.

use core::net::{IpAddr, SocketAddr};
use crem_wire::crem::registry::CloseReason;
use crem_wire::crem::{Close, HelloAck, Message, ParamAck};
use crem_wire::{FlowId, Psn};

use super::rig::{MS, RTT, Rig, config, gateway};
use crate::config::{Mode, PeerTable, PeerTarget, Prefix};
use crate::csf::State;
use crate::csf::testing::{desc, key};
use crate::events::{Event, Unprotected};
use crate::packet::{Namespace, PsnSpace};
use crate::time::{Duration, Instant};

fn since(first: Instant, times: impl IntoIterator<Item = Instant>) -> Vec<u128> {
    times
        .into_iter()
        .map(|t| t.since(first).as_millis())
        .collect()
}

// shows: CREM-PORT-01, CREM-HELLO-01, CREM-FEC-02, CREM-BLOCK-06, CREM-MSG-16, AMB-HELLOADDR
// shows: AMB-SCALE
#[test]
fn hello_after_sixteen_packets_to_the_destination_along_a_frame() {
    let mut rig = Rig::new(config());
    rig.psns(key(1), 0..15);
    assert!(rig.messages.is_empty());
    assert_eq!(
        rig.status(key(1)).unprotected,
        Some(Unprotected::BelowThreshold {
            seen: 15,
            needed: 16
        })
    );
    // Retransmissions do not count.
    rig.psns(key(1), 0..15);
    assert!(rig.messages.is_empty());
    rig.psns(key(1), [15]);
    let (_, to, message, along) = rig.messages[0].clone();
    assert_eq!(to, SocketAddr::new(key(1).destination, 50_000));
    assert!(along);
    let Message::Hello(hello) = message else {
        panic!("{message:?}")
    };
    assert_eq!(
        (hello.kind, hello.rdma_mtu, hello.flow.qp),
        (1, 1024, key(1).qp)
    );
    assert_eq!(
        (hello.limits.max_k, hello.limits.max_m, hello.limits.schemes),
        (128, 16, 7)
    );
}

// shows: AMB-HELLOADDR, AMB-PAIR
#[test]
fn hello_goes_to_a_configured_peer_without_a_frame() {
    let mut cfg = config();
    let target = PeerTarget {
        address: Some(gateway()),
        path_mtu: 1500,
        tunnel_overhead: 0,
    };
    cfg.peers = PeerTable::new(vec![(
        Prefix {
            address: key(1).destination,
            length: 24,
        },
        target,
    )]);
    let mut rig = Rig::new(cfg);
    rig.psns(key(1), 0..16);
    let (_, to, _, along) = rig.messages[0].clone();
    assert_eq!((to, along), (gateway(), false));
}

// shows: CREM-HELLO-04, CREM-HELLO-05, CREM-HELLO-10
#[test]
fn hello_backs_off_and_gives_up_after_eight() {
    let mut rig = Rig::new(config());
    rig.answer = false;
    rig.psns(key(1), 0..16);
    let first = rig.now;
    rig.wait(254 * MS);
    assert_eq!(rig.status(key(1)).state, State::Hello);
    rig.wait(2 * MS);
    let hellos = rig.hellos();
    assert_eq!(
        since(first, hellos.iter().map(|h| h.0)),
        [0, 1, 3, 7, 15, 31, 63, 127]
    );
    assert!(
        hellos.iter().all(|h| h.1 == hellos[0].1),
        "one nonce over all attempts"
    );
    assert_eq!(rig.status(key(1)).unprotected, Some(Unprotected::PeerDead));
    assert!(rig.events.iter().any(|e| matches!(e, Event::PeerDead(_))));
    // Negative cache: no HELLO for another flow there, until the probe a second later.
    rig.psns(key(2), 0..16);
    rig.wait(500 * MS);
    rig.psns(key(2), 16..20);
    assert_eq!(rig.hellos().len(), 8);
    rig.wait(500 * MS);
    rig.psns(key(2), 20..21);
    rig.psns(key(1), 20..21);
    assert_eq!(rig.hellos().len(), 9, "one flow probes");
    assert_ne!(
        rig.hellos()[8].1,
        hellos[0].1,
        "a new exchange has a new nonce"
    );
}

// shows: AMB-CRFRTT
#[test]
fn hello_waits_for_a_known_round_trip() {
    let mut rig = Rig::new(config());
    rig.protect(key(1), 0);
    rig.answer = false;
    let before = rig.hellos().len();
    rig.psns(key(2), 0..16);
    let first = rig.now;
    rig.paced(key(2), 16..300, 10 * MS);
    let times = since(first, rig.hellos()[before..].iter().map(|h| h.0));
    assert_eq!(times[..8], [0, 25, 75, 175, 375, 625, 875, 1125]);
    assert_eq!(rig.status(key(2)).unprotected, Some(Unprotected::PeerDead));
}

// shows: CREM-HELLO-01, CREM-PARAM-02, CREM-PARAM-06, AMB-INITCFG, AMB-EFFPSN
#[test]
fn binding_then_parameters_then_protection() {
    let mut rig = Rig::new(config());
    rig.psns(key(1), 0..16);
    rig.wait(RTT);
    let status = rig.status(key(1));
    assert_eq!(status.state, State::Params);
    assert_eq!(status.unprotected, Some(Unprotected::AwaitingParameters));
    assert_eq!(status.bound.map(|b| b.0), Some(gateway()));
    let (_, update) = rig.updates()[0];
    assert_eq!((update.scheme, update.k, update.t), (1, 32, 1062));
    assert!(
        update.m >= 1,
        "the configured initial loss estimate asks for m > 0"
    );
    assert!(update.effective.is_after(Psn::new(15)));
    rig.psns(key(1), 16..80);
    assert!(rig.sent.is_empty(), "no block before PARAM_ACK");
    rig.wait(RTT);
    assert_eq!(rig.status(key(1)).state, State::Active);
    let next = rig.protect(key(1), 80);
    assert!(rig.events.contains(&Event::FlowProtected(key(1))));
    rig.psns(key(1), next..next + 32);
    assert_eq!(rig.sent.len(), usize::from(update.m));
    assert_eq!(rig.status(key(1)).srtt, Some(RTT));
    assert!(Psn::new(next).distance_from(update.effective) >= 0);
}

// shows: CREM-HELLO-10, AMB-NONCE, AMB-HELLODUP
#[test]
fn hello_ack_must_match() {
    let mut rig = Rig::new(config());
    rig.answer = false;
    rig.psns(key(1), 0..16);
    let Message::Hello(hello) = rig.messages[0].2.clone() else {
        panic!()
    };
    let good = HelloAck {
        flow: FlowId::new(9).unwrap(),
        kind: 1,
        af: 4,
        limits: rig.limits,
        rdma_mtu: hello.rdma_mtu,
        nonce: hello.nonce,
        max_open_blocks: 8,
    };
    for bad in [
        HelloAck {
            nonce: hello.nonce ^ 1,
            ..good
        },
        HelloAck { kind: 0xc1, ..good },
        HelloAck { af: 6, ..good },
        HelloAck {
            rdma_mtu: 4096,
            ..good
        },
    ] {
        rig.deliver(&Message::HelloAck(bad));
    }
    assert_eq!(rig.csf.counters().hello_ack_unmatched, 4);
    rig.deliver_from(
        "203.0.113.1:50000".parse().unwrap(),
        &Message::HelloAck(good),
    );
    assert_eq!(rig.csf.counters().hello_ack_forbidden, 1);
    assert_eq!(rig.status(key(1)).state, State::Hello);
    rig.deliver(&Message::HelloAck(good));
    assert_eq!(rig.status(key(1)).state, State::Params);
    // A second answer to another attempt of the same HELLO changes nothing.
    rig.deliver(&Message::HelloAck(HelloAck {
        flow: FlowId::new(10).unwrap(),
        ..good
    }));
    assert_eq!(rig.flow_id(key(1)).get(), 9);
    assert!(rig.csf.uses(gateway(), FlowId::new(9).unwrap()));
    assert!(!rig.csf.uses(gateway(), FlowId::new(10).unwrap()));
}

// shows: CREM-FEC-02, CREM-MSG-15, AMB-LIMITS
#[test]
fn limits_of_no_use_are_closed() {
    for change in 0..3 {
        let mut rig = Rig::new(config());
        match change {
            0 => rig.limits.schemes = 0b101,
            1 => rig.limits.max_k = 0,
            _ => rig.limits.max_t = 1061,
        }
        rig.psns(key(1), 0..16);
        rig.wait(RTT);
        assert_eq!(rig.status(key(1)).unprotected, Some(Unprotected::Limits));
        assert_eq!(
            rig.closes().iter().map(|c| c.reason).collect::<Vec<_>>(),
            [0]
        );
        let hellos = rig.hellos().len();
        rig.psns(key(1), 16..32);
        assert_eq!(rig.hellos().len(), hellos, "waits before the next try");
        rig.wait(1100 * MS);
        rig.psns(key(1), 32..33);
        assert_eq!(rig.hellos().len(), hellos + 1);
    }
}

// shows: CREM-HELLO-06
#[test]
fn effective_limits_are_the_smaller_ones() {
    let mut rig = Rig::new(config());
    (rig.limits.max_k, rig.limits.max_m) = (20, 1);
    rig.protect(key(1), 0);
    let update = rig.updates()[0].1;
    assert_eq!((update.k, update.m), (20, 1));
}

// shows: CREM-OPS-01, QOS-MTU-04, AMB-TMTU
#[test]
fn path_mtu_decides() {
    let mut cfg = config();
    cfg.path_mtu = 1100;
    let mut rig = Rig::new(cfg.clone());
    rig.psns(key(1), 0..40);
    assert!(rig.hellos().is_empty());
    assert_eq!(
        rig.status(key(1)).unprotected,
        Some(Unprotected::Mtu {
            needed: 1118,
            available: 1100
        })
    );
    assert_eq!(rig.csf.counters().mtu_too_small, 1);
    cfg.path_mtu = 1118;
    cfg.fec.k = 100;
    let mut rig = Rig::new(cfg);
    rig.protect(key(1), 0);
    assert_eq!(rig.updates()[0].1.k, 32, "k falls first");
}

// shows: CREM-MSG-20, CREM-MSG-30, AMB-STATUS
#[test]
fn parameters_refused_once_smaller_then_close_three() {
    let mut rig = Rig::new(config());
    rig.psns(key(1), 0..16);
    rig.wait(RTT);
    rig.drop_replies();
    let first = rig.updates()[0].1;
    let refuse = |rig: &mut Rig, status| {
        let (_, update) = rig.updates().last().copied().unwrap();
        rig.deliver(&Message::ParamAck(ParamAck {
            flow: update.flow,
            config: update.config,
            status,
        }));
        rig.drop_replies();
    };
    refuse(&mut rig, 3);
    let second = rig.updates()[1].1;
    assert_eq!((second.k, second.m), (first.k / 2, first.m / 2));
    assert_ne!(second.config, first.config);
    refuse(&mut rig, 2);
    assert_eq!(
        rig.closes().iter().map(|c| c.reason).collect::<Vec<_>>(),
        [3]
    );
    assert_eq!(
        rig.status(key(1)).unprotected,
        Some(Unprotected::Parameters)
    );
    // An unsupported scheme is not retried.
    let mut rig = Rig::new(config());
    rig.psns(key(1), 0..16);
    rig.wait(RTT);
    rig.drop_replies();
    refuse(&mut rig, 1);
    assert_eq!(
        rig.closes().iter().map(|c| c.reason).collect::<Vec<_>>(),
        [2]
    );
}

// shows: CREM-PARAM-03, CREM-PARAM-04, CREM-MSG-30, AMB-PUTIMEOUT
#[test]
fn unanswered_parameters_end_with_close_two() {
    let mut rig = Rig::new(config());
    rig.psns(key(1), 0..16);
    rig.answer = false;
    rig.wait(RTT);
    let first = rig.updates()[0].0;
    for psn in 16..300 {
        rig.psns(key(1), [psn]);
        rig.wait(50 * MS);
    }
    let times = since(first, rig.updates().iter().map(|u| u.0));
    // The HELLO was answered after several attempts, so 20 ms is an upper bound that serves as SRTT.
    assert_eq!(times, [0, 40, 120, 280, 600, 1240, 2520, 5080]);
    let closes = rig.closes();
    assert_eq!(closes.iter().map(|c| c.reason).collect::<Vec<_>>(), [2]);
    assert_eq!(rig.csf.counters().param_unanswered, 1);
    let close_at = rig
        .messages
        .iter()
        .find(|m| matches!(m.2, Message::Close(_)))
        .unwrap()
        .0;
    assert_eq!(since(first, [close_at]), [10_200]);
}

// shows: AMB-LRSEQ
#[test]
fn silence_stops_redundancy_and_says_hello_anew() {
    let mut rig = Rig::new(config());
    let mut psn = rig.protect(key(1), 0);
    let nonce = rig.hellos()[0].1;
    let old = rig.flow_id(key(1));
    rig.answer = false;
    let start = rig.now;
    while rig.status(key(1)).unprotected.is_none() {
        rig.psns(key(1), [psn]);
        psn += 1;
        rig.wait(MS);
        assert!(rig.now.since(start) < Duration::from_secs(2));
    }
    assert!(rig.now.since(start) >= Duration::from_millis(900));
    assert_eq!(rig.status(key(1)).unprotected, Some(Unprotected::NoReports));
    assert!(
        rig.events
            .contains(&Event::FlowUnprotected(key(1), Unprotected::NoReports))
    );
    assert_eq!(rig.status(key(1)).retained, 0);
    let again = rig.hellos().last().copied().unwrap();
    assert_ne!(again.1, nonce, "a new nonce, at once");
    rig.sent.clear();
    rig.paced(key(1), psn..psn + 100, MS);
    psn += 100;
    assert!(rig.sent.is_empty(), "m = 0, no retransmission");
    // The peer restarted: it answers the new HELLO.
    rig.answer = true;
    rig.drop_replies();
    let restarted = rig.now;
    let mut protected_at = None;
    for _ in 0..3000 {
        rig.psns(key(1), [psn]);
        psn += 1;
        rig.wait(MS);
        if rig.status(key(1)).unprotected.is_none() {
            protected_at.get_or_insert(rig.now);
            break;
        }
    }
    let took = protected_at.expect("protected again").since(restarted);
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_ne!(rig.flow_id(key(1)), old);
    assert!(
        rig.closes().is_empty(),
        "the new binding takes the place of the old one"
    );
}

#[test]
fn a_report_ends_the_silence() {
    let mut rig = Rig::new(config());
    let mut psn = rig.protect(key(1), 0);
    rig.answer = false;
    while rig.status(key(1)).unprotected.is_none() {
        rig.psns(key(1), [psn]);
        psn += 1;
        rig.wait(MS);
    }
    rig.report(key(1), 100, 100);
    assert_eq!(rig.status(key(1)).unprotected, None);
    rig.sent.clear();
    rig.psns(key(1), psn..psn + 33);
    assert!(!rig.sent.is_empty());
}

// shows: AMB-LRSEQ
#[test]
fn silent_binding_is_closed_after_thirty_seconds() {
    let mut rig = Rig::new(config());
    let first = rig.protect(key(1), 0);
    rig.answer = false;
    for psn in first..first + 4000 {
        rig.psns(key(1), [psn]);
        rig.wait(10 * MS);
    }
    assert_eq!(
        rig.closes().iter().map(|c| c.reason).collect::<Vec<_>>(),
        [0]
    );
    assert_eq!(rig.status(key(1)).bound, None);
    assert_eq!(rig.status(key(1)).unprotected, Some(Unprotected::PeerDead));
    let probes = rig.csf.counters().hello_unanswered;
    assert!((15..=35).contains(&probes), "{probes} exchanges in 39 s");
}

#[test]
fn a_sign_of_life_ends_the_wait_for_a_dead_peer() {
    let mut rig = Rig::new(config());
    rig.answer = false;
    rig.psns(key(1), 0..16);
    rig.wait(300 * MS);
    rig.psns(key(1), [16]);
    assert_eq!(rig.hellos().len(), 8, "dead, the probe comes later");
    // A HELLO that the peer's own sender sent for flows of our destination.
    let host = Some(key(1).destination);
    rig.csf
        .peer_alive("198.51.100.1:50000".parse().unwrap(), host);
    rig.psns(key(1), [17]);
    assert_eq!(rig.hellos().len(), 8, "a stranger revives nobody");
    rig.csf.peer_alive(gateway(), host);
    rig.psns(key(1), [18]);
    assert_eq!(rig.hellos().len(), 9);
    assert!(rig.events.iter().any(|e| matches!(e, Event::PeerAlive(_))));
}

// shows: CREM-MSG-29, AMB-CLOSE, AMB-PEERADDR
#[test]
fn close_by_the_peer_and_back() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    let flow = rig.flow_id(key(1));
    rig.deliver_from(
        "192.0.2.9:50000".parse().unwrap(),
        &Message::Close(Close { flow, reason: 0 }),
    );
    assert_eq!(
        rig.csf.counters().unknown_flow,
        1,
        "not from the bound address"
    );
    rig.deliver(&Message::Close(Close { flow, reason: 77 }));
    assert_eq!(
        rig.status(key(1)).unprotected,
        Some(Unprotected::ClosedByPeer(77))
    );
    assert!(rig.closes().is_empty(), "CLOSE is not answered");
    rig.wait(1500 * MS);
    rig.protect(key(1), psn);
}

#[test]
fn close_all_closes_and_forgets() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    rig.protect(key(2), 0);
    rig.csf.close_all(CloseReason::Normal);
    rig.psns(key(1), [psn]);
    assert_eq!(rig.closes().len(), 2);
    assert_eq!(rig.csf.retained(), (0, 0));
    assert_eq!(
        rig.csf.flows().count(),
        1,
        "starts over with the packet after"
    );
}

#[test]
fn flows_are_closed_a_few_at_a_time() {
    let mut rig = Rig::new(config());
    for qp in 1..=5 {
        rig.protect(key(qp), 0);
    }
    assert!(
        rig.csf.close_some(0..2, CloseReason::Normal),
        "there are more"
    );
    rig.psns(key(9), [0]);
    assert_eq!(rig.closes().len(), 2);
    assert!(!rig.csf.close_some(2..32, CloseReason::Normal));
    rig.psns(key(9), [1]);
    assert_eq!(rig.closes().len(), 5);
}

#[test]
fn passthrough_does_nothing() {
    let mut cfg = config();
    cfg.mode = Mode::Passthrough;
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    let now = rig.now;
    rig.csf.set_config(now, cfg);
    rig.psns(key(1), psn..psn + 100);
    assert_eq!(rig.closes().len(), 1);
    assert_eq!((rig.csf.flows().count(), rig.csf.next_timeout()), (0, None));
    assert_eq!(rig.csf.counters().passthrough, 100);
}

#[test]
fn a_monitor_lists_flows_and_sends_nothing() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    let sent = rig.messages.len();
    let mut cfg = config();
    cfg.mode = Mode::Monitor;
    rig.csf.set_config(rig.now, cfg);
    rig.paced(key(1), psn..psn + 1_000, MS);
    rig.psns(key(2), 0..100);
    assert_eq!(rig.closes().len(), 1, "of what was protected");
    assert_eq!(rig.messages.len(), sent + 1);
    for flow in [key(1), key(2)] {
        let status = rig.status(flow);
        assert_eq!(status.unprotected, Some(Unprotected::Monitor));
        assert_eq!((status.state, status.bound), (State::Observing, None));
    }
    assert_eq!(rig.csf.counters().passthrough, 0);
    // Back again.
    rig.csf.set_config(rig.now, config());
    rig.protect(key(1), psn + 1_000);
}

// shows: CREM-MSG-30, CREM-OPS-02, AMB-QPREUSE
#[test]
fn idle_flow_is_closed_with_reason_one() {
    let mut rig = Rig::new(config());
    rig.protect(key(1), 0);
    rig.wait(Duration::from_secs(31));
    assert_eq!(
        rig.closes().iter().map(|c| c.reason).collect::<Vec<_>>(),
        [1]
    );
    assert_eq!(rig.csf.flows().count(), 0);
    assert_eq!(rig.csf.next_timeout(), None);
}

// shows: AMB-QPREUSE
#[test]
fn reused_qp_is_closed_and_offered_anew() {
    let mut rig = Rig::new(config());
    rig.protect(key(1), 0);
    rig.psns(key(1), [1 << 23]);
    assert_eq!(
        rig.closes().iter().map(|c| c.reason).collect::<Vec<_>>(),
        [1]
    );
    assert_eq!(rig.status(key(1)).unprotected, Some(Unprotected::QpReuse));
    rig.protect(key(1), (1 << 23) + 1);
    assert_eq!(rig.csf.counters().qp_reused, 1);
}

// shows: CREM-MSG-16, QOS-MTU-02, AMB-RDMAMTU
#[test]
fn learned_mtu_replaces_the_announced_one() {
    let mut cfg = config();
    cfg.path_mtu = 9000;
    let mut rig = Rig::new(cfg);
    let psn = rig.protect(key(1), 0);
    let mut middle = desc(key(1), psn);
    middle.mtu_seen = Some(4096);
    middle.payload_len = 4096 + 16;
    rig.packets(&[middle]);
    assert_eq!(
        rig.closes().iter().map(|c| c.reason).collect::<Vec<_>>(),
        [0]
    );
    rig.protect(key(1), psn + 1);
    let (_, update) = rig.updates().last().copied().unwrap();
    assert_eq!((update.t, rig.status(key(1)).rdma_mtu), (4134, 4096));
}

// shows: CREM-SCOPE-07, AMB-TENANT
#[test]
fn no_hello_goes_to_an_address_inside_of_a_tunnel() {
    let mut rig = Rig::new(config());
    let mut tunnelled = key(1);
    tunnelled.namespace = Namespace(1 << 63 | 5000 << 26);
    rig.paced(tunnelled, 0..200, MS / 10);
    assert!(rig.hellos().is_empty());
    assert_eq!(rig.status(tunnelled).unprotected, Some(Unprotected::NoPeer));
    // With a gateway in the configuration it goes there.
    let mut cfg = config();
    let target = PeerTarget {
        address: Some(gateway()),
        path_mtu: 4400,
        tunnel_overhead: 0,
    };
    cfg.peers = PeerTable::new(alloc::vec![(Prefix::host(tunnelled.destination), target)]);
    let mut rig = Rig::new(cfg);
    rig.protect(tunnelled, 0);
    assert_eq!(rig.status(tunnelled).unprotected, None);
}

#[test]
fn equal_triple_of_another_namespace_is_left_alone() {
    let mut rig = Rig::new(config());
    rig.protect(key(1), 0);
    let mut other = key(1);
    other.namespace = Namespace(100);
    rig.psns(other, 0..40);
    assert_eq!(
        rig.status(other).unprotected,
        Some(Unprotected::NamespaceConflict)
    );
    assert_eq!(rig.csf.counters().namespace_conflicts, 1);
    // It may once the first one is gone.
    rig.wait(Duration::from_secs(31));
    rig.protect(other, 40);
}

#[test]
fn without_any_possible_peer_nothing_is_sent() {
    let mut cfg = config();
    cfg.allowed_peers.clear();
    let mut rig = Rig::new(cfg);
    rig.psns(key(1), 0..100);
    assert!(rig.messages.is_empty());
    assert_eq!(rig.status(key(1)).unprotected, Some(Unprotected::NoPeer));
}

// shows: AMB-SCALE
#[test]
fn hello_pacing_and_outstanding() {
    let mut cfg = config();
    cfg.csf.hello_outstanding = 100;
    let mut rig = Rig::new(cfg);
    rig.answer = false;
    for qp in 0..1000 {
        rig.psns(key(qp), 0..16);
    }
    assert_eq!(
        rig.hellos().len(),
        20,
        "a hundredth of a second's worth at once"
    );
    let start = rig.now;
    let mut first_hellos = 0;
    for round in 0..60u32 {
        for qp in 0..1000 {
            rig.psns(key(qp), [16 + round]);
        }
        rig.wait(MS);
        let mut nonces: Vec<_> = rig.hellos().iter().map(|h| h.1).collect();
        nonces.sort_unstable();
        nonces.dedup();
        first_hellos = nonces.len();
        let elapsed = rig.now.since(start).as_millis() as usize;
        assert!(
            first_hellos <= 20 + 2 * elapsed + 1,
            "{first_hellos} after {elapsed} ms"
        );
    }
    assert_eq!(first_hellos, 100, "bounded by those outstanding");
}

#[test]
fn responses_are_ignored_unless_switched_on() {
    let mut rig = Rig::new(config());
    let mut responses = key(1);
    responses.space = PsnSpace::Responses;
    rig.psns(responses, 0..40);
    assert_eq!(
        (
            rig.csf.flows().count(),
            rig.csf.counters().responses_ignored
        ),
        (0, 40)
    );
    let mut cfg = config();
    cfg.responses = true;
    let mut rig = Rig::new(cfg);
    rig.psns(responses, 0..40);
    assert!(rig.messages.is_empty(), "only after an exchange of Kind 1");
    rig.protect(key(1), 0);
    rig.psns(responses, 40..41);
    let Some((_, _, Message::Hello(hello), _)) = rig.messages.last().cloned() else {
        panic!()
    };
    assert_eq!(hello.kind, 0xc1);
}

// shows: CREM-OPS-02
#[test]
fn full_flow_table_gives_up_candidates_only() {
    let mut cfg = config();
    cfg.csf.max_flows = 4;
    let mut rig = Rig::new(cfg);
    rig.protect(key(1), 0);
    rig.protect(key(2), 0);
    for qp in 10..30 {
        rig.psns(key(qp), [0]);
    }
    assert_eq!(rig.csf.flows().count(), 4);
    assert_eq!(rig.csf.counters().flows_evicted, 18);
    assert_eq!(rig.status(key(1)).unprotected, None);
    assert_eq!(rig.status(key(2)).unprotected, None);
    rig.protect(key(3), 0);
    rig.protect(key(4), 0);
    rig.psns(key(5), [0]);
    assert_eq!(rig.csf.counters().flows_no_room, 1);
}

// shows: AMB-EFFPSN
#[test]
fn a_stalled_effective_psn_is_replaced() {
    let mut rig = Rig::new(config());
    // A fast start, so the Effective PSN is far ahead, …
    rig.paced(key(1), 0..2000, MS / 100);
    rig.wait(2 * RTT);
    let first = rig.updates()[0].1;
    let ahead = first.effective.distance_from(Psn::new(2000));
    assert!(ahead > 500, "{ahead}");
    assert_eq!(rig.status(key(1)).state, State::Active);
    // … then one packet per millisecond.
    let start = rig.now;
    let mut psn = 2000;
    while rig.status(key(1)).unprotected.is_some() {
        rig.psns(key(1), [psn]);
        psn += 1;
        rig.wait(MS);
        assert!(
            rig.now.since(start) < Duration::from_millis(400),
            "stuck at {psn}"
        );
    }
    let (_, second) = rig.updates().last().copied().unwrap();
    assert_ne!(second.config, first.config);
}

#[test]
fn stray_messages_are_counted() {
    let mut rig = Rig::new(config());
    rig.psns(key(1), 0..16);
    let Message::Hello(hello) = rig.messages[0].2.clone() else {
        panic!()
    };
    rig.deliver(&Message::Hello(hello));
    let flow = FlowId::new(12345).unwrap();
    rig.deliver(&Message::Close(Close { flow, reason: 0 }));
    let counters = rig.csf.counters();
    assert_eq!((counters.unexpected_message, counters.unknown_flow), (1, 1));
    let mut names = 0;
    counters.for_each(|_, _| names += 1);
    assert!(names > 60);
    assert_eq!(gateway().ip(), IpAddr::from([192, 0, 2, 2]));
}
