//! The receiver function (CRF): takes source packets and REPAIRs as they arrive from the WAN, restores
//! what is missing, asks for what cannot be restored, reports losses, and passes every source packet on
//! exactly once, in order where holding it briefly allows.
//!
//! Here is the entry only; one concern per module: `bind` and `lifecycle` negotiation, `params`
//! configurations, `source` arrivals, `repair` REPAIRs, `recover`, `ranges` and `phase` decisions over
//! time, `replay` runs that the transport sends again, `reverse` requests that pass the other way, `decode`
//! decode jobs, `reporting` LOSS_REPORT, `room` what is kept, `track` the flow; `window`, `hold`, `gaps`,
//! `block`, `tally`, `request`, `estimate` and `budget` the state these work on.
//!
//! Cost: see `source` and `repair`. A call costs besides O(log flows) where a deadline changes. A flow takes
//! less than 2 KiB of state, tables included (`tests/memory.rs`); what is kept of packets comes from pools
//! that all flows share (`pages`, `spare`).

mod bind;
mod block;
mod budget;
mod counters;
mod decode;
mod estimate;
mod gaps;
mod hold;
pub(crate) mod lifecycle;
mod memory;
mod pages;
mod params;
pub(crate) mod phase;
mod ranges;
mod recover;
mod repair;
mod replay;
mod reporting;
mod request;
mod reverse;
mod room;
mod second;
mod source;
mod spare;
mod status;
mod stream;
mod tally;
#[cfg(test)]
mod tests;
mod told;
mod track;
mod window;

pub use counters::{CrfCounters, CrfTimes};
pub use lifecycle::Life;
pub use replay::{Payload, Same};
pub use status::{ConfigStatus, FlowStatus};
pub use track::Figures;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::ops::Range;

use crem_fec::RankSolver;
use crem_wire::FlowId;
use crem_wire::crem::registry::CloseReason;
use crem_wire::crem::{Message, RepairHeader};
use hashbrown::HashMap;

use crate::actions::{Actions, Decoded, Delivery, Transmit};
use crate::config::{CoreConfig, Mode};
use crate::events::{Event, EventQueue, Unprotected};
use crate::packet::{Desc, PktBuf, PsnSpace, StreamKey};
use crate::plan::RDMA_MTUS;
use crate::rng::Rng;
use crate::table::BoundedTable;
use crate::time::Instant;
use crate::timer::Timers;
use budget::Budget;
use lifecycle::{LifeAct, LifeEvent};
use pages::Store;
use reverse::Reverse;
use spare::Spare;
use stream::{FlowKey, Stream};
use track::{Cx, Shared};

/// The receiver function of one worker.
#[derive(Debug)]
pub struct Crf<B> {
    config: CoreConfig,
    rng: Rng,
    table: BoundedTable<FlowKey, Box<Stream<B>>>,
    /// Flow IDs, bound and offered.
    flows: HashMap<FlowId, u32>,
    timers: Timers,
    shared: Shared<B>,
    touched: Vec<u32>,
    due: Vec<u32>,
    give_up_from: u32,
}

/// What a receiver function references at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct References {
    /// Frames held behind gaps.
    pub held: u64,
    /// Octets of their UDP payloads.
    pub held_octets: u64,
    /// Sources and symbols kept for decoding.
    pub kept: u64,
    /// Octets of their UDP payloads and symbols.
    pub kept_octets: u64,
}

fn cx<'a, B>(
    now: Instant,
    config: &'a CoreConfig,
    shared: &'a mut Shared<B>,
    out: &'a mut Actions<B>,
) -> Cx<'a, B> {
    Cx {
        now,
        config,
        shared,
        out,
    }
}

impl<B: PktBuf> Crf<B> {
    /// A receiver function without flows. `seed` determines Flow IDs: it must be random and secret.
    pub fn new(config: CoreConfig, seed: [u8; 32]) -> Self {
        let crf = &config.crf;
        let shared = Shared {
            counters: CrfCounters::default(),
            times: CrfTimes::default(),
            events: EventQueue::new(config.max_events),
            transmits: VecDeque::new(),
            hold_budget: Budget::new(u64::from(crf.hold_packets), crf.hold_octets),
            store: Store::new(crf),
            solver: RankSolver::with_capacity(256),
            jobs: VecDeque::new(),
            next_job: 0,
            next_serial: 0,
            same: None,
            spare: Spare::new(),
            open_blocks: 0,
            pieces: Vec::new(),
            peers: HashMap::new(),
            reverse: Reverse::new(crf.max_flows),
        };
        Self {
            rng: Rng::new(seed),
            table: BoundedTable::new(crf.max_flows),
            flows: HashMap::new(),
            timers: Timers::default(),
            shared,
            touched: Vec::new(),
            due: Vec::new(),
            give_up_from: 0,
            config,
        }
    }

