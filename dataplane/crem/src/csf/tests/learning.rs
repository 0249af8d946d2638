//! What the sender function learns from the connection manager and from acknowledgments, and that it does
//! without.

use crem_wire::crem::Message;
use crem_wire::crem::registry::CloseReason;
use crem_wire::roce::{CmMessage, CommId};
use crem_wire::{Psn, Qpn};

use super::rig::{MS, RTT, Rig, config};
use crate::actions::RepairKind;
use crate::config::CoreConfig;
use crate::csf::State;
use crate::csf::testing::{desc, key};
use crate::learn::{Ack, Direction, Managed};
use crate::packet::{Desc, PsnSpace, StreamKey};

/// The queue pair of the sending host in all connections here.
const OWN_QP: Qpn = Qpn::new(0x50);

fn on() -> CoreConfig {
    let mut cfg = config();
    cfg.responses = true;
    cfg.csf.learn = true;
    cfg
}

fn there() -> Direction {
    Direction::of(&key(1))
}

impl Rig {
    /// The host of our flows connects to queue pair `qp` of the other.
    fn connect(&mut self, comm: u32, qp: u32, mtu: Option<u16>) {
        let request = Managed {
            way: there(),
            message: CmMessage::Request {
                local: CommId(comm),
                qp: OWN_QP,
                first: Psn::new(17),
                mtu,
            },
        };
        let reply = Managed {
            way: there().reversed(),
            message: CmMessage::Reply {
                local: CommId(comm + 1),
                remote: CommId(comm),
                qp: Qpn::new(qp),
                first: Psn::new(0),
            },
        };
        for managed in [request, request, reply, reply] {
            self.csf.on_managed(self.now, &managed);
        }
        self.packets(&[]);
    }

    fn disconnect(&mut self, comm: u32) {
        let message = CmMessage::Disconnect {
            local: CommId(comm),
            remote: CommId(comm + 1),
            qp: Qpn::new(0),
        };
        let way = there();
        self.csf.on_managed(self.now, &Managed { way, message });
        self.packets(&[]);
    }

    fn ack(&mut self, psn: u32, negative: bool) {
        let ack = Ack {
            way: there().reversed(),
            qp: OWN_QP,
            psn: Psn::new(psn),
            negative,
            mtu: None,
        };
        self.csf.on_ack(self.now, &ack);
    }

    fn retained(&self) -> u32 {
        self.csf.retained().0
    }

    fn hello_mtus(&self) -> Vec<u16> {
        let mtu = |m: &Message| match m {
            Message::Hello(hello) => Some(hello.rdma_mtu),
            _ => None,
        };
        self.messages.iter().filter_map(|m| mtu(&m.2)).collect()
    }
}

// shows: AMB-RDMAMTU
#[test]
fn a_connection_tells_the_rdma_mtu_before_the_first_hello() {
    let mut rig = Rig::new(on());
    rig.connect(7, 1, Some(512));
    rig.psns(key(1), 0..16);
    assert_eq!(rig.hello_mtus(), [512]);
    rig.wait(RTT);
    let back = StreamKey {
        space: PsnSpace::Responses,
        ..key(1)
    };
    rig.psns(back, 0..16);
    assert_eq!(rig.hello_mtus().last(), Some(&512));
    rig.psns(key(2), 0..16);
    assert_eq!(
        rig.hello_mtus().last(),
        Some(&1024),
        "of another connection"
    );
}

// shows: AMB-QPREUSE
#[test]
fn a_new_connection_ends_what_its_queue_pair_carried_before() {
    let mut rig = Rig::new(on());
    rig.connect(7, 1, None);
    let next = rig.protect(key(1), 5000);
    assert!(
        rig.closes().is_empty(),
        "a connection of its own flow ends nothing"
    );
    rig.connect(9, 1, None);
    assert_eq!(
        rig.closes().iter().map(|c| c.reason).collect::<Vec<_>>(),
        [CloseReason::FlowEnded.code()]
    );
    assert_eq!(rig.status(key(1)).state, State::Observing);
    assert_eq!(rig.retained(), 0);
    // PSNs that the former use had passed are new ones.
    assert!(next > 5000);
    rig.protect(key(1), 4000);
}

