//! From a segment of the config document to the configuration of the protocol core.

use std::net::SocketAddr;
use std::time::Duration;

use crem_api::{Hold, Limits, Mode, RestoredEcn, Segment};
use crem_core::config::{self, CoreConfig, PeerTable, PeerTarget, Prefix};
use crem_core::plan::{Family, max_symbol_length, symbol_length};
use crem_core::policy::{Targets, Thresholds};
use crem_wire::crem::registry::Scheme;

use crate::protect::AHEAD;
use crate::team::Place;

/// Octets of a frame, for turning bounds in frames into bounds in octets, which then never bind first.
const FRAME_OCTETS: u64 = 16_384;

/// The core's configuration for one worker of a segment. Bounds are the segment's: each worker has its
/// share.
pub fn core_config(segment: &Segment, place: &Place) -> CoreConfig {
    let mut core = CoreConfig::new(segment.crem_port);
    core.mode = match segment.mode {
        Mode::Active => config::Mode::Active,
        Mode::Monitor => config::Mode::Monitor,
        Mode::Passthrough | Mode::Block | Mode::Bypass => config::Mode::Passthrough,
    };
    core.own = segment.inband.iter().map(|i| i.address.address()).collect();
    core.peers = peers(segment);
    core.allowed_peers = segment.allowed_peers.keys().map(prefix).collect();
    core.reporters = segment.reporters.keys().map(prefix).collect();
    core.path_mtu = segment.path_mtu;
    core.domain_rtt = segment.policy.domain_rtt_ns.map(Duration::from_nanos);
    core.verify_sources = segment.policy.verify_sources;
    core.responses = segment.policy.responses;
    fec(segment, &mut core);
    core.shard = place.shard();
    csf(segment, place, &mut core);
    crf(segment, place, &mut core);
    core
}

fn prefix(prefix: &crem_api::Prefix) -> Prefix {
    Prefix {
        address: prefix.address(),
        length: prefix.length(),
    }
}

fn peers(segment: &Segment) -> PeerTable {
    let target = |address| PeerTarget {
        address: Some(SocketAddr::new(address, segment.crem_port)),
        path_mtu: segment.path_mtu,
        tunnel_overhead: 0,
    };
    PeerTable::new(
        segment
            .peers
            .iter()
            .map(|(p, peer)| (prefix(p), target(peer.address)))
            .collect(),
    )
}

/// The largest symbol that a segment has to do with: of the largest RDMA MTU with XRC headers, as far as
/// the path lets it through.
pub fn max_t(segment: &Segment) -> u16 {
    let ipv6 = segment
        .inband
        .as_ref()
        .is_some_and(|i| i.address.address().is_ipv6());
    let family = if ipv6 { Family::V6 } else { Family::V4 };
    max_symbol_length(segment.path_mtu, family, segment.policy.k, 0).min(symbol_length(4096, true))
}

fn fec(segment: &Segment, core: &mut CoreConfig) {
    let policy = &segment.policy;
    let copy = if policy.source_copy {
        Scheme::SourceCopy.bit()
    } else {
        0
    };
    core.fec.schemes = Scheme::CauchyRs.bit() | Scheme::Xor.bit() | copy;
    core.fec.k = policy.k;
    core.fec.max_k = policy.k_max;
    core.fec.adapt_k = policy.adapt_k;
    core.fec.m_min = policy.m_min;
    core.fec.m_max = policy.m_max;
    core.fec.m_cong = policy.m_cong;
    core.fec.initial_loss_ppm = ppm(policy.initial_loss);
    core.fec.targets = Targets {
        epsilon: policy.epsilon,
        fec: policy.target_fec,
        last: policy.target_final,
        rounds: core.crf.rounds,
    };
    core.fec.repair_share_permille = permille(policy.repair_share_max);
    core.fec.strict_repair_loss = policy.strict_repair_loss;
    core.fec.thresholds = Thresholds {
        ce_permille: permille(policy.congestion_ce),
        queue_delay_us: policy.congestion_delay_us,
    };
    core.fec.rdma_mtu = segment.rdma_mtu;
    core.fec.max_t = max_t(segment);
}

fn csf(segment: &Segment, place: &Place, core: &mut CoreConfig) {
    core.csf.ahead = AHEAD;
    let limits = &segment.limits;
    core.csf.max_flows = place.share_of_flows(limits.flows);
    core.csf.start_after = segment.policy.start_after_packets;
    core.csf.hello_rate = place.share(limits.hello_per_s);
    core.csf.hello_outstanding = place.share(limits.hello_outstanding);
    core.csf.report_budget = place.share(limits.report_budget);
    core.csf.idle = Duration::from_millis(u64::from(limits.flow_idle_ms));
    core.csf.learn = segment.policy.learn;
    core.csf.probe_mtu = segment.policy.probe_mtu;
    let retained = place.share(limits.retained_frames);
    core.csf.retain_packets = retained;
    core.csf.retain_packets_per_flow = retained;
    core.csf.retain_octets = u64::from(retained) * FRAME_OCTETS;
}

fn crf(segment: &Segment, place: &Place, core: &mut CoreConfig) {
    let limits = &segment.limits;
    core.crf.max_flows = place.share_of_flows(limits.flows);
    core.crf.max_open_blocks = limits.open_blocks;
    core.crf.hold = match segment.policy.hold_ns {
        Hold::Auto => config::Hold::Auto,
        Hold::Fixed(0) => config::Hold::Off,
        Hold::Fixed(ns) => config::Hold::Fixed(Duration::from_nanos(ns)),
    };
    core.crf.report_budget = place.share(limits.report_budget);
    core.crf.idle = Duration::from_millis(u64::from(limits.flow_idle_ms));
    let (held, waiting) = (
        place.share(limits.held_frames),
        place.share(hold_frames(limits)),
    );
    core.crf.keep_packets = held;
    core.crf.keep_octets = u64::from(held) * FRAME_OCTETS;
    core.crf.hold_packets = waiting;
    core.crf.hold_octets = u64::from(waiting) * FRAME_OCTETS;
    core.crf.fallback = segment.policy.source_copy;
    core.crf.replay = segment.policy.replay;
    core.crf.restored_ecn = match segment.policy.restored_ecn {
        RestoredEcn::NotEct => 0,
        RestoredEcn::Ect0 => 2,
    };
}

