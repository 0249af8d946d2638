//! Taking a frame apart, once per packet and without allocation: the layers down to UDP and what the
//! datagram is. Recognition follows section 4.1 of the BTH export draft, AMB-PAYLEN, AMB-FRAG and
//! AMB-BTH-LAYER.

use core::net::IpAddr;

use super::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MAC_CONTROL, Ecn, IPV4_LEN, IPV6_LEN, Link,
    PROTOCOL_UDP, UDP_LEN, VXLAN_LEN, decapsulate_ecn,
};
use crate::mutate::{self, Fault};
use crate::roce::{self, Bth};

/// IPv6 extension headers that are walked before a packet counts as not UDP.
const MAX_EXTENSIONS: usize = 8;

/// What the recogniser is told of the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ParseConfig {
    /// UDP destination port of CREM messages.
    pub crem_port: Option<u16>,
    /// UDP destination port of VXLAN. With it, the packet inside such a datagram is the one that is
    /// looked at; without it, tunnels are never looked into.
    pub vxlan_port: Option<u16>,
}

/// Why a frame is neither RoCEv2 nor CREM; it is carried as it is (but [`Reason::MacControl`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// Ethernet header or tag is cut.
    Short,
    /// Pause or PFC: of one link, never forwarded.
    MacControl,
    /// Another EtherType, a third tag, or an IP version that contradicts it.
    NotIp,
    /// IP header cut, its lengths impossible, or the packet longer than what was captured.
    IpLength,
    /// A fragment, first ones included (AMB-FRAG).
    Fragment,
    /// Another protocol, or an IPv6 extension chain that does not lead to UDP.
    NotUdp,
    /// The UDP length is not the rest of the IP packet (AMB-PAYLEN).
    UdpLength,
    /// Another UDP port.
    NotRoce,
    /// VXLAN header cut or without a VNI, or its inner frame cut.
    Vxlan,
    /// Port 4791 with less than a BTH.
    BthShort,
    /// Port 4791 with another transport header version.
    BthVersion,
}

impl Reason {
    /// Every reason, in the order of [`Reason::index`].
    pub const ALL: [Self; 11] = [
        Self::Short,
        Self::MacControl,
        Self::NotIp,
        Self::IpLength,
        Self::Fragment,
        Self::NotUdp,
        Self::UdpLength,
        Self::NotRoce,
        Self::Vxlan,
        Self::BthShort,
        Self::BthVersion,
    ];

    /// Position in [`Reason::ALL`], for an array of counters.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// A short stable name, as counters use it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::MacControl => "mac_control",
            Self::NotIp => "not_ip",
            Self::IpLength => "ip_length",
            Self::Fragment => "fragment",
            Self::NotUdp => "not_udp",
            Self::UdpLength => "udp_length",
            Self::NotRoce => "not_roce",
            Self::Vxlan => "vxlan",
            Self::BthShort => "bth_short",
            Self::BthVersion => "bth_version",
        }
    }
}

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// RoCEv2: a complete BTH of version 0, any opcode. The payload may be shorter than BTH and ICRC.
    Roce(Bth),
    /// A datagram on the CREM port, its contents unchecked.
    Crem,
    /// Anything else.
    Other(Reason),
}

/// An IP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ip {
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same family.
    pub destination: IpAddr,
    /// TOS or traffic class.
    pub tos: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// IPv4 Identification.
    pub ident: Option<u16>,
    /// Offset of the header in the frame.
    pub offset: u16,
    /// Octets of the header with IPv4 options or IPv6 extension headers.
    pub header_len: u16,
    /// Octets of the packet, header included, link padding excluded.
    pub total_len: u16,
}

impl Ip {
    /// Offset behind the last octet of the packet.
    pub fn end(&self) -> usize {
        usize::from(self.offset) + usize::from(self.total_len)
    }
}

/// A UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Udp {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Checksum, 0 for none; not verified.
    pub checksum: u16,
    /// Offset of the header in the frame.
    pub offset: u16,
    /// Offset of the payload in the frame.
    pub payload_off: u16,
    /// Octets of the payload.
    pub payload_len: u16,
}

