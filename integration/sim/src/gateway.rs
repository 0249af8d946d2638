//! One gateway: both protocol functions of the product and what its data plane does for them. How
//! packets and messages get to it and away from it is the world's business.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use crem_core::actions::{Actions, Decoded, Delivery, Emit, Transmit};
use crem_core::config::CoreConfig;
use crem_core::crf::{Crf, Payload, Same};
use crem_core::csf::Csf;
use crem_core::events::Event;
use crem_core::packet::Desc;
use crem_wire::crem::{Message, RepairHeader};

use crate::coder::{self, Coder, Made};
use crate::frame::{Frame, Owner};
use crate::rng::mix;
use crate::{Duration, Instant};

/// A gateway while it runs.
pub(crate) struct Gateway {
    pub(crate) csf: Csf<Frame>,
    pub(crate) crf: Crf<Frame>,
    pub(crate) cfg: CoreConfig,
    pub(crate) sending: Owner,
    pub(crate) receiving: Owner,
    out: Actions<Frame>,
    slots: Vec<Option<Made>>,
    /// How long a decode takes, and what is under way.
    pub(crate) decode_takes: Duration,
    decoding: VecDeque<(Instant, Decoded<Frame>)>,
    /// Frames that leave toward the hosts.
    pub(crate) deliver: Vec<(Delivery, Frame)>,
    /// REPAIRs that leave.
    pub(crate) repairs: Vec<(Emit, Option<Made>)>,
    /// Other messages that leave.
    pub(crate) messages: Vec<Transmit<Frame>>,
}

fn seed(of: u64) -> [u8; 32] {
    let mut octets = [0; 32];
    for (place, chunk) in octets.chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&mix(of ^ place as u64).to_le_bytes());
    }
    octets
}

/// Equal packets have equal contents.
fn same(a: &Payload<'_, Frame>, b: &Payload<'_, Frame>) -> bool {
    match (a.buf.as_packet(), b.buf.as_packet()) {
        (Some(a), Some(b)) => (a.content, a.damage) == (b.content, b.damage),
        _ => false,
    }
}

impl Gateway {
    pub(crate) fn new(cfg: CoreConfig, slots: u32, life: u64) -> Self {
        let (free_slots, slots) = coder::slots(slots);
        let mut crf = Crf::new(cfg.clone(), seed(mix(life) ^ 1));
        crf.compare_with(Same(same));
        Self {
            csf: Csf::new(cfg.clone(), seed(mix(life) ^ 2)),
            crf,
            cfg,
            sending: Owner::default(),
            receiving: Owner::default(),
            out: Actions {
                free_slots,
                ..Actions::default()
            },
            slots,
            decode_takes: Duration::ZERO,
            decoding: VecDeque::new(),
            deliver: Vec::new(),
            repairs: Vec::new(),
            messages: Vec::new(),
        }
    }

    /// Packets from the hosts, forwarded already.
    pub(crate) fn on_lan(&mut self, now: Instant, burst: &[Desc<Frame>]) {
        self.csf.on_burst(now, burst, &mut self.out);
        self.crf.on_reverse_burst(now, burst, &mut self.out);
    }

    /// Packets from the WAN.
    pub(crate) fn on_wan(&mut self, now: Instant, burst: &[Desc<Frame>]) {
        self.crf.on_burst(now, burst, &mut self.out);
    }

    /// A REPAIR.
    pub(crate) fn on_repair(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &RepairHeader,
        symbol: Option<Frame>,
        ce: bool,
    ) {
        self.csf.peer_alive(from, None);
        let symbol = symbol.map(|frame| (frame, 0));
        self.crf
            .on_repair(now, from, header, symbol, ce, &mut self.out);
    }

    /// Any other message, to the function that it is for.
    pub(crate) fn on_message(
        &mut self,
        now: Instant,
        from: SocketAddr,
        message: &Message,
        ce: bool,
    ) {
        let Self { csf, crf, out, .. } = self;
        match message {
            Message::Hello(hello) => {
                csf.peer_alive(from, Some(hello.flow.source));
                crf.on_message(now, from, message, &|id| !csf.uses(from, id), out);
            }
            Message::ParamUpdate(update) => {
                csf.peer_alive(from, None);
                crf.on_message(now, from, message, &|_| true, out);
                if let Some(stream) = crf.stream_of(from, update.flow) {
                    csf.peer_met(from, stream.source, stream.space);
                }
            }
            // Both spaces of Flow IDs share address and port (AMB-CLOSEPAIR).
            Message::Close(close) => {
                if csf.uses(from, close.flow) {
                    csf.on_message(now, from, message, ce, out);
                }
                crf.on_message(now, from, message, &|_| true, out);
            }
            _ => csf.on_message(now, from, message, ce, out),
        }
    }

