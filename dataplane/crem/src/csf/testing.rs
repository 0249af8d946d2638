//! Packets for the tests of this folder.

use core::net::IpAddr;
use crem_wire::{Psn, Qpn};

use crate::packet::{Desc, Namespace, PktBuf, PsnSpace, StreamKey};

impl PktBuf for u32 {}

/// A stream toward QP `qp`.
pub(super) fn key(qp: u32) -> StreamKey {
    StreamKey {
        namespace: Namespace(0),
        source: IpAddr::from([10, 0, 1, 1]),
        destination: IpAddr::from([10, 0, 2, 1]),
        qp: Qpn::new(qp),
        space: PsnSpace::Requests,
    }
}

/// A WRITE MIDDLE packet of 1024 octets whose frame is named by its PSN.
pub(super) fn desc(key: StreamKey, psn: u32) -> Desc<u32> {
    let psn = Psn::new(psn);
    Desc {
        key,
        psn,
        opcode: 0x07,
        payload_len: 1024 + 16,
        payload_off: 42,
        mtu_seen: None,
        read_length: None,
        ce: false,
        dscp: 26,
        buf: psn.get(),
    }
}
