//! What a received frame is to us, decided once and from its octets alone: forward it, offer it to a
//! protocol function, give it to the in-band interface, read it as a message, or drop it. Nothing is
//! done to the frame here.

use std::net::{IpAddr, SocketAddr};

use crem_api::Prefix;
use crem_core::csf::DatagramKey;
use crem_core::learn::{Ack, Managed};
use crem_core::packet::{Namespace, PsnSpace, StreamKey};
use crem_wire::frame::{
    Class, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ip, Link, Mac, ParseConfig, Parsed,
    Reason, dscp_of, parse,
};
use crem_wire::roce::{self, Bth, CmMessage, Reth};
use crem_wire::{Psn, Qpn, icrc};

use crate::control_frames::{Control, ControlFrames};
use crate::overheard::{acknowledgment, direction, response, unsequenced};

/// The side that a frame came in on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// From the hosts.
    Lan,
    /// From the path.
    Wan,
}

impl Side {
    /// The other one.
    pub const fn opposite(self) -> Side {
        match self {
            Side::Lan => Side::Wan,
            Side::Wan => Side::Lan,
        }
    }
}

/// Our in-band station.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Station {
    /// Address.
    pub address: IpAddr,
    /// MAC address.
    pub mac: Mac,
    /// VLAN of its frames.
    pub vlan: Option<u16>,
}

/// What the decision depends on besides the frame.
#[derive(Clone, Debug)]
pub struct View {
    /// Ports of CREM and VXLAN.
    pub parse: ParseConfig,
    /// Hosts behind the LAN port.
    pub served: Vec<Prefix>,
    /// Our own station.
    pub own: Option<Station>,
    /// Whether flows are protected at all.
    pub active: bool,
    /// Whether flows from the WAN are watched.
    pub watched: bool,
    /// Whether READ and atomic responses are protected (AMB-READRESP).
    pub responses: bool,
    /// Whether connection messages and acknowledgments are looked at (AMB-ACKMAP).
    pub learn: bool,
    /// Whether the ICRC of sources is checked (AMB-BADSRC).
    pub verify_sources: bool,
    /// Which protocols between neighbours stop here.
    pub control: ControlFrames,
    /// VXLAN networks whose flows are protected, ascending; all of them without any.
    pub networks: Vec<u32>,
    /// By side, the octets of a frame from which on the port may have cut it; [`NEVER_CUT`] where it
    /// does not.
    pub cut_from: [usize; 2],
}

/// No frame is as long.
pub const NEVER_CUT: usize = usize::MAX;

/// Why a frame goes no further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The IP packet is longer than what was captured.
    Truncated,
    /// Pause or PFC.
    MacControl,
    /// Of a protocol between neighbours that the document stops here (AMB-QOS-PFC).
    Control(Control),
    /// Our own frame came back, or somebody speaks in our name; the side that it came in on.
    OwnSource(Side),
    /// For our station, in another VLAN.
    InbandVlan,
    /// For our station, and nothing that it takes.
    InbandOther,
}

/// A packet of a stream that may be protected, or an acknowledgment that may have to wait behind one:
/// everything of a `Desc` but the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    /// Stream.
    pub key: StreamKey,
    /// BTH PSN.
    pub psn: Psn,
    /// BTH opcode octet.
    pub opcode: u8,
    /// Octets of the UDP payload.
    pub payload_len: u16,
    /// Its offset in the frame.
    pub payload_off: u16,
    /// RDMA MTU, where the packet shows it.
    pub mtu_seen: Option<u16>,
    /// DMA Length of a READ request.
    pub read_length: Option<u32>,
    /// The receiver will see CE.
    pub ce: bool,
    /// DSCP that the network sees.
    pub dscp: u8,
    /// Priority of its outermost tag; 0 without one.
    pub pcp: u8,
}

/// A datagram on the CREM port that is ours to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Source address and port.
    pub from: SocketAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// The side that it came in on.
    pub side: Side,
    /// It was sent to a host that we serve, not to us.
    pub to_served: bool,
    /// Offset of the UDP payload in the frame.
    pub payload_off: u16,
    /// Octets of the UDP payload.
    pub payload_len: u16,
    /// Arrived with CE.
    pub ce: bool,
}

