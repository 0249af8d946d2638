//! Missing PSNs of a stream that no REPAIR has named yet: runs of them, in serial order, each with
//! where its recovery stands. What to do about a gap is decided elsewhere.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use crem_wire::{Psn, RequestId};

use super::phase::Phase;
use super::spare::Shelf;
use crate::time::Instant;

/// A run of missing PSNs whose block is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gap {
    /// First missing PSN.
    pub(crate) start: Psn,
    /// Number of PSNs, at least 1.
    pub(crate) count: u32,
    /// When the first packet beyond it arrived.
    pub(crate) seen: Instant,
    /// Where its recovery stands.
    pub(crate) phase: Phase,
    /// When to act next; `None` until its block must have ended (AMB-RANGEWAIT).
    pub(crate) due: Option<Instant>,
    /// The request that is out for it.
    pub(crate) request: Option<RequestId>,
}

impl Gap {
    /// One beyond the last missing PSN.
    pub(crate) const fn end(&self) -> Psn {
        self.start.add(self.count as i32)
    }
}

/// The gaps of a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps {
    runs: VecDeque<Gap>,
    /// No run is due before this.
    due: Option<Instant>,
}

impl Gaps {
    /// The runs in serial order.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Gap> {
        self.runs.iter()
    }

    /// A time before which no run is due; it may be too early until [`Gaps::due_at`] looks. O(1).
    pub(crate) const fn next_due(&self) -> Option<Instant> {
        self.due
    }

    /// Puts the runs that are due at `now` into `due`. O(runs).
    pub(crate) fn due_at(&mut self, now: Instant, due: &mut Vec<Gap>) {
        self.due = None;
        for gap in &self.runs {
            match gap.due {
                Some(at) if at <= now => due.push(*gap),
                Some(at) => self.due = earliest(self.due, Some(at)),
                None => {}
            }
        }
    }

    /// Gives runs without a due time one, if `ripe` says so; whether any is left without.
    pub(crate) fn ripen(&mut self, due: Instant, ripe: impl Fn(&Gap) -> bool) -> bool {
        let mut left = false;
        // Runs ripen in order, but one that was put back may stand between them.
        for gap in self.runs.iter_mut().rev().filter(|gap| gap.due.is_none()) {
            if ripe(gap) {
                gap.due = Some(due);
                self.due = earliest(self.due, gap.due);
            } else {
                left = true;
            }
        }
        left
    }

    /// Changes the run that starts at `start`. O(log runs).
    pub(crate) fn change(&mut self, start: Psn, change: impl FnOnce(&mut Gap)) {
        let place = self.runs.partition_point(|g| start.is_after(g.start));
        if let Some(gap) = self.runs.get_mut(place).filter(|g| g.start == start) {
            change(gap);
            self.due = earliest(self.due, gap.due);
        }
    }

    /// Number of runs.
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there is no gap.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The first missing PSN.
    pub(crate) fn first(&self) -> Option<Psn> {
        self.runs.front().map(|gap| gap.start)
    }

    /// The first run that ends after `psn`.
    pub(crate) fn from(&self, psn: Psn) -> Option<&Gap> {
        let place = self
            .runs
            .partition_point(|gap| gap.end().distance_from(psn) <= 0);
        self.runs.get(place)
    }

    /// Adds a run that overlaps no other. O(1) behind the last one.
    pub(crate) fn add(&mut self, gap: Gap, spare: &mut Shelf<VecDeque<Gap>>) {
        if self.runs.capacity() == 0 {
            self.runs = spare.take();
        }
        self.due = earliest(self.due, gap.due);
        let in_order = self
            .runs
            .back()
            .is_none_or(|last| gap.start.is_after(last.start));
        if in_order {
            self.runs.push_back(gap);
        } else {
            let place = self.runs.partition_point(|g| gap.start.is_after(g.start));
            self.runs.insert(place, gap);
        }
    }

    /// Puts its memory back if there is no gap.
    pub(crate) fn rest(&mut self, spare: &mut Shelf<VecDeque<Gap>>) {
        if self.runs.is_empty() && self.runs.capacity() > 0 {
            spare.put(core::mem::take(&mut self.runs));
        }
    }

    /// Forgets all runs.
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.due = None;
    }

    /// Octets of memory.
    pub(crate) fn octets(&self) -> usize {
        self.runs.capacity() * size_of::<Gap>()
    }

    /// Takes the first run out.
    pub(crate) fn pop_first(&mut self) -> Option<Gap> {
        self.runs.pop_front()
    }

    /// Takes out what overlaps `count` PSNs from `start`, splitting runs; `taken` gets each piece.
    pub(crate) fn take(&mut self, start: Psn, count: u32, mut taken: impl FnMut(Gap)) {
        let end = start.add(count as i32);
        let mut place = self
            .runs
            .partition_point(|gap| gap.end().distance_from(start) <= 0);
        while let Some(gap) = self.runs.get(place).copied() {
            if gap.start.distance_from(end) >= 0 {
                return;
            }
            self.runs.remove(place);
            let head = start.distance_from(gap.start).max(0) as u32;
            let tail = gap.end().distance_from(end).max(0) as u32;
            if head > 0 {
                let piece = Gap { count: head, ..gap };
                self.runs.insert(place, piece);
                place += 1;
            }
            taken(Gap {
                start: gap.start.add(head as i32),
                count: gap.count - head - tail,
                ..gap
            });
            if tail > 0 {
                let piece = Gap {
                    start: end,
                    count: tail,
                    ..gap
                };
                self.runs.insert(place, piece);
                return;
            }
        }
    }
}

