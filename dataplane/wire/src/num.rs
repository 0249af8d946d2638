//! Newtypes of the protocol numbers that several layers share: PSN, QP number, Flow ID, Config ID,
//! Request ID. Nothing here parses; the header modules do.

use core::fmt;
use core::num::{NonZeroU16, NonZeroU32};

/// A 24-bit packet sequence number (BTH). Ordered only by serial distance, so it has no `Ord`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// Number of PSNs before the count wraps: 2^24.
    pub const SPACE: u32 = 1 << 24;
    /// Largest serial distance that counts as "ahead": 2^23 - 1.
    pub const HALF: i32 = 1 << 23;

    /// The PSN in the low 24 bits of `value`; higher bits are dropped.
    pub const fn new(value: u32) -> Self {
        Self(value & (Self::SPACE - 1))
    }

    /// The 24-bit value.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Serial distance from `earlier` to `self`, in -2^23 ..= 2^23 - 1 (RFC 1982 style, modulo 2^24).
    pub const fn distance_from(self, earlier: Psn) -> i32 {
        let forward = self.0.wrapping_sub(earlier.0) & (Self::SPACE - 1);
        if forward >= Self::HALF as u32 {
            forward as i32 - Self::SPACE as i32
        } else {
            forward as i32
        }
    }

    /// The PSN `count` positions later, modulo 2^24; a negative `count` goes back.
    #[must_use]
    pub const fn add(self, count: i32) -> Self {
        Self::new(self.0.wrapping_add(count as u32))
    }

    /// Whether `self` lies 1 ..= 2^23 - 1 positions beyond `other`.
    pub const fn is_after(self, other: Psn) -> bool {
        self.distance_from(other) > 0
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Psn({:#08x})", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06x}", self.0)
    }
}

/// A 24-bit queue pair number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// The queue pair of the connection manager.
    pub const CM: Self = Self(1);

    /// The QP number in the low 24 bits of `value`; higher bits are dropped.
    pub const fn new(value: u32) -> Self {
        Self(value & 0x00ff_ffff)
    }

    /// The 24-bit value.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// A CREM Flow ID as assigned by a CRF; zero is never assigned (HELLO and PATH_REPORT carry zero).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FlowId(NonZeroU32);

impl FlowId {
    /// `None` for zero.
    pub const fn new(value: u32) -> Option<Self> {
        match NonZeroU32::new(value) {
            Some(v) => Some(Self(v)),
            None => None,
        }
    }

    /// The value, never zero.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

/// The identifier of a (scheme, k, m, T) configuration of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ConfigId(pub u8);

/// The identifier of a REPAIR_REQUEST, and as Repair Session ID of the answers; never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestId(NonZeroU16);

impl RequestId {
    /// `None` for zero.
    pub const fn new(value: u16) -> Option<Self> {
        match NonZeroU16::new(value) {
            Some(v) => Some(Self(v)),
            None => None,
        }
    }

    /// The value, never zero.
    pub const fn get(self) -> u16 {
        self.0.get()
    }

    /// The next identifier, wrapping over zero.
    #[must_use]
    pub const fn next(self) -> Self {
        match NonZeroU16::new(self.0.get().wrapping_add(1)) {
            Some(v) => Self(v),
            None => Self(NonZeroU16::MIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_is_serial() {
        let wrap = Psn::new(0xff_ffff);
        assert_eq!(Psn::new(1).distance_from(wrap), 2);
        assert_eq!(wrap.distance_from(Psn::new(1)), -2);
        assert_eq!(Psn::new(0x7f_ffff).distance_from(Psn::new(0)), 0x7f_ffff);
        assert_eq!(Psn::new(0x80_0000).distance_from(Psn::new(0)), -0x80_0000);
        assert_eq!(Psn::new(0).add(-1), wrap);
    }

    #[test]
    fn request_id_skips_zero() {
        assert_eq!(RequestId::new(0xffff).map(|id| id.next().get()), Some(1));
    }
}
