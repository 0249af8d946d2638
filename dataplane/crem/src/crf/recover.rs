//! Recovery over time: when a block is decodable or incomplete, what is asked for and when, and when it
//! is given up (CREM, Receiver Operation, Coded Retransmission, Fallback).

use alloc::vec::Vec;
use crem_wire::crem::{BlockRequest, Message, PsnRange, RangeRequest};
use crem_wire::{Bitmap, Psn, RequestId};

use super::gaps::Gap;
use super::phase::{Act, Event, Phase};
use super::track::{Cx, Track, drop_symbols};
use super::window::{Place, Seen, Window};
use crate::plan;
use crate::time::Instant;

/// Ranges in one request: it stays far below any MTU.
const MAX_RANGES: usize = 64;

impl<B: Clone> Track<B> {
    /// Whether another open block overlaps this one; the most symbols such a rival holds.
    pub(crate) fn rival(&self, index: usize) -> Option<usize> {
        let own = &self.blocks[index].description;
        self.blocks
            .iter()
            .enumerate()
            .filter(|(other, b)| *other != index && !b.closed && b.description.overlaps(own))
            .map(|(_, b)| b.symbols.len())
            .max()
    }

    /// Takes over the gaps that a block's bitmap explains: absent positions are settled, missing ones
    /// are the block's business from now on, with the rounds that were spent on them.
    pub(crate) fn adopt(&mut self, index: usize, cx: &mut Cx<'_, B>) {
        let description = self.blocks[index].description;
        if self.blocks[index].closed {
            return;
        }
        let mut pieces = core::mem::take(&mut cx.shared.pieces);
        self.gaps
            .take(description.start, u32::from(description.k), |gap| {
                pieces.push(gap)
            });
        for piece in &pieces {
            for n in 0..piece.count {
                let psn = piece.start.add(n as i32);
                let Some(position) = description.position(psn) else {
                    continue;
                };
                if description.present.contains(position) {
                    self.inherit(index, piece);
                } else {
                    self.note_absent(psn, cx);
                }
            }
        }
        pieces.clear();
        cx.shared.pieces = pieces;
    }

    /// A missing PSN turned out to carry no packet.
    pub(crate) fn note_absent(&mut self, psn: Psn, cx: &mut Cx<'_, B>) {
        if let Some(window) = &mut self.window
            && matches!(window.place(psn), Place::In(Seen::Missing | Seen::Left))
        {
            window.note(psn, Seen::Absent, cx.now);
        }
        self.settle(psn, cx);
    }

    fn inherit(&mut self, index: usize, piece: &Gap) {
        let block = &mut self.blocks[index];
        if !piece.phase.is_asked() {
            return;
        }
        if !core::mem::replace(&mut block.counted, true) {
            self.tally.incomplete();
        }
        if piece.phase > block.phase {
            block.phase = piece.phase;
            block.request = piece.request;
            block.due = piece.due.unwrap_or(block.due);
        }
    }

    /// Something about a block changed: decodes it, completes it, or sets its next time.
    pub(crate) fn look_at(&mut self, index: usize, cx: &mut Cx<'_, B>) {
        let Some(window) = &self.window else {
            return;
        };
        let block = &mut self.blocks[index];
        block.dirty = false;
        if block.closed || block.decoding {
            return;
        }
        block.refresh(window);
        if block.missing().is_empty() {
            self.complete(index, cx);
            return;
        }
        block.decode_at = None;
        if !block.symbols.is_empty() {
            let determined = block.strength(&mut cx.shared.solver).determined;
            if !determined.is_empty() {
                self.decode_or_wait(index, &determined, cx);
            }
        }
        self.schedule(index);
    }

    fn decode_or_wait(&mut self, index: usize, determined: &Bitmap, cx: &mut Cx<'_, B>) {
        let outdone = self
            .rival(index)
            .is_some_and(|symbols| symbols > self.blocks[index].symbols.len());
        let Some(window) = self.window.as_ref().filter(|_| !outdone) else {
            return;
        };
        let ready = self.blocks[index].ready_at(determined, window, self.times.allowance);
        if ready <= cx.now {
            let check = cx.config.verify_sources;
            self.emit_decode(index, determined, check, cx);
        } else {
            self.blocks[index].decode_at = Some(ready);
        }
    }

    /// Sets when a block that was not asked for yet counts as incomplete (CREM, Receiver Operation):
    /// after a packet beyond it or all its ordinary symbols, or when the flow pauses, plus A.
    fn schedule(&mut self, index: usize) {
        let Some(window) = &self.window else {
            return;
        };
        let block = &self.blocks[index];
        if block.closed || block.phase != Phase::Watching {
            return;
        }
        let over = match (block.all_seen, block.beyond) {
            (Some(at), _) => at,
            // Symbols follow the block's last source one after the other: the first one that came
            // says when they begin to come.
            (None, Some(at)) => at.max(block.opened),
            (None, None) => self.last_activity + self.times.burst,
        };
        let late = block.ready_at(&block.missing(), window, self.times.allowance);
        self.blocks[index].due = (over + self.times.allowance).max(late);
    }

