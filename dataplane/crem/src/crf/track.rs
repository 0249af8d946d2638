//! A bound flow at the receiver: what the other modules of the function work on together, and the small
//! steps that all of them need: times, room, delivery, giving up. Arrivals are in `source.rs`, REPAIRs
//! in `repair.rs`, decisions over time in `recover.rs`, decoding in `decode.rs`.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use crem_fec::RankSolver;
use crem_wire::crem::{Limits, Message};
use crem_wire::{FlowId, Psn, RequestId};
use hashbrown::HashMap;

use super::block::Block;
use super::budget::Budget;
use super::counters::{CrfCounters, CrfTimes};
use super::estimate::{Basis, Passage, Peak, Spacing, Times};
use super::gaps::{Gap, Gaps, earliest};
use super::hold::{Frame, HoldQueue};
use super::pages::Store;
use super::params::Configs;
use super::phase::Means;
use super::replay::{Accepted, Run, Same};
use super::request::Requests;
use super::reverse::{Barred, Reverse};
use super::spare::Spare;
use super::tally::{Step, Tally};
use super::window::{Kept, Seen, Window};
use crate::actions::{Actions, Delivery, Transmit};
use crate::config::CoreConfig;
use crate::events::EventQueue;
use crate::packet::StreamKey;
use crate::rtt::RttEstimator;
use crate::time::{Duration, Instant};

/// PSNs beyond the highest that are still taken for a gap; further ones are a jump.
pub(crate) const MAX_GAP: i32 = 4096;
/// Runs of missing PSNs of a flow whose block is unknown, at most; beyond this the oldest is given up.
pub(crate) const MAX_GAPS: usize = 1024;
/// Serial distance from which on PSNs belong to another life of the QP (AMB-QPREUSE, AMB-BLOCKID).
pub(crate) const REUSE: i32 = 1 << 22;

/// What all flows of a receiver function share.
#[derive(Debug)]
pub(crate) struct Shared<B> {
    pub(crate) counters: CrfCounters,
    pub(crate) times: CrfTimes,
    pub(crate) events: EventQueue,
    pub(crate) transmits: VecDeque<Transmit<B>>,
    /// Frames held behind gaps.
    pub(crate) hold_budget: Budget,
    /// Sources and symbols kept for decoding, and what is noted of recent PSNs.
    pub(crate) store: Store<B>,
    pub(crate) solver: RankSolver,
    pub(crate) jobs: VecDeque<Job>,
    pub(crate) next_job: u64,
    pub(crate) next_serial: u64,
    /// The caller's comparison of packets.
    pub(crate) same: Option<Same<B>>,
    /// Memory for flows in which something is missing.
    pub(crate) spare: Spare<B>,
    /// Blocks of all flows.
    pub(crate) open_blocks: u32,
    /// Memory for pieces of gaps.
    pub(crate) pieces: Vec<Gap>,
    /// RTT per peer: what new flows of it start from.
    pub(crate) peers: HashMap<IpAddr, RttEstimator>,
    /// Requests that go the other way.
    pub(crate) reverse: Reverse,
}

/// A decode job that was handed out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) slot: u32,
    pub(crate) flow: FlowId,
    /// The block's serial.
    pub(crate) block: u64,
    pub(crate) checked: bool,
    pub(crate) kind: Origin,
}

/// Which symbols a decode used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    Ordinary,
    Coded,
    Copy,
}

/// One call into the receiver function.
pub(crate) struct Cx<'a, B> {
    pub(crate) now: Instant,
    pub(crate) config: &'a CoreConfig,
    pub(crate) shared: &'a mut Shared<B>,
    pub(crate) out: &'a mut Actions<B>,
}

impl<B> Shared<B> {
    /// Queues a message; drops it if nobody takes messages out.
    pub(crate) fn send(
        &mut self,
        config: &CoreConfig,
        to: SocketAddr,
        message: Message,
        flow_dscp: u8,
    ) {
        if self.transmits.len() >= config.max_transmits as usize {
            self.counters.transmits_dropped += 1;
            return;
        }
        self.transmits.push_back(Transmit {
            to,
            message,
            dscp: config.control_dscp.unwrap_or(flow_dscp),
            along: None,
        });
    }
}

