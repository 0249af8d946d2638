//! How long a packet is in the gateway at half load: packets come one by one in real time, at half the rate
//! that the gateway was measured to manage.

use crem_dataplane::buffer::Buffer;
use serde_json::{Value, json};

use crate::gateway::Gateway;
use crate::rows::{Plan, Pools, settled};
use crate::seat::Seat;
use crate::timing::{at, thread_time};
use crate::world::{World, is_source};
use crem_core::time::Instant;
use crem_dpdk::{Clock, rdtsc};
use std::time::Duration;

/// Packets of a phase, and the first of them that do not count: they meet caches that the hosts have used.
const PACKETS: usize = 512;
const SKIPPED: usize = 64;
/// Phases.
const PHASES: usize = 300;
/// Time away from the processor that a phase may have.
const TOLERANCE: Duration = Duration::from_micros(3);

/// Times that packets took, nanoseconds.
#[derive(Clone, Debug)]
pub struct Latency {
    /// The row.
    pub title: String,
    /// From arrival in the device to being given to the other one, sorted.
    pub from_arrival: Vec<f64>,
    /// From being received to being given to the other one, sorted.
    pub from_receive: Vec<f64>,
    /// Phases left out because the thread was away.
    pub left_out: usize,
}

impl Latency {
    /// The report's line.
    pub fn line(&self) -> String {
        let us = |sorted: &[f64], q| at(sorted, q).unwrap_or(f64::NAN) / 1e3;
        let list = |sorted| {
            [0.5, 0.99, 0.999]
                .map(|q| format!("{:.2}", us(sorted, q)))
                .join(" / ")
        };
        format!(
            "{:40} at half load, p50 / p99 / p99.9: {} us from arrival to sending, {} us from receiving  left out {:.1} %",
            self.title,
            list(&self.from_arrival),
            list(&self.from_receive),
            self.left_out as f64 * 100.0 / PHASES as f64,
        )
    }

    /// A quantile of the time from being received to being sent, microseconds. How long a packet was in the
    /// ring before is the thread's time only while the thread has the processor.
    pub fn quantile_us(&self, q: f64) -> f64 {
        at(&self.from_receive, q).unwrap_or(f64::NAN) / 1e3
    }

    /// For other programs.
    pub fn to_json(&self) -> Value {
        let list = |sorted: &[f64]| {
            json!({
                "p50": at(sorted, 0.5), "p99": at(sorted, 0.99), "p99.9": at(sorted, 0.999),
            })
        };
        json!({
            "title": self.title,
            "ns_from_arrival": list(&self.from_arrival),
            "ns_from_receive": list(&self.from_receive),
            "packets": self.from_arrival.len(),
            "phases_left_out": self.left_out,
        })
    }
}

/// Measures the way from the hosts to the path in a world of `plan`, whose gateway takes `ns_per_packet`.
///
/// # Errors
/// What went wrong, in words.
pub fn measure(
    plan: &Plan,
    title: &str,
    ns_per_packet: f64,
    pools: &Pools,
    clock: Clock,
    tsc_per_ns: f64,
) -> Result<Latency, String> {
    let mut world = settled(plan, pools, clock)?;
    world.measure(false);
    let mut latency = Latency {
        title: title.to_owned(),
        from_arrival: Vec::new(),
        from_receive: Vec::new(),
        left_out: 0,
    };
    let interval = (2.0 * ns_per_packet) as u64;
    for _ in 0..PHASES {
        phase(&mut world, interval, &clock, tsc_per_ns, &mut latency)?;
    }
    latency.from_arrival.sort_by(f64::total_cmp);
    latency.from_receive.sort_by(f64::total_cmp);
    Ok(latency)
}

fn phase(
    world: &mut World,
    interval: u64,
    clock: &Clock,
    tsc_per_ns: f64,
    latency: &mut Latency,
) -> Result<(), String> {
    let start = world.now().0;
    world.arrive(PACKETS, |n| start + n * interval)?;
    let seat = only(&mut world.sender)?;
    seat.lan().received = Some(Vec::new());
    seat.wan().marks = Some(Vec::new());
    let (cpu, real, tsc) = (thread_time(), clock.now_ns(), rdtsc());
    let now = || start + clock.now_ns() - real;
    let end = start + (PACKETS as u64 + 32) * interval;
    // To the last packet, however late.
    while now() < end || !seat.lan().arriving.is_empty() {
        let present = now();
        seat.lan().now = present;
        seat.wan().now = present;
        seat.segment.turn(&|| Instant(now()));
        seat.wan().note_sent();
    }
    let end = now();
    let wall = Duration::from_nanos(clock.now_ns() - real);
    let away = wall.saturating_sub(thread_time().saturating_sub(cpu));
    let received = seat.lan().received.take().unwrap_or_default();
    let marks = seat.wan().marks.take().unwrap_or_default();
    if away > TOLERANCE.max(wall / 50) {
        latency.left_out += 1;
    } else {
        let lane = seat.wan();
        let mut marks = marks.into_iter().peekable();
        let mut source = 0;
        for (n, (_, frame)) in lane.sent.iter().enumerate() {
            while marks.next_if(|(_, count)| *count <= n).is_some() {}
            let Some((sent, _)) = marks.peek() else { break };
            if !is_source(frame.octets()) {
                continue;
            }
            if source >= SKIPPED {
                let arrived = tsc as f64 + (source as u64 * interval) as f64 * tsc_per_ns;
                latency
                    .from_arrival
                    .push((*sent as f64 - arrived) / tsc_per_ns);
                let taken = received.get(source).copied().unwrap_or(*sent);
                latency
                    .from_receive
                    .push(sent.saturating_sub(taken) as f64 / tsc_per_ns);
            }
            source += 1;
        }
    }
    world.finish(start, end)
}

/// The worker of a gateway that has one.
fn only(gateway: &mut Gateway) -> Result<&mut Seat, String> {
    match gateway.seats.as_mut_slice() {
        [only] => Ok(only),
        _ => Err("the time in the gateway is measured with one worker".into()),
    }
}
