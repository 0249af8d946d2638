//! What is told of a port: its link, its driver and what that offers, the memory of its frames, workers far from it.

use serde::{Deserialize, Serialize};

/// One port.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortStatus {
    /// Interface, PCI address or virtual device.
    pub device: String,
    /// Whether the link is up.
    pub link_up: bool,
    /// Whether it is held down because the other port's link is.
    #[serde(default)]
    pub induced_down: bool,
    /// Largest IP packet the port takes, octets; 0 if unknown.
    pub mtu: u32,
    /// DPDK's driver.
    #[serde(default)]
    pub driver: String,
    /// NUMA node of the device, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u16>,
    /// Offloads that the driver has, by DPDK's names, with `rx_` or `tx_` in front.
    #[serde(default)]
    pub offloads: Vec<String>,
    /// Those of them that are used.
    #[serde(default)]
    pub offloads_used: Vec<String>,
    /// What the document says of the link and the driver did not do, and why.
    #[serde(default)]
    pub link_not_applied: Vec<String>,
    /// The link as the driver has it, at most a second old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_layer: Option<LinkLayer>,
    /// Queues that are in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<PortQueues>,
    /// NUMA nodes of the memory that received frames go to; none where that is ordinary memory, which the kernel places.
    #[serde(default)]
    pub pool_numa_nodes: Vec<u16>,
}

/// The link of a port as its driver has it, whether or not the document says anything of it.
///
/// Where a word is `not_offered`, the driver has no such function; where it is `unknown`, `not_told` may say why.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LinkLayer {
    /// Flow control of the whole link (IEEE 802.3, Annex 31B): `off`, `receive` (pauses that come are obeyed), `send`
    /// (pauses are sent), `both`, `not_offered` or `unknown`.
    pub flow_control: String,
    /// Flow control by priority (IEEE 802.1Qbb): `offered`, `by_queue` (offered in a way that the gateway does not use: by
    /// receive queue), `not_offered`, or `unknown`: most drivers tell it only when it is set.
    pub priority_flow_control: String,
    /// FEC of the link, which has nothing to do with CREM's: `none`, `auto`, `base_r`, `rs`, `llrs` or `other`, several
    /// with commas; `not_offered` or `unknown`.
    pub fec: String,
    /// FEC that the device has at each speed.
    #[serde(default)]
    pub fec_offered: Vec<FecOffer>,
    /// What the driver was asked and failed to tell, and why.
    #[serde(default)]
    pub not_told: Vec<String>,
}

/// FEC that a device has at a speed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FecOffer {
    /// Mbit/s.
    pub speed_mbit: u32,
    /// Kinds, by the words of [`LinkLayer::fec`].
    pub kinds: Vec<String>,
}

/// Queues of a port that are in use.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortQueues {
    /// For frames that come.
    pub receive: QueueKind,
    /// For frames that go.
    pub transmit: QueueKind,
}

/// Queues of one direction.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueKind {
    /// How many.
    pub queues: u16,
    /// Descriptors that each was asked to have. AF_PACKET has a ring of its own and does not go by it.
    pub descriptors_asked: u16,
    /// Descriptors that each has, where the driver tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptors: Option<u16>,
}

/// A worker and a port that are on different NUMA nodes: every frame between them crosses.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NumaWarning {
    /// Number of the worker, from 0.
    pub worker: u16,
    /// Node of the CPUs.
    pub worker_node: u16,
    /// CPUs of that node that the worker runs on.
    pub cpus: Vec<u32>,
    /// Segment of the port.
    pub segment: String,
    /// `lan` or `wan`.
    pub port: String,
    /// What the document names the port by.
    pub device: String,
    /// Node of the port.
    pub port_node: u16,
}
