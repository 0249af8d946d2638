//! Round-trip estimate: smoothed and minimum, from unambiguous exchanges only. Who may take a sample is
//! decided by the callers (AMB-HELLODUP, AMB-PUTIMEOUT, AMB-CRFRTT).

use crate::time::{Duration, Instant};

/// The minimum is taken over the running and the previous window of this length.
const MIN_WINDOW: Duration = Duration::from_secs(60);

/// SRTT (weight 1/8) and minimum RTT.
#[derive(Clone, Copy, Debug, Default)]
pub struct RttEstimator {
    smoothed: Option<Duration>,
    /// `smoothed` is an upper bound that the first real sample replaces.
    provisional: bool,
    current_min: Option<Duration>,
    previous_min: Option<Duration>,
    window_start: Instant,
}

impl RttEstimator {
    /// No knowledge yet.
    pub const fn new() -> Self {
        Self {
            smoothed: None,
            provisional: false,
            current_min: None,
            previous_min: None,
            window_start: Instant(0),
        }
    }

    /// Takes an unambiguous sample. A sample of zero counts as one nanosecond.
    pub fn sample(&mut self, now: Instant, rtt: Duration) {
        let rtt = rtt.max(Duration::from_nanos(1));
        self.smoothed = match self.smoothed {
            Some(old) if !self.provisional => Some((old * 7 + rtt) / 8),
            _ => Some(rtt),
        };
        self.provisional = false;
        if self.current_min.is_none() {
            self.window_start = now;
        } else if now.since(self.window_start) > MIN_WINDOW {
            self.previous_min = self.current_min.take();
            self.window_start = now;
        }
        self.current_min = Some(self.current_min.map_or(rtt, |m| m.min(rtt)));
    }

    /// States an upper bound, used until the first real sample and never after one.
    pub fn upper_bound(&mut self, bound: Duration) {
        if self.smoothed.is_none() || self.provisional {
            let bound = bound.max(Duration::from_nanos(1));
            self.smoothed = Some(self.smoothed.map_or(bound, |old| old.min(bound)));
            self.provisional = true;
        }
    }

    /// Smoothed RTT, or the upper bound known so far.
    pub fn srtt(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Minimum RTT of the recent samples; the upper bound if there is none.
    pub fn min(&self) -> Option<Duration> {
        match (self.current_min, self.previous_min) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (one, other) => one.or(other).or(self.smoothed),
        }
    }

    /// Whether a real sample was taken.
    pub fn is_measured(&self) -> bool {
        self.smoothed.is_some() && !self.provisional
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn first_sample_replaces_the_bound() {
        let mut rtt = RttEstimator::new();
        assert_eq!(rtt.srtt(), None);
        rtt.upper_bound(40 * MS);
        rtt.upper_bound(50 * MS);
        assert_eq!((rtt.srtt(), rtt.is_measured()), (Some(40 * MS), false));
        rtt.sample(Instant(0), 20 * MS);
        assert_eq!(
            (rtt.srtt(), rtt.min(), rtt.is_measured()),
            (Some(20 * MS), Some(20 * MS), true)
        );
        rtt.upper_bound(MS);
        rtt.sample(Instant(1), 28 * MS);
        assert_eq!((rtt.srtt(), rtt.min()), (Some(21 * MS), Some(20 * MS)));
    }

    #[test]
    fn minimum_forgets_after_two_windows() {
        let mut rtt = RttEstimator::new();
        let at = |s: u64| Instant(0) + Duration::from_secs(s);
        rtt.sample(at(0), 10 * MS);
        rtt.sample(at(61), 30 * MS);
        assert_eq!(rtt.min(), Some(10 * MS));
        rtt.sample(at(122), 30 * MS);
        assert_eq!(rtt.min(), Some(30 * MS));
    }
}
