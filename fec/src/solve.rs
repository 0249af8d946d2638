//! The work of decoding: which symbols to use and how they combine to the unknowns, and the two phases
//! over octets that follow. Checks and results live in `decode`.

use crate::arch::MAX_ROWS;
use crate::combine::combine;
use crate::decode::{DecodeJob, Scratch, Symbol, split_row, stride};
use crate::encode::PREFIX;
use crate::engine::Engine;
use crate::payload::{Payload, Source};
use crate::rank::Equation;
use crate::{PositionSet, Scheme, cauchy, gf};

/// Picks independent symbols and finds which unknowns they determine by which factors: fills
/// `accepted`, `rank`, `solved`, `matrix` and `needed` from `columns`.
pub(crate) fn find_solutions(job: &DecodeJob<'_>, scratch: &mut Scratch) {
    scratch.accepted.clear();
    scratch.solved.clear();
    scratch.matrix.clear();
    scratch.needed = PositionSet::EMPTY;
    if !try_closed_form(job, scratch) {
        eliminate(job, scratch);
    }
}

/// The usual case: the first symbols are of scheme 1, have distinct indices and sets that contain every
/// unknown. Any square part of a Cauchy matrix is regular and its inverse is known; fewer equations
/// than unknowns determine none of them. `false` if the case is another.
fn try_closed_form(job: &DecodeJob<'_>, scratch: &mut Scratch) -> bool {
    let unknowns = scratch.columns.len();
    let columns: PositionSet = scratch.columns.iter().copied().collect();
    let mut seen = PositionSet::EMPTY;
    scratch.indices.clear();
    for (at, symbol) in job.symbols.iter().enumerate() {
        if scratch.accepted.len() == unknowns {
            break;
        }
        let equation = &symbol.equation;
        if equation.scheme != Scheme::Cauchy || !equation.set.contains_all(&columns) {
            scratch.accepted.clear();
            return false;
        }
        if seen.insert(equation.index) {
            scratch.indices.push(equation.index);
            scratch.accepted.push(at as u16);
        }
    }
    scratch.rank = scratch.accepted.len();
    let complete = scratch.rank == unknowns;
    if complete {
        scratch.matrix.resize(unknowns * unknowns, 0);
        cauchy::invert(&scratch.indices, &scratch.columns, &mut scratch.matrix);
        (0..unknowns).for_each(|n| _ = scratch.needed.insert(n as u8));
    }
    // Rows that nobody wants delivered are solved all the same: they are rare, and then cheap.
    for (row, &position) in scratch.columns.iter().enumerate() {
        if job.unknown.contains(position) {
            scratch
                .solved
                .push((position, complete.then_some(row as u16)));
        }
    }
    true
}

/// Any other case, by Gaussian elimination over the sets the symbols really have.
fn eliminate(job: &DecodeJob<'_>, scratch: &mut Scratch) {
    let columns = &scratch.columns;
    scratch.eliminator.reset(columns.len(), true);
    for (at, symbol) in job.symbols.iter().enumerate().take(usize::from(u16::MAX)) {
        if scratch
            .eliminator
            .insert(|c| symbol.equation.factor(columns[c]))
        {
            scratch.accepted.push(at as u16);
        }
    }
    scratch.rank = scratch.eliminator.rank();
    let mut rows = 0;
    for (column, &position) in columns.iter().enumerate() {
        if !job.unknown.contains(position) {
            continue;
        }
        let solution = scratch.eliminator.solution(column);
        let row = solution.map(|factors| {
            scratch.matrix.extend_from_slice(factors);
            let used = factors
                .iter()
                .enumerate()
                .filter(|(_, factor)| **factor != 0);
            used.for_each(|(n, _)| _ = scratch.needed.insert(n as u8));
            rows += 1;
            rows - 1
        });
        scratch.solved.push((position, row));
    }
}

