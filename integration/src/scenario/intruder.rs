//! A stranger who sends CREM to a gateway and past it. What becomes of it is judged in `bounds.rs` and `check.rs`.
//!
//! Forgeries come from the WAN: REPAIR and CLOSE with a Flow ID that is in use, REPAIR with one that is not, HELLO and
//! REPAIR to a served host, and ARP that claims the peer's address; and from the LAN in the peer's name: REPAIR, CLOSE
//! and LOSS_REPORT with a Flow ID that is in use, and HELLO. What comes from outside comes from the WAN and from
//! the LAN at the other end: every kind of message to hosts that the gateway serves, octets that are no message, the
//! addresses of the gateways as source, and messages between others, which pass.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

use crem_rawsock::{Options, RawSock, sleep_ns};
use crem_wire::crem::registry::Method;
use crem_wire::crem::{
    Close, FlowDescriptor, Hello, HopEntry, Limits, LossReport, Message, PathReport, RepairHeader,
};
use crem_wire::frame::{Mac, Tags, UdpFrame};
use crem_wire::{Bitmap, ConfigId, FlowId, Psn, Qpn};
use nix::sched::{CloneFlags, setns};
use serde::{Deserialize, Serialize};

use super::Failure;
use super::spec::{Family, Host, Sends, Stranger, inband};
use super::topology::{HOST_INTERFACE, Place, Topology, WAN_SIDES};

/// Time between two volleys.
const PAUSE_NS: u64 = 2_000_000;
/// A Flow ID that no gateway gives so soon.
const UNUSED: u32 = 0x00ff_fff1;
/// Octets of a forged symbol: those of an RDMA MTU of 1024.
const SYMBOL: u16 = 1_042;

/// Its MAC address.
const STRANGER: [u8; 6] = [2, 0x77, 0, 0, 0, 0xff];
/// Its address.
const ADDRESS: [u8; 4] = [10, 77, 0, 99];
/// An address that no gateway serves, written into a frame at the place of an IPv4 destination.
const ABROAD: [u8; 4] = [10, 77, 98, 1];

/// Where a stranger is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Vantage {
    /// On the WAN, beside the gateway.
    Wan,
    /// On the LAN of the gateway.
    Lan,
    /// On the LAN at the other end.
    FarLan,
}

/// What it sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Sent {
    /// Frames.
    pub frames: u64,
    /// Of these, messages between others, which pass.
    pub between_others: u64,
    /// Of these, messages from the LAN to its gateway in the name of the gateway's peer.
    #[serde(default)]
    pub as_peer: u64,
}

/// A running stranger. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Intruder {
    stop: Arc<AtomicBool>,
    /// A Flow ID that is in use; 0 while none is known.
    flow: Arc<AtomicU32>,
    threads: Vec<JoinHandle<Result<Sent, Failure>>>,
}

impl Intruder {
    /// Begins at the places that it needs.
    pub(crate) fn start(world: &Topology, stranger: Stranger, crem_port: u16) -> Self {
        let host = stranger.at;
        let side = WAN_SIDES[usize::from(host == Host::B)];
        let mut places = vec![(world.path(Place::Wan), side, Vantage::Wan)];
        let (lan, vantage) = match stranger.sends {
            Sends::Forgeries => (host, Vantage::Lan),
            Sends::Outside => (host.other(), Vantage::FarLan),
        };
        places.push((world.path(Place::Host(lan)), HOST_INTERFACE, vantage));
        let (stop, flow) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let threads = places.into_iter().map(|(path, interface, vantage)| {
            let (stop, flow) = (Arc::clone(&stop), Arc::clone(&flow));
            std::thread::spawn(move || {
                let volley = |known| match (stranger.sends, vantage) {
                    (Sends::Forgeries, Vantage::Wan) => forgeries(host, crem_port, known),
                    (Sends::Outside, Vantage::Wan) => from_the_wan(host, crem_port),
                    (_, Vantage::Lan) => as_the_peer(host, crem_port, known),
                    (_, Vantage::FarLan) => from_the_lan(host, crem_port, known),
                };
                let mut sent = send_until(&stop, &flow, &path, interface, volley)?;
                if vantage == Vantage::Lan {
                    sent.as_peer = sent.frames;
                }
                Ok(sent)
            })
        });
        let threads = threads.collect();
        Self {
            stop,
            flow,
            threads,
        }
    }

    /// Tells it a Flow ID that is in use.
    pub(crate) fn tell(&self, flow: u32) {
        self.flow.store(flow, Ordering::Relaxed);
    }

    /// Ends it and tells what it sent.
    pub(crate) fn finish(mut self) -> Result<Sent, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let mut sum = Sent::default();
        for thread in std::mem::take(&mut self.threads) {
            let sent = thread.join().map_err(|_| "the intruder panicked")??;
            sum.frames += sent.frames;
            sum.between_others += sent.between_others;
            sum.as_peer += sent.as_peer;
        }
        Ok(sum)
    }
}

