//! Distributions of times and sizes: log-linear buckets of fixed number, so that taking a value down is an addition
//! at a place that is computed, without memory, lock or division. What is measured is the owner's business.

use crate::time::Duration;

/// Buckets of a power of two.
const PER_DOUBLING: u32 = 4;
const PER_DOUBLING_BITS: u32 = PER_DOUBLING.trailing_zeros();
/// Powers of two that are told apart: nanoseconds up to half a minute, and whatever is counted.
const DOUBLINGS: u32 = 35;
/// Buckets.
pub const BUCKETS: usize = (DOUBLINGS * PER_DOUBLING) as usize;

/// A distribution of whole numbers. A bucket is at most a quarter as wide as its values; the last one has all larger
/// values as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            sum: 0,
        }
    }
}

impl Histogram {
    /// Takes down a value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Takes down a time in nanoseconds.
    #[inline]
    pub fn record_time(&mut self, time: Duration) {
        self.record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The same value `count` times.
    #[inline]
    pub fn record_n(&mut self, value: u64, count: u64) {
        if let Some(bucket) = self.counts.get_mut(place(value)) {
            *bucket += count;
        }
        self.sum = self.sum.saturating_add(value.saturating_mul(count));
    }

    /// Adds what another one took down.
    pub fn add(&mut self, other: &Self) {
        for (to, more) in self.counts.iter_mut().zip(&other.counts) {
            *to += more;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Values taken down.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Buckets that have values: the largest value that belongs to each, and how many it has.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let all = self.counts.iter().enumerate();
        all.filter(|(_, count)| **count > 0)
            .map(|(place, count)| (largest(place), *count))
    }

    /// A value that this share of all values, in thousandths, does not exceed, to the width of a bucket.
    pub fn permille(&self, share: u64) -> u64 {
        let wanted = (u128::from(self.count()) * u128::from(share)).div_ceil(1_000);
        let mut below = 0_u128;
        for (value, count) in self.buckets() {
            below += u128::from(count);
            if below >= wanted {
                return value;
            }
        }
        0
    }
}

/// The bucket of a value. Below `PER_DOUBLING` each value has one of its own.
#[inline]
const fn place(value: u64) -> usize {
    if value < PER_DOUBLING as u64 {
        return value as usize;
    }
    let exponent = value.ilog2();
    let within = (value >> (exponent - PER_DOUBLING_BITS)) as u32 & (PER_DOUBLING - 1);
    let place = (exponent - PER_DOUBLING_BITS + 1) * PER_DOUBLING + within;
    if place as usize >= BUCKETS {
        BUCKETS - 1
    } else {
        place as usize
    }
}

/// The largest value of a bucket.
const fn largest(bucket: usize) -> u64 {
    if bucket + 1 >= BUCKETS {
        return u64::MAX;
    }
    smallest(bucket + 1) - 1
}

const fn smallest(bucket: usize) -> u64 {
    let (row, within) = (bucket as u32 / PER_DOUBLING, bucket as u32 % PER_DOUBLING);
    match row {
        0 => within as u64,
        _ => ((PER_DOUBLING + within) as u64) << (row - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn buckets_follow_each_other_without_gap_or_overlap() {
        for bucket in 0..BUCKETS - 1 {
            assert_eq!(place(smallest(bucket)), bucket);
            assert_eq!(place(largest(bucket)), bucket);
            assert_eq!(place(largest(bucket) + 1), bucket + 1);
        }
        assert_eq!(place(u64::MAX), BUCKETS - 1);
        assert!(
            smallest(BUCKETS - 1) > 30_000_000_000,
            "half a minute is told apart"
        );
    }

    proptest! {
        #[test]
        fn a_bucket_is_at_most_a_quarter_as_wide_as_its_values(value in 0..30_000_000_000_u64) {
            let bucket = place(value);
            prop_assert!((smallest(bucket)..=largest(bucket)).contains(&value));
            prop_assert!((largest(bucket) - smallest(bucket)) * 4 <= value);
        }

        #[test]
        fn percentiles_are_right_to_a_bucket(
            mut values in prop::collection::vec(0..1_000_000_u64, 1..200),
            share in 1..=1_000_u64,
        ) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.record(*value));
            values.sort_unstable();
            let rank = (values.len() as u64 * share).div_ceil(1_000) as usize;
            prop_assert_eq!(place(histogram.permille(share)), place(values[rank - 1]));
            prop_assert_eq!(histogram.count(), values.len() as u64);
            prop_assert_eq!(histogram.sum(), values.iter().sum::<u64>());
        }
    }

    #[test]
    fn what_others_took_down_adds_up() {
        let (mut a, mut b) = (Histogram::default(), Histogram::default());
        a.record_n(7, 3);
        b.record(7);
        b.record(u64::MAX);
        a.add(&b);
        assert_eq!(a.buckets().collect::<Vec<_>>(), [(7, 4), (u64::MAX, 1)]);
        assert_eq!(Histogram::default().permille(500), 0);
    }
}
