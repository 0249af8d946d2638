//! Every knob of both protocol functions, with defaults and units. The core takes a finished
//! [`CoreConfig`]; reading documents and checking what a person wrote happens in the control crates.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use crate::csf::Ahead;
use crate::policy::{Bounds, Targets, Thresholds};
use crate::time::Duration;

/// Whether the protocol functions act at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Protect flows.
    Active,
    /// Observe flows and send nothing; [`Monitor`](crate::monitor::Monitor) says what arrives of them.
    Monitor,
    /// Observe nothing, send nothing; every packet passes as over a wire.
    Passthrough,
}

/// How long the CRF may hold packets behind a gap (AMB-HOLD).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// min(minRTT/4, max(k/rate, burst timeout) + A).
    Auto,
    /// The operator's value, four minimum round trips at most.
    Fixed(Duration),
    /// Never hold.
    Off,
}

/// An address prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Prefix {
    /// Network address.
    pub address: IpAddr,
    /// Prefix length in bits; more than the family has counts as the whole address.
    pub length: u8,
}

impl Prefix {
    /// The prefix that holds exactly this address.
    pub const fn host(address: IpAddr) -> Self {
        Self {
            address,
            length: 128,
        }
    }

    /// Whether `address` is of the same family and inside.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let host_bits = 32 - u32::from(self.length.min(32));
                u64::from(net.to_bits()) >> host_bits == u64::from(ip.to_bits()) >> host_bits
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let host_bits = 128 - u32::from(self.length.min(128));
                let differing = net.to_bits() ^ ip.to_bits();
                host_bits == 128 || differing >> host_bits == 0
            }
            _ => false,
        }
    }
}

/// Where the messages for flows toward a prefix go, and what fits on the way there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerTarget {
    /// The CRF's address and port; `None` leaves HELLO to interception on the way to the flow's
    /// destination (AMB-HELLOADDR).
    pub address: Option<SocketAddr>,
    /// IP MTU of the path to the peer, octets.
    pub path_mtu: u16,
    /// Octets that tunnels on the way add around CREM's own IP packet.
    pub tunnel_overhead: u16,
}

/// Peers by destination prefix; the longest match wins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PeerTable(Vec<(Prefix, PeerTarget)>);

impl PeerTable {
    /// A table of these entries, in any order.
    pub fn new(mut entries: Vec<(Prefix, PeerTarget)>) -> Self {
        entries.sort_by_key(|(prefix, _)| core::cmp::Reverse(prefix.length));
        Self(entries)
    }

    /// The entry with the longest prefix that holds `destination`. Linear in the number of entries;
    /// asked once per flow, not per packet.
    pub fn get(&self, destination: IpAddr) -> Option<PeerTarget> {
        self.0
            .iter()
            .find(|(prefix, _)| prefix.contains(destination))
            .map(|(_, target)| *target)
    }

    /// All entries, longest prefix first.
    pub fn iter(&self) -> impl Iterator<Item = &(Prefix, PeerTarget)> {
        self.0.iter()
    }
}

/// Coding limits and the targets of the redundancy policy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FecConfig {
    /// Schemes that we support: bit s is scheme s.
    pub schemes: u16,
    /// Block length k that is preferred, positions.
    pub k: u8,
    /// Largest k that we accept or choose (AMB-KM), positions.
    pub max_k: u8,
    /// Whether k follows the bursts of the flow, what fits into the hold, and the loss (AMB-POLICY).
    pub adapt_k: bool,
    /// Smallest m that the policy chooses, symbols a block.
    pub m_min: u8,
    /// Largest m that the policy chooses and that HELLO announces, symbols a block.
    pub m_max: u8,
    /// m is not raised beyond this on congestion-related loss, symbols a block.
    pub m_cong: u8,
    /// Loss estimate before the first report, packets per million.
    pub initial_loss_ppm: u32,
    /// What m is chosen for.
    pub targets: Targets,
    /// Ordinary symbols of a block are at most this share of its positions, in thousandths.
    pub repair_share_permille: u32,
    /// Reduce m for every loss of REPAIR messages, as the document literally says (AMB-REPLOSSMUST).
    pub strict_repair_loss: bool,
    /// Ordinary repair octets per second stay below m/k of the source octets times this, in
    /// thousandths (AMB-RATECAP).
    pub octet_cap_permille: u32,
    /// When recent losses count as congestion (AMB-CLASSIFY).
    pub thresholds: Thresholds,
    /// RDMA MTU announced before one was seen in the flow, octets.
    pub rdma_mtu: u16,
    /// Largest symbol length T that we announce, octets.
    pub max_t: u16,
}

