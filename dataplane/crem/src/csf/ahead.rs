//! Symbols of open blocks that are begun before their block is complete, so that packets are coded in the burst
//! they come in, while the caller has just looked at them, and not all at the end of the block. Which symbols
//! a closed block then sends is decided in `repair.rs`; a symbol begun in vain only cost the work.

use alloc::vec::Vec;

use super::adapt::open_blocks;
use super::flow::{Binding, Ctx};
use crate::actions::{Actions, CodeJob, Row, SlotId};
use crate::memory::of_vec;

/// So many packets of a block are coded at once: with fewer, adding to a symbol costs more than it spares.
const RUN: usize = 8;
/// Blocks of more symbols are coded at their end.
const MOST_ROWS: usize = 8;

/// Packets are coded as they come, some at a time, into symbols that wait in slots until their block is complete.
/// Work is then spread evenly over bursts, instead of a whole block in the one that completes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ahead {
    /// Slots that such symbols may take at a time. Blocks beyond are coded when they are complete.
    pub slots: u32,
    /// The shortest symbol, T octets, that this is done for.
    pub shortest: u16,
}

impl Ahead {
    /// Every block is coded when it is complete.
    pub const OFF: Self = Self {
        slots: 0,
        shortest: 0,
    };
}

/// Names the begun symbols of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BegunId(u16);

/// The symbols of one open block, indices 0 to `rows`.
#[derive(Clone, Copy, Debug)]
struct Place {
    slots: [SlotId; MOST_ROWS],
    rows: u8,
    /// Packets of the block, in the order of its list, that are in the symbols.
    coded: u16,
}

/// Begun symbols of all flows, as many as the configuration allows.
#[derive(Debug, Default)]
pub(super) struct Begun {
    taken: u32,
    places: Vec<Place>,
    free: Vec<BegunId>,
    /// Slots of blocks that were given up, for the caller.
    returned: Vec<SlotId>,
}

impl Begun {
    /// Gives the slots of blocks that were given up back to the caller.
    pub(super) fn give_back<B>(&mut self, actions: &mut Actions<B>) {
        actions.free_slots.append(&mut self.returned);
    }

    /// Takes `rows` free slots; `None` where more than `limit` would be taken then.
    fn begin<B>(&mut self, rows: u8, limit: u32, actions: &mut Actions<B>) -> Option<BegunId> {
        let limit = limit.min(u32::from(u16::MAX));
        let few = usize::from(rows) <= MOST_ROWS && self.taken + u32::from(rows) <= limit;
        let left = actions.free_slots.len().checked_sub(usize::from(rows));
        let left = left.filter(|_| few && rows > 0)?;
        let mut place = Place {
            slots: [SlotId(0); MOST_ROWS],
            rows,
            coded: 0,
        };
        for (to, slot) in place.slots.iter_mut().zip(actions.free_slots.drain(left..)) {
            *to = slot;
        }
        self.taken += u32::from(rows);
        if let Some(id) = self.free.pop() {
            self.places[usize::from(id.0)] = place;
            return Some(id);
        }
        // No more places than slots, which a u16 counts.
        self.places.push(place);
        Some(BegunId((self.places.len() - 1) as u16))
    }

    /// How many packets of the block are in its symbols.
    fn coded(&self, id: BegunId) -> usize {
        usize::from(self.places[usize::from(id.0)].coded)
    }

    fn end(&mut self, id: BegunId) -> Place {
        let place = self.places[usize::from(id.0)];
        self.taken -= u32::from(place.rows);
        self.free.push(id);
        place
    }

    /// A block is given up: its slots are the caller's again, soon.
    pub(super) fn abandon(&mut self, id: Option<BegunId>) {
        if let Some(id) = id {
            let place = self.end(id);
            let slots = place.slots.iter().take(usize::from(place.rows));
            self.returned.extend(slots);
        }
    }

    /// A block is complete: makes the slots of its symbols the next free ones, in their order, and gives the
    /// number of these and that of the packets that are in them.
    pub(super) fn claim<B>(
        &mut self,
        id: Option<BegunId>,
        actions: &mut Actions<B>,
    ) -> (u8, usize) {
        let Some(id) = id else { return (0, 0) };
        let place = self.end(id);
        let slots = place.slots.iter().take(usize::from(place.rows));
        actions.free_slots.extend(slots.rev());
        (place.rows, usize::from(place.coded))
    }

    /// Octets of memory.
    pub(super) const fn octets(&self) -> usize {
        of_vec(&self.places) + of_vec(&self.free) + of_vec(&self.returned)
    }
}

impl<B: Clone> Binding<B> {
    /// Codes what came of the open block, if it is enough and the block is to have symbols as things are.
    pub(super) fn code_ahead(&mut self, ctx: &mut Ctx<'_, B>) {
        let Some(open) = &self.open else { return };
        let coded = open.begun.map_or(0, |id| ctx.sh.begun.coded(id));
        if open.sources.len() < coded + RUN {
            return;
        }
        let Some(id) = open.begun.or_else(|| self.begin_ahead(ctx)) else {
            return;
        };
        let Some(open) = &mut self.open else { return };
        open.begun = Some(id);
        let actions = &mut *ctx.actions;
        let first_source = actions.sources.len() as u32;
        actions
            .sources
            .extend(open.sources.iter().skip(coded).cloned());
        let first_row = actions.rows.len() as u32;
        let place = &mut ctx.sh.begun.places[usize::from(id.0)];
        let slots = place.slots.iter().take(usize::from(place.rows));
        let rows = slots.zip(0u8..).map(|(&slot, index)| Row { index, slot });
        actions.rows.extend(rows);
        // A block has at most 255 packets.
        place.coded = open.sources.len() as u16;
        actions.code.push(CodeJob {
            scheme: open.config.scheme,
            t: open.config.t,
            first: coded == 0,
            sources: first_source..actions.sources.len() as u32,
            rows: first_row..actions.rows.len() as u32,
        });
    }

    fn begin_ahead(&self, ctx: &mut Ctx<'_, B>) -> Option<BegunId> {
        let config = &self.open.as_ref()?.config;
        let ahead = ctx.sh.cfg.csf.ahead;
        // Asked with every run of short packets.
        if config.t < ahead.shortest {
            return None;
        }
        let left_out = || open_blocks(ctx.who, config.k) > u64::from(self.max_open_blocks);
        let rows = self.reports.allowed(config.m);
        if rows == 0 || left_out() || self.is_broken(ctx.sh) {
            return None;
        }
        ctx.sh.begun.begin(rows, ahead.slots, ctx.actions)
    }
}
