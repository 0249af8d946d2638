//! Directed scenarios with what hosts, peers and operators seldom do: forged messages that fit, connections
//! announced and ended, budgets that are too small, slow decoding.

use crem_core::config::{PeerTable, Prefix};

use super::directed::{
    Direct, HELLO, HELLO_ACK, LOSS_REPORT, MS, PARAM_ACK, SECOND, connection, slow,
};
use super::{Forger, Scenario, Step};
use crate::gateway;
use crate::net::loss::Loss;
use crate::net::path::PathConfig;
use crate::rng::Rng;
use crate::{Duration, Instant};

/// Names of messages.
const PARAM_UPDATE: &str = "PARAM_UPDATE";
/// When flows begin of which the others have long been above the breaker.
const LATER: Duration = Duration::from_secs(45);

/// All of them, with their names.
pub(super) const ALL: &[(&str, Direct)] = &[
    ("a crafty peer", crafty),
    ("a crafty peer of silent flows", crafty_and_silent),
    ("connections managed", managed),
    ("connections reopened", reopened),
    ("connections reopened while silent", reopened_and_silent),
    ("acknowledged past the gateways", acknowledged_past),
    ("displaced", displaced),
    ("displaced while it waits", displaced_waiting),
    ("displaced while silent", displaced_silent),
    ("offered and forgotten", offered_and_forgotten),
    ("strangers while it binds anew", rebinding_strangers),
    ("nobody is allowed", nobody_allowed),
    ("room for one peer", one_peer),
    ("jumps of almost a reuse", almost_reused),
    ("decoding takes long", slow_decoding),
    ("one queue pair both ways", both_ways),
    ("reports of many drops", many_drops),
    ("damaged answers", damaged_answers),
    ("given up after silence", silent_for_good),
    ("off while it waits", off_while_waiting),
    ("no copies", no_copies),
    ("too narrow while active", narrow_later),
    ("spoilt symbols", spoilt),
    ("reports return to those that wait", returned_waiting),
    ("useless limits while silent", useless_while_silent),
    ("bound while others are given up", bound_too_late),
    ("no room for notes", no_room_for_notes),
];

fn at(rng: &mut Rng, from: Duration, to: Duration) -> Duration {
    from + (to - from).mul_f64(rng.unit())
}

fn crafty(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 5 * SECOND;
    s.forger = Forger::Crafty;
    s.hostile = rng.log_between(5.0, 300.0);
    s.core[0].csf.retry_first = 100 * MS;
}

fn crafty_and_silent(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 4, 2_000);
    s.lasts = 10 * SECOND;
    s.forger = Forger::Crafty;
    s.hostile = 3.0;
    s.core[0].csf.retry_first = 100 * MS;
    let when = at(rng, SECOND / 2, SECOND * 2);
    let muted = vec![LOSS_REPORT, HELLO_ACK];
    s.steps.push((when, Step::Mute(1, muted)));
    if rng.chance(0.5) {
        s.core[0].csf.hello_outstanding = 1;
    }
}

/// The gateways learn, and hosts announce their connections.
fn learn(s: &mut Scenario) {
    for cfg in &mut s.core {
        cfg.csf.learn = true;
    }
}

fn managed(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 5 * SECOND;
    learn(s);
    for n in 0..s.connections.len() {
        s.connections[n].workload.start = Instant((100 * MS).as_nanos() as u64);
        s.steps.push((at(rng, MS, 50 * MS), Step::Opens(n)));
        if rng.chance(0.5) {
            s.steps.push((at(rng, SECOND, 4 * SECOND), Step::Ends(n)));
        }
    }
}

/// A receiver function only, and one whose limits are of no use.
fn useless_limits(s: &mut Scenario) {
    s.core[1].fec.max_k = 0;
    s.connections.retain(|connection| connection.side == 0);
}

