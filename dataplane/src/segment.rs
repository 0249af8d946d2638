//! One segment's worth of worker: what happens to a burst from each port, in order. A frame that goes on
//! is given to the device before anything is computed about it.

use std::sync::Arc;

use crem_api::Mode;
use crem_core::csf::DatagramKey;
use crem_core::learn::{Ack, Managed};
use crem_core::packet::Desc;
use crem_core::time::Instant;
use crem_wire::frame::{Class, parse};

use crate::buffer::{BURST, Buffer, Platform, Port};
use crate::classify::{Datagram, Side, Source, Verdict, View};
use crate::counters::SegmentCounters;
use crate::guard::{Guard, Remake};
use crate::inband::Inband;
use crate::leave::Leaving;
use crate::metering::{Metering, Tap};
use crate::order::Arrival;
use crate::protect::Protection;
use crate::rate::WanRate;
use crate::team::{Fact, Item, Team};
use crate::times::SegmentTimes;
use crate::tx::Egress;
use crate::watch::Watch;

/// Full bursts from the WAN after which the receiver's timers run although more waits.
const MAX_BACKLOG: u32 = 64;

/// Bursts that a port's ring may hold when the worker begins, far more than any ring has.
const MAX_EARLY_BURSTS: u32 = 4096;
/// Turns between two looks at the pool, which costs as much as a few frames.
const LOOK_AT_POOL: u32 = 64;
/// Free buffers, for each worker, below which the oldest retained ones are given up. Some of the free ones
/// are in the caches of other workers.
const LOW_POOL: u32 = 512;

/// A segment.
pub struct Segment<P: Platform> {
    pub(crate) mode: Mode,
    pub(crate) view: View,
    pub(crate) lan: Egress<P::Port, P::Buf>,
    pub(crate) wan: Egress<P::Port, P::Buf>,
    pub(crate) pool: P::Pool,
    pub(crate) inband: Option<Inband<P>>,
    pub(crate) counters: SegmentCounters,
    pub(crate) times: Box<SegmentTimes>,
    pub(crate) protection: Option<Protection<P>>,
    /// Protection that takes leave.
    pub(crate) leaving: Option<Leaving<P>>,
    pub(crate) spent: Option<Protection<P>>,
    /// Flows that are only watched.
    pub(crate) watch: Option<Watch>,
    pub(crate) to_lan: Vec<P::Buf>,
    pub(crate) to_wan: Vec<P::Buf>,
    pub(crate) out_messages: Vec<(Side, P::Buf)>,
    burst: Vec<P::Buf>,
    pub(crate) guard: Guard<P>,
    /// Full bursts from the WAN in a row.
    backlog: u32,
    turns: u32,
    pub(crate) arrivals: Vec<Arrival<P::Buf>>,
    pub(crate) descs: Vec<Desc<P::Buf>>,
    pub(crate) mail: Vec<(Datagram, P::Buf)>,
    pub(crate) acks: Vec<Ack>,
    pub(crate) managed: Vec<Managed>,
    datagrams: Vec<DatagramKey>,
    pub(crate) metering: Option<Metering<P>>,
    /// Frames restored in this turn, where that is asked for.
    pub(crate) restored: Tap<P::Buf>,
    /// What the segment may send to the WAN, if that is less than the port takes.
    pub(crate) wan_rate: Option<Arc<WanRate>>,
    /// Frames and octets sent there that are taken out of it.
    pub(crate) wan_sent: (u64, u64),
    /// The other workers of the segment.
    pub(crate) team: Option<Team<P>>,
    pub(crate) inbox: Vec<Item<P::Buf>>,
    pub(crate) inbox_descs: Vec<Desc<P::Buf>>,
    pub(crate) asked: Vec<Desc<P::Buf>>,
    pub(crate) handed_mail: Vec<(Datagram, P::Buf)>,
    pub(crate) facts: Vec<Fact>,
}

/// What a segment is made of.
pub struct Parts<P: Platform> {
    /// What is done with frames.
    pub mode: Mode,
    /// How frames are looked at.
    pub view: View,
    /// LAN port.
    pub lan: P::Port,
    /// WAN port.
    pub wan: P::Port,
    /// Buffers.
    pub pool: P::Pool,
    /// In-band station.
    pub inband: Option<Inband<P>>,
    /// What the segment may send to the WAN, shared by its workers.
    pub wan_rate: Option<Arc<WanRate>>,
    /// Makes the protocol functions; `None` where the mode has none.
    pub remake: Option<Remake<P>>,
}

