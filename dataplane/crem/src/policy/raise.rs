//! Loss that our own repair traffic brought about (AMB-POLICY): after every raise of m the loss of the next
//! reports is held against that of the reports before.

use crate::time::{Duration, Instant};

/// Reports before and after a raise that are compared.
const REPORTS: usize = 4;
/// How far beyond chance the growth must be, in standard deviations.
const SIGMAS: f64 = 3.0;

/// What the reports after a raise say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RaiseVerdict {
    /// Loss did not grow with the redundancy.
    Passed,
    /// It did: go back to this m, which is the share from before at the new k.
    SelfInduced(u8),
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    /// Reports count from here on: earlier ones speak of packets before the raise.
    from: Instant,
    before_m: u8,
    /// Share of the flow that the raise added.
    added: f64,
    /// Largest loss rate of the reports before.
    before: f64,
    reports: usize,
    expected: u64,
    lost: u64,
}

/// The watch over the raises of m of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct RaiseCheck {
    /// Loss rates of the last reports, newest first.
    last: [f32; REPORTS],
    watch: Option<Watch>,
}

impl RaiseCheck {
    /// Another configuration took force. Watches it if it sends more repair than the one before; `settle`
    /// is the time until reports speak of it. Shapes are (k, m).
    pub fn changed(&mut self, now: Instant, settle: Duration, old: (u8, u8), new: (u8, u8)) {
        let share = |(k, m): (u8, u8)| f64::from(m) / f64::from(k.max(1));
        let added = share(new) - share(old);
        let before = self.last.iter().copied().fold(0.0, f32::max);
        self.watch = (added > 0.0).then_some(Watch {
            from: now + settle,
            before_m: u8::try_from(u32::from(old.1) * u32::from(new.0) / u32::from(old.0.max(1)))
                .unwrap_or(old.1),
            added,
            before: f64::from(before),
            reports: 0,
            expected: 0,
            lost: 0,
        });
    }

    /// Whether a raise is being watched: another one would blur what is seen.
    pub fn is_watching(&self) -> bool {
        self.watch.is_some()
    }

    /// Takes a report: sources expected and lost, and the positions that requests named since the report before.
    /// `burst` is the mean length of runs of losses, which makes counts scatter more. The verdict comes with
    /// the fourth report after a raise.
    ///
    /// Without symbols ahead a receiver reports a loss round trips after it asked for it (AMB-LREXP), and with
    /// them at once. So what was asked for counts as lost before the raise: otherwise the loss that is the
    /// reason of a first raise would look like its consequence.
    pub fn report(
        &mut self,
        now: Instant,
        expected: u32,
        lost: u32,
        asked: u32,
        burst: f64,
    ) -> Option<RaiseVerdict> {
        if expected == 0 {
            return None;
        }
        self.last.rotate_right(1);
        self.last[0] = lost.max(asked).min(expected) as f32 / expected as f32;
        let watch = self.watch.as_mut().filter(|watch| now >= watch.from)?;
        watch.reports += 1;
        watch.expected += u64::from(expected);
        watch.lost += u64::from(lost);
        if watch.reports < REPORTS {
            return None;
        }
        let watch = self.watch.take()?;
        Some(if watch.shows_own_loss(burst) {
            RaiseVerdict::SelfInduced(watch.before_m)
        } else {
            RaiseVerdict::Passed
        })
    }
}

impl Watch {
    fn shows_own_loss(&self, burst: f64) -> bool {
        let expected = self.expected as f64;
        let after = self.lost as f64 / expected;
        let growth = after - self.before;
        // Runs of geometric length with mean b scatter as (2 b - 1) single losses do.
        let variance = after * (1.0 - after) / expected * (2.0 * burst - 1.0).max(1.0);
        growth > self.added / 2.0 && growth > 0.0 && growth * growth > SIGMAS * SIGMAS * variance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u64) -> Instant {
        Instant(n * 20_000_000)
    }

