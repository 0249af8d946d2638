//! Source packets as they arrive from the WAN: in order, behind a gap, late, repeated by the transport,
//! or after a jump of the PSNs. Every packet leaves through `Track::pass`, once.
//!
//! Cost of a packet in order with nothing missing: one serial comparison, one slot of the window, two
//! clones of its reference; per burst and flow one step of the estimates. O(1), no allocation once the
//! window has its size. A gap costs O(its length) once; a late packet O(open blocks).

use crem_wire::Psn;

use super::block::Block;
use super::hold::Frame;
use super::tally::Step;
use super::track::{Cx, MAX_GAP, REUSE, Stray, Track, earlier};
use super::window::{Kept, Place, Seen, Window};
use crate::actions::Delivery;
use crate::packet::Desc;
use crate::plan;
use crate::time::{Duration, Instant};

impl<B: Clone> Track<B> {
    /// A source packet arrived.
    pub(crate) fn on_source(&mut self, d: &Desc<B>, cx: &mut Cx<'_, B>) {
        cx.shared.counters.sources += 1;
        self.figures.sources += 1;
        if self.is_responses() {
            self.note_second_answer(d, cx);
        }
        self.last_source = cx.now;
        self.dscp = d.dscp;
        if let Some(mtu) = d.mtu_seen {
            (self.mtu, self.mtu_sure) = (mtu, true);
        }
        if self.is_responses() {
            self.learn_span(d, cx);
        }
        let next = match &self.window {
            Some(window) => window.next(),
            None => self.start_window(d.psn),
        };
        let ahead = d.psn.distance_from(next);
        if !(-REUSE..=MAX_GAP).contains(&ahead) {
            self.stray(d, cx);
        } else if ahead < 0 && !self.ends_read_early(d.psn) {
            self.behind(d, cx);
        } else {
            self.fill_seam(cx);
            if ahead > 0 && self.continues_read(d.psn) {
                self.reach(d.psn, cx);
            } else if ahead > 0 {
                self.open_gap(d.psn, cx);
            }
            self.new_psn(d, cx);
        }
    }

    /// Whether `psn` follows the last packet, a READ request, at some RDMA MTU: then that is the MTU,
    /// and what was announced before the CSF knew it was a guess (AMB-RDMAMTU).
    fn continues_read(&mut self, psn: Psn) -> bool {
        let Some((read, octets)) = self.last_read.filter(|_| !self.mtu_sure) else {
            return false;
        };
        let fits = |mtu: &u16| {
            plan::read_span(read, octets, *mtu).is_some_and(|s| s.absent > 0 && s.next == psn)
        };
        let Some(mtu) = plan::RDMA_MTUS.into_iter().find(fits) else {
            return false;
        };
        (self.mtu, self.mtu_sure) = (mtu, true);
        true
    }

    /// Whether the last READ's span was derived too long and the next packet is in it; takes the rest
    /// of the span back.
    fn ends_read_early(&mut self, psn: Psn) -> bool {
        let Some((read, _)) = self.last_read.filter(|_| !self.mtu_sure) else {
            return false;
        };
        let inside = self.window.as_ref().is_some_and(|w| {
            let blank = |n| w.is_blank(psn.add(n));
            let span = w.next().distance_from(psn);
            psn.is_after(read) && (0..span.min(MAX_GAP)).all(blank)
        });
        let shorter = inside && self.continues_read(psn);
        if shorter && let Some(window) = &mut self.window {
            window.retreat(psn);
            self.released = earlier(self.released, psn);
        }
        shorter
    }

    /// One beyond the PSNs that the packet consumes (AMB-LONGREAD).
    fn consumed(&self, d: &Desc<B>) -> Psn {
        d.read_length
            .and_then(|octets| plan::read_span(d.psn, octets, self.mtu))
            .filter(|span| span.count < REUSE as u32)
            .map_or(d.psn.add(1), |span| span.next)
    }

    fn step(&mut self, start: Psn) -> &mut Step {
        self.step.get_or_insert(Step {
            start,
            end: start,
            received: 0,
            ce: 0,
        })
    }

    /// The packet that carries the next PSN.
    fn new_psn(&mut self, d: &Desc<B>, cx: &mut Cx<'_, B>) {
        self.resent = None;
        self.note_overtaken(d.psn, cx.now);
        self.step(d.psn);
        let end = self.consumed(d);
        self.reach(end, cx);
        self.note_received(d, cx);
        self.last_read = d.read_length.map(|octets| (d.psn, octets));
        let step = self.step(d.psn);
        step.end = end;
        step.count(d.ce);
        self.pass(frame(d), cx);
    }

