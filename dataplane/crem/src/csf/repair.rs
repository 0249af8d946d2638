//! Sources into blocks, and closed blocks into ordinary repair symbols, within the caps.

use crem_wire::crem::RepairHeader;
use crem_wire::{Bitmap, Psn};

use super::adapt::open_blocks;
use super::block::OpenBlock;
use super::flow::{Binding, Closed, Ctx, Who};
use super::params::Config;
use super::retain::Block;
use super::symbols::{Symbols, info_header};
use crate::actions::{Emit, RepairKind};
use crate::bucket::RatioBucket;
use crate::events::Event;
use crate::mutate::{self, Fault};
use crate::packet::Desc;
use crate::time::Instant;

/// A jump beyond this many blocks cuts the open block short.
const JUMP_BLOCKS: u32 = 4;
/// Bursts of unsolicited INFO.
const TAIL_INFO_DEPTH: u64 = 4;
/// Blocks this far behind the highest PSN are given up (AMB-BLOCKID).
const MAX_BEHIND: i32 = 1 << 22;

/// Why a block is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Closing {
    /// All positions are covered.
    Full,
    /// No source for the burst timeout.
    BurstEnd,
    /// A jump.
    Cut,
}

/// A source packet as the block formation sees it.
pub(super) struct Source<'a, B> {
    pub(super) packet: &'a Desc<B>,
    /// Positions beyond the highest PSN, 1 for the next one.
    pub(super) jump: u32,
    /// Positions after it that belong to the READ that it is.
    pub(super) absent: u32,
}

impl<B: Clone> Binding<B> {
    /// Takes a packet with a new PSN. Costs: three additions for the buckets, one reference, one bit;
    /// at the end of a block, per symbol, one code job row and one REPAIR header.
    pub(super) fn on_source(&mut self, source: &Source<'_, B>, ctx: &mut Ctx<'_, B>) {
        let psn = source.packet.psn;
        self.packet_tokens.earn(1);
        self.octet_tokens.earn(u64::from(source.packet.payload_len));
        self.info_tokens.earn(1);
        if self.owed.waits() && self.packet_tokens.available() > 0 {
            self.serve_owed(ctx);
        }
        self.end_block_before(psn, source.jump, ctx);
        if self.open.is_none() && !self.begin_block(source.packet, ctx) {
            return;
        }
        let room = self.has_room(source.packet, ctx);
        let Some(open) = &mut self.open else { return };
        let Some(position) = open.position(psn) else {
            return;
        };
        if room {
            open.insert(position, source.packet);
        }
        open.cover(position, source.absent);
        self.last_source = ctx.now;
        if open.is_full() {
            self.close(Closing::Full, ctx);
        }
    }

    /// Takes a packet at or behind the highest PSN: it may fill a gap of the open block (AMB-UPGAP).
    pub(super) fn on_late(&mut self, packet: &Desc<B>, ctx: &mut Ctx<'_, B>) {
        if !self
            .open
            .as_ref()
            .is_some_and(|open| open.wants_late(packet.psn))
        {
            return;
        }
        let room = self.has_room(packet, ctx);
        let Some(open) = self.open.as_mut().filter(|_| room) else {
            return;
        };
        if let Some(position) = open.position(packet.psn) {
            open.insert(position, packet);
            ctx.sh.counters.sources_late_kept += 1;
        }
    }

    fn end_block_before(&mut self, psn: Psn, jump: u32, ctx: &mut Ctx<'_, B>) {
        let Some(open) = &self.open else { return };
        if jump > JUMP_BLOCKS * u32::from(open.config.k) {
            ctx.sh.counters.psn_jumps += 1;
            self.close(Closing::Cut, ctx);
        } else if open.position(psn).is_none() {
            self.close(Closing::Full, ctx);
        }
    }

    /// Opens a block at a packet that can be coded; puts a due configuration in force first.
    fn begin_block(&mut self, packet: &Desc<B>, ctx: &mut Ctx<'_, B>) -> bool {
        let before = self.params.active();
        let Some((config, fresh)) = self.params.for_block(packet.psn) else {
            return false;
        };
        if fresh {
            self.put_in_force(&config, before, ctx);
        }
        if packet.payload_len.saturating_add(2) > config.t {
            // A block starts at a packet that it can hold.
            ctx.sh.counters.sources_oversize += 1;
            return false;
        }
        self.known_from.get_or_insert(packet.psn);
        let list = ctx.sh.retained.list();
        self.open = Some(OpenBlock::new(packet.psn, config, list, ctx.now));
        true
    }

