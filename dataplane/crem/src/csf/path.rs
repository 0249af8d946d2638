//! What is known of the path to one peer, pooled over all flows bound to it: loss, its class, and what
//! PATH_REPORTs added. What a flow makes of it is in `report.rs`.

use core::net::{IpAddr, SocketAddr};
use crem_wire::Qpn;
use crem_wire::crem::LossReport;

use super::Csf;
use super::flow::{Flow, Shared};
use crate::events::Event;
use crate::packet::{PktBuf, PsnSpace};
use crate::policy::{Classifier, Evidence, LossClass, PathEstimate, PathEvidence};
use crate::table::Class;
use crate::time::{Duration, Instant};

/// One path.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) loss: PathEstimate,
    classifier: Classifier,
    class: LossClass,
}

/// A path as the sender function sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathStatus {
    /// The peer that flows are bound to.
    pub peer: SocketAddr,
    /// Estimated loss rate before repair, 0 ..= 1.
    pub loss: f64,
    /// What the recent losses are taken for.
    pub class: LossClass,
}

impl Path {
    fn new(initial_ppm: u32) -> Self {
        Self {
            loss: PathEstimate::new(initial_ppm),
            classifier: Classifier::new(),
            class: LossClass::Clean,
        }
    }

    /// What the recent losses are taken for.
    pub(super) fn class(&self) -> LossClass {
        self.class
    }
}

impl<B> Shared<B> {
    /// The path to a peer, made if need be; `None` if every entry is in use.
    fn path_of(&mut self, peer: SocketAddr) -> Option<&mut Path> {
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
        let (expected, received) = (report.expected, report.received);
        path.loss.report(now, srtt, expected, received);
        path.classifier
            .report(now, srtt, expected, received, report.ce_marked);
        self.classify(peer, srtt, now);
        let lost = u64::from(expected.saturating_sub(received));
        let class = self.path(peer).map_or(LossClass::Clean, Path::class);
        if class.is_congestion() {
            self.counters.lost_congestion += lost;
        } else {
            self.counters.lost_transmission += lost;
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
    fn classify(&mut self, peer: SocketAddr, srtt: Duration, now: Instant) {
        let thresholds = self.cfg.fec.thresholds;
        let Some(path) = self.path_of(peer) else {
            return;
        };
        let class = path.classifier.class(now, srtt, &thresholds);
        if core::mem::replace(&mut path.class, class) == class {
            return;
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

impl<B: PktBuf> Csf<B> {
    /// Takes what accepted PATH_REPORTs newly said of the flows from `source` to `qp` at `destination`, in
    /// both PSN spaces. Flows that are not known or not bound are no error.
    pub fn on_path_evidence(
        &mut self,
        now: Instant,
        (source, destination, qp): (IpAddr, IpAddr, Qpn),
        evidence: PathEvidence,
    ) {
        for space in [PsnSpace::Requests, PsnSpace::Responses] {
            let flow = (source, destination, qp, space);
            if let Some(&slot) = self.sh.descriptors.get(&flow) {
                self.with_flow(slot, |flow, sh| flow.on_path_evidence(evidence, sh, now));
            }
        }
    }
}

pub(super) fn statuses<B>(sh: &Shared<B>) -> impl Iterator<Item = PathStatus> {
    sh.paths.iter().map(|(_, peer, path)| PathStatus {
        peer: *peer,
        loss: path.loss.rate(),
        class: path.class,
    })
}
