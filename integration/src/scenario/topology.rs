//! Network namespaces and the links between them, by `ip` and `ethtool`; everything is removed when the
//! value is dropped, and what earlier runs that crashed left is removed at the start of a program.

use std::path::Path;
use std::process::Command;

use super::Failure;
use super::report::gateway_name;
use super::spec::{Family, Gateways, Host, Scenario, inband, routed};

/// Start of every namespace's name; the process id of the scenario follows.
const PREFIX: &str = "crem-sc-";
/// Where `ip` keeps namespaces.
const NETNS: &str = "/var/run/netns";

/// A place that programs run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A host.
    Host(Host),
    /// A gateway.
    Gateway(Host),
    /// The WAN.
    Wan,
    /// What joins several gateways at side B of the WAN.
    Switch,
    /// Where etcd and who speaks to it are.
    Store,
}

impl Place {
    fn suffix(self) -> &'static str {
        match self {
            Self::Host(Host::A) => "hostA",
            Self::Host(Host::B) => "hostB",
            Self::Host(Host::C) => "hostC",
            Self::Gateway(host) => gateway_name(host),
            Self::Wan => "wan",
            Self::Switch => "switch",
            Self::Store => "store",
        }
    }
}

/// The world of one run.
#[derive(Debug)]
pub(crate) struct Topology {
    base: String,
    made: Vec<Place>,
}

/// Name of the hosts' interface.
pub(crate) const HOST_INTERFACE: &str = "h0";
/// Names of a gateway's interfaces.
pub(crate) const LAN_INTERFACE: &str = "lan0";
/// See [`LAN_INTERFACE`].
pub(crate) const WAN_INTERFACE: &str = "wan0";
/// Names of the WAN's interfaces, side A and side B.
pub(crate) const WAN_SIDES: [&str; 2] = ["wa", "wb"];

/// TAP devices of a guest that is a gateway, toward its LAN and its WAN.
pub(crate) const GUEST_TAPS: [&str; 2] = ["guest-lan", "guest-wan"];

/// Name of the bridge that is the switch, and of its port to the WAN.
const BRIDGE: &str = "br0";
const UPLINK: &str = "up0";

/// The switch's port to a gateway.
fn switch_port(host: Host) -> String {
    format!("p{}", host.letter())
}

impl Topology {
    /// Builds namespaces and links. `tag` tells the runs of one process apart.
    pub(crate) fn build(scenario: &Scenario, tag: &str) -> Result<Self, Failure> {
        let base = format!("{PREFIX}{}-{tag}-", std::process::id());
        let mut world = Self {
            base,
            made: Vec::new(),
        };
        world.add(Place::Wan)?;
        let [side_a, side_b] = WAN_SIDES;
        if scenario.fleet.is_some() {
            world.add(Place::Store)?;
        }
        if scenario.gateways == Gateways::Hub || scenario.router.is_some() {
            world.switch(scenario)?;
        }
        if scenario.router.is_some() {
            world.start_router()?;
        }
        for &host in scenario.hosts() {
            let at = Place::Host(host);
            world.add(at)?;
            let side = if host == Host::A { side_a } else { side_b };
            let switched = scenario.gateways == Gateways::Hub || scenario.router.is_some();
            let (to, port) = match scenario.gateways {
                _ if switched && host != Host::A => (Place::Switch, switch_port(host)),
                _ => (Place::Wan, side.to_owned()),
            };
            if scenario.has_gateways() {
                let gateway = Place::Gateway(host);
                world.add(gateway)?;
                world.link(scenario, at, HOST_INTERFACE, gateway, LAN_INTERFACE)?;
                world.link(scenario, gateway, WAN_INTERFACE, to, &port)?;
                if scenario.guest == Some(host) {
                    world.guest(scenario, gateway)?;
                }
            } else {
                world.link(scenario, at, HOST_INTERFACE, to, &port)?;
            }
            if to == Place::Switch {
                world.plug(&port)?;
            }
            world.address(scenario.family, host)?;
        }
        if let Some(vxlan) = &scenario.vxlan {
            for host in [Host::A, Host::B] {
                vxlan.set_up(scenario, host, &world.name(Place::Host(host)))?;
            }
        }
        Ok(world)
    }

    /// A switch at side B of the WAN.
    fn switch(&mut self, scenario: &Scenario) -> Result<(), Failure> {
        self.add(Place::Switch)?;
        let ns = self.name(Place::Switch);
        let snooping = ["mcast_snooping", "0"];
        let new = ["-n", &ns, "link", "add", BRIDGE, "type", "bridge"];
        ip(&[&new[..], &snooping[..]].concat())?;
        self.set_up(scenario, Place::Switch, BRIDGE)?;
        let [_, side_b] = WAN_SIDES;
        self.link(scenario, Place::Switch, UPLINK, Place::Wan, side_b)?;
        self.plug(UPLINK)
    }

    fn plug(&self, port: &str) -> Result<(), Failure> {
        self.enslave(Place::Switch, port, BRIDGE)
    }

