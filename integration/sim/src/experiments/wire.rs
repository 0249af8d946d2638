//! What an experiment's two directions consist of: the port toward the WAN, where repair waits for room,
//! and what is on its way.

use std::collections::VecDeque;

use crem_core::actions::{Emit, RepairKind};
use crem_wire::crem::{Message, RepairHeader};

use super::station::Station;
use crate::endpoint::rc::Packet;
use crate::net::path::Path;
use crate::net::{Cause, Class, Datagram, Link, Verdict};
use crate::rng::Rng;
use crate::{Duration, Instant};

/// Octets of a REPAIR besides its symbol and bitmaps: Ethernet, IPv4, UDP, CREM.
const REPAIR_HEADER: u32 = 14 + 20 + 8 + 8 + 12;
/// Octets of other CREM messages, about.
const MESSAGE: u32 = 90;
/// Preamble, gap and FCS.
const LINE: u32 = 24;

/// What went toward the WAN and what became of it, in datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Host packets.
    pub sources: u64,
    /// Their octets on the wire.
    pub source_octets: u64,
    /// Host packets lost in transmission.
    pub sources_lost: u64,
    /// Host packets dropped by the queue.
    pub sources_dropped: u64,
    /// REPAIR with ordinary symbols.
    pub ordinary: u64,
    /// REPAIR with coded retransmissions.
    pub coded: u64,
    /// REPAIR with source copies.
    pub copies: u64,
    /// INFO.
    pub infos: u64,
    /// Octets of all REPAIR.
    pub repair_octets: u64,
    /// REPAIR lost or dropped on the way.
    pub repair_lost: u64,
    /// REPAIR that found no room in time at the port.
    pub repair_shed: u64,
}

impl Tally {
    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            sources: self.sources - earlier.sources,
            source_octets: self.source_octets - earlier.source_octets,
            sources_lost: self.sources_lost - earlier.sources_lost,
            sources_dropped: self.sources_dropped - earlier.sources_dropped,
            ordinary: self.ordinary - earlier.ordinary,
            coded: self.coded - earlier.coded,
            copies: self.copies - earlier.copies,
            infos: self.infos - earlier.infos,
            repair_octets: self.repair_octets - earlier.repair_octets,
            repair_lost: self.repair_lost - earlier.repair_lost,
            repair_shed: self.repair_shed - earlier.repair_shed,
        }
    }

    /// REPAIR with symbols, ordinary, coded and copies.
    pub fn repair(&self) -> u64 {
        self.ordinary + self.coded + self.copies
    }
}

/// On its way toward the receiver.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Source { flow: u16, packet: Packet, ce: bool },
    Repair { header: RepairHeader, ce: bool },
    Control(Box<Message>),
}

/// Datagrams in order of arrival.
#[derive(Debug)]
pub(super) struct Transit<T>(VecDeque<(Instant, T)>);

impl<T> Default for Transit<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Transit<T> {
    pub(super) fn push(&mut self, at: Instant, item: T) {
        if self.0.back().is_none_or(|(last, _)| *last <= at) {
            self.0.push_back((at, item));
            return;
        }
        let place = self.0.partition_point(|(other, _)| *other <= at);
        self.0.insert(place, (at, item));
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.front().map(|(at, _)| *at)
    }

    pub(super) fn pop_due(&mut self, now: Instant) -> Option<T> {
        self.0
            .pop_front_if(|(at, _)| *at <= now)
            .map(|(_, item)| item)
    }
}

#[derive(Debug)]
struct Waiting {
    header: RepairHeader,
    born: Instant,
}

/// The gateway's port toward the WAN: sources go first, repair takes the room that they leave and is shed
/// when it is too old (`dataplane` does the same).
#[derive(Debug)]
pub struct Port {
    rate: f64,
    /// When the line is free, in picoseconds.
    free_ps: u64,
    waiting: VecDeque<Waiting>,
    room: usize,
    patience: Duration,
}

impl Port {
    /// A port of this rate, bit/s; repair waits at most `patience`, and `room` messages of it.
    pub fn new(rate: f64, patience: Duration, room: usize) -> Self {
        Self {
            rate,
            free_ps: 0,
            waiting: VecDeque::new(),
            room,
            patience,
        }
    }

