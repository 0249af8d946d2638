//! A scenario from a seed: everything that the world varies is drawn here.

use std::net::IpAddr;

use crem_core::config::{CoreConfig, Hold, PeerTable, PeerTarget, Prefix};

use super::{Connection, Forger, Peer, Scenario, Step};
use crate::endpoint::rc::{Recovery, RequesterConfig};
use crate::endpoint::rc_end::Workload;
use crate::frame::Mode;
use crate::gateway;
use crate::net::loss::Loss;
use crate::net::path::PathConfig;
use crate::net::queue::{CrossConfig, Marking, QueueConfig};
use crate::rng::{Rng, mix};
use crate::{Duration, Instant};

/// RDMA MTUs of InfiniBand.
const MTUS: [u16; 5] = [256, 512, 1024, 2048, 4096];
/// Octets around RDMA payload on the wire.
const AROUND: f64 = 100.0;
/// Octets of IP packets on the WAN.
const PATH_MTU: u16 = 4400;
/// Connections that are opened by the connection manager.
const MANAGED: usize = 100;
/// First PSN near the end of the space, so that it wraps.
const NEAR_WRAP: u64 = (1 << 24) - 2_000;

/// The frame of a draw: what the parts have to agree on.
struct Frame {
    rtt: Duration,
    mtu: u16,
    flows: u64,
    packets: u64,
    /// Packets a second over all flows.
    rate: f64,
    /// Share of READs. A requester that asks again in the middle of a READ takes a response of the first
    /// time for a wrong one if the network reorders: with READs, it does not.
    reads: f64,
}

/// The scenario that `seed` determines.
pub fn draw(seed: u64, mode: Mode) -> Scenario {
    let mut rng = Rng::new(mix(seed));
    let frame = frame(&mut rng);
    let hosts = [rng.between(2, 4) as u8, rng.between(2, 4) as u8];
    let poll = Duration::from_nanos(rng.log_between(200.0, 10_000.0) as u64);
    let wan = [0, 1].map(|_| wan(&mut rng, &frame));
    let channel = rng
        .chance(0.2)
        .then(|| [0, 1].map(|_| apart(&mut rng, &frame)));
    let bypass = rng
        .chance(0.1)
        .then(|| [0, 1].map(|_| PathConfig::clean(frame.rtt / 2)))
        .filter(|_| frame.reads == 0.0);
    let core = [0, 1].map(|side| core(&mut rng, &frame, side));
    let lasts = Duration::from_secs_f64(frame.packets as f64 / frame.rate * 4.0)
        + frame.rtt * 40
        + Duration::from_secs(2);
    let mut scenario = Scenario {
        name: "drawn".into(),
        seed,
        mode,
        lasts,
        packets: frame.packets * 2,
        linger: frame.rtt * 4,
        hosts,
        ipv6: rng.chance(0.3),
        lan: lan(&mut rng),
        wan,
        channel,
        bypass,
        poll,
        slots: 4096,
        peers: peers(&mut rng),
        core,
        path_mtu: u32::from(PATH_MTU),
        connections: Vec::new(),
        steps: Vec::new(),
        reporter: rng.chance(0.2),
        trace: false,
        forger: Forger::Stranger,
        decode_takes: Duration::ZERO,
        state_limit: None,
        hostile: if rng.chance(0.2) { 200.0 } else { 0.0 },
    };
    scenario.connections = connections(&mut rng, &frame, hosts);
    let off = |cfg: &CoreConfig| cfg.responses && cfg.crf.hold == Hold::Off;
    if scenario.core.iter().any(off) {
        // Who has nothing held says that hosts take responses in any order.
        for connection in &mut scenario.connections {
            connection.transport.ordered = false;
        }
    }
    scenario.steps = steps(&mut rng, &frame, &scenario);
    if rng.chance(0.25) {
        learn(&mut rng, &frame, &mut scenario);
    }
    scenario.steps.sort_by_key(|(at, _)| *at);
    scenario
}

