//! LOSS_REPORT and what follows from it at once: the estimates, the reaction to what happens to REPAIR
//! messages, the watch over raises of m, the circuit breaker, and the watch for missing reports. Which
//! configuration is wanted then is decided in `adapt.rs`.

use crem_wire::crem::LossReport;
use crem_wire::crem::registry::CloseReason;

use super::flow::{Flow, Shared};
use super::negotiate::Cause;
use super::states::{Input, State};
use crate::config::FecConfig;
use crate::events::{Event, Unprotected};
use crate::policy::{
    Breaker, BreakerEffect, Interval, LossEstimate, RaiseCheck, RaiseVerdict, Reduction,
    RepairLoss, RepairMeter, RepairReport,
};
use crate::time::{Duration, Instant};

/// Pauses without a report that together count as silence, for flows slower than the silence limit.
const SLOW_RUNS: u8 = 4;

/// What the reports of one binding say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reports {
    pub(super) loss: LossEstimate,
    /// The same after restoration.
    pub(super) loss_after: LossEstimate,
    /// Less than m, while REPAIR messages are marked or lost.
    pub(super) reduction: Reduction,
    pub(super) repairs: RepairMeter,
    /// REPAIRs were lost in the last window in a way that m has to be reduced for.
    repairs_lost: bool,
    pub(super) raise: RaiseCheck,
    /// m to go back to after a raise that brought loss, until another configuration is in force.
    pub(super) reverted: Option<u8>,
    pub(super) breaker: Breaker,
    /// Positions that requests named since the last report.
    asked: u32,
    unreported_since: Option<Instant>,
    slow_runs: u8,
    last_run: Instant,
}

/// What the path says on the loss of REPAIR.
struct PathView {
    /// Mean length of runs of losses.
    burst: f64,
    /// Any loss counts: losses are congestion, or the operator takes the document literally.
    any_loss: bool,
}

/// What a report says of REPAIR messages.
#[derive(Clone, Copy, Default)]
struct RepairFindings {
    /// Marks, or loss, reduced m.
    marks_reduced: bool,
    loss_reduced: bool,
    /// More of them were lost than of the sources.
    worse: bool,
}

impl Reports {
    /// Nothing reported yet; `breaker` is that of the binding before.
    pub(super) fn new(fec: &FecConfig, breaker: Breaker, now: Instant) -> Self {
        Self {
            loss: LossEstimate::new(fec.initial_loss_ppm),
            loss_after: LossEstimate::new(0),
            reduction: Reduction::default(),
            repairs: RepairMeter::default(),
            repairs_lost: false,
            raise: RaiseCheck::default(),
            reverted: None,
            breaker,
            asked: 0,
            unreported_since: None,
            slow_runs: 0,
            last_run: now,
        }
    }

    /// m that may be sent now of a configured m, as far as this flow alone decides it.
    pub(super) fn allowed(&self, m: u8) -> u8 {
        if self.breaker.is_open() {
            return 0;
        }
        self.reduction
            .allowed(self.reverted.map_or(m, |r| r.min(m)))
    }

    /// Packets of the flow passed now; `true` if for `limit` no report came although packets flowed
    /// (AMB-LRSEQ). A flow whose packets are further apart than `limit` is silent after four of them.
    pub(super) fn packets_passed(&mut self, now: Instant, limit: Duration) -> bool {
        let slow = now.since(self.last_run) > limit;
        self.last_run = now;
        match self.unreported_since {
            Some(since) if !slow => {
                if now.since(since) >= limit {
                    return true;
                }
            }
            earlier => {
                self.slow_runs += u8::from(earlier.is_some());
                self.unreported_since = Some(now);
            }
        }
        self.slow_runs >= SLOW_RUNS
    }

    /// Takes down the positions that a request names.
    pub(super) fn asked_for(&mut self, positions: u32) {
        self.asked = self.asked.saturating_add(positions);
    }

    fn report_came(&mut self) {
        self.unreported_since = None;
        self.slow_runs = 0;
    }

    /// Takes what a report says of REPAIR messages (AMB-REPLOSSMUST, AMB-REDUCE); `m` is the configured one.
    fn take_repairs(
        &mut self,
        report: &LossReport,
        m: u8,
        srtt: Duration,
        path: &PathView,
        now: Instant,
    ) -> RepairFindings {
        let counts = RepairReport {
            expected: report.expected,
            lost: lost_of(report),
            repairs: report.repairs_received,
        };
        let judged = self.repairs.report(now, srtt, &counts, path.burst);
        if m == 0 {
            // Nothing to reduce: what is sent answers requests, and leaves in bursts.
            self.repairs_lost = false;
        } else if let Some(loss) = judged {
            self.repairs_lost = match loss {
                RepairLoss::None => false,
                RepairLoss::Equal => path.any_loss,
                RepairLoss::Worse => true,
            };
        }
        let lost_now = judged.is_some() && self.repairs_lost;
        let mut found = RepairFindings {
            worse: m > 0 && judged == Some(RepairLoss::Worse),
            ..RepairFindings::default()
        };
        if report.repairs_ce_marked > 0 {
            found.marks_reduced = self.reduction.found(m, now);
        } else if lost_now {
            found.loss_reduced = self.reduction.found(m, now);
        } else if self.repairs_lost {
            found.loss_reduced = self.reduction.lasts(m, now);
        } else {
            self.reduction.absent(m, now);
        }
        found
    }
}

