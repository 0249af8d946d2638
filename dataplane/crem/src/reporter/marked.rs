//! Marking periods of a flow that are still to be told (method 1), one Hop Entry each.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use crem_wire::crem::HopEntry;
use crem_wire::crem::registry::{LossCause, MAX_HOPS};

use super::altmark::PeriodLoss;
use crate::time::Duration;

/// What is still to be told of one flow.
#[derive(Debug, Default)]
pub(super) struct Marked {
    entries: VecDeque<HopEntry>,
    /// Changes of the delay too small to be told by themselves, microseconds.
    small_changes: i32,
}

/// What became of a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Added {
    /// Nothing to tell.
    Nothing,
    /// It is to be told.
    Entry,
    /// It is to be told, and an older one was added to the next for want of room.
    Folded,
}

impl Marked {
    /// Takes the result of a period. A loss is told, and so is a delay that changed by `step` or more since
    /// it was told last. The cause is unknown: marks do not show it.
    pub(super) fn add(&mut self, node: u32, period: &PeriodLoss, step: Duration) -> Added {
        let change = self.small_changes.saturating_add(period.delay_change_us);
        let grown = Duration::from_micros(change.unsigned_abs().into());
        if period.lost == 0 && (change == 0 || grown < step) {
            self.small_changes = change;
            return Added::Nothing;
        }
        self.small_changes = 0;
        self.entries.push_back(HopEntry {
            node,
            period: period.period,
            lost: period.lost,
            queue_delay_change_us: change,
            cause: LossCause::Unknown.code(),
            dropped: Vec::new(),
        });
        if self.entries.len() > MAX_HOPS {
            self.fold();
            return Added::Folded;
        }
        Added::Entry
    }

    /// Adds the oldest entry to the next one: suppressed losses are told with the next report (AMB-PRRATE).
    fn fold(&mut self) {
        let Some(oldest) = self.entries.pop_front() else {
            return;
        };
        if let Some(next) = self.entries.front_mut() {
            next.lost = next.lost.saturating_add(oldest.lost);
            let change = next.queue_delay_change_us;
            next.queue_delay_change_us = change.saturating_add(oldest.queue_delay_change_us);
        }
    }

    /// Losses that are still to be told.
    pub(super) fn lost(&self) -> u64 {
        self.entries.iter().map(|e| u64::from(e.lost)).sum()
    }

    /// Whether nothing is to be told.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes out up to `room` entries, oldest first.
    pub(super) fn take(&mut self, room: usize) -> Vec<HopEntry> {
        let count = self.entries.len().min(room);
        self.entries.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(100);

    fn period(period: u32, lost: u32, delay_change_us: i32) -> PeriodLoss {
        PeriodLoss {
            period,
            lost,
            delay_change_us,
        }
    }

    #[test]
    fn periods_without_news_are_not_told_but_small_changes_add_up() {
        let mut marked = Marked::default();
        assert_eq!(marked.add(3, &period(1, 0, 0), STEP), Added::Nothing);
        assert_eq!(marked.add(3, &period(2, 0, 60), STEP), Added::Nothing);
        assert_eq!(marked.add(3, &period(3, 0, -20), STEP), Added::Nothing);
        assert_eq!(marked.add(3, &period(4, 0, 60), STEP), Added::Entry);
        assert_eq!(marked.add(3, &period(5, 2, 5), STEP), Added::Entry);
        let told: Vec<_> = marked
            .take(16)
            .iter()
            .map(|e| (e.period, e.lost, e.queue_delay_change_us, e.cause))
            .collect();
        assert_eq!(told, [(4, 0, 100, 0), (5, 2, 5, 0)]);
        assert!(marked.is_empty());
        assert_eq!(
            marked.add(3, &period(6, 0, 0), Duration::ZERO),
            Added::Nothing
        );
    }

    #[test]
    fn what_has_no_room_is_added_to_the_next_period() {
        let mut marked = Marked::default();
        for n in 0..20 {
            let added = marked.add(3, &period(n, 10, -1), STEP);
            assert_eq!(added, if n < 16 { Added::Entry } else { Added::Folded });
        }
        assert_eq!(marked.lost(), 200);
        let told = marked.take(2);
        assert_eq!((told[0].period, told[0].lost), (4, 50));
        assert_eq!(told[0].queue_delay_change_us, -5);
        assert_eq!((told[1].period, told[1].lost), (5, 10));
        assert_eq!(marked.take(16).len(), 14);
    }
}