/// Connections begin anew at any moment, as far as the connection manager says.
fn reopen(s: &mut Scenario, rng: &mut Rng, times: u32) {
    learn(s);
    let last = s.lasts;
    for n in 0..s.connections.len() {
        for _ in 0..times {
            let step = if rng.chance(0.6) {
                Step::Opens(n)
            } else {
                Step::Ends(n)
            };
            s.steps.push((at(rng, Duration::ZERO, last), step));
        }
    }
}

fn reopened(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 6 * SECOND;
    s.core[0].csf.start_after = 1 + rng.below(400) as u32;
    match rng.below(4) {
        0 => s.core[0].csf.hello_rate = 3,
        1 => s.steps.push((SECOND, Step::Mute(0, vec![HELLO]))),
        2 => s.steps.push((SECOND, Step::Mute(1, vec![PARAM_ACK]))),
        _ => useless_limits(s),
    }
    reopen(s, rng, 12);
}

fn reopened_and_silent(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 4, 2_000);
    s.lasts = 10 * SECOND;
    let muted = vec![LOSS_REPORT, HELLO_ACK];
    s.steps.push((2 * SECOND, Step::Mute(1, muted)));
    if rng.chance(0.5) {
        s.core[0].csf.hello_outstanding = 1;
    }
    reopen(s, rng, 8);
}

fn acknowledged_past(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 5 * SECOND;
    learn(s);
    s.bypass = Some([0, 1].map(|_| PathConfig::clean(6 * MS)));
    s.core[1].crf.rounds = if rng.chance(0.8) { 2 } else { 0 };
    s.core[0].fec.m_min = rng.below(2) as u8;
    s.wan[0].control_loss = 0.3;
    s.wan[1].control_loss = 0.3;
    s.wan[0].loss = Loss::Uniform(0.02);
    s.wan[0].damage = 0.06;
}

/// Slow flows come first, busier ones later; reports are affordable for a few.
fn later_and_busier(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 9 * SECOND;
    s.core[0].csf.report_budget = 100 + rng.below(100) as u32;
    s.connections.clear();
    for n in 0..10u32 {
        let mut next = connection(rng, n % 4, 1 + u64::from(n) * 2);
        next.qp = 100 + n;
        let start = SECOND.mul_f64(f64::from(n) * 0.7 * rng.unit());
        next.workload.start = Instant(start.as_nanos() as u64);
        s.connections.push(next);
    }
}

fn displaced(s: &mut Scenario, rng: &mut Rng) {
    later_and_busier(s, rng);
}

fn displaced_waiting(s: &mut Scenario, rng: &mut Rng) {
    later_and_busier(s, rng);
    if rng.chance(0.5) {
        let when = at(rng, Duration::ZERO, SECOND);
        s.steps.push((when, Step::Mute(1, vec![PARAM_ACK])));
    } else {
        let when = at(rng, Duration::ZERO, 3 * SECOND);
        s.steps.push((when, Step::Mute(1, vec![HELLO_ACK])));
    }
}

fn displaced_silent(s: &mut Scenario, rng: &mut Rng) {
    later_and_busier(s, rng);
    let when = at(rng, SECOND, 3 * SECOND);
    s.steps
        .push((when, Step::Mute(1, vec![LOSS_REPORT, HELLO_ACK])));
    if rng.chance(0.5) {
        s.core[0].csf.hello_outstanding = 1;
    }
}

fn offered_and_forgotten(s: &mut Scenario, _: &mut Rng) {
    s.lasts = 4 * SECOND;
    s.core[1].crf.idle = 100 * MS;
    s.steps
        .push((Duration::ZERO, Step::Mute(0, vec![PARAM_UPDATE])));
    s.steps.push((2 * SECOND, Step::Mute(0, Vec::new())));
}

fn rebinding_strangers(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 4, 2_000);
    s.lasts = 8 * SECOND;
    s.hostile = 100.0;
    for cfg in &mut s.core {
        cfg.allowed_peers
            .push(Prefix::host(gateway::stranger().ip()));
    }
    s.steps
        .push((2 * SECOND, Step::Mute(1, vec![LOSS_REPORT, HELLO_ACK])));
    s.steps.push((5 * SECOND, Step::Mute(1, Vec::new())));
}

