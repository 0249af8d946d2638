//! Telling frames apart, and the hash that names a frame whatever the network may change in it.

use serde::{Deserialize, Serialize};

/// UDP destination port of RoCEv2.
const ROCE_PORT: u16 = 4791;
/// UDP destination port of VXLAN.
const VXLAN_PORT: u16 = 4789;
const UDP_HEADER: usize = 8;
const VXLAN_HEADER: usize = 8;

/// What a frame is, as far as the impairer cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// A request that CREM protects: RC, XRC and UC requests.
    RoceSource,
    /// A READ or atomic response.
    RoceResponse,
    /// Any other RoCEv2: acknowledgments, CNP, UD.
    RoceOther,
    /// A CREM REPAIR.
    CremRepair,
    /// Any other CREM message.
    CremOther,
    /// Everything else.
    Rest,
}

impl Class {
    /// All classes, in the order of [`Class::index`].
    pub const ALL: [Self; 6] = [
        Self::RoceSource,
        Self::RoceResponse,
        Self::RoceOther,
        Self::CremRepair,
        Self::CremOther,
        Self::Rest,
    ];

    /// Position in [`Class::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// The name used in documents and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::RoceSource => "roce-source",
            Self::RoceResponse => "roce-response",
            Self::RoceOther => "roce-other",
            Self::CremRepair => "crem-repair",
            Self::CremOther => "crem-other",
            Self::Rest => "rest",
        }
    }

    /// The class of a frame, in VXLAN that of the frame inside. Fragments and IPv6 with extension headers are
    /// [`Class::Rest`].
    pub fn of(frame: &[u8], crem_port: u16) -> Self {
        if let Some(inner) = inner_frame(frame).and_then(|at| frame.get(at..)) {
            // What is inside is the hosts', also on that port.
            return Self::of_packet(inner, 0);
        }
        Self::of_packet(frame, crem_port)
    }

    fn of_packet(frame: &[u8], crem_port: u16) -> Self {
        let Some(udp) = udp_payload(frame) else {
            return Self::Rest;
        };
        match (udp.port, udp.first) {
            (ROCE_PORT, opcode) => roce(opcode),
            (port, first) if crem_port != 0 && port == crem_port => {
                if first & 0x0f == 1 {
                    Self::CremRepair
                } else {
                    Self::CremOther
                }
            }
            _ => Self::Rest,
        }
    }
}

/// The class of a BTH opcode.
fn roce(opcode: u8) -> Class {
    match (opcode >> 5, opcode & 0x1f) {
        (0 | 5, 0x00..=0x0c | 0x13 | 0x14 | 0x16 | 0x17) | (1, 0x00..=0x0b) => Class::RoceSource,
        (0 | 5, 0x0d..=0x10 | 0x12) => Class::RoceResponse,
        _ => Class::RoceOther,
    }
}

struct Udp {
    at: usize,
    port: u16,
    first: u8,
}

/// Where the frame inside of VXLAN starts.
fn inner_frame(frame: &[u8]) -> Option<usize> {
    let udp = udp_payload(frame).filter(|udp| udp.port == VXLAN_PORT)?;
    Some(udp.at + UDP_HEADER + VXLAN_HEADER)
}

/// Where the IP header starts and its EtherType, behind any VLAN tags.
pub(crate) fn network_header(frame: &[u8]) -> Option<(usize, u16)> {
    let mut at = 12;
    loop {
        let ethertype = be16(frame, at)?;
        match ethertype {
            0x8100 | 0x88a8 => at += 4,
            _ => return Some((at + 2, ethertype)),
        }
    }
}

fn udp_payload(frame: &[u8]) -> Option<Udp> {
    const UDP: u8 = 17;
    let (ip, ethertype) = network_header(frame)?;
    let udp = match ethertype {
        0x0800 => {
            let fragment = be16(frame, ip + 6)? & 0x3fff;
            let header = usize::from(frame.get(ip)? & 0x0f) * 4;
            (fragment == 0 && *frame.get(ip + 9)? == UDP).then_some(ip + header)?
        }
        0x86dd => (*frame.get(ip + 6)? == UDP).then_some(ip + 40)?,
        _ => return None,
    };
    Some(Udp {
        at: udp,
        port: be16(frame, udp + 2)?,
        first: *frame.get(udp + 8)?,
    })
}

/// Where a frame keeps its ECN bits: octet and mask; for IPv4 also where its header checksum is.
pub(crate) struct EcnPlace {
    pub(crate) octet: usize,
    pub(crate) mask: u8,
    pub(crate) checksum: Option<usize>,
}

pub(crate) fn ecn_place(frame: &[u8]) -> Option<EcnPlace> {
    let (ip, ethertype) = network_header(frame)?;
    let place = match ethertype {
        0x0800 => EcnPlace {
            octet: ip + 1,
            mask: 0x03,
            checksum: Some(ip + 10),
        },
        0x86dd => EcnPlace {
            octet: ip + 1,
            mask: 0x30,
            checksum: None,
        },
        _ => return None,
    };
    (frame.len() >= ip + 20).then_some(place)
}

