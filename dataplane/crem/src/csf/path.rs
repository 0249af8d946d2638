//! What is known of the path to one peer, pooled over all flows bound to it: loss, the length of its runs,
//! its class with what PATH_REPORTs added, the breaker, and whether raises of m are barred. What a flow
//! makes of it is in `report.rs` and `adapt.rs`.

use core::net::SocketAddr;
use crem_wire::crem::LossReport;

use super::flow::{Flow, Shared};
use super::report::{interval_of, lost_of};
use crate::events::Event;
use crate::policy::{
    self, Bounds, Breaker, BreakerEffect, BreakerState, BurstEstimate, Classifier, Evidence,
    Interval, LossClass, Losses, Need, PathEstimate, PathEvidence, Targets, Thresholds,
};
use crate::table::Class;
use crate::time::{Duration, Instant};

/// A raise of m that brought loss bars raises for this long (AMB-POLICY); the next ones for twice as long
/// each, as long as none passed in between,
const BAR: Duration = Duration::from_secs(10);
/// up to this.
const BAR_MAX: Duration = Duration::from_secs(160);
/// REPAIR that is lost more than sources is loss of our own making once it is found twice on a path: later
/// than a round trip after the first time, and no later than this.
const DISPLACED_AGAIN: Duration = Duration::from_secs(4);
/// Choices kept until the estimates change.
const NEEDS: usize = 8;

/// One path.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) loss: PathEstimate,
    pub(super) burst: BurstEstimate,
    pub(super) breaker: Breaker,
    classifier: Classifier,
    class: LossClass,
    last_report: Instant,
    /// When the breaker gave up: flows bound before are closed.
    gave_up: Option<Instant>,
    barred_until: Instant,
    next_bar: Duration,
    /// When REPAIR was first found to be lost more than sources, as long as that is recent.
    displaced: Option<Instant>,
    needs: Needs,
}

/// What block lengths need at the estimates as they were when one of them last stepped.
#[derive(Clone, Copy, Debug)]
struct Needs {
    losses: Losses,
    kept: [Option<(u8, Bounds, Need)>; NEEDS],
    next: usize,
}

/// A path as the sender function sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathStatus {
    /// The peer that flows are bound to.
    pub peer: SocketAddr,
    /// Estimated loss rate before repair, 0 ..= 1.
    pub loss: f64,
    /// Estimated mean length of runs of losses, packets.
    pub burst: f64,
    /// What the recent losses are taken for.
    pub class: LossClass,
    /// The circuit breaker over all flows of the path.
    pub breaker: BreakerState,
}

impl Path {
    fn new(initial_ppm: u32) -> Self {
        let loss = PathEstimate::new(initial_ppm);
        Self {
            loss,
            burst: BurstEstimate::default(),
            breaker: Breaker::default(),
            classifier: Classifier::new(),
            class: LossClass::Clean,
            last_report: Instant(0),
            gave_up: None,
            barred_until: Instant(0),
            next_bar: BAR,
            displaced: None,
            needs: Needs {
                losses: Losses::independent(loss.rate()),
                kept: [None; NEEDS],
                next: 0,
            },
        }
    }

    /// What the recent losses are taken for.
    pub(super) fn class(&self) -> LossClass {
        self.class
    }

    /// Whether the breaker gave up the flows that were bound at `then`.
    pub(super) fn gave_up_since(&self, then: Instant) -> bool {
        self.gave_up.is_some_and(|at| at > then)
    }

    /// Whether m must not be raised now.
    pub(super) fn is_barred(&self, now: Instant) -> bool {
        self.barred_until > now
    }

    /// What a block of k needs. Reckoned once per step of the estimates, since many flows ask.
    pub(super) fn need(&mut self, k: u8, targets: &Targets, bounds: Bounds) -> Need {
        let needs = &mut self.needs;
        let kept = needs.kept.iter().flatten();
        if let Some((_, _, need)) = { kept }.find(|(l, b, _)| (*l, *b) == (k, bounds)) {
            return *need;
        }
        let need = policy::need(k, needs.losses, targets, bounds);
        if let Some(place) = needs.kept.get_mut(needs.next) {
            *place = Some((k, bounds, need));
        }
        needs.next = (needs.next + 1) % NEEDS;
        need
    }

