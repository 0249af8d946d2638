//! The shape that all vector kernels share: a few sources times a few rows in one walk over the
//! columns. The factors stay in registers in multiplied-out form, an accumulator is touched once per
//! column instead of once per source, and the sources that come next are prefetched column by column.

use super::{Factors, MAX_ROWS, MAX_SOURCES};

/// Octets of a step: a cache line, so that each line of what comes next is asked for once.
const STEP: usize = 64;

/// One call of a kernel. Only as many entries as the kernel's shape says are filled.
pub(super) struct Call {
    /// Rows, valid for reads and writes of `len` octets.
    pub(super) rows: [*mut u8; MAX_ROWS],
    /// Sources, valid for reads of `len` octets.
    pub(super) sources: [*const u8; MAX_SOURCES],
    /// What to prefetch beside each source; never dereferenced.
    pub(super) next: [*const u8; MAX_SOURCES],
    /// By row, then by source.
    pub(super) factors: Factors,
    /// Octets to combine.
    pub(super) len: usize,
}

impl Call {
    /// A call over these rows, without sources yet.
    pub(super) fn new(rows: &mut [&mut [u8]], len: usize) -> Self {
        let mut pointers = [core::ptr::null_mut(); MAX_ROWS];
        for (pointer, row) in pointers.iter_mut().zip(rows.iter_mut()) {
            *pointer = row.as_mut_ptr();
        }
        Self {
            rows: pointers,
            sources: [core::ptr::null(); MAX_SOURCES],
            next: [core::ptr::null(); MAX_SOURCES],
            factors: [[0; MAX_SOURCES]; MAX_ROWS],
            len,
        }
    }

    /// Puts in the sources, and beside each what to prefetch. Where `next` ends early the last of it
    /// is repeated: asking for the same line twice costs nothing.
    pub(super) fn set_sources(&mut self, sources: &[&[u8]], next: &[&[u8]]) {
        let mut ahead = core::ptr::null();
        for (n, source) in sources.iter().enumerate().take(MAX_SOURCES) {
            self.sources[n] = source.as_ptr();
            if let Some(octets) = next.get(n) {
                ahead = octets.as_ptr();
            }
            self.next[n] = ahead;
        }
    }
}

/// A kernel of one shape.
///
/// # Safety
/// The processor has the kernel's instructions. The first M rows of the call are valid for reads and
/// writes of `len` octets, alias nothing else of the call, and the first G sources are valid for reads
/// of `len` octets.
pub(super) type GroupFn = unsafe fn(&Call);

/// The kernels of one instruction set. Row counts are 1, 2, 3, 4 and 8; other counts are made of these.
pub(super) struct Table {
    /// Accumulating ones by `[prefetch][row count][binary logarithm of the source count]`.
    pub(super) accumulate: [[[GroupFn; 4]; 5]; 2],
    /// Overwriting ones by `[prefetch][row count]`, for the preferred source count only.
    pub(super) overwrite: [[GroupFn; 5]; 2],
    /// Sources per call that serve best, by row count: powers of two.
    pub(super) preferred: [u8; 5],
}

impl Table {
    /// Sources per call that serve best.
    pub(super) fn preferred(&self, rows: usize) -> usize {
        usize::from(self.preferred[class(rows)])
    }

    /// The kernel that adds `sources` (a power of two up to the preferred) to `rows`.
    pub(super) fn accumulate(&self, rows: usize, sources: usize, prefetch: bool) -> GroupFn {
        self.accumulate[usize::from(prefetch)][class(rows)][sources.ilog2() as usize]
    }

    /// The kernel that does not read `rows`, for the preferred number of sources.
    pub(super) fn overwrite(&self, rows: usize, prefetch: bool) -> GroupFn {
        self.overwrite[usize::from(prefetch)][class(rows)]
    }
}

/// The place of a row count, one of 1, 2, 3, 4, 8, in the tables.
fn class(rows: usize) -> usize {
    rows.clamp(1, 5) - 1
}

