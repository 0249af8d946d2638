//! Loss of REPAIR messages against loss of sources (AMB-REPLOSS, AMB-REPLOSSMUST): sent against received over
//! a window of reports. What follows from a finding is decided in `csf`.

use crate::time::{Duration, Instant};

/// A window is judged once it is this long or holds so many REPAIRs; it goes on while it shows nothing,
const WINDOW: Duration = Duration::from_secs(1);
const WINDOW_REPAIRS: u64 = 64;
/// up to this.
const WINDOW_MAX: Duration = Duration::from_secs(4);
/// How far the loss of REPAIRs must be beyond that of sources: in standard deviations, as a rate, and in
/// messages.
const SIGMAS: f64 = 3.0;
const MARGIN: f64 = 0.005;
const LEAST: f64 = 8.0;
/// A REPAIR leaves up to so much later than it is counted: it waits for room behind sources.
const WAITS: Duration = Duration::from_millis(2);

/// What a window shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RepairLoss {
    /// No REPAIR was lost, or none was sent.
    None,
    /// No more than can be expected at the loss rate of the sources, or than may be under way.
    Equal,
    /// Significantly more than sources.
    Worse,
}

/// The REPAIRs of one flow: how many were sent, how many reports counted.
///
/// Which of those sent around one round trip ago a report counts cannot be known, so at both edges of a window
/// all that were under way may be missing without having been lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct RepairMeter {
    sent: u64,
    /// Count sent at some of the last reports, newest first.
    snapshots: [(Instant, u64); 3],
    window: Option<Window>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    start: Instant,
    /// Sent an SRTT before the start.
    sent: u64,
    /// Under way at the start.
    under_way: u64,
    received: u64,
    expected: u64,
    lost: u64,
}

/// The counts of a report that matter here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RepairReport {
    /// Sources expected.
    pub expected: u32,
    /// Sources lost.
    pub lost: u32,
    /// REPAIRs received.
    pub repairs: u32,
}

impl RepairMeter {
    /// Counts REPAIR messages sent, of every kind.
    pub fn sent(&mut self, count: u32) {
        self.sent += u64::from(count);
    }

    /// Takes a report; `burst` is the mean length of runs of losses. The finding comes with the report that
    /// ends a window.
    pub fn report(
        &mut self,
        now: Instant,
        srtt: Duration,
        report: &RepairReport,
        burst: f64,
    ) -> Option<RepairLoss> {
        let arrived = self.sent_before(now, srtt - srtt / 8);
        let under_way = self.sent - self.sent_before(now, srtt + srtt / 2 + WAITS);
        // Three have to reach back one and a half round trips and the wait.
        if now.since(self.snapshots[0].0) >= (srtt / 2).max(WAITS / 2) {
            self.snapshots.rotate_right(1);
            self.snapshots[0] = (now, self.sent);
        }
        let window = self.window.get_or_insert(Window {
            start: now,
            sent: arrived,
            under_way,
            received: 0,
            expected: 0,
            lost: 0,
        });
        window.received += u64::from(report.repairs);
        window.expected += u64::from(report.expected);
        window.lost += u64::from(report.lost);
        let sent = arrived.saturating_sub(window.sent);
        let age = now.since(window.start);
        if age < WINDOW && sent < WINDOW_REPAIRS {
            return None;
        }
        let found = window.judge(sent, under_way, burst);
        if found == RepairLoss::Equal && age < WINDOW_MAX {
            return None;
        }
        self.window = Some(Window {
            start: now,
            sent: arrived,
            under_way,
            received: 0,
            expected: 0,
            lost: 0,
        });
        Some(found)
    }

    /// What was sent when the latest report came that is at least so old now.
    fn sent_before(&self, now: Instant, age: Duration) -> u64 {
        let old_enough = |(at, _): &&(Instant, u64)| now.since(*at) >= age;
        let known = self.snapshots.iter().find(old_enough);
        known.or(self.snapshots.last()).map_or(0, |(_, sent)| *sent)
    }
}