    /// Gives the function a comparison of packets: it needs one to fill holes in runs that the transport
    /// sends again (`CrfConfig::replay`).
    pub fn compare_with(&mut self, same: Same<B>) {
        self.shared.same = Some(same);
    }

    /// From now on up to `limit` references that are given up wait in [`Crf::departed`] to be dropped by the
    /// caller.
    pub fn defer_drops(&mut self, limit: usize) {
        self.shared.store.departed.set_limit(limit);
    }

    /// References that were given up and not dropped yet: the caller's to drop (see [`Crf::defer_drops`]).
    pub const fn departed(&mut self) -> &mut Vec<B> {
        self.shared.store.departed.waiting()
    }

    /// Takes another configuration. Switching to passthrough ends every flow; what is held goes out.
    /// The bound of the flow table stays what it was at the start.
    pub fn set_config(&mut self, now: Instant, config: CoreConfig, out: &mut Actions<B>) {
        let crf = &config.crf;
        self.shared
            .hold_budget
            .set_bounds(u64::from(crf.hold_packets), crf.hold_octets);
        self.shared.store.set_bounds(crf);
        let ends = config.mode != Mode::Active;
        let without_responses = self.config.responses && !config.responses;
        self.config = config;
        if ends {
            self.close_all(now, CloseReason::Normal, out);
        } else if without_responses {
            self.close_responses(now, out);
        }
    }

    /// Source packets from the WAN for destinations that are served here, in order of arrival, and the
    /// acknowledgments among them where responses are protected. Each comes out in `out.deliver` exactly
    /// once: now, or at the latest H later by a call that [`Crf::next_timeout`] asks for.
    pub fn on_burst(&mut self, now: Instant, burst: &[Desc<B>], out: &mut Actions<B>) {
        let mut last: Option<(StreamKey, Option<u32>)> = None;
        for desc in burst {
            if desc.is_acknowledgment() {
                self.on_acknowledgment(now, desc, out);
                continue;
            }
            let slot = match last {
                Some((key, slot)) if key == desc.key => slot,
                _ => {
                    let slot = self.slot_of(&desc.key);
                    last = Some((desc.key, slot));
                    slot
                }
            };
            match slot {
                Some(slot) => self.on_source(now, slot, desc, out),
                None => {
                    self.shared.counters.passed += 1;
                    out.deliver.push((Delivery::Source, desc.buf.clone()));
                }
            }
        }
        while let Some(slot) = self.touched.pop() {
            if let Some(stream) = self.table.get_mut(slot) {
                stream.touched = false;
                stream.heard = now;
                if let Some(track) = &mut stream.bound {
                    track.end_of_burst(&mut cx(now, &self.config, &mut self.shared, out));
                }
            }
            self.refresh_timer(slot);
        }
    }

    /// The slot of a bound flow whose namespace this is.
    fn slot_of(&mut self, key: &StreamKey) -> Option<u32> {
        if self.table.is_empty() {
            return None;
        }
        let slot = self.table.slot(&FlowKey::of(key))?;
        let stream = self.table.get_mut(slot)?;
        let track = stream.bound.as_mut()?;
        let own = *stream.namespace.get_or_insert(key.namespace);
        if own != key.namespace {
            self.shared.counters.namespace_conflicts += 1;
            return None;
        }
        track.key.namespace = own;
        Some(slot)
    }

    fn on_source(&mut self, now: Instant, slot: u32, desc: &Desc<B>, out: &mut Actions<B>) {
        let stream = self.table.get_mut(slot);
        if let Some(stream) = stream
            && let Some(track) = &mut stream.bound
        {
            if !core::mem::replace(&mut stream.touched, true) {
                self.touched.push(slot);
            }
            track.on_source(desc, &mut cx(now, &self.config, &mut self.shared, out));
        } else {
            out.deliver.push((Delivery::Source, desc.buf.clone()));
        }
    }

