//! Lists of flows as plain values, some flows a turn: thousands at once would keep a worker from its ports for
//! longer than their rings last. What a list shows of a flow is from the turn in which the list came by it.

use core::ops::Range;

use crem_api::protocol::MAX_FLOWS;

use crate::buffer::Platform;
use crate::segment::Segment;
use crate::snapshot::FlowSnapshot;

/// Slots of a table that a list comes by in a turn: a flow takes half a microsecond, most of it waiting for
/// memory, so this is less than a burst with coding takes.
const SLOTS: u32 = 32;

/// The tables of a segment in the order in which they are listed.
const TABLES: [Table; 4] = [
    Table::Sending,
    Table::Restoring,
    Table::Datagrams,
    Table::Watched,
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Table {
    Sending,
    Restoring,
    Datagrams,
    Watched,
}

/// A list of the flows of all segments of a worker that is being made.
#[derive(Debug, Default)]
pub struct Listing {
    flows: Vec<(usize, FlowSnapshot)>,
    /// Flows beyond those that a list may have.
    left_out: u64,
    segment: usize,
    table: usize,
    slot: u32,
    /// Flows of this table that were listed.
    listed: usize,
}

impl Listing {
    /// An empty list. Its memory is taken page by page as it fills.
    pub fn new() -> Self {
        Self {
            flows: Vec::with_capacity(MAX_FLOWS),
            ..Self::default()
        }
    }

    /// The segment that is to go on with it.
    pub fn segment(&self) -> usize {
        self.segment
    }

    /// The flows with their segments, and how many were left out.
    pub fn into_flows(self) -> (Vec<(usize, FlowSnapshot)>, u64) {
        (self.flows, self.left_out)
    }

    /// The slots that come now, and the table that they are of. Moves on first: should looking at a flow go
    /// wrong, that is not done again.
    fn take(&mut self) -> Option<(Table, Range<u32>)> {
        let table = *TABLES.get(self.table)?;
        let slots = self.slot..self.slot.saturating_add(SLOTS);
        self.slot = slots.end;
        Some((table, slots))
    }

    /// Goes on to the next table: this one has no further slots, or the list is full and `all` flows are in
    /// the table.
    fn end_table(&mut self, all: usize) {
        self.left_out += all.saturating_sub(self.listed) as u64;
        (self.slot, self.listed) = (0, 0);
        self.table += 1;
        if self.table >= TABLES.len() {
            self.table = 0;
            self.segment += 1;
        }
    }

    fn extend(&mut self, flows: impl Iterator<Item = FlowSnapshot>) {
        let before = self.flows.len();
        let room = MAX_FLOWS.saturating_sub(before);
        let segment = self.segment;
        self.flows
            .extend(flows.take(room).map(|flow| (segment, flow)));
        self.listed += self.flows.len() - before;
    }
}

impl<P: Platform> Segment<P> {
    /// Adds the next flows of this segment to a list of which it is the turn; after its last ones it is the next
    /// segment's.
    pub fn list_on(&self, listing: &mut Listing) {
        let Some((table, slots)) = listing.take() else {
            return;
        };
        let end = slots.end;
        let (csf, crf) = match &self.protection {
            Some(protection) => (Some(&protection.csf), Some(&protection.crf)),
            None => (None, None),
        };
        let (last, all) = match table {
            Table::Sending => {
                let flows = csf.into_iter().flat_map(|csf| csf.flows_in(slots.clone()));
                listing.extend(flows.map(FlowSnapshot::Sender));
                csf.map_or((0, 0), |csf| (csf.slots(), csf.len()))
            }
            Table::Restoring => {
                let flows = crf.into_iter().flat_map(|crf| crf.flows_in(slots.clone()));
                listing.extend(flows.map(FlowSnapshot::Receiver));
                crf.map_or((0, 0), |crf| (crf.slots(), crf.len()))
            }
            // Few at most.
            Table::Datagrams => {
                let datagrams = csf.into_iter().flat_map(|csf| csf.datagrams());
                listing.extend(datagrams.map(FlowSnapshot::Datagrams));
                (0, csf.map_or(0, |csf| csf.datagrams().count()))
            }
            Table::Watched => {
                let monitor = self.watch.as_ref().map(|watch| &watch.monitor);
                let flows = { monitor.into_iter() }.flat_map(|m| m.flows_in(slots.clone()));
                listing.extend(flows.map(FlowSnapshot::Watched));
                monitor.map_or((0, 0), |m| (m.slots(), m.len()))
            }
        };
        if end >= last || listing.flows.len() >= MAX_FLOWS {
            listing.end_table(all);
        }
    }

    /// Appends all flows to a list at once; gives how many were left out. For where nothing waits for the worker.
    pub fn list_flows(&self, number: usize, to: &mut Vec<(usize, FlowSnapshot)>) -> u64 {
        let mut listing = Listing {
            segment: number,
            flows: core::mem::take(to),
            ..Listing::default()
        };
        while listing.segment == number {
            self.list_on(&mut listing);
        }
        *to = listing.flows;
        listing.left_out
    }
}
