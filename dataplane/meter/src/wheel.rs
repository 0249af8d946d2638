//! Deadlines of numbered slots in a timing wheel: setting and removing cost a few writes, and what is due
//! is found without a search. A deadline that moves back with every packet is not moved here; it fires
//! and is set anew.

use alloc::boxed::Box;
use alloc::vec;

use crate::Utc;

const NONE: u32 = u32::MAX;
const ABSENT: u16 = u16::MAX;
/// Places of the wheel.
const PLACES: usize = 512;

/// Deadlines, at most one per slot.
#[derive(Clone, Debug)]
pub(crate) struct Wheel {
    /// Nanoseconds of a place.
    tick: u64,
    /// The tick that is being worked off.
    current: u64,
    heads: Box<[u32; PLACES]>,
    occupied: [u64; PLACES / 64],
    links: Box<[Link]>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    next: u32,
    previous: u32,
    place: u16,
}

impl Wheel {
    /// No deadline; slots are `0 .. slots`. A deadline fires at most `tick_nanos` after its time.
    pub(crate) fn new(slots: u32, tick_nanos: u64) -> Self {
        let link = Link {
            next: NONE,
            previous: NONE,
            place: ABSENT,
        };
        Self {
            tick: tick_nanos.max(1),
            current: 0,
            heads: Box::new([NONE; PLACES]),
            occupied: [0; PLACES / 64],
            links: vec![link; slots as usize].into_boxed_slice(),
        }
    }

    /// Octets of memory that a wheel of so many slots holds.
    pub(crate) const fn memory(slots: u32) -> usize {
        size_of::<Link>() * slots as usize + PLACES * 4
    }

    /// Sets the deadline of a slot. One that is further away than the wheel reaches fires early: the
    /// caller looks at the time itself and sets it again.
    pub(crate) fn set(&mut self, slot: u32, at: Utc) {
        self.remove(slot);
        let last = self.current + PLACES as u64 - 1;
        let tick = (at.0 / self.tick + 1).clamp(self.current, last);
        let place = (tick % PLACES as u64) as usize;
        let head = self.heads[place];
        let Some(link) = self.links.get_mut(slot as usize) else {
            return;
        };
        *link = Link {
            next: head,
            previous: NONE,
            place: place as u16,
        };
        if let Some(next) = self.links.get_mut(head as usize) {
            next.previous = slot;
        }
        self.heads[place] = slot;
        self.occupied[place / 64] |= 1 << (place % 64);
    }

    /// Removes the deadline of a slot, if it has one.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Some(link) = self.links.get_mut(slot as usize) else {
            return;
        };
        let Link {
            next,
            previous,
            place,
        } = *link;
        if place == ABSENT {
            return;
        }
        link.place = ABSENT;
        if let Some(link) = self.links.get_mut(next as usize) {
            link.previous = previous;
        }
        let place = usize::from(place);
        match self.links.get_mut(previous as usize) {
            Some(link) => link.next = next,
            None => {
                self.heads[place] = next;
                if next == NONE {
                    self.occupied[place / 64] &= !(1 << (place % 64));
                }
            }
        }
    }

    /// Takes out one slot whose deadline has come, in the order of ticks.
    pub(crate) fn pop(&mut self, now: Utc) -> Option<u32> {
        let due = now.0 / self.tick;
        loop {
            let place = (self.current % PLACES as u64) as usize;
            let slot = self.heads[place];
            if slot != NONE && self.current <= due {
                self.remove(slot);
                return Some(slot);
            }
            if self.current >= due {
                return None;
            }
            self.current = self.next_occupied().map_or(due, |tick| tick.min(due));
        }
    }

    /// A slot whose deadline is among the next, without taking it out.
    pub(crate) fn earliest(&self) -> Option<u32> {
        let place = (self.current % PLACES as u64) as usize;
        let place = match self.heads[place] {
            NONE => (self.next_occupied()? % PLACES as u64) as usize,
            _ => place,
        };
        Some(self.heads[place])
    }

    /// When to look for due slots again.
    pub(crate) fn next(&self) -> Option<Utc> {
        let place = (self.current % PLACES as u64) as usize;
        let tick = match self.heads[place] {
            NONE => self.next_occupied()?,
            _ => self.current,
        };
        Some(Utc(tick.saturating_mul(self.tick)))
    }

    /// The next tick after the current one whose place has a slot.
    fn next_occupied(&self) -> Option<u64> {
        let from = self.current + 1;
        let start = (from % PLACES as u64) as usize;
        for step in 0..=PLACES / 64 {
            let word = (start / 64 + step) % (PLACES / 64);
            let mut bits = self.occupied[word];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            } else if step == PLACES / 64 {
                bits &= !(u64::MAX << (start % 64));
            }
            if bits != 0 {
                let place = word * 64 + bits.trailing_zeros() as usize;
                let ahead = (place + PLACES - start) % PLACES;
                return Some(from + ahead as u64);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_list(
            ops in proptest::collection::vec((0u8..3, 0u32..20, 0u64..3_000), 1..300),
        ) {
            let mut wheel = Wheel::new(20, 10);
            let mut model: Vec<Option<u64>> = vec![None; 20];
            let mut now = 1_000_000;
            for (op, slot, time) in ops {
                match op {
                    0 => {
                        wheel.set(slot, Utc(now + time));
                        model[slot as usize] = Some(now + time);
                    }
                    1 => {
                        wheel.remove(slot);
                        model[slot as usize] = None;
                    }
                    _ => {
                        now += time;
                        // The wheel starts at tick 0: the first call brings it here.
                        while let Some(slot) = wheel.pop(Utc(now)) {
                            let at = model[slot as usize].take();
                            prop_assert!(at.is_some());
                            if at.is_some_and(|at| at > now) {
                                // It was further away than the wheel reached.
                                wheel.set(slot, Utc(at.unwrap_or(0)));
                                model[slot as usize] = at;
                            }
                        }
                        for at in model.iter().flatten() {
                            prop_assert!(at + 10 > now, "{at} missed at {now}");
                        }
                        let next = model.iter().flatten().min().copied();
                        prop_assert_eq!(wheel.next().is_some(), next.is_some());
                        prop_assert_eq!(wheel.earliest().is_some(), next.is_some());
                        if let (Some(next), Some(wake)) = (next, wheel.next()) {
                            prop_assert!(wake.0 <= next + 10);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_slot_out_of_range_is_not_kept() {
        let mut wheel = Wheel::new(1, 1);
        wheel.set(1, Utc(5));
        wheel.remove(7);
        assert_eq!(wheel.pop(Utc(100)), None);
        assert_eq!(wheel.next(), None);
    }
}
