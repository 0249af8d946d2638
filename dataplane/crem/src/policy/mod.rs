//! Redundancy policy: how many symbols a block gets for an estimated loss rate, and the estimate
//! itself. Pure arithmetic; when it is applied, and what caps it, is decided in `csf`.

mod classify;

pub use classify::{Classifier, DelaySum, Evidence, LossClass, PathEvidence, Thresholds};

use crate::time::{Duration, Instant};

/// Loss rate as an exponentially weighted moving average over reports, weight 1/8 (AMB-EWMA).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LossEstimate(f64);

impl LossEstimate {
    /// An estimate that starts at `ppm` packets per million.
    pub fn new(ppm: u32) -> Self {
        Self((f64::from(ppm) / 1e6).min(1.0))
    }

    /// Takes one interval: of `expected` sources `received` arrived. Without expected ones it says
    /// nothing (AMB-PFORM).
    pub fn step(&mut self, expected: u64, received: u64) {
        if expected > 0 {
            let loss = expected.saturating_sub(received) as f64 / expected as f64;
            self.0 += (loss - self.0) / 8.0;
        }
    }

    /// The loss rate, 0 ..= 1.
    pub fn rate(&self) -> f64 {
        self.0
    }
}

/// Positions that one step of a path estimate is made of, at least.
const PATH_STEP: u64 = 1_000;

/// Loss rate of a path, pooled over all flows to one peer: one step per SRTT and at least 1,000
/// positions, since a single flow sees too few packets (AMB-EWMA).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathEstimate {
    loss: LossEstimate,
    expected: u64,
    received: u64,
    since: Instant,
}

impl PathEstimate {
    /// An estimate that starts at `ppm` packets per million.
    pub fn new(ppm: u32) -> Self {
        Self {
            loss: LossEstimate::new(ppm),
            expected: 0,
            received: 0,
            since: Instant(0),
        }
    }

    /// Takes a report of one of the flows.
    pub fn report(&mut self, now: Instant, srtt: Duration, expected: u32, received: u32) {
        if self.expected == 0 {
            self.since = now;
        }
        self.expected += u64::from(expected);
        self.received += u64::from(received.min(expected));
        if self.expected >= PATH_STEP && now.since(self.since) >= srtt {
            self.loss.step(self.expected, self.received);
            (self.expected, self.received) = (0, 0);
        }
    }

    /// The loss rate, 0 ..= 1.
    pub fn rate(&self) -> f64 {
        self.loss.rate()
    }
}

/// The m to go to from `current`: up to [`choose_m`] at once, down only as far as a loss rate a quarter
/// above the estimate would allow too, so that noise of the estimate does not change it to and fro.
pub fn next_m(current: u8, k: u8, p: f64, epsilon: f64, bounds: Bounds) -> u8 {
    let wanted = choose_m(k, p, epsilon, bounds);
    if wanted >= current {
        return wanted;
    }
    choose_m(k, p * 1.25, epsilon, bounds).min(current)
}

/// Bounds that a choice of m keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Smallest m.
    pub min: u8,
    /// Largest m; the index space (k + m <= 256) limits it further.
    pub max: u8,
}

/// The smallest m within `bounds` for which a block of k + m packets loses more than m of them with a
/// probability strictly below `epsilon`, at independent loss with rate `p`; the largest allowed m if
/// none reaches it (AMB-POLICY). Costs about k + m^2 multiplications.
pub fn choose_m(k: u8, p: f64, epsilon: f64, bounds: Bounds) -> u8 {
    let room = u8::try_from(256 - u16::from(k.max(1))).unwrap_or(u8::MAX);
    let max = bounds.max.min(room);
    let min = bounds.min.min(max);
    (min..max)
        .find(|&m| excess_probability(k, m, p) < epsilon)
        .unwrap_or(max)
}

/// P[Binomial(k + m, p) > m]: the probability that m symbols do not suffice for a block.
pub fn excess_probability(k: u8, m: u8, p: f64) -> f64 {
    if p <= 0.0 {
        return 0.0;
    }
    if p >= 1.0 {
        return 1.0;
    }
    let n = u32::from(k) + u32::from(m);
    let odds = p / (1.0 - p);
    // Sum the tail itself and not one minus the rest: it is small, and the difference would cancel.
    let mut term = power(1.0 - p, n);
    let mut tail = 0.0;
    for lost in 1..=n {
        term *= f64::from(n - lost + 1) / f64::from(lost) * odds;
        if lost > u32::from(m) {
            tail += term;
            if term < tail * 1e-16 {
                break;
            }
        }
    }
    tail
}

