//! Randomness of the simulator: small, fast and repeatable. Not for anything that is a defence; the
//! protocol functions bring their own generator.

use crate::Duration;

/// xoshiro256++, seeded by SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

/// One step of SplitMix64: a good mix of all bits of `value`.
pub const fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The generator that `seed` determines.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self([(); 4].map(|()| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state)
        }))
    }

    /// A generator of its own for `purpose`, so that one part's draws do not shift another's.
    pub fn fork(&mut self, purpose: u64) -> Self {
        Self::new(self.next() ^ mix(purpose))
    }

    /// 64 random bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.0;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let t = b << 17;
        let (c, d) = (c ^ a, d ^ b);
        self.0 = [a ^ d, b ^ c, c ^ t, d.rotate_left(45)];
        result
    }

    /// A number below `bound`, zero if `bound` is.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// A number from `low` to `high` whose logarithm is uniform; `low` must be above zero.
    pub fn log_between(&mut self, low: f64, high: f64) -> f64 {
        (low.ln() + self.unit() * (high.ln() - low.ln())).exp()
    }

    /// A number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// A time below `bound`.
    pub fn time_below(&mut self, bound: Duration) -> Duration {
        Duration::from_nanos(self.below(bound.as_nanos() as u64))
    }

    /// An exponentially distributed number with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_numbers() {
        let (mut a, mut b, mut c) = (Rng::new(1), Rng::new(1), Rng::new(2));
        assert_eq!(a.next(), b.next());
        assert_ne!(a.next(), c.next());
        assert_ne!(a.fork(1).next(), b.fork(2).next());
    }

    #[test]
    fn numbers_keep_their_bounds_and_mean() {
        let mut rng = Rng::new(7);
        let mut sum = 0.0;
        for _ in 0..100_000 {
            assert!(rng.below(7) < 7);
            assert!((3..=5).contains(&rng.between(3, 5)));
            assert!((0.1..=300.0).contains(&rng.log_between(0.1, 300.0)));
            sum += rng.exponential(4.0);
        }
        assert!((sum / 100_000.0 - 4.0).abs() < 0.1);
        let hits = (0..100_000).filter(|_| rng.chance(0.01)).count();
        assert!((900..1_100).contains(&hits), "{hits}");
        assert!(!rng.chance(0.0));
    }
}