/// A VXLAN tunnel around the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tunnel {
    /// Outer IP header.
    pub ip: Ip,
    /// Outer UDP header.
    pub udp: Udp,
    /// VXLAN network identifier, 24 bits.
    pub vni: u32,
    /// The Ethernet layer inside.
    pub link: Link,
}

/// A frame taken apart. `ip` and `udp` are those directly around the payload; layers that were not
/// reached are `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parsed {
    /// The Ethernet layer on the wire; `None` if it is cut.
    pub link: Option<Link>,
    /// The tunnel, where configured and present.
    pub tunnel: Option<Tunnel>,
    /// IP header.
    pub ip: Option<Ip>,
    /// UDP header.
    pub udp: Option<Udp>,
    /// What the frame is.
    pub class: Class,
}

impl Parsed {
    /// The UDP payload in the frame that was parsed; empty if none was reached.
    pub fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        self.udp
            .and_then(|udp| {
                let start = usize::from(udp.payload_off);
                frame.get(start..start + usize::from(udp.payload_len))
            })
            .unwrap_or_default()
    }

    /// Whether the receiver will see CE: the packet's own mark, or what decapsulation makes of the
    /// tunnel's (AMB-QOS-VXCE).
    pub fn ce(&self) -> bool {
        let Some(ip) = &self.ip else { return false };
        let inner = Ecn::of(ip.tos);
        let seen = match &self.tunnel {
            Some(tunnel) => decapsulate_ecn(inner, Ecn::of(tunnel.ip.tos)),
            None => Some(inner),
        };
        seen == Some(Ecn::Ce)
    }

    /// A number for the VLAN and VXLAN context (AMB-TENANT): equal exactly when the VLAN identifiers
    /// are, or, in a tunnel, when VNI and inner VLAN identifiers are; 0 without any. Priority bits do
    /// not matter.
    pub fn context(&self) -> u64 {
        let vids = |link: &Link| {
            // One more than the VID, so that a priority tag differs from no tag: 13 bits each.
            link.tags
                .as_slice()
                .iter()
                .fold(0, |all, tag| all << 13 | (u64::from(tag.vid()) + 1))
        };
        let Some(link) = &self.link else { return 0 };
        match &self.tunnel {
            // A VNI names the tenant by itself: inner tags beside it, outer ones belong to the underlay.
            Some(tunnel) => 1 << 63 | u64::from(tunnel.vni) << 26 | vids(&tunnel.link),
            None => vids(link),
        }
    }
}

/// The network that a [`Parsed::context`] names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Network {
    /// No tag and no tunnel.
    Untagged,
    /// One VLAN identifier.
    Vlan(u16),
    /// Two VLAN identifiers, the outer one first.
    QinQ(u16, u16),
    /// A VXLAN network identifier; tags inside are not told.
    Vxlan(u32),
}

impl Network {
    /// The network of a context number.
    pub const fn of_context(context: u64) -> Self {
        if context >> 63 != 0 {
            return Self::Vxlan((context >> 26 & 0x00ff_ffff) as u32);
        }
        match (context >> 13 & 0x1fff, context & 0x1fff) {
            (0, 0) => Self::Untagged,
            (0, vid) => Self::Vlan(vid as u16 - 1),
            (outer, 0) => Self::Vlan(outer as u16 - 1),
            (outer, inner) => Self::QinQ(outer as u16 - 1, inner as u16 - 1),
        }
    }
}