impl<B> Cx<'_, B> {
    /// Queues a message.
    pub(crate) fn send(&mut self, to: SocketAddr, message: Message, flow_dscp: u8) {
        self.shared.send(self.config, to, message, flow_dscp);
    }
}

/// What was agreed with HELLO and HELLO_ACK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) flow: FlowId,
    /// Where HELLO came from: all messages go there.
    pub(crate) peer: SocketAddr,
    pub(crate) nonce: u64,
    /// The smaller of both sides.
    pub(crate) limits: Limits,
    pub(crate) rdma_mtu: u16,
    /// When it was first answered.
    pub(crate) answered: Instant,
}

/// The first packet of what may be a jump of the PSNs.
#[derive(Clone, Debug)]
pub(crate) struct Stray<B> {
    pub(crate) psn: Psn,
    pub(crate) next: Psn,
    /// Its frame, if there was memory for it.
    pub(crate) kept: Option<Kept<B>>,
}

/// Figures of one flow, for its status.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Source packets received.
    pub sources: u64,
    /// Positions that were lost on the way.
    pub lost: u64,
    /// Packets restored by ordinary symbols.
    pub restored_ordinary: u64,
    /// Packets restored with coded retransmissions.
    pub restored_coded: u64,
    /// Packets restored by source copies.
    pub restored_copy: u64,
    /// Of all restored ones, those that came after packets beyond them had left: recovered too late for
    /// a receiver that takes packets in order.
    pub restored_late: u64,
    /// Packets of resent runs filled with copies.
    pub replayed: u64,
    /// Runs that the host sent again although everything before them had been delivered in order: its
    /// adapter's timeout is too short, or acknowledgments are lost.
    pub resent_needlessly: u64,
    /// Lost positions left to the RDMA transport.
    pub left: u64,
    /// Requests sent.
    pub requests: u64,
}

/// A bound flow.
#[derive(Debug)]
pub(crate) struct Track<B> {
    /// Its slot in the table, for decode jobs.
    pub(crate) slot: u32,
    pub(crate) key: StreamKey,
    pub(crate) offer: Offer,
    pub(crate) configs: Configs,
    /// `None` until the first source packet.
    pub(crate) window: Option<Window<B>>,
    /// Where the stream stood when: for how long copies are kept.
    pub(crate) history: Passage<32>,
    /// The PSN after the last packet that was not new, until a new one comes.
    pub(crate) resent: Option<Psn>,
    /// What a receiver in order has taken.
    pub(crate) accepted: Accepted,
    /// The run of resent packets that is under way, for its holes.
    pub(crate) run: Option<Run<B>>,
    /// How far the host has gone back, PSNs; decays.
    pub(crate) went_back: u32,
    /// When the copies of a resting flow go.
    pub(crate) rest_at: Option<Instant>,
    /// Before this PSN only sources near something missing are kept.
    pub(crate) released: Psn,
    pub(crate) hold: HoldQueue<B>,
    pub(crate) gaps: Gaps,
    /// Some gap has no due time yet.
    pub(crate) unripe: bool,
    pub(crate) blocks: Vec<Block<B>>,
    /// No block is due before this.
    pub(crate) blocks_due: Option<Instant>,
    /// Some block waits for sources to pass it, or got one late.
    pub(crate) watch_blocks: bool,
    pub(crate) tally: Tally,
    pub(crate) requests: Requests,
    pub(crate) rtt: RttEstimator,
    pub(crate) spacing: Spacing,
    pub(crate) displacement: Peak,
    pub(crate) lag: Peak,
    pub(crate) passage: Passage<32>,
    pub(crate) times: Times,
    /// What the current burst has moved so far, and how many packets were new.
    pub(crate) step: Option<Step>,
    pub(crate) last_source: Instant,
    /// The last source or REPAIR.
    pub(crate) last_activity: Instant,
    pub(crate) report_due: Option<Instant>,
    pub(crate) suspect: Option<Stray<B>>,
    /// RDMA MTU that READ spans are derived with, and whether the stream has shown it.
    pub(crate) mtu: u16,
    pub(crate) mtu_sure: bool,
    /// PSN and DMA Length of the last new packet if that was a READ request.
    pub(crate) last_read: Option<(Psn, u32)>,
    pub(crate) dscp: u8,
    /// Of a stream of responses: what may not be restored.
    pub(crate) barred: Barred,
    pub(crate) figures: Figures,
}

