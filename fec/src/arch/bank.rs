//! The safe face of the kernels: rows under construction and the group of sources under way, with
//! everything checked that a kernel relies on.

use core::marker::PhantomData;
use core::mem::MaybeUninit;

use super::group::{Call, LINE, Places, Table};
use super::hint::{prefetch, prefetch_near};
use super::{Column, Kernels, MAX_ROWS, MAX_SOURCES};

/// Lines of each source that are asked for as soon as it is known, so that the first columns do not wait.
const START: usize = 3;

/// Up to [`MAX_ROWS`] rows, borrowed exclusively, and a group of up to [`MAX_SOURCES`] sources.
pub(crate) struct Bank<'r, 's> {
    table: &'static Table,
    call: Call,
    /// Octets by source of the group.
    lens: Places<usize>,
    /// The smallest and the largest of these.
    shortest: usize,
    longest: usize,
    /// The sum of the factors of all sources of the group, a column as one number: adding columns is
    /// exclusive-or.
    factors: u64,
    row_count: usize,
    /// Octets of the shortest row.
    row_len: usize,
    rows: PhantomData<&'r mut [u8]>,
    sources: PhantomData<&'s [u8]>,
}

impl<'r, 's> Bank<'r, 's> {
    /// The smallest length where there is no source. Not all ones: compilers would fill the places before
    /// it with ones as well.
    const NO_SOURCE: usize = usize::MAX >> 1;

    /// A bank over these rows; more than [`MAX_ROWS`] are left out.
    #[inline(always)]
    pub(crate) fn new(kernels: &Kernels, rows: impl Iterator<Item = &'r mut [u8]>) -> Self {
        let mut addresses = [core::ptr::null_mut(); MAX_ROWS];
        let (mut row_count, mut row_len) = (0, usize::MAX);
        for (place, row) in addresses.iter_mut().zip(rows) {
            *place = row.as_mut_ptr();
            row_len = row_len.min(row.len());
            row_count += 1;
        }
        Self {
            table: kernels.table,
            call: Call::new(addresses),
            lens: [MaybeUninit::uninit(); MAX_SOURCES],
            shortest: Self::NO_SOURCE,
            longest: 0,
            factors: 0,
            row_count,
            row_len,
            rows: PhantomData,
            sources: PhantomData,
        }
    }

    /// Number of rows.
    pub(crate) fn row_count(&self) -> usize {
        self.row_count
    }

    /// Octets of the shortest row.
    pub(crate) fn row_len(&self) -> usize {
        if self.row_count == 0 { 0 } else { self.row_len }
    }

    /// Starts a group anew. All its sources will be added to the rows from octet `origin` on.
    #[inline]
    pub(crate) fn start(&mut self, origin: usize) {
        (self.call.count, self.call.origin) = (0, origin);
        (self.shortest, self.longest, self.factors) = (Self::NO_SOURCE, 0, 0);
    }

    /// Takes sources from `next`, each with its factor for each row, until the group has `most`, or as
    /// many as there are places, or there is none; says whether it ended for the number.
    #[inline(always)]
    pub(crate) fn fill(
        &mut self,
        most: usize,
        mut next: impl FnMut() -> Option<(&'s [u8], Column)>,
    ) -> bool {
        let most = most.min(MAX_SOURCES);
        // Locals, so that they stay in registers.
        let (origin, mut count) = (self.call.origin, self.call.count);
        let (mut shortest, mut longest, mut factors) = (self.shortest, self.longest, self.factors);
        while count < most
            && let Some((octets, column)) = next()
        {
            // Kernels count from the rows' start. The pointer before the source is never used without
            // an addition that brings it back, see `Bank::call_kernel`.
            self.call.sources[count].write(octets.as_ptr().wrapping_sub(origin));
            self.call.columns[count].write(column);
            factors ^= u64::from_ne_bytes(column);
            // On the way while the rest of the group is gathered.
            for line in 0..START {
                prefetch_near(octets.as_ptr().wrapping_add(line * LINE));
            }
            let len = octets.len();
            self.lens[count].write(len);
            (shortest, longest) = (shortest.min(len), longest.max(len));
            count += 1;
        }
        (self.shortest, self.longest, self.factors) = (shortest, longest, factors);
        self.call.count = count;
        count >= most
    }

    /// Sources in the group.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.call.count
    }

    /// The position in the rows where the shortest source of the group ends, or the shortest row.
    #[inline]
    pub(crate) fn reach(&self) -> usize {
        let end = self.call.origin.saturating_add(self.shortest);
        end.min(self.row_len())
    }

    /// Octets of every source of the group, if they agree, with the sum of their factors by row as one
    /// number; as [`Bank::fill`] left the group.
    #[inline]
    pub(crate) fn common_len(&self) -> Option<(usize, u64)> {
        (self.shortest == self.longest).then_some((self.longest, self.factors))
    }

