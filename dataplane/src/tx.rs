//! One side of a segment. Receiving: while one full burst is worked on, the next one is on its way from
//! memory into the cache. Sending: frames that a device does not take wait here in order, up to a bound;
//! repair waits apart and goes out only into room that no source wants.

use std::collections::VecDeque;

use crem_core::actions::RepairKind;
use crem_core::time::Instant;

use crate::buffer::{BURST, Buffer, Port};
use crate::capture::Probe;
use crate::counters::{Coding, Drops, PortCounters};
use crate::metering::Tap;
use crate::rate::WanRate;

/// Frames that may wait for a device that takes none.
pub(crate) const WAITING: usize = 1024;
/// REPAIR messages that may wait for room.
pub(crate) const REPAIRS: usize = 512;

/// A port with what waits before it.
#[derive(Debug)]
pub struct Egress<D, B> {
    /// The device.
    pub device: D,
    /// What went through it.
    pub counters: PortCounters,
    waiting: Vec<B>,
    /// The burst after a full one, received already.
    ahead: Vec<B>,
    /// What the device took, for whom it may concern; emptied elsewhere.
    pub(crate) tap: Tap<B>,
    /// What copies frames into a capture, while there is one.
    probe: Option<Box<Probe>>,
    /// What is offered to the device while there is a probe; empty between calls.
    probed: Vec<B>,
}

impl<B: Buffer, D: Port<B>> Egress<D, B> {
    /// Nothing waits.
    pub fn new(device: D) -> Self {
        let waiting = Vec::with_capacity(WAITING + BURST);
        Self {
            device,
            counters: PortCounters::default(),
            waiting,
            ahead: Vec::with_capacity(BURST),
            tap: None,
            probe: None,
            probed: Vec::new(),
        }
    }

    /// Has what goes through the port copied; another probe that was there ends.
    pub(crate) fn probe(&mut self, probe: Box<Probe>) {
        self.probed.reserve(WAITING + BURST);
        self.probe = Some(probe);
    }

    /// Tells a probe the time; one whose capture is over goes.
    pub(crate) fn tick(&mut self, now: Instant) {
        if let Some(probe) = &mut self.probe
            && !probe.tick(now)
        {
            self.probe = None;
        }
    }

    /// Shows a probe what was received.
    pub(crate) fn captured(&mut self, now: Instant, burst: &[B]) {
        self.tick(now);
        if let Some(probe) = &mut self.probe {
            probe.received(burst);
        }
    }

    /// Receives a burst into `into`, which is empty, and counts it. After a full one the next one is taken
    /// from the device too, so that its headers are in the cache when it is asked for: with fewer frames
    /// there is nothing to hide the wait behind, and they are worth no wait.
    pub fn receive(&mut self, into: &mut Vec<B>) {
        if self.ahead.is_empty() {
            self.device.receive(into);
            into.iter().for_each(Buffer::prefetch_header);
            into.iter().for_each(Buffer::prefetch);
        } else {
            core::mem::swap(into, &mut self.ahead);
        }
        if into.len() >= BURST {
            self.device.receive(&mut self.ahead);
            self.ahead.iter().for_each(Buffer::prefetch_header);
        }
        self.counters.rx_frames += into.len() as u64;
        self.counters.rx_octets += octets(into);
    }

    /// Goes on with fetching the next burst, whose descriptions have come in meanwhile.
    pub fn fetch_ahead(&self) {
        self.ahead.iter().for_each(Buffer::prefetch);
    }

    /// Sends all of `frames` in order, after those that wait already. What finds no place is dropped and
    /// counted in `dropped`.
    pub fn send(&mut self, frames: &mut Vec<B>, dropped: &mut u64) {
        if self.waiting.is_empty() {
            self.give(frames);
        }
        if frames.is_empty() {
            return;
        }
        let room = WAITING.saturating_sub(self.waiting.len()).min(frames.len());
        self.counters.tx_deferred += room as u64;
        self.waiting.extend(frames.drain(..room));
        *dropped += frames.len() as u64;
        frames.clear();
    }

    /// Tries again with the frames that wait. Whether none is left.
    pub fn flush(&mut self) -> bool {
        if !self.waiting.is_empty() {
            let mut waiting = core::mem::take(&mut self.waiting);
            self.give(&mut waiting);
            self.waiting = waiting;
        }
        self.waiting.is_empty()
    }

    /// Sends of `frames` what the device takes at once, if nothing waits; the rest stays in `frames`.
    pub fn offer(&mut self, frames: &mut Vec<B>) {
        if self.flush() {
            self.give(frames);
        }
    }

    /// Frames that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn give(&mut self, frames: &mut Vec<B>) {
        let (count, size) = (frames.len(), octets(frames));
        let before = self.tap.as_mut().map_or(0, |tap| {
            let before = tap.len();
            tap.extend_from_slice(frames);
            before
        });
        if self.probe.is_some() {
            self.probed.extend_from_slice(frames);
        }
        self.device.send(frames);
        if let Some(tap) = &mut self.tap {
            tap.truncate(before + count - frames.len());
        }
        if let Some(probe) = &mut self.probe {
            self.probed.truncate(count - frames.len());
            probe.sent(&self.probed);
            self.probed.clear();
        }
        self.counters.tx_frames += (count - frames.len()) as u64;
        self.counters.tx_octets += size - octets(frames);
    }
}

