//! What can be said of a flow to a person: state, reason, parameters, estimates, counts.

use core::net::SocketAddr;
use crem_wire::{ConfigId, FlowId};

use super::early;
use super::flow::{Flow, FlowCounts, Shared};
use super::states::State;
use crate::config::Mode;
use crate::events::Unprotected;
use crate::packet::StreamKey;
use crate::policy::{BreakerState, LossClass};
use crate::time::Duration;

/// A flow as the sender function sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlowStatus {
    /// The stream.
    pub key: StreamKey,
    /// Its place in the negotiation.
    pub state: State,
    /// Why blocks are not coded; `None` while they are.
    pub unprotected: Option<Unprotected>,
    /// Where HELLO goes: the configured peer for its destination, or the destination itself.
    pub peer: Option<SocketAddr>,
    /// The peer's address, and the Flow ID there, while bound.
    pub bound: Option<(SocketAddr, FlowId)>,
    /// Config ID and scheme in force.
    pub config: Option<(ConfigId, u8)>,
    /// Configured block length, positions; 0 without a configuration.
    pub k: u8,
    /// Configured symbols per block.
    pub m: u8,
    /// Symbols per block that may be sent now; below `m` while REPAIR messages are marked or lost, after a
    /// raise that brought loss, and while a breaker is open.
    pub m_allowed: u8,
    /// The flow's own circuit breaker.
    pub breaker: BreakerState,
    /// Symbol length, octets.
    pub t: u16,
    /// RDMA MTU announced or to be announced, octets.
    pub rdma_mtu: u16,
    /// Estimated loss rate of this flow before repair, 0 ..= 1.
    pub loss: f64,
    /// Estimated loss rate of the path to the peer, over all flows, that m is chosen by.
    pub path_loss: f64,
    /// What recent losses on that path are taken for.
    pub class: LossClass,
    /// Estimated loss rate of this flow after restoration, 0 ..= 1.
    pub loss_after: f64,
    /// Runs of packets that the host sent again before a repair can have arrived.
    pub early_runs: u32,
    /// The shortest time after which one began.
    pub early_after: Option<Duration>,
    /// RNIC timeout that the host's adapter should have at least, if there were any.
    pub raise_timeout_to: Option<Duration>,
    /// Smoothed round-trip time to the peer.
    pub srtt: Option<Duration>,
    /// Minimum round-trip time to the peer.
    pub min_rtt: Option<Duration>,
    /// Source packets kept for repair.
    pub retained: u32,
    /// Counts.
    pub counts: FlowCounts,
}

/// The reason with the numbers of now.
fn reason<B>(flow: &Flow<B>, sh: &Shared<B>) -> Unprotected {
    if sh.cfg.mode == Mode::Monitor {
        return Unprotected::Monitor;
    }
    match flow.reason {
        Unprotected::BelowThreshold { .. } => Unprotected::BelowThreshold {
            seen: u32::try_from(flow.track.new_packets).unwrap_or(u32::MAX),
            needed: sh.cfg.csf.start_after,
        },
        other => other,
    }
}

pub(super) fn of<B: Clone>(flow: &Flow<B>, sh: &Shared<B>) -> FlowStatus {
    let binding = flow.binding.as_deref();
    let config = binding.and_then(|b| b.params.active());
    let (srtt, min_rtt) = flow.rtt(sh);
    let path = binding.and_then(|b| sh.path(b.to));
    let broken = binding.is_some_and(|b| b.is_broken(sh));
    let m = config.map_or(0, |c| c.m);
    FlowStatus {
        key: flow.key,
        state: flow.state,
        unprotected: match flow.is_protected() {
            false => Some(reason(flow, sh)),
            true if broken => Some(Unprotected::Breaker),
            true => None,
        },
        peer: flow.peer.and_then(|slot| sh.peers.target(slot)),
        bound: binding.map(|b| (b.to, b.id)),
        config: config.map(|c| (c.id, c.scheme)),
        k: config.map_or(0, |c| c.k),
        m,
        m_allowed: if broken {
            0
        } else {
            binding.map_or(0, |b| b.reports.allowed(m))
        },
        breaker: binding.map_or(BreakerState::Closed, |b| b.reports.breaker.state()),
        t: config.map_or(0, |c| c.t),
        rdma_mtu: binding.map_or_else(|| flow.rdma_mtu(sh), |b| b.rdma_mtu),
        loss: binding.map_or(0.0, |b| b.reports.loss.rate()),
        path_loss: path.map_or(0.0, |p| p.loss.rate()),
        class: path.map_or(LossClass::Clean, super::path::Path::class),
        loss_after: binding.map_or(0.0, |b| b.reports.loss_after.rate()),
        early_runs: flow.early.runs,
        early_after: flow.early.shortest(),
        raise_timeout_to: (flow.early.runs > 0)
            .then(|| early::timeout_for(flow.time_to_repair(sh))),
        srtt,
        min_rtt,
        retained: sh.retained.owner_packets(flow.slot),
        counts: flow.counts,
    }
}