    /// A REPAIR that `crem_wire` parsed. `symbol` is the frame and the offset of the symbol in it, `None`
    /// with INFO; `ce` says whether it arrived with ECN CE.
    pub fn on_repair(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &RepairHeader,
        symbol: Option<(B, u16)>,
        ce: bool,
        out: &mut Actions<B>,
    ) {
        let Some((slot, true)) = self.addressed(now, from, header.flow) else {
            return;
        };
        if let Some(track) = self.table.get_mut(slot).and_then(|s| s.bound.as_mut()) {
            let mut cx = cx(now, &self.config, &mut self.shared, out);
            track.on_repair(header, symbol, ce, &mut cx);
        }
        self.refresh_timer(slot);
    }

    /// Any other message addressed to the receiver function. `usable` says whether a drawn Flow ID may
    /// be assigned: not one that this box uses as CSF towards the same peer (AMB-CLOSEPAIR), and one
    /// that leads back to this worker.
    pub fn on_message(
        &mut self,
        now: Instant,
        from: SocketAddr,
        message: &Message,
        usable: &dyn Fn(FlowId) -> bool,
        out: &mut Actions<B>,
    ) {
        match message {
            Message::Hello(hello) if self.config.mode == Mode::Active => {
                self.on_hello(now, from, hello, usable);
            }
            Message::Hello(_) => self.shared.counters.hellos_refused += 1,
            Message::ParamUpdate(update) => self.on_param_update(now, from, update, out),
            Message::Close(close) => self.on_close(now, from, close, out),
            _ => self.shared.counters.unexpected_messages += 1,
        }
    }

    /// The answer to a decode job, whose outcomes are taken out of their list. It may hand out a further
    /// job for the same block, so a caller walks `out.decode` to its end and takes `out.deliver` after
    /// that.
    pub fn on_decoded(&mut self, now: Instant, decoded: &mut Decoded<B>, out: &mut Actions<B>) {
        self.take_decoded(now, decoded, out);
        // Frames for which nobody waits any more must not stay in a list that is kept.
        decoded.outcomes.clear();
    }

    fn take_decoded(&mut self, now: Instant, decoded: &mut Decoded<B>, out: &mut Actions<B>) {
        let place = self
            .shared
            .jobs
            .iter()
            .position(|job| job.id == decoded.id.0);
        let Some(job) = place.and_then(|place| self.shared.jobs.remove(place)) else {
            return;
        };
        let track = self
            .table
            .get_mut(job.slot)
            .and_then(|s| s.bound.as_mut())
            .filter(|track| track.offer.flow == job.flow);
        if let Some(track) = track {
            let mut cx = cx(now, &self.config, &mut self.shared, out);
            track.on_decoded(&job, decoded, &mut cx);
        }
        self.refresh_timer(job.slot);
    }

    /// Does what is due at `now`.
    pub fn on_timeout(&mut self, now: Instant, out: &mut Actions<B>) {
        let mut due = core::mem::take(&mut self.due);
        while let Some(slot) = self.timers.pop_due(now) {
            due.push(slot);
        }
        for slot in due.drain(..) {
            self.on_slot_due(now, slot, out);
        }
        self.due = due;
    }

    fn on_slot_due(&mut self, now: Instant, slot: u32, out: &mut Actions<B>) {
        let Some(stream) = self.table.get_mut(slot) else {
            return;
        };
        let idle = stream.heard + self.config.crf.idle <= now;
        if idle && stream.life().on(LifeEvent::Idle) == LifeAct::Drop {
            self.shared.counters.idle_releases += 1;
            let reason = Some(CloseReason::FlowEnded);
            self.drop_flow(now, slot, reason, Unprotected::Idle, out);
            return;
        }
        if let Some(track) = &mut stream.bound {
            track.on_timeout(&mut cx(now, &self.config, &mut self.shared, out));
        }
        self.refresh_timer(slot);
    }

    /// The RDMA MTU of a connection as its other direction shows it, in READ responses for requests of
    /// `stream` (AMB-RDMAMTU). Of streams that are not bound, or have shown it themselves, nothing
    /// happens.
    pub fn learn_mtu(&mut self, stream: &StreamKey, octets: u16) {
        let slot = self.table.slot(&FlowKey::of(stream));
        let track = slot.and_then(|s| self.table.get_mut(s)?.bound.as_mut());
        if let Some(track) = track.filter(|t| !t.mtu_sure && RDMA_MTUS.contains(&octets)) {
            (track.mtu, track.mtu_sure) = (octets, true);
        }
    }