impl<B: Clone> Track<B> {
    /// A flow that was just bound.
    pub(crate) fn new(
        slot: u32,
        key: StreamKey,
        offer: Offer,
        rtt: RttEstimator,
        first_request: RequestId,
        now: Instant,
    ) -> Self {
        let times = Times::of(&Basis {
            rtt: &rtt,
            domain_rtt: None,
            spacing: None,
            displacement: Duration::ZERO,
            lag: Duration::ZERO,
            k: None,
            m: 0,
            hold: crate::config::Hold::Off,
        });
        Self {
            slot,
            key,
            offer,
            configs: Configs::default(),
            window: None,
            history: Passage::default(),
            resent: None,
            accepted: Accepted::default(),
            run: None,
            went_back: 0,
            rest_at: None,
            released: Psn::new(0),
            hold: HoldQueue::new(),
            gaps: Gaps::default(),
            unripe: false,
            blocks: Vec::new(),
            blocks_due: None,
            watch_blocks: false,
            tally: Tally::new(now),
            requests: Requests::new(first_request),
            rtt,
            spacing: Spacing::default(),
            displacement: Peak::default(),
            lag: Peak::default(),
            passage: Passage::default(),
            times,
            step: None,
            last_source: now,
            last_activity: now,
            report_due: None,
            suspect: None,
            mtu: offer.rdma_mtu,
            mtu_sure: false,
            last_read: None,
            dscp: 0,
            barred: Barred::default(),
            figures: Figures::default(),
        }
    }

    /// Brings the derived times up to date.
    pub(crate) fn update_times(&mut self, cx: &Cx<'_, B>) {
        let config = self.configs.in_force();
        self.times = Times::of(&Basis {
            rtt: &self.rtt,
            domain_rtt: cx.config.domain_rtt,
            spacing: self.spacing.mean(),
            displacement: self.displacement.get(cx.now),
            lag: self.lag.get(cx.now),
            k: config.map(|c| c.k),
            m: config.map_or(0, |c| c.m),
            hold: cx.config.crf.hold,
        });
    }

    /// Takes an RTT sample for the flow and its peer.
    pub(crate) fn sample_rtt(&mut self, rtt: Duration, cx: &mut Cx<'_, B>) {
        self.rtt.sample(cx.now, rtt);
        if let Some(peer) = cx.shared.peers.get_mut(&self.offer.peer.ip()) {
            peer.sample(cx.now, rtt);
        }
    }

    /// What may be asked for blocks of this scheme.
    pub(crate) fn means(&self, scheme: u8, cx: &Cx<'_, B>) -> Means {
        let coded = scheme == crem_fec::Scheme::Cauchy.number();
        Means {
            rounds: if coded { cx.config.crf.rounds } else { 0 },
            copies: cx.config.crf.fallback && self.offer.limits.schemes & 1 != 0,
        }
    }

    /// Notes that the flow is active, so that it reports (AMB-LRACTIVE).
    pub(crate) fn note_activity(&mut self, now: Instant) {
        self.last_activity = now;
        if self.tally.activity(now) && self.report_due.is_none() {
            self.report_due = Some(now + self.times.srtt);
        }
    }

    /// Sends a frame on, or holds it behind a gap that is waited for.
    pub(crate) fn pass(&mut self, frame: Frame<B>, cx: &mut Cx<'_, B>) {
        if self.hold.holds(frame.psn) {
            if cx.shared.hold_budget.fits(frame.octets) {
                match frame.kind {
                    Delivery::Source => cx.shared.counters.held += 1,
                    Delivery::Acknowledgment => cx.shared.counters.acknowledgments_held += 1,
                    Delivery::Restored => {}
                }
                self.hold.push(cx.now, frame, &mut cx.shared.hold_budget);
                return;
            }
            cx.shared.counters.holds_cut += 1;
            self.release_hold(cx);
        }
        self.accepted
            .note(frame.psn, frame.kind, self.window.as_ref());
        cx.out.deliver.push((frame.kind, frame.buf));
    }

