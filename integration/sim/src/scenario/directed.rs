//! Scenarios that lead to what a drawn one seldom meets. Each is a small ordinary world with one thing
//! that is different; the seed varies rates, sizes and losses a little.

use crem_core::config::{CoreConfig, Hold, Mode as Acting, PeerTable, Prefix};
use crem_core::csf::Ahead;

use super::rare::{
    closed_while_silent, far_jumps, few_open_blocks, idle_before_answer, idle_while_silent,
    reused_early, reused_while_silent,
};
use super::{Connection, Forger, Peer, Scenario, Step};
use super::{adverse, parked, sure};
use crate::endpoint::rc::{Recovery, RequesterConfig};
use crate::endpoint::rc_end::Workload;
use crate::frame::Mode;
use crate::gateway;
use crate::net::loss::Loss;
use crate::net::path::PathConfig;
use crate::net::queue::{Marking, QueueConfig};
use crate::rng::{Rng, mix};
use crate::{Duration, Instant};

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);
/// Octets of IP packets on the WAN.
const PATH_MTU: u16 = 4400;
/// Names of messages.
pub(super) const HELLO: &str = "HELLO";
pub(super) const HELLO_ACK: &str = "HELLO_ACK";
pub(super) const PARAM_ACK: &str = "PARAM_ACK";
pub(super) const LOSS_REPORT: &str = "LOSS_REPORT";

pub(super) type Direct = fn(&mut Scenario, &mut Rng);

/// All of them, with their names.
const ALL: &[(&str, Direct)] = &[
    ("receiver restarts", receiver_restarts),
    ("sender restarts", sender_restarts),
    ("parameters unanswered", parameters_unanswered),
    ("reports fall silent", reports_fall_silent),
    ("reports return", reports_return),
    ("loss above the breaker", loss_above_the_breaker),
    ("marks above the breaker", marks_above_the_breaker),
    ("path too narrow", path_too_narrow),
    ("limits without common ground", no_common_ground),
    ("flows fall idle", flows_fall_idle),
    ("sender's table is full", sender_table_full),
    ("receiver's table is full", receiver_table_full),
    ("queue pair reused", queue_pair_reused),
    ("nobody answers at first", nobody_at_first),
    ("equal flows in two namespaces", two_namespaces),
    ("switched to passthrough", passthrough),
    ("damaged symbols and sources", damaged),
    ("few symbol buffers", few_slots),
    ("packets above T", above_t),
    ("long READs", long_reads),
    ("hostile neighbours", adverse::hostile),
    ("no room to retain", no_room_to_retain),
    ("no room to hold", no_room_to_hold),
    ("no room to decode", no_room_to_decode),
    ("copies only", copies_only),
    ("XOR", exclusive_or),
    ("path reporter", path_reporter),
    ("answers get lost", answers_get_lost),
    ("bursts of one packet", single_packets),
    ("closed by the peer", closed_by_peer),
    ("HELLO_ACK repeated", acks_repeated),
    ("congested and marked", congested),
    ("a peer that talks nonsense", adverse::nonsense),
    ("idle before an answer", idle_before_answer),
    ("idle while silent", idle_while_silent),
    ("reused while observed or waiting", reused_early),
    ("reused while silent", reused_while_silent),
    ("far jumps", far_jumps),
    ("few open blocks", few_open_blocks),
    ("closed while silent", closed_while_silent),
];

/// All lists, one after the other.
const LISTS: [&[(&str, Direct)]; 4] = [ALL, adverse::ALL, parked::ALL, sure::ALL];

/// How many directed scenarios there are.
pub(super) const COUNT: usize = LISTS[0].len() + LISTS[1].len() + LISTS[2].len() + LISTS[3].len();

/// The directed scenario of this number, modulo how many there are.
pub(super) fn of(number: u64, seed: u64, mode: Mode) -> Scenario {
    let number = (number % COUNT as u64) as usize;
    let mut all = LISTS.iter().flat_map(|list| list.iter().copied());
    let (name, direct) = all.nth(number).unwrap_or(ALL[0]);
    let mut rng = Rng::new(mix(seed ^ 0xd1ec7));
    let mut scenario = base(&mut rng, seed, mode);
    scenario.name = name.into();
    direct(&mut scenario, &mut rng);
    scenario.steps.sort_by_key(|(at, _)| *at);
    scenario
}

fn core(side: usize) -> CoreConfig {
    let mut cfg = super::plain(side, PATH_MTU);
    cfg.csf.ahead = [super::AHEAD, Ahead::OFF][side];
    cfg
}