fn octets<B: Buffer>(frames: &[B]) -> u64 {
    frames.iter().map(|frame| frame.octets().len() as u64).sum()
}

/// A REPAIR message ready to go.
#[derive(Debug)]
pub struct Repair<B> {
    /// The whole frame.
    pub frame: B,
    /// When it is of no use any more.
    pub until: Instant,
    /// What it is for.
    pub kind: RepairKind,
}

/// REPAIR messages that wait for room.
#[derive(Debug)]
pub struct RepairQueue<B> {
    queue: VecDeque<Repair<B>>,
    out: Vec<B>,
    /// Of those in `out`.
    about: Vec<(Instant, RepairKind)>,
    /// Octets on the wire that may still be taken.
    room: u64,
}

impl<B: Buffer> Default for RepairQueue<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Buffer> RepairQueue<B> {
    /// Nothing waits.
    pub fn new() -> Self {
        Self {
            queue: VecDeque::with_capacity(REPAIRS),
            out: Vec::with_capacity(BURST),
            about: Vec::with_capacity(BURST),
            room: u64::MAX,
        }
    }

    /// Adds one; at the bound the oldest is given up.
    pub fn push(&mut self, repair: Repair<B>, drops: &mut Drops) {
        if self.queue.len() >= REPAIRS {
            self.queue.pop_front();
            drops.repair_queue += 1;
        }
        self.queue.push_back(repair);
    }

    /// Sends what is not too old into the room that sources left in the device, and in `rate` where the
    /// segment has one. What has to wait for long gives way: too old messages first, then the oldest at the
    /// bound of the queue.
    pub fn send<D: Port<B>>(
        &mut self,
        now: Instant,
        rate: Option<&WanRate>,
        egress: &mut Egress<D, B>,
        drops: &mut Drops,
        coding: &mut Coding,
    ) {
        while !self.queue.is_empty() && egress.flush() {
            self.room = rate.map_or(u64::MAX, |rate| rate.room(now));
            self.fill(now, drops);
            if self.out.is_empty() {
                drops.repair_waits += u64::from(!self.queue.is_empty());
                return;
            }
            let (frames, octets) = (egress.counters.tx_frames, egress.counters.tx_octets);
            egress.offer(&mut self.out);
            if let Some(rate) = rate {
                let (frames, octets) = (
                    egress.counters.tx_frames - frames,
                    egress.counters.tx_octets - octets,
                );
                rate.spend(WanRate::on_wire(frames, octets));
            }
            let sent = self.about.len() - self.out.len();
            self.about
                .drain(..sent)
                .for_each(|(_, kind)| count(coding, kind));
            if !self.out.is_empty() {
                // The device is full: they keep their place, behind every source.
                let left = self.out.drain(..).zip(self.about.drain(..)).rev();
                for (frame, (until, kind)) in left {
                    self.queue.push_front(Repair { frame, until, kind });
                }
                return;
            }
        }
    }

