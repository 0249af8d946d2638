//! The shape that all vector kernels share: a few sources times a few rows in one walk over the
//! columns. The factors stay in registers in multiplied-out form, an accumulator is touched once per
//! column instead of once per source, and the sources that come next are prefetched column by column.

use super::{Column, MAX_ROWS, MAX_SOURCES};

/// Octets of a step: a cache line, so that each line of what comes next is asked for once.
const STEP: usize = 64;

/// One call of a kernel. Only as many entries as the kernel's shape says are filled.
#[derive(Clone, Copy)]
pub(super) struct Call {
    /// Rows.
    pub(super) rows: [*mut u8; MAX_ROWS],
    /// Sources, as if they began where the rows do.
    pub(super) sources: [*const u8; MAX_SOURCES],
    /// What to prefetch beside each source; never dereferenced.
    pub(super) next: [*const u8; MAX_SOURCES],
    /// Factors by source, then by row.
    pub(super) columns: [Column; MAX_SOURCES],
    /// By source, the first octet that it has; for those who make calls.
    pub(super) origins: [usize; MAX_SOURCES],
    /// First octet to work on.
    pub(super) from: usize,
    /// The octet behind the last one to work on.
    pub(super) to: usize,
    /// First octet that every source has; at most `from`.
    pub(super) origin: usize,
}

impl Call {
    /// Nothing yet.
    pub(super) const EMPTY: Self = Self {
        rows: [core::ptr::null_mut(); MAX_ROWS],
        sources: [core::ptr::null(); MAX_SOURCES],
        next: [core::ptr::null(); MAX_SOURCES],
        columns: [[0; MAX_ROWS]; MAX_SOURCES],
        origins: [0; MAX_SOURCES],
        from: 0,
        to: 0,
        origin: 0,
    };

    /// Moves what belongs to the source at `from` to `to`.
    pub(super) fn shift(&mut self, from: usize, to: usize) {
        self.sources[to] = self.sources[from];
        self.next[to] = self.next[from];
        self.columns[to] = self.columns[from];
        self.origins[to] = self.origins[from];
    }

    /// Fills places `from` .. `to` with the first source times zero.
    pub(super) fn pad(&mut self, from: usize, to: usize) {
        for place in from..to.min(MAX_SOURCES) {
            self.shift(0, place);
            self.columns[place] = [0; MAX_ROWS];
        }
    }

    /// Moves all sources `count` places down.
    pub(super) fn drop_sources(&mut self, count: usize) {
        (count..MAX_SOURCES).for_each(|from| self.shift(from, from - count));
    }

    /// The same without the first `count` rows.
    pub(super) fn without_rows(&self, count: usize) -> Self {
        let mut call = *self;
        call.rows.rotate_left(count.min(MAX_ROWS));
        call.columns
            .iter_mut()
            .for_each(|column| column.rotate_left(count.min(MAX_ROWS)));
        call
    }
}

/// A kernel of one shape.
///
/// # Safety
/// The processor has the kernel's instructions. `origin <= from < to`. Octets 0 .. `to` of the first M
/// rows are valid for reads and writes and alias nothing else of the call, and octets `origin` .. `to`
/// of the first G sources are valid for reads.
pub(super) type GroupFn = unsafe fn(&Call);

/// The kernels of one instruction set. Row counts are 1, 2, 3, 4 and 8; other counts are made of these.
pub(super) struct Table {
    /// Without and with prefetching.
    pub(super) kernels: [Kit; 2],
}

/// The kernels of one instruction set that prefetch, or those that do not.
pub(super) struct Kit {
    /// Accumulating ones, by row count and binary logarithm of the source count.
    pub(super) accumulate: [[GroupFn; 4]; 5],
    /// Overwriting ones by row count, for the preferred source count only.
    pub(super) overwrite: [GroupFn; 5],
    /// Sources per call that serve best, by row count: powers of two. Packets that have to come from
    /// memory want many streams at a time; in the cache it is the registers that decide.
    pub(super) preferred: [u8; 5],
}

impl Table {
    /// The kernels that prefetch, or those that do not.
    pub(super) fn kit(&self, prefetch: bool) -> &Kit {
        &self.kernels[usize::from(prefetch)]
    }
}

impl Kit {
    /// Sources per call that serve best.
    pub(super) fn preferred(&self, rows: usize) -> usize {
        usize::from(self.preferred[class(rows)])
    }

    /// The kernel that adds `sources` (a power of two up to the preferred) to `rows`.
    pub(super) fn accumulate(&self, rows: usize, sources: usize) -> GroupFn {
        self.accumulate[class(rows)][sources.ilog2() as usize]
    }

    /// The kernel that does not read `rows`, for the preferred number of sources.
    pub(super) fn overwrite(&self, rows: usize) -> GroupFn {
        self.overwrite[class(rows)]
    }
}

