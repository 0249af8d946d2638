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
pub use active::{Pair, pairs};

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

    /// A (state, event) pair of a table.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Pair {
        /// Table, state and event.
        pub name: String,
        /// How often it occurred in this process.
        pub count: u64,
        /// Why it cannot occur, as the table says.
        pub impossible: Option<&'static str>,
    }

    fn add<S: Copy + Debug, E: Copy + Debug>(
        all: &mut Vec<Pair>,
        table: Table,
        states: &[S],
        events: &[E],
        impossible: impl Fn(S, E) -> Option<&'static str>,
    ) {
        for (s, &state) in states.iter().enumerate() {
            for (e, &event) in events.iter().enumerate() {
                let count = COUNTS.get(place(table, s, e));
                all.push(Pair {
                    name: format!("{table:?} {state:?} {event:?}"),
                    count: count.map_or(0, |count| count.load(Ordering::Relaxed)),
                    impossible: impossible(state, event),
                });
            }
        }
    }

    /// Every (state, event) pair and how often it occurred.
    pub fn pairs() -> Vec<Pair> {
        let mut all = Vec::new();
        let (negotiation, life) = (Table::Negotiation, Table::Life);
        add(&mut all, negotiation, &State::ALL, &Input::ALL, |s, e| {
            e.impossible_in(s)
        });
        add(&mut all, life, &Life::ALL, &LifeEvent::ALL, |s, e| {
            e.impossible_in(s)
        });
        let phases = [
            Phase::Watching,
            Phase::Asked(1),
            Phase::Asked(2),
            Phase::Copies,
            Phase::Poisoned,
        ];
        add(
            &mut all,
            Table::Recovery,
            &phases,
            &phase::Event::ALL,
            |s, e| e.impossible_in(s),
        );
        all
    }
}
