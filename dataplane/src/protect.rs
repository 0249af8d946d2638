//! The protocol functions of a segment with what their decisions need to be carried out: symbol slots,
//! coder, decoder, the repair queue, next hops. Decisions are all `crem-core`'s.

mod hear;

use core::ops::Range;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crem_api::{Hold, RestoredEcn, Segment as SegmentConfig};
use crem_core::actions::{Actions, Delivery, Emit, RepairKind, Transmit};
use crem_core::config::CoreConfig;
use crem_core::crf::{Crf, Same};
use crem_core::csf::{Ahead, Csf, DatagramKey};
use crem_core::events::Event;
use crem_core::learn::{Ack, Managed};
use crem_core::packet::Desc;
use crem_core::time::Instant;
use crem_fec::Engine;
use crem_wire::crem::registry::CloseReason;
use crem_wire::frame::{Mac, ParseConfig, Tags, parse};

use crate::buffer::{Buffer, Platform};
use crate::classify::{Side, View};
use crate::code::Coder;
use crate::core_config::{core_config, max_t};
use crate::counters::SegmentCounters;
use crate::emit::Route;
use crate::inband::Inband;
use crate::metering::Tap;
use crate::order::{Arrival, merge};
use crate::resent::is_resent;
use crate::restore::Restorer;
use crate::slots::Slots;
use crate::snapshot::SegmentSnapshot;
use crate::team::Fact;
use crate::tx::{Repair, RepairQueue};

pub use hear::Share;

/// Symbols under construction at once.
pub const SLOTS: u32 = 1024;
/// Coding ahead of complete blocks. At 4 KiB it halves the longest turns and costs nothing; below 2 KiB a job of its
/// own for every run of packets costs more than a whole block takes at its end. Of two symbols of 64 flows,
/// half a megabyte, the second-level cache holds most.
pub const AHEAD: Ahead = Ahead {
    slots: SLOTS / 2,
    shortest: 2048,
};
/// Peers whose next hop is asked for at once.
const WANTED: usize = 16;
/// Events kept until the next snapshot.
const EVENTS: usize = 64;
/// How long an ordinary symbol is of use where the hold is not fixed: longer than any, and its block is
/// asked for by then.
const ORDINARY_AGE: Duration = Duration::from_millis(10);
/// How long the answer to a request is of use where the round-trip time is not known: it is asked for again
/// by then on all but the longest paths.
const CODED_AGE: Duration = Duration::from_millis(100);
/// Least time that an answer is given: on a short path the queue of a burst takes longer than a round trip.
const LEAST_AGE: Duration = Duration::from_millis(1);
/// Frames that each function gives up in a turn and that are dropped in the next one, at most; more are
/// dropped at once.
const DEPARTED: usize = 512;

/// What carrying out a decision touches besides the protocol functions.
pub struct Surroundings<'a, P: Platform> {
    /// Buffers.
    pub pool: &'a P::Pool,
    /// In-band station.
    pub inband: &'a mut Inband<P>,
    /// Counters.
    pub counters: &'a mut SegmentCounters,
    /// Where restored frames are to be noted.
    pub restored: &'a mut Tap<P::Buf>,
    /// Frames of messages, in order, with the side that each leaves on.
    pub messages: &'a mut Vec<(Side, P::Buf)>,
}

/// Both protocol functions of a segment.
pub struct Protection<P: Platform> {
    pub(crate) csf: Csf<P::Buf>,
    pub(crate) crf: Crf<P::Buf>,
    actions: Actions<P::Buf>,
    slots: Slots<P::Buf>,
    coder: Coder<P::Buf>,
    restorer: Restorer<P::Buf>,
    repairs: RepairQueue<P::Buf>,
    own: SocketAddr,
    parse: ParseConfig,
    wanted: Vec<IpAddr>,
    /// Priority of the flows with a DSCP on a tagged port (AMB-QOS-PCP).
    pcp: [u8; 64],
    events: VecDeque<Event>,
    scratch: Vec<u8>,
    /// When the next REPAIR may say that its sender is alive.
    revive_at: Instant,
    /// How long packets wait behind a gap at most, as far as this end knows.
    hold: Duration,
    share: Share,
    /// What other workers have to know.
    facts: Vec<Fact>,
    /// Given up by the functions, to be dropped in the next turn.
    departed: Vec<P::Buf>,
}

