//! Decoding by rank (AMB-RANK): from known sources and any mix of ordinary symbols, coded
//! retransmissions, XOR and source copies, over the sets they really have. Two phases: what the known
//! sources contribute is taken out of the symbols, then the small system over the unknowns is solved.
//! Every position that is determined is delivered, also when others are not.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::eliminate::Eliminator;
use crate::encode::PREFIX;
use crate::engine::Engine;
use crate::payload::{Payload, Source};
use crate::rank::Equation;
use crate::{PositionSet, solve};

/// The shortest UDP payload of a RoCEv2 packet: base transport header and ICRC (AMB-SYM-PAD).
pub const MIN_PAYLOAD: usize = 16;

/// Cache line: accumulators start on one.
pub(crate) const LINE: usize = 64;

/// A repair symbol that the receiver holds.
#[derive(Clone, Copy, Debug)]
pub struct Symbol<'a> {
    /// Scheme, Repair Index and set L.
    pub equation: Equation,
    /// The symbol: T octets.
    pub octets: Payload<'a>,
}

/// A system to solve.
#[derive(Clone, Copy, Debug)]
pub struct DecodeJob<'a> {
    /// Symbol length T in octets.
    pub t: usize,
    /// Smallest length of a payload that is accepted, [`MIN_PAYLOAD`] for RoCEv2.
    pub min_payload: usize,
    /// Known sources, each position once. Those outside every L cost nothing.
    pub sources: &'a [Source<'a>],
    /// Held symbols, in order of preference: a symbol that the ones before it make redundant is not
    /// used.
    pub symbols: &'a [Symbol<'a>],
    /// The positions to deliver. Other positions that some L names and `sources` lacks are unknowns
    /// too, but are not delivered.
    pub unknown: PositionSet,
}

