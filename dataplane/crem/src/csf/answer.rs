//! REPAIR_REQUEST in both forms, and what it is answered with: coded retransmission, Source Copies, INFO.
//! What the answer to one block contains is planned in `crate::plan`; here is whether it is given.

use crem_wire::crem::{BlockRequest, PsnRange, RangeRequest};
use crem_wire::{Bitmap, Psn, RequestId};

use super::flow::{Binding, Ctx};
use super::retain::BlockId;
use super::symbols::{Symbols, info_header};
use crate::actions::RepairKind;
use crate::mutate::{self, Fault};
use crate::plan::{self, Answer, Request};
use crate::policy::{Evidence, LossClass};
use crem_wire::crem::registry::Scheme;

/// Ranges that one request may name; a gap list that fills the largest path MTU here has fewer.
const MAX_RANGES: usize = 1024;
/// Positions of a block made up for a stretch that carried no source (AMB-LONGREAD).
const STRETCH: i32 = 255;

/// A request for one block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    request: RequestId,
    named: Bitmap,
    held: u8,
    suggested: u8,
    fallback: bool,
}

/// A request for a block that is still open (AMB-OPENREQ).
#[derive(Clone, Copy, Debug)]
pub(super) struct Deferred {
    start: Psn,
    ask: Ask,
}

impl<B: Clone> Binding<B> {
    /// Takes a block-form request.
    pub(super) fn on_block_request(&mut self, msg: &BlockRequest, ctx: &mut Ctx<'_, B>) {
        ctx.sh.counters.requests_block += 1;
        self.reports.asked_for(msg.lost.len() as u32);
        self.drop_stale(ctx);
        let ask = Ask {
            request: msg.request,
            named: msg.lost,
            held: msg.held,
            suggested: msg.suggested,
            fallback: msg.fallback,
        };
        let found = self
            .closed_at(msg.block_start)
            .and_then(|index| self.closed.get(index).copied());
        match found.filter(|closed| closed.start == msg.block_start) {
            Some(closed) => {
                let same = ctx.sh.retained.get(closed.id).is_some_and(|block| {
                    block.k == msg.k
                        && block.config.id == msg.config
                        && block.config.scheme == msg.scheme
                });
                if same {
                    self.answer(closed.id, &ask, ctx);
                } else {
                    ctx.sh.counters.requests_mismatched += 1;
                }
            }
            None if self
                .open
                .as_ref()
                .is_some_and(|open| open.start == msg.block_start) =>
            {
                self.defer(ask, ctx);
            }
            None => ctx.sh.counters.requests_unheld += 1,
        }
    }

    /// Takes a range-form request: every block that it names is answered by itself, with r = 0. Each
    /// block is visited once, however the ranges overlap: O(ranges x log ranges + blocks x log blocks).
    pub(super) fn on_range_request(&mut self, msg: &RangeRequest, ctx: &mut Ctx<'_, B>) {
        ctx.sh.counters.requests_range += 1;
        let named: u32 = msg.ranges.iter().map(|r| u32::from(r.count)).sum();
        self.reports.asked_for(named);
        self.drop_stale(ctx);
        let count = msg.ranges.len().min(MAX_RANGES);
        ctx.sh.counters.ranges_dropped += (msg.ranges.len() - count) as u64;
        let ask = Ask {
            request: msg.request,
            named: Bitmap::EMPTY,
            held: 0,
            suggested: 0,
            fallback: msg.fallback,
        };
        let Some(known) = self.known_from else {
            ctx.sh.counters.requests_unheld += count as u64;
            return;
        };
        let mut sorted = core::mem::take(&mut ctx.sh.ranges);
        sorted.clear();
        sorted.extend(msg.ranges.iter().take(count));
        sorted.sort_unstable_by_key(|range| range.start.distance_from(known));
        let mut at = known;
        for range in &sorted {
            let end = range_end(range);
            if known.is_after(range.start) {
                ctx.sh.counters.requests_unheld += 1;
            }
            if range.start.is_after(at) {
                at = range.start;
            }
            at = self.answer_run(at, end, &sorted, &ask, ctx);
        }
        self.defer_ranges(&sorted, ask, ctx);
        ctx.sh.ranges = sorted;
    }

    /// Walks the blocks, and the stretches between them, from `at` to `end`; returns where it stopped.
    fn answer_run(
        &mut self,
        mut at: Psn,
        end: Psn,
        sorted: &[PsnRange],
        ask: &Ask,
        ctx: &mut Ctx<'_, B>,
    ) -> Psn {
        while end.is_after(at) {
            let next = match self.closed_at(at) {
                Some(index) => self.answer_closed(index, sorted, ask, ctx),
                None => self.answer_between(at, ask, ctx),
            };
            match next {
                Some(next) if next.is_after(at) => at = next,
                _ => return at,
            }
        }
        at
    }

