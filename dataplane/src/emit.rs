//! Writing what we send ourselves: REPAIR around a symbol that is in place already, and all other
//! messages.

use std::net::SocketAddr;

use crem_wire::crem::{Message, RepairHeader};
use crem_wire::frame::{Ecn, MIN_FRAME_LEN, Mac, Tags, UdpFrame, tos};

use crate::buffer::{Buffer, Pool};
use crate::slots::RESERVE;

/// Hop limit of our packets.
const TTL: u8 = 64;

/// How a datagram of ours travels.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Ethernet destination.
    pub destination_mac: Mac,
    /// Our MAC address.
    pub source_mac: Mac,
    /// VLAN tags.
    pub tags: Tags,
    /// Our address, with the CREM port.
    pub source: SocketAddr,
    /// Where it goes.
    pub destination: SocketAddr,
    /// DSCP.
    pub dscp: u8,
}

impl Route {
    fn headers(&self, ecn: Ecn, udp_checksum: bool) -> UdpFrame {
        UdpFrame {
            destination_mac: self.destination_mac,
            source_mac: self.source_mac,
            tags: self.tags,
            source: self.source,
            destination: self.destination,
            tos: tos(self.dscp, ecn),
            ttl: TTL,
            // Never fragmented, so never reassembled: any value does (RFC 6864).
            ident: 0,
            dont_fragment: true,
            udp_checksum,
        }
    }

    /// A REPAIR frame around the symbol in `buffer`, which stands behind [`RESERVE`] octets; ECT(0)
    /// (AMB-ECT). Over IPv4 it carries no UDP checksum: what a symbol restores is verified by its ICRC.
    pub fn repair<B: Buffer>(&self, header: &RepairHeader, mut buffer: B) -> Option<B> {
        let headers = self.headers(Ecn::Ect0, self.destination.is_ipv6());
        let before = headers.header_len() + header.encoded_len();
        let unused = usize::from(RESERVE).checked_sub(before)?;
        write_repair(&headers, header, buffer.octets_mut()?.get_mut(unused..)?)?;
        buffer
            .trim_front(u16::try_from(unused).ok()?)
            .then_some(buffer)
    }

    /// A REPAIR frame with INFO: a header without symbol.
    pub fn info<B: Buffer>(&self, header: &RepairHeader, pool: &impl Pool<B>) -> Option<B> {
        let headers = self.headers(Ecn::Ect0, self.destination.is_ipv6());
        let len = headers.header_len() + header.encoded_len();
        let mut buffer = pool.take(u16::try_from(len).ok()?)?;
        write_repair(&headers, header, buffer.octets_mut()?)?;
        Some(buffer)
    }

    /// A frame with any other message; Not-ECT (AMB-CTRLDSCP). `scratch` keeps its memory.
    pub fn message<B: Buffer>(
        &self,
        message: &Message,
        scratch: &mut Vec<u8>,
        pool: &impl Pool<B>,
    ) -> Option<B> {
        scratch.clear();
        message.encode(scratch);
        let headers = self.headers(Ecn::NotEct, true);
        let before = headers.header_len();
        let len = before + scratch.len();
        let mut buffer = pool.take(u16::try_from(len.max(MIN_FRAME_LEN)).ok()?)?;
        // Not every port pads what is shorter than Ethernet frames are.
        let (octets, padding) = buffer.octets_mut()?.split_at_mut_checked(len)?;
        padding.fill(0);
        octets.get_mut(before..)?.copy_from_slice(scratch);
        headers.write(octets)?;
        Some(buffer)
    }
}

