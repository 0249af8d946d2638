//! Encoding: adding the contributions of source packets to repair symbols that the caller owns. A job
//! is one (part of a) block; a burst of jobs is coded in one call so that the packets of later jobs can
//! be fetched while earlier ones are coded.

use core::fmt;

use crate::arch::MAX_ROWS;
use crate::combine::combine;
use crate::engine::Engine;
use crate::payload::Source;
use crate::{Scheme, cauchy};

/// Octets of the length prefix of a source symbol.
pub const PREFIX: usize = 2;

/// One repair symbol under construction.
#[derive(Debug)]
pub struct Row<'a> {
    /// Repair Index i; with [`Scheme::Copy`] the position to copy.
    pub index: u8,
    /// The symbol as it goes on the wire: T octets, the combined length prefixes in the first two. Any
    /// alignment works; it is fastest with octet 2 on a 64-octet boundary.
    pub symbol: &'a mut [u8],
}

/// Why a job is not possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EncodeError {
    /// The rows' buffers differ in length, or have fewer than 3 or more than 65,535 octets.
    SymbolLength,
    /// This source's payload is longer than T - 2.
    PayloadTooLong {
        /// The source's position.
        position: u8,
    },
    /// The scheme has no coefficient for this pair: i + j >= 255 with scheme 1, i > 0 with scheme 2.
    NoCoefficient {
        /// Repair Index.
        index: u8,
        /// The source's position.
        position: u8,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SymbolLength => f.write_str("symbol buffers of unequal or impossible length"),
            Self::PayloadTooLong { position } => {
                write!(
                    f,
                    "the payload at position {position} does not fit the symbol length"
                )
            }
            Self::NoCoefficient { index, position } => {
                write!(
                    f,
                    "no coefficient for repair index {index} and position {position}"
                )
            }
        }
    }
}

impl core::error::Error for EncodeError {}

/// Adds the contributions of `sources` to the symbols of `rows`; a checked job cannot fail.
///
/// The set L of a symbol is the set of all sources that its jobs were given, each position once.
#[derive(Debug)]
pub struct EncodeJob<'j, 'a> {
    scheme: Scheme,
    rows: &'j mut [Row<'a>],
    sources: &'j [Source<'a>],
    first: bool,
}

impl<'j, 'a> EncodeJob<'j, 'a> {
    /// A job over `sources`; with `first` the symbols start from zero whatever their buffers hold.
    ///
    /// # Errors
    /// See [`EncodeError`]; nothing is written.
    pub fn new(
        scheme: Scheme,
        rows: &'j mut [Row<'a>],
        sources: &'j [Source<'a>],
        first: bool,
    ) -> Result<Self, EncodeError> {
        if let Some(row) = rows.first() {
            let t = row.symbol.len();
            let possible = (PREFIX + 1..=usize::from(u16::MAX)).contains(&t);
            if !possible || rows.iter().any(|row| row.symbol.len() != t) {
                return Err(EncodeError::SymbolLength);
            }
            let (limit, mut last) = (t - PREFIX, 0);
            for source in sources {
                let position = source.position;
                if source.payload.len() > limit {
                    return Err(EncodeError::PayloadTooLong { position });
                }
                last = position.max(last);
            }
            if !sources.is_empty() {
                check_coefficients(scheme, rows, last)?;
            }
        }
        Ok(Self {
            scheme,
            rows,
            sources,
            first,
        })
    }
}

