//! Every instruction set that this processor has against products octet by octet: all lengths up to
//! beyond four registers, all alignments, all factors, all shapes, and nothing touched outside.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::gf;

/// Largest register in octets.
const REGISTER: usize = 64;
/// What stands around rows and must survive.
const CANARY: u8 = 0xc5;

fn available() -> impl Iterator<Item = Kernels> {
    Isa::ALL.into_iter().filter_map(Kernels::new)
}

/// Octets that look like nothing in particular.
fn noise(seed: usize, len: usize) -> Vec<u8> {
    let mut state = seed as u64 * 2 + 1;
    let mut next = || {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Adds one source to the group.
fn push<'s>(bank: &mut Bank<'_, 's>, octets: &'s [u8], column: Column) {
    let mut one = Some((octets, column));
    bank.fill(MAX_SOURCES, || one.take());
}

/// One case: buffers at given alignments.
struct Case {
    rows: usize,
    sources: usize,
    len: usize,
    row_shift: usize,
    source_shift: usize,
    overwrite: bool,
    prefetch: bool,
}

impl Case {
    fn columns(&self) -> [Column; MAX_SOURCES] {
        let octets = noise(self.rows * 8 + self.sources, MAX_ROWS * MAX_SOURCES);
        core::array::from_fn(|s| core::array::from_fn(|r| octets[r * MAX_SOURCES + s]))
    }

    /// Runs the case and says what differs from the definition.
    fn check(&self, kernels: &Kernels) {
        let columns = self.columns();
        // Sources end where their allocation ends, so that tools see an octet too much being read.
        let sources: Vec<Vec<u8>> = (0..self.sources)
            .map(|s| noise(s + self.len, self.source_shift + self.len))
            .collect();
        let sources: Vec<&[u8]> = sources
            .iter()
            .map(|source| &source[self.source_shift..])
            .collect();
        let old: Vec<Vec<u8>> = (0..self.rows).map(|r| noise(100 + r, self.len)).collect();
        let mut memory: Vec<Vec<u8>> = old
            .iter()
            .map(|old| {
                let mut row = vec![CANARY; self.row_shift + self.len + REGISTER];
                row[self.row_shift..][..self.len].copy_from_slice(old);
                row
            })
            .collect();
        let mut rows: Vec<&mut [u8]> = memory
            .iter_mut()
            .map(|row| &mut row[self.row_shift..])
            .collect();
        let mut bank = Bank::new(kernels, rows.iter_mut().map(|row| &mut **row));
        let mut pairs = sources.iter().copied().zip(columns);
        bank.fill(MAX_SOURCES, || pairs.next());
        if self.prefetch {
            bank.prefetch(64);
            let next = sources.iter().skip(1).map(|source| source.as_ptr());
            bank.run_ahead(0, self.len, self.overwrite, 64, next);
        } else {
            bank.run(0, self.len, self.overwrite);
        }
        for (r, row) in memory.iter().enumerate() {
            let (before, rest) = row.split_at(self.row_shift);
            let (row, behind) = rest.split_at(self.len);
            assert!(
                before.iter().chain(behind).all(|&octet| octet == CANARY),
                "{:?} {self}",
                kernels.isa
            );
            for (at, &found) in row.iter().enumerate() {
                let start = if self.overwrite { 0 } else { old[r][at] };
                let products = sources
                    .iter()
                    .zip(&columns)
                    .map(|(source, column)| gf::mul(column[r], source[at]));
                let expected = products.fold(start, |sum, product| sum ^ product);
                assert_eq!(
                    found, expected,
                    "{:?} row {r} octet {at} {self}",
                    kernels.isa
                );
            }
        }
    }
}

impl core::fmt::Display for Case {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{} rows, {} sources, {} octets, ",
            self.rows, self.sources, self.len
        )?;
        write!(
            f,
            "shifts {} and {}, overwrite {}",
            self.row_shift, self.source_shift, self.overwrite
        )
    }
}

/// Fewer cases where an interpreter or emulator runs them.
fn thin(count: usize) -> usize {
    if cfg!(miri) || std::env::var_os("CREM_FEC_TEST_THIN").is_some() {
        count
    } else {
        1
    }
}

#[test]
fn all_lengths_in_all_shapes() {
    for kernels in available() {
        for rows in (1..=MAX_ROWS).step_by(thin(3)) {
            for sources in [32, 7, 1, 4].into_iter().step_by(thin(2)) {
                for len in (0..=4 * REGISTER + 1).step_by(thin(47)) {
                    let mut case = Case {
                        rows,
                        sources,
                        len,
                        row_shift: len * 5 % 64,
                        source_shift: len * 3 % 64,
                        overwrite: false,
                        prefetch: len % 2 == 0,
                    };
                    case.check(&kernels);
                    case.overwrite = true;
                    case.check(&kernels);
                }
            }
        }
    }
}

#[test]
fn all_alignments() {
    for kernels in available() {
        for row_shift in (0..REGISTER).step_by(thin(31)) {
            for source_shift in (0..REGISTER).step_by(thin(29)) {
                for len in [33, 1, 31, 130, 65].into_iter().step_by(thin(3)) {
                    for overwrite in [false, true] {
                        let (rows, sources) = (1 + source_shift % 4, 1 << (row_shift % 3));
                        Case {
                            rows,
                            sources,
                            len,
                            row_shift,
                            source_shift,
                            overwrite,
                            prefetch: false,
                        }
                        .check(&kernels);
                    }
                }
            }
        }
    }
}

