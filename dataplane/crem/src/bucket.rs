//! Token buckets in integers without rounding loss: one fed by time, one fed by packets. Both are exact,
//! so the caps hold to the last token over any run.

use crate::time::Instant;

const NANOS: u64 = 1_000_000_000;

/// A bucket that earns `rate` tokens a second up to `depth`, full at start.
#[derive(Clone, Copy, Debug)]
pub struct TimeBucket {
    rate: u64,
    /// Level in billionths of a token.
    level: u64,
    depth: u64,
    last: Instant,
}

impl TimeBucket {
    /// A full bucket; `rate` in tokens a second, `depth` in tokens.
    pub const fn new(rate: u32, depth: u32, now: Instant) -> Self {
        let depth = depth as u64 * NANOS;
        Self {
            rate: rate as u64,
            level: depth,
            depth,
            last: now,
        }
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.0.saturating_sub(self.last.0);
        if elapsed > 0 {
            self.level = self
                .level
                .saturating_add(elapsed.saturating_mul(self.rate))
                .min(self.depth);
            self.last = now;
        }
    }

    /// Takes one token if there is one.
    pub fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let enough = self.level >= NANOS;
        if enough {
            self.level -= NANOS;
        }
        enough
    }

    /// Whether at least half of the depth is there.
    pub fn is_half_full(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.level >= self.depth / 2
    }

    /// When a token will be there: `now` or later; `None` with a rate of zero and an empty bucket.
    pub fn ready_at(&mut self, now: Instant) -> Option<Instant> {
        self.refill(now);
        if self.level >= NANOS {
            return Some(now);
        }
        (self.rate > 0).then(|| {
            Instant(
                now.0
                    .saturating_add((NANOS - self.level).div_ceil(self.rate)),
            )
        })
    }
}

/// A bucket that earns `gain` units per event and pays `price` units per token, up to `depth` tokens;
/// full at start. The ratio gain/price is kept as two integers, so nothing is rounded.
#[derive(Clone, Copy, Debug, Default)]
pub struct RatioBucket {
    gain: u64,
    price: u64,
    level: u64,
    depth: u64,
}

impl RatioBucket {
    /// A full bucket that earns gain/price tokens per unit put in and holds `depth` tokens. A price of
    /// zero is taken as one.
    pub fn new(gain: u64, price: u64, depth: u64) -> Self {
        let price = price.max(1);
        let depth = depth.saturating_mul(price);
        Self {
            gain,
            price,
            level: depth,
            depth,
        }
    }

    /// The same fill in tokens under another ratio and depth (rounded down: never more tokens than
    /// before).
    #[must_use]
    pub fn with_ratio(&self, gain: u64, price: u64, depth: u64) -> Self {
        let mut new = Self::new(gain, price, depth);
        let level = u128::from(self.level) * u128::from(new.price) / u128::from(self.price.max(1));
        new.level = u64::try_from(level).unwrap_or(u64::MAX).min(new.depth);
        new
    }

    /// Puts `units` in: one packet, or the octets of a packet.
    pub fn earn(&mut self, units: u64) {
        self.level = self
            .level
            .saturating_add(units.saturating_mul(self.gain))
            .min(self.depth);
    }

    /// Whole tokens that can be taken.
    pub fn available(&self) -> u64 {
        self.level / self.price.max(1)
    }

    /// Takes `tokens`; takes nothing and says so if there are fewer.
    pub fn take(&mut self, tokens: u64) -> bool {
        let cost = tokens.saturating_mul(self.price);
        let enough = cost <= self.level;
        if enough {
            self.level -= cost;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn time_bucket_earns_exactly() {
        let mut bucket = TimeBucket::new(2000, 2, Instant(0));
        assert!(bucket.take(Instant(0)) && bucket.take(Instant(0)));
        assert!(!bucket.take(Instant(499_999)));
        assert_eq!(bucket.ready_at(Instant(499_999)), Some(Instant(500_000)));
        assert!(bucket.take(Instant(500_000)));
        assert!(!bucket.take(Instant(500_000)));
        let mut never = TimeBucket::new(0, 0, Instant(0));
        assert_eq!(never.ready_at(Instant(5)), None);
    }

    #[test]
    fn one_symbol_per_block_of_32_never_starves() {
        let mut bucket = RatioBucket::new(1, 32, 1);
        for _ in 0..1000 {
            for _ in 0..32 {
                bucket.earn(1);
            }
            assert!(bucket.take(1), "rounding must not cost a block its symbol");
        }
    }

    proptest! {
        #[test]
        fn ratio_holds_over_any_run(
            m in 1u64..20, k in 1u64..129, steps in proptest::collection::vec((0u64..40, 0u64..30), 1..200),
        ) {
            let mut bucket = RatioBucket::new(m, k, m);
            let (mut earned, mut taken) = (0u64, 0u64);
            for (sources, wanted) in steps {
                bucket.earn(sources);
                earned += sources;
                let n = wanted.min(bucket.available());
                prop_assert!(bucket.take(n));
                taken += n;
                prop_assert!(taken * k <= earned * m + m * k);
            }
        }

        #[test]
        fn another_ratio_creates_no_tokens(
            m in 0u64..20, k in 1u64..129, m2 in 0u64..20, k2 in 1u64..129, used in 0u64..20,
        ) {
            let mut bucket = RatioBucket::new(m, k, m);
            bucket.take(used.min(bucket.available()));
            prop_assert!(bucket.with_ratio(m2, k2, m2).available() <= bucket.available());
        }
    }
}
