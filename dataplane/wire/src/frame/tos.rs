//! The octet of DSCP and ECN: IPv4 TOS, IPv6 traffic class.

use crate::mutate::{self, Fault};

/// An ECN codepoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Ecn {
    /// 00.
    NotEct,
    /// 01.
    Ect1,
    /// 10.
    Ect0,
    /// 11: congestion experienced.
    Ce,
}

impl Ecn {
    /// The codepoint in the low two bits of a TOS octet.
    pub const fn of(tos: u8) -> Self {
        match tos & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The two bits.
    pub const fn bits(self) -> u8 {
        self as u8
    }
}

/// The DSCP, upper six bits, of a TOS octet.
pub const fn dscp_of(tos: u8) -> u8 {
    tos >> 2
}

/// The octet for a DSCP (six bits) and a codepoint.
pub const fn tos(dscp: u8, ecn: Ecn) -> u8 {
    dscp << 2 | ecn.bits()
}

/// The octet of a REPAIR message of a flow: its DSCP, ECT(0) (AMB-ECT).
pub const fn repair_tos(flow_tos: u8) -> u8 {
    tos(dscp_of(flow_tos), Ecn::Ect0)
}

/// The octet of a restored packet: the flow's DSCP, no mark (AMB-RESTECN); `ect0` where the operator
/// wants ECT(0) because the last hop would drop what it cannot mark.
pub const fn restored_tos(flow_tos: u8, ect0: bool) -> u8 {
    tos(
        dscp_of(flow_tos),
        if ect0 { Ecn::Ect0 } else { Ecn::NotEct },
    )
}

/// The codepoint that a tunnel egress gives the inner packet (RFC 6040, section 4.2); `None` if it
/// drops the packet.
pub fn decapsulate_ecn(inner: Ecn, outer: Ecn) -> Option<Ecn> {
    if mutate::has(Fault::Ecn) {
        return Some(outer);
    }
    match (inner, outer) {
        (Ecn::NotEct, Ecn::Ce) => None,
        (Ecn::NotEct, _) => Some(Ecn::NotEct),
        (_, Ecn::Ce) | (Ecn::Ce, _) => Some(Ecn::Ce),
        (Ecn::Ect1, _) | (_, Ecn::Ect1) => Some(Ecn::Ect1),
        (Ecn::Ect0, _) => Some(Ecn::Ect0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // shows: QOS-VXLAN-05
    #[test]
    fn decapsulation_table() {
        use Ecn::{Ce, Ect0, Ect1, NotEct};
        let rows = [
            (NotEct, [Some(NotEct), Some(NotEct), Some(NotEct), None]),
            (Ect1, [Some(Ect1), Some(Ect1), Some(Ect1), Some(Ce)]),
            (Ect0, [Some(Ect0), Some(Ect1), Some(Ect0), Some(Ce)]),
            (Ce, [Some(Ce), Some(Ce), Some(Ce), Some(Ce)]),
        ];
        for (inner, results) in rows {
            for (outer, result) in [NotEct, Ect1, Ect0, Ce].into_iter().zip(results) {
                assert_eq!(
                    decapsulate_ecn(inner, outer),
                    result,
                    "{inner:?} in {outer:?}"
                );
            }
        }
    }

    // shows: QOS-DSCP-01, QOS-ECN-01, QOS-ECN-02, CREM-CC-04, CREM-CC-05, AMB-ECT
    #[test]
    fn repair_and_restored_keep_the_dscp() {
        for octet in 0..=255u8 {
            assert_eq!(tos(dscp_of(octet), Ecn::of(octet)), octet);
            assert_eq!(repair_tos(octet), octet & 0xfc | 2);
            assert_eq!(restored_tos(octet, false), octet & 0xfc);
            assert_eq!(restored_tos(octet, true), octet & 0xfc | 2);
        }
    }
}
