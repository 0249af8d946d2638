//! Messages between gateways: written by the product's codec, read on the way by the simulator's own
//! reader and entered into the account, and read by the product's codec where they arrive.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use crem_core::actions::Emit;
use crem_core::packet::PsnSpace;
use crem_fec::{Equation, PositionSet, Scheme};
use crem_wire::FlowId;
use crem_wire::crem::{Message, Parsed, RepairHeader, parse};

use super::{Item, World, looked_at};
use crate::Duration;
use crate::coder::Made;
use crate::frame::{Frame, Symbol};
use crate::gateway;
use crate::net::{Class, Datagram, Link, Verdict};
use crate::scenario::Forger;
use crate::wire::{self, Form, Seen};

/// Octets around a message: Ethernet, IPv4, UDP, FCS, preamble and gap.
const AROUND: u32 = 66;
/// The private Flow Kind of READ and atomic responses.
const RESPONSES: u8 = 0xc1;
/// Octets of the common header.
const COMMON: usize = 8;
/// HELLOs that an echo knows.
const ECHOED: usize = 16;
/// Connections of a world whose gateways can be asked about a flow for every answer.
const FEW: usize = 64;

/// A message on its way.
#[derive(Clone, Debug)]
pub(crate) struct Mail {
    pub(super) from: SocketAddr,
    /// The message; of a REPAIR everything but the symbol.
    pub(super) octets: Vec<u8>,
    /// The symbol of a REPAIR.
    pub(super) symbol: Option<Rc<Symbol>>,
    /// Octets of the symbol.
    pub(super) t: usize,
    pub(super) ce: bool,
}

impl Mail {
    /// Writes the message in full; a symbol without octets is all zero.
    fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.octets);
        let end = self.octets.len() + self.t;
        match &self.symbol {
            Some(symbol) if !symbol.octets.is_empty() => out.extend_from_slice(&symbol.octets),
            _ => out.resize(end, 0),
        }
    }

    /// What is left of an answer to a request for repair: the information about its block.
    fn hollow(mut self) -> Self {
        let mut whole = Vec::new();
        self.write(&mut whole);
        if let Ok(Parsed::Repair(mut header, _)) = parse(&whole) {
            header.info = true;
            header.scheme = header.scheme.max(1);
            (header.index, header.lost, header.symbol_length) = (0, None, 0);
            self.octets = vec![0; header.encoded_len()];
            header.encode(&mut self.octets);
            (self.symbol, self.t) = (None, 0);
        }
        self
    }
}

impl World {
    /// REPAIRs that `side` decided to send.
    pub(super) fn send_repairs(&mut self, side: usize) {
        let Some(gateway) = &mut self.sides[side].gateway else {
            return;
        };
        let mut repairs = std::mem::take(&mut gateway.repairs);
        for (emit, made) in repairs.drain(..) {
            let mail = repair(&emit, made, gateway::address(side));
            self.send_mail(side, mail, Class::Repair, None);
        }
        if let Some(gateway) = &mut self.sides[side].gateway {
            gateway.repairs = repairs;
        }
    }

    /// Other messages that `side` decided to send.
    pub(super) fn send_messages(&mut self, side: usize) {
        let Some(gateway) = &mut self.sides[side].gateway else {
            return;
        };
        let mut messages = std::mem::take(&mut gateway.messages);
        for transmit in messages.drain(..) {
            // Whoever posed as a peer gets no answer that matters.
            if transmit.to == gateway::stranger() {
                continue;
            }
            let stream = match &transmit.message {
                Message::Hello(hello) => self.stream_of_hello(hello),
                _ => None,
            };
            let mut octets = Vec::with_capacity(64);
            transmit.message.encode(&mut octets);
            let mail = Mail {
                from: gateway::address(side),
                octets,
                symbol: None,
                t: 0,
                ce: false,
            };
            self.send_mail(side, mail, Class::Control, stream);
        }
        if let Some(gateway) = &mut self.sides[side].gateway {
            gateway.messages = messages;
        }
    }

    fn stream_of_hello(&self, hello: &crem_wire::crem::Hello) -> Option<usize> {
        let space = match hello.kind {
            RESPONSES => PsnSpace::Responses,
            _ => PsnSpace::Requests,
        };
        let found = self.by_descriptor.get(&(
            hello.flow.source,
            hello.flow.destination,
            hello.flow.qp.get(),
            space,
        ));
        found.copied()
    }

    /// Judges a message and gives it to the path.
    fn send_mail(&mut self, side: usize, mail: Mail, class: Class, stream: Option<usize>) {
        let mut octets = std::mem::take(&mut self.scratch);
        mail.write(&mut octets);
        let read = wire::sent(&octets);
        let size = octets.len();
        self.scratch = octets;
        let (flow, seen) = match read {
            Ok(read) => read,
            Err(fault) => {
                self.violations.add(self.now, || {
                    format!(
                        "a message breaks the rule '{}': {:02x?}",
                        fault.0, mail.octets
                    )
                });
                return;
            }
        };
        self.coverage.message(seen.name());
        self.trace(side, "sends", flow, &seen);
        self.account(side, flow, &seen, stream, size);
        self.digest_mail(&mail);
        if self.sides[side].muted.contains(&seen.name()) {
            return;
        }
        if let Some(mail) = self.tampered(side, mail, &seen) {
            self.carry_mail(side, mail, class, size as u32 + AROUND);
        }
    }

