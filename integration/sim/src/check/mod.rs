//! The checkers: rules that have to hold at every step of a world, judged from what passes by. None asks
//! the product for its own account.

pub(crate) mod answers;
pub(crate) mod delivery;
pub(crate) mod ledger;
pub(crate) mod rates;
#[cfg(test)]
mod tests;

use crate::Instant;

/// Violations that are kept in words; further ones are only counted.
const KEPT: usize = 16;

/// Rules that were broken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Violations {
    list: Vec<String>,
    count: u64,
}

impl Violations {
    /// A rule was broken.
    pub(crate) fn add(&mut self, now: Instant, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.list.len() < KEPT {
            let (seconds, nanos) = (now.0 / 1_000_000_000, now.0 % 1_000_000_000);
            self.list.push(format!("{seconds}.{nanos:09} {}", what()));
        }
    }

    /// A rule holds, or is added.
    pub(crate) fn require(&mut self, now: Instant, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.add(now, what);
        }
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The first ones in words, with the time in seconds.
    pub(crate) fn list(&self) -> &[String] {
        &self.list
    }
}