    fn enslave(&self, place: Place, port: &str, bridge: &str) -> Result<(), Failure> {
        ip(&[
            "-n",
            &self.name(place),
            "link",
            "set",
            port,
            "master",
            bridge,
        ])
    }

    /// What a guest's ports are plugged into: a TAP device each, which a bridge joins with the gateway's interface.
    fn guest(&self, scenario: &Scenario, place: Place) -> Result<(), Failure> {
        let ns = self.name(place);
        for (tap, interface) in GUEST_TAPS.iter().zip([LAN_INTERFACE, WAN_INTERFACE]) {
            let bridge = format!("br-{interface}");
            ip(&[
                "-n", &ns, "tuntap", "add", "dev", tap, "mode", "tap", "vnet_hdr",
            ])?;
            let snooping = ["mcast_snooping", "0"];
            let new = ["-n", &ns, "link", "add", &bridge, "type", "bridge"];
            ip(&[&new[..], &snooping[..]].concat())?;
            for name in [tap, bridge.as_str()] {
                self.set_up(scenario, place, name)?;
            }
            for port in [tap, interface] {
                self.enslave(place, port, &bridge)?;
            }
        }
        Ok(())
    }

    /// Name of a place's namespace.
    pub(crate) fn name(&self, place: Place) -> String {
        format!("{}{}", self.base, place.suffix())
    }

    /// Path of a place's namespace.
    pub(crate) fn path(&self, place: Place) -> std::path::PathBuf {
        Path::new(NETNS).join(self.name(place))
    }

    /// A command in a place's namespace; it ends when this thread ends.
    pub(crate) fn command(&self, place: Place, program: &Path) -> Command {
        Self::command_in(&self.name(place), program)
    }

    /// The same in a namespace by its name.
    pub(crate) fn command_in(name: &str, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", name]);
        command.args(["setpriv", "--pdeathsig", "KILL"]);
        command.arg(program);
        command
    }

    fn add(&mut self, place: Place) -> Result<(), Failure> {
        let name = self.name(place);
        ip(&["netns", "add", &name])?;
        self.made.push(place);
        ip(&["-n", &name, "link", "set", "lo", "up"])
    }

    fn link(
        &self,
        scenario: &Scenario,
        left: Place,
        left_name: &str,
        right: Place,
        right_name: &str,
    ) -> Result<(), Failure> {
        let (left_ns, right_ns) = (self.name(left), self.name(right));
        ip(&[
            "link", "add", left_name, "netns", &left_ns, "type", "veth", "peer", "name",
            right_name, "netns", &right_ns,
        ])?;
        for (place, name) in [(left, left_name), (right, right_name)] {
            self.set_up(scenario, place, name)?;
        }
        Ok(())
    }

    /// MTU, no offloads, and no IPv6 of the kernel's own where it would chatter.
    fn set_up(&self, scenario: &Scenario, place: Place, name: &str) -> Result<(), Failure> {
        let ns = self.name(place);
        let own = matches!(place, Place::Host(_)) && scenario.family == Family::Ipv6;
        let key = format!("net.ipv6.conf.{name}.disable_ipv6={}", u8::from(!own));
        ip(&["netns", "exec", &ns, "sysctl", "-qw", &key])?;
        if own {
            let key = format!("net.ipv6.conf.{name}.accept_dad=0");
            ip(&["netns", "exec", &ns, "sysctl", "-qw", &key])?;
        }
        if let Place::Host(host) = place {
            ip(&["-n", &ns, "link", "set", name, "address", &mac(host)])?;
        }
        ip(&[
            "-n",
            &ns,
            "link",
            "set",
            name,
            "mtu",
            &scenario.mtu.to_string(),
            "up",
        ])?;
        // With checksum offload the kernel would send frames whose checksums nobody fills in.
        ip(&[
            "netns", "exec", &ns, "ethtool", "-K", name, "tx", "off", "gso", "off", "gro", "off",
        ])
    }

    fn address(&self, family: Family, host: Host) -> Result<(), Failure> {
        let ns = self.name(Place::Host(host));
        let own = format!("{}/{}", family.host(host), family.link_bits());
        ip(&["-n", &ns, "address", "add", &own, "dev", HOST_INTERFACE])?;
        if family == Family::Ipv6 {
            // The in-band addresses are IPv4: so that they can be tried from the hosts.
            let four = format!("{}/{}", Family::Ipv4.host(host), Family::Ipv4.link_bits());
            ip(&["-n", &ns, "address", "add", &four, "dev", HOST_INTERFACE])?;
        }
        Ok(())
    }

    /// The switch forwards packets between the gateways' links as well, by the MAC address of its bridge.
    fn start_router(&self) -> Result<(), Failure> {
        let ns = self.name(Place::Switch);
        for key in ["all", BRIDGE] {
            // It would tell gateways on one wire that they need no router.
            let redirects = format!("net.ipv4.conf.{key}.send_redirects=0");
            ip(&["netns", "exec", &ns, "sysctl", "-qw", &redirects])?;
        }
        ip(&[
            "netns",
            "exec",
            &ns,
            "sysctl",
            "-qw",
            "net.ipv4.ip_forward=1",
        ])?;
        self.route(true)
    }

