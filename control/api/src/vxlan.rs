//! Tunnels that a segment looks into: which VXLAN networks, and what they take of the path's MTU. How frames
//! are taken apart is not here.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;

use crate::read::{Node, Table};
use crate::segment::Empty;

/// Largest VXLAN network identifier.
const LAST_VNI: u32 = 0x00ff_ffff;
/// Octets that VXLAN over IPv4 adds to an IP packet: outer IP 20, UDP 8, VXLAN 8, inner Ethernet 14.
const OVER_IPV4: u16 = 50;
/// The most: over IPv6, with two tags inside.
const MOST: u16 = 78;

/// VXLAN whose inner packets are protected (AMB-TENANT, AMB-QOS-VXCE).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Vxlan {
    /// UDP destination port of VXLAN.
    pub port: u16,
    /// Networks whose flows are protected; without any it is all of them. Others pass.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Empty>))]
    pub networks: BTreeMap<u32, Empty>,
    /// Octets that the tunnel adds to an inner IP packet: 50 over IPv4, 70 over IPv6, and 4 for each tag
    /// inside.
    pub overhead: u16,
}

impl Vxlan {
    pub(crate) fn read(mut t: Table<'_>) -> Option<Self> {
        let port = t.or_told("port", 4789, |n| n.integer(1..=u16::MAX));
        let networks = t.or_told("networks", BTreeMap::new(), read_networks);
        let overhead = t.or_told("overhead", OVER_IPV4, |n| n.integer(OVER_IPV4..=MOST));
        t.finish();
        Some(Self {
            port: port?,
            networks: networks?,
            overhead: overhead?,
        })
    }
}

fn read_networks(node: &Node<'_>) -> Option<BTreeMap<u32, Empty>> {
    // In one form only, so that a network has one name.
    let number = |text: &str| {
        let vni = text.parse::<u32>().ok().filter(|vni| *vni <= LAST_VNI)?;
        (vni.to_string() == text).then_some(vni)
    };
    let pattern = "^(0|[1-9][0-9]{0,7})$";
    node.describe(|| json!({"minProperties": 1, "propertyNames": {"pattern": pattern}}));
    let networks = node.map("a VXLAN network identifier, 0 to 16777215", number, |n| {
        n.table()?.finish();
        Some(Empty {})
    })?;
    if networks.is_empty() {
        node.fail("at least one network, or no key networks for all of them")
    } else {
        Some(networks)
    }
}
