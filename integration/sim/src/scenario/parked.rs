//! Directed scenarios that keep flows in a state of the negotiation and let happen there whatever can: by
//! their construction, whatever the seed. The round trip is long, so that each state lasts for seconds.

use super::directed::{
    Direct, HELLO, HELLO_ACK, LOSS_REPORT, MS, PARAM_ACK, SECOND, connection, slow,
};
use super::{Scenario, Step};
use crate::endpoint::rc::{Recovery, RequesterConfig};
use crate::net::path::PathConfig;
use crate::rng::Rng;
use crate::{Duration, Instant};

/// All of them, with their names.
pub(super) const ALL: &[(&str, Direct)] = &[
    ("leave while observed", |s, _| leave(s, Stay::Observed)),
    ("leave the queue", |s, _| leave(s, Stay::Queued)),
    ("leave while HELLO is out", |s, _| leave(s, Stay::Greeting)),
    ("leave before the first configuration", |s, _| {
        leave(s, Stay::Configuring)
    }),
    ("leave while active", |s, _| leave(s, Stay::Active)),
    ("leave while silent", |s, _| leave(s, Stay::Silent(1))),
    ("leave while silent and greeting", |s, _| {
        leave(s, Stay::Silent(512))
    }),
    ("leave while held off", |s, _| leave(s, Stay::HeldOff)),
    ("pushed out while HELLO is out", |s, _| {
        push_out(s, Stay::Greeting)
    }),
    ("pushed out before the first configuration", |s, _| {
        push_out(s, Stay::Configuring)
    }),
    ("pushed out while active", |s, _| push_out(s, Stay::Active)),
    ("pushed out while silent", |s, _| {
        push_out(s, Stay::Silent(2));
    }),
    ("heard of again", heard_again),
    ("closed before the first configuration", |s, _| {
        closed(s, Stay::Configuring)
    }),
    ("closed while silent and waiting", |s, _| {
        closed(s, Stay::Silent(2))
    }),
    ("silent for too long", too_long),
    ("no memory for any configuration", |s, _| no_memory(s, 8)),
    ("memory for small configurations", |s, _| no_memory(s, 20)),
    ("a change unanswered", change_unanswered),
    ("given up by the receiver", given_up),
    ("given up by the receiver while it binds anew", |s, _| {
        given_up_binding_anew(s)
    }),
];

/// One way between the gateways.
const DELAY: Duration = Duration::from_millis(200);
const RTT: Duration = Duration::from_millis(400);
/// When messages of the receiver function begin to get lost, where flows are to fall silent.
const SILENCE: Duration = Duration::from_millis(1_500);
/// Flows that a state is looked at with; the first two are reused, the next two fall idle.
const FLOWS: u32 = 8;

/// Where flows are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stay {
    Observed,
    Queued,
    Greeting,
    Configuring,
    Active,
    /// So many at once may have a HELLO out, the others wait for it.
    Silent(u32),
    HeldOff,
}

/// A long way, and slow flows from side 0 alone.
fn far(s: &mut Scenario) {
    let path = PathConfig::clean(DELAY);
    s.wan = [path.clone(), path];
    for cfg in &mut s.core {
        cfg.domain_rtt = Some(RTT);
        cfg.csf.start_after = 2;
    }
    slow(s, &mut Rng::new(s.seed), FLOWS, 2_000);
    for connection in &mut s.connections {
        slow_flow(connection);
    }
}

fn slow_flow(connection: &mut super::Connection) {
    connection.side = 0;
    let recovery = Recovery::Selective { reorder: RTT / 8 };
    let first = connection.transport.first;
    connection.transport = RequesterConfig::for_path(recovery, 1024, 2_000_000, RTT);
    connection.transport.first = first;
    connection.transport.retries = 200;
    connection.workload.outstanding = 4;
    connection.workload.min_octets = 2_048;
    connection.workload.max_octets = 8_192;
    connection.workload.pause = 50 * MS;
}