/// Six connections, two of them backwards, 20 ms round trip, one percent loss.
pub(super) fn base(rng: &mut Rng, seed: u64, mode: Mode) -> Scenario {
    let mut path = PathConfig::clean(10 * MS);
    path.loss = Loss::Uniform(0.005 + rng.unit() * 0.01);
    let connections = (0..6).map(|n| connection(rng, n, 40)).collect();
    Scenario {
        name: String::new(),
        seed,
        mode,
        lasts: 12 * SECOND,
        packets: 150_000,
        linger: 200 * MS,
        hosts: [2, 2],
        ipv6: rng.chance(0.2),
        lan: PathConfig::clean(Duration::from_micros(2)),
        wan: [path.clone(), path],
        channel: None,
        bypass: None,
        poll: Duration::from_micros(5),
        slots: 4096,
        peers: [Peer::Gateway; 2],
        core: [0, 1].map(core),
        path_mtu: u32::from(PATH_MTU),
        connections,
        steps: Vec::new(),
        reporter: false,
        trace: false,
        hostile: 0.0,
        forger: Forger::Stranger,
        decode_takes: Duration::ZERO,
        state_limit: None,
    }
}

/// A connection of `rate` Mbit/s that writes messages of up to 64 KiB for as long as the world lasts.
pub(super) fn connection(rng: &mut Rng, number: u32, rate: u64) -> Connection {
    let recovery = if number.is_multiple_of(2) {
        Recovery::GoBackN
    } else {
        let reorder = 2 * MS;
        Recovery::Selective { reorder }
    };
    let mut transport = RequesterConfig::for_path(recovery, 1024, rate * 1_000_000, 20 * MS);
    transport.first = rng.below(1 << 23);
    transport.retries = 200;
    transport.batch = Duration::from_micros(20);
    Connection {
        side: usize::from(number >= 4),
        hosts: [(number % 2) as u8, (number / 2 % 2) as u8],
        namespace: 0,
        qp: 100 + number,
        transport,
        workload: Workload {
            start: Instant(rng.below(5_000_000)),
            messages: u32::MAX,
            outstanding: 8,
            min_octets: 1024,
            max_octets: 65_536,
            reads: 0.0,
            pause: Duration::ZERO,
        },
    }
}

pub(super) fn slow(scenario: &mut Scenario, rng: &mut Rng, connections: u32, kilobit: u64) {
    scenario.connections = (0..connections).map(|n| connection(rng, n, 1)).collect();
    for connection in &mut scenario.connections {
        connection.transport.rate = kilobit * 1_000;
    }
}

fn receiver_restarts(s: &mut Scenario, rng: &mut Rng) {
    let down = MS * (1 + rng.below(50) as u32);
    s.lasts = 5 * SECOND;
    s.steps.push((SECOND, Step::Restart { side: 1, down }));
}

fn sender_restarts(s: &mut Scenario, rng: &mut Rng) {
    let down = MS * (1 + rng.below(50) as u32);
    s.lasts = 5 * SECOND;
    s.steps.push((SECOND, Step::Restart { side: 0, down }));
}

fn parameters_unanswered(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 4, 2_000);
    s.lasts = 40 * SECOND;
    s.steps
        .push((Duration::ZERO, Step::Mute(1, vec![PARAM_ACK])));
    s.steps.push((20 * SECOND, Step::Mute(1, vec![])));
    if rng.chance(0.5) {
        // In the middle of protection: a change of parameters stays unanswered.
        s.steps.clear();
        s.steps.push((2 * SECOND, Step::Mute(1, vec![PARAM_ACK])));
        let mut cfg = s.core[0].clone();
        cfg.fec.m_min = 2;
        s.steps
            .push((2 * SECOND, Step::Configure(0, Box::new(cfg))));
    }
}

fn reports_fall_silent(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 4, 1_000);
    s.lasts = 45 * SECOND;
    let muted = if rng.chance(0.5) {
        vec![LOSS_REPORT]
    } else {
        vec![LOSS_REPORT, HELLO_ACK]
    };
    s.steps.push((2 * SECOND, Step::Mute(1, muted)));
}

fn reports_return(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 4, 1_000);
    s.lasts = 12 * SECOND;
    s.steps
        .push((2 * SECOND, Step::Mute(1, vec![LOSS_REPORT, HELLO_ACK])));
    s.steps.push((4 * SECOND, Step::Mute(1, vec![])));
}

