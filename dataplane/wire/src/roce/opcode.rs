//! The registry of BTH opcodes: service in the upper three bits, operation in the lower five. Values
//! without an entry are carried as they are and have class `Other`.

use core::fmt;

/// A BTH opcode octet, any value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opcode(pub u8);

/// Transport service, from the upper three bits of the opcode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram.
    Rd,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification.
    Cnp,
    /// Extended reliable connection.
    Xrc,
    /// Manufacturer-defined or reserved.
    Other,
}

/// What a packet is for CREM (AMB-OPCODES).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// Carries a PSN of its sender's own request space: a source packet.
    Request,
    /// READ response: carries a PSN of the other side's request space.
    Response,
    /// Atomic response: as [`Class::Response`], one packet.
    AtomicAck,
    /// Acknowledgment or negative acknowledgment.
    Ack,
    /// Congestion notification.
    Cnp,
    /// Unreliable datagram, connection-manager traffic included.
    Ud,
    /// Anything else: reliable datagram, reserved, manufacturer-defined.
    Other,
}

impl Class {
    /// A short stable name, as counters and test data use it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
            Self::AtomicAck | Self::Ack => "ack",
            Self::Cnp => "cnp",
            Self::Ud => "ud",
            Self::Other => "other",
        }
    }
}

/// Where in its message a packet stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// First of several.
    First,
    /// Neither first nor last.
    Middle,
    /// Last of several.
    Last,
    /// The whole message.
    Only,
}

/// The extension headers between BTH and payload; offsets are from the start of the BTH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ext {
    /// Offset of the XRCETH (4 octets).
    pub xrceth: Option<u8>,
    /// Offset of the DETH (8 octets).
    pub deth: Option<u8>,
    /// Offset of the RETH (16 octets).
    pub reth: Option<u8>,
    /// Offset of the AtomicETH (28 octets).
    pub atomic_eth: Option<u8>,
    /// Offset of the AETH (4 octets).
    pub aeth: Option<u8>,
    /// Offset of the AtomicAckETH (8 octets).
    pub atomic_ack_eth: Option<u8>,
    /// Offset of the ImmDt (4 octets).
    pub immdt: Option<u8>,
    /// Offset of the IETH (4 octets).
    pub ieth: Option<u8>,
    /// Offset of the payload: 12 plus all of the above.
    pub payload: u8,
}

impl Ext {
    const NONE: Self = Self {
        xrceth: None,
        deth: None,
        reth: None,
        atomic_eth: None,
        aeth: None,
        atomic_ack_eth: None,
        immdt: None,
        ieth: None,
        payload: 0,
    };
}

/// The operation, lower five bits, of a service whose operations number like RC.
mod op {
    pub(super) const SEND_FIRST: u8 = 0x00;
    pub(super) const SEND_MIDDLE: u8 = 0x01;
    pub(super) const SEND_LAST: u8 = 0x02;
    pub(super) const SEND_LAST_IMM: u8 = 0x03;
    pub(super) const SEND_ONLY: u8 = 0x04;
    pub(super) const SEND_ONLY_IMM: u8 = 0x05;
    pub(super) const WRITE_FIRST: u8 = 0x06;
    pub(super) const WRITE_MIDDLE: u8 = 0x07;
    pub(super) const WRITE_LAST: u8 = 0x08;
    pub(super) const WRITE_LAST_IMM: u8 = 0x09;
    pub(super) const WRITE_ONLY: u8 = 0x0a;
    pub(super) const WRITE_ONLY_IMM: u8 = 0x0b;
    pub(super) const READ_REQUEST: u8 = 0x0c;
    pub(super) const READ_RESPONSE_FIRST: u8 = 0x0d;
    pub(super) const READ_RESPONSE_MIDDLE: u8 = 0x0e;
    pub(super) const READ_RESPONSE_LAST: u8 = 0x0f;
    pub(super) const READ_RESPONSE_ONLY: u8 = 0x10;
    pub(super) const ACK: u8 = 0x11;
    pub(super) const ATOMIC_ACK: u8 = 0x12;
    pub(super) const COMPARE_SWAP: u8 = 0x13;
    pub(super) const FETCH_ADD: u8 = 0x14;
    pub(super) const SEND_LAST_INV: u8 = 0x16;
    pub(super) const SEND_ONLY_INV: u8 = 0x17;
}

