//! Frames of one end: building them with everything a real adapter sets, and reading those for it.

use std::net::{IpAddr, SocketAddr};

use crem_wire::Psn;
use crem_wire::frame::{Class, ParseConfig, UdpFrame, parse};
use crem_wire::icrc;
use crem_wire::roce::{Aeth, Bth, ICRC_LEN, Opcode, Reth, UDP_PORT};

use crate::config::Endpoint;
use crate::pattern::Pattern;

/// Default partition.
const PKEY: u16 = 0xffff;
const TTL: u8 = 64;
/// Reserved octets of a CNP behind the BTH.
const CNP_RESERVED: usize = 16;

/// What a packet carries between BTH and payload, and its payload.
#[derive(Clone, Copy, Debug, Default)]
pub struct Body {
    /// Target of a WRITE or source of a READ.
    pub reth: Option<Reth>,
    /// Acknowledgment.
    pub aeth: Option<Aeth>,
    /// Payload by offset in the stream and octets.
    pub data: Option<(u64, usize)>,
}

/// Builds the frames of one end.
#[derive(Clone, Debug)]
pub struct Writer {
    endpoint: Endpoint,
    pattern: Pattern,
    /// IPv4 Identification of the next frame: counts up, as Soft-RoCE's does.
    ident: u16,
    /// UDP source port of the next frame, and frames until it changes.
    udp_source: u16,
    lasts: u32,
}

/// Dynamic ports, of which source ports are drawn.
const FIRST_PORT: u16 = 0xc000;

impl Writer {
    /// A writer for `endpoint` whose payloads come from `pattern`.
    pub fn new(endpoint: Endpoint, pattern: Pattern) -> Self {
        Self {
            endpoint,
            pattern,
            ident: endpoint.udp_source.rotate_left(3),
            udp_source: endpoint.udp_source,
            lasts: endpoint.udp_source_lasts.unwrap_or(u32::MAX),
        }
    }

    /// Writes a data, READ request or acknowledgment frame into `out`, replacing what it held.
    pub fn packet(
        &mut self,
        opcode: Opcode,
        psn: Psn,
        ack_req: bool,
        body: &Body,
        out: &mut Vec<u8>,
    ) {
        let pad = body.data.map_or(0, |(_, octets)| octets.wrapping_neg() & 3);
        let bth = Bth {
            opcode,
            octet1: 0x40 | (pad as u8) << 4,
            pkey: PKEY,
            octet4: 0,
            dest_qp: self.endpoint.peer_qp,
            octet8: u8::from(ack_req) << 7,
            psn,
        };
        self.start(&bth, out);
        if let Some(reth) = body.reth {
            let mut octets = [0; Reth::LEN];
            reth.write(&mut octets);
            out.extend_from_slice(&octets);
        }
        if let Some(aeth) = body.aeth {
            let mut octets = [0; Aeth::LEN];
            aeth.write(&mut octets);
            out.extend_from_slice(&octets);
        }
        if let Some((offset, count)) = body.data {
            self.pattern.append(offset, count, out);
        }
        out.resize(out.len() + pad, 0);
        self.finish(self.endpoint.tos, out);
    }

    /// Writes a congestion notification into `out`.
    pub fn cnp(&mut self, out: &mut Vec<u8>) {
        let bth = Bth {
            opcode: Opcode::CNP,
            octet1: 0x40,
            pkey: PKEY,
            octet4: 0x40,
            dest_qp: self.endpoint.peer_qp,
            octet8: 0,
            psn: Psn::new(0),
        };
        self.start(&bth, out);
        out.resize(out.len() + CNP_RESERVED, 0);
        self.finish(self.endpoint.tos & !3, out);
    }

    fn start(&self, bth: &Bth, out: &mut Vec<u8>) {
        out.clear();
        out.resize(self.headers(0).header_len(), 0);
        out.extend_from_slice(&bth.to_octets());
    }

    fn headers(&self, tos: u8) -> UdpFrame {
        let endpoint = &self.endpoint;
        UdpFrame {
            destination_mac: endpoint.peer_mac,
            source_mac: endpoint.local_mac,
            tags: endpoint.tags,
            source: SocketAddr::new(endpoint.local_ip, self.udp_source),
            destination: SocketAddr::new(endpoint.peer_ip, UDP_PORT),
            tos,
            ttl: TTL,
            ident: self.ident,
            dont_fragment: true,
            udp_checksum: false,
        }
    }

    /// Room for the ICRC, the headers in front, then the ICRC over both.
    fn finish(&mut self, tos: u8, out: &mut Vec<u8>) {
        out.resize(out.len() + ICRC_LEN, 0);
        let headers = self.headers(tos);
        if headers.write(out).is_some() {
            let ip_len = match self.endpoint.local_ip {
                IpAddr::V4(_) => 20,
                IpAddr::V6(_) => 40,
            };
            let ip = headers.header_len() - ip_len - 8;
            if let Some(packet) = out.get_mut(ip..) {
                icrc::write(packet, ip_len);
            }
        }
        self.ident = self.ident.wrapping_add(1);
        self.lasts -= 1;
        if self.lasts == 0 {
            // Full period over the dynamic ports, and neighbours far apart.
            let next = self.udp_source.wrapping_mul(0x6255).wrapping_add(0x3619);
            self.udp_source = FIRST_PORT | next;
            self.lasts = self.endpoint.udp_source_lasts.unwrap_or(u32::MAX).max(1);
        }
    }
}

