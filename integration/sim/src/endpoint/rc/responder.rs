//! The responding side of a queue pair: order, acknowledgments, answers to READs, notifications of
//! congestion.

use std::collections::{BTreeMap, VecDeque};

use crem_core::time::{Duration, Instant};

use super::dcqcn::CnpSource;
use super::packet::{Body, Packet, Place, content_of};
use super::requester::{Recovery, RequesterConfig};
use super::sequence::{Serial, psn_of, unwrap_psn};

/// Knobs of a responder.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ResponderConfig {
    /// How losses are repaired; both sides alike.
    pub recovery: Recovery,
    /// RDMA MTU, octets.
    pub mtu: u16,
    /// First PSN, without wrap.
    pub first: Serial,
    /// PSNs beyond a gap that it can take.
    pub window: u32,
    /// Line rate of READ responses, bit/s.
    pub rate: u64,
    /// Packets beyond a gap per selective acknowledgment.
    pub sack_every: u32,
    /// A poll that comes late by no more than this loses no line time.
    pub batch: Duration,
    /// Least time between congestion notifications.
    pub cnp_interval: Duration,
}

/// What a responder counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResponderFigures {
    /// Packets taken for the first time.
    pub unique: u64,
    /// Their octets of payload.
    pub octets: u64,
    /// Packets that had been taken before.
    pub repeated: u64,
    /// Packets that came before an earlier one.
    pub early: u64,
    /// Negative acknowledgments and first reports of a gap.
    pub naks: u64,
    /// READ responses sent.
    pub responses: u64,
    /// READs answered again.
    pub reads_again: u64,
}

#[derive(Clone, Copy, Debug)]
enum Out {
    Tell(Serial, Body),
    /// Responses `next .. end` of a READ asked for from `first` on with `octets`.
    Answer {
        first: Serial,
        next: Serial,
        end: Serial,
        octets: u32,
        version: u64,
    },
}

/// The responding side of a queue pair.
#[derive(Debug)]
pub struct Responder {
    config: ResponderConfig,
    expected: Serial,
    nak_out: bool,
    /// One bit per PSN beyond the gap.
    arrived: Vec<u64>,
    /// READ requests beyond the gap: octets.
    early_reads: BTreeMap<Serial, u32>,
    /// Serial after the highest that arrived.
    highest: Serial,
    /// The newest run beyond a gap, and how far of it was told.
    run: (Serial, Serial),
    told: Serial,
    out: VecDeque<Out>,
    free_ps: u64,
    cnp: CnpSource,
    version: u64,
    figures: ResponderFigures,
}

impl ResponderConfig {
    /// The other side of that requester.
    pub fn facing(requester: &RequesterConfig) -> Self {
        Self {
            recovery: requester.recovery,
            mtu: requester.mtu,
            first: requester.first,
            window: requester.window,
            rate: requester.rate,
            sack_every: requester.ack_every,
            batch: requester.batch,
            cnp_interval: Duration::from_micros(50),
        }
    }
}

impl Responder {
    /// A responder that has seen nothing.
    pub fn new(config: ResponderConfig) -> Self {
        let ring = match config.recovery {
            Recovery::GoBackN => 0,
            Recovery::Selective { .. } => (config.window as usize / 64 + 2).next_power_of_two(),
        };
        Self {
            expected: config.first,
            nak_out: false,
            arrived: vec![0; ring],
            early_reads: BTreeMap::new(),
            highest: config.first,
            run: (config.first, config.first),
            told: config.first,
            out: VecDeque::new(),
            free_ps: 0,
            cnp: CnpSource::new(config.cnp_interval),
            version: 0,
            figures: ResponderFigures::default(),
            config,
        }
    }

    /// The memory that READs read is written anew: later answers have other contents.
    pub fn rewrite(&mut self) {
        self.version += 1;
    }