/// Sources that a report calls lost: before restoration (AMB-PFORM).
pub(super) fn lost_of(report: &LossReport) -> u32 {
    report.expected.saturating_sub(report.received)
}

/// A report as breakers take it.
pub(super) fn interval_of(report: &LossReport) -> Interval {
    Interval {
        length: Duration::from_micros(report.interval_us.into()),
        expected: report.expected.into(),
        received: report.received.into(),
        ce: report.ce_marked.into(),
    }
}

impl<B: Clone> Flow<B> {
    /// Takes a LOSS_REPORT of this flow.
    pub(super) fn on_report(&mut self, report: &LossReport, sh: &mut Shared<B>, now: Instant) {
        self.count_report(report, sh);
        let srtt = self.who(sh, now).srtt;
        let Some(binding) = &mut self.binding else {
            return;
        };
        binding.volume.on_report(lost_of(report));
        binding.reports.report_came();
        let (expected, received) = (u64::from(report.expected), u64::from(report.received));
        binding.reports.loss.step(expected, received);
        let arrived = received + u64::from(report.restored);
        binding.reports.loss_after.step(expected, arrived);
        let peer = binding.to;
        sh.path_report(peer, report, srtt, now);
        self.judge_repeated(lost_of(report), sh, now);
        self.react(report, srtt, sh, now);
        self.judge_lengths(report, srtt, sh, now);
        self.step(Input::Report, Cause::None, sh, now);
        self.break_circuit(report, sh, now);
        self.reconsider(sh, now);
    }

    fn count_report(&mut self, report: &LossReport, sh: &mut Shared<B>) {
        sh.counters.loss_reports += 1;
        if report.received > report.expected {
            sh.counters.loss_reports_inconsistent += 1;
        }
        self.counts.reported_expected += u64::from(report.expected);
        self.counts.reported_lost += u64::from(lost_of(report));
        self.counts.reported_restored += u64::from(report.restored);
    }

    /// The reactions that are due at once: to marks and loss of REPAIRs, and to loss of our own making.
    fn react(&mut self, report: &LossReport, srtt: Duration, sh: &mut Shared<B>, now: Instant) {
        let Some(binding) = &mut self.binding else {
            return;
        };
        let path = sh.path(binding.to);
        let congested = path.is_some_and(|path| path.class().is_congestion());
        let burst = path.map_or(1.0, |path| path.burst.mean());
        let path = PathView {
            burst,
            any_loss: congested || sh.cfg.fec.strict_repair_loss,
        };
        let m = binding.params.active().map_or(0, |config| config.m);
        let reports = &mut binding.reports;
        let found = reports.take_repairs(report, m, srtt, &path, now);
        sh.counters.ce_reductions += u64::from(found.marks_reduced);
        sh.counters.repair_loss_reductions += u64::from(found.loss_reduced);
        if found.worse {
            sh.repair_displaced(binding.to, srtt, now);
        }
        let asked = core::mem::take(&mut reports.asked);
        let verdict = reports
            .raise
            .report(now, report.expected, lost_of(report), asked, burst);
        match verdict {
            None => {}
            Some(RaiseVerdict::Passed) => sh.raise_passed(binding.to),
            Some(RaiseVerdict::SelfInduced(m)) => {
                reports.reverted = Some(m);
                sh.counters.raises_reverted += 1;
                let peer = binding.to;
                sh.raise_failed(peer, srtt, now);
            }
        }
    }

    /// Takes a report through the breaker of the flow, and looks at that of its path.
    fn break_circuit(&mut self, report: &LossReport, sh: &mut Shared<B>, now: Instant) {
        if self.state != State::Active {
            return;
        }
        let Some(binding) = &mut self.binding else {
            return;
        };
        let mut over = sh
            .path(binding.to)
            .is_some_and(|path| path.gave_up_since(binding.bound_at));
        let effect = binding.reports.breaker.on_report(now, &interval_of(report));
        match effect {
            BreakerEffect::None => {}
            BreakerEffect::Trip => {
                sh.counters.breaker_trips += 1;
                sh.events.push(Event::BreakerOpened(self.key));
            }
            BreakerEffect::Resume => {
                sh.counters.breaker_resumes += 1;
                sh.events.push(Event::BreakerClosed(self.key));
            }
            BreakerEffect::GiveUp => over = true,
        }
        if over {
            sh.counters.breaker_closes += 1;
            let cause = Cause::Close(Unprotected::Breaker, CloseReason::CircuitBreaker);
            self.step(Input::BreakerOver, cause, sh, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    // shows: AMB-LRSEQ
    #[test]
    fn silence_needs_packets_all_along() {
        let limit = Duration::from_secs(1);
        let mut reports = Reports::new(&FecConfig::default(), Breaker::default(), at(0));
        for ms in (0..1000).step_by(10) {
            assert!(!reports.packets_passed(at(ms), limit), "{ms}");
        }
        assert!(reports.packets_passed(at(1000), limit));
        reports.report_came();
        assert!(!reports.packets_passed(at(1010), limit));
        // A pause, then a burst: the last report of the burst before may have been lost.
        assert!(!reports.packets_passed(at(9000), limit));
        assert!(!reports.packets_passed(at(9010), limit));
        reports.report_came();
        // One packet every two seconds and never a report.
        let silent = (0..10).position(|n| reports.packets_passed(at(20_000 + n * 2000), limit));
        assert_eq!(silent, Some(4));
    }
}
