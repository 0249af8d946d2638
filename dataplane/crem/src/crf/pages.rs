//! The memory in which streams note their recent PSNs: pages of a few PSNs each, out of one pool that all
//! flows of a receiver function share, and the bound on the packets that are kept in them. Which PSNs a
//! page holds is its window's knowledge.
//!
//! The pool grows with use up to its bound and gives nothing back to the allocator, so that a packet costs
//! no allocation once it has its working size. A page that comes back is the first to be used again.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::budget::Budget;
use super::window::{Kept, Seen};
use crate::config::CrfConfig;
use crate::packet::Departed;
use crate::time::Instant;

/// PSNs of a page.
pub(crate) const PAGE: u32 = 16;
/// Pages that every flow of a full table can have at least: as many as a block of 32 and a burst touch.
const PAGES_PER_FLOW: u32 = 4;
/// Of the packets that may be kept there is a page for one in so many: where something is missing, few of
/// the packets around it are kept.
const PACKETS_PER_PAGE: u32 = 4;

/// What is known of one PSN.
#[derive(Clone, Debug)]
pub(crate) struct Cell<B> {
    pub(crate) kept: Option<Kept<B>>,
    /// Arrival, or when the gap was seen.
    pub(crate) at: Instant,
    pub(crate) seen: Seen,
    /// A missing position that has been counted as lost.
    pub(crate) counted: bool,
}

impl<B> Cell<B> {
    const BLANK: Self = Self {
        kept: None,
        at: Instant(0),
        seen: Seen::Nothing,
        counted: false,
    };

    /// Whether anything was noted.
    pub(crate) fn is_noted(&self) -> bool {
        self.seen != Seen::Nothing
    }
}

/// What is known of [`PAGE`] PSNs in a row.
pub(crate) type Page<B> = [Cell<B>; PAGE as usize];

/// The pool of pages.
#[derive(Debug)]
pub(crate) struct Pages<B> {
    spare: Vec<Box<Page<B>>>,
    /// Pages in windows.
    used: u32,
    bound: u32,
}

impl<B> Pages<B> {
    const fn new(bound: u32) -> Self {
        Self {
            spare: Vec::new(),
            used: 0,
            bound,
        }
    }

    /// A blank page; `None` if all are in use.
    pub(crate) fn take(&mut self) -> Option<Box<Page<B>>> {
        if self.used >= self.bound {
            return None;
        }
        self.used += 1;
        let blank = || Box::new([const { Cell::BLANK }; PAGE as usize]);
        Some(self.spare.pop().unwrap_or_else(blank))
    }

    /// Takes a page back, blank again.
    pub(crate) fn give_back(&mut self, mut page: Box<Page<B>>) {
        *page = [const { Cell::BLANK }; PAGE as usize];
        self.used = self.used.saturating_sub(1);
        self.spare.push(page);
    }

    /// Octets of all pages, in use or not.
    pub(crate) const fn octets(&self) -> usize {
        (self.used as usize + self.spare.len()) * size_of::<Page<B>>()
            + self.spare.capacity() * size_of::<Box<Page<B>>>()
    }
}

/// Where source packets and symbols are kept for decoding.
#[derive(Debug)]
pub(crate) struct Store<B> {
    /// Packets and octets that are kept.
    pub(crate) budget: Budget,
    pub(crate) pages: Pages<B>,
    /// Frames that were let go of.
    pub(crate) departed: Departed<B>,
}

impl<B> Store<B> {
    /// An empty store.
    pub(crate) fn new(config: &CrfConfig) -> Self {
        let mut store = Self {
            budget: Budget::new(0, 0),
            pages: Pages::new(0),
            departed: Departed::new(),
        };
        store.set_bounds(config);
        store
    }

    /// Changes the bounds; what is in use stays.
    pub(crate) fn set_bounds(&mut self, config: &CrfConfig) {
        let packets = config.keep_packets;
        self.budget
            .set_bounds(u64::from(packets), config.keep_octets);
        let flows = config.max_flows.saturating_mul(PAGES_PER_FLOW);
        self.pages.bound = flows.saturating_add(packets.div_ceil(PACKETS_PER_PAGE));
    }
}
