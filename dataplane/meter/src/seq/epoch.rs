//! One epoch: what happens to the counters with each request (table 1 in section 5 of the sequence
//! draft), and the snapshot that a report carries. Whether a packet is a request of the connection is
//! decided elsewhere.

use crem_wire::Psn;

use super::window::{Label, Window};
use crate::Utc;

const HALF: u32 = 1 << 23;

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It is accounted to the epoch.
    Counted,
    /// It lies more than W ahead or exactly half the space away: the epoch closes with
    /// serialDiscontinuity and the request starts the next one. Nothing was changed.
    Discontinuity,
    /// A counter would pass its limit: the epoch closes and the request starts the next one. Nothing was
    /// changed.
    Exhausted,
}

/// The cumulative counters of an epoch, in positions or packets as the elements of the same names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// skippedPsnTotalCount, positions.
    pub skipped: u64,
    /// filledPsnTotalCount, positions.
    pub filled: u64,
    /// expiredPsnTotalCount, positions.
    pub expired: u64,
    /// abandonedPsnTotalCount, positions; 0 unless the epoch is closed.
    pub abandoned: u64,
    /// pendingPsnCount, positions; 0 if the epoch is closed.
    pub pending: u32,
    /// repeatedPsnTotalCount, packets.
    pub repeated: u64,
    /// requestPacketTotalCount, packets.
    pub requests: u64,
    /// unclassifiedLatePacketTotalCount, packets.
    pub unclassified_late: u64,
}

impl Counts {
    /// Whether the three relations of section 5 hold within a window of `width` positions.
    pub fn is_consistent(&self, width: u32) -> bool {
        let sum = [self.filled, self.expired, self.abandoned]
            .iter()
            .fold(u128::from(self.pending), |sum, &part| {
                sum + u128::from(part)
            });
        let accounted = u128::from(self.repeated)
            + u128::from(self.unclassified_late)
            + u128::from(self.filled);
        u128::from(self.skipped) == sum
            && self.pending < width
            && accounted < u128::from(self.requests)
    }
}

/// The state of an active epoch.
#[derive(Clone, Debug)]
pub struct Epoch {
    window: Window,
    requests: u64,
    skipped: u64,
    filled: u64,
    expired: u64,
    repeated: u64,
    late: u64,
    start: Utc,
    end: Utc,
}

impl Epoch {
    /// No epoch yet, with memory for windows up to `width`.
    pub fn new(width: u32) -> Self {
        Self {
            window: Window::new(width),
            requests: 0,
            skipped: 0,
            filled: 0,
            expired: 0,
            repeated: 0,
            late: 0,
            start: Utc(0),
            end: Utc(0),
        }
    }

    /// Forgets everything and starts with one request.
    pub fn start(&mut self, now: Utc, width: u32, psn: Psn) {
        self.window.set_width(width);
        self.window.restart(psn);
        self.requests = 1;
        self.skipped = 0;
        self.filled = 0;
        self.expired = 0;
        self.repeated = 0;
        self.late = 0;
        self.start = now;
        self.end = now;
    }

    /// Accounts a request, unless the epoch has to close before it. No counter passes `limit`.
    #[inline]
    pub fn accept(&mut self, now: Utc, psn: Psn, limit: u64) -> Step {
        let ahead = psn.get().wrapping_sub(self.window.high().get()) & (Psn::SPACE - 1);
        // 0 wraps to the largest value, so this is 1 ..= W.
        if ahead.wrapping_sub(1) < self.window.width() && ahead < HALF {
            return self.forward(now, ahead, limit);
        }
        if ahead != 0 && ahead <= HALF {
            return Step::Discontinuity;
        }
        self.backward(now, ahead.wrapping_neg() & (Psn::SPACE - 1), limit)
    }

    #[inline]
    fn forward(&mut self, now: Utc, ahead: u32, limit: u64) -> Step {
        let jumped = u64::from(ahead - 1);
        if self.requests >= limit || limit - self.skipped < jumped || self.window.is_exhausted() {
            return Step::Exhausted;
        }
        let expired = if ahead == 1 {
            self.window.step()
        } else {
            self.window.advance(ahead)
        };
        self.expired += u64::from(expired);
        self.skipped += jumped;
        self.count(now);
        Step::Counted
    }

    fn backward(&mut self, now: Utc, back: u32, limit: u64) -> Step {
        if self.requests >= limit {
            return Step::Exhausted;
        }
        match self.window.look_back(back) {
            Label::Filled => self.filled += 1,
            Label::Seen => self.repeated += 1,
            Label::Unclassified => self.late += 1,
        }
        self.count(now);
        Step::Counted
    }

    #[inline]
    fn count(&mut self, now: Utc) {
        self.requests += 1;
        self.end = self.end.max(now);
    }

    /// Arrival of the first accounted request.
    pub const fn first(&self) -> Utc {
        self.start
    }

    /// Arrival of the last accounted request, never before the first (AMB-SEQ-TIME).
    pub const fn last(&self) -> Utc {
        self.end
    }

    /// W.
    pub const fn width(&self) -> u32 {
        self.window.width()
    }

    /// The counters as they stand, or with `closed` as the final report has them: what is pending is
    /// abandoned.
    pub fn counts(&self, closed: bool) -> Counts {
        let pending = self.window.pending();
        Counts {
            skipped: self.skipped,
            filled: self.filled,
            expired: self.expired,
            abandoned: if closed { u64::from(pending) } else { 0 },
            pending: if closed { 0 } else { pending },
            repeated: self.repeated,
            requests: self.requests,
            unclassified_late: self.late,
        }
    }
}