/// One unknown and one symbol, the usual loss: the unknown is f times the symbol plus f times what the
/// known sources contributed to it, so both phases are one, straight into `out`. `false` if the case is
/// another.
pub(crate) fn solve_single(
    engine: &Engine,
    job: &DecodeJob<'_>,
    accepted: &[u16],
    matrix: &[u8],
    out: &mut [u8],
) -> bool {
    let (&[at], &[factor]) = (accepted, matrix) else {
        return false;
    };
    let Some(symbol) = job.symbols.get(usize::from(at)) else {
        return false;
    };
    let Payload::Whole(octets) = symbol.octets else {
        return false;
    };
    let Some((own, body)) = octets.split_first_chunk::<PREFIX>() else {
        return false;
    };
    let Some((prefix, row)) = split_row(out, job.t) else {
        return false;
    };
    let column = |factor: u8| [factor, 0, 0, 0, 0, 0, 0, 0];
    let Equation { scheme, index, set } = symbol.equation;
    let named = job
        .sources
        .iter()
        .filter(|source| set.contains(source.position) && scheme != Scheme::Copy);
    let itself = core::iter::once((Payload::Whole(body), column(factor)));
    let next = engine.prefetch.then_some(core::iter::empty());
    let [sum, ..] = if scheme == Scheme::Cauchy {
        let times = cauchy::times(factor, index);
        let known = named.map(|source| (source.payload, column(times(source.position))));
        combine(
            &engine.kernels,
            core::iter::once(row),
            true,
            itself.chain(known),
            next,
        )
    } else {
        let known = named.map(|source| (source.payload, column(factor)));
        combine(
            &engine.kernels,
            core::iter::once(row),
            true,
            itself.chain(known),
            next,
        )
    };
    // The symbol went in like a source of T - 2 octets, but has a prefix of its own.
    let counted = (body.len() as u16).to_be_bytes();
    for (((octet, sum), own), counted) in prefix.iter_mut().zip(sum).zip(own).zip(counted) {
        *octet = sum ^ gf::mul(factor, own ^ counted);
    }
    true
}

/// Phase one: row n of `syndromes` becomes the n-th accepted symbol without what the known sources
/// contributed to it. Symbols over the same set are worked on together.
pub(crate) fn take_out_known(
    engine: &Engine,
    job: &DecodeJob<'_>,
    accepted: &[u16],
    needed: &PositionSet,
    syndromes: &mut [u8],
) {
    let mut rows = syndromes
        .chunks_exact_mut(stride(job.t))
        .zip(accepted)
        .enumerate()
        .filter(|(n, _)| needed.contains(*n as u8))
        .filter_map(|(_, (row, &at))| {
            Some((job.symbols.get(usize::from(at))?, split_row(row, job.t)?))
        })
        .peekable();
    while let Some((lead, first)) = rows.next() {
        let mut batch = Batch::new(lead, first);
        while batch.count < MAX_ROWS
            && let Some((symbol, row)) = rows.next_if(|(symbol, _)| alike(symbol, lead))
        {
            batch.push(symbol, row);
        }
        batch.run(engine, job.sources);
    }
}

/// Whether two symbols get the same sources taken out.
fn alike(a: &Symbol<'_>, b: &Symbol<'_>) -> bool {
    (a.equation.scheme, a.equation.set) == (b.equation.scheme, b.equation.set)
}