/// Why a job is not possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// T is below 3, or above what the scratch space was made for.
    SymbolLength,
    /// This symbol's octets are not T.
    WrongSymbolLength {
        /// Its place in the job.
        symbol: usize,
    },
    /// The scheme has no coefficient for this symbol's index and set.
    NoCoefficient {
        /// Its place in the job.
        symbol: usize,
    },
    /// A source's payload is longer than T - 2.
    PayloadTooLong {
        /// The source's position.
        position: u8,
    },
    /// Two sources have the same position.
    DuplicateSource {
        /// The position.
        position: u8,
    },
    /// A position is both a source and unknown.
    KnownAndUnknown {
        /// The position.
        position: u8,
    },
    /// More unknowns than the scratch space was made for.
    TooManyUnknowns {
        /// Unknowns, those that are not to be delivered included.
        unknowns: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SymbolLength => {
                f.write_str("symbol length outside what the scratch space allows")
            }
            Self::WrongSymbolLength { symbol } => {
                write!(f, "symbol {symbol} does not have T octets")
            }
            Self::NoCoefficient { symbol } => write!(f, "symbol {symbol} has an impossible index"),
            Self::PayloadTooLong { position } => {
                write!(
                    f,
                    "the payload at position {position} does not fit the symbol length"
                )
            }
            Self::DuplicateSource { position } => write!(f, "two sources at position {position}"),
            Self::KnownAndUnknown { position } => {
                write!(f, "position {position} is both known and unknown")
            }
            Self::TooManyUnknowns { unknowns } => write!(f, "{unknowns} unknowns are too many"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// What became of a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome<'s> {
    /// Its UDP payload P.
    Restored(&'s [u8]),
    /// The symbols do not determine it.
    Undetermined,
    /// Determined, but its length prefix or its padding is impossible: some input was corrupt.
    BadSymbol,
}

/// Memory for decoding, made once per worker. Decoding does not allocate.
#[derive(Debug)]
pub struct Scratch {
    max_unknowns: usize,
    max_t: usize,
    pub(crate) eliminator: Eliminator,
    /// Positions of the unknowns, ascending.
    pub(crate) columns: Vec<u8>,
    /// Places in the job of the symbols that are used.
    pub(crate) accepted: Vec<u16>,
    /// Repair Indices of these, where the closed form solves.
    pub(crate) indices: Vec<u8>,
    /// Rank of all symbols.
    pub(crate) rank: usize,
    /// Positions to deliver, with the output row of each that is determined.
    pub(crate) solved: Vec<(u8, Option<u16>)>,
    /// Factors by output row, then by accepted symbol.
    pub(crate) matrix: Vec<u8>,
    /// Accepted symbols that some output row needs.
    pub(crate) needed: PositionSet,
    octets: Vec<u8>,
}

impl Scratch {
    /// Space for up to `max_unknowns` unknowns (at most 255 make sense) with symbols of up to `max_t`
    /// octets.
    pub fn new(max_unknowns: usize, max_t: usize) -> Self {
        let max_unknowns = max_unknowns.min(256);
        let max_t = max_t.min(usize::from(u16::MAX));
        Self {
            max_unknowns,
            max_t,
            eliminator: Eliminator::with_capacity(max_unknowns, true),
            columns: Vec::with_capacity(256),
            accepted: Vec::with_capacity(max_unknowns),
            indices: Vec::with_capacity(max_unknowns),
            rank: 0,
            solved: Vec::with_capacity(256),
            matrix: Vec::with_capacity(max_unknowns * max_unknowns),
            needed: PositionSet::EMPTY,
            octets: vec![0; 2 * max_unknowns * stride(max_t) + LINE],
        }
    }
}

/// Octets from one row to the next: a line that ends in the prefix, then the body. Never a multiple of
/// a kilooctet, so that rows do not compete for the same places in the cache.
pub(crate) fn stride(t: usize) -> usize {
    let octets = LINE + t.next_multiple_of(LINE);
    if octets.is_multiple_of(1024) {
        octets + LINE
    } else {
        octets
    }
}

/// Prefix and body of one row.
pub(crate) fn split_row(row: &mut [u8], t: usize) -> Option<(&mut [u8; PREFIX], &mut [u8])> {
    let symbol = row.get_mut(LINE - PREFIX..LINE - PREFIX + t)?;
    symbol.split_first_chunk_mut::<PREFIX>()
}

/// The result of one job, held in the scratch space.
#[derive(Debug)]
pub struct Decoded<'s> {
    t: usize,
    min_payload: usize,
    rank: usize,
    unknowns: usize,
    solved: &'s [(u8, Option<u16>)],
    rows: &'s [u8],
}

impl<'s> Decoded<'s> {
    /// Rank of the symbols over all unknowns, those that are not delivered included.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Whether the symbols determine every unknown.
    pub fn is_complete(&self) -> bool {
        self.rank == self.unknowns
    }

    /// The outcome for each position of the job's `unknown`, in ascending order.
    pub fn outcomes(&self) -> impl Iterator<Item = (u8, Outcome<'s>)> + '_ {
        self.solved
            .iter()
            .map(|&(position, row)| (position, self.outcome(row)))
    }

    fn outcome(&self, row: Option<u16>) -> Outcome<'s> {
        let Some(row) = row else {
            return Outcome::Undetermined;
        };
        let start = usize::from(row) * stride(self.t) + LINE - PREFIX;
        let symbol = self.rows.get(start..start + self.t).unwrap_or(&[]);
        match payload_of(symbol, self.min_payload) {
            Some(payload) => Outcome::Restored(payload),
            None => Outcome::BadSymbol,
        }
    }
}

/// P of a source symbol, if the length prefix is possible and the padding is zero.
pub(crate) fn payload_of(symbol: &[u8], min_payload: usize) -> Option<&[u8]> {
    let (prefix, body) = symbol.split_first_chunk::<PREFIX>()?;
    let length = usize::from(u16::from_be_bytes(*prefix));
    let (payload, padding) = body.split_at_checked(length)?;
    (length >= min_payload && padding.iter().all(|&octet| octet == 0)).then_some(payload)
}

impl Engine {
    /// Solves `job` as far as its symbols determine it.
    ///
    /// # Errors
    /// See [`DecodeError`]; too few symbols are not an error but [`Outcome::Undetermined`].
    pub fn decode<'s>(
        &self,
        job: &DecodeJob<'_>,
        scratch: &'s mut Scratch,
    ) -> Result<Decoded<'s>, DecodeError> {
        let known = check(job, scratch.max_t)?;
        list_unknowns(job, &known, scratch)?;
        solve::find_solutions(job, scratch);
        let (syndromes, rows) = areas(&mut scratch.octets, scratch.accepted.len(), job.t);
        if !solve::solve_single(self, job, &scratch.accepted, &scratch.matrix, rows) {
            solve::take_out_known(self, job, &scratch.accepted, &scratch.needed, syndromes);
            solve::combine_syndromes(
                self,
                job.t,
                &scratch.matrix,
                &scratch.needed,
                syndromes,
                rows,
            );
        }
        Ok(Decoded {
            t: job.t,
            min_payload: job.min_payload,
            rank: scratch.rank,
            unknowns: scratch.columns.len(),
            solved: &scratch.solved,
            rows,
        })
    }
}

