//! Estimates out of reports and requests: the loss rate of a flow and of a path, the length of runs of
//! losses, the length of bursts of packets. Small state, no decision.

use super::block::square_root;
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
/// Runs of losses that an onset shows, at least: fewer happen on clean paths as well.
const ONSET_RUNS: f64 = 4.0;
/// Three standard deviations of the square root of a count.
const ONSET_MARGIN: f64 = 1.5;

/// Loss rate of a path, pooled over all flows to one peer: one step per SRTT and at least 1,000
/// positions, since a single flow sees too few packets (AMB-EWMA).
///
/// Where the losses since the last step are certainly more than the estimate explains, the estimate goes
/// at once to the least rate that does explain them: waiting for eight steps would leave the flows bare
/// for as many round trips.
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

    /// Takes a report of one of the flows; `burst` is the mean length of runs of losses. `true` if the
    /// estimate changed.
    pub fn report(
        &mut self,
        now: Instant,
        srtt: Duration,
        (expected, received): (u32, u32),
        burst: f64,
    ) -> bool {
        if self.expected == 0 {
            self.since = now;
        }
        self.expected += u64::from(expected);
        self.received += u64::from(received.min(expected));
        let mut changed = false;
        if let Some(rate) = self.certain(burst).filter(|rate| *rate > self.loss.0) {
            self.loss.0 = rate;
            changed = true;
        }
        if self.expected >= PATH_STEP && now.since(self.since) >= srtt {
            let before = self.loss;
            self.loss.step(self.expected, self.received);
            (self.expected, self.received) = (0, 0);
            changed |= self.loss != before;
        }
        changed
    }

    /// The least loss rate that explains the losses since the last step, if they are enough to tell.
    fn certain(&self, burst: f64) -> Option<f64> {
        let runs = (self.expected - self.received) as f64 / burst.max(1.0);
        if runs < ONSET_RUNS {
            return None;
        }
        let root = square_root(runs) - ONSET_MARGIN;
        Some((root * root * burst.max(1.0) / self.expected as f64).min(1.0))
    }

    /// The loss rate, 0 ..= 1.
    pub fn rate(&self) -> f64 {
        self.loss.rate()
    }
}

/// Runs that the estimate begins with, of length one.
const PRIOR_RUNS: f64 = 2.0;
/// Losses after which what was seen before counts for about a third.
const RUN_MEMORY: f64 = 512.0;

/// Mean length of runs of losses on a path, out of the blocks that requests ask for.
///
/// With m = 0 requests name every loss, and runs are counted. With m > 0 they name only blocks that lost
/// more than the symbols repair, which are mostly those hit by long runs. But the length of a run beyond
/// any given length is distributed as the whole run (geometric lengths have no memory), so what a failed
/// block lacks is as good a sample; what independent losses would make it lack is divided out.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BurstEstimate {
    losses: f64,
    runs: f64,
}

impl Default for BurstEstimate {
    fn default() -> Self {
        Self {
            losses: PRIOR_RUNS,
            runs: PRIOR_RUNS,
        }
    }
}

impl BurstEstimate {
    /// A block without symbols at the receiver lost `losses` sources in `runs` runs; a run that goes on
    /// from the block before is not counted again.
    pub fn bare_block(&mut self, losses: u32, runs: u32) {
        self.losses += f64::from(losses);
        self.runs += f64::from(runs);
    }

    /// A block of k positions with `held` symbols at the receiver lacked `lacking` more, at the loss rate
    /// `rate`.
    pub fn failed_block(&mut self, k: u8, held: u8, lacking: u32, rate: f64) {
        // At independent losses the counts beyond `held` fall by about this factor each.
        let (n, held) = (f64::from(k) + f64::from(held), f64::from(held));
        let falls_by = (n * rate / (held + 2.0)).clamp(0.0, 0.8);
        self.losses += f64::from(lacking);
        self.runs += 1.0 / (1.0 - falls_by);
    }

    /// So many sources were reported lost: what was seen before counts less.
    pub fn age(&mut self, lost: u32) {
        let keep = 1.0 - (f64::from(lost) / RUN_MEMORY).min(0.5);
        self.losses = PRIOR_RUNS + (self.losses - PRIOR_RUNS) * keep;
        self.runs = PRIOR_RUNS + (self.runs - PRIOR_RUNS) * keep;
    }

    /// The mean length, packets, at least 1.
    pub fn mean(&self) -> f64 {
        (self.losses / self.runs).max(1.0)
    }
}

/// Bursts longer than this are streams: they have no length that a block could be fitted to.
const STREAM: u32 = 512;