    /// Nothing of a block is missing any more. What contradicts it goes (AMB-BLOCKCONF).
    pub(crate) fn complete(&mut self, index: usize, cx: &mut Cx<'_, B>) {
        self.close(index, cx);
        cx.shared.counters.blocks_completed += 1;
        let own = self.blocks[index].description;
        for other in 0..self.blocks.len() {
            if !self.blocks[other].closed && self.blocks[other].description.overlaps(&own) {
                self.drop_conflicting(other, cx);
            }
        }
    }

    /// Lets go of a block's symbols. It keeps its place until the end of the call.
    fn close(&mut self, index: usize, cx: &mut Cx<'_, B>) {
        let block = &mut self.blocks[index];
        block.closed = true;
        drop_symbols(block, &mut cx.shared.keep_budget);
    }

    /// Drops a description that another one prevailed over; what it had taken over becomes gaps again.
    pub(crate) fn drop_conflicting(&mut self, index: usize, cx: &mut Cx<'_, B>) {
        cx.shared.counters.blocks_conflicting += 1;
        self.close(index, cx);
        let (description, missing) = {
            let block = &self.blocks[index];
            (block.description, block.missing())
        };
        for position in missing.iter() {
            let psn = description.psn(position);
            let covered = self.blocks.iter().any(|b| {
                !b.closed
                    && b.description
                        .position(psn)
                        .is_some_and(|p| b.description.present.contains(p))
            });
            let seen = self
                .window
                .as_ref()
                .filter(|w| w.place(psn) == Place::In(Seen::Missing))
                .and_then(|w| w.at(psn));
            if let (false, Some(seen)) = (covered, seen) {
                self.gaps.take(psn, 1, |_| ());
                self.gaps.add(Gap {
                    start: psn,
                    count: 1,
                    seen,
                    phase: Phase::Watching,
                    due: Some(cx.now + self.times.allowance),
                    request: None,
                });
            }
        }
    }

    /// Gives a block up for want of room.
    pub(crate) fn evict(&mut self, index: usize, cx: &mut Cx<'_, B>) {
        if !self.blocks[index].closed {
            cx.shared.counters.blocks_evicted += 1;
            self.close_unfinished(index, cx);
        }
    }

    /// Leaves what is missing of a block to the RDMA transport.
    pub(crate) fn leave_block(&mut self, index: usize, cx: &mut Cx<'_, B>) {
        if !self.blocks[index].closed {
            cx.shared.counters.blocks_left += 1;
            self.close_unfinished(index, cx);
        }
    }

    fn close_unfinished(&mut self, index: usize, cx: &mut Cx<'_, B>) {
        self.close(index, cx);
        let description = self.blocks[index].description;
        for position in self.blocks[index].missing().iter() {
            let psn = description.psn(position);
            let place = self.window.as_ref().map(|w| w.place(psn));
            if matches!(place, Some(Place::In(Seen::Missing))) {
                self.leave(psn, cx);
            }
        }
    }

    /// A deadline of the flow has come.
    pub(crate) fn on_timeout(&mut self, cx: &mut Cx<'_, B>) {
        self.update_times(cx);
        if self.hold_until().is_some_and(|until| until <= cx.now) {
            cx.shared.counters.holds_expired += 1;
            self.release_hold(cx);
        }
        let expired = self.requests.expire(cx.now);
        cx.shared.counters.requests_unanswered += u64::from(expired.unanswered);
        for _ in 0..expired.blocks {
            self.tally.incomplete();
        }
        self.act_on_gaps(cx);
        self.act_on_blocks(cx);
        self.report(cx);
        self.sweep(cx);
        self.advance_base(cx);
    }

    fn act_on_blocks(&mut self, cx: &mut Cx<'_, B>) {
        for index in 0..self.blocks.len() {
            let block = &mut self.blocks[index];
            let decode = block.decode_at.is_some_and(|at| at <= cx.now);
            if block.closed || !(decode || block.due <= cx.now) {
                continue;
            }
            // A decode that was never answered does not stand in the way for ever.
            block.decoding = false;
            self.look_at(index, cx);
            let block = &self.blocks[index];
            if !block.closed && !block.decoding && block.due <= cx.now {
                self.act_on_block(index, cx);
            }
        }
    }

