//! The counts of LOSS_REPORT (CREM, Receiver Loss Reports; AMB-LREXP, AMB-LRACTIVE): which positions
//! are final, what arrived in time, and the receiver's own loss estimate. Sending is decided elsewhere.

use alloc::collections::VecDeque;
use crem_wire::crem::LossReport;
use crem_wire::{FlowId, Psn};

use crate::time::{Duration, Instant};

/// Stretches of PSNs that wait to become final, at most; beyond this they are merged.
const MAX_STRETCHES: usize = 8;

/// A stretch of PSNs that the highest PSN passed at one time.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    start: Psn,
    end: Psn,
    opened: Instant,
    passed: Instant,
    received: u32,
    ce: u32,
}

/// One step of the highest PSN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Next PSN before the step.
    pub(crate) start: Psn,
    /// Next PSN after it.
    pub(crate) end: Psn,
    /// New source packets in between.
    pub(crate) received: u32,
    /// Those that were CE marked.
    pub(crate) ce: u32,
}

impl Step {
    /// Whether the highest PSN passed `psn` in this step.
    pub(crate) fn contains(&self, psn: Psn) -> bool {
        psn.distance_from(self.start) >= 0 && self.end.is_after(psn)
    }

    /// Counts a source packet.
    pub(crate) fn count(&mut self, ce: bool) {
        self.received += 1;
        self.ce += u32::from(ce);
    }
}

/// Counts since the last report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Interval {
    expected: u32,
    received: u32,
    restored: u32,
    incomplete: u32,
    ce: u32,
    repairs: u32,
    repairs_ce: u32,
}

/// Loss accounting of one flow.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    stretches: VecDeque<Stretch>,
    interval: Interval,
    since: Instant,
    active: bool,
    loss: f64,
    loss_after: f64,
}

