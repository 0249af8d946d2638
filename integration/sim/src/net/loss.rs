//! Loss processes: which datagrams a path loses in transmission. Queues, which lose for another reason,
//! are in `queue`.

use std::collections::BTreeSet;

use crate::rng::Rng;
use crate::{Duration, Instant};

/// How a path loses.
#[derive(Clone, PartialEq, Debug)]
pub enum Loss {
    /// Nothing.
    None,
    /// Each datagram by itself with this probability.
    Uniform(f64),
    /// Gilbert-Elliott: runs in which everything is lost, of geometric length with mean `burst`
    /// datagrams, so that `rate` of all datagrams are lost.
    Bursts {
        /// Share of datagrams lost.
        rate: f64,
        /// Mean length of a run, datagrams, at least 1.
        burst: f64,
    },
    /// Every `every`-th datagram.
    Periodic {
        /// Datagrams from one loss to the next.
        every: u64,
    },
    /// Exactly these datagrams, counted from zero.
    Chosen(BTreeSet<u64>),
}

/// A loss process and where it stands.
#[derive(Clone, Debug)]
pub struct LossProcess {
    kind: Loss,
    /// Datagrams that pass before the next loss; drawn ahead, so that most datagrams cost a decrement.
    pass: u64,
    /// Datagrams of the current run that are still to be lost.
    run: u64,
    count: u64,
    outage: Option<(Instant, Instant)>,
    fresh: bool,
}

impl LossProcess {
    /// The process of this kind.
    pub fn new(kind: Loss) -> Self {
        Self {
            kind,
            pass: 0,
            run: 0,
            count: 0,
            outage: None,
            fresh: true,
        }
    }

    /// Goes over to another kind.
    pub fn set(&mut self, kind: Loss) {
        self.kind = kind;
        (self.run, self.fresh) = (0, true);
    }

    /// Loses everything from `from` on for `lasting`.
    pub fn set_outage(&mut self, from: Instant, lasting: Duration) {
        self.outage = Some((from, from + lasting));
    }

    /// Whether everything is lost at `now`.
    pub fn is_down(&self, now: Instant) -> bool {
        self.outage
            .is_some_and(|(from, to)| from <= now && now < to)
    }

    /// Whether the next datagram is lost.
    pub fn loses(&mut self, rng: &mut Rng) -> bool {
        let number = self.count;
        self.count += 1;
        match &self.kind {
            Loss::None => false,
            Loss::Periodic { every } => number % (*every).max(1) == every.saturating_sub(1),
            Loss::Chosen(chosen) => chosen.contains(&number),
            Loss::Uniform(rate) => {
                let rate = *rate;
                self.next(rng, rate, |_| 1)
            }
            Loss::Bursts { rate, burst } => {
                // After a run come, in the mean, burst x (1 - rate) / rate datagrams that pass.
                let burst = burst.max(1.0);
                let start = 1.0 / (burst * (1.0 - rate) / rate.max(1e-12));
                self.next(rng, start.min(1.0), |rng| 1 + geometric(rng, 1.0 / burst))
            }
        }
    }

    fn next(&mut self, rng: &mut Rng, start: f64, run: impl FnOnce(&mut Rng) -> u64) -> bool {
        if std::mem::take(&mut self.fresh) {
            self.pass = geometric(rng, start);
        }
        if self.run == 0 {
            if self.pass > 0 {
                self.pass -= 1;
                return false;
            }
            self.run = run(rng);
        }
        self.run -= 1;
        if self.run == 0 {
            self.pass = geometric(rng, start);
        }
        true
    }
}

/// Failures before the first success at this probability.
fn geometric(rng: &mut Rng, probability: f64) -> u64 {
    if probability >= 1.0 {
        return 0;
    }
    if probability <= 0.0 {
        return u64::MAX;
    }
    let draw = (1.0 - rng.unit()).ln() / (-probability).ln_1p();
    draw.min(1e18) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(kind: Loss, count: u64) -> Vec<bool> {
        let (mut process, mut rng) = (LossProcess::new(kind), Rng::new(5));
        (0..count).map(|_| process.loses(&mut rng)).collect()
    }

    fn share(lost: &[bool]) -> f64 {
        lost.iter().filter(|l| **l).count() as f64 / lost.len() as f64
    }

    #[test]
    fn rates_are_what_was_asked_for() {
        for rate in [1e-3, 0.02, 0.3] {
            let uniform = share(&lost(Loss::Uniform(rate), 2_000_000));
            assert!((uniform / rate - 1.0).abs() < 0.1, "{uniform} {rate}");
            let bursts = share(&lost(Loss::Bursts { rate, burst: 4.0 }, 4_000_000));
            assert!((bursts / rate - 1.0).abs() < 0.1, "{bursts} {rate}");
        }
        assert_eq!(share(&lost(Loss::None, 100)), 0.0);
    }

    #[test]
    fn runs_have_the_mean_length_asked_for() {
        for burst in [1.0, 4.0, 40.0] {
            let lost = lost(Loss::Bursts { rate: 0.01, burst }, 4_000_000);
            let runs = lost.windows(2).filter(|w| !w[0] && w[1]).count() as f64;
            let mean = lost.iter().filter(|l| **l).count() as f64 / runs;
            assert!((mean / burst - 1.0).abs() < 0.1, "{mean} {burst}");
        }
    }

    #[test]
    fn chosen_and_periodic_lose_exactly_those() {
        let chosen = lost(Loss::Chosen([2, 5].into()), 7);
        assert_eq!(chosen, [false, false, true, false, false, true, false]);
        let periodic = lost(Loss::Periodic { every: 3 }, 7);
        assert_eq!(periodic, [false, false, true, false, false, true, false]);
    }

    #[test]
    fn an_outage_has_a_beginning_and_an_end() {
        let mut process = LossProcess::new(Loss::None);
        process.set_outage(Instant(10), Duration::from_nanos(5));
        let down: Vec<_> = (8..17).filter(|t| process.is_down(Instant(*t))).collect();
        assert_eq!(down, [10, 11, 12, 13, 14]);
    }
}
