//! From sources as callers hold them to calls of the kernels: gathers groups, deals with unequal
//! lengths and with payloads in pieces, and says what to prefetch.

use crate::arch::{Bank, Column, Kernels, MAX_ROWS, MAX_SOURCES};
use crate::encode::PREFIX;
use crate::gf;
use crate::payload::Payload;

/// Octets of all sources of a group together that prefetching runs ahead of the work: about what memory
/// delivers in the time that it takes to answer.
const AHEAD: usize = 16 << 10;

/// Sources of a group where they are to come from memory: fewer streams at a time than in the cache,
/// unless there are more rows than this, which each group loads and stores again.
const STREAMS: usize = 16;
const FEW_ROWS: usize = 4;

/// Adds sources times factors to the bodies of up to [`MAX_ROWS`] symbols, which start from zero if
/// `fresh`. Returns what the length prefixes of the sources add to each symbol's prefix.
///
/// With `later`, sources are asked into the cache ahead of the work, and so are the first octets of
/// what it yields: what is worked on next.
pub(crate) fn combine<'r, 's, 'n>(
    kernels: &Kernels,
    rows: impl Iterator<Item = &'r mut [u8]>,
    fresh: bool,
    sources: impl Iterator<Item = (Payload<'s>, Column)> + Clone,
    later: Option<impl Iterator<Item = &'n [u8]> + Clone>,
) -> [[u8; PREFIX]; MAX_ROWS] {
    let mut bank = Bank::new(kernels, rows);
    let rows_count = bank.row_count();
    let mut work = Work {
        bank: &mut bank,
        lengths: Lengths::new(rows_count),
        fresh,
        cold: true,
    };
    let group = if later.is_some() && rows_count <= FEW_ROWS {
        STREAMS
    } else {
        MAX_SOURCES
    };
    let mut rest = sources;
    loop {
        let mut pieces = None;
        let full = work.bank.fill(group, || {
            let (payload, column) = rest.next()?;
            if let Payload::Whole(octets) = payload {
                Some((octets, column))
            } else {
                pieces = Some((payload, column));
                None
            }
        });
        work.run_group(next(&rest, &later));
        match pieces {
            Some((payload, column)) => work.run_pieces(payload, column),
            None if full => {}
            None => break,
        }
    }
    work.clear_if_fresh(0);
    work.lengths.finish()
}

/// What is worked on behind a group, for prefetching.
fn next<'s, 'n>(
    rest: &(impl Iterator<Item = (Payload<'s>, Column)> + Clone),
    later: &Option<impl Iterator<Item = &'n [u8]> + Clone>,
) -> Option<impl Iterator<Item = *const u8>> {
    let own = rest
        .clone()
        .map(|(payload, _)| payload.first_piece().as_ptr());
    let later = later.clone()?.map(<[u8]>::as_ptr);
    Some(own.chain(later))
}

/// Rows that sources are added to, group by group.
struct Work<'b, 'r, 's> {
    bank: &'b mut Bank<'r, 's>,
    lengths: Lengths,
    /// The rows hold nothing yet: the first group overwrites.
    fresh: bool,
    /// Nothing was prefetched yet.
    cold: bool,
}

impl<'s> Work<'_, '_, 's> {
    /// Runs the group, if there is one, as far as its shortest source goes, then on with those that are
    /// longer, and starts another. `next` is to be prefetched.
    fn run_group(&mut self, next: Option<impl Iterator<Item = *const u8>>) {
        let count = self.bank.count();
        if count == 0 {
            return;
        }
        self.lengths.add_group(self.bank);
        let mut from = 0;
        let to = self.bank.row_len();
        // A whole number of steps of the kernels.
        let mut next = next.map(|next| (next, (AHEAD / count).next_multiple_of(256)));
        if let (Some((_, ahead)), true) = (&next, core::mem::take(&mut self.cold)) {
            self.bank.prefetch(*ahead);
        }
        while from < to {
            let reach = self.bank.reach();
            match &mut next {
                Some((next, ahead)) => self.bank.run_ahead(from, to, self.fresh, *ahead, next),
                None => self.bank.run(from, to, self.fresh),
            }
            self.clear_if_fresh(reach);
            if !self.bank.keep_beyond(reach) {
                break;
            }
            from = reach;
        }
        self.bank.start(0);
    }

    /// Adds a payload in pieces.
    fn run_pieces(&mut self, payload: Payload<'s>, column: Column) {
        self.lengths.add(payload.len(), u64::from_ne_bytes(column));
        self.clear_if_fresh(0);
        for (offset, piece) in payload.pieces() {
            self.bank.start(offset);
            let mut piece = Some((piece, column));
            self.bank.fill(1, || piece.take());
            self.bank.run(offset, self.bank.row_len(), false);
        }
        self.bank.start(0);
    }

    /// Zeros from octet `from` on if the rows hold nothing yet; from now on they do.
    fn clear_if_fresh(&mut self, from: usize) {
        if self.fresh {
            self.bank.clear(from, self.bank.row_len());
            self.fresh = false;
        }
    }
}

/// What the length prefixes of the sources add to each row. They are kept apart from the symbols'
/// bodies, so that octet 0 of a payload meets octet 0 of an aligned buffer. Sources of equal length
/// share one product: the sum of factor times length is the sum of the factors, times the length.
struct Lengths {
    rows: usize,
    length: usize,
    /// A column as one number, since adding columns is exclusive-or.
    factors: u64,
    sums: [[u8; PREFIX]; MAX_ROWS],
}

impl Lengths {
    /// Nothing yet, for so many rows.
    fn new(rows: usize) -> Self {
        Self {
            rows,
            length: 0,
            factors: 0,
            sums: [[0; PREFIX]; MAX_ROWS],
        }
    }

    /// Adds the sources of a group.
    fn add_group(&mut self, bank: &Bank<'_, '_>) {
        if let Some((length, factors)) = bank.common_len() {
            self.add(length, factors);
        } else {
            let columns = bank.columns().map(|column| u64::from_ne_bytes(*column));
            let lens = bank.lens();
            lens.zip(columns)
                .for_each(|(len, column)| self.add(*len, column));
        }
    }

    /// Adds sources of `length` octets with the sum of their factors for each row.
    fn add(&mut self, length: usize, factors: u64) {
        if length != self.length {
            self.multiply();
            self.length = length;
        }
        self.factors ^= factors;
    }

    fn multiply(&mut self) {
        if self.factors == 0 {
            return;
        }
        let [high, low] = (self.length as u16).to_be_bytes();
        let factors = self.factors.to_ne_bytes();
        for (sum, factor) in self.sums.iter_mut().zip(factors).take(self.rows) {
            sum[0] ^= gf::mul(factor, high);
            sum[1] ^= gf::mul(factor, low);
        }
        self.factors = 0;
    }

    /// The sums by row.
    fn finish(mut self) -> [[u8; PREFIX]; MAX_ROWS] {
        self.multiply();
        self.sums
    }
}
