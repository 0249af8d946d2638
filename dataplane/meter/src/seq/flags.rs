//! The qualification flags of a sequence report (section 8.13 of the sequence draft).

use core::ops::{BitOr, BitOrAssign};

/// Masks as they stand on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags(pub u16);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The epoch is closed.
    pub const FINAL: Self = Self(0x0001);
    /// An unsupported or malformed request, or another violation of the profile.
    pub const PROFILE_VIOLATION: Self = Self(0x0002);
    /// Complete observation was interrupted.
    pub const CAPTURE_DISCONTINUITY: Self = Self(0x0004);
    /// The context was given up for want of memory.
    pub const STATE_EXHAUSTION: Self = Self(0x0008);
    /// A jump beyond the window, or an ambiguous serial distance.
    pub const SERIAL_DISCONTINUITY: Self = Self(0x0010);
    /// The generation of the connection is not independently established.
    pub const GENERATION_UNVERIFIED: Self = Self(0x0020);
    /// All causes of closure: zero unless the report is final.
    pub const REASONS: Self = Self(0x001e);
    /// Bits without a meaning: sent as zero, and a report with one is not understood.
    pub const UNASSIGNED: Self = Self(0xffc0);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether a bit of `other` is set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The names of the set bits, in the order of the masks; unassigned ones have none.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [&str; 6] = [
            "finalEpoch",
            "profileViolation",
            "captureDiscontinuity",
            "stateExhaustion",
            "serialDiscontinuity",
            "generationUnverified",
        ];
        (0..)
            .zip(NAMES)
            .filter(move |(bit, _)| self.0 >> bit & 1 != 0)
            .map(|(_, name)| name)
    }
}

impl BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}
