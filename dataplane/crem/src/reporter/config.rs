//! What a Path Reporter has to be told, with the defaults.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::config::Prefix;
use crate::time::Duration;

/// Smallest path MTU: with it sixteen entries fit in any case.
const MIN_PATH_MTU: u16 = 576;

/// Where the reports for flows from a prefix go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourcePrefix {
    /// Flows from here are reported.
    pub prefix: Prefix,
    /// The CSF that serves the prefix; `None` sends to the flow's own source address, on the way to which
    /// a gateway takes it.
    pub csf: Option<IpAddr>,
}

/// Knobs of a Path Reporter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReporterConfig {
    /// Node ID, unique in the domain (AMB-NODEID).
    pub node: u32,
    /// CREM port of the domain.
    pub crem_port: u16,
    /// IP MTU of the paths back to the sources, octets; less than 576 counts as 576.
    pub path_mtu: u16,
    /// Ports of the node, each with a rate limit of its own; at least one.
    pub ports: u16,
    /// Sources inside the domain; the longest prefix wins. Flows from elsewhere are not reported, so that
    /// reports stay in the domain (CREM, Security Considerations).
    pub sources: Vec<SourcePrefix>,
    /// Reporters further along the path whose reports may be merged with ours as they pass; none merges
    /// nothing. For reverse paths of scarce capacity.
    pub merge_from: Vec<Prefix>,
    /// Aggregation interval: a report leaves this long after the first thing that it tells.
    pub interval: Duration,
    /// Reports a second at most for one flow (AMB-PRRATE).
    pub reports_per_flow: u32,
    /// Reports a second at most for the flows of one port (AMB-PRRATE).
    pub reports_per_port: u32,
    /// A queueing delay that changed by less since the last report is no reason for one; it is told with
    /// the next.
    pub delay_step: Duration,
    /// Flows that are kept track of at most.
    pub max_flows: u32,
    /// Reports kept for `poll_transmit` at most; further ones are dropped and counted.
    pub max_transmits: u32,
}

impl ReporterConfig {
    /// The defaults for a node with one port and no sources yet.
    pub fn new(node: u32, crem_port: u16) -> Self {
        Self {
            node,
            crem_port,
            path_mtu: 1500,
            ports: 1,
            sources: Vec::new(),
            merge_from: Vec::new(),
            interval: Duration::from_micros(50),
            reports_per_flow: 100,
            reports_per_port: 1_000,
            delay_step: Duration::from_micros(100),
            max_flows: 1_024,
            max_transmits: 1_024,
        }
    }

    /// Where reports on flows from `source` go; `None` outside the domain.
    pub(super) fn destination(&self, source: IpAddr) -> Option<IpAddr> {
        let inside = self.sources.iter().filter(|s| s.prefix.contains(source));
        let closest = inside.max_by_key(|s| s.prefix.length)?;
        Some(closest.csf.unwrap_or(source))
    }

    /// Whether reports from this node may be merged with ours.
    pub(super) fn may_merge(&self, from: IpAddr) -> bool {
        self.merge_from.iter().any(|prefix| prefix.contains(from))
    }

    /// The path MTU in force, octets.
    pub(super) fn mtu(&self) -> usize {
        usize::from(self.path_mtu.max(MIN_PATH_MTU))
    }
}
