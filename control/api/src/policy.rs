//! The redundancy policy of a segment and the bounds of its tables, with their defaults. What several
//! values must fulfil together is in `check.rs`.

use serde::{Serialize, Serializer};
use serde_json::json;

use crate::read::{Node, Table};

const SECOND_NS: u64 = 1_000_000_000;

/// How long the receiver function may hold packets behind a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// From measured rate and round-trip time (AMB-HOLD).
    Auto,
    /// At most so many nanoseconds; 0 never holds.
    Fixed(u64),
}

impl Serialize for Hold {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Hold::Auto => serializer.serialize_str("auto"),
            Hold::Fixed(ns) => serializer.serialize_u64(*ns),
        }
    }
}

/// ECN field of restored packets (AMB-RESTECN).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RestoredEcn {
    /// Not-ECT.
    NotEct,
    /// ECT(0), where the last hop would drop Not-ECT instead of marking.
    Ect0,
}

/// How much redundancy, and how it is used.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Policy {
    /// Preferred number of packets of a block, k.
    pub k: u8,
    /// Largest k that is chosen or accepted.
    pub k_max: u8,
    /// Whether k follows the bursts of a flow, what fits into the hold, and the loss.
    pub adapt_k: bool,
    /// Fewest ordinary repair symbols a block.
    pub m_min: u8,
    /// Most ordinary repair symbols a block.
    pub m_max: u8,
    /// Repair symbols a block that are not exceeded while losses look like congestion.
    pub m_cong: u8,
    /// Most ordinary repair symbols a block, as a share of its packets.
    pub repair_share_max: f64,
    /// Accepted probability that the ordinary symbols do not restore a block, where no rate is set below.
    pub epsilon: f64,
    /// Accepted loss rate of source packets after FEC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_fec: Option<f64>,
    /// Accepted loss rate of source packets after the coded rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_final: Option<f64>,
    /// Whether any loss of repair messages reduces m (AMB-REPLOSSMUST).
    pub strict_repair_loss: bool,
    /// CE-marked share of sources above which losses look like congestion.
    pub congestion_ce: f64,
    /// Growth of reported queueing delay above which losses look like congestion, microseconds.
    pub congestion_delay_us: u32,
    /// Loss rate assumed before the first report.
    pub initial_loss: f64,
    /// Longest hold.
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    pub hold_ns: Hold,
    /// Retransmission timeout of the endpoints' adapters, which a fixed hold must stay below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rnic_timeout_ns: Option<u64>,
    /// Round-trip time assumed before it is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_rtt_ns: Option<u64>,
    /// Source packets of a flow within its first second before it is offered protection (AMB-SCALE).
    pub start_after_packets: u32,
    /// Whether the ICRC of every source is checked before it is used (AMB-BADSRC).
    pub verify_sources: bool,
    /// Whether Source Copy (scheme 0) is offered.
    pub source_copy: bool,
    /// Whether holes in what a host sends again are filled with the copies delivered before.
    pub replay: bool,
    /// Whether READ and atomic responses are protected as streams of their own (AMB-READRESP).
    pub responses: bool,
    /// Whether connections are learned from the connection manager, and packets that the host has
    /// acknowledged are let go of (AMB-ACKMAP).
    pub learn: bool,
    /// Whether it is found out if messages as long as repair reach the peer (AMB-TMTU).
    pub probe_mtu: bool,
    /// ECN field of restored packets.
    pub restored_ecn: RestoredEcn,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            k: 32,
            k_max: 128,
            adapt_k: true,
            m_min: 0,
            m_max: 16,
            m_cong: 1,
            repair_share_max: 0.5,
            epsilon: 1e-4,
            target_fec: None,
            target_final: None,
            strict_repair_loss: false,
            congestion_ce: 0.01,
            congestion_delay_us: 100,
            initial_loss: 0.0,
            hold_ns: Hold::Auto,
            rnic_timeout_ns: None,
            domain_rtt_ns: None,
            start_after_packets: 16,
            verify_sources: false,
            source_copy: true,
            replay: true,
            responses: false,
            learn: false,
            probe_mtu: true,
            restored_ecn: RestoredEcn::NotEct,
        }
    }
}

/// Bounds of a segment's tables. At a bound the oldest entry is given up and counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Limits {
    /// Flows each of the sender and the receiver function keeps.
    pub flows: u32,
    /// Frames the sender function retains for retransmission.
    pub retained_frames: u32,
    /// Frames the receiver function keeps for decoding and holds behind gaps.
    pub held_frames: u32,
    /// Blocks a flow may have open at the receiver: Max Open Blocks of HELLO_ACK.
    pub open_blocks: u16,
    /// HELLO messages a second that begin an exchange.
    pub hello_per_s: u32,
    /// HELLO exchanges without an answer yet.
    pub hello_outstanding: u32,
    /// LOSS_REPORTs a second that protected flows may cause, one per round trip each (AMB-SCALE).
    pub report_budget: u32,
    /// Milliseconds without a packet after which a flow is closed.
    pub flow_idle_ms: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            flows: 10_000,
            retained_frames: 2048,
            held_frames: 1024,
            open_blocks: 1024,
            hello_per_s: 2000,
            hello_outstanding: 512,
            report_budget: 200_000,
            flow_idle_ms: 60_000,
        }
    }
}

