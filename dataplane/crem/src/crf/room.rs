//! What a flow keeps and for how long: the window's extent, sources near what is missing, and what is
//! given up when memory or the window is full. Oldest first, and counted.

use crem_wire::Psn;

use super::gaps::Gap;
use super::pages::Store;
use super::track::{Cx, Track, drop_symbols, earlier, later};
use super::window::{Kept, Seen, Window};
use crate::time::Instant;

impl<B: Clone> Track<B> {
    /// Moves the end of the window to `upto`, giving up what then is too far behind.
    pub(crate) fn reach(&mut self, upto: Psn, cx: &mut Cx<'_, B>) {
        let excess = |track: &Self| track.window.as_ref().map_or(0, |w| w.excess(upto));
        if excess(self) > 0 {
            self.advance_base(cx);
        }
        let over = excess(self);
        if over > 0
            && let Some(window) = &self.window
        {
            let limit = window.base().add(over as i32);
            self.give_up_before(limit, cx);
        }
        if let Some(window) = &mut self.window {
            window.advance(upto);
        }
    }

    /// Before this PSN nothing matters for decoding any more, and before the second one only sources
    /// near something missing do.
    fn decode_limits(&self) -> Option<(Psn, Psn)> {
        let reach = i32::from(self.configs.max_k());
        let passed = self.window.as_ref()?.next().add(-reach);
        let mut limit = passed;
        if let Some(first) = self.gaps.first() {
            limit = earlier(limit, first.add(-reach));
        }
        for block in self.blocks.iter().filter(|block| !block.closed) {
            // Its description may be a wrong one; the right one may start up to k earlier.
            limit = earlier(limit, block.description.start.add(-reach));
        }
        Some((limit, passed))
    }

    /// Moves the window up to the first position that may still matter, and lets go of the sources that
    /// no decode can need any more: those with nothing missing within the largest k on either side.
    /// O(1) per PSN passed; besides O(open gaps and blocks) where something is missing.
    pub(crate) fn advance_base(&mut self, cx: &mut Cx<'_, B>) {
        let Some((limit, passed)) = self.decode_limits() else {
            return;
        };
        match self.replay_floor(cx) {
            Some(floor) => self.advance_to(earlier(limit, floor), earlier(passed, floor), cx),
            None => self.advance_to(limit, passed, cx),
        }
    }

    fn advance_to(&mut self, limit: Psn, passed: Psn, cx: &mut Cx<'_, B>) {
        let Some(window) = &mut self.window else {
            return;
        };
        if limit.is_after(window.base()) {
            window.drop_before(limit, &mut cx.shared.store);
            self.barred.forget_before(window.base());
        }
        let from = later(self.released, window.base());
        self.released = later(from, passed);
        self.let_go(from, passed, cx);
    }

    /// Lets go of the copies that only a run of resent packets could need.
    pub(crate) fn forget_copies(&mut self, cx: &mut Cx<'_, B>) {
        self.take_run(cx);
        if let Some((limit, passed)) = self.decode_limits() {
            self.advance_to(limit, passed, cx);
        }
    }

    /// Nothing is missing in [start, end) any more.
    pub(crate) fn resolved(&mut self, start: Psn, end: Psn, cx: &mut Cx<'_, B>) {
        let reach = i32::from(self.configs.max_k());
        let to = earlier(end.add(reach), self.released);
        self.let_go(start.add(-reach), to, cx);
    }

    /// Lets go of the sources in [from, to) but those with something missing within the largest k.
    fn let_go(&mut self, from: Psn, to: Psn, cx: &mut Cx<'_, B>) {
        let reach = i32::from(self.configs.max_k());
        let Some(window) = &mut self.window else {
            return;
        };
        let mut from = later(from, window.base());
        while to.is_after(from) {
            let wanted = (self.gaps.from(from.add(-reach)))
                .map(|gap| (gap.start.add(-reach), gap.end().add(reach)));
            let blocks = self.blocks.iter().filter(|block| !block.closed).map(|b| {
                let d = &b.description;
                (d.start.add(-reach), d.end().add(reach))
            });
            let near = blocks
                .chain(wanted)
                .filter(|(_, end)| end.is_after(from))
                .reduce(|a, b| if a.0.is_after(b.0) { b } else { a });
            let until = near.map_or(to, |(start, _)| earlier(start, to));
            window.let_go(from, until, &mut cx.shared.store);
            match near {
                Some((_, end)) => from = end,
                None => return,
            }
        }
    }

    /// Gives up everything before `limit`: gaps, blocks, kept sources.
    pub(crate) fn give_up_before(&mut self, limit: Psn, cx: &mut Cx<'_, B>) {
        while let Some(gap) = self.gaps.pop_first() {
            if gap.start.distance_from(limit) >= 0 {
                self.gaps.add(gap, &mut cx.shared.spare.gaps);
                break;
            }
            let before = limit.distance_from(gap.start).clamp(0, gap.count as i32);
            cx.shared.counters.gaps_evicted += 1;
            self.leave_run(gap.start, before as u32, false, cx);
            let rest = gap.count - before as u32;
            if rest > 0 {
                let gap = Gap {
                    start: limit,
                    count: rest,
                    ..gap
                };
                self.gaps.add(gap, &mut cx.shared.spare.gaps);
                break;
            }
        }
        for index in 0..self.blocks.len() {
            if limit.is_after(self.blocks[index].description.start) {
                self.evict(index, cx);
            }
        }
        if let Some(window) = &mut self.window {
            let before = window.kept();
            window.drop_before(limit, &mut cx.shared.store);
            cx.shared.counters.sources_evicted += u64::from(before - window.kept());
        }
    }

