//! Holes in a run of packets that the transport sends again: filled with the copies that were delivered
//! before. A go-back-N host resends a whole window after one loss it saw, resent packets are no sources,
//! and with more than a loss or so a round trip such a run would never end. Beyond the draft; the
//! operator can switch it off.
//!
//! A hole is filled only if the resent packets on both sides of it equal the copies held of them, which
//! the caller's comparison says: then the host repeats what it sent before, and what is missing in
//! between is known. At the seam, where the run ends and new packets follow, only one side can be
//! compared; so it is at the head, if the run begins behind what the receiver waits for.
//!
//! Cost: a packet that is sent again takes one clone of its reference; a hole two comparisons of
//! octets by the caller. Copies are kept for about two holds and three round trips, in the half of the
//! memory bound that decoding does not need, and are the first to go.

use core::fmt;

use crem_wire::Psn;

use super::hold::Frame;
use super::track::{Cx, REUSE, Track, earlier};
use super::window::{Kept, MAX_SPAN, Place, Seen, Window};
use crate::actions::Delivery;
use crate::packet::Desc;
use crate::time::Duration;

/// The longest hole that is filled, PSNs.
const MAX_HOLE: i32 = 256;
/// The longest one at the head of a run.
const MAX_HEAD: i32 = 8;
/// Packets in a row after which a run is taken to go on to its seam: a host that repeats single packets
/// does not send as many.
const SEAM_AFTER: u32 = 4;

/// A UDP payload inside a frame, for comparison.
#[derive(Debug)]
pub struct Payload<'a, B> {
    /// The frame.
    pub buf: &'a B,
    /// Offset of the UDP payload.
    pub off: u16,
    /// Octets of the UDP payload.
    pub len: u16,
}

/// Whether two packets of the same PSN carry the same, but for what a host may change when it sends a
/// packet again: the acknowledgment request in the BTH, and the ICRC, which covers that bit and the
/// IPv4 Identification (AMB-RETXDIFF).
pub struct Same<B>(pub fn(&Payload<'_, B>, &Payload<'_, B>) -> bool);

impl<B> Clone for Same<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Same<B> {}

impl<B> fmt::Debug for Same<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Same")
    }
}

/// The last packet of a run that is sent again.
#[derive(Clone, Debug)]
pub(crate) struct Run<B> {
    psn: Psn,
    /// One beyond the PSNs that it consumes.
    next: Psn,
    kept: Kept<B>,
    /// Packets of the run so far.
    length: u32,
}

/// Where a receiver stands that takes packets in order only.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accepted {
    next: Option<Psn>,
    /// The furthest that it was sent anything of: it knows what it lacks before that.
    furthest: Option<Psn>,
}

impl Accepted {
    /// What it waits for; `None` before the first packet.
    pub(crate) const fn next(&self) -> Option<Psn> {
        self.next
    }

    /// Whether something beyond this PSN has left.
    pub(crate) fn is_beyond(&self, psn: Psn) -> bool {
        let furthest = self.furthest.map(|furthest| furthest.distance_from(psn));
        furthest.is_some_and(|ahead| (1..REUSE).contains(&ahead))
    }

    /// The frame with this PSN leaves. O(1) but for READ spans, which are passed one by one.
    pub(crate) fn note<B: Clone>(&mut self, psn: Psn, kind: Delivery, window: Option<&Window<B>>) {
        // What acknowledges a PSN says that no response has it. What is further behind is of another life of
        // the queue pair.
        let is_ack = kind == Delivery::Acknowledgment;
        let upto = psn.add(i32::from(is_ack));
        let stays = self.furthest.map(|furthest| furthest.distance_from(upto));
        if stays.is_none_or(|ahead| !(0..REUSE).contains(&ahead)) {
            self.furthest = Some(upto);
        }
        if is_ack {
            return;
        }
        let Some(next) = self.next else {
            self.next = Some(psn.add(1));
            return;
        };
        let ahead = psn.distance_from(next);
        let follows = match (ahead, window) {
            (0, _) => true,
            (1.., Some(window)) => {
                let forgotten = window.place(next) == Place::Behind;
                forgotten || (0..ahead).all(|n| is_empty(window.place(next.add(n))))
            }
            _ => false,
        };
        if follows {
            self.next = Some(psn.add(1));
        }
    }
}

/// Whether no packet belongs to a place of the window.
const fn is_empty(place: Place) -> bool {
    matches!(place, Place::In(Seen::Absent | Seen::Nothing))
}

/// A copy on its way to the receiver.
pub(crate) fn copy_of<B>(psn: Psn, copy: Kept<B>) -> Frame<B> {
    Frame {
        psn,
        octets: copy.len,
        kind: Delivery::Restored,
        buf: copy.buf,
    }
}

fn payload<B>(kept: &Kept<B>) -> Payload<'_, B> {
    Payload {
        buf: &kept.buf,
        off: kept.off,
        len: kept.len,
    }
}