impl Tally {
    /// Nothing counted.
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            stretches: VecDeque::new(),
            interval: Interval {
                expected: 0,
                received: 0,
                restored: 0,
                incomplete: 0,
                ce: 0,
                repairs: 0,
                repairs_ce: 0,
            },
            since: now,
            active: false,
            loss: 0.0,
            loss_after: 0.0,
        }
    }

    /// The highest PSN moved.
    pub(crate) fn passed(&mut self, now: Instant, step: Step, allowance: Duration) {
        self.settle(now, allowance);
        let full = self.stretches.len() >= MAX_STRETCHES;
        match self.stretches.back_mut() {
            // The later time for the whole is the careful side.
            Some(last) if full || now.since(last.opened) < allowance / 6 => {
                last.end = step.end;
                last.passed = now;
                last.received += step.received;
                last.ce += step.ce;
            }
            _ => self.stretches.push_back(Stretch {
                start: step.start,
                end: step.end,
                opened: now,
                passed: now,
                received: step.received,
                ce: step.ce,
            }),
        }
    }

    /// The source packet of a missing position arrived; it counts unless the position is final.
    pub(crate) fn late(&mut self, now: Instant, psn: Psn, ce: bool, allowance: Duration) {
        let stretch = self
            .stretches
            .iter_mut()
            .rev()
            .find(|s| psn.distance_from(s.start) >= 0 && s.end.is_after(psn))
            .filter(|s| s.passed + allowance > now);
        if let Some(stretch) = stretch {
            stretch.received += 1;
            stretch.ce += u32::from(ce);
        }
    }

    /// A source packet or a REPAIR arrived; true if the flow was not active before.
    pub(crate) fn activity(&mut self, now: Instant) -> bool {
        let starts = !self.active && self.interval == Interval::default();
        if starts && self.stretches.is_empty() {
            self.since = now;
        }
        !core::mem::replace(&mut self.active, true)
    }

    /// A REPAIR arrived.
    pub(crate) fn repair(&mut self, ce: bool) {
        self.interval.repairs = self.interval.repairs.saturating_add(1);
        self.interval.repairs_ce += u32::from(ce);
    }

    /// A missing position is known to have carried a packet.
    pub(crate) fn lost(&mut self) {
        self.interval.expected = self.interval.expected.saturating_add(1);
    }

    /// A packet was restored.
    pub(crate) fn restored(&mut self) {
        self.interval.restored = self.interval.restored.saturating_add(1);
    }

    /// A block could not be decoded at the first attempt.
    pub(crate) fn incomplete(&mut self) {
        self.interval.incomplete = self.interval.incomplete.saturating_add(1);
    }

    fn settle(&mut self, now: Instant, allowance: Duration) {
        while let Some(s) = self.stretches.pop_front_if(|s| s.passed + allowance <= now) {
            let interval = &mut self.interval;
            interval.received = interval.received.saturating_add(s.received);
            interval.expected = interval.expected.saturating_add(s.received);
            interval.ce = interval.ce.saturating_add(s.ce);
        }
    }

    /// The report that is due, and whether another one will follow; `None` if there is nothing to
    /// report (AMB-LRACTIVE).
    pub(crate) fn report(
        &mut self,
        now: Instant,
        allowance: Duration,
        flow: FlowId,
    ) -> Option<LossReport> {
        self.settle(now, allowance);
        let was_active = core::mem::take(&mut self.active);
        let counts = core::mem::take(&mut self.interval);
        if !was_active && counts == Interval::default() {
            return None;
        }
        let micros = now.since(self.since).as_micros();
        self.since = now;
        if counts.expected > 0 {
            let lost = f64::from(counts.expected - counts.received.min(counts.expected));
            let unrestored = (lost - f64::from(counts.restored)).max(0.0);
            self.loss += (lost / f64::from(counts.expected) - self.loss) / 8.0;
            self.loss_after += (unrestored / f64::from(counts.expected) - self.loss_after) / 8.0;
        }
        Some(LossReport {
            flow,
            interval_us: u32::try_from(micros).unwrap_or(u32::MAX),
            expected: counts.expected,
            received: counts.received,
            restored: counts.restored,
            incomplete_blocks: counts.incomplete,
            ce_marked: counts.ce,
            repairs_received: counts.repairs,
            repairs_ce_marked: counts.repairs_ce,
        })
    }

    /// Something is to be reported although the flow rests: the interval starts now.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.since = now;
    }

    /// Octets of memory.
    pub(crate) fn octets(&self) -> usize {
        self.stretches.capacity() * size_of::<Stretch>()
    }

    /// Whether there is something to report, now or once it is final.
    pub(crate) fn is_pending(&self) -> bool {
        self.active || !self.stretches.is_empty() || self.interval != Interval::default()
    }

    /// The receiver's own estimate of the loss rate before restoration, 0 to 1.
    pub(crate) const fn loss(&self) -> f64 {
        self.loss
    }

    /// The same after restoration.
    pub(crate) const fn loss_after(&self) -> f64 {
        self.loss_after
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    const A: Duration = Duration::from_micros(100);

    fn at(us: u64) -> Instant {
        Instant(us * 1000)
    }

    fn step(start: u32, end: u32, received: u32, ce: u32) -> Step {
        Step {
            start: Psn::new(start),
            end: Psn::new(end),
            received,
            ce,
        }
    }

    fn flow() -> FlowId {
        FlowId::new(7).unwrap()
    }

    // shows: AMB-LREXP
    #[test]
    fn positions_count_once_they_are_final() {
        let mut t = Tally::new(at(0));
        assert!(t.activity(at(0)) && !t.activity(at(0)));
        t.passed(at(0), step(0, 10, 8, 2), A);
        t.passed(at(50), step(10, 20, 10, 0), A);
        t.late(at(60), Psn::new(3), true, A);
        t.lost();
        let r = t.report(at(120), A, flow()).unwrap();
        assert_eq!(
            (r.interval_us, r.expected, r.received, r.ce_marked),
            (120, 10, 9, 3)
        );
        t.late(at(149), Psn::new(4), false, A);
        t.late(at(150), Psn::new(14), false, A);
        let r = t.report(at(200), A, flow()).unwrap();
        assert_eq!(
            (r.interval_us, r.expected, r.received),
            (80, 10, 10),
            "a packet later than A changes nothing"
        );
        assert!(t.report(at(300), A, flow()).is_none() && !t.is_pending());
        assert!(t.loss() > 0.0);
    }

    // shows: AMB-LRACTIVE
    #[test]
    fn an_idle_flow_reports_its_final_counts_and_stops() {
        let mut t = Tally::new(at(0));
        t.activity(at(0));
        t.repair(true);
        t.repair(false);
        t.restored();
        t.incomplete();
        t.passed(at(0), step(0, 1, 1, 0), A);
        let r = t.report(at(10), A, flow()).unwrap();
        assert_eq!(
            (r.repairs_received, r.repairs_ce_marked, r.restored),
            (2, 1, 1)
        );
        assert_eq!((r.incomplete_blocks, r.expected), (1, 0));
        assert!(t.is_pending());
        assert_eq!(t.report(at(500), A, flow()).unwrap().expected, 1);
        assert!(t.report(at(900), A, flow()).is_none());
        assert!(t.activity(at(2000)));
        t.passed(at(2000), step(1, 2, 1, 0), A);
        let r = t.report(at(2500), A, flow()).unwrap();
        assert_eq!(r.interval_us, 500, "the pause is not part of the interval");
    }

    #[test]
    fn stretches_are_bounded() {
        let mut t = Tally::new(at(0));
        for n in 0..1000u32 {
            t.activity(at(n.into()));
            t.passed(at(n.into()), step(n, n + 1, 1, 0), A);
        }
        assert!(t.stretches.len() <= MAX_STRETCHES);
        assert_eq!(t.report(at(5000), A, flow()).unwrap().received, 1000);
    }
}
