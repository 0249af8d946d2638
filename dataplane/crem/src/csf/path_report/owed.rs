//! Blocks of which nodes dropped packets, and how many symbols each still lacks. A ledger without side
//! effects; `extra.rs` acts on it.

use alloc::collections::VecDeque;
use crem_wire::{Bitmap, Psn};

use crate::memory::of_queue;
use crate::time::{Duration, Instant};

/// Blocks of a flow that are remembered; the oldest is given up first.
const BLOCKS: usize = 16;

/// A block with packets that a node dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwedBlock {
    /// Block Start PSN.
    pub(super) start: Psn,
    /// Positions that reports named.
    pub(super) dropped: Bitmap,
    /// When a report named one of them for the first time.
    since: Instant,
    /// Symbols are lacking, or the block is still open: something is to be done.
    pub(super) waits: bool,
}

impl OwedBlock {
    /// Whether a symbol comes no sooner any more than what the CRF asks for by itself: that takes about
    /// one round trip.
    pub(super) fn is_late(&self, now: Instant, srtt: Duration) -> bool {
        now.since(self.since) >= srtt
    }
}

/// The blocks of a flow with dropped packets, oldest first.
#[derive(Debug, Default)]
pub(in crate::csf) struct Owed {
    blocks: VecDeque<OwedBlock>,
}

impl Owed {
    /// Whether any block waits for symbols.
    pub(in crate::csf) fn waits(&self) -> bool {
        self.blocks.iter().any(|block| block.waits)
    }

    /// Octets of memory.
    pub(in crate::csf) fn octets(&self) -> usize {
        of_queue(&self.blocks)
    }

    /// Forgets everything.
    pub(in crate::csf) fn clear(&mut self) {
        self.blocks.clear();
    }

    /// Notes that a position of the block was dropped. Gives back the block that was given up for it, if
    /// that one still waited.
    pub(super) fn note(&mut self, start: Psn, position: u8, now: Instant) -> Option<OwedBlock> {
        if let Some(block) = self.blocks.iter_mut().find(|block| block.start == start) {
            block.waits |= !block.dropped.contains(position);
            block.dropped.insert(position);
            return None;
        }
        let full = self.blocks.len() >= BLOCKS;
        let oldest = full.then(|| self.blocks.pop_front()).flatten();
        let mut dropped = Bitmap::EMPTY;
        dropped.insert(position);
        self.blocks.push_back(OwedBlock {
            start,
            dropped,
            since: now,
            waits: true,
        });
        oldest.filter(|block| block.waits)
    }

    /// Calls `f` on every block that waits, oldest first, and forgets those for which it says so.
    pub(super) fn serve(&mut self, mut f: impl FnMut(&mut OwedBlock) -> Keep) {
        self.blocks
            .retain_mut(|block| !block.waits || f(block) == Keep::Yes);
    }
}

/// Whether a block stays in the ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keep {
    /// It may need more, now or after another report.
    Yes,
    /// It is done with.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn positions_of_a_block_add_up_and_a_repeated_one_does_not_wake_it() {
        let mut owed = Owed::default();
        owed.note(Psn::new(32), 3, Instant(0));
        owed.note(Psn::new(32), 5, Instant(9));
        owed.serve(|block| {
            assert_eq!(block.dropped.iter().collect::<Vec<_>>(), [3, 5]);
            assert!(
                block.is_late(Instant(10), Duration::from_nanos(10)),
                "since the first"
            );
            block.waits = false;
            Keep::Yes
        });
        assert!(!owed.waits());
        owed.note(Psn::new(32), 5, Instant(11));
        assert!(!owed.waits());
        owed.note(Psn::new(32), 6, Instant(12));
        assert!(owed.waits());
        owed.serve(|_| Keep::No);
        owed.serve(|_| unreachable!("forgotten"));
    }

    #[test]
    fn the_oldest_block_makes_room() {
        let mut owed = Owed::default();
        for n in 0..BLOCKS as u32 {
            assert!(owed.note(Psn::new(32 * n), 0, Instant(0)).is_none());
        }
        let lost = owed.note(Psn::new(9_000), 0, Instant(0));
        assert_eq!(lost.map(|block| block.start), Some(Psn::new(0)));
        owed.serve(|block| {
            block.waits = false;
            Keep::Yes
        });
        // One that lacks nothing goes without a word.
        assert!(owed.note(Psn::new(9_100), 0, Instant(0)).is_none());
        assert_eq!(owed.blocks.len(), BLOCKS);
    }
}