    /// Answers one closed block for all ranges together; returns the PSN after it.
    fn answer_closed(
        &mut self,
        index: usize,
        sorted: &[PsnRange],
        ask: &Ask,
        ctx: &mut Ctx<'_, B>,
    ) -> Option<Psn> {
        let closed = *self.closed.get(index)?;
        let after = closed.start.add(i32::from(closed.k));
        let block = ctx.sh.retained.get(closed.id)?;
        // Only ranges near the block can name a position of it: they have at most 255 PSNs.
        let from = sorted.partition_point(|r| closed.start.distance_from(r.start) > STRETCH);
        let to = sorted.partition_point(|r| after.is_after(r.start));
        let near = sorted.get(from..to).unwrap_or(&[]);
        if let Some(named) = plan::named_positions(block.start, block.k, &block.present, near) {
            let named = named.lost.or(&named.absent);
            let suggested = u8::try_from(named.len()).unwrap_or(u8::MAX);
            let ask = Ask {
                named,
                suggested,
                ..*ask
            };
            self.answer(closed.id, &ask, ctx);
        }
        Some(after)
    }

    /// Answers for PSNs outside all closed blocks; returns the PSN to go on at, if there is more.
    fn answer_between(&mut self, at: Psn, ask: &Ask, ctx: &mut Ctx<'_, B>) -> Option<Psn> {
        if self
            .open
            .as_ref()
            .is_some_and(|open| at.distance_from(open.start) >= 0)
        {
            // The open block is answered when it closes.
            return None;
        }
        let after = self
            .closed
            .partition_point(|closed| closed.start.distance_from(at) <= 0);
        let next_block = self.closed.get(after).map(|closed| closed.start);
        let until = next_block
            .or(self.open.as_ref().map(|open| open.start))
            .unwrap_or(ctx.who.pace.next);
        let length = until.distance_from(at).min(STRETCH);
        let k = u8::try_from(length).ok().filter(|k| *k > 0)?;
        let config = self.params.active()?;
        if self.stretch_tokens.take(ctx.now) {
            let header = info_header(self.id, &config, at, k, Bitmap::EMPTY, Some(ask.request));
            self.emit_info(header, ctx);
            ctx.sh.counters.info_sent += 1;
            ctx.counts.info += 1;
        }
        Some(at.add(length))
    }

    fn defer_ranges(&mut self, ranges: &[PsnRange], ask: Ask, ctx: &mut Ctx<'_, B>) {
        let Some(open) = &self.open else { return };
        let all = Bitmap::first(usize::from(open.config.k));
        if let Some(named) = plan::named_positions(open.start, open.config.k, &all, ranges) {
            let suggested = u8::try_from(named.lost.len()).unwrap_or(u8::MAX);
            self.defer(
                Ask {
                    named: named.lost,
                    suggested,
                    ..ask
                },
                ctx,
            );
        }
    }

    fn defer(&mut self, ask: Ask, ctx: &mut Ctx<'_, B>) {
        if let Some(open) = &self.open {
            self.deferred = Some(Deferred {
                start: open.start,
                ask,
            });
            ctx.sh.counters.requests_deferred += 1;
        }
    }

    /// Answers the request that waited for this block to close.
    pub(super) fn answer_deferred(&mut self, id: BlockId, start: Psn, ctx: &mut Ctx<'_, B>) {
        if let Some(deferred) = self.deferred.take_if(|deferred| deferred.start == start) {
            self.answer(id, &deferred.ask, ctx);
        }
    }

    /// Answers for one closed block: at most once per SRTT (AMB-ONEPERRTT), INFO before symbols
    /// (AMB-ABSENTREQ), within the volume cap.
    fn answer(&mut self, id: BlockId, ask: &Ask, ctx: &mut Ctx<'_, B>) {
        let Some(block) = ctx.sh.retained.get(id) else {
            ctx.sh.counters.requests_unheld += 1;
            return;
        };
        if block
            .answered
            .is_some_and(|(_, when)| ctx.now.since(when) < ctx.who.srtt)
            && !mutate::has(Fault::AnswersAgain)
        {
            ctx.sh.counters.requests_too_soon += 1;
            return;
        }
        if block.answered.is_none() {
            self.learn_burst(id, ask, ctx);
        }
        if self.is_broken(ctx.sh) {
            ctx.sh.counters.requests_broken += 1;
            return;
        }
        let Some(block) = ctx.sh.retained.get(id) else {
            return;
        };
        let acknowledged = block.is_acknowledged();
        let response = plan::respond(&Request {
            scheme: block.config.scheme,
            k: block.k,
            present: block.present,
            used: if mutate::has(Fault::IndexAgain) {
                Bitmap::EMPTY
            } else {
                block.used
            },
            named: ask.named,
            held: ask.held,
            suggested: ask.suggested,
            fallback: ask.fallback,
        });
        let info = (response.info || acknowledged).then(|| {
            info_header(
                self.id,
                &block.config,
                block.start,
                block.k,
                block.present,
                Some(ask.request),
            )
        });
        let symbols = if acknowledged {
            ctx.sh.counters.requests_acknowledged += 1;
            None
        } else {
            self.within_caps(response.answer, ask, ctx)
        };
        if info.is_none() && symbols.is_none() {
            return;
        }
        if let Some(header) = info {
            self.emit_info(header, ctx);
            ctx.sh.counters.info_sent += 1;
            ctx.counts.info += 1;
        }
        ctx.sh.counters.requests_answered += 1;
        self.send_answer(id, symbols, ask.request, ctx);
    }

