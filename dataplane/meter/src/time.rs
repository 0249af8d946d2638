//! Time of observation. The caller maps its monotonic clock to UTC once and keeps the mapping within an
//! epoch, so that time does not step (AMB-SEQ-TIME).

use core::time::Duration;

/// Nanoseconds since 1970-01-01T00:00:00 UTC, leap seconds not counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Utc(pub u64);

impl Utc {
    /// A time given in milliseconds since 1970; the latest time that can be told if it is beyond.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Whole milliseconds since 1970, as flowStartMilliseconds has them.
    pub const fn millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Whole seconds since 1970, as the export time has them (before it is cut to 32 bits).
    pub const fn seconds(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self` and a duration later; the latest time that can be told if that is beyond.
    #[must_use]
    pub const fn after(self, duration: Duration) -> Self {
        let nanos = duration.as_nanos();
        Self(if nanos > u64::MAX as u128 {
            u64::MAX
        } else {
            self.0.saturating_add(nanos as u64)
        })
    }
}

/// Nanoseconds of a duration, the most that can be told if it is longer.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
