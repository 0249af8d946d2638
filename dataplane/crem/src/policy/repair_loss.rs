//! Loss of REPAIR messages against loss of sources (AMB-REPLOSS, AMB-REPLOSSMUST): sent against received over
//! a window of reports. What follows from a finding is decided in `csf`.

use crate::time::{Duration, Instant};

/// A window is judged once it is this long or holds so many REPAIRs.
const WINDOW: Duration = Duration::from_secs(1);
const WINDOW_REPAIRS: u64 = 64;
/// How far the loss of REPAIRs must be beyond that of sources: in standard deviations, and as a rate.
const SIGMAS: f64 = 3.0;
const MARGIN: f64 = 0.005;

/// What a window shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RepairLoss {
    /// No REPAIR was lost, or none was sent.
    None,
    /// As many as can be expected at the loss rate of the sources.
    Equal,
    /// Significantly more than sources.
    Worse,
}

/// The REPAIRs of one flow: how many were sent, how many reports counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct RepairMeter {
    sent: u64,
    /// Count sent at the last reports, newest first.
    snapshots: [(Instant, u64); 2],
    window: Option<Window>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    start: Instant,
    sent: u64,
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

    /// Takes a report. It speaks of the REPAIRs that were sent an SRTT ago: later ones are under way.
    pub fn report(
        &mut self,
        now: Instant,
        srtt: Duration,
        report: &RepairReport,
    ) -> Option<RepairLoss> {
        let arrived = self.sent_by(now, srtt);
        self.snapshots = [(now, self.sent), self.snapshots[0]];
        let window = self.window.get_or_insert(Window {
            start: now,
            sent: arrived,
            received: 0,
            expected: 0,
            lost: 0,
        });
        window.received += u64::from(report.repairs);
        window.expected += u64::from(report.expected);
        window.lost += u64::from(report.lost);
        let sent = arrived.saturating_sub(window.sent);
        if now.since(window.start) < WINDOW && sent < WINDOW_REPAIRS {
            return None;
        }
        let judged = *window;
        // REPAIRs counted beyond what was sent by then belong to the next window, as far as they can.
        let ahead = judged.received.saturating_sub(sent);
        self.window = Some(Window {
            start: now,
            sent: arrived,
            received: ahead.min(self.sent - arrived),
            expected: 0,
            lost: 0,
        });
        Some(judged.judge(sent))
    }

    /// What was sent an SRTT before a report that comes now. Reports come about once per SRTT, so the one
    /// before is meant, and the one before that where it came late.
    fn sent_by(&self, now: Instant, srtt: Duration) -> u64 {
        let enough = srtt - srtt / 8;
        let [newest, older] = self.snapshots;
        if now.since(newest.0) >= enough {
            newest.1
        } else {
            older.1
        }
    }
}

impl Window {
    fn judge(&self, sent: u64) -> RepairLoss {
        let lost = sent.saturating_sub(self.received);
        if lost == 0 {
            return RepairLoss::None;
        }
        let rate = lost as f64 / sent as f64;
        let source = if self.expected > 0 {
            (self.lost as f64 / self.expected as f64).min(1.0)
        } else {
            0.0
        };
        let excess = rate - source;
        // Variance of the difference if both were lost at the pooled rate.
        let all = (sent + self.expected) as f64;
        let pooled = (lost + self.lost) as f64 / all;
        let each = 1.0 / sent as f64 + 1.0 / (self.expected.max(1)) as f64;
        let variance = pooled * (1.0 - pooled).max(0.0) * each;
        if excess > MARGIN && excess * excess > SIGMAS * SIGMAS * variance {
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
            found.extend(meter.report(now, SRTT, &report));
            meter.sent(sent);
        }
        found
    }

    // shows: AMB-REPLOSS
    #[test]
    fn repair_under_way_is_not_lost() {
        let found = findings(100, 10, 10, (1000, 10));
        assert!(
            found.len() > 10 && found.iter().all(|f| *f == RepairLoss::None),
            "{found:?}"
        );
        let idle = findings(200, 0, 0, (1000, 10));
        assert!(
            idle.len() == 3 && idle.iter().all(|f| *f == RepairLoss::None),
            "{idle:?}"
        );
    }

    // shows: CREM-CC-06, AMB-REPLOSSMUST
    #[test]
    fn only_loss_beyond_that_of_sources_is_worse() {
        let last = |found: Vec<RepairLoss>| found.last().copied();
        // Two percent of both.
        assert_eq!(
            last(findings(200, 100, 98, (3200, 64))),
            Some(RepairLoss::Equal)
        );
        // A fifth of the REPAIRs, two percent of the sources.
        assert_eq!(
            last(findings(200, 100, 80, (3200, 64))),
            Some(RepairLoss::Worse)
        );
        // Some more, but not beyond chance.
        assert_eq!(
            last(findings(200, 10, 9, (320, 20))),
            Some(RepairLoss::Equal)
        );
        // More reported than sent is no negative loss.
        assert_eq!(
            last(findings(200, 10, 11, (320, 0))),
            Some(RepairLoss::None)
        );
        // One report early leaves no trace: it speaks of what was sent before.
        assert_eq!(findings(2, 100, 0, (10, 0)), []);
    }
}