    /// Memory is short: gives up the copies of this flow, or the older quarter of what else it keeps.
    /// Returns the packets freed.
    /// Blocks stay in their places until [`Track::sweep`].
    pub(crate) fn shed(&mut self, cx: &mut Cx<'_, B>) -> u32 {
        let Some(window) = &self.window else {
            return 0;
        };
        let symbols =
            |track: &Self| -> usize { track.blocks.iter().map(|b| b.symbols.len()).sum() };
        let kept = window.kept();
        let before = kept as usize + symbols(self);
        self.forget_copies(cx);
        self.take_suspect(cx);
        if kept == 0
            && let Some(window) = &mut self.window
        {
            window.forget_last(&mut cx.shared.store);
        }
        if let Some(window) = self.window.as_ref().filter(|w| w.kept() == kept) {
            let limit = window.base().add((window.len() / 4).max(1) as i32);
            self.give_up_before(limit, cx);
        }
        let after = self.window.as_ref().map_or(0, |w| w.kept() as usize) + symbols(self);
        before.saturating_sub(after) as u32
    }

    /// Notes what is known of a PSN that no packet arrived with. If there is no memory for that, it stays
    /// a PSN of which nothing is known: it can be asked for and restored like any other.
    pub(crate) fn note(&mut self, psn: Psn, seen: Seen, cx: &mut Cx<'_, B>) {
        if let Some(window) = &mut self.window {
            window.note(psn, seen, cx.now, &mut cx.shared.store);
        }
    }

    /// Notes that a packet with this PSN arrived.
    pub(crate) fn note_arrival(&mut self, psn: Psn, seen: Seen, cx: &mut Cx<'_, B>) {
        self.note_packet(psn, cx, |window, now, store| {
            window.arrived(psn, seen, now, store)
        });
    }

    /// Notes that a packet was restored.
    pub(crate) fn note_restored(&mut self, psn: Psn, cx: &mut Cx<'_, B>) {
        self.note_packet(psn, cx, |window, now, store| {
            window.note(psn, Seen::Restored, now, store)
        });
    }

    /// Notes a packet. That it was there must not be forgotten while its PSN is in the window, or it would
    /// be restored: without memory the flow gives up the older part of what it keeps, and if that does not
    /// help all before the packet, which puts it behind the window.
    fn note_packet(
        &mut self,
        psn: Psn,
        cx: &mut Cx<'_, B>,
        mut note: impl FnMut(&mut Window<B>, Instant, &mut Store<B>) -> bool,
    ) {
        let mut noted = |track: &mut Self, cx: &mut Cx<'_, B>| {
            let window = track.window.as_mut();
            window.is_none_or(|window| note(window, cx.now, &mut cx.shared.store))
        };
        if noted(self, cx) {
            return;
        }
        cx.shared.counters.windows_cut += 1;
        self.shed(cx);
        if !noted(self, cx) {
            self.give_up_before(psn.add(1), cx);
        }
    }

    /// Keeps the source packet of a received PSN if memory allows.
    pub(crate) fn keep(&mut self, psn: Psn, kept: Kept<B>, cx: &mut Cx<'_, B>) {
        if !cx.shared.store.budget.fits(kept.len) {
            self.shed(cx);
        }
        if !cx.shared.store.budget.fits(kept.len) {
            cx.shared.counters.sources_evicted += 1;
            return;
        }
        if let Some(window) = &mut self.window {
            window.keep(psn, kept, &mut cx.shared.store);
        }
    }

    /// Takes away the blocks that were closed during this call.
    pub(crate) fn sweep(&mut self, cx: &mut Cx<'_, B>) {
        for index in (0..self.blocks.len()).rev() {
            if self.blocks[index].closed {
                let mut block = self.blocks.swap_remove(index);
                drop_symbols(&mut block, &mut cx.shared.store.budget);
                cx.shared.spare.symbols.put(block.symbols);
                cx.shared.open_blocks = cx.shared.open_blocks.saturating_sub(1);
                let d = block.description;
                self.resolved(d.start, d.end(), cx);
            }
        }
        self.put_back_memory(cx);
    }

    /// Puts back what is needed only while something is missing or held.
    pub(crate) fn put_back_memory(&mut self, cx: &mut Cx<'_, B>) {
        let spare = &mut cx.shared.spare;
        self.hold.rest(&mut spare.holds);
        self.gaps.rest(&mut spare.gaps);
        if self.blocks.is_empty() && self.blocks.capacity() > 0 {
            spare.blocks.put(core::mem::take(&mut self.blocks));
        }
    }
}