// shows: AMB-CLOSE
#[test]
fn the_end_of_a_connection_ends_its_flow() {
    let mut rig = Rig::new(on());
    rig.connect(7, 1, None);
    let next = rig.protect(key(1), 0);
    rig.psns(key(1), next..next + 64);
    rig.disconnect(7);
    let close = rig.closes()[0];
    assert_eq!(close.reason, CloseReason::FlowEnded.code());
    assert_eq!((rig.csf.flows().count(), rig.retained()), (0, 0));
    rig.protect(key(1), 0);
}

// shows: AMB-ACKMAP
#[test]
fn acknowledged_blocks_let_go_of_their_packets_and_keep_their_description() {
    let mut rig = Rig::new(on());
    rig.connect(7, 1, None);
    let next = rig.protect(key(1), 0);
    rig.wait(300 * MS);
    assert_eq!(rig.retained(), 0);
    rig.psns(key(1), next..next + 96);
    let blocks: Vec<_> = [0, 32, 64]
        .iter()
        .filter_map(|at| {
            let start = Psn::new(next + at);
            let of = |s: &&super::rig::Sent| s.emit.header.block_start == start;
            rig.sent.iter().find(of).cloned()
        })
        .collect();
    assert_eq!((rig.retained(), blocks.len()), (96, 3));
    rig.ack(next + 40, false);
    assert_eq!(rig.retained(), 1 + 64, "a description counts as a packet");
    rig.ack(next + 64, true);
    assert_eq!(rig.retained(), 2 + 32, "all before a NAK's PSN has arrived");
    rig.ack(next + 10, false);
    rig.ack(next + 94, false);
    rig.ack(next + 95, true);
    assert_eq!(rig.retained(), 2 + 32);
    rig.sent.clear();
    for (n, block) in (1..).zip(&blocks) {
        let request = rig.request(key(1), block, &[3], 0, n);
        rig.deliver(&Message::BlockRequest(request));
    }
    let kinds: Vec<_> = rig.sent.iter().map(|s| s.emit.kind).collect();
    assert_eq!(
        kinds,
        [RepairKind::Info, RepairKind::Info, RepairKind::Coded]
    );
    assert_eq!(rig.csf.counters().requests_acknowledged, 2);
    assert_eq!(rig.csf.counters().retain_acknowledged, 64);
    // A range is answered as well: with what the positions were.
    rig.wait(RTT);
    rig.sent.clear();
    let ranges = rig.ranges(key(1), &[(next + 5, 1)], 9);
    rig.deliver(&Message::RangeRequest(ranges));
    assert_eq!(rig.sent.len(), 1);
    assert_eq!(
        rig.sent[0].emit.header.present,
        blocks[0].emit.header.present
    );
    rig.wait(300 * MS);
    assert_eq!(rig.retained(), 0);
}

// shows: AMB-ACKMAP
#[test]
fn nothing_is_let_go_of_by_what_cannot_be_an_acknowledgment() {
    let mut rig = Rig::new(on());
    rig.connect(7, 1, None);
    let next = rig.protect(key(1), 0);
    rig.wait(300 * MS);
    rig.psns(key(1), next..next + 64);
    rig.ack(next + 64, false);
    rig.ack(next.wrapping_sub(1 << 23), false);
    assert_eq!(rig.retained(), 64, "beyond what was sent");
    assert_eq!(rig.csf.counters().acks_unmatched, 2);
}

