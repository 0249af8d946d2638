//! Records on their way from the data plane to the process that exports them, as octets: batches of
//! records one way, the beginning and end of collector sessions the other. Both ends are of one build or
//! of neighbouring ones; a batch of another format is refused as a whole.

use std::net::IpAddr;

use crem_meter::flow::{FlowKey, FlowRecord};
use crem_meter::point::{Direction, Place};
use crem_meter::select::SelectionStats;
use crem_meter::seq::{ConnectionKey, Counts, Flags, SequenceRecord};
use crem_meter::{PacketRecord, Sink, Utc};
use crem_wire::Qpn;
use crem_wire::roce::Bth;

/// Format of batches; the first octet of each.
const FORMAT: u8 = 1;

/// What the data plane hands over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// The record of a packet.
    Packet(PacketRecord),
    /// The record of an aggregate flow, and whether it was counted behind repair.
    Flow(bool, FlowRecord),
    /// A snapshot of an epoch.
    Sequence(SequenceRecord),
    /// What a Selection Sequence has seen.
    Selection(u64, SelectionStats),
    /// Packets and octets that metering did not take into account, in all so far.
    Ignored(u64, u64),
}

/// What the exporting process says back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// The collector of this number has a new session of this number: meter for it, with fresh state.
    Begin(u16, u32),
    /// The collector of this number has no session: do not meter for it.
    End(u16),
}

/// A batch that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchError {
    /// Another format: the processes are of builds too far apart.
    #[error("records in format {0}, expected {FORMAT}")]
    Format(u8),
    /// It ends within a record, or has what is none.
    #[error("a batch of records is damaged")]
    Damaged,
}

/// A batch that is being filled, up to a size.
#[derive(Clone, Debug)]
pub struct Batch {
    octets: Vec<u8>,
    max: usize,
    dropped: u64,
}

/// Octets of the longest item.
const MAX_ITEM: usize = 192;

impl Batch {
    /// An empty batch of at most `max` octets.
    pub fn new(max: usize) -> Self {
        let mut octets = Vec::with_capacity(max);
        octets.push(FORMAT);
        Self {
            octets,
            max,
            dropped: 0,
        }
    }

    /// Whether nothing is in it.
    pub const fn is_empty(&self) -> bool {
        self.octets.len() <= 1
    }

    /// Octets that it has room for.
    pub const fn room(&self) -> usize {
        self.max.saturating_sub(self.octets.len())
    }

    /// Its octets, to be handed over whole.
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// Items that did not fit since the last call.
    pub const fn take_dropped(&mut self) -> u64 {
        std::mem::replace(&mut self.dropped, 0)
    }

    /// Empties it; the memory is kept.
    pub fn clear(&mut self) {
        self.octets.truncate(1);
    }

    /// Appends an item; `false` if there is no room.
    pub fn push(&mut self, item: &Item) -> bool {
        if self.octets.len() + MAX_ITEM > self.max {
            self.dropped += 1;
            return false;
        }
        let out = &mut self.octets;
        match item {
            Item::Packet(record) => packet(record, out),
            Item::Flow(post, record) => flow(*post, record, out),
            Item::Sequence(record) => sequence(record, out),
            Item::Selection(sequence, stats) => {
                out.push(3);
                numbers(&[*sequence, stats.observed, stats.selected], out);
            }
            Item::Ignored(packets, octets) => {
                out.push(4);
                numbers(&[*packets, *octets], out);
            }
        }
        true
    }
}

impl Sink for Batch {
    fn packet(&mut self, record: &PacketRecord) -> bool {
        self.push(&Item::Packet(*record))
    }

    fn flow(&mut self, place: Place, record: &FlowRecord) -> bool {
        self.push(&Item::Flow(place.is_after_repair(), *record))
    }

    fn sequence(&mut self, record: &SequenceRecord) -> bool {
        self.push(&Item::Sequence(*record))
    }
}

