//! From sources as callers hold them to calls of the kernels: cuts rows into passes and sources into
//! groups, deals with unequal lengths and with payloads in pieces, and passes on what to prefetch.

use crate::arch::{Factors, Kernels, MAX_ROWS, MAX_SOURCES};
use crate::payload::Payload;

/// Octets that prefetching runs ahead of the work, at least: memory latency times bandwidth, rounded up
/// to what packets of a usual size make of it.
const AHEAD: usize = 6144;

/// How many sources of `octets` each prefetching runs ahead of groups of `group`.
pub(crate) fn distance(group: usize, octets: usize) -> usize {
    group.max(AHEAD.div_ceil(octets.max(1))).min(64)
}

/// Rows of one pass, and how to fill them.
pub(crate) struct Pass<'p, 'r, 's> {
    kernels: &'p Kernels,
    rows: &'p mut [&'r mut [u8]],
    /// The rows hold nothing yet: the first group overwrites.
    fresh: bool,
    /// Sources of the group under way, with their factors by row.
    sources: [&'s [u8]; MAX_SOURCES],
    factors: Factors,
    count: usize,
    size: usize,
}

impl<'p, 'r, 's> Pass<'p, 'r, 's> {
    /// A pass over at most [`MAX_ROWS`] rows of equal length; with `fresh` they start from zero.
    pub(crate) fn new(kernels: &'p Kernels, rows: &'p mut [&'r mut [u8]], fresh: bool) -> Self {
        let size = kernels.group_size(rows.len());
        Self {
            kernels,
            rows,
            fresh,
            sources: [&[]; MAX_SOURCES],
            factors: [[0; MAX_SOURCES]; MAX_ROWS],
            count: 0,
            size,
        }
    }

    /// Adds a source with its factor for each row. `ahead` yields sources that are worked on later;
    /// one is taken for each source of a group when the group is run.
    #[inline]
    pub(crate) fn add(
        &mut self,
        payload: &Payload<'s>,
        column: &[u8; MAX_ROWS],
        ahead: &mut impl Iterator<Item = &'s [u8]>,
    ) {
        match *payload {
            Payload::Whole(octets) => {
                self.sources[self.count] = octets;
                for (factors, factor) in self.factors.iter_mut().zip(column) {
                    factors[self.count] = *factor;
                }
                self.count += 1;
                if self.count == self.size {
                    self.flush(ahead);
                }
            }
            Payload::Parts(_) => self.add_pieces(payload, column),
        }
    }

    fn add_pieces(&mut self, payload: &Payload<'s>, column: &[u8; MAX_ROWS]) {
        self.clear_if_fresh(0);
        let mut factors = [[0; MAX_SOURCES]; MAX_ROWS];
        factors
            .iter_mut()
            .zip(column)
            .for_each(|(row, factor)| row[0] = *factor);
        for (offset, piece) in payload.pieces() {
            combine(
                self.kernels,
                self.rows,
                offset,
                &[piece],
                &factors,
                piece.len(),
                false,
                &[],
            );
        }
    }

    /// Runs the group under way.
    fn flush(&mut self, ahead: &mut impl Iterator<Item = &'s [u8]>) {
        let mut next: [&[u8]; MAX_SOURCES] = [&[]; MAX_SOURCES];
        let wanted = next.iter_mut().take(self.count);
        let found = wanted
            .zip(ahead)
            .map(|(place, octets)| *place = octets)
            .count();
        let mut sources = self.sources;
        let mut factors = self.factors;
        self.run(&mut sources[..self.count], &mut factors, &next[..found]);
        self.count = 0;
    }

    /// Combines as far as the shortest source goes, then goes on with those that are longer.
    fn run(&mut self, sources: &mut [&'s [u8]], factors: &mut Factors, next: &[&[u8]]) {
        let (mut from, mut count, mut next) = (0, sources.len(), next);
        while count > 0 {
            let to = sources[..count]
                .iter()
                .map(|source| source.len())
                .min()
                .unwrap_or(0);
            let mut rest: [&[u8]; MAX_SOURCES] = [&[]; MAX_SOURCES];
            for (place, source) in rest.iter_mut().zip(&sources[..count]) {
                *place = &source[from..];
            }
            let fresh = self.fresh && from == 0;
            if to > from {
                combine(
                    self.kernels,
                    self.rows,
                    from,
                    &rest[..count],
                    factors,
                    to - from,
                    fresh,
                    next,
                );
            }
            self.clear_if_fresh(to);
            let mut kept = 0;
            for at in 0..count {
                if sources[at].len() > to {
                    sources[kept] = sources[at];
                    factors.iter_mut().for_each(|row| row[kept] = row[at]);
                    kept += 1;
                }
            }
            (from, count, next) = (to, kept, &[]);
        }
    }

    /// Zeros behind `from` if the rows hold nothing yet; from now on they do.
    fn clear_if_fresh(&mut self, from: usize) {
        if self.fresh {
            for row in self.rows.iter_mut() {
                row.iter_mut().skip(from).for_each(|octet| *octet = 0);
            }
            self.fresh = false;
        }
    }

    /// Runs what is left.
    pub(crate) fn finish(mut self, ahead: &mut impl Iterator<Item = &'s [u8]>) {
        if self.count > 0 {
            self.flush(ahead);
        }
        self.clear_if_fresh(0);
    }
}

/// [`Kernels::combine`] on the rows from `offset` on.
#[allow(clippy::too_many_arguments)]
fn combine(
    kernels: &Kernels,
    rows: &mut [&mut [u8]],
    offset: usize,
    sources: &[&[u8]],
    factors: &Factors,
    len: usize,
    overwrite: bool,
    next: &[&[u8]],
) {
    let mut tails: [&mut [u8]; MAX_ROWS] = Default::default();
    let count = rows.len().min(MAX_ROWS);
    for (tail, row) in tails.iter_mut().zip(rows.iter_mut()) {
        *tail = row.get_mut(offset..).unwrap_or_default();
    }
    kernels.combine(&mut tails[..count], sources, factors, len, overwrite, next);
}
