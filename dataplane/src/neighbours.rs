//! Whose word about the in-band station's neighbours the kernel gets to hear. Linux believes any ARP packet and any
//! neighbour advertisement about a neighbour that it knows, so one frame from the WAN would draw all repair to its
//! sender. Here a neighbour that the kernel has asked for keeps the MAC address that answered first, until the kernel
//! asks everybody again because that one does not answer any more. Asking, and giving up, is the kernel's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crem_wire::frame::Mac;

/// Neighbours that are guarded: next hops toward peers, of which there are few. Those beyond are the kernel's alone.
const MAX: usize = 256;

/// One neighbour that the kernel has asked for.
#[derive(Clone, Copy, Debug)]
struct Neighbour {
    address: IpAddr,
    /// Who answered.
    mac: Option<Mac>,
    /// The kernel has asked everybody and nobody has answered yet.
    asked: bool,
}

/// The neighbours that the kernel has asked for.
#[derive(Debug, Default)]
pub(crate) struct Neighbours(Vec<Neighbour>);

impl Neighbours {
    /// The kernel sends a frame, untagged: if it asks everybody for a neighbour, the first answer will count.
    pub(crate) fn asks(&mut self, frame: &[u8]) {
        let Some(address) = asked_for(frame) else {
            return;
        };
        if let Some(known) = self.0.iter_mut().find(|n| n.address == address) {
            known.asked = true;
        } else if self.0.len() < MAX {
            self.0.push(Neighbour {
                address,
                mac: None,
                asked: true,
            });
        }
    }

    /// Whether the kernel may hear a frame, untagged: what it says of a neighbour is an answer, or nothing new.
    pub(crate) fn admits(&mut self, frame: &[u8]) -> bool {
        let Some((address, mac)) = told_of(frame) else {
            return true;
        };
        let Some(known) = self.0.iter_mut().find(|n| n.address == address) else {
            return true;
        };
        if core::mem::take(&mut known.asked) {
            known.mac = Some(mac);
        }
        known.mac == Some(mac)
    }
}

const ETHERNET: usize = 14;

/// EtherType and what follows of an untagged frame.
fn payload(frame: &[u8], ethertype: [u8; 2]) -> Option<&[u8]> {
    let is_it = frame.get(12..ETHERNET)? == ethertype;
    frame.get(ETHERNET..).filter(|_| is_it)
}

/// ARP of IPv4 over Ethernet: operation and the four addresses.
fn arp(frame: &[u8]) -> Option<(u8, &[u8])> {
    let packet = payload(frame, [0x08, 0x06])?;
    let [0, 1, 0x08, 0, 6, 4, 0, operation, addresses @ ..] = packet else {
        return None;
    };
    Some((*operation, addresses))
}

/// Neighbour solicitation or advertisement: its IPv6 source, and the ICMPv6 message.
fn discovery(frame: &[u8]) -> Option<(Ipv6Addr, &[u8])> {
    let packet = payload(frame, [0x86, 0xdd])?;
    let source: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
    let is_icmp = packet.get(6) == Some(&58);
    Some((source.into(), packet.get(40..).filter(|_| is_icmp)?))
}

fn ipv4(octets: &[u8]) -> Option<IpAddr> {
    let octets: [u8; 4] = octets.try_into().ok()?;
    Some(Ipv4Addr::from(octets).into())
}

fn ipv6(octets: &[u8]) -> Option<IpAddr> {
    let octets: [u8; 16] = octets.try_into().ok()?;
    Some(Ipv6Addr::from(octets).into())
}

/// The address that a frame of the kernel asks everybody for.
fn asked_for(frame: &[u8]) -> Option<IpAddr> {
    // A question to one station alone only confirms what is known.
    if frame.first()? & 1 == 0 {
        return None;
    }
    if let Some((1, addresses)) = arp(frame) {
        return ipv4(addresses.get(16..20)?);
    }
    match discovery(frame)? {
        (_, message @ [135, ..]) => ipv6(message.get(8..24)?),
        _ => None,
    }
}

/// The neighbour and its MAC address that a frame tells of: the sender of any ARP packet, the source of a
/// solicitation, the target of an advertisement.
fn told_of(frame: &[u8]) -> Option<(IpAddr, Mac)> {
    if let Some((_, addresses)) = arp(frame) {
        let mac: [u8; 6] = addresses.get(..6)?.try_into().ok()?;
        return Some((ipv4(addresses.get(6..10)?)?, Mac(mac)));
    }
    match discovery(frame)? {
        (source, message @ [135, ..]) => Some((source.into(), link_address(message, 1)?)),
        (_, message @ [136, ..]) => Some((ipv6(message.get(8..24)?)?, link_address(message, 2)?)),
        _ => None,
    }
}