/// How many positions the bursts of a flow have, from how its blocks close.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct BurstLength {
    running: u32,
    mean: Option<f32>,
}

impl BurstLength {
    /// A block of `covered` positions was closed; `ended`: by the end of its burst.
    pub fn closed(&mut self, covered: u8, ended: bool) {
        self.running = (self.running + u32::from(covered)).min(STREAM);
        if ended {
            let length = self.running as f32;
            self.mean = Some(
                self.mean
                    .map_or(length, |mean| mean + (length - mean) / 8.0),
            );
            self.running = 0;
        }
    }

    /// The mean length in positions; `None` for a stream, or while nothing is known.
    pub fn mean(&self) -> Option<f64> {
        let mean = self.mean?.max(self.running as f32);
        (mean < STREAM as f32).then_some(f64::from(mean))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRTT: Duration = Duration::from_millis(20);

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    // shows: CREM-POL-05, AMB-EWMA, AMB-PFORM
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

    // shows: AMB-EWMA
    #[test]
    fn path_steps_by_round_trip_and_thousand_positions() {
        let mut path = PathEstimate::new(0);
        assert!(!path.report(at(0), SRTT, (800, 799), 1.0));
        assert!(!path.report(at(10), SRTT, (800, 799), 1.0));
        assert!(path.rate() == 0.0, "before an SRTT");
        assert!(path.report(at(20), SRTT, (400, 400), 1.0));
        assert!((path.rate() - 0.001 / 8.0).abs() < 1e-12);
        for ms in 1..=4 {
            path.report(at(ms * 100), SRTT, (240, 240), 1.0);
        }
        assert!(
            (path.rate() - 0.001 / 8.0).abs() < 1e-12,
            "960 positions are too few"
        );
        path.report(at(500), SRTT, (40, 90), 1.0);
        assert!((path.rate() - 0.001 / 8.0 * 7.0 / 8.0).abs() < 1e-12);
    }

    // shows: AMB-EWMA
    #[test]
    fn few_losses_do_not_move_the_path_at_once_but_an_onset_does() {
        let mut path = PathEstimate::new(0);
        assert!(!path.report(at(0), SRTT, (300, 299), 1.0), "one of 300");
        assert!(!path.report(at(1), SRTT, (300, 298), 1.0), "three of 600");
        assert!(path.rate() == 0.0);
        // A hundred of ten thousand: at least 72 are certain.
        let mut path = PathEstimate::new(1);
        assert!(path.report(at(0), SRTT, (10_000, 9_900), 1.0));
        assert!((path.rate() - 0.007_225).abs() < 1e-9, "{}", path.rate());
        // In runs of 40 they are two and a half events.
        let mut path = PathEstimate::new(1);
        assert!(!path.report(at(0), SRTT, (10_000, 9_900), 40.0));
        // What the estimate explains leaves it alone.
        let mut path = PathEstimate::new(10_000);
        assert!(!path.report(at(0), SRTT, (10_000, 9_890), 1.0));
    }

    #[test]
    fn runs_are_counted_without_symbols_and_estimated_with_them() {
        let mut burst = BurstEstimate::default();
        assert!(burst.mean() == 1.0);
        for _ in 0..50 {
            burst.bare_block(12, 3);
        }
        assert!((burst.mean() - 4.0).abs() < 0.1, "{}", burst.mean());
        let mut burst = BurstEstimate::default();
        for _ in 0..50 {
            burst.failed_block(128, 6, 10, 0.0);
        }
        assert!((burst.mean() - 10.0).abs() < 0.5, "{}", burst.mean());
        // Independent losses make failed blocks lack one to two: no runs.
        let mut burst = BurstEstimate::default();
        for n in 0..50 {
            burst.failed_block(32, 1, 1 + u32::from(n % 4 == 0), 0.02);
        }
        assert!(burst.mean() < 1.2, "{}", burst.mean());
        // Losses without requests wear old runs out.
        for _ in 0..40 {
            burst.age(100);
        }
        assert!((burst.mean() - 1.0).abs() < 0.05);
    }

    #[test]
    fn bursts_have_lengths_and_streams_have_none() {
        let mut length = BurstLength::default();
        assert_eq!(length.mean(), None);
        length.closed(8, true);
        assert_eq!(length.mean(), Some(8.0));
        // Eight full blocks of eight, and then the end: bursts of 64.
        for _ in 0..40 {
            for n in 1..=8 {
                length.closed(8, n == 8);
            }
        }
        assert!((length.mean().unwrap_or(0.0) - 64.0).abs() < 1.0);
        for _ in 0..64 {
            length.closed(8, false);
        }
        assert_eq!(length.mean(), None, "a stream");
    }
}
