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
    let octets = sources
        .clone()
        .next()
        .map_or(0, |(payload, _)| payload.len());
    let alike = sources
        .clone()
        .all(|(payload, _)| matches!(payload, Payload::Whole(whole) if whole.len() == octets));
    for (payload, column) in sources.clone() {
        lengths.add(if alike { octets } else { payload.len() }, column);
    }
    let len = rows.iter().map(|row| row.len()).min().unwrap_or(0);
    let step = window(rows.len(), len);
    let size = kernels.group_size(rows.len().min(MAX_ROWS), ahead.is_some());
    let mut bank = Bank::new(kernels, rows.iter_mut().map(|row| &mut **row));
    let mut from = 0;
    while from < len {
        let to = len.min(from + step);
        let reach = octets.min(to).saturating_sub(from);
        let following = ahead.clone().map(|ahead| ahead.skip(distance(size, reach)));
        let mut pass = Pass {
            bank: &mut bank,
            following,
            fresh,
            from,
            to,
            size,
        };
        if alike {
            pass.add_alike(sources.clone())
        } else {
            pass.add_mixed(sources.clone())
        }
        from = to;
    }
    lengths.finish()
}

/// Octets of a row that are worked on at a time: a multiple of a cache line, or all `len` of them.
fn window(rows: usize, len: usize) -> usize {
    let all = rows * len;
    if all <= WINDOW {
        len
    } else {
        len.div_ceil(all.div_ceil(WINDOW)).next_multiple_of(64)
    }
}

/// How many sources of `octets` each prefetching runs ahead of groups of `group`.
fn distance(group: usize, octets: usize) -> usize {
    group.max(AHEAD.div_ceil(octets.max(1))).min(64)
}

/// Sources on their way into octets `from` .. `to` of some rows.
struct Pass<'b, 'r, 's, A> {
    bank: &'b mut Bank<'r, 's>,
    /// What to prefetch; the next item goes with the next source.
    following: Option<A>,
    /// The rows hold nothing yet: the first group overwrites.
    fresh: bool,
    from: usize,
    to: usize,
    /// Sources per group.
    size: usize,
}

impl<'s, A: Iterator<Item = &'s [u8]>> Pass<'_, '_, 's, A> {
    /// Adds sources that are in one piece each and of one length: the usual case, since packets in the
    /// middle of messages are alike.
    fn add_alike(&mut self, sources: impl Iterator<Item = (Payload<'s>, Column)>) {
        let mut sources = sources.map(|(payload, column)| (payload.first_piece(), column));
        loop {
            let count = self.bank.load(&mut sources, self.size);
            if count == 0 {
                break;
            }
            self.put_next(count);
            let prefetch = self.following.is_some();
            self.bank
                .run_loaded(self.from, self.to, self.fresh, prefetch);
            let end = self.bank.end(0);
            self.clear_if_fresh(end);
        }
        self.clear_if_fresh(self.from);
    }

    /// Adds any sources.
    fn add_mixed(&mut self, sources: impl Iterator<Item = (Payload<'s>, Column)>) {
        let mut count = 0;
        for (payload, column) in sources {
            match payload {
                Payload::Whole(octets) => {
                    self.bank.put(count, octets, 0, column);
                    count += 1;
                    if count == self.size {
                        self.run_uneven(count);
                        count = 0;
                    }
                }
                Payload::Parts(_) => {
                    self.run_uneven(count);
                    count = 0;
                    self.clear_if_fresh(self.from);
                    for (offset, piece) in payload.pieces() {
                        self.bank.put(0, piece, offset, column);
                        self.bank.run(1, self.from, self.to, false, false);
                    }
                }
            }
        }
        self.run_uneven(count);
        self.clear_if_fresh(self.from);
    }

    /// Names what to prefetch beside the first `count` sources.
    #[inline]
    fn put_next(&mut self, count: usize) {
        let Some(following) = &mut self.following else {
            return;
        };
        for place in 0..count {
            match following.next() {
                Some(octets) => self.bank.put_next(place, octets),
                // What was named for an earlier group is in the cache; asking again costs little.
                None => break,
            }
        }
    }

    /// Runs a group of `count` sources: as far as the shortest goes, then on with those that are longer.
    fn run_uneven(&mut self, count: usize) {
        let mut count = count;
        let mut reach = self.shortest(count);
        if count > 0 {
            self.put_next(count);
            self.bank.run(
                count,
                self.from,
                reach,
                self.fresh,
                self.following.is_some(),
            );
            self.clear_if_fresh(reach);
        }
        while count > 0 && reach < self.to {
            let mut kept = 0;
            for at in 0..count {
                if self.bank.end(at) > reach {
                    self.bank.shift(at, kept);
                    kept += 1;
                }
            }
            count = kept;
            let end = self.shortest(count);
            self.bank
                .run(count, reach.max(self.from), end, false, false);
            reach = end;
        }
    }

    /// Where the shortest of the first `count` sources ends, at most `to`.
    fn shortest(&self, count: usize) -> usize {
        (0..count)
            .map(|at| self.bank.end(at))
            .fold(self.to, usize::min)
    }

    /// Zeros behind `from` if the rows hold nothing yet; from now on they do.
    fn clear_if_fresh(&mut self, from: usize) {
        if self.fresh {
            self.bank.clear(from.max(self.from), self.to);
            self.fresh = false;
        }
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