    /// A REPAIR of the packet's block may have come before it, where messages take another way than
    /// sources do: that is reordering as well, and what may overtake so far is not lost any sooner.
    fn note_overtaken(&mut self, psn: Psn, now: Instant) {
        if !self.watch_blocks {
            return;
        }
        let of_it = |block: &&Block<B>| !block.closed && block.description.position(psn).is_some();
        let opened = self.blocks.iter().find(of_it).map(|block| block.opened);
        if let Some(opened) = opened {
            self.note_displaced(now, now.since(opened));
        }
    }

    /// A packet came so much later than something that was sent after it; whether that was on the way, and
    /// not since the host sent it again.
    fn note_displaced(&mut self, now: Instant, after: Duration) -> Option<bool> {
        let limit = self.times.min_rtt? / 2;
        let on_the_way = after < limit;
        if on_the_way {
            self.displacement.note(now, after);
        }
        Some(on_the_way)
    }

    fn note_received(&mut self, d: &Desc<B>, cx: &mut Cx<'_, B>) {
        self.note_seen(d, Seen::Received, cx);
    }

    fn note_seen(&mut self, d: &Desc<B>, seen: Seen, cx: &mut Cx<'_, B>) {
        self.note_arrival(d.psn, seen, cx);
        self.keep(d.psn, kept(d), cx);
    }

    /// Everything from the end of the window up to `to` is missing.
    pub(crate) fn open_gap(&mut self, to: Psn, cx: &mut Cx<'_, B>) {
        let Some(from) = self.window.as_ref().map(Window::next) else {
            return;
        };
        let count = to.distance_from(from).max(0) as u32;
        if count == 0 {
            return;
        }
        self.step(from);
        self.reach(to, cx);
        if let Some(step) = &mut self.step {
            step.end = to;
        }
        for n in 0..count {
            self.note(from.add(n as i32), Seen::Missing, cx);
        }
        // Before the first Effective PSN there is nothing to wait or to ask for.
        if let Some((start, m)) = self.configs.protects(from, to) {
            self.track_gap(start, to, m, cx);
            self.skip_barred(start, to, cx);
        }
    }

    /// A PSN below the highest: late, repeated, or of a READ that is issued again.
    fn behind(&mut self, d: &Desc<B>, cx: &mut Cx<'_, B>) {
        self.note_going_back(d, cx);
        let place = self
            .window
            .as_ref()
            .map_or(Place::Behind, |w| w.place(d.psn));
        match place {
            Place::In(Seen::Missing | Seen::Left) => self.late(d, cx),
            Place::In(Seen::Absent | Seen::Nothing) => {
                // Not a new PSN (AMB-REREAD). Should a block name it as present after all, it is here.
                cx.shared.counters.repeated_sources += 1;
                self.take_run(cx);
                self.note_received(d, cx);
                self.mark_dirty(d.psn);
                self.pass(frame(d), cx);
            }
            Place::In(Seen::Received | Seen::Resent | Seen::Restored)
            | Place::Behind
            | Place::Ahead => {
                cx.shared.counters.repeated_sources += 1;
                if place == Place::In(Seen::Restored) {
                    self.note_restored_early(d.psn, cx);
                }
                if self.is_old(d.psn, cx.now) {
                    self.sent_again(d, self.consumed(d), cx);
                }
                self.pass(frame(d), cx);
            }
        }
    }

    /// Whether a PSN was first noted so long ago that a packet with it now comes from the host: what was
    /// duplicated or reordered on the way comes within half a round trip.
    fn is_old(&self, psn: Psn, now: Instant) -> bool {
        let soonest = self.times.min_rtt.unwrap_or(Duration::MAX) / 2;
        let Some(window) = &self.window else {
            return false;
        };
        match (window.at(psn), window.place(psn)) {
            (Some(at), _) => now.since(at) >= soonest,
            (None, Place::Behind) => self.history.is_past(now, psn, soonest),
            (None, _) => false,
        }
    }