impl<P: Platform> Segment<P> {
    /// A segment at rest.
    pub fn new(mut parts: Parts<P>) -> Self {
        let mut guard = Guard::new(parts.remake);
        let protection = guard.make();
        parts.view.active = protection.is_some();
        Self {
            mode: parts.mode,
            view: parts.view,
            lan: Egress::new(parts.lan),
            wan: Egress::new(parts.wan),
            pool: parts.pool,
            inband: parts.inband,
            counters: SegmentCounters::default(),
            times: Box::default(),
            protection,
            leaving: None,
            spent: None,
            watch: None,
            guard,
            backlog: 0,
            turns: 0,
            burst: Vec::with_capacity(BURST),
            to_lan: Vec::with_capacity(8 * BURST),
            to_wan: Vec::with_capacity(8 * BURST),
            arrivals: Vec::with_capacity(BURST),
            descs: Vec::with_capacity(BURST),
            mail: Vec::with_capacity(BURST),
            acks: Vec::with_capacity(BURST),
            managed: Vec::with_capacity(BURST),
            datagrams: Vec::with_capacity(BURST),
            out_messages: Vec::with_capacity(BURST),
            metering: None,
            restored: None,
            wan_rate: parts.wan_rate,
            wan_sent: (0, 0),
            team: None,
            inbox: Vec::new(),
            inbox_descs: Vec::new(),
            asked: Vec::new(),
            handed_mail: Vec::new(),
            facts: Vec::new(),
        }
    }

    /// Drops what waits in the rings of the ports, once, before the first turn.
    pub fn discard_early(&mut self) {
        let mut burst = core::mem::take(&mut self.burst);
        for port in [&mut self.lan, &mut self.wan] {
            for _ in 0..MAX_EARLY_BURSTS {
                port.device.receive(&mut burst);
                if burst.is_empty() {
                    break;
                }
                self.counters.drops.before_start += burst.len() as u64;
                burst.clear();
            }
        }
        self.burst = burst;
    }

    /// One turn: both ports, the in-band interface, timers, repair. Whether there was anything to do.
    /// `clock` is read once after each burst.
    pub fn turn(&mut self, clock: &impl Fn() -> Instant) -> bool {
        let mut busy = self.serve_lan(clock);
        let (handed, more) = self.serve_inbox(clock);
        let received = self.serve_wan(clock);
        busy |= handed || received > 0;
        busy |= self.serve_kernel() | self.serve_relayed();
        // What waits in the ring has arrived: a hold must not end because we were late to look. But it
        // must end.
        self.backlog = if received < BURST && !more {
            0
        } else {
            self.backlog + 1
        };
        let receiver = self.backlog.is_multiple_of(MAX_BACKLOG);
        let now = clock();
        self.lan.tick(now);
        self.wan.tick(now);
        busy |= self.guarded(now, |s| {
            s.run_timers(now, receiver) | s.send_repair(now) | s.leave_on(now)
        });
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(LOOK_AT_POOL) {
            self.guarded(now, |s| {
                let workers = s.team.as_ref().map_or(1, |t| u32::from(t.place.count));
                s.spare_buffers(now, LOW_POOL * workers);
                s.rearm(now);
            });
            self.look_anew();
        }
        self.lan.flush();
        self.wan.flush();
        if let Some(protection) = &mut self.protection {
            protection.drop_departed();
        }
        self.meter(now);
        busy || self.lan.waiting() > 0 || self.wan.waiting() > 0
    }

