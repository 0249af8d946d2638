//! Directed scenarios that reach flows in states where they seldom meet an event: idle, reused or closed
//! while something is still waited for. The others, and the list of all, are in `directed`.

use super::directed::{HELLO, HELLO_ACK, LOSS_REPORT, MS, PARAM_ACK, SECOND, connection, slow};
use super::{Scenario, Step};
use crate::rng::Rng;
use crate::{Duration, Instant};

/// Traffic in single messages, far apart, from a sender that forgets flows soon.
fn seldom(s: &mut Scenario, idle: Duration, pause: Duration) {
    for cfg in &mut s.core {
        cfg.csf.idle = idle;
        cfg.csf.start_after = 4;
    }
    for connection in &mut s.connections {
        connection.workload.outstanding = 1;
        connection.workload.max_octets = 16_384;
        connection.workload.min_octets = 8_192;
        connection.workload.pause = pause;
    }
}

pub(super) fn idle_before_answer(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 10 * SECOND;
    seldom(s, 60 * MS, 300 * MS);
    match rng.below(3) {
        0 => s.steps.push((Duration::ZERO, Step::Mute(0, vec![HELLO]))),
        1 => s
            .steps
            .push((Duration::ZERO, Step::Mute(1, vec![PARAM_ACK]))),
        _ => s.core[0].csf.hello_rate = 1,
    }
}

pub(super) fn idle_while_silent(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 4, 2_000);
    s.lasts = 14 * SECOND;
    let muted = vec![LOSS_REPORT, HELLO_ACK];
    s.steps.push((SECOND, Step::Mute(1, muted)));
    s.core[0].csf.idle = 2 * SECOND;
    if rng.chance(0.5) {
        s.core[0].csf.hello_rate = 1;
    }
    for connection in &mut s.connections {
        connection.workload.messages = 60 + rng.below(60) as u32;
    }
}

/// The same queue pair again after a while, with PSNs far away.
fn again(s: &mut Scenario, rng: &mut Rng, after: Duration) {
    for n in 0..4u32 {
        let mut again = connection(rng, n, 20);
        again.transport.first = (1 << 22) + 100_000 + rng.below(1 << 20);
        again.workload.start = Instant(after.as_nanos() as u64);
        let first = &mut s.connections[n as usize];
        first.transport.first = 1_000;
        s.connections.push(again);
    }
}

pub(super) fn reused_early(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 4 * SECOND;
    s.connections.truncate(4);
    again(s, rng, 300 * MS);
    for connection in &mut s.connections {
        connection.workload.messages = 10;
    }
    match rng.below(4) {
        0 => s.core[0].csf.start_after = 10_000,
        1 => s.core[0].csf.hello_rate = 1,
        2 => s.steps.push((Duration::ZERO, Step::Mute(0, vec![HELLO]))),
        _ => s
            .steps
            .push((Duration::ZERO, Step::Mute(1, vec![PARAM_ACK]))),
    }
}

pub(super) fn reused_while_silent(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 4, 2_000);
    s.lasts = 12 * SECOND;
    again(s, rng, 6 * SECOND);
    s.steps
        .push((2 * SECOND, Step::Mute(1, vec![LOSS_REPORT, HELLO_ACK])));
    if rng.chance(0.5) {
        s.core[0].csf.hello_rate = 2;
    }
}

/// Connections that share a queue pair take turns: PSNs jump to and fro by less than reuse.
pub(super) fn far_jumps(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 5 * SECOND;
    s.connections.truncate(4);
    for n in 0..4u32 {
        let mut later = connection(rng, n, 40);
        s.connections[n as usize].transport.first = 1_000;
        s.connections[n as usize].workload.messages = 60;
        later.transport.first = 200_000 + rng.below(100_000);
        later.workload.start = Instant((SECOND).as_nanos() as u64);
        s.connections.push(later);
    }
}

pub(super) fn few_open_blocks(s: &mut Scenario, rng: &mut Rng) {
    s.lasts = 3 * SECOND;
    s.core[1].crf.max_open_blocks = 1 + rng.below(2) as u16;
    for cfg in &mut s.core {
        cfg.fec.m_min = 1;
        cfg.fec.k = 4;
        cfg.fec.max_k = 4;
    }
}

pub(super) fn closed_while_silent(s: &mut Scenario, rng: &mut Rng) {
    slow(s, rng, 4, 2_000);
    s.lasts = 12 * SECOND;
    s.steps
        .push((2 * SECOND, Step::Mute(1, vec![LOSS_REPORT, HELLO_ACK])));
    let side = rng.below(2) as usize;
    s.steps.push((6 * SECOND, Step::Close(side)));
    if rng.chance(0.5) {
        s.core[0].csf.hello_rate = 2;
    }
}