/// Takes `frame` (without FCS) apart. Link padding behind the IP packet is tolerated and is in no
/// length of the result.
#[inline(always)]
pub fn parse(frame: &[u8], config: &ParseConfig) -> Parsed {
    let mut parsed = Parsed {
        link: None,
        tunnel: None,
        ip: None,
        udp: None,
        class: Class::Other(Reason::Short),
    };
    // Offsets are 16 bits: no frame that we carry is longer, and what is behind would not be reached.
    let frame = &frame[..frame.len().min(usize::from(u16::MAX))];
    let Some(link) = Link::parse(frame, 0) else {
        return parsed;
    };
    parsed.link = Some(link);
    parsed.class = match datagram(frame, &link, &mut parsed) {
        Err(reason) => Class::Other(reason),
        Ok(udp) if config.vxlan_port == Some(udp.destination) => {
            match enter_tunnel(frame, udp, &mut parsed) {
                Err(reason) => Class::Other(reason),
                Ok(udp) => classify(frame, udp, config),
            }
        }
        Ok(udp) => classify(frame, udp, config),
    };
    parsed
}

/// The UDP datagram behind a link layer.
#[inline(always)]
fn datagram(frame: &[u8], link: &Link, parsed: &mut Parsed) -> Result<Udp, Reason> {
    let (ip, protocol) = match link.ethertype {
        ETHERTYPE_IPV4 => ipv4(frame, link.next)?,
        ETHERTYPE_IPV6 => ipv6(frame, link.next)?,
        ETHERTYPE_MAC_CONTROL => return Err(Reason::MacControl),
        _ => return Err(Reason::NotIp),
    };
    parsed.ip = Some(ip);
    if protocol != PROTOCOL_UDP {
        return Err(Reason::NotUdp);
    }
    let udp = udp(frame, &ip)?;
    parsed.udp = Some(udp);
    Ok(udp)
}

/// The datagram inside a VXLAN datagram; what was found so far becomes the tunnel.
#[inline(never)]
fn enter_tunnel(frame: &[u8], outer: Udp, parsed: &mut Parsed) -> Result<Udp, Reason> {
    let start = usize::from(outer.payload_off);
    let inside = frame
        .get(..start + usize::from(outer.payload_len))
        .ok_or(Reason::Vxlan)?;
    let [flags, _, _, _, v0, v1, v2, _] = *inside[start..]
        .first_chunk::<VXLAN_LEN>()
        .ok_or(Reason::Vxlan)?;
    let (Some(ip), true) = (parsed.ip, flags & 0x08 != 0) else {
        return Err(Reason::Vxlan);
    };
    let link = Link::parse(inside, start + VXLAN_LEN).ok_or(Reason::Vxlan)?;
    let vni = u32::from_be_bytes([0, v0, v1, v2]);
    parsed.tunnel = Some(Tunnel {
        ip,
        udp: outer,
        vni,
        link,
    });
    parsed.ip = None;
    parsed.udp = None;
    datagram(inside, &link, parsed)
}

#[inline(always)]
fn classify(frame: &[u8], udp: Udp, config: &ParseConfig) -> Class {
    if config.crem_port == Some(udp.destination) {
        return Class::Crem;
    }
    if udp.destination != roce::UDP_PORT {
        return Class::Other(Reason::NotRoce);
    }
    let start = usize::from(udp.payload_off);
    let payload = frame
        .get(start..start + usize::from(udp.payload_len))
        .unwrap_or_default();
    match Bth::parse(payload) {
        None => Class::Other(Reason::BthShort),
        Some(bth) if bth.version() != 0 => Class::Other(Reason::BthVersion),
        Some(bth) => Class::Roce(bth),
    }
}

#[inline(always)]
fn ipv4(frame: &[u8], offset: u16) -> Result<(Ip, u8), Reason> {
    let rest = &frame[usize::from(offset)..];
    let header = rest.first_chunk::<IPV4_LEN>().ok_or(Reason::IpLength)?;
    let [
        first,
        tos,
        l0,
        l1,
        i0,
        i1,
        f0,
        f1,
        ttl,
        protocol,
        _,
        _,
        s0,
        s1,
        s2,
        s3,
        d0,
        d1,
        d2,
        d3,
    ] = *header;
    if first >> 4 != 4 {
        return Err(Reason::NotIp);
    }
    let header_len = u16::from(first & 0x0f) * 4;
    let total_len = u16::from_be_bytes([l0, l1]);
    if usize::from(header_len) < IPV4_LEN
        || total_len < header_len
        || usize::from(total_len) > rest.len()
    {
        return Err(Reason::IpLength);
    }
    // More Fragments, or an offset.
    if u16::from_be_bytes([f0, f1]) & 0x3fff != 0 {
        return Err(Reason::Fragment);
    }
    let ip = Ip {
        source: IpAddr::from([s0, s1, s2, s3]),
        destination: IpAddr::from([d0, d1, d2, d3]),
        tos,
        ttl,
        ident: Some(u16::from_be_bytes([i0, i1])),
        offset,
        header_len,
        total_len,
    };
    Ok((ip, protocol))
}

