//! What the core is told of a packet. The frame itself stays in the caller's buffer; the core only
//! clones references to it and never reads its octets.

use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use crem_wire::roce::{Class, Opcode};
use crem_wire::{Psn, Qpn};

/// A reference to a frame in the caller's buffers.
///
/// `clone` takes one more reference and never copies octets; dropping gives it back.
pub trait PktBuf: Clone {}

/// Asks the caller to load what it touches when a reference is dropped: the function says so of many
/// frames and then drops them, so that memory is waited for once and not for each of them.
pub struct Farewell<B>(pub fn(&B));

impl<B> Farewell<B> {
    /// Drops every reference of the list.
    pub(crate) fn drop_all<T>(this: Option<Self>, all: &mut Vec<T>, frame: impl Fn(&T) -> &B) {
        if let Some(Self(announce)) = this {
            all.iter().for_each(|one| announce(frame(one)));
        }
        all.clear();
    }
}

impl<B> Clone for Farewell<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Farewell<B> {}

impl<B> fmt::Debug for Farewell<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Farewell")
    }
}

impl<T> PktBuf for alloc::rc::Rc<T> {}
impl<T> PktBuf for alloc::sync::Arc<T> {}

/// What separates equal (source, destination, QP) triples: the VLAN and VXLAN context of a frame, as
/// the caller numbers it. Zero is the untagged context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Namespace(pub u64);

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
