//! Closed blocks, kept by reference to their frames until nobody can ask for them (AMB-KEEP). Bounded
//! in packets and octets over all flows and in packets per flow; the oldest block goes first. Which
//! blocks belong to which PSNs is the flow's knowledge.

use alloc::vec::Vec;
use crem_wire::{Bitmap, Psn, RequestId};

use super::params::Config;
use crate::actions::SourceRef;
use crate::config::CsfConfig;
use crate::memory::of_vec;
use crate::packet::Departed;
use crate::time::Instant;

const NONE: u32 = u32::MAX;
/// Emptied source lists kept for the next open blocks.
const SPARE_LISTS: usize = 4096;

/// Names a retained block; a name outlives its block and then finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BlockId {
    index: u32,
    generation: u32,
}

/// A closed block.
#[derive(Debug)]
pub(super) struct Block<B> {
    pub(super) owner: u32,
    pub(super) start: Psn,
    /// k of the closed block; `config.k` is the configured one.
    pub(super) k: u8,
    pub(super) config: Config,
    pub(super) present: Bitmap,
    /// Repair Indices sent with scheme 1.
    pub(super) used: Bitmap,
    pub(super) sources: Vec<SourceRef<B>>,
    pub(super) octets: u64,
    /// When its first packet came.
    pub(super) opened: Instant,
    pub(super) closed_at: Instant,
    /// The last request answered, and when.
    pub(super) answered: Option<(RequestId, Instant)>,
}

impl<B> Block<B> {
    /// Whether its packets were let go of because the host acknowledged them. What is left describes it.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.sources.is_empty()
    }

    /// Packets that it counts as: a description counts as one, so that these are bounded too.
    fn charge(&self) -> u32 {
        self.sources.len().max(1) as u32
    }
}

#[derive(Debug)]
struct Place<B> {
    generation: u32,
    newer: u32,
    older: u32,
    block: Option<Block<B>>,
}

/// The store of closed blocks, and the account of packets in open ones.
#[derive(Debug)]
pub(super) struct Retention<B> {
    places: Vec<Place<B>>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    /// Packets retained per owner, open blocks included.
    per_owner: Vec<u32>,
    packets: u32,
    octets: u64,
    limits: Limits,
    spare: Vec<Vec<SourceRef<B>>>,
    /// Frames that were let go of.
    pub(super) departed: Departed<B>,
    /// Blocks given up for room.
    pub(super) evicted: u64,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    packets: u32,
    per_owner: u32,
    octets: u64,
}

impl<B> Retention<B> {
    pub(super) fn new(config: &CsfConfig) -> Self {
        let mut store = Self {
            places: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            per_owner: Vec::new(),
            packets: 0,
            octets: 0,
            limits: Limits {
                packets: 0,
                per_owner: 0,
                octets: 0,
            },
            spare: Vec::new(),
            departed: Departed::new(),
            evicted: 0,
        };
        store.set_limits(config);
        store
    }

    pub(super) fn set_limits(&mut self, config: &CsfConfig) {
        self.limits = Limits {
            packets: config.retain_packets,
            per_owner: config.retain_packets_per_flow,
            octets: config.retain_octets,
        };
        self.make_room(0, 0);
    }

    /// Packets held, in open and closed blocks.
    pub(super) fn packets(&self) -> u32 {
        self.packets
    }

    /// Octets held, in open and closed blocks.
    pub(super) fn octets(&self) -> u64 {
        self.octets
    }

    /// Accounts one packet of an open block; `false` if even giving up closed blocks makes no room.
    pub(super) fn admit(&mut self, owner: u32, octets: u16) -> bool {
        if self.owner_at_limit(owner) || !self.make_room(1, u64::from(octets)) {
            return false;
        }
        self.packets += 1;
        self.octets += u64::from(octets);
        let owner = owner as usize;
        if self.per_owner.len() <= owner {
            self.per_owner.resize(owner + 1, 0);
        }
        self.per_owner[owner] += 1;
        true
    }

    /// Octets of memory for blocks and their lists of packets, in use or spare, open blocks not.
    pub(super) fn memory(&self) -> usize {
        let kept = self.places.iter().filter_map(|place| place.block.as_ref());
        let lists = kept.map(|block| &block.sources).chain(&self.spare);
        of_vec(&self.places)
            + of_vec(&self.free)
            + of_vec(&self.spare)
            + lists.map(of_vec).sum::<usize>()
    }

    /// Octets of memory by flow.
    pub(super) const fn table_octets(&self) -> usize {
        of_vec(&self.per_owner)
    }

    /// Packets of one owner.
    pub(super) fn owner_packets(&self, owner: u32) -> u32 {
        self.per_owner.get(owner as usize).copied().unwrap_or(0)
    }

