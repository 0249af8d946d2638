//! Whose a Flow ID is: the peer that assigned it names it in every message, and its messages may come in
//! at any worker. Every worker enters its own and reads all; nobody waits.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use crem_wire::FlowId;

use super::{mix, word};

/// Entries of a bucket, one cache line of them.
const WAYS: usize = 8;
/// Bits of an entry that are the owner, plus one; the rest is of the hash.
const OWNER_BITS: u32 = 16;
const OWNER: u64 = (1 << OWNER_BITS) - 1;

type Bucket = [AtomicU64; WAYS];

/// The table of a segment. A pair of peer and Flow ID has its place by a hash of 64 bits, of which all
/// but the lowest are compared: that two pairs in use look alike happens once in billions of tables.
#[derive(Debug)]
pub struct Directory {
    buckets: Vec<Bucket>,
    seed: u64,
    unplaced: AtomicU64,
}

impl Directory {
    /// A table for `flows` flows: with one bucket of eight for each, the chance that one finds its bucket
    /// full is one in a million.
    pub fn new(flows: u32, seed: u64) -> Self {
        let count = usize::try_from(flows.max(1))
            .unwrap_or(1)
            .next_power_of_two();
        Self {
            buckets: (0..count).map(|_| Bucket::default()).collect(),
            seed: mix(seed, 0x0d1e),
            unplaced: AtomicU64::new(0),
        }
    }

    /// Octets of memory.
    pub fn octets(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    /// Flow IDs that found no place; messages about them reach their owner only by chance.
    pub fn unplaced(&self) -> u64 {
        self.unplaced.load(Ordering::Relaxed)
    }

    /// The bucket, and the part of the hash that an entry shows.
    fn place(&self, peer: SocketAddr, id: FlowId) -> (Option<&Bucket>, u64) {
        let who = (u64::from(peer.port()) << 32) | u64::from(id.get());
        let hash = mix(mix(self.seed, word(peer.ip())), who);
        let index = usize::try_from(hash >> OWNER_BITS).unwrap_or(0) & (self.buckets.len() - 1);
        (self.buckets.get(index), hash & !OWNER)
    }

    /// A Flow ID of this peer is `owner`'s.
    pub fn enter(&self, peer: SocketAddr, id: FlowId, owner: u16) {
        let (Some(bucket), shown) = self.place(peer, id) else {
            return;
        };
        let entry = shown | (u64::from(owner) + 1);
        let shows = |e: u64| e != 0 && e & !OWNER == shown;
        let known = bucket.iter().any(|p| shows(p.load(Ordering::Acquire)));
        for place in bucket {
            let found = place.load(Ordering::Acquire);
            let fits = if known { shows(found) } else { found == 0 };
            let swap = || place.compare_exchange(found, entry, Ordering::AcqRel, Ordering::Relaxed);
            if fits && swap().is_ok() {
                return;
            }
        }
        self.unplaced.fetch_add(1, Ordering::Relaxed);
    }

    /// It is not any more.
    pub fn leave(&self, peer: SocketAddr, id: FlowId, owner: u16) {
        let (Some(bucket), shown) = self.place(peer, id) else {
            return;
        };
        let entry = shown | (u64::from(owner) + 1);
        for place in bucket {
            // Another worker may have it by now: then it stays.
            let _ = place.compare_exchange(entry, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// None of `owner`'s is its any more.
    pub fn leave_all(&self, owner: u16) {
        for place in self.buckets.iter().flatten() {
            let found = place.load(Ordering::Acquire);
            if found & OWNER == u64::from(owner) + 1 {
                let _ = place.compare_exchange(found, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// Whose it is, if anybody's.
    pub fn find(&self, peer: SocketAddr, id: FlowId) -> Option<u16> {
        let (bucket, shown) = self.place(peer, id);
        let entries = bucket?.iter().map(|place| place.load(Ordering::Acquire));
        let owner = { entries }.find(|e| *e != 0 && e & !OWNER == shown)? & OWNER;
        u16::try_from(owner - 1).ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn peer(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 4801))
    }

    fn id(number: u32) -> FlowId {
        FlowId::new(number).unwrap()
    }

    #[test]
    fn what_was_entered_is_found_until_it_leaves() {
        let table = Directory::new(1000, 7);
        for n in 1..=1000 {
            table.enter(peer(1), id(n), u16::try_from(n % 64).unwrap());
        }
        assert_eq!(table.unplaced(), 0);
        for n in 1..=1000 {
            assert_eq!(
                table.find(peer(1), id(n)),
                Some(u16::try_from(n % 64).unwrap())
            );
            assert_eq!(table.find(peer(2), id(n)), None);
        }
        // Only its owner takes it out, and entering again moves it.
        table.leave(peer(1), id(5), 6);
        assert_eq!(table.find(peer(1), id(5)), Some(5));
        table.enter(peer(1), id(5), 9);
        assert_eq!(table.find(peer(1), id(5)), Some(9));
        table.leave(peer(1), id(5), 9);
        assert_eq!(table.find(peer(1), id(5)), None);
        table.leave_all(7);
        assert_eq!(table.find(peer(1), id(7)), None);
        assert_eq!(table.find(peer(1), id(8)), Some(8));
    }

    #[test]
    fn what_finds_no_place_is_counted() {
        let table = Directory::new(1, 7);
        for n in 1..=20 {
            table.enter(peer(1), id(n), 0);
        }
        assert_eq!(table.unplaced(), 12);
        assert_eq!(
            (1..=20)
                .filter(|n| table.find(peer(1), id(*n)).is_some())
                .count(),
            8
        );
    }
}
