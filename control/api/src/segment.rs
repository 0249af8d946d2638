//! One segment of the config document: its two ports, whom it serves, its in-band address. Policy and
//! table bounds are in `policy.rs`; what several values must fulfil together is in `check.rs`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::control_frames::ControlFrames;
use crate::link::LinkSettings;
use crate::net::{MacAddr, NotAnAddress, Prefix};
use crate::operation::{Bypass, LinkPropagation, OnFailure};
use crate::policy::{Limits, Policy};
use crate::read::{Node, Table};
use crate::vxlan::Vxlan;

const PREFIX: &str = "a network such as \"10.0.1.0/24\", no host bits set";

/// The id of a segment: 1 to 32 of `a-z`, `0-9` and `-`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
pub struct SegmentId(String);

impl SegmentId {
    pub(crate) const EXPECTED: &'static str = "an id of 1 to 32 characters a-z, 0-9 and -";
    pub(crate) const PATTERN: &'static str = "^[a-z0-9-]{1,32}$";

    /// The text of the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SegmentId {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if (1..=32).contains(&text.len()) && text.bytes().all(legal) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotAnAddress)
        }
    }
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a segment does with the frames between its ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Forwards everything and protects flows.
    Active,
    /// Forwards everything and watches flows that come from the WAN; sends nothing of its own.
    Monitor,
    /// Forwards everything and nothing else; CREM messages to served hosts still stop here.
    Passthrough,
    /// Forwards nothing.
    Block,
    /// For a time: the relay joins the ports, or, where there is none, as `passthrough`. Then what was before.
    Bypass,
}

impl Mode {
    const ALL: [Self; 5] = [
        Self::Active,
        Self::Monitor,
        Self::Passthrough,
        Self::Block,
        Self::Bypass,
    ];

    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Active => "active",
            Mode::Monitor => "monitor",
            Mode::Passthrough => "passthrough",
            Mode::Block => "block",
            Mode::Bypass => "bypass",
        }
    }
}

/// One of the two ports of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Toward the hosts that the segment serves.
    Lan,
    /// Toward the other gateway.
    Wan,
}

/// What a port is made of; exactly one of the keys.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Device {
    /// A kernel network interface, reached through an AF_PACKET ring.
    Interface(String),
    /// A kernel network interface, reached through an AF_XDP socket: keeps tags of 802.1ad as they are,
    /// and takes MTUs up to 3400 only.
    Xdp(String),
    /// A PCI function such as `0000:3b:00.0`.
    Pci(String),
    /// A virtual device of DPDK with its arguments, such as `net_null0`.
    Vdev(String),
}

impl Device {
    /// The name under which messages speak of it.
    pub fn name(&self) -> &str {
        match self {
            Device::Interface(name)
            | Device::Xdp(name)
            | Device::Pci(name)
            | Device::Vdev(name) => name,
        }
    }

    /// The kernel's interface under it, if the document names one.
    pub fn kernel_interface(&self) -> Option<&str> {
        match self {
            Device::Interface(name) | Device::Xdp(name) => Some(name),
            Device::Pci(_) | Device::Vdev(_) => None,
        }
    }
}

/// An empty table: the value of a set member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Empty {}

/// The gateway that answers for a remote prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Peer {
    /// Its in-band address.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub address: IpAddr,
}

/// The address that the gateway has inside the segment, for CREM messages.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Inband {
    /// Address and length of its on-link prefix.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub address: Prefix,
    /// Its MAC address; without it one is derived from address and segment id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub mac: Option<MacAddr>,
    /// VLAN that its frames carry on the ports; untagged without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Port for frames to stations not seen yet, and for broadcasts.
    pub port: Side,
    /// Next hop for peers outside the on-link prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub gateway: Option<IpAddr>,
}