/// Which of several workers a pair of functions is for. Each worker has its own flows; what names them
/// in messages tells whose they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// Number of the worker, below `count`.
    pub index: u16,
    /// Workers, 1 and up.
    pub count: u16,
}

impl Shard {
    /// The only worker.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// The nearest number at or below `drawn` that tells the worker: its remainder by `count` is `index`.
    pub fn stamp(self, drawn: u64) -> u64 {
        let count = u64::from(self.count.max(1));
        let floor = drawn - drawn % count;
        // Only in the last, incomplete run of `count` numbers there is none above the floor.
        floor
            .checked_add(u64::from(self.index))
            .unwrap_or(u64::from(self.index))
    }
}

impl FecConfig {
    /// What m of a block of k may be: the operator's bounds, the peer's limit, the largest share of repair.
    pub(crate) fn bounds(&self, k: u8, peer_max: u8) -> Bounds {
        let share = u32::from(k) * self.repair_share_permille / 1000;
        let share = u8::try_from(share).unwrap_or(u8::MAX);
        Bounds {
            min: self.m_min,
            max: self.m_max.min(peer_max).min(share.max(self.m_min)),
        }
    }
}

/// Knobs of the sender function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CsfConfig {
    /// Streams that are tracked at most.
    pub max_flows: u32,
    /// Peers (HELLO destinations) that are tracked at most.
    pub max_peers: u32,
    /// New source packets that a flow shows before HELLO is sent.
    pub start_after: u32,
    /// First HELLOs per second over all flows.
    pub hello_rate: u32,
    /// HELLOs that may wait for an answer at once.
    pub hello_outstanding: u32,
    /// LOSS_REPORTs per second that admitted flows may cause: the sum of 1/SRTT over all of them, the
    /// busiest flows first (AMB-SCALE).
    pub report_budget: u32,
    /// Coding of packets before their block is complete.
    pub ahead: Ahead,
    /// Without packets for this long a flow is closed with reason 1.
    pub idle: Duration,
    /// Floor of the retention of a closed block; it is kept max(8 SRTT, this) (AMB-KEEP).
    pub keep_floor: Duration,
    /// Octets of source packets retained at most, over all flows.
    pub retain_octets: u64,
    /// Source packets retained at most, over all flows and including open blocks.
    pub retain_packets: u32,
    /// Source packets retained at most for one flow.
    pub retain_packets_per_flow: u32,
    /// Floor of the volume cap: coded symbols and copies per flow and second (AMB-VOLCAP).
    pub volume_floor: u32,
    /// Unsolicited INFO at a burst end without symbols (AMB-TAILINFO).
    pub tail_info: bool,
    /// Find out whether messages as long as REPAIR reach the peer, with a symbol where policy sends none, and
    /// give up flows for which they do not.
    pub probe_mtu: bool,
    /// Floor of the silence rule: no LOSS_REPORT for max(4 SRTT, this) ends redundancy (AMB-LRSEQ).
    pub silence_floor: Duration,
    /// A silent binding is closed after this.
    pub silence_close: Duration,
    /// First wait before another HELLO after a flow was refused or closed, and before another change of
    /// parameters after the peer refused one; doubles up to `retry_max`.
    pub retry_first: Duration,
    /// Longest wait before another HELLO or change.
    pub retry_max: Duration,
    /// Learn RDMA MTU, beginning and end of connections from messages of the connection manager, and let
    /// go of what the host has acknowledged (AMB-ACKMAP).
    pub learn: bool,
    /// First wait after the circuit breaker ended a binding; doubles (AMB-CBRETRY).
    pub breaker_retry: Duration,
}

