//! LOSS_REPORT and what follows from it: the loss estimate, the wanted configuration, the reaction to
//! marked REPAIR messages, and the watch for missing reports.

use crem_wire::crem::{LossReport, Message};

use super::flow::{Binding, Flow, Shared, Who};
use super::params::Shape;
use super::states::{Input, State};
use crate::config::FecConfig;
use crate::plan::{self, Family};
use crate::policy::{self, Bounds, LossEstimate};
use crate::time::{Duration, Instant};

/// The condition on REPAIR marks counts as lasting, and as over, after this (AMB-REDUCE).
const CE_PERSISTS: Duration = Duration::from_secs(1);
/// Pauses without a report that together count as silence, for flows slower than the silence limit.
const SLOW_RUNS: u8 = 4;

/// What the reports of one binding say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reports {
    pub(super) loss: LossEstimate,
    /// Largest m that may be sent now, while REPAIR messages are being marked.
    cap: Option<u8>,
    ce_since: Option<Instant>,
    ce_last: Instant,
    unreported_since: Option<Instant>,
    slow_runs: u8,
    last_run: Instant,
}

impl Reports {
    pub(super) fn new(fec: &FecConfig, now: Instant) -> Self {
        Self {
            loss: LossEstimate::new(fec.initial_loss_ppm),
            cap: None,
            ce_since: None,
            ce_last: now,
            unreported_since: None,
            slow_runs: 0,
            last_run: now,
        }
    }

    /// m that may be sent now of a configured m.
    pub(super) fn allowed(&self, m: u8) -> u8 {
        self.cap.map_or(m, |cap| cap.min(m))
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

    fn report_came(&mut self) {
        self.unreported_since = None;
        self.slow_runs = 0;
    }

    /// Takes the marks of a report; `m` is the configured one. `true` if m was reduced.
    fn take_marks(&mut self, report: &LossReport, m: u8, now: Instant) -> bool {
        if report.repairs_ce_marked == 0 {
            self.recover(m, now);
            return false;
        }
        self.ce_last = now;
        let since = *self.ce_since.get_or_insert(now);
        let before = self.allowed(m);
        let lasting = now.since(since) >= CE_PERSISTS;
        self.cap = Some(if lasting { 0 } else { before / 2 });
        self.allowed(m) < before
    }

    fn recover(&mut self, m: u8, now: Instant) {
        let Some(cap) = self.cap else { return };
        if now.since(self.ce_last) < CE_PERSISTS {
            return;
        }
        self.ce_since = None;
        // One step, and the next one not before the condition stayed away for as long again.
        self.ce_last = now;
        self.cap = (cap + 1 < m).then_some(cap + 1);
    }
}

impl<B: Clone> Flow<B> {
    /// Takes a LOSS_REPORT of this flow.
    pub(super) fn on_report(&mut self, report: &LossReport, sh: &mut Shared<B>, now: Instant) {
        let Some(binding) = &mut self.binding else {
            return;
        };
        sh.counters.loss_reports += 1;
        if report.received > report.expected {
            sh.counters.loss_reports_inconsistent += 1;
        }
        let lost = report.expected.saturating_sub(report.received);
        self.counts.reported_expected += u64::from(report.expected);
        self.counts.reported_lost += u64::from(lost);
        self.counts.reported_restored += u64::from(report.restored);
        binding.volume.on_report(lost);
        binding.reports.report_came();
        binding
            .reports
            .loss
            .step(report.expected.into(), report.received.into());
        let m = binding.params.active().map_or(0, |config| config.m);
        if binding.reports.take_marks(report, m, now) {
            sh.counters.ce_reductions += 1;
        }
        let (peer, srtt) = (binding.to, self.who(sh, now).srtt);
        sh.path_report(peer, report, srtt, now);
        self.step(Input::Report, super::negotiate::Cause::None, sh, now);
        self.reconsider(sh, now);
    }

    /// Announces another configuration if one is wanted and allowed now.
    pub(super) fn reconsider(&mut self, sh: &mut Shared<B>, now: Instant) {
        if self.state != State::Active {
            return;
        }
        let who = self.who(sh, now);
        let Some(wanted) = self.wanted_shape(sh, &who) else {
            return;
        };
        let Some(binding) = &mut self.binding else {
            return;
        };
        let keep = who.keep(sh.cfg.csf.keep_floor);
        let stalled = binding.params.is_stalled(who.pace, now);
        let changed = binding
            .params
            .active()
            .is_some_and(|active| active.shape() != wanted);
        if stalled || (changed && binding.params.may_change(now, who.srtt, keep)) {
            let update = binding.params.announce(binding.id, wanted, who.pace, now);
            sh.counters.param_update_sent += 1;
            sh.send(binding.to, Message::ParamUpdate(update), who.dscp, None);
        }
    }

