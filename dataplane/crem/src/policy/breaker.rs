//! The circuit breaker (CREM, Congestion Control Considerations; AMB-CBWIN, AMB-CBRESUME): its window over
//! reports, its verdicts, and its states as a table. What it switches off is decided in `csf`.

use crate::mutate::{self, Fault};
use crate::time::{Duration, Instant};

/// Loss rate above which a window violates, in thousandths.
const LOSS_PERMILLE: u64 = 100;
/// CE-marked share of the received sources above which a window violates, in thousandths.
const CE_PERMILLE: u64 = 500;
/// The window, and what of it must be covered by reports.
const WINDOW: Duration = Duration::from_secs(1);
const COVERED: Duration = Duration::from_millis(800);
/// Positions that a verdict needs; the window reaches further back for them,
const POSITIONS: u64 = 100;
/// but not beyond this.
const OLDEST: Duration = Duration::from_secs(30);
/// Redundancy comes back after so long without a violation.
const CLEAN: Duration = Duration::from_secs(10);
/// A violation so long after the trip ends the binding.
const PERSISTS: Duration = Duration::from_secs(60);
/// Reports are gathered into chunks of at least this length and so many positions.
const CHUNK: Duration = Duration::from_millis(125);
const CHUNK_POSITIONS: u64 = POSITIONS.div_ceil(CHUNKS as u64);
const CHUNKS: usize = 7;

/// What reports said of a stretch of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interval {
    /// Time that the reports cover.
    pub length: Duration,
    /// Sources expected.
    pub expected: u64,
    /// Sources received before restoration.
    pub received: u64,
    /// Received sources that were CE marked.
    pub ce: u64,
}

impl Interval {
    fn add(&mut self, other: &Self) {
        self.length += other.length;
        self.expected = self.expected.saturating_add(other.expected);
        self.received = self.received.saturating_add(other.received);
        self.ce = self.ce.saturating_add(other.ce);
    }

    /// Whether loss or marks of this window are beyond the limits, strictly; `None` if it holds too little
    /// to say.
    pub fn violates(&self) -> Option<bool> {
        if self.length < COVERED || self.expected < POSITIONS {
            return None;
        }
        let lost = self.expected.saturating_sub(self.received);
        let limit = LOSS_PERMILLE << u32::from(mutate::has(Fault::Breaker));
        let loss = u128::from(lost) * 1000 > u128::from(self.expected) * u128::from(limit);
        let marks =
            u128::from(self.ce) * 1000 > u128::from(self.received) * u128::from(CE_PERMILLE);
        Some(loss || marks)
    }
}

/// Reports together, as small as a table of flows wants it.
#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    end: Instant,
    micros: u32,
    expected: u32,
    received: u32,
    ce: u32,
}

impl Chunk {
    fn new(end: Instant, interval: &Interval) -> Self {
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            end,
            micros: u32::try_from(interval.length.as_micros()).unwrap_or(u32::MAX),
            expected: small(interval.expected),
            received: small(interval.received),
            ce: small(interval.ce),
        }
    }

    fn interval(&self) -> Interval {
        Interval {
            length: Duration::from_micros(self.micros.into()),
            expected: self.expected.into(),
            received: self.received.into(),
            ce: self.ce.into(),
        }
    }
}

/// The last reports, gathered into chunks so that their number does not matter.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// Closed ones, newest first.
    chunks: [Chunk; CHUNKS],
    running: Interval,
}

impl Window {
    fn add(&mut self, now: Instant, report: &Interval) {
        self.running.add(report);
        if self.running.length >= CHUNK && self.running.expected >= CHUNK_POSITIONS {
            self.chunks.rotate_right(1);
            self.chunks[0] = Chunk::new(now, &core::mem::take(&mut self.running));
        }
    }

    /// The sums of the last second, or of as much more as a verdict needs.
    fn sums(&self, now: Instant) -> Interval {
        let mut sums = self.running;
        for chunk in &self.chunks {
            let (end, chunk) = (chunk.end, chunk.interval());
            let fits = sums.length + chunk.length <= WINDOW;
            if now.since(end) > OLDEST || !(fits || sums.violates().is_none()) {
                break;
            }
            sums.add(&chunk);
        }
        sums
    }
}

/// Where a breaker stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum BreakerState {
    /// Redundancy is allowed.
    #[default]
    Closed,
    /// Tripped: no redundancy, no coded retransmission.
    Open,
    /// As before, while windows are clean.
    Clearing,
}