impl<B: Clone> Track<B> {
    /// A packet that the host sent again, about to be passed on.
    pub(crate) fn sent_again(&mut self, d: &Desc<B>, next: Psn, cx: &mut Cx<'_, B>) {
        // Responses that are asked for again need not be the same as before.
        let on = cx.config.crf.replay && !self.is_responses();
        let Some(same) = cx.shared.same.filter(|_| on) else {
            return;
        };
        if let Some(window) = &self.window {
            let back = window.next().distance_from(d.psn).max(0) as u32;
            self.went_back = self.went_back.max(back);
        }
        let mut run = Run {
            psn: d.psn,
            next,
            kept: Kept {
                buf: d.buf.clone(),
                off: d.payload_off,
                len: d.payload_len,
            },
            length: 1,
        };
        let before = self.take_run(cx);
        let from = match &before {
            Some(b) if d.psn.distance_from(b.next) >= 0 => {
                run.length = b.length.saturating_add(1);
                let hole = (1..=MAX_HOLE).contains(&d.psn.distance_from(b.next));
                (hole && self.is_copy(b, same)).then_some(b.next)
            }
            _ => (self.accepted.next)
                .filter(|next| (1..=MAX_HEAD).contains(&d.psn.distance_from(*next))),
        };
        if let Some(from) = from {
            let filled = self.is_copy(&run, same) && self.fill(from, d.psn, cx);
            if !filled {
                self.ask_again(from, d.psn, cx);
            }
        }
        if cx.shared.store.budget.fits(run.kept.len) {
            cx.shared.store.budget.add(run.kept.len);
            self.run = Some(run);
        }
    }

    /// Takes the run out, and its reference out of the bound.
    pub(crate) fn take_run(&mut self, cx: &mut Cx<'_, B>) -> Option<Run<B>> {
        let run = self.run.take()?;
        cx.shared.store.budget.remove(run.kept.len);
        Some(run)
    }

    /// A new packet is about to arrive: a run that was under way is over, and what it lost at its end
    /// shows only now.
    pub(crate) fn fill_seam(&mut self, cx: &mut Cx<'_, B>) {
        let (Some(run), Some(same)) = (self.take_run(cx), cx.shared.same) else {
            return;
        };
        let Some(end) = self.window.as_ref().map(Window::next) else {
            return;
        };
        let hole = (1..=MAX_HOLE).contains(&end.distance_from(run.next));
        let goes_on = hole && run.length >= SEAM_AFTER && self.is_copy(&run, same);
        if goes_on && !self.fill(run.next, end, cx) {
            self.ask_again(run.next, end, cx);
        }
    }

    /// Whether a packet that was sent again equals the copy held of it.
    fn is_copy(&self, run: &Run<B>, Same(same): Same<B>) -> bool {
        self.window
            .as_ref()
            .and_then(|window| window.kept_at(run.psn))
            .is_some_and(|held| same(&payload(held), &payload(&run.kept)))
    }

    /// Passes the copies of [from, to) on, if every packet in there is held; whether it is.
    fn fill(&mut self, from: Psn, to: Psn, cx: &mut Cx<'_, B>) -> bool {
        let count = to.distance_from(from);
        if !self.is_held(from, count) {
            return false;
        }
        for n in 0..count {
            let psn = from.add(n);
            let copy = self.window.as_ref().and_then(|w| w.kept_at(psn).cloned());
            if let Some(copy) = copy {
                cx.shared.counters.replayed += 1;
                self.figures.replayed += 1;
                self.pass(copy_of(psn, copy), cx);
            }
        }
        true
    }

    /// Whether a copy of every packet among `count` PSNs from `from` is held.
    pub(crate) fn is_held(&self, from: Psn, count: i32) -> bool {
        let held = |window: &Window<B>, psn| match window.place(psn) {
            Place::In(Seen::Received | Seen::Resent | Seen::Restored) => {
                window.kept_at(psn).is_some()
            }
            Place::In(Seen::Absent | Seen::Nothing) => true,
            Place::In(Seen::Missing | Seen::Left) | Place::Behind | Place::Ahead => false,
        };
        self.window
            .as_ref()
            .is_some_and(|window| (0..count).all(|n| held(window, from.add(n))))
    }

    /// How long a copy may be needed after its packet arrived: until a loss at its side has shown
    /// through, the host has heard of it and has sent the packet again.
    pub(crate) fn replay_time(&self) -> Duration {
        let hold = self.times.hold.unwrap_or(Duration::ZERO);
        hold * 2 + self.times.srtt * 3
    }

    /// Before which PSN no copies are needed; `None` if copies are not to be kept at all. Besides by
    /// time, which stands still while nothing new arrives, they are kept as far back as the host has
    /// gone back of late, and half as far again.
    pub(crate) fn replay_floor(&self, cx: &Cx<'_, B>) -> Option<Psn> {
        let on = cx.config.crf.replay && cx.shared.same.is_some() && !self.is_responses();
        let window = self.window.as_ref()?;
        if !on || self.history.is_empty() || cx.shared.store.budget.is_half_used() {
            return None;
        }
        let floor = self.history.before_newest(self.replay_time());
        let far = self.went_back.saturating_add(self.went_back / 2);
        let back = window.next().add(-(far.min(MAX_SPAN) as i32));
        Some(earlier(floor.unwrap_or(window.base()), back))
    }
}