/// `base` to the power `n`; core has no floating-point power function.
fn power(base: f64, n: u32) -> f64 {
    let (mut result, mut square, mut rest) = (1.0, base, n);
    while rest > 0 {
        if rest & 1 == 1 {
            result *= square;
        }
        square *= square;
        rest >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WIDE: Bounds = Bounds { min: 0, max: 255 };

    #[test]
    fn smallest_m_that_reaches_the_target() {
        for (k, p, epsilon, m) in [
            (8, 0.0, 1e-4, 0),
            (8, 1e-5, 1e-4, 0),
            (16, 1e-5, 1e-4, 1),
            (16, 1e-3, 1e-4, 2),
            (32, 0.01, 1e-4, 4),
            (32, 0.1, 1e-4, 13),
            (64, 0.1, 1e-4, 20),
            (32, 0.001, 1e-2, 1),
            (32, 0.01, 1e-6, 6),
        ] {
            assert_eq!(
                choose_m(k, p, epsilon, WIDE),
                m,
                "k={k} p={p} epsilon={epsilon}"
            );
        }
        assert!((excess_probability(32, 4, 0.01) - 2.911_276_277_919e-5).abs() < 1e-15);
    }

    #[test]
    fn bounds_and_index_space_limit_m() {
        assert_eq!(choose_m(32, 0.1, 1e-4, Bounds { min: 0, max: 8 }), 8);
        assert_eq!(choose_m(32, 0.0, 1e-4, Bounds { min: 2, max: 8 }), 2);
        assert_eq!(choose_m(255, 0.5, 1e-4, WIDE), 1);
        assert_eq!(choose_m(250, 1.0, 1e-4, WIDE), 6);
        assert_eq!(choose_m(32, 0.0, 1e-4, Bounds { min: 9, max: 4 }), 4);
    }

    #[test]
    fn estimate_moves_by_an_eighth() {
        let mut estimate = LossEstimate::new(0);
        estimate.step(0, 0);
        assert!(estimate.rate() == 0.0);
        estimate.step(100, 92);
        assert!((estimate.rate() - 0.01).abs() < 1e-12);
        // A late packet must not make a negative loss.
        estimate.step(10, 12);
        assert!(estimate.rate() > 0.0);
        assert!((LossEstimate::new(10_000).rate() - 0.01).abs() < 1e-12);
    }

    #[test]
    fn path_steps_by_round_trip_and_thousand_positions() {
        let srtt = Duration::from_millis(20);
        let at = |ms: u64| Instant(ms * 1_000_000);
        let mut path = PathEstimate::new(0);
        path.report(at(0), srtt, 800, 792);
        path.report(at(10), srtt, 800, 792);
        assert!(path.rate() == 0.0, "before an SRTT");
        path.report(at(20), srtt, 400, 396);
        assert!((path.rate() - 0.01 / 8.0).abs() < 1e-12);
        for ms in 1..=4 {
            path.report(at(ms * 100), srtt, 240, 0);
        }
        assert!(
            (path.rate() - 0.01 / 8.0).abs() < 1e-12,
            "960 positions are too few"
        );
        path.report(at(500), srtt, 40, 90);
        assert!(path.rate() > 0.1);
    }

    #[test]
    fn m_goes_up_at_once_and_down_with_a_margin() {
        let bounds = Bounds { min: 0, max: 16 };
        let m = |current, p| next_m(current, 32, p, 1e-4, bounds);
        assert_eq!((m(0, 0.01), m(3, 0.01)), (4, 4));
        // At 0.011 four symbols do; at a quarter more they would not.
        assert_eq!(choose_m(32, 0.011, 1e-4, bounds), 4);
        assert_eq!((m(5, 0.011), m(5, 0.009), m(4, 0.011)), (5, 4, 4));
        assert_eq!(m(7, 0.0), 0);
    }

    proptest! {
        #[test]
        fn tail_is_a_probability_and_falls_with_m(k in 1u8..=128, m in 0u8..64, p in 0.0f64..=1.0) {
            let tail = excess_probability(k, m, p);
            prop_assert!((0.0..=1.0 + 1e-9).contains(&tail));
            prop_assert!(excess_probability(k, m + 1, p) <= tail + 1e-12);
        }

        #[test]
        fn index_space_is_kept(k in 1u8..=255, p in 0.0f64..=1.0, max in 0u8..=255) {
            let m = choose_m(k, p, 1e-4, Bounds { min: 0, max });
            prop_assert!(m <= max && u16::from(m) + u16::from(k) <= 256);
        }
    }
}
