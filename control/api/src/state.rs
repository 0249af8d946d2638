//! State documents: what the data plane says of itself. Every quantity is a count since start unless its
//! name carries a unit.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::Confinement;

mod port;

pub use port::{FecOffer, LinkLayer, NumaWarning, PortQueues, PortStatus, QueueKind};

/// Counters of one group by name. The names are listed in `docs/configuration.md`.
pub type Named = BTreeMap<String, u64>;

/// What a process is and how its parts stand.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Milliseconds since start.
    pub uptime_ms: u64,
    /// Sixteen hexadecimal digits drawn at the start: another value is another start.
    #[serde(default)]
    pub instance: String,
    /// Documents brought into force since the start.
    #[serde(default)]
    pub generation: u64,
    /// Number that was given with the document in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Segments by id.
    pub segments: BTreeMap<String, SegmentStatus>,
    /// The workers, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerStatus>,
    /// Workers and ports that are on different NUMA nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa_warnings: Vec<NumaWarning>,
    /// Whether the exporting process is connected, if anything is observed for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export_connected: Option<bool>,
    /// What the process gave up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<Confinement>,
}

/// One worker of several.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerStatus {
    /// Iterations of its loop.
    pub loops: u64,
    /// Iterations in which there was something to do.
    pub busy_loops: u64,
}

/// One segment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SegmentStatus {
    /// Mode in force: `active`, `monitor`, `passthrough`, `block` or `bypass`.
    pub mode: String,
    /// Why the mode in force is not the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode_reason: Option<String>,
    /// Mode `bypass`, while it is or was in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bypass: Option<BypassStatus>,
    /// What becomes of the wire when the process does not run.
    #[serde(default)]
    pub on_failure: FailureStatus,
    /// LAN port.
    pub lan: PortStatus,
    /// WAN port.
    pub wan: PortStatus,
    /// When the first frame of a host was forwarded since the start, Unix time in milliseconds; none before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_forwarded_at_ms: Option<u64>,
    /// In-band address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inband: Option<InbandStatus>,
    /// Peers and configured next hops by address.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, PeerStatus>))]
    pub peers: BTreeMap<IpAddr, PeerStatus>,
    /// Iterations of the worker's loop.
    pub loops: u64,
    /// Iterations in which there was something to do.
    pub busy_loops: u64,
    /// Frame buffers in use, of [`buffers_total`](Self::buffers_total).
    pub buffers_used: u64,
    /// Frame buffers of the process.
    pub buffers_total: u64,
    /// observationPointId of each place where packets are observed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub points: BTreeMap<String, u64>,
    /// Why nothing is observed although that is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metering_off: Option<String>,
}

/// Mode `bypass` of a segment.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BypassStatus {
    /// Where the relay is: `inline`, `wire` or `block`; `none` where there is none.
    pub relay: String,
    /// Seconds until the mode before comes back; 0 once it has.
    pub ends_in_s: u64,
    /// The mode that comes or came back.
    pub then: String,
    /// The reason given.
    pub reason: String,
}

/// What becomes of the wire when the process does not run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailureStatus {
    /// As configured: `wire` or `block`.
    pub wanted: String,
    /// What will happen: without a relay always `block`.
    pub in_effect: String,
}

/// The in-band address.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InbandStatus {
    /// Address with prefix length.
    pub address: String,
    /// MAC address.
    pub mac: String,
    /// Name of the kernel interface it lives on.
    pub interface: String,
}

/// One peer.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PeerStatus {
    /// MAC address of the next hop toward it, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop_mac: Option<String>,
    /// The path to it, once flows are or were bound to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathStatus>,
}

/// What the sender function knows of the path to a peer, over all flows.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PathStatus {
    /// Estimated loss rate before repair, millionths.
    pub loss_ppm: u64,
    /// Estimated mean length of runs of losses, thousandths of a packet.
    pub burst_milli: u64,
    /// What the losses are taken for; the names are those of `loss_class` of a flow.
    pub loss_class: String,
    /// The circuit breaker of the path: `closed`, `open` or `clearing`.
    pub breaker: String,
}

/// All counters.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Counters {
    /// Segments by id.
    pub segments: BTreeMap<String, SegmentCounters>,
    /// Records on their way to the exporting process.
    #[serde(default, skip_serializing_if = "Named::is_empty")]
    pub export: Named,
}

/// Counters of one segment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SegmentCounters {
    /// LAN port: frames and octets in and out.
    pub lan: Named,
    /// WAN port: frames and octets in and out.
    pub wan: Named,
    /// Frames that ended here, by reason; nothing is dropped without a name.
    pub drops: Named,
    /// Frames that passed although they are of no flow that could be protected, by reason.
    #[serde(default, skip_serializing_if = "Named::is_empty")]
    pub passed: Named,
    /// CREM messages in and out by type, and those refused by reason.
    pub messages: Named,
    /// Sender function.
    pub csf: Named,
    /// Receiver function.
    pub crf: Named,
    /// Coding and rebuilding.
    pub coding: Named,
    /// In-band interface.
    pub inband: Named,
    /// Links that went, and what was done about it.
    #[serde(default)]
    pub links: Named,
    /// Flows that are only watched, all together, where the mode is or was `monitor`.
    #[serde(default, skip_serializing_if = "Named::is_empty")]
    pub monitor: Named,
    /// Metering, with the counters of each Observation Point.
    #[serde(default, skip_serializing_if = "Named::is_empty")]
    pub metering: Named,
    /// Distributions of times and sizes by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub distributions: BTreeMap<String, Distribution>,
    /// What workers handed each other.
    #[serde(default, skip_serializing_if = "Named::is_empty")]
    pub team: Named,
    /// The parts of the single workers, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerCounters>,
}