/// Frames that may wait behind gaps at once.
pub(crate) fn hold_frames(limits: &Limits) -> u32 {
    limits.held_frames / 2
}

fn permille(share: f64) -> u32 {
    // Shares of the document lie between 0 and 1.
    (share * 1e3).round() as u32
}

fn ppm(rate: f64) -> u32 {
    // Rates of the document lie between 0 and 0.5.
    (rate * 1e6).round() as u32
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crem_api::{Syntax, parse};

    const DOCUMENT: &str = r#"
        version = 1
        [segments.a]
        mode = "active"
        crem_port = 4801
        path_mtu = 4214
        lan = { interface = "lan0" }
        wan = { interface = "wan0" }
        served = { "10.0.1.0/24" = {} }
        peers = { "10.0.2.0/24" = { address = "192.0.2.2" } }
        allowed_peers = { "192.0.2.128/25" = {} }
        reporters = { "198.51.100.0/28" = {}, "2001:db8::7/128" = {} }
        inband = { address = "192.0.2.1/24" }
        policy = { k = 16, k_max = 64, adapt_k = false, m_min = 1, m_max = 4, epsilon = 1e-5, target_final = 1e-8, repair_share_max = 0.05, congestion_ce = 0.02, congestion_delay_us = 50, initial_loss = 0.01, hold_ns = 0, replay = false, responses = true, learn = true }
        limits = { retained_frames = 77, held_frames = 33, flow_idle_ms = 5000 }
    "#;

    // shows: CREM-PORT-02, CREM-FEC-02
    #[test]
    fn what_the_document_says_reaches_the_core() {
        let document = parse(DOCUMENT, Syntax::Toml).unwrap();
        let core = core_config(document.segments.values().next().unwrap(), &Place::ALONE);
        assert_eq!(core.crem_port, 4801);
        assert_eq!(core.own, ["192.0.2.1".parse::<std::net::IpAddr>().unwrap()]);
        let target = core.peer_for("10.0.2.9".parse().unwrap()).unwrap();
        assert_eq!(target.address, Some("192.0.2.2:4801".parse().unwrap()));
        assert!(core.allows("192.0.2.2".parse().unwrap()));
        assert!(core.allows("192.0.2.200".parse().unwrap()));
        assert!(!core.allows("192.0.2.3".parse().unwrap()));
        assert!(core.is_reporter("198.51.100.15".parse().unwrap()));
        assert!(core.is_reporter("2001:db8::7".parse().unwrap()));
        assert!(!core.is_reporter("198.51.100.16".parse().unwrap()));
        assert!(!core.is_reporter("192.0.2.2".parse().unwrap()));
        let fec = core.fec;
        assert_eq!(
            (fec.k, fec.m_min, fec.m_max, fec.schemes),
            (16, 1, 4, 0b111)
        );
        assert_eq!(
            fec.targets,
            Targets {
                epsilon: 1e-5,
                fec: None,
                last: Some(1e-8),
                rounds: 2
            }
        );
        assert_eq!(
            (fec.initial_loss_ppm, fec.repair_share_permille),
            (10_000, 50)
        );
        assert_eq!((fec.max_k, fec.adapt_k), (64, false));
        let Thresholds {
            ce_permille,
            queue_delay_us,
        } = fec.thresholds;
        assert_eq!((ce_permille, queue_delay_us), (20, 50));
        assert_eq!((core.csf.retain_packets, core.crf.keep_packets), (77, 33));
        assert_eq!(core.crf.hold, config::Hold::Off);
        assert!(!core.crf.replay && core.responses && core.csf.learn);
        let without = DOCUMENT.replace("k = 16", "source_copy = false, k = 16");
        let document = parse(&without, Syntax::Toml).unwrap();
        let core = core_config(document.segments.values().next().unwrap(), &Place::ALONE);
        assert_eq!(core.fec.schemes, 0b110, "scheme 1 is never left out");
        assert_eq!(core.crf.idle, Duration::from_secs(5));
    }

    #[test]
    fn a_worker_has_its_share_of_the_bounds() {
        let document = parse(DOCUMENT, Syntax::Toml).unwrap();
        let place = Place {
            index: 1,
            count: 3,
            seed: 0,
        };
        let core = core_config(document.segments.values().next().unwrap(), &place);
        assert_eq!((core.shard.index, core.shard.count), (1, 3));
        assert_eq!((core.csf.retain_packets, core.crf.keep_packets), (26, 11));
        assert_eq!((core.csf.hello_rate, core.crf.hold_packets), (667, 6));
    }

    #[test]
    fn the_largest_symbol_is_what_the_path_lets_through() {
        let segment = |text: &str| {
            parse(text, Syntax::Toml)
                .unwrap()
                .segments
                .into_values()
                .next()
                .unwrap()
        };
        // 4214 carries 4134 at k 128; at k 16 there are 24 octets of bitmaps less.
        assert_eq!(max_t(&segment(DOCUMENT)), 4138);
        assert_eq!(
            max_t(&segment(&DOCUMENT.replace("k = 16, k_max = 64", "k = 128"))),
            4134
        );
    }
}