impl Drop for Intruder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// One volley after the other, in a namespace.
fn send_until(
    stop: &AtomicBool,
    flow: &AtomicU32,
    namespace: &Path,
    interface: &str,
    volley: impl Fn(Option<FlowId>) -> Vec<Vec<u8>>,
) -> Result<Sent, Failure> {
    setns(File::open(namespace)?.as_fd(), CloneFlags::CLONE_NEWNET)?;
    let mut sock = RawSock::open(interface, Options::default())?;
    let mut sent = Sent::default();
    while !stop.load(Ordering::Relaxed) {
        let frames = volley(FlowId::new(flow.load(Ordering::Relaxed)));
        let between_others = frames.iter().filter(|f| is_between_others(f)).count() as u64;
        let before = sent.frames;
        sent.frames += sock.send(&frames)?.frames;
        // The interface takes all of a volley, or the count of those that pass means nothing.
        if sent.frames - before != frames.len() as u64 {
            return Err("the stranger's interface took a part of a volley".into());
        }
        sent.between_others += between_others;
        sleep_ns(PAUSE_NS);
    }
    Ok(sent)
}

/// Whether a frame is a stranger's. A host that sees it come in is worth a look, not one at whose side it is sent.
pub(crate) fn is_a_strangers(frame: &[u8]) -> bool {
    frame.get(6..12) == Some(&STRANGER[..])
}

/// Whether such a frame is between addresses that are nobody's here.
pub(crate) fn is_between_others(frame: &[u8]) -> bool {
    is_a_strangers(frame) && frame.get(30..34) == Some(&ABROAD[..])
}

/// One frame of each kind.
fn forgeries(host: Host, port: u16, known: Option<FlowId>) -> Vec<Vec<u8>> {
    let (gateway, served) = (inband(host), Family::Ipv4.host(host));
    let unused = FlowId::new(UNUSED);
    let ids = [known, unused].into_iter().flatten();
    let mut frames: Vec<_> = ids.map(|id| frame(gateway, port, &repair(id))).collect();
    frames.extend(known.map(|id| frame(gateway, port, &encoded(&close(id)))));
    frames.push(frame(served, port, &encoded(&hello(host))));
    frames.extend(unused.map(|id| frame(served, port, &repair(id))));
    frames.push(arp(inband(host.other()), gateway));
    frames
}

/// From the LAN to its own gateway, in the name of the gateway's peer. Nothing before a flow is known: until the
/// gateway knows where its peer is, it takes HELLO by either port.
fn as_the_peer(host: Host, port: u16, known: Option<FlowId>) -> Vec<Vec<u8>> {
    let Some(flow) = known else {
        return Vec::new();
    };
    let payloads = [
        encoded(&hello(host)),
        repair(flow),
        encoded(&close(flow)),
        encoded(&loss_report(flow)),
    ];
    let (peer, gateway) = (inband(host.other()), inband(host));
    let frames = payloads.iter().map(|p| frame_from(peer, gateway, port, p));
    frames.collect()
}

/// To a served host from the WAN, in the gateway's own name as well, and between others.
fn from_the_wan(host: Host, port: u16) -> Vec<Vec<u8>> {
    let served = Family::Ipv4.host(host);
    let to_host = |payload: &[u8]| frame(served, port, payload);
    let mut frames = vec![
        to_host(&encoded(&hello(host))),
        to_host(&encoded(&report(host))),
        to_host(b"no message of any kind"),
    ];
    if let Some(flow) = FlowId::new(UNUSED) {
        let symbol = repair(flow);
        frames.push(to_host(&symbol));
        frames.push(to_host(&encoded(&close(flow))));
        frames.push(frame_from(inband(host), served, port, &symbol));
        frames.push(frame(ABROAD.into(), port, &symbol));
    }
    frames
}

/// To hosts and the gateway at the far end from the LAN, in the name of the gateway on the way as well.
fn from_the_lan(host: Host, port: u16, known: Option<FlowId>) -> Vec<Vec<u8>> {
    let (gateway, served) = (inband(host), Family::Ipv4.host(host));
    let mut frames = vec![frame(served, port, &encoded(&hello(host)))];
    if let Some(flow) = known.or(FlowId::new(UNUSED)) {
        let symbol = repair(flow);
        frames.push(frame(served, port, &symbol));
        frames.push(frame(gateway, port, &symbol));
        frames.push(frame_from(inband(host.other()), gateway, port, &symbol));
    }
    frames
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut octets = Vec::new();
    message.encode(&mut octets);
    octets
}

fn close(flow: FlowId) -> Message {
    Message::Close(Close { flow, reason: 0 })
}

/// That half of the packets were lost.
fn loss_report(flow: FlowId) -> Message {
    Message::LossReport(LossReport {
        flow,
        interval_us: 100_000,
        expected: 1000,
        received: 500,
        restored: 0,
        incomplete_blocks: 30,
        ce_marked: 0,
        repairs_received: 0,
        repairs_ce_marked: 0,
    })
}

/// Of a loss that nobody saw, for a flow from the host.
fn report(host: Host) -> Message {
    Message::PathReport(PathReport {
        truncated: false,
        method: Method::NodeLocal.code(),
        flow: FlowDescriptor {
            source: Family::Ipv4.host(host),
            destination: Family::Ipv4.host(host.other()),
            qp: Qpn::new(0x77),
        },
        hops: vec![HopEntry {
            node: 77,
            period: 1,
            lost: 1,
            queue_delay_change_us: 0,
            cause: 0,
            dropped: vec![Psn::new(1)],
        }],
    })
}