impl Window {
    fn judge(&self, sent: u64, under_way: u64, burst: f64) -> RepairLoss {
        let missing = sent.saturating_sub(self.received);
        if missing == 0 {
            return RepairLoss::None;
        }
        let lost = missing.saturating_sub(self.under_way + under_way) as f64;
        let (sent, expected) = (sent as f64, self.expected.max(1) as f64);
        let source = (self.lost as f64 / expected).min(1.0);
        let excess = lost / sent - source;
        // Variance of the difference if both were lost at the pooled rate; runs of geometric length with mean
        // b scatter as (2 b - 1) single losses do.
        let pooled = ((lost + self.lost as f64) / (sent + expected)).min(1.0);
        let single = pooled * (1.0 - pooled) * (1.0 / sent + 1.0 / expected);
        let variance = single * (2.0 * burst - 1.0).max(1.0);
        let certain = excess > MARGIN && excess * excess > SIGMAS * SIGMAS * variance;
        if certain && excess * sent >= LEAST {
            RepairLoss::Worse
        } else {
            RepairLoss::Equal
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const SRTT: Duration = Duration::from_millis(20);

    /// A report every SRTT; in between `sent` REPAIRs go out, of which `received` are reported one SRTT
    /// later, next to the (expected, lost) sources.
    fn findings(
        rounds: u64,
        sent: u32,
        received: u32,
        (expected, lost): (u32, u32),
    ) -> Vec<RepairLoss> {
        let mut meter = RepairMeter::default();
        let mut found = Vec::new();
        for n in 0..rounds {
            let report = RepairReport {
                expected,
                lost,
                repairs: if n < 2 { 0 } else { received },
            };
            let now = Instant(1_000_000_000) + SRTT * n as u32;
            found.extend(meter.report(now, SRTT, &report, 1.0));
            meter.sent(sent);
        }
        found
    }

    // shows: AMB-REPLOSS
    #[test]
    fn repair_under_way_is_not_lost() {
        let found = findings(100, 10, 10, (1000, 10));
        assert!(found.len() > 10, "{found:?}");
        assert!(found.iter().all(|f| *f == RepairLoss::None), "{found:?}");
        let idle = findings(200, 0, 0, (1000, 10));
        assert!(
            idle.len() == 3 && idle.iter().all(|f| *f == RepairLoss::None),
            "{idle:?}"
        );
    }

    // shows: AMB-REPLOSS
    #[test]
    fn bursts_at_the_edge_of_a_window_are_not_lost() {
        // Two hundred REPAIRs every fourth round trip, all received, one round trip and a half later.
        let mut meter = RepairMeter::default();
        for n in 0..1_000u64 {
            let now = Instant(1_000_000_000) + SRTT * n as u32;
            let report = RepairReport {
                expected: 1000,
                lost: 0,
                repairs: if n % 4 == 2 { 200 } else { 0 },
            };
            let found = meter.report(now, SRTT, &report, 1.0);
            assert_ne!(found, Some(RepairLoss::Worse), "{n}");
            if n % 4 == 0 {
                meter.sent(200);
            }
        }
    }

    // shows: CREM-CC-06, AMB-REPLOSSMUST
    #[test]
    fn only_loss_beyond_that_of_sources_is_worse() {
        let worse = |found: Vec<RepairLoss>| found.contains(&RepairLoss::Worse);
        // Two percent of both.
        assert!(!worse(findings(1000, 100, 98, (3200, 64))));
        // A fifth of the REPAIRs, two percent of the sources.
        assert!(worse(findings(200, 100, 80, (3200, 64))));
        // All of few, and too few to say.
        assert!(worse(findings(200, 1, 0, (32, 0))));
        assert!(!worse(findings(8, 1, 0, (32, 0))));
        // More reported than sent is no negative loss.
        assert!(!worse(findings(200, 10, 11, (320, 0))));
        // One report early leaves no trace: it speaks of what was sent before.
        assert_eq!(findings(2, 100, 0, (10, 0)), []);
    }

    #[test]
    fn losses_in_runs_scatter_more() {
        let window = |burst| {
            let window = Window {
                start: Instant(0),
                sent: 0,
                under_way: 0,
                received: 940,
                expected: 20_000,
                lost: 200,
            };
            window.judge(1000, 0, burst)
        };
        assert_eq!(window(1.0), RepairLoss::Worse);
        assert_eq!(window(40.0), RepairLoss::Equal);
    }
}
