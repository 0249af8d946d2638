//! Which (state, event) pairs of the protocol's state tables occurred: for a simulator that has to have
//! met all of them. Without the feature `coverage` nothing is kept and every call vanishes.

/// The state tables.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Table {
    /// Negotiation of a flow at the sender function.
    Negotiation,
    /// Life of a binding at the receiver function.
    Life,
    /// Recovery of a block or gap.
    Recovery,
}

/// Notes that `event` met `state` in `table`.
#[inline(always)]
pub(crate) fn pair(table: Table, state: usize, event: usize) {
    #[cfg(feature = "coverage")]
    active::note(table, state, event);
    #[cfg(not(feature = "coverage"))]
    let _ = (table, state, event);
}

#[cfg(feature = "coverage")]
pub use active::pairs;

#[cfg(feature = "coverage")]
mod active {
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;
    use core::fmt::Debug;
    use core::sync::atomic::{AtomicU64, Ordering};

    use super::Table;
    use crate::crf::lifecycle::{Life, LifeEvent};
    use crate::crf::phase::{self, Phase};
    use crate::csf::states::{Input, State};

    const TABLES: usize = 3;
    const STATES: usize = 8;
    const EVENTS: usize = 32;

    static COUNTS: [AtomicU64; TABLES * STATES * EVENTS] =
        [const { AtomicU64::new(0) }; TABLES * STATES * EVENTS];

    fn place(table: Table, state: usize, event: usize) -> usize {
        (table as usize * STATES + state) * EVENTS + event
    }

    pub(super) fn note(table: Table, state: usize, event: usize) {
        if let Some(count) = COUNTS.get(place(table, state, event)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn names(
        table: Table,
        states: &[impl Debug],
        events: &[impl Debug],
        all: &mut Vec<(String, u64)>,
    ) {
        for (s, state) in states.iter().enumerate() {
            for (e, event) in events.iter().enumerate() {
                let count = COUNTS.get(place(table, s, e));
                let count = count.map_or(0, |count| count.load(Ordering::Relaxed));
                all.push((format!("{table:?} {state:?} {event:?}"), count));
            }
        }
    }

    /// Every (state, event) pair by name, and how often it occurred in this process.
    pub fn pairs() -> Vec<(String, u64)> {
        let mut all = Vec::new();
        names(Table::Negotiation, &State::ALL, &Input::ALL, &mut all);
        names(Table::Life, &Life::ALL, &LifeEvent::ALL, &mut all);
        let phases = [
            Phase::Watching,
            Phase::Asked(1),
            Phase::Asked(2),
            Phase::Copies,
            Phase::Poisoned,
        ];
        names(Table::Recovery, &phases, &phase::Event::ALL, &mut all);
        all
    }
}
