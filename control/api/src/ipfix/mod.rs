//! The part of the config document on IPFIX: what is observed where, and the numbers of the elements.
//! Observation Points are in `point`, connections whose sequence is observed in `connection`, collectors in
//! `collector`; what several values must fulfil together is in `check`. How it becomes meters and sessions is
//! decided in `crem-ipfix`.

pub(crate) mod check;
mod collector;
mod connection;
mod point;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;

use crate::net::Prefix;
use crate::read::{Node, Table};
use crate::segment::SegmentId;

pub use collector::{Collector, CollectorTransport, Fingerprint, TlsPeer};
pub use connection::Connection;
pub use point::{ObservationPlace, ObservationPoint, PacketObservation, Select};

/// The name of a scope, point, connection or collector; written as the id of a segment is.
pub type Name = SegmentId;

/// Most entries of a table with a bound of the meters: scopes.
const MAX_SCOPES: usize = 64;
/// Most collectors; each has a descriptor, a queue and a number of 16 bits.
const MAX_COLLECTORS: usize = 16;
const PREFIX: &str = "a network such as \"10.0.1.0/24\", no host bits set";

/// IPFIX export.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ipfix {
    /// Observation Domain ID, not 0.
    pub domain: u32,
    /// Private Enterprise Number of the drafts' elements. None is assigned to them, so there is no default
    /// (AMB-BTH-PEN).
    pub pen: u32,
    /// The elements get numbers from here on, in two groups; the other way is `elements`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_element: Option<u16>,
    /// The number of each element by its name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub elements: BTreeMap<String, u16>,
    /// Octets of destination QP and PSN in the BTH profiles, 3 or 4 (AMB-BTH-QP34).
    pub qp_octets: u8,
    /// How far an observation time may be off, nanoseconds.
    pub time_error_ns: u32,
    /// Memory of all meters at most, MB.
    pub memory_mb: u32,
    /// UDP port of VXLAN, looked into where a scope names a network of it.
    pub vxlan_port: u16,
    /// Which packets are RoCEv2. Without a scope nothing is observed (AMB-BTH-CTX).
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Scope>))]
    pub scopes: BTreeMap<Name, Scope>,
    /// Observation Points.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, ObservationPoint>))]
    pub points: BTreeMap<Name, ObservationPoint>,
    /// Aggregate flows, where points observe them.
    pub flows: AggregateFlows,
    /// Sequence observation, where points do it.
    pub sequence: SequenceBounds,
    /// Connections whose sequence is observed.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Connection>))]
    pub connections: BTreeMap<Name, Connection>,
    /// Collectors. One's number between processes comes from its name ([`collector_number`]).
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Collector>))]
    pub collectors: BTreeMap<Name, Collector>,
}

/// A part of the network that is known to carry RoCEv2 on UDP port 4791.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Scope {
    /// Source addresses.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub source: Prefix,
    /// Destination addresses.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub destination: Prefix,
    /// VLAN tags.
    #[serde(flatten)]
    pub tags: Tags,
}

/// The VLAN tags that packets of a scope have, or a connection's, or the VXLAN network that they are in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tags {
    /// The VLAN identifier, the outer one of two; untagged without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// The inner VLAN identifier of two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inner_vlan: Option<u16>,
    /// Whatever the tags are: only where VLANs do not part tenants.
    pub any_tags: bool,
    /// Inside VXLAN with this network identifier: addresses, ports and octets are those of the inner packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vxlan: Option<u32>,
}

/// Aggregate flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AggregateFlows {
    /// Flows of a point and worker at once. At the bound the oldest is exported early.
    pub max_flows: u32,
    /// flowActiveTimeout, seconds.
    pub active_timeout_s: u16,
    /// flowIdleTimeout, seconds.
    pub idle_timeout_s: u16,
    /// Whether the opcode is a Flow Key.
    pub opcode_key: bool,
}

