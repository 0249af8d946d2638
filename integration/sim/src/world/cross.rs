//! Packets of hosts through a gateway: forwarded at once and shown to the sender function on the way
//! out, handed to the receiver function on the way in.

use crem_core::actions::Delivery;
use crem_core::packet::{Desc, PsnSpace};

use super::{Item, Wire, World, looked_at};
use crate::frame::Frame;
use crate::net::{Cause, Class, Datagram, Link, Verdict};
use crate::packet::{Packet, Role, opcode};
use crate::{Duration, Instant};

/// Packets that a gateway takes at once.
pub(super) const BURST: usize = 64;
/// Octets of Ethernet, IP, UDP in front of the UDP payload.
const HEADERS: u16 = 42;

impl World {
    /// Side that a packet is sent from.
    pub(super) fn origin(&self, packet: &Packet) -> usize {
        let requester = self.scenario.connections[packet.conn.0 as usize].side;
        match packet.to {
            Role::Responder => requester,
            Role::Requester => 1 - requester,
        }
    }

    /// The stream that a packet belongs to, if it is of one.
    pub(super) fn stream_of(packet: &Packet) -> Option<usize> {
        let space = packet.space()? as usize;
        Some(packet.conn.0 as usize * 2 + space)
    }

    /// The stream among whose packets the receiver function of a side gets a packet: an acknowledgment
    /// among the responses to its queue pair, where these are protected.
    fn arrives_among(&self, side: usize, packet: &Packet) -> Option<usize> {
        let protects = || {
            let gateway = self.sides[side].gateway.as_ref();
            gateway.is_some_and(|gateway| gateway.cfg.responses)
        };
        let is_ack = packet.opcode == opcode::ACKNOWLEDGE && protects();
        let responses = packet.conn.0 as usize * 2 + PsnSpace::Responses as usize;
        Self::stream_of(packet).or(is_ack.then_some(responses))
    }

    fn desc(&self, packet: &Packet, stream: usize, buf: Frame) -> Desc<Frame> {
        let whole = matches!(
            packet.opcode,
            opcode::WRITE_FIRST
                | opcode::WRITE_MIDDLE
                | opcode::READ_RESPONSE_FIRST
                | opcode::READ_RESPONSE_MIDDLE
        );
        let transport = &self.scenario.connections[packet.conn.0 as usize].transport;
        let is_read = packet.opcode == opcode::READ_REQUEST;
        Desc {
            key: self.streams[stream].key,
            psn: packet.wire_psn(),
            opcode: packet.opcode,
            payload_len: packet.payload_len,
            payload_off: HEADERS,
            mtu_seen: whole.then_some(transport.mtu),
            read_length: is_read.then_some(packet.read_length),
            ce: packet.ce,
            dscp: packet.dscp,
            buf,
        }
    }

    /// The burst that came over the LAN of `side`.
    pub(super) fn cross_to_wan(&mut self, side: usize) {
        let mut burst = std::mem::take(&mut self.burst);
        let up = self.sides[side].up_at <= self.now;
        if up {
            for packet in &burst {
                self.forward(side, packet);
            }
            let mut descs = std::mem::take(&mut self.descs);
            for packet in &burst {
                if let Some(stream) = Self::stream_of(packet) {
                    let account = self.streams[stream].account;
                    self.newest[account] = packet.psn.get();
                    let sources = &mut self.sides[side].ledger.sources[account];
                    let namespace = self.streams[stream].key.namespace.0;
                    sources.on_packet(self.now, namespace, packet.psn.get(), packet.payload_len);
                    if let Some(gateway) = &self.sides[side].gateway {
                        let frame = Frame::packet(*packet, self.now, 0, &gateway.sending);
                        descs.push(self.desc(packet, stream, frame));
                    }
                }
            }
            if let Some(gateway) = &mut self.sides[side].gateway
                && !descs.is_empty()
            {
                gateway.on_lan(self.now, &descs);
            }
            descs.clear();
            self.descs = descs;
            self.settle(side);
        }
        burst.clear();
        self.burst = burst;
    }

    /// One packet onto the WAN.
    fn forward(&mut self, side: usize, packet: &Packet) {
        let class = match packet.space() {
            Some(_) => Class::Source,
            None => Class::Acknowledgment,
        };
        let wan = &mut self.sides[side].wan;
        let carried = carry(wan, self.now, packet, class, self.scenario.poll);
        let lane = wan.lane;
        self.sums.crossed += u64::from(class == Class::Source);
        if packet.space() == Some(PsnSpace::Requests) {
            self.sums.requests[side][0] += 1;
            self.sums.requests[side][1] += u64::from(carried.is_err());
        }
        match carried {
            Ok(carried) => self.put(lane, carried),
            Err(cause) => {
                self.sums.lost += u64::from(class == Class::Source);
                self.dropped(side, packet, cause);
            }
        }
    }

    /// Puts what a path lets through on its lane.
    pub(super) fn put(&mut self, lane: crate::event::Lane, carried: Carried) {
        if let Some(again) = carried.again {
            self.flight.push(lane, again, Item::Packet(carried.packet));
        }
        self.flight
            .push(lane, carried.at, Item::Packet(carried.packet));
    }