/// The earlier of two times, if there is one.
pub(crate) fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    fn run(start: u32, count: u32) -> Gap {
        Gap {
            start: Psn::new(start),
            count,
            seen: Instant(u64::from(start)),
            phase: Phase::Watching,
            due: None,
            request: None,
        }
    }

    #[test]
    fn takes_a_middle_and_over_several_runs() {
        let mut gaps = Gaps::default();
        for (start, count) in [(0xff_fffe, 5), (10, 2), (20, 4)] {
            gaps.add(run(start, count), &mut Shelf::default());
        }
        let mut out = Vec::new();
        gaps.take(Psn::new(0), 1, |g| out.push((g.start.get(), g.count)));
        assert_eq!(out, [(0, 1)]);
        out.clear();
        gaps.take(Psn::new(2), 20, |g| out.push((g.start.get(), g.count)));
        assert_eq!(out, [(2, 1), (10, 2), (20, 2)]);
        assert_eq!(gaps.from(Psn::new(2)).map(|g| g.start.get()), Some(22));
        assert_eq!(gaps.from(Psn::new(1)).map(|g| g.start.get()), Some(1));
        assert!(gaps.from(Psn::new(24)).is_none());
        let left: Vec<_> = gaps.iter().map(|g| (g.start.get(), g.count)).collect();
        assert_eq!(left, [(0xff_fffe, 2), (1, 1), (22, 2)]);
    }

    #[test]
    fn due_times_are_found() {
        let mut gaps = Gaps::default();
        for start in [10, 20, 30] {
            gaps.add(run(start, 2), &mut Shelf::default());
        }
        assert_eq!(gaps.next_due(), None);
        assert!(gaps.ripen(Instant(5), |gap| gap.start != Psn::new(30)));
        assert_eq!(gaps.next_due(), Some(Instant(5)));
        gaps.change(Psn::new(10), |gap| gap.due = Some(Instant(9)));
        let mut due = Vec::new();
        gaps.due_at(Instant(5), &mut due);
        assert_eq!(due.iter().map(|g| g.start.get()).collect::<Vec<_>>(), [20]);
        assert_eq!(gaps.next_due(), Some(Instant(9)));
        assert!(!gaps.ripen(Instant(7), |_| true));
        assert_eq!(gaps.next_due(), Some(Instant(7)));
    }

    proptest! {
        #[test]
        fn agrees_with_a_set(
            runs in proptest::collection::vec((1u32..6, 1u32..6), 1..20),
            takes in proptest::collection::vec((0u32..150, 1u32..30), 0..40),
        ) {
            let base = 0xff_ffc0u32;
            let (mut gaps, mut model, mut at) = (Gaps::default(), BTreeSet::new(), 0);
            for (skip, count) in runs {
                at += skip;
                gaps.add(run(base + at, count), &mut Shelf::default());
                model.extend(at..at + count);
                at += count;
            }
            for (start, count) in takes {
                let mut taken = Vec::new();
                gaps.take(Psn::new(base + start), count, |g| {
                    for n in 0..g.count {
                        taken.push(g.start.add(n as i32).distance_from(Psn::new(base)) as u32);
                    }
                });
                let expected: Vec<u32> = model.range(start..start + count).copied().collect();
                prop_assert_eq!(&taken, &expected);
                model.retain(|n| !expected.contains(n));
                let rest: Vec<u32> = gaps.iter().flat_map(|g| {
                    let from = g.start.distance_from(Psn::new(base)) as u32;
                    from..from + g.count
                }).collect();
                prop_assert_eq!(rest, model.iter().copied().collect::<Vec<_>>());
            }
        }
    }
}
