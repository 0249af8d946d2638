//! The shape that all vector kernels share: a group of sources times a few rows in one walk over their
//! columns. A column's sums stay in registers from the first source to the last, so rows are touched
//! once; factors are multiplied out once per call; and what comes next is fetched column by column.

use core::mem::MaybeUninit;

use super::hint::prefetch;
use super::{Column, MAX_ROWS, MAX_SOURCES};

/// A cache line in octets: what one prefetch asks for.
pub(super) const LINE: usize = 64;

/// What there is of each source of a call; only as many are filled in as the call has sources, since
/// filling in the others would take longer than to work on a short packet.
pub(super) type Places<T> = [MaybeUninit<T>; MAX_SOURCES];

/// One call of a kernel.
pub(super) struct Call {
    /// Rows, as many as the kernel is for.
    pub(super) rows: [*mut u8; MAX_ROWS],
    /// Sources, as if they began where the rows do.
    pub(super) sources: Places<*const u8>,
    /// Factors by source, then by row.
    pub(super) columns: Places<Column>,
    /// What to prefetch beside each source, as if it began where the rows do: the first while at work
    /// before `turn`, then the second. Never dereferenced; only for kernels that prefetch.
    pub(super) hints: [Places<*const u8>; 2],
    /// Number of sources.
    pub(super) count: usize,
    /// First octet to work on.
    pub(super) from: usize,
    /// Where the second hints take over.
    pub(super) turn: usize,
    /// The octet behind the last one to work on.
    pub(super) to: usize,
    /// First octet that every source has; at most `from`.
    pub(super) origin: usize,
    /// The rows' contents do not count.
    pub(super) overwrite: bool,
}

impl Call {
    /// A call for these rows that has no sources yet.
    #[inline(always)]
    pub(super) fn new(rows: [*mut u8; MAX_ROWS]) -> Self {
        Self {
            rows,
            sources: [MaybeUninit::uninit(); MAX_SOURCES],
            columns: [MaybeUninit::uninit(); MAX_SOURCES],
            hints: [[MaybeUninit::uninit(); MAX_SOURCES]; 2],
            count: 0,
            from: 0,
            turn: 0,
            to: 0,
            origin: 0,
            overwrite: false,
        }
    }
}

/// A kernel for some number of rows.
///
/// # Safety
/// The processor has the kernel's instructions. `count <= MAX_SOURCES`, so many places are filled in,
/// those of `hints` too if the kernel prefetches, and `origin <= from < to`.
/// Octets 0 .. `to` of the first rows, as many as the kernel is for, are valid for reads and writes and
/// alias nothing else of the call, and octets `origin` .. `to` of the first `count` sources are valid
/// for reads.
pub(super) type GroupFn = unsafe fn(&Call);

/// The kernels of one instruction set: without and with prefetching, by number of rows less one.
pub(super) type Table = [[GroupFn; MAX_ROWS]; 2];

/// Makes the table of one instruction set out of its entry function, generic over rows, registers of a
/// row per step, and prefetching, and the numbers of registers for 1 to 8 rows, if need be apart for the
/// kernels without and with prefetching. More registers per step mean fewer look-ups of pointers and
/// factors, until there are no more registers; from memory they also mean fewer streams at a time.
macro_rules! table {
    ($entry:ident, $registers:tt) => {
        $crate::arch::group::table!($entry, $registers, $registers)
    };
    ($entry:ident, [$($plain:literal)*], [$($prefetching:literal)*]) => {
        [
            $crate::arch::group::table!(@all $entry, false, $($plain)*),
            $crate::arch::group::table!(@all $entry, true, $($prefetching)*),
        ]
    };
    (@all $entry:ident, $prefetch:literal, $one:literal $two:literal $three:literal $four:literal $five:literal $six:literal $seven:literal $eight:literal) => {
        [
            $entry::<1, $one, $prefetch>,
            $entry::<2, $two, $prefetch>,
            $entry::<3, $three, $prefetch>,
            $entry::<4, $four, $prefetch>,
            $entry::<5, $five, $prefetch>,
            $entry::<6, $six, $prefetch>,
            $entry::<7, $seven, $prefetch>,
            $entry::<8, $eight, $prefetch>,
        ]
    };
}

pub(super) use table;