    /// The burst that came over the WAN to `side`.
    pub(super) fn cross_to_lan(&mut self, side: usize) {
        let mut burst = std::mem::take(&mut self.burst);
        if self.sides[side].up_at <= self.now {
            let mut descs = std::mem::take(&mut self.descs);
            for packet in &burst {
                if self.sides[side].gateway.is_some() {
                    self.acknowledged(side, packet);
                }
                match (self.arrives_among(side, packet), &self.sides[side].gateway) {
                    (Some(stream), Some(gateway)) => {
                        let order = self.sides[side].arrivals;
                        let frame = Frame::packet(*packet, self.now, order, &gateway.receiving);
                        descs.push(self.desc(packet, stream, frame));
                        self.sides[side].arrivals += 1;
                        self.sides[side].delivery.taken(packet);
                    }
                    _ => {
                        self.plain.push_back((self.sides[side].arrivals, *packet));
                    }
                }
            }
            if let Some(gateway) = &mut self.sides[side].gateway
                && !descs.is_empty()
            {
                gateway.on_wan(self.now, &descs);
            }
            descs.clear();
            self.descs = descs;
            self.settle(side);
            self.hand_over_plain(side, u64::MAX);
        }
        burst.clear();
        self.burst = burst;
    }

    /// Packets of this burst that are nothing to the receiver function and came before the packet of that
    /// order: they keep their place among those that it lets out at once.
    fn hand_over_plain(&mut self, side: usize, before: u64) {
        while let Some((_, packet)) = self.plain.pop_front_if(|(order, _)| *order <= before) {
            self.hand_over(side, &packet);
        }
    }

    /// What the functions at `side` decided is carried out.
    pub(super) fn settle(&mut self, side: usize) {
        let Some(gateway) = &mut self.sides[side].gateway else {
            return;
        };
        gateway.settle(self.now, &mut self.coder);
        if !gateway.deliver.is_empty() {
            self.deliver(side);
        }
        self.send_repairs(side);
        self.send_messages(side);
        self.events_due(side);
        self.check_step(side);
    }

    fn deliver(&mut self, side: usize) {
        let Some(gateway) = &mut self.sides[side].gateway else {
            return;
        };
        let mut deliver = std::mem::take(&mut gateway.deliver);
        for (how, frame) in &deliver {
            let Some(packet) = frame.as_packet().copied() else {
                continue;
            };
            let stream = self.arrives_among(side, &packet).unwrap_or(usize::MAX);
            let account = self.streams.get(stream).map_or(stream, |s| s.account);
            let checks = &mut self.sides[side].delivery;
            let violations = &mut self.violations;
            checks.delivered(self.now, *how, frame, stream, account, violations);
            if *how == Delivery::Restored {
                self.sums.restored += 1;
            } else {
                self.hand_over_plain(side, frame.order);
            }
            self.hand_over(side, &packet);
        }
        deliver.clear();
        if let Some(gateway) = &mut self.sides[side].gateway {
            gateway.deliver = deliver;
        }
    }

    fn hand_over(&mut self, side: usize, packet: &Packet) {
        let host = usize::from(self.scenario.connections[packet.conn.0 as usize].hosts[side]);
        let class = match packet.space() {
            Some(PsnSpace::Requests | PsnSpace::Responses) => Class::Source,
            None => Class::Acknowledgment,
        };
        let wire = &mut self.sides[side].to_host[host];
        let carried = carry(wire, self.now, packet, class, Duration::ZERO);
        let lane = wire.lane;
        if let Ok(carried) = carried {
            self.put(lane, carried);
        }
    }

    fn check_step(&mut self, side: usize) {
        let Self {
            sides,
            now,
            violations,
            ..
        } = self;
        let Some(gateway) = &sides[side].gateway else {
            return;
        };
        let references = gateway.receiving.references();
        sides[side].delivery.step(*now, references, violations);
        let kept = gateway.sending.references();
        let crf = &gateway.cfg.crf;
        let flows = sides[side].ledger.sources.len() * 4 + BURST;
        let bound = crf.hold_packets as usize + crf.keep_packets as usize + flows;
        violations.require(*now, references <= bound, || {
            format!("the receiver function keeps {references} packets, {bound} allowed")
        });
        let bound = gateway.cfg.csf.retain_packets as usize + flows;
        violations.require(*now, kept <= bound, || {
            format!("the sender function keeps {kept} packets, {bound} allowed")
        });
    }

    /// Whether the path of a packet leads past the gateways.
    pub(super) fn bypasses(&mut self, side: usize) -> bool {
        self.spread += 1;
        self.sides[side].bypass.is_some() && self.spread.is_multiple_of(2)
    }
}

/// A packet that a path let through.
pub(super) struct Carried {
    at: Instant,
    again: Option<Instant>,
    packet: Packet,
}

/// Sends one packet over a path; `poll` is how often the far end looks.
pub(super) fn carry(
    wire: &mut Wire,
    now: Instant,
    packet: &Packet,
    class: Class,
    poll: Duration,
) -> Result<Carried, Cause> {
    let datagram = Datagram {
        octets: packet.wire_octets(),
        ect: packet.ect,
        class,
        hash: packet.conn.0.wrapping_mul(0x9e37_79b9),
    };
    match wire.path.send(now, &datagram, &mut wire.rng) {
        Verdict::Drop(cause) => Err(cause),
        Verdict::Deliver {
            at,
            ce,
            damaged,
            again,
        } => {
            let mut packet = *packet;
            packet.ce |= ce;
            if damaged {
                packet.damage = 1 + (wire.rng.next() % 255) as u8;
            }
            Ok(Carried {
                at: looked_at(at, poll),
                again: again.map(|at| looked_at(at, poll)),
                packet,
            })
        }
    }
}