/// What to do with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Send it out of the other port.
    Forward,
    /// The same; it is a datagram on the CREM port between others.
    Transit,
    /// The same; it is an addressed source whose ICRC is wrong.
    Unverified,
    /// The same; it is RoCEv2 in a VXLAN network whose flows are not protected.
    OtherNetwork,
    /// Send it out of the other port; it is a packet of a stream.
    Source(Source),
    /// Send it out of the other port; it is of datagram service and never protected (AMB-OPCODES).
    Unsequenced(DatagramKey),
    /// Send it out of the other port; it acknowledges what a host that we serve has sent.
    Ack(Ack),
    /// Send it out of the other port; it sets up or ends a connection of a host that we serve.
    Managed(Managed),
    /// Give it to the in-band interface, and nobody else.
    Kernel,
    /// Send it out of the other port and give it to the in-band interface.
    ForwardAndKernel,
    /// Read it as a message.
    Message(Datagram),
    /// Drop and count.
    Refuse(Refusal),
}

impl Verdict {
    /// Whether the frame goes out of the other port.
    pub fn is_onward(&self) -> bool {
        match self {
            Verdict::Forward
            | Verdict::Transit
            | Verdict::Unverified
            | Verdict::OtherNetwork
            | Verdict::Source(_)
            | Verdict::Unsequenced(_)
            | Verdict::Ack(_)
            | Verdict::Managed(_)
            | Verdict::ForwardAndKernel => true,
            Verdict::Kernel | Verdict::Message(_) | Verdict::Refuse(_) => false,
        }
    }
}

impl View {
    /// Whether a host with this address is behind the LAN port.
    pub fn serves(&self, address: IpAddr) -> bool {
        self.served.iter().any(|p| p.contains(address))
    }

    /// Decides on a frame that came in on `side`.
    #[inline(always)]
    pub fn classify(&self, frame: &[u8], side: Side) -> Verdict {
        self.judge(frame, &parse(frame, &self.parse), side)
    }

    /// Decides on a frame that was taken apart by [`View::parse`].
    pub fn judge(&self, frame: &[u8], parsed: &Parsed, side: Side) -> Verdict {
        let Some(link) = &parsed.link else {
            return Verdict::Forward;
        };
        match parsed.class {
            // Inside of a tunnel it is of another link, and nobody here would obey it.
            Class::Other(Reason::MacControl) if parsed.tunnel.is_none() => {
                return Verdict::Refuse(Refusal::MacControl);
            }
            // What its sender made too short passes, as on a wire: only the port's own cut ends here.
            Class::Other(Reason::IpLength)
                if frame.len() >= self.cut_from[side as usize] && is_truncated(frame, link) =>
            {
                return Verdict::Refuse(Refusal::Truncated);
            }
            _ => {}
        }
        if let Some(control) = self.control.stopped(frame, link) {
            return Verdict::Refuse(Refusal::Control(control));
        }
        if let Some(own) = &self.own {
            if own.is_addressed(link, parsed) {
                return datagram(parsed, side, false).map_or(Verdict::Forward, Verdict::Message);
            }
            if link.destination == own.mac {
                return for_our_station(frame, link, parsed, own);
            }
            if link.source == own.mac {
                return Verdict::Refuse(Refusal::OwnSource(side));
            }
            if link.destination.is_group() && own.is_vlan_of(link) && is_asked_for(frame, link, own)
            {
                return Verdict::ForwardAndKernel;
            }
        }
        match (&parsed.class, &parsed.ip) {
            (Class::Crem, Some(ip)) => self.crem(parsed, ip, side),
            (Class::Roce(bth), Some(ip)) if self.active || self.watched && side == Side::Wan => {
                self.roce(frame, parsed, bth, ip, side)
            }
            _ => Verdict::Forward,
        }
    }

    /// A datagram on the CREM port that is not addressed to our station (AMB-PAIR, AMB-PRICEPT).
    fn crem(&self, parsed: &Parsed, ip: &Ip, side: Side) -> Verdict {
        // Nobody else speaks for us: neither a host that would have the peer believe it, nor a loop.
        if parsed.tunnel.is_none() && self.own.is_some_and(|own| own.address == ip.source) {
            return Verdict::Refuse(Refusal::OwnSource(side));
        }
        if side == Side::Wan && parsed.tunnel.is_none() && self.serves(ip.destination) {
            return datagram(parsed, side, true).map_or(Verdict::Forward, Verdict::Message);
        }
        Verdict::Transit
    }