fn frame(rng: &mut Rng) -> Frame {
    let rtt = Duration::from_secs_f64(rng.log_between(0.000_1, 0.3));
    let packets = rng.log_between(10_000.0, 150_000.0);
    let trips = rng.log_between(8.0, 200.0);
    let seconds = (rtt.as_secs_f64() * trips).clamp(0.05, 20.0);
    Frame {
        rtt,
        mtu: MTUS[rng.below(5) as usize],
        flows: rng.log_between(1.0, 2_000.0) as u64,
        packets: packets as u64,
        rate: packets / seconds,
        reads: if rng.chance(0.4) { rng.unit() } else { 0.0 },
    }
}

fn loss(rng: &mut Rng) -> Loss {
    let rate = rng.log_between(1e-6, 5e-2);
    match rng.below(10) {
        0 | 1 => Loss::None,
        2..=5 => Loss::Uniform(rate),
        6..=8 => {
            let burst = rng.log_between(1.0, 60.0);
            Loss::Bursts { rate, burst }
        }
        _ => Loss::Periodic {
            every: rng.log_between(20.0, 5_000.0) as u64,
        },
    }
}

fn wan(rng: &mut Rng, frame: &Frame) -> PathConfig {
    let mut path = PathConfig::clean(frame.rtt / 2);
    path.loss = loss(rng);
    let some = |rng: &mut Rng, share: f64, low: f64, high: f64| {
        let value = rng.log_between(low, high);
        if rng.chance(share) { value } else { 0.0 }
    };
    path.control_loss = some(rng, 0.5, 1e-3, 0.2);
    path.ack_loss = some(rng, 0.5, 1e-4, 5e-2);
    path.duplicate = some(rng, 0.15, 1e-5, 1e-2);
    path.damage = some(rng, 0.15, 1e-6, 1e-3);
    path.mark = some(rng, 0.15, 1e-3, 0.9);
    if rng.chance(0.25) {
        path.jitter = frame.rtt.mul_f64(rng.unit() * 0.1);
    }
    if rng.chance(0.15) {
        path.members = rng.between(2, 4) as u32;
        path.member_delay = frame.rtt.mul_f64(rng.unit() * 0.05);
        path.spray = rng.chance(0.3);
    }
    if rng.chance(0.3) {
        path.queue = Some(queue(rng, frame));
    }
    if frame.reads > 0.0 {
        path.jitter = Duration::ZERO;
        path.duplicate = 0.0;
        path.spray = false;
    }
    path
}

/// A queue that the offered rate fills or not.
fn queue(rng: &mut Rng, frame: &Frame) -> QueueConfig {
    let offered = frame.rate * (f64::from(frame.mtu) + AROUND) * 8.0;
    let rate = offered * rng.log_between(0.5, 4.0);
    let octets = rate / 8.0 * rng.log_between(0.000_1, 0.02);
    let capacity = (octets as u64).max(30_000);
    let marking = match rng.below(3) {
        0 => Marking::Off,
        1 => Marking::Step(capacity / 4),
        _ => Marking::Ramp {
            low: capacity / 10,
            high: capacity / 2,
            at_high: 0.2,
        },
    };
    let cross = rng.chance(0.3).then(|| CrossConfig {
        rate: rate * 0.3,
        peak: rate * 1.5,
        burst: Duration::from_micros(500),
    });
    QueueConfig {
        rate,
        capacity,
        marking,
        cross,
    }
}

/// A way of its own for messages between gateways.
fn apart(rng: &mut Rng, frame: &Frame) -> PathConfig {
    let mut path = PathConfig::clean(frame.rtt / 2);
    path.loss = loss(rng);
    path.control_loss = rng.unit() * 0.05;
    path
}

fn lan(rng: &mut Rng) -> PathConfig {
    let mut path = PathConfig::clean(Duration::from_nanos(rng.between(500, 5_000)));
    if rng.chance(0.15) {
        path.loss = Loss::Uniform(rng.log_between(1e-5, 1e-2));
    }
    if rng.chance(0.05) {
        path.damage = 1e-4;
    }
    path.queue = Some(QueueConfig {
        rate: 200e9,
        capacity: 16 << 20,
        marking: Marking::Off,
        cross: None,
    });
    path
}

fn peers(rng: &mut Rng) -> [Peer; 2] {
    match rng.below(20) {
        0 => [Peer::Gateway, Peer::Nobody],
        1 | 2 => [Peer::Gateway, Peer::RequestsOnly],
        _ => [Peer::Gateway; 2],
    }
}

