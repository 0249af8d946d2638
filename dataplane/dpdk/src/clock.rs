//! A monotonic clock in nanoseconds that costs one instruction pair where the processor's counter can be
//! trusted. No calendar time lives here.

use std::time::{Duration, Instant};

/// The processor's time stamp counter (9 ns). Its unit is the processor's business: see [`Clock`].
#[inline]
pub fn rdtsc() -> u64 {
    // SAFETY: reads a counter.
    unsafe { dpdk_sys::shim_rdtsc() }
}

/// Where a [`Clock`] takes its time from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeSource {
    /// The processor's counter: 9 ns a reading.
    Tsc,
    /// `clock_gettime`: 23 ns a reading.
    Kernel,
}

/// Nanoseconds since the clock was made. Copies agree with each other on all threads.
///
/// The counter is used only where the kernel itself keeps time by it (then it runs at one rate, on all
/// cores alike). Its rate is measured against the kernel's monotonic clock for 20 ms, which leaves an
/// error of about ten parts in a million: fine for intervals of a protocol, not for a calendar.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    tsc: Option<Tsc>,
}

#[derive(Clone, Copy, Debug)]
struct Tsc {
    start: u64,
    /// Nanoseconds per tick, 32 fractional bits.
    scale: u64,
}

/// How long a rate is measured.
const MEASURE: Duration = Duration::from_millis(20);

impl Clock {
    /// Measures for 20 ms where the counter can be used, else returns at once.
    pub fn new() -> Clock {
        if kernel_trusts_tsc() {
            Clock::by_tsc()
        } else {
            Clock::by_kernel()
        }
    }

    fn by_kernel() -> Clock {
        Clock {
            start: Instant::now(),
            tsc: None,
        }
    }

    fn by_tsc() -> Clock {
        let (t0, c0) = pair();
        std::thread::sleep(MEASURE);
        let (t1, c1) = pair();
        let ns = (t1 - t0).as_nanos();
        let ticks = u128::from(c1.wrapping_sub(c0)).max(1);
        match u64::try_from((ns << 32) / ticks) {
            Ok(scale) if scale > 0 => Clock {
                start: t0,
                tsc: Some(Tsc { start: c0, scale }),
            },
            _ => Clock::by_kernel(),
        }
    }

    /// What it reads.
    pub fn source(&self) -> TimeSource {
        if self.tsc.is_some() {
            TimeSource::Tsc
        } else {
            TimeSource::Kernel
        }
    }

    /// Nanoseconds since the clock was made. Never goes back on one thread.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        match self.tsc {
            Some(tsc) => {
                // On a core whose counter lags a little behind, the start may seem to lie ahead.
                let ticks = rdtsc().saturating_sub(tsc.start);
                let ns = (u128::from(ticks) * u128::from(tsc.scale)) >> 32;
                u64::try_from(ns).unwrap_or(u64::MAX)
            }
            None => u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::new()
    }
}

/// Both clocks at one moment: of a few tries the one that was least disturbed.
fn pair() -> (Instant, u64) {
    let mut best = (u64::MAX, Instant::now(), rdtsc());
    for _ in 0..16 {
        let before = rdtsc();
        let time = Instant::now();
        let took = rdtsc().saturating_sub(before);
        if took < best.0 {
            best = (took, time, before + took / 2);
        }
    }
    (best.1, best.2)
}

fn kernel_trusts_tsc() -> bool {
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cfg!(target_arch = "x86_64") && std::fs::read_to_string(SOURCE).is_ok_and(|s| s.trim() == "tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agrees_with_the_kernel(clock: Clock) {
        let (c0, t0) = (clock.now_ns(), Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        let (c1, t1) = (clock.now_ns(), Instant::now());
        let ours = Duration::from_nanos(c1 - c0).as_secs_f64();
        let theirs = (t1 - t0).as_secs_f64();
        assert!(
            (ours / theirs - 1.0).abs() < 0.01,
            "{ours} s against {theirs} s"
        );
    }

    #[test]
    fn both_sources_count_nanoseconds() {
        assert_eq!(Clock::by_kernel().source(), TimeSource::Kernel);
        agrees_with_the_kernel(Clock::by_kernel());
        agrees_with_the_kernel(Clock::new());
        if kernel_trusts_tsc() {
            assert_eq!(Clock::new().source(), TimeSource::Tsc);
        }
    }

    #[test]
    fn never_goes_back() {
        let clock = Clock::new();
        let mut last = 0;
        for _ in 0..100_000 {
            let now = clock.now_ns();
            assert!(now >= last);
            last = now;
        }
    }
}