fn numbers(numbers: &[u64], out: &mut Vec<u8>) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(v4) => {
            out.push(4);
            out.extend_from_slice(&v4.octets());
        }
        IpAddr::V6(v6) => {
            out.push(6);
            out.extend_from_slice(&v6.octets());
        }
    }
}

fn option(value: Option<u64>, out: &mut Vec<u8>) {
    out.push(value.is_some().into());
    numbers(&[value.unwrap_or_default()], out);
}

fn packet(record: &PacketRecord, out: &mut Vec<u8>) {
    out.push(0);
    numbers(&[record.point, record.time.0], out);
    address(record.source, out);
    address(record.destination, out);
    out.extend_from_slice(&record.source_port.to_le_bytes());
    out.extend_from_slice(&record.destination_port.to_le_bytes());
    out.extend_from_slice(&[record.tos, record.direction as u8]);
    option(record.selection, out);
    out.extend_from_slice(&record.bth.to_octets());
}

fn flow(post: bool, record: &FlowRecord, out: &mut Vec<u8>) {
    out.extend_from_slice(&[1, post.into(), record.direction as u8]);
    let key = &record.key;
    address(key.source, out);
    address(key.destination, out);
    out.extend_from_slice(&key.source_port.to_le_bytes());
    out.extend_from_slice(&key.destination_port.to_le_bytes());
    out.extend_from_slice(&key.pkey.to_le_bytes());
    out.extend_from_slice(&key.qp.get().to_le_bytes());
    option(key.opcode.map(u64::from), out);
    let rest = [
        record.point,
        record.start.0,
        record.end.0,
        record.packets,
        record.octets,
    ];
    numbers(&rest, out);
}

fn sequence(record: &SequenceRecord, out: &mut Vec<u8>) {
    out.push(2);
    out.extend_from_slice(&record.collector.to_le_bytes());
    for number in [
        record.session,
        record.context,
        record.window,
        record.counts.pending,
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&record.flags.0.to_le_bytes());
    let key = &record.key;
    address(key.source, out);
    address(key.destination, out);
    out.extend_from_slice(&key.qp.get().to_le_bytes());
    out.extend_from_slice(&key.pkey.to_le_bytes());
    let counts = &record.counts;
    let rest = [
        key.context,
        record.point,
        record.epoch,
        record.start.0,
        record.end.0,
        counts.skipped,
        counts.filled,
        counts.expired,
        counts.abandoned,
        counts.repeated,
        counts.requests,
        counts.unclassified_late,
    ];
    numbers(&rest, out);
}

/// The items of a batch, in order.
///
/// # Errors
/// The format is another, or at the first damaged item; items before it were given.
pub fn items(octets: &[u8]) -> Result<Items<'_>, BatchError> {
    match octets.split_first() {
        Some((&FORMAT, rest)) => Ok(Items { rest }),
        Some((&other, _)) => Err(BatchError::Format(other)),
        None => Err(BatchError::Damaged),
    }
}

/// Iterator over a batch; ends behind the first error.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    rest: &'a [u8],
}

impl Iterator for Items<'_> {
    type Item = Result<Item, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let item = self.item();
        if item.is_none() {
            self.rest = &[];
        }
        Some(item.ok_or(BatchError::Damaged))
    }
}

