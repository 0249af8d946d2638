//! Who talks to whom, what is transferred, and how hard. Parsing flags is in `main.rs`.

use std::net::IpAddr;

use crem_wire::frame::{Mac, Tags};
use crem_wire::{Psn, Qpn};

/// Addresses of a connection, seen from one end.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// Own Ethernet address.
    pub local_mac: Mac,
    /// The peer's, or the router's on the way.
    pub peer_mac: Mac,
    /// VLAN tags of every frame sent.
    pub tags: Tags,
    /// Own address.
    pub local_ip: IpAddr,
    /// The peer's, of the same family.
    pub peer_ip: IpAddr,
    /// Own UDP source port, the first one where it changes.
    pub udp_source: u16,
    /// Packets after which the next one has another UDP source port, as flowlet switching does; `None`: one
    /// port for the queue pair.
    pub udp_source_lasts: Option<u32>,
    /// Own queue pair.
    pub local_qp: Qpn,
    /// The peer's queue pair.
    pub peer_qp: Qpn,
    /// TOS or traffic class of data; its ECN bits say whether the path may mark.
    pub tos: u8,
}

/// What is moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// RDMA WRITE.
    Write,
    /// SEND.
    Send,
    /// RDMA READ: data comes from the responder.
    Read,
}

/// The transfer that both ends know.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// What is moved.
    pub operation: Operation,
    /// Path MTU: RDMA payload octets a packet, 256 ..= 4096.
    pub mtu: u16,
    /// Octets a message, at least 1.
    pub message_octets: u32,
    /// Messages; `None` for as many as fit in `duration_ns`.
    pub messages: Option<u64>,
    /// With `messages` unset: no message starts later than this after the first.
    pub duration_ns: u64,
    /// PSN of the first request.
    pub start_psn: Psn,
    /// Seed of the pattern.
    pub seed: u64,
}

/// How an end behaves.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Sending rate in Mbit/s, counted with preamble, gap and FCS; 0 is unlimited.
    pub rate_mbit: u64,
    /// Packets (for READ, response packets) that may be under way.
    pub window: u64,
    /// Round-trip time in nanoseconds if known; else it is measured.
    pub rtt_ns: Option<u64>,
    /// AckReq on every so many packets, beside the last of each message.
    pub ack_every: u64,
    /// How far the sender may catch up after it could not run, in nanoseconds of its rate.
    pub burst_ns: u64,
    /// Responder keeps what arrives beyond a gap and names each missing PSN; the requester resends
    /// just those. Both ends must agree; no adapter speaks exactly this.
    pub selective_repeat: bool,
    /// React to CNP, and send them for CE marks.
    pub react_to_cnp: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            rate_mbit: 0,
            window: 1_024,
            rtt_ns: None,
            ack_every: 16,
            burst_ns: 500_000,
            selective_repeat: false,
            react_to_cnp: true,
        }
    }
}

impl Tuning {
    /// Time between two reactions to congestion: the round-trip time where it is known.
    pub(crate) fn reaction_ns(&self) -> u64 {
        self.rtt_ns.unwrap_or(1_000_000)
    }
}
