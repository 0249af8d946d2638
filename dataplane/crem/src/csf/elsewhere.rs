//! What the sender functions of several workers tell each other: whose a Flow ID is, and what reports of
//! one worker's flows say of a path that others use too. How it gets from one to the other is the
//! caller's.

use core::net::SocketAddr;

use crem_wire::FlowId;
use crem_wire::crem::LossReport;

use super::Csf;
use super::flow::Shared;
use crate::config::Shard;
use crate::packet::PktBuf;
use crate::time::{Duration, Instant};

/// A Flow ID of a peer begins or ends to stand for a flow of this function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowIdChange {
    /// The peer that assigned it.
    pub peer: SocketAddr,
    /// The Flow ID.
    pub id: FlowId,
    /// It begins.
    pub bound: bool,
}

impl<B> Shared<B> {
    /// A Flow ID stands for the flow in `slot` from now on.
    pub(super) fn flow_id_bound(&mut self, peer: SocketAddr, id: FlowId, slot: u32) {
        self.by_id.insert((peer, id), slot);
        self.tell(peer, id, true);
    }

    /// A Flow ID stands for nothing any more.
    pub(super) fn flow_id_released(&mut self, peer: SocketAddr, id: FlowId) {
        self.by_id.remove(&(peer, id));
        self.tell(peer, id, false);
    }

    fn tell(&mut self, peer: SocketAddr, id: FlowId, bound: bool) {
        // One worker has nobody to tell.
        if self.cfg.shard != Shard::WHOLE {
            self.flow_ids.push_back(FlowIdChange { peer, id, bound });
        }
    }
}

impl<B: PktBuf> Csf<B> {
    /// Takes the oldest change of which Flow IDs stand for flows of this function. With more than one
    /// worker the caller has to take all of them after each call; with one there are none.
    pub fn poll_flow_id(&mut self) -> Option<FlowIdChange> {
        self.sh.flow_ids.pop_front()
    }

    /// Smoothed round-trip time of the flow that a peer knows by this ID, if it is known: what other
    /// workers need with a report of that flow.
    pub fn srtt_of(&self, peer: SocketAddr, id: FlowId) -> Option<Duration> {
        let slot = self.sh.by_id.get(&(peer, id))?;
        self.flows.get(*slot)?.rtt(&self.sh).0
    }

    /// Takes what a LOSS_REPORT says of the path to a peer, for a flow of another worker: the estimates of
    /// a path are of all flows that use it. Paths that no flow here was bound to are left alone.
    pub fn on_report_elsewhere(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        report: &LossReport,
        srtt: Duration,
    ) {
        let thresholds = self.sh.cfg.fec.thresholds;
        let path = self.sh.paths.slot(&peer);
        if let Some(path) = path.and_then(|slot| self.sh.paths.get_mut(slot)) {
            path.take_elsewhere(report, srtt, &thresholds, now);
        }
    }
}
