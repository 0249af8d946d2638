//! REPAIR messages as they arrive: checks against the flow's configurations, which block they belong to,
//! and what they add to it (CREM, REPAIR; AMB-UNKCFG, AMB-EARLYK, AMB-BLOCKCONF, AMB-INFO, AMB-COPY).
//!
//! Cost of a REPAIR of a block with nothing missing: a few comparisons once the window has moved past
//! the block, O(k) before. Of a block with something missing: O(k), plus a rank that is a count where
//! all symbols cover all unknowns.

use crem_fec::Scheme;
use crem_wire::Bitmap;
use crem_wire::crem::RepairHeader;

use super::block::{Block, Description};
use super::params::Config;
use super::track::{Cx, MAX_GAP, Origin, REUSE, Track};
use crate::actions::SymbolRef;

/// Of the packets that may be kept, all flows together have one block in so many open at most.
const PACKETS_PER_BLOCK: u32 = 8;

/// The symbol of a REPAIR: its frame and the offset in it.
pub(crate) type Symbol<B> = Option<(B, u16)>;

impl<B: Clone> Track<B> {
    /// A REPAIR of this flow arrived.
    pub(crate) fn on_repair(
        &mut self,
        header: &RepairHeader,
        symbol: Symbol<B>,
        ce: bool,
        cx: &mut Cx<'_, B>,
    ) {
        cx.shared.counters.repairs += 1;
        self.tally.repair(ce);
        self.note_activity(cx.now);
        self.requests.heard();
        self.update_times(cx);
        let Some(config) = self.check(header, symbol.is_some(), cx) else {
            return;
        };
        self.note_answer(header, cx);
        if header.info {
            cx.shared.counters.infos += 1;
        }
        self.note_lag(header, cx);
        if self.is_far(header, cx) {
            return;
        }
        if let Some(index) = self.find_or_open(header, &config, cx) {
            self.add_to_block(index, header, symbol, &config, cx);
            self.look_at(index, cx);
        }
        self.sweep(cx);
    }

    /// The configuration of a REPAIR that is consistent with it.
    fn check(&self, header: &RepairHeader, has_symbol: bool, cx: &mut Cx<'_, B>) -> Option<Config> {
        let counters = &mut cx.shared.counters;
        let inside = |set: &Bitmap| set.last().is_none_or(|last| last < header.k);
        let lost = header.lost.as_ref();
        let sets = inside(&header.present)
            && lost.is_none_or(|l| !l.is_empty() && header.present.contains_all(l));
        let form = if header.info {
            lost.is_none()
        } else {
            has_symbol
                && !header.present.is_empty()
                && self.is_index_possible(header)
                && lost.is_none_or(|_| header.session.is_some())
        };
        if header.k == 0 || !sets || !form {
            counters.repairs_invalid += 1;
            return None;
        }
        let config = self.configs.get(header.config).copied();
        let fits = config.filter(|c| {
            let copy = header.scheme == Scheme::Copy.number();
            // INFO for a stretch without any packet may span more than a block (AMB-LONGREAD).
            let k = header.k <= c.k || header.info && header.present.is_empty();
            let scheme = header.scheme == c.scheme || copy || header.info;
            // A copy may name a later configuration than its block's; its T is compared with the block.
            let t = header.symbol_length == c.t || copy || header.info;
            k && scheme && t
        });
        counters.repairs_unknown_config += u64::from(fits.is_none());
        fits
    }

    fn is_index_possible(&self, header: &RepairHeader) -> bool {
        match Scheme::from_number(header.scheme) {
            Some(Scheme::Copy) => header.present.contains(header.index) && header.lost.is_none(),
            Some(Scheme::Cauchy) => u16::from(header.index) + u16::from(header.k) <= 255,
            Some(Scheme::Xor) => header.index == 0 && header.lost.is_none(),
            None => false,
        }
    }

    /// What the REPAIR answers, and the RTT sample that gives.
    fn note_answer(&mut self, header: &RepairHeader, cx: &mut Cx<'_, B>) {
        let Some(session) = header.session else {
            return;
        };
        let reveals = !header.present.is_empty();
        if let Some(answer) = self.requests.answer(cx.now, session, reveals)
            && let Some(rtt) = answer.rtt
        {
            self.sample_rtt(rtt, cx);
            self.update_times(cx);
        }
    }

