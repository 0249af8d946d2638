//! A sender function with a scripted peer: answers HELLO and PARAM_UPDATE, collects REPAIR.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use crem_wire::crem::{
    BlockRequest, Close, HelloAck, Limits, LossReport, Message, ParamAck, ParamUpdate, PsnRange,
    RangeRequest,
};
use crem_wire::{Bitmap, FlowId, Psn, RequestId};

use crate::actions::{Actions, Emit, SlotId};
use crate::config::{CoreConfig, Prefix};
use crate::csf::testing::desc;
use crate::csf::{Csf, FlowStatus};
use crate::events::Event;
use crate::packet::{Desc, StreamKey};
use crate::time::{Duration, Instant};

pub(super) const MS: Duration = Duration::from_millis(1);
/// Round-trip time to the scripted peer.
pub(super) const RTT: Duration = Duration::from_millis(20);

/// A symbol as it was sent: its header and the sources it covers.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) emit: Emit,
    pub(super) over: Vec<u8>,
    pub(super) at: Instant,
}

pub(super) struct Rig {
    pub(super) csf: Csf<u32>,
    pub(super) now: Instant,
    pub(super) actions: Actions<u32>,
    pub(super) sent: Vec<Sent>,
    pub(super) messages: Vec<(Instant, SocketAddr, Message, bool)>,
    pub(super) events: Vec<Event>,
    pub(super) limits: Limits,
    pub(super) max_open_blocks: u16,
    next_id: u32,
    /// HELLO and PARAM_UPDATE are answered after one RTT, or not at all.
    pub(super) answer: bool,
    /// HELLO of this Flow Kind is not answered.
    pub(super) deaf_to: Option<u8>,
    replies: Vec<(Instant, Message)>,
}

pub(super) fn gateway() -> SocketAddr {
    SocketAddr::new(IpAddr::from([192, 0, 2, 2]), 50_000)
}

pub(super) fn config() -> CoreConfig {
    let mut cfg = CoreConfig::new(50_000);
    cfg.allowed_peers = alloc::vec![Prefix::host(gateway().ip())];
    cfg.fec.initial_loss_ppm = 500;
    // Blocks of 32 wherever the length is not what is tested.
    cfg.fec.adapt_k = false;
    cfg
}

impl Rig {
    pub(super) fn new(cfg: CoreConfig) -> Self {
        let free_slots = (0..4096).map(SlotId).collect();
        let actions = Actions {
            free_slots,
            ..Actions::default()
        };
        Self {
            csf: Csf::new(cfg, [7; 32]),
            now: Instant(1_000_000_000),
            actions,
            sent: Vec::new(),
            messages: Vec::new(),
            events: Vec::new(),
            limits: Limits {
                schemes: 0b111,
                max_k: 128,
                max_m: 16,
                max_t: 4200,
            },
            max_open_blocks: 1024,
            next_id: 100,
            answer: true,
            deaf_to: None,
            replies: Vec::new(),
        }
    }

    /// Passes time, serving timers and due replies on the way.
    pub(super) fn wait(&mut self, span: Duration) {
        let until = self.now + span;
        loop {
            let reply = self.replies.iter().map(|r| r.0).min();
            let next = [reply, self.csf.next_timeout()].into_iter().flatten().min();
            let Some(next) = next.filter(|at| *at <= until) else {
                break;
            };
            self.now = self.now.max(next);
            if let Some(index) = self.replies.iter().position(|r| r.0 <= self.now) {
                let (_, message) = self.replies.remove(index);
                self.deliver(&message);
            }
            self.csf.on_timeout(self.now, &mut self.actions);
            self.collect();
        }
        self.now = until;
    }

    pub(super) fn packets(&mut self, burst: &[Desc<u32>]) {
        self.csf.on_burst(self.now, burst, &mut self.actions);
        self.collect();
    }

    /// Packets with these PSNs, all at once.
    pub(super) fn psns(&mut self, key: StreamKey, psns: impl IntoIterator<Item = u32>) {
        let burst: Vec<_> = psns.into_iter().map(|psn| desc(key, psn)).collect();
        self.packets(&burst);
    }

    /// Packets with these PSNs, `gap` apart.
    pub(super) fn paced(
        &mut self,
        key: StreamKey,
        psns: impl IntoIterator<Item = u32>,
        gap: Duration,
    ) {
        for psn in psns {
            self.psns(key, [psn]);
            self.wait(gap);
        }
    }

    pub(super) fn deliver(&mut self, message: &Message) {
        self.deliver_from(gateway(), message);
    }

    pub(super) fn deliver_from(&mut self, from: SocketAddr, message: &Message) {
        self.csf
            .on_message(self.now, from, message, false, &mut self.actions);
        self.collect();
    }