/// The option with a link-layer address of a neighbour discovery message.
fn link_address(message: &[u8], kind: u8) -> Option<Mac> {
    let mut options = message.get(24..)?;
    loop {
        let [found, units, rest @ ..] = options else {
            return None;
        };
        if *found == kind && *units == 1 {
            return rest.first_chunk().map(|octets| Mac(*octets));
        }
        // A length of 0 ends the message for everybody.
        let length = usize::from(*units) * 8;
        options = options.get(length..).filter(|_| length > 0)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOP: [u8; 4] = [10, 77, 0, 9];
    const EVERYBODY: [u8; 6] = [0xff; 6];
    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const RIGHT: [u8; 6] = [2, 0, 0, 0, 0, 9];
    const WRONG: [u8; 6] = [2, 0, 0, 0, 0, 0x66];

    fn arp_frame(
        to: [u8; 6],
        operation: u8,
        sender: ([u8; 6], [u8; 4]),
        target: [u8; 4],
    ) -> Vec<u8> {
        let mut frame = [to, sender.0].concat();
        frame.extend([0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, operation]);
        frame.extend(sender.0.iter().chain(&sender.1));
        frame.extend([0; 6].iter().chain(&target));
        frame
    }

    fn question(to: [u8; 6]) -> Vec<u8> {
        arp_frame(to, 1, (OWN, [10, 77, 0, 1]), HOP)
    }

    fn answer(mac: [u8; 6], operation: u8) -> Vec<u8> {
        arp_frame(OWN, operation, (mac, HOP), [10, 77, 0, 1])
    }

    #[test]
    fn a_neighbour_keeps_the_address_that_answered_first() {
        let mut all = Neighbours::default();
        assert!(all.admits(&answer(WRONG, 1)), "nobody was asked for it");
        all.asks(&question(EVERYBODY));
        assert!(all.admits(&answer(RIGHT, 2)));
        for operation in [1, 2] {
            assert!(!all.admits(&answer(WRONG, operation)));
            assert!(all.admits(&answer(RIGHT, operation)));
        }
        // Gratuitous, to everybody.
        assert!(!all.admits(&arp_frame(EVERYBODY, 2, (WRONG, HOP), HOP)));
        // Whether it is still there is asked of it alone: nobody else may answer.
        all.asks(&question(RIGHT));
        assert!(!all.admits(&answer(WRONG, 2)));
        // It is gone: everybody is asked again.
        all.asks(&question(EVERYBODY));
        assert!(all.admits(&answer(WRONG, 2)) && !all.admits(&answer(RIGHT, 2)));
        // What concerns others passes.
        assert!(all.admits(&arp_frame(OWN, 1, (WRONG, [10, 77, 0, 8]), [10, 77, 0, 1])));
    }

    fn discovery_frame(
        to: [u8; 6],
        source: [u8; 16],
        kind: u8,
        target: [u8; 16],
        option: u8,
        mac: [u8; 6],
    ) -> Vec<u8> {
        let mut frame = [to, mac].concat();
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255]);
        frame.extend(source.iter().chain(&[0xfe; 16]));
        frame.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend(target.iter().chain(&[option, 1]).chain(&mac));
        frame
    }

    #[test]
    fn neighbour_discovery_is_guarded_alike() {
        let (hop, own) = ([0xfd; 16], [0xfc; 16]);
        let everybody = [0x33, 0x33, 0xff, 0xfd, 0xfd, 0xfd];
        let mut all = Neighbours::default();
        all.asks(&discovery_frame(everybody, own, 135, hop, 1, OWN));
        let advertises = |mac| discovery_frame(OWN, hop, 136, hop, 2, mac);
        let asks = |mac| discovery_frame(everybody, hop, 135, own, 1, mac);
        assert!(all.admits(&advertises(RIGHT)));
        assert!(!all.admits(&advertises(WRONG)) && !all.admits(&asks(WRONG)));
        assert!(all.admits(&asks(RIGHT)));
    }

    #[test]
    fn what_is_cut_short_tells_nothing() {
        let mut all = Neighbours::default();
        all.asks(&question(EVERYBODY));
        let frames = [
            answer(WRONG, 2),
            discovery_frame(OWN, [1; 16], 136, [1; 16], 2, WRONG),
        ];
        for frame in frames {
            for length in 0..frame.len() - 10 {
                assert!(all.admits(&frame[..length]) || length >= 32);
            }
        }
        // Options of length 0 end it.
        let mut frame = discovery_frame(OWN, [1; 16], 136, [1; 16], 9, WRONG);
        let at = frame.len() - 7;
        frame[at] = 0;
        assert!(told_of(&frame).is_none());
    }

    #[test]
    fn the_table_is_bounded() {
        let mut all = Neighbours::default();
        for n in 0..1_000u32 {
            let hop = n.to_be_bytes();
            all.asks(&arp_frame(EVERYBODY, 1, (OWN, [10, 77, 0, 1]), hop));
        }
        assert_eq!(all.0.len(), MAX);
    }
}
