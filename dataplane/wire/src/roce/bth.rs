//! The Base Transport Header: twelve octets at the front of every RoCEv2 UDP payload.

use super::{Class, ICRC_LEN, Opcode, Place};
use crate::{Psn, Qpn};

/// A Base Transport Header. Octets that hold several fields are kept whole, with an accessor for each
/// field, so that reserved bits survive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bth {
    /// Opcode.
    pub opcode: Opcode,
    /// Solicited Event, MigReq, Pad Count, Transport Header Version.
    pub octet1: u8,
    /// Partition key.
    pub pkey: u16,
    /// FECN, BECN and six reserved bits; not covered by the ICRC.
    pub octet4: u8,
    /// Destination queue pair.
    pub dest_qp: Qpn,
    /// AckReq and seven reserved bits.
    pub octet8: u8,
    /// Packet sequence number.
    pub psn: Psn,
}

/// Where the payload begins, by opcode, of packets that it fills up to the RDMA MTU: FIRST and MIDDLE of
/// requests and responses.
static FULL_FROM: [Option<u8>; 256] = {
    let mut all = [None; 256];
    let mut octet = 0;
    while octet < all.len() {
        let opcode = Opcode(octet as u8);
        let is_full = matches!(opcode.class(), Class::Request | Class::Response)
            && matches!(opcode.place(), Some(Place::First | Place::Middle));
        if let (true, Some(ext)) = (is_full, opcode.ext()) {
            all[octet] = Some(ext.payload);
        }
        octet += 1;
    }
    all
};

impl Bth {
    /// Octets of the header.
    pub const LEN: usize = 12;

    /// The header at the front of a UDP payload; `None` if it is not complete. Any version and opcode
    /// is taken.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let [
            opcode,
            octet1,
            p0,
            p1,
            octet4,
            q0,
            q1,
            q2,
            octet8,
            s0,
            s1,
            s2,
        ] = *payload.first_chunk::<{ Self::LEN }>()?;
        Some(Self {
            opcode: Opcode(opcode),
            octet1,
            pkey: u16::from_be_bytes([p0, p1]),
            octet4,
            dest_qp: Qpn::new(u32::from_be_bytes([0, q0, q1, q2])),
            octet8,
            psn: Psn::new(u32::from_be_bytes([0, s0, s1, s2])),
        })
    }

    /// The twelve octets.
    pub fn to_octets(&self) -> [u8; Self::LEN] {
        let [p0, p1] = self.pkey.to_be_bytes();
        let [_, q0, q1, q2] = self.dest_qp.get().to_be_bytes();
        let [_, s0, s1, s2] = self.psn.get().to_be_bytes();
        [
            self.opcode.0,
            self.octet1,
            p0,
            p1,
            self.octet4,
            q0,
            q1,
            q2,
            self.octet8,
            s0,
            s1,
            s2,
        ]
    }

    /// Writes the header to the front of `out` and returns its octets; 0 if `out` is too short.
    pub fn write(&self, out: &mut [u8]) -> usize {
        match out.first_chunk_mut::<{ Self::LEN }>() {
            Some(head) => {
                *head = self.to_octets();
                Self::LEN
            }
            None => 0,
        }
    }

    /// Solicited Event bit.
    pub const fn solicited(&self) -> bool {
        self.octet1 & 0x80 != 0
    }

    /// MigReq bit.
    pub const fn mig_req(&self) -> bool {
        self.octet1 & 0x40 != 0
    }

    /// Pad Count: octets of padding behind the payload, 0 ..= 3.
    pub const fn pad_count(&self) -> u8 {
        self.octet1 >> 4 & 3
    }

    /// Transport Header Version; only 0 is defined.
    pub const fn version(&self) -> u8 {
        self.octet1 & 0x0f
    }

    /// FECN bit.
    pub const fn fecn(&self) -> bool {
        self.octet4 & 0x80 != 0
    }

    /// BECN bit.
    pub const fn becn(&self) -> bool {
        self.octet4 & 0x40 != 0
    }

    /// Acknowledge Request bit.
    pub const fn ack_req(&self) -> bool {
        self.octet8 & 0x80 != 0
    }

    /// Octets of RDMA payload in a UDP payload of `udp_payload_len` octets, padding excluded. `None`
    /// if the opcode has no entry or its extension headers, padding and ICRC do not fit.
    pub fn payload_len(&self, udp_payload_len: usize) -> Option<usize> {
        let front = usize::from(self.opcode.ext()?.payload);
        udp_payload_len.checked_sub(front + usize::from(self.pad_count()) + ICRC_LEN)
    }

    /// The RDMA MTU that this packet shows: the payload of a FIRST or MIDDLE packet of a request or
    /// response fills it (AMB-RDMAMTU). `None` for any other packet, and if the length is none that an
    /// RDMA MTU can have.
    pub fn mtu_seen(&self, udp_payload_len: usize) -> Option<u16> {
        let front = FULL_FROM[usize::from(self.opcode.0)]?;
        let rest = usize::from(front) + usize::from(self.pad_count()) + ICRC_LEN;
        match udp_payload_len.checked_sub(rest)? {
            len @ (256 | 512 | 1024 | 2048 | 4096) => Some(len as u16),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const OCTETS: [u8; 12] = [
        0x0a, 0xb0, 0xff, 0xfe, 0xc1, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef,
    ];

    // shows: QOS-QP-01, A17-01
    // shows: BTH-IE-02, BTH-IE-12, BTH-IE-16
    #[test]
    fn fields_are_where_the_standard_puts_them() {
        let bth = Bth::parse(&OCTETS).unwrap();
        assert_eq!(bth.opcode, Opcode::WRITE_ONLY);
        assert!(bth.solicited() && !bth.mig_req() && bth.fecn() && bth.becn() && bth.ack_req());
        assert_eq!((bth.pad_count(), bth.version(), bth.pkey), (3, 0, 0xfffe));
        assert_eq!(
            (bth.dest_qp, bth.psn),
            (Qpn::new(0x12_3456), Psn::new(0xab_cdef))
        );
        assert_eq!(bth.to_octets(), OCTETS);
        assert_eq!(Bth::parse(&OCTETS[..11]), None);
    }

    #[test]
    fn mtu_shows_only_in_first_and_middle() {
        let bth = |octet| Bth {
            opcode: Opcode(octet),
            octet1: 0,
            ..Bth::parse(&OCTETS).unwrap()
        };
        assert_eq!(bth(0x06).mtu_seen(12 + 16 + 1024 + 4), Some(1024));
        assert_eq!(bth(0x0e).mtu_seen(12 + 4096 + 4), Some(4096));
        assert_eq!(bth(0x0d).mtu_seen(12 + 4 + 4096 + 4), Some(4096));
        assert_eq!(bth(0x02).mtu_seen(12 + 1024 + 4), None);
        assert_eq!(bth(0x01).mtu_seen(12 + 1000 + 4), None);
        assert_eq!(bth(0x01).mtu_seen(3), None);
        assert_eq!(bth(0x15).mtu_seen(12 + 1024 + 4), None);
    }
}
