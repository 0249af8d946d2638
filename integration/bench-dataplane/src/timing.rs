//! Measuring on a machine that others use too: the processor's counter around every turn, and short
//! batches of turns, of which those are left out in which the thread did not run all the time.

use std::time::Duration;

use crem_dpdk::{Clock, rdtsc};
use nix::time::{ClockId, clock_gettime};

/// Turns of a batch.
pub const BATCH: usize = 16;
/// Batches that are looked at together, so that what comes once in a block is in each stretch.
const STRETCH: usize = 16;
/// What the two clocks may differ by without a cause.
const TOLERANCE: Duration = Duration::from_micros(3);

/// Processor time of this thread so far.
pub fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Counts per nanosecond of the processor's counter.
pub fn tsc_per_ns(clock: &Clock) -> f64 {
    let (ns, tsc) = (clock.now_ns(), rdtsc());
    std::thread::sleep(Duration::from_millis(20));
    let (ns_after, tsc_after) = (clock.now_ns(), rdtsc());
    (tsc_after - tsc) as f64 / (ns_after - ns).max(1) as f64
}

/// What turns took.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// Counts of the batches that count, with their packets.
    batches: Vec<(u64, u64)>,
    /// Counts of each turn of them, by packet, in hundredths.
    turns: Vec<u32>,
    /// Batches left out.
    left_out: usize,
    /// Nothing is noted.
    pub is_off: bool,
    pending: Vec<u32>,
    /// Counts of the turns of the batch that has begun.
    counts: u64,
    /// Something else that is read before and after each turn, always.
    pub probe: Option<fn() -> u64>,
    /// By how much it grew during turns.
    pub probed: u64,
}

/// A batch that has begun.
#[derive(Debug)]
pub struct Begun {
    cpu: Duration,
    wall: std::time::Instant,
}

impl Meter {
    /// Begins a batch.
    pub fn begin(&mut self) -> Begun {
        self.pending.clear();
        self.counts = 0;
        let (cpu, wall) = (thread_time(), std::time::Instant::now());
        Begun { cpu, wall }
    }

    /// Notes a turn of `packets` packets in a batch.
    #[inline]
    pub fn turn(&mut self, counts: u64, packets: u64) {
        self.counts += counts;
        if let Some(each) = counts.saturating_mul(100).checked_div(packets) {
            self.pending.push(u32::try_from(each).unwrap_or(u32::MAX));
        }
    }

    /// Ends a batch with `packets` packets.
    pub fn end(&mut self, begun: &Begun, packets: u64) {
        let wall = begun.wall.elapsed();
        let cpu = thread_time().saturating_sub(begun.cpu);
        if self.is_off || packets == 0 {
            return;
        }
        if wall.saturating_sub(cpu) > TOLERANCE.max(wall / 50) {
            self.left_out += 1;
            return;
        }
        self.batches.push((self.counts, packets));
        self.turns.append(&mut self.pending);
    }

    /// What the turns of several workers come to.
    pub fn cost<'a>(meters: impl Iterator<Item = &'a Self> + Clone) -> Cost {
        let batches = || meters.clone().flat_map(|meter| &meter.batches);
        let counts: u64 = batches().map(|b| b.0).sum();
        let packets: u64 = batches().map(|b| b.1).sum();
        let stretch = |batches: &[(u64, u64)]| {
            let sum = |of: fn(&(u64, u64)) -> u64| batches.iter().map(of).sum::<u64>() as f64;
            sum(|b| b.0) / sum(|b| b.1)
        };
        let stretches = meters
            .clone()
            .flat_map(|meter| meter.batches.chunks_exact(STRETCH));
        let mut each: Vec<f64> = stretches.map(stretch).collect();
        each.sort_by(f64::total_cmp);
        let mut turns: Vec<u32> = meters
            .clone()
            .flat_map(|meter| &meter.turns)
            .copied()
            .collect();
        turns.sort_unstable();
        let turn = |q: f64| at(&turns, q).map_or(f64::NAN, |c| f64::from(c) / 100.0);
        Cost {
            mean: counts as f64 / packets as f64,
            median: at(&each, 0.5).unwrap_or(f64::NAN),
            least: at(&each, 0.1).unwrap_or(f64::NAN),
            p50: turn(0.5),
            p99: turn(0.99),
            p999: turn(0.999),
            packets,
            batches: batches().count(),
            left_out: meters.map(|meter| meter.left_out).sum(),
        }
    }
}

/// The value below which a share `q` of sorted values lies.
pub fn at<T: Copy>(sorted: &[T], q: f64) -> Option<T> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * q).round() as usize).copied()
}

/// Counts of the processor's counter for each packet.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Of all batches that count.
    pub mean: f64,
    /// Of the stretch in the middle.
    pub median: f64,
    /// Of the stretch that a tenth undercut: what it takes while others on the machine disturb least.
    pub least: f64,
    /// Of the turn in the middle.
    pub p50: f64,
    /// Of the turn that 1 % exceed.
    pub p99: f64,
    /// Of the turn that 0.1 % exceed.
    pub p999: f64,
    /// Packets measured.
    pub packets: u64,
    /// Batches that count.
    pub batches: usize,
    /// Batches left out.
    pub left_out: usize,
}