fn loss_above_the_breaker(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 4, 1_500);
    s.lasts = 90 * SECOND;
    s.wan[0].loss = Loss::Uniform(0.15 + rng.unit() * 0.2);
    if rng.chance(0.5) {
        let mut better = s.wan[0].clone();
        better.loss = Loss::Uniform(0.001);
        s.lasts = 30 * SECOND;
        s.steps.push((5 * SECOND, Step::Path(0, Box::new(better))));
    }
}

fn marks_above_the_breaker(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 4, 1_500);
    s.lasts = 20 * SECOND;
    s.wan[0].mark = 0.55 + rng.unit() * 0.4;
}

fn path_too_narrow(s: &mut Scenario, _: &mut Rng) {
    s.lasts = 2 * SECOND;
    for side in 0..2 {
        s.core[side].path_mtu = 1_100;
        s.core[side].peers = super::draw::table(side, 1_100);
    }
}

fn no_common_ground(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 5 * SECOND;
    match rng.below(2) {
        0 => s.core[1].fec.max_t = 500,
        _ => s.core[1].fec.max_k = 0,
    }
    // A receiver function only: what it would offer itself is of no use to anybody.
    s.connections.retain(|connection| connection.side == 0);
}

fn flows_fall_idle(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 25 * SECOND;
    for cfg in &mut s.core {
        cfg.csf.idle = SECOND;
        cfg.crf.idle = SECOND;
    }
    if rng.chance(0.5) {
        s.core[0].csf.idle = 30 * SECOND;
    }
    for connection in &mut s.connections {
        connection.workload.outstanding = 1;
        connection.workload.pause = 700 * MS;
    }
}

fn sender_table_full(s: &mut Scenario, rng: &mut Rng) {
    s.connections = (0..24).map(|n| connection(rng, n % 4, 8)).collect();
    for (n, connection) in s.connections.iter_mut().enumerate() {
        connection.qp = 100 + n as u32;
    }
    s.core[0].csf.max_flows = 8;
    s.core[0].csf.start_after = 200;
    s.lasts = 3 * SECOND;
}

fn receiver_table_full(s: &mut Scenario, rng: &mut Rng) {
    sender_table_full(s, rng);
    s.core[0].csf.max_flows = 100;
    s.core[0].csf.start_after = 16;
    match rng.below(2) {
        0 => s.core[1].crf.max_flows = 4,
        _ => s.core[1].crf.report_budget = 100,
    }
    s.lasts = 6 * SECOND;
}

fn queue_pair_reused(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 6 * SECOND;
    s.connections.truncate(4);
    for n in 0..4 {
        let mut again = connection(rng, n, 40);
        let first = &mut s.connections[n as usize];
        first.workload.messages = 20;
        first.transport.first = 1_000;
        again.transport.first = (1 << 23) - 5 + rng.below(1 << 20);
        again.workload.start = Instant((2 * SECOND).as_nanos() as u64);
        s.connections.push(again);
    }
}

fn nobody_at_first(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 4, 3_000);
    s.lasts = 30 * SECOND;
    s.steps.push((Duration::ZERO, Step::Mute(0, vec![HELLO])));
    s.steps.push((12 * SECOND, Step::Mute(0, vec![])));
    if rng.chance(0.5) {
        s.core[0].peers = PeerTable::default();
    }
}

fn two_namespaces(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 4 * SECOND;
    for n in 0..4 {
        let mut twin = connection(rng, n, 40);
        twin.namespace = 7;
        s.connections.push(twin);
    }
}

fn passthrough(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 6 * SECOND;
    let side = rng.below(2) as usize;
    let mut off = s.core[side].clone();
    off.mode = Acting::Passthrough;
    s.steps
        .push((2 * SECOND, Step::Configure(side, Box::new(off))));
    let on = s.core[side].clone();
    s.steps
        .push((4 * SECOND, Step::Configure(side, Box::new(on))));
}

fn damaged(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 5 * SECOND;
    s.wan[0].damage = 0.02;
    s.wan[1].damage = 0.02;
    s.wan[0].loss = Loss::Uniform(0.04);
    s.core[0].fec.m_min = 2;
    s.core[1].crf.fallback = rng.chance(0.7);
    s.core[1].verify_sources = rng.chance(0.5);
}

fn few_slots(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 4 * SECOND;
    s.slots = 1 + rng.below(3) as u32;
    s.core[0].fec.m_min = 4;
    s.wan[0].loss = Loss::Bursts {
        rate: 0.03,
        burst: 10.0,
    };
}