    /// What somebody on the way leaves of a message.
    fn tampered(&mut self, side: usize, mut mail: Mail, seen: &Seen) -> Option<Mail> {
        let how = self.sides[side].tampering;
        if seen.is_answer() {
            if how.loses > 0.0 && self.rng.chance(how.loses) {
                return None;
            }
            if how.hollows {
                return Some(mail.hollow());
            }
        }
        if how.spoils > 0.0 && self.rng.chance(how.spoils) {
            let octet = 1 + (self.rng.next() % 255) as u8;
            mail.symbol = mail.symbol.map(|s| Rc::new(damaged_symbol(&s, octet)));
        }
        Some(mail)
    }

    fn trace(&self, side: usize, does: &str, flow: u32, seen: &Seen) {
        if self.scenario.trace {
            let (seconds, nanos) = (self.now.0 / 1_000_000_000, self.now.0 % 1_000_000_000);
            eprintln!("{seconds}.{nanos:09} side {side} {does} {flow:08x} {seen:?}");
        }
    }

    /// Enters a message that `side` sends into the account that it belongs to.
    fn account(&mut self, side: usize, flow: u32, seen: &Seen, stream: Option<usize>, size: usize) {
        let now = self.now;
        let as_sender = match seen {
            Seen::Hello { .. } | Seen::ParamUpdate { .. } | Seen::Repair(_) => true,
            Seen::Close { .. } => self.sides[side].ledger.knows(flow),
            _ => false,
        };
        if as_sender {
            let smoothed = self.smoothed(side, flow, seen);
            let ledger = &mut self.sides[side].ledger;
            ledger.smoothed = smoothed;
            let violations = &mut self.violations;
            ledger.sender_says(now, flow, seen, stream, size, violations);
        } else {
            let ledger = &mut self.sides[1 - side].ledger;
            ledger.receiver_says(now, seen, &mut self.violations);
            let offered = ledger.offered(seen);
            let delivery = &mut self.sides[side].delivery;
            match seen {
                Seen::HelloAck { .. } => {
                    offered.inspect(|stream| delivery.offers(now, flow, *stream));
                }
                Seen::ParamAck { status: 0, .. } => delivery.binds(now, flow),
                _ => {}
            }
        }
        if let Seen::Close { reason } = seen {
            self.coverage.close(*reason);
        }
        if let Seen::Repair(repair) = seen {
            self.sums.repair(repair.form);
        }
    }

    /// The round trip that the sender function of `side` believes in, where what it says has to wait for
    /// one: the rule is about that, be it true or told by a forger. Asked for in worlds of few flows only.
    fn smoothed(&self, side: usize, flow: u32, seen: &Seen) -> Option<Duration> {
        let waits = match seen {
            Seen::Repair(repair) => matches!(repair.form, Form::Coded | Form::Copy),
            Seen::ParamUpdate { .. } => true,
            _ => false,
        };
        if !waits || self.scenario.connections.len() > FEW {
            return None;
        }
        let gateway = self.sides[side].gateway.as_ref()?;
        let named = |bound: Option<(SocketAddr, FlowId)>| bound.is_some_and(|b| b.1.get() == flow);
        gateway.csf.flows().find(|f| named(f.bound))?.srtt
    }

    fn digest_mail(&mut self, mail: &Mail) {
        let sum = mail.octets.iter().fold(mail.t as u64, |sum, octet| {
            sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(*octet)
        });
        self.note(sum);
    }

    fn carry_mail(&mut self, side: usize, mail: Mail, class: Class, octets: u32) {
        let poll = self.scenario.poll;
        let datagram = Datagram {
            octets,
            ect: class == Class::Repair,
            class,
            hash: u32::from(gateway::PORT),
        };
        let here = &mut self.sides[side];
        let wire = here.channel.as_mut().unwrap_or(&mut here.wan);
        let lane = wire.lane;
        let verdict = wire.path.send(self.now, &datagram, &mut wire.rng);
        self.sums.repair_sent += u64::from(class == Class::Repair);
        let Verdict::Deliver {
            at,
            ce,
            damaged,
            again,
        } = verdict
        else {
            return;
        };
        let mut mail = mail;
        mail.ce = ce;
        if damaged {
            let how = 1 + (wire.rng.next() % 255) as u8;
            // A UDP checksum finds damage in all messages but REPAIR, whose symbol may be trusted to none.
            match &mail.symbol {
                Some(symbol) => mail.symbol = Some(Rc::new(damaged_symbol(symbol, how))),
                None => return,
            }
        }
        for at in again.into_iter().chain([at]) {
            let at = looked_at(at, poll);
            self.flight
                .push(lane, at, Item::Mail(Box::new(mail.clone())));
        }
    }

