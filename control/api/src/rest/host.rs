//! What the API says of the machine and of the processes on it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{Confinement, MacAddr, Prefix};

/// What each process gave up.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConfinementList {
    /// The control process.
    pub control: Confinement,
    /// The data plane, if it answers and says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplane: Option<Confinement>,
    /// The exporting process, if it answers and says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub export: Option<Confinement>,
}

/// What the first client sends who has nothing but the code on the console.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Enrol {
    /// The code; hyphens, spaces and case do not matter.
    pub code: String,
    /// Whose the token is: 1 to 64 letters, digits and `-_.@`.
    #[cfg_attr(feature = "openapi", schema(pattern = "^[A-Za-z0-9._@-]{1,64}$"))]
    pub name: String,
    /// How long the token is good, such as `24h`; 30 days at most.
    #[serde(default = "a_day")]
    #[cfg_attr(
        feature = "openapi",
        schema(
            pattern = "^([1-9][0-9]{0,5}s|[1-9][0-9]{0,3}m|[1-9][0-9]{0,1}h|[1-6][0-9]{2}h|7[01][0-9]h|720h)$"
        )
    )]
    pub life: String,
}

fn a_day() -> String {
    "24h".to_owned()
}

/// A syslog server.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SyslogState {
    /// Whether there is a way to it; datagrams may still get lost.
    pub connected: bool,
    /// Messages given to the kernel or to TLS.
    pub sent: u64,
    /// Messages that it did not take in time.
    pub dropped: u64,
    /// Ways that were opened.
    pub connections: u64,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A kernel interface of this machine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InterfaceState {
    /// Number in the kernel.
    pub index: u32,
    /// Whether it is switched on.
    pub enabled: bool,
    /// `up`, `down` or another state of RFC 2863, in lower case with underscores.
    pub operational: String,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// Ethernet address, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub mac: Option<MacAddr>,
    /// MTU, octets.
    pub mtu: u32,
    /// How often the carrier came or went.
    pub carrier_changes: u32,
    /// Its addresses with the lengths of their prefixes.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, AddressState>))]
    pub addresses: BTreeMap<Prefix, AddressState>,
}

/// An address of an interface.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AddressState {
    /// `universe`, `site`, `link` or `host`.
    pub scope: String,
    /// Whether it stays: not one that was leased or made up.
    pub permanent: bool,
    /// Whether it is in the document.
    pub configured: bool,
}

/// The interfaces by name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InterfaceList {
    /// When they were looked at, milliseconds since 1970.
    pub at_ms: u64,
    /// The interfaces.
    pub interfaces: BTreeMap<String, InterfaceState>,
    /// Interfaces beyond the limit, which are not shown.
    pub left_out: u64,
}

/// A route of the main table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RouteState {
    /// Where it leads.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub destination: Prefix,
    /// Next router.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub gateway: Option<IpAddr>,
    /// Interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Metric; 0 is the best.
    pub metric: u32,
    /// Who made it: a number of RFC 3549 as the kernel has it.
    pub protocol: u8,
    /// Whether it is in the document.
    pub configured: bool,
}

/// The routes of the main table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RouteList {
    /// When they were looked at, milliseconds since 1970.
    pub at_ms: u64,
    /// The routes.
    pub routes: Vec<RouteState>,
    /// Routes beyond the limit, which are not shown.
    pub left_out: u64,
}

/// What a difference between the document and the machine is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DriftKind {
    /// There is no such interface.
    InterfaceMissing,
    /// It is switched off.
    InterfaceDisabled,
    /// It has another MTU.
    Mtu,
    /// An address is not there.
    AddressMissing,
    /// An address is there that the document does not have.
    AddressExtra,
    /// A route is not there.
    RouteMissing,
    /// A route of ours is there that the document does not have.
    RouteExtra,
    /// Other resolvers are asked.
    Resolvers,
    /// Other domains are searched.
    SearchDomains,
    /// Other time servers are asked.
    TimeServers,
}

/// A difference between the document and the machine.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Drift {
    /// JSON pointer of what the document says, or would say.
    pub pointer: String,
    /// What it is.
    pub kind: DriftKind,
    /// What the document has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configured: Option<String>,
    /// What the machine has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operational: Option<String>,
}

/// What the machine has other than the document.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DriftList {
    /// When it was looked at, milliseconds since 1970.
    pub at_ms: u64,
    /// The differences.
    pub drift: Vec<Drift>,
    /// What could not be set, in words.
    pub failures: Vec<String>,
}

/// Resolvers that this machine asks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DnsState {
    /// When it was looked at, milliseconds since 1970.
    pub at_ms: u64,
    /// Addresses of resolvers, the first one first.
    pub servers: Vec<String>,
    /// Domains that are searched, the first one first.
    pub search: Vec<String>,
    /// Whether they are what the gateway wrote: the system's file leads to the gateway's.
    pub by_gateway: bool,
    /// Why the gateway's file could not be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The clock of this machine, and whom it follows.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TimeState {
    /// When it was looked at, milliseconds since 1970.
    pub at_ms: u64,
    /// Time servers that the time service is told of, the first one first.
    pub servers: Vec<String>,
    /// Whether they are what the gateway wrote: the system's file leads to the gateway's.
    pub by_gateway: bool,
    /// When the time service last set the clock by a server, milliseconds since 1970; absent where it has not since
    /// the machine started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synchronised_at_ms: Option<u64>,
    /// Why the gateway's file could not be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
