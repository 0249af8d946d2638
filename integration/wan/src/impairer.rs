//! The link itself: each direction is a queue with a rate, then loss and damage, then delay. Time is
//! an argument (nanoseconds of the caller's clock); no socket, clock or thread.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crem_wire::crem::registry::LossCause;

use crate::class::{Class, ecn_place, frame_hash, network_header};
use crate::config::{Config, DirectionConfig};
use crate::draw::{Draw, Purpose};
use crate::loss::LossProcess;
use crate::node::{Node, Packet};
use crate::report::{Counters, DirectionReport, Fate, LogEntry, Report};

/// Octets a frame takes on a real link beside its own: preamble 8, FCS 4, gap 12.
const LINK_OVERHEAD: u64 = 24;
/// Frames under way in one direction at most.
const MAX_UNDER_WAY: usize = 1 << 18;
/// Log entries kept at most.
const MAX_LOG: usize = 1 << 20;

/// A side of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Side A.
    A,
    /// Side B.
    B,
}

/// Both directions of a link.
#[derive(Debug)]
pub struct Impairer {
    a_to_b: Direction,
    b_to_a: Direction,
    log: Log,
}

/// What happened to single frames, up to a bound.
#[derive(Debug, Default)]
struct Log {
    entries: Vec<LogEntry>,
    left_out: u64,
}

impl Log {
    fn push(&mut self, entry: LogEntry) {
        if self.entries.len() < MAX_LOG {
            self.entries.push(entry);
        } else {
            self.left_out += 1;
        }
    }
}

impl Impairer {
    /// A link as `config` says, with nothing under way.
    pub fn new(config: &Config) -> Self {
        Self {
            a_to_b: Direction::new(config, true),
            b_to_a: Direction::new(config, false),
            log: Log::default(),
        }
    }

    /// Takes a frame that arrived at `now` from `side`. Gives back the buffer of a frame that does
    /// not go on.
    pub fn offer(&mut self, now: u64, side: Side, frame: Vec<u8>) -> Option<Vec<u8>> {
        let direction = match side {
            Side::A => &mut self.a_to_b,
            Side::B => &mut self.b_to_a,
        };
        direction.offer(now, frame, &mut self.log)
    }

    /// Appends the frames that leave toward `side` by `now`, in order.
    pub fn take_due(&mut self, now: u64, side: Side, out: &mut Vec<Vec<u8>>) {
        match side {
            Side::A => {
                self.b_to_a.take_due(now, out);
                self.a_to_b.take_reports(now, out);
            }
            Side::B => {
                self.a_to_b.take_due(now, out);
                self.b_to_a.take_reports(now, out);
            }
        }
    }

    /// When the next frame leaves, if any is under way.
    pub fn next_due(&self) -> Option<u64> {
        [self.a_to_b.next_due(), self.b_to_a.next_due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The counts so far.
    pub fn report(&self) -> Report {
        Report {
            a_to_b: self.a_to_b.report(),
            b_to_a: self.b_to_a.report(),
            log_left_out: self.log.left_out,
        }
    }

    /// Every frame lost, dropped, corrupted or duplicated so far, in order.
    pub fn log(&self) -> &[LogEntry] {
        &self.log.entries
    }
}

/// A frame under way, ordered by when it leaves and then by when it came.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct UnderWay {
    due: u64,
    order: u64,
    class: Class,
    frame: Vec<u8>,
}

#[derive(Debug)]
struct Direction {
    config: DirectionConfig,
    a_to_b: bool,
    crem_port: u16,
    draw: Draw,
    loss: LossProcess,
    /// Frames seen: the position that random decisions depend on.
    index: u64,
    /// When the rate limit has sent everything accepted so far.
    busy_until: u64,
    /// When the last frame kept in order leaves.
    last_due: u64,
    order: u64,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    counters: Counters,
    node: Option<Node>,
}

/// The random decisions about one frame.
#[derive(Clone, Copy, Default)]
struct Decisions {
    lost: bool,
    corrupt: bool,
    duplicate: bool,
    reorder: bool,
}

impl Direction {
    fn new(config: &Config, a_to_b: bool) -> Self {
        let own = if a_to_b {
            &config.a_to_b
        } else {
            &config.b_to_a
        };
        Self {
            config: own.clone(),
            a_to_b,
            crem_port: config.crem_port,
            draw: Draw::new(config.seed, u64::from(!a_to_b)),
            loss: LossProcess::new(own.loss),
            index: 0,
            busy_until: 0,
            last_due: 0,
            order: 0,
            under_way: BinaryHeap::new(),
            counters: Counters::default(),
            node: own
                .reporter
                .as_ref()
                .map(|node| Node::new(node, config.crem_port, config.seed)),
        }
    }