    /// Forgets what block lengths need.
    pub(super) fn forget_needs(&mut self) {
        self.needs.losses = Losses {
            rate: self.loss.rate(),
            burst: self.burst.mean(),
        };
        self.needs.kept = [None; NEEDS];
    }

    /// Takes a report of one of the flows into the estimates.
    fn take(&mut self, report: &LossReport, srtt: Duration, now: Instant) -> BreakerEffect {
        let (expected, received) = (report.expected, report.received);
        self.burst.age(lost_of(report));
        let burst = self.burst.mean();
        if self.loss.report(now, srtt, (expected, received), burst) {
            self.forget_needs();
        }
        self.classifier
            .report(now, srtt, expected, received, report.ce_marked);
        let pooled = self.pooled(report, now);
        let effect = self.breaker.on_report(now, &pooled);
        if effect == BreakerEffect::GiveUp {
            self.gave_up = Some(now);
        }
        effect
    }

    /// The same of a flow of another worker, which tells and counts what follows from it.
    pub(super) fn take_elsewhere(
        &mut self,
        report: &LossReport,
        srtt: Duration,
        thresholds: &Thresholds,
        now: Instant,
    ) {
        self.take(report, srtt, now);
        self.class = self.classifier.class(now, srtt, thresholds);
    }

    /// A report of one of the flows, as the breaker over all of them takes it: its time is that since the
    /// report before, of whichever flow.
    fn pooled(&mut self, report: &LossReport, now: Instant) -> Interval {
        let interval = interval_of(report);
        let elapsed = now.since(core::mem::replace(&mut self.last_report, now));
        Interval {
            length: interval.length.min(elapsed),
            ..interval
        }
    }
}

impl<B> Shared<B> {
    /// The path to a peer, made if need be; `None` if every entry is in use.
    pub(super) fn path_of(&mut self, peer: SocketAddr) -> Option<&mut Path> {
        if self.paths.slot(&peer).is_none() {
            if self.paths.is_full() {
                let oldest = self.paths.oldest(Class::Candidate)?;
                self.paths.remove(oldest);
            }
            let path = Path::new(self.cfg.fec.initial_loss_ppm);
            self.paths.insert(peer, path).ok()?;
        }
        let slot = self.paths.slot(&peer)?;
        self.paths.touch(slot);
        self.paths.get_mut(slot)
    }

    /// The path to a peer, if it is known.
    pub(super) fn path(&self, peer: SocketAddr) -> Option<&Path> {
        let slot = self.paths.slot(&peer)?;
        self.paths.get(slot)
    }

    /// Takes a report of one of the flows of a path.
    pub(super) fn path_report(
        &mut self,
        peer: SocketAddr,
        report: &LossReport,
        srtt: Duration,
        now: Instant,
    ) {
        let Some(path) = self.path_of(peer) else {
            return;
        };
        let effect = path.take(report, srtt, now);
        let lost = lost_of(report);
        let congested = self.classify(peer, srtt, now).is_congestion();
        let counters = &mut self.counters;
        *(if congested {
            &mut counters.lost_congestion
        } else {
            &mut counters.lost_transmission
        }) += u64::from(lost);
        match effect {
            BreakerEffect::Trip => {
                counters.path_breaker_trips += 1;
                self.events.push(Event::PathBreakerOpened(peer));
            }
            BreakerEffect::Resume => self.events.push(Event::PathBreakerClosed(peer)),
            BreakerEffect::None | BreakerEffect::GiveUp => {}
        }
    }

    /// A raise of m brought loss: the path is congested, and raises are barred for a while.
    pub(super) fn raise_failed(&mut self, peer: SocketAddr, srtt: Duration, now: Instant) {
        let Some(path) = self.path_of(peer) else {
            return;
        };
        let bar = path.next_bar;
        // Flows that raised at the same time find the same: that is one event.
        if !path.is_barred(now) {
            path.next_bar = (bar * 2).min(BAR_MAX);
            path.barred_until = now + bar;
            self.path_evidence(peer, Evidence::SelfInduced, bar, srtt, now);
        }
    }

