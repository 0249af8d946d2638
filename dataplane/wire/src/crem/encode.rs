//! Writing CREM messages. Reserved fields and undefined flags are sent as zero (AMB-RESERVED,
//! AMB-FLAGS). Nothing is checked here: a value that `parse` would refuse is the sender's fault.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::registry::{
    COMMON_HEADER_LEN, HELLO_ACK_LEN, MAX_HOPS, MessageType, REPAIR_FIXED_LEN, VERSION, flags,
};
use super::{
    BlockRequest, Close, FlowDescriptor, Hello, HelloAck, HopEntry, Limits, LossReport, Message,
    ParamAck, ParamUpdate, PathReport, RangeRequest, RepairHeader,
};
use crate::{Bitmap, Psn};

/// Ranges that fit a message whose Length has 16 bits.
const MAX_RANGES: usize = (u16::MAX as usize - COMMON_HEADER_LEN - 4) / 4;
/// Dropped PSNs that fit the 8-bit PSN Count.
const MAX_DROPPED: usize = u8::MAX as usize;

fn first_octets(kind: MessageType, flags: u8) -> [u8; 2] {
    [VERSION << 4 | kind.code(), flags]
}

/// A PSN in the three leading octets of a word, then an octet (AMB-PACK248).
fn psn_and(psn: Psn, octet: u8) -> [u8; 4] {
    (psn.get() << 8 | u32::from(octet)).to_be_bytes()
}

fn address_octets(address: &IpAddr) -> ([u8; 16], usize) {
    match address {
        IpAddr::V4(v4) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&v4.octets());
            (octets, 4)
        }
        IpAddr::V6(v6) => (v6.octets(), 16),
    }
}

/// The AF octet of an address: 4 or 6.
fn family(address: &IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}

fn address_len(address: &IpAddr) -> usize {
    if address.is_ipv4() { 4 } else { 16 }
}

impl RepairHeader {
    /// Octets of everything before the symbol: 20 plus one or two bitmaps.
    pub fn encoded_len(&self) -> usize {
        REPAIR_FIXED_LEN + Bitmap::wire_len(self.k) * if self.lost.is_some() { 2 } else { 1 }
    }

    /// The flags octet that this header stands for.
    pub fn flags(&self) -> u8 {
        let mut octet = 0;
        if self.lost.is_some() {
            octet |= flags::REPAIR_RETX;
        }
        if self.last {
            octet |= flags::REPAIR_LAST;
        }
        if self.info {
            octet |= flags::REPAIR_INFO;
        }
        octet
    }

    /// Writes the header and its bitmaps to the front of `out` and returns their octets; the symbol
    /// belongs right behind and is not touched. Length counts the symbol. Returns 0 and writes nothing
    /// if `out` is too short.
    pub fn encode(&self, out: &mut [u8]) -> usize {
        let header = self.encoded_len();
        let Some(out) = out.get_mut(..header) else {
            return 0;
        };
        let length = u16::try_from(header + usize::from(self.symbol_length)).unwrap_or(u16::MAX);
        out[..2].copy_from_slice(&first_octets(MessageType::Repair, self.flags()));
        out[2..4].copy_from_slice(&length.to_be_bytes());
        out[4..8].copy_from_slice(&self.flow.get().to_be_bytes());
        out[8..12].copy_from_slice(&[self.config.0, self.scheme, self.k, self.index]);
        out[12..16].copy_from_slice(&psn_and(self.block_start, 0));
        out[16..18].copy_from_slice(&self.session.map_or(0, |id| id.get()).to_be_bytes());
        out[18..20].copy_from_slice(&self.symbol_length.to_be_bytes());
        let (present, lost) = out[REPAIR_FIXED_LEN..].split_at_mut(Bitmap::wire_len(self.k));
        self.present.write_wire(self.k, present);
        if let Some(set) = &self.lost {
            set.write_wire(self.k, lost);
        }
        header
    }
}

impl Message {
    /// The type of this message.
    pub fn message_type(&self) -> MessageType {
        match self {
            Self::Hello(_) => MessageType::Hello,
            Self::HelloAck(_) => MessageType::HelloAck,
            Self::ParamUpdate(_) => MessageType::ParamUpdate,
            Self::ParamAck(_) => MessageType::ParamAck,
            Self::BlockRequest(_) | Self::RangeRequest(_) => MessageType::RepairRequest,
            Self::LossReport(_) => MessageType::LossReport,
            Self::PathReport(_) => MessageType::PathReport,
            Self::Close(_) => MessageType::Close,
        }
    }

    /// Octets of the whole message.
    pub fn encoded_len(&self) -> usize {
        COMMON_HEADER_LEN
            + match self {
                Self::Hello(m) => 24 + 2 * address_len(&m.flow.source),
                Self::HelloAck(_) => HELLO_ACK_LEN - COMMON_HEADER_LEN,
                Self::ParamUpdate(_) => 12,
                Self::ParamAck(_) | Self::Close(_) => 4,
                Self::BlockRequest(m) => 12 + Bitmap::wire_len(m.k),
                Self::RangeRequest(m) => 4 + 4 * m.ranges.len().min(MAX_RANGES),
                Self::LossReport(_) => 32,
                Self::PathReport(m) => 8 + 2 * address_len(&m.flow.source) + hops_len(&m.hops),
            }
    }

