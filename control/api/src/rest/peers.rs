//! Documents of the REST API on one peer: a test of the path to it, and what both sides agreed on.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::state::PathStatus;

/// What is known of the path to a peer, measured now and seen on running flows. Each group says where its figures
/// come from and when they were taken.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PeerTest {
    /// Id of the peer.
    pub id: String,
    /// Its segment.
    pub segment: String,
    /// Its address.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub address: IpAddr,
    /// Packets that were sent for this test.
    pub echo: EchoReport,
    /// Flows of hosts that the peer answers for, each way.
    pub flows: Vec<FlowsReport>,
    /// What the sender function has found of the path, over all flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathStatus>,
    /// Milliseconds since 1970 at which `path` was asked for; it changes while flows have packets.
    pub path_at_ms: u64,
    /// What an operator should know, in sentences.
    pub findings: Vec<String>,
}

/// Echoes (ICMP) between the in-band addresses of both gateways: the way that messages take.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EchoReport {
    /// Milliseconds since 1970 at which the first one was sent.
    pub at_ms: u64,
    /// Why there are no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// Short ones that were sent.
    pub sent: u64,
    /// Those that came back. One that did not was lost on either way.
    pub received: u64,
    /// Shortest round-trip time, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_min_us: Option<u64>,
    /// Half of them took no longer, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_median_us: Option<u64>,
    /// Longest, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_max_us: Option<u64>,
    /// Longest IP packet that reached the peer and came back in the same length without fragmentation, octets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu_both_ways: Option<u32>,
    /// Shortest one that did not, octets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu_refused: Option<u32>,
    /// Longest that was tried: the MTU of the in-band interface, octets. Longer packets are flows' alone.
    pub mtu_tried: u32,
}

/// Which way the packets of flows go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From hosts here to the peer: the sender function's figures, which the peer reports.
    ToPeer,
    /// From the peer to hosts here: the receiver function's figures.
    FromPeer,
}

/// Flows in one direction.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlowsReport {
    /// Which.
    pub direction: Direction,
    /// Milliseconds since 1970 at which they were listed.
    pub at_ms: u64,
    /// Flows.
    pub flows: u64,
    /// Those that are protected.
    pub protected: u64,
    /// Packets of them that the receiving gateway expected, over the lives of the flows.
    pub packets: u64,
    /// Those that were lost on the path.
    pub lost: u64,
    /// Shortest round-trip time of messages, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_min_us: Option<u64>,
    /// Median of the flows' smoothed round-trip times, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_median_us: Option<u64>,
    /// Longest repair symbol in force, octets; symbols that do not arrive are found out and given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol_octets: Option<u16>,
}

/// Whether both gateways' settings fit together, as far as flows show it. What the other side is configured for is
/// seen in what it agrees to and nowhere else.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Compatibility {
    /// Id of the peer.
    pub id: String,
    /// Milliseconds since 1970 at which flows were listed.
    pub at_ms: u64,
    /// Whether the peer answers.
    pub answers: bool,
    /// Version of the protocol that both speak; none while the peer does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// Flows that were looked at.
    pub flows: u64,
    /// FEC schemes in force.
    pub schemes: Vec<u8>,
    /// Each setting, what is configured here, and what is in force.
    pub settings: Vec<Setting>,
    /// What does not fit, in sentences; empty if everything does, or nothing is known.
    pub mismatches: Vec<Mismatch>,
}

/// A setting here and what was agreed on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Setting {
    /// Where it is in the config document, as a JSON pointer.
    pub pointer: String,
    /// The value that is configured, default or not.
    pub configured: u64,
    /// What `least` and `most` are, in words.
    pub meaning: String,
    /// The least in force for a flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<u64>,
    /// The most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u64>,
}

/// Something that does not fit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Mismatch {
    /// Where in the config document here, as a JSON pointer; the same place there may be what has to change.
    pub pointer: String,
    /// Flows that it keeps from being protected.
    pub flows: u64,
    /// What is the matter.
    pub text: String,
}
