//! Which packet carries what. Packets of a transfer are numbered from 0 without wrapping; the PSN is
//! that number plus the start, modulo 2^24.

use crem_wire::Psn;
use crem_wire::roce::{Opcode, Place};

use crate::config::{Operation, Transfer};

/// The packets of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    operation: Operation,
    mtu: u64,
    message_octets: u64,
    /// Packets, and so PSNs, a message.
    pub per_message: u64,
    start: Psn,
}

/// One packet of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Number of its message.
    pub message: u64,
    /// Where in the message it stands.
    pub place: Place,
    /// Offset of its payload in the stream of all messages.
    pub offset: u64,
    /// Octets of its payload.
    pub octets: usize,
}

impl Plan {
    /// The plan of a transfer; an MTU or message length of 0 counts as 1.
    pub fn new(transfer: &Transfer) -> Self {
        let mtu = u64::from(transfer.mtu).max(1);
        let message_octets = u64::from(transfer.message_octets).max(1);
        Self {
            operation: transfer.operation,
            mtu,
            message_octets,
            per_message: message_octets.div_ceil(mtu),
            start: transfer.start_psn,
        }
    }

    /// Octets a message.
    pub fn message_octets(&self) -> u64 {
        self.message_octets
    }

    /// Packet number `number`.
    pub fn packet(&self, number: u64) -> Packet {
        let (message, index) = (number / self.per_message, number % self.per_message);
        let within = index * self.mtu;
        Packet {
            message,
            place: place(index == 0, index + 1 == self.per_message),
            offset: message * self.message_octets + within,
            octets: (self.message_octets - within).min(self.mtu) as usize,
        }
    }

    /// The PSN of packet `number`.
    pub fn psn(&self, number: u64) -> Psn {
        Psn::new(self.start.get().wrapping_add(number as u32))
    }

    /// The packet number of a PSN, taken as the one nearest to `near`; `None` before the first.
    pub fn number(&self, psn: Psn, near: u64) -> Option<u64> {
        near.checked_add_signed(i64::from(psn.distance_from(self.psn(near))))
    }

    /// The opcode of a request packet; READ has one request whatever the place.
    pub fn opcode(&self, place: Place) -> Opcode {
        match (self.operation, place) {
            (Operation::Write, Place::First) => Opcode::WRITE_FIRST,
            (Operation::Write, Place::Middle) => Opcode::WRITE_MIDDLE,
            (Operation::Write, Place::Last) => Opcode::WRITE_LAST,
            (Operation::Write, Place::Only) => Opcode::WRITE_ONLY,
            (Operation::Send, Place::First) => Opcode::SEND_FIRST,
            (Operation::Send, Place::Middle) => Opcode::SEND_MIDDLE,
            (Operation::Send, Place::Last) => Opcode::SEND_LAST,
            (Operation::Send, Place::Only) => Opcode::SEND_ONLY,
            (Operation::Read, _) => Opcode::READ_REQUEST,
        }
    }
}

/// The place of a packet that is, or is not, the first and the last of its message.
pub fn place(first: bool, last: bool) -> Place {
    match (first, last) {
        (true, true) => Place::Only,
        (true, false) => Place::First,
        (false, true) => Place::Last,
        (false, false) => Place::Middle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(message_octets: u32, start: u32) -> Plan {
        Plan::new(&Transfer {
            operation: Operation::Write,
            mtu: 1024,
            message_octets,
            messages: None,
            duration_ns: 0,
            start_psn: Psn::new(start),
            seed: 0,
        })
    }

    #[test]
    fn packets_tile_the_stream() {
        let plan = plan(2500, 0);
        let mut offset = 0;
        for number in 0..30 {
            let packet = plan.packet(number);
            assert_eq!(packet.offset, offset);
            assert_eq!(packet.message, number / 3);
            offset += packet.octets as u64;
        }
        assert_eq!(offset, 10 * 2500);
        let places: Vec<Place> = (0..3).map(|n| plan.packet(n).place).collect();
        assert_eq!(places, [Place::First, Place::Middle, Place::Last]);
    }

    #[test]
    fn numbers_survive_the_wrap() {
        let plan = plan(1024, 0xff_fff0);
        for near in [0u64, 100, 1 << 24, (1 << 24) + 5] {
            for number in near.saturating_sub(50)..near + 50 {
                assert_eq!(plan.number(plan.psn(number), near), Some(number));
            }
        }
        assert_eq!(plan.number(Psn::new(0xff_ffe0), 3), None);
    }
}