    /// The configuration that policy wants for the bound flow now; `None` if no T fits the path.
    pub(super) fn wanted_shape(&self, sh: &Shared<B>, who: &Who) -> Option<Shape> {
        let binding = self.binding.as_ref()?;
        let fec = &sh.cfg.fec;
        let limits = &binding.limits;
        let (path_mtu, tunnel) = self.path(sh);
        let family = Family::of(&binding.to.ip());
        let k = wanted_k(fec, binding, who);
        let fitting = |t: u16| {
            let t = t.min(limits.max_t);
            let fits = |k: u8| plan::max_symbol_length(path_mtu, family, k, tunnel) >= t;
            fitting_k(k, fits).map(|k| (k, t))
        };
        let t = plan::symbol_length(binding.rdma_mtu, self.track.xrc);
        // What oversize packets asked for, if the path has room for it.
        let (k, t) = fitting(t.max(binding.t_needed)).or_else(|| fitting(t))?;
        let path = sh.path(binding.to);
        let p = path.map_or(binding.reports.loss.rate(), |path| path.loss.rate());
        let congested = path.is_some_and(|path| path.class().is_congestion());
        let m = wanted_m(fec, binding, k, p, congested);
        Some(Shape { scheme: 1, k, m, t })
    }

    /// Path MTU to the peer and what tunnels take of it.
    pub(super) fn path(&self, sh: &Shared<B>) -> (u16, u16) {
        sh.cfg
            .peer_for(self.key.destination)
            .map_or((sh.cfg.path_mtu, 0), |peer| {
                (peer.path_mtu, peer.tunnel_overhead)
            })
    }
}

fn wanted_m<B>(fec: &FecConfig, binding: &Binding<B>, k: u8, p: f64, congested: bool) -> u8 {
    let bounds = Bounds {
        min: fec.m_min,
        max: fec.m_max.min(binding.limits.max_m),
    };
    let epsilon = f64::from(fec.target_ppm) / 1e6;
    let reports = &binding.reports;
    let current = binding.params.active().map_or(0, |config| config.m);
    let m = policy::next_m(current, k, p, epsilon, bounds);
    // Congestion never raises m beyond m_cong, and freezes it where it is higher (AMB-MCONG).
    let m = if congested {
        m.min(current.max(fec.m_cong))
    } else {
        m
    };
    reports.allowed(m)
}

/// The configured k, doubled while the CRF could not hold the open blocks (AMB-OPENBLOCKS).
fn wanted_k<B>(fec: &FecConfig, binding: &Binding<B>, who: &Who) -> u8 {
    let limit = fec.max_k.min(binding.limits.max_k).max(1);
    // Keep a k that was raised: the rate falls when the flow pauses, and would raise it again.
    let floor = binding.params.active().map_or(1, |config| config.k);
    let mut k = fec.k.max(floor).clamp(1, limit);
    while open_blocks(who, k) > u64::from(binding.max_open_blocks) && k <= limit / 2 {
        k *= 2;
    }
    k
}

/// Blocks that the CRF holds open at once: rate x (SRTT + 2 H) / k, with H at its automatic bound of a
/// quarter of the minimum RTT.
pub(super) fn open_blocks(who: &Who, k: u8) -> u64 {
    let span = who.srtt + who.min_rtt / 2;
    let positions = u128::from(who.pace.rate) * span.as_nanos() / 1_000_000_000;
    u64::try_from(positions / u128::from(k.max(1))).unwrap_or(u64::MAX)
}

/// The largest k not above `k` that fits; a bitmap word holds 32 positions (AMB-TMTU).
pub(super) fn fitting_k(mut k: u8, fits: impl Fn(u8) -> bool) -> Option<u8> {
    while !fits(k) {
        k = (k.checked_sub(1)?) / 32 * 32;
        if k == 0 {
            return None;
        }
    }
    Some(k)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crem_wire::FlowId;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn report(received: u32, ce: u32, repairs_ce: u32) -> LossReport {
        LossReport {
            flow: FlowId::new(1).unwrap(),
            interval_us: 20_000,
            expected: received,
            received,
            restored: 0,
            incomplete_blocks: 0,
            ce_marked: ce,
            repairs_received: 100,
            repairs_ce_marked: repairs_ce,
        }
    }

    #[test]
    fn marks_on_repair_halve_then_stop_then_come_back_by_one() {
        let mut reports = Reports::new(&FecConfig::default(), at(0));
        assert!(reports.take_marks(&report(100, 0, 1), 8, at(0)));
        assert_eq!(reports.allowed(8), 4);
        assert!(reports.take_marks(&report(100, 0, 1), 8, at(20)));
        assert_eq!(reports.allowed(8), 2);
        reports.take_marks(&report(100, 0, 0), 8, at(500));
        assert_eq!(reports.allowed(8), 2, "not before a second without marks");
        reports.take_marks(&report(100, 0, 1), 8, at(1000));
        assert_eq!(reports.allowed(8), 0, "lasted for a second");
        reports.take_marks(&report(100, 0, 0), 8, at(2000));
        assert_eq!(reports.allowed(8), 1);
        reports.take_marks(&report(100, 0, 0), 8, at(2020));
        assert_eq!(reports.allowed(8), 1);
        for second in 3..20 {
            reports.take_marks(&report(100, 0, 0), 8, at(second * 1000));
        }
        assert_eq!(reports.allowed(8), 8);
    }

    #[test]
    fn silence_needs_packets_all_along() {
        let limit = Duration::from_secs(1);
        let mut reports = Reports::new(&FecConfig::default(), at(0));
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

    #[test]
    fn k_falls_by_bitmap_words() {
        assert_eq!(fitting_k(100, |k| k <= 70), Some(64));
        assert_eq!(fitting_k(100, |k| k <= 100), Some(100));
        assert_eq!(fitting_k(128, |k| k <= 32), Some(32));
        assert_eq!(fitting_k(32, |k| k <= 31), None);
        assert_eq!(fitting_k(20, |_| false), None);
    }
}
