//! VXLAN of the hosts: a device of their kernels' at either end, through which flows go that say so. The
//! kernel encapsulates what `rdma-peer` writes to it, and takes apart what comes.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::Failure;
use super::gateway::table;
use super::spec::{Host, Scenario};
use super::topology::{HOST_INTERFACE, ip};

/// Name of the device.
pub(crate) const TUNNEL_INTERFACE: &str = "vx0";
/// Octets that a tunnel over IPv4 adds to an IP packet.
const OVERHEAD: u16 = 50;

/// Tunnels between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vxlan {
    /// Network identifier of the hosts.
    pub vni: u32,
    /// The one that the gateways protect, if another.
    pub protected: Option<u32>,
}

impl Vxlan {
    /// What the documents of the gateways say.
    pub(crate) fn document(&self) -> Value {
        let vni = self.protected.unwrap_or(self.vni);
        table("networks", table(&vni.to_string(), Table::new().into()))
    }

    /// Sets the device of a host up, in its namespace.
    pub(crate) fn set_up(
        &self,
        scenario: &Scenario,
        host: Host,
        namespace: &str,
    ) -> Result<(), Failure> {
        let (own, other) = (end(host).to_string(), end(host.other()).to_string());
        let address = format!("{own}/16");
        ip(&[
            "-n",
            namespace,
            "address",
            "add",
            &address,
            "dev",
            HOST_INTERFACE,
        ])?;
        let vni = self.vni.to_string();
        ip(&[
            "-n",
            namespace,
            "link",
            "add",
            TUNNEL_INTERFACE,
            "type",
            "vxlan",
            "id",
            &vni,
            "local",
            &own,
            "remote",
            &other,
            "dstport",
            "4789",
            "dev",
            HOST_INTERFACE,
            "ttl",
            "64",
            "tos",
            "inherit",
            "noudpcsum",
        ])?;
        // The kernel shall not speak there by itself.
        let key = format!("net.ipv6.conf.{TUNNEL_INTERFACE}.disable_ipv6=1");
        ip(&["netns", "exec", namespace, "sysctl", "-qw", &key])?;
        let mtu = scenario.mtu.saturating_sub(OVERHEAD).to_string();
        ip(&[
            "-n",
            namespace,
            "link",
            "set",
            TUNNEL_INTERFACE,
            "address",
            &mac(host),
            "mtu",
            &mtu,
            "up",
        ])
    }
}

/// Address of a tunnel's end.
pub(crate) fn end(host: Host) -> IpAddr {
    let side = if host == Host::A { 1 } else { 2 };
    Ipv4Addr::new(172, 31, side, 1).into()
}

/// Ethernet address of a host inside of the tunnel.
pub(crate) fn mac(host: Host) -> String {
    format!("02:78:00:00:00:0{}", if host == Host::A { 1 } else { 2 })
}
