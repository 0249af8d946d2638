//! A stranger on the WAN who sends CREM to a gateway and past it: REPAIR and CLOSE with a Flow ID that is in use,
//! REPAIR with one that is not, HELLO and REPAIR to a served host, and ARP that claims the peer's address. What
//! becomes of it is judged in `bounds.rs`.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;

use crem_rawsock::{Options, RawSock, sleep_ns};
use crem_wire::crem::{Close, FlowDescriptor, Hello, Limits, Message, RepairHeader};
use crem_wire::frame::{Mac, Tags, UdpFrame};
use crem_wire::{Bitmap, ConfigId, FlowId, Psn, Qpn};
use nix::sched::{CloneFlags, setns};

use super::Failure;
use super::spec::{Family, Host, inband};

/// Time between two volleys.
const PAUSE_NS: u64 = 2_000_000;
/// Octets of a forged symbol: those of an RDMA MTU of 1024.
const SYMBOL: u16 = 1_042;

/// Its MAC address.
const STRANGER: [u8; 6] = [2, 0x77, 0, 0, 0, 0xff];

/// A running stranger. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Intruder {
    stop: Arc<AtomicBool>,
    /// A Flow ID that is in use; 0 while none is known.
    flow: Arc<AtomicU32>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl Intruder {
    /// Begins at `interface` of the WAN's namespace at `path`, against the gateway of `host`.
    pub(crate) fn start(path: PathBuf, interface: &str, host: Host, crem_port: u16) -> Self {
        let (stop, flow) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let sent = Arc::<AtomicU64>::default();
        let interface = interface.to_owned();
        let shared = (Arc::clone(&stop), Arc::clone(&flow), Arc::clone(&sent));
        let thread = std::thread::spawn(move || {
            setns(File::open(path)?.as_fd(), CloneFlags::CLONE_NEWNET)?;
            let mut sock = RawSock::open(&interface, Options::default())?;
            let (stop, flow, sent) = shared;
            while !stop.load(Ordering::Relaxed) {
                let known = FlowId::new(flow.load(Ordering::Relaxed));
                let frames = volley(host, crem_port, known);
                sent.fetch_add(sock.send(&frames)?.frames, Ordering::Relaxed);
                sleep_ns(PAUSE_NS);
            }
            Ok(())
        });
        Self {
            stop,
            flow,
            sent,
            thread: Some(thread),
        }
    }

    /// Tells it a Flow ID that is in use.
    pub(crate) fn tell(&self, flow: u32) {
        self.flow.store(flow, Ordering::Relaxed);
    }

    /// Ends it and tells how many frames it sent.
    pub(crate) fn finish(mut self) -> Result<u64, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().ok_or("the intruder has ended")?;
        thread.join().map_err(|_| "the intruder panicked")??;
        Ok(self.sent.load(Ordering::Relaxed))
    }
}

impl Drop for Intruder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// One frame of each kind.
fn volley(host: Host, port: u16, known: Option<FlowId>) -> Vec<Vec<u8>> {
    let (gateway, served) = (inband(host), Family::Ipv4.host(host));
    let unused = FlowId::new(0x00ff_fff1);
    let ids = [known, unused].into_iter().flatten();
    let mut frames: Vec<_> = ids.map(|id| frame(gateway, port, &repair(id))).collect();
    frames.extend(known.map(|id| frame(gateway, port, &encoded(&close(id)))));
    frames.push(frame(served, port, &encoded(&hello(host))));
    frames.extend(unused.map(|id| frame(served, port, &repair(id))));
    frames.push(arp(inband(host.other()), gateway));
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
    let headers = UdpFrame {
        destination_mac: Mac([2, 0x77, 0, 0, 0, 0xfe]),
        source_mac: Mac(STRANGER),
        tags: Tags::NONE,
        source: SocketAddr::new([10, 77, 0, 99].into(), port),
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

    #[test]
    fn a_gateway_can_read_all_of_it() {
        let frames = volley(Host::B, 4801, FlowId::new(5));
        let mut repairs = 0;
        let (claim, messages) = frames.split_last().unwrap();
        assert_eq!(
            claim.get(12..22),
            Some(&[0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 2][..])
        );
        for octets in messages {
            let config = ParseConfig {
                crem_port: Some(4801),
                vxlan_port: None,
            };
            let parsed = parse_frame(octets, &config);
            assert_eq!(parsed.class, Class::Crem);
            let message = parse(parsed.payload(octets)).unwrap();
            repairs += usize::from(matches!(message, Parsed::Repair(..)));
        }
        assert_eq!((messages.len(), repairs), (5, 3));
    }
}