/// Makes the table of one instruction set out of its entry function, generic over rows, sources,
/// overwriting and prefetching, and the preferred number of sources for 1, 2, 3, 4 and 8 rows.
macro_rules! table {
    ($entry:ident, $one:literal $two:literal $three:literal $four:literal $eight:literal) => {
        $crate::arch::group::Table {
            accumulate: [
                $crate::arch::group::accumulate!($entry, false, $one $two $three $four $eight),
                $crate::arch::group::accumulate!($entry, true, $one $two $three $four $eight),
            ],
            overwrite: [
                $crate::arch::group::overwrite!($entry, false, $one $two $three $four $eight),
                $crate::arch::group::overwrite!($entry, true, $one $two $three $four $eight),
            ],
            preferred: [$one, $two, $three, $four, $eight],
        }
    };
}

/// Places beyond the preferred number of sources are never asked for; they repeat the largest, so that
/// no kernel is made that nobody calls.
macro_rules! accumulate {
    ($entry:ident, $prefetch:literal, $one:literal $two:literal $three:literal $four:literal $eight:literal) => {
        [
            $crate::arch::group::accumulate!(@rows $entry, $prefetch, 1, $one),
            $crate::arch::group::accumulate!(@rows $entry, $prefetch, 2, $two),
            $crate::arch::group::accumulate!(@rows $entry, $prefetch, 3, $three),
            $crate::arch::group::accumulate!(@rows $entry, $prefetch, 4, $four),
            $crate::arch::group::accumulate!(@rows $entry, $prefetch, 8, $eight),
        ]
    };
    (@rows $entry:ident, $prefetch:literal, $rows:literal, $most:literal) => {
        [
            $entry::<$rows, 1, false, $prefetch>,
            $entry::<$rows, { if $most < 2 { $most } else { 2 } }, false, $prefetch>,
            $entry::<$rows, { if $most < 4 { $most } else { 4 } }, false, $prefetch>,
            $entry::<$rows, $most, false, $prefetch>,
        ]
    };
}

macro_rules! overwrite {
    ($entry:ident, $prefetch:literal, $one:literal $two:literal $three:literal $four:literal $eight:literal) => {
        [
            $entry::<1, $one, true, $prefetch>,
            $entry::<2, $two, true, $prefetch>,
            $entry::<3, $three, true, $prefetch>,
            $entry::<4, $four, true, $prefetch>,
            $entry::<8, $eight, true, $prefetch>,
        ]
    };
}

pub(super) use {accumulate, overwrite, table};

/// A vector register of octets with the operations that the group kernel needs. All functions must be
/// inlined into a caller that enables the instruction set.
///
/// # Safety
/// Every function: the processor has the instruction set, and pointers are valid for what is read or
/// written there.
pub(super) trait Lanes: Copy {
    /// Octets in a register; divides [`STEP`].
    const OCTETS: usize;
    /// Parts of a register are loaded and stored directly, and `OCTETS` is [`STEP`]. Otherwise
    /// [`Lanes::load_part`] goes through memory, and the last register of a buffer is taken from its
    /// end instead.
    const MASKED: bool;
    /// A factor in multiplied-out form.
    type Matrix: Copy;

    /// The form of a factor.
    unsafe fn matrix(factor: u8) -> Self::Matrix;
    /// All zeros.
    unsafe fn zero() -> Self;
    /// `OCTETS` octets, any alignment.
    unsafe fn load(from: *const u8) -> Self;
    /// Writes `OCTETS` octets, any alignment.
    unsafe fn store(self, to: *mut u8);
    /// The first `count` octets, fewer than `OCTETS`; the others are zero and not read.
    unsafe fn load_part(from: *const u8, count: usize) -> Self;
    /// Writes the first `count` octets, fewer than `OCTETS`.
    unsafe fn store_part(self, to: *mut u8, count: usize);
    /// Zeros in place of the first `count` octets, at most `OCTETS`.
    unsafe fn clear_first(self, count: usize) -> Self;
    /// Sum in the field.
    unsafe fn add(self, other: Self) -> Self;
    /// Product with a factor.
    unsafe fn multiply(self, matrix: Self::Matrix) -> Self;
    /// Asks for a line of memory; the address need not be valid.
    unsafe fn prefetch(address: *const u8);
}

