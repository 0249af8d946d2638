//! Leaving mode `active`: held frames go at once, and each flow is told its end with CLOSE, a few flows a turn, while
//! packets pass and whatever is next in force begins. Thousands at once would keep the worker from its ports, and
//! would not fit into queues and buffers.

use core::ops::Range;

use crem_core::time::Instant;

use crate::buffer::Platform;
use crate::protect::Protection;
use crate::segment::Segment;

/// Flows of each function that are closed in a turn.
const CLOSES: u32 = 32;
/// Turns at the end of the process, in which nothing else is done: all of the largest table, and pauses for
/// the device.
const LAST_TURNS: u32 = 100_000;

/// Protection that comes to its end.
pub(crate) struct Leaving<P: Platform> {
    protection: Option<Protection<P>>,
    /// The first slot of the flow tables that is not closed yet.
    next: u32,
}

impl<P: Platform> Segment<P> {
    /// Begins to take leave of the peers; nothing protects from now on. What was leaving still does so at once.
    pub(crate) fn begin_leave(&mut self, now: Instant) {
        while self.leaving.is_some() {
            self.close_some(now);
        }
        if let Some(protection) = &mut self.protection {
            protection.release(now);
        }
        self.settle(now);
        let protection = self.protection.take();
        self.leaving = protection.map(|protection| Leaving {
            protection: Some(protection),
            next: 0,
        });
    }

    /// Protection that has come to its end, for whoever has the time to free it: with many flows that takes
    /// milliseconds.
    pub fn take_spent(&mut self) -> Option<Protection<P>> {
        self.spent.take()
    }

    /// A turn's part of leaving, unless packets wait for the device. Whether there is anything to do.
    pub(crate) fn leave_on(&mut self, now: Instant) -> bool {
        if self.leaving.is_none() {
            return false;
        }
        if self.wan.waiting() == 0 {
            self.close_some(now);
        }
        true
    }

    /// Takes leave to the end, as far as the device takes it.
    pub(crate) fn take_leave(&mut self, now: Instant) {
        self.begin_leave(now);
        for _ in 0..LAST_TURNS {
            if !self.leave_on(now) {
                return;
            }
            self.wan.flush();
        }
    }

    fn close_some(&mut self, now: Instant) {
        let Some(mut leaving) = self.leaving.take() else {
            return;
        };
        let slots = leaving.next..leaving.next.saturating_add(CLOSES);
        leaving.next = slots.end;
        core::mem::swap(&mut self.protection, &mut leaving.protection);
        let more = self.close_slots(now, slots);
        self.settle(now);
        core::mem::swap(&mut self.protection, &mut leaving.protection);
        if more {
            self.leaving = Some(leaving);
        } else {
            self.spent = leaving.protection;
        }
    }

    fn close_slots(&mut self, now: Instant, slots: Range<u32>) -> bool {
        let protection = self.protection.as_mut();
        protection.is_some_and(|protection| protection.close_some(now, slots))
    }
}