impl<P: Platform> Protection<P> {
    /// The functions of a segment whose in-band address is `own`. `seed` determines every random choice.
    pub fn new(
        config: &SegmentConfig,
        own: IpAddr,
        view: &View,
        engine: Engine,
        seed: [u8; 32],
        share: Share,
    ) -> Self {
        let core = core_config(config, &share.place);
        let slots = Slots::new(SLOTS);
        let mut actions = Actions::default();
        actions.free_slots.extend(slots.names());
        let mut other = seed;
        other[0] ^= 1;
        let mut crf = Crf::new(core.clone(), other);
        crf.compare_with(Same(is_resent));
        crf.defer_drops(DEPARTED);
        let mut csf = Csf::new(core, seed);
        csf.defer_drops(DEPARTED);
        let ect0 = config.policy.restored_ecn == RestoredEcn::Ect0;
        Self {
            csf,
            crf,
            actions,
            slots,
            coder: Coder::new(engine),
            restorer: Restorer::new(engine, max_t(config), view.parse, ect0),
            repairs: RepairQueue::new(),
            own: SocketAddr::new(own, config.crem_port),
            parse: view.parse,
            wanted: Vec::with_capacity(WANTED),
            pcp: [0; 64],
            events: VecDeque::with_capacity(EVENTS),
            scratch: Vec::with_capacity(2048),
            revive_at: Instant(0),
            hold: longest_hold(config),
            facts: Vec::new(),
            departed: Vec::with_capacity(2 * DEPARTED),
            share,
        }
    }

    /// Notes the priority of a flow's packets on a tagged port.
    pub fn note_priority(&mut self, dscp: u8, pcp: u8) {
        if let Some(place) = self.pcp.get_mut(usize::from(dscp)) {
            *place = pcp;
        }
    }

    /// Packets toward the WAN, forwarded already.
    pub fn sources_sent(&mut self, now: Instant, descs: &[Desc<P::Buf>]) {
        self.csf.on_burst(now, descs, &mut self.actions);
    }

    /// The same packets, or those of other workers: the receiver function looks for READ and atomic
    /// requests among them, since what is asked for again is not restored (AMB-READRESP).
    pub fn requests_sent(&mut self, now: Instant, descs: &[Desc<P::Buf>]) {
        self.crf.on_reverse_burst(now, descs, &mut self.actions);
    }

    /// Acknowledgments and messages of the connection manager that passed (AMB-ACKMAP).
    pub fn learn(&mut self, now: Instant, acks: &[Ack], managed: &[Managed]) {
        for managed in managed {
            self.csf.on_managed(now, managed);
        }
        for ack in acks {
            self.csf.on_ack(now, ack);
        }
    }

    /// Packets of datagram service toward the WAN: never protected, but shown (AMB-OPCODES).
    pub fn datagrams(&mut self, now: Instant, keys: &[DatagramKey]) {
        for key in keys {
            self.csf.on_datagram(now, *key);
        }
    }

    /// Packets from the WAN.
    pub fn sources_received(&mut self, now: Instant, descs: &[Desc<P::Buf>]) {
        self.crf.on_burst(now, descs, &mut self.actions);
    }

    /// Appends the restored frames among those that are about to leave toward the LAN.
    pub fn note_restored(&self, to: &mut Tap<P::Buf>) {
        if let Some(to) = to {
            let restored = |d: &&(Delivery, P::Buf)| d.0 == Delivery::Restored;
            let restored = self.actions.deliver.iter().filter(restored);
            to.extend(restored.map(|(_, frame)| frame.clone()));
        }
    }

    /// Takes what leaves toward the LAN, in order, among the frames of the burst that the receiver
    /// function never saw.
    pub fn merge(
        &mut self,
        arrivals: &mut Vec<Arrival<P::Buf>>,
        descs: &[Desc<P::Buf>],
        out: &mut Vec<P::Buf>,
    ) {
        merge(arrivals, descs, &mut self.actions.deliver, out);
    }

    /// Lets timers run that are due, those of the receiver function only with `receiver`. Whether any
    /// was.
    pub fn run_timers(&mut self, now: Instant, receiver: bool) -> bool {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let csf = is_due(self.csf.next_timeout());
        let crf = receiver && is_due(self.crf.next_timeout());
        if csf {
            self.csf.on_timeout(now, &mut self.actions);
        }
        if crf {
            self.crf.on_timeout(now, &mut self.actions);
        }
        csf || crf
    }

