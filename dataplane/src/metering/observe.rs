//! What happens at the end of a turn: the frames of the turn are shown to the meters, and now and then
//! what is due is made, sessions begin and end, and the ports are asked for what they missed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use crem_core::time::{Duration, Instant};
use crem_ipfix::handover::{Control, Item};
use crem_meter::point::Place;
use crem_meter::scope::Recognition;
use crem_meter::{Meter, Utc};
use crem_wire::frame::{ParseConfig, parse};

use super::counters::{PointCounters, ignored, sum};
use super::ring::Outbox;
use super::{Arrived, CHANCES, Metering, PAUSE, Tap};
use crate::buffer::{Buffer, Platform, Port};
use crate::segment::Segment;
use crate::snapshot::SegmentSnapshot;
use crate::tx::WAITING;

/// Between two looks at what is due. A batch that is not full leaves after so long.
const TICK: Duration = Duration::from_millis(5);
/// Records that each meter makes at once of what is due: more are made in the next turns.
pub(super) const BUDGET: usize = 32;
/// Between two accounts of what selection saw and what was ignored.
const ACCOUNT: Duration = Duration::from_secs(1);

/// Frames that left in a turn.
pub(crate) struct Left<'a, B> {
    /// On the LAN side.
    pub lan: &'a mut Tap<B>,
    /// On the WAN side.
    pub wan: &'a mut Tap<B>,
    /// Whether frames still wait for the LAN device.
    pub lan_waits: bool,
}

impl<P: Platform> Metering<P> {
    /// Shows the frames of a turn to the meters and lets go of them. `missed` tells the frames that each
    /// port missed, LAN first, in all so far; it is asked now and then.
    pub(crate) fn turn(
        &mut self,
        now: Instant,
        mut left: Left<'_, P::Buf>,
        missed: impl FnOnce() -> [u64; 2],
    ) {
        let step = AssertUnwindSafe(|| {
            if now >= self.next_tick {
                self.tick(now, missed());
            }
            self.show(now, &mut left);
        });
        if catch_unwind(step).is_err() {
            self.failed(now);
        }
        self.lan.clear();
        self.wan.clear();
        for tap in [left.lan, left.wan].into_iter().flatten() {
            tap.clear();
        }
        if !left.lan_waits || self.restored.len() > WAITING {
            // Those that are still here never left.
            self.restored.clear();
        }
    }

    fn show(&mut self, now: Instant, left: &mut Left<'_, P::Buf>) {
        let Some(meter) = &mut self.meter else {
            return;
        };
        let mut shown = Shown {
            meter,
            parse: &self.config.parse,
            outbox: &mut self.outbox,
        };
        let at = self.clock.utc(self.lan.at);
        shown.ingress(Place::LanIngress, at, &self.lan);
        #[cfg(test)]
        assert!(!std::mem::take(&mut self.panic_next), "this was to panic");
        let at = self.clock.utc(now);
        if let Some(tap) = left.wan {
            shown.wan_egress(at, tap, Known::of(&self.lan));
        }
        let came = self.clock.utc(self.wan.at);
        shown.ingress(Place::WanIngress, came, &self.wan);
        if let Some(tap) = left.lan {
            shown.lan_egress(at, tap, Known::of(&self.wan), &mut self.restored);
        }
    }

    fn tick(&mut self, now: Instant, missed: [u64; 2]) {
        self.next_tick = now + TICK;
        while let Ok(control) = self.outbox.controls.try_recv() {
            self.session(control);
        }
        self.rearm(now);
        self.adjust_clock(now);
        // Before anything is reported: a report must not call complete what is not.
        self.look_for_blindness();
        self.look_for_missed(missed);
        let utc = self.clock.utc(now);
        self.drain(now, utc);
        if let Some(meter) = &mut self.meter
            && meter.poll(utc, BUDGET, &mut self.outbox)
        {
            self.next_tick = now;
        }
        if now >= self.next_account {
            self.next_account = now + ACCOUNT;
            self.account();
        }
        self.outbox.hand_over();
    }

    /// Begins or ends metering for a collector.
    fn session(&mut self, control: Control) {
        let (collector, session) = match control {
            Control::Begin(collector, session) => (collector, Some(session)),
            Control::End(collector) => (collector, None),
        };
        match self
            .sessions
            .iter_mut()
            .find(|(number, _)| *number == collector)
        {
            Some((_, known)) => *known = session,
            None => self.sessions.push((collector, session)),
        }
        if let Some(meter) = &mut self.meter {
            apply(meter, collector, session);
        }
    }

