//! The operator's targets, and the one function that maps them to the accepted failure probability of a
//! block (AMB-POLICY).

use super::block::{Losses, excess_probability, power, residual_rate};

/// Rate of loss above which a request asks for one symbol more than is missing (CREM, Repair Request).
const SPARE_SYMBOL: f64 = 0.01;
/// Symbols that a failed block typically lacks.
const TYPICAL_LACK: u8 = 2;

/// What redundancy is chosen for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Targets {
    /// Accepted probability that the ordinary symbols of a block do not restore it. Counts where neither
    /// of the rates below is set.
    pub epsilon: f64,
    /// Accepted loss rate of source packets after FEC.
    pub fec: Option<f64>,
    /// Accepted loss rate of source packets after the coded rounds.
    pub last: Option<f64>,
    /// Coded rounds that the receiver makes.
    pub rounds: u8,
}

impl Default for Targets {
    fn default() -> Self {
        Self {
            epsilon: 1e-4,
            fec: None,
            last: None,
            rounds: 2,
        }
    }
}

impl Targets {
    /// The accepted probability that m symbols do not suffice for a block of k.
    ///
    /// A residual rate r of sources after FEC is the probability that a block fails times the share of its
    /// sources that a failed block lost, [`lost_share`]; so blocks may fail with the probability r / share.
    /// A coded round leaves a failed block as it is with [`round_failure`], so what the rate may be after
    /// `rounds` of them, it may be that much larger after FEC. The stricter of both targets counts.
    pub fn block_epsilon(&self, k: u8, m: u8, losses: Losses) -> f64 {
        let fails = power(round_failure(losses.rate), u32::from(self.rounds));
        let after_rounds = self.last.map(|rate| rate / fails.max(f64::MIN_POSITIVE));
        let residual = match (self.fec, after_rounds) {
            (None, None) => return self.epsilon,
            (Some(one), None) | (None, Some(one)) => one,
            (Some(one), Some(other)) => one.min(other),
        };
        (residual / lost_share(k, m, losses)).min(1.0)
    }

    /// The `fec` target that makes the block epsilon of m symbols over k positions this one: the way back.
    pub fn fec_for(epsilon: f64, k: u8, m: u8, losses: Losses) -> f64 {
        epsilon * lost_share(k, m, losses)
    }
}

/// Share of its sources that a block which m symbols do not restore has lost on average: at least m + 1 of
/// its k + m packets. Runs have no memory: beyond the first m packets they are as long as any.
fn lost_share(k: u8, m: u8, losses: Losses) -> f64 {
    let n = f64::from(k) + f64::from(m);
    let least = (f64::from(m) + losses.burst.max(1.0)).min(n) / n;
    let fails = excess_probability(k, m, losses.rate);
    if fails > 0.0 {
        least.max(residual_rate(k, m, losses.rate) / fails)
    } else {
        least
    }
}

/// Probability that a coded round does not restore a block: more symbols of the answer are lost than it has
/// to spare. It has one to spare where the loss rate is above one percent.
pub fn round_failure(p: f64) -> f64 {
    let spare = u8::from(p > SPARE_SYMBOL);
    excess_probability(TYPICAL_LACK, spare, p)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn p(rate: f64) -> Losses {
        Losses::independent(rate)
    }

    #[test]
    fn without_rates_epsilon_counts() {
        // shows: CREM-POL-07
        let targets = Targets::default();
        for (k, m, rate) in [(8, 0, 0.0), (32, 4, 0.01), (128, 16, 0.5)] {
            assert!(targets.block_epsilon(k, m, p(rate)) == 1e-4);
        }
    }

    // shows: AMB-POLICY
    #[test]
    fn fec_target_bounds_the_residual_rate_of_sources() {
        let targets = Targets {
            fec: Some(1e-4),
            ..Targets::default()
        };
        for k in [8, 32, 64, 128] {
            for rate in [1e-3, 1e-2, 2e-2] {
                let suffices =
                    |m: u8| excess_probability(k, m, rate) < targets.block_epsilon(k, m, p(rate));
                let m = (0..64).find(|m| suffices(*m)).unwrap_or(64);
                let residual = residual_rate(k, m, rate);
                assert!(residual < 1e-4, "k={k} p={rate} m={m}: {residual:e}");
                let fewer = residual_rate(k, m - 1, rate);
                assert!(fewer > 0.9e-4, "k={k} p={rate} m={m}: {fewer:e} would do");
            }
        }
    }

    #[test]
    fn coded_rounds_carry_what_fec_leaves() {
        let targets = |rounds| Targets {
            last: Some(1e-5),
            rounds,
            ..Targets::default()
        };
        // At one percent without a spare symbol a round fails in two percent of the cases.
        assert!((round_failure(0.01) - 0.0199).abs() < 1e-12);
        assert!(round_failure(0.02) < 0.0013);
        let one = targets(1).block_epsilon(32, 0, p(0.01));
        let share = 0.01 / excess_probability(32, 0, 0.01);
        assert!((one * share * 0.0199 / 1e-5 - 1.0).abs() < 1e-9, "{one}");
        assert!(targets(2).block_epsilon(32, 0, p(0.01)) > 40.0 * one);
        // Nothing to lose: any block may fail.
        assert!(targets(2).block_epsilon(32, 0, p(1e-6)) == 1.0);
        // Both: the stricter.
        let both = Targets {
            fec: Some(1e-9),
            ..targets(2)
        };
        assert!((both.block_epsilon(32, 0, p(0.01)) * share / 1e-9 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_way_back() {
        let fec = Targets::fec_for(1e-10, 32, 8, p(0.01));
        let targets = Targets {
            fec: Some(fec),
            ..Targets::default()
        };
        assert!((targets.block_epsilon(32, 8, p(0.01)) / 1e-10 - 1.0).abs() < 1e-9);
    }
}
