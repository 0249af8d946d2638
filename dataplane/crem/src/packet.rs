//! What the core is told of a packet. The frame itself stays in the caller's buffer; the core only
//! clones references to it and never reads its octets.

use alloc::vec::Vec;
use core::net::IpAddr;

use crem_wire::roce::{Class, Opcode};
use crem_wire::{Psn, Qpn};

/// A reference to a frame in the caller's buffers.
///
/// `clone` takes one more reference and never copies octets; dropping gives it back.
pub trait PktBuf: Clone {}

/// References that were given up. Dropping the last one of a frame touches memory that nobody has touched
/// for long, so a caller may ask for them, to fetch that before it drops them.
#[derive(Debug)]
pub(crate) struct Departed<B> {
    limit: usize,
    waiting: Vec<B>,
}

impl<B> Departed<B> {
    /// Nobody takes them: they are dropped at once.
    pub(crate) const fn new() -> Self {
        Self {
            limit: 0,
            waiting: Vec::new(),
        }
    }

    /// From now on so many wait for the caller at most.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.waiting.reserve_exact(limit);
    }

    /// Gives up a reference; beyond the limit it is dropped here.
    pub(crate) fn add(&mut self, frame: B) {
        if self.waiting.len() < self.limit {
            self.waiting.push(frame);
        }
    }

    /// What waits.
    pub(crate) const fn waiting(&mut self) -> &mut Vec<B> {
        &mut self.waiting
    }
}

impl<T> PktBuf for alloc::rc::Rc<T> {}
impl<T> PktBuf for alloc::sync::Arc<T> {}

/// What separates equal (source, destination, QP) triples: the VLAN and VXLAN context of a frame, as
/// the caller numbers it. Zero is the untagged context; the highest bit says that the addresses are those
/// inside of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Namespace(pub u64);

impl Namespace {
    /// Whether the addresses are those inside of a tunnel, which mean nothing in the network that CREM runs
    /// over.
    pub const fn is_tunnel(self) -> bool {
        self.0 >> 63 != 0
    }
}

/// Which side's PSNs a packet carries (AMB-PSNSPACE): the requester's own, or, in READ and atomic
/// responses, those of the requests being answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum PsnSpace {
    /// Request packets: Flow Kind 1.
    Requests,
    /// READ and atomic responses: private Flow Kind 0xC1.
    Responses,
}

/// The identity of a protected stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StreamKey {
    /// VLAN and tunnel context.
    pub namespace: Namespace,
    /// Source address of the RoCEv2 packets.
    pub source: IpAddr,
    /// Destination address of the RoCEv2 packets.
    pub destination: IpAddr,
    /// Destination queue pair.
    pub qp: Qpn,
    /// PSN space.
    pub space: PsnSpace,
}

/// One packet of a stream as a port delivered it: a request (or response) that carries a PSN of its
/// stream. CNPs and unprotected opcodes never become a `Desc`. An acknowledgment becomes one only on its
/// way to the receiver function of a box that protects responses: it is no source, but it must not pass
/// responses to its queue pair that are held, so it has the key of their stream (AMB-READRESP).
#[derive(Clone, Debug)]
pub struct Desc<B> {
    /// The stream it belongs to.
    pub key: StreamKey,
    /// BTH PSN.
    pub psn: Psn,
    /// BTH opcode octet.
    pub opcode: u8,
    /// Octets of the UDP payload, BTH to ICRC: the length of P.
    pub payload_len: u16,
    /// Offset of the UDP payload in the frame.
    pub payload_off: u16,
    /// Octets of RDMA payload if the opcode is FIRST or MIDDLE, where it equals the RDMA MTU.
    pub mtu_seen: Option<u16>,
    /// DMA Length if this is a READ request.
    pub read_length: Option<u32>,
    /// The packet arrived with ECN CE (after RFC 6040 decapsulation where tunnelled).
    pub ce: bool,
    /// DSCP of the packet's own IP header.
    pub dscp: u8,
    /// A reference to the frame.
    pub buf: B,
}

impl<B> Desc<B> {
    /// Whether the packet asks for responses: READ and atomic requests of RC and XRC.
    pub fn asks(&self) -> bool {
        let opcode = Opcode(self.opcode);
        opcode.is_read_request() || opcode.is_atomic_request()
    }

    /// Whether it is an acknowledgment, positive or negative, without a response in it.
    pub fn is_acknowledgment(&self) -> bool {
        Opcode(self.opcode).class() == Class::Ack
    }
}
