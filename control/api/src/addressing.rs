//! The part of the config document on this machine's own interfaces for management: addresses, MTU, routes,
//! and who sets them. How they stand is in [`rest`](crate::rest).

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::net::Prefix;
use crate::read::{Code, Issue, Issues, Node};
use crate::segment::Empty;

/// Most interfaces, addresses of each, and routes.
const MAX_ENTRIES: usize = 64;

/// Who sets addresses, MTUs and routes of management interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Addressing {
    /// The operating system; what differs from the document is reported.
    #[default]
    System,
    /// The control process, over rtnetlink, as the document says.
    Gateway,
}

/// An interface for management.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ManagementInterface {
    /// Its addresses, each with the length of its prefix.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Empty>))]
    pub addresses: BTreeMap<Prefix, Empty>,
    /// Its MTU, octets; any without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// A route, by its destination.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ManagementRoute {
    /// Next router; without it the destination is on the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub gateway: Option<IpAddr>,
    /// Interface; without it that which reaches the gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Metric; the kernel's own without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
}

/// Reads what holds for one interface of each name.
pub(crate) fn interfaces(node: &Node<'_>) -> Option<BTreeMap<String, ManagementInterface>> {
    let expected = "the name of a kernel interface: 1 to 15 characters without / and spaces";
    let map = node.map(expected, interface_name, ManagementInterface::read)?;
    bounded(node, map)
}

/// Reads routes by destination.
pub(crate) fn routes(node: &Node<'_>) -> Option<BTreeMap<Prefix, ManagementRoute>> {
    let expected = "a network without host bits, such as \"0.0.0.0/0\"";
    let network = |text: &str| text.parse::<Prefix>().ok().filter(Prefix::is_network);
    bounded(node, node.map(expected, network, ManagementRoute::read)?)
}

fn bounded<K, V>(node: &Node<'_>, map: BTreeMap<K, V>) -> Option<BTreeMap<K, V>> {
    if map.len() > MAX_ENTRIES {
        return node.too_many(map.len(), MAX_ENTRIES);
    }
    Some(map)
}

fn interface_name(text: &str) -> Option<String> {
    let legal = |c: char| c.is_ascii_graphic() && c != '/';
    let fits = (1..=15).contains(&text.len()) && text.chars().all(legal);
    (fits && text != "." && text != "..").then(|| text.to_owned())
}

impl ManagementInterface {
    fn read(node: &Node<'_>) -> Option<Self> {
        let mut t = node.table()?;
        let addresses = t.or_told("addresses", BTreeMap::new(), |n| {
            let expected = "an address with the length of its prefix, such as \"192.0.2.10/24\"";
            let address = |text: &str| {
                let prefix = text.parse::<Prefix>().ok().filter(|_| text.contains('/'));
                prefix.filter(Prefix::is_station)
            };
            let read = |n: &Node<'_>| n.table().map(|t| t.finish()).map(|()| Empty {});
            bounded(n, n.map(expected, address, read)?)
        });
        let mtu = t.optional("mtu", |n| n.integer(576..=65_535));
        t.finish();
        Some(Self {
            addresses: addresses?,
            mtu: mtu?,
        })
    }
}

impl ManagementRoute {
    fn read(node: &Node<'_>) -> Option<Self> {
        let mut t = node.table()?;
        let gateway = t.optional("gateway", |n| {
            let expected = "the address of a router";
            let text = n.text(expected)?;
            text.parse::<IpAddr>().ok().or_else(|| n.fail(expected))
        });
        let interface = t.optional("interface", |n| {
            let expected = "the name of a kernel interface";
            interface_name(n.text(expected)?).or_else(|| n.fail(expected))
        });
        let metric = t.optional("metric", |n| n.integer(1..=u32::MAX));
        t.finish();
        Some(Self {
            gateway: gateway?,
            interface: interface?,
            metric: metric?,
        })
    }
}

/// Notes routes that lead nowhere.
pub(crate) fn check(routes: &BTreeMap<Prefix, ManagementRoute>, issues: &Issues) {
    for (destination, route) in routes {
        let key = destination
            .to_string()
            .replace('~', "~0")
            .replace('/', "~1");
        let say = |place: &str, found: String, expected: &str, code| {
            let pointer = format!("/management/routes/{key}{place}");
            issues.push(Issue::new(pointer, found, expected).of(code));
        };
        match (route.gateway, &route.interface) {
            (None, None) => {
                let expected = "a gateway or an interface";
                say("", "neither".to_owned(), expected, Code::Missing);
            }
            (Some(gateway), _) if gateway.is_ipv4() != destination.address().is_ipv4() => {
                let expected = "a gateway of the destination's family";
                say("/gateway", gateway.to_string(), expected, Code::Conflict);
            }
            _ => {}
        }
    }
}