fn core(rng: &mut Rng, frame: &Frame, side: usize) -> CoreConfig {
    let mut cfg = super::plain(side, PATH_MTU);
    if rng.chance(0.3) {
        // No entry: HELLO goes to the flow's destination and is intercepted on the way.
        cfg.peers = PeerTable::default();
    }
    if rng.chance(0.7) {
        cfg.reporters = vec![Prefix::host(gateway::reporter().ip())];
    }
    cfg.responses = rng.chance(0.5);
    if cfg.responses {
        // It changes nothing that shows: no draw of its own.
        cfg.csf.ahead = super::AHEAD;
    }
    cfg.verify_sources = rng.chance(0.2);
    cfg.domain_rtt = rng.chance(0.3).then_some(frame.rtt);
    cfg.fec.k = *pick(rng, &[4, 8, 16, 32, 32, 32, 64, 128]);
    cfg.fec.m_max = *pick(rng, &[0, 1, 4, 16, 16, 16]);
    cfg.fec.m_min = if rng.chance(0.3) {
        rng.below(1 + u64::from(cfg.fec.m_max.min(4))) as u8
    } else {
        0
    };
    cfg.fec.schemes = *pick(rng, &[0b111, 0b111, 0b111, 0b010, 0b110, 0b011]);
    cfg.fec.rdma_mtu = *pick(rng, &[256, 1024, 1024, frame.mtu, frame.mtu, 4096]);
    cfg.csf.start_after = *pick(rng, &[1, 16, 16, 64]);
    cfg.csf.tail_info = rng.chance(0.8);
    cfg.crf.fallback = rng.chance(0.8);
    cfg.crf.replay = rng.chance(0.8);
    cfg.crf.rounds = *pick(rng, &[0, 1, 2, 2, 2, 2]);
    cfg.crf.hold = match rng.below(6) {
        0 => Hold::Off,
        1 => Hold::Fixed(frame.rtt.mul_f64(rng.unit() * 3.0)),
        _ => Hold::Auto,
    };
    if rng.chance(0.2) {
        scarce(rng, &mut cfg);
    }
    cfg
}

/// Bounds that are reached.
fn scarce(rng: &mut Rng, cfg: &mut CoreConfig) {
    match rng.below(8) {
        0 => cfg.csf.max_flows = 8,
        1 => cfg.csf.retain_packets = 300,
        2 => cfg.csf.retain_octets = 200_000,
        3 => cfg.crf.hold_packets = 20,
        4 => cfg.crf.keep_packets = 100,
        5 => cfg.crf.max_open_blocks = 4,
        6 => cfg.crf.max_flows = 8,
        _ => cfg.csf.hello_rate = 20,
    }
}

fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.below(from.len() as u64) as usize]
}

fn connections(rng: &mut Rng, frame: &Frame, hosts: [u8; 2]) -> Vec<Connection> {
    let both_ways = rng.chance(0.5);
    let selective = rng.unit();
    let per_flow = frame.packets / frame.flows.max(1);
    let octets = f64::from(frame.mtu) * per_flow.max(1) as f64;
    let largest = octets.min(rng.log_between(64.0, 4e6)).max(2.0);
    let smallest = (largest * rng.unit()).max(1.0);
    let mean = (largest + smallest) / 2.0;
    let count = (octets / mean).ceil().max(1.0) as u32;
    // Room for what is sent again.
    let rate = frame.rate / frame.flows as f64 * (f64::from(frame.mtu) + AROUND) * 8.0 * 1.5;
    let wraps = rng.chance(0.3);
    let pause = if rng.chance(0.4) {
        frame.rtt.mul_f64(rng.unit())
    } else {
        Duration::ZERO
    };
    let outstanding = rng.log_between(1.0, 32.0) as u32;
    (0..frame.flows)
        .map(|flow| {
            let recovery = if rng.chance(selective) {
                let reorder = frame.rtt / 8 + Duration::from_micros(20);
                Recovery::Selective { reorder }
            } else {
                Recovery::GoBackN
            };
            let mut transport = RequesterConfig::for_path(
                recovery,
                frame.mtu,
                (rate as u64).max(1_000_000),
                frame.rtt,
            );
            transport.first = if wraps { NEAR_WRAP } else { rng.below(1 << 23) };
            transport.batch = Duration::from_micros(rng.between(1, 50));
            transport.retries = 20;
            let start = frame.rtt.mul_f64(rng.unit() * 2.0);
            Connection {
                side: usize::from(both_ways && rng.chance(0.5)),
                hosts: hosts.map(|hosts| rng.below(u64::from(hosts)) as u8),
                namespace: if rng.chance(0.02) { 7 } else { 0 },
                qp: 16 + flow as u32,
                transport,
                workload: Workload {
                    start: Instant(start.as_nanos() as u64),
                    messages: count,
                    outstanding,
                    min_octets: smallest as u32,
                    max_octets: largest as u32,
                    reads: frame.reads,
                    pause,
                },
            }
        })
        .collect()
}