    /// When a timer of either function is due.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        let decoded = self.decoding.front().map(|(at, _)| *at);
        let timers = [self.csf.next_timeout(), self.crf.next_timeout(), decoded];
        timers.into_iter().flatten().min()
    }

    /// Lets timers run that are due; whether any was.
    pub(crate) fn on_timer(&mut self, now: Instant) -> bool {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let (csf, crf) = (due(self.csf.next_timeout()), due(self.crf.next_timeout()));
        if csf {
            self.csf.on_timeout(now, &mut self.out);
        }
        if crf {
            self.crf.on_timeout(now, &mut self.out);
        }
        csf || crf
    }

    /// Takes another configuration.
    pub(crate) fn set_config(&mut self, now: Instant, cfg: CoreConfig) {
        self.csf.set_config(now, cfg.clone());
        self.crf.set_config(now, cfg.clone(), &mut self.out);
        self.cfg = cfg;
    }

    /// Lets go of everything that is held; flows stay.
    pub(crate) fn release(&mut self, now: Instant) {
        self.crf.release_all(now, &mut self.out);
    }

    /// Gives up kept references because buffers run short.
    pub(crate) fn give_up(&mut self, now: Instant, packets: u32) {
        let given = self.csf.give_up(packets);
        self.crf
            .give_up(now, packets.saturating_sub(given), &mut self.out);
    }

    /// Takes leave of the peers and lets everything go.
    pub(crate) fn close(&mut self, now: Instant) {
        use crem_wire::crem::registry::CloseReason;
        self.csf.close_all(CloseReason::Normal);
        self.crf.close_all(now, CloseReason::Normal, &mut self.out);
    }

    /// Carries out what the functions decided, up to what leaves.
    pub(crate) fn settle(&mut self, now: Instant, coder: &mut Coder) {
        while self.decoding.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, mut decoded)) = self.decoding.pop_front() {
                self.crf.on_decoded(now, &mut decoded, &mut self.out);
            }
        }
        let mut next = 0;
        while let Some(job) = self.out.decode.get(next).cloned() {
            next += 1;
            let mut decoded = coder.decode(now, &job, &self.out, &self.receiving);
            if self.decode_takes > Duration::ZERO {
                self.decoding.push_back((now + self.decode_takes, decoded));
            } else {
                self.crf.on_decoded(now, &mut decoded, &mut self.out);
            }
        }
        self.deliver.append(&mut self.out.deliver);
        if !self.out.code.is_empty() {
            coder.code(&self.out, &mut self.slots);
        }
        for emit in self.out.emit.drain(..) {
            let made = emit.slot.and_then(|slot| {
                self.out.free_slots.push(slot);
                self.slots.get_mut(slot.0 as usize)?.take()
            });
            self.repairs.push((emit, made));
        }
        self.out.clear();
        while let Some(transmit) = self.csf.poll_transmit() {
            self.messages.push(transmit);
        }
        while let Some(transmit) = self.crf.poll_transmit() {
            self.messages.push(transmit);
        }
    }

    /// Takes the next event of either function.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.csf.poll_event().or_else(|| self.crf.poll_event())
    }
}

/// The address of the gateway at a side.
pub(crate) fn address(side: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::from([192, 0, 2, 1 + side as u8]), PORT)
}

/// The address of whoever is none of them.
pub(crate) fn stranger() -> SocketAddr {
    SocketAddr::new(IpAddr::from([192, 0, 2, 66]), PORT)
}

/// The address of the Path Reporters.
pub(crate) fn reporter() -> SocketAddr {
    SocketAddr::new(IpAddr::from([192, 0, 2, 99]), PORT)
}

/// The CREM port of the simulated domain.
pub(crate) const PORT: u16 = 50_000;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::scenario::plain;
    use crem_wire::crem::{
        BlockRequest, Close, LossReport, ParamAck, ParamUpdate, PsnRange, RangeRequest,
    };
    use crem_wire::{Bitmap, ConfigId, FlowId, Psn, RequestId};

    /// One message of each type that is addressed to one flow.
    fn messages(flow: FlowId) -> Vec<Message> {
        let request = RequestId::new(1).unwrap();
        let config = ConfigId(1);
        let ranges = vec![PsnRange {
            start: Psn::new(1),
            count: 1,
        }];
        vec![
            Message::ParamUpdate(ParamUpdate {
                flow,
                config,
                scheme: 1,
                k: 8,
                m: 1,
                t: 100,
                effective: Psn::new(1),
            }),
            Message::ParamAck(ParamAck {
                flow,
                config,
                status: 0,
            }),
            Message::BlockRequest(BlockRequest {
                flow,
                fallback: false,
                config,
                scheme: 1,
                k: 8,
                held: 0,
                block_start: Psn::new(1),
                suggested: 1,
                request,
                lost: Bitmap::first(1),
            }),
            Message::RangeRequest(RangeRequest {
                flow,
                fallback: false,
                request,
                ranges: ranges.into_iter().collect(),
            }),
            Message::LossReport(LossReport {
                flow,
                interval_us: 1,
                expected: 1,
                received: 1,
                restored: 0,
                incomplete_blocks: 0,
                ce_marked: 0,
                repairs_received: 0,
                repairs_ce_marked: 0,
            }),
            Message::Close(Close { flow, reason: 0 }),
        ]
    }

    #[test]
    fn each_message_goes_to_the_function_that_it_is_for() {
        let mut gateway = Gateway::new(plain(0, 4400), 16, 1);
        let flow = FlowId::new(7).unwrap();
        for message in messages(flow) {
            gateway.on_message(Instant(1_000_000_000), address(1), &message, false);
        }
        assert_eq!(gateway.crf.counters().unexpected_messages, 0);
        assert_eq!(gateway.csf.counters().unexpected_message, 0);
    }
}