    /// `psn` is not waited for any longer.
    pub(crate) fn settle(&mut self, psn: Psn, cx: &mut Cx<'_, B>) {
        if self.hold.is_waiting() {
            let (budget, out) = (&mut cx.shared.hold_budget, &mut cx.out.deliver);
            let (accepted, window) = (&mut self.accepted, self.window.as_ref());
            let (times, now) = (&mut cx.shared.times.hold_ns, cx.now);
            self.hold.settle(psn, budget, &mut |held, buf| {
                times.record_time(now.since(held.at));
                accepted.note(held.psn, held.kind, window);
                out.push((held.kind, buf));
            });
        }
    }

    /// Sends on everything that is held, in serial order.
    pub(crate) fn release_hold(&mut self, cx: &mut Cx<'_, B>) {
        let (budget, out) = (&mut cx.shared.hold_budget, &mut cx.out.deliver);
        let (accepted, window) = (&mut self.accepted, self.window.as_ref());
        let (times, now) = (&mut cx.shared.times.hold_ns, cx.now);
        self.hold.release_all(budget, &mut |held, buf| {
            times.record_time(now.since(held.at));
            accepted.note(held.psn, held.kind, window);
            out.push((held.kind, buf));
        });
    }

    /// When the hold ends by time.
    pub(crate) fn hold_until(&mut self) -> Option<Instant> {
        let oldest = self.hold.oldest()?;
        let hold = self.times.hold.unwrap_or(Duration::ZERO);
        // What was restored must not wait beyond the time at which it would not be restored any more.
        let most = if self.is_responses() {
            self.times.srtt * 2
        } else {
            Duration::MAX
        };
        Some(oldest + hold.min(most))
    }

    /// Whether a request that leaves now comes too late for frames held since `seen`.
    pub(crate) fn is_hopeless(&self, seen: Instant, now: Instant) -> bool {
        let hold = self.times.hold.unwrap_or(Duration::ZERO);
        seen + hold < now + self.times.srtt
    }

    /// Counts a missing position as lost, once.
    pub(crate) fn count_lost(&mut self, psn: Psn) {
        if let Some(window) = &mut self.window
            && window.count_lost(psn)
        {
            self.tally.lost();
            self.figures.lost += 1;
        }
    }

    /// Leaves one missing position to the RDMA transport. Where it is known to have carried a packet, or
    /// nobody answered for it, it counts as lost; else nobody can say (AMB-LREXP).
    pub(crate) fn leave(&mut self, psn: Psn, lost: bool, cx: &mut Cx<'_, B>) {
        if lost {
            self.count_lost(psn);
        }
        self.note(psn, Seen::Left, cx);
        cx.shared.counters.positions_left += 1;
        self.figures.left += 1;
        self.settle(psn, cx);
    }

    /// Leaves a run of missing positions to the RDMA transport.
    pub(crate) fn leave_run(&mut self, start: Psn, count: u32, lost: bool, cx: &mut Cx<'_, B>) {
        for n in 0..count {
            self.leave(start.add(n as i32), lost, cx);
        }
    }

    /// Ends the flow: everything held goes out, everything kept is let go of.
    pub(crate) fn end(&mut self, cx: &mut Cx<'_, B>) {
        self.release_hold(cx);
        for block in &mut self.blocks {
            block.closed = true;
        }
        self.sweep(cx);
        self.gaps.clear();
        self.unripe = false;
        self.take_suspect(cx);
        self.take_run(cx);
        self.put_back_memory(cx);
        if let Some(mut window) = self.window.take() {
            window.clear(&mut cx.shared.store);
        }
    }

    /// The next time at which something is to be done.
    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        let pause = self.unripe.then(|| self.last_source + self.times.burst);
        let parts = [
            self.hold_until(),
            self.report_due,
            pause,
            self.gaps.next_due(),
            self.blocks_due,
            self.rest_at.filter(|_| self.report_due.is_none()),
        ];
        parts.into_iter().fold(None, earliest)
    }
}

/// Lets go of a block's symbols.
pub(crate) fn drop_symbols<B>(block: &mut Block<B>, budget: &mut Budget) {
    for _ in block.symbols.drain(..) {
        budget.remove(block.t);
    }
}

/// The one of two PSNs that comes last.
pub(crate) const fn later(a: Psn, b: Psn) -> Psn {
    if a.is_after(b) { a } else { b }
}

/// The one of two PSNs that comes first.
pub(crate) const fn earlier(a: Psn, b: Psn) -> Psn {
    if a.is_after(b) { b } else { a }
}
