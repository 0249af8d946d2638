//! The safe face of the kernels: rows under construction and the sources of the group under way, with
//! everything checked that a kernel relies on.

use core::marker::PhantomData;

use super::group::{Call, Table};
use super::{Column, Kernels, MAX_SOURCES, first_rows};

/// Up to [`super::MAX_ROWS`] rows, borrowed exclusively, and up to [`MAX_SOURCES`] sources.
pub(crate) struct Bank<'r, 's> {
    table: &'static Table,
    call: Call,
    /// By source, the position in the rows behind its last octet.
    ends: [usize; MAX_SOURCES],
    row_count: usize,
    /// Octets of the shortest row.
    row_len: usize,
    /// Sources that [`Bank::load`] put in, all with origin 0, and where the shortest of them ends.
    loaded: usize,
    loaded_end: usize,
    rows: PhantomData<&'r mut [u8]>,
    sources: PhantomData<&'s [u8]>,
}

impl<'r, 's> Bank<'r, 's> {
    /// A bank over these rows; more than [`super::MAX_ROWS`] are left out.
    #[inline]
    pub(crate) fn new(kernels: &Kernels, rows: impl Iterator<Item = &'r mut [u8]>) -> Self {
        let mut bank = Self {
            table: kernels.table,
            call: Call::EMPTY,
            ends: [0; MAX_SOURCES],
            row_count: 0,
            row_len: usize::MAX,
            loaded: 0,
            loaded_end: 0,
            rows: PhantomData,
            sources: PhantomData,
        };
        for (place, row) in bank.call.rows.iter_mut().zip(rows) {
            *place = row.as_mut_ptr();
            bank.row_len = bank.row_len.min(row.len());
            bank.row_count += 1;
        }
        bank
    }

    /// Octets of the shortest row.
    pub(crate) fn row_len(&self) -> usize {
        if self.row_count == 0 { 0 } else { self.row_len }
    }

    /// Makes `octets` the source at `place`, to be added to the rows from octet `offset` on, with its
    /// factor for each row. A place that does not exist is ignored.
    #[inline]
    pub(crate) fn put(&mut self, place: usize, octets: &'s [u8], offset: usize, column: Column) {
        self.loaded = 0;
        if place < MAX_SOURCES {
            // Kernels count from the rows' start. The pointer before the source is never used without
            // an addition that brings it back, see `Bank::run`.
            self.call.sources[place] = octets.as_ptr().wrapping_sub(offset);
            self.call.origins[place] = offset;
            self.call.columns[place] = column;
            self.ends[place] = offset.saturating_add(octets.len());
        }
    }