impl Default for AggregateFlows {
    fn default() -> Self {
        Self {
            max_flows: 16384,
            active_timeout_s: 60,
            idle_timeout_s: 15,
            opcode_key: false,
        }
    }
}

/// Bounds and intervals of sequence observation, for each point, worker and collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SequenceBounds {
    /// Connections known at once.
    pub max_connections: u32,
    /// Epochs active at once; each has memory for its window.
    pub max_epochs: u32,
    /// Between two reports of an epoch, milliseconds.
    pub report_interval_ms: u32,
    /// Without a request for so long an epoch closes, milliseconds.
    pub idle_timeout_ms: u32,
}

impl Default for SequenceBounds {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            max_epochs: 1024,
            report_interval_ms: 10_000,
            idle_timeout_ms: 60_000,
        }
    }
}

/// The number that the data plane and the exporting process call a collector by. It follows from the name
/// alone (FNV-1a of 32 bits, its halves combined), so that it stays when others come and go, and when the
/// two processes have read different versions of a document.
pub fn collector_number(name: &Name) -> u16 {
    let hash = name.as_str().bytes().fold(0x811c_9dc5_u32, |hash, octet| {
        (hash ^ u32::from(octet)).wrapping_mul(0x0100_0193)
    });
    (hash >> 16) as u16 ^ hash as u16
}

impl Ipfix {
    /// The collectors with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (u16, &Name, &Collector)> {
        let each = self.collectors.iter();
        each.map(|(name, collector)| (collector_number(name), name, collector))
    }

    pub(crate) fn read(mut t: Table<'_>) -> Option<Self> {
        let domain = t.required("domain", |n| n.integer(1..=u32::MAX));
        let pen = t.required("pen", |n| n.integer(1..=u32::MAX));
        let first = t.optional("first_element", |n| n.integer(1..=32656u16));
        let elements = t.or_told("elements", BTreeMap::new(), |n| {
            n.describe(|| json!({"propertyNames": {"minLength": 1}}));
            let name = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            n.map("the name of an element", name, |n| n.integer(1..=0x7fffu16))
        });
        let qp_octets = t.or_told("qp_octets", 3, |n| n.integer(3..=4u8));
        let time_error = t.or_told("time_error_ns", 1000, |n| n.integer(0..=u32::MAX));
        let memory = t.or_told("memory_mb", 256, |n| n.integer(1..=1 << 20));
        let vxlan_port = t.or_told("vxlan_port", 4789, |n| n.integer(1..=u16::MAX));
        let scopes = t.or_told("scopes", BTreeMap::new(), |n| {
            read_named(n, MAX_SCOPES, Scope::read)
        });
        let points = t.or_told("points", BTreeMap::new(), |n| {
            read_named(n, usize::MAX, ObservationPoint::read)
        });
        let flows = t.or_told("flows", AggregateFlows::default(), |n| {
            n.table().and_then(AggregateFlows::read)
        });
        let sequence = t.or_told("sequence", SequenceBounds::default(), |n| {
            n.table().and_then(SequenceBounds::read)
        });
        let connections = t.or_told("connections", BTreeMap::new(), |n| {
            read_named(n, connection::MAX, Connection::read)
        });
        let collectors = t.or_told("collectors", BTreeMap::new(), |n| {
            read_named(n, MAX_COLLECTORS, Collector::read)
        });
        t.finish();
        Some(Self {
            domain: domain?,
            pen: pen?,
            first_element: first?,
            elements: elements?,
            qp_octets: qp_octets?,
            time_error_ns: time_error?,
            memory_mb: memory?,
            vxlan_port: vxlan_port?,
            scopes: scopes?,
            points: points?,
            flows: flows?,
            sequence: sequence?,
            connections: connections?,
            collectors: collectors?,
        })
    }
}

