//! One deadline per slot, in a binary heap that knows where each slot stands. Bounded by the number of
//! slots; setting and clearing cost O(log n) and happen per event, not per packet: a flow whose
//! deadline moves back with every packet lets the old one fire and sets it anew.

use alloc::vec::Vec;

use crate::memory::of_vec;
use crate::time::Instant;

const ABSENT: u32 = u32::MAX;

/// Deadlines of numbered slots.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    heap: Vec<(Instant, u32)>,
    /// Place in `heap` per slot.
    place: Vec<u32>,
}

impl Timers {
    /// No deadline set; memory for `slots` slots is taken now.
    pub fn with_capacity(slots: usize) -> Self {
        Self {
            heap: Vec::with_capacity(slots),
            place: Vec::with_capacity(slots),
        }
    }

    /// Sets or moves the deadline of `slot`.
    pub fn set(&mut self, slot: u32, at: Instant) {
        let index = slot as usize;
        if self.place.len() <= index {
            self.place.resize(index + 1, ABSENT);
        }
        let here = self.place[index] as usize;
        if self.place[index] == ABSENT {
            self.heap.push((at, slot));
            self.place[index] = self.heap.len() as u32 - 1;
            self.sift_up(self.heap.len() - 1);
        } else {
            let earlier = (at, slot) < self.heap[here];
            self.heap[here].0 = at;
            if earlier {
                self.sift_up(here)
            } else {
                self.sift_down(here)
            }
        }
    }

    /// Sets the deadline of `slot` unless it has an earlier one.
    pub fn set_earlier(&mut self, slot: u32, at: Instant) {
        if self.get(slot).is_none_or(|current| at < current) {
            self.set(slot, at);
        }
    }

    /// The deadline of `slot`.
    pub fn get(&self, slot: u32) -> Option<Instant> {
        let here = *self.place.get(slot as usize)?;
        self.heap.get(here as usize).map(|entry| entry.0)
    }

    /// Clears the deadline of `slot`, if it has one.
    pub fn clear(&mut self, slot: u32) {
        let Some(&here) = self.place.get(slot as usize) else {
            return;
        };
        if here != ABSENT {
            self.remove_at(here as usize);
        }
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Instant> {
        self.heap.first().map(|entry| entry.0)
    }

    /// Takes out one slot whose deadline is not after `now`: earliest first, lower slot first.
    pub fn pop_due(&mut self, now: Instant) -> Option<u32> {
        let &(at, slot) = self.heap.first()?;
        if at > now {
            return None;
        }
        self.remove_at(0);
        Some(slot)
    }

    /// Slots with a deadline.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether no slot has a deadline.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Octets of memory.
    pub(crate) const fn octets(&self) -> usize {
        of_vec(&self.heap) + of_vec(&self.place)
    }

    fn remove_at(&mut self, here: usize) {
        let (_, slot) = self.heap.swap_remove(here);
        self.place[slot as usize] = ABSENT;
        if here < self.heap.len() {
            self.place[self.heap[here].1 as usize] = here as u32;
            self.sift_up(here);
            self.sift_down(here);
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.place[self.heap[a].1 as usize] = a as u32;
        self.place[self.heap[b].1 as usize] = b as u32;
    }

    fn sift_up(&mut self, mut here: usize) {
        while here > 0 {
            let parent = (here - 1) / 2;
            if self.heap[parent] <= self.heap[here] {
                return;
            }
            self.swap(here, parent);
            here = parent;
        }
    }

    fn sift_down(&mut self, mut here: usize) {
        loop {
            let left = 2 * here + 1;
            let Some(mut child) = (left < self.heap.len()).then_some(left) else {
                return;
            };
            if left + 1 < self.heap.len() && self.heap[left + 1] < self.heap[left] {
                child = left + 1;
            }
            if self.heap[here] <= self.heap[child] {
                return;
            }
            self.swap(here, child);
            here = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(ops in proptest::collection::vec((0u8..4, 0u32..20, 0u64..50), 1..300)) {
            let mut timers = Timers::default();
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            for (op, slot, at) in ops {
                match op {
                    0 => {
                        timers.set(slot, Instant(at));
                        model.insert(slot, at);
                    }
                    1 => {
                        timers.set_earlier(slot, Instant(at));
                        let old = model.get(&slot).copied().unwrap_or(u64::MAX);
                        model.insert(slot, at.min(old));
                    }
                    2 => {
                        timers.clear(slot);
                        model.remove(&slot);
                    }
                    _ => {
                        let due = model.iter().map(|(s, t)| (*t, *s)).min().filter(|d| d.0 <= at);
                        prop_assert_eq!(timers.pop_due(Instant(at)), due.map(|d| d.1));
                        if let Some((_, s)) = due {
                            model.remove(&s);
                        }
                    }
                }
                prop_assert_eq!(timers.next().map(|t| t.0), model.values().min().copied());
                prop_assert_eq!(timers.len(), model.len());
                prop_assert_eq!(timers.get(slot).map(|t| t.0), model.get(&slot).copied());
            }
        }
    }
}
