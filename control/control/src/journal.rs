//! What happened lately, numbered, for clients that follow: a ring with a bound. A client that comes back
//! names the last number it saw; what is older than the ring it is told to ask for anew.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crem_api::rest::Event;
use tokio::sync::watch;

/// Events kept.
pub const MAX_EVENTS: usize = 1024;

/// Numbers for each millisecond in which a process may start: 2^11.
const EVENTS_A_MS_BITS: u32 = 11;
/// The largest number that JSON carries everywhere.
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// The ring.
#[derive(Debug)]
pub struct Journal {
    ring: Mutex<VecDeque<Event>>,
    /// The number before the first one.
    before: u64,
    last: watch::Sender<u64>,
}

impl Default for Journal {
    fn default() -> Self {
        Self::after(0)
    }
}

/// Events after which somebody has to act at once, and those after which somebody has to soon.
const ERRORS: &[&str] = &[
    "dataplane_absent",
    "commit_rolled_back",
    "addressing_failed",
    "listener_failed",
];
const WARNINGS: &[&str] = &[
    "bypass",
    "commit_failed",
    "certificate_unusable",
    "drift",
    "enrolled",
    "interface_removed",
    "link_down",
    "link_not_set",
    "names_failed",
];

fn log(kind: &str, text: &str, revision: Option<u64>) {
    if ERRORS.contains(&kind) {
        tracing::error!(target: "crem_control::event", revision, kind, "{text}");
    } else if WARNINGS.contains(&kind) {
        tracing::warn!(target: "crem_control::event", revision, kind, "{text}");
    } else {
        tracing::info!(target: "crem_control::event", revision, kind, "{text}");
    }
}

/// What follows after a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Since {
    /// Every event after it, oldest first.
    All(Vec<Event>),
    /// Some are gone, or the number is not one of this start: the client has to look at the whole state
    /// again and goes on after this number.
    Gone(u64),
}

impl Journal {
    /// An empty ring of a process that started at this time, milliseconds since 1970. Numbers begin there, so that
    /// one that a client has from another start is told from those of this one. They stay below 2^53, which JSON carries
    /// everywhere.
    pub fn of_start(at_ms: u64) -> Self {
        Self::after((at_ms << EVENTS_A_MS_BITS) & MAX_NUMBER)
    }

    fn after(before: u64) -> Self {
        Self {
            ring: Mutex::default(),
            before,
            last: watch::Sender::new(before),
        }
    }

    /// Adds an event.
    pub fn push(&self, at_ms: u64, kind: &str, text: impl Into<String>, revision: Option<u64>) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let id = ring.back().map_or(self.before, |e| e.id) + 1;
        if ring.len() == MAX_EVENTS {
            ring.pop_front();
        }
        let text = text.into();
        log(kind, &text, revision);
        ring.push_back(Event {
            id,
            at_ms,
            kind: kind.to_owned(),
            text,
            revision,
        });
        drop(ring);
        self.last.send_replace(id);
    }

    /// What came after event number `id`; 0 asks for everything.
    pub fn since(&self, id: u64) -> Since {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let last = ring.back().map_or(self.before, |e| e.id);
        let first = ring.front().map_or(self.before + 1, |e| e.id);
        if id != 0 && (id > last || id + 1 < first) {
            return Since::Gone(last);
        }
        Since::All(ring.iter().filter(|e| e.id > id).cloned().collect())
    }

    /// Changes with every event.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// How many follow.
    pub fn followers(&self) -> usize {
        self.last.receiver_count()
    }

    /// The number of the last event.
    pub fn last(&self) -> u64 {
        *self.last.borrow()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn ids(since: Since) -> Vec<u64> {
        match since {
            Since::All(events) => events.iter().map(|e| e.id).collect(),
            Since::Gone(last) => panic!("gone, last is {last}"),
        }
    }

    #[test]
    fn a_number_of_another_start_is_told_from_those_of_this_one() {
        let (earlier, later) = (
            Journal::of_start(1_790_000_000_000),
            Journal::of_start(1_790_000_000_900),
        );
        for journal in [&earlier, &later] {
            (0..60).for_each(|n| journal.push(n, "kind", "text", None));
        }
        let (seen, last) = (earlier.last() - 10, later.last());
        assert_eq!(ids(earlier.since(seen)).len(), 10);
        assert_eq!(later.since(seen), Since::Gone(last));
        assert_eq!(
            earlier.since(last),
            Since::Gone(earlier.last()),
            "nor backwards"
        );
        assert_eq!(ids(later.since(0)).len(), 60);
        assert!(last < 1 << 53);
        let fresh = Journal::of_start(1_790_000_001_000);
        assert_eq!(fresh.since(last), Since::Gone(fresh.last()));
        assert_eq!(ids(fresh.since(0)), Vec::<u64>::new());
    }

    #[test]
    fn a_client_that_comes_back_misses_nothing_or_is_told() {
        let journal = Journal::default();
        assert_eq!(ids(journal.since(0)), Vec::<u64>::new());
        for n in 0..5 {
            journal.push(n, "kind", "text", None);
        }
        assert_eq!(ids(journal.since(3)), [4, 5]);
        assert_eq!(ids(journal.since(5)), Vec::<u64>::new());
        assert_eq!(journal.since(6), Since::Gone(5), "of another start");
        for n in 0..MAX_EVENTS as u64 {
            journal.push(n, "kind", "text", None);
        }
        assert_eq!(journal.since(3), Since::Gone(journal.last()));
        assert_eq!(ids(journal.since(5)).len(), MAX_EVENTS);
    }
}
