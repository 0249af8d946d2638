//! The requesting side of a queue pair: messages, pacing, window, timeouts. How losses are repaired is in
//! `goback` and `selective`.

use crem_core::time::{Duration, Instant};

use super::book::{Book, Completion, Operation};
use super::dcqcn::{Dcqcn, DcqcnConfig};
use super::goback::GoBack;
use super::packet::{Body, Packet};
use super::selective::Selective;
use super::sequence::{Serial, unwrap_psn};

/// How an endpoint repairs losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// Everything from the missing packet on is sent again.
    GoBackN,
    /// Only what is missing is sent again, once a packet sent this much later has arrived.
    Selective {
        /// Tolerated reordering.
        reorder: Duration,
    },
}

/// Knobs of a requester.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RequesterConfig {
    /// How losses are repaired.
    pub recovery: Recovery,
    /// RDMA MTU, octets.
    pub mtu: u16,
    /// First PSN, without wrap.
    pub first: Serial,
    /// PSNs that may be outstanding.
    pub window: u32,
    /// Line rate, bit/s.
    pub rate: u64,
    /// Time without progress after which is sent again.
    pub timeout: Duration,
    /// Timeouts in a row without progress after which the queue pair fails.
    pub retries: u32,
    /// An acknowledgment is asked for at least once in this many packets.
    pub ack_every: u32,
    /// A poll that comes late by no more than this loses no line time: packets leave in bursts.
    pub batch: Duration,
    /// The way back keeps the order. Then a READ that was asked for again inside its span fails the queue
    /// pair if an answer to the first attempt still comes; else that is tolerated.
    pub ordered: bool,
    /// Reaction to congestion notifications, if any.
    pub dcqcn: Option<DcqcnConfig>,
}

impl RequesterConfig {
    /// A requester at this rate over a path of this RTT: a window of twice the bandwidth-delay product and
    /// a timeout that RNICs offer, 4.096 µs times a power of two, at least 67 ms and four RTT and what
    /// sending two windows takes.
    pub fn for_path(recovery: Recovery, mtu: u16, rate: u64, rtt: Duration) -> Self {
        let octets = rate as f64 / 8.0 * rtt.as_secs_f64() * 2.0;
        let window = (octets / f64::from(mtu)).clamp(64.0, 4_000_000.0) as u32;
        // What is outstanding may have to be sent before an acknowledgment is asked for.
        let sending = f64::from(window) * f64::from(mtu) * 8.0 / rate as f64;
        let mut timeout = Duration::from_nanos(4_096 << 14);
        while timeout < rtt * 4 + Duration::from_secs_f64(2.0 * sending) {
            timeout *= 2;
        }
        Self {
            recovery,
            mtu,
            first: 0,
            window,
            rate,
            timeout,
            retries: 7,
            ack_every: 64,
            batch: Duration::from_micros(2),
            ordered: true,
            dcqcn: None,
        }
    }
}

/// Why a queue pair went to the error state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpError {
    /// No progress after all retries.
    RetriesExceeded,
    /// A READ response whose opcode does not continue what was asked for.
    OpcodeSequence,
    /// A READ response to nothing that was asked for.
    Unsolicited,
}

/// What a requester counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Packets sent.
    pub sent: u64,
    /// Of those, PSNs that had been sent before.
    pub again: u64,
    /// Times it went back or found packets lost by acknowledgments.
    pub repairs: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// READs asked for again from the middle of their span.
    pub reads_again: u64,
    /// Congestion notifications taken.
    pub cnps: u64,
}

#[derive(Debug)]
enum Engine {
    GoBack(GoBack),
    Selective(Selective),
}

/// The requesting side of a queue pair.
#[derive(Debug)]
pub struct Requester {
    config: RequesterConfig,
    book: Book,
    engine: Engine,
    dcqcn: Option<Dcqcn>,
    /// When the port is free again, in picoseconds.
    free_ps: u64,
    retries: u32,
    figures: Figures,
    error: Option<QpError>,
}