    /// Whether the block is settled already, or so far away that it cannot be of this stream's present.
    fn is_far(&mut self, header: &RepairHeader, cx: &mut Cx<'_, B>) -> bool {
        let counters = &mut cx.shared.counters;
        let Some(window) = &self.window else {
            // Nothing was received yet: no frame could lend its headers (AMB-HDRREST).
            counters.repairs_out_of_range += 1;
            return true;
        };
        let end = header.block_start.add(i32::from(header.k));
        let (ahead, behind) = (
            end.distance_from(window.next()),
            end.distance_from(window.base()),
        );
        if ahead > MAX_GAP || behind < -REUSE {
            counters.repairs_out_of_range += 1;
            true
        } else if behind <= 0 {
            counters.repairs_unneeded += 1;
            true
        } else {
            false
        }
    }

    /// How far the block's first symbol came after its last source.
    fn note_lag(&mut self, header: &RepairHeader, cx: &mut Cx<'_, B>) {
        let first = header.session.is_none() && !header.info && header.index == 0;
        let Some(last) = header.present.last().filter(|_| first) else {
            return;
        };
        let psn = header.block_start.add(i32::from(last));
        if let Some(lag) = self.passage.since(cx.now, psn) {
            self.lag.note(cx.now, lag);
        }
    }

    /// The open block that the REPAIR describes; opens it if something of it is missing.
    fn find_or_open(
        &mut self,
        header: &RepairHeader,
        config: &Config,
        cx: &mut Cx<'_, B>,
    ) -> Option<usize> {
        let description = Description::of(header);
        let copy = header.scheme == Scheme::Copy.number() && !header.info;
        let known = self.blocks.iter().position(|b| {
            let config = if copy {
                b.description.config
            } else {
                header.config
            };
            let asked = Description {
                config,
                ..description
            };
            !b.closed && b.description == asked
        });
        // All symbols of a block have its T, copies as well (AMB-TCONST, AMB-COPY).
        let t = known.map_or(config.t, |index| self.blocks[index].t);
        if copy && header.symbol_length != t {
            cx.shared.counters.repairs_unknown_config += 1;
            return None;
        }
        if known.is_some() {
            return known;
        }
        let rivals = self
            .blocks
            .iter()
            .filter(|b| !b.closed && b.description.overlaps(&description))
            .count();
        if rivals >= 2 {
            cx.shared.counters.blocks_conflicting += 1;
            return None;
        }
        let symbols = cx.shared.spare.symbols.take();
        let serial = cx.shared.next_serial;
        cx.shared.next_serial += 1;
        let mut block = Block::new(
            serial,
            description,
            config.scheme,
            config.t,
            cx.now,
            symbols,
        );
        block.refresh(self.window.as_ref()?);
        let missing = block.missing();
        block.waived = missing
            .iter()
            .filter(|position| self.barred.contains(description.psn(*position)))
            .collect();
        if block.missing().is_empty() {
            cx.shared.counters.repairs_unneeded += u64::from(!header.info);
            cx.shared.spare.symbols.put(block.symbols);
            self.settle_absent(&description, cx);
            return None;
        }
        if !self.make_room_for_block(cx) {
            cx.shared.counters.repairs_no_memory += 1;
            cx.shared.spare.symbols.put(block.symbols);
            return None;
        }
        cx.shared.counters.blocks_opened += 1;
        if self.blocks.capacity() == 0 {
            self.blocks = cx.shared.spare.blocks.take();
        }
        self.blocks.push(block);
        cx.shared.open_blocks += 1;
        self.watch_blocks = true;
        let index = self.blocks.len() - 1;
        if let Some(window) = &self.window
            && window.next().is_after(description.end())
        {
            self.blocks[index].beyond = Some(cx.now);
        }
        self.adopt(index, cx);
        Some(index)
    }