    /// Makes the next up to `most` of `sources` the first sources of this bank; says how many there
    /// were. They run with [`Bank::run_loaded`] until another source is put in.
    #[inline]
    pub(crate) fn load(
        &mut self,
        sources: &mut impl Iterator<Item = (&'s [u8], Column)>,
        most: usize,
    ) -> usize {
        let (mut count, mut end) = (0, usize::MAX);
        while count < most.min(MAX_SOURCES)
            && let Some((octets, column)) = sources.next()
        {
            self.put(count, octets, 0, column);
            end = end.min(octets.len());
            count += 1;
        }
        (self.loaded, self.loaded_end) = (count, end);
        count
    }

    /// [`Bank::run`] for the sources that [`Bank::load`] put in, whose bounds are known.
    #[inline]
    pub(crate) fn run_loaded(&mut self, from: usize, to: usize, overwrite: bool, prefetch: bool) {
        let to = to.min(self.row_len()).min(self.loaded_end);
        self.run_within(self.loaded, from, to, 0, overwrite, prefetch);
    }

    /// The position in the rows behind the last octet of the source at `place`.
    #[inline]
    pub(crate) fn end(&self, place: usize) -> usize {
        self.ends.get(place).copied().unwrap_or(0)
    }

    /// Moves the source at `from` to `to`, which is lower.
    pub(crate) fn shift(&mut self, from: usize, to: usize) {
        self.loaded = 0;
        if to < from && from < MAX_SOURCES {
            self.call.shift(from, to);
            self.ends[to] = self.ends[from];
        }
    }

    /// What to ask into the cache while the source at `place` is worked on.
    #[inline]
    pub(crate) fn put_next(&mut self, place: usize, octets: &[u8]) {
        if let Some(next) = self.call.next.get_mut(place) {
            *next = octets.as_ptr();
        }
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

    /// Adds the first `count` sources times their factors to octets `from` .. `to` of the rows, or as
    /// far as the shortest of these sources goes; with `overwrite` the rows' contents do not count.
    /// Sources that begin behind `from` cut it up. With `prefetch` what [`Bank::put_next`] named for
    /// each of these places is asked into the cache, from the same octet on.
    pub(crate) fn run(
        &mut self,
        count: usize,
        from: usize,
        to: usize,
        overwrite: bool,
        prefetch: bool,
    ) {
        let count = count.min(MAX_SOURCES);
        let to = self.ends[..count]
            .iter()
            .copied()
            .fold(to.min(self.row_len()), usize::min);
        let origin = self.call.origins[..count]
            .iter()
            .copied()
            .fold(0, usize::max);
        self.run_within(count, from.max(origin), to, origin, overwrite, prefetch);
    }

    /// [`Bank::run`] with bounds that fit: `to` is at most `row_len` and the end of each of the first
    /// `count` sources, `origin` is at least the origin of each and at most `from`.
    #[inline]
    fn run_within(
        &mut self,
        count: usize,
        from: usize,
        to: usize,
        origin: usize,
        overwrite: bool,
        prefetch: bool,
    ) {
        if from >= to || count == 0 {
            return;
        }
        (self.call.from, self.call.to, self.call.origin) = (from, to, origin);
        let rows = first_rows(self.row_count);
        self.run_rows(&self.call, rows, count, overwrite, prefetch);
        if rows < self.row_count {
            // What comes next has been asked for, and the sources are in the cache.
            let rest = self.call.without_rows(rows);
            self.run_rows(&rest, self.row_count - rows, count, overwrite, false);
        }
    }

    /// [`Bank::run`] for a number of rows that there are kernels for.
    fn run_rows(&self, call: &Call, rows: usize, count: usize, overwrite: bool, prefetch: bool) {
        let kit = self.table.kit(prefetch);
        if count == kit.preferred(rows) {
            let kernel = if overwrite {
                kit.overwrite(rows)
            } else {
                kit.accumulate(rows, count)
            };
            // SAFETY: as in `run_parts` below; the kernel is for `rows` rows and `count` sources.
            unsafe { kernel(call) };
        } else {
            self.run_parts(*call, rows, count, overwrite, prefetch);
        }
    }

    /// [`Bank::run_rows`] for a number of sources that is not the preferred one: in several calls.
    fn run_parts(
        &self,
        mut call: Call,
        rows: usize,
        count: usize,
        overwrite: bool,
        prefetch: bool,
    ) {
        let kit = self.table.kit(prefetch);
        let most = kit.preferred(rows);
        let mut overwrite = overwrite;
        let mut left = count;
        while left > 0 {
            let size = most.min(1 << left.ilog2());
            let size = if size < left && size < most {
                // One call that adds a source with factor zero costs less than two or three calls.
                call.pad(left, 2 * size);
                2 * size
            } else {
                size
            };
            if overwrite && size < most {
                for row in &call.rows[..rows] {
                    // SAFETY: rows are borrowed exclusively for the life of `self`; `run_within` was
                    // given `from < to <= row_len`.
                    unsafe { core::ptr::write_bytes(row.add(call.from), 0, call.to - call.from) };
                }
                overwrite = false;
            }
            let kernel = if overwrite {
                kit.overwrite(rows)
            } else {
                kit.accumulate(rows, size)
            };
            // SAFETY: A table other than the portable one is reached only through `Kernels::new` after
            // its `available()`, so the processor has the instructions. Every row is borrowed
            // exclusively for the life of `self` and has at least `row_len` octets; every source is
            // borrowed for at least as long and reaches from its origin to its end in the rows'
            // count. `run_within` was given an `origin` no smaller than each origin and a `to` no larger
            // than each end and `row_len`, so octets `origin .. to` of each are there, and `from` is not below `origin`.
            // The kernel is for `rows` rows, a count that `first_rows` gave, and `size` sources, a
            // power of two up to the preferred; where that is more than are left, `pad` repeated the
            // first one.
            unsafe { kernel(&call) };
            overwrite = false;
            left = left.saturating_sub(size);
            call.drop_sources(size);
        }
    }
}
