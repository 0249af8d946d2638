//! Decode jobs and what follows from their results: delivery in order, a second look at the sources
//! when a check fails, and the fallback (CREM, Receiver Operation; AMB-RANK, AMB-ICRCFAIL, AMB-LATEDUP).
//! No octet is touched; the caller solves and verifies.

use crem_fec::Scheme;
use crem_wire::{Bitmap, Psn};

use super::block::Block;
use super::hold::Frame;
use super::phase::Event;
use super::track::{Cx, Job, MAX_GAP, Origin, Track, drop_symbols};
use super::window::{Kept, Place, Seen, Window};
use crate::actions::{
    DecodeId, DecodeJob, Decoded, Delivery, Neighbour, Outcome, SourceRef, Unknown,
};

/// Jobs that may wait for their answer.
const MAX_JOBS: usize = 4096;
/// Decodes of a block that may lead to nothing.
const MAX_FAILURES: u8 = 3;

impl<B: Clone> Track<B> {
    /// Hands out a decode of `wanted` with everything the block holds.
    pub(crate) fn emit_decode(
        &mut self,
        index: usize,
        wanted: &Bitmap,
        check: bool,
        cx: &mut Cx<'_, B>,
    ) {
        let Some(window) = &self.window else {
            return;
        };
        let block = &mut self.blocks[index];
        block.decoding = true;
        block.decode_at = None;
        let out = &mut *cx.out;
        let first = (
            out.sources.len() as u32,
            out.symbols.len() as u32,
            out.unknowns.len() as u32,
        );
        let named = block.symbols.iter().fold(Bitmap::EMPTY, |set, symbol| {
            if symbol.scheme == Scheme::Copy.number() {
                set
            } else {
                set.or(&symbol.set)
            }
        });
        for position in named.and(&block.have).minus(&block.gone).iter() {
            let psn = block.description.psn(position);
            if let Some(kept) = window.kept_at(psn) {
                out.sources.push(SourceRef {
                    position,
                    buf: kept.buf.clone(),
                    off: kept.off,
                    len: kept.len,
                });
            }
        }
        out.symbols.extend(block.symbols.iter().cloned());
        for position in wanted.iter() {
            let psn = block.description.psn(position);
            out.unknowns.push(Unknown {
                position,
                psn,
                before: neighbour(window.before(psn)),
                after: neighbour(window.after(psn)),
            });
        }
        let id = cx.shared.next_job;
        cx.shared.next_job += 1;
        out.decode.push(DecodeJob {
            id: DecodeId(id),
            flow: self.offer.flow,
            stream: self.key,
            scheme: block.scheme,
            t: block.t,
            block_start: block.description.start,
            verify_sources: check,
            sources: first.0..out.sources.len() as u32,
            symbols: first.1..out.symbols.len() as u32,
            unknowns: first.2..out.unknowns.len() as u32,
        });
        let job = Job {
            id,
            slot: self.slot,
            flow: self.offer.flow,
            block: block.serial,
            checked: check,
            kind: origin(block),
        };
        if cx.shared.jobs.len() >= MAX_JOBS {
            cx.shared.jobs.pop_front();
        }
        cx.shared.jobs.push_back(job);
        cx.shared.counters.decodes += 1;
    }

