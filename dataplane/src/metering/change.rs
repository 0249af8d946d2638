//! Another part on IPFIX of the document while frames pass: what the auxiliary thread builds, how a segment
//! takes it between two turns, and how the meters that go make their last records. Which meters stay as they
//! are is decided in `crem-meter`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crem_core::time::{Duration, Instant};
use crem_meter::point::Place;
use crem_meter::{Meter, MeterError, Revision, Utc};

use super::counters::{ignored, sum};
use super::observe::BUDGET;
use super::ring::Outbox;
use super::{Metering, MeteringConfig, UtcClock, tap};
use crate::buffer::{BURST, Platform};
use crate::classify::Side;
use crate::segment::Segment;

/// Time for the last records of meters that go. What finds no room in the ring for so long is lost.
const PATIENCE: Duration = Duration::from_secs(2);

/// What one segment of a worker observes from now on. After use it holds what was replaced, but for the meters
/// that still have records to make.
#[derive(Debug)]
pub struct Change {
    /// Segment, in the order of the document.
    pub segment: usize,
    config: MeteringConfig,
    revision: Revision,
    /// The worker's end of a ring, and UTC less its clock, where nothing was observed before.
    start: Option<(Outbox, u64)>,
}

impl Change {
    /// From what is observed to what shall be.
    ///
    /// # Errors
    /// Meters that cannot be built.
    pub fn new(
        segment: usize,
        before: &MeteringConfig,
        after: MeteringConfig,
        start: Option<(Outbox, u64)>,
    ) -> Result<Self, MeterError> {
        let mut revision = Revision::new(
            (&before.scopes, &before.points),
            (&after.scopes, &after.points),
            after.worker,
            after.memory,
        )?;
        if before.parse != after.parse {
            revision.change_layer();
        }
        Ok(Self {
            segment,
            config: after,
            revision,
            start,
        })
    }
}

/// Meters that are no longer shown anything.
#[derive(Debug)]
pub(super) struct Gone {
    pub(super) meter: Meter,
    /// Until then they wait for room.
    until: Instant,
}

impl<P: Platform> Metering<P> {
    /// Takes a change. Nothing of what came in the turns before is lost.
    fn change(&mut self, now: Instant, change: &mut Change) {
        let step = AssertUnwindSafe(|| self.revise(now, change));
        if catch_unwind(step).is_err() {
            self.failed(now);
        }
    }

    fn revise(&mut self, now: Instant, change: &mut Change) {
        self.finish(self.clock.utc(now));
        core::mem::swap(&mut self.config, &mut change.config);
        let passes = |places: &[Place]| places.iter().any(|place| self.config.has(*place));
        let out = passes(&[Place::LanIngress, Place::WanEgress]);
        let back = passes(&[
            Place::WanIngress,
            Place::LanEgressBeforeRepair,
            Place::LanEgressAfterRepair,
        ]);
        self.lan.keep(out);
        self.wan.keep(back);
        if self.tells_restored() {
            self.restored.reserve(BURST);
        }
        // After a panic it is built of the new configuration when it begins anew.
        if let Some(meter) = &mut self.meter {
            self.gone = Some(Gone {
                meter: meter.revise(&mut change.revision),
                until: now + PATIENCE,
            });
        }
        self.next_tick = now;
    }

    /// Lets meters that go make some of their records, while there is room. New observers begin only after
    /// them, so that the collector gets the end of an epoch before the next one of the connection.
    pub(super) fn drain(&mut self, now: Instant, utc: Utc) {
        let Some(gone) = &mut self.gone else {
            return;
        };
        if now >= gone.until {
            self.finish(utc);
            return;
        }
        if !self.outbox.has_room() || gone.meter.drain(utc, BUDGET, &mut self.outbox) {
            self.next_tick = now;
            return;
        }
        self.let_go();
    }

    /// Has meters that go make all of their records.
    pub(super) fn finish(&mut self, utc: Utc) {
        if let Some(gone) = &mut self.gone {
            while gone.meter.drain(utc, usize::MAX, &mut self.outbox) {}
            self.let_go();
        }
    }

    fn let_go(&mut self) {
        if let Some(gone) = self.gone.take() {
            self.ignored_before = sum(self.ignored_before, ignored(&gone.meter));
            self.outbox.free(gone.meter);
            self.begin();
        }
    }

    /// Nothing is observed, and all that was is handed over.
    pub(crate) fn is_over(&mut self) -> bool {
        self.config.points.is_empty()
            && self.gone.is_none()
            && self.again_at.is_none()
            && self.outbox.hand_over()
    }
}

impl<P: Platform> Segment<P> {
    /// Observes from now on what a change says.
    pub fn observe(&mut self, now: Instant, change: &mut Change) {
        let start = change.start.take();
        if self.metering.is_none()
            && let Some((outbox, offset)) = start
        {
            let clock = UtcClock::new(offset, now);
            self.metering = Some(Metering::new(change.config.worker, outbox, clock));
        }
        if let Some(metering) = &mut self.metering {
            metering.change(now, change);
        }
        self.tap();
    }

    /// Keeps of what leaves what metering wants to be shown.
    pub(crate) fn tap(&mut self) {
        let metering = self.metering.as_ref();
        let wants = |side| metering.is_some_and(|m| m.wants_egress(side));
        let (lan, wan) = (wants(Side::Lan), wants(Side::Wan));
        let restored = metering.is_some_and(Metering::tells_restored);
        for (tapped, wanted) in [
            (&mut self.lan.tap, lan),
            (&mut self.wan.tap, wan),
            (&mut self.restored, restored),
        ] {
            if tapped.is_some() != wanted {
                *tapped = tap(wanted);
            }
        }
    }
}