    /// LAN to WAN: forward the burst, then let the sender function see its sources.
    fn serve_lan(&mut self, clock: &impl Fn() -> Instant) -> bool {
        let mut burst = core::mem::take(&mut self.burst);
        self.lan.receive(&mut burst);
        let any = !burst.is_empty();
        if any {
            let now = clock();
            self.times.lan_burst.record(burst.len() as u64);
            self.lan.captured(now, &burst);
            if let Some(metering) = &mut self.metering {
                metering.arrived(Side::Lan, now, &burst);
            }
            for frame in burst.drain(..) {
                match self.sort(frame, Side::Lan, now) {
                    Sorted::Onward(frame) => self.to_wan.push(frame),
                    Sorted::Source(desc) => {
                        self.to_wan.push(desc.buf.clone());
                        self.descs.push(desc);
                    }
                    Sorted::Gone => {}
                }
            }
            self.send_to_wan(now, clock);
            self.lan.fetch_ahead();
            self.guarded(now, |s| {
                s.learn(now);
                s.note_requests(now);
                s.hand_over_sent();
                s.offer_to_sender(now);
                s.read_mail(now);
            });
        }
        self.burst = burst;
        any
    }

    /// WAN to LAN; gives the length of the burst. Lets the receiver function see the sources of the burst, and send on what it gives
    /// back among everything else in the order of arrival.
    fn serve_wan(&mut self, clock: &impl Fn() -> Instant) -> usize {
        if !self.may_receive(clock) {
            return 0;
        }
        let mut burst = core::mem::take(&mut self.burst);
        self.wan.receive(&mut burst);
        let received = burst.len();
        if received > 0 {
            let now = clock();
            self.times.wan_burst.record(received as u64);
            self.wan.captured(now, &burst);
            if let Some(metering) = &mut self.metering {
                metering.arrived(Side::Wan, now, &burst);
            }
            for frame in burst.drain(..) {
                match self.sort(frame, Side::Wan, now) {
                    Sorted::Onward(frame) => self.arrivals.push(Arrival::Plain(frame)),
                    Sorted::Source(desc) => {
                        if let Some(desc) = self.keep_received(desc) {
                            self.arrivals.push(Arrival::Flow(self.descs.len()));
                            self.descs.push(desc);
                        }
                    }
                    Sorted::Gone => {}
                }
            }
            self.wan.fetch_ahead();
            self.guarded(now, |s| {
                s.learn(now);
                s.offer_to_receiver(now, Some(clock));
                // Messages after sources: a symbol that a source of the same burst makes needless is
                // not decoded.
                s.read_mail(now);
            });
        }
        self.burst = burst;
        received
    }

    /// Lets the sender function see what passed besides sources; but for datagrams nothing at all unless
    /// that is switched on.
    fn learn(&mut self, now: Instant) {
        self.share_learnt();
        if let Some(protection) = &mut self.protection {
            protection.learn(now, &self.acks, &self.managed);
            protection.datagrams(now, &self.datagrams);
        }
        self.acks.clear();
        self.managed.clear();
        self.datagrams.clear();
    }

    /// Shows the receiver function what hosts behind the LAN port ask for.
    fn note_requests(&mut self, now: Instant) {
        if let Some(protection) = &mut self.protection {
            protection.requests_sent(now, &self.descs);
        }
    }

    fn offer_to_sender(&mut self, now: Instant) {
        if let Some(protection) = &mut self.protection
            && !self.descs.is_empty()
        {
            protection.sources_sent(now, &self.descs);
        }
        self.descs.clear();
        self.settle(now);
    }

    /// Frames that this worker received itself leave by `clock`.
    pub(crate) fn offer_to_receiver<C: Fn() -> Instant>(
        &mut self,
        now: Instant,
        clock: Option<&C>,
    ) {
        if !self.descs.is_empty() {
            self.guard.fault(now);
        }
        match &mut self.protection {
            Some(protection) => {
                if !self.descs.is_empty() {
                    protection.sources_received(now, &self.descs);
                }
                protection.note_restored(&mut self.restored);
                if let Some(restored) = &self.restored {
                    self.lan.device.mark_restored(restored);
                }
                protection.merge(&mut self.arrivals, &self.descs, &mut self.to_lan);
            }
            None => {
                self.pass_arrivals();
                self.send_to_lan(now, clock);
                self.watch_burst(now);
            }
        }
        self.descs.clear();
        self.send_to_lan(now, clock);
        self.settle(now);
    }

    fn read_mail(&mut self, now: Instant) {
        if self.mail.is_empty() {
            return;
        }
        let mut mail = core::mem::take(&mut self.mail);
        for (datagram, frame) in mail.drain(..) {
            if let Some((datagram, frame)) = self.keep_mail(datagram, frame) {
                self.message(now, &datagram, frame);
            }
        }
        self.mail = mail;
        self.settle(now);
    }