/// Whether the scheme has a coefficient for every pair. It has them for all exactly if it has one for
/// the largest index with the largest position.
fn check_coefficients(scheme: Scheme, rows: &[Row<'_>], position: u8) -> Result<(), EncodeError> {
    match rows.iter().map(|row| row.index).max() {
        Some(index) if scheme.coefficient(index, position).is_none() => {
            Err(EncodeError::NoCoefficient { index, position })
        }
        _ => Ok(()),
    }
}

impl Engine {
    /// Runs the jobs in order, fetching the packets of later ones into the cache on the way.
    pub fn encode(&self, jobs: &mut [EncodeJob<'_, '_>]) {
        let mut rest = jobs;
        while let Some((job, later)) = rest.split_first_mut() {
            let next = later.iter().flat_map(|job| job.sources);
            self.encode_one(job, next.map(|source| source.payload.first_piece()));
            rest = later;
        }
    }

    /// Runs one job. `next` yields the octets of packets that are worked on after it, by later jobs or
    /// otherwise, to be fetched into the cache on the way: for callers that cannot hold all jobs of a
    /// burst at once.
    pub fn encode_one<'n>(
        &self,
        job: &mut EncodeJob<'_, '_>,
        next: impl Iterator<Item = &'n [u8]> + Clone,
    ) {
        if job.scheme == Scheme::Copy {
            return copy(job);
        }
        let mut next = self.prefetch.then_some(next);
        for rows in job.rows.chunks_mut(MAX_ROWS) {
            // Further rows over the same sources find them in the cache.
            self.encode_rows(job.scheme, rows, job.sources, job.first, next.take());
        }
    }

    fn encode_rows<'n>(
        &self,
        scheme: Scheme,
        rows: &mut [Row<'_>],
        sources: &[Source<'_>],
        first: bool,
        next: Option<impl Iterator<Item = &'n [u8]> + Clone>,
    ) {
        let columns = cauchy::Columns::new(rows.iter().map(|row| row.index));
        let bodies = rows.iter_mut();
        let bodies = bodies.map(|row| row.symbol.get_mut(PREFIX..).unwrap_or_default());
        let sums = if scheme == Scheme::Xor {
            let sources = sources.iter().map(|source| (source.payload, [1; MAX_ROWS]));
            combine(&self.kernels, bodies, first, sources, next)
        } else if let Some(table) = columns.table() {
            let sources = sources
                .iter()
                .map(|source| (source.payload, table[usize::from(source.position)]));
            combine(&self.kernels, bodies, first, sources, next)
        } else {
            let sources = sources
                .iter()
                .map(|source| (source.payload, columns.of(source.position)));
            combine(&self.kernels, bodies, first, sources, next)
        };
        for (row, sum) in rows.iter_mut().zip(sums) {
            if let Some(prefix) = row.symbol.first_chunk_mut::<PREFIX>() {
                let old = if first { [0; PREFIX] } else { *prefix };
                *prefix = [old[0] ^ sum[0], old[1] ^ sum[1]];
            }
        }
    }
}

/// Source Copy: the symbol of a row is the source at the position that its index names.
fn copy(job: &mut EncodeJob<'_, '_>) {
    for row in job.rows.iter_mut() {
        let Some((prefix, body)) = row.symbol.split_first_chunk_mut::<PREFIX>() else {
            continue;
        };
        if job.first {
            *prefix = [0; PREFIX];
            body.fill(0);
        }
        for source in job
            .sources
            .iter()
            .filter(|source| source.position == row.index)
        {
            let length = (source.payload.len() as u16).to_be_bytes();
            prefix
                .iter_mut()
                .zip(length)
                .for_each(|(acc, octet)| *acc ^= octet);
            for (offset, piece) in source.payload.pieces() {
                body.iter_mut()
                    .skip(offset)
                    .zip(piece)
                    .for_each(|(acc, octet)| *acc ^= octet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Isa, Payload};
    use proptest::prelude::*;
    use reed_solomon_erasure::galois_8;

    fn source(position: u8, octets: &[u8]) -> Source<'_> {
        Source {
            position,
            payload: octets.into(),
        }
    }

    // shows: CREM-SYM-01, CREM-SYM-03, CREM-FEC-07
    #[test]
    fn the_documents_example() {
        let payloads = [b"RDMA-PKT-0", b"RDMA-PKT-1", b"RDMA-PKT-2", b"RDMA-PKT-3"];
        let sources: [_; 4] = core::array::from_fn(|j| source(j as u8, payloads[j]));
        let (mut r0, mut r1, mut r2) = ([0xaa; 16], [0xaa; 16], [0xaa; 16]);
        let mut rows = [
            Row {
                index: 0,
                symbol: &mut r0,
            },
            Row {
                index: 1,
                symbol: &mut r1,
            },
        ];
        let ordinary = EncodeJob::new(Scheme::Cauchy, &mut rows, &sources, true).unwrap();
        let mut retx = [Row {
            index: 2,
            symbol: &mut r2,
        }];
        let coded = EncodeJob::new(Scheme::Cauchy, &mut retx, &sources[..3], true).unwrap();
        Engine::scalar().encode(&mut [ordinary, coded]);
        let word = |r: [u8; 16]| u128::from_be_bytes(r);
        assert_eq!(word(r0), 0x001ef6ccd7c377f0ddfc774c00000000);
        assert_eq!(word(r1), 0x001ef6ccd7c377f0ddfc774f00000000);
        assert_eq!(word(r2), 0x00354fdf6d4b40b57e5c400000000000);
    }

    #[test]
    fn impossible_jobs_are_refused() {
        let (mut a, mut b) = ([0; 8], [0; 9]);
        let long = [0; 7];
        let mut uneven = [
            Row {
                index: 0,
                symbol: &mut a,
            },
            Row {
                index: 1,
                symbol: &mut b,
            },
        ];
        let error = EncodeJob::new(Scheme::Cauchy, &mut uneven, &[], true).unwrap_err();
        assert_eq!(error, EncodeError::SymbolLength);
        let mut one = [Row {
            index: 0,
            symbol: &mut a,
        }];
        let error =
            EncodeJob::new(Scheme::Cauchy, &mut one, &[source(3, &long)], true).unwrap_err();
        assert_eq!(error, EncodeError::PayloadTooLong { position: 3 });
        let mut pole = [Row {
            index: 5,
            symbol: &mut a,
        }];
        let error =
            EncodeJob::new(Scheme::Cauchy, &mut pole, &[source(250, &[])], true).unwrap_err();
        assert_eq!(
            error,
            EncodeError::NoCoefficient {
                index: 5,
                position: 250
            }
        );
        let mut second = [Row {
            index: 1,
            symbol: &mut a,
        }];
        assert!(EncodeJob::new(Scheme::Xor, &mut second, &[source(0, &[])], true).is_err());
    }

    proptest! {
        /// Encoding in any number of steps, with payloads cut anywhere, gives what another
        /// implementation's field functions say.
        #[test]
        fn symbols_agree_with_another_implementation(
            t in 3usize..300,
            lengths in proptest::collection::vec(prop_oneof![0usize..298, Just(298)], 1..20),
            indices in proptest::collection::vec(0u8..200, 1..20),
            split in 0usize..20,
            cut in 0usize..300,
            seed: u64,
        ) {
            let octet = |j: usize, n: usize| (seed >> ((j * 7 + n * 3) % 57)) as u8 ^ (n * j) as u8;
            let payloads: Vec<Vec<u8>> = lengths.iter().enumerate()
                .map(|(j, &n)| (0..n.min(t - 2)).map(|n| octet(j, n)).collect()).collect();
            let parts: Vec<[&[u8]; 2]> = payloads.iter()
                .map(|p| { let (a, b) = p.split_at(cut.min(p.len())); [a, b] }).collect();
            let sources: Vec<Source> = parts.iter().enumerate()
                .map(|(j, p)| {
                    let whole = Payload::Whole(&payloads[j]);
                    let payload = if j % 4 == 3 { Payload::Parts(p) } else { whole };
                    Source { position: 2 * j as u8, payload }
                }).collect();
            let (head, tail) = sources.split_at(split.min(sources.len()));
            let all = Isa::ALL.into_iter().filter_map(|isa| Engine::with_isa(isa).ok());
            let results: Vec<Vec<Vec<u8>>> = all.map(|engine| {
                let mut symbols = vec![vec![0x5a; t]; indices.len()];
                let mut rows: Vec<Row> = symbols.iter_mut().zip(&indices)
                    .map(|(symbol, &index)| Row { index, symbol }).collect();
                let first = EncodeJob::new(Scheme::Cauchy, &mut rows, head, true).unwrap();
                engine.encode(&mut [first]);
                let second = EncodeJob::new(Scheme::Cauchy, &mut rows, tail, false).unwrap();
                engine.encode(&mut [second]);
                symbols
            }).collect();
            for (n, &i) in indices.iter().enumerate() {
                let mut expected = vec![0; t];
                for (j, payload) in payloads.iter().enumerate() {
                    let mut s = (payload.len() as u16).to_be_bytes().to_vec();
                    s.extend(payload);
                    let c = galois_8::div(1, (255 - i) ^ (2 * j as u8));
                    for (e, o) in expected.iter_mut().zip(s) {
                        *e = galois_8::add(*e, galois_8::mul(c, o));
                    }
                }
                for symbols in &results {
                    prop_assert_eq!(&symbols[n], &expected);
                }
            }
        }
    }
}
