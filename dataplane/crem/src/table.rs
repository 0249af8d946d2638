//! A bounded table: key to slot, slot to value, and per class the order of last use, so that at the
//! bound the caller can give up the least recently used entry of the class it values least.

use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::hash::Hash;
use core::ops::Range;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::memory::{Grow, of_vec};

const NONE: u32 = u32::MAX;

/// Which order of use an entry belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Given up first: merely observed.
    Candidate = 0,
    /// Given up last: in use.
    Pinned = 1,
}

#[derive(Clone, Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    class: Class,
    newer: u32,
    older: u32,
}

#[derive(Clone, Copy, Debug)]
struct Order {
    newest: u32,
    oldest: u32,
    len: u32,
}

/// A table of at most a fixed number of entries, addressed by key or by slot number.
#[derive(Clone, Debug)]
pub struct BoundedTable<K, V> {
    slots: Vec<Option<Entry<K, V>>>,
    free: Vec<u32>,
    /// Slots by the hash of their keys, which stand in `slots` only.
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    orders: [Order; 2],
    bound: u32,
}

impl<K: Copy + Eq + Hash, V> BoundedTable<K, V> {
    /// An empty table of at most `bound` entries. The memory of the entries grows with use up to the bound. The
    /// index and the list of free slots have theirs from the start: to make them anew, or to free the old ones among
    /// many other pieces of memory, takes milliseconds where entries are many.
    pub fn new(bound: u32) -> Self {
        let bound = bound.min(NONE - 1);
        Self {
            slots: Vec::new(),
            free: Vec::with_capacity(bound as usize),
            index: HashTable::with_capacity(bound as usize),
            hasher: DefaultHashBuilder::default(),
            orders: [Order {
                newest: NONE,
                oldest: NONE,
                len: 0,
            }; 2],
            bound,
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Number of entries of a class.
    pub fn class_len(&self, class: Class) -> usize {
        self.orders[class as usize].len as usize
    }

    /// Whether no further entry fits.
    pub fn is_full(&self) -> bool {
        self.index.len() >= self.bound as usize
    }

    /// The slot of a key.
    pub fn slot(&self, key: &K) -> Option<u32> {
        let is_it = |slot: &u32| self.key(*slot) == Some(key);
        self.index.find(self.hasher.hash_one(key), is_it).copied()
    }

    /// The key in a slot.
    pub fn key(&self, slot: u32) -> Option<&K> {
        self.entry(slot).map(|entry| &entry.key)
    }

    /// The value in a slot.
    pub fn get(&self, slot: u32) -> Option<&V> {
        self.entry(slot).map(|entry| &entry.value)
    }

    /// The value in a slot.
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut V> {
        self.slots
            .get_mut(slot as usize)?
            .as_mut()
            .map(|entry| &mut entry.value)
    }

    /// Adds a candidate, newest in its order. Gives the value back if the table is full or has the
    /// key.
    pub fn insert(&mut self, key: K, value: V) -> Result<u32, V> {
        if self.is_full() || self.slot(&key).is_some() {
            return Err(value);
        }
        let entry = Entry {
            key,
            value,
            class: Class::Candidate,
            newer: NONE,
            older: NONE,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(entry);
                slot
            }
            None => {
                self.slots.push_exactly(Some(entry));
                self.slots.len() as u32 - 1
            }
        };
        let (slots, hasher) = (&self.slots, &self.hasher);
        let hash_of = |slot: &u32| {
            let entry = slots.get(*slot as usize).and_then(Option::as_ref);
            entry.map_or(0, |entry| hasher.hash_one(entry.key))
        };
        self.index
            .insert_unique(hasher.hash_one(key), slot, hash_of);
        self.link(slot, Class::Candidate);
        Ok(slot)
    }

    /// Removes an entry.
    pub fn remove(&mut self, slot: u32) -> Option<(K, V)> {
        self.entry(slot)?;
        self.unlink(slot);
        let entry = self.slots.get_mut(slot as usize)?.take()?;
        let hash = self.hasher.hash_one(entry.key);
        if let Ok(found) = self.index.find_entry(hash, |s| *s == slot) {
            found.remove();
        }
        self.free.push(slot);
        Some((entry.key, entry.value))
    }

    /// Marks an entry as just used.
    pub fn touch(&mut self, slot: u32) {
        let Some(class) = self.entry(slot).map(|entry| entry.class) else {
            return;
        };
        if self.orders[class as usize].newest != slot {
            self.unlink(slot);
            self.link(slot, class);
        }
    }

    /// Moves an entry to another class, as its newest.
    pub fn set_class(&mut self, slot: u32, class: Class) {
        if self.entry(slot).is_some_and(|entry| entry.class != class) {
            self.unlink(slot);
            self.link(slot, class);
        }
    }

    /// The least recently used entry of a class.
    pub fn oldest(&self, class: Class) -> Option<u32> {
        let slot = self.orders[class as usize].oldest;
        (slot != NONE).then_some(slot)
    }

    /// All entries in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &K, &V)> {
        self.slots
            .iter()
            .zip(0u32..)
            .filter_map(|(entry, slot)| entry.as_ref().map(|e| (slot, &e.key, &e.value)))
    }