    /// What the first request for a block tells of the length of runs of losses.
    fn learn_burst(&mut self, id: BlockId, ask: &Ask, ctx: &mut Ctx<'_, B>) {
        let Some(block) = ctx.sh.retained.get(id) else {
            return;
        };
        let named = ask.named.and(&block.present);
        let (Some(first), Some(last)) = (named.iter().next(), named.last()) else {
            return;
        };
        let (k, losses) = (block.k, named.len() as u32);
        let goes_on = self.run_end == Some(block.start.add(i32::from(first)));
        self.run_end = Some(block.start.add(i32::from(last) + 1));
        let runs = runs_of(&named) - u32::from(goes_on);
        let Some(path) = ctx.sh.path_of(self.to) else {
            return;
        };
        if ask.held == 0 {
            path.burst.bare_block(losses, runs);
        } else {
            let lacking = losses.saturating_sub(u32::from(ask.held)).max(1);
            let rate = path.loss.rate();
            path.burst.failed_block(k, ask.held, lacking, rate);
        }
    }

    /// What of an answer may be sent: a coded one with all the symbols that the CRF lacks or not at
    /// all, copies as far as the volume and the slots go.
    fn within_caps(&mut self, answer: Answer, ask: &Ask, ctx: &mut Ctx<'_, B>) -> Option<Symbols> {
        let induced = LossClass::Congestion(Evidence::SelfInduced);
        let crowded = ctx.sh.path(self.to).is_some_and(|p| p.class() == induced);
        let floor = ctx.sh.cfg.csf.volume_floor;
        let budget = self.volume.budget(ctx.now, floor, crowded) as usize;
        let slots = ctx.actions.free_slots.len();
        let counters = &mut ctx.sh.counters;
        let room = budget.min(slots);
        let (scheme, indices, set, kind, least) = match answer {
            Answer::Nothing => return None,
            Answer::Coded { indices, set } => {
                let missing = set.len().saturating_sub(usize::from(ask.held)).max(1);
                (Scheme::CauchyRs, indices, set, RepairKind::Coded, missing)
            }
            Answer::Copies(_) if self.limits.schemes & Scheme::SourceCopy.bit() == 0 => {
                counters.requests_no_copy += 1;
                return None;
            }
            Answer::Copies(set) => (Scheme::SourceCopy, set, set, RepairKind::Copy, 1),
        };
        if room < least {
            let short = if budget < least {
                &mut counters.requests_volume_capped
            } else {
                &mut counters.answers_no_slot
            };
            *short += 1;
            return None;
        }
        let indices: Bitmap = indices.iter().take(room).collect();
        let set = if kind == RepairKind::Copy {
            indices
        } else {
            set
        };
        Some(Symbols {
            scheme: scheme.code(),
            indices,
            set,
            session: Some(ask.request),
            kind,
            coded: 0,
        })
    }

    fn send_answer(
        &mut self,
        id: BlockId,
        symbols: Option<Symbols>,
        request: RequestId,
        ctx: &mut Ctx<'_, B>,
    ) {
        let Some(block) = ctx.sh.retained.get_mut(id) else {
            return;
        };
        block.answered = Some((request, ctx.now));
        let Some(symbols) = symbols else { return };
        let count = symbols.indices.len() as u32;
        if symbols.kind == RepairKind::Coded {
            block.used = block.used.or(&symbols.indices);
            ctx.sh.counters.symbols_coded += u64::from(count);
            ctx.counts.coded += u64::from(count);
        } else {
            ctx.sh.counters.symbols_copy += u64::from(count);
            ctx.counts.copies += u64::from(count);
        }
        self.volume.spend(count);
        let Some(block) = ctx.sh.retained.get(id) else {
            return;
        };
        self.emit_symbols(block, &symbols, ctx.who, ctx.actions, ctx.now);
    }
}

/// Runs of consecutive positions.
fn runs_of(positions: &Bitmap) -> u32 {
    let starts = |p: &u8| {
        p.checked_sub(1)
            .is_none_or(|before| !positions.contains(before))
    };
    positions.iter().filter(starts).count() as u32
}

fn range_end(range: &PsnRange) -> Psn {
    range.start.add(i32::from(range.count))
}
