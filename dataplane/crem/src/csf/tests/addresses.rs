//! Where messages go, and with which DSCP.

use core::net::SocketAddr;
use crem_wire::crem::registry::CloseReason;
use crem_wire::crem::{HelloAck, Message, ParamAck};
use crem_wire::{FlowId, Psn};

use super::rig::{Rig, config, gateway};
use crate::actions::Actions;
use crate::config::CoreConfig;
use crate::csf::Csf;
use crate::csf::testing::{desc, key};
use crate::packet::Desc;

// shows: CREM-HELLO-07, AMB-SRCPORT
#[test]
fn everything_after_hello_ack_goes_to_where_it_came_from() {
    let mut rig = Rig::new(config());
    rig.answer = false;
    rig.psns(key(1), 0..16);
    let Message::Hello(hello) = rig.messages[0].2.clone() else {
        panic!()
    };
    // Not the CREM port: the binding counts.
    let peer = SocketAddr::new(gateway().ip(), 61_000);
    let ack = HelloAck {
        flow: FlowId::new(9).unwrap(),
        kind: 1,
        af: 4,
        limits: rig.limits,
        rdma_mtu: hello.rdma_mtu,
        nonce: hello.nonce,
        max_open_blocks: 1024,
    };
    rig.deliver_from(peer, &Message::HelloAck(ack));
    let update = rig.updates()[0].1;
    let accepted = ParamAck {
        flow: update.flow,
        config: update.config,
        status: 0,
    };
    rig.deliver_from(peer, &Message::ParamAck(accepted));
    rig.psns(key(1), 16..update.effective.get() + 64);
    assert!(!rig.sent.is_empty() && rig.sent.iter().all(|s| s.emit.to == peer));
    rig.csf.close_all(CloseReason::Normal);
    rig.psns(key(1), []);
    let later: Vec<_> = rig.messages[1..]
        .iter()
        .map(|m| (m.1, m.2.message_type()))
        .collect();
    assert!(
        later.len() >= 2 && later.iter().all(|m| m.0 == peer),
        "{later:?}"
    );
    assert_eq!(rig.closes().len(), 1);
}

// shows: CREM-SEC-03, AMB-PEERADDR
#[test]
fn a_request_from_elsewhere_draws_nothing() {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    rig.psns(key(1), psn..psn + 32);
    let block = rig.sent[0].clone();
    rig.sent.clear();
    let request = Message::BlockRequest(rig.request(key(1), &block, &[3, 9], 0, 7));
    for stranger in ["203.0.113.9:50000", "192.0.2.2:50001"] {
        rig.deliver_from(stranger.parse().unwrap(), &request);
    }
    assert!(rig.sent.is_empty());
    assert_eq!(rig.csf.counters().unknown_flow, 2);
    rig.deliver(&request);
    assert_eq!(rig.sent.len(), 2);
    assert!(rig.sent.iter().all(|s| s.emit.to == gateway()));
}

// shows: QOS-DSCP-02, QOS-DSCP-04, CREM-CC-04
#[test]
fn repair_has_the_dscp_of_its_flow() {
    for dscp in [0, 24, 26, 46, 63] {
        let mut cfg = config();
        cfg.control_dscp = Some(48);
        let mut rig = Rig::new(cfg);
        let psn = rig.protect(key(1), 0);
        let with_dscp = |n| Desc {
            dscp,
            ..desc(key(1), Psn::new(psn + n).get())
        };
        let burst: Vec<_> = (0..32).map(with_dscp).collect();
        rig.packets(&burst);
        let symbols = rig.sent.len();
        assert!(symbols > 0);
        let request = rig.request(key(1), &rig.sent[0].clone(), &[1, 2], 0, 7);
        rig.deliver(&Message::BlockRequest(request));
        assert_eq!(rig.sent.len(), symbols + 2);
        assert!(rig.sent.iter().all(|s| s.emit.dscp == dscp), "{dscp}");
    }
}

// shows: QOS-DSCP-04, AMB-CTRLDSCP
#[test]
fn other_messages_have_that_of_the_flow_or_the_operators() {
    let hello = |cfg: CoreConfig| {
        let mut csf = Csf::new(cfg, [7; 32]);
        let mut actions = Actions::default();
        let burst: Vec<_> = (0..16)
            .map(|n| Desc {
                dscp: 24,
                ..desc(key(1), n)
            })
            .collect();
        csf.on_burst(crate::time::Instant(1), &burst, &mut actions);
        csf.poll_transmit().unwrap().dscp
    };
    let mut cfg = config();
    assert_eq!(hello(cfg.clone()), 24);
    cfg.control_dscp = Some(48);
    assert_eq!(hello(cfg), 48);
}