/// For a flow from a host of the stranger's to one that the gateway serves.
fn hello(host: Host) -> Message {
    Message::Hello(Hello {
        kind: 1,
        limits: Limits {
            schemes: 2,
            max_k: 64,
            max_m: 8,
            max_t: SYMBOL,
        },
        rdma_mtu: 1024,
        nonce: 0x5eed,
        flow: FlowDescriptor {
            source: [10, 77, 99, 1].into(),
            destination: Family::Ipv4.host(host),
            qp: Qpn::new(0x77),
        },
    })
}

/// A symbol of nothing for the first block that comes.
fn repair(flow: FlowId) -> Vec<u8> {
    let header = RepairHeader {
        flow,
        last: true,
        info: false,
        config: ConfigId(1),
        scheme: 1,
        k: 16,
        index: 0,
        block_start: Psn::new(16),
        session: None,
        symbol_length: SYMBOL,
        present: Bitmap::first(16),
        lost: None,
    };
    let mut octets = vec![0x5a; header.encoded_len() + usize::from(SYMBOL)];
    header.encode(&mut octets);
    octets
}

/// The stranger's answer to nobody's question: that `claimed` is its own.
fn arp(claimed: IpAddr, to: IpAddr) -> Vec<u8> {
    let mut octets = [[0xff; 6], STRANGER].concat();
    octets.extend([0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 2]);
    for (mac, address) in [(STRANGER, claimed), ([0xff; 6], to)] {
        octets.extend(mac);
        if let IpAddr::V4(address) = address {
            octets.extend(address.octets());
        }
    }
    octets.resize(60, 0);
    octets
}

/// From an address that is nobody's peer.
fn frame(to: IpAddr, port: u16, payload: &[u8]) -> Vec<u8> {
    frame_from(ADDRESS.into(), to, port, payload)
}

fn frame_from(from: IpAddr, to: IpAddr, port: u16, payload: &[u8]) -> Vec<u8> {
    let headers = UdpFrame {
        destination_mac: Mac([2, 0x77, 0, 0, 0, 0xfe]),
        source_mac: Mac(STRANGER),
        tags: Tags::NONE,
        source: SocketAddr::new(from, port),
        destination: SocketAddr::new(to, port),
        tos: 0,
        ttl: 64,
        ident: 0,
        dont_fragment: true,
        udp_checksum: true,
    };
    let before = headers.header_len();
    let mut octets = vec![0; before];
    octets.extend_from_slice(payload);
    headers.write(&mut octets);
    octets
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crem_wire::crem::{Parsed, parse};
    use crem_wire::frame::{Class, ParseConfig, parse as parse_frame};

    use super::*;

    fn class_of(octets: &[u8]) -> (Class, Vec<u8>) {
        let config = ParseConfig {
            crem_port: Some(4801),
            vxlan_port: None,
        };
        let parsed = parse_frame(octets, &config);
        (parsed.class, parsed.payload(octets).to_vec())
    }

    #[test]
    fn a_gateway_can_read_all_of_it() {
        let frames = forgeries(Host::B, 4801, FlowId::new(5));
        let mut repairs = 0;
        let (claim, messages) = frames.split_last().unwrap();
        assert_eq!(
            claim.get(12..22),
            Some(&[0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 2][..])
        );
        for octets in messages {
            let (class, payload) = class_of(octets);
            assert_eq!(class, Class::Crem);
            repairs += usize::from(matches!(parse(&payload).unwrap(), Parsed::Repair(..)));
        }
        assert_eq!((messages.len(), repairs), (5, 3));
    }

    #[test]
    fn a_gateway_would_believe_what_a_host_says_for_its_peer() {
        let frames = as_the_peer(Host::B, 4801, FlowId::new(5));
        for octets in &frames {
            let (class, payload) = class_of(octets);
            assert_eq!(class, Class::Crem);
            assert!(parse(&payload).is_ok());
            let source: [u8; 4] = octets.get(26..30).unwrap().try_into().unwrap();
            assert_eq!(IpAddr::from(source), inband(Host::A));
            assert!(is_a_strangers(octets));
        }
        assert_eq!(frames.len(), 4);
        assert!(as_the_peer(Host::B, 4801, None).is_empty());
    }

    #[test]
    fn what_comes_from_outside_is_of_every_kind_and_one_passes() {
        let frames = [
            from_the_wan(Host::B, 4801),
            from_the_lan(Host::B, 4801, FlowId::new(5)),
        ]
        .concat();
        let read = frames.iter().map(|f| class_of(f));
        assert!(read.clone().all(|(class, _)| class == Class::Crem));
        assert_eq!(read.filter(|(_, p)| parse(p).is_err()).count(), 1);
        assert!(frames.iter().all(|f| is_a_strangers(f)));
        assert_eq!(frames.iter().filter(|f| is_between_others(f)).count(), 1);
    }
}