#[test]
fn all_products() {
    let octets: Vec<u8> = (0..=255).collect();
    for kernels in available() {
        for first in (0..256usize).step_by(8 * thin(16)) {
            let column: Column = core::array::from_fn(|r| (first + r) as u8);
            let mut memory = vec![vec![0; 256]; MAX_ROWS];
            let mut bank = Bank::new(&kernels, memory.iter_mut().map(|row| &mut row[..]));
            push(&mut bank, &octets, column);
            bank.run(0, 256, true);
            for (r, row) in memory.iter().enumerate() {
                let expected = octets
                    .iter()
                    .map(|&octet| gf::mul((first + r) as u8, octet));
                assert!(
                    row.iter().copied().eq(expected),
                    "{:?} factor {}",
                    kernels.isa,
                    first + r
                );
            }
        }
    }
}

/// Parts of rows, sources that begin behind the rows' start, and sources of unequal length.
#[test]
fn parts_and_offsets() {
    for kernels in available() {
        for offset in (0..200).step_by(7 * thin(9)) {
            for from in (0..260).step_by(13 * thin(9)) {
                let old = noise(offset, 300);
                let (long, short) = (noise(1, 250 - offset), noise(2, 240 - offset));
                for overwrite in [false, true] {
                    let mut row = old.clone();
                    let mut bank = Bank::new(&kernels, core::iter::once(&mut row[..]));
                    bank.start(offset);
                    push(&mut bank, &long, [3; MAX_ROWS]);
                    push(&mut bank, &short, [5; MAX_ROWS]);
                    bank.run(from, 290, overwrite);
                    for at in 0..300 {
                        let inside = at >= from && at >= offset && at < 240;
                        let start = if overwrite { 0 } else { old[at] };
                        let octets = |at: usize| (long[at - offset], short[at - offset]);
                        let sum = |(l, s)| gf::mul(3, l) ^ gf::mul(5, s);
                        let expected = if inside {
                            start ^ sum(octets(at))
                        } else {
                            old[at]
                        };
                        assert_eq!(row[at], expected, "{:?} {offset} {from} {at}", kernels.isa);
                    }
                }
            }
        }
    }
}

#[test]
fn groups_go_on_with_the_longer_sources() {
    let lengths = [40usize, 90, 40, 0, 70];
    let sources: Vec<Vec<u8>> = lengths.iter().map(|&len| noise(len, len)).collect();
    for kernels in available() {
        let mut row = noise(9, 100);
        let mut expected = row.clone();
        let mut bank = Bank::new(&kernels, core::iter::once(&mut row[..]));
        for (n, source) in sources.iter().enumerate() {
            push(&mut bank, source, [n as u8 + 2; MAX_ROWS]);
            let sums = expected.iter_mut().zip(source);
            sums.for_each(|(sum, octet)| *sum ^= gf::mul(n as u8 + 2, *octet));
        }
        assert_eq!((bank.count(), bank.reach()), (5, 0));
        let mut from = 0;
        let mut steps = Vec::new();
        while bank.keep_beyond(from) {
            steps.push((bank.count(), bank.reach()));
            bank.run_ahead(from, 100, false, 64, core::iter::empty());
            from = bank.reach();
        }
        assert_eq!(steps, [(4, 40), (2, 70), (1, 90)]);
        assert_eq!(row, expected, "{:?}", kernels.isa);
    }
}

#[test]
fn whatever_is_not_there_is_left_alone() {
    for kernels in available() {
        let source = [1u8; 40];
        let (mut long, mut short) = ([7u8; 50], [7u8; 20]);
        let mut bank = Bank::new(&kernels, [&mut long[..], &mut short[..]].into_iter());
        assert_eq!(bank.row_len(), 20);
        // No sources, more sources than fit, nothing to do.
        bank.run(0, 50, true);
        assert!(bank.fill(2, || Some((&source, [1; MAX_ROWS]))));
        assert_eq!(bank.count(), 2);
        assert!(bank.fill(usize::MAX, || Some((&source, [1; MAX_ROWS]))));
        push(&mut bank, &source, [1; MAX_ROWS]);
        assert_eq!((bank.count(), bank.reach()), (MAX_SOURCES, 20));
        bank.run(30, 20, true);
        bank.run_ahead(20, 50, true, usize::MAX, core::iter::empty());
        bank.prefetch(usize::MAX);
        bank.clear(18, 90);
        bank.run(2, 50, true);
        bank.start(0);
        bank.run(0, 50, true);
        assert_eq!((long[1], short[1]), (7, 7));
        // An even number of times one is zero.
        assert_eq!((&long[2..20], &short[2..]), (&[0; 18][..], &[0; 18][..]));
        assert_eq!(long[20], 7);
        let mut none = Bank::new(&kernels, core::iter::empty());
        push(&mut none, &source, [1; MAX_ROWS]);
        none.run(0, 40, true);
        none.run_ahead(0, 40, true, 64, core::iter::empty());
        none.clear(0, 40);
        assert_eq!(none.row_len(), 0);
    }
}
