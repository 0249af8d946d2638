//! The scenario file.

use std::net::IpAddr;
use std::path::Path;

use crem_wan::Config as WanConfig;
use serde::{Deserialize, Serialize};

use super::Failure;
use super::api::Api;
use super::bounds::Bound;
use super::fleet::Fleet;
use super::metering::Metering;
use super::router::Router;
use super::sense;
use super::tunnel::Vxlan;

mod events;
mod flow;

pub(crate) use events::{Event, Part, PathReports, Set};

/// A scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Short name; the file of the result is called so.
    pub name: String,
    /// What it shows, one line.
    pub about: String,
    /// What stands between hosts and WAN.
    #[serde(default)]
    pub gateways: Gateways,
    /// IP family of the hosts.
    #[serde(default)]
    pub family: Family,
    /// MTU of every interface.
    #[serde(default = "default_mtu")]
    pub mtu: u16,
    /// Seconds after which a run is given up.
    #[serde(default = "default_limit")]
    pub limit_s: u64,
    /// The WAN.
    pub wan: WanConfig,
    /// At least one connection.
    pub flow: Vec<Flow>,
    /// Prefixes of Path Reporters that both gateways believe.
    #[serde(default)]
    pub reporters: Vec<String>,
    /// Keys for the segment in the document of both gateways.
    #[serde(default)]
    pub segment: toml::Table,
    /// How gateways reach their interfaces.
    #[serde(default)]
    pub ports: Ports,
    /// The gateway that runs in a guest of QEMU, on virtio ports.
    pub guest: Option<Host>,
    /// What is between the gateways and forwards their messages.
    pub router: Option<Router>,
    /// Tunnels between the hosts.
    pub vxlan: Option<Vxlan>,
    /// Keys for `policy` in the document of both gateways.
    #[serde(default)]
    pub policy: toml::Table,
    /// Keys for `limits` in the document of both gateways.
    #[serde(default)]
    pub limits: toml::Table,
    /// Workers of each gateway.
    #[serde(default = "default_workers")]
    pub workers: u16,
    /// Runs to make; without it those that the expectations need.
    #[serde(default)]
    pub runs: Vec<Mode>,
    /// What happens while the flows run.
    #[serde(default)]
    pub event: Vec<Event>,
    /// Values of documents that change while the flows run.
    #[serde(default)]
    pub set: Vec<Set>,
    /// After the flows host A's link goes and comes back.
    #[serde(default)]
    pub link_propagation: bool,
    /// What is observed for IPFIX; both gateways export it then, each to collectors of its own.
    pub metering: Option<Metering>,
    /// Control processes, and what is asked of them; without it gateways take their documents from files.
    pub api: Option<Api>,
    /// Control processes whose documents come through etcd, and what is done there meanwhile.
    pub fleet: Option<Fleet>,
    /// Documents to bring into force one after the other while the flows run and both gateways protect,
    /// both gateways together.
    #[serde(default)]
    pub changes: u64,
    /// Milliseconds after its start at which gateway B has a fault: a panic with the next packets from the WAN.
    pub panic_at_ms: Option<i64>,
    /// A stranger who sends CREM while the flows run.
    pub intruder: Option<Stranger>,
    /// What has to hold.
    #[serde(default)]
    pub expect: Expect,
}

/// What stands between hosts and WAN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gateways {
    /// A gateway at either end.
    #[default]
    Pair,
    /// One at side A with two peers: at side B of the WAN a switch joins the gateways of sites B and C.
    Hub,
    /// Nothing: hosts on the WAN.
    None,
}

/// A stranger who sends CREM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stranger {
    /// The gateway that it means.
    pub at: Host,
    /// What it sends, and from where.
    pub sends: Sends,
}

/// What a stranger sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sends {
    /// From the WAN what would harm a flow.
    Forgeries,
    /// From the WAN and from the LAN at the other end all that the CREM port must not take from outside.
    Outside,
}

/// How gateways reach their interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ports {
    /// Through AF_PACKET.
    #[default]
    Interface,
    /// Through AF_XDP, which keeps every tag as it is.
    Xdp,
}

impl Ports {
    /// As documents spell it.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Interface => "interface",
            Self::Xdp => "xdp",
        }
    }
}

/// IP family of the hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// IPv4.
    #[default]
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// What the gateways do in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// There are none.
    Bare,
    /// They forward only.
    Passthrough,
    /// They forward and watch.
    Monitor,
    /// They protect.
    #[serde(rename = "protected")]
    Active,
    /// They protect, and the WAN loses nothing.
    Lossless,
}

