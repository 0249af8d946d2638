//! What the sender function holds in memory ([`Memory`]).

use super::Csf;
use super::flow::{Binding, Flow, Shared};
use crate::memory::{Memory, of_map, of_queue, of_vec};
use crate::packet::PktBuf;

impl<B: PktBuf> Csf<B> {
    /// Octets of memory held now. O(flows): for status and tests, not for every burst.
    pub fn memory(&self) -> Memory {
        let flows = self.flows.iter().map(|(_, _, flow)| flow.octets());
        let flow_state: usize = flows.sum();
        let bindings = self
            .flows
            .iter()
            .filter_map(|(_, _, flow)| flow.binding.as_ref());
        let blocks: usize = bindings.map(|b| b.block_octets()).sum();
        let tables =
            self.flows.octets() + self.learn.octets() + self.datagrams.octets() + self.sh.octets();
        Memory {
            flows: self.flows.len() as u64,
            flow_state: flow_state as u64,
            tables: tables as u64,
            packets: (blocks + self.sh.retained.memory()) as u64,
        }
    }
}

impl<B> Flow<B> {
    /// Octets of memory, its own box included, the packets of its open block not.
    fn octets(&self) -> usize {
        let binding = self.binding.as_ref();
        let binding = binding.map_or(0, |b| size_of_val(&**b) + b.owed.octets());
        let hello = self.hello.as_ref().map_or(0, |hello| size_of_val(&**hello));
        size_of::<Self>() + binding + hello
    }
}

impl<B> Binding<B> {
    /// Octets of memory for the packets of the open block, and for finding closed ones: an entry for each
    /// that is kept.
    fn block_octets(&self) -> usize {
        let open = self.open.as_ref().map_or(0, |open| of_vec(&open.sources));
        open + of_queue(&self.closed)
    }
}

impl<B> Shared<B> {
    fn octets(&self) -> usize {
        self.peers.octets()
            + self.paths.octets()
            + of_map(&self.by_id)
            + of_map(&self.by_nonce)
            + of_map(&self.descriptors)
            + self.retained.table_octets()
            + self.begun.octets()
            + self.timers.octets()
            + self.events.octets()
            + of_queue(&self.outbox)
            + of_vec(&self.ranges)
            + self.path.octets()
    }
}
