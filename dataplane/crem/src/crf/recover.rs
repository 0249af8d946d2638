//! Recovery over time: when a block is decodable or incomplete, what is asked for and when, and when it
//! is given up (CREM, Receiver Operation, Coded Retransmission, Fallback).

use crem_wire::Bitmap;
use crem_wire::crem::{BlockRequest, Message};

use super::gaps::{Gap, earliest};
use super::phase::{Act, Event, Phase};
use super::track::{Cx, Track, drop_symbols};
use super::window::{Place, Seen};
use crate::plan;
use crate::time::{Duration, Instant};

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
        self.note_due(index);
    }

    /// Lets the flow's deadline know of a block's.
    pub(crate) fn note_due(&mut self, index: usize) {
        let block = &self.blocks[index];
        if !(block.closed || block.decoding) {
            let due = block.decode_at.map_or(block.due, |at| at.min(block.due));
            self.blocks_due = earliest(self.blocks_due, Some(due));
        }
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
        drop_symbols(block, &mut cx.shared.store.budget);
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
                let gap = Gap {
                    start: psn,
                    count: 1,
                    seen,
                    phase: Phase::Watching,
                    due: Some(cx.now + self.times.allowance),
                    request: None,
                };
                self.gaps.add(gap, &mut cx.shared.spare.gaps);
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
                self.leave(psn, true, cx);
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
        if self.blocks_due.is_none_or(|due| due > cx.now) {
            return;
        }
        self.blocks_due = None;
        for index in 0..self.blocks.len() {
            let block = &mut self.blocks[index];
            let decode = block.decode_at.is_some_and(|at| at <= cx.now);
            if block.closed || !(decode || block.due <= cx.now) {
                self.note_due(index);
                continue;
            }
            // A decode that was never answered does not stand in the way for ever.
            block.decoding = false;
            self.look_at(index, cx);
            let block = &self.blocks[index];
            if block.decoding {
                let again = cx.now + self.times.allowance;
                self.blocks_due = earliest(self.blocks_due, Some(again));
            } else if !block.closed && block.due <= cx.now {
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
        if !self.is_worth_asking(index) || self.block_asks_in_vain(index, cx.now) {
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
            self.note_due(index);
            return;
        }
        let block = &mut self.blocks[index];
        block.informed = false;
        if !core::mem::replace(&mut block.counted, true) {
            self.tally.incomplete();
        }
        self.perform(index, phase, act, cx);
    }

    fn block_asks_in_vain(&self, index: usize, now: Instant) -> bool {
        let block = &self.blocks[index];
        self.window.as_ref().is_some_and(|window| {
            let missed = block.ready_at(&block.missing(), window, Duration::ZERO);
            self.asks_in_vain(missed, now)
        })
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
        let scheme = block.scheme;
        block.request = Some(id);
        block.answered = false;
        block.due = cx.now + wait;
        self.note_due(index);
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
            scheme,
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
        for position in lost.iter() {
            let psn = description.psn(position);
            self.count_lost(psn);
            let seen = self.window.as_ref().and_then(|w| w.at(psn));
            if seen.is_some_and(|seen| self.is_hopeless(seen, cx.now)) {
                self.settle(psn, cx);
            }
        }
    }

    pub(crate) fn sent_request(&mut self, message: Message, fallback: bool, cx: &mut Cx<'_, B>) {
        self.figures.requests += 1;
        cx.shared.counters.requests_fallback += u64::from(fallback);
        cx.send(self.offer.peer, message, self.dscp);
    }
}
