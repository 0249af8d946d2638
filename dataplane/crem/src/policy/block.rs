//! Probabilities of one block: how likely k + m packets lose more than m of them, at independent losses and
//! at losses that come in runs. Pure arithmetic.

/// Losses of a path as the policy sees them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Losses {
    /// Share of packets lost, 0 ..= 1.
    pub rate: f64,
    /// Mean length of runs of losses, packets, at least 1. At 1 losses are independent.
    pub burst: f64,
}

impl Losses {
    /// Independent losses.
    pub const fn independent(rate: f64) -> Self {
        Self { rate, burst: 1.0 }
    }
}

/// Runs shorter than this are what independent losses and the uncertainty of the estimate make as well.
const INDEPENDENT: f64 = 1.5;
/// Largest m that the chain of runs is followed for.
const CHAIN_M: usize = 128;

/// P[Binomial(k + m, p) > m]: the probability that m symbols do not suffice for a block.
pub fn excess_probability(k: u8, m: u8, p: f64) -> f64 {
    tail(u32::from(k) + u32::from(m), u32::from(m), p)
}

/// Residual loss rate of source packets after FEC, at independent losses: a source is not restored if it
/// is lost and so are m or more of the other k + m - 1 packets.
pub fn residual_rate(k: u8, m: u8, p: f64) -> f64 {
    let others = (u32::from(k) + u32::from(m)).saturating_sub(1);
    match u32::from(m).checked_sub(1) {
        None => p,
        Some(at_most) => p * tail(others, at_most, p),
    }
}

/// P[Binomial(n, p) > m].
fn tail(n: u32, m: u32, p: f64) -> f64 {
    if p <= 0.0 || m >= n {
        return 0.0;
    }
    if p >= 1.0 {
        return 1.0;
    }
    if p > 0.5 {
        // More than m lost is at most n - m - 1 kept; (1 - p)^n could be too small to start from.
        return terms(n, 1.0 - p).take((n - m) as usize).sum();
    }
    // Sum the tail itself and not one minus the rest: it is small, and the difference would cancel.
    let mut tail = 0.0;
    for term in terms(n, p).skip(m as usize + 1) {
        tail += term;
        if term < tail * 1e-16 {
            break;
        }
    }
    tail
}

/// P[Binomial(n, p) = i] for i from 0 to n; p at most a half.
fn terms(n: u32, p: f64) -> impl Iterator<Item = f64> {
    let odds = p / (1.0 - p);
    let mut term = power(1.0 - p, n);
    (0..=n).map(move |i| {
        if i > 0 {
            term *= f64::from(n - i + 1) / f64::from(i) * odds;
        }
        term
    })
}

/// The smallest m of `min ..= max` for which the block fails with a probability below what `epsilon` gives
/// for that m, and whether there is one; else `max`.
pub(super) fn smallest_m(
    k: u8,
    losses: Losses,
    (min, max): (u8, u8),
    epsilon: impl Fn(u8) -> f64,
) -> (u8, bool) {
    let found = if losses.burst < INDEPENDENT {
        (min..=max).find(|&m| excess_probability(k, m, losses.rate) < epsilon(m))
    } else {
        Chain::new(losses).smallest_m(k, (min, max), epsilon)
    };
    (found.unwrap_or(max), found.is_some())
}

/// Two states, lost and not, after so many packets (the model of Gilbert): for each number of losses so far
/// the probability of being there.
struct Chain {
    kept: [f64; CHAIN_M + 1],
    lost: [f64; CHAIN_M + 1],
    /// Probability of a loss after a packet that was kept.
    begins: f64,
    /// Probability of a packet that is kept after a loss.
    ends: f64,
}

impl Chain {
    /// After one packet.
    fn new(losses: Losses) -> Self {
        let p = losses.rate.clamp(0.0, 0.999_999);
        let ends = 1.0 / losses.burst.max(1.0);
        let mut chain = Self {
            kept: [0.0; CHAIN_M + 1],
            lost: [0.0; CHAIN_M + 1],
            begins: (p / (1.0 - p) * ends).min(1.0),
            ends,
        };
        chain.kept[0] = 1.0 - p;
        chain.lost[1] = p;
        chain
    }