    fn put_in_force(&mut self, config: &Config, before: Option<Config>, ctx: &mut Ctx<'_, B>) {
        self.reports.reverted = None;
        if let Some(before) = before {
            let (old, new) = ((before.k, before.m), (config.k, config.m));
            // Reports of what is sent from now on come after a round trip.
            self.reports.raise.changed(ctx.now, ctx.who.srtt, old, new);
        }
        let (m, k) = (u64::from(config.m), u64::from(config.k));
        let permille = u64::from(ctx.sh.cfg.fec.octet_cap_permille);
        let (gain, price, depth) = (m * permille, k * 1000, m * u64::from(config.t));
        if !core::mem::replace(&mut self.in_force, true) {
            self.packet_tokens = RatioBucket::new(m, k, m);
            self.octet_tokens = RatioBucket::new(gain, price, depth);
            self.info_tokens = RatioBucket::new(1, k, TAIL_INFO_DEPTH);
            ctx.sh.events.push(Event::FlowProtected(ctx.who.key));
        } else {
            self.packet_tokens = self.packet_tokens.with_ratio(m, k, m);
            self.octet_tokens = self.octet_tokens.with_ratio(gain, price, depth);
            self.info_tokens = self.info_tokens.with_ratio(1, k, TAIL_INFO_DEPTH);
        }
        let Config { id, k, m, t, .. } = *config;
        ctx.sh.events.push(Event::ConfigChanged {
            stream: ctx.who.key,
            config: id,
            k,
            m,
            t,
        });
    }

    fn has_room(&mut self, packet: &Desc<B>, ctx: &mut Ctx<'_, B>) -> bool {
        let t = self.open.as_ref().map_or(0, |open| open.config.t);
        if packet.payload_len.saturating_add(2) > t {
            ctx.sh.counters.sources_oversize += 1;
            return false;
        }
        while ctx.sh.retained.owner_at_limit(ctx.who.slot)
            && let Some(oldest) = self.closed.pop_front()
        {
            self.forget(oldest, ctx);
        }
        let room = ctx.sh.retained.admit(ctx.who.slot, packet.payload_len);
        let counters = &mut ctx.sh.counters;
        *(if room {
            &mut counters.sources_protected
        } else {
            &mut counters.sources_no_room
        }) += 1;
        room
    }

    /// Closes the open block and sends what it may of its symbols.
    pub(super) fn close(&mut self, why: Closing, ctx: &mut Ctx<'_, B>) {
        let Some(open) = self.open.take() else { return };
        let counters = &mut ctx.sh.counters;
        *(match why {
            Closing::Full => &mut counters.blocks_full,
            Closing::BurstEnd => &mut counters.blocks_burst_end,
            Closing::Cut => &mut counters.blocks_cut,
        }) += 1;
        ctx.counts.blocks += 1;
        self.burst_length
            .closed(open.covered(), why != Closing::Full);
        if open.sources.is_empty() {
            ctx.sh.retained.abandon(ctx.who.slot, open.sources);
            return;
        }
        let begun = open.begun;
        let mut block = closed_block(open, why, ctx.who.slot, ctx.now);
        let (rows, coded) = ctx.sh.begun.claim(begun, ctx.actions);
        let count = self.ordinary_count(&block, ctx);
        ctx.sh.counters.symbols_vain += u64::from(rows.saturating_sub(count));
        // With more symbols than were begun all are coded anew.
        let coded = if count <= rows { coded } else { 0 };
        let sent = self.send_ordinary(&mut block, count, coded, ctx);
        let sent = if sent == 0 {
            self.send_probe(&mut block, ctx)
        } else {
            sent
        };
        ctx.counts.ordinary += u64::from(sent);
        // Among INFO a report would not show whether symbols arrive.
        if sent == 0 && why == Closing::BurstEnd && !self.is_probing(block.config.t, ctx) {
            self.send_tail_info(&block, ctx);
        }
        self.expire(ctx);
        let (start, k) = (block.start, block.k);
        let id = ctx.sh.retained.keep(block);
        self.closed.push_back(Closed { start, k, id });
        self.answer_deferred(id, start, ctx);
        if self.owed.waits() {
            self.serve_owed(ctx);
        }
    }

    /// min(m, present positions, tokens), and within the octet cap (AMB-EARLYM, AMB-RATECAP).
    fn ordinary_count(&mut self, block: &Block<B>, ctx: &mut Ctx<'_, B>) -> u8 {
        if self.is_broken(ctx.sh) {
            return 0;
        }
        let m = self.reports.allowed(block.config.m);
        if m == 0 {
            return 0;
        }
        if !self.crf_has_room(block.config.k, ctx.who) {
            ctx.sh.counters.blocks_skipped += 1;
            return 0;
        }
        let wanted = u64::from(m).min(block.sources.len() as u64);
        let tokens = if mutate::has(Fault::TokensIgnored) {
            wanted
        } else {
            self.packet_tokens.available()
        };
        let by_packets = wanted.min(tokens);
        let by_octets =
            by_packets.min(self.octet_tokens.available() / u64::from(block.config.t.max(1)));
        let by_slots = by_octets.min(ctx.actions.free_slots.len() as u64);
        let counters = &mut ctx.sh.counters;
        counters.blocks_token_limited += u64::from(by_packets < wanted);
        counters.blocks_octet_limited += u64::from(by_octets < by_packets);
        counters.no_slot += by_octets - by_slots;
        counters.blocks_bare += u64::from(by_slots == 0);
        u8::try_from(by_slots).unwrap_or(0)
    }

