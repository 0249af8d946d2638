//! Whether the workers still run. One that does not come round any more forwards nothing and never will:
//! the process ends, and whoever started it starts it again, with ports that forward before anything else
//! is built.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Looks at the workers in the time after which one of them is stuck. This thread's own pauses are no
/// looks: what stops it too, such as a debugger, stops nothing here.
const LOOKS: u32 = 8;

/// Watches the heartbeats of workers.
pub(super) struct Watchdog {
    beats: Vec<(Arc<AtomicU64>, u64, u32)>,
    limit: Duration,
}

impl Watchdog {
    /// One that ends the process when a worker has not come round for `limit`; never where that is zero.
    pub(super) fn new(beats: Vec<Arc<AtomicU64>>, limit: Duration) -> Self {
        let beats = beats.into_iter().map(|beat| (beat, 0, 0)).collect();
        Self { beats, limit }
    }

    /// Looks again and again, until the workers are told to end: one that has is not stuck.
    pub(super) async fn watch(mut self, stop: Arc<AtomicBool>) {
        if self.limit.is_zero() {
            return;
        }
        loop {
            tokio::time::sleep(self.limit / LOOKS).await;
            if stop.load(Ordering::Relaxed) {
                return;
            }
            if let Some(worker) = self.look() {
                tracing::error!(
                    "worker {worker} has not come round for {:?}: the process ends",
                    self.limit
                );
                std::process::abort();
            }
        }
    }

    /// A worker that is stuck. One that has not begun is not.
    fn look(&mut self) -> Option<usize> {
        let mut stuck = None;
        for (worker, (beat, seen, same)) in self.beats.iter_mut().enumerate() {
            let now = beat.load(Ordering::Relaxed);
            *same = if now == *seen && now > 0 {
                *same + 1
            } else {
                0
            };
            *seen = now;
            if *same >= LOOKS {
                stuck = Some(worker);
            }
        }
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_does_not_come_round_is_found() {
        let beats = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
        let mut dog = Watchdog::new(beats.to_vec(), Duration::from_millis(200));
        for _ in 0..20 {
            assert_eq!(dog.look(), None, "none has begun");
        }
        for round in 1..20 {
            beats.iter().for_each(|b| b.store(round, Ordering::Relaxed));
            assert_eq!(dog.look(), None);
        }
        for round in 20..19 + u64::from(LOOKS) {
            assert_eq!(dog.look(), None);
            beats[0].store(round, Ordering::Relaxed);
        }
        assert_eq!(dog.look(), Some(1));
    }
}
