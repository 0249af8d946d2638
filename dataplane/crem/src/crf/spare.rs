//! Memory that flows need only while something is missing. A flow takes it when a gap opens and puts it
//! back when nothing is missing any more, so that flows without losses, which are nearly all at any time,
//! hold none, and losses cost no allocation.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::block::Block;
use super::gaps::Gap;
use super::hold::Queues;
use crate::actions::SymbolRef;

/// Pieces of a kind that are kept; further ones go back to the allocator.
const SHELF: usize = 256;

/// Spare pieces of one kind, emptied.
#[derive(Debug)]
pub(crate) struct Shelf<T>(Vec<T>);

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Default> Shelf<T> {
    /// A piece from the shelf, or a new one.
    pub(crate) fn take(&mut self) -> T {
        self.0.pop().unwrap_or_default()
    }

    /// Puts an emptied piece on the shelf.
    pub(crate) fn put(&mut self, piece: T) {
        if self.0.len() < SHELF {
            self.0.push(piece);
        }
    }

    fn octets(&self, of: impl Fn(&T) -> usize) -> usize {
        self.0.capacity() * size_of::<T>() + self.0.iter().map(of).sum::<usize>()
    }
}

/// The shelves.
#[derive(Debug)]
pub(crate) struct Spare<B> {
    /// Lists of the symbols of blocks.
    pub(crate) symbols: Shelf<Vec<SymbolRef<B>>>,
    /// Lists of runs of missing PSNs.
    pub(crate) gaps: Shelf<VecDeque<Gap>>,
    /// Lists of open blocks.
    pub(crate) blocks: Shelf<Vec<Block<B>>>,
    /// Queues of held frames.
    pub(crate) holds: Shelf<Box<Queues<B>>>,
}

impl<B> Spare<B> {
    pub(crate) fn new() -> Self {
        Self {
            symbols: Shelf::default(),
            gaps: Shelf::default(),
            blocks: Shelf::default(),
            holds: Shelf::default(),
        }
    }

    /// Octets of all pieces on the shelves.
    pub(crate) fn octets(&self) -> usize {
        self.symbols
            .octets(|list| list.capacity() * size_of::<SymbolRef<B>>())
            + self.gaps.octets(|list| list.capacity() * size_of::<Gap>())
            + self
                .blocks
                .octets(|list| list.capacity() * size_of::<Block<B>>())
            + self.holds.octets(|queues| queues.octets())
    }
}