    fn take(&mut self, now: Instant, octets: u32) -> Instant {
        let octets = f64::from(octets + LINE);
        self.free_ps = self.free_ps.max(now.0 * 1000) + (octets * 8e12 / self.rate) as u64;
        Instant(self.free_ps / 1000)
    }

    fn is_free(&self, now: Instant) -> bool {
        self.free_ps <= now.0 * 1000
    }

    /// When waiting repair can go.
    pub(super) fn next(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(Instant(self.free_ps.div_ceil(1000)))
    }
}

/// The direction toward the receiver: port, path, what is under way.
#[derive(Debug)]
pub(super) struct Forward {
    pub(super) port: Port,
    pub(super) path: Path,
    pub(super) transit: Transit<Item>,
    pub(super) tally: Tally,
    pub(super) rng: Rng,
    /// The node with the queue reports.
    pub(super) station: Option<Station>,
}

impl Forward {
    pub(super) fn source(&mut self, now: Instant, flow: u16, packet: Packet, ect: bool) {
        let octets = packet.wire_octets();
        self.tally.sources += 1;
        self.tally.source_octets += u64::from(octets);
        let at = self.port.take(now, octets);
        let datagram = Datagram {
            octets: octets + LINE,
            ect,
            class: Class::Source,
            hash: u32::from(flow),
        };
        match self.path.send(at, &datagram, &mut self.rng) {
            Verdict::Deliver { at, ce, again, .. } => {
                if let Some(station) = &mut self.station {
                    // The path delays all alike; what is more is the wait.
                    station.on_wait(now, flow, at.since(now));
                }
                for at in [Some(at), again].into_iter().flatten() {
                    self.transit.push(at, Item::Source { flow, packet, ce });
                }
            }
            Verdict::Drop(Cause::Overflow) => {
                self.tally.sources_dropped += 1;
                if let Some(station) = &mut self.station {
                    station.on_drop(now, flow, packet.psn);
                }
            }
            Verdict::Drop(_) => self.tally.sources_lost += 1,
        }
    }

    pub(super) fn repair(&mut self, emit: &Emit) {
        let count = match emit.kind {
            RepairKind::Ordinary => &mut self.tally.ordinary,
            RepairKind::Coded => &mut self.tally.coded,
            RepairKind::Copy => &mut self.tally.copies,
            RepairKind::Info => &mut self.tally.infos,
        };
        *count += 1;
        if self.port.waiting.len() >= self.port.room {
            self.tally.repair_shed += 1;
            return;
        }
        self.port.waiting.push_back(Waiting {
            header: emit.header,
            born: emit.born,
        });
    }

    /// Sends waiting repair as far as there is room until `now`.
    pub(super) fn pump(&mut self, now: Instant) {
        while self.port.is_free(now)
            && let Some(waiting) = self.port.waiting.pop_front()
        {
            let from = Instant(self.port.free_ps / 1000).max(waiting.born);
            if from.since(waiting.born) > self.port.patience {
                self.tally.repair_shed += 1;
                continue;
            }
            self.send_repair(from, waiting.header);
        }
    }

    fn send_repair(&mut self, from: Instant, header: RepairHeader) {
        let bitmaps = u32::from(header.k).div_ceil(32) * 4;
        let bitmaps = bitmaps * (1 + u32::from(header.lost.is_some()));
        let octets = REPAIR_HEADER + bitmaps + u32::from(header.symbol_length);
        self.tally.repair_octets += u64::from(octets);
        let at = self.port.take(from, octets);
        let datagram = Datagram {
            octets: octets + LINE,
            ect: true,
            class: Class::Repair,
            hash: 0,
        };
        match self.path.send(at, &datagram, &mut self.rng) {
            Verdict::Deliver { at, ce, .. } => self.transit.push(at, Item::Repair { header, ce }),
            Verdict::Drop(_) => self.tally.repair_lost += 1,
        }
    }

    pub(super) fn control(&mut self, now: Instant, message: Message) {
        let at = self.port.take(now, MESSAGE);
        let datagram = Datagram {
            octets: MESSAGE + LINE,
            ect: false,
            class: Class::Control,
            hash: 0,
        };
        if let Verdict::Deliver { at, .. } = self.path.send(at, &datagram, &mut self.rng) {
            self.transit.push(at, Item::Control(Box::new(message)));
        }
    }
}
