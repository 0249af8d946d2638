//! What the receiver function holds in memory ([`Memory`]).

use super::Crf;
use super::stream::Stream;
use super::track::{Job, Shared, Track};
use super::window::Window;
use crate::memory::{Memory, of_map, of_queue, of_vec};
use crate::packet::PktBuf;

impl<B: PktBuf> Crf<B> {
    /// Octets of memory held now. O(flows): for status and tests, not for every burst.
    pub fn memory(&self) -> Memory {
        let streams = self.table.iter().map(|(_, _, stream)| stream.octets());
        let flow_state: usize = streams.sum();
        let tables = self.table.octets()
            + of_map(&self.flows)
            + self.timers.octets()
            + of_vec(&self.touched)
            + of_vec(&self.due)
            + self.shared.octets();
        Memory {
            flows: self.table.len() as u64,
            flow_state: flow_state as u64,
            tables: tables as u64,
            packets: self.shared.store.pages.octets() as u64,
        }
    }
}

impl<B: Clone> Stream<B> {
    /// Octets of memory, its own box included.
    fn octets(&self) -> usize {
        size_of::<Self>()
            + of_vec(&self.offers)
            + self.bound.as_ref().map_or(0, |track| track.octets())
    }
}

impl<B: Clone> Track<B> {
    /// Octets of memory besides the flow itself, and besides the pages of its window.
    fn octets(&self) -> usize {
        let symbols = self.blocks.iter().map(|block| of_vec(&block.symbols));
        self.configs.octets()
            + self.window.as_ref().map_or(0, Window::octets)
            + self.history.octets()
            + self.passage.octets()
            + self.hold.octets()
            + self.gaps.octets()
            + of_vec(&self.blocks)
            + symbols.sum::<usize>()
            + self.tally.octets()
            + self.requests.octets()
            + self.barred.octets()
    }
}

impl<B> Shared<B> {
    fn octets(&self) -> usize {
        self.events.octets()
            + of_queue(&self.transmits)
            + self.jobs.capacity() * size_of::<Job>()
            + self.spare.octets()
            + of_vec(&self.pieces)
            + of_map(&self.peers)
            + self.reverse.octets()
    }
}
