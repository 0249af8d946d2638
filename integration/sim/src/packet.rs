//! The packets of hosts, as far as protocol and endpoints look at them. Their octets exist only where a
//! mode of the simulator needs them, and follow from [`Content`] and length.

use crem_core::packet::PsnSpace;
use crem_wire::Psn;

/// RC opcodes of BTH that the endpoints use.
pub mod opcode {
    /// SEND, only packet of its message.
    pub const SEND_ONLY: u8 = 4;
    /// RDMA WRITE, first packet.
    pub const WRITE_FIRST: u8 = 6;
    /// RDMA WRITE, packet in the middle.
    pub const WRITE_MIDDLE: u8 = 7;
    /// RDMA WRITE, last packet.
    pub const WRITE_LAST: u8 = 8;
    /// RDMA WRITE, only packet of its message.
    pub const WRITE_ONLY: u8 = 10;
    /// RDMA READ request.
    pub const READ_REQUEST: u8 = 12;
    /// RDMA READ response, first packet.
    pub const READ_RESPONSE_FIRST: u8 = 13;
    /// RDMA READ response, packet in the middle.
    pub const READ_RESPONSE_MIDDLE: u8 = 14;
    /// RDMA READ response, last packet.
    pub const READ_RESPONSE_LAST: u8 = 15;
    /// RDMA READ response, only packet.
    pub const READ_RESPONSE_ONLY: u8 = 16;
    /// Acknowledgment, positive or negative.
    pub const ACKNOWLEDGE: u8 = 17;
    /// Congestion notification packet.
    pub const CNP: u8 = 0x81;
}

/// A queue pair of the world: the connection of a requester with its responder.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Conn(pub u32);

/// The two ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Role {
    /// Sends requests: WRITE, SEND, READ.
    Requester,
    /// Answers them: acknowledgments, READ responses.
    Responder,
}

impl Role {
    /// The other end.
    pub const fn other(self) -> Self {
        match self {
            Self::Requester => Self::Responder,
            Self::Responder => Self::Requester,
        }
    }
}

/// Names what a packet's octets are, BTH to ICRC: equal if and only if the octets are equal. A packet
/// that a transport sends again unchanged has the same content; a READ response whose memory changed in
/// between has another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Content(pub u64);

/// What an acknowledgment says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Ack {
    /// The packet is none.
    #[default]
    None,
    /// Everything up to and including the packet's PSN arrived.
    Positive,
    /// NAK, PSN sequence error: the packet's PSN is the one expected.
    SequenceError,
    /// Selective: everything before the packet's PSN arrived, and so did these.
    Selective {
        /// First PSN of a run beyond the gap.
        from: Psn,
        /// PSN after the run.
        to: Psn,
    },
}

/// One packet between hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// What the octets are.
    pub content: Content,
    /// Which transmission this is, unique in a world; assigned by the world when the packet leaves its
    /// host, zero before and in restored packets.
    pub serial: u64,
    /// Its connection.
    pub conn: Conn,
    /// The end that it goes to.
    pub to: Role,
    /// BTH PSN.
    pub psn: Psn,
    /// BTH opcode.
    pub opcode: u8,
    /// DSCP.
    pub dscp: u8,
    /// ECN capable transport.
    pub ect: bool,
    /// ECN Congestion Experienced.
    pub ce: bool,
    /// Octets were damaged on the way so that no network device noticed; zero if not. The ICRC of such
    /// a packet is wrong.
    pub damage: u8,
    /// Octets of the UDP payload, BTH to ICRC.
    pub payload_len: u16,
    /// DMA Length of a READ request, octets; zero in others.
    pub read_length: u32,
    /// What it says if it is an acknowledgment.
    pub ack: Ack,
    /// A number of the endpoint's own (message number, MSN): travels with the octets.
    pub tag: u32,
}

impl Packet {
    /// Which PSNs it carries, if it is of a kind that CREM protects.
    pub const fn space(&self) -> Option<PsnSpace> {
        match self.opcode {
            0..=opcode::READ_REQUEST => Some(PsnSpace::Requests),
            opcode::READ_RESPONSE_FIRST..=opcode::READ_RESPONSE_ONLY => Some(PsnSpace::Responses),
            _ => None,
        }
    }

    /// The PSN that the wire has: endpoints name the first one that has not arrived, an RNIC says so only in
    /// a negative acknowledgment and otherwise names the last that has.
    pub const fn wire_psn(&self) -> Psn {
        match self.ack {
            Ack::Positive => self.psn.add(-1),
            Ack::None | Ack::SequenceError | Ack::Selective { .. } => self.psn,
        }
    }

    /// Octets that it occupies on an Ethernet: 14 Ethernet, 20 IPv4, 8 UDP, the payload, 4 FCS, and 20
    /// of preamble and gap.
    pub const fn wire_octets(&self) -> u32 {
        self.payload_len as u32 + 66
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_stays_small() {
        // It is cloned on the hot path instead of an mbuf reference.
        assert!(size_of::<Packet>() <= 64, "{}", size_of::<Packet>());
    }
}