    /// One packet more. More than `most` losses are not followed.
    fn step(&mut self, most: usize) {
        for losses in (0..=most).rev() {
            let before = losses
                .checked_sub(1)
                .map_or((0.0, 0.0), |fewer| (self.kept[fewer], self.lost[fewer]));
            self.kept[losses] =
                self.kept[losses] * (1.0 - self.begins) + self.lost[losses] * self.ends;
            self.lost[losses] = before.0 * self.begins + before.1 * (1.0 - self.ends);
        }
    }

    fn smallest_m(
        mut self,
        k: u8,
        (min, max): (u8, u8),
        epsilon: impl Fn(u8) -> f64,
    ) -> Option<u8> {
        let most = usize::from(max).min(CHAIN_M);
        for _ in 1..k {
            self.step(most);
        }
        for m in 0..=u8::try_from(most).unwrap_or(u8::MAX) {
            if m > 0 {
                self.step(most);
            }
            let sufficient: f64 = (0..=usize::from(m))
                .map(|losses| self.kept[losses] + self.lost[losses])
                .sum();
            if m >= min && 1.0 - sufficient < epsilon(m) {
                return Some(m);
            }
        }
        None
    }
}

/// `base` to the power `n`; core has no floating-point power function.
pub(super) fn power(base: f64, n: u32) -> f64 {
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

/// Square root of a non-negative finite number, to about twelve digits; core has none.
pub(super) fn square_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    // Half the exponent is within a factor of two of the root; Newton doubles the digits each time.
    let mut root = f64::from_bits((x.to_bits() >> 1) + (1023 << 51));
    for _ in 0..5 {
        root = (root + x / root) / 2.0;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tail_of_known_cases() {
        assert!((excess_probability(32, 4, 0.01) - 2.911_276_277_919e-5).abs() < 1e-15);
        assert!(excess_probability(32, 0, 0.0) == 0.0);
        assert!(excess_probability(1, 0, 1.0) == 1.0);
        // Where (1 - p)^n is next to nothing.
        let nearly = excess_probability(122, 31, 0.990_941_313_315_784_7);
        assert!((nearly - 1.0).abs() < 1e-9, "{nearly}");
    }

    #[test]
    fn residual_is_what_failed_blocks_lose() {
        // m = 0 repairs nothing; with one symbol a lost source is restored unless another packet is lost.
        assert!((residual_rate(32, 0, 0.01) - 0.01).abs() < 1e-15);
        let one = 0.01 * (1.0 - power(0.99, 32));
        assert!((residual_rate(32, 1, 0.01) - one).abs() < 1e-12);
        assert!(residual_rate(32, 4, 0.01) < 32.0 * excess_probability(32, 4, 0.01));
    }

    #[test]
    fn runs_of_length_one_are_independent_losses() {
        // A burst of mean 1 / (1 - p) is what independent losses show.
        for (k, p) in [(8, 0.02), (32, 0.01), (64, 0.05)] {
            let losses = Losses {
                rate: p,
                burst: 1.0 / (1.0 - p),
            };
            for m in 0..6 {
                let exact = excess_probability(k, m, p);
                let above = Chain::new(losses).smallest_m(k, (m, m), |_| exact * (1.0 + 1e-6));
                let below = Chain::new(losses).smallest_m(k, (m, m), |_| exact * (1.0 - 1e-6));
                assert_eq!((above, below), (Some(m), None), "k={k} p={p} m={m}");
            }
        }
    }

    #[test]
    fn longer_runs_need_more_symbols() {
        let m = |burst| smallest_m(128, Losses { rate: 0.01, burst }, (0, 128), |_| 0.05).0;
        assert!(
            m(1.0) < m(4.0) && m(4.0) < m(10.0),
            "{} {} {}",
            m(1.0),
            m(4.0),
            m(10.0)
        );
        // What cannot be reached is said.
        let out_of_reach = smallest_m(
            32,
            Losses {
                rate: 0.01,
                burst: 40.0,
            },
            (0, 8),
            |_| 1e-4,
        );
        assert_eq!(out_of_reach, (8, false));
    }

    proptest! {
        #[test]
        fn tail_is_a_probability_and_falls_with_m(k in 1u8..=128, m in 0u8..64, p in 0.0f64..=1.0) {
            let tail = excess_probability(k, m, p);
            prop_assert!((0.0..=1.0 + 1e-9).contains(&tail));
            prop_assert!(excess_probability(k, m + 1, p) <= tail + 1e-12);
        }

        #[test]
        fn root_is_a_root(x in 1e-9f64..1e12) {
            let root = square_root(x);
            prop_assert!((root * root / x - 1.0).abs() < 1e-9);
        }
    }
}
