//! Decoding by rank (AMB-RANK): from known sources and any mix of ordinary symbols, coded
//! retransmissions, XOR and source copies, over the sets they really have. Two phases: what the known
//! sources contribute is taken out of the symbols, then the small system over the unknowns is solved.
//! Every position that is determined is delivered, also when others are not.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::eliminate::Eliminator;
use crate::encode::{PREFIX, add_length};
use crate::engine::Engine;
use crate::payload::{Payload, Source};
use crate::rank::Equation;
use crate::{PositionSet, gf};

/// The shortest UDP payload of a RoCEv2 packet: base transport header and ICRC (AMB-SYM-PAD).
pub const MIN_PAYLOAD: usize = 16;

/// Cache line: accumulators start on one.
const LINE: usize = 64;

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
    eliminator: Eliminator,
    columns: Vec<u8>,
    accepted: Vec<u16>,
    solved: Vec<(u8, Option<u16>)>,
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
            solved: Vec::with_capacity(256),
            octets: vec![0; 2 * max_unknowns * stride(max_t) + LINE],
        }
    }
}

/// Octets from one row to the next: a line that ends in the prefix, then the body.
fn stride(t: usize) -> usize {
    LINE + t.next_multiple_of(LINE)
}

/// Prefix and body of one row.
fn split_row(row: &mut [u8], t: usize) -> Option<(&mut [u8; PREFIX], &mut [u8])> {
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
        let known = check(job, scratch)?;
        set_up(job, &known, scratch)?;
        let needed = find_solutions(job, scratch);
        self.take_out_known(job, &known, &needed, scratch);
        self.combine(job, scratch);
        let (_, rows) = areas(&mut scratch.octets, scratch.accepted.len(), job.t);
        Ok(Decoded {
            t: job.t,
            min_payload: job.min_payload,
            rank: scratch.eliminator.rank(),
            unknowns: scratch.columns.len(),
            solved: &scratch.solved,
            rows,
        })
    }

    /// Phase one: into row n of the first area, the n-th accepted symbol without what the known
    /// sources contributed to it.
    fn take_out_known(
        &self,
        job: &DecodeJob<'_>,
        known: &PositionSet,
        needed: &PositionSet,
        scratch: &mut Scratch,
    ) {
        let (area, _) = areas(&mut scratch.octets, scratch.accepted.len(), job.t);
        let rows = area
            .chunks_exact_mut(stride(job.t))
            .zip(&scratch.accepted)
            .enumerate();
        for (n, (row, &at)) in rows {
            let Some(symbol) = job.symbols.get(usize::from(at)) else {
                continue;
            };
            let Some((prefix, body)) = split_row(row, job.t) else {
                continue;
            };
            if !needed.contains(n as u8) {
                continue;
            }
            copy_symbol(&symbol.octets, prefix, body);
            if symbol.equation.set.minus(known) == symbol.equation.set {
                continue;
            }
            for source in job.sources {
                self.add_source(
                    symbol.equation.factor(source.position),
                    source,
                    prefix,
                    body,
                );
            }
        }
    }

    fn add_source(
        &self,
        factor: u8,
        source: &Source<'_>,
        prefix: &mut [u8; PREFIX],
        body: &mut [u8],
    ) {
        if factor == 0 {
            return;
        }
        add_length(prefix, factor, source.payload.len());
        for (offset, piece) in source.payload.pieces() {
            if let Some(acc) = body.get_mut(offset..) {
                self.kernels.mul_add(factor, piece, acc);
            }
        }
    }

    /// Phase two: into the second area, one row for each solved position.
    fn combine(&self, job: &DecodeJob<'_>, scratch: &mut Scratch) {
        let (area, out) = areas(&mut scratch.octets, scratch.accepted.len(), job.t);
        let stride = stride(job.t);
        for &(position, row) in &scratch.solved {
            let Some(row) = row.map(usize::from) else {
                continue;
            };
            let Some(column) = scratch.columns.iter().position(|&c| c == position) else {
                continue;
            };
            let Some(factors) = scratch.eliminator.solution(column) else {
                continue;
            };
            let Some(target) = out.get_mut(row * stride..(row + 1) * stride) else {
                continue;
            };
            let Some((prefix, body)) = split_row(target, job.t) else {
                continue;
            };
            *prefix = [0; PREFIX];
            body.fill(0);
            for (&factor, syndrome) in factors.iter().zip(area.chunks_exact_mut(stride)) {
                let Some((p, b)) = split_row(syndrome, job.t) else {
                    continue;
                };
                if factor != 0 {
                    prefix
                        .iter_mut()
                        .zip(p)
                        .for_each(|(acc, octet)| *acc ^= gf::mul(factor, *octet));
                    self.kernels.mul_add(factor, b, body);
                }
            }
        }
    }
}

/// The two areas of `rows` rows each; the first body starts on a cache line.
fn areas(octets: &mut [u8], rows: usize, t: usize) -> (&mut [u8], &mut [u8]) {
    let start = octets.as_ptr().align_offset(LINE).min(LINE);
    let size = rows * stride(t);
    let aligned = octets.get_mut(start..start + 2 * size).unwrap_or(&mut []);
    let half = aligned.len() / 2;
    aligned.split_at_mut(half)
}

/// Checks everything that later steps rely on; returns the known positions.
fn check(job: &DecodeJob<'_>, scratch: &Scratch) -> Result<PositionSet, DecodeError> {
    if job.t <= PREFIX || job.t > scratch.max_t {
        return Err(DecodeError::SymbolLength);
    }
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

/// Numbers the unknowns and picks independent symbols.
fn set_up(
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
    scratch.eliminator.reset(unknowns, true);
    scratch.accepted.clear();
    for (at, symbol) in job.symbols.iter().enumerate().take(usize::from(u16::MAX)) {
        let columns = &scratch.columns;
        if scratch
            .eliminator
            .insert(|c| symbol.equation.factor(columns[c]))
        {
            scratch.accepted.push(at as u16);
        }
    }
    Ok(())
}

/// Lists the positions to deliver with the output row of each solved one; returns which accepted
/// symbols these need.
fn find_solutions(job: &DecodeJob<'_>, scratch: &mut Scratch) -> PositionSet {
    scratch.solved.clear();
    let mut needed = PositionSet::EMPTY;
    let mut rows = 0;
    for position in job.unknown.iter() {
        let column = scratch.columns.iter().position(|&c| c == position);
        let solution = column.and_then(|column| scratch.eliminator.solution(column));
        let row = solution.map(|factors| {
            let used = factors.iter().enumerate().filter(|(_, f)| **f != 0);
            used.for_each(|(n, _)| _ = needed.insert(n as u8));
            rows += 1;
            rows - 1
        });
        scratch.solved.push((position, row));
    }
    needed
}

fn copy_symbol(octets: &Payload<'_>, prefix: &mut [u8; PREFIX], body: &mut [u8]) {
    for (offset, piece) in octets.pieces() {
        let lead = PREFIX.saturating_sub(offset).min(piece.len());
        let (head, tail) = piece.split_at(lead);
        prefix
            .iter_mut()
            .skip(offset)
            .zip(head)
            .for_each(|(p, h)| *p = *h);
        let at = (offset + lead).saturating_sub(PREFIX);
        if let Some(target) = body.get_mut(at..at + tail.len()) {
            target.copy_from_slice(tail);
        }
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
