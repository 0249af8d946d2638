//! Writing headers: Ethernet to UDP in front of a payload that is already in place, VXLAN, and a new
//! TOS in an existing frame.

use core::net::{IpAddr, SocketAddr};

use super::checksum::{ipv4_header_checksum, udp_checksum};
use super::{
    ETHERNET_LEN, ETHERTYPE_IPV4, ETHERTYPE_IPV6, IPV4_LEN, IPV6_LEN, Ip, Mac, PROTOCOL_UDP,
    Parsed, TAG_LEN, Tags, UDP_LEN, VXLAN_LEN,
};

/// The headers of a UDP datagram in an Ethernet frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpFrame {
    /// Ethernet destination.
    pub destination_mac: Mac,
    /// Ethernet source.
    pub source_mac: Mac,
    /// VLAN tags.
    pub tags: Tags,
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port, of the same family.
    pub destination: SocketAddr,
    /// TOS or traffic class.
    pub tos: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// IPv4 Identification; not used with IPv6.
    pub ident: u16,
    /// IPv4 Don't Fragment; not used with IPv6.
    pub dont_fragment: bool,
    /// Compute the UDP checksum; else it is 0.
    pub udp_checksum: bool,
}

impl UdpFrame {
    /// Octets in front of the payload.
    pub fn header_len(&self) -> usize {
        let ip = if self.source.is_ipv4() {
            IPV4_LEN
        } else {
            IPV6_LEN
        };
        ETHERNET_LEN + TAG_LEN * self.tags.as_slice().len() + ip + UDP_LEN
    }

    /// Writes the headers to the front of `frame`, whose payload already stands behind them and
    /// reaches to the end of the slice. Returns the offset of the payload; `None`, with nothing
    /// written, if the slice is shorter than the headers, the packet would be longer than its length
    /// fields can say, or the two addresses are of different families.
    pub fn write(&self, frame: &mut [u8]) -> Option<usize> {
        let payload_off = self.header_len();
        let segment_len = u16::try_from(frame.len().checked_sub(payload_off)? + UDP_LEN).ok()?;
        let ip_off = ETHERNET_LEN + TAG_LEN * self.tags.as_slice().len();
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let total = segment_len.checked_add(IPV4_LEN as u16)?;
                self.write_link(frame, ETHERTYPE_IPV4);
                let header = frame.get_mut(ip_off..ip_off + IPV4_LEN)?;
                self.write_ipv4(header, total);
                header[12..16].copy_from_slice(&source.octets());
                header[16..20].copy_from_slice(&destination.octets());
                let checksum = ipv4_header_checksum(header);
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                self.write_link(frame, ETHERTYPE_IPV6);
                let header = frame.get_mut(ip_off..ip_off + IPV6_LEN)?;
                header[..4].copy_from_slice(&(6 << 28 | u32::from(self.tos) << 20).to_be_bytes());
                header[4..6].copy_from_slice(&segment_len.to_be_bytes());
                header[6..8].copy_from_slice(&[PROTOCOL_UDP, self.ttl]);
                header[8..24].copy_from_slice(&source.octets());
                header[24..40].copy_from_slice(&destination.octets());
            }
            _ => return None,
        }
        self.write_udp(frame.get_mut(payload_off - UDP_LEN..)?, segment_len);
        Some(payload_off)
    }

    fn write_link(&self, frame: &mut [u8], ethertype: u16) {
        frame[..6].copy_from_slice(&self.destination_mac.0);
        frame[6..12].copy_from_slice(&self.source_mac.0);
        let mut at = 12;
        for tag in self.tags.as_slice() {
            frame[at..at + 2].copy_from_slice(&tag.tpid.to_be_bytes());
            frame[at + 2..at + 4].copy_from_slice(&tag.tci.to_be_bytes());
            at += TAG_LEN;
        }
        frame[at..at + 2].copy_from_slice(&ethertype.to_be_bytes());
    }

    fn write_ipv4(&self, header: &mut [u8], total: u16) {
        header[0] = 0x45;
        header[1] = self.tos;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[4..6].copy_from_slice(&self.ident.to_be_bytes());
        header[6..8].copy_from_slice(&[if self.dont_fragment { 0x40 } else { 0 }, 0]);
        header[8..10].copy_from_slice(&[self.ttl, PROTOCOL_UDP]);
    }

    fn write_udp(&self, segment: &mut [u8], len: u16) {
        segment[..2].copy_from_slice(&self.source.port().to_be_bytes());
        segment[2..4].copy_from_slice(&self.destination.port().to_be_bytes());
        segment[4..6].copy_from_slice(&len.to_be_bytes());
        segment[6..8].fill(0);
        if self.udp_checksum {
            let checksum = udp_checksum(self.source.ip(), self.destination.ip(), segment);
            segment[6..8].copy_from_slice(&checksum.to_be_bytes());
        }
    }
}

/// A VXLAN header with a valid VNI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VxlanHeader {
    /// VXLAN network identifier; the low 24 bits are used.
    pub vni: u32,
}

impl VxlanHeader {
    /// Octets of the header.
    pub const LEN: usize = VXLAN_LEN;

    /// Writes the header to the front of `out` and returns its octets; 0 if `out` is too short.
    pub fn write(&self, out: &mut [u8]) -> usize {
        let Some(head) = out.first_chunk_mut::<VXLAN_LEN>() else {
            return 0;
        };
        head[..4].copy_from_slice(&[0x08, 0, 0, 0]);
        head[4..].copy_from_slice(&(self.vni << 8).to_be_bytes());
        VXLAN_LEN
    }
}

/// Replaces the TOS or traffic class of the packet around the payload, and keeps the IPv4 header
/// checksum right. `parsed` must be of this frame; without an IP layer nothing happens.
pub fn set_tos(frame: &mut [u8], parsed: &Parsed, tos: u8) {
    if let Some(ip) = &parsed.ip {
        set_tos_of(frame, ip, tos);
    }
}

/// The same for the outer packet of a tunnel.
pub fn set_outer_tos(frame: &mut [u8], parsed: &Parsed, tos: u8) {
    if let Some(tunnel) = &parsed.tunnel {
        set_tos_of(frame, &tunnel.ip, tos);
    }
}

pub(crate) fn set_tos_of(frame: &mut [u8], ip: &Ip, tos: u8) {
    let Some(header) = frame.get_mut(usize::from(ip.offset)..) else {
        return;
    };
    if ip.source.is_ipv6() {
        if let [first, second, ..] = header {
            *first = *first & 0xf0 | tos >> 4;
            *second = tos << 4 | *second & 0x0f;
        }
    } else if let [_, old, _, _, _, _, _, _, _, _, c0, c1, ..] = header {
        // RFC 1624: HC' = ~(~HC + ~m + m'). The version octet is the same on both sides.
        let checksum = u32::from(!u16::from_be_bytes([*c0, *c1]));
        let sum = checksum + u32::from(!u16::from(*old)) + u32::from(tos);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        [*c0, *c1] = (!(sum as u16)).to_be_bytes();
        *old = tos;
    }
}