impl Mode {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Passthrough => "passthrough",
            Self::Monitor => "monitor",
            Self::Active => "protected",
            Self::Lossless => "lossless",
        }
    }

    pub(crate) fn is_active(self) -> bool {
        matches!(self, Self::Active | Self::Lossless)
    }
}

/// A host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Host {
    /// At side A.
    #[default]
    A,
    /// At side B.
    B,
    /// At the third site, if there is one: at side B of the WAN.
    C,
}

/// What a requester does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// RDMA WRITE.
    #[default]
    Write,
    /// SEND.
    Send,
    /// RDMA READ.
    Read,
}

/// A connection between the hosts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Operation.
    #[serde(default)]
    pub operation: Operation,
    /// Where the requester is.
    #[serde(default)]
    pub requester: Host,
    /// Where the other end is; without it at the other side.
    pub responder: Option<Host>,
    /// Queue pairs that do the same at once, from one process at either host: they take turns at the rate,
    /// a run of packets each.
    #[serde(default = "default_count")]
    pub count: u32,
    /// Path MTU.
    #[serde(default = "default_rdma_mtu")]
    pub rdma_mtu: u16,
    /// Octets a message.
    #[serde(default = "default_message")]
    pub message: u32,
    /// Messages to move, by each queue pair; else messages start during `seconds`.
    pub messages: Option<u64>,
    /// See `messages`.
    #[serde(default = "default_seconds")]
    pub seconds: f64,
    /// Sending rate in Mbit/s on the wire.
    pub rate_mbit: u64,
    /// VLAN ID of all its frames.
    pub vlan: Option<u16>,
    /// Tags of all its frames, outermost first, such as `"88a8:100"`: TPID and VLAN ID.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Its frames go through the tunnel.
    #[serde(default)]
    pub tunnelled: bool,
    /// Resend single packets.
    #[serde(default)]
    pub selective_repeat: bool,
    /// Packets after which its UDP source port changes.
    pub udp_source_lasts: Option<u32>,
    /// The name of the reason that a gateway gives, if this flow is not meant to be protected.
    pub unprotected: Option<String>,
}

/// What has to hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    /// Protection is claimed: all rules about it apply, and the run is compared with passthrough.
    pub protection: bool,
    /// Least share of lost source packets that reach the far host all the same.
    pub restored_share: f64,
    /// Most transport retransmissions, as a share of those in passthrough.
    pub resent_share: f64,
    /// Why `resent_share` cannot be compared in this scenario; it is then not.
    pub resent_not_compared: Option<String>,
    /// Milliseconds after the first frame that a restarted gateway forwards until every flow is protected again.
    pub protected_again_ms: u64,
    /// With `gateways = "none"`: how far goodput may be from the go-back-N formula, as a share of it.
    pub formula_within: Option<f64>,
    /// CE marks of the WAN reach the far host and the sender hears of them.
    pub marks_arrive: bool,
    /// What becomes of PATH_REPORTs.
    pub path_reports: Option<PathReports>,
    /// Packets that were not restored leave at the far host in the order in which they were sent, and no
    /// more restored ones are behind later packets than the gateways say.
    pub in_order: bool,
    /// Milliseconds in which a gateway with a stuck worker ends by itself.
    pub stuck_ends_ms: u64,
    /// Of the workers of each gateway, how many restore or code at least.
    pub workers_used: u64,
    /// Bounds of counters, in every run in which the gateways protect.
    pub counters: Vec<Bound>,
    /// No TCP port of the near gateway's in-band address may accept a connection from host A.
    pub inband_tcp_closed: bool,
}

impl Default for Expect {
    fn default() -> Self {
        Self {
            protection: false,
            restored_share: 0.9,
            resent_share: 0.2,
            resent_not_compared: None,
            protected_again_ms: 3_000,
            formula_within: None,
            marks_arrive: false,
            path_reports: None,
            in_order: false,
            stuck_ends_ms: 500,
            workers_used: 0,
            counters: Vec::new(),
            inband_tcp_closed: false,
        }
    }
}