    /// The wait of a block's phase is over and something is missing.
    fn act_on_block(&mut self, index: usize, cx: &mut Cx<'_, B>) {
        let block = &self.blocks[index];
        if block.opened + self.times.keep() <= cx.now && !block.phase.is_asked()
            || block.opened + self.times.keep() * 4 <= cx.now
        {
            self.leave_block(index, cx);
            return;
        }
        if !self.is_worth_asking(index) {
            self.leave_block(index, cx);
            return;
        }
        if let Some(symbols) = self.rival(index)
            && symbols > block.symbols.len()
        {
            self.drop_conflicting(index, cx);
            return;
        }
        let means = self.means(block.scheme, cx);
        let answered_empty = block.informed && !block.answered;
        let before = if answered_empty {
            block.phase.on(Event::InfoOnly, means).0
        } else {
            block.phase
        };
        let (phase, act) = before.on(Event::Due, means);
        let span = (block.description.start, block.description.end());
        let allowed = self.requests.allowed_at(cx.now, &self.times, span, 0);
        if act != Act::Leave && allowed > cx.now {
            self.blocks[index].due = allowed;
            return;
        }
        let block = &mut self.blocks[index];
        block.informed = false;
        if !core::mem::replace(&mut block.counted, true) {
            self.tally.incomplete();
        }
        self.perform(index, phase, act, cx);
    }

    /// Whether a block misses anything that was not given up before.
    fn is_worth_asking(&self, index: usize) -> bool {
        let block = &self.blocks[index];
        block.missing().iter().any(|position| {
            let psn = block.description.psn(position);
            let place = self.window.as_ref().map(|w| w.place(psn));
            block.damaged.contains(position)
                || matches!(
                    place,
                    Some(Place::Ahead | Place::In(Seen::Missing | Seen::Absent | Seen::Nothing))
                )
        })
    }

    /// Carries out a step of a block's recovery.
    pub(crate) fn perform(&mut self, index: usize, phase: Phase, act: Act, cx: &mut Cx<'_, B>) {
        self.blocks[index].phase = phase;
        match act {
            Act::Nothing => {}
            Act::Leave => self.leave_block(index, cx),
            Act::Ask => self.ask_block(index, false, cx),
            Act::AskCopies => self.ask_block(index, true, cx),
        }
    }

    fn ask_block(&mut self, index: usize, fallback: bool, cx: &mut Cx<'_, B>) {
        let held = if fallback {
            0
        } else {
            self.blocks[index].strength(&mut cx.shared.solver).rank
        };
        let wait = self.times.answer();
        let id = self.requests.open(cx.now, wait, false);
        let block = &mut self.blocks[index];
        let (description, lost) = (block.description, block.missing());
        block.request = Some(id);
        block.answered = false;
        block.due = cx.now + wait;
        let count = lost.len().min(255) as u8;
        let suggested = if fallback {
            count
        } else {
            plan::suggested_m(count, held, self.tally.loss())
        };
        let message = Message::BlockRequest(BlockRequest {
            flow: self.offer.flow,
            fallback,
            config: description.config,
            scheme: block.scheme,
            k: description.k,
            held,
            block_start: description.start,
            suggested,
            request: id,
            lost,
        });
        self.requests
            .touch(cx.now, description.start, description.end());
        cx.shared.counters.requests_block += 1;
        self.sent_request(message, fallback, cx);
        let hopeless = self.is_hopeless(cx.now);
        for position in lost.iter() {
            self.count_lost(description.psn(position));
            if hopeless {
                self.settle(description.psn(position), cx);
            }
        }
    }

    fn sent_request(&mut self, message: Message, fallback: bool, cx: &mut Cx<'_, B>) {
        self.figures.requests += 1;
        cx.shared.counters.requests_fallback += u64::from(fallback);
        cx.send(self.offer.peer, message, self.dscp);
    }

    /// Gaps whose time has come: joins them in one request of each kind.
    fn act_on_gaps(&mut self, cx: &mut Cx<'_, B>) {
        if self.unripe && self.last_source + self.times.burst <= cx.now {
            self.unripe = false;
            let due = cx.now + self.times.allowance;
            for gap in self.gaps.iter_mut().filter(|gap| gap.due.is_none()) {
                gap.due = Some(due);
            }
        }
        if self.gaps.is_empty() {
            return;
        }
        let mut pieces = core::mem::take(&mut cx.shared.pieces);
        pieces.extend(
            self.gaps
                .iter()
                .filter(|gap| gap.due.is_some_and(|due| due <= cx.now)),
        );
        let mut asks: [Vec<PsnRange>; 2] = [Vec::new(), Vec::new()];
        let mut ids: [Option<RequestId>; 2] = [None, None];
        for gap in &pieces {
            self.act_on_gap(gap, &mut asks, &mut ids, cx);
        }
        pieces.clear();
        cx.shared.pieces = pieces;
        for (kind, (ranges, id)) in asks.into_iter().zip(ids).enumerate() {
            if let Some(request) = id {
                let fallback = kind == 1;
                let message = Message::RangeRequest(RangeRequest {
                    flow: self.offer.flow,
                    fallback,
                    request,
                    ranges,
                });
                cx.shared.counters.requests_range += 1;
                self.sent_request(message, fallback, cx);
            }
        }
    }

