//! The FEC schemes and the coefficient that each gives a source position in a repair symbol. All three
//! are linear, so encoding and decoding need nothing else of a scheme.

use crate::cauchy;

/// A FEC scheme of the CREM registry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// 0: the symbol with Repair Index i is source symbol i.
    Copy,
    /// 1: Cauchy Reed-Solomon over GF(2^8).
    Cauchy,
    /// 2: the XOR of all sources, Repair Index 0 only.
    Xor,
}

impl Scheme {
    /// The scheme with this number; `None` if it is not assigned.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Copy),
            1 => Some(Self::Cauchy),
            2 => Some(Self::Xor),
            _ => None,
        }
    }

    /// The number in the registry.
    pub const fn number(self) -> u8 {
        match self {
            Self::Copy => 0,
            Self::Cauchy => 1,
            Self::Xor => 2,
        }
    }

    /// The factor of source `position` in the symbol with Repair Index `index`; `None` if the scheme
    /// has no such symbol or position.
    pub fn coefficient(self, index: u8, position: u8) -> Option<u8> {
        match self {
            Self::Copy => Some(u8::from(index == position)),
            Self::Cauchy => cauchy::coefficient(index, position),
            Self::Xor => (index == 0).then_some(1),
        }
    }
}