/// A packet for this end.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Its BTH.
    pub bth: Bth,
    /// RETH if the opcode has one.
    pub reth: Option<Reth>,
    /// AETH if the opcode has one.
    pub aeth: Option<Aeth>,
    /// RDMA payload without padding.
    pub data: &'a [u8],
    /// Marked CE.
    pub ce: bool,
}

/// What a frame is to this end.
#[derive(Clone, Copy, Debug)]
pub enum Read<'a> {
    /// For another, or no RoCEv2.
    Foreign,
    /// For this end, but its ICRC is wrong or it is cut.
    Bad,
    /// A packet.
    Packet(Incoming<'a>),
}

/// Reads a frame as the end `endpoint` does.
pub fn read<'a>(endpoint: &Endpoint, frame: &'a [u8]) -> Read<'a> {
    let parsed = parse(frame, &ParseConfig::default());
    let (Class::Roce(bth), Some(ip)) = (parsed.class, parsed.ip) else {
        return Read::Foreign;
    };
    let ours = ip.destination == endpoint.local_ip
        && ip.source == endpoint.peer_ip
        && bth.dest_qp == endpoint.local_qp;
    if !ours {
        return Read::Foreign;
    }
    let payload = parsed.payload(frame);
    let front = bth
        .opcode
        .ext()
        .filter(|_| icrc::verify_frame(frame, &parsed));
    let (Some(ext), Some(octets)) = (front, bth.payload_len(payload.len())) else {
        return Read::Bad;
    };
    let at = |offset: Option<u8>| offset.and_then(|o| payload.get(usize::from(o)..));
    let start = usize::from(ext.payload);
    Read::Packet(Incoming {
        bth,
        reth: at(ext.reth).and_then(Reth::parse),
        aeth: at(ext.aeth).and_then(Aeth::parse),
        data: payload.get(start..start + octets).unwrap_or_default(),
        ce: parsed.ce(),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crem_wire::Qpn;
    use crem_wire::frame::{Mac, Tag, Tags};

    /// The two ends of a connection.
    pub(crate) fn ends(v6: bool) -> (Endpoint, Endpoint) {
        let ip = |last: u8| -> IpAddr {
            if v6 {
                format!("fd00::{last}").parse().unwrap()
            } else {
                [10, 0, 0, last].into()
            }
        };
        let a = Endpoint {
            local_mac: Mac([2, 0, 0, 0, 0, 1]),
            peer_mac: Mac([2, 0, 0, 0, 0, 2]),
            tags: Tags::NONE,
            local_ip: ip(1),
            peer_ip: ip(2),
            udp_source: 0xc001,
            udp_source_lasts: None,
            local_qp: Qpn::new(0x11),
            peer_qp: Qpn::new(0x22),
            tos: 2,
        };
        let b = Endpoint {
            local_mac: a.peer_mac,
            peer_mac: a.local_mac,
            local_ip: a.peer_ip,
            peer_ip: a.local_ip,
            local_qp: a.peer_qp,
            peer_qp: a.local_qp,
            ..a
        };
        (a, b)
    }

    #[test]
    fn what_is_written_is_read() {
        for (v6, tagged) in [(false, false), (false, true), (true, false), (true, true)] {
            let (mut a, b) = ends(v6);
            if tagged {
                a.tags.push(Tag::vlan(100));
            }
            let mut writer = Writer::new(a, Pattern::new(3));
            let reth = Reth {
                virtual_address: 77,
                rkey: 5,
                dma_length: 4001,
            };
            let body = Body {
                reth: Some(reth),
                aeth: None,
                data: Some((9, 1001)),
            };
            let mut frame = Vec::new();
            writer.packet(Opcode::WRITE_ONLY, Psn::new(7), true, &body, &mut frame);
            let Read::Packet(got) = read(&b, &frame) else {
                panic!("{v6} {tagged}")
            };
            assert_eq!(
                (got.bth.psn, got.bth.ack_req(), got.reth),
                (Psn::new(7), true, Some(reth))
            );
            assert_eq!(
                (got.data.len(), Pattern::new(3).wrong(9, got.data)),
                (1001, 0)
            );
            assert!(matches!(read(&a, &frame), Read::Foreign));
            let last = frame.len() - 1;
            frame[last] ^= 1;
            assert!(matches!(read(&b, &frame), Read::Bad));
        }
    }

    #[test]
    fn identification_counts_up() {
        let mut writer = Writer::new(ends(false).0, Pattern::new(0));
        let mut ident = || {
            let mut frame = Vec::new();
            writer.cnp(&mut frame);
            u16::from_be_bytes([frame[18], frame[19]])
        };
        let first = ident();
        assert_eq!(ident(), first.wrapping_add(1));
    }
}