/// One worker's part of the counters of a segment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerCounters {
    /// What came and went by its queue of the LAN port.
    pub lan: Named,
    /// The same of the WAN port.
    pub wan: Named,
    /// Frames that ended at it, by reason.
    pub drops: Named,
    /// Coding and rebuilding.
    pub coding: Named,
    /// What it handed to others and took from them.
    pub team: Named,
    /// Its distributions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub distributions: BTreeMap<String, Distribution>,
}

/// How values are distributed: to a quarter of each value.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Distribution {
    /// Values.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// Half of them are not larger.
    pub median: u64,
    /// 99 of 100 are not larger.
    pub p99: u64,
    /// 999 of 1,000 are not larger.
    pub p999: u64,
    /// Those that have values, in rising order.
    pub buckets: Vec<Bucket>,
}

/// Values that are not told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Bucket {
    /// The largest value of the bucket.
    pub most: u64,
    /// Values in it.
    pub count: u64,
}

/// What the exporting process says of itself.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Export {
    /// What came from the data plane; `connected` is 1 while it is there.
    pub source: Named,
    /// Collectors by name.
    pub collectors: BTreeMap<String, ExportCollector>,
    /// What the process gave up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<Confinement>,
}

/// A collector, as the exporting process sees it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExportCollector {
    /// `session`, or what is done to get one: `waiting`, `resolving`, `connecting`, `handshake`.
    pub state: String,
    /// Number of the session, while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u32>,
    /// What was sent to it and what was not.
    pub counters: Named,
}

/// All flows.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Flows {
    /// One entry for each flow and role.
    pub flows: Vec<Flow>,
    /// Flows left out because the answer would have been too long.
    pub left_out: u64,
}

/// The side of a flow that a gateway stands on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Sender function: codes and sends repair.
    Csf,
    /// Receiver function: decodes and restores.
    Crf,
}

/// One flow.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Flow {
    /// Segment id.
    pub segment: String,
    /// Which side of it this gateway is.
    pub role: Role,
    /// Source of the RoCEv2 packets.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub source: IpAddr,
    /// Destination of the RoCEv2 packets.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub destination: IpAddr,
    /// Destination queue pair.
    pub qp: u32,
    /// `requests`, `responses`, or `datagrams`, which have none.
    pub space: String,
    /// State of the protocol, such as `protected`.
    pub state: String,
    /// Why it is not protected, if it is not: one of the names in `docs/configuration.md`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The numbers that belong to the reason, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reason_values: Named,
    /// Whether traffic of this kind can be protected at all.
    #[serde(default = "yes")]
    pub supported: bool,
    /// The gateway that answers for it, by configuration or by what it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched: Option<Matched>,
    /// Flow ID, once assigned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_id: Option<u32>,
    /// Parameters in force, once agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Applied>,
    /// Loss rate on the path before and after restoration, packets per million.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// What recent losses on its path are taken for: `clean`, `transmission`, or `congestion_…` with what
    /// speaks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_class: Option<String>,
    /// What policy would have chosen for this flow, where it is only watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_apply: Option<WouldApply>,
    /// What an operator should change for this flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
    /// Counts of the flow, and estimates whose names carry their unit.
    #[serde(default)]
    pub counters: Named,
}

fn yes() -> bool {
    true
}

/// The other gateway of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Matched {
    /// Where HELLO goes to, or came from: a configured peer, or, where none is configured for the
    /// destination, the destination itself.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub peer: SocketAddr,
    /// Whether it answered.
    pub answered: bool,
}

/// Loss of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Loss {
    /// Before restoration, packets per million.
    pub before_ppm: u64,
    /// After restoration, packets per million.
    pub after_ppm: u64,
}

/// What an operator should change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Advice {
    /// What is the matter, in one sentence.
    pub text: String,
    /// Retransmission timeout that the adapter of the sending host should have at least, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rnic_timeout_ns: Option<u64>,
    /// `policy.hold_ns` that the flow needs at least, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_ns: Option<u64>,
}

/// What policy would have chosen for a flow that is only watched.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WouldApply {
    /// Packets of a block.
    pub k: u8,
    /// Ordinary repair symbols of a block.
    pub m: u8,
    /// Repair packets per million source packets.
    pub overhead_ppm: u64,
    /// Share of packets that the ordinary symbols would not have restored, 0 to 1.
    pub residual: f64,
}

/// Coding parameters of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Applied {
    /// Config ID.
    pub config: u8,
    /// FEC scheme.
    pub scheme: u8,
    /// Packets of a block.
    pub k: u8,
    /// Ordinary repair symbols of a block.
    pub m: u8,
    /// Symbol length, octets.
    pub t: u16,
}