    /// Octets of each source of the group.
    pub(crate) fn lens(&self) -> impl Iterator<Item = &usize> {
        let filled = &self.lens[..self.call.count];
        // SAFETY: `fill` filled in the first `count` places.
        filled.iter().map(|len| unsafe { len.assume_init_ref() })
    }

    /// Factors of each source of the group.
    #[inline]
    pub(crate) fn columns(&self) -> impl Iterator<Item = &Column> {
        let filled = &self.call.columns[..self.call.count];
        // SAFETY: `fill` filled in the first `count` places.
        filled
            .iter()
            .map(|column| unsafe { column.assume_init_ref() })
    }

    /// Drops the sources that end at or before `end` from the group; says whether some are left.
    #[inline]
    pub(crate) fn keep_beyond(&mut self, end: usize) -> bool {
        if self.call.origin.saturating_add(self.longest) <= end {
            self.call.count = 0;
        }
        let (mut kept, mut shortest) = (0, Self::NO_SOURCE);
        for place in 0..self.call.count {
            // SAFETY: `fill` filled in the first `count` places.
            let len = unsafe { self.lens[place].assume_init() };
            if self.call.origin.saturating_add(len) > end {
                self.call.sources[kept] = self.call.sources[place];
                self.call.columns[kept] = self.call.columns[place];
                self.lens[kept] = self.lens[place];
                shortest = shortest.min(len);
                kept += 1;
            }
        }
        (self.call.count, self.shortest) = (kept, shortest);
        kept > 0
    }

    /// Asks for the first `octets` octets of every source of the group.
    pub(crate) fn prefetch(&self, octets: usize) {
        let from = self.call.origin;
        for at in (from..from.saturating_add(octets).min(self.reach())).step_by(LINE) {
            for source in &self.call.sources[..self.call.count] {
                // SAFETY: `fill` filled in the first `count` places.
                let source = unsafe { source.assume_init() };
                prefetch(source.wrapping_add(at));
            }
        }
    }

    /// Adds the group's sources times their factors to octets `from` .. `to` of the rows, or as far as
    /// they all reach; with `overwrite` the rows' contents do not count.
    pub(crate) fn run(&mut self, from: usize, to: usize, overwrite: bool) {
        self.call_kernel(from, to, from, overwrite, false);
    }

    /// [`Bank::run`], asking `ahead` octets ahead for the sources of this group and, towards the end of
    /// the last of them, for the first octets at the addresses in `next`. A source without any next asks for itself
    /// again.
    pub(crate) fn run_ahead(
        &mut self,
        from: usize,
        to: usize,
        overwrite: bool,
        ahead: usize,
        mut next: impl Iterator<Item = *const u8>,
    ) {
        let end = to.min(self.reach());
        let turn = if self.shortest == self.longest {
            end.saturating_sub(ahead).max(from)
        } else {
            end
        };
        let [own, others] = &mut self.call.hints;
        let sources = &self.call.sources[..self.call.count];
        for ((own, other), source) in own.iter_mut().zip(others).zip(sources) {
            // SAFETY: `fill` filled in the first `count` places.
            let source = unsafe { source.assume_init() };
            own.write(source.wrapping_add(ahead));
            let next = if turn < end { next.next() } else { None };
            other.write(next.map_or(source, |address| address.wrapping_sub(turn)));
        }
        self.call_kernel(from, to, turn, overwrite, true);
    }

    fn call_kernel(
        &mut self,
        from: usize,
        to: usize,
        turn: usize,
        overwrite: bool,
        prefetch: bool,
    ) {
        let (from, to) = (from.max(self.call.origin), to.min(self.reach()));
        if from >= to || self.call.count == 0 {
            return;
        }
        (self.call.from, self.call.to) = (from, to);
        (self.call.turn, self.call.overwrite) = (turn.clamp(from, to), overwrite);
        let rows = self.row_count.clamp(1, MAX_ROWS);
        let kernel = self.table[usize::from(prefetch)][rows - 1];
        // SAFETY: A table other than the portable one is reached only through `Kernels::new` after its
        // `available()`, so the processor has the instructions. The kernel is for `row_count` rows, of
        // which there is at least one, since `reach` is 0 otherwise. Every row is borrowed exclusively
        // for the life of `self` and has at least `row_len` octets. Every source of the group is
        // borrowed for at least as long, begins at `origin` in the rows' count and ends at or behind
        // `reach`; `fill` never counts more
        // than MAX_SOURCES and fills in what it counts, `run_ahead` the hints. So
        // with `origin <= from < to <= reach` octets `origin .. to` of each source and `.. to` of each
        // row are there.
        unsafe { kernel(&self.call) };
    }

    /// Zeros in octets `from` .. `to` of all rows.
    pub(crate) fn clear(&mut self, from: usize, to: usize) {
        let to = to.min(self.row_len());
        if from < to {
            for row in &self.call.rows[..self.row_count] {
                // SAFETY: the row is borrowed exclusively for the life of `self` and has at least
                // `row_len` octets, of which `from .. to` is a part.
                unsafe { core::ptr::write_bytes(row.add(from), 0, to - from) };
            }
        }
    }
}