/// The two areas of `rows` rows each; the first body starts on a cache line.
fn areas(octets: &mut [u8], rows: usize, t: usize) -> (&mut [u8], &mut [u8]) {
    let start = octets.as_ptr().align_offset(LINE).min(LINE);
    let size = rows * stride(t);
    let aligned = octets.get_mut(start..start + 2 * size).unwrap_or_default();
    let half = aligned.len() / 2;
    aligned.split_at_mut(half)
}

/// Checks everything that later steps rely on; returns the known positions.
fn check(job: &DecodeJob<'_>, max_t: usize) -> Result<PositionSet, DecodeError> {
    if job.t <= PREFIX || job.t > max_t {
        return Err(DecodeError::SymbolLength);
    }
    let mut longest = 0;
    let positions = job.sources.iter().map(|source| {
        longest = longest.max(source.payload.len());
        source.position
    });
    let known: PositionSet = positions.collect();
    let possible = known.len() == job.sources.len() && longest <= job.t - PREFIX;
    if !possible || known.minus(&job.unknown) != known {
        check_sources(job)?;
    }
    for (symbol, held) in job.symbols.iter().enumerate() {
        if held.octets.len() != job.t {
            return Err(DecodeError::WrongSymbolLength { symbol });
        }
        if !held.equation.is_possible() {
            return Err(DecodeError::NoCoefficient { symbol });
        }
    }
    Ok(known)
}

/// Names what is wrong with the sources, if anything is.
#[cold]
fn check_sources(job: &DecodeJob<'_>) -> Result<(), DecodeError> {
    let mut known = PositionSet::EMPTY;
    for source in job.sources {
        let position = source.position;
        if !known.insert(position) {
            return Err(DecodeError::DuplicateSource { position });
        }
        if source.payload.len() > job.t - PREFIX {
            return Err(DecodeError::PayloadTooLong { position });
        }
        if job.unknown.contains(position) {
            return Err(DecodeError::KnownAndUnknown { position });
        }
    }
    Ok(())
}

/// Numbers the unknowns: those to deliver, and whatever else the symbols depend on.
fn list_unknowns(
    job: &DecodeJob<'_>,
    known: &PositionSet,
    scratch: &mut Scratch,
) -> Result<(), DecodeError> {
    let all = job.symbols.iter().fold(job.unknown, |all, symbol| {
        all.union(&symbol.equation.named())
    });
    scratch.columns.clear();
    scratch.columns.extend(all.minus(known).iter());
    let unknowns = scratch.columns.len();
    if unknowns > scratch.max_unknowns {
        return Err(DecodeError::TooManyUnknowns { unknowns });
    }
    Ok(())
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
