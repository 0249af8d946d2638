//! Epoch and report identifiers of one Transport Session and Observation Domain. They are given out when
//! a report is serialised, so that first reports come in the order of their epochs (section 4 of the
//! sequence draft).

use std::collections::HashMap;

/// The identifiers of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ids {
    /// rdmaSequenceEpochId, from 1.
    pub epoch: u64,
    /// rdmaSequenceReportId, from 1.
    pub report: u64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    /// The epoch's number in its observer.
    local: u64,
    ids: Ids,
}

/// Gives out identifiers. Contexts are told apart by Observation Point and number within the observer; a
/// context that was used again without a final report of the epoch before takes the place of that one,
/// so there is never more than the observers' contexts.
#[derive(Clone, Debug, Default)]
pub struct EpochIds {
    last: u64,
    open: HashMap<(u64, u32), Open>,
    bound: usize,
}

impl EpochIds {
    /// For at most so many contexts of all observers together.
    pub fn new(bound: usize) -> Self {
        Self {
            last: 0,
            open: HashMap::with_capacity(bound.min(65536)),
            bound,
        }
    }

    /// The identifiers of the next report of an epoch; `is_final` if it is its last. `None` if there are
    /// more contexts than expected, or no identifier is left: then the report cannot be sent.
    pub fn next(&mut self, point: u64, context: u32, local: u64, is_final: bool) -> Option<Ids> {
        let key = (point, context);
        let known = self.open.get(&key).filter(|open| open.local == local);
        let ids = match known {
            Some(open) => Ids {
                report: open.ids.report.checked_add(1)?,
                ..open.ids
            },
            None => Ids {
                epoch: self.last.checked_add(1)?,
                report: 1,
            },
        };
        if is_final {
            self.open.remove(&key);
        } else if self.open.len() < self.bound || self.open.contains_key(&key) {
            self.open.insert(key, Open { local, ids });
        } else {
            return None;
        }
        self.last = self.last.max(ids.epoch);
        Some(ids)
    }

    /// From now on for at most so many contexts; those that are open stay so.
    pub const fn set_bound(&mut self, bound: usize) {
        self.bound = bound;
    }

    /// Forgets the open epochs; their identifiers are not given out again.
    pub fn forget_open(&mut self) {
        self.open.clear();
    }

    /// Epochs that have had a report but no final one.
    pub fn open(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ids(epoch: u64, report: u64) -> Option<Ids> {
        Some(Ids { epoch, report })
    }

    // shows: SEQ-ID-05, SEQ-EXP-06
    #[test]
    fn identifiers_follow_serialisation() {
        let mut all = EpochIds::new(4);
        assert_eq!(all.next(1, 0, 10, false), ids(1, 1));
        assert_eq!(all.next(2, 0, 10, true), ids(2, 1));
        assert_eq!(all.next(1, 0, 10, false), ids(1, 2));
        assert_eq!(all.next(1, 0, 10, true), ids(1, 3));
        assert_eq!(all.next(1, 0, 11, false), ids(3, 1));
        // The final report of epoch 11 was lost on the way here.
        assert_eq!(all.next(1, 0, 12, true), ids(4, 1));
        assert_eq!(all.open(), 0);
    }

    #[test]
    fn more_contexts_may_come_while_epochs_go_on() {
        let mut all = EpochIds::new(1);
        assert_eq!(all.next(1, 0, 1, false), ids(1, 1));
        assert_eq!(all.next(1, 1, 2, false), None);
        all.set_bound(2);
        assert_eq!(all.next(1, 1, 2, false), ids(2, 1));
        all.set_bound(1);
        assert_eq!(all.next(1, 0, 1, false), ids(1, 2));
        assert_eq!(all.next(1, 2, 3, false), None);
    }

    // shows: SEQ-ID-06
    #[test]
    fn forgotten_epochs_do_not_go_on() {
        let mut all = EpochIds::new(4);
        assert_eq!(all.next(1, 0, 1, false), ids(1, 1));
        all.forget_open();
        assert_eq!(all.next(1, 0, 1, false), ids(2, 1));
    }

    #[test]
    fn contexts_are_bounded() {
        let mut all = EpochIds::new(1);
        assert_eq!(all.next(1, 0, 1, false), ids(1, 1));
        assert_eq!(all.next(1, 1, 2, false), None);
        assert_eq!(all.next(1, 1, 2, true), ids(2, 1));
        assert_eq!(all.next(1, 0, 1, false), ids(1, 2));
    }

    // shows: SEQ-ID-06, SEQ-EXP-07
    #[test]
    fn identifiers_end_and_do_not_begin_again() {
        let mut all = EpochIds::new(4);
        assert_eq!(all.next(1, 0, 1, false), ids(1, 1));
        if let Some(open) = all.open.get_mut(&(1, 0)) {
            open.ids.report = u64::MAX - 1;
        }
        assert_eq!(all.next(1, 0, 1, false), ids(1, u64::MAX));
        assert_eq!(all.next(1, 0, 1, false), None);
        all.last = u64::MAX - 1;
        assert_eq!(all.next(1, 1, 2, true), ids(u64::MAX, 1));
        assert_eq!(all.next(1, 1, 3, true), None);
    }
}