fn default_mtu() -> u16 {
    4_400
}
fn default_workers() -> u16 {
    1
}
fn default_count() -> u32 {
    1
}
fn default_limit() -> u64 {
    90
}
fn default_rdma_mtu() -> u16 {
    1_024
}
fn default_message() -> u32 {
    65_536
}
fn default_seconds() -> f64 {
    4.0
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// The file cannot be read, is no scenario, or contradicts itself.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Self::parse(&text).map_err(|e| format!("{}: {e}", path.display()).into())
    }

    /// Reads a scenario from text.
    ///
    /// # Errors
    /// It is no scenario or contradicts itself.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let scenario: Self = toml::from_str(text)?;
        let problems = sense::problems(&scenario);
        if problems.is_empty() {
            Ok(scenario)
        } else {
            Err(problems.join("; ").into())
        }
    }

    /// The runs to make.
    pub fn modes(&self) -> Vec<Mode> {
        if !self.runs.is_empty() {
            return self.runs.clone();
        }
        match self.gateways {
            Gateways::None => vec![Mode::Bare],
            _ if !self.expect.protection => vec![Mode::Passthrough],
            _ if self.expect.resent_not_compared.is_some() => vec![Mode::Active],
            Gateways::Pair | Gateways::Hub => vec![Mode::Passthrough, Mode::Active],
        }
    }

    /// The hosts, each behind a gateway of its own where there are gateways.
    pub fn hosts(&self) -> &'static [Host] {
        match self.gateways {
            Gateways::Pair | Gateways::None => &[Host::A, Host::B],
            Gateways::Hub => &[Host::A, Host::B, Host::C],
        }
    }

    /// Whether a process that forwards is ended while flows run.
    pub fn breaks_the_wire(&self) -> bool {
        self.event.iter().any(|e| e.process == Part::Dataplane)
    }

    /// Whether gateways have a control process.
    pub fn has_control(&self) -> bool {
        self.event.iter().any(|e| e.process == Part::Control)
    }

    /// Number of the first queue pair of a flow among those of all flows.
    pub fn first_queue_pair(&self, flow: usize) -> u32 {
        self.flow.iter().take(flow).map(|flow| flow.count).sum()
    }

    /// Round-trip time of the WAN in microseconds, without queues.
    pub fn rtt_us(&self) -> u64 {
        self.wan.a_to_b.delay_us + self.wan.b_to_a.delay_us
    }
}

impl Family {
    /// Address of a host.
    pub fn host(self, host: Host) -> IpAddr {
        let side = host.number();
        match self {
            Self::Ipv4 => [10, 77, side, 1].into(),
            Self::Ipv6 => [0xfd77, 0, 0, u16::from(side), 0, 0, 0, 1].into(),
        }
    }

    /// Prefix of the hosts of a side.
    pub fn prefix(self, host: Host) -> String {
        let side = host.number();
        match self {
            Self::Ipv4 => format!("10.77.{side}.0/24"),
            Self::Ipv6 => format!("fd77:0:0:{side}::/64"),
        }
    }

    /// Prefix length of the link that all share.
    pub fn link_bits(self) -> u8 {
        match self {
            Self::Ipv4 => 16,
            Self::Ipv6 => 32,
        }
    }
}

/// In-band address of a gateway.
pub(crate) fn inband(host: Host) -> IpAddr {
    [10, 77, 0, host.number()].into()
}

/// In-band address of a gateway on a link of its own with a router, and that of the router there.
pub(crate) fn routed(host: Host) -> [IpAddr; 2] {
    [host.number(), 254].map(|last| [10, 78, host.number(), last].into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MINIMAL: &str = r#"
        name = "x"
        about = "y"
        [wan.a_to_b]
        loss = { uniform = 0.02 }
        [[flow]]
        rate_mbit = 10
        messages = 3
    "#;

    #[test]
    fn protection_needs_loss() {
        let good = format!("{MINIMAL}\n[expect]\nprotection = true\n");
        assert!(Scenario::parse(&good).unwrap().expect.protection);
        let error = Scenario::parse(&good.replace("0.02", "0.005")).unwrap_err();
        assert!(error.to_string().contains("0.01"), "{error}");
        let read = good.replace("messages = 3", "messages = 3\noperation = \"read\"");
        assert!(
            Scenario::parse(&read).is_err(),
            "READ data flows the other way"
        );
    }

    #[test]
    fn runs_follow_from_what_is_expected() {
        let parse = |more: &str| Scenario::parse(&format!("{more}\n{MINIMAL}"));
        assert_eq!(parse("").unwrap().modes(), [Mode::Passthrough]);
        assert_eq!(parse("gateways = \"none\"").unwrap().modes(), [Mode::Bare]);
        assert_eq!(
            parse("runs = [\"protected\"]").unwrap().modes(),
            [Mode::Active]
        );
        assert!(parse("runs = [\"bare\"]").is_err());
        let claims = format!("{MINIMAL}\n[expect]\nprotection = true\n");
        let modes = Scenario::parse(&claims).unwrap().modes();
        assert_eq!(modes, [Mode::Passthrough, Mode::Active]);
    }

    #[test]
    fn unknown_keys_are_errors() {
        assert!(Scenario::parse(&MINIMAL.replace("messages", "mesages")).is_err());
        assert!(Scenario::parse(MINIMAL).is_ok());
    }
}