macro_rules! rc {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        $($(#[$doc])* pub const $name: Self = Self(op::$name);)+
    };
}

impl Opcode {
    rc! {
        /// RC SEND First.
        SEND_FIRST,
        /// RC SEND Middle.
        SEND_MIDDLE,
        /// RC SEND Last.
        SEND_LAST,
        /// RC SEND Last with Immediate.
        SEND_LAST_IMM,
        /// RC SEND Only.
        SEND_ONLY,
        /// RC SEND Only with Immediate.
        SEND_ONLY_IMM,
        /// RC RDMA WRITE First.
        WRITE_FIRST,
        /// RC RDMA WRITE Middle.
        WRITE_MIDDLE,
        /// RC RDMA WRITE Last.
        WRITE_LAST,
        /// RC RDMA WRITE Last with Immediate.
        WRITE_LAST_IMM,
        /// RC RDMA WRITE Only.
        WRITE_ONLY,
        /// RC RDMA WRITE Only with Immediate.
        WRITE_ONLY_IMM,
        /// RC RDMA READ Request.
        READ_REQUEST,
        /// RC RDMA READ Response First.
        READ_RESPONSE_FIRST,
        /// RC RDMA READ Response Middle.
        READ_RESPONSE_MIDDLE,
        /// RC RDMA READ Response Last.
        READ_RESPONSE_LAST,
        /// RC RDMA READ Response Only.
        READ_RESPONSE_ONLY,
        /// RC Acknowledge; the AETH tells ACK from NAK.
        ACK,
        /// RC Atomic Acknowledge.
        ATOMIC_ACK,
        /// RC Compare and Swap.
        COMPARE_SWAP,
        /// RC Fetch and Add.
        FETCH_ADD,
        /// RC SEND Last with Invalidate.
        SEND_LAST_INV,
        /// RC SEND Only with Invalidate.
        SEND_ONLY_INV,
    }
    /// UD SEND Only.
    pub const UD_SEND_ONLY: Self = Self(0x64);
    /// UD SEND Only with Immediate.
    pub const UD_SEND_ONLY_IMM: Self = Self(0x65);
    /// Congestion Notification Packet.
    pub const CNP: Self = Self(0x81);

    /// The transport service.
    pub const fn transport(self) -> Transport {
        match self.0 >> 5 {
            0 => Transport::Rc,
            1 => Transport::Uc,
            2 => Transport::Rd,
            3 => Transport::Ud,
            4 if self.0 == 0x81 => Transport::Cnp,
            5 => Transport::Xrc,
            _ => Transport::Other,
        }
    }

    /// The operation, if the service numbers its operations like RC and defines it.
    const fn connected_op(self) -> Option<u8> {
        let operation = self.0 & 0x1f;
        let defined = match self.transport() {
            Transport::Rc | Transport::Xrc => {
                operation <= op::FETCH_ADD
                    || operation == op::SEND_LAST_INV
                    || operation == op::SEND_ONLY_INV
            }
            Transport::Uc => operation <= op::WRITE_ONLY_IMM,
            _ => false,
        };
        if defined { Some(operation) } else { None }
    }

    /// What the packet is for CREM.
    pub const fn class(self) -> Class {
        if let Some(operation) = self.connected_op() {
            return match operation {
                op::READ_RESPONSE_FIRST..=op::READ_RESPONSE_ONLY => Class::Response,
                op::ACK => Class::Ack,
                op::ATOMIC_ACK => Class::AtomicAck,
                _ => Class::Request,
            };
        }
        match self {
            Self::UD_SEND_ONLY | Self::UD_SEND_ONLY_IMM => Class::Ud,
            Self::CNP => Class::Cnp,
            _ => Class::Other,
        }
    }

    /// Where in its message the packet stands; `None` for opcodes without an entry. Acknowledgments,
    /// atomics, READ requests and CNPs are `Only`.
    pub const fn place(self) -> Option<Place> {
        let Some(operation) = self.connected_op() else {
            return match self.class() {
                Class::Ud | Class::Cnp => Some(Place::Only),
                _ => None,
            };
        };
        Some(match operation {
            op::SEND_FIRST | op::WRITE_FIRST | op::READ_RESPONSE_FIRST => Place::First,
            op::SEND_MIDDLE | op::WRITE_MIDDLE | op::READ_RESPONSE_MIDDLE => Place::Middle,
            op::SEND_LAST
            | op::SEND_LAST_IMM
            | op::WRITE_LAST
            | op::WRITE_LAST_IMM
            | op::READ_RESPONSE_LAST
            | op::SEND_LAST_INV => Place::Last,
            _ => Place::Only,
        })
    }

    /// Whether this is a READ request of RC or XRC.
    pub const fn is_read_request(self) -> bool {
        matches!(self.connected_op(), Some(op::READ_REQUEST))
    }

    /// Whether this is an atomic request of RC or XRC.
    pub const fn is_atomic_request(self) -> bool {
        matches!(self.connected_op(), Some(op::COMPARE_SWAP | op::FETCH_ADD))
    }

    /// Which extension headers follow the BTH, and where; `None` for opcodes without an entry.
    pub const fn ext(self) -> Option<Ext> {
        let mut layout = Layout {
            ext: Ext::NONE,
            at: super::Bth::LEN as u8,
        };
        if let Some(operation) = self.connected_op() {
            if matches!(self.transport(), Transport::Xrc) && matches!(self.class(), Class::Request)
            {
                layout.ext.xrceth = layout.place(4);
            }
            layout.connected(operation);
        } else {
            match self {
                Self::UD_SEND_ONLY => layout.ext.deth = layout.place(8),
                Self::UD_SEND_ONLY_IMM => {
                    layout.ext.deth = layout.place(8);
                    layout.ext.immdt = layout.place(4);
                }
                Self::CNP => {}
                _ => return None,
            }
        }
        layout.ext.payload = layout.at;
        Some(layout.ext)
    }
}

/// Lays headers out one behind the other.
struct Layout {
    ext: Ext,
    at: u8,
}

impl Layout {
    const fn place(&mut self, len: u8) -> Option<u8> {
        let at = self.at;
        self.at += len;
        Some(at)
    }

    const fn connected(&mut self, operation: u8) {
        match operation {
            op::WRITE_FIRST | op::WRITE_ONLY | op::WRITE_ONLY_IMM | op::READ_REQUEST => {
                self.ext.reth = self.place(16);
            }
            op::COMPARE_SWAP | op::FETCH_ADD => self.ext.atomic_eth = self.place(28),
            op::READ_RESPONSE_FIRST
            | op::READ_RESPONSE_LAST
            | op::READ_RESPONSE_ONLY
            | op::ACK
            | op::ATOMIC_ACK => self.ext.aeth = self.place(4),
            _ => {}
        }
        match operation {
            op::SEND_LAST_IMM | op::SEND_ONLY_IMM | op::WRITE_LAST_IMM | op::WRITE_ONLY_IMM => {
                self.ext.immdt = self.place(4);
            }
            op::SEND_LAST_INV | op::SEND_ONLY_INV => self.ext.ieth = self.place(4),
            op::ATOMIC_ACK => self.ext.atomic_ack_eth = self.place(8),
            _ => {}
        }
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opcode({:#04x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // shows: QOS-CNP-01, CREM-BLOCK-06, AMB-OPCODES, AMB-PSNSPACE
    #[test]
    fn classes_follow_the_registry() {
        for octet in 0..=255u8 {
            let expected = match octet {
                0x00..=0x0c | 0x13 | 0x14 | 0x16 | 0x17 | 0x20..=0x2b => Class::Request,
                0xa0..=0xac | 0xb3 | 0xb4 | 0xb6 | 0xb7 => Class::Request,
                0x0d..=0x10 | 0xad..=0xb0 => Class::Response,
                0x11 | 0xb1 => Class::Ack,
                0x12 | 0xb2 => Class::AtomicAck,
                0x64 | 0x65 => Class::Ud,
                0x81 => Class::Cnp,
                _ => Class::Other,
            };
            assert_eq!(Opcode(octet).class(), expected, "{octet:#x}");
            assert_eq!(
                Opcode(octet).ext().is_some(),
                expected != Class::Other,
                "{octet:#x}"
            );
            assert_eq!(
                Opcode(octet).place().is_some(),
                expected != Class::Other,
                "{octet:#x}"
            );
        }
    }

    // shows: QOS-MTU-05
    #[test]
    fn extension_headers_are_in_order() {
        let ext = |octet| Opcode(octet).ext().unwrap_or_default();
        assert_eq!(
            ext(0x0b),
            Ext {
                reth: Some(12),
                immdt: Some(28),
                payload: 32,
                ..Ext::default()
            }
        );
        assert_eq!(
            ext(0x12),
            Ext {
                aeth: Some(12),
                atomic_ack_eth: Some(16),
                payload: 24,
                ..Ext::default()
            }
        );
        assert_eq!(
            ext(0x65),
            Ext {
                deth: Some(12),
                immdt: Some(20),
                payload: 24,
                ..Ext::default()
            }
        );
        assert_eq!(
            ext(0xaa),
            Ext {
                xrceth: Some(12),
                reth: Some(16),
                payload: 32,
                ..Ext::default()
            }
        );
        assert_eq!(
            ext(0xad),
            Ext {
                aeth: Some(12),
                payload: 16,
                ..Ext::default()
            }
        );
        assert_eq!(
            ext(0x17),
            Ext {
                ieth: Some(12),
                payload: 16,
                ..Ext::default()
            }
        );
        assert_eq!(
            ext(0x13),
            Ext {
                atomic_eth: Some(12),
                payload: 40,
                ..Ext::default()
            }
        );
        assert_eq!(
            ext(0x26),
            Ext {
                reth: Some(12),
                payload: 28,
                ..Ext::default()
            }
        );
        assert_eq!(ext(0x0e).payload, 12);
    }
}