    /// A job's answer.
    pub(crate) fn on_decoded(&mut self, job: &Job, decoded: &mut Decoded<B>, cx: &mut Cx<'_, B>) {
        self.update_times(cx);
        let found = self
            .blocks
            .iter()
            .position(|b| b.serial == job.block && !b.closed);
        let Some(index) = found else {
            // The block is gone, so everything it missed has come some other way.
            cx.shared.counters.restored_unneeded += decoded.outcomes.len() as u64;
            return;
        };
        self.blocks[index].decoding = false;
        let damaged = decoded
            .corrupt_sources
            .and(&self.blocks[index].description.present);
        cx.shared.counters.corrupt_sources += damaged.len() as u64;
        let block = &mut self.blocks[index];
        block.damaged = block.damaged.or(&damaged);
        let mut result = Summary {
            damaged: !damaged.is_empty(),
            progress: !damaged.is_empty(),
            ..Summary::default()
        };
        for (position, outcome) in decoded.outcomes.drain(..) {
            match outcome {
                Outcome::Restored {
                    buf,
                    payload_off,
                    payload_len,
                } => {
                    let kept = Kept {
                        buf,
                        off: payload_off,
                        len: payload_len,
                    };
                    self.restored(index, position, kept, job.kind, cx);
                    result.progress = true;
                }
                Outcome::Corrupt => {
                    cx.shared.counters.decodes_corrupt += 1;
                    result.corrupt.insert(position);
                }
                Outcome::NoNeighbour => {
                    cx.shared.counters.no_neighbour += 1;
                    self.give_up_position(index, position, cx);
                    result.progress = true;
                }
                Outcome::NoBuffer => cx.shared.counters.no_buffer += 1,
                Outcome::Undetermined => {}
            }
        }
        self.after_decode(index, job, &result, cx);
        self.resume_reports(cx.now);
        self.sweep(cx);
        self.advance_base(cx);
    }

    fn after_decode(&mut self, index: usize, job: &Job, result: &Summary, cx: &mut Cx<'_, B>) {
        // Memory may have run out meanwhile.
        if self.blocks[index].closed {
            return;
        }
        if let Some(window) = &self.window {
            self.blocks[index].refresh(window);
        }
        if self.blocks[index].missing().is_empty() {
            self.complete(index, cx);
        } else if result.corrupt.is_empty() && !result.progress {
            self.fruitless(index, cx);
        } else if result.corrupt.is_empty() || result.damaged {
            let means = self.means(self.blocks[index].scheme, cx);
            let block = &mut self.blocks[index];
            (block.phase, _) = block.phase.on(Event::MoreMissing, means);
            self.look_at(index, cx);
        } else if !job.checked {
            // A damaged source poisons every unknown: look for one before giving the symbols up.
            cx.shared.counters.decodes_checked += 1;
            self.emit_decode(index, &result.corrupt, true, cx);
        } else {
            self.poisoned(index, cx);
        }
    }

    /// The caller had no buffer, or found less determined than we did: once more after A, a few times.
    fn fruitless(&mut self, index: usize, cx: &mut Cx<'_, B>) {
        let again = cx.now + self.times.allowance;
        let block = &mut self.blocks[index];
        block.failures += 1;
        if block.failures >= MAX_FAILURES {
            self.leave_block(index, cx);
        } else {
            block.decode_at = Some(again);
            block.due = block.due.max(again);
            self.note_due(index);
        }
    }

    /// The symbols do not fit the sources. With a rival description this one is the wrong one; else
    /// the symbols go and copies are asked for.
    fn poisoned(&mut self, index: usize, cx: &mut Cx<'_, B>) {
        if self.rival(index).is_some() {
            self.drop_conflicting(index, cx);
            return;
        }
        let means = self.means(self.blocks[index].scheme, cx);
        let block = &mut self.blocks[index];
        drop_symbols(block, &mut cx.shared.store.budget);
        if !core::mem::replace(&mut block.counted, true) {
            self.tally.incomplete();
        }
        let (phase, act) = self.blocks[index].phase.on(Event::Corrupt, means);
        self.perform(index, phase, act, cx);
    }

    /// One position cannot be rebuilt: it is left to the RDMA transport, the rest of the block is not.
    fn give_up_position(&mut self, index: usize, position: u8, cx: &mut Cx<'_, B>) {
        let psn = self.blocks[index].description.psn(position);
        self.blocks[index].waived.insert(position);
        let place = self.window.as_ref().map(|w| w.place(psn));
        if matches!(place, Some(Place::In(Seen::Missing))) {
            self.leave(psn, true, cx);
        }
    }