impl Policy {
    pub(crate) fn read(mut t: Table<'_>) -> Option<Self> {
        let d = Self::default();
        let k = t.or_told("k", d.k, |n| n.integer(1..=128));
        let k_max = t.or_told("k_max", d.k_max, |n| n.integer(1..=128));
        let adapt_k = t.or_told("adapt_k", d.adapt_k, Node::flag);
        let m_min = t.or_told("m_min", d.m_min, |n| n.integer(0..=128));
        let m_max = t.or_told("m_max", d.m_max, |n| n.integer(0..=128));
        let m_cong = t.or_told("m_cong", d.m_cong, |n| n.integer(0..=128));
        let share = t.or_told("repair_share_max", d.repair_share_max, |n| {
            n.number(0.0..=1.0)
        });
        let epsilon = t.or_told("epsilon", d.epsilon, |n| n.number(1e-12..=0.5));
        let target_fec = t.optional("target_fec", |n| n.number(1e-15..=0.5));
        let target_final = t.optional("target_final", |n| n.number(1e-15..=0.5));
        let strict_repair_loss = t.or_told("strict_repair_loss", d.strict_repair_loss, Node::flag);
        let congestion_ce = t.or_told("congestion_ce", d.congestion_ce, |n| n.number(0.0..=1.0));
        let congestion_delay_us = t.or_told("congestion_delay_us", d.congestion_delay_us, |n| {
            n.integer(0..=10_000_000)
        });
        let initial_loss = t.or_told("initial_loss", d.initial_loss, |n| n.number(0.0..=0.5));
        let hold_ns = t.or_told("hold_ns", d.hold_ns, read_hold);
        let rnic_timeout_ns = t.optional("rnic_timeout_ns", |n| n.integer(1..=600 * SECOND_NS));
        let domain_rtt_ns = t.optional("domain_rtt_ns", |n| n.integer(1..=10 * SECOND_NS));
        let start = t.or_told("start_after_packets", d.start_after_packets, |n| {
            n.integer(1..=1 << 20)
        });
        let verify_sources = t.or_told("verify_sources", d.verify_sources, Node::flag);
        let source_copy = t.or_told("source_copy", d.source_copy, Node::flag);
        let replay = t.or_told("replay", d.replay, Node::flag);
        let responses = t.or_told("responses", d.responses, Node::flag);
        let learn = t.or_told("learn", d.learn, Node::flag);
        let probe_mtu = t.or_told("probe_mtu", d.probe_mtu, Node::flag);
        let ecn = [
            ("not_ect", RestoredEcn::NotEct),
            ("ect0", RestoredEcn::Ect0),
        ];
        let restored_ecn = t.or_told("restored_ecn", d.restored_ecn, |n| n.choice(&ecn));
        t.finish();
        Some(Self {
            k: k?,
            k_max: k_max?,
            adapt_k: adapt_k?,
            m_min: m_min?,
            m_max: m_max?,
            m_cong: m_cong?,
            repair_share_max: share?,
            epsilon: epsilon?,
            target_fec: target_fec?,
            target_final: target_final?,
            strict_repair_loss: strict_repair_loss?,
            congestion_ce: congestion_ce?,
            congestion_delay_us: congestion_delay_us?,
            initial_loss: initial_loss?,
            hold_ns: hold_ns?,
            rnic_timeout_ns: rnic_timeout_ns?,
            domain_rtt_ns: domain_rtt_ns?,
            start_after_packets: start?,
            verify_sources: verify_sources?,
            source_copy: source_copy?,
            replay: replay?,
            responses: responses?,
            learn: learn?,
            probe_mtu: probe_mtu?,
            restored_ecn: restored_ecn?,
        })
    }
}

fn read_hold(node: &Node<'_>) -> Option<Hold> {
    if node.is_word("auto") {
        return Some(Hold::Auto);
    }
    node.describe(|| json!({"maximum": SECOND_NS}));
    node.unsigned()
        .filter(|ns| *ns <= SECOND_NS)
        .map(Hold::Fixed)
        .or_else(|| node.fail(format!("\"auto\" or an integer 0 to {SECOND_NS}")))
}

impl Limits {
    pub(crate) fn read(mut t: Table<'_>) -> Option<Self> {
        let d = Self::default();
        let flows = t.or_told("flows", d.flows, |n| n.integer(1..=1 << 20));
        let retained = t.or_told("retained_frames", d.retained_frames, |n| {
            n.integer(0..=1 << 24)
        });
        let held = t.or_told("held_frames", d.held_frames, |n| n.integer(0..=1 << 24));
        let open_blocks = t.or_told("open_blocks", d.open_blocks, |n| n.integer(1..=u16::MAX));
        let hello_per_s = t.or_told("hello_per_s", d.hello_per_s, |n| n.integer(1..=1_000_000));
        let outstanding = t.or_told("hello_outstanding", d.hello_outstanding, |n| {
            n.integer(1..=1 << 20)
        });
        let reports = t.or_told("report_budget", d.report_budget, |n| {
            n.integer(1..=100_000_000)
        });
        let idle = t.or_told("flow_idle_ms", d.flow_idle_ms, |n| {
            n.integer(1000..=86_400_000)
        });
        t.finish();
        Some(Self {
            flows: flows?,
            retained_frames: retained?,
            held_frames: held?,
            open_blocks: open_blocks?,
            hello_per_s: hello_per_s?,
            hello_outstanding: outstanding?,
            report_budget: reports?,
            flow_idle_ms: idle?,
        })
    }
}