    /// Four reports with the losses before, a raise from `old` to `new`, four with those after.
    fn verdict(
        expected: u32,
        before: [u32; 4],
        (old, new): ((u8, u8), (u8, u8)),
        after: [u32; 4],
        burst: f64,
    ) -> Option<RaiseVerdict> {
        let mut check = RaiseCheck::default();
        for (n, lost) in (0..).zip(before) {
            assert_eq!(check.report(at(n), expected, lost, 0, burst), None);
        }
        check.changed(at(4), Duration::from_millis(20), old, new);
        // This one comes too early to speak of the raise.
        assert_eq!(check.report(at(4), expected, 0, 0, burst), None);
        let mut verdict = None;
        for (n, lost) in (5..).zip(after) {
            assert_eq!(verdict, None);
            verdict = check.report(at(n), expected, lost, 0, burst);
        }
        assert!(!check.is_watching());
        verdict
    }

    // shows: AMB-POLICY
    #[test]
    fn loss_that_grows_with_the_redundancy_is_our_own() {
        let own = Some(RaiseVerdict::SelfInduced(1));
        let passed = Some(RaiseVerdict::Passed);
        let raise = ((32, 1), (32, 4)); // adds 9.4 %, half of it is 4.7 %
        let check = |before, after| verdict(1000, before, raise, after, 1.0);
        assert_eq!(check([10; 4], [90; 4]), own);
        assert_eq!(
            check([10; 4], [56; 4]),
            passed,
            "less than half of what was added"
        );
        assert_eq!(
            check([10, 10, 60, 10], [90; 4]),
            passed,
            "one report before was as bad"
        );
        assert_eq!(check([10; 4], [10; 4]), passed);
        assert_eq!(check([10; 4], [0; 4]), passed);
        // A small sample scatters: 3 of 32 lost against none.
        assert_eq!(verdict(8, [0; 4], raise, [1, 1, 1, 0], 1.0), passed);
        assert_eq!(verdict(1000, [0; 4], raise, [60; 4], 1.0), own);
        // Long bursts scatter more.
        assert_eq!(verdict(1000, [0; 4], raise, [60; 4], 40.0), passed);
    }

    // shows: AMB-POLICY, AMB-LREXP
    #[test]
    fn loss_that_was_asked_for_before_it_is_reported_is_no_growth() {
        // Three percent from the second report on; it is asked for at once and reported late.
        let verdict = |asked: [u32; 4]| {
            let mut check = RaiseCheck::default();
            for (n, asked) in (0..).zip(asked) {
                assert_eq!(check.report(at(n), 1000, asked / 8, asked, 1.0), None);
            }
            check.changed(at(4), Duration::ZERO, (32, 0), (32, 1));
            (4..8).find_map(|n| check.report(at(n), 1000, 30, 0, 1.0))
        };
        assert_eq!(verdict([0, 15, 30, 30]), Some(RaiseVerdict::Passed));
        // Nothing was asked for: the loss came with the raise.
        assert_eq!(verdict([0; 4]), Some(RaiseVerdict::SelfInduced(0)));
        // More asked for than there were is everything.
        assert_eq!(verdict([0, 0, 0, 9_000]), Some(RaiseVerdict::Passed));
    }

    #[test]
    fn only_raises_are_watched() {
        let mut check = RaiseCheck::default();
        check.changed(at(0), Duration::ZERO, (32, 4), (32, 2));
        assert!(!check.is_watching());
        // More symbols over much longer blocks are less repair.
        check.changed(at(0), Duration::ZERO, (32, 4), (128, 6));
        assert!(!check.is_watching());
        check.changed(at(0), Duration::ZERO, (32, 0), (32, 1));
        assert!(check.is_watching());
        assert_eq!(check.report(at(1), 0, 0, 0, 1.0), None, "says nothing");
        for n in 2..5 {
            assert_eq!(check.report(at(n), 100, 0, 0, 1.0), None);
        }
        assert_eq!(
            check.report(at(5), 100, 0, 0, 1.0),
            Some(RaiseVerdict::Passed)
        );
    }
}
