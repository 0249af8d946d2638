//! Additional ordinary symbols for blocks of which a node dropped packets (AMB-PREXTRA), without waiting
//! for the request of the CRF. They are computed over all sources of the block, since no request of the
//! CRF vouches for a smaller set, and live on the same tokens, octets and Repair Indices as all ordinary
//! symbols.

use crem_wire::crem::registry::Scheme;
use crem_wire::{Bitmap, Psn};

use super::super::flow::{Binding, Ctx, Shared};
use super::super::retain::{Block, BlockId, Retention};
use super::super::symbols::Symbols;
use super::owed::{Keep, OwedBlock};
use crate::plan;

impl<B: Clone> Binding<B> {
    /// The block, open or retained, that carries the source with this PSN: its first PSN and the position.
    pub(super) fn block_with(&self, psn: Psn, retained: &Retention<B>) -> Option<(Psn, u8)> {
        let (start, present) = match &self.open {
            Some(open) if open.position(psn).is_some() => (open.start, &open.present),
            _ => {
                let closed = self.closed.get(self.closed_at(psn)?)?;
                let block = retained.get(closed.id).filter(|b| !b.is_acknowledged())?;
                (block.start, &block.present)
            }
        };
        let position = u8::try_from(psn.distance_from(start)).ok()?;
        present.contains(position).then_some((start, position))
    }

    /// Takes PSNs that a node dropped on their way and that belong to this stream.
    pub(super) fn on_dropped(&mut self, psns: &[Psn], ctx: &mut Ctx<'_, B>) {
        for &psn in psns {
            let Some((start, position)) = self.block_with(psn, &ctx.sh.retained) else {
                continue;
            };
            if self.owed.note(start, position, ctx.now).is_some() {
                ctx.sh.counters.path_blocks_crowded += 1;
            }
        }
        self.serve_owed(ctx);
    }

    /// Sends what the blocks that nodes dropped packets of still lack, as far as the caps let it.
    pub(in crate::csf) fn serve_owed(&mut self, ctx: &mut Ctx<'_, B>) {
        let mut owed = core::mem::take(&mut self.owed);
        owed.serve(|block| self.serve_block(block, ctx));
        self.owed = owed;
    }

    fn serve_block(&mut self, owed: &mut OwedBlock, ctx: &mut Ctx<'_, B>) -> Keep {
        if self.open.as_ref().is_some_and(|o| o.start == owed.start) {
            return Keep::Yes;
        }
        let closed = self.closed_at(owed.start).and_then(|i| self.closed.get(i));
        let id = closed.map(|c| c.id);
        let Some((id, block)) = id.and_then(|id| {
            Some((
                id,
                ctx.sh.retained.get(id).filter(|b| !b.is_acknowledged())?,
            ))
        }) else {
            ctx.sh.counters.path_blocks_gone += 1;
            return Keep::No;
        };
        let lacking = owed.dropped.len().saturating_sub(block.used.len());
        owed.waits = lacking > 0;
        if lacking == 0 {
            ctx.sh.counters.path_blocks_covered += 1;
            return Keep::Yes;
        }
        if block.answered.is_some() || owed.is_late(ctx.now, ctx.who.srtt) {
            ctx.sh.counters.path_blocks_late += 1;
            return Keep::No;
        }
        if !self.may_add(block, ctx.sh) {
            ctx.sh.counters.path_blocks_refused += 1;
            return Keep::No;
        }
        let count = self.affordable(block, lacking, ctx);
        self.send_extra(id, count, ctx);
        owed.waits = count < lacking;
        ctx.sh.counters.path_blocks_covered += u64::from(!owed.waits);
        Keep::Yes
    }

    /// Whether symbols may be added to this block at all: not while fewer than the configured m are
    /// allowed (congestion, breaker), and not where the scheme has but one symbol.
    fn may_add(&self, block: &Block<B>, sh: &Shared<B>) -> bool {
        let m = self.params.active().map_or(0, |config| config.m);
        let allowed = m > 0 && self.reports.allowed(m) == m && !self.is_broken(sh);
        block.config.scheme == Scheme::CauchyRs.code() && allowed
    }

    /// How many of `lacking` symbols indices, tokens, octets and slots allow now (AMB-RATECAP).
    fn affordable(&self, block: &Block<B>, lacking: usize, ctx: &Ctx<'_, B>) -> usize {
        let t = u64::from(block.config.t.max(1));
        let tokens = self.packet_tokens.available();
        let octets = self.octet_tokens.available() / t;
        let paid = usize::try_from(tokens.min(octets)).unwrap_or(usize::MAX);
        let slots = ctx.actions.free_slots.len();
        let free = plan::lowest_free_indices(block.k, &block.used, lacking).len();
        lacking.min(paid).min(slots).min(free)
    }

    fn send_extra(&mut self, id: BlockId, count: usize, ctx: &mut Ctx<'_, B>) {
        let Some(block) = ctx.sh.retained.get_mut(id).filter(|_| count > 0) else {
            return;
        };
        let indices: Bitmap = plan::lowest_free_indices(block.k, &block.used, count);
        let symbols = Symbols::ordinary(block, indices);
        let sent = count as u64;
        let t = u64::from(block.config.t);
        let paid = self.packet_tokens.take(sent) && self.octet_tokens.take(sent * t);
        debug_assert!(paid, "the count was limited to what the buckets hold");
        let counters = &mut ctx.sh.counters;
        counters.path_symbols += sent;
        counters.symbols_ordinary += sent;
        ctx.counts.ordinary += sent;
        if let Some(block) = ctx.sh.retained.get(id) {
            self.emit_symbols(block, &symbols, ctx.who, ctx.actions, ctx.now);
        }
    }
}