    fn serve_kernel(&mut self) -> bool {
        let Some(inband) = &mut self.inband else {
            return false;
        };
        inband.give(&mut self.counters.drops);
        let (to_lan, to_wan) = (&mut self.to_lan, &mut self.to_wan);
        let any = inband.take(
            &self.pool,
            &mut self.counters.drops,
            |side, frame| match side {
                Side::Lan => to_lan.push(frame),
                Side::Wan => to_wan.push(frame),
            },
        );
        if any {
            self.send_both();
        }
        any
    }

    /// Decides on a frame and does what needs no other frame.
    #[inline(always)]
    fn sort(&mut self, frame: P::Buf, side: Side, now: Instant) -> Sorted<P::Buf> {
        if let Some(inband) = &mut self.inband {
            inband.learn(frame.octets(), side);
        }
        let parsed = parse(frame.octets(), &self.view.parse);
        if let Some(metering) = &mut self.metering {
            metering.classified(side, &self.view.parse, &parsed);
        }
        let verdict = self.view.judge(frame.octets(), &parsed, side);
        if let (Class::Other(reason), true) = (parsed.class, verdict.is_onward()) {
            self.counters.passed.count(reason);
        }
        match &verdict {
            Verdict::ForwardAndKernel if self.mode == Mode::Block => {
                self.punt(frame, now);
                Sorted::Gone
            }
            verdict if self.mode == Mode::Block && verdict.is_onward() => {
                self.counters.drops.blocked += 1;
                Sorted::Gone
            }
            verdict => self.dispose(verdict, frame, side, now),
        }
    }

    #[inline(always)]
    fn dispose(
        &mut self,
        verdict: &Verdict,
        frame: P::Buf,
        side: Side,
        now: Instant,
    ) -> Sorted<P::Buf> {
        match verdict {
            Verdict::Forward => Sorted::Onward(frame),
            Verdict::Source(source) => {
                match (side, &mut self.protection) {
                    (Side::Wan, _) if self.view.learn => {
                        self.acks.extend(source.acknowledges(frame.octets()))
                    }
                    (Side::Lan, Some(protection)) => {
                        protection.note_priority(source.dscp, source.pcp);
                    }
                    _ => {}
                }
                Sorted::Source(desc(source, frame))
            }
            Verdict::Transit => {
                self.counters.messages.transit += 1;
                Sorted::Onward(frame)
            }
            Verdict::Unverified => {
                self.counters.coding.unverified_sources += 1;
                Sorted::Onward(frame)
            }
            Verdict::OtherNetwork => {
                self.counters.passed.other_network += 1;
                Sorted::Onward(frame)
            }
            Verdict::Unsequenced(key) => {
                self.datagrams.push(*key);
                Sorted::Onward(frame)
            }
            Verdict::Ack(ack) => {
                self.acks.push(*ack);
                Sorted::Onward(frame)
            }
            Verdict::Managed(managed) => {
                self.managed.push(*managed);
                Sorted::Onward(frame)
            }
            Verdict::Kernel => {
                self.punt(frame, now);
                Sorted::Gone
            }
            Verdict::ForwardAndKernel => {
                self.punt(frame.clone(), now);
                Sorted::Onward(frame)
            }
            Verdict::Message(datagram) => {
                self.mail.push((*datagram, frame));
                Sorted::Gone
            }
            Verdict::Refuse(refusal) => {
                self.counters.drops.refuse(*refusal);
                Sorted::Gone
            }
        }
    }

    pub(crate) fn punt(&mut self, frame: P::Buf, now: Instant) {
        let Some(frame) = self.keep_for_kernel(frame) else {
            return;
        };
        if let Some(inband) = &mut self.inband {
            inband.punt(frame, &self.pool, now, &mut self.counters.drops);
        }
    }
}

enum Sorted<B> {
    Onward(B),
    Source(Desc<B>),
    Gone,
}

fn desc<B>(source: &Source, buf: B) -> Desc<B> {
    Desc {
        key: source.key,
        psn: source.psn,
        opcode: source.opcode,
        payload_len: source.payload_len,
        payload_off: source.payload_off,
        mtu_seen: source.mtu_seen,
        read_length: source.read_length,
        ce: source.ce,
        dscp: source.dscp,
        buf,
    }
}
