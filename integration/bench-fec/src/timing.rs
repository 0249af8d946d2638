//! Measuring several things in turn: short batches, rotated, those in which the thread did not run all
//! the time left out, medians of the rest.

use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// One thing to measure: runs a number of blocks, says how many it ran.
pub(crate) struct Contender<'c> {
    /// Its name in the report.
    pub(crate) name: String,
    /// Codes some blocks and returns how many.
    pub(crate) run: Box<dyn FnMut() -> usize + 'c>,
}

/// What was measured of one contender.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Its name.
    pub(crate) name: String,
    /// Nanoseconds per block, median.
    pub(crate) median: f64,
    /// Nanoseconds per block, best.
    pub(crate) best: f64,
    /// Batches that count.
    pub(crate) batches: usize,
    /// Batches left out.
    pub(crate) dropped: usize,
}

/// Stays on the present processor, so that caches and clocks are the same ones throughout.
pub(crate) fn pin() -> nix::Result<()> {
    let mut set = CpuSet::new();
    set.set(sched_getcpu()?)?;
    sched_setaffinity(Pid::from_raw(0), &set)
}

fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Runs every contender for `rounds` batches of about `length`, in turn.
pub(crate) fn compete(
    contenders: &mut [Contender<'_>],
    rounds: usize,
    length: Duration,
) -> Vec<Sample> {
    let calls: Vec<u32> = contenders
        .iter_mut()
        .map(|contender| calibrate(contender, length))
        .collect();
    let mut times: Vec<Vec<f64>> = vec![Vec::with_capacity(rounds); contenders.len()];
    let mut dropped = vec![0; contenders.len()];
    for round in 0..rounds {
        for turn in 0..contenders.len() {
            // Another one first each time, so that nobody always follows the same one.
            let at = (turn + round) % contenders.len();
            match batch(&mut contenders[at], calls[at]) {
                Some(time) => times[at].push(time),
                None => dropped[at] += 1,
            }
        }
    }
    let results = contenders.iter().zip(times).zip(dropped);
    results
        .map(|((contender, mut times), dropped)| {
            times.sort_by(f64::total_cmp);
            Sample {
                name: contender.name.clone(),
                median: times.get(times.len() / 2).copied().unwrap_or(f64::NAN),
                best: times.first().copied().unwrap_or(f64::NAN),
                batches: times.len(),
                dropped,
            }
        })
        .collect()
}

/// Calls that make up a batch; warms up on the way.
fn calibrate(contender: &mut Contender<'_>, length: Duration) -> u32 {
    let mut calls = 1u32;
    loop {
        let start = Instant::now();
        (0..calls).for_each(|_| _ = (contender.run)());
        let elapsed = start.elapsed();
        if elapsed >= length / 2 || calls > 1 << 20 {
            let per_call = (elapsed / calls).max(Duration::from_nanos(1));
            return (length.as_nanos() / per_call.as_nanos()).clamp(1, 1 << 20) as u32;
        }
        calls *= 2;
    }
}

/// Nanoseconds per block of one batch; `None` if the thread was away in between.
fn batch(contender: &mut Contender<'_>, calls: u32) -> Option<f64> {
    let (cpu, wall) = (thread_time(), Instant::now());
    let blocks: usize = (0..calls).map(|_| (contender.run)()).sum();
    let wall = wall.elapsed();
    let cpu = thread_time().saturating_sub(cpu);
    let away = wall.saturating_sub(cpu);
    (away <= Duration::from_micros(3).max(wall / 50))
        .then(|| wall.as_nanos() as f64 / blocks as f64)
}