fn write_repair(headers: &UdpFrame, header: &RepairHeader, frame: &mut [u8]) -> Option<()> {
    if header.encode(frame.get_mut(headers.header_len()..)?) == 0 {
        return None;
    }
    headers.write(frame).map(|_| ())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::buffer::heap::{HeapBuf, HeapPool};
    use crem_wire::crem::{Close, Parsed, parse};
    use crem_wire::frame::{self, Class, ParseConfig, Tag};
    use crem_wire::{Bitmap, ConfigId, FlowId, Psn};

    fn route(peer: &str, tagged: bool) -> Route {
        let destination: SocketAddr = peer.parse().unwrap();
        let own = if destination.is_ipv4() {
            "192.0.2.1:4801"
        } else {
            "[2001:db8::1]:4801"
        };
        let mut tags = Tags::NONE;
        if tagged {
            tags.push(Tag::vlan(7));
            tags.push(Tag::vlan(8));
        }
        Route {
            destination_mac: Mac([2, 0, 0, 0, 0, 2]),
            source_mac: Mac([2, 0, 0, 0, 0, 1]),
            tags,
            source: own.parse().unwrap(),
            destination,
            dscp: 26,
        }
    }

    fn header(k: u8, t: u16) -> RepairHeader {
        RepairHeader {
            flow: FlowId::new(77).unwrap(),
            last: true,
            info: t == 0,
            config: ConfigId(3),
            scheme: 1,
            k,
            index: 0,
            block_start: Psn::new(5),
            session: None,
            symbol_length: t,
            present: Bitmap::first(usize::from(k)),
            lost: None,
        }
    }

    fn config() -> ParseConfig {
        ParseConfig {
            crem_port: Some(4801),
            ..ParseConfig::default()
        }
    }

    // shows: CREM-PORT-01, CREM-CC-04, CREM-CC-05, QOS-ECN-01, QOS-ECN-05, AMB-SRCPORT, AMB-AF
    #[test]
    fn repair_goes_around_its_symbol_with_every_address_family_and_tag_count() {
        for (peer, tagged) in [
            ("192.0.2.2:4801", false),
            ("[2001:db8::2]:4801", true),
            ("192.0.2.2:9", true),
        ] {
            let mut header = header(255, 100);
            header.session = crem_wire::RequestId::new(9);
            header.lost = Some(Bitmap::first(4));
            let symbol: Vec<u8> = (0..100).collect();
            let buffer = HeapBuf::new(&[vec![0; usize::from(RESERVE)], symbol.clone()].concat());
            let frame = route(peer, tagged).repair(&header, buffer).unwrap();
            let parsed = frame::parse(frame.octets(), &config());
            assert_eq!(
                parsed.link.unwrap().tags.as_slice().len(),
                if tagged { 2 } else { 0 }
            );
            assert_eq!(parsed.ip.unwrap().tos, 26 << 2 | 2);
            match parse(parsed.payload(frame.octets())).unwrap() {
                Parsed::Repair(read, octets) => assert_eq!((read, octets), (header, &symbol[..])),
                other => panic!("{other:?}"),
            }
        }
    }

    // shows: CREM-PORT-01, AMB-CTRLDSCP
    #[test]
    fn messages_and_info_can_be_read_back() {
        let (pool, mut scratch) = (HeapPool::default(), Vec::new());
        let route = route("192.0.2.2:4801", false);
        let message = Message::Close(Close {
            flow: FlowId::new(5).unwrap(),
            reason: 1,
        });
        let frame: HeapBuf = route.message(&message, &mut scratch, &pool).unwrap();
        let parsed = frame::parse(frame.octets(), &config());
        assert_eq!(parsed.class, Class::Crem);
        // CLOSE alone is shorter than Ethernet frames are: 42 octets of headers and 12 of message.
        assert_eq!(
            (frame.octets().len(), &frame.octets()[54..]),
            (60, &[0; 6][..])
        );
        assert_eq!(parsed.ip.unwrap().tos, 26 << 2);
        assert_ne!(parsed.udp.unwrap().checksum, 0);
        assert_eq!(
            parse(parsed.payload(frame.octets())),
            Ok(Parsed::Message(message))
        );
        let info = header(32, 0);
        let frame: HeapBuf = route.info(&info, &pool).unwrap();
        let parsed = frame::parse(frame.octets(), &config());
        assert_eq!(
            parse(parsed.payload(frame.octets())),
            Ok(Parsed::Repair(info, &[]))
        );
    }
}