/// A vector register of octets. All functions must be inlined into a caller that enables the
/// instruction set.
///
/// # Safety
/// Every function: the processor has the instruction set, and pointers are valid for what is read or
/// written there.
pub(super) trait Register: Copy {
    /// Octets in a register; divides [`LINE`].
    const OCTETS: usize;
    /// Parts of a register are loaded and stored directly. Otherwise [`Register::load_part`] goes through
    /// memory, and the last register of a buffer is taken from its end instead.
    const MASKED: bool;

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
}

/// How an instruction set multiplies the octets of a register by a factor. As [`Register`]: inlined
/// into a caller that enables the instruction set.
///
/// # Safety
/// Every function: the processor has the instruction set.
pub(super) trait Products {
    /// The registers that it works on.
    type Register: Register;
    /// Two products and a sum are added by one instruction, so sources are taken two at a time.
    const PAIRS: bool;
    /// A factor as kept in memory while a call lasts.
    type Factor: Copy;
    /// A factor in multiplied-out form, in registers.
    type Matrix: Copy;

    /// What to keep of a factor.
    fn factor(factor: u8) -> Self::Factor;
    /// The form of a factor.
    unsafe fn matrix(factor: Self::Factor) -> Self::Matrix;
    /// Product with a factor.
    unsafe fn multiply(octets: Self::Register, matrix: Self::Matrix) -> Self::Register;
}

/// The factors of a call by source, then by row; as many are filled in as the call has sources.
type Factors<P, const M: usize> = Places<[<P as Products>::Factor; M]>;

/// The group kernel: M rows, U registers of each at a time.
///
/// # Safety
/// As [`GroupFn`] and [`Register`].
#[inline(always)]
pub(super) unsafe fn run<P: Products, const M: usize, const U: usize, const PREFETCH: bool>(
    call: &Call,
) {
    let mut factors: Factors<P, M> = [MaybeUninit::uninit(); MAX_SOURCES];
    for (own, column) in factors.iter_mut().zip(&call.columns).take(call.count) {
        // SAFETY: the first `count` places are filled in, the caller says.
        let column = unsafe { column.assume_init_ref() };
        own.write(core::array::from_fn(|r| P::factor(column[r])));
    }
    let mut at = call.from;
    // SAFETY: each access below is at an offset whose registers end at or before `to`, which the loops
    // test, and start at or behind `from`; the caller vouches for these octets. Less than a register is
    // left for `last`.
    unsafe {
        let (width, step) = const {
            let width = U * P::Register::OCTETS;
            (width, if width < LINE { LINE } else { width })
        };
        for (end, hints) in [call.turn, call.to].into_iter().zip(&call.hints) {
            while at + step <= end {
                let mut lane = 0;
                while lane < step {
                    let hints = (PREFETCH && lane == 0).then_some(hints);
                    columns::<P, M, U>(call, &factors, at + lane, hints);
                    lane += width;
                }
                at += step;
            }
        }
        while at + P::Register::OCTETS <= call.to {
            let line = PREFETCH && (at - call.from).is_multiple_of(LINE);
            columns::<P, M, 1>(call, &factors, at, line.then_some(&call.hints[1]));
            at += P::Register::OCTETS;
        }
        if at < call.to {
            last::<P, M>(call, &factors, at);
        }
    }
}

/// U registers of every row; with `hints` as many lines as these are of what comes next.
///
/// # Safety
/// As [`run`]; `at` is not below `origin` and `at + U * OCTETS` is at most `to`.
#[inline(always)]
unsafe fn columns<P: Products, const M: usize, const U: usize>(
    call: &Call,
    factors: &Factors<P, M>,
    at: usize,
    hints: Option<&Places<*const u8>>,
) {
    // SAFETY: the caller's, passed on; `count` is at most MAX_SOURCES by the contract of `run`.
    unsafe {
        let mut sums = [[P::Register::zero(); U]; M];
        if !call.overwrite {
            for (sums, row) in sums.iter_mut().zip(&call.rows) {
                for (u, sum) in sums.iter_mut().enumerate() {
                    *sum = P::Register::load(row.add(at + u * P::Register::OCTETS));
                }
            }
        }
        let mut n = 0;
        if P::PAIRS {
            while n + 2 <= call.count {
                add::<P, M, U, 2>(call, factors, n, at, hints, &mut sums);
                n += 2;
            }
        }
        while n < call.count {
            add::<P, M, U, 1>(call, factors, n, at, hints, &mut sums);
            n += 1;
        }
        for (sums, row) in sums.into_iter().zip(&call.rows) {
            for (u, sum) in sums.into_iter().enumerate() {
                sum.store(row.add(at + u * P::Register::OCTETS));
            }
        }
    }
}

