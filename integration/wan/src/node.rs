//! A Path Reporter at the entrance of one direction: it tells the sources of RDMA flows what this direction
//! drops and how long its queue is. What is told when is decided in `crem_core::reporter`; here packets are
//! read and messages become frames.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crem_core::config::Prefix;
use crem_core::reporter::{Observed, Outgoing, Reporter, ReporterConfig, SourcePrefix};
use crem_core::time::Instant;
use crem_wire::Psn;
use crem_wire::crem::registry::LossCause;
use crem_wire::crem::{FlowDescriptor, Message};
use crem_wire::frame::{Class, Ecn, Mac, ParseConfig, Tags, UdpFrame, dscp_of, parse, tos};
use crem_wire::roce;

use crate::config::NodeConfig;

/// Ways back that are remembered at most.
const MAX_WAYS: usize = 4_096;
/// Hop limit of reports.
const TTL: u8 = 64;

/// How a report gets back: the other way round than the packets of its flow.
#[derive(Clone, Copy, Debug)]
struct Way {
    mac: Mac,
    tags: Tags,
}

/// What a node knows of a packet of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    seen: Observed,
    psn: Psn,
    way: Way,
}

/// The node.
#[derive(Debug)]
pub(crate) struct Node {
    reporter: Reporter,
    address: SocketAddr,
    mac: Mac,
    delay_ns: u64,
    ways: HashMap<FlowDescriptor, Way>,
    /// Frames on their way back, in order, with the time they leave.
    leaving: VecDeque<(u64, Vec<u8>)>,
    sent: u64,
}

impl Packet {
    /// Reads a frame; `None` if it is no packet that carries a PSN of a flow.
    pub(crate) fn of(frame: &[u8]) -> Option<Self> {
        let parsed = parse(frame, &ParseConfig::default());
        let (Class::Roce(bth), Some(ip), Some(link)) = (parsed.class, parsed.ip, parsed.link)
        else {
            return None;
        };
        let has_psn = matches!(
            bth.opcode.class(),
            roce::Class::Request | roce::Class::Response | roce::Class::AtomicAck
        );
        has_psn.then_some(Self {
            seen: Observed {
                flow: FlowDescriptor {
                    source: ip.source,
                    destination: ip.destination,
                    qp: bth.dest_qp,
                },
                port: 0,
                dscp: dscp_of(ip.tos),
            },
            psn: bth.psn,
            way: Way {
                mac: link.source,
                tags: link.tags,
            },
        })
    }
}

impl Node {
    /// A node that saw nothing yet; `seed` sets where its numbers begin.
    pub(crate) fn new(config: &NodeConfig, crem_port: u16, seed: u64) -> Self {
        let mut own = ReporterConfig::new(config.node, crem_port);
        // The emulated network is the domain.
        own.sources = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()]
            .map(|address: IpAddr| SourcePrefix {
                prefix: Prefix { address, length: 0 },
                csf: None,
            })
            .into();
        Self {
            reporter: Reporter::new(own, seed as u32),
            address: SocketAddr::new(config.address, crem_port),
            mac: mac_of(config.address),
            delay_ns: config.delay_us * 1_000,
            ways: HashMap::new(),
            leaving: VecDeque::new(),
            sent: 0,
        }
    }

    /// The packet waits for so many nanoseconds in the queue.
    pub(crate) fn on_wait(&mut self, now: u64, packet: &Packet, wait_ns: u64) {
        self.note(packet);
        let wait = Duration::from_nanos(wait_ns);
        self.reporter.on_delay(Instant(now), &packet.seen, wait);
    }

    /// The packet is dropped.
    pub(crate) fn on_drop(&mut self, now: u64, packet: &Packet, cause: LossCause) {
        self.note(packet);
        self.reporter
            .on_drop(Instant(now), &packet.seen, packet.psn, cause);
    }

    fn note(&mut self, packet: &Packet) {
        if self.ways.len() >= MAX_WAYS && !self.ways.contains_key(&packet.seen.flow) {
            // Those still needed come back with the next packet.
            self.ways.clear();
        }
        self.ways.insert(packet.seen.flow, packet.way);
    }

    /// When something is to be done next.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let leaving = self.leaving.front().map(|(due, _)| *due);
        let timer = self.reporter.next_timeout().map(|at| at.0);
        leaving.into_iter().chain(timer).min()
    }

    /// Appends the reports that leave by `now`.
    pub(crate) fn take_due(&mut self, now: u64, out: &mut Vec<Vec<u8>>) {
        self.reporter.on_timeout(Instant(now));
        while let Some(outgoing) = self.reporter.poll_transmit() {
            if let Some(frame) = self.frame(&outgoing) {
                self.leaving.push_back((now + self.delay_ns, frame));
            }
        }
        while let Some((_, frame)) = self.leaving.pop_front_if(|(due, _)| *due <= now) {
            self.sent += 1;
            out.push(frame);
        }
    }

    /// Reports sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    fn frame(&self, outgoing: &Outgoing) -> Option<Vec<u8>> {
        let way = self.ways.get(&outgoing.report.flow)?;
        let headers = UdpFrame {
            destination_mac: way.mac,
            source_mac: self.mac,
            tags: way.tags,
            source: self.address,
            destination: outgoing.to,
            tos: tos(outgoing.dscp, Ecn::NotEct),
            ttl: TTL,
            ident: 0,
            dont_fragment: true,
            udp_checksum: true,
        };
        let mut message = Vec::new();
        Message::PathReport(outgoing.report.clone()).encode(&mut message);
        let mut frame = vec![0; headers.header_len()];
        frame.append(&mut message);
        headers.write(&mut frame)?;
        Some(frame)
    }
}

