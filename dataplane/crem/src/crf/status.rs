//! What an operator sees of a flow at the receiver.

use core::net::SocketAddr;

use crem_wire::{ConfigId, FlowId};

use super::lifecycle::Life;
use super::stream::{FlowKey, Stream};
use super::track::{Figures, Track};
use crate::packet::{Namespace, StreamKey};
use crate::time::Duration;

/// A configuration in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConfigStatus {
    /// Config ID.
    pub id: ConfigId,
    /// FEC scheme.
    pub scheme: u8,
    /// Block length, positions.
    pub k: u8,
    /// Ordinary symbols a block.
    pub m: u8,
    /// Symbol length, octets.
    pub t: u16,
}

/// The status of a flow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlowStatus {
    /// The stream; namespace 0 until its first packet.
    pub key: StreamKey,
    /// State of the binding.
    pub life: Life,
    /// The bound Flow ID, or the last one offered.
    pub flow: Option<FlowId>,
    /// The CSF.
    pub peer: Option<SocketAddr>,
    /// The configuration in force, if its Effective PSN was reached: then the flow is protected.
    pub config: Option<ConfigStatus>,
    /// Smoothed RTT.
    pub srtt: Option<Duration>,
    /// Minimum RTT.
    pub min_rtt: Option<Duration>,
    /// Reordering allowance A.
    pub allowance: Option<Duration>,
    /// Hold H; `None` where nothing is held.
    pub hold: Option<Duration>,
    /// Hold that a coded round needs at least, if the operator's is shorter; of no matter to hosts that take
    /// packets in any order (AMB-HOLD).
    pub hold_for_round: Option<Duration>,
    /// Loss rate before restoration, as seen here, 0 to 1.
    pub loss: f64,
    /// Loss rate after restoration, 0 to 1.
    pub loss_after: f64,
    /// Source packets kept for decoding.
    pub kept: u32,
    /// Frames held now.
    pub held: u32,
    /// Blocks open now.
    pub open_blocks: u32,
    /// Runs of missing PSNs whose block is unknown.
    pub gaps: u32,
    /// Counts since the flow was bound.
    pub figures: Figures,
}

impl FlowStatus {
    pub(crate) fn of<B: Clone>(key: &FlowKey, stream: &Stream<B>) -> Self {
        let track = stream.bound.as_ref();
        let offer = track.map(|t| &t.offer).or(stream.offers.last());
        Self {
            key: StreamKey {
                namespace: stream.namespace.unwrap_or(Namespace(0)),
                source: key.source,
                destination: key.destination,
                qp: key.qp,
                space: key.space,
            },
            life: stream.life(),
            flow: offer.map(|o| o.flow),
            peer: offer.map(|o| o.peer),
            config: track.and_then(config_of),
            srtt: track.and_then(|t| t.rtt.srtt()),
            min_rtt: track.and_then(|t| t.rtt.min()),
            allowance: track.map(|t| t.times.allowance),
            hold: track.and_then(|t| t.times.hold),
            hold_for_round: track.and_then(|t| t.times.short_of),
            loss: track.map_or(0.0, |t| t.tally.loss()),
            loss_after: track.map_or(0.0, |t| t.tally.loss_after()),
            kept: track
                .and_then(|t| t.window.as_ref())
                .map_or(0, |w| w.kept()),
            held: track.map_or(0, |t| t.hold.len() as u32),
            open_blocks: track.map_or(0, |t| t.blocks.len() as u32),
            gaps: track.map_or(0, |t| t.gaps.len() as u32),
            figures: track.map_or_else(Figures::default, |t| t.figures),
        }
    }
}

fn config_of<B>(track: &Track<B>) -> Option<ConfigStatus> {
    track.configs.in_force().map(|c| ConfigStatus {
        id: c.id,
        scheme: c.scheme,
        k: c.k,
        m: c.m,
        t: c.t,
    })
}
