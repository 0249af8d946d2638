//! Directed scenarios for what happens to packets, blocks and tables seldom: each is built so that what it is
//! for happens many times, whatever the seed. States of the negotiation have theirs in `parked`.

use crem_core::config::{Hold, PeerTable, Prefix};

use super::directed::{Direct, HELLO_ACK, LOSS_REPORT, MS, SECOND, connection, slow};
use super::{Forger, Peer, Scenario, Step, Tampering};
use crate::endpoint::rc::{Recovery, RequesterConfig};
use crate::gateway;
use crate::net::loss::Loss;
use crate::net::path::PathConfig;
use crate::net::queue::{Marking, QueueConfig};
use crate::rng::Rng;
use crate::{Duration, Instant};

/// All of them, with their names.
pub(super) const ALL: &[(&str, Direct)] = &[
    ("datagrams", datagrams),
    ("an impostor answers", impostor),
    ("HELLO is heard again", echo),
    ("bound flows fill the receiver's table", receiver_full),
    ("offers fill the receiver's table", receiver_full_of_offers),
    ("bound flows fill the sender's table", sender_full),
    ("nothing to rebuild from", alone),
    ("READ responses restored too late", stale_responses),
    ("READ responses nobody protects", responses_ignored),
    ("READ responses the peer knows not", responses_unknown),
    ("READ responses among acknowledgments", mixed),
    ("no peer at all", no_peer),
    ("overflow reported", overflow_reported),
    ("drops reported where none may be repaired", nothing_added),
    ("small packets first", small_first),
    ("larger packets later", larger_later),
    ("loss that follows repair", own_loss),
    ("the breaker gives up", breaker_gives_up),
    ("answers without symbols", |s, _| hollow(s, 0.0)),
    ("some answers without symbols", |s, _| hollow(s, 0.5)),
    ("damaged symbols", |s, _| damaged_symbols(s, 9)),
    ("damaged copies", |s, _| damaged_symbols(s, 0)),
    ("damaged sources", |s, _| damaged_sources(s, 9)),
    ("damaged sources without symbols", |s, _| {
        damaged_sources(s, 9);
        (s.core[0].fec.m_min, s.core[0].fec.m_max) = (0, 0);
    }),
    ("damaged sources and copies alone", |s, _| {
        damaged_sources(s, 0)
    }),
];

fn datagrams(s: &mut Scenario, _: &mut Rng) {
    s.lasts = 2 * SECOND;
    s.steps.push((SECOND, Step::Datagrams(0, 1_500)));
}

fn impostor(s: &mut Scenario, _: &mut Rng) {
    s.lasts = 2 * SECOND;
    s.forger = Forger::Impostor;
    s.hostile = 200.0;
    s.steps
        .push((Duration::ZERO, Step::Mute(1, vec![HELLO_ACK])));
    s.steps.push((SECOND, Step::Mute(1, Vec::new())));
}

fn echo(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 4, 2_000);
    s.lasts = 5 * SECOND;
    s.forger = Forger::Echo;
    s.hostile = 100.0;
    for cfg in &mut s.core {
        cfg.allowed_peers
            .push(Prefix::host(gateway::stranger().ip()));
    }
    s.steps
        .push((2 * SECOND, Step::Mute(1, vec![LOSS_REPORT, HELLO_ACK])));
}

/// Four connections, and four more a second later.
fn twice_four(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 3 * SECOND;
    s.connections.truncate(4);
    for n in 0..4 {
        let mut later = connection(rng, n, 20);
        later.qp = 200 + n;
        later.workload.start = Instant(SECOND.as_nanos() as u64);
        s.connections.push(later);
    }
}

fn receiver_full(s: &mut Scenario, rng: &mut Rng) {
    twice_four(s, rng);
    s.core[1].crf.max_flows = 4;
}