    fn act_on_gap(
        &mut self,
        gap: &Gap,
        asks: &mut [Vec<PsnRange>; 2],
        ids: &mut [Option<RequestId>; 2],
        cx: &mut Cx<'_, B>,
    ) {
        let Some(config) = self.configs.in_force().copied() else {
            return;
        };
        if gap.seen + self.times.keep() <= cx.now {
            self.leave_gap(gap, cx);
            return;
        }
        let (phase, act) = gap.phase.on(Event::Due, self.means(config.scheme, cx));
        let kind = match act {
            Act::Ask => 0,
            Act::AskCopies => 1,
            Act::Leave | Act::Nothing => {
                self.leave_gap(gap, cx);
                return;
            }
        };
        let span = (gap.start, gap.end());
        let allowed = self
            .requests
            .allowed_at(cx.now, &self.times, span, config.k);
        if allowed > cx.now {
            self.set_gap(gap, |g| g.due = Some(allowed));
            return;
        }
        let parts = gap.count.div_ceil(255) as usize;
        if asks[kind].len() + parts > MAX_RANGES && !asks[kind].is_empty() {
            // The next message goes out with the next call.
            self.set_gap(gap, |g| g.due = Some(cx.now));
            return;
        }
        let wait = self.times.answer();
        let first_round = gap.phase == Phase::Watching;
        let id = *ids[kind].get_or_insert_with(|| self.requests.open(cx.now, wait, first_round));
        push_ranges(&mut asks[kind], gap);
        self.requests.touch(cx.now, gap.start, gap.end());
        self.set_gap(gap, |g| {
            g.phase = phase;
            g.request = Some(id);
            g.due = Some(cx.now + wait);
        });
        if self.is_hopeless(cx.now) {
            for n in 0..gap.count {
                self.settle(gap.start.add(n as i32), cx);
            }
        }
    }

    fn set_gap(&mut self, gap: &Gap, change: impl FnOnce(&mut Gap)) {
        if let Some(own) = self.gaps.iter_mut().find(|g| g.start == gap.start) {
            change(own);
        }
    }

    fn leave_gap(&mut self, gap: &Gap, cx: &mut Cx<'_, B>) {
        self.gaps.take(gap.start, gap.count, |_| ());
        self.leave_run(gap.start, gap.count, cx);
    }

    /// A resting flow found out about losses: it reports once more.
    pub(crate) fn resume_reports(&mut self, now: Instant) {
        if self.report_due.is_none() && self.tally.is_pending() {
            self.tally.resume(now);
            self.report_due = Some(now + self.times.srtt);
        }
    }

    /// Sends the LOSS_REPORT that is due (AMB-LRINT, AMB-LRACTIVE).
    fn report(&mut self, cx: &mut Cx<'_, B>) {
        self.resume_reports(cx.now);
        match self.report_due {
            Some(due) if due <= cx.now => {}
            Some(_) => return,
            None => return self.rest(cx),
        }
        let flow = self.offer.flow;
        if let Some(report) = self.tally.report(cx.now, self.times.allowance, flow) {
            cx.shared.counters.reports += 1;
            cx.send(self.offer.peer, Message::LossReport(report), self.dscp);
        }
        if self.tally.is_pending() {
            self.report_due = Some(cx.now + self.times.srtt);
            return;
        }
        self.report_due = None;
        self.rest(cx);
    }

    /// The flow rests. What it kept in case of a gap at its end is not needed any more.
    fn rest(&mut self, cx: &mut Cx<'_, B>) {
        self.suspect = None;
        if let Some(next) = self.window.as_ref().map(Window::next)
            && self.gaps.is_empty()
            && self.blocks.iter().all(|block| block.closed)
            && let Some(window) = &mut self.window
        {
            window.drop_before(next, &mut cx.shared.keep_budget);
        }
    }
}

fn push_ranges(ranges: &mut Vec<PsnRange>, gap: &Gap) {
    let mut start = gap.start;
    let mut rest = gap.count;
    while rest > 0 && ranges.len() < usize::from(u16::MAX) {
        let count = rest.min(255) as u8;
        ranges.push(PsnRange { start, count });
        start = start.add(i32::from(count));
        rest -= u32::from(count);
    }
}