/// The group kernel: M rows, G sources.
///
/// # Safety
/// As [`GroupFn`] and [`Lanes`].
#[inline(always)]
pub(super) unsafe fn run<
    V: Lanes,
    const M: usize,
    const G: usize,
    const OVERWRITE: bool,
    const PREFETCH: bool,
>(
    call: &Call,
) {
    // SAFETY: each access below is at an offset whose register ends at or before `len` (the loops test
    // it, the tail starts at `len - OCTETS` or takes `len - at` octets), and the caller vouches for
    // `len` octets behind each pointer. Prefetches use wrapping addresses and read nothing.
    unsafe {
        let mut matrices = [[V::matrix(0); G]; M];
        for (row, factors) in matrices.iter_mut().zip(&call.factors) {
            for (matrix, factor) in row.iter_mut().zip(factors) {
                *matrix = V::matrix(*factor);
            }
        }
        let len = call.len;
        let mut at = 0;
        const { assert!(STEP.is_multiple_of(V::OCTETS) && (!V::MASKED || V::OCTETS == STEP)) };
        while at + STEP <= len {
            if PREFETCH {
                for next in call.next.iter().take(G) {
                    V::prefetch(next.wrapping_add(at));
                }
            }
            let mut lane = 0;
            while lane < STEP {
                column::<V, M, G, OVERWRITE>(call, &matrices, at + lane, |from| V::load(from));
                lane += V::OCTETS;
            }
            at += STEP;
        }
        if len < V::OCTETS || V::MASKED {
            // A masked register is as wide as a step, so less than one is left.
            if at < len {
                part::<V, M, G, OVERWRITE>(call, &matrices, at, len - at);
            }
            return;
        }
        while at < len {
            // The last register ends with the buffer and may begin with octets that are done already:
            // overwritten they come out the same again, accumulated they must not be added twice.
            let start = at.min(len - V::OCTETS);
            let done = if OVERWRITE { 0 } else { at - start };
            let load = |from| V::load(from).clear_first(done);
            column::<V, M, G, OVERWRITE>(call, &matrices, start, load);
            at = start + V::OCTETS;
        }
    }
}

/// One register of every row.
///
/// # Safety
/// As [`run`]; `at + OCTETS` is at most `len`.
#[inline(always)]
unsafe fn column<V: Lanes, const M: usize, const G: usize, const OVERWRITE: bool>(
    call: &Call,
    matrices: &[[V::Matrix; G]; M],
    at: usize,
    load: impl Fn(*const u8) -> V,
) {
    // SAFETY: the caller's, passed on; `at` is inside every buffer of `len` octets.
    unsafe {
        let mut sums = [V::zero(); M];
        if !OVERWRITE {
            for (sum, row) in sums.iter_mut().zip(&call.rows) {
                *sum = V::load(row.add(at));
            }
        }
        for g in 0..G {
            let octets = load(call.sources[g].add(at));
            for (sum, row) in sums.iter_mut().zip(matrices) {
                *sum = sum.add(octets.multiply(row[g]));
            }
        }
        for (sum, row) in sums.into_iter().zip(&call.rows) {
            sum.store(row.add(at));
        }
    }
}

/// The last octets of every row, fewer than a register.
///
/// # Safety
/// As [`run`]; `at + rest` is `len`.
#[inline(always)]
unsafe fn part<V: Lanes, const M: usize, const G: usize, const OVERWRITE: bool>(
    call: &Call,
    matrices: &[[V::Matrix; G]; M],
    at: usize,
    rest: usize,
) {
    // SAFETY: the caller's, passed on; only `rest` octets behind `at` are touched.
    unsafe {
        let mut sums = [V::zero(); M];
        if !OVERWRITE {
            for (sum, row) in sums.iter_mut().zip(&call.rows) {
                *sum = V::load_part(row.add(at), rest);
            }
        }
        for g in 0..G {
            let octets = V::load_part(call.sources[g].add(at), rest);
            for (sum, row) in sums.iter_mut().zip(matrices) {
                *sum = sum.add(octets.multiply(row[g]));
            }
        }
        for (sum, row) in sums.into_iter().zip(&call.rows) {
            sum.store_part(row.add(at), rest);
        }
    }
}
