//! Negotiation, parameters and the end of a binding.

use super::*;
use crem_wire::crem::Close;

// shows: CREM-HELLO-02, CREM-HELLO-10, CREM-MSG-18, AMB-ACK12
#[test]
fn hello_is_answered_with_our_limits() {
    let mut rig = Rig::empty(config());
    let ack = rig.hello(&hello(0xabcd)).unwrap();
    assert_eq!(
        (ack.kind, ack.af, ack.rdma_mtu, ack.nonce),
        (1, 4, 1024, 0xabcd)
    );
    let fec = config().fec;
    assert_eq!(
        ack.limits,
        Limits {
            schemes: fec.schemes,
            max_k: fec.max_k,
            max_m: fec.m_max,
            max_t: fec.max_t
        }
    );
    assert_eq!(ack.max_open_blocks, config().crf.max_open_blocks);
    assert_eq!(rig.status().life, Life::Offered);
}

// shows: AMB-HELLODUP
#[test]
fn a_repeated_hello_gets_the_same_flow_id() {
    let mut rig = Rig::empty(config());
    let first = rig.hello(&hello(1)).unwrap();
    assert_eq!(rig.hello(&hello(1)), Some(first));
    rig.flow = first.flow;
    rig.update(&params(first.flow, 1, 2, 0));
    assert_eq!(rig.hello(&hello(1)), Some(first), "also once bound");
    assert_eq!(
        (rig.count("hellos_accepted"), rig.count("hellos_repeated")),
        (1, 2)
    );
}

// shows: AMB-HELLONEW
#[test]
fn a_new_nonce_replaces_the_binding_only_with_its_parameters() {
    let mut rig = Rig::bound(config(), 2, 1000);
    let old = rig.flow;
    let new = rig.hello(&hello(2)).unwrap().flow;
    assert_ne!(new, old);
    assert_eq!(rig.status().life, Life::Rebinding);
    assert_eq!(
        rig.update(&params(old, 2, 1, 2000)),
        Some(0),
        "the old binding works on"
    );
    assert_eq!(
        rig.update(&ParamUpdate {
            k: 0,
            ..params(new, 1, 1, 2000)
        }),
        Some(2)
    );
    assert_eq!(
        rig.status().flow,
        Some(old),
        "refused parameters bind nothing"
    );
    rig.burst(&[1001]);
    assert_eq!(rig.status().held, 1);
    assert_eq!(rig.update(&params(new, 1, 1, 2000)), Some(0));
    assert_eq!(rig.taken(), [1001], "what was held goes out");
    assert_eq!(
        (rig.status().life, rig.status().flow),
        (Life::Bound, Some(new))
    );
    assert_eq!(rig.update(&params(old, 3, 1, 2000)), None);
    assert_eq!(rig.count("unknown_flow"), 1);
}

// shows: AMB-PEERADDR, AMB-HELLONEW
#[test]
fn a_stranger_cannot_take_a_bound_flow() {
    let mut rig = Rig::bound(config(), 2, 1000);
    let stranger: SocketAddr = "192.0.2.9:50000".parse().unwrap();
    rig.message_from(stranger, &Message::Hello(hello(5)));
    assert!(rig.sent.is_empty());
    assert_eq!(rig.count("hellos_of_strangers"), 1);
    let flow = rig.flow;
    rig.message_from(stranger, &Message::ParamUpdate(params(flow, 2, 0, 0)));
    rig.message_from(stranger, &Message::Close(Close { flow, reason: 0 }));
    let header = rig.header(1000, 0);
    rig.repair_from(stranger, &header, false);
    assert_eq!(rig.count("wrong_peer"), 3);
    assert_eq!(rig.status().life, Life::Bound);
}

// shows: CREM-OPS-02, AMB-HELLONEW
#[test]
fn forged_hellos_are_bounded_and_unbind_nothing() {
    let mut rig = Rig::bound(config(), 2, 1000);
    let flow = rig.flow;
    for nonce in 100..400 {
        assert!(rig.hello(&hello(nonce)).is_some());
    }
    assert_eq!(rig.status().flow, Some(flow));
    assert!(rig.crf.flows.len() <= 5);
    rig.burst(&[1000]);
    assert_eq!(rig.taken(), [1000]);
}