/// Names a frame by its octets with the ECN bits and the IPv4 header checksum masked, the two fields
/// that the network on the way may change; in VXLAN those of both headers, and the outer Identification, which
/// nothing in a packet tells of. 64 bits: among a million frames two agree by chance with a probability below
/// 10^-7.
pub fn frame_hash(frame: &[u8]) -> u64 {
    // Headers of a tunnel and of a packet inside.
    const HEAD: usize = 160;
    let mut head = [0u8; HEAD];
    let cut = frame.len().min(HEAD);
    let (start, rest) = frame.split_at(cut);
    if let Some(place) = head.get_mut(..cut) {
        place.copy_from_slice(start);
    }
    mask(&mut head, frame, 0);
    if let Some(inner) = inner_frame(frame) {
        mask(&mut head, frame, inner);
        if let Some((ip, 0x0800)) = network_header(frame)
            && let Some(identification) = head.get_mut(ip + 4..ip + 6)
        {
            identification.fill(0);
        }
    }
    let state = absorb(frame.len() as u64, &head);
    absorb(state, rest)
}

/// Masks in `head`, the front of `frame`, what may change of the IP header of the frame that starts at `from`.
fn mask(head: &mut [u8], frame: &[u8], from: usize) {
    let Some(place) = frame.get(from..).and_then(ecn_place) else {
        return;
    };
    if let Some(octet) = head.get_mut(from + place.octet) {
        *octet &= !place.mask;
    }
    let sum = place.checksum.map(|at| from + at);
    if let Some(sum) = sum.and_then(|at| head.get_mut(at..at + 2)) {
        sum.fill(0);
    }
}

/// Folds octets into a hash, eight at a time, each step a full 64 by 64 bit product.
fn absorb(mut state: u64, octets: &[u8]) -> u64 {
    let words = octets.chunks(8).map(|chunk| {
        let mut word = [0u8; 8];
        if let Some(place) = word.get_mut(..chunk.len()) {
            place.copy_from_slice(chunk);
        }
        u64::from_le_bytes(word)
    });
    for word in words {
        let product = u128::from(state ^ word ^ 0xa076_1d64_78bd_642f)
            * u128::from(0xe703_7ed1_a0b4_28db_u64);
        state = (product as u64) ^ ((product >> 64) as u64).wrapping_add(word.rotate_left(29));
    }
    state
}

fn be16(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(octets.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A UDP datagram over IPv4 in a frame; ECN bits as given.
    pub(crate) fn udp4(port: u16, payload: &[u8], ecn: u8) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x08, 0x00, 0x45, ecn]);
        frame.extend((28 + payload.len() as u16).to_be_bytes());
        frame.extend([0, 9, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0xc0, 0]);
        frame.extend(port.to_be_bytes());
        frame.extend((8 + payload.len() as u16).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(payload);
        frame
    }

    #[test]
    fn classes() {
        let of = |port, first| Class::of(&udp4(port, &[first; 32], 0), 50_000);
        assert_eq!(of(4791, 0x0a), Class::RoceSource);
        assert_eq!(of(4791, 0x0c), Class::RoceSource);
        assert_eq!(of(4791, 0x26), Class::RoceSource);
        assert_eq!(of(4791, 0x0e), Class::RoceResponse);
        assert_eq!(of(4791, 0x11), Class::RoceOther);
        assert_eq!(of(4791, 0x81), Class::RoceOther);
        assert_eq!(of(4791, 0x64), Class::RoceOther);
        assert_eq!(of(50_000, 0x11), Class::CremRepair);
        assert_eq!(of(50_000, 0x12), Class::CremOther);
        assert_eq!(of(50_001, 0x11), Class::Rest);
        assert_eq!(Class::of(&[0; 9], 0), Class::Rest);
        for (i, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class.index(), i);
        }
    }

    #[test]
    fn tagged_frames_are_seen_through() {
        let mut frame = udp4(4791, &[0x0a; 32], 0);
        frame.splice(12..12, [0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]);
        assert_eq!(Class::of(&frame, 0), Class::RoceSource);
    }

    /// A datagram to the port of VXLAN around an Ethernet frame.
    fn vxlan(inner: &[u8], ident: u8) -> Vec<u8> {
        let header = [0x08, 0, 0, 0, 0, 0x13, 0x88, 0];
        let mut frame = udp4(VXLAN_PORT, &[&header, inner].concat(), 0);
        frame[19] = ident;
        frame
    }

    #[test]
    fn tunnels_are_seen_through() {
        let inner = udp4(4791, &[0x0a; 32], 0);
        assert_eq!(Class::of(&vxlan(&inner, 9), 0), Class::RoceSource);
        // What is inside is no CREM of the gateways.
        let crem = udp4(50_000, &[0x11; 32], 0);
        assert_eq!(Class::of(&crem, 50_000), Class::CremRepair);
        assert_eq!(Class::of(&vxlan(&crem, 9), 50_000), Class::Rest);
        assert_eq!(Class::of(&vxlan(&[1, 2, 3], 9), 0), Class::Rest);
        let marked = udp4(4791, &[0x0a; 32], 3);
        assert_eq!(
            frame_hash(&vxlan(&inner, 9)),
            frame_hash(&vxlan(&marked, 8))
        );
        let other = udp4(4791, &[0x0b; 32], 0);
        assert_ne!(frame_hash(&vxlan(&inner, 9)), frame_hash(&vxlan(&other, 9)));
    }

    #[test]
    fn hash_ignores_ecn_and_checksum_only() {
        let plain = udp4(4791, &[7; 100], 0);
        let mut marked = udp4(4791, &[7; 100], 3);
        marked[24] = 0x55;
        assert_eq!(frame_hash(&plain), frame_hash(&marked));
        for at in 0..plain.len() {
            let mut other = plain.clone();
            other[at] ^= 0x80;
            let masked = at == 24 || at == 25;
            assert_eq!(
                frame_hash(&plain) == frame_hash(&other),
                masked,
                "octet {at}"
            );
        }
        assert_ne!(frame_hash(&plain), frame_hash(&plain[..plain.len() - 1]));
    }
}
