//! What the core asks its caller to do: deliver frames, code symbols, decode, send messages. The
//! caller owns one `Actions`, passes it to every call and drains it afterwards; after warm-up no call
//! allocates.

use alloc::vec::Vec;
use core::net::SocketAddr;
use core::ops::Range;
use crem_wire::crem::{Message, RepairHeader};
use crem_wire::{Bitmap, FlowId, Psn};

use crate::packet::StreamKey;
use crate::time::Instant;

/// A symbol buffer in the caller's pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SlotId(pub u32);

/// A UDP payload inside a frame, at its position in a block.
#[derive(Clone, Debug)]
pub struct SourceRef<B> {
    /// Position j in the block.
    pub position: u8,
    /// The frame.
    pub buf: B,
    /// Offset of the UDP payload in the frame.
    pub off: u16,
    /// Octets of the UDP payload.
    pub len: u16,
}

/// One row of a code job: the symbol with this Repair Index goes to this slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Repair Index i (scheme 0: the position to copy).
    pub index: u8,
    /// Where the symbol is accumulated.
    pub slot: SlotId,
}

/// Add the contribution of `sources` to the symbols `rows`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeJob {
    /// FEC scheme: 0 copy, 1 Cauchy RS, 2 XOR.
    pub scheme: u8,
    /// Symbol length T in octets, length prefix included.
    pub t: u16,
    /// The slots hold nothing yet: start from zero.
    pub first: bool,
    /// Into [`Actions::sources`].
    pub sources: Range<u32>,
    /// Into [`Actions::rows`].
    pub rows: Range<u32>,
}

/// Why a REPAIR is sent; decides its place when repair has to be shed, and its counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RepairKind {
    /// Ordinary repair symbol.
    Ordinary,
    /// Coded retransmission.
    Coded,
    /// Source Copy.
    Copy,
    /// Block information without a symbol.
    Info,
}

/// Send one REPAIR after the code jobs of this batch have run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Emit {
    /// Peer address and port.
    pub to: SocketAddr,
    /// Everything of the message but the symbol.
    pub header: RepairHeader,
    /// The slot with the symbol; `None` for INFO. The caller owns the slot from here on.
    pub slot: Option<SlotId>,
    /// Kind of repair.
    pub kind: RepairKind,
    /// DSCP to send with (the flow's); ECN is ECT(0).
    pub dscp: u8,
    /// When the symbol was decided on: older than the hold it is worthless.
    pub born: Instant,
    /// The protected stream.
    pub stream: StreamKey,
}

/// A repair symbol held by reference to the REPAIR frame it came in.
#[derive(Clone, Debug)]
pub struct SymbolRef<B> {
    /// Repair Index (scheme 0: the position).
    pub index: u8,
    /// FEC scheme of this symbol.
    pub scheme: u8,
    /// The set L it is computed over.
    pub set: Bitmap,
    /// The REPAIR frame.
    pub buf: B,
    /// Offset of the symbol in the frame; it has T octets.
    pub off: u16,
}

/// A received frame of the same stream whose headers may serve to rebuild those of a lost one.
#[derive(Clone, Debug)]
pub struct Neighbour<B> {
    /// Its PSN.
    pub psn: Psn,
    /// The frame.
    pub buf: B,
    /// Offset of its UDP payload in the frame.
    pub payload_off: u16,
}

/// A position to restore.
#[derive(Clone, Debug)]
pub struct Unknown<B> {
    /// Position j in the block.
    pub position: u8,
    /// Its PSN.
    pub psn: Psn,
    /// Nearest received packet before it.
    pub before: Option<Neighbour<B>>,
    /// Nearest received packet after it.
    pub after: Option<Neighbour<B>>,
}

/// Identifies a decode job until its result comes back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DecodeId(pub u64);