    /// A request arrived, possibly with ECN CE.
    pub fn on_packet(&mut self, now: Instant, packet: &Packet, ce: bool) {
        if ce && self.cnp.on_ce(now) {
            self.out.push_front(Out::Tell(self.expected, Body::Cnp));
        }
        if !packet.is_request() {
            return;
        }
        let serial = unwrap_psn(packet.psn, self.expected);
        if serial < self.expected {
            self.on_repeated(serial, packet);
        } else if serial == self.expected {
            self.take(serial, packet);
            self.nak_out = false;
            let gap_was_open = self.early();
            if gap_was_open {
                self.take_early();
            }
            if packet.ack_req || gap_was_open {
                self.tell(self.expected, Body::Ack);
            }
        } else {
            match self.config.recovery {
                Recovery::GoBackN => self.refuse(),
                Recovery::Selective { .. } => self.on_early(serial, packet),
            }
        }
        self.highest = self.highest.max(self.expected);
    }

    fn early(&self) -> bool {
        !self.arrived.is_empty() && self.highest > self.expected
    }

    fn refuse(&mut self) {
        self.figures.early += 1;
        if !self.nak_out {
            self.nak_out = true;
            self.figures.naks += 1;
            self.tell(self.expected, Body::Nak);
        }
    }

    fn on_repeated(&mut self, serial: Serial, packet: &Packet) {
        self.figures.repeated += 1;
        match packet.body {
            Body::ReadRequest(octets) => {
                self.figures.reads_again += 1;
                if self.config.recovery == Recovery::GoBackN {
                    self.forget_from(serial);
                }
                self.answer(serial, octets);
            }
            // One packet that was sent again alone has to be answered, asked for or not.
            _ if packet.ack_req || self.config.recovery != Recovery::GoBackN => {
                self.tell(self.expected, Body::Ack);
            }
            _ => {}
        }
    }

    /// Answers that a host which goes back asks for anew are not sent any more, nor what would overtake
    /// the new answers.
    fn forget_from(&mut self, serial: Serial) {
        self.out.retain(|out| match out {
            Out::Tell(told, body) => *told <= serial || *body == Body::Cnp,
            Out::Answer { next, .. } => *next < serial,
        });
        for out in &mut self.out {
            if let Out::Answer { end, .. } = out {
                *end = (*end).min(serial);
            }
        }
    }

    /// The packet is the next in order.
    fn take(&mut self, serial: Serial, packet: &Packet) {
        self.figures.unique += 1;
        self.figures.octets += u64::from(packet.payload);
        match packet.body {
            Body::ReadRequest(octets) => {
                self.expected = serial + self.span(octets);
                self.answer(serial, octets);
            }
            _ => self.expected = serial + 1,
        }
    }

    fn span(&self, octets: u32) -> u64 {
        u64::from(octets.div_ceil(u32::from(self.config.mtu)).max(1))
    }

    fn answer(&mut self, first: Serial, octets: u32) {
        let end = first + self.span(octets);
        self.out.push_back(Out::Answer {
            first,
            next: first,
            end,
            octets,
            version: self.version,
        });
    }

    // ---- selective repeat: beyond a gap

    fn bit(&self, serial: Serial) -> (usize, u64) {
        let word = (serial / 64) as usize & (self.arrived.len() - 1);
        (word, 1 << (serial % 64))
    }

    fn on_early(&mut self, serial: Serial, packet: &Packet) {
        let (word, bit) = self.bit(serial);
        if self.arrived[word] & bit != 0 {
            self.figures.repeated += 1;
            return;
        }
        self.figures.early += 1;
        if serial - self.expected >= u64::from(self.config.window) {
            return;
        }
        self.arrived[word] |= bit;
        self.figures.unique += 1;
        self.figures.octets += u64::from(packet.payload);
        let end = match packet.body {
            Body::ReadRequest(octets) => {
                self.early_reads.insert(serial, octets);
                serial + self.span(octets)
            }
            _ => serial + 1,
        };
        if serial == self.run.1 && self.run.0 > self.expected {
            self.run.1 = end;
            if self.run.1 - self.told >= u64::from(self.config.sack_every) || packet.ack_req {
                self.tell_run();
            }
        } else if serial >= self.highest {
            if self.told < self.run.1 && self.run.0 > self.expected {
                self.tell_run();
            }
            self.figures.naks += 1;
            self.run = (serial, end);
            self.tell_run();
        } else {
            // A hole inside: told by itself.
            let body = Body::Sack {
                from: psn_of(serial),
                to: psn_of(end),
            };
            self.tell(self.expected, body);
        }
        self.highest = self.highest.max(end);
    }