#[inline(never)]
fn ipv6(frame: &[u8], offset: u16) -> Result<(Ip, u8), Reason> {
    let rest = &frame[usize::from(offset)..];
    let (header, behind) = rest
        .split_first_chunk::<IPV6_LEN>()
        .ok_or(Reason::IpLength)?;
    let [first, second, _, _, l0, l1, protocol, ttl, addresses @ ..] = header;
    if first >> 4 != 6 {
        return Err(Reason::NotIp);
    }
    // A zero length with a jumbo option is longer than any frame here, so it fails as a length too.
    let payload_len = u16::from_be_bytes([*l0, *l1]);
    let payload = behind
        .get(..usize::from(payload_len))
        .ok_or(Reason::IpLength)?;
    let total_len = payload_len
        .checked_add(IPV6_LEN as u16)
        .ok_or(Reason::IpLength)?;
    let (protocol, extensions) = walk_extensions(*protocol, payload)?;
    let (mut source, mut destination) = ([0; 16], [0; 16]);
    source.copy_from_slice(&addresses[..16]);
    destination.copy_from_slice(&addresses[16..]);
    let ip = Ip {
        source: IpAddr::from(source),
        destination: IpAddr::from(destination),
        tos: first << 4 | second >> 4,
        ttl: *ttl,
        ident: None,
        offset,
        header_len: IPV6_LEN as u16 + extensions,
        total_len,
    };
    Ok((ip, protocol))
}

/// Follows the extension headers in an IPv6 payload: the protocol behind them and their octets.
fn walk_extensions(mut next: u8, payload: &[u8]) -> Result<(u8, u16), Reason> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const DESTINATION: u8 = 60;
    let mut at = 0usize;
    for _ in 0..MAX_EXTENSIONS {
        match next {
            HOP_BY_HOP | ROUTING | DESTINATION => {
                let [following, len] = *payload
                    .get(at..)
                    .and_then(|rest| rest.first_chunk::<2>())
                    .ok_or(Reason::IpLength)?;
                next = following;
                at += 8 * (usize::from(len) + 1);
                if at > payload.len() {
                    return Err(Reason::IpLength);
                }
            }
            FRAGMENT => return Err(Reason::Fragment),
            protocol => return Ok((protocol, at as u16)),
        }
    }
    Err(Reason::NotUdp)
}

#[inline(always)]
fn udp(frame: &[u8], ip: &Ip) -> Result<Udp, Reason> {
    let offset = ip.offset + ip.header_len;
    let segment = frame
        .get(usize::from(offset)..ip.end())
        .ok_or(Reason::IpLength)?;
    let [s0, s1, d0, d1, l0, l1, c0, c1] =
        *segment.first_chunk::<UDP_LEN>().ok_or(Reason::UdpLength)?;
    if usize::from(u16::from_be_bytes([l0, l1])) != segment.len() && !mutate::has(Fault::Frame) {
        return Err(Reason::UdpLength);
    }
    Ok(Udp {
        source: u16::from_be_bytes([s0, s1]),
        destination: u16::from_be_bytes([d0, d1]),
        checksum: u16::from_be_bytes([c0, c1]),
        offset,
        payload_off: offset + UDP_LEN as u16,
        payload_len: (segment.len() - UDP_LEN) as u16,
    })
}
