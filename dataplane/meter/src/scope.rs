//! Which packets are RoCEv2 by configuration (sections 3 and 4.1 of the BTH draft, AMB-BTH-CTX). A
//! complete BTH of version 0 at the configured layer is what `crem-wire` finds; here it must also be in a
//! configured scope. Without a scope nothing is exported, and nothing is guessed.

use alloc::vec::Vec;
use core::net::IpAddr;

use crem_wire::frame::{Class, ETHERTYPE_IPV4, ETHERTYPE_IPV6, PROTOCOL_UDP, Parsed, Reason};
use crem_wire::roce::Bth;

use crate::{Encapsulation, Prefix};

/// Octets of a UDP header.
const UDP_LEN: usize = 8;

/// A part of the network that is known to carry RoCEv2 of Annex A17 on UDP port 4791. Networks with
/// Multipath Reliable Connections (Annex 21) must not be in one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scope {
    /// Source addresses.
    pub source: Prefix,
    /// Destination addresses.
    pub destination: Prefix,
    /// Layer and network.
    pub encapsulation: Encapsulation,
}

/// A RoCEv2 packet as the meters see it. Addresses and ports are those directly around the BTH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Observation {
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same family.
    pub destination: IpAddr,
    /// UDP source port.
    pub source_port: u16,
    /// UDP destination port.
    pub destination_port: u16,
    /// TOS or traffic class, ECN included.
    pub tos: u8,
    /// Octets of the IP packet, header included (AMB-BTH-OCTETS).
    pub ip_octets: u16,
    /// Where the UDP payload begins in the frame.
    pub payload_off: u16,
    /// Octets of the UDP payload, BTH to ICRC.
    pub payload_octets: u16,
    /// VLAN or VXLAN context, see [`Parsed::context`].
    pub context: u64,
    /// The BTH, reserved bits as they were.
    pub bth: Bth,
}

/// What recognition says of a packet.
pub type Recognition = Result<Observation, Unrecognised>;

impl Observation {
    /// The IP payload in the frame that was recognised, from the UDP header on; empty if that is cut.
    pub fn ip_payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let begin = usize::from(self.payload_off);
        let end = begin + usize::from(self.payload_octets);
        frame
            .get(begin.wrapping_sub(UDP_LEN)..end)
            .unwrap_or_default()
    }

    /// Whether what the opcode demands behind the BTH does not fit (AMB-SEQ-MALF). The BTH is complete
    /// all the same. `false` for opcodes whose layout is not known.
    pub fn is_malformed(&self) -> bool {
        self.bth.opcode.ext().is_some()
            && self
                .bth
                .payload_len(usize::from(self.payload_octets))
                .is_none()
    }
}

/// Why no BTH field of a packet is exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unrecognised {
    /// It is not RoCEv2 at the layer that was looked at.
    Frame(Reason),
    /// It is a message of ours.
    Crem,
    /// It is in no scope.
    NoScope,
}

/// The configured scopes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scopes(Vec<Scope>);

impl Scopes {
    /// Most scopes there may be: a packet of none is compared with all.
    pub const MAX: usize = 64;

    /// `None` if there are more than [`Scopes::MAX`].
    pub fn new(scopes: Vec<Scope>) -> Option<Self> {
        (scopes.len() <= Self::MAX).then_some(Self(scopes))
    }

    /// Whether each scope of `others` is among these.
    pub fn have_all_of(&self, others: &Self) -> bool {
        others.0.iter().all(|other| self.0.contains(other))
    }

    /// The packet, if it is RoCEv2 and in a scope.
    ///
    /// # Errors
    /// Why it is not.
    #[inline]
    pub fn recognise(&self, parsed: &Parsed) -> Recognition {
        let bth = match parsed.class {
            Class::Roce(bth) => bth,
            Class::Crem => return Err(Unrecognised::Crem),
            Class::Other(reason) => return Err(Unrecognised::Frame(reason)),
        };
        // `parse` gives both with every RoCEv2 packet.
        let (Some(ip), Some(udp)) = (&parsed.ip, &parsed.udp) else {
            return Err(Unrecognised::Frame(Reason::NotUdp));
        };
        if !self.holds(parsed, ip.source, ip.destination) {
            return Err(Unrecognised::NoScope);
        }
        Ok(Observation {
            source: ip.source,
            destination: ip.destination,
            source_port: udp.source,
            destination_port: udp.destination,
            tos: ip.tos,
            ip_octets: ip.total_len,
            payload_off: udp.payload_off,
            payload_octets: udp.payload_len,
            context: parsed.context(),
            bth,
        })
    }

    /// Whether packets between these addresses in this encapsulation are in a scope.
    #[inline]
    fn holds(&self, parsed: &Parsed, source: IpAddr, destination: IpAddr) -> bool {
        self.0.iter().any(|scope| {
            scope.source.contains(source)
                && scope.destination.contains(destination)
                && scope.encapsulation.holds(parsed)
        })
    }
}

/// What a packet without a usable BTH may have been part of (AMB-SEQ-MALF).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suspect {
    /// A connection between these addresses, source first.
    Pair(IpAddr, IpAddr),
    /// Any connection: not even the addresses are there.
    Any,
}

/// Whose request a packet that could not be recognised may have been: `None` if it certainly was none.
/// Only a complete IP header is believed.
pub fn suspect(frame: &[u8], parsed: &Parsed) -> Option<Suspect> {
    let Class::Other(reason) = parsed.class else {
        return None;
    };
    match reason {
        Reason::Short | Reason::MacControl | Reason::NotIp | Reason::NotRoce | Reason::Vxlan => {
            None
        }
        // With an IP header it is another protocol; without, the extension chain was too long to follow.
        Reason::NotUdp if parsed.ip.is_some() => None,
        Reason::UdpLength | Reason::BthShort | Reason::BthVersion => {
            let ip = parsed.ip?;
            Some(Suspect::Pair(ip.source, ip.destination))
        }
        Reason::IpLength | Reason::Fragment | Reason::NotUdp => {
            let link = match &parsed.tunnel {
                Some(tunnel) => tunnel.link,
                None => parsed.link?,
            };
            let rest = frame.get(usize::from(link.next)..).unwrap_or_default();
            match link.ethertype {
                ETHERTYPE_IPV4 => suspect_v4(rest),
                ETHERTYPE_IPV6 => suspect_v6(rest),
                _ => None,
            }
        }
    }
}

fn suspect_v4(packet: &[u8]) -> Option<Suspect> {
    let Some(header) = packet.first_chunk::<20>() else {
        return Some(Suspect::Any);
    };
    let octets = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
    (header[9] == PROTOCOL_UDP).then(|| Suspect::Pair(octets(12).into(), octets(16).into()))
}

fn suspect_v6(packet: &[u8]) -> Option<Suspect> {
    const TCP: u8 = 6;
    const ICMP: u8 = 58;
    let Some(header) = packet.first_chunk::<40>() else {
        return Some(Suspect::Any);
    };
    if matches!(header[6], TCP | ICMP) {
        return None;
    }
    let (mut source, mut destination) = ([0; 16], [0; 16]);
    source.copy_from_slice(&header[8..24]);
    destination.copy_from_slice(&header[24..]);
    Some(Suspect::Pair(source.into(), destination.into()))
}

#[cfg(test)]
mod tests;