fn nobody_allowed(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 4 * SECOND;
    s.core[0].allowed_peers = vec![Prefix::host(gateway::stranger().ip())];
    s.core[0].peers = PeerTable::default();
    if rng.chance(0.5) {
        s.core[0].allowed_peers.clear();
    }
}

fn one_peer(s: &mut Scenario, _: &mut Rng) {
    s.lasts = 3 * SECOND;
    s.core[0].csf.max_peers = 1;
    s.core[0].peers = PeerTable::default();
}

/// A queue pair goes on far ahead, so that retained blocks are too far behind before they are old.
fn almost_reused(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 3 * SECOND;
    s.connections.truncate(4);
    for n in 0..4u32 {
        s.connections[n as usize].transport.first = 1_000;
        s.connections[n as usize].workload.messages = 40;
        for hop in 1..4u64 {
            let mut later = connection(rng, n, 40);
            later.transport.first = 1_000 + hop * 3_000_000;
            later.workload.messages = 40;
            let start = 600 * MS + hop as u32 * at(rng, 20 * MS, 150 * MS);
            later.workload.start = Instant(start.as_nanos() as u64);
            s.connections.push(later);
        }
    }
    s.core[0].csf.keep_floor = 2 * SECOND;
}

fn slow_decoding(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 4 * SECOND;
    s.decode_takes = at(rng, MS, 40 * MS);
    s.core[0].fec.m_min = 2;
    for path in &mut s.wan {
        path.jitter = 2 * MS;
    }
}

/// A queue pair whose requests and whose READ responses go the same way.
fn both_ways(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 4 * SECOND;
    s.reporter = true;
    s.connections.truncate(4);
    for n in 0..4u32 {
        let mut reads = connection(rng, n | 1, 40);
        let writes = &mut s.connections[n as usize];
        writes.side = 0;
        writes.qp = 200 + n + (1 << 20);
        reads.side = 1;
        reads.qp = 200 + n;
        reads.hosts = writes.hosts;
        reads.workload.reads = 1.0;
        reads.transport.first = writes.transport.first;
        s.connections.push(reads);
    }
    for cfg in &mut s.core {
        cfg.responses = true;
        cfg.fec.m_min = 1;
        cfg.reporters = vec![Prefix::host(gateway::reporter().ip())];
    }
}

fn many_drops(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 4 * SECOND;
    s.reporter = true;
    s.core[0].reporters = vec![Prefix::host(gateway::reporter().ip())];
    s.core[0].fec.k = 2;
    s.core[0].fec.max_k = 2;
    s.connections = vec![connection(rng, 1, 200)];
    s.core[0].fec.m_min = 1;
    s.wan[0].loss = Loss::Bursts {
        rate: 0.05,
        burst: 60.0 + rng.unit() * 60.0,
    };
}

fn damaged_answers(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 6 * SECOND;
    s.channel = Some([0, 1].map(|_| {
        let mut path = PathConfig::clean(10 * MS);
        path.loss = Loss::Uniform(0.3);
        path.damage = 0.4;
        path
    }));
    s.core[0].fec.m_min = rng.below(3) as u8;
    s.wan[0].loss = Loss::Uniform(0.04);
    s.wan[0].damage = 0.005;
}

fn silent_for_good(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 4, 2_000);
    s.lasts = 8 * SECOND;
    s.core[0].csf.silence_close = SECOND + at(rng, Duration::ZERO, 2 * SECOND);
    s.steps
        .push((SECOND, Step::Mute(1, vec![LOSS_REPORT, HELLO_ACK])));
    if rng.chance(0.5) {
        s.core[0].csf.hello_outstanding = 1;
    }
}

