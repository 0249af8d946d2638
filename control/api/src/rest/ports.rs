//! What the API says of ports and management interfaces: links and modules as drivers tell, neighbours.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::state::{LinkLayer, PortQueues};

/// A neighbour, as it says of itself by LLDP.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LldpNeighbour {
    /// Interface of ours that it was heard on.
    pub interface: String,
    /// What its chassis is named by: `mac`, `local`, `interface_name` and others.
    pub chassis_kind: String,
    /// The name.
    pub chassis: String,
    /// What its port is named by.
    pub port_kind: String,
    /// The name.
    pub port: String,
    /// Milliseconds until it is forgotten, unless it is heard again.
    pub ttl_ms: u64,
    /// Its words on the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_description: Option<String>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_name: Option<String>,
    /// Its words on itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_description: Option<String>,
    /// What it does: `bridge`, `router` and others.
    pub capabilities: Vec<String>,
    /// Addresses to manage it at.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub addresses: Vec<IpAddr>,
    /// VLAN of frames without a tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Octets of its longest frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_frame: Option<u16>,
}

/// Counters of LLDP since the start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LldpCounters {
    /// Frames.
    pub received: u64,
    /// Frames that say nothing.
    pub malformed: u64,
    /// Frames of neighbours beyond the limit.
    pub left_out: u64,
}

/// The neighbours.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LldpList {
    /// The neighbours.
    pub neighbours: Vec<LldpNeighbour>,
    /// Counters.
    pub counters: LldpCounters,
}

/// A port or a management interface, as the driver of its kernel interface tells.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortLink {
    /// Whether the link is up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
    /// Mbit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_mbit: Option<u32>,
    /// `full` or `half`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplex: Option<String>,
    /// Whether speed is negotiated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autonegotiation: Option<bool>,
    /// Link modes that are offered, by the kernel's names.
    pub advertised: Vec<String>,
    /// Those that the other side offers.
    pub advertised_by_peer: Vec<String>,
    /// What is plugged in: `fibre`, `twisted_pair`, `direct_attach` and others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connector: Option<String>,
    /// FEC of the link, which has nothing to do with CREM's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fec: Option<FecState>,
    /// The module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<Module>,
    /// What the driver does not tell, and why.
    pub not_known: Vec<String>,
}

/// FEC of a link.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FecState {
    /// Kinds that are allowed, by the kernel's names.
    pub configured: Vec<String>,
    /// Whether the kind is chosen by itself.
    pub automatic: bool,
    /// In force: `none`, `rs`, `base_r` or `llrs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<String>,
}

/// A module and what it measures.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Module {
    /// `sfp`, `qsfp+`, `qsfp28`, `qsfp-dd`, `osfp` and others.
    pub form: String,
    /// Who made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Part number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Its revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Serial number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Date code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// Temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<f64>,
    /// Supply voltage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub voltage_volts: Option<f64>,
    /// Its lanes; none of a cable without light.
    pub lanes: Vec<ModuleLane>,
}

/// A lane of a module.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModuleLane {
    /// Bias current of the laser.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bias_milliamperes: Option<f64>,
    /// Power sent, dBm; none without light.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transmit_dbm: Option<f64>,
    /// Power received, dBm; none without light.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_dbm: Option<f64>,
}

/// A port of a segment, or a management interface.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortEntry {
    /// `lan`, `wan` or `management`.
    pub role: String,
    /// Segment of a port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment: Option<String>,
    /// What the document names it by.
    pub device: String,
    /// Its kernel interface, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Whether the data plane sees the link up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplane_link_up: Option<bool>,
    /// What of the link is other than the document says, and why.
    pub not_applied: Vec<String>,
    /// NUMA node of the device, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u16>,
    /// Offloads of the device that the data plane uses, of those that it has.
    pub offloads_used: Vec<String>,
    /// Those that it has.
    pub offloads: Vec<String>,
    /// The link as the data plane's driver has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_layer: Option<LinkLayer>,
    /// Queues that the data plane uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<PortQueues>,
    /// NUMA nodes of the memory that received frames go to.
    pub pool_numa_nodes: Vec<u16>,
    /// What the driver tells.
    pub link: PortLink,
}

/// The ports.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortList {
    /// The ports.
    pub ports: Vec<PortEntry>,
}