impl Items<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn option(&mut self) -> Option<Option<u64>> {
        let some = self.bool()?;
        let value = self.u64()?;
        Some(some.then_some(value))
    }

    fn address(&mut self) -> Option<IpAddr> {
        match self.u8()? {
            4 => self.take::<4>().map(IpAddr::from),
            6 => self.take::<16>().map(IpAddr::from),
            _ => None,
        }
    }

    fn direction(&mut self) -> Option<Direction> {
        self.bool().map(|egress| {
            if egress {
                Direction::Egress
            } else {
                Direction::Ingress
            }
        })
    }

    fn item(&mut self) -> Option<Item> {
        Some(match self.u8()? {
            0 => Item::Packet(self.packet()?),
            1 => {
                let post = self.bool()?;
                Item::Flow(post, self.flow()?)
            }
            2 => Item::Sequence(self.sequence()?),
            3 => {
                let sequence = self.u64()?;
                let stats = SelectionStats {
                    observed: self.u64()?,
                    selected: self.u64()?,
                };
                Item::Selection(sequence, stats)
            }
            4 => Item::Ignored(self.u64()?, self.u64()?),
            _ => return None,
        })
    }

    fn packet(&mut self) -> Option<PacketRecord> {
        Some(PacketRecord {
            point: self.u64()?,
            time: Utc(self.u64()?),
            source: self.address()?,
            destination: self.address()?,
            source_port: self.u16()?,
            destination_port: self.u16()?,
            tos: self.u8()?,
            direction: self.direction()?,
            selection: self.option()?,
            bth: Bth::parse(&self.take::<{ Bth::LEN }>()?)?,
        })
    }

    fn flow(&mut self) -> Option<FlowRecord> {
        let direction = self.direction()?;
        let key = FlowKey {
            source: self.address()?,
            destination: self.address()?,
            source_port: self.u16()?,
            destination_port: self.u16()?,
            pkey: self.u16()?,
            qp: Qpn::new(self.u32()?),
            opcode: self.option()?.map(|opcode| opcode as u8),
        };
        Some(FlowRecord {
            point: self.u64()?,
            direction,
            key,
            start: Utc(self.u64()?),
            end: Utc(self.u64()?),
            packets: self.u64()?,
            octets: self.u64()?,
        })
    }

    fn sequence(&mut self) -> Option<SequenceRecord> {
        let collector = self.u16()?;
        let (session, context) = (self.u32()?, self.u32()?);
        let (window, pending) = (self.u32()?, self.u32()?);
        let flags = Flags(self.u16()?);
        let key = ConnectionKey {
            source: self.address()?,
            destination: self.address()?,
            qp: Qpn::new(self.u32()?),
            pkey: self.u16()?,
            context: self.u64()?,
        };
        Some(SequenceRecord {
            point: self.u64()?,
            collector,
            session,
            context,
            epoch: self.u64()?,
            key,
            flags,
            window,
            start: Utc(self.u64()?),
            end: Utc(self.u64()?),
            counts: Counts {
                skipped: self.u64()?,
                filled: self.u64()?,
                expired: self.u64()?,
                abandoned: self.u64()?,
                pending,
                repeated: self.u64()?,
                requests: self.u64()?,
                unclassified_late: self.u64()?,
            },
        })
    }
}

impl Control {
    /// Octets of a message.
    pub const LEN: usize = 8;

    /// Its octets, to be handed over whole.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let (kind, collector, session) = match *self {
            Self::Begin(collector, session) => (0, collector, session),
            Self::End(collector) => (1, collector, 0),
        };
        let [c0, c1] = collector.to_le_bytes();
        let [s0, s1, s2, s3] = session.to_le_bytes();
        [FORMAT, kind, c0, c1, s0, s1, s2, s3]
    }

    /// A message from its octets.
    ///
    /// # Errors
    /// Another format, or none that we know.
    pub fn decode(octets: &[u8; Self::LEN]) -> Result<Self, BatchError> {
        let [format, kind, c0, c1, s0, s1, s2, s3] = *octets;
        let collector = u16::from_le_bytes([c0, c1]);
        match (format, kind) {
            (FORMAT, 0) => Ok(Self::Begin(collector, u32::from_le_bytes([s0, s1, s2, s3]))),
            (FORMAT, 1) => Ok(Self::End(collector)),
            (FORMAT, _) => Err(BatchError::Damaged),
            (other, _) => Err(BatchError::Format(other)),
        }
    }
}

#[cfg(test)]
mod tests;