    fn tell_run(&mut self) {
        self.told = self.run.1;
        let body = Body::Sack {
            from: psn_of(self.run.0),
            to: psn_of(self.run.1),
        };
        self.tell(self.expected, body);
    }

    /// What had arrived beyond a gap and is in order now.
    fn take_early(&mut self) {
        while !self.arrived.is_empty() && self.expected < self.highest {
            let (word, bit) = self.bit(self.expected);
            if self.arrived[word] & bit == 0 {
                break;
            }
            self.arrived[word] &= !bit;
            let serial = self.expected;
            self.expected += 1;
            if let Some(octets) = self.early_reads.remove(&serial) {
                self.expected = serial + self.span(octets);
                self.answer(serial, octets);
            }
        }
    }

    // ---- what it sends

    fn tell(&mut self, serial: Serial, body: Body) {
        if let (Some(Out::Tell(last, Body::Ack)), Body::Ack) = (self.out.back_mut(), body) {
            *last = serial;
            return;
        }
        self.out.push_back(Out::Tell(serial, body));
    }

    /// When the next packet may leave; `None` without one.
    pub fn next_send(&self) -> Option<Instant> {
        match self.out.front()? {
            Out::Tell(..) => Some(Instant(0)),
            Out::Answer { .. } => Some(Instant(self.free_ps.div_ceil(1000))),
        }
    }

    /// The packet that may leave at `now`.
    pub fn send(&mut self, now: Instant) -> Option<Packet> {
        let mtu = self.config.mtu;
        loop {
            match self.out.front_mut()? {
                Out::Tell(serial, body) => {
                    let packet = tell(*serial, *body);
                    self.out.pop_front();
                    return Some(packet);
                }
                Out::Answer { next, end, .. } if *next >= *end => {
                    self.out.pop_front();
                }
                Out::Answer { .. } if self.free_ps > now.0 * 1000 => return None,
                Out::Answer {
                    first,
                    next,
                    octets,
                    version,
                    ..
                } => {
                    let packet = response(*first, *next, *octets, *version, mtu);
                    *next += 1;
                    self.figures.responses += 1;
                    let gap = u64::from(packet.wire_octets()) * 8 * 1_000_000_000_000;
                    let from = self.free_ps.max((now - self.config.batch).0 * 1000);
                    self.free_ps = from + (gap as f64 / self.config.rate as f64) as u64;
                    return Some(packet);
                }
            }
        }
    }

    /// First serial that has not arrived.
    pub fn expected(&self) -> Serial {
        self.expected
    }

    /// What was counted.
    pub fn figures(&self) -> ResponderFigures {
        self.figures
    }
}

fn tell(serial: Serial, body: Body) -> Packet {
    Packet {
        psn: psn_of(serial),
        body,
        payload: 0,
        content: 0,
        ack_req: false,
    }
}

fn response(first: Serial, serial: Serial, octets: u32, version: u64, mtu: u16) -> Packet {
    let count = u64::from(octets.div_ceil(u32::from(mtu)).max(1));
    let index = serial - first;
    let rest = u64::from(octets).saturating_sub(index * u64::from(mtu));
    Packet {
        psn: psn_of(serial),
        body: Body::ReadResponse(Place::of(index, count)),
        payload: rest.min(u64::from(mtu)) as u16,
        content: content_of(serial, version, true),
        ack_req: false,
    }
}
