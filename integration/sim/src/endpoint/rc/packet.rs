//! A RoCEv2 packet as an endpoint sees it: what the headers say, and an identity in place of octets.

/// Position of a packet in its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The first of several.
    First,
    /// Neither first nor last.
    Middle,
    /// The last of several.
    Last,
    /// The only one.
    Only,
}

impl Place {
    /// The place of packet `index` of `count`.
    pub fn of(index: u64, count: u64) -> Self {
        match (index == 0, index + 1 == count) {
            (true, true) => Place::Only,
            (true, false) => Place::First,
            (false, true) => Place::Last,
            (false, false) => Place::Middle,
        }
    }

    fn offset(self) -> u8 {
        match self {
            Place::First => 0,
            Place::Middle => 1,
            Place::Last => 2,
            Place::Only => 3,
        }
    }
}

/// What a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// Part of an RDMA WRITE.
    Write(Place),
    /// RDMA READ request for this many octets.
    ReadRequest(u32),
    /// Part of the answer to a READ.
    ReadResponse(Place),
    /// Everything before the PSN has arrived.
    Ack,
    /// The PSN is missing and later ones have arrived.
    Nak,
    /// Everything before the PSN has arrived, and so have `from .. to`.
    Sack {
        /// First PSN of a run beyond the gap.
        from: u32,
        /// PSN after the run.
        to: u32,
    },
    /// Congestion notification.
    Cnp,
}

/// The identity of a payload, 49 bits: its serial, what else its octets depend on, and whether it answers a
/// READ.
pub(super) fn content_of(serial: u64, version: u64, answer: bool) -> u64 {
    (version & 0x3fff) << 35 | (serial & 0x3_ffff_ffff) << 1 | u64::from(answer)
}

/// A packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// BTH PSN. In acknowledgments: the first PSN that has not arrived.
    pub psn: u32,
    /// What it is.
    pub body: Body,
    /// Octets of RDMA payload.
    pub payload: u16,
    /// Identity of the payload: equal identities have equal octets.
    pub content: u64,
    /// BTH AckReq.
    pub ack_req: bool,
}

impl Packet {
    /// Whether the packet carries a PSN of the requester's own and is a source for CREM.
    pub fn is_request(&self) -> bool {
        matches!(self.body, Body::Write(_) | Body::ReadRequest(_))
    }

    /// BTH opcode. Selective acknowledgments have none of their own and use that of ACK.
    pub fn opcode(&self) -> u8 {
        match self.body {
            Body::Write(Place::Only) => 0x0a,
            Body::Write(place) => 0x06 + place.offset(),
            Body::ReadRequest(_) => 0x0c,
            Body::ReadResponse(place) => 0x0d + place.offset(),
            Body::Ack | Body::Nak | Body::Sack { .. } => 0x11,
            Body::Cnp => 0x81,
        }
    }

    /// Octets of the UDP payload: BTH to ICRC.
    pub fn udp_payload(&self) -> u16 {
        let extended = match self.body {
            Body::Write(Place::First | Place::Only) | Body::ReadRequest(_) | Body::Cnp => 16,
            Body::ReadResponse(Place::Middle) | Body::Write(_) => 0,
            Body::ReadResponse(_) | Body::Ack | Body::Nak => 4,
            Body::Sack { .. } => 12,
        };
        let pad = self.payload.wrapping_neg() & 3;
        12 + extended + self.payload + pad + 4
    }

    /// Whether the identity is one that a packet of this PSN and kind can have.
    pub fn is_consistent(&self) -> bool {
        let answer = matches!(self.body, Body::ReadResponse(_));
        (self.content >> 1) as u32 & 0xff_ffff == self.psn && (self.content & 1 == 1) == answer
    }

    /// Octets on an IPv4 link, from the Ethernet header to the UDP payload's end.
    pub fn wire_octets(&self) -> u32 {
        42 + u32::from(self.udp_payload())
    }
}