    fn adjust_clock(&mut self, now: Instant) {
        let target = self.outbox.shared.utc_offset.load(Ordering::Relaxed);
        if self.clock.is_far_from(target) {
            self.flush(now);
            self.clock.step(target, now);
            self.counters.clock_steps += 1;
        } else {
            self.clock.slew(target, now);
        }
    }

    /// What a port missed it missed before the frames are shown that came after it.
    fn look_for_missed(&mut self, missed: [u64; 2]) {
        let dropped = self.outbox.shared.ring_drops.each_ref();
        let dropped = dropped.map(|count| count.load(Ordering::Relaxed));
        let all = [missed[0] + dropped[0], missed[1] + dropped[1]];
        let before = self.missed.replace(all).unwrap_or(all);
        for ((before, now), place) in before.into_iter().zip(all).zip(INGRESS) {
            if now > before {
                self.counters.missed_frames += now - before;
                if let Some(meter) = &mut self.meter {
                    meter.missed(place);
                }
            }
        }
    }

    /// Where nobody can tell whether capture is complete no sequence is observed.
    fn look_for_blindness(&mut self) {
        let now = self.outbox.shared.blind.each_ref();
        let now = now.map(|blind| blind.load(Ordering::Relaxed));
        if now == self.blind {
            return;
        }
        self.blind = now;
        if let Some(meter) = &mut self.meter {
            suspend(meter, self.blind);
        }
    }

    /// What selection saw, for each Selection Sequence, and what was not taken into account.
    fn account(&mut self) {
        if let Some(meter) = &self.meter {
            for place in Place::ALL {
                if let Some((sequence, stats)) = meter.packets(place).and_then(|p| p.selection()) {
                    self.outbox.item(&Item::Selection(sequence, stats));
                }
            }
        }
        let (packets, octets) = self.ignored();
        let shared = &self.outbox.shared;
        shared.ignored_packets.store(packets, Ordering::Relaxed);
        shared.ignored_octets.store(octets, Ordering::Relaxed);
    }

    /// Packets and octets not taken into account, those that the ports missed among them; nobody knows
    /// the octets of these.
    fn ignored(&self) -> (u64, u64) {
        let missed = (self.counters.missed_frames, 0);
        let gone = self.gone.as_ref().map(|gone| &gone.meter);
        let meters = [self.meter.as_ref(), gone].into_iter().flatten();
        let before = sum(self.ignored_before, missed);
        meters.map(ignored).fold(before, sum)
    }

    fn collect(&mut self) {
        self.points.clear();
        if let Some(meter) = &mut self.meter {
            PointCounters::collect(meter, &mut self.points);
        }
    }

    /// After a panic nobody knows what state the meters are in: not even their end may harm.
    pub(super) fn failed(&mut self, now: Instant) {
        self.counters.panics += 1;
        let ignored = catch_unwind(AssertUnwindSafe(|| self.ignored()));
        if let Ok((packets, octets)) = ignored {
            self.ignored_before = (packets - self.counters.missed_frames, octets);
        }
        let failed = (self.meter.take(), self.gone.take());
        let _ = catch_unwind(AssertUnwindSafe(|| drop(failed)));
        self.outbox.restart();
        self.failures += 1;
        self.again_at = (self.failures < CHANCES).then(|| now + PAUSE);
        self.next_tick = now + TICK;
    }

    fn rearm(&mut self, now: Instant) {
        if self.again_at.is_none_or(|at| at > now) {
            return;
        }
        self.again_at = None;
        // It could be built before.
        self.meter = self.config.build().ok();
        self.begin();
    }

    /// Observers that are new get their sessions, and others are left as they are.
    pub(super) fn begin(&mut self) {
        if let Some(meter) = &mut self.meter {
            for (collector, session) in &self.sessions {
                apply(meter, *collector, *session);
            }
            suspend(meter, self.blind);
        }
    }

    /// Makes the records of everything open.
    fn flush(&mut self, now: Instant) {
        self.finish(self.clock.utc(now));
        if let Some(meter) = &mut self.meter {
            meter.flush(&mut self.outbox);
        }
    }

    /// Makes the records of everything open and hands them over: the segment ends.
    pub(crate) fn close(&mut self, now: Instant) {
        let flush = AssertUnwindSafe(|| {
            self.flush(now);
            self.account();
            self.outbox.hand_over();
        });
        let _ = catch_unwind(flush);
    }

