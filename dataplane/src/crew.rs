//! The threads of the workers: each on a CPU of its own, the first one on the thread that began. What a
//! worker does is in `worker.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;
use std::time::Duration;

use crem_core::time::Instant;
use crem_dpdk::thread::{Affinity, block_realtime_signals};
use crem_dpdk::{Clock, Eal, Registrar};

use crate::dpdk::Dpdk;
use crate::numa::Plan;
use crate::start::Failure;
use crate::worker::Worker;

/// Longest wait at the end for workers that send by the queues of the first one.
const LAST_TURNS: Duration = Duration::from_secs(1);

/// Runs the workers until they are told to stop. Those that the plan leaves alone run as the process began.
///
/// # Errors
/// If a thread cannot be had.
pub(crate) fn run(
    workers: Vec<Worker<Dpdk>>,
    (plan, began): (&Plan, Affinity),
    eal: &Eal,
    clock: Clock,
) -> Result<(), Failure> {
    let now = move || Instant(clock.now_ns());
    let mut workers = workers.into_iter();
    let Some(mut home) = workers.next() else {
        return Ok(());
    };
    let mut others = Vec::new();
    for (number, worker) in (1..).zip(workers) {
        let affinity = plan.affinity(number)?.unwrap_or(began);
        let registrar = eal.registrar();
        let run = move || away(worker, &affinity, &registrar, clock);
        let name = format!("crem-worker-{number}");
        others.push(std::thread::Builder::new().name(name).spawn(run)?);
    }
    or_abort(|| home.run(&now));
    let until = now() + LAST_TURNS;
    while others.iter().any(|other| !other.is_finished()) && now() < until {
        home.turn(&now);
    }
    others.into_iter().for_each(wait_for);
    home.turn(&now);
    home.end(&now);
    Ok(())
}

fn wait_for(worker: JoinHandle<()>) {
    if worker.join().is_err() {
        tracing::error!("a worker panicked at its end");
    }
}

/// A worker on a thread of its own.
fn away(worker: Worker<Dpdk>, affinity: &Affinity, registrar: &Registrar, clock: Clock) {
    let now = || Instant(clock.now_ns());
    // The tap driver's signal per frame is the first worker's business.
    if let Err(e) = affinity.apply().and_then(|()| block_realtime_signals()) {
        tracing::warn!("a worker runs where it can: {e}");
    }
    let lcore = registrar.register();
    if let Err(e) = &lcore {
        tracing::warn!("a worker has no cache of buffers: {e}");
    }
    let mut worker = worker;
    or_abort(|| worker.run(&now));
    worker.end(&now);
}

/// What panics outside the guard of a segment cannot go on, and a worker alone cannot end: its queues
/// would be served by nobody.
fn or_abort(run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        tracing::error!("a worker panicked: the process ends");
        std::process::abort();
    }
}
