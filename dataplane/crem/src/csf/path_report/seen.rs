//! Which Hop Entries were taken already: the network, or a node that merges reports, may bring one twice
//! (AMB-PRDUP). Entries are compared for equality only, since node and period are opaque (AMB-NODEID).

use alloc::vec::Vec;
use crem_wire::crem::FlowDescriptor;

use crate::memory::of_vec;
use crate::table::{BoundedTable, Class};

/// Flows whose entries are remembered; the one without a report for the longest time is forgotten first.
const FLOWS: u32 = 1_024;
/// Entries remembered for a flow, the latest ones: four full reports.
const ENTRIES: usize = 64;

/// What makes a Hop Entry of a flow unique.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EntryKey {
    pub(super) node: u32,
    pub(super) method: u8,
    pub(super) period: u32,
}

/// The latest entries of one flow.
#[derive(Debug, Default)]
struct Latest {
    entries: Vec<EntryKey>,
    /// The oldest entry once there are [`ENTRIES`].
    oldest: usize,
}

/// The memory of entries taken.
#[derive(Debug)]
pub(super) struct Seen(BoundedTable<FlowDescriptor, Latest>);

impl Default for Seen {
    fn default() -> Self {
        Self(BoundedTable::new(FLOWS))
    }
}

impl Seen {
    /// Whether this entry was not taken before, as far as is remembered; remembers it.
    pub(super) fn is_news(&mut self, flow: FlowDescriptor, key: EntryKey) -> bool {
        self.latest(flow).is_none_or(|latest| latest.add(key))
    }

    /// Octets of memory.
    pub(super) fn octets(&self) -> usize {
        let entries = self.0.iter().map(|(_, _, latest)| of_vec(&latest.entries));
        self.0.octets() + entries.sum::<usize>()
    }

    fn latest(&mut self, flow: FlowDescriptor) -> Option<&mut Latest> {
        if self.0.slot(&flow).is_none() {
            if self.0.is_full() {
                let oldest = self.0.oldest(Class::Candidate)?;
                self.0.remove(oldest);
            }
            self.0.insert(flow, Latest::default()).ok()?;
        }
        let slot = self.0.slot(&flow)?;
        self.0.touch(slot);
        self.0.get_mut(slot)
    }
}

impl Latest {
    fn add(&mut self, key: EntryKey) -> bool {
        if self.entries.contains(&key) {
            return false;
        }
        if self.entries.len() < ENTRIES {
            self.entries.push(key);
            return true;
        }
        if let Some(place) = self.entries.get_mut(self.oldest) {
            *place = key;
        }
        self.oldest = (self.oldest + 1) % ENTRIES;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crem_wire::Qpn;

    fn flow(qp: u32) -> FlowDescriptor {
        FlowDescriptor {
            source: [10, 0, 1, 1].into(),
            destination: [10, 0, 2, 1].into(),
            qp: Qpn::new(qp),
        }
    }

    fn key(node: u32, method: u8, period: u32) -> EntryKey {
        EntryKey {
            node,
            method,
            period,
        }
    }

    // shows: AMB-PRDUP, AMB-NODEID
    #[test]
    fn each_part_of_the_key_tells_entries_apart() {
        let mut seen = Seen::default();
        assert!(seen.is_news(flow(1), key(1, 3, 7)));
        assert!(!seen.is_news(flow(1), key(1, 3, 7)));
        assert!(seen.is_news(flow(2), key(1, 3, 7)));
        assert!(seen.is_news(flow(1), key(2, 3, 7)));
        assert!(seen.is_news(flow(1), key(1, 1, 7)));
        // A node that started again counts from anywhere.
        assert!(seen.is_news(flow(1), key(1, 3, 6)));
        assert!(!seen.is_news(flow(1), key(1, 3, 7)));
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_is_forgotten() {
        let mut seen = Seen::default();
        for period in 0..ENTRIES as u32 {
            assert!(seen.is_news(flow(1), key(1, 3, period)));
        }
        assert!(!seen.is_news(flow(1), key(1, 3, 0)));
        assert!(seen.is_news(flow(1), key(1, 3, 1_000)));
        assert!(!seen.is_news(flow(1), key(1, 3, 1)), "only one went");
        assert!(seen.is_news(flow(1), key(1, 3, 0)), "the oldest went");
        for qp in 2..2 + FLOWS {
            assert!(seen.is_news(flow(qp), key(1, 3, 5)));
        }
        assert!(seen.is_news(flow(1), key(1, 3, 1_000)), "so did the flow");
        assert!(seen.0.len() <= FLOWS as usize);
    }
}