    fn collect(&mut self) {
        let actions = &mut self.actions;
        let mut rows = actions.rows.iter();
        for job in &actions.code {
            for row in &actions.rows[job.rows.start as usize..job.rows.end as usize] {
                let emit = actions
                    .emit
                    .iter()
                    .find(|e| e.slot == Some(row.slot))
                    .cloned();
                let emit = emit.expect("every row is emitted");
                assert_eq!(
                    (emit.header.index, emit.header.symbol_length),
                    (row.index, job.t)
                );
                assert_eq!(emit.header.scheme, job.scheme);
                let sources =
                    &actions.sources[job.sources.start as usize..job.sources.end as usize];
                for source in sources {
                    let psn = emit.header.block_start.add(i32::from(source.position));
                    assert_eq!(psn.get(), source.buf, "the frame at its position");
                }
                let over = sources.iter().map(|s| s.position).collect();
                self.sent.push(Sent {
                    emit,
                    over,
                    at: self.now,
                });
                rows.next();
            }
        }
        assert_eq!(rows.next(), None, "every row belongs to a job");
        for emit in actions.emit.iter().filter(|e| e.slot.is_none()) {
            self.sent.push(Sent {
                emit: emit.clone(),
                over: Vec::new(),
                at: self.now,
            });
        }
        let slots: Vec<_> = actions.emit.iter().filter_map(|e| e.slot).collect();
        actions.free_slots.extend(slots);
        actions.clear();
        while let Some(transmit) = self.csf.poll_transmit() {
            if self.answer {
                self.reply(&transmit.message);
            }
            self.messages.push((
                self.now,
                transmit.to,
                transmit.message,
                transmit.along.is_some(),
            ));
        }
        while let Some(event) = self.csf.poll_event() {
            self.events.push(event);
        }
    }

    fn reply(&mut self, message: &Message) {
        let reply = match message {
            Message::Hello(hello) if self.deaf_to != Some(hello.kind) => {
                self.next_id += 1;
                Message::HelloAck(HelloAck {
                    flow: FlowId::new(self.next_id).unwrap(),
                    kind: hello.kind,
                    af: if hello.flow.source.is_ipv4() { 4 } else { 6 },
                    limits: self.limits,
                    rdma_mtu: hello.rdma_mtu,
                    nonce: hello.nonce,
                    max_open_blocks: self.max_open_blocks,
                })
            }
            Message::ParamUpdate(update) => Message::ParamAck(ParamAck {
                flow: update.flow,
                config: update.config,
                status: 0,
            }),
            _ => return,
        };
        self.replies.push((self.now + RTT, reply));
    }

    /// Forgets replies under way.
    pub(super) fn drop_replies(&mut self) {
        self.replies.clear();
    }

    pub(super) fn hellos(&self) -> Vec<(Instant, u64)> {
        let hello = |m: &(Instant, SocketAddr, Message, bool)| match m.2 {
            Message::Hello(hello) => Some((m.0, hello.nonce)),
            _ => None,
        };
        self.messages.iter().filter_map(hello).collect()
    }

    pub(super) fn updates(&self) -> Vec<(Instant, ParamUpdate)> {
        let update = |m: &(Instant, SocketAddr, Message, bool)| match m.2 {
            Message::ParamUpdate(update) => Some((m.0, update)),
            _ => None,
        };
        self.messages.iter().filter_map(update).collect()
    }

    pub(super) fn closes(&self) -> Vec<Close> {
        let close = |m: &(Instant, SocketAddr, Message, bool)| match m.2 {
            Message::Close(close) => Some(close),
            _ => None,
        };
        self.messages.iter().filter_map(close).collect()
    }

    pub(super) fn status(&self, key: StreamKey) -> FlowStatus {
        self.csf.flows().find(|f| f.key == key).expect("a flow")
    }

    pub(super) fn flow_id(&self, key: StreamKey) -> FlowId {
        self.status(key).bound.expect("bound").1
    }

    /// Brings a flow to protection and returns the PSN after the last packet; the next packet starts a
    /// block.
    pub(super) fn protect(&mut self, key: StreamKey, first: u32) -> u32 {
        let mut psn = first;
        for _ in 0..100_000 {
            self.psns(key, [psn & 0xff_ffff]);
            self.wait(MS / 10);
            psn = psn.wrapping_add(1);
            if self.status(key).unprotected.is_none() {
                // Let the open block end.
                self.wait(RTT);
                self.sent.clear();
                return psn & 0xff_ffff;
            }
        }
        panic!("never protected: {:?}", self.status(key));
    }

    pub(super) fn report(&mut self, key: StreamKey, expected: u32, received: u32) {
        self.report_with(key, expected, received, 0, 0);
    }

    pub(super) fn report_with(
        &mut self,
        key: StreamKey,
        expected: u32,
        received: u32,
        ce: u32,
        repairs_ce: u32,
    ) {
        let report = LossReport {
            flow: self.flow_id(key),
            interval_us: 20_000,
            expected,
            received,
            restored: expected.saturating_sub(received),
            incomplete_blocks: 0,
            ce_marked: ce,
            repairs_received: 10,
            repairs_ce_marked: repairs_ce,
        };
        self.deliver(&Message::LossReport(report));
    }

    pub(super) fn request(
        &self,
        key: StreamKey,
        block: &Sent,
        lost: &[u8],
        held: u8,
        id: u16,
    ) -> BlockRequest {
        let header = &block.emit.header;
        BlockRequest {
            flow: self.flow_id(key),
            fallback: false,
            config: header.config,
            scheme: 1,
            k: header.k,
            held,
            block_start: header.block_start,
            suggested: (lost.len() as u8).saturating_sub(held),
            request: RequestId::new(id).unwrap(),
            lost: lost.iter().copied().collect::<Bitmap>(),
        }
    }

    pub(super) fn ranges(&self, key: StreamKey, ranges: &[(u32, u8)], id: u16) -> RangeRequest {
        RangeRequest {
            flow: self.flow_id(key),
            fallback: false,
            request: RequestId::new(id).unwrap(),
            ranges: ranges
                .iter()
                .map(|r| PsnRange {
                    start: Psn::new(r.0),
                    count: r.1,
                })
                .collect(),
        }
    }
}