// shows: CREM-FEC-02, CREM-IANA-01, AMB-REFUSE, AMB-SCHEMEBITS
#[test]
fn what_cannot_be_protected_is_not_answered() {
    let h = hello(1);
    let refused = [
        Hello { kind: 0xc1, ..h },
        Hello { kind: 2, ..h },
        Hello { rdma_mtu: 0, ..h },
        Hello {
            limits: Limits {
                schemes: 0b101,
                ..h.limits
            },
            ..h
        },
        Hello {
            limits: Limits {
                max_k: 0,
                ..h.limits
            },
            ..h
        },
        Hello {
            flow: FlowDescriptor {
                source: "2001:db8::1".parse().unwrap(),
                ..h.flow
            },
            ..h
        },
    ];
    let mut rig = Rig::empty(config());
    for hello in &refused {
        assert_eq!(rig.hello(hello), None);
    }
    rig.message_from("198.51.100.1:50000".parse().unwrap(), &Message::Hello(h));
    assert!(rig.sent.is_empty());
    assert_eq!(rig.count("hellos_refused"), refused.len() as u64 + 1);
    assert_eq!(rig.crf.flows().count(), 0);
    // Bits of schemes that nobody knows are ignored (AMB-SCHEMEBITS).
    let odd = Hello {
        limits: Limits {
            schemes: 0xfff2,
            ..h.limits
        },
        ..h
    };
    assert!(rig.hello(&odd).is_some());
}