/// The place of a row count, one of 1, 2, 3, 4, 8, in the tables.
fn class(rows: usize) -> usize {
    rows.clamp(1, 5) - 1
}

/// Makes the table of one instruction set out of its entry function, generic over rows, sources,
/// overwriting and prefetching, and the preferred numbers of sources for 1, 2, 3, 4 and 8 rows, without
/// and with prefetching.
macro_rules! table {
    ($entry:ident, [$($cached:literal)*], [$($memory:literal)*]) => {
        $crate::arch::group::Table {
            kernels: [
                $crate::arch::group::kit!($entry, false, $($cached)*),
                $crate::arch::group::kit!($entry, true, $($memory)*),
            ],
        }
    };
}

/// Places beyond the preferred number of sources are never asked for; they repeat the largest, so that
/// no kernel is made that nobody calls.
macro_rules! kit {
    ($entry:ident, $prefetch:literal, $one:literal $two:literal $three:literal $four:literal $eight:literal) => {
        $crate::arch::group::Kit {
            accumulate: [
                $crate::arch::group::kit!(@rows $entry, $prefetch, 1, $one),
                $crate::arch::group::kit!(@rows $entry, $prefetch, 2, $two),
                $crate::arch::group::kit!(@rows $entry, $prefetch, 3, $three),
                $crate::arch::group::kit!(@rows $entry, $prefetch, 4, $four),
                $crate::arch::group::kit!(@rows $entry, $prefetch, 8, $eight),
            ],
            overwrite: [
                $entry::<1, $one, true, $prefetch>,
                $entry::<2, $two, true, $prefetch>,
                $entry::<3, $three, true, $prefetch>,
                $entry::<4, $four, true, $prefetch>,
                $entry::<8, $eight, true, $prefetch>,
            ],
            preferred: [$one, $two, $three, $four, $eight],
        }
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

pub(super) use {kit, table};

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
    // SAFETY: each access below is at an offset whose register ends at or before `to` (the loops test
    // it, the tail starts at `to - OCTETS` or takes `to - at` octets) and starts at or behind `from`,
    // or in the tail at or behind `origin`; the caller vouches for these octets. Prefetches use
    // wrapping addresses and read nothing.
    unsafe {
        let mut matrices = [[V::matrix(0); M]; G];
        for (column, factors) in matrices.iter_mut().zip(&call.columns) {
            for (matrix, factor) in column.iter_mut().zip(factors) {
                *matrix = V::matrix(*factor);
            }
        }
        let to = call.to;
        let mut at = call.from;
        const { assert!(STEP.is_multiple_of(V::OCTETS) && (!V::MASKED || V::OCTETS == STEP)) };
        while at + STEP <= to {
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
        // Where a register may begin so that it ends with the work.
        let lowest = if OVERWRITE { call.from } else { call.origin };
        if V::MASKED || to - lowest < V::OCTETS {
            // A masked register is as wide as a step; others come here with less than one to do.
            if at < to {
                part::<V, M, G, OVERWRITE>(call, &matrices, at, to - at);
            }
            return;
        }
        while at < to {
            // The last register ends with the work and may begin with octets that are done already:
            // overwritten they come out the same again, accumulated they must not be added twice.
            let start = at.min(to - V::OCTETS);
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
/// As [`run`]; `at` is not below `origin` and `at + OCTETS` is at most `to`.
#[inline(always)]
unsafe fn column<V: Lanes, const M: usize, const G: usize, const OVERWRITE: bool>(
    call: &Call,
    matrices: &[[V::Matrix; M]; G],
    at: usize,
    load: impl Fn(*const u8) -> V,
) {
    // SAFETY: the caller's, passed on. Source pointers may lie before their octets, so the addition
    // wraps; its result lies inside.
    unsafe {
        let mut sums = [V::zero(); M];
        if !OVERWRITE {
            for (sum, row) in sums.iter_mut().zip(&call.rows) {
                *sum = V::load(row.add(at));
            }
        }
        for (source, matrices) in call.sources.iter().zip(matrices) {
            let octets = load(source.wrapping_add(at));
            for (sum, matrix) in sums.iter_mut().zip(matrices) {
                *sum = sum.add(octets.multiply(*matrix));
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
/// As [`run`]; `at` is not below `from` and `at + rest` is `to`.
#[inline(always)]
unsafe fn part<V: Lanes, const M: usize, const G: usize, const OVERWRITE: bool>(
    call: &Call,
    matrices: &[[V::Matrix; M]; G],
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
        for (source, matrices) in call.sources.iter().zip(matrices) {
            let octets = V::load_part(source.wrapping_add(at), rest);
            for (sum, matrix) in sums.iter_mut().zip(matrices) {
                *sum = sum.add(octets.multiply(*matrix));
            }
        }
        for (sum, row) in sums.into_iter().zip(&call.rows) {
            sum.store_part(row.add(at), rest);
        }
    }
}