/// A segment: one LAN and one WAN port, bridged.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Segment {
    /// What it does with frames.
    pub mode: Mode,
    /// What is to become of the wire when this process does not run.
    pub on_failure: OnFailure,
    /// Mode `bypass`.
    pub bypass: Bypass,
    /// What the link of one port tells the other.
    pub link_propagation: LinkPropagation,
    /// Port toward the hosts.
    pub lan: Device,
    /// Port toward the other gateway.
    pub wan: Device,
    /// The link of the LAN port.
    #[serde(skip_serializing_if = "LinkSettings::is_empty")]
    pub lan_link: LinkSettings,
    /// The link of the WAN port.
    #[serde(skip_serializing_if = "LinkSettings::is_empty")]
    pub wan_link: LinkSettings,
    /// UDP port of CREM. It has no default: no port is assigned to the protocol.
    pub crem_port: u16,
    /// IP MTU of the path to the peer, octets.
    pub path_mtu: u16,
    /// RDMA MTU assumed of a flow before its packets show it, octets; also the largest protected.
    pub rdma_mtu: u16,
    /// Rate of the WAN that packets and repair may take together, Mbit/s; unlimited without it. Only repair
    /// gives way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wan_rate_mbit: Option<u32>,
    /// Prefixes of the hosts behind the LAN port.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Empty>))]
    pub served: BTreeMap<Prefix, Empty>,
    /// Gateway for each remote prefix; without an entry HELLO goes to the flow's destination.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Peer>))]
    pub peers: BTreeMap<Prefix, Peer>,
    /// Addresses whose HELLO is accepted, besides those of `peers`.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Empty>))]
    pub allowed_peers: BTreeMap<Prefix, Empty>,
    /// Nodes on the path whose PATH_REPORT is taken.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Empty>))]
    pub reporters: BTreeMap<Prefix, Empty>,
    /// The in-band address; needed in mode `active`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inband: Option<Inband>,
    /// Tunnels that are looked into; without it what is inside of tunnels just passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vxlan: Option<Vxlan>,
    /// What happens to frames of protocols between neighbours.
    pub control_frames: ControlFrames,
    /// Redundancy.
    pub policy: Policy,
    /// Bounds.
    pub limits: Limits,
}

impl Segment {
    pub(crate) fn read(mut t: Table<'_>) -> Option<Self> {
        let words = Mode::ALL.map(|mode| (mode.name(), mode));
        let mode = t.required("mode", |n| n.choice(&words));
        let failures = [("wire", OnFailure::Wire), ("block", OnFailure::Block)];
        let on_failure = t.or_told("on_failure", OnFailure::default(), |n| n.choice(&failures));
        let bypass = t.or_told("bypass", Bypass::default(), |n| {
            n.table().and_then(Bypass::read)
        });
        let links = t.or_told("link_propagation", LinkPropagation::default(), |n| {
            n.table().and_then(LinkPropagation::read)
        });
        let lan = t.required("lan", read_device);
        let wan = t.required("wan", read_device);
        let lan_link = t.or_told("lan_link", LinkSettings::default(), LinkSettings::read);
        let wan_link = t.or_told("wan_link", LinkSettings::default(), LinkSettings::read);
        let crem_port = t.required("crem_port", |n| n.integer(1..=u16::MAX));
        let path_mtu = t.required("path_mtu", |n| n.integer(576..=9216));
        let rdma_mtu = t.or_told("rdma_mtu", 4096, read_rdma_mtu);
        let wan_rate = t.optional("wan_rate_mbit", |n| n.integer(1..=1_000_000));
        let served = t.or_told("served", BTreeMap::new(), read_set);
        let peers = t.or_told("peers", BTreeMap::new(), |n| read_networks(n, read_peer));
        let allowed_peers = t.or_told("allowed_peers", BTreeMap::new(), read_set);
        let reporters = t.or_told("reporters", BTreeMap::new(), read_set);
        let inband = t.optional("inband", |n| n.table().and_then(Inband::read));
        let vxlan = t.optional("vxlan", |n| n.table().and_then(Vxlan::read));
        let control = t.or_told("control_frames", ControlFrames::default(), |n| {
            n.table().and_then(ControlFrames::read)
        });
        let policy = t.or_told("policy", Policy::default(), |n| {
            n.table().and_then(Policy::read)
        });
        let limits = t.or_told("limits", Limits::default(), |n| {
            n.table().and_then(Limits::read)
        });
        t.finish();
        Some(Self {
            mode: mode?,
            on_failure: on_failure?,
            bypass: bypass?,
            link_propagation: links?,
            lan: lan?,
            wan: wan?,
            lan_link: lan_link?,
            wan_link: wan_link?,
            crem_port: crem_port?,
            path_mtu: path_mtu?,
            rdma_mtu: rdma_mtu?,
            wan_rate_mbit: wan_rate?,
            served: served?,
            peers: peers?,
            allowed_peers: allowed_peers?,
            reporters: reporters?,
            inband: inband?,
            vxlan: vxlan?,
            control_frames: control?,
            policy: policy?,
            limits: limits?,
        })
    }

    /// Whether a HELLO from `address` may be answered.
    pub fn is_allowed_peer(&self, address: IpAddr) -> bool {
        self.allowed_peers.keys().any(|p| p.contains(address))
            || self.peers.values().any(|p| p.address == address)
    }
}

