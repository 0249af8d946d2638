//! Messages that nobody should believe: forged, broken, or from strangers. None is entered into the
//! accounts; what the functions do about them is judged by what follows.

use std::net::SocketAddr;

use crem_wire::crem::{Close, HelloAck, Message, Parsed, PsnRange, RangeRequest, parse};
use crem_wire::{FlowId, Psn, RequestId};

use super::World;
use super::mail::Mail;
use crate::Duration;
use crate::gateway;
use crate::scenario::Forger;

/// Shortest and longest forged message.
const LENGTHS: (u64, u64) = (1, 120);
/// Octets of the common header.
const HEADER: usize = 8;
/// Offset of the Flow ID in the common header.
const FLOW: usize = 4;

fn message(from: SocketAddr, octets: Vec<u8>) -> Mail {
    Mail {
        from,
        octets,
        symbol: None,
        t: 0,
        ce: false,
    }
}

impl World {
    /// One message reaches each gateway.
    pub(super) fn hostility(&mut self) {
        for side in 0..2 {
            let mail = self.forge(side);
            self.mail_arrives(side, mail);
        }
        let mean = 1e9 / self.scenario.hostile;
        let pause = self.rng.exponential(mean).max(1.0) as u64;
        self.next_hostile = Some(self.now + Duration::from_nanos(pause));
    }

    fn forge(&mut self, side: usize) -> Mail {
        match self.scenario.forger {
            Forger::Stranger => {}
            Forger::Nonsense => return self.nonsense(side),
            Forger::Crafty => return self.crafted(side),
            Forger::Impostor => return self.posed(side),
            Forger::Echo => return self.echoed(side),
        }
        let stranger = gateway::stranger();
        let from = match self.rng.below(4) {
            // Spoofed: only what needs no knowledge of nonces and Flow IDs.
            0 => gateway::address(1 - side),
            _ => stranger,
        };
        let octets = if from == stranger && self.rng.chance(0.5) {
            self.replay(side)
        } else {
            self.noise()
        };
        message(from, octets)
    }

    /// A plausible header with anything behind it.
    fn noise(&mut self) -> Vec<u8> {
        let length = self.rng.between(LENGTHS.0, LENGTHS.1) as usize;
        let mut octets: Vec<u8> = (0..length).map(|_| self.rng.next() as u8).collect();
        if octets.len() >= 8 && self.rng.chance(0.9) {
            octets[0] = 0x10 | self.rng.between(1, 9) as u8;
            octets[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        }
        octets
    }

    /// The last message that this side got from its peer, or one that it sent itself, once more with an
    /// octet changed behind the header.
    fn nonsense(&mut self, side: usize) -> Mail {
        if self.rng.chance(0.3)
            && let Some(mail) = self.sides[side].repair.clone()
        {
            return self.spoilt(mail);
        }
        let heard_by = if self.rng.chance(0.7) { side } else { 1 - side };
        let mut octets = self.sides[heard_by].overheard.clone();
        if octets.len() > HEADER {
            let at = self.rng.between(HEADER as u64, octets.len() as u64 - 1) as usize;
            octets[at] = self.rng.next() as u8;
        }
        message(gateway::address(1 - side), octets)
    }

    /// A REPAIR once more, with an octet of its header changed.
    fn spoilt(&mut self, mut mail: Mail) -> Mail {
        if mail.octets.len() > HEADER {
            let last = mail.octets.len() as u64 - 1;
            let at = self.rng.between(HEADER as u64, last) as usize;
            mail.octets[at] ^= 1 << self.rng.below(8);
        }
        mail
    }

    /// A well-formed message about the flow that the last message was about.
    fn crafted(&mut self, side: usize) -> Mail {
        let mut octets = Vec::new();
        if let Some(message) = self.fitting(side) {
            message.encode(&mut octets);
        }
        message(gateway::address(1 - side), octets)
    }

    fn fitting(&mut self, side: usize) -> Option<Message> {
        let id = self.sides[side].overheard.get(FLOW..HEADER)?;
        let flow = FlowId::new(u32::from_be_bytes(id.try_into().ok()?))?;
        let request = RequestId::new(self.rng.between(1, 0xffff) as u16)?;
        match self.rng.below(8) {
            0 => Some(Message::Close(Close {
                flow,
                reason: self.rng.below(5) as u16,
            })),
            1..=3 => {
                let count = self.rng.log_between(1.0, 1_500.0) as u32;
                Some(Message::RangeRequest(RangeRequest {
                    flow,
                    fallback: self.rng.chance(0.7),
                    request,
                    ranges: self.around(side, count)?.into_iter().collect(),
                }))
            }
            _ => self.double(side, flow),
        }
    }

    /// An answer to the HELLO that this side sent last, from an address that has no say.
    fn posed(&mut self, side: usize) -> Mail {
        let mut octets = Vec::new();
        let flow = FlowId::new(self.rng.next() as u32);
        if let Some(message) = flow.and_then(|flow| self.double(side, flow)) {
            message.encode(&mut octets);
        }
        message(gateway::stranger(), octets)
    }

    /// A HELLO that this side got, from the peer or from the stranger.
    fn echoed(&mut self, side: usize) -> Mail {
        let from = if self.rng.chance(0.5) {
            gateway::address(1 - side)
        } else {
            gateway::stranger()
        };
        let count = self.sides[side].hellos.len() as u64;
        let chosen = self.rng.below(count.max(1)) as usize;
        let octets = self.sides[side].hellos.get(chosen);
        message(from, octets.cloned().unwrap_or_default())
    }

    /// Ranges behind the newest packet of a stream that leaves this side.
    fn around(&mut self, side: usize, count: u32) -> Option<Vec<PsnRange>> {
        let gateway = self.sides[side].gateway.as_ref()?;
        let flows: Vec<_> = gateway.csf.flows().collect();
        let flow = flows.get(self.rng.below(flows.len().max(1) as u64) as usize)?;
        let key = &flow.key;
        let descriptor = (key.source, key.destination, key.qp.get(), key.space);
        let stream = *self.by_descriptor.get(&descriptor)?;
        let next = Psn::new(*self.newest.get(stream)?);
        let each = (1_000 / count).clamp(1, 255) as i32;
        let ranges = (1..=count as i32).rev().map(|n| PsnRange {
            start: next.add(-n * each),
            count: each as u8,
        });
        Some(ranges.collect())
    }

    /// An answer to the HELLO that this side sent last, with a Flow ID that is taken already.
    fn double(&self, side: usize, flow: FlowId) -> Option<Message> {
        let Ok(Parsed::Message(Message::Hello(hello))) = parse(&self.sides[1 - side].hello) else {
            return None;
        };
        Some(Message::HelloAck(HelloAck {
            flow,
            kind: hello.kind,
            af: if hello.flow.source.is_ipv4() { 4 } else { 6 },
            limits: hello.limits,
            rdma_mtu: hello.rdma_mtu,
            nonce: hello.nonce,
            max_open_blocks: 8,
        }))
    }

    /// The last message that this side got, from another address; its Flow ID may be known that way.
    fn replay(&mut self, side: usize) -> Vec<u8> {
        let here = &self.sides[side];
        if self.rng.chance(0.2) && !here.hello.is_empty() {
            return here.hello.clone();
        }
        let mut octets = here.overheard.clone();
        if octets.len() > FLOW && self.rng.chance(0.2) {
            octets[FLOW] ^= 1 << self.rng.below(8);
        }
        octets
    }
}
