//! Kernels over octets, one file per instruction set, and the table that holds the chosen ones. They
//! know factors and buffers only; symbols, positions and schemes live above. Everything that is unsafe
//! in this crate is below this module, and [`Kernels::combine`] is the one way in.
#![allow(unsafe_code)]

mod group;
mod scalar;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx2_gfni;
#[cfg(target_arch = "x86_64")]
mod avx512_gfni;
#[cfg(target_arch = "x86_64")]
mod avx512bw;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::engine::Isa;
use group::{Call, Table};

/// Most rows of one call.
pub(crate) const MAX_ROWS: usize = 8;
/// Most sources of one call.
pub(crate) const MAX_SOURCES: usize = 8;

/// Factors by row, then by source.
pub(crate) type Factors = [[u8; MAX_SOURCES]; MAX_ROWS];

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

    /// How many sources a call with `rows` rows should get: a power of two.
    pub(crate) fn group_size(&self, rows: usize) -> usize {
        self.table.preferred(first_rows(rows))
    }

    /// rows[r] += sum over s of factors[r][s] * sources[s], over the first `len` octets of each; with
    /// `overwrite` the rows' contents do not count. The octets of `next` are asked into the cache on
    /// the way.
    ///
    /// Buffers shorter than `len` cut it down; rows and sources beyond the maxima are left out.
    pub(crate) fn combine(
        &self,
        rows: &mut [&mut [u8]],
        sources: &[&[u8]],
        factors: &Factors,
        len: usize,
        overwrite: bool,
        next: &[&[u8]],
    ) {
        let sources = sources
            .get(..sources.len().min(MAX_SOURCES))
            .unwrap_or_default();
        let len = sources
            .iter()
            .map(|source| source.len())
            .fold(len, usize::min);
        let len = rows.iter().map(|row| row.len()).fold(len, usize::min);
        let (mut rows, mut factors, mut next) = (rows, &factors[..], next);
        while !rows.is_empty() && !factors.is_empty() && len > 0 {
            let count = first_rows(rows.len()).min(factors.len());
            let (some, others) = rows.split_at_mut(count);
            self.combine_some(some, sources, factors, len, overwrite, next);
            // Sources are in the cache for the other rows, and what comes next has been asked for.
            (rows, factors, next) = (others, &factors[count..], &[]);
        }
    }

    /// [`Kernels::combine`] for a number of rows that there are kernels for, and `len` within all
    /// buffers. A number of sources other than the preferred is taken in several calls.
    fn combine_some(
        &self,
        rows: &mut [&mut [u8]],
        sources: &[&[u8]],
        factors: &[[u8; MAX_SOURCES]],
        len: usize,
        overwrite: bool,
        next: &[&[u8]],
    ) {
        let most = self.group_size(rows.len());
        let mut overwrite = overwrite;
        if overwrite && sources.len() < most {
            rows.iter_mut().for_each(|row| row[..len].fill(0));
            overwrite = false;
        }
        let mut call = Call::new(rows, len);
        let mut at = 0;
        while at < sources.len() {
            let size = most.min(1 << (sources.len() - at).ilog2());
            let prefetch = at < next.len();
            call.set_sources(&sources[at..at + size], next.get(at..).unwrap_or_default());
            for (own, all) in call.factors.iter_mut().zip(factors) {
                own[..size].copy_from_slice(&all[at..at + size]);
            }
            let kernel = if overwrite {
                self.table.overwrite(rows.len(), prefetch)
            } else {
                self.table.accumulate(rows.len(), size, prefetch)
            };
            // SAFETY: a table other than the portable one is reached only through `Kernels::new` after
            // its `available()`, so the processor has the instructions. `call` was filled from slices
            // that are borrowed here for longer than the call: every row pointer is valid for reads
            // and writes and every source pointer for reads of `len` octets, since `combine` made `len`
            // at most the length of each; rows are exclusive borrows, so nothing aliases them. The
            // kernel was looked up for exactly this number of rows, which `first_rows` chose among
            // those there are, and of sources: `size` is a power of two up to the preferred, and on
            // the first round with `overwrite` it is the preferred, since there are at least as many.
            unsafe { kernel(&call) };
            overwrite = false;
            at += size;
        }
    }
}

/// How many of `rows` rows to work on first: a number that there are kernels for.
const fn first_rows(rows: usize) -> usize {
    match rows {
        0..=4 => rows,
        5..=7 => 4,
        _ => MAX_ROWS,
    }
}

#[cfg(test)]
mod tests;