fn steps(rng: &mut Rng, frame: &Frame, scenario: &Scenario) -> Vec<(Duration, Step)> {
    let traffic = Duration::from_secs_f64(frame.packets as f64 / frame.rate);
    let mut steps = Vec::new();
    let at = |rng: &mut Rng| traffic.mul_f64(rng.unit());
    if rng.chance(0.15) {
        let down = frame.rtt.mul_f64(rng.unit()) + Duration::from_millis(1);
        let side = rng.below(2) as usize;
        steps.push((at(rng), Step::Restart { side, down }));
    }
    if rng.chance(0.15) {
        let side = rng.below(2) as usize;
        steps.push((at(rng), Step::Path(side, Box::new(wan(rng, frame)))));
    }
    if rng.chance(0.1) {
        let side = rng.below(2) as usize;
        let lasting = frame.rtt.mul_f64(rng.unit() * 3.0);
        steps.push((at(rng), Step::Outage(side, lasting)));
    }
    if rng.chance(0.1) {
        let side = rng.below(2) as usize;
        steps.push((at(rng), Step::Shortage(side, rng.between(1, 500) as u32)));
    }
    if rng.chance(0.1) {
        let side = rng.below(2) as usize;
        let mut cfg = scenario.core[side].clone();
        cfg.fec.m_max = rng.below(8) as u8;
        cfg.fec.m_min = cfg.fec.m_min.min(cfg.fec.m_max);
        steps.push((at(rng), Step::Configure(side, Box::new(cfg))));
    }
    if rng.chance(0.05) {
        steps.push((at(rng), Step::Close(rng.below(2) as usize)));
    }
    steps
}

/// One gateway or both learn from acknowledgments and from the connection manager, by which hosts open and end
/// some of their connections; a few say so at any time.
fn learn(rng: &mut Rng, frame: &Frame, scenario: &mut Scenario) {
    let both = rng.chance(0.7);
    scenario.core[0].csf.learn = true;
    scenario.core[1].csf.learn = both;
    let traffic = Duration::from_secs_f64(frame.packets as f64 / frame.rate);
    let opening = frame.rtt * 2;
    let managed = scenario.connections.len().min(MANAGED);
    for (n, connection) in scenario.connections.iter_mut().enumerate().take(managed) {
        let start = connection.workload.start.since(Instant(0));
        scenario.steps.push((start, Step::Opens(n)));
        connection.workload.start = Instant((start + opening).as_nanos() as u64);
        if rng.chance(0.3) {
            let again = opening + traffic.mul_f64(rng.unit());
            let step = if rng.chance(0.5) {
                Step::Ends(n)
            } else {
                Step::Opens(n)
            };
            scenario.steps.push((again, step));
        }
    }
}

/// What a prefix table needs to name the gateway at the other side.
pub(super) fn table(side: usize, path_mtu: u16) -> PeerTable {
    let far = 1 - side;
    let target = PeerTarget {
        address: Some(gateway::address(far)),
        path_mtu,
        tunnel_overhead: 0,
    };
    let v4 = IpAddr::from([10, 0, far as u8 + 1, 0]);
    let v6 = IpAddr::from([0x2001, 0xdb8, 0, far as u16 + 1, 0, 0, 0, 0]);
    let prefix = |address, length| Prefix { address, length };
    PeerTable::new(vec![(prefix(v4, 24), target), (prefix(v6, 64), target)])
}