    /// A message at the WAN port of `side`.
    pub(super) fn mail_arrives(&mut self, side: usize, mail: Mail) {
        if self.sides[side].up_at > self.now {
            return;
        }
        let mut octets = std::mem::take(&mut self.scratch);
        mail.write(&mut octets);
        let heard = wire::received(&octets);
        match (parse(&octets), heard) {
            (Ok(Parsed::Repair(header, _)), Ok(_)) => self.repair_arrives(side, &mail, &header),
            (Ok(Parsed::Message(message)), Ok(heard)) => {
                self.message_arrives(side, &mail, &message, &heard, &octets);
            }
            (Err(_), Err(_)) => self.sums.refused += 1,
            (parsed, heard) => self.violations.add(self.now, || {
                format!("codec and reader disagree: {parsed:?}, {heard:?}: {octets:02x?}")
            }),
        }
        self.scratch = octets;
        self.settle(side);
    }

    fn repair_arrives(&mut self, side: usize, mail: &Mail, header: &RepairHeader) {
        let now = self.now;
        if self.scenario.forger != Forger::Stranger {
            self.sides[side].repair = Some(mail.clone());
        }
        let Some(gateway) = &mut self.sides[side].gateway else {
            return;
        };
        let symbol = mail.symbol.as_ref().filter(|_| !header.info);
        let frame = symbol.map(|s| Frame::symbol(Rc::clone(s), now, &gateway.receiving));
        gateway.on_repair(now, mail.from, header, frame, mail.ce);
    }

    fn message_arrives(
        &mut self,
        side: usize,
        mail: &Mail,
        message: &Message,
        heard: &(u32, Seen),
        octets: &[u8],
    ) {
        let now = self.now;
        if let Message::Hello(hello) = message
            && self.ignores(side, hello.kind)
        {
            return;
        }
        let is_peer = mail.from == gateway::address(1 - side);
        if is_peer {
            let (flow, seen) = heard;
            self.trace(side, "hears", *flow, seen);
            let here = &mut self.sides[side];
            here.ledger.sender_hears(now, *flow, seen);
            here.overheard.clear();
            here.overheard.extend_from_slice(octets);
            if let Message::Hello(_) = message {
                here.hello.clone_from(&here.overheard);
                if self.scenario.forger == Forger::Echo && here.hellos.len() < ECHOED {
                    here.hellos.push(here.hello.clone());
                }
            }
        }
        if let Some(gateway) = &mut self.sides[side].gateway {
            gateway.on_message(now, mail.from, message, mail.ce);
        }
    }

    fn ignores(&self, side: usize, kind: u8) -> bool {
        let limited = self.scenario.peers[side] == crate::scenario::Peer::RequestsOnly;
        limited && kind == RESPONSES
    }
}

fn damaged_symbol(symbol: &Symbol, how: u8) -> Symbol {
    let mut octets = symbol.octets.clone();
    if !octets.is_empty() {
        crate::frame::damage(&mut octets, how);
    }
    Symbol {
        equation: symbol.equation,
        sources: Rc::clone(&symbol.sources),
        octets,
        damage: how,
    }
}

fn repair(emit: &Emit, made: Option<Made>, from: SocketAddr) -> Mail {
    let mut octets = vec![0; emit.header.encoded_len().max(COMMON)];
    emit.header.encode(&mut octets);
    let symbol = made.and_then(|made| {
        let set = made.sources.iter().map(|(position, _)| *position);
        let equation = Equation {
            scheme: Scheme::from_number(emit.header.scheme)?,
            index: emit.header.index,
            set: set.collect::<PositionSet>(),
        };
        Some(Rc::new(Symbol {
            equation,
            sources: made.sources,
            octets: made.octets,
            damage: 0,
        }))
    });
    Mail {
        from,
        octets,
        symbol,
        t: usize::from(emit.header.symbol_length),
        ce: false,
    }
}

/// What names a stream in HELLO.
pub(super) type Descriptor = (IpAddr, IpAddr, u32, PsnSpace);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_fills_its_place_with_or_without_octets() {
        let mut mail = Mail {
            from: gateway::address(0),
            octets: vec![1, 2, 3],
            symbol: None,
            t: 4,
            ce: false,
        };
        let mut out = vec![9; 20];
        mail.write(&mut out);
        assert_eq!(out, [1, 2, 3, 0, 0, 0, 0]);
        let sources: Rc<[_]> = [].into();
        let equation = Equation {
            scheme: Scheme::Cauchy,
            index: 0,
            set: PositionSet::EMPTY,
        };
        let octets = vec![5, 6, 7, 8];
        mail.symbol = Some(Rc::new(Symbol {
            equation,
            sources,
            octets,
            damage: 0,
        }));
        mail.write(&mut out);
        assert_eq!(out, [1, 2, 3, 5, 6, 7, 8]);
    }
}
