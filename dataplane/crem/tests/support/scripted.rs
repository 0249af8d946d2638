//! A sender function with one protected flow and a peer that answers at once: for measuring what a packet
//! costs.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use crem_core::actions::{Actions, SlotId};
use crem_core::config::{CoreConfig, Prefix};
use crem_core::csf::Csf;
use crem_core::learn::{Ack, Direction};
use crem_core::packet::{Desc, Namespace, PsnSpace, StreamKey};
use crem_core::time::{Duration, Instant};
use crem_wire::crem::{HelloAck, LossReport, Message, ParamAck};
use crem_wire::{FlowId, Psn, Qpn};

type Buf = Rc<Vec<u8>>;

/// The flow, its clock and its next PSN.
pub(crate) struct Scripted {
    pub(crate) csf: Csf<Buf>,
    pub(crate) out: Actions<Buf>,
    pub(crate) now: Instant,
    pub(crate) symbols: u64,
    reported: u64,
    psn: u32,
    burst: Vec<Desc<Buf>>,
    flow: FlowId,
}

fn peer() -> SocketAddr {
    SocketAddr::new(IpAddr::from([192, 0, 2, 2]), 50_000)
}

impl Scripted {
    /// A flow in bursts of `burst` packets, protected with `m` symbols a block.
    pub(crate) fn new(burst: usize, m: u8) -> Self {
        let mut cfg = CoreConfig::new(50_000);
        cfg.allowed_peers = vec![Prefix::host(peer().ip())];
        (cfg.fec.m_min, cfg.fec.m_max) = (m, m);
        cfg.fec.adapt_k = false;
        cfg.csf.learn = true;
        let desc = Desc {
            key: StreamKey {
                namespace: Namespace(0),
                source: IpAddr::from([10, 0, 1, 1]),
                destination: IpAddr::from([10, 0, 2, 1]),
                qp: Qpn::new(17),
                space: PsnSpace::Requests,
            },
            psn: Psn::new(0),
            opcode: 7,
            payload_len: 1040,
            payload_off: 42,
            mtu_seen: Some(1024),
            read_length: None,
            ce: false,
            dscp: 26,
            buf: Rc::new(vec![0; 1100]),
        };
        let free_slots = (0..1024).map(SlotId).collect();
        let mut scripted = Self {
            csf: Csf::new(cfg, [1; 32]),
            out: Actions {
                free_slots,
                ..Actions::default()
            },
            now: Instant(1_000_000_000),
            symbols: 0,
            reported: 0,
            psn: 0,
            burst: vec![desc; burst],
            flow: FlowId::new(77).expect("not zero"),
        };
        while !scripted.is_protected() {
            scripted.burst();
        }
        scripted
    }

    pub(crate) fn is_protected(&self) -> bool {
        self.csf.flows().any(|flow| flow.unprotected.is_none())
    }

    /// One burst of the flow, the timers, and whatever the peer has to answer.
    pub(crate) fn burst(&mut self) {
        for packet in &mut self.burst {
            packet.psn = Psn::new(self.psn);
            self.psn += 1;
        }
        self.now = self.now + Duration::from_micros(10);
        self.csf.on_burst(self.now, &self.burst, &mut self.out);
        if self.csf.next_timeout().is_some_and(|at| at <= self.now) {
            self.csf.on_timeout(self.now, &mut self.out);
        }
        self.symbols += self.out.emit.len() as u64;
        let slots = self.out.emit.iter().filter_map(|emit| emit.slot);
        self.out.free_slots.extend(slots);
        self.out.clear();
        while let Some(transmit) = self.csf.poll_transmit() {
            self.answer(&transmit.message);
        }
        while self.csf.poll_event().is_some() {}
    }

    /// The host acknowledges all but the last few packets.
    pub(crate) fn ack(&mut self) {
        let way = Direction {
            namespace: Namespace(0),
            from: IpAddr::from([10, 0, 2, 1]),
            to: IpAddr::from([10, 0, 1, 1]),
        };
        let ack = Ack {
            way,
            qp: Qpn::new(18),
            psn: Psn::new(self.psn.wrapping_sub(4)),
            negative: false,
            mtu: None,
        };
        self.csf.on_ack(self.now, &ack);
    }

    /// A report without loss.
    pub(crate) fn report(&mut self) {
        let report = LossReport {
            flow: self.flow,
            interval_us: 20_000,
            expected: 1000,
            received: 1000,
            restored: 0,
            incomplete_blocks: 0,
            ce_marked: 0,
            repairs_received: u32::try_from(self.symbols - self.reported).unwrap_or(u32::MAX),
            repairs_ce_marked: 0,
        };
        self.reported = self.symbols;
        let message = Message::LossReport(report);
        self.csf
            .on_message(self.now, peer(), &message, false, &mut self.out);
    }

    fn answer(&mut self, message: &Message) {
        let flow = self.flow;
        let answer = match message {
            Message::Hello(hello) => Message::HelloAck(HelloAck {
                flow,
                kind: hello.kind,
                af: 4,
                limits: hello.limits,
                rdma_mtu: hello.rdma_mtu,
                nonce: hello.nonce,
                max_open_blocks: 4096,
            }),
            Message::ParamUpdate(update) => Message::ParamAck(ParamAck {
                flow,
                config: update.config,
                status: 0,
            }),
            _ => return,
        };
        self.csf.on_message(
            self.now + Duration::from_micros(500),
            peer(),
            &answer,
            false,
            &mut self.out,
        );
    }
}
