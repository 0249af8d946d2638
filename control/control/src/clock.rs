//! The two clocks of the machine, read here and nowhere else.

use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

use crate::commit::Now;

/// This moment.
pub fn now() -> Now {
    Now {
        boot_ms: clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |t| {
            let ms = t.tv_sec() * 1000 + t.tv_nsec() / 1_000_000;
            u64::try_from(ms).unwrap_or(0)
        }),
        wall_ms: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .ok()
            .and_then(|d| u64::try_from(d.as_millis()).ok())
            .unwrap_or(0),
    }
}
