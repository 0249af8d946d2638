//! What the protocol functions hold references to: packets and symbols, and the octets of both where
//! octets are wanted. A reference counts itself at its owner, so that the simulator knows without asking
//! the product how much is kept.

use std::rc::Rc;

use crem_core::packet::PktBuf;
use crem_fec::Equation;

use crate::Instant;
use crate::packet::Packet;
use crate::rng::mix;

/// Whether symbols carry octets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Symbols carry their equation and the names of its sources; what they are worth is decided over a
    /// short token for each source.
    Rank,
    /// Symbols carry octets, coded and decoded in full, restored packets are compared octet for octet.
    Octets,
}

/// Octets of the check at the end of every payload: stands for the ICRC.
const CHECK: usize = 8;
/// Octets of a token: content, length and damage, check.
const TOKEN: usize = 20;

/// Symbol length in which tokens are coded.
pub(crate) const TOKEN_T: usize = TOKEN + 2;

/// The octets of a packet's UDP payload, as far as the mode wants them.
pub(crate) fn write_payload(mode: Mode, packet: &Packet, out: &mut Vec<u8>) {
    out.clear();
    match mode {
        Mode::Rank => {
            out.extend_from_slice(&packet.content.0.to_be_bytes());
            out.extend_from_slice(&packet.payload_len.to_be_bytes());
            out.extend_from_slice(&[0, packet.damage]);
        }
        Mode::Octets => {
            let body = usize::from(packet.payload_len).saturating_sub(CHECK);
            let mut state = packet.content.0;
            while out.len() < body {
                state = mix(state);
                out.extend_from_slice(&state.to_be_bytes());
            }
            out.truncate(body);
        }
    }
    // Damage strikes after the check value was made.
    let mut check = checksum(out);
    if packet.damage != 0 {
        match mode {
            Mode::Rank => check ^= u64::from(packet.damage),
            Mode::Octets => damage(out, packet.damage),
        }
    }
    out.extend_from_slice(&check.to_be_bytes());
}

/// Changes one octet.
pub(crate) fn damage(octets: &mut [u8], how: u8) {
    let at = usize::from(how) * 37 % octets.len().max(1);
    if let Some(octet) = octets.get_mut(at) {
        *octet ^= 0x40;
    }
}

fn checksum(octets: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let (words, rest) = octets.as_chunks::<8>();
    for word in words {
        hash = mix(hash ^ u64::from_be_bytes(*word));
    }
    for octet in rest {
        hash = mix(hash ^ u64::from(*octet));
    }
    hash
}

/// Whether the check value at the end of decoded octets is right.
pub(crate) fn is_sound(octets: &[u8]) -> bool {
    octets
        .split_last_chunk::<CHECK>()
        .is_some_and(|(body, check)| checksum(body).to_be_bytes() == *check)
}

/// A repair symbol as it travels: its equation over named sources, and its octets in octet mode.
#[derive(Debug)]
pub(crate) struct Symbol {
    pub(crate) equation: Equation,
    /// The sources that it was computed over, with their positions.
    pub(crate) sources: Rc<[(u8, Packet)]>,
    /// Coded octets; empty in rank mode.
    pub(crate) octets: Vec<u8>,
    /// Octets were damaged on the way; zero if not.
    pub(crate) damage: u8,
}

/// Who keeps references, for counting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owner(Rc<()>);

impl Owner {
    /// References that are alive besides the owner itself.
    pub(crate) fn references(&self) -> usize {
        Rc::strong_count(&self.0) - 1
    }
}

/// What a reference refers to.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// A packet of a host.
    Packet(Packet),
    /// A REPAIR with this symbol.
    Symbol(Rc<Symbol>),
}

/// A reference to a frame.
#[derive(Clone, Debug)]
pub struct Frame {
    pub(crate) body: Body,
    /// When it arrived at the gateway, and as which one.
    pub(crate) arrived: Instant,
    pub(crate) order: u64,
    _owner: Owner,
}

impl PktBuf for Frame {}

impl Frame {
    pub(crate) fn packet(packet: Packet, arrived: Instant, order: u64, owner: &Owner) -> Self {
        Self {
            body: Body::Packet(packet),
            arrived,
            order,
            _owner: owner.clone(),
        }
    }

    pub(crate) fn symbol(symbol: Rc<Symbol>, arrived: Instant, owner: &Owner) -> Self {
        Self {
            body: Body::Symbol(symbol),
            arrived,
            order: 0,
            _owner: owner.clone(),
        }
    }

    /// The packet, if it is one.
    pub(crate) fn as_packet(&self) -> Option<&Packet> {
        match &self.body {
            Body::Packet(packet) => Some(packet),
            Body::Symbol(_) => None,
        }
    }

    /// The symbol, if it is one.
    pub(crate) fn as_symbol(&self) -> Option<&Symbol> {
        match &self.body {
            Body::Packet(_) => None,
            Body::Symbol(symbol) => Some(symbol),
        }
    }
}
