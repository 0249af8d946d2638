//! From the worker's clock to UTC. The mapping follows the system's clock slowly, so that the time of
//! observation never steps within an epoch (AMB-SEQ-TIME); what is too far off for that is a step, before
//! which everything open is closed.

use std::time::{SystemTime, UNIX_EPOCH};

use crem_core::time::Instant;
use crem_meter::Utc;

/// An error of the mapping that is not slewed away: a second would take a quarter of an hour.
const STEP_NS: u64 = 1_000_000_000;
/// A thousandth of the time that passes is given or taken.
const SLEW: u64 = 1000;

/// UTC less `now` of the worker's clock, nanoseconds: what the system says at this moment.
pub fn utc_offset(now: Instant) -> u64 {
    let utc = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(utc.as_nanos())
        .unwrap_or(u64::MAX)
        .saturating_sub(now.0)
}

/// Maps the worker's time to UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UtcClock {
    offset: u64,
    at: Instant,
}

impl UtcClock {
    /// A clock that is right at `now`.
    pub const fn new(offset: u64, now: Instant) -> Self {
        Self { offset, at: now }
    }

    /// UTC at a time of the worker.
    pub const fn utc(&self, at: Instant) -> Utc {
        Utc(at.0.saturating_add(self.offset))
    }

    /// Whether `target` is so far away that the clock has to [`UtcClock::step`].
    pub const fn is_far_from(&self, target: u64) -> bool {
        self.offset.abs_diff(target) > STEP_NS
    }

    /// Takes over `target` at once.
    pub const fn step(&mut self, target: u64, now: Instant) {
        self.offset = target;
        self.at = now;
    }

    /// Goes toward `target` as far as the time since the last call allows. UTC keeps growing.
    pub fn slew(&mut self, target: u64, now: Instant) {
        let most = now.0.saturating_sub(self.at.0) / SLEW;
        self.at = now;
        let far = self.offset.abs_diff(target).min(most);
        if target > self.offset {
            self.offset += far;
        } else {
            self.offset -= far;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // shows: AMB-SEQ-TIME
    #[test]
    fn the_clock_follows_without_a_step_and_never_goes_back() {
        let mut clock = UtcClock::new(10_000_000_000, Instant(0));
        let (mut last, target) = (clock.utc(Instant(0)), 9_999_000_000);
        for tick in 1..2000 {
            let now = Instant(tick * 1_000_000);
            clock.slew(target, now);
            let utc = clock.utc(now);
            assert!(utc.0 - last.0 >= 999_000 && utc.0 - last.0 <= 1_000_000);
            last = utc;
        }
        assert_eq!(clock.utc(Instant(0)), Utc(target));
    }

    #[test]
    fn what_is_more_than_a_second_off_is_a_step() {
        let mut clock = UtcClock::new(5_000_000_000, Instant(0));
        assert!(!clock.is_far_from(5_900_000_000));
        assert!(clock.is_far_from(7_000_000_000));
        assert!(clock.is_far_from(3_000_000_000));
        clock.step(7_000_000_000, Instant(9));
        assert_eq!(clock.utc(Instant(1)), Utc(7_000_000_001));
    }

    #[test]
    fn the_system_tells_the_offset() {
        // After 2020 and before 2100.
        let offset = utc_offset(Instant(1_000));
        assert!((1_577_000_000_000_000_000..4_102_000_000_000_000_000).contains(&offset));
    }
}
