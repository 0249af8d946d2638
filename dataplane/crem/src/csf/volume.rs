//! The volume cap on coded retransmission: symbols and copies of the last second against losses reported
//! and sources sent (AMB-VOLCAP).

use crate::time::Instant;

/// Length of one slot, nanoseconds: an eighth of a second.
const SLOT: u64 = 125_000_000;

/// Share of the sources that coded retransmission may add where its own load is what is lost, as a divisor:
/// every packet of it takes the place of a source.
const CROWDED: u32 = 256;

/// A count over the last `N` slots, the running one included.
#[derive(Clone, Copy, Debug)]
struct Sliding<const N: usize> {
    slots: [u32; N],
    epoch: u64,
}

impl<const N: usize> Sliding<N> {
    const fn new() -> Self {
        Self {
            slots: [0; N],
            epoch: 0,
        }
    }

    fn advance(&mut self, now: Instant) {
        let epoch = now.0 / SLOT;
        let steps = epoch.saturating_sub(self.epoch).min(N as u64);
        for step in 1..=steps {
            self.slots[((epoch - steps + step) % N as u64) as usize] = 0;
        }
        self.epoch = self.epoch.max(epoch);
    }

    fn add(&mut self, count: u32) {
        let slot = &mut self.slots[(self.epoch % N as u64) as usize];
        *slot = slot.saturating_add(count);
    }

    fn sum(&self) -> u32 {
        self.slots.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }
}

/// The cap of one flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Volume {
    /// At least the last second: nine eighths, the running one included.
    sent: Sliding<9>,
    /// At most the last second.
    sources: Sliding<8>,
    losses: [u32; 4],
    /// Sources since the last report, and between the two before it.
    between: [u32; 2],
}

impl Volume {
    pub(super) const fn new() -> Self {
        Self {
            sent: Sliding::new(),
            sources: Sliding::new(),
            losses: [0; 4],
            between: [0; 2],
        }
    }

    /// Counts new source packets.
    pub(super) fn on_sources(&mut self, now: Instant, count: u32) {
        self.sources.advance(now);
        self.sources.add(count);
        self.between[0] = self.between[0].saturating_add(count);
    }

    /// Takes the losses of a report: no more than the sources of the two intervals that it can speak
    /// of, so that a false report draws no more repair than there was traffic.
    pub(super) fn on_report(&mut self, lost: u32) {
        let sent = self.between[0].saturating_add(self.between[1]);
        self.losses.rotate_right(1);
        self.losses[0] = lost.min(sent);
        self.between = [0, self.between[0]];
    }

    /// Symbols and copies that may still be sent now. `crowded`: the path has no room for repair.
    pub(super) fn budget(&mut self, now: Instant, floor: u32, crowded: bool) -> u32 {
        self.sent.advance(now);
        self.sources.advance(now);
        let lost = self
            .losses
            .iter()
            .fold(0u32, |sum, n| sum.saturating_add(*n));
        let sources = self.sources.sum();
        let limit = if crowded {
            floor.max(sources / CROWDED)
        } else {
            floor.max(lost.saturating_mul(2)).max(sources / 4)
        };
        limit.saturating_sub(self.sent.sum())
    }

    /// Counts symbols and copies sent; call after [`Volume::budget`] with the same time.
    pub(super) fn spend(&mut self, count: u32) {
        self.sent.add(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    // shows: AMB-VOLCAP
    #[test]
    fn where_repair_displaces_sources_next_to_nothing_is_sent() {
        let mut volume = Volume::new();
        volume.on_sources(Instant(0), 51_200);
        volume.on_report(10_000);
        assert_eq!(volume.budget(Instant(0), 64, false), 20_000);
        assert_eq!(volume.budget(Instant(0), 64, true), 200);
        volume.spend(190);
        assert_eq!(volume.budget(Instant(0), 64, true), 10);
        assert_eq!(
            volume.budget(Instant(0), 250, true),
            60,
            "not below the floor"
        );
    }

    // shows: AMB-VOLCAP
    #[test]
    fn largest_of_the_three_limits() {
        let mut volume = Volume::new();
        assert_eq!(volume.budget(Instant(0), 64, false), 64);
        volume.on_sources(Instant(0), 1000);
        assert_eq!(volume.budget(Instant(0), 64, false), 250);
        for lost in [100, 50, 100, 50, 100] {
            volume.on_sources(Instant(0), 100);
            volume.on_report(lost);
        }
        assert_eq!(volume.budget(Instant(0), 64, false), 600);
        volume.spend(590);
        assert_eq!(
            volume.budget(Instant(0) + Duration::from_millis(999), 64, false),
            10
        );
        assert_eq!(
            volume.budget(Instant(0) + Duration::from_millis(1200), 64, false),
            600
        );
    }

    #[test]
    fn a_report_cannot_claim_more_than_was_sent() {
        let mut volume = Volume::new();
        volume.on_sources(Instant(0), 100);
        for _ in 0..10 {
            volume.on_report(u32::MAX);
        }
        assert_eq!(volume.budget(Instant(0), 10, false), 25);
        volume.on_sources(Instant(0), 40);
        volume.on_report(u32::MAX);
        assert_eq!(volume.budget(Instant(0), 10, false), 80);
    }

    proptest! {
        #[test]
        fn floor_holds_over_any_second(steps in proptest::collection::vec((0u64..400, 0u32..100), 1..100)) {
            let mut volume = Volume::new();
            let mut sent: Vec<(u64, u32)> = Vec::new();
            let mut ms = 0;
            for (wait, wanted) in steps {
                ms += wait;
                let now = Instant(ms * 1_000_000);
                let count = wanted.min(volume.budget(now, 64, false));
                volume.spend(count);
                sent.push((ms, count));
                let second: u32 = sent.iter().filter(|s| s.0 + 1000 > ms).map(|s| s.1).sum();
                prop_assert!(second <= 64);
            }
        }
    }
}