/// Knobs of the receiver function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CrfConfig {
    /// Bound flows at most.
    pub max_flows: u32,
    /// Open blocks per flow, announced as Max Open Blocks.
    pub max_open_blocks: u16,
    /// Hold time.
    pub hold: Hold,
    /// Source packets held back at most, over all flows.
    pub hold_packets: u32,
    /// Octets held back at most, over all flows.
    pub hold_octets: u64,
    /// Source packets and symbols kept for decoding at most, over all flows. With it go the blocks that
    /// are open at once, an eighth of it over all flows, and the memory for what is noted of recent PSNs:
    /// 16 PSNs for every four of these packets, and 64 for every flow.
    pub keep_packets: u32,
    /// Octets kept for decoding at most, over all flows.
    pub keep_octets: u64,
    /// Coded rounds before the fallback.
    pub rounds: u8,
    /// Ask for Source Copies after the last round where scheme 0 is common.
    pub fallback: bool,
    /// Without message or packet for this long a binding is dropped.
    pub idle: Duration,
    /// LOSS_REPORTs per second over all flows (AMB-SCALE).
    pub report_budget: u32,
    /// Fill holes in runs that the transport sends again with the copies that were delivered before;
    /// needs a comparison of packets from the caller (`Crf::compare_with`).
    pub replay: bool,
    /// ECN field of restored packets: 0 Not-ECT, 2 ECT(0) (AMB-RESTECN).
    pub restored_ecn: u8,
}

/// Everything the core has to be told.
#[derive(Clone, PartialEq, Debug)]
pub struct CoreConfig {
    /// Whether to act at all.
    pub mode: Mode,
    /// CREM port of the domain. It has no default: the draft forbids one.
    pub crem_port: u16,
    /// Our own CREM addresses, one per family at most.
    pub own: Vec<IpAddr>,
    /// Configured peers by destination prefix.
    pub peers: PeerTable,
    /// Peers that we deal with besides the configured ones: interception works only inside these.
    pub allowed_peers: Vec<Prefix>,
    /// Path Reporters of the domain: PATH_REPORT is taken from these addresses only.
    pub reporters: Vec<Prefix>,
    /// IP MTU of the path where no peer entry states one, octets.
    pub path_mtu: u16,
    /// Round-trip time assumed before a sample exists; `None` if the domain states none.
    pub domain_rtt: Option<Duration>,
    /// Protect READ and atomic responses as streams of their own (AMB-READRESP).
    pub responses: bool,
    /// Check the ICRC of sources: the caller hands no `Desc` for a bad one, decode jobs check the
    /// known sources (AMB-BADSRC).
    pub verify_sources: bool,
    /// DSCP of messages other than REPAIR; `None` uses the flow's (AMB-CTRLDSCP).
    pub control_dscp: Option<u8>,
    /// Events kept for `poll_event` at most; the oldest is dropped and counted.
    pub max_events: u32,
    /// Messages kept for `poll_transmit` at most; further ones are dropped and counted.
    pub max_transmits: u32,
    /// Coding and policy.
    pub fec: FecConfig,
    /// The worker that it is for.
    pub shard: Shard,
    /// Sender function.
    pub csf: CsfConfig,
    /// Receiver function.
    pub crf: CrfConfig,
}

impl CoreConfig {
    /// The defaults, active, on this CREM port.
    pub fn new(crem_port: u16) -> Self {
        Self {
            mode: Mode::Active,
            crem_port,
            own: Vec::new(),
            peers: PeerTable::default(),
            allowed_peers: Vec::new(),
            reporters: Vec::new(),
            path_mtu: 1500,
            domain_rtt: None,
            responses: false,
            verify_sources: false,
            control_dscp: None,
            max_events: 1024,
            max_transmits: 4096,
            fec: FecConfig::default(),
            shard: Shard::WHOLE,
            csf: CsfConfig::default(),
            crf: CrfConfig::default(),
        }
    }

    /// The peer for flows toward `destination`, if one is configured.
    pub fn peer_for(&self, destination: IpAddr) -> Option<PeerTarget> {
        self.peers.get(destination)
    }

    /// Whether PATH_REPORT is taken from `address`.
    pub fn is_reporter(&self, address: IpAddr) -> bool {
        self.reporters.iter().any(|p| p.contains(address))
    }

    /// Whether `address` may act as our peer: configured as one, or inside `allowed_peers`.
    pub fn allows(&self, address: IpAddr) -> bool {
        self.allowed_peers
            .iter()
            .any(|prefix| prefix.contains(address))
            || self
                .peers
                .iter()
                .any(|(_, p)| p.address.is_some_and(|a| a.ip() == address))
    }
}