    #[inline(always)]
    fn roce(&self, frame: &[u8], parsed: &Parsed, bth: &Bth, ip: &Ip, side: Side) -> Verdict {
        let served = match side {
            Side::Lan => self.serves(ip.source),
            Side::Wan => self.serves(ip.destination),
        };
        if let Some(tunnel) = &parsed.tunnel
            && !self.networks.is_empty()
            && self.networks.binary_search(&tunnel.vni).is_err()
        {
            return Verdict::OtherNetwork;
        }
        let space = match bth.opcode.class() {
            roce::Class::Request => PsnSpace::Requests,
            roce::Class::Response | roce::Class::AtomicAck if self.responses => PsnSpace::Responses,
            // It must not pass responses that are held (AMB-READRESP).
            roce::Class::Ack if self.responses && side == Side::Wan => PsnSpace::Responses,
            roce::Class::Ack if self.learn && served && side == Side::Wan => {
                return acknowledgment(frame, parsed, bth, ip)
                    .map_or(Verdict::Forward, Verdict::Ack);
            }
            roce::Class::Response if self.learn && served && side == Side::Wan => {
                return response(parsed, bth, ip).map_or(Verdict::Forward, Verdict::Ack);
            }
            roce::Class::Ud if self.learn && bth.dest_qp == Qpn::CM => {
                return self.managed(frame, parsed, ip);
            }
            roce::Class::Ud | roce::Class::Other if served && side == Side::Lan => {
                return unsequenced(parsed, bth, ip).map_or(Verdict::Forward, Verdict::Unsequenced);
            }
            _ => return Verdict::Forward,
        };
        let Some(udp) = parsed.udp.filter(|_| served) else {
            return Verdict::Forward;
        };
        if usize::from(udp.payload_len) < roce::MIN_PAYLOAD {
            return Verdict::Forward;
        }
        if self.verify_sources && !icrc::verify_frame(frame, parsed) {
            return Verdict::Unverified;
        }
        // With a tunnel around it the network sorts by the outer header (AMB-DSCPTUN).
        let tos = parsed.tunnel.as_ref().map_or(ip.tos, |t| t.ip.tos);
        let tags = parsed.link.as_ref().map(|l| l.tags).unwrap_or_default();
        Verdict::Source(Source {
            key: StreamKey {
                namespace: Namespace(parsed.context()),
                source: ip.source,
                destination: ip.destination,
                qp: bth.dest_qp,
                space,
            },
            psn: bth.psn,
            opcode: bth.opcode.0,
            payload_len: udp.payload_len,
            payload_off: udp.payload_off,
            mtu_seen: bth.mtu_seen(usize::from(udp.payload_len)),
            read_length: read_length(bth, parsed.payload(frame)),
            ce: parsed.ce(),
            dscp: dscp_of(tos),
            pcp: tags.as_slice().first().map_or(0, |tag| tag.pcp()),
        })
    }
}

impl View {
    /// A datagram to the connection manager's queue pair.
    fn managed(&self, frame: &[u8], parsed: &Parsed, ip: &Ip) -> Verdict {
        let ours = self.serves(ip.source) || self.serves(ip.destination);
        let message = CmMessage::parse(parsed.payload(frame)).filter(|_| ours);
        // These are few, and what a damaged one says would end a flow.
        match message.filter(|_| icrc::verify_frame(frame, parsed)) {
            Some(message) => Verdict::Managed(Managed {
                way: direction(parsed, ip),
                message,
            }),
            None => Verdict::Forward,
        }
    }
}

impl Station {
    /// Whether this is a message to us. The MAC address does not matter: a neighbour may still have
    /// another one for our address, or send through a router.
    fn is_addressed(&self, link: &Link, parsed: &Parsed) -> bool {
        let ours = parsed
            .ip
            .as_ref()
            .is_some_and(|ip| ip.destination == self.address);
        ours && parsed.class == Class::Crem && parsed.tunnel.is_none() && self.is_vlan_of(link)
    }

    fn is_vlan_of(&self, link: &Link) -> bool {
        match (self.vlan, link.tags.as_slice()) {
            (None, []) => true,
            (Some(vlan), [tag]) => tag.vid() == vlan,
            _ => false,
        }
    }
}

fn for_our_station(frame: &[u8], link: &Link, parsed: &Parsed, own: &Station) -> Verdict {
    if !own.is_vlan_of(link) {
        Verdict::Refuse(Refusal::InbandVlan)
    } else if is_for_kernel(frame, link, parsed, own) {
        Verdict::Kernel
    } else {
        Verdict::Refuse(Refusal::InbandOther)
    }
}

fn datagram(parsed: &Parsed, side: Side, to_served: bool) -> Option<Datagram> {
    let (ip, udp) = (parsed.ip.as_ref()?, parsed.udp.as_ref()?);
    Some(Datagram {
        from: SocketAddr::new(ip.source, udp.source),
        destination: ip.destination,
        side,
        to_served,
        payload_off: udp.payload_off,
        payload_len: udp.payload_len,
        ce: parsed.ce(),
    })
}