/// What is offered is never taken.
fn receiver_full_of_offers(s: &mut Scenario, rng: &mut Rng) {
    receiver_full(s, rng);
    s.lasts = 2 * SECOND;
    s.steps
        .push((Duration::ZERO, Step::Mute(0, vec!["PARAM_UPDATE"])));
}

fn sender_full(s: &mut Scenario, rng: &mut Rng) {
    twice_four(s, rng);
    s.core[0].csf.max_flows = 4;
}

/// Single packets far apart in many flows, and memory for a packet of few of them in between.
fn alone(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 4 * SECOND;
    s.connections = (0..40).map(|n| connection(rng, n % 4, 10)).collect();
    for (n, connection) in s.connections.iter_mut().enumerate() {
        connection.qp = 100 + n as u32;
        connection.workload.outstanding = 1;
        connection.workload.max_octets = 1_024;
        connection.workload.pause = 50 * MS;
    }
    s.wan[0].loss = Loss::Uniform(0.05);
    s.core[1].crf.keep_packets = 8;
    (s.core[0].fec.k, s.core[0].fec.max_k) = (2, 2);
}

fn reading(s: &mut Scenario) {
    s.lasts = 4 * SECOND;
    for connection in &mut s.connections {
        let recovery = Recovery::Selective { reorder: 2 * MS };
        connection.transport = RequesterConfig::for_path(recovery, 1024, 40_000_000, 20 * MS);
        connection.transport.retries = 200;
        connection.workload.reads = 1.0;
    }
}

fn stale_responses(s: &mut Scenario, _: &mut Rng) {
    reading(s);
    s.decode_takes = 60 * MS;
    for cfg in &mut s.core {
        cfg.responses = true;
        cfg.fec.m_min = 2;
    }
}

fn responses_ignored(s: &mut Scenario, _: &mut Rng) {
    reading(s);
    for cfg in &mut s.core {
        cfg.responses = false;
    }
}

/// Both gateways protect responses, and neither answers a HELLO for them.
fn responses_unknown(s: &mut Scenario, _: &mut Rng) {
    reading(s);
    s.peers = [Peer::RequestsOnly; 2];
    for cfg in &mut s.core {
        cfg.responses = true;
    }
}

/// Queue pairs that READ and WRITE: behind a response that is held, acknowledgments wait too.
fn mixed(s: &mut Scenario, _: &mut Rng) {
    reading(s);
    for connection in &mut s.connections {
        connection.workload.reads = 0.5;
        connection.workload.min_octets = 256;
        connection.workload.max_octets = 8_192;
    }
    for cfg in &mut s.core {
        cfg.responses = true;
        cfg.fec.m_min = 1;
    }
}

/// Nobody is configured, and nobody may answer.
fn no_peer(s: &mut Scenario, _: &mut Rng) {
    s.lasts = SECOND;
    for cfg in &mut s.core {
        cfg.peers = PeerTable::default();
        cfg.allowed_peers.clear();
    }
}

/// A queue that is too small without marks.
fn tail_drop(s: &mut Scenario, rate: f64) {
    s.wan[0].queue = Some(QueueConfig {
        rate,
        capacity: 200_000,
        marking: Marking::Off,
        cross: None,
    });
}

fn overflow_reported(s: &mut Scenario, _: &mut Rng) {
    s.lasts = 4 * SECOND;
    s.reporter = true;
    s.core[0].reporters = vec![Prefix::host(gateway::reporter().ip())];
    s.core[0].fec.m_min = 1;
    tail_drop(s, 100e6);
}

/// No symbols are configured, so no further ones may follow.
fn nothing_added(s: &mut Scenario, _: &mut Rng) {
    s.lasts = 4 * SECOND;
    s.reporter = true;
    s.core[0].reporters = vec![Prefix::host(gateway::reporter().ip())];
    s.core[0].fec.m_max = 0;
}