// shows: AMB-ACKMAP
#[test]
fn acknowledgments_are_matched_by_their_psns() {
    let mut rig = Rig::new(on());
    let mut next = rig.protect(key(1), 0x40_0000);
    rig.protect(key(2), 0);
    rig.wait(300 * MS);
    for n in 0..40 {
        rig.psns(key(1), next..next + 8);
        next += 8;
        rig.ack(next - 1, false);
        rig.wait(MS);
        let freed = rig.csf.counters().retain_acknowledged > 0;
        assert!(n >= 16 || !freed, "believed too early: {n}");
    }
    assert!(rig.csf.counters().retain_acknowledged > 0);
    // An acknowledgment of what was never sent: not believed any more.
    let before = rig.csf.counters().retain_acknowledged;
    rig.ack(next + 500, false);
    rig.psns(key(1), next..next + 64);
    rig.ack(next + 63, false);
    assert_eq!(rig.csf.counters().retain_acknowledged, before);
}

// shows: AMB-ACKMAP
#[test]
fn flows_in_step_are_not_told_apart_by_psns() {
    let mut rig = Rig::new(on());
    let mut next = rig.protect(key(1), 0).max(rig.protect(key(2), 0));
    for _ in 0..100 {
        rig.psns(key(1), next..next + 8);
        rig.psns(key(2), next..next + 8);
        next += 8;
        rig.ack(next - 1, false);
        rig.wait(MS);
    }
    assert_eq!(rig.csf.counters().retain_acknowledged, 0);
}

// shows: AMB-ACKMAP, AMB-KEEP
#[test]
fn nothing_is_learned_unless_switched_on() {
    let mut rig = Rig::new(config());
    rig.connect(7, 1, Some(512));
    let next = rig.protect(key(1), 0);
    rig.wait(300 * MS);
    rig.psns(key(1), next..next + 64);
    rig.ack(next + 63, false);
    rig.disconnect(7);
    rig.connect(9, 1, Some(512));
    assert_eq!((rig.retained(), rig.closes().len()), (64, 0));
    assert!(rig.hello_mtus().iter().all(|mtu| *mtu == 1024));
    let counters = rig.csf.counters();
    assert_eq!((counters.acks, counters.connection_messages), (0, 0));
}

/// A READ of `octets`, and the first response to it.
fn read(rig: &mut Rig, psn: u32, octets: u32, mtu: u16) {
    let request = Desc {
        opcode: 0x0c,
        payload_len: 32,
        read_length: Some(octets),
        ..desc(key(1), psn)
    };
    rig.packets(&[request]);
    rig.wait(MS);
    let way = there().reversed();
    let ack = Ack::of_response(way, OWN_QP, Psn::new(psn), 0x0d, Some(mtu));
    rig.csf.on_ack(rig.now, &ack.unwrap());
}

// shows: AMB-RDMAMTU
#[test]
fn responses_to_reads_tell_the_rdma_mtu_of_the_requests() {
    for learns in [true, false] {
        let mut cfg = on();
        cfg.csf.learn = learns;
        cfg.csf.start_after = 40;
        let mut rig = Rig::new(cfg);
        // What follows the READs goes another way, so that no PSN tells how far their spans reach.
        for n in 0..40 {
            read(&mut rig, 100 * n, 8192, 4096);
        }
        let expected = if learns { 4096 } else { 1024 };
        // The first one may have been sent again by now.
        let mtus = rig.hello_mtus();
        assert!(!mtus.is_empty() && mtus.iter().all(|mtu| *mtu == expected));
    }
}

// shows: AMB-RDMAMTU
#[test]
fn responses_of_an_unknown_queue_pair_tell_nothing() {
    let mut rig = Rig::new(on());
    rig.psns(key(1), 0..15);
    // PSNs that the flow never had.
    for n in 0..40 {
        let way = there().reversed();
        let ack = Ack::of_response(way, OWN_QP, Psn::new(90_000 + n), 0x0d, Some(4096));
        rig.csf.on_ack(rig.now, &ack.unwrap());
    }
    rig.psns(key(1), 15..16);
    assert_eq!(rig.hello_mtus(), [1024]);
}
