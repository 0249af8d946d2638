//! The Data Records of the three profiles, field by field in the order of their templates.

use std::net::IpAddr;

use crem_meter::PacketRecord;
use crem_meter::flow::FlowRecord;
use crem_meter::seq::SequenceRecord;
use crem_wire::frame::{Network, PROTOCOL_UDP};

use super::ids::Ids;
use crate::profile::{Namespace, QpOctets};
use crate::value::to_ntp;

fn address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(v4) => out.extend_from_slice(&v4.octets()),
        IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
    }
}

/// The low 24 bits in three or four octets.
fn u24(value: u32, octets: QpOctets, out: &mut Vec<u8>) {
    let all = (value & 0x00ff_ffff).to_be_bytes();
    match octets {
        QpOctets::Three => out.extend_from_slice(&all[1..]),
        QpOctets::Four => out.extend_from_slice(&all),
    }
}

/// One observed packet, see `Kind::Packet`.
#[inline]
pub(super) fn packet(record: &PacketRecord, qp: QpOctets, out: &mut Vec<u8>) {
    out.extend_from_slice(&record.point.to_be_bytes());
    out.extend_from_slice(&to_ntp(record.time.0).to_be_bytes());
    address(record.source, out);
    address(record.destination, out);
    out.extend_from_slice(&record.source_port.to_be_bytes());
    out.extend_from_slice(&record.destination_port.to_be_bytes());
    out.extend_from_slice(&[PROTOCOL_UDP, record.tos, record.direction as u8]);
    if let Some(selection) = record.selection {
        out.extend_from_slice(&selection.to_be_bytes());
    }
    let bth = &record.bth;
    out.push(bth.opcode.0);
    out.extend_from_slice(&bth.pkey.to_be_bytes());
    u24(bth.dest_qp.get(), qp, out);
    u24(bth.psn.get(), qp, out);
    out.extend_from_slice(&[bth.octet1, bth.octet4, bth.octet8]);
}

/// An aggregate flow, see `Kind::Aggregate`.
pub(super) fn flow(record: &FlowRecord, qp: QpOctets, out: &mut Vec<u8>) {
    let key = &record.key;
    address(key.source, out);
    address(key.destination, out);
    out.extend_from_slice(&key.source_port.to_be_bytes());
    out.extend_from_slice(&key.destination_port.to_be_bytes());
    out.extend_from_slice(&[PROTOCOL_UDP, record.direction as u8]);
    out.extend_from_slice(&key.pkey.to_be_bytes());
    u24(key.qp.get(), qp, out);
    out.extend(key.opcode);
    for number in [
        record.point,
        record.start.millis(),
        record.end.millis(),
        record.packets,
        record.octets,
    ] {
        out.extend_from_slice(&number.to_be_bytes());
    }
}

/// A snapshot of an epoch, see `Kind::Sequence`.
pub(super) fn sequence(record: &SequenceRecord, ids: Ids, out: &mut Vec<u8>) {
    let key = &record.key;
    let counts = &record.counts;
    out.extend_from_slice(&record.point.to_be_bytes());
    address(key.source, out);
    address(key.destination, out);
    u24(key.qp.get(), QpOctets::Four, out);
    out.extend_from_slice(&key.pkey.to_be_bytes());
    for number in [
        record.start.millis(),
        record.end.millis(),
        ids.epoch,
        ids.report,
    ] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    out.extend_from_slice(&record.window.to_be_bytes());
    out.extend_from_slice(&record.flags.0.to_be_bytes());
    for number in [
        counts.skipped,
        counts.filled,
        counts.expired,
        counts.abandoned,
    ] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    out.extend_from_slice(&counts.pending.to_be_bytes());
    for number in [counts.repeated, counts.requests, counts.unclassified_late] {
        out.extend_from_slice(&number.to_be_bytes());
    }
}

/// layer2SegmentId of a VXLAN: its type is in the highest octet.
const VXLAN_SEGMENT: u64 = 1 << 56;

/// The namespace field of a context and its octets; `None` for two VLAN tags, which no single element
/// tells.
pub(super) fn namespace(context: u64) -> Option<(Namespace, [u8; 8], usize)> {
    let mut octets = [0; 8];
    Some(match Network::of_context(context) {
        Network::Untagged => (Namespace::None, octets, 0),
        Network::Vlan(vid) => {
            octets[..2].copy_from_slice(&vid.to_be_bytes());
            (Namespace::Vlan, octets, 2)
        }
        Network::Vxlan(vni) => (
            Namespace::Segment,
            (VXLAN_SEGMENT | u64::from(vni)).to_be_bytes(),
            8,
        ),
        Network::QinQ(..) => return None,
    })
}