/// Symbols over one set.
struct Batch<'b> {
    scheme: Scheme,
    set: PositionSet,
    indices: [u8; MAX_ROWS],
    bodies: [&'b mut [u8]; MAX_ROWS],
    prefixes: [Option<&'b mut [u8; PREFIX]>; MAX_ROWS],
    count: usize,
}

impl<'b> Batch<'b> {
    fn new(symbol: &Symbol<'_>, row: (&'b mut [u8; PREFIX], &'b mut [u8])) -> Self {
        let mut batch = Self {
            scheme: symbol.equation.scheme,
            set: symbol.equation.set,
            indices: [0; MAX_ROWS],
            bodies: Default::default(),
            prefixes: Default::default(),
            count: 0,
        };
        batch.push(symbol, row);
        batch
    }

    fn push(&mut self, symbol: &Symbol<'_>, (prefix, body): (&'b mut [u8; PREFIX], &'b mut [u8])) {
        copy_symbol(&symbol.octets, prefix, body);
        self.indices[self.count] = symbol.equation.index;
        self.prefixes[self.count] = Some(prefix);
        self.bodies[self.count] = body;
        self.count += 1;
    }

    fn run(mut self, engine: &Engine, sources: &[Source<'_>]) {
        let set = self.set;
        let named = sources
            .iter()
            .filter(|source| set.contains(source.position));
        let next = engine.prefetch.then_some(core::iter::empty());
        let bodies = self.bodies.iter_mut().take(self.count);
        let bodies = bodies.map(|body| &mut **body);
        let sums = match self.scheme {
            // A source copy depends on nothing else.
            Scheme::Copy => return,
            Scheme::Cauchy => {
                let columns = cauchy::Columns::new(self.indices[..self.count].iter().copied());
                let sources = named.map(|source| (source.payload, columns.of(source.position)));
                combine(&engine.kernels, bodies, false, sources, next)
            }
            Scheme::Xor => {
                let sources = named.map(|source| (source.payload, [1; MAX_ROWS]));
                combine(&engine.kernels, bodies, false, sources, next)
            }
        };
        for (prefix, sum) in self.prefixes.into_iter().flatten().zip(sums) {
            prefix
                .iter_mut()
                .zip(sum)
                .for_each(|(octet, sum)| *octet ^= sum);
        }
    }
}

/// Phase two: row n of `out` becomes the combination of syndromes that row n of `matrix` says.
pub(crate) fn combine_syndromes(
    engine: &Engine,
    t: usize,
    matrix: &[u8],
    needed: &PositionSet,
    syndromes: &[u8],
    out: &mut [u8],
) {
    let stride = stride(t);
    let symbols = (syndromes.len() / stride).max(1);
    for (rows, factors) in out
        .chunks_mut(MAX_ROWS * stride)
        .zip(matrix.chunks(MAX_ROWS * symbols))
    {
        let mut bodies: [&mut [u8]; MAX_ROWS] = Default::default();
        let mut prefixes = [const { None }; MAX_ROWS];
        let mut count = 0;
        for (row, _) in rows
            .chunks_exact_mut(stride)
            .zip(factors.chunks_exact(symbols))
        {
            if let Some((prefix, body)) = split_row(row, t) {
                *prefix = [0; PREFIX];
                prefixes[count] = Some(prefix);
                bodies[count] = body;
                count += 1;
            }
        }
        let used = syndromes
            .chunks_exact(stride)
            .enumerate()
            .filter(|(n, _)| needed.contains(*n as u8));
        let used = used.filter_map(|(n, row)| {
            let mut column = [0; MAX_ROWS];
            column
                .iter_mut()
                .zip(factors.chunks_exact(symbols))
                .for_each(|(place, row)| *place = row[n]);
            Some((symbol_of(row, t)?, column))
        });
        for ((prefix, _), column) in used.clone() {
            for (sum, factor) in prefixes.iter_mut().flatten().zip(column) {
                sum.iter_mut()
                    .zip(prefix)
                    .for_each(|(sum, octet)| *sum ^= gf::mul(factor, *octet));
            }
        }
        let sources = used.map(|((_, body), column)| (Payload::Whole(body), column));
        combine(
            &engine.kernels,
            bodies.into_iter().take(count),
            true,
            sources,
            None::<core::iter::Empty<&[u8]>>,
        );
    }
}

/// Prefix and body of one row, for reading.
fn symbol_of(row: &[u8], t: usize) -> Option<(&[u8; PREFIX], &[u8])> {
    let start = crate::decode::LINE - PREFIX;
    row.get(start..start + t)?.split_first_chunk::<PREFIX>()
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
