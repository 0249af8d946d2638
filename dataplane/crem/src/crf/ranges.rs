//! Missing PSNs whose block no REPAIR has named: when they are waited and asked for in the PSN-range form
//! (AMB-RANGEWAIT, AMB-RANGE), and what becomes of them when a block explains them.

use crem_wire::crem::{Message, PsnRange, RangeRequest, Ranges};
use crem_wire::{Psn, RequestId};

use super::gaps::Gap;
use super::phase::{Act, Event, Phase};
use super::track::{Cx, MAX_GAPS, Track};
use super::window::{Place, Seen, Window};

/// Ranges in one request: it stays far below any MTU.
const MAX_RANGES: usize = 64;

impl<B: Clone> Track<B> {
    pub(crate) fn track_gap(&mut self, start: Psn, to: Psn, m: u8, cx: &mut Cx<'_, B>) {
        let count = to.distance_from(start).max(0) as u32;
        if count == 0 {
            return;
        }
        if self.times.hold.is_some() && !self.requests.is_backing_off() {
            for n in 0..count {
                let psn = start.add(n as i32);
                if !self.is_known_missing(psn, cx) {
                    self.hold.wait_for(psn, &mut cx.shared.spare.holds);
                }
            }
        }
        let due = (m == 0).then(|| cx.now + self.times.allowance);
        self.unripe |= due.is_none();
        if self.gaps.len() >= MAX_GAPS
            && let Some(oldest) = self.gaps.pop_first()
        {
            cx.shared.counters.gaps_evicted += 1;
            self.leave_run(oldest.start, oldest.count, false, cx);
        }
        let gap = Gap {
            start,
            count,
            seen: cx.now,
            phase: Phase::Watching,
            due,
            request: None,
        };
        self.gaps.add(gap, &mut cx.shared.spare.gaps);
        for index in 0..self.blocks.len() {
            self.adopt(index, cx);
        }
    }

    /// Sets the time of gaps whose block must have ended (AMB-RANGEWAIT).
    pub(crate) fn ripen_gaps(&mut self, cx: &mut Cx<'_, B>) {
        if !self.unripe {
            return;
        }
        let (Some(window), Some(config)) = (&self.window, self.configs.in_force()) else {
            return;
        };
        let (next, k) = (window.next(), i32::from(config.k));
        // While the CSF is silent, what is new waits for the next request it gets at all.
        let due = (cx.now + self.times.allowance).max(self.requests.silent_until(&self.times));
        self.unripe = self
            .gaps
            .ripen(due, |gap| next.distance_from(gap.end()) >= k);
    }

    /// Gaps whose time has come: joins them in one request of each kind.
    pub(crate) fn act_on_gaps(&mut self, cx: &mut Cx<'_, B>) {
        if self.unripe && self.last_source + self.times.burst <= cx.now {
            self.unripe = false;
            let due = cx.now + self.times.allowance;
            self.gaps.ripen(due, |_| true);
        }
        if self.gaps.next_due().is_none_or(|due| due > cx.now) {
            return;
        }
        let mut pieces = core::mem::take(&mut cx.shared.pieces);
        self.gaps.due_at(cx.now, &mut pieces);
        let mut asks = [Ranges::new(), Ranges::new()];
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
        asks: &mut [Ranges; 2],
        ids: &mut [Option<RequestId>; 2],
        cx: &mut Cx<'_, B>,
    ) {
        let Some(config) = self.configs.in_force().copied() else {
            return;
        };
        if self.asks_in_vain(gap.seen, cx.now) && !gap.phase.is_asked() {
            self.leave_gaps(gap.start, gap.count, cx);
            return;
        }
        if gap.seen + self.times.keep() <= cx.now || self.asks_in_vain(gap.seen, cx.now) {
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
            self.gaps.change(gap.start, |g| g.due = Some(allowed));
            return;
        }
        let parts = gap.count.div_ceil(255) as usize;
        if asks[kind].len() + parts > MAX_RANGES && !asks[kind].is_empty() {
            // The next message goes out with the next call.
            self.gaps.change(gap.start, |g| g.due = Some(cx.now));
            return;
        }
        let wait = self.times.answer();
        let first_round = gap.phase == Phase::Watching;
        let id = *ids[kind].get_or_insert_with(|| self.requests.open(cx.now, wait, first_round));
        let next = self.window.as_ref().map(Window::next);
        if next.is_some_and(|next| next.distance_from(gap.end()) < i32::from(config.k)) {
            self.requests.waits_for_block(id);
        }
        push_ranges(&mut asks[kind], gap);
        self.requests.touch(cx.now, gap.start, gap.end());
        self.gaps.change(gap.start, |g| {
            g.phase = phase;
            g.request = Some(id);
            g.due = Some(cx.now + wait);
        });
        if self.is_hopeless(gap.seen, cx.now) {
            for n in 0..gap.count {
                self.settle(gap.start.add(n as i32), cx);
            }
        }
    }

    fn leave_gap(&mut self, gap: &Gap, cx: &mut Cx<'_, B>) {
        self.gaps.take(gap.start, gap.count, |_| ());
        // A peer that answers nothing must not hide the loss.
        let lost = gap.phase.is_asked() || self.requests.is_backing_off();
        self.leave_run(gap.start, gap.count, lost, cx);
        self.resolved(gap.start, gap.end(), cx);
    }

    /// The host has repeated what is around [from, to) but not what is in it, and no copies can fill
    /// that: what was given up there is asked for again.
    pub(crate) fn ask_again(&mut self, from: Psn, to: Psn, cx: &mut Cx<'_, B>) {
        let is_left = |track: &Self, psn| {
            let place = track.window.as_ref().map(|w| w.place(psn));
            place == Some(Place::In(Seen::Left))
        };
        let mut at = from;
        while to.is_after(at) {
            let start = at;
            while to.is_after(at) && is_left(self, at) {
                self.note(at, Seen::Missing, cx);
                at = at.add(1);
            }
            let count = at.distance_from(start).max(0) as u32;
            if count == 0 {
                at = at.add(1);
                continue;
            }
            cx.shared.counters.gaps_reopened += 1;
            let gap = Gap {
                start,
                count,
                seen: cx.now,
                phase: Phase::Watching,
                due: Some(cx.now + self.times.allowance),
                request: None,
            };
            self.gaps.add(gap, &mut cx.shared.spare.gaps);
        }
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
            self.resolved(piece.start, piece.end(), cx);
        }
        pieces.clear();
        cx.shared.pieces = pieces;
    }

    /// A missing PSN turned out to carry no packet.
    pub(crate) fn note_absent(&mut self, psn: Psn, cx: &mut Cx<'_, B>) {
        let place = self.window.as_ref().map(|window| window.place(psn));
        if let Some(Place::In(Seen::Missing | Seen::Left)) = place {
            self.note(psn, Seen::Absent, cx);
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
}

fn push_ranges(ranges: &mut Ranges, gap: &Gap) {
    let mut start = gap.start;
    let mut rest = gap.count;
    while rest > 0 && ranges.len() < usize::from(u16::MAX) {
        let count = rest.min(255) as u8;
        ranges.push(PsnRange { start, count });
        start = start.add(i32::from(count));
        rest -= u32::from(count);
    }
}
