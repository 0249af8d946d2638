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
use super::counters::CrfCounters;
use super::estimate::{Basis, Passage, Peak, Spacing, Times};
use super::gaps::{Gap, Gaps};
use super::hold::{Frame, HoldQueue};
use super::params::Configs;
use super::phase::Means;
use super::request::Requests;
use super::tally::{Step, Tally};
use super::window::{Kept, Seen, Window};
use crate::actions::{Actions, SymbolRef, Transmit};
use crate::config::CoreConfig;
use crate::events::EventQueue;
use crate::packet::StreamKey;
use crate::rtt::RttEstimator;
use crate::time::{Duration, Instant};

/// PSNs beyond the highest that are still taken for a gap; further ones are a jump.
pub(crate) const MAX_GAP: i32 = 4096;
/// Serial distance from which on PSNs belong to another life of the QP (AMB-QPREUSE, AMB-BLOCKID).
pub(crate) const REUSE: i32 = 1 << 22;

/// What all flows of a receiver function share.
#[derive(Debug)]
pub(crate) struct Shared<B> {
    pub(crate) counters: CrfCounters,
    pub(crate) events: EventQueue,
    pub(crate) transmits: VecDeque<Transmit<B>>,
    /// Frames held behind gaps.
    pub(crate) hold_budget: Budget,
    /// Sources and symbols kept for decoding.
    pub(crate) keep_budget: Budget,
    pub(crate) solver: RankSolver,
    pub(crate) jobs: VecDeque<Job>,
    pub(crate) next_job: u64,
    pub(crate) next_serial: u64,
    /// Memory of closed blocks.
    pub(crate) spare: Vec<Vec<SymbolRef<B>>>,
    /// Memory for pieces of gaps.
    pub(crate) pieces: Vec<Gap>,
    /// RTT per peer: what new flows of it start from.
    pub(crate) peers: HashMap<IpAddr, RttEstimator>,
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
    pub(crate) kept: Kept<B>,
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
    pub(crate) hold: HoldQueue<B>,
    pub(crate) gaps: Gaps,
    /// Some gap has no due time yet.
    pub(crate) unripe: bool,
    pub(crate) blocks: Vec<Block<B>>,
    pub(crate) tally: Tally,
    pub(crate) requests: Requests,
    pub(crate) rtt: RttEstimator,
    pub(crate) spacing: Spacing,
    pub(crate) displacement: Peak,
    pub(crate) lag: Peak,
    pub(crate) passage: Passage,
    pub(crate) times: Times,
    /// What the current burst has moved so far, and how many packets were new.
    pub(crate) step: Option<Step>,
    pub(crate) last_source: Instant,
    /// The last source or REPAIR.
    pub(crate) last_activity: Instant,
    pub(crate) report_due: Option<Instant>,
    pub(crate) suspect: Option<Stray<B>>,
    pub(crate) dscp: u8,
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
            hold: HoldQueue::new(),
            gaps: Gaps::default(),
            unripe: false,
            blocks: Vec::new(),
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
            dscp: 0,
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
                if frame.kind == crate::actions::Delivery::Source {
                    cx.shared.counters.held += 1;
                }
                self.hold.push(cx.now, frame, &mut cx.shared.hold_budget);
                return;
            }
            cx.shared.counters.holds_cut += 1;
            self.release_hold(cx);
        }
        cx.out.deliver.push((frame.kind, frame.buf));
    }

    /// `psn` is not waited for any longer.
    pub(crate) fn settle(&mut self, psn: Psn, cx: &mut Cx<'_, B>) {
        if self.hold.is_waiting() {
            let (budget, out) = (&mut cx.shared.hold_budget, &mut cx.out.deliver);
            self.hold
                .settle(psn, budget, &mut |kind, buf| out.push((kind, buf)));
        }
    }

    /// Sends on everything that is held, in serial order.
    pub(crate) fn release_hold(&mut self, cx: &mut Cx<'_, B>) {
        let (budget, out) = (&mut cx.shared.hold_budget, &mut cx.out.deliver);
        self.hold
            .release_all(budget, &mut |kind, buf| out.push((kind, buf)));
    }

    /// When the hold ends by time.
    pub(crate) fn hold_until(&mut self) -> Option<Instant> {
        let oldest = self.hold.oldest()?;
        Some(oldest + self.times.hold.unwrap_or(Duration::ZERO))
    }

    /// Whether a request that leaves now cannot help what is held in time.
    pub(crate) fn is_hopeless(&mut self, now: Instant) -> bool {
        let since = self.hold.oldest().unwrap_or(now);
        let hold = self.times.hold.unwrap_or(Duration::ZERO);
        since + hold < now + self.times.srtt
    }

    /// Moves the end of the window to `upto`, giving up what then is too far behind.
    pub(crate) fn reach(&mut self, upto: Psn, cx: &mut Cx<'_, B>) {
        let excess = |track: &Self| track.window.as_ref().map_or(0, |w| w.excess(upto));
        if excess(self) > 0 {
            self.advance_base(cx);
        }
        let over = excess(self);
        if over > 0
            && let Some(window) = &self.window
        {
            let limit = window.base().add(over as i32);
            self.give_up_before(limit, cx);
        }
        if let Some(window) = &mut self.window {
            window.advance(upto);
        }
    }

    /// Lets go of sources that no decode and no rebuilt header can need: those more than the largest
    /// k before the first position that is still missing, or before the end.
    pub(crate) fn advance_base(&mut self, cx: &mut Cx<'_, B>) {
        let Some(window) = &mut self.window else {
            return;
        };
        let reach = i32::from(self.configs.max_k());
        let mut limit = window.next().add(-reach);
        if let Some(first) = self.gaps.first() {
            limit = earlier(limit, first.add(-reach));
        }
        for block in self.blocks.iter().filter(|block| !block.closed) {
            // Its description may be a wrong one; the right one may start up to k earlier.
            limit = earlier(limit, block.description.start.add(-reach));
        }
        if limit.is_after(window.base()) {
            window.drop_before(limit, &mut cx.shared.keep_budget);
        }
    }

    /// Gives up everything before `limit`: gaps, blocks, kept sources.
    pub(crate) fn give_up_before(&mut self, limit: Psn, cx: &mut Cx<'_, B>) {
        while let Some(gap) = self.gaps.pop_first() {
            if gap.start.distance_from(limit) >= 0 {
                self.gaps.add(gap);
                break;
            }
            let before = limit.distance_from(gap.start).clamp(0, gap.count as i32);
            self.leave_run(gap.start, before as u32, cx);
            let rest = gap.count - before as u32;
            if rest > 0 {
                self.gaps.add(Gap {
                    start: limit,
                    count: rest,
                    ..gap
                });
                break;
            }
        }
        for index in 0..self.blocks.len() {
            if limit.is_after(self.blocks[index].description.start) {
                self.evict(index, cx);
            }
        }
        if let Some(window) = &mut self.window {
            let before = window.kept();
            window.drop_before(limit, &mut cx.shared.keep_budget);
            cx.shared.counters.sources_evicted += u64::from(before - window.kept());
        }
    }

    /// Memory is short: gives up the older quarter of what this flow keeps. Returns the packets freed.
    /// Blocks stay in their places until [`Track::sweep`].
    pub(crate) fn shed(&mut self, cx: &mut Cx<'_, B>) -> u32 {
        let Some(window) = &self.window else {
            return 0;
        };
        let symbols =
            |track: &Self| -> usize { track.blocks.iter().map(|b| b.symbols.len()).sum() };
        let before = window.kept() as usize + symbols(self);
        let limit = window.base().add((window.len() / 4).max(1) as i32);
        self.give_up_before(limit, cx);
        let after = self.window.as_ref().map_or(0, |w| w.kept() as usize) + symbols(self);
        before.saturating_sub(after) as u32
    }

    /// Keeps the source packet of a received PSN if memory allows.
    pub(crate) fn keep(&mut self, psn: Psn, kept: Kept<B>, cx: &mut Cx<'_, B>) {
        if !cx.shared.keep_budget.fits(kept.len) {
            self.shed(cx);
        }
        if !cx.shared.keep_budget.fits(kept.len) {
            cx.shared.counters.sources_evicted += 1;
            return;
        }
        if let Some(window) = &mut self.window {
            window.keep(psn, kept, &mut cx.shared.keep_budget);
        }
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

    /// Leaves one missing position to the RDMA transport.
    pub(crate) fn leave(&mut self, psn: Psn, cx: &mut Cx<'_, B>) {
        self.count_lost(psn);
        if let Some(window) = &mut self.window {
            window.note(psn, Seen::Left, cx.now);
        }
        cx.shared.counters.positions_left += 1;
        self.figures.left += 1;
        self.settle(psn, cx);
    }

    /// Leaves a run of missing positions to the RDMA transport.
    pub(crate) fn leave_run(&mut self, start: Psn, count: u32, cx: &mut Cx<'_, B>) {
        for n in 0..count {
            self.leave(start.add(n as i32), cx);
        }
    }

    /// Takes away the blocks that were closed during this call.
    pub(crate) fn sweep(&mut self, cx: &mut Cx<'_, B>) {
        for index in (0..self.blocks.len()).rev() {
            if self.blocks[index].closed {
                let mut block = self.blocks.swap_remove(index);
                drop_symbols(&mut block, &mut cx.shared.keep_budget);
                if cx.shared.spare.len() < 64 {
                    cx.shared.spare.push(block.symbols);
                }
            }
        }
    }

    /// Ends the flow: everything held goes out, everything kept is let go of.
    pub(crate) fn end(&mut self, cx: &mut Cx<'_, B>) {
        self.release_hold(cx);
        for block in &mut self.blocks {
            block.closed = true;
        }
        self.sweep(cx);
        self.gaps = Gaps::default();
        self.unripe = false;
        self.suspect = None;
        if let Some(mut window) = self.window.take() {
            window.clear(&mut cx.shared.keep_budget);
        }
    }

    /// The next time at which something is to be done.
    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        let pause = self.unripe.then(|| self.last_source + self.times.burst);
        let gaps = self.gaps.iter().filter_map(|gap| gap.due).min();
        let blocks = self
            .blocks
            .iter()
            .map(|block| block.decode_at.map_or(block.due, |at| at.min(block.due)))
            .min();
        [self.hold_until(), self.report_due, pause, gaps, blocks]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Lets go of a block's symbols.
pub(crate) fn drop_symbols<B>(block: &mut Block<B>, budget: &mut Budget) {
    for _ in block.symbols.drain(..) {
        budget.remove(block.t);
    }
}

/// The one of two PSNs that comes first.
pub(crate) const fn earlier(a: Psn, b: Psn) -> Psn {
    if a.is_after(b) { b } else { a }
}
