//! What is learned of connections besides what their own packets show (AMB-ACKMAP): from the messages of
//! the connection manager, and from acknowledgments. All of it is optional; nothing here is needed for
//! protection, and nothing here acts.

mod acks;
mod connections;

pub use acks::{Candidates, Pairs};
pub use connections::{Connection, Connections, End, Learned};

use core::net::IpAddr;

use crem_wire::roce::{Aeth, Class, CmMessage, Opcode, Place, Syndrome};
use crem_wire::{Psn, Qpn};

use crate::packet::{Namespace, PsnSpace, StreamKey};

/// From one host to another, in one VLAN and tunnel context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Direction {
    /// VLAN and tunnel context.
    pub namespace: Namespace,
    /// Source address.
    pub from: IpAddr,
    /// Destination address.
    pub to: IpAddr,
}

impl Direction {
    /// The direction that a stream goes.
    pub const fn of(key: &StreamKey) -> Self {
        Self {
            namespace: key.namespace,
            from: key.source,
            to: key.destination,
        }
    }

    /// The other way.
    pub const fn reversed(self) -> Self {
        Self {
            namespace: self.namespace,
            from: self.to,
            to: self.from,
        }
    }

    /// The stream of requests of this direction toward a queue pair.
    pub const fn requests(self, qp: Qpn) -> StreamKey {
        StreamKey {
            namespace: self.namespace,
            source: self.from,
            destination: self.to,
            qp,
            space: PsnSpace::Requests,
        }
    }
}

/// A message of the connection manager that passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Managed {
    /// Where it went.
    pub way: Direction,
    /// What it says.
    pub message: CmMessage,
}

/// An acknowledgment that passed, or the first response of a READ, which is one too: from the host that
/// acknowledges, toward the queue pair that sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack {
    /// Where it went.
    pub way: Direction,
    /// The queue pair that it goes to.
    pub qp: Qpn,
    /// Its PSN.
    pub psn: Psn,
    /// It is a negative one: only what is before its PSN is acknowledged.
    pub negative: bool,
    /// RDMA MTU of the connection, where it is the first response of several.
    pub mtu: Option<u16>,
}

impl Ack {
    /// An acknowledgment with this PSN and AETH; `None` if its syndrome is reserved.
    pub fn new(way: Direction, qp: Qpn, psn: Psn, aeth: &Aeth) -> Option<Self> {
        let negative = match aeth.kind() {
            Syndrome::Ack(_) => false,
            Syndrome::RnrNak(_) | Syndrome::Nak(_) => true,
            Syndrome::Reserved => return None,
        };
        Some(Self {
            way,
            qp,
            psn,
            negative,
            mtu: None,
        })
    }

    /// What a response says of the requests that go the other way (AMB-RDMAMTU). Only the first one of a
    /// READ has the PSN of a request; those after it are of its span, which may be a guess.
    pub fn of_response(
        way: Direction,
        qp: Qpn,
        psn: Psn,
        opcode: u8,
        mtu: Option<u16>,
    ) -> Option<Self> {
        let opcode = Opcode(opcode);
        let is_first = opcode.class() == Class::Response
            && matches!(opcode.place(), Some(Place::First | Place::Only));
        is_first.then_some(Self {
            way,
            qp,
            psn,
            negative: false,
            mtu,
        })
    }

    /// The first PSN that is not acknowledged.
    pub const fn next(&self) -> Psn {
        self.psn.add(if self.negative { 0 } else { 1 })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crem_wire::roce::NakCode;

    // shows: AMB-ACKMAP
    #[test]
    fn a_negative_acknowledgment_acknowledges_what_is_before_it() {
        let way = Direction {
            namespace: Namespace(0),
            from: IpAddr::from([10, 0, 0, 1]),
            to: IpAddr::from([10, 0, 0, 2]),
        };
        let next = |kind| {
            let aeth = Aeth::new(kind, 0);
            Ack::new(way, Qpn::new(1), Psn::new(0xff_ffff), &aeth).map(|ack| ack.next().get())
        };
        assert_eq!(next(Syndrome::Ack(31)), Some(0));
        assert_eq!(next(Syndrome::Nak(NakCode::PsnSequence)), Some(0xff_ffff));
        assert_eq!(next(Syndrome::Nak(NakCode::RemoteAccess)), Some(0xff_ffff));
        assert_eq!(next(Syndrome::RnrNak(3)), Some(0xff_ffff));
        assert_eq!(next(Syndrome::Reserved), None);
    }

    // shows: AMB-RDMAMTU
    #[test]
    fn of_responses_only_the_first_of_a_read_speaks_for_a_request() {
        let way = Direction {
            namespace: Namespace(0),
            from: IpAddr::from([10, 0, 0, 1]),
            to: IpAddr::from([10, 0, 0, 2]),
        };
        let of = |opcode| {
            let ack = Ack::of_response(way, Qpn::new(1), Psn::new(7), opcode, Some(512));
            ack.map(|ack| (ack.next().get(), ack.mtu))
        };
        // FIRST and ONLY, of RC and XRC; MIDDLE, LAST, acknowledgment, atomic response, a WRITE.
        for opcode in [0x0d, 0x10, 0xad, 0xb0] {
            assert_eq!(of(opcode), Some((8, Some(512))), "{opcode:#x}");
        }
        for opcode in [0x0e, 0x0f, 0x11, 0x12, 0x06, 0x2d] {
            assert_eq!(of(opcode), None, "{opcode:#x}");
        }
    }
}