/// The first packets tell nothing of the RDMA MTU, and T is made for them.
fn small_first(s: &mut Scenario, _: &mut Rng) {
    s.lasts = 3 * SECOND;
    for cfg in &mut s.core {
        cfg.fec.rdma_mtu = 256;
        cfg.fec.m_min = 1;
        cfg.csf.start_after = 1;
    }
    for connection in &mut s.connections {
        connection.workload.min_octets = 16;
        connection.workload.max_octets = 4_096;
        connection.workload.outstanding = 1;
        connection.workload.pause = 5 * MS;
    }
}

/// T is made for small packets, and then the queue pairs carry larger ones.
fn larger_later(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 3 * SECOND;
    for cfg in &mut s.core {
        cfg.fec.rdma_mtu = 256;
        cfg.fec.m_min = 1;
    }
    s.connections.truncate(4);
    for n in 0..4u32 {
        let mut later = connection(rng, n, 40);
        let first = &mut s.connections[n as usize];
        first.workload.max_octets = 64;
        first.workload.min_octets = 64;
        later.workload.max_octets = 1_024;
        later.workload.min_octets = 1_024;
        later.workload.start = Instant(SECOND.as_nanos() as u64);
        later.transport.first = first.transport.first + 100_000;
        s.connections.push(later);
    }
}

/// Again and again, more loss follows soon after more repair: sooner or later than reports of it begin to count,
/// and just in time.
fn own_loss(s: &mut Scenario, rng: &mut Rng) {
    const TIMES: u32 = 10;
    s.lasts = SECOND * (TIMES + 2);
    s.connections = vec![connection(rng, 1, 20), connection(rng, 3, 20)];
    for connection in &mut s.connections {
        connection.workload.outstanding = 256;
    }
    let good = PathConfig::clean(10 * MS);
    let mut bad = good.clone();
    bad.loss = Loss::Uniform(0.3);
    s.wan[0] = good.clone();
    s.core[0].fec.adapt_k = false;
    let less = s.core[0].clone();
    let mut more = less.clone();
    more.fec.m_min = 1;
    for n in 0..TIMES {
        let at = SECOND * (n + 1);
        let mut then = |after, step| s.steps.push((at + MS * after, step));
        then(0, Step::Configure(0, Box::new(more.clone())));
        then(10 * (n + 2), Step::Path(0, Box::new(bad.clone())));
        then(350, Step::Path(0, Box::new(good.clone())));
        then(400, Step::Configure(0, Box::new(less.clone())));
    }
}

fn breaker_gives_up(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 4, 1_000);
    s.lasts = 90 * SECOND;
    s.wan[0].loss = Loss::Uniform(0.3);
}

/// Short blocks with a symbol each, of which some lose more than that. The hosts wait for what is missing as
/// long as may be, so that it is asked for several times.
fn short_blocks(s: &mut Scenario, spoils: f64, loses: f64, hollows: bool) {
    s.lasts = 4 * SECOND;
    s.wan[0].loss = Loss::Bursts {
        rate: 0.05,
        burst: 2.0,
    };
    for cfg in &mut s.core {
        cfg.fec.m_min = 1;
        (cfg.fec.k, cfg.fec.max_k) = (8, 8);
        cfg.crf.hold = Hold::Fixed(80 * MS);
    }
    let tampering = Tampering {
        spoils,
        loses,
        hollows,
    };
    s.steps.push((Duration::ZERO, Step::Tamper(0, tampering)));
}

/// Requests for repair are answered with block information alone, those that follow a damaged symbol too.
fn hollow(s: &mut Scenario, loses: f64) {
    short_blocks(s, 0.5, loses, true);
}

fn damaged_symbols(s: &mut Scenario, rounds: u8) {
    short_blocks(s, 0.5, 0.7, false);
    s.core[1].crf.rounds = rounds;
}

fn damaged_sources(s: &mut Scenario, rounds: u8) {
    short_blocks(s, 0.1, 0.7, false);
    s.wan[0].damage = 0.08;
    s.core[1].crf.rounds = rounds;
}
