//! Kernels over octets, one file per instruction set and one per register, and the table that holds the
//! chosen ones. They
//! know factors and buffers only; symbols, positions and schemes live above. Everything that is unsafe
//! in this crate is below this module, and [`Bank`] is the one way in.
#![allow(unsafe_code)]

mod bank;
mod group;
mod hint;
mod scalar;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx2_gfni;
#[cfg(target_arch = "x86_64")]
mod avx512_gfni;
#[cfg(target_arch = "x86_64")]
mod avx512bw;
#[cfg(target_arch = "x86_64")]
mod bits;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(feature = "peers")]
pub mod peers;
#[cfg(target_arch = "x86_64")]
mod ymm;
#[cfg(target_arch = "x86_64")]
mod zmm;

use crate::engine::Isa;
pub(crate) use bank::Bank;
use group::Table;

/// Most rows of one call.
pub(crate) const MAX_ROWS: usize = 8;
/// Most sources of one call.
pub(crate) const MAX_SOURCES: usize = 32;

/// The factors of one source, by row.
pub(crate) type Column = [u8; MAX_ROWS];

/// The kernels of one instruction set. A value exists only for one that this processor has.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    isa: Isa,
    table: &'static Table,
}

impl core::fmt::Debug for Kernels {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Kernels").field(&self.isa).finish()
    }
}

impl Kernels {
    /// The portable ones.
    pub(crate) const fn scalar() -> Self {
        Self {
            isa: Isa::Scalar,
            table: &scalar::TABLE,
        }
    }

    /// Those of `isa`, if this build has them and this processor can run them.
    pub(crate) fn new(isa: Isa) -> Option<Self> {
        let table: &'static Table = match isa {
            Isa::Scalar => &scalar::TABLE,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 if avx2::available() => &avx2::TABLE,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2Gfni if avx2_gfni::available() => &avx2_gfni::TABLE,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bw if avx512bw::available() => &avx512bw::TABLE,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Gfni if avx512_gfni::available() => &avx512_gfni::TABLE,
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => &neon::TABLE,
            _ => return None,
        };
        Some(Self { isa, table })
    }

    /// Whose they are.
    pub(crate) const fn isa(&self) -> Isa {
        self.isa
    }
}

#[cfg(test)]
mod tests;