// shows: CREM-HELLO-03, AMB-CLOSEPAIR
#[test]
fn flow_ids_are_those_the_caller_can_use() {
    let mut rig = Rig::empty(config());
    for n in 0..50u64 {
        let h = Hello {
            flow: FlowDescriptor {
                qp: Qpn::new(n as u32),
                ..descriptor()
            },
            ..hello(n)
        };
        rig.crf.on_message(
            rig.now,
            rig.csf,
            &Message::Hello(h),
            &|id| id.get() % 4 == 3,
            &mut rig.out,
        );
    }
    rig.settle();
    let ids: std::collections::BTreeSet<_> = rig
        .sent
        .iter()
        .map(|(_, m)| match m {
            Message::HelloAck(ack) => ack.flow.get(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids.len(), 50);
    assert!(ids.iter().all(|id| id % 4 == 3));
    rig.crf.on_message(
        rig.now,
        rig.csf,
        &Message::Hello(hello(77)),
        &|_| false,
        &mut rig.out,
    );
    assert!(rig.crf.poll_transmit().is_none());
    assert_eq!(rig.crf.flows().count(), 50, "no flow is left behind");
}

// shows: CREM-OPS-02, AMB-SCALE
#[test]
fn the_table_and_the_report_budget_bound_the_flows() {
    let mut small = config();
    small.crf.max_flows = 3;
    let mut rig = Rig::empty(small);
    let with_qp = |n: u32| Hello {
        flow: FlowDescriptor {
            qp: Qpn::new(n),
            ..descriptor()
        },
        ..hello(u64::from(n))
    };
    // Bound ones stay, those that were only offered give way.
    let bind = |rig: &mut Rig, n: u32| {
        let Some(ack) = rig.hello(&with_qp(n)) else {
            return false;
        };
        rig.now = rig.now + 50 * MS;
        rig.update(&params(ack.flow, 1, 2, 1000)) == Some(0)
    };
    assert!((0..2).all(|n| bind(&mut rig, n)));
    let forged = (100..200).map(|n| rig.hello(&with_qp(n)).unwrap().flow);
    let forged: Vec<FlowId> = forged.collect();
    assert_eq!(rig.count("offers_evicted"), 99);
    assert!(bind(&mut rig, 2));
    assert_eq!(rig.update(&params(forged[99], 1, 2, 1000)), None);
    assert_eq!(rig.count("unknown_flow"), 1);
    assert_eq!(rig.hello(&with_qp(3)), None);
    assert_eq!(rig.count("flows_refused_full"), 1);
    assert_eq!(rig.crf.flows().count(), 3);
    let mut slow = config();
    slow.crf.report_budget = 100;
    slow.domain_rtt = Some(50 * MS);
    let mut rig = Rig::empty(slow);
    let bound = (0..10).filter(|n| bind(&mut rig, *n)).count();
    assert_eq!(bound, 5, "100 reports a second at one in 50 ms each");
}

// shows: CREM-PARAM-09, CREM-MSG-20, AMB-STATUS, AMB-XORM
#[test]
fn parameters_get_the_status_of_their_fault() {
    let mut rig = Rig::bound(config(), 2, 1000);
    let p = params(rig.flow, 9, 2, 2000);
    let cases = [
        (p, 0),
        (p, 0),
        (ParamUpdate { m: 1, ..p }, 3),
        (
            ParamUpdate {
                config: ConfigId(10),
                scheme: 0,
                ..p
            },
            1,
        ),
        (
            ParamUpdate {
                config: ConfigId(10),
                scheme: 3,
                ..p
            },
            1,
        ),
        (
            ParamUpdate {
                config: ConfigId(10),
                k: 65,
                ..p
            },
            2,
        ),
        (
            ParamUpdate {
                config: ConfigId(10),
                m: 9,
                ..p
            },
            2,
        ),
        (
            ParamUpdate {
                config: ConfigId(10),
                scheme: 2,
                m: 2,
                ..p
            },
            2,
        ),
        (
            ParamUpdate {
                config: ConfigId(10),
                scheme: 2,
                m: 1,
                ..p
            },
            0,
        ),
    ];
    for (update, status) in cases {
        assert_eq!(rig.update(&update), Some(status), "{update:?}");
    }
    let mut tiny = config();
    tiny.crf.keep_packets = 7;
    let mut rig = Rig::empty(tiny);
    let flow = rig.hello(&hello(1)).unwrap().flow;
    assert_eq!(
        rig.update(&params(flow, 1, 2, 0)),
        Some(3),
        "no memory for a block"
    );
    assert_eq!(rig.status().life, Life::Offered);
}

// shows: CREM-MSG-29
#[test]
fn close_from_the_csf_releases_everything() {
    let mut rig = Rig::bound(config(), 2, 1000);
    rig.burst(&[1001, 1002]);
    rig.ordinary(1000, 0);
    assert_eq!(rig.taken(), [] as [u32; 0]);
    rig.close(CloseReason::CircuitBreaker);
    assert_eq!(rig.taken(), [1001, 1002]);
    assert_eq!(rig.crf.flows().count(), 0);
    assert_eq!(rig.crf.references(), References::default());
    assert!(rig.crf.next_timeout().is_none());
    let events: Vec<_> = core::iter::from_fn(|| rig.crf.poll_event()).collect();
    assert_eq!(
        events,
        [
            Event::FlowProtected(key()),
            Event::FlowUnprotected(key(), Unprotected::ClosedByPeer(4))
        ]
    );
    rig.burst(&[1005]);
    assert_eq!(rig.taken(), [1005]);
}

#[test]
fn an_offer_can_be_withdrawn() {
    let mut rig = Rig::empty(config());
    rig.flow = rig.hello(&hello(1)).unwrap().flow;
    rig.close(CloseReason::Normal);
    assert_eq!((rig.crf.flows().count(), rig.crf.flows.len()), (0, 0));
}

// shows: CREM-MSG-29, CREM-MSG-30, AMB-CLOSE
#[test]
fn silence_ends_a_binding_with_close_1() {
    let mut rig = Rig::bound(config(), 2, 1000);
    rig.wait(config().crf.idle - MS);
    assert_eq!(rig.crf.flows().count(), 1);
    rig.wait(2 * MS);
    assert_eq!(rig.crf.flows().count(), 0);
    assert!(matches!(
        rig.sent.last(),
        Some((_, Message::Close(Close { reason: 1, .. })))
    ));
    assert_eq!(rig.crf.references(), References::default());
    let mut rig = Rig::empty(config());
    rig.hello(&hello(1));
    rig.wait(Duration::from_secs(61));
    assert_eq!(rig.crf.flows().count(), 0, "offers end as well");
    assert!(rig.crf.flows.is_empty() && rig.sent.is_empty());
}

#[test]
fn other_modes_than_active_end_and_refuse_flows() {
    for mode in [Mode::Passthrough, Mode::Monitor] {
        let mut rig = Rig::bound(config(), 2, 1000);
        rig.burst(&[1002]);
        let mut off = config();
        off.mode = mode;
        rig.crf.set_config(rig.now, off, &mut rig.out);
        rig.settle();
        assert_eq!(rig.taken(), [1002]);
        assert!(matches!(
            rig.sent.pop(),
            Some((_, Message::Close(Close { reason: 0, .. })))
        ));
        assert_eq!(rig.hello(&hello(3)), None);
        rig.burst(&[1003, 1009]);
        assert_eq!(rig.taken(), [1003, 1009]);
    }
}

// shows: AMB-TENANT
#[test]
fn one_namespace_of_a_triple_is_protected() {
    let mut rig = Rig::bound(config(), 2, 1000);
    let mut other = rig.desc(5000);
    other.key.namespace = Namespace(9);
    rig.descs(&[other]);
    assert_eq!(rig.taken(), [5000]);
    assert_eq!(rig.count("namespace_conflicts"), 1);
    rig.burst(&[1000]);
    assert_eq!(rig.status().figures.sources, 81);
}

#[test]
fn other_messages_are_counted() {
    let mut rig = Rig::bound(config(), 2, 1000);
    let flow = rig.flow;
    rig.message(&Message::ParamAck(ParamAck {
        flow,
        config: ConfigId(1),
        status: 0,
    }));
    assert_eq!(rig.count("unexpected_messages"), 1);
}

// shows: AMB-CRFRTT
#[test]
fn rtt_comes_from_the_exchange_and_is_shared_by_the_peer() {
    let mut rig = Rig::bound(config(), 2, 1000);
    assert_eq!(
        (rig.status().srtt, rig.status().min_rtt),
        (Some(RTT), Some(RTT))
    );
    // A second flow of the peer: its PARAM_UPDATE comes much later than the RTT, so it is no sample.
    let h = Hello {
        flow: FlowDescriptor {
            qp: Qpn::new(99),
            ..descriptor()
        },
        ..hello(9)
    };
    let flow = rig.hello(&h).unwrap().flow;
    rig.now = rig.now + 2 * RTT;
    assert_eq!(rig.update(&params(flow, 1, 2, 0)), Some(0));
    assert!(rig.crf.flows().all(|f| f.srtt == Some(RTT)));
}

// shows: CREM-HELLO-03, AMB-FLOWID0
#[test]
fn flow_ids_are_drawn_at_random_and_never_twice() {
    let draw = |seed: u8| {
        let mut crf: Crf<Buf> = Crf::new(config(), [seed; 32]);
        let (mut out, mut ids) = (Actions::default(), Vec::new());
        for n in 0..1024u32 {
            let h = Hello {
                flow: FlowDescriptor {
                    qp: Qpn::new(n),
                    ..descriptor()
                },
                ..hello(1)
            };
            let csf = "192.0.2.1:50000".parse().unwrap();
            crf.on_message(Instant(0), csf, &Message::Hello(h), &|_| true, &mut out);
            match crf.poll_transmit().map(|t| t.message) {
                Some(Message::HelloAck(ack)) => ids.push(ack.flow.get()),
                other => panic!("{other:?}"),
            }
        }
        ids
    };
    let (a, b) = (draw(1), draw(2));
    let all: std::collections::BTreeSet<u32> = a.iter().chain(&b).copied().collect();
    assert!(all.len() >= 2046, "another seed draws others");
    assert_eq!(
        a.iter().collect::<std::collections::BTreeSet<_>>().len(),
        1024
    );
    for bit in 0..32 {
        let ones = a.iter().filter(|id| *id >> bit & 1 == 1).count();
        assert!((400..=624).contains(&ones), "bit {bit}: {ones} of 1024");
    }
    let ascending = a.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!((400..=624).contains(&ascending), "{ascending} steps up");
}

// shows: CREM-HELLO-08, CREM-ARCH-02, AMB-SRCPORT
#[test]
fn everything_goes_to_where_hello_came_from() {
    let mut rig = Rig::empty(config());
    // Not the CREM port: the binding counts.
    rig.csf = "192.0.2.77:61000".parse().unwrap();
    rig.message(&Message::Hello(hello(1)));
    let Some((_, Message::HelloAck(ack))) = rig.sent.last() else {
        panic!()
    };
    rig.flow = ack.flow;
    rig.now = rig.now + RTT;
    let update = params(rig.flow, 1, 0, 1000);
    rig.message(&Message::ParamUpdate(update));
    for n in 0..40 {
        rig.now = rig.now + 20 * US;
        rig.burst(&[1000 + 2 * n, 1001 + 2 * n]);
    }
    rig.burst(&[1081]);
    rig.wait(Duration::from_secs(70));
    let kinds: std::collections::BTreeSet<_> =
        rig.sent.iter().map(|(_, m)| m.message_type()).collect();
    assert_eq!(
        kinds.len(),
        5,
        "HELLO_ACK, PARAM_ACK, LOSS_REPORT, REPAIR_REQUEST, CLOSE: {kinds:?}"
    );
    assert!(rig.sent.iter().all(|(to, _)| *to == rig.csf));
}