    /// Appends the message to `out`. Lists longer than their count field can say are cut: 16 hops, 255
    /// dropped PSNs a hop, 16,380 ranges.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let length = self.encoded_len();
        out.reserve(length);
        let (flag, flow) = self.flags_and_flow();
        out.extend_from_slice(&first_octets(self.message_type(), flag));
        out.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
        out.extend_from_slice(&flow.to_be_bytes());
        match self {
            Self::Hello(m) => put_hello(m, out),
            Self::HelloAck(m) => put_hello_ack(m, out),
            Self::ParamUpdate(m) => put_param_update(m, out),
            Self::ParamAck(m) => out.extend_from_slice(&[m.config.0, m.status, 0, 0]),
            Self::BlockRequest(m) => put_block_request(m, out),
            Self::RangeRequest(m) => put_range_request(m, out),
            Self::LossReport(m) => put_loss_report(m, out),
            Self::PathReport(m) => put_path_report(m, out),
            Self::Close(m) => {
                out.extend_from_slice(&m.reason.to_be_bytes());
                out.extend_from_slice(&[0, 0]);
            }
        }
    }

    fn flags_and_flow(&self) -> (u8, u32) {
        match self {
            Self::Hello(_) => (0, 0),
            Self::PathReport(m) => (
                if m.truncated {
                    flags::PATH_TRUNCATED
                } else {
                    0
                },
                0,
            ),
            Self::BlockRequest(m) => (fallback(m.fallback), m.flow.get()),
            Self::RangeRequest(m) => (fallback(m.fallback) | flags::REQUEST_RANGES, m.flow.get()),
            Self::HelloAck(HelloAck { flow, .. })
            | Self::ParamUpdate(ParamUpdate { flow, .. })
            | Self::ParamAck(ParamAck { flow, .. })
            | Self::LossReport(LossReport { flow, .. })
            | Self::Close(Close { flow, .. }) => (0, flow.get()),
        }
    }
}

fn fallback(set: bool) -> u8 {
    if set { flags::REQUEST_FALLBACK } else { 0 }
}

fn hops_len(hops: &[HopEntry]) -> usize {
    hops.iter()
        .take(MAX_HOPS)
        .map(|hop| 20 + 4 * hop.dropped.len().min(MAX_DROPPED))
        .sum()
}

fn put_addresses(flow: &FlowDescriptor, out: &mut Vec<u8>) {
    for address in [&flow.source, &flow.destination] {
        let (octets, len) = address_octets(address);
        out.extend_from_slice(&octets[..len]);
    }
    out.extend_from_slice(&flow.qp.get().to_be_bytes());
}

/// The twelve octets that HELLO and HELLO_ACK share (AMB-ACK12).
fn put_offer(kind: u8, af: u8, limits: &Limits, rdma_mtu: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&[kind, af]);
    out.extend_from_slice(&limits.schemes.to_be_bytes());
    out.extend_from_slice(&[limits.max_k, limits.max_m]);
    out.extend_from_slice(&limits.max_t.to_be_bytes());
    out.extend_from_slice(&rdma_mtu.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
}

fn put_hello(m: &Hello, out: &mut Vec<u8>) {
    put_offer(m.kind, family(&m.flow.source), &m.limits, m.rdma_mtu, out);
    out.extend_from_slice(&m.nonce.to_be_bytes());
    put_addresses(&m.flow, out);
}

fn put_hello_ack(m: &HelloAck, out: &mut Vec<u8>) {
    put_offer(m.kind, m.af, &m.limits, m.rdma_mtu, out);
    out.extend_from_slice(&m.nonce.to_be_bytes());
    out.extend_from_slice(&m.max_open_blocks.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
}

fn put_param_update(m: &ParamUpdate, out: &mut Vec<u8>) {
    out.extend_from_slice(&[m.config.0, m.scheme, m.k, m.m]);
    out.extend_from_slice(&m.t.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&psn_and(m.effective, 0));
}

fn put_block_request(m: &BlockRequest, out: &mut Vec<u8>) {
    out.extend_from_slice(&[m.config.0, m.scheme, m.k, m.held]);
    out.extend_from_slice(&psn_and(m.block_start, m.suggested));
    out.extend_from_slice(&m.request.get().to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    let mut words = [0; 32];
    m.lost.write_wire(m.k, &mut words);
    out.extend_from_slice(&words[..Bitmap::wire_len(m.k)]);
}

fn put_range_request(m: &RangeRequest, out: &mut Vec<u8>) {
    let count = m.ranges.len().min(MAX_RANGES);
    out.extend_from_slice(&m.request.get().to_be_bytes());
    out.extend_from_slice(&(count as u16).to_be_bytes());
    for range in m.ranges.iter().take(count) {
        out.extend_from_slice(&psn_and(range.start, range.count));
    }
}

fn put_loss_report(m: &LossReport, out: &mut Vec<u8>) {
    let words = [
        m.interval_us,
        m.expected,
        m.received,
        m.restored,
        m.incomplete_blocks,
        m.ce_marked,
        m.repairs_received,
        m.repairs_ce_marked,
    ];
    for word in words {
        out.extend_from_slice(&word.to_be_bytes());
    }
}

fn put_path_report(m: &PathReport, out: &mut Vec<u8>) {
    let hops = &m.hops[..m.hops.len().min(MAX_HOPS)];
    out.extend_from_slice(&[m.method, hops.len() as u8, family(&m.flow.source), 0]);
    put_addresses(&m.flow, out);
    for hop in hops {
        let dropped = &hop.dropped[..hop.dropped.len().min(MAX_DROPPED)];
        for word in [hop.node, hop.period, hop.lost] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(&hop.queue_delay_change_us.to_be_bytes());
        out.extend_from_slice(&[hop.cause, dropped.len() as u8, 0, 0]);
        for psn in dropped {
            // Here the reserved octet comes first (AMB-PRPSN).
            out.extend_from_slice(&psn.get().to_be_bytes());
        }
    }
}