    /// More REPAIR than sources was lost on a path. Both take the same way, and loss in transmission does not
    /// tell them apart: the path has no room for what repair adds, so that a further raise would only bring
    /// more loss. A single finding may be chance or the tail of another event; a second one is treated as
    /// a raise that failed.
    pub(super) fn repair_displaced(&mut self, peer: SocketAddr, srtt: Duration, now: Instant) {
        let Some(path) = self.path_of(peer) else {
            return;
        };
        match path.displaced {
            Some(first) if now.since(first) <= DISPLACED_AGAIN => {
                if now.since(first) > srtt {
                    path.displaced = Some(now);
                    self.raise_failed(peer, srtt, now);
                }
            }
            _ => path.displaced = Some(now),
        }
    }

    /// A raise of m brought no loss.
    pub(super) fn raise_passed(&mut self, peer: SocketAddr) {
        if let Some(path) = self.path_of(peer) {
            path.next_bar = BAR;
        }
    }

    /// Takes evidence of congestion on a path.
    pub(super) fn path_evidence(
        &mut self,
        peer: SocketAddr,
        evidence: Evidence,
        lasts: Duration,
        srtt: Duration,
        now: Instant,
    ) {
        if let Some(path) = self.path_of(peer) {
            path.classifier.evidence(now, evidence, lasts);
            self.classify(peer, srtt, now);
        }
    }

    /// Draws the verdict anew and says so where it changed.
    fn classify(&mut self, peer: SocketAddr, srtt: Duration, now: Instant) -> LossClass {
        let thresholds = self.cfg.fec.thresholds;
        let Some(path) = self.path_of(peer) else {
            return LossClass::Clean;
        };
        let class = path.classifier.class(now, srtt, &thresholds);
        if core::mem::replace(&mut path.class, class) == class {
            return class;
        }
        let counters = &mut self.counters;
        *(match class {
            LossClass::Clean => &mut counters.class_clean,
            LossClass::Transmission => &mut counters.class_transmission,
            LossClass::Congestion(Evidence::Marks) => &mut counters.class_marks,
            LossClass::Congestion(Evidence::QueueDelay) => &mut counters.class_queue_delay,
            LossClass::Congestion(Evidence::Overflow) => &mut counters.class_overflow,
            LossClass::Congestion(Evidence::SelfInduced) => &mut counters.class_self_induced,
        }) += 1;
        self.events.push(Event::LossClassified { peer, class });
        class
    }
}

impl<B: Clone> Flow<B> {
    /// Takes what accepted PATH_REPORTs newly said of this flow. It influences the classification only:
    /// the loss rate comes from LOSS_REPORT (AMB-PRDUP). A flow without a binding ignores it.
    pub(super) fn on_path_evidence(
        &mut self,
        evidence: PathEvidence,
        sh: &mut Shared<B>,
        now: Instant,
    ) {
        let srtt = self.who(sh, now).srtt;
        let Some(binding) = &mut self.binding else {
            return;
        };
        let window = Classifier::window(srtt);
        let growth = binding
            .queue_delay
            .add(now, window, evidence.queue_delay_us);
        let peer = binding.to;
        if evidence.overflow {
            sh.path_evidence(peer, Evidence::Overflow, window, srtt, now);
        }
        if growth > i64::from(sh.cfg.fec.thresholds.queue_delay_us) {
            sh.path_evidence(peer, Evidence::QueueDelay, window, srtt, now);
        }
    }
}

pub(super) fn statuses<B>(sh: &Shared<B>) -> impl Iterator<Item = PathStatus> {
    sh.paths.iter().map(|(_, peer, path)| PathStatus {
        peer: *peer,
        loss: path.loss.rate(),
        burst: path.burst.mean(),
        class: path.class,
        breaker: path.breaker.state(),
    })
}