fn read_device(node: &Node<'_>) -> Option<Device> {
    let mut t = node.table()?;
    node.describe(|| json!({"minProperties": 1, "maxProperties": 1}));
    let interface = t.optional("interface", |n| read_interface(n).map(Device::Interface));
    let xdp = t.optional("xdp", |n| read_interface(n).map(Device::Xdp));
    let pci = t.optional("pci", |n| {
        let expected = "a PCI address such as \"0000:3b:00.0\"";
        let pattern = "^([0-9A-Fa-f]{4}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\\.[0-9A-Fa-f]$";
        n.describe(|| json!({"pattern": pattern}));
        let text = n.text(expected)?;
        if is_pci_address(text) {
            Some(Device::Pci(text.to_owned()))
        } else {
            n.fail(expected)
        }
    });
    let vdev = t.optional("vdev", |n| {
        n.text("a DPDK device such as \"net_null0\"")
            .map(|s| Device::Vdev(s.to_owned()))
    });
    t.finish();
    let mut devices = [interface?, xdp?, pci?, vdev?].into_iter().flatten();
    match (devices.next(), devices.next()) {
        (Some(device), None) => Some(device),
        _ => node.fail("exactly one of the keys interface, xdp, pci, vdev"),
    }
}

fn read_interface(node: &Node<'_>) -> Option<String> {
    let expected = "an interface name of 1 to 15 characters";
    node.describe(|| json!({"maxLength": 15, "pattern": "^[^/, ]+$"}));
    let name = node.text(expected)?;
    if name.len() <= 15 && !name.contains(['/', ',', ' ']) {
        Some(name.to_owned())
    } else {
        node.fail(expected)
    }
}

/// Domain (which may be left out), bus, device and function in hexadecimal.
fn is_pci_address(text: &str) -> bool {
    let is_hex = |part: &str, len| part.len() == len && part.bytes().all(|b| b.is_ascii_hexdigit());
    let Some((buses, function)) = text.rsplit_once('.') else {
        return false;
    };
    let parts: Vec<&str> = buses.split(':').collect();
    let slot = match parts.as_slice() {
        [domain, bus, device] => is_hex(domain, 4) && is_hex(bus, 2) && is_hex(device, 2),
        [bus, device] => is_hex(bus, 2) && is_hex(device, 2),
        _ => false,
    };
    slot && is_hex(function, 1)
}

fn read_rdma_mtu(node: &Node<'_>) -> Option<u16> {
    node.describe(|| json!({"enum": [256, 512, 1024, 2048, 4096]}));
    let mtu = node.integer(256..=4096u16)?;
    if mtu.is_power_of_two() {
        Some(mtu)
    } else {
        node.fail("256, 512, 1024, 2048 or 4096")
    }
}

fn read_networks<V>(
    node: &Node<'_>,
    read: impl Fn(&Node<'_>) -> Option<V>,
) -> Option<BTreeMap<Prefix, V>> {
    let network = |text: &str| text.parse().ok().filter(Prefix::is_network);
    node.describe(|| json!({"propertyNames": {"pattern": Prefix::PATTERN}}));
    node.map(PREFIX, network, |n| read(n))
}

fn read_set(node: &Node<'_>) -> Option<BTreeMap<Prefix, Empty>> {
    read_networks(node, |n| {
        n.table()?.finish();
        Some(Empty {})
    })
}

fn read_station_address(node: &Node<'_>) -> Option<IpAddr> {
    let expected = "the IP address of one station";
    let address: IpAddr = node.parsed(expected)?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let station = Prefix::new(address, bits).is_some_and(|p| p.is_station());
    if station {
        Some(address)
    } else {
        node.fail(expected)
    }
}

fn read_peer(node: &Node<'_>) -> Option<Peer> {
    let mut t = node.table()?;
    let address = t.required("address", read_station_address);
    t.finish();
    Some(Peer { address: address? })
}

impl Inband {
    fn read(mut t: Table<'_>) -> Option<Self> {
        let address = t.required("address", |n| {
            let expected = "a station's address with its prefix length, such as \"192.0.2.1/24\"";
            n.describe(|| json!({"pattern": Prefix::PATTERN}));
            let prefix: Prefix = n.parsed(expected)?;
            if prefix.is_station() {
                Some(prefix)
            } else {
                n.fail(expected)
            }
        });
        let mac = t.optional("mac", |n| {
            let expected = "the MAC address of a station, such as \"02:00:00:00:00:01\"";
            n.describe(|| json!({"pattern": "^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$"}));
            let mac: MacAddr = n.parsed(expected)?;
            if mac.is_station() {
                Some(mac)
            } else {
                n.fail(expected)
            }
        });
        let vlan = t.optional("vlan", |n| n.integer(1..=4094u16));
        let port = t.or_told("port", Side::Wan, |n| {
            n.choice(&[("lan", Side::Lan), ("wan", Side::Wan)])
        });
        let gateway = t.optional("gateway", read_station_address);
        t.finish();
        Some(Self {
            address: address?,
            mac: mac?,
            vlan: vlan?,
            port: port?,
            gateway: gateway?,
        })
    }
}
