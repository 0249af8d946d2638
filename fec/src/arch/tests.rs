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
    fn factors(&self) -> Factors {
        let octets = noise(self.rows * 8 + self.sources, MAX_ROWS * MAX_SOURCES);
        core::array::from_fn(|r| core::array::from_fn(|s| octets[r * MAX_SOURCES + s]))
    }

    /// Runs the case and says what differs from the definition.
    fn check(&self, kernels: &Kernels) {
        let factors = self.factors();
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
        let next = if self.prefetch { &sources[..] } else { &[] };
        kernels.combine(
            &mut rows,
            &sources,
            &factors,
            self.len,
            self.overwrite,
            next,
        );
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
                    .zip(factors[r])
                    .map(|(source, f)| gf::mul(f, source[at]));
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
        for rows in 1..=MAX_ROWS {
            for sources in [1, 2, 3, 4, 7, 8] {
                for len in (0..=4 * REGISTER + 1).step_by(thin(29)) {
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
        for row_shift in (0..REGISTER).step_by(thin(13)) {
            for source_shift in (0..REGISTER).step_by(thin(11)) {
                for len in [1, 31, 33, 65, 130] {
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
        for first in (0..256usize).step_by(8 * thin(5)) {
            let factors: Factors = core::array::from_fn(|r| [(first + r) as u8; MAX_SOURCES]);
            let mut memory = vec![vec![0; 256]; MAX_ROWS];
            let mut rows: Vec<&mut [u8]> = memory.iter_mut().map(|row| &mut row[..]).collect();
            kernels.combine(&mut rows, &[&octets], &factors, 256, true, &[]);
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

#[test]
fn short_buffers_and_long_lists_are_cut() {
    for kernels in available() {
        let source = [1u8; 40];
        let (mut long, mut short) = ([7u8; 50], [7u8; 20]);
        let factors = [[1; MAX_SOURCES]; MAX_ROWS];
        kernels.combine(
            &mut [&mut long, &mut short],
            &[&source[..]; 9],
            &factors,
            45,
            true,
            &[],
        );
        // Eight times one is zero.
        assert_eq!(long[..20], [0; 20]);
        assert_eq!((long[20], short[19]), (7, 0));
        kernels.combine(&mut [&mut long], &[], &factors, 50, false, &[]);
        kernels.combine(&mut [], &[&source], &factors, 50, false, &[]);
        assert_eq!(long[20], 7);
    }
}