/// Brings flows into a state and keeps them there: the time at which all of them are in it. They are for
/// at least two seconds more. Further knobs of the sender are set before.
fn keep(s: &mut Scenario, stay: Stay) -> Duration {
    far(s);
    let mut mute = |at, names: &[&'static str]| s.steps.push((at, Step::Mute(1, names.to_vec())));
    match stay {
        Stay::Observed => s.core[0].csf.start_after = 1_000_000,
        Stay::Queued => s.core[0].csf.report_budget = 1,
        Stay::Greeting => mute(Duration::ZERO, &[HELLO_ACK]),
        Stay::Configuring => mute(Duration::ZERO, &[PARAM_ACK]),
        Stay::Active => {}
        Stay::Silent(hellos) => {
            mute(SILENCE, &[LOSS_REPORT, HELLO_ACK]);
            let mut cfg = s.core[0].clone();
            cfg.csf.hello_outstanding = hellos;
            s.steps.push((SILENCE, Step::Configure(0, Box::new(cfg))));
        }
        Stay::HeldOff => {
            s.core[1].fec.max_t = 500;
            s.core[0].csf.retry_first = 30 * SECOND;
        }
    }
    match stay {
        // Silence is noticed after four round trips.
        Stay::Silent(_) => SILENCE + RTT * 9,
        Stay::Active => 2 * SECOND,
        _ => SECOND,
    }
}

/// Some queue pairs are reused, others fall idle, and at last all flows end.
fn leave(s: &mut Scenario, stay: Stay) {
    s.core[0].csf.idle = SECOND;
    let at = keep(s, stay);
    for n in 0..2 {
        s.steps.push((at, Step::Unplug(n)));
        let mut again = connection(&mut Rng::new(s.seed), n as u32, 1);
        slow_flow(&mut again);
        s.connections[n].transport.first = 1_000;
        again.transport.first = (1 << 22) + 100_000;
        again.workload.start = Instant((at + SECOND / 5).as_nanos() as u64);
        s.connections.push(again);
    }
    for n in 2..4 {
        s.steps.push((at - SECOND / 2, Step::Unplug(n)));
    }
    s.steps.push((at + SECOND, Step::Close(0)));
    s.lasts = at + SECOND + SECOND / 5;
}

/// Reports are affordable for the first four flows; then busier ones come.
fn push_out(s: &mut Scenario, stay: Stay) {
    // A flow costs two and a half reports a second.
    s.core[0].csf.report_budget = 11;
    let at = keep(s, stay);
    let later = at - SECOND * 7 / 10;
    for (n, connection) in s.connections.iter_mut().enumerate().skip(4) {
        connection.workload.outstanding = 16;
        connection.workload.min_octets = 8_192;
        connection.workload.pause = Duration::ZERO;
        connection.transport.rate = 8_000_000;
        let start = later + MS * n as u32;
        connection.workload.start = Instant(start.as_nanos() as u64);
    }
    // One ranking finds what is too much, the next one acts on it.
    s.lasts = later + 3 * SECOND;
}

fn heard_again(s: &mut Scenario, _: &mut Rng) {
    let at = keep(s, Stay::Silent(2));
    s.steps.push((at, Step::Mute(1, vec![HELLO_ACK])));
    s.lasts = at + 2 * SECOND;
}

fn closed(s: &mut Scenario, stay: Stay) {
    let at = keep(s, stay);
    s.steps.push((at + SECOND / 2, Step::Close(1)));
    s.lasts = at + 2 * SECOND;
}

fn too_long(s: &mut Scenario, _: &mut Rng) {
    s.core[0].csf.silence_close = SECOND;
    let at = keep(s, Stay::Silent(2));
    s.lasts = at + 2 * SECOND;
}

/// The receiver has memory for blocks of so many packets: a first configuration is refused, half of it too if
/// that is still too much. Later changes ask for the whole again.
fn no_memory(s: &mut Scenario, packets: u32) {
    keep(s, Stay::Active);
    s.core[1].crf.keep_packets = packets;
    s.core[0].fec.adapt_k = false;
    let mut cfg = s.core[0].clone();
    cfg.fec.m_min = 2;
    s.steps
        .push((3 * SECOND, Step::Configure(0, Box::new(cfg))));
    s.lasts = 5 * SECOND;
}

/// Flows are active, and no change of parameters is ever acknowledged.
fn change_unanswered(s: &mut Scenario, _: &mut Rng) {
    slow(s, &mut Rng::new(s.seed), 4, 2_000);
    s.steps.push((2 * SECOND, Step::Mute(1, vec![PARAM_ACK])));
    let mut cfg = s.core[0].clone();
    cfg.fec.m_min = 6;
    s.steps
        .push((2 * SECOND, Step::Configure(0, Box::new(cfg))));
    s.lasts = 14 * SECOND;
}

/// Nothing is heard of bound flows any more.
fn given_up(s: &mut Scenario, _: &mut Rng) {
    let at = keep(s, Stay::Active);
    s.core[1].crf.idle = SECOND;
    fall_dumb(s, at);
}

/// Nor of flows that have been offered another Flow ID besides.
fn given_up_binding_anew(s: &mut Scenario) {
    let at = keep(s, Stay::Silent(512));
    s.core[1].crf.idle = SECOND;
    s.steps
        .push((at, Step::Mute(0, vec![HELLO, "PARAM_UPDATE", "CLOSE"])));
    fall_dumb(s, at);
}

fn fall_dumb(s: &mut Scenario, at: Duration) {
    for n in 0..FLOWS as usize {
        s.steps.push((at, Step::Unplug(n)));
    }
    s.lasts = at + 2 * SECOND;
}