    /// Carries out what the functions decided: decodes, delivers to `out`, codes, queues repair, writes
    /// messages.
    pub fn settle(
        &mut self,
        around: &mut Surroundings<'_, P>,
        now: Instant,
        out: &mut Vec<P::Buf>,
    ) {
        let coding = &mut around.counters.coding;
        let mut next = 0;
        // The answer to one job may bring another one.
        while let Some(job) = self.actions.decode.get(next).cloned() {
            next += 1;
            let decoded = self.restorer.run(&job, &self.actions, around.pool, coding);
            self.crf.on_decoded(now, decoded, &mut self.actions);
        }
        self.note_flow_ids();
        self.note_restored(around.restored);
        out.extend(self.actions.deliver.drain(..).map(|(_, frame)| frame));
        let drops = &mut around.counters.drops;
        self.coder
            .run(&self.actions, &mut self.slots, around.pool, coding, drops);
        let mut emits = core::mem::take(&mut self.actions.emit);
        for emit in emits.drain(..) {
            self.queue_repair(&emit, around, now);
        }
        self.actions.emit = emits;
        self.actions.clear();
        while let Some(transmit) = self
            .csf
            .poll_transmit()
            .or_else(|| self.crf.poll_transmit())
        {
            self.write_message(&transmit, around, now);
        }
        while let Some(event) = self.csf.poll_event().or_else(|| self.crf.poll_event()) {
            if self.events.len() >= EVENTS {
                self.events.pop_front();
            }
            self.events.push_back(event);
        }
    }

    /// Drops the frames that the functions gave up in the turn before, and asks for what it takes to drop
    /// those of this turn: by the next one that has come from memory.
    pub fn drop_departed(&mut self) {
        self.departed.clear();
        self.departed.append(self.csf.departed());
        self.departed.append(self.crf.departed());
        self.departed.iter().for_each(Buffer::prefetch_header);
    }

    fn queue_repair(&mut self, emit: &Emit, around: &mut Surroundings<'_, P>, now: Instant) {
        let symbol = emit.slot.map(|slot| {
            self.actions.free_slots.push(slot);
            self.slots.finish(slot)
        });
        let Some(route) = self.route(emit.to, emit.dscp, around, now) else {
            return;
        };
        let drops = &mut around.counters.drops;
        let frame = match symbol {
            Some(Some(buffer)) => route.0.repair(&emit.header, buffer),
            // Counted when the symbol was begun.
            Some(None) => return,
            None => route.0.info(&emit.header, around.pool),
        };
        match frame {
            Some(frame) => {
                let repair = Repair {
                    frame,
                    until: emit.born + self.age(emit),
                    kind: emit.kind,
                };
                self.repairs.push(repair, drops);
            }
            None => drops.message_unsendable += 1,
        }
    }

    fn write_message(
        &mut self,
        transmit: &Transmit<P::Buf>,
        around: &mut Surroundings<'_, P>,
        now: Instant,
    ) {
        let route = match &transmit.along {
            Some(frame) => self.along(frame.octets(), transmit, around),
            None => self.route(transmit.to, transmit.dscp, around, now),
        };
        let Some((route, side)) = route else { return };
        match route.message(&transmit.message, &mut self.scratch, around.pool) {
            Some(frame) => {
                around
                    .counters
                    .messages
                    .count_sent(transmit.message.message_type());
                around.messages.push((side, frame));
            }
            None => around.counters.drops.message_no_buffer += 1,
        }
    }

    /// The way to a peer, if its next hop is known; else the kernel is asked for it.
    fn route(
        &mut self,
        to: SocketAddr,
        dscp: u8,
        around: &mut Surroundings<'_, P>,
        now: Instant,
    ) -> Option<(Route, Side)> {
        let Some((mac, side)) = around.inband.next_hop(to.ip()) else {
            around.counters.drops.no_next_hop += 1;
            let is_new = !self.wanted.contains(&to.ip()) && self.wanted.len() < WANTED;
            if is_new && around.inband.may_ask(now) {
                self.wanted.push(to.ip());
            }
            return None;
        };
        let pcp = self.pcp.get(usize::from(dscp)).copied().unwrap_or(0);
        let tags = around.inband.tags(pcp);
        Some((self.toward(to, dscp, mac, tags, around), side))
    }

