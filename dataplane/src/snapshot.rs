//! What the worker tells the auxiliary thread ten times a second, as plain numbers: no text is made and
//! no name looked up on the worker.

use std::net::IpAddr;

use crem_core::events::Event;
use crem_core::monitor::MonitoredFlow;
use crem_core::{crf, csf};

use crate::classify::Side;
use crate::counters::{LinkCounters, SegmentCounters};
use crate::metering::{MeteringCounters, PointCounters};
use crate::times::SegmentTimes;

/// One segment at one moment.
#[derive(Clone, Debug, Default)]
pub struct SegmentSnapshot {
    /// Counters.
    pub counters: SegmentCounters,
    /// Distributions.
    pub times: SegmentTimes,
    /// Name of the mode in force.
    pub mode: &'static str,
    /// Why it is not although the document says so.
    pub off_reason: Option<&'static str>,
    /// Link of the LAN port.
    pub lan_up: bool,
    /// Link of the WAN port.
    pub wan_up: bool,
    /// Links that went, as the auxiliary thread saw them.
    pub links: LinkCounters,
    /// The port whose link it holds down.
    pub held_down: Option<Side>,
    /// Counters of the sender function by name.
    pub csf: Vec<(&'static str, u64)>,
    /// Counters of the receiver function by name.
    pub crf: Vec<(&'static str, u64)>,
    /// Counters of metering, and why nothing is observed although that is configured; `None` where it is
    /// not.
    pub metering: Option<(MeteringCounters, Option<&'static str>)>,
    /// Observation Points.
    pub points: Vec<PointCounters>,
    /// Paths to the peers that flows are or were bound to.
    pub paths: Vec<csf::PathStatus>,
    /// Next hops known.
    pub next_hops: Vec<(IpAddr, [u8; 6])>,
    /// What happened since the last snapshot, the oldest left out if it was much.
    pub events: Vec<Event>,
}

/// One flow in one role.
#[derive(Clone, Copy, Debug)]
pub enum FlowSnapshot {
    /// This gateway codes.
    Sender(csf::FlowStatus),
    /// This gateway restores.
    Receiver(crf::FlowStatus),
    /// This gateway only watches.
    Watched(MonitoredFlow),
    /// Datagrams that pass.
    Datagrams(csf::DatagramStatus),
}

/// What is told of a worker among others.
#[derive(Clone, Debug, Default)]
pub struct WorkerSnapshot {
    /// Iterations of the loop.
    pub loops: u64,
    /// Iterations with something to do.
    pub busy_loops: u64,
    /// Counters and distributions by segment.
    pub segments: Vec<(SegmentCounters, SegmentTimes)>,
}

/// All segments of one worker at one moment, or of all workers together.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Number of the worker; 0 of all together.
    pub worker: u16,
    /// Nanoseconds since the start of the worker.
    pub at_ns: u64,
    /// Generation of the document in force.
    pub generation: u64,
    /// Iterations of the loop.
    pub loops: u64,
    /// Iterations with something to do.
    pub busy_loops: u64,
    /// Buffers taken and in all.
    pub buffers: (u32, u32),
    /// Segments in the order of the document.
    pub segments: Vec<SegmentSnapshot>,
    /// The single workers, where this is of several together.
    pub workers: Vec<WorkerSnapshot>,
    /// Flows with their segments, and how many were left out, if they were asked for.
    pub flows: Option<(Vec<(usize, FlowSnapshot)>, u64)>,
}

/// A next hop as the kernel resolved it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// Segment, in the order of the document.
    pub segment: usize,
    /// Address that was asked for.
    pub peer: IpAddr,
    /// MAC address of the station to send to; `None` if it became unreachable.
    pub mac: Option<[u8; 6]>,
}

/// A next hop that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Segment, in the order of the document.
    pub segment: usize,
    /// Address of the peer.
    pub peer: IpAddr,
}
