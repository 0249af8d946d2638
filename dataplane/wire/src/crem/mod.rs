//! The nine CREM messages as values. Encoding is in `encode.rs`, strict parsing in `parse.rs`, the
//! registries (types, schemes, flags, status codes, reasons) in `registry.rs`.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::{Bitmap, ConfigId, FlowId, Psn, Qpn, RequestId};

mod encode;
mod error;
mod parse;
mod ranges;
pub mod registry;
#[cfg(test)]
mod tests;

pub use error::ParseError;
pub use parse::{Parsed, parse, peek};
pub use ranges::Ranges;

/// What describes a protected flow in HELLO and PATH_REPORT.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlowDescriptor {
    /// Source address; both addresses are of one family (AF).
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Destination QP, the low 24 bits of the Flow Label.
    pub qp: Qpn,
}

/// Limits that HELLO and HELLO_ACK carry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// Supported Schemes bitmap, bit s from the least significant.
    pub schemes: u16,
    /// Largest block length k.
    pub max_k: u8,
    /// Largest number of ordinary symbols m.
    pub max_m: u8,
    /// Largest symbol length T.
    pub max_t: u16,
}

/// Type 1, everything but the symbol octets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RepairHeader {
    /// Flow ID.
    pub flow: FlowId,
    /// LAST flag.
    pub last: bool,
    /// INFO flag: `symbol_length` is 0.
    pub info: bool,
    /// Config ID.
    pub config: ConfigId,
    /// FEC scheme.
    pub scheme: u8,
    /// k of the closed block, 1 ..= 255.
    pub k: u8,
    /// Repair Index.
    pub index: u8,
    /// First PSN of the block.
    pub block_start: Psn,
    /// Repair Session ID, `None` is 0 on the wire.
    pub session: Option<RequestId>,
    /// Symbol length T in octets; 0 with INFO.
    pub symbol_length: u16,
    /// Present Bitmap.
    pub present: Bitmap,
    /// Lost Source Bitmap; `Some` sets the RETX flag.
    pub lost: Option<Bitmap>,
}

/// Type 2.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hello {
    /// Flow Kind octet (1, or private 0xC1).
    pub kind: u8,
    /// The sender's limits.
    pub limits: Limits,
    /// RDMA MTU.
    pub rdma_mtu: u16,
    /// Sender Nonce.
    pub nonce: u64,
    /// The flow.
    pub flow: FlowDescriptor,
}

/// Type 3.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HelloAck {
    /// The assigned Flow ID.
    pub flow: FlowId,
    /// Echoed Flow Kind.
    pub kind: u8,
    /// Echoed AF octet, 4 or 6.
    pub af: u8,
    /// The CRF's limits.
    pub limits: Limits,
    /// Echoed RDMA MTU.
    pub rdma_mtu: u16,
    /// Echoed nonce.
    pub nonce: u64,
    /// Max Open Blocks.
    pub max_open_blocks: u16,
}

/// Type 4.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ParamUpdate {
    /// Flow ID.
    pub flow: FlowId,
    /// Config ID.
    pub config: ConfigId,
    /// FEC scheme.
    pub scheme: u8,
    /// k.
    pub k: u8,
    /// m.
    pub m: u8,
    /// T.
    pub t: u16,
    /// Effective PSN.
    pub effective: Psn,
}

/// Type 5.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ParamAck {
    /// Flow ID.
    pub flow: FlowId,
    /// Config ID.
    pub config: ConfigId,
    /// Status octet, see `registry::ParamStatus`.
    pub status: u8,
}

/// A run of lost PSNs in the range form of REPAIR_REQUEST.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PsnRange {
    /// First PSN.
    pub start: Psn,
    /// Number of PSNs, 1 ..= 255.
    pub count: u8,
}

/// Type 6, block form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockRequest {
    /// Flow ID.
    pub flow: FlowId,
    /// FALLBACK flag.
    pub fallback: bool,
    /// Config ID.
    pub config: ConfigId,
    /// FEC scheme.
    pub scheme: u8,
    /// k of the block.
    pub k: u8,
    /// Repair symbols held, r.
    pub held: u8,
    /// First PSN of the block.
    pub block_start: Psn,
    /// Suggested M.
    pub suggested: u8,
    /// Request ID.
    pub request: RequestId,
    /// Lost Source Bitmap.
    pub lost: Bitmap,
}

/// Type 6, PSN-range form.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RangeRequest {
    /// Flow ID.
    pub flow: FlowId,
    /// FALLBACK flag.
    pub fallback: bool,
    /// Request ID.
    pub request: RequestId,
    /// At least one range.
    pub ranges: Ranges,
}

/// Type 7.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LossReport {
    /// Flow ID.
    pub flow: FlowId,
    /// Interval in microseconds.
    pub interval_us: u32,
    /// Source packets expected.
    pub expected: u32,
    /// Source packets received before restoration.
    pub received: u32,
    /// Packets restored by decoding.
    pub restored: u32,
    /// Blocks incomplete after the first decoding attempt.
    pub incomplete_blocks: u32,
    /// CE marks on source packets.
    pub ce_marked: u32,
    /// REPAIR messages received.
    pub repairs_received: u32,
    /// CE marks on REPAIR messages.
    pub repairs_ce_marked: u32,
}

/// One Hop Entry of PATH_REPORT.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HopEntry {
    /// Node ID.
    pub node: u32,
    /// Marking Period Number.
    pub period: u32,
    /// Lost Count.
    pub lost: u32,
    /// Queue Delay Change in microseconds.
    pub queue_delay_change_us: i32,
    /// Loss cause octet.
    pub cause: u8,
    /// Dropped PSNs, at most 255.
    pub dropped: Vec<Psn>,
}

/// Type 8.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PathReport {
    /// Truncated flag.
    pub truncated: bool,
    /// Measurement method octet.
    pub method: u8,
    /// The flow.
    pub flow: FlowDescriptor,
    /// 1 ..= 16 entries.
    pub hops: Vec<HopEntry>,
}

/// Type 9.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Close {
    /// Flow ID.
    pub flow: FlowId,
    /// Reason, see `registry::CloseReason`.
    pub reason: u16,
}

/// Any CREM message but REPAIR, which travels as a [`RepairHeader`] plus symbol octets in place.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// Type 2.
    Hello(Hello),
    /// Type 3.
    HelloAck(HelloAck),
    /// Type 4.
    ParamUpdate(ParamUpdate),
    /// Type 5.
    ParamAck(ParamAck),
    /// Type 6, block form.
    BlockRequest(BlockRequest),
    /// Type 6, range form.
    RangeRequest(RangeRequest),
    /// Type 7.
    LossReport(LossReport),
    /// Type 8.
    PathReport(PathReport),
    /// Type 9.
    Close(Close),
}