    /// What was restored arrives after all: if it was on its way all the time, it was not lost yet. It may
    /// have been missed only when it was restored, after it had had the allowance.
    fn note_restored_early(&mut self, psn: Psn, cx: &mut Cx<'_, B>) {
        let missed = self.window.as_ref().and_then(|window| window.at(psn));
        let after = missed.map(|missed| cx.now.since(missed) + self.times.allowance);
        if after.and_then(|after| self.note_displaced(cx.now, after)) == Some(true) {
            cx.shared.counters.restored_early += 1;
        }
    }

    /// A host that goes back sends all that is held once more. What is held goes first, as it would over
    /// a wire: between the resent packets it would look like further losses to the receiver.
    fn note_going_back(&mut self, d: &Desc<B>, cx: &mut Cx<'_, B>) {
        let starts = self.resent.is_none_or(|next| next.is_after(d.psn));
        self.resent = Some(self.consumed(d));
        if !starts || !self.is_old(d.psn, cx.now) {
            return;
        }
        if self
            .accepted
            .next()
            .is_some_and(|next| next.is_after(d.psn))
        {
            cx.shared.counters.resent_needlessly += 1;
            self.figures.resent_needlessly += 1;
        }
        if self.hold.is_waiting() {
            cx.shared.counters.holds_overtaken += 1;
            self.release_hold(cx);
        }
    }

    /// A missing packet arrived after all: reordered, or sent again by the transport.
    fn late(&mut self, d: &Desc<B>, cx: &mut Cx<'_, B>) {
        cx.shared.counters.late_sources += 1;
        let mut seen = Seen::Received;
        if let Some(window) = &self.window {
            let counted = window.is_counted(d.psn);
            let after = window.at(d.psn).map(|at| cx.now.since(at));
            if after.and_then(|after| self.note_displaced(cx.now, after)) == Some(false) {
                // Too late for a reordered one: sent again, and then its Identification, ICRC or
                // acknowledgment request may not be those that were coded (AMB-RETXDIFF).
                seen = Seen::Resent;
            }
            if !counted {
                // Its stretch may be part of this very burst.
                match self.step.as_mut().filter(|step| step.contains(d.psn)) {
                    Some(step) => step.count(d.ce),
                    None => self.tally.late(cx.now, d.psn, d.ce, self.times.allowance),
                }
            }
        }
        self.note_seen(d, seen, cx);
        if seen == Seen::Resent {
            self.sent_again(d, self.consumed(d), cx);
        }
        self.gaps.take(d.psn, 1, |_| ());
        self.mark_dirty(d.psn);
        self.pass(frame(d), cx);
        self.settle(d.psn, cx);
        self.resolved(d.psn, d.psn.add(1), cx);
    }

    fn mark_dirty(&mut self, psn: Psn) {
        self.watch_blocks |= !self.blocks.is_empty();
        for block in &mut self.blocks {
            block.dirty |= block.description.position(psn).is_some();
        }
    }

    /// A PSN far from the others. One such packet may be damaged, so it passes without a trace; a second
    /// one that continues it shows that the stream goes on there.
    fn stray(&mut self, d: &Desc<B>, cx: &mut Cx<'_, B>) {
        cx.shared.counters.stray_sources += 1;
        let first = self.take_suspect(cx);
        let continued = first.filter(|s| (0..=MAX_GAP).contains(&d.psn.distance_from(s.next)));
        if continued.is_some() {
            self.release_hold(cx);
        }
        cx.out.deliver.push((Delivery::Source, d.buf.clone()));
        match continued {
            Some(first) => self.jump(first, d, cx),
            None => self.suspect(d, cx),
        }
    }

    fn suspect(&mut self, d: &Desc<B>, cx: &mut Cx<'_, B>) {
        let room = cx.shared.store.budget.fits(d.payload_len);
        if room {
            cx.shared.store.budget.add(d.payload_len);
        }
        self.suspect = Some(Stray {
            psn: d.psn,
            next: self.consumed(d),
            kept: room.then(|| kept(d)),
        });
    }

    /// Takes the suspect out, and its reference out of the bound.
    pub(crate) fn take_suspect(&mut self, cx: &mut Cx<'_, B>) -> Option<Stray<B>> {
        let suspect = self.suspect.take()?;
        if let Some(kept) = &suspect.kept {
            cx.shared.store.budget.remove(kept.len);
        }
        Some(suspect)
    }