    /// The entries in some slots, in slot order.
    pub fn iter_in(&self, slots: Range<u32>) -> impl Iterator<Item = (u32, &K, &V)> {
        let end = slots.end.min(self.slots());
        (slots.start.min(end)..end).filter_map(|slot| {
            let entry = self.entry(slot)?;
            Some((slot, &entry.key, &entry.value))
        })
    }

    /// One past the highest slot ever used: for walking the table while changing it.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Octets of memory that the entries take, with those of the values but not what these refer to: of what is
    /// there for all entries that fit, the share of those that are in it.
    pub(crate) fn octets(&self) -> usize {
        let for_all = of_vec(&self.free) + self.index.allocation_size();
        let share = for_all * self.len() / self.index.capacity().max(1);
        of_vec(&self.slots) + share
    }

    fn entry(&self, slot: u32) -> Option<&Entry<K, V>> {
        self.slots.get(slot as usize)?.as_ref()
    }

    fn links(&mut self, slot: u32) -> Option<&mut Entry<K, V>> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    fn link(&mut self, slot: u32, class: Class) {
        let before = self.orders[class as usize].newest;
        if let Some(entry) = self.links(slot) {
            entry.class = class;
            entry.newer = NONE;
            entry.older = before;
        }
        if let Some(previous) = self.links(before) {
            previous.newer = slot;
        }
        let order = &mut self.orders[class as usize];
        order.newest = slot;
        order.len += 1;
        if order.oldest == NONE {
            order.oldest = slot;
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Some((class, newer, older)) = self.entry(slot).map(|e| (e.class, e.newer, e.older))
        else {
            return;
        };
        if let Some(entry) = self.links(newer) {
            entry.older = older;
        }
        if let Some(entry) = self.links(older) {
            entry.newer = newer;
        }
        let order = &mut self.orders[class as usize];
        order.len -= 1;
        if order.newest == slot {
            order.newest = older;
        }
        if order.oldest == slot {
            order.oldest = newer;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_list(ops in proptest::collection::vec((0u8..4, 0u16..12), 1..300)) {
            let mut table: BoundedTable<u16, u16> = BoundedTable::new(8);
            // Newest first, one list per class.
            let mut model: [Vec<u16>; 2] = [Vec::new(), Vec::new()];
            for (op, key) in ops {
                let at = [0, 1].into_iter().find(|&c| model[c].contains(&key));
                let slot = table.slot(&key);
                prop_assert_eq!(slot.is_some(), at.is_some());
                match (op, at, slot) {
                    (0, None, _) => {
                        let fits = model[0].len() + model[1].len() < 8;
                        prop_assert_eq!(table.insert(key, key).is_ok(), fits);
                        if fits { model[0].insert(0, key); }
                    }
                    (0, Some(_), _) => prop_assert_eq!(table.insert(key, key), Err(key)),
                    (1, Some(c), Some(slot)) => {
                        prop_assert_eq!(table.remove(slot), Some((key, key)));
                        model[c].retain(|k| *k != key);
                    }
                    (2, Some(c), Some(slot)) => {
                        table.touch(slot);
                        model[c].retain(|k| *k != key);
                        model[c].insert(0, key);
                    }
                    (3, Some(0), Some(slot)) => {
                        table.set_class(slot, Class::Pinned);
                        model[0].retain(|k| *k != key);
                        model[1].insert(0, key);
                    }
                    _ => {}
                }
                for class in [Class::Candidate, Class::Pinned] {
                    let list = &model[class as usize];
                    let oldest = table.oldest(class).and_then(|s| table.key(s).copied());
                    prop_assert_eq!(oldest, list.last().copied());
                    prop_assert_eq!(table.class_len(class), list.len());
                }
            }
        }
    }
}