    fn offer(&mut self, now: u64, mut frame: Vec<u8>, log: &mut Log) -> Option<Vec<u8>> {
        let class = Class::of(&frame, self.crem_port);
        self.counters.add(class, Fate::Received);
        let decisions = self.decide(class);
        let packet = self.node.as_ref().and_then(|_| Packet::of(&frame));
        let departure = self.pass_queue(now, class, &mut frame, packet.as_ref());
        let (Some(departure), false, false) = (
            departure,
            decisions.lost,
            self.under_way.len() >= MAX_UNDER_WAY,
        ) else {
            let fate = match departure {
                None => Fate::QueueDropped,
                Some(_) if decisions.lost => Fate::Lost,
                Some(_) => Fate::Overflowed,
            };
            self.note(&frame, class, fate, log);
            self.tell_drop(now, packet.as_ref(), fate);
            self.index += 1;
            return Some(frame);
        };
        if decisions.corrupt {
            self.flip_bit(&mut frame);
            self.note(&frame, class, Fate::Corrupted, log);
        }
        let due = self.due(departure, class, decisions.reorder);
        if decisions.duplicate {
            self.note(&frame, class, Fate::Duplicated, log);
            self.push(due, class, frame.clone());
        }
        self.push(due, class, frame);
        self.index += 1;
        None
    }

    /// Tells the node of a frame that goes no further.
    fn tell_drop(&mut self, now: u64, packet: Option<&Packet>, fate: Fate) {
        let cause = match fate {
            Fate::Lost => LossCause::TransmissionError,
            _ => LossCause::QueueOverflow,
        };
        if let (Some(node), Some(packet)) = (&mut self.node, packet) {
            node.on_drop(now, packet, cause);
        }
    }

    /// Counts what happened to a frame and logs it.
    fn note(&mut self, frame: &[u8], class: Class, fate: Fate, log: &mut Log) {
        self.counters.add(class, fate);
        log.push(self.entry(frame, class, fate));
    }

    fn entry(&self, frame: &[u8], class: Class, fate: Fate) -> LogEntry {
        LogEntry {
            a_to_b: self.a_to_b,
            fate,
            class,
            hash: frame_hash(frame),
        }
    }

    /// Drawn for every frame that can suffer, whatever happens to it in the queue.
    fn decide(&mut self, class: Class) -> Decisions {
        if !self.config.only.contains(&class) {
            return Decisions::default();
        }
        let (draw, index) = (self.draw, self.index);
        Decisions {
            lost: self.loss.loses(draw, index),
            corrupt: draw.happens(index, Purpose::Corrupt, self.config.corrupt),
            duplicate: draw.happens(index, Purpose::Duplicate, self.config.duplicate),
            reorder: draw.happens(index, Purpose::Reorder, self.config.reorder),
        }
    }