    /// The way that a frame of the flow went, for a message to its destination.
    fn along(
        &self,
        frame: &[u8],
        transmit: &Transmit<P::Buf>,
        around: &Surroundings<'_, P>,
    ) -> Option<(Route, Side)> {
        let link = parse(frame, &self.parse).link?;
        let route = self.toward(
            transmit.to,
            transmit.dscp,
            link.destination,
            link.tags,
            around,
        );
        Some((route, Side::Wan))
    }

    fn toward(
        &self,
        to: SocketAddr,
        dscp: u8,
        destination_mac: Mac,
        tags: Tags,
        around: &Surroundings<'_, P>,
    ) -> Route {
        Route {
            destination_mac,
            source_mac: around.inband.station.mac,
            tags,
            source: self.own,
            destination: to,
            dscp,
        }
    }

    /// After a panic: what was about to leave toward the LAN, then what is held, as far as it can still
    /// be had, and how many held frames cannot.
    pub fn rescue(&mut self, now: Instant) -> (Vec<P::Buf>, u64) {
        let mut saved: Vec<P::Buf> = self.actions.deliver.drain(..).map(|(_, f)| f).collect();
        let held = catch_unwind(AssertUnwindSafe(|| self.crf.references().held)).unwrap_or(0);
        let release = AssertUnwindSafe(|| self.crf.release_all(now, &mut self.actions));
        let _ = catch_unwind(release);
        let released = self.actions.deliver.drain(..).map(|(_, frame)| frame);
        let before = saved.len();
        saved.extend(released);
        let released = u64::try_from(saved.len() - before).unwrap_or(u64::MAX);
        (saved, held.saturating_sub(released))
    }

    /// Repair that waits for room.
    pub fn repairs(&mut self) -> &mut RepairQueue<P::Buf> {
        &mut self.repairs
    }

    /// How long a symbol is of use: an ordinary one until the packets behind the gap are let go of, an answer
    /// until it is asked for again.
    fn age(&self, emit: &Emit) -> Duration {
        match emit.kind {
            RepairKind::Ordinary | RepairKind::Info => self.hold,
            RepairKind::Coded | RepairKind::Copy => self
                .csf
                .srtt_of(emit.to, emit.header.flow)
                .map_or(CODED_AGE, |srtt| srtt.max(LEAST_AGE)),
        }
    }

    /// Next hops that are lacking.
    pub fn wanted(&mut self) -> &mut Vec<IpAddr> {
        &mut self.wanted
    }

    /// Lets go of everything held.
    pub fn release(&mut self, now: Instant) {
        self.crf.release_all(now, &mut self.actions);
    }

    /// Ends the flows in these slots of the tables with CLOSE to the peers. Whether there are further slots.
    pub fn close_some(&mut self, now: Instant, slots: Range<u32>) -> bool {
        let normal = CloseReason::Normal;
        let sending = self.csf.close_some(slots.clone(), normal);
        sending | self.crf.close_some(now, slots, normal, &mut self.actions)
    }

    /// Takes another configuration for all that is not negotiated yet, and for what need not be.
    pub fn configure(&mut self, now: Instant, config: &SegmentConfig, core: &CoreConfig) {
        self.csf.set_config(now, core.clone());
        self.crf.set_config(now, core.clone(), &mut self.actions);
        let ect0 = config.policy.restored_ecn == RestoredEcn::Ect0;
        self.restorer.configure(max_t(config), ect0);
        self.hold = longest_hold(config);
    }

    /// Gives up kept references because buffers run short.
    pub fn give_up(&mut self, now: Instant, packets: u32) {
        let given = self.csf.give_up(packets);
        if given < packets {
            self.crf.give_up(now, packets - given, &mut self.actions);
        }
    }

    /// Counters and events.
    pub fn describe(&mut self, to: &mut SegmentSnapshot) {
        self.csf
            .counters()
            .for_each(|name, value| to.csf.push((name, value)));
        self.crf
            .counters()
            .for_each(|name, value| to.crf.push((name, value)));
        to.times.receiver = *self.crf.times();
        to.paths.extend(self.csf.paths());
        to.events.extend(self.events.drain(..));
    }
}

/// How long the receivers of this configuration hold packets at most; a domain is configured alike.
fn longest_hold(config: &SegmentConfig) -> Duration {
    match config.policy.hold_ns {
        Hold::Fixed(ns) if ns > 0 => Duration::from_nanos(ns),
        Hold::Fixed(_) | Hold::Auto => ORDINARY_AGE,
    }
}
