//! How much memory a protocol function holds: what it has asked the allocator for, collection by
//! collection, in use or not. For bounds that are asserted and for operators; nothing is decided from it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hash::Hash;
use hashbrown::HashMap;

/// Octets of memory that a protocol function holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// Flows that these are for.
    pub flows: u64,
    /// What each flow has of its own, summed up: its state, and lists that grow with it.
    pub flow_state: u64,
    /// What all flows have together: tables, timers, queues of messages and events, spare lists.
    pub tables: u64,
    /// What stands for packets that are kept, held or noted. Bounded by the packet budget and not by the
    /// number of flows. The frames are the caller's and not counted.
    pub packets: u64,
}

impl Memory {
    /// State of a flow, its share of the tables included, packets not; zero without flows.
    pub const fn state_per_flow(&self) -> u64 {
        match (self.flow_state + self.tables).checked_div(self.flows) {
            Some(octets) => octets,
            None => 0,
        }
    }

    /// Everything.
    pub const fn total(&self) -> u64 {
        self.flow_state + self.tables + self.packets
    }
}

/// Adding to lists whose length is that of a table of flows: they grow by a quarter, so that they never have
/// memory for many more entries than there are.
pub(crate) trait Grow<T> {
    /// Adds an element.
    fn push_exactly(&mut self, value: T);
}

impl<T> Grow<T> for Vec<T> {
    fn push_exactly(&mut self, value: T) {
        if self.len() == self.capacity() {
            self.reserve_exact((self.len() / 4).max(4));
        }
        self.push(value);
    }
}

/// Octets of a vector's memory.
pub(crate) const fn of_vec<T>(vec: &Vec<T>) -> usize {
    vec.capacity() * size_of::<T>()
}

/// Octets of a queue's memory.
pub(crate) fn of_queue<T>(queue: &VecDeque<T>) -> usize {
    queue.capacity() * size_of::<T>()
}

/// Octets of a hash map's memory.
pub(crate) fn of_map<K: Eq + Hash, V>(map: &HashMap<K, V>) -> usize {
    map.allocation_size()
}