/// Solve for `unknown` from `sources` and `symbols`, rebuild and verify the frames, and hand the
/// result to `Crf::on_decoded` before the next call into the same `Crf`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecodeJob {
    /// Names the job in the answer.
    pub id: DecodeId,
    /// Flow.
    pub flow: FlowId,
    /// Stream.
    pub stream: StreamKey,
    /// FEC scheme of the block.
    pub scheme: u8,
    /// Symbol length T.
    pub t: u16,
    /// First PSN of the block.
    pub block_start: Psn,
    /// Also check the ICRC of the known sources and treat a corrupt one as unknown.
    pub verify_sources: bool,
    /// Known sources, into [`Actions::sources`].
    pub sources: Range<u32>,
    /// Held symbols, into [`Actions::symbols`].
    pub symbols: Range<u32>,
    /// Positions to restore, into [`Actions::unknowns`].
    pub unknowns: Range<u32>,
}

/// What became of one unknown of a decode job.
#[derive(Clone, Debug)]
pub enum Outcome<B> {
    /// The complete frame, its ICRC verified.
    Restored {
        /// The frame.
        buf: B,
        /// Offset of its UDP payload.
        payload_off: u16,
        /// Octets of its UDP payload.
        payload_len: u16,
    },
    /// The symbols do not determine this position.
    Undetermined,
    /// Decoded, but the length prefix, padding, Identification or ICRC is wrong.
    Corrupt,
    /// Decoded, but no received frame could lend its headers.
    NoNeighbour,
    /// The caller had no buffer for it.
    NoBuffer,
}

/// The answer to a [`DecodeJob`], one outcome for each of its unknowns in order, and the positions of
/// known sources that failed their ICRC (with `verify_sources`). Its list is emptied with the answer, so
/// that one list can serve all jobs of a worker.
#[derive(Clone, Debug)]
pub struct Decoded<B> {
    /// The job.
    pub id: DecodeId,
    /// Per unknown, in the job's order.
    pub outcomes: Vec<(u8, Outcome<B>)>,
    /// Known sources that failed their ICRC.
    pub corrupt_sources: Bitmap,
}

/// Why a frame leaves toward the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Delivery {
    /// The frame as it arrived.
    Source,
    /// An acknowledgment as it arrived (AMB-READRESP).
    Acknowledgment,
    /// A restored frame.
    Restored,
}

/// Send one message that is not a REPAIR.
#[derive(Clone, Debug)]
pub struct Transmit<B> {
    /// Peer address and port.
    pub to: SocketAddr,
    /// The message.
    pub message: Message,
    /// DSCP to send with; Not-ECT.
    pub dscp: u8,
    /// `to` is the flow's destination and not an address of a gateway: send it the way this frame of
    /// the flow went (its Ethernet destination and VLAN tags), to be intercepted on the way.
    pub along: Option<B>,
}

/// Output of one or more calls into the core.
#[derive(Debug)]
pub struct Actions<B> {
    /// Frames to send toward the receiver, in this order, at once.
    pub deliver: Vec<(Delivery, B)>,
    /// Code jobs, to run in order.
    pub code: Vec<CodeJob>,
    /// Sources that jobs refer to.
    pub sources: Vec<SourceRef<B>>,
    /// Rows that code jobs refer to.
    pub rows: Vec<Row>,
    /// REPAIR messages to send once `code` has run.
    pub emit: Vec<Emit>,
    /// Decode jobs, to run in order; each is answered with `Crf::on_decoded`.
    pub decode: Vec<DecodeJob>,
    /// Symbols that decode jobs refer to.
    pub symbols: Vec<SymbolRef<B>>,
    /// Unknowns that decode jobs refer to.
    pub unknowns: Vec<Unknown<B>>,
    /// Empty slots: the caller fills this up before a call, the core takes from it and gives unused
    /// ones back to it.
    pub free_slots: Vec<SlotId>,
}

impl<B> Default for Actions<B> {
    fn default() -> Self {
        Self {
            deliver: Vec::new(),
            code: Vec::new(),
            sources: Vec::new(),
            rows: Vec::new(),
            emit: Vec::new(),
            decode: Vec::new(),
            symbols: Vec::new(),
            unknowns: Vec::new(),
            free_slots: Vec::new(),
        }
    }
}

impl<B> Actions<B> {
    /// Empties everything but `free_slots`, keeping the capacity.
    pub fn clear(&mut self) {
        self.deliver.clear();
        self.code.clear();
        self.sources.clear();
        self.rows.clear();
        self.emit.clear();
        self.decode.clear();
        self.symbols.clear();
        self.unknowns.clear();
    }
}