fn off_while_waiting(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 6, 2_000);
    s.lasts = 6 * SECOND;
    match rng.below(4) {
        0 => s.core[0].csf.hello_rate = 1,
        1 => s
            .steps
            .push((Duration::ZERO, Step::Mute(1, vec![HELLO_ACK]))),
        2 => useless_limits(s),
        _ => s
            .steps
            .push((2 * SECOND, Step::Mute(1, vec![LOSS_REPORT, HELLO_ACK]))),
    }
    for _ in 0..4 {
        s.steps.push((at(rng, 20 * MS, 6 * SECOND), Step::Close(0)));
    }
}

fn no_copies(s: &mut Scenario, rng: &mut Rng) {
    crafty(s, rng);
    for cfg in &mut s.core {
        cfg.fec.schemes = 0b110;
    }
}

/// The way becomes narrower while flows are protected.
fn narrow_later(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 6 * SECOND;
    let mut cfg = s.core[0].clone();
    cfg.path_mtu = 1_100;
    cfg.peers = super::draw::table(0, 1_100);
    let when = at(rng, SECOND, 3 * SECOND);
    s.steps.push((when, Step::Configure(0, Box::new(cfg))));
}

fn spoilt(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 4 * SECOND;
    s.hostile = 2_000.0 + rng.unit() * 4_000.0;
    s.forger = Forger::Nonsense;
    s.core[0].fec.m_min = 1 + rng.below(3) as u8;
    s.wan[0].loss = Loss::Uniform(0.03);
}

fn returned_waiting(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 6, 2_000);
    s.lasts = 8 * SECOND;
    s.core[0].csf.hello_outstanding = 1;
    s.steps
        .push((2 * SECOND, Step::Mute(1, vec![LOSS_REPORT, HELLO_ACK])));
    let when = at(rng, 3 * SECOND + SECOND / 2, 5 * SECOND);
    s.steps.push((when, Step::Mute(1, Vec::new())));
}

fn useless_while_silent(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 4, 2_000);
    s.lasts = 5 * SECOND;
    let mut cfg = s.core[1].clone();
    cfg.fec.max_t = 500;
    let when = at(rng, SECOND, 2 * SECOND);
    s.steps.push((when, Step::Mute(1, vec![LOSS_REPORT])));
    s.steps.push((when, Step::Configure(1, Box::new(cfg))));
}

/// The breaker gives the path up while a later flow still waits for its first configuration.
fn bound_too_late(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 4, 1_500);
    s.lasts = 110 * SECOND;
    s.wan[0].loss = Loss::Uniform(0.35);
    let later = LATER + at(rng, Duration::ZERO, 4 * SECOND);
    for connection in s.connections.iter_mut().skip(1) {
        connection.workload.start = Instant(later.as_nanos() as u64);
    }
    s.steps
        .push((later - SECOND / 10, Step::Mute(1, vec![PARAM_ACK])));
}

pub(super) fn hostile(s: &mut Scenario, _: &mut Rng) {
    s.lasts = 4 * SECOND;
    s.hostile = 3_000.0;
    s.core[0]
        .allowed_peers
        .push(Prefix::host(gateway::stranger().ip()));
    s.core[1]
        .allowed_peers
        .push(Prefix::host(gateway::stranger().ip()));
}

pub(super) fn nonsense(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 4 * SECOND;
    s.hostile = 500.0 + rng.unit() * 2_000.0;
    s.forger = Forger::Nonsense;
    s.core[0].fec.m_min = rng.below(3) as u8;
}

/// Many packets pass while a gap is open, of which few are kept, and the receiver has little memory to note
/// them in.
fn no_room_for_notes(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 4 * SECOND;
    s.connections = vec![connection(rng, 1, 400)];
    s.connections[0].workload.outstanding = 32;
    for cfg in &mut s.core {
        (cfg.fec.k, cfg.fec.max_k) = (4, 4);
    }
    s.core[1].crf.max_flows = 1;
    s.core[1].crf.keep_packets = 100;
}
