//! From sources as callers hold them to calls of the kernels: gathers groups, deals with unequal
//! lengths and with payloads in pieces, keeps the rows in the cache, and passes on what to prefetch.

use crate::arch::{Bank, Column, Kernels, MAX_ROWS};
use crate::encode::PREFIX;
use crate::gf;
use crate::payload::Payload;

/// Octets that prefetching runs ahead of the work, at least: memory latency times bandwidth, rounded up
/// to what packets of a usual size make of it.
const AHEAD: usize = 6144;

/// Octets of all rows together that are worked on at a time, so that they stay in the first-level cache
/// from one group to the next.
const WINDOW: usize = 20 << 10;

/// Adds sources times factors to the bodies of up to [`MAX_ROWS`] symbols, which start from zero if
/// `fresh`. Returns what the length prefixes of the sources add to each symbol's prefix.
///
/// `ahead` yields what may be asked into the cache: the octets of the sources themselves, in order, and
/// of whatever is worked on next.
pub(crate) fn combine<'s>(
    kernels: &Kernels,
    rows: &mut [&mut [u8]],
    fresh: bool,
    sources: impl Iterator<Item = (Payload<'s>, Column)> + Clone,
    ahead: Option<impl Iterator<Item = &'s [u8]> + Clone>,
) -> [[u8; PREFIX]; MAX_ROWS] {
    let mut lengths = Lengths::default();
    let len = rows.iter().map(|row| row.len()).min().unwrap_or(0);
    let windows = (len * rows.len()).div_ceil(WINDOW).max(1);
    let step = len.div_ceil(windows).next_multiple_of(64);
    let mut from = 0;
    while from < len {
        let to = len.min(from + step);
        let mut pass = Pass::new(kernels, rows, fresh, (from, to), ahead.is_some());
        let mut following = ahead.clone().map(|ahead| {
            let octets = sources
                .clone()
                .next()
                .map_or(0, |(payload, _)| payload.len());
            ahead.skip(distance(pass.size, octets.min(to).saturating_sub(from)))
        });
        for (payload, column) in sources.clone() {
            if from == 0 {
                lengths.add(payload.len(), column);
            }
            pass.add(&payload, column, &mut following);
        }
        pass.finish(&mut following);
        from = to;
    }
    lengths.finish()
}

/// How many sources of `octets` each prefetching runs ahead of groups of `group`.
fn distance(group: usize, octets: usize) -> usize {
    group.max(AHEAD.div_ceil(octets.max(1))).min(64)
}

/// Sources on their way into octets `from` .. `to` of some rows.
struct Pass<'r, 's> {
    bank: Bank<'r, 's>,
    /// The rows hold nothing yet: the first group overwrites.
    fresh: bool,
    from: usize,
    to: usize,
    /// Sources per group.
    size: usize,
    /// Sources of the group under way, and the shortest and longest of them.
    count: usize,
    shortest: usize,
    longest: usize,
}

impl<'r, 's> Pass<'r, 's> {
    #[inline]
    fn new(
        kernels: &Kernels,
        rows: &'r mut [&mut [u8]],
        fresh: bool,
        (from, to): (usize, usize),
        prefetch: bool,
    ) -> Self {
        Self {
            size: kernels.group_size(rows.len().min(MAX_ROWS), prefetch),
            bank: Bank::new(kernels, rows.iter_mut().map(|row| &mut **row)),
            fresh,
            from,
            to,
            count: 0,
            shortest: usize::MAX,
            longest: 0,
        }
    }

    #[inline]
    fn add(
        &mut self,
        payload: &Payload<'s>,
        column: Column,
        following: &mut Option<impl Iterator<Item = &'s [u8]>>,
    ) {
        match *payload {
            Payload::Whole(octets) => {
                self.bank.put(self.count, octets, 0, column);
                self.shortest = self.shortest.min(octets.len());
                self.longest = self.longest.max(octets.len());
                self.count += 1;
                if self.count == self.size {
                    self.flush(following);
                }
            }
            Payload::Parts(_) => {
                self.flush(following);
                self.clear_if_fresh(self.from);
                for (offset, piece) in payload.pieces() {
                    self.bank.put(0, piece, offset, column);
                    self.bank.run(1, self.from, self.to, false, false);
                }
            }
        }
    }

    /// Runs the group under way.
    fn flush(&mut self, following: &mut Option<impl Iterator<Item = &'s [u8]>>) {
        if self.count == 0 {
            return;
        }
        if let Some(following) = following {
            for place in 0..self.count {
                match following.next() {
                    Some(octets) => self.bank.put_next(place, octets),
                    // What was named for an earlier group is in the cache; asking again costs little.
                    None => break,
                }
            }
        }
        let reach = self.shortest.min(self.to);
        let prefetch = following.is_some();
        self.bank
            .run(self.count, self.from, reach, self.fresh, prefetch);
        self.clear_if_fresh(reach);
        if self.longest > reach && reach < self.to {
            self.run_longer(reach);
        }
        (self.count, self.shortest, self.longest) = (0, usize::MAX, 0);
    }

    /// Goes on behind `reach`, where the shortest source ends, with those that are longer.
    fn run_longer(&mut self, reach: usize) {
        let (mut from, mut count) = (reach, self.count);
        while from < self.to {
            let mut kept = 0;
            for at in 0..count {
                if self.bank.end(at) > from {
                    self.bank.shift(at, kept);
                    kept += 1;
                }
            }
            if kept == 0 {
                return;
            }
            let reach = (0..kept)
                .map(|at| self.bank.end(at))
                .fold(self.to, usize::min);
            self.bank.run(kept, from, reach, false, false);
            (from, count) = (reach, kept);
        }
    }

    /// Zeros behind `from` if the rows hold nothing yet; from now on they do.
    fn clear_if_fresh(&mut self, from: usize) {
        if self.fresh {
            self.bank.clear(from.max(self.from), self.to);
            self.fresh = false;
        }
    }

    /// Runs what is left.
    fn finish(mut self, following: &mut Option<impl Iterator<Item = &'s [u8]>>) {
        self.flush(following);
        self.clear_if_fresh(self.from);
    }
}

/// What the length prefixes of the sources add to each row. They are kept apart from the symbols'
/// bodies, so that octet 0 of a payload meets octet 0 of an aligned buffer. Sources of equal length
/// share one product: the sum of factor times length is the sum of the factors, times the length.
#[derive(Default)]
struct Lengths {
    length: usize,
    /// A column as one number, since adding columns is exclusive-or.
    factors: u64,
    sums: [[u8; PREFIX]; MAX_ROWS],
}

impl Lengths {
    /// Adds a source of `length` octets with its factor for each row.
    #[inline]
    fn add(&mut self, length: usize, column: Column) {
        if length != self.length {
            self.multiply();
            self.length = length;
        }
        self.factors ^= u64::from_ne_bytes(column);
    }

    fn multiply(&mut self) {
        let [high, low] = (self.length as u16).to_be_bytes();
        for (sum, factor) in self.sums.iter_mut().zip(self.factors.to_ne_bytes()) {
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
