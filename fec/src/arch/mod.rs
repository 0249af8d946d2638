//! Kernels over octets, one file per instruction set, and the table that holds the chosen ones. They
//! know coefficients and buffers only; symbols, positions and schemes live above.

mod scalar;

use crate::engine::Isa;

/// The kernels of one instruction set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernels {
    isa: Isa,
}

impl Kernels {
    /// The portable ones.
    pub(crate) const fn scalar() -> Self {
        Self { isa: Isa::Scalar }
    }

    /// Those of `isa`, if this processor can run them.
    pub(crate) fn new(isa: Isa) -> Option<Self> {
        match isa {
            Isa::Scalar => Some(Self::scalar()),
        }
    }

    /// Whose they are.
    pub(crate) const fn isa(&self) -> Isa {
        self.isa
    }

    /// acc ^= factor * src over the octets of `src`; `acc` is at least as long.
    pub(crate) fn mul_add(&self, factor: u8, src: &[u8], acc: &mut [u8]) {
        match self.isa {
            Isa::Scalar => scalar::mul_add(factor, src, acc),
        }
    }
}