    /// A verified frame: takes its place in the stream.
    fn restored(
        &mut self,
        index: usize,
        position: u8,
        kept: Kept<B>,
        kind: Origin,
        cx: &mut Cx<'_, B>,
    ) {
        let psn = self.blocks[index].description.psn(position);
        let replaces = self.blocks[index].damaged.contains(position);
        self.blocks[index].damaged.remove(position);
        if !self.may_restore(psn, self.blocks[index].opened, cx.now) {
            cx.shared.counters.responses_stale += 1;
            self.give_up_position(index, position, cx);
            return;
        }
        if self.is_known_missing(psn, cx) {
            cx.shared.counters.responses_late += 1;
            self.give_up_position(index, position, cx);
            return;
        }
        if !self.is_wanted(psn, replaces, cx) {
            cx.shared.counters.restored_unneeded += 1;
            return;
        }
        self.count_lost(psn);
        self.tally.restored();
        let counters = &mut cx.shared.counters;
        counters.restored += 1;
        if let Some(noticed) = self.window.as_ref().and_then(|window| window.at(psn)) {
            let took = cx.now.since(noticed);
            cx.shared.times.recovery_ns.record_time(took);
        }
        let counters = &mut cx.shared.counters;
        let (all, own) = match kind {
            Origin::Ordinary => (
                &mut counters.restored_ordinary,
                &mut self.figures.restored_ordinary,
            ),
            Origin::Coded => (
                &mut counters.restored_coded,
                &mut self.figures.restored_coded,
            ),
            Origin::Copy => (&mut counters.restored_copy, &mut self.figures.restored_copy),
        };
        *all += 1;
        *own += 1;
        self.note_restored(psn, cx);
        if let Some(window) = self.window.as_mut().filter(|_| replaces) {
            window.discard(psn, &mut cx.shared.store);
        }
        let next = self.window.as_ref().map(Window::next);
        let left_behind =
            !self.hold.waits_for(psn) && next.is_some_and(|next| next.is_after(psn.add(1)));
        // What a host that went back has sent again has left before this one, whatever its PSN.
        let late = left_behind || self.run.is_some();
        if late {
            cx.shared.counters.restored_late += 1;
            self.figures.restored_late += 1;
        }
        let frame = Frame {
            psn,
            octets: kept.len,
            kind: Delivery::Restored,
            buf: kept.buf.clone(),
        };
        self.keep(psn, kept, cx);
        self.pass(frame, cx);
        self.settle(psn, cx);
    }

    /// Whether a restored packet still fills a place; makes that place if the stream has not got there.
    fn is_wanted(&mut self, psn: Psn, replaces: bool, cx: &mut Cx<'_, B>) -> bool {
        let Some(window) = &self.window else {
            return false;
        };
        match window.place(psn) {
            Place::Ahead => {
                let near = psn.distance_from(window.next()) < MAX_GAP;
                if near {
                    self.open_gap(psn.add(1), cx);
                    self.step = None;
                }
                near
            }
            Place::In(Seen::Received | Seen::Resent | Seen::Restored) => replaces,
            Place::In(_) => true,
            Place::Behind => false,
        }
    }
}

fn neighbour<B: Clone>(found: Option<(Psn, &Kept<B>)>) -> Option<Neighbour<B>> {
    found.map(|(psn, kept)| Neighbour {
        psn,
        buf: kept.buf.clone(),
        payload_off: kept.off,
    })
}

/// What a decode came to.
#[derive(Clone, Copy, Debug, Default)]
struct Summary {
    /// Positions that failed their check.
    corrupt: Bitmap,
    /// Sources were found to be damaged.
    damaged: bool,
    /// The block is not as it was.
    progress: bool,
}

/// The costliest kind of symbol that a block has.
fn origin<B>(block: &Block<B>) -> Origin {
    let copy = Scheme::Copy.number();
    if block.symbols.iter().any(|s| s.scheme == copy) {
        Origin::Copy
    } else if block.coded {
        Origin::Coded
    } else {
        Origin::Ordinary
    }
}
