//! From symbols that were decided on to what the caller is asked to do: a code job, and REPAIRs with their
//! headers. Which symbols a block sends is decided in `repair.rs` and `answer.rs`.

use crem_wire::crem::RepairHeader;
use crem_wire::crem::registry::Scheme;
use crem_wire::{Bitmap, FlowId, Psn, RequestId};

use super::flow::{Binding, Who};
use super::params::Config;
use super::retain::Block;
use crate::actions::{Actions, CodeJob, Emit, RepairKind, Row};
use crate::time::Instant;

/// What to send of a block.
pub(super) struct Symbols {
    pub(super) scheme: u8,
    pub(super) indices: Bitmap,
    /// L: the sources that the symbols are computed over.
    pub(super) set: Bitmap,
    pub(super) session: Option<RequestId>,
    pub(super) kind: RepairKind,
    /// The next free slots have the first so many packets of the block in them.
    pub(super) coded: usize,
}

impl Symbols {
    /// Symbols that nobody asked for, over all that the block has; their indices are used from now on.
    pub(super) fn ordinary<B>(block: &mut Block<B>, indices: Bitmap) -> Self {
        block.used = block.used.or(&indices);
        Self {
            scheme: block.config.scheme,
            indices,
            set: block.present,
            session: None,
            kind: RepairKind::Ordinary,
            coded: 0,
        }
    }
}

impl<B: Clone> Binding<B> {
    /// Queues one code job and the REPAIRs of its symbols. There must be a free slot for each.
    pub(super) fn emit_symbols(
        &mut self,
        block: &Block<B>,
        symbols: &Symbols,
        who: &Who,
        actions: &mut Actions<B>,
        born: Instant,
    ) {
        let first_source = actions.sources.len() as u32;
        let wanted = block
            .sources
            .iter()
            .skip(symbols.coded)
            .filter(|source| symbols.set.contains(source.position));
        actions.sources.extend(wanted.cloned());
        let first_row = actions.rows.len() as u32;
        let last = symbols.indices.last();
        self.probe.symbol_sent(block.config.t, who.srtt, born);
        for index in symbols.indices.iter() {
            let Some(slot) = actions.free_slots.pop() else {
                break;
            };
            self.reports.repairs.sent(1);
            actions.rows.push(Row { index, slot });
            actions.emit.push(Emit {
                to: self.to,
                header: repair_header(self.id, block, symbols, index, last == Some(index)),
                slot: Some(slot),
                kind: symbols.kind,
                dscp: who.dscp,
                born,
                stream: who.key,
            });
        }
        actions.code.push(CodeJob {
            scheme: symbols.scheme,
            t: block.config.t,
            first: symbols.coded == 0,
            sources: first_source..actions.sources.len() as u32,
            rows: first_row..actions.rows.len() as u32,
        });
    }
}

fn repair_header<B>(
    flow: FlowId,
    block: &Block<B>,
    symbols: &Symbols,
    index: u8,
    last: bool,
) -> RepairHeader {
    RepairHeader {
        flow,
        last,
        info: false,
        config: block.config.id,
        scheme: symbols.scheme,
        k: block.k,
        index,
        block_start: block.start,
        session: symbols.session,
        symbol_length: block.config.t,
        present: block.present,
        lost: (symbols.kind == RepairKind::Coded).then_some(symbols.set),
    }
}

/// The header of an INFO (AMB-INFO).
pub(super) fn info_header(
    flow: FlowId,
    config: &Config,
    start: Psn,
    k: u8,
    present: Bitmap,
    session: Option<RequestId>,
) -> RepairHeader {
    RepairHeader {
        flow,
        last: false,
        info: true,
        config: config.id,
        scheme: if config.scheme == 0 {
            Scheme::CauchyRs.code()
        } else {
            config.scheme
        },
        k,
        index: 0,
        block_start: start,
        session,
        symbol_length: 0,
        present,
        lost: None,
    }
}