    /// Goes on at `first`, whose frame and that of `d` have left already.
    fn jump(&mut self, first: Stray<B>, d: &Desc<B>, cx: &mut Cx<'_, B>) {
        cx.shared.counters.jumps += 1;
        let ahead = self
            .window
            .as_ref()
            .map_or(-1, |w| first.psn.distance_from(w.next()));
        if (0..REUSE).contains(&ahead) {
            // The packet before the jump may be a lost READ request: its block can still restore it.
            let head = ahead.min(i32::from(self.configs.max_k()));
            if let Some(next) = self.window.as_ref().map(Window::next) {
                self.open_gap(next.add(head), cx);
            }
            self.release_hold(cx);
            self.reach(first.psn, cx);
        } else {
            self.restart(first.psn, cx);
        }
        self.step(first.psn);
        self.reach(first.next, cx);
        self.note_arrival(first.psn, Seen::Received, cx);
        if let Some(kept) = first.kept {
            self.keep(first.psn, kept, cx);
        }
        if d.psn.is_after(first.next) {
            self.open_gap(d.psn, cx);
        }
        let end = self.consumed(d);
        self.reach(end, cx);
        self.note_received(d, cx);
        let step = self.step(first.psn);
        step.end = end;
        step.count(false);
        step.count(d.ce);
    }

    /// Another life of the QP: nothing of before counts (AMB-QPREUSE).
    fn restart(&mut self, first: Psn, cx: &mut Cx<'_, B>) {
        self.release_hold(cx);
        if let Some(next) = self.window.as_ref().map(Window::next) {
            self.give_up_before(next, cx);
        }
        for index in 0..self.blocks.len() {
            self.evict(index, cx);
        }
        if let Some(mut old) = self.window.take() {
            old.clear(&mut cx.shared.store);
        }
        self.step = None;
        self.start_window(first);
    }

    fn start_window(&mut self, first: Psn) -> Psn {
        self.window = Some(Window::new(first));
        (self.passage, self.history) = Default::default();
        self.released = first;
        first
    }

    /// The burst is over: estimates, what became complete or decodable, what can be let go of.
    pub(crate) fn end_of_burst(&mut self, cx: &mut Cx<'_, B>) {
        self.note_activity(cx.now);
        self.update_times(cx);
        let next = self.window.as_ref().map(Window::next);
        if let Some(step) = self.step.take() {
            self.spacing.note(cx.now, u64::from(step.received));
            self.tally.passed(cx.now, step, self.times.allowance);
            // A repair that lags further behind than that comes after the longest hold.
            let quarter = self.times.min_rtt.map_or(Duration::ZERO, |rtt| rtt / 4);
            self.passage.note(cx.now, step.end, quarter);
            self.history.note(cx.now, step.end, self.replay_time());
            self.look_at_blocks(step, cx);
            self.ripen_gaps(cx);
        } else if self.watch_blocks {
            self.look_at_dirty_blocks(cx);
        }
        if let Some(next) = next
            && !self.configs.is_settled()
        {
            let (blocks, first) = (&self.blocks, self.gaps.first());
            let pending = |psn: Psn| first.is_some_and(|gap| psn.is_after(gap));
            let used = |id| blocks.iter().any(|b| b.description.config == id);
            self.configs
                .advance(cx.now, next, self.times.srtt, pending, used);
        }
        self.sweep(cx);
        self.advance_base(cx);
    }

    fn look_at_blocks(&mut self, step: Step, cx: &mut Cx<'_, B>) {
        if !core::mem::take(&mut self.watch_blocks) {
            return;
        }
        for index in 0..self.blocks.len() {
            let block = &mut self.blocks[index];
            let d = &block.description;
            if block.beyond.is_none() && step.end.distance_from(d.end()) > 0 {
                block.beyond = Some(cx.now);
                block.dirty = true;
            }
            self.watch_blocks |= block.beyond.is_none();
            block.dirty |= d.end().is_after(step.start) && step.end.is_after(d.start);
        }
        self.look_at_dirty_blocks(cx);
    }

    fn look_at_dirty_blocks(&mut self, cx: &mut Cx<'_, B>) {
        for index in 0..self.blocks.len() {
            if self.blocks[index].dirty {
                self.look_at(index, cx);
            }
        }
    }
}

fn frame<B: Clone>(d: &Desc<B>) -> Frame<B> {
    Frame {
        psn: d.psn,
        octets: d.payload_len,
        kind: Delivery::Source,
        buf: d.buf.clone(),
    }
}

fn kept<B: Clone>(d: &Desc<B>) -> Kept<B> {
    Kept {
        buf: d.buf.clone(),
        off: d.payload_off,
        len: d.payload_len,
    }
}