    /// When the frame has left the queue; `None` if the queue is full. Marks CE on the way.
    fn pass_queue(
        &mut self,
        now: u64,
        class: Class,
        frame: &mut [u8],
        packet: Option<&Packet>,
    ) -> Option<u64> {
        let rate = self.config.rate_mbit;
        if rate == 0 {
            return Some(now);
        }
        let start = self.busy_until.max(now);
        // Mbit/s are bits per microsecond: octets waiting = nanoseconds * rate / 8000.
        let waiting = (u128::from(start - now) * u128::from(rate) / 8_000) as u64;
        let length = frame.len() as u64 + LINK_OVERHEAD;
        if waiting + length > self.config.queue_octets {
            return None;
        }
        if let (Some(node), Some(packet)) = (&mut self.node, packet) {
            node.on_wait(now, packet, start - now);
        }
        if self
            .config
            .ecn_threshold_octets
            .is_some_and(|limit| waiting > limit)
            && mark_ce(frame)
        {
            self.counters.add(class, Fate::Marked);
        }
        self.busy_until = start + length * 8_000 / rate;
        Some(self.busy_until)
    }

    fn due(&mut self, departure: u64, class: Class, reorder: bool) -> u64 {
        let jitter = self.draw.below(
            self.index,
            Purpose::Jitter,
            self.config.jitter_us * 1_000 + 1,
        );
        let due = (departure + self.config.delay_us * 1_000 + jitter).max(self.last_due);
        self.last_due = due;
        if reorder {
            self.counters.add(class, Fate::Reordered);
            return due + self.config.reorder_extra_us * 1_000;
        }
        due
    }

    fn flip_bit(&self, frame: &mut [u8]) {
        let start = network_header(frame)
            .map_or(0, |(ip, _)| ip)
            .min(frame.len());
        if let Some(body) = frame.get_mut(start..) {
            let bit = self
                .draw
                .below(self.index, Purpose::Bit, body.len() as u64 * 8);
            if let Some(octet) = body.get_mut((bit / 8) as usize) {
                *octet ^= 1 << (bit % 8);
            }
        }
    }

    fn push(&mut self, due: u64, class: Class, frame: Vec<u8>) {
        self.order += 1;
        self.under_way.push(Reverse(UnderWay {
            due,
            order: self.order,
            class,
            frame,
        }));
    }

    fn next_due(&self) -> Option<u64> {
        let frame = self.under_way.peek().map(|Reverse(first)| first.due);
        let report = self.node.as_ref().and_then(Node::next_due);
        frame.into_iter().chain(report).min()
    }

    fn take_due(&mut self, now: u64, out: &mut Vec<Vec<u8>>) {
        while self
            .under_way
            .peek()
            .is_some_and(|Reverse(first)| first.due <= now)
        {
            if let Some(Reverse(first)) = self.under_way.pop() {
                self.counters.add(first.class, Fate::Delivered);
                out.push(first.frame);
            }
        }
    }

    /// Appends the reports about this direction, which leave toward where its frames come from.
    fn take_reports(&mut self, now: u64, out: &mut Vec<Vec<u8>>) {
        if let Some(node) = &mut self.node {
            node.take_due(now, out);
        }
    }

    fn report(&self) -> DirectionReport {
        DirectionReport {
            path_reports: self.node.as_ref().map_or(0, Node::sent),
            ..self.counters.report()
        }
    }
}

/// Sets CE on an ECT frame and brings the IPv4 header checksum up to date (RFC 1624). False if the
/// frame is not ECT or already marked.
fn mark_ce(frame: &mut [u8]) -> bool {
    let Some(place) = ecn_place(frame) else {
        return false;
    };
    let Some(octet) = frame.get_mut(place.octet) else {
        return false;
    };
    let before = *octet;
    let ecn = before & place.mask;
    if ecn == 0 || ecn == place.mask {
        return false;
    }
    *octet = before | place.mask;
    if let Some(sum) = place.checksum.and_then(|at| frame.get_mut(at..at + 2))
        && let [high, low] = sum
    {
        let old = u16::from_be_bytes([*high, *low]);
        let new = updated_checksum(old, u16::from(before), u16::from(before | place.mask));
        [*high, *low] = new.to_be_bytes();
    }
    true
}

/// The header checksum after a 16-bit word went from `from` to `to`. The other octet of the word is
/// the same in both and cancels out.
fn updated_checksum(checksum: u16, from: u16, to: u16) -> u16 {
    let mut sum = u32::from(!checksum) + u32::from(!from) + u32::from(to);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

#[cfg(test)]
mod tests;