    /// When [`Crf::on_timeout`] is to be called next.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Sets the deadline of a flow to what it is now.
    fn refresh_timer(&mut self, slot: u32) {
        let Some(stream) = self.table.get_mut(slot) else {
            return;
        };
        let idle = stream.heard + self.config.crf.idle;
        let work = stream.bound.as_mut().and_then(|t| t.next_deadline());
        let at = work.map_or(idle, |at| at.min(idle));
        if self.timers.get(slot) != Some(at) {
            self.timers.set(slot, at);
        }
    }

    /// Takes the next message to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit<B>> {
        self.shared.transmits.pop_front()
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop()
    }

    /// How long frames were held and losses lasted.
    pub fn times(&self) -> &CrfTimes {
        &self.shared.times
    }

    /// The counters.
    pub fn counters(&self) -> CrfCounters {
        self.shared.counters
    }

    /// The flows, in no particular order.
    pub fn flows(&self) -> impl Iterator<Item = FlowStatus> + '_ {
        self.flows_in(0..self.slots())
    }

    /// The flows in some slots of the table, so that thousands can be listed a few at a time.
    pub fn flows_in(&self, slots: Range<u32>) -> impl Iterator<Item = FlowStatus> + '_ {
        let flows = self.table.iter_in(slots);
        flows.map(|(_, key, stream)| FlowStatus::of(key, stream))
    }

    /// One past the highest slot of the table that a flow was ever in.
    pub fn slots(&self) -> u32 {
        self.table.slots()
    }

    /// Flows in the table.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is no flow.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Source packets and symbols referenced now: frames held, and those kept for decoding. The same
    /// frame may be both.
    pub fn references(&self) -> References {
        let (hold, keep) = (&self.shared.hold_budget, &self.shared.store.budget);
        References {
            held: hold.packets(),
            held_octets: hold.octets(),
            kept: keep.packets(),
            kept_octets: keep.octets(),
        }
    }

    /// Sends on everything that is held, per flow in serial order. Flows stay bound.
    pub fn release_all(&mut self, now: Instant, out: &mut Actions<B>) {
        for slot in 0..self.table.slots() {
            // Mostly nothing is held at all, and looking at every flow would take long.
            if self.shared.hold_budget.packets() == 0 {
                break;
            }
            if let Some(track) = self.table.get_mut(slot).and_then(|s| s.bound.as_mut()) {
                track.release_hold(&mut cx(now, &self.config, &mut self.shared, out));
            }
            self.refresh_timer(slot);
        }
    }

    /// Ends every flow with a CLOSE; everything held goes out.
    pub fn close_all(&mut self, now: Instant, reason: CloseReason, out: &mut Actions<B>) {
        self.close_some(now, 0..u32::MAX, reason, out);
    }

    /// The same for the flows in some slots of the table, so that thousands can be closed a few at a time. Whether
    /// there are further slots.
    pub fn close_some(
        &mut self,
        now: Instant,
        slots: Range<u32>,
        reason: CloseReason,
        out: &mut Actions<B>,
    ) -> bool {
        let end = self.table.slots();
        for slot in slots.start..slots.end.min(end) {
            self.drop_flow(now, slot, Some(reason), Unprotected::Off, out);
        }
        slots.end < end
    }

    /// Ends the streams of responses, which are switched off.
    fn close_responses(&mut self, now: Instant, out: &mut Actions<B>) {
        for slot in 0..self.table.slots() {
            let key = self.table.key(slot);
            if key.is_some_and(|key| key.space == PsnSpace::Responses) {
                let reason = Some(CloseReason::Normal);
                self.drop_flow(now, slot, reason, Unprotected::Off, out);
            }
        }
    }

    /// Buffers are short: lets go of at least `packets` references kept for decoding, if there are as
    /// many, older ones of each flow first. Never a held frame, but a hold may end.
    pub fn give_up(&mut self, now: Instant, packets: u32, out: &mut Actions<B>) {
        let slots = self.table.slots();
        let mut freed = 0;
        // Each turn frees a quarter of what a flow keeps, so a few rounds free nearly all.
        for _ in 0..slots.saturating_mul(8) {
            if freed >= packets {
                return;
            }
            let slot = self.give_up_from % slots;
            self.give_up_from = slot + 1;
            if let Some(track) = self.table.get_mut(slot).and_then(|s| s.bound.as_mut()) {
                let mut cx = cx(now, &self.config, &mut self.shared, out);
                freed += track.shed(&mut cx);
                track.sweep(&mut cx);
                self.refresh_timer(slot);
            }
        }
    }
}