/// A locally administered MAC address made of the last octets of an IP address.
fn mac_of(address: IpAddr) -> Mac {
    let [a, b, c, d] = match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => {
            let bits = address.to_bits() as u32;
            bits.to_be_bytes()
        }
    };
    Mac([0x02, 0x72, a, b, c, d])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crem_wire::crem::{Parsed, PathReport};
    use crem_wire::frame::Tag;

    const MS: u64 = 1_000_000;

    fn node(address: &str, delay_us: u64) -> Node {
        let config = NodeConfig {
            address: address.parse().unwrap(),
            node: 5,
            delay_us,
        };
        Node::new(&config, 50_000, 3)
    }

    /// A RoCEv2 packet with this opcode and PSN toward QP 7, tagged with VLAN 9.
    fn packet(source: &str, destination: &str, opcode: u8, psn: u8) -> Vec<u8> {
        let mut tags = Tags::NONE;
        tags.push(Tag::vlan(9));
        let headers = UdpFrame {
            destination_mac: Mac([2, 0, 0, 0, 0, 2]),
            source_mac: Mac([2, 0, 0, 0, 0, 1]),
            tags,
            source: SocketAddr::new(source.parse().unwrap(), 0xc000),
            destination: SocketAddr::new(destination.parse().unwrap(), 4791),
            tos: tos(26, Ecn::Ect0),
            ttl: 64,
            ident: 0,
            dont_fragment: true,
            udp_checksum: false,
        };
        let mut frame = vec![0; headers.header_len()];
        frame.extend([opcode, 0, 0xff, 0xff, 0, 0, 0, 7, 0, 0, 0, psn, 1, 2, 3, 4]);
        headers.write(&mut frame).unwrap();
        frame
    }

    fn report(frame: &[u8]) -> PathReport {
        let config = ParseConfig {
            crem_port: Some(50_000),
            vxlan_port: None,
        };
        let parsed = parse(frame, &config);
        assert_eq!(parsed.class, Class::Crem);
        match crem_wire::crem::parse(parsed.payload(frame)) {
            Ok(Parsed::Message(Message::PathReport(report))) => report,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_report_goes_back_to_where_the_packets_came_from() {
        for (node_at, source, destination) in [
            ("10.0.0.9", "10.0.1.1", "10.0.2.1"),
            ("2001:db8::9", "2001:db8:1::1", "2001:db8:2::1"),
        ] {
            let mut node = node(node_at, 300);
            for psn in [4, 6] {
                let packet = Packet::of(&packet(source, destination, 0x0a, psn)).unwrap();
                node.on_drop(MS, &packet, LossCause::QueueOverflow);
            }
            let at = node.next_due().unwrap();
            assert_eq!(at, MS + 50_000, "the aggregation interval");
            let mut out = Vec::new();
            node.take_due(at, &mut out);
            assert_eq!((out.len(), node.next_due()), (0, Some(at + 300_000)));
            node.take_due(at + 300_000, &mut out);
            assert_eq!((out.len(), node.sent(), node.next_due()), (1, 1, None));
            let parsed = parse(&out[0], &ParseConfig::default());
            let (link, ip) = (parsed.link.unwrap(), parsed.ip.unwrap());
            assert_eq!(link.destination, Mac([2, 0, 0, 0, 0, 1]));
            assert_eq!(link.tags.as_slice(), [Tag::vlan(9)]);
            assert_eq!(ip.source, node_at.parse::<IpAddr>().unwrap());
            assert_eq!(ip.destination, source.parse::<IpAddr>().unwrap());
            assert_eq!(ip.tos, tos(26, Ecn::NotEct));
            let report = report(&out[0]);
            assert_eq!((report.flow.qp.get(), report.method), (7, 3));
            let [hop] = report.hops.as_slice() else {
                panic!("{report:?}")
            };
            assert_eq!((hop.node, hop.period, hop.lost, hop.cause), (5, 3, 2, 1));
            assert_eq!(hop.dropped, [Psn::new(4), Psn::new(6)]);
        }
    }

    #[test]
    fn only_packets_with_a_psn_of_their_flow_are_spoken_of() {
        let of = |opcode| Packet::of(&packet("10.0.1.1", "10.0.2.1", opcode, 1)).is_some();
        // WRITE ONLY, READ response, atomic acknowledgment; acknowledgment, CNP, UD.
        assert!(of(0x0a) && of(0x0e) && of(0x12));
        assert!(!of(0x11) && !of(0x81) && !of(0x64));
        assert!(Packet::of(&[0; 60]).is_none());
    }

    #[test]
    fn ways_are_bounded() {
        let mut node = node("10.0.0.9", 0);
        for n in 0..=MAX_WAYS as u32 {
            let [_, _, c, d] = n.to_be_bytes();
            let source = format!("10.1.{c}.{d}");
            let packet = Packet::of(&packet(&source, "10.0.2.1", 0x0a, 1)).unwrap();
            node.on_wait(MS, &packet, 0);
        }
        assert_eq!(node.ways.len(), 1);
    }
}