fn above_t(s: &mut Scenario, _: &mut Rng) {
    s.lasts = 4 * SECOND;
    for side in 0..2 {
        s.core[side].fec.rdma_mtu = 256;
        s.core[side].fec.m_min = 1;
    }
    for connection in &mut s.connections {
        // Messages of one packet: no FIRST or MIDDLE tells the MTU.
        connection.workload.min_octets = 100;
        connection.workload.max_octets = 1_000;
        connection.workload.outstanding = 64;
    }
}

fn long_reads(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 5 * SECOND;
    for (n, connection) in s.connections.iter_mut().enumerate() {
        let recovery = Recovery::Selective { reorder: 2 * MS };
        connection.transport = RequesterConfig::for_path(recovery, 1024, 40_000_000, 20 * MS);
        connection.transport.retries = 200;
        connection.workload.reads = 0.5;
        if n == 0 {
            connection.workload.max_octets = 2_000_000;
        }
    }
    let responses = rng.chance(0.7);
    for cfg in &mut s.core {
        cfg.responses = responses;
        cfg.fec.m_min = 1;
    }
    s.peers[1] = if rng.chance(0.3) {
        Peer::RequestsOnly
    } else {
        Peer::Gateway
    };
}

fn no_room_to_retain(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 4 * SECOND;
    match rng.below(3) {
        0 => s.core[0].csf.retain_packets = 64,
        1 => s.core[0].csf.retain_octets = 50_000,
        _ => s.core[0].csf.retain_packets_per_flow = 10,
    }
}

fn no_room_to_hold(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 4 * SECOND;
    s.core[1].crf.hold = Hold::Fixed(40 * MS);
    match rng.below(2) {
        0 => s.core[1].crf.hold_packets = 8,
        _ => s.core[1].crf.hold_octets = 10_000,
    }
}

fn no_room_to_decode(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 4 * SECOND;
    s.core[0].fec.m_min = 2;
    match rng.below(3) {
        0 => s.core[1].crf.keep_packets = 40,
        1 => s.core[1].crf.keep_octets = 40_000,
        _ => s.core[1].crf.max_open_blocks = 1,
    }
    s.steps.push((SECOND, Step::Shortage(1, 100)));
    s.steps.push((SECOND, Step::Shortage(0, 100)));
}

fn copies_only(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 4 * SECOND;
    s.core[1].crf.rounds = rng.below(2) as u8;
    s.wan[1].control_loss = 0.1;
}

fn exclusive_or(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 4 * SECOND;
    for cfg in &mut s.core {
        cfg.fec.schemes = if rng.chance(0.5) { 0b110 } else { 0b111 };
        cfg.fec.m_max = 1;
        cfg.fec.m_min = 1;
    }
}

fn path_reporter(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 5 * SECOND;
    s.reporter = true;
    s.core[0].fec.m_min = if rng.chance(0.7) { 2 } else { 0 };
    if rng.chance(0.7) {
        s.core[0].reporters = vec![Prefix::host(gateway::reporter().ip())];
    }
}

fn answers_get_lost(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 5 * SECOND;
    s.channel = Some([0, 1].map(|_| {
        let mut path = PathConfig::clean(10 * MS);
        path.loss = Loss::Uniform(0.5);
        path.control_loss = 0.3;
        path.duplicate = 0.2;
        path
    }));
    s.core[0].fec.m_min = rng.below(3) as u8;
}

fn single_packets(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 8 * SECOND;
    s.core[0].fec.m_min = rng.below(2) as u8;
    for connection in &mut s.connections {
        connection.workload.max_octets = 3_000;
        connection.workload.outstanding = 1;
        connection.workload.pause = 5 * MS;
    }
}

fn closed_by_peer(s: &mut Scenario, _: &mut Rng) {
    s.lasts = 6 * SECOND;
    s.steps.push((2 * SECOND, Step::Close(1)));
    s.steps.push((4 * SECOND, Step::Close(0)));
}

fn acks_repeated(s: &mut Scenario, _: &mut Rng) {
    s.lasts = 3 * SECOND;
    s.wan[0].duplicate = 0.3;
    s.wan[1].duplicate = 0.3;
    s.wan[0].control_loss = 0.3;
}

fn congested(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 5 * SECOND;
    s.core[0].fec.m_min = 2;
    let marking = if rng.chance(0.6) {
        Marking::Step(40_000)
    } else {
        Marking::Off
    };
    s.wan[0].queue = Some(QueueConfig {
        rate: 120e6,
        capacity: 400_000,
        marking,
        cross: None,
    });
}