impl Requester {
    /// A requester without messages.
    pub fn new(config: RequesterConfig) -> Self {
        let engine = match config.recovery {
            Recovery::GoBackN => {
                let settle = config.timeout / 2;
                Engine::GoBack(GoBack::new(config.first, settle, config.ordered))
            }
            Recovery::Selective { reorder } => {
                Engine::Selective(Selective::new(config.first, config.window, reorder))
            }
        };
        Self {
            book: Book::new(config.mtu, config.first, config.ack_every),
            engine,
            dcqcn: config.dcqcn.map(Dcqcn::new),
            free_ps: 0,
            retries: 0,
            figures: Figures::default(),
            error: None,
            config,
        }
    }

    /// Posts a message and returns its number.
    pub fn post(&mut self, now: Instant, operation: Operation, octets: u32) -> u64 {
        self.book.post(now, operation, octets)
    }

    /// When the next packet may leave; `None` without one to send.
    pub fn next_send(&self) -> Option<Instant> {
        if self.error.is_some() {
            return None;
        }
        let ready = match &self.engine {
            Engine::GoBack(e) => e.ready(&self.book, self.config.window),
            Engine::Selective(e) => e.ready(&self.book, self.config.window),
        };
        ready.then_some(Instant(self.free_ps.div_ceil(1000)))
    }

    /// The packet that may leave at `now`.
    pub fn send(&mut self, now: Instant) -> Option<Packet> {
        if self.free_ps > now.0 * 1000 || self.error.is_some() {
            return None;
        }
        let window = self.config.window;
        let packet = match &mut self.engine {
            Engine::GoBack(e) => e.send(now, &mut self.book, window, &mut self.figures),
            Engine::Selective(e) => e.send(now, &mut self.book, window, &mut self.figures),
        }?;
        self.figures.sent += 1;
        let share = self.dcqcn.as_mut().map_or(1.0, |d| d.rate(now));
        let bits = f64::from(packet.wire_octets()) * 8.0;
        let gap_ps = bits * 1e12 / (self.config.rate as f64 * share);
        let from = self.free_ps.max((now - self.config.batch).0 * 1000);
        self.free_ps = from + gap_ps as u64;
        Some(packet)
    }

    /// A packet of the other side arrived.
    pub fn on_packet(&mut self, now: Instant, packet: &Packet) {
        if self.error.is_some() {
            return;
        }
        if packet.body == Body::Cnp {
            self.figures.cnps += 1;
            if let Some(dcqcn) = &mut self.dcqcn {
                dcqcn.on_cnp(now);
            }
            return;
        }
        let before = self.book.una;
        let serial = unwrap_psn(packet.psn, before);
        let (book, figures) = (&mut self.book, &mut self.figures);
        let result = match &mut self.engine {
            Engine::GoBack(e) => e.on_packet(now, serial, packet.body, book, figures),
            Engine::Selective(e) => e.on_packet(now, serial, packet.body, book, figures),
        };
        if self.book.una > before {
            self.retries = 0;
        }
        self.error = result.err();
    }

    /// When [`Requester::on_timeout`] is to be called next, unless a packet arrives before.
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.error.is_some() {
            return None;
        }
        let since = match &self.engine {
            Engine::GoBack(e) => e.waiting_since(&self.book),
            Engine::Selective(e) => e.waiting_since(),
        };
        since.map(|at| at + self.config.timeout)
    }

    /// Sends again what has waited too long.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.next_timeout().is_none_or(|at| at > now) {
            return;
        }
        let timed_out = match &mut self.engine {
            Engine::GoBack(e) => e.on_timeout(now, &self.book),
            // No packet of which an acknowledgment may be under way is half as old.
            Engine::Selective(e) => e.on_timeout(now - self.config.timeout / 2, &mut self.book),
        };
        if timed_out {
            self.figures.timeouts += 1;
            self.retries += 1;
            if self.retries > self.config.retries {
                self.error = Some(QpError::RetriesExceeded);
            }
        }
    }

    /// Takes the next completed message.
    pub fn completion(&mut self) -> Option<Completion> {
        self.book.completion()
    }

    /// Messages that have not completed.
    pub fn open(&self) -> usize {
        self.book.open()
    }

    /// Why the queue pair failed, if it did.
    pub fn error(&self) -> Option<QpError> {
        self.error
    }

    /// What was counted.
    pub fn figures(&self) -> Figures {
        self.figures
    }
}
