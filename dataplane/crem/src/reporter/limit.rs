//! A rate limit that gives out times instead of refusals: whoever asks is told when it is its turn, so
//! nobody has to ask again.

use crate::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
/// This share of a second's turns may be taken at once.
const BURST_SHARE: u32 = 5;

/// At most `rate` turns in any second, some of them in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacer {
    /// Between turns once the burst is used up.
    gap: Duration,
    /// How far ahead of their steady times turns may be taken.
    ahead: Duration,
    /// Steady time of the next turn.
    steady: Instant,
}

impl Pacer {
    /// A limit of `rate` turns a second, none of them taken yet; 0 counts as 1.
    pub(super) fn new(rate: u32) -> Self {
        let rate = rate.max(1);
        let burst = (rate / BURST_SHARE).max(1);
        // With the burst at its start and the steady rate after it, a second has no more than `rate`.
        let steady_rate = (rate - burst).max(1);
        let gap = SECOND / steady_rate;
        Self {
            gap,
            ahead: gap * (burst - 1),
            steady: Instant(0),
        }
    }

    /// Takes the next turn; gives its time, `now` or later.
    pub(super) fn turn(&mut self, now: Instant) -> Instant {
        let at = Instant(self.steady.0.saturating_sub(nanos(self.ahead))).max(now);
        self.steady = self.steady.max(now) + self.gap;
        at
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn a_fifth_at_once_then_evenly() {
        let mut pacer = Pacer::new(100);
        let now = Instant(5_000_000_000);
        for n in 0..20 {
            assert_eq!(pacer.turn(now), now, "{n}");
        }
        let gap = Duration::from_micros(12_500);
        assert_eq!(pacer.turn(now), now + gap);
        assert_eq!(pacer.turn(now), now + gap * 2);
        // A second later all that was saved up is there again.
        let later = now + gap * 2 + SECOND;
        let at_once = (0..30).filter(|_| pacer.turn(later) == later).count();
        assert_eq!(at_once, 20);
    }

    #[test]
    fn the_slowest_limit_is_one_a_second() {
        let mut pacer = Pacer::new(0);
        let now = Instant(7);
        assert_eq!(pacer.turn(now), now);
        assert_eq!(pacer.turn(now), now + SECOND);
    }

    proptest! {
        /// No second, wherever it starts, has more turns than the rate.
        #[test]
        fn the_rate_holds_over_any_second(
            rate in 1u32..400, waits in prop::collection::vec(0u64..40_000_000, 1..600),
        ) {
            let mut pacer = Pacer::new(rate);
            let mut now = Instant(1);
            let mut turns: Vec<Instant> = Vec::new();
            for wait in waits {
                now = now.max(turns.last().copied().unwrap_or(now)) + Duration::from_nanos(wait);
                turns.push(pacer.turn(now));
            }
            prop_assert!(turns.is_sorted());
            for (first, start) in turns.iter().enumerate() {
                let within = turns[first..].iter().take_while(|t| t.since(*start) < SECOND).count();
                prop_assert!(within <= rate as usize);
            }
        }
    }
}