    fn fill(&mut self, now: Instant, drops: &mut Drops) {
        while self.out.len() < BURST {
            let Some(repair) = self.queue.pop_front() else {
                return;
            };
            if now > repair.until {
                drops.repair_age += 1;
                continue;
            }
            let octets = WanRate::on_wire(1, repair.frame.octets().len() as u64);
            if octets > self.room {
                self.queue.push_front(repair);
                return;
            }
            self.room -= octets;
            self.out.push(repair.frame);
            self.about.push((repair.until, repair.kind));
        }
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

fn count(coding: &mut Coding, kind: RepairKind) {
    let count = match kind {
        RepairKind::Ordinary => &mut coding.repair_ordinary,
        RepairKind::Coded => &mut coding.repair_coded,
        RepairKind::Copy => &mut coding.repair_copy,
        RepairKind::Info => &mut coding.repair_info,
    };
    *count += 1;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::buffer::heap::{HeapBuf, HeapPort};

    fn frame(number: u8) -> HeapBuf {
        HeapBuf::new(&[number; 60])
    }

    fn numbers(frames: &[HeapBuf]) -> Vec<u8> {
        frames.iter().map(|f| f.octets()[0]).collect()
    }

    // shows: QOS-PFC-05
    #[test]
    fn what_waits_goes_first_and_the_order_stays() {
        let device = HeapPort {
            room: Some(2),
            ..HeapPort::default()
        };
        let mut egress = Egress::new(device);
        let mut dropped = 0;
        egress.send(&mut vec![frame(1), frame(2), frame(3)], &mut dropped);
        egress.send(&mut vec![frame(4)], &mut dropped);
        assert_eq!((egress.waiting(), dropped), (2, 0));
        egress.device.room = None;
        egress.send(&mut vec![frame(5)], &mut dropped);
        assert!(egress.flush());
        assert_eq!(numbers(&egress.device.sent), [1, 2, 3, 4, 5]);
        let c = egress.counters;
        assert_eq!((c.tx_frames, c.tx_octets, c.tx_deferred), (5, 300, 3));
    }

    // shows: QOS-PFC-05
    #[test]
    fn what_finds_no_place_is_counted() {
        let device = HeapPort {
            room: Some(0),
            ..HeapPort::default()
        };
        let mut egress = Egress::new(device);
        let mut dropped = 0;
        for _ in 0..WAITING / 16 + 1 {
            egress.send(&mut (0..16).map(frame).collect(), &mut dropped);
        }
        assert_eq!((egress.waiting(), dropped), (WAITING, 16));
    }

    // shows: CREM-ARCH-04, QOS-SCHED-01
    #[test]
    fn repair_takes_only_room_that_sources_left() {
        let device = HeapPort {
            room: Some(0),
            ..HeapPort::default()
        };
        let mut egress = Egress::new(device);
        let (mut drops, mut coding) = (Drops::default(), Coding::default());
        let mut repairs = RepairQueue::new();
        let repair = |n, until| Repair {
            frame: frame(n),
            until,
            kind: RepairKind::Ordinary,
        };
        egress.send(&mut vec![frame(1)], &mut drops.tx_full_wan);
        repairs.push(repair(9, Instant(1000)), &mut drops);
        repairs.push(repair(10, Instant(1500)), &mut drops);
        repairs.send(Instant(900), None, &mut egress, &mut drops, &mut coding);
        assert_eq!(repairs.queue.len(), 2);
        egress.device.room = None;
        repairs.send(Instant(1200), None, &mut egress, &mut drops, &mut coding);
        assert_eq!(numbers(&egress.device.sent), [1, 10]);
        assert_eq!((drops.repair_age, coding.repair_ordinary), (1, 1));
    }

    // shows: QOS-SCHED-01, QOS-PFC-05
    #[test]
    fn repair_that_the_device_does_not_take_stays_behind_the_next_sources() {
        let device = HeapPort {
            room: Some(1),
            ..HeapPort::default()
        };
        let mut egress = Egress::new(device);
        let (mut drops, mut coding) = (Drops::default(), Coding::default());
        let mut repairs = RepairQueue::new();
        for n in [9, 10, 11] {
            let (frame, until) = (frame(n), Instant(1000));
            let kind = RepairKind::Coded;
            repairs.push(Repair { frame, until, kind }, &mut drops);
        }
        repairs.send(Instant(1), None, &mut egress, &mut drops, &mut coding);
        assert_eq!((egress.waiting(), coding.repair_coded), (0, 1));
        egress.device.room = None;
        egress.send(&mut vec![frame(1)], &mut drops.tx_full_wan);
        repairs.send(Instant(2), None, &mut egress, &mut drops, &mut coding);
        assert_eq!(numbers(&egress.device.sent), [9, 1, 10, 11]);
        assert_eq!((coding.repair_coded, drops), (3, Drops::default()));
    }

    #[test]
    fn the_oldest_repair_gives_way() {
        let (mut drops, mut repairs) = (Drops::default(), RepairQueue::new());
        for n in 0..=REPAIRS {
            let until = Instant(n as u64);
            repairs.push(
                Repair {
                    frame: frame(0),
                    until,
                    kind: RepairKind::Coded,
                },
                &mut drops,
            );
        }
        assert_eq!((repairs.queue.len(), drops.repair_queue), (REPAIRS, 1));
        assert_eq!(repairs.queue.front().unwrap().until, Instant(1));
    }

    // shows: QOS-SCHED-01
    #[test]
    fn repair_waits_for_what_sources_leave_of_the_rate() {
        let mut egress = Egress::new(HeapPort::default());
        let (mut drops, mut coding) = (Drops::default(), Coding::default());
        let mut repairs = RepairQueue::new();
        for n in 0..3 {
            let (frame, until) = (frame(n), Instant(9_000_000));
            let kind = RepairKind::Ordinary;
            repairs.push(Repair { frame, until, kind }, &mut drops);
        }
        // 1 Mbit/s: two of 84 octets on the wire, and then one every 672 microseconds.
        let rate = WanRate::new(1, Instant(0));
        rate.spend(250 - 2 * 84);
        let mut send = |at, repairs: &mut RepairQueue<HeapBuf>, drops: &mut Drops| {
            repairs.send(Instant(at), Some(&rate), &mut egress, drops, &mut coding);
            egress.device.sent.len()
        };
        assert_eq!(send(0, &mut repairs, &mut drops), 2);
        assert_eq!(send(600_000, &mut repairs, &mut drops), 2);
        assert_eq!(send(672_000, &mut repairs, &mut drops), 3);
        assert_eq!((drops.repair_age, drops.repair_queue), (0, 0));
        assert!(drops.repair_waits > 0);
    }
}