/// What a report means to a breaker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Input {
    /// The window violates.
    Violated,
    /// The window violates more than a minute after the trip.
    Persisted,
    /// The window is clean.
    Clean,
    /// Windows have been clean for long enough.
    Absent,
    /// The window says nothing.
    Unknown,
}

/// What has to be done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BreakerEffect {
    /// Nothing.
    None,
    /// Stop redundancy and coded retransmission.
    Trip,
    /// Redundancy is allowed again.
    Resume,
    /// CLOSE with reason 4. The breaker stays open and the minute begins anew.
    GiveUp,
}

/// Rows in the order of [`BreakerState`], columns in the order of [`Input`].
#[rustfmt::skip]
const TABLE: [[(BreakerState, BreakerEffect); 5]; 3] = {
    use BreakerEffect::{GiveUp, None, Resume, Trip};
    use BreakerState::{Clearing, Closed, Open};
    //   Violated      Persisted       Clean             Absent            Unknown
    [
        [(Open, Trip), (Open, Trip),   (Closed, None),   (Closed, None),   (Closed, None)],   // Closed
        [(Open, None), (Open, GiveUp), (Clearing, None), (Clearing, None), (Open, None)],     // Open
        [(Open, None), (Open, GiveUp), (Clearing, None), (Closed, Resume), (Clearing, None)], // Clearing
    ]
};

const fn transition(state: BreakerState, input: Input) -> (BreakerState, BreakerEffect) {
    TABLE[state as usize][input as usize]
}

/// The breaker of one flow, or of one path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Breaker {
    window: Window,
    state: BreakerState,
    tripped: Instant,
    /// Length of the clean stretch so far; windows without reports do not add to it.
    clean: Duration,
    last_report: Instant,
}

impl Breaker {
    /// Where it stands.
    pub const fn state(&self) -> BreakerState {
        self.state
    }

    /// Whether redundancy and coded retransmission are off.
    pub fn is_open(&self) -> bool {
        self.state != BreakerState::Closed
    }