    /// Gives the router its addresses, and with them its routes, or takes them.
    pub(crate) fn route(&self, on: bool) -> Result<(), Failure> {
        let (ns, way) = (self.name(Place::Switch), if on { "add" } else { "del" });
        for host in [Host::A, Host::B] {
            let [_, own] = routed(host);
            ip(&[
                "-n",
                &ns,
                "address",
                way,
                &format!("{own}/24"),
                "dev",
                BRIDGE,
            ])?;
        }
        Ok(())
    }

    /// Gives the router another MAC address, and tells nobody.
    pub(crate) fn move_router(&self, mac: &str) -> Result<(), Failure> {
        let ns = self.name(Place::Switch);
        ip(&["-n", &ns, "link", "set", BRIDGE, "address", mac])
    }

    /// Sends many pings at once from host A to the in-band address of its gateway.
    pub(crate) fn flood_inband(&self, count: u32) -> Result<(), Failure> {
        let host = self.name(Place::Host(Host::A));
        let [own, _] = routed(Host::A);
        // The hosts are on another link.
        ip(&[
            "-n",
            &host,
            "route",
            "replace",
            &format!("{own}/32"),
            "dev",
            HOST_INTERFACE,
        ])?;
        // Before its neighbour is known the host keeps a hundred pings of the flood and drops the others.
        self.ping(own, 1);
        let mut command = self.command(Place::Host(Host::A), Path::new("ping"));
        let (count, own) = (count.to_string(), own.to_string());
        command.args(["-q", "-w", "1", "-c", &count, "-l", &count, &own]);
        // Its answers are not what this is about.
        command
            .output()
            .map(|_| ())
            .map_err(|e| format!("ping: {e}").into())
    }

    /// Takes the link of an interface down, at both its ends, or lets it come up.
    pub(crate) fn set_link(&self, place: Place, name: &str, up: bool) -> Result<(), Failure> {
        let way = if up { "up" } else { "down" };
        ip(&["-n", &self.name(place), "link", "set", name, way])
    }

    /// Has the kernel keep little of what programs at a place send, so that they notice who reads slowly.
    pub(crate) fn narrow(&self, place: Place) -> Result<(), Failure> {
        let key = "net.ipv4.tcp_wmem=4096 16384 131072";
        ip(&["netns", "exec", &self.name(place), "sysctl", "-qw", key])
    }

    /// Whether host A reaches an address.
    pub(crate) fn ping(&self, target: std::net::IpAddr, wait_s: u32) -> bool {
        let mut command = self.command(Place::Host(Host::A), Path::new("ping"));
        command.args([
            "-q",
            "-c",
            "1",
            "-W",
            &wait_s.to_string(),
            &target.to_string(),
        ]);
        command.output().is_ok_and(|out| out.status.success())
    }

    /// Whether host A reaches the in-band address of its gateway.
    pub(crate) fn ping_inband(&self, wait_s: u32) -> bool {
        self.ping(inband(Host::A), wait_s)
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        for place in &self.made {
            if let Err(error) = ip(&["netns", "delete", &self.name(*place)]) {
                eprintln!("scenario: {error}");
            }
        }
    }
}

/// Ethernet address of a host.
pub(crate) fn mac(host: Host) -> String {
    format!("02:77:00:00:00:0{}", host.number())
}

/// Runs `ip` and reports what it says if it fails.
pub(crate) fn ip(arguments: &[&str]) -> Result<(), Failure> {
    let out = Command::new("ip")
        .args(arguments)
        .output()
        .map_err(|e| format!("ip: {e}"))?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(format!("ip {}: {}", arguments.join(" "), said.trim()).into())
}

/// Removes namespaces and sockets of scenario processes that are gone, with what still runs in them.
pub fn remove_leftovers() {
    for name in left_in(Path::new(NETNS)) {
        eprintln!("scenario: removing {name}, left by a process that is gone");
        if let Ok(out) = Command::new("ip").args(["netns", "pids", &name]).output() {
            for pid in String::from_utf8_lossy(&out.stdout).split_whitespace() {
                // Gone already is as good.
                let _ = Command::new("kill").args(["-KILL", pid]).status();
            }
        }
        if let Err(error) = ip(&["netns", "delete", &name]) {
            eprintln!("scenario: {error}");
        }
    }
    let temporary = std::env::temp_dir();
    for name in left_in(&temporary) {
        // Gone already is as good.
        let _ = std::fs::remove_file(temporary.join(name));
    }
}

/// Names of ours in a folder whose process is gone.
fn left_in(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| {
            let owner = name
                .strip_prefix(PREFIX)
                .and_then(|rest| rest.split('-').next());
            owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_names_of_processes_that_are_gone_are_left() {
        let folder = std::env::temp_dir().join(format!("crem-left-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // Process ids end below 2^22 on Linux.
        let (gone, own) = (
            "crem-sc-4194305-x-gwA",
            format!("{PREFIX}{}-b", std::process::id()),
        );
        for name in [gone, own.as_str(), "crem-other", "crem-sc-"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let left = left_in(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(left, [gone]);
    }
}