fn read_named<V>(
    node: &Node<'_>,
    most: usize,
    read: impl Fn(Table<'_>) -> Option<V>,
) -> Option<BTreeMap<Name, V>> {
    let name = |text: &str| text.parse().ok();
    node.describe(|| json!({"propertyNames": {"pattern": Name::PATTERN}}));
    if most < usize::MAX {
        node.describe(|| json!({"maxProperties": most}));
    }
    let entries = node.map(Name::EXPECTED, name, |n| n.table().and_then(&read))?;
    if entries.len() > most {
        return node.too_many(entries.len(), most);
    }
    Some(entries)
}

fn read_network(node: &Node<'_>) -> Option<Prefix> {
    node.describe(|| json!({"pattern": Prefix::PATTERN}));
    let prefix: Prefix = node.parsed(PREFIX)?;
    if prefix.is_network() {
        Some(prefix)
    } else {
        node.fail(PREFIX)
    }
}

impl Scope {
    fn read(mut t: Table<'_>) -> Option<Self> {
        let source = t.required("source", read_network);
        let destination = t.required("destination", read_network);
        let tags = Tags::read(&mut t);
        t.finish();
        Some(Self {
            source: source?,
            destination: destination?,
            tags: tags?,
        })
    }
}

impl Tags {
    /// Reads the keys of tags out of a table that has others as well.
    fn read(t: &mut Table<'_>) -> Option<Self> {
        let vlan = t.optional("vlan", |n| n.integer(0..=4094u16));
        let inner = t.optional("inner_vlan", |n| n.integer(0..=4094u16));
        let any = t.or_told("any_tags", false, |n| n.flag());
        let vxlan = t.optional("vxlan", |n| n.integer(0..=0x00ff_ffffu32));
        let (vlan, inner_vlan, any_tags, vxlan) = (vlan?, inner?, any?, vxlan?);
        if vxlan.is_some() && (vlan.is_some() || any_tags) {
            return t.at("vxlan").fail("no vxlan beside vlan or any_tags");
        }
        if inner_vlan.is_some() && vlan.is_none() {
            return t.at("inner_vlan").fail("no inner_vlan without vlan");
        }
        if any_tags && vlan.is_some() {
            return t.at("any_tags").fail("no any_tags beside vlan");
        }
        Some(Self {
            vlan,
            inner_vlan,
            any_tags,
            vxlan,
        })
    }
}

impl AggregateFlows {
    fn read(mut t: Table<'_>) -> Option<Self> {
        let d = Self::default();
        let max = t.or_told("max_flows", d.max_flows, |n| n.integer(1..=1 << 22));
        // 0 would read as "without timeout" in the options record.
        let active = t.or_told("active_timeout_s", d.active_timeout_s, |n| {
            n.integer(1..=u16::MAX)
        });
        let idle = t.or_told("idle_timeout_s", d.idle_timeout_s, |n| {
            n.integer(1..=u16::MAX)
        });
        let opcode = t.or_told("opcode_key", d.opcode_key, |n| n.flag());
        t.finish();
        Some(Self {
            max_flows: max?,
            active_timeout_s: active?,
            idle_timeout_s: idle?,
            opcode_key: opcode?,
        })
    }
}

impl SequenceBounds {
    fn read(mut t: Table<'_>) -> Option<Self> {
        let d = Self::default();
        let connections = t.or_told("max_connections", d.max_connections, |n| {
            n.integer(1..=1 << 20)
        });
        let epochs = t.or_told("max_epochs", d.max_epochs, |n| n.integer(1..=1 << 20));
        let interval = t.or_told("report_interval_ms", d.report_interval_ms, |n| {
            n.integer(10..=3_600_000)
        });
        let idle = t.or_told("idle_timeout_ms", d.idle_timeout_ms, |n| {
            n.integer(100..=86_400_000)
        });
        t.finish();
        Some(Self {
            max_connections: connections?,
            max_epochs: epochs?,
            report_interval_ms: interval?,
            idle_timeout_ms: idle?,
        })
    }
}
