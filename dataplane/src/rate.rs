//! The rate of the WAN that a segment may use (`wan_rate_mbit`). Sources always go; what they leave of the
//! rate is for repair, and where they leave nothing, repair waits and ages. All workers of a segment draw
//! from one account.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crem_core::time::Instant;

/// What a frame takes on the wire besides its octets: preamble, FCS and the gap.
const FRAME_OVERHEAD: u64 = 24;
/// What may be saved up, nanoseconds of the rate: bursts of repair at the end of a block are not spread out.
const DEPTH_NS: u64 = 2_000_000;

/// An account of octets. Several workers may use it at once; what one of two simultaneous refills adds is
/// added once.
#[derive(Debug)]
pub struct WanRate {
    mbit: u64,
    octets: AtomicI64,
    refilled: AtomicU64,
}

impl WanRate {
    /// An account of this rate, full at `now`.
    pub fn new(mbit: u32, now: Instant) -> Self {
        let mbit = u64::from(mbit);
        Self {
            mbit,
            octets: AtomicI64::new(signed(octets_in(mbit, DEPTH_NS))),
            refilled: AtomicU64::new(now.0),
        }
    }

    /// Octets that `frames` frames of `octets` octets take on the wire.
    pub fn on_wire(frames: u64, octets: u64) -> u64 {
        octets + frames * FRAME_OVERHEAD
    }

    /// Takes out what was sent, be there as much or not: sources do not wait.
    pub fn spend(&self, on_wire: u64) {
        self.octets.fetch_sub(signed(on_wire), Ordering::Relaxed);
    }

    /// Octets that repair may take now.
    pub fn room(&self, now: Instant) -> u64 {
        let before = self.refilled.load(Ordering::Relaxed);
        let elapsed = now.0.saturating_sub(before);
        let added = octets_in(self.mbit, elapsed);
        let mine = added > 0
            && self
                .refilled
                .compare_exchange(before, now.0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if mine {
            let most = signed(octets_in(self.mbit, DEPTH_NS));
            let fill = |have: i64| Some(have.saturating_add(signed(added)).min(most));
            // It always succeeds.
            let _ = self
                .octets
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fill);
        }
        u64::try_from(self.octets.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

/// Megabits a second are bits a microsecond.
fn octets_in(mbit: u64, ns: u64) -> u64 {
    mbit.saturating_mul(ns) / 8_000
}

fn signed(octets: u64) -> i64 {
    i64::try_from(octets).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_go_into_debt_and_repair_waits_until_it_is_paid() {
        // 1 Gbit/s: 125 octets a microsecond.
        let rate = WanRate::new(1000, Instant(0));
        assert_eq!(rate.room(Instant(0)), 250_000);
        rate.spend(WanRate::on_wire(100, 400_000 - 2400));
        assert_eq!(rate.room(Instant(0)), 0);
        assert_eq!(rate.room(Instant(1_000_000)), 0, "150,000 less 125,000");
        assert_eq!(rate.room(Instant(1_400_000)), 25_000);
        // What nobody uses is not saved up without end.
        assert_eq!(rate.room(Instant(1_000_000_000)), 250_000);
    }
}