fn read_length(bth: &Bth, payload: &[u8]) -> Option<u32> {
    if !bth.opcode.is_read_request() {
        return None;
    }
    let at = usize::from(bth.opcode.ext()?.reth?);
    Reth::parse(payload.get(at..)?).map(|reth| reth.dma_length)
}

/// Whether the header says more octets than the frame has, as when a port cut what did not fit its
/// buffer. A header that is impossible in itself is not that.
fn is_truncated(frame: &[u8], link: &Link) -> bool {
    let Some(packet) = frame.get(usize::from(link.next)..) else {
        return false;
    };
    let total = match (link.ethertype, packet) {
        (ETHERTYPE_IPV4, [first, _, l0, l1, ..]) if first >> 4 == 4 => {
            usize::from(u16::from_be_bytes([*l0, *l1]))
        }
        (ETHERTYPE_IPV6, [first, _, _, _, l0, l1, ..]) if first >> 4 == 6 => {
            40 + usize::from(u16::from_be_bytes([*l0, *l1]))
        }
        _ => return false,
    };
    total > packet.len()
}

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// The ICMP header of an unfragmented packet: protocol number and the octets from the type on.
fn icmp_of<'a>(frame: &'a [u8], link: &Link, ip: &Ip) -> Option<(u8, &'a [u8])> {
    let header = frame.get(usize::from(ip.offset)..ip.end())?;
    let body = header.get(usize::from(ip.header_len)..)?;
    let protocol = match link.ethertype {
        ETHERTYPE_IPV4 => *header.get(9)?,
        // Without extension headers; the kernel needs nothing else from us.
        ETHERTYPE_IPV6 if ip.header_len == 40 => *header.get(6)?,
        _ => return None,
    };
    (!body.is_empty()).then_some((protocol, body))
}

/// What the kernel gets of the frames to our station: ARP, neighbour discovery, ICMP echo and errors.
fn is_for_kernel(frame: &[u8], link: &Link, parsed: &Parsed, own: &Station) -> bool {
    if link.ethertype == ETHERTYPE_ARP {
        return own.address.is_ipv4();
    }
    let Some(ip) = &parsed.ip else { return false };
    if parsed.class != Class::Other(Reason::NotUdp) {
        return false;
    }
    let Some((protocol, body)) = icmp_of(frame, link, ip) else {
        return false;
    };
    match (protocol, body.first()) {
        // Echo reply, unreachable, echo request, time exceeded, parameter problem.
        (ICMP, Some(0 | 3 | 8 | 11 | 12)) => ip.destination == own.address,
        // Errors, echo, neighbour solicitation and advertisement.
        (ICMPV6, Some(1..=4 | 128 | 129 | 135 | 136)) => own.address.is_ipv6(),
        _ => false,
    }
}

/// What may leave from the in-band interface: the same kinds as go in, whatever their addresses.
pub fn may_leave_kernel(frame: &[u8]) -> bool {
    let parsed = parse(frame, &ParseConfig::default());
    let Some(link) = &parsed.link else {
        return false;
    };
    if !link.tags.as_slice().is_empty() {
        return false;
    }
    if link.ethertype == ETHERTYPE_ARP {
        return true;
    }
    let Some(ip) = parsed
        .ip
        .as_ref()
        .filter(|_| parsed.class == Class::Other(Reason::NotUdp))
    else {
        return false;
    };
    matches!(
        icmp_of(frame, link, ip),
        Some((ICMP, [0 | 3 | 8 | 11 | 12, ..]) | (ICMPV6, [1..=4 | 128 | 129 | 135 | 136, ..]))
    )
}

/// Whether a group-addressed frame asks for our address, or announces a change that our neighbour table
/// has to see: ARP and neighbour discovery.
fn is_asked_for(frame: &[u8], link: &Link, own: &Station) -> bool {
    let Some(packet) = frame.get(usize::from(link.next)..) else {
        return false;
    };
    match (own.address, link.ethertype) {
        (IpAddr::V4(address), ETHERTYPE_ARP) => {
            let (Some(sender), Some(target)) = (packet.get(14..18), packet.get(24..28)) else {
                return false;
            };
            // A gratuitous announcement names its sender twice.
            target == address.octets() || sender == target
        }
        (IpAddr::V6(address), ETHERTYPE_IPV6) => {
            let icmp = packet.get(6) == Some(&ICMPV6);
            match packet.get(40) {
                Some(135) if icmp => packet.get(48..64) == Some(address.octets().as_slice()),
                Some(136) => icmp,
                _ => false,
            }
        }
        _ => false,
    }
}

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