    /// A block in which nothing is missing may still explain gaps: its absent positions.
    fn settle_absent(&mut self, description: &Description, cx: &mut Cx<'_, B>) {
        if self.gaps.is_empty() {
            return;
        }
        let mut pieces = core::mem::take(&mut cx.shared.pieces);
        let count = u32::from(description.k);
        self.gaps.take(description.start, count, |g| pieces.push(g));
        for piece in &pieces {
            for n in 0..piece.count {
                self.note_absent(piece.start.add(n as i32), cx);
            }
            self.resolved(piece.start, piece.end(), cx);
        }
        pieces.clear();
        cx.shared.pieces = pieces;
    }

    /// Gives up the oldest block of the flow if it has as many as one may have open, or all flows
    /// together have. `false` if it has none to give up.
    fn make_room_for_block(&mut self, cx: &mut Cx<'_, B>) -> bool {
        let bound = usize::from(cx.config.crf.max_open_blocks).max(1);
        let open = self.blocks.iter().filter(|b| !b.closed).count();
        let bound_of_all = (cx.config.crf.keep_packets / PACKETS_PER_BLOCK).max(1);
        if open < bound && cx.shared.open_blocks < bound_of_all {
            return true;
        }
        let oldest = (0..self.blocks.len())
            .filter(|i| !self.blocks[*i].closed)
            .min_by_key(|i| self.blocks[*i].serial);
        if let Some(index) = oldest {
            self.evict(index, cx);
            self.sweep(cx);
        }
        oldest.is_some()
    }

    /// Adds what the REPAIR brings to its block.
    fn add_to_block(
        &mut self,
        index: usize,
        header: &RepairHeader,
        symbol: Symbol<B>,
        config: &Config,
        cx: &mut Cx<'_, B>,
    ) {
        let now = cx.now;
        let block = &mut self.blocks[index];
        let answers = header.session.is_some() && header.session == block.request;
        if header.info {
            block.informed |= answers;
            if header.session.is_none() {
                // Sent instead of symbols at the end of a burst (AMB-TAILINFO).
                block.all_seen.get_or_insert(now);
            }
            return;
        }
        if header.session.is_none() && block.see_ordinary(header.index, header.last, config.m) {
            block.all_seen.get_or_insert(now);
        }
        if answers {
            block.answered = true;
            // The answer's symbols come back to back: what is not here A after the last is lost.
            block.due = now + self.times.allowance;
        }
        if let Some((buf, off)) = symbol {
            self.hold_symbol(index, header, (buf, off), cx);
        }
    }

    fn hold_symbol(
        &mut self,
        index: usize,
        header: &RepairHeader,
        (buf, off): (B, u16),
        cx: &mut Cx<'_, B>,
    ) {
        let (set, origin) = match header.lost {
            _ if header.scheme == Scheme::Copy.number() => {
                ([header.index].into_iter().collect(), Origin::Copy)
            }
            Some(lost) => (lost, Origin::Coded),
            None => (header.present, Origin::Ordinary),
        };
        let block = &self.blocks[index];
        let (scheme, symbol) = (header.scheme, header.index);
        // Up to as many symbols as positions are taken unseen; beyond that only what adds rank.
        let crowded = block.symbols.len() >= block.description.present.len();
        let useless = block.holds(scheme, symbol, &set)
            || crowded && !block.is_useful(&mut cx.shared.solver, scheme, symbol, &set)
            || block.symbols.len() >= 2 * usize::from(u8::MAX);
        if useless {
            cx.shared.counters.repairs_redundant += 1;
            return;
        }
        if !cx.shared.store.budget.fits(block.t) {
            cx.shared.counters.repairs_no_memory += 1;
            return;
        }
        match origin {
            Origin::Ordinary => cx.shared.counters.symbols_ordinary += 1,
            Origin::Coded => cx.shared.counters.symbols_coded += 1,
            Origin::Copy => cx.shared.counters.symbols_copy += 1,
        }
        cx.shared.store.budget.add(block.t);
        self.blocks[index].coded |= origin == Origin::Coded;
        self.blocks[index].symbols.push(SymbolRef {
            index: symbol,
            scheme,
            set,
            buf,
            off,
        });
    }
}