    /// Whether the owner's share is used up.
    pub(super) fn owner_at_limit(&self, owner: u32) -> bool {
        self.owner_packets(owner) >= self.limits.per_owner
    }

    /// An empty list for the sources of an open block.
    pub(super) fn list(&mut self) -> Vec<SourceRef<B>> {
        self.spare.pop().unwrap_or_default()
    }

    /// Gives the packets of an open block back.
    pub(super) fn abandon(&mut self, owner: u32, sources: Vec<SourceRef<B>>) {
        let octets = sources.iter().map(|s| u64::from(s.len)).sum();
        let packets = sources.len() as u32;
        self.discharge(owner, sources, octets, packets);
    }

    /// Keeps a closed block, whose packets were admitted while it was open.
    pub(super) fn keep(&mut self, block: Block<B>) -> BlockId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place {
                generation: 0,
                newer: NONE,
                older: NONE,
                block: None,
            });
            self.places.len() as u32 - 1
        });
        let before = self.newest;
        let place = &mut self.places[index as usize];
        place.block = Some(block);
        place.newer = NONE;
        place.older = before;
        let generation = place.generation;
        if let Some(previous) = self.places.get_mut(before as usize) {
            previous.newer = index;
        } else {
            self.oldest = index;
        }
        self.newest = index;
        BlockId { index, generation }
    }

    pub(super) fn get(&self, id: BlockId) -> Option<&Block<B>> {
        let place = self.places.get(id.index as usize)?;
        if place.generation == id.generation {
            place.block.as_ref()
        } else {
            None
        }
    }

    pub(super) fn get_mut(&mut self, id: BlockId) -> Option<&mut Block<B>> {
        let place = self.places.get_mut(id.index as usize)?;
        if place.generation == id.generation {
            place.block.as_mut()
        } else {
            None
        }
    }

    /// Lets go of a block's packets but keeps its description; gives how many packets went.
    pub(super) fn let_go(&mut self, id: BlockId) -> u32 {
        let Some(block) = self.get_mut(id).filter(|block| !block.is_acknowledged()) else {
            return 0;
        };
        let owner = block.owner;
        let sources = core::mem::take(&mut block.sources);
        let octets = core::mem::take(&mut block.octets);
        let gone = sources.len() as u32;
        self.discharge(owner, sources, octets, gone - 1);
        gone
    }

    /// Gives up one block.
    pub(super) fn release(&mut self, id: BlockId) {
        if self.get(id).is_some() {
            self.release_at(id.index);
        }
    }

    /// Gives up the oldest blocks until `packets` packets are free that were not; returns how many.
    pub(super) fn give_up(&mut self, packets: u32) -> u32 {
        let mut freed = 0;
        while freed < packets {
            let oldest = self.places.get(self.oldest as usize);
            let Some(block) = oldest.and_then(|place| place.block.as_ref()) else {
                break;
            };
            freed += block.sources.len() as u32;
            self.evict_oldest();
        }
        freed
    }

    fn make_room(&mut self, packets: u32, octets: u64) -> bool {
        loop {
            let fits = self.packets.saturating_add(packets) <= self.limits.packets
                && self.octets.saturating_add(octets) <= self.limits.octets;
            if fits {
                return true;
            }
            if !self.evict_oldest() {
                return false;
            }
        }
    }

    fn evict_oldest(&mut self) -> bool {
        if self.oldest == NONE {
            return false;
        }
        self.evicted += 1;
        self.release_at(self.oldest);
        true
    }

    fn release_at(&mut self, index: u32) {
        let place = &mut self.places[index as usize];
        let (newer, older) = (place.newer, place.older);
        place.generation = place.generation.wrapping_add(1);
        let block = place.block.take();
        if let Some(place) = self.places.get_mut(newer as usize) {
            place.older = older;
        } else {
            self.newest = older;
        }
        if let Some(place) = self.places.get_mut(older as usize) {
            place.newer = newer;
        } else {
            self.oldest = newer;
        }
        self.free.push(index);
        if let Some(block) = block {
            let packets = block.charge();
            self.discharge(block.owner, block.sources, block.octets, packets);
        }
    }

    fn discharge(&mut self, owner: u32, mut sources: Vec<SourceRef<B>>, octets: u64, packets: u32) {
        self.packets = self.packets.saturating_sub(packets);
        self.octets = self.octets.saturating_sub(octets);
        if let Some(count) = self.per_owner.get_mut(owner as usize) {
            *count = count.saturating_sub(packets);
        }
        let departed = &mut self.departed;
        sources
            .drain(..)
            .for_each(|source| departed.add(source.buf));
        // What is left of an acknowledged block has no memory to reuse.
        if sources.capacity() > 0 && self.spare.len() < SPARE_LISTS {
            self.spare.push(sources);
        }
    }
}
