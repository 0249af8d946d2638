//! What packets say that are no sources: acknowledgments and responses of the requests that go the other way,
//! datagrams of the traffic that cannot be protected. Which packets are looked at is decided in `classify`.

use crem_core::csf::DatagramKey;
use crem_core::learn::{Ack, Direction};
use crem_core::packet::Namespace;
use crem_wire::Qpn;
use crem_wire::frame::{Ip, Parsed};
use crem_wire::roce::{Aeth, Bth, Class, Opcode, Transport};

use crate::classify::Source;

pub(crate) fn direction(parsed: &Parsed, ip: &Ip) -> Direction {
    Direction {
        namespace: Namespace(parsed.context()),
        from: ip.source,
        to: ip.destination,
    }
}

/// Users' datagrams. Nobody would ask why what is between subnet and connection managers is not protected.
pub(crate) fn unsequenced(parsed: &Parsed, bth: &Bth, ip: &Ip) -> Option<DatagramKey> {
    let of_users = bth.dest_qp.get() > Qpn::CM.get();
    let is_datagram = matches!(bth.opcode.transport(), Transport::Ud | Transport::Rd);
    (of_users && is_datagram).then(|| DatagramKey {
        namespace: Namespace(parsed.context()),
        source: ip.source,
        destination: ip.destination,
        qp: bth.dest_qp,
    })
}

pub(crate) fn acknowledgment(frame: &[u8], parsed: &Parsed, bth: &Bth, ip: &Ip) -> Option<Ack> {
    let at = usize::from(bth.opcode.ext()?.aeth?);
    let aeth = Aeth::parse(parsed.payload(frame).get(at..)?)?;
    Ack::new(direction(parsed, ip), bth.dest_qp, bth.psn, &aeth)
}

/// What a response that is not protected says of the requests (AMB-RDMAMTU).
pub(crate) fn response(parsed: &Parsed, bth: &Bth, ip: &Ip) -> Option<Ack> {
    let length = parsed.udp.map_or(0, |udp| usize::from(udp.payload_len));
    let (way, mtu) = (direction(parsed, ip), bth.mtu_seen(length));
    Ack::of_response(way, bth.dest_qp, bth.psn, bth.opcode.0, mtu)
}

impl Source {
    /// What a response that is protected, or an acknowledgment among such, says of them; `frame` is where
    /// it was found.
    pub fn acknowledges(&self, frame: &[u8]) -> Option<Ack> {
        let (way, qp) = (Direction::of(&self.key), self.key.qp);
        let opcode = Opcode(self.opcode);
        if opcode.class() == Class::Ack {
            let at = usize::from(self.payload_off) + usize::from(opcode.ext()?.aeth?);
            let aeth = Aeth::parse(frame.get(at..)?)?;
            return Ack::new(way, qp, self.psn, &aeth);
        }
        Ack::of_response(way, qp, self.psn, self.opcode, self.mtu_seen)
    }
}