impl Default for FecConfig {
    fn default() -> Self {
        Self {
            schemes: 0b111,
            k: 32,
            max_k: 128,
            adapt_k: true,
            m_min: 0,
            m_max: 16,
            m_cong: 1,
            initial_loss_ppm: 0,
            targets: Targets::default(),
            repair_share_permille: 500,
            strict_repair_loss: false,
            octet_cap_permille: 2000,
            thresholds: Thresholds::default(),
            rdma_mtu: 1024,
            max_t: 4138,
        }
    }
}

impl Default for CsfConfig {
    fn default() -> Self {
        Self {
            max_flows: 16_384,
            max_peers: 4_096,
            start_after: 16,
            hello_rate: 2_000,
            hello_outstanding: 512,
            report_budget: 200_000,
            ahead: Ahead::OFF,
            idle: Duration::from_secs(30),
            keep_floor: Duration::from_millis(100),
            retain_octets: 256 << 20,
            retain_packets: 131_072,
            retain_packets_per_flow: 65_536,
            volume_floor: 64,
            tail_info: true,
            probe_mtu: false,
            silence_floor: Duration::from_secs(1),
            silence_close: Duration::from_secs(30),
            retry_first: Duration::from_secs(1),
            retry_max: Duration::from_secs(300),
            learn: false,
            breaker_retry: Duration::from_secs(300),
        }
    }
}

impl Default for CrfConfig {
    fn default() -> Self {
        Self {
            max_flows: 16_384,
            max_open_blocks: 1_024,
            hold: Hold::Auto,
            hold_packets: 32_768,
            hold_octets: 64 << 20,
            keep_packets: 131_072,
            keep_octets: 256 << 20,
            rounds: 2,
            fallback: true,
            idle: Duration::from_secs(60),
            report_budget: 200_000,
            replay: true,
            restored_ecn: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use alloc::vec;

    fn prefix(text: &str, length: u8) -> Prefix {
        Prefix {
            address: text.parse().unwrap(),
            length,
        }
    }

    fn target(text: &str) -> PeerTarget {
        PeerTarget {
            address: Some(text.parse().unwrap()),
            path_mtu: 1500,
            tunnel_overhead: 0,
        }
    }

    #[test]
    fn prefixes_hold_what_they_name() {
        assert!(prefix("10.1.0.0", 16).contains("10.1.255.3".parse().unwrap()));
        assert!(!prefix("10.1.0.0", 16).contains("10.2.0.1".parse().unwrap()));
        assert!(prefix("0.0.0.0", 0).contains("192.0.2.1".parse().unwrap()));
        assert!(prefix("::", 0).contains("2001:db8::1".parse().unwrap()));
        assert!(!prefix("::", 0).contains("192.0.2.1".parse().unwrap()));
        assert!(prefix("2001:db8::", 32).contains("2001:db8:1::1".parse().unwrap()));
        assert!(!prefix("2001:db8::", 32).contains("2001:db9::1".parse().unwrap()));
        let host = Prefix::host("192.0.2.7".parse().unwrap());
        assert!(host.contains("192.0.2.7".parse().unwrap()));
        assert!(!host.contains("192.0.2.6".parse().unwrap()));
    }

    #[test]
    fn what_a_worker_draws_tells_the_worker() {
        for (index, count) in [(0, 1), (2, 3), (63, 64)] {
            let shard = Shard { index, count };
            for drawn in [0, 1, 1 << 40, u64::MAX - 70, u64::MAX - 1, u64::MAX] {
                assert_eq!(shard.stamp(drawn) % u64::from(count), u64::from(index));
            }
        }
        assert_eq!(Shard::WHOLE.stamp(u64::MAX), u64::MAX);
    }

    #[test]
    fn longest_prefix_wins() {
        let mut config = CoreConfig::new(50_000);
        config.peers = PeerTable::new(vec![
            (prefix("10.0.0.0", 8), target("192.0.2.1:50000")),
            (prefix("10.1.0.0", 16), target("192.0.2.2:50000")),
        ]);
        let peer = |text: &str| {
            config
                .peer_for(text.parse().unwrap())
                .and_then(|p| p.address)
        };
        assert_eq!(peer("10.1.2.3"), Some("192.0.2.2:50000".parse().unwrap()));
        assert_eq!(peer("10.2.2.3"), Some("192.0.2.1:50000".parse().unwrap()));
        assert_eq!(peer("11.2.2.3"), None);
        assert!(config.allows("192.0.2.2".parse().unwrap()));
        assert!(!config.allows("192.0.2.3".parse().unwrap()));
    }
}