    /// Takes a report, whose interval ends now.
    pub fn on_report(&mut self, now: Instant, report: &Interval) -> BreakerEffect {
        self.window.add(now, report);
        let elapsed = now.since(self.last_report).min(WINDOW);
        self.last_report = now;
        let input = match self.window.sums(now).violates() {
            None => Input::Unknown,
            Some(true) if now.since(self.tripped) > PERSISTS => Input::Persisted,
            Some(true) => Input::Violated,
            Some(false) => {
                if self.state == BreakerState::Clearing {
                    self.clean += elapsed;
                }
                if self.clean >= CLEAN {
                    Input::Absent
                } else {
                    Input::Clean
                }
            }
        };
        let (next, effect) = transition(self.state, input);
        if next != BreakerState::Clearing {
            self.clean = Duration::ZERO;
        }
        if matches!(effect, BreakerEffect::Trip | BreakerEffect::GiveUp) {
            self.tripped = now;
        }
        self.state = next;
        effect
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const BAD: (u64, u64, u64) = (1000, 800, 0);
    const GOOD: (u64, u64, u64) = (1000, 990, 0);

    /// A breaker and its time, fed with one report every 25 ms.
    struct Fed {
        breaker: Breaker,
        now: Instant,
    }

    impl Fed {
        fn new() -> Self {
            Self {
                breaker: Breaker::default(),
                now: Instant(5_000_000_000),
            }
        }

        /// Reports for `ms`; the effects other than none, with their times in milliseconds.
        fn feed(&mut self, ms: u64, report: (u64, u64, u64)) -> Vec<(u64, BreakerEffect)> {
            let mut effects = Vec::new();
            for step in 1..=ms / 25 {
                let length = Duration::from_millis(25);
                self.now = self.now + length;
                let (expected, received, ce) = report;
                let effect = self.breaker.on_report(
                    self.now,
                    &Interval {
                        length,
                        expected,
                        received,
                        ce,
                    },
                );
                if effect != BreakerEffect::None {
                    effects.push((step * 25, effect));
                }
            }
            effects
        }

        fn silence(&mut self, ms: u64) {
            self.now = self.now + Duration::from_millis(ms);
        }
    }

    // shows: CREM-CC-10, CREM-CC-12, CREM-CC-13, AMB-CBRESUME
    #[test]
    fn every_state_and_input() {
        use BreakerEffect::{GiveUp, None, Resume, Trip};
        use BreakerState::{Clearing, Closed, Open};
        use Input::{Absent, Clean, Persisted, Unknown, Violated};
        let expected = |state: BreakerState, input: Input| match (state, input) {
            // A violation trips a closed breaker, however long ago it was tripped before.
            (Closed, Violated | Persisted) => (Open, Trip),
            (Closed, _) => (Closed, None),
            // A violation more than a minute after the trip ends it; any ends the clean stretch.
            (Open | Clearing, Persisted) => (Open, GiveUp),
            (Open | Clearing, Violated) => (Open, None),
            // The clean stretch begins, and only its end resumes.
            (Open, Clean | Absent) => (Clearing, None),
            (Clearing, Absent) => (Closed, Resume),
            (Clearing, Clean) => (Clearing, None),
            // Silence is neither.
            (state, Unknown) => (state, None),
        };
        for state in [Closed, Open, Clearing] {
            for input in [Violated, Persisted, Clean, Absent, Unknown] {
                assert_eq!(
                    transition(state, input),
                    expected(state, input),
                    "{state:?} {input:?}"
                );
            }
        }
    }

    // shows: CREM-CC-10, AMB-CBWIN
    #[test]
    fn trips_strictly_above_the_limits_over_a_second() {
        for (report, trips) in [
            ((1000, 900, 0), false),
            ((1000, 899, 0), true),
            ((1000, 1000, 500), false),
            ((1000, 1000, 501), true),
            ((0, 0, 0), false),
            // Received beyond expected is no negative loss.
            ((1000, 2000, 0), false),
        ] {
            let effects = Fed::new().feed(2_000, report);
            let expected: &[_] = if trips {
                &[(800, BreakerEffect::Trip)]
            } else {
                &[]
            };
            assert_eq!(effects, expected, "{report:?}");
        }
    }

    #[test]
    fn a_short_spell_of_loss_does_not_trip_and_old_reports_leave_the_window() {
        let mut fed = Fed::new();
        assert!(fed.feed(3_000, GOOD).is_empty());
        assert!(fed.feed(400, BAD).is_empty(), "8 percent over a second");
        assert!(fed.feed(1_000, GOOD).is_empty());
        assert!(fed.feed(400, BAD).is_empty(), "the spell before is over");
        // From here on more than half of the window is bad.
        assert_eq!(fed.feed(300, BAD).len(), 1);
    }

    #[test]
    fn slow_flows_need_a_hundred_positions() {
        let mut breaker = Breaker::default();
        let mut tripped = None;
        for n in 1..=60 {
            let effect = breaker.on_report(
                Instant(n * 1_000_000_000),
                &Interval {
                    length: Duration::from_secs(1),
                    expected: 5,
                    received: 4,
                    ce: 0,
                },
            );
            if effect == BreakerEffect::Trip {
                tripped.get_or_insert(n);
            }
        }
        assert_eq!(tripped, Some(20), "20 reports of five positions");
    }

    // shows: CREM-CC-12, AMB-CBRESUME
    #[test]
    fn resumes_after_ten_seconds_of_clean_windows() {
        let mut fed = Fed::new();
        assert_eq!(fed.feed(1_000, BAD).len(), 1);
        assert!(fed.breaker.is_open());
        // The bad second leaves the window within half of one.
        assert!(fed.feed(9_000, GOOD).is_empty());
        assert_eq!(fed.breaker.state(), BreakerState::Clearing);
        // A violating window restarts the ten seconds.
        assert!(fed.feed(700, BAD).is_empty());
        assert_eq!(fed.breaker.state(), BreakerState::Open);
        assert!(fed.feed(5_000, GOOD).is_empty());
        // Silence neither adds to them nor ends them.
        fed.silence(60_000);
        assert!(fed.feed(3_000, GOOD).is_empty());
        let effects = fed.feed(4_000, GOOD);
        assert!(
            matches!(effects[..], [(_, BreakerEffect::Resume)]),
            "{effects:?}"
        );
        assert!(!fed.breaker.is_open());
    }

    // shows: CREM-CC-13, AMB-CBRESUME
    #[test]
    fn gives_up_when_it_still_violates_after_a_minute() {
        let mut fed = Fed::new();
        let effects = fed.feed(130_000, BAD);
        assert_eq!(
            effects,
            [
                (800, BreakerEffect::Trip),
                (60_825, BreakerEffect::GiveUp),
                (120_850, BreakerEffect::GiveUp)
            ]
        );
        // Clean stretches shorter than ten seconds do not count as absence.
        let mut fed = Fed::new();
        let mut effects = fed.feed(1_000, BAD);
        for _ in 0..8 {
            effects.extend(fed.feed(8_000, GOOD));
            effects.extend(fed.feed(1_000, BAD));
        }
        let given_up = effects.iter().filter(|e| e.1 == BreakerEffect::GiveUp);
        assert_eq!(given_up.count(), 1);
    }
}