/// Adds S sources from the `n`-th on, times their factors, to U registers of every row.
///
/// # Safety
/// As [`columns`]; `n + S` is at most the call's `count`.
#[inline(always)]
unsafe fn add<P: Products, const M: usize, const U: usize, const S: usize>(
    call: &Call,
    factors: &Factors<P, M>,
    n: usize,
    at: usize,
    hints: Option<&Places<*const u8>>,
    sums: &mut [[P::Register; U]; M],
) {
    // SAFETY: the caller's, passed on. Source pointers may lie before their octets, so the addition
    // wraps; its result lies inside. `n + S` is within the places that are filled in.
    unsafe {
        let mut octets = [[P::Register::zero(); U]; S];
        for (s, octets) in octets.iter_mut().enumerate() {
            if let Some(hints) = hints {
                let hint = hints.get_unchecked(n + s).assume_init();
                let hint = hint.wrapping_add(at);
                (0..(U * P::Register::OCTETS).div_ceil(LINE)).for_each(|line| {
                    prefetch(hint.wrapping_add(line * LINE));
                });
            }
            let source = call.sources.get_unchecked(n + s).assume_init();
            let source = source.wrapping_add(at);
            for (u, octets) in octets.iter_mut().enumerate() {
                *octets = P::Register::load(source.wrapping_add(u * P::Register::OCTETS));
            }
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            let matrices: [P::Matrix; S] = core::array::from_fn(|s| {
                P::matrix(factors.get_unchecked(n + s).assume_init_ref()[r])
            });
            for (u, sum) in sums.iter_mut().enumerate() {
                for (octets, matrix) in octets.iter().zip(matrices) {
                    *sum = sum.add(P::multiply(octets[u], matrix));
                }
            }
        }
    }
}

/// The last octets of every row, fewer than a register.
///
/// # Safety
/// As [`run`]; `at` is not below `from` and less than a register before `to`.
#[inline(always)]
unsafe fn last<P: Products, const M: usize>(call: &Call, factors: &Factors<P, M>, at: usize) {
    // Where a register may begin so that it ends with the work.
    let lowest = if call.overwrite {
        call.from
    } else {
        call.origin
    };
    // SAFETY: the caller's, passed on: only `to - at` octets behind `at` are touched, or a register that
    // ends at `to` and starts at or behind `from`, or `origin` where the rows are read first.
    unsafe {
        if P::Register::MASKED || call.to - lowest < P::Register::OCTETS {
            let rest = call.to - at;
            let load = |from| P::Register::load_part(from, rest);
            one::<P, M>(call, factors, at, load, load, |sum, to| {
                sum.store_part(to, rest)
            });
        } else {
            // The register may begin with octets that are done already: overwritten they come out the
            // same again, accumulated they must not be added twice.
            let start = call.to - P::Register::OCTETS;
            let done = if call.overwrite { 0 } else { at - start };
            let load = |from| P::Register::load(from).clear_first(done);
            one::<P, M>(
                call,
                factors,
                start,
                |from| P::Register::load(from),
                load,
                |sum, to| sum.store(to),
            );
        }
    }
}

/// One register of every row, by the given ways to load rows, to load sources and to store.
///
/// # Safety
/// As [`run`]; the ways given are right for octets at `at`.
#[inline(always)]
unsafe fn one<P: Products, const M: usize>(
    call: &Call,
    factors: &Factors<P, M>,
    at: usize,
    load_row: impl Fn(*const u8) -> P::Register,
    load: impl Fn(*const u8) -> P::Register,
    store: impl Fn(P::Register, *mut u8),
) {
    // SAFETY: the caller's, passed on.
    unsafe {
        let mut sums = [P::Register::zero(); M];
        if !call.overwrite {
            for (sum, row) in sums.iter_mut().zip(&call.rows) {
                *sum = load_row(row.add(at));
            }
        }
        for (source, factors) in call.sources.iter().zip(factors).take(call.count) {
            let octets = load(source.assume_init().wrapping_add(at));
            for (sum, factor) in sums.iter_mut().zip(factors.assume_init_ref()) {
                *sum = sum.add(P::multiply(octets, P::matrix(*factor)));
            }
        }
        for (sum, row) in sums.into_iter().zip(&call.rows) {
            store(sum, row.add(at));
        }
    }
}
