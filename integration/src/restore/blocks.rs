//! The sender's side of the check: a run cut into blocks, with repair symbols over each.

use std::ops::Range;

use crem_fec::{
    EncodeError, EncodeJob, Engine, Equation, PositionSet, Row, Scheme, Source, Symbol,
};

use super::{K, Packet};

/// A block of a run and its ordinary repair symbols.
pub(super) struct Block {
    /// Its packets, as indices into the run.
    pub(super) packets: Range<usize>,
    present: PositionSet,
    symbols: Vec<Vec<u8>>,
}

/// The position of a packet in the block that begins with `first`.
pub(super) fn position(first: &Packet<'_>, packet: &Packet<'_>) -> u8 {
    packet.psn.distance_from(first.psn) as u8
}

/// Cuts `packets` into blocks of `K` positions, each beginning at the first packet behind the one
/// before, and codes as many symbols of T = `t` octets as the whole block's loss needs.
///
/// # Errors
/// A packet does not fit `t`.
pub(super) fn code(
    engine: &Engine,
    packets: &[Packet<'_>],
    t: usize,
) -> Result<Vec<Block>, EncodeError> {
    let mut blocks = Vec::new();
    let mut start = 0;
    while let Some(first) = packets.get(start) {
        let inside = |packet: &&Packet<'_>| packet.psn.distance_from(first.psn) < i32::from(K);
        let count = packets[start..].iter().take_while(inside).count();
        blocks.push(code_block(engine, packets, start..start + count, t)?);
        start += count;
    }
    Ok(blocks)
}

fn code_block(
    engine: &Engine,
    packets: &[Packet<'_>],
    range: Range<usize>,
    t: usize,
) -> Result<Block, EncodeError> {
    let sources = sources(packets, &range, |_| true);
    let mut present = PositionSet::default();
    for source in &sources {
        present.insert(source.position);
    }
    let mut symbols = vec![vec![0; t]; sources.len()];
    let mut rows: Vec<Row<'_>> = symbols
        .iter_mut()
        .zip(0u8..)
        .map(|(symbol, index)| Row { index, symbol })
        .collect();
    engine.encode(&mut [EncodeJob::new(Scheme::Cauchy, &mut rows, &sources, true)?]);
    Ok(Block {
        packets: range,
        present,
        symbols,
    })
}

/// The packets of a block that `keep` by their index in the run, as sources.
pub(super) fn sources<'a>(
    packets: &[Packet<'a>],
    block: &Range<usize>,
    keep: impl Fn(usize) -> bool,
) -> Vec<Source<'a>> {
    let Some(first) = packets.get(block.start) else {
        return Vec::new();
    };
    block
        .clone()
        .filter(|&at| keep(at))
        .map(|at| Source {
            position: position(first, &packets[at]),
            payload: packets[at].payload().into(),
        })
        .collect()
}

impl Block {
    /// The first `count` symbols.
    pub(super) fn symbols(&self, count: usize) -> Vec<Symbol<'_>> {
        self.symbols
            .iter()
            .zip(0u8..)
            .take(count)
            .map(|(octets, index)| Symbol {
                equation: Equation {
                    scheme: Scheme::Cauchy,
                    index,
                    set: self.present,
                },
                octets: octets.as_slice().into(),
            })
            .collect()
    }
}