    /// Leaves out so many blocks that the rest fits what the CRF can hold open (AMB-OPENBLOCKS).
    fn crf_has_room(&mut self, k: u8, who: &Who) -> bool {
        let open = open_blocks(who, k);
        let limit = u64::from(self.max_open_blocks);
        if open <= limit {
            return true;
        }
        self.block_share += limit;
        let mine = self.block_share >= open;
        if mine {
            self.block_share %= open;
        }
        mine
    }

    /// Sends `count` symbols, which the first `coded` packets are in already.
    fn send_ordinary(
        &mut self,
        block: &mut Block<B>,
        count: u8,
        coded: usize,
        ctx: &mut Ctx<'_, B>,
    ) -> u8 {
        if count == 0 {
            return 0;
        }
        let paid = self.packet_tokens.take(u64::from(count))
            && self
                .octet_tokens
                .take(u64::from(count) * u64::from(block.config.t));
        debug_assert!(paid, "the count was limited to what the buckets hold");
        let indices = Bitmap::first(usize::from(count));
        let symbols = Symbols {
            coded,
            ..Symbols::ordinary(block, indices)
        };
        self.emit_symbols(block, &symbols, ctx.who, ctx.actions, ctx.now);
        ctx.sh.counters.symbols_ordinary += u64::from(count);
        count
    }

    /// Tells the CRF of a block end that no symbol tells it of (AMB-TAILINFO).
    fn send_tail_info(&mut self, block: &Block<B>, ctx: &mut Ctx<'_, B>) {
        if ctx.sh.cfg.csf.tail_info && self.info_tokens.take(1) {
            let header = info_header(
                self.id,
                &block.config,
                block.start,
                block.k,
                block.present,
                None,
            );
            self.emit_info(header, ctx);
            ctx.sh.counters.tail_info_sent += 1;
            ctx.counts.info += 1;
        }
    }

    /// Queues an INFO.
    pub(super) fn emit_info(&mut self, header: RepairHeader, ctx: &mut Ctx<'_, B>) {
        self.reports.repairs.sent(1);
        self.probe.info_sent();
        ctx.actions.emit.push(Emit {
            to: self.to,
            header,
            slot: None,
            kind: RepairKind::Info,
            dscp: ctx.who.dscp,
            born: ctx.now,
            stream: ctx.who.key,
        });
    }

    /// Gives up blocks that are too old or too far behind.
    pub(super) fn expire(&mut self, ctx: &mut Ctx<'_, B>) {
        let keep = ctx.who.keep(ctx.sh.cfg.csf.keep_floor);
        let newest = ctx.who.pace.next;
        while let Some(&front) = self.closed.front() {
            let far = newest.distance_from(front.start) > MAX_BEHIND;
            let old = match ctx.sh.retained.get(front.id) {
                None => true,
                Some(block) => {
                    let old = ctx.now.since(block.closed_at) >= keep;
                    ctx.sh.counters.retain_expired += u64::from(old);
                    ctx.sh.counters.retain_distance += u64::from(far && !old);
                    old
                }
            };
            if !(old || far) {
                return;
            }
            self.closed.pop_front();
            self.forget_held(front, ctx);
        }
    }

    fn forget(&mut self, closed: Closed, ctx: &mut Ctx<'_, B>) {
        ctx.sh.counters.retain_evicted += u64::from(ctx.sh.retained.get(closed.id).is_some());
        self.forget_held(closed, ctx);
    }

    fn forget_held(&mut self, closed: Closed, ctx: &mut Ctx<'_, B>) {
        ctx.sh.retained.release(closed.id);
        self.known_from = Some(closed.start.add(i32::from(closed.k)));
    }

    /// Drops the entries at the front whose blocks the store gave up.
    pub(super) fn drop_stale(&mut self, ctx: &mut Ctx<'_, B>) {
        while let Some(&front) = self.closed.front() {
            if ctx.sh.retained.get(front.id).is_some() {
                return;
            }
            self.closed.pop_front();
            self.known_from = Some(front.start.add(i32::from(front.k)));
        }
    }
}

fn closed_block<B>(open: OpenBlock<B>, why: Closing, owner: u32, now: Instant) -> Block<B>
where
    B: Clone,
{
    let k = if why == Closing::Full {
        open.config.k
    } else {
        open.covered()
    };
    Block {
        owner,
        start: open.start,
        k,
        config: open.config,
        present: open.present,
        used: Bitmap::EMPTY,
        sources: open.sources,
        octets: open.octets,
        opened: open.opened,
        closed_at: now,
        answered: None,
    }
}