    /// Counters and state into a snapshot, whose memory is kept.
    pub(crate) fn describe(&mut self, to: &mut SegmentSnapshot) {
        self.collect();
        let counters = &mut self.counters;
        counters.batches = self.outbox.batches;
        counters.items = self.outbox.items;
        counters.ring_full = self.outbox.lost;
        to.metering = Some((*counters, self.reason()));
        to.points.extend_from_slice(&self.points);
    }
}

fn apply(meter: &mut Meter, collector: u16, session: Option<u32>) {
    for observer in meter.collector(collector) {
        match session {
            Some(session) => observer.begin_session(session),
            None => observer.end_session(),
        }
    }
}

/// Where a port can miss frames. What leaves is seen by us in full.
const INGRESS: [Place; 2] = [Place::LanIngress, Place::WanIngress];

fn suspend(meter: &mut Meter, blind: [bool; 2]) {
    for (place, blind) in INGRESS.into_iter().zip(blind) {
        for observer in meter.sequences(place) {
            if blind {
                observer.capture_lost();
            } else {
                observer.capture_restored();
            }
        }
    }
}

/// Meters with what showing a frame needs besides.
struct Shown<'a> {
    meter: &'a mut Meter,
    parse: &'a ParseConfig,
    outbox: &'a mut Outbox,
}

/// Frames further on that are looked at for one that leaves: others of the burst stay behind.
const AHEAD: usize = 4;

/// What is known of the frames of a burst, while they leave in about the order in which they came.
struct Known<'a, B> {
    arrived: &'a Arrived<B>,
    next: usize,
}

impl<'a, B: Buffer> Known<'a, B> {
    const fn of(arrived: &'a Arrived<B>) -> Self {
        Self { arrived, next: 0 }
    }

    /// What a frame that leaves was found to be when it came; `None` if it did not come just now.
    #[inline]
    fn of_frame(&mut self, frame: &B) -> Option<&'a Recognition> {
        let ahead = self.arrived.frames.get(self.next..)?;
        let found = ahead.iter().take(AHEAD).position(|f| f.is_same(frame))?;
        self.next += found + 1;
        self.arrived.seen.get(self.next - 1)
    }
}

impl Shown<'_> {
    fn ingress<B: Buffer>(&mut self, place: Place, at: Utc, arrived: &Arrived<B>) {
        if !self.meter.is_active(place) {
            return;
        }
        for (number, frame) in arrived.frames.iter().enumerate() {
            self.one(place, at, frame.octets(), arrived.seen.get(number));
        }
    }

    fn wan_egress<B: Buffer>(&mut self, at: Utc, frames: &[B], mut known: Known<'_, B>) {
        for frame in frames {
            let seen = known.of_frame(frame);
            self.one(Place::WanEgress, at, frame.octets(), seen);
        }
    }

    /// Two points see what leaves toward the LAN: one all of it, the other what was received.
    fn lan_egress<B: Buffer>(
        &mut self,
        at: Utc,
        frames: &[B],
        mut known: Known<'_, B>,
        restored: &mut Vec<B>,
    ) {
        for frame in frames {
            let (octets, seen) = (frame.octets(), known.of_frame(frame));
            match restored.iter().position(|other| other.is_same(frame)) {
                Some(place) => drop(restored.swap_remove(place)),
                None => self.one(Place::LanEgressBeforeRepair, at, octets, seen),
            }
            self.one(Place::LanEgressAfterRepair, at, octets, seen);
        }
    }

    /// A frame at a place, with what is known of it. One that is no RoCEv2 of a scope is rare, and is looked
    /// at again for what it may have been.
    #[inline]
    fn one(&mut self, place: Place, at: Utc, octets: &[u8], seen: Option<&Recognition>) {
        if let Some(Ok(packet)) = seen {
            return self.meter.show(place, at, octets, packet, self.outbox);
        }
        if self.meter.is_active(place) {
            let parsed = parse(octets, self.parse);
            self.meter.observe(place, at, octets, &parsed, self.outbox);
        }
    }
}

impl<P: Platform> Segment<P> {
    /// Shows what came and went in this turn to the meters.
    pub(crate) fn meter(&mut self, now: Instant) {
        let Some(metering) = &mut self.metering else {
            return;
        };
        if let Some(restored) = &mut self.restored {
            metering.restored.append(restored);
        }
        let left = Left {
            lan_waits: self.lan.waiting() > 0,
            lan: &mut self.lan.tap,
            wan: &mut self.wan.tap,
        };
        let devices = (&self.lan.device, &self.wan.device);
        metering.turn(now, left, || [devices.0.missed(), devices.1.missed()]);
        if metering.is_over() {
            self.metering = None;
            self.tap();
        }
    }
}
