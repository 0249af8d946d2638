//! What is known of each recent PSN of a stream, and the source packets that are kept for decoding: a
//! ring over the PSNs [base, next). What happens to a PSN is decided elsewhere.

use alloc::vec::Vec;
use crem_wire::Psn;

use super::budget::Budget;
use crate::time::Instant;

/// Slots that a stream starts with.
const FIRST_SLOTS: usize = 256;
/// Largest number of PSNs between base and next: somewhat more than a CSF retains of one flow.
pub(crate) const MAX_SPAN: u32 = 1 << 17;
/// How far a neighbour is looked for: no Identification is believed from further away (AMB-IPID).
const MAX_REACH: i32 = 4096;
const VACANT: u32 = u32::MAX;

/// What is known of a PSN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// Nothing was noted: part of a READ span or of a stretch that is not tracked.
    Nothing,
    /// A packet beyond it arrived, it did not.
    Missing,
    /// Its source packet arrived.
    Received,
    /// It was lost, and its packet arrived when the host sent it again: not the packet that was coded.
    Resent,
    /// It was restored.
    Restored,
    /// It carries no packet in this direction.
    Absent,
    /// Missing, and left to the RDMA transport.
    Left,
}

/// Where a PSN stands relative to the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Before the window: settled and forgotten.
    Behind,
    /// In the window.
    In(Seen),
    /// Not reached yet.
    Ahead,
}

/// A source packet kept for decoding and as a neighbour.
#[derive(Clone, Debug)]
pub(crate) struct Kept<B> {
    pub(crate) buf: B,
    pub(crate) off: u16,
    pub(crate) len: u16,
}

#[derive(Clone, Debug)]
struct Slot<B> {
    tag: u32,
    seen: Seen,
    /// A missing position that has been counted as lost.
    counted: bool,
    /// Arrival, or when the gap was seen.
    at: Instant,
    kept: Option<Kept<B>>,
}

impl<B> Slot<B> {
    const fn vacant() -> Self {
        Self {
            tag: VACANT,
            seen: Seen::Nothing,
            counted: false,
            at: Instant(0),
            kept: None,
        }
    }
}

/// The window of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Window<B> {
    slots: Vec<Slot<B>>,
    base: Psn,
    next: Psn,
    kept: u32,
    /// The last source packet that left the window: a neighbour for what follows it.
    last: Option<(Psn, Kept<B>)>,
}

impl<B: Clone> Window<B> {
    /// An empty window before `first`.
    pub(crate) fn new(first: Psn) -> Self {
        Self {
            slots: Vec::new(),
            base: first,
            next: first,
            kept: 0,
            last: None,
        }
    }

    /// First PSN that may still matter.
    pub(crate) const fn base(&self) -> Psn {
        self.base
    }

    /// One beyond the highest PSN seen, READ spans included.
    pub(crate) const fn next(&self) -> Psn {
        self.next
    }

    /// Source packets kept.
    pub(crate) const fn kept(&self) -> u32 {
        self.kept
    }

    fn span(&self) -> u32 {
        self.next.distance_from(self.base).max(0) as u32
    }

    fn slot(&self, psn: Psn) -> Option<&Slot<B>> {
        let mask = self.slots.len().wrapping_sub(1);
        self.slots
            .get(psn.get() as usize & mask)
            .filter(|slot| slot.tag == psn.get())
    }

    fn slot_mut(&mut self, psn: Psn) -> Option<&mut Slot<B>> {
        let mask = self.slots.len().wrapping_sub(1);
        self.slots
            .get_mut(psn.get() as usize & mask)
            .filter(|slot| slot.tag == psn.get())
    }

    /// What is known of `psn`. O(1).
    pub(crate) fn place(&self, psn: Psn) -> Place {
        if psn.distance_from(self.next) >= 0 {
            Place::Ahead
        } else if psn.distance_from(self.base) < 0 {
            Place::Behind
        } else {
            Place::In(self.slot(psn).map_or(Seen::Nothing, |slot| slot.seen))
        }
    }

    /// When `psn` arrived, or when it was seen to be missing.
    pub(crate) fn at(&self, psn: Psn) -> Option<Instant> {
        self.slot(psn).map(|slot| slot.at)
    }

    /// The kept packet of `psn`, if it was received and is still kept.
    pub(crate) fn kept_at(&self, psn: Psn) -> Option<&Kept<B>> {
        self.slot(psn).and_then(|slot| slot.kept.as_ref())
    }

    /// How far the window would have to move up to reach `upto` (exclusive) within its largest size;
    /// zero if it fits.
    pub(crate) fn excess(&self, upto: Psn) -> u32 {
        (upto.distance_from(self.base).max(0) as u32).saturating_sub(MAX_SPAN)
    }

    /// Moves `next` to `upto`, which must fit (see [`Window::excess`]). The PSNs passed are noted as
    /// nothing. Allocates only while the window grows to its working size.
    pub(crate) fn advance(&mut self, upto: Psn) {
        let needed = upto.distance_from(self.base).max(0) as usize;
        if needed > self.slots.len() {
            self.grow(needed);
        }
        if upto.is_after(self.next) {
            self.next = upto;
        }
    }

    fn grow(&mut self, needed: usize) {
        let size = needed
            .next_power_of_two()
            .clamp(FIRST_SLOTS, MAX_SPAN as usize);
        let mut slots: Vec<Slot<B>> = Vec::new();
        slots.resize_with(size, Slot::vacant);
        for slot in self.slots.drain(..) {
            let live = slot.tag != VACANT && Psn::new(slot.tag).distance_from(self.base) >= 0;
            if let Some(place) = slots
                .get_mut(slot.tag as usize & (size - 1))
                .filter(|_| live)
            {
                *place = slot;
            }
        }
        self.slots = slots;
    }

    /// Notes `seen` for a PSN in the window; a kept packet stays. `at` is noted where the PSN had no
    /// entry or the note is that it is missing.
    pub(crate) fn note(&mut self, psn: Psn, seen: Seen, at: Instant) {
        if !matches!(self.place(psn), Place::In(_)) {
            return;
        }
        let mask = self.slots.len().wrapping_sub(1);
        let Some(slot) = self.slots.get_mut(psn.get() as usize & mask) else {
            return;
        };
        if slot.tag == psn.get() {
            slot.seen = seen;
        } else {
            // Whatever stood here left the window long ago and keeps nothing: `drop_before` saw to it.
            *slot = Slot {
                tag: psn.get(),
                seen,
                at,
                ..Slot::vacant()
            };
        }
    }

    /// Notes that a packet with this PSN arrived, the source or one that was sent again.
    pub(crate) fn arrived(&mut self, psn: Psn, seen: Seen, now: Instant) {
        self.note(psn, seen, now);
        if let Some(slot) = self.slot_mut(psn) {
            slot.at = now;
        }
    }

    /// Whether nothing was ever noted of `psn`.
    pub(crate) fn is_blank(&self, psn: Psn) -> bool {
        self.slot(psn).is_none()
    }

    /// Moves `next` back to `psn`, and `base` if it is beyond; all in between is blank.
    pub(crate) fn retreat(&mut self, psn: Psn) {
        if self.next.is_after(psn) {
            self.next = psn;
        }
        if self.base.is_after(psn) {
            self.base = psn;
        }
    }

    /// Keeps the source packet of a received PSN; the caller has room in `budget`.
    pub(crate) fn keep(&mut self, psn: Psn, kept: Kept<B>, budget: &mut Budget) {
        if let Some(slot) = self.slot_mut(psn)
            && slot.kept.is_none()
        {
            budget.add(kept.len);
            slot.kept = Some(kept);
            self.kept += 1;
        }
    }

    /// Lets go of the packet kept for a PSN because it is damaged: it serves for nothing, not even as a
    /// neighbour.
    pub(crate) fn discard(&mut self, psn: Psn, budget: &mut Budget) {
        if let Some(kept) = self.slot_mut(psn).and_then(|slot| slot.kept.take()) {
            self.kept -= 1;
            budget.remove(kept.len);
        }
    }

    /// Whether a missing position has been counted as lost.
    pub(crate) fn is_counted(&self, psn: Psn) -> bool {
        self.slot(psn).is_some_and(|slot| slot.counted)
    }

    /// Marks a missing position as counted; false if it was already, or is not missing.
    pub(crate) fn count_lost(&mut self, psn: Psn) -> bool {
        self.slot_mut(psn).is_some_and(|slot| {
            matches!(slot.seen, Seen::Missing | Seen::Left)
                && !core::mem::replace(&mut slot.counted, true)
        })
    }

    /// Moves `base` up to `psn` and lets go of what was kept before it; beyond `next` the window becomes
    /// empty there. O(1) per PSN passed, at most the size of the window.
    pub(crate) fn drop_before(&mut self, psn: Psn, budget: &mut Budget) {
        let mut steps = (psn.distance_from(self.base).max(0) as usize).min(self.slots.len());
        while steps > 0 {
            self.release(self.base, budget);
            self.base = self.base.add(1);
            steps -= 1;
        }
        if psn.is_after(self.base) {
            self.base = psn;
        }
        if self.base.is_after(self.next) {
            self.next = self.base;
        }
    }

    /// Lets go of the packets kept in [from, to). O(1) per PSN.
    pub(crate) fn let_go(&mut self, from: Psn, to: Psn, budget: &mut Budget) {
        if self.kept == 0 {
            return;
        }
        for n in 0..to.distance_from(from).clamp(0, MAX_SPAN as i32) {
            self.release(from.add(n), budget);
        }
    }

    fn release(&mut self, psn: Psn, budget: &mut Budget) {
        if let Some(slot) = self.slot_mut(psn)
            && let Some(kept) = slot.kept.take()
        {
            let received = slot.seen == Seen::Received;
            self.kept -= 1;
            let newest = self.last.as_ref().is_none_or(|(at, _)| psn.is_after(*at));
            // The newest of those let go of stays counted.
            let gone = if received && newest {
                self.last.replace((psn, kept)).map(|(_, old)| old)
            } else {
                Some(kept)
            };
            if let Some(gone) = gone {
                budget.remove(gone.len);
            }
        }
    }

    /// Lets go of everything, the last neighbour included.
    pub(crate) fn clear(&mut self, budget: &mut Budget) {
        self.drop_before(self.next, budget);
        self.forget_last(budget);
    }

    /// Lets go of the last neighbour.
    pub(crate) fn forget_last(&mut self, budget: &mut Budget) {
        if let Some((_, kept)) = self.last.take() {
            budget.remove(kept.len);
        }
    }

    /// The first kept packet of `psns`, one that was received before one that was restored: both have
    /// verified headers, but only the former came from the network.
    fn nearest(&self, psns: impl Iterator<Item = Psn>) -> Option<(Psn, &Kept<B>)> {
        let mut restored = None;
        for psn in psns {
            let Some(slot) = self.slot(psn) else {
                continue;
            };
            match (&slot.kept, slot.seen) {
                (Some(kept), Seen::Received) => return Some((psn, kept)),
                (Some(kept), Seen::Restored) => {
                    restored.get_or_insert((psn, kept));
                }
                _ => {}
            }
        }
        restored
    }

    /// The nearest packet before `psn` that can lend its headers. O(distance), bounded.
    pub(crate) fn before(&self, psn: Psn) -> Option<(Psn, &Kept<B>)> {
        let reach = psn.distance_from(self.base).clamp(0, MAX_REACH);
        let last = self.last.as_ref().filter(|(at, _)| psn.is_after(*at));
        self.nearest((1..=reach).map(|back| psn.add(-back)))
            .or(last.map(|(at, kept)| (*at, kept)))
    }

    /// The nearest packet after `psn` that can lend its headers. O(distance), bounded.
    pub(crate) fn after(&self, psn: Psn) -> Option<(Psn, &Kept<B>)> {
        let reach = self.next.distance_from(psn).clamp(0, MAX_REACH);
        let last = self.last.as_ref().filter(|(at, _)| at.is_after(psn));
        self.nearest((1..reach).map(|ahead| psn.add(ahead)))
            .or(last.map(|(at, kept)| (*at, kept)))
    }

    /// Number of PSNs in the window.
    pub(crate) fn len(&self) -> u32 {
        self.span()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use alloc::rc::Rc;

    fn kept(n: u32) -> Kept<Rc<u32>> {
        Kept {
            buf: Rc::new(n),
            off: 42,
            len: 100,
        }
    }

    #[test]
    fn a_discarded_packet_makes_room_for_another() {
        let mut budget = Budget::new(10, 1 << 20);
        let psn = Psn::new(5);
        let mut w = Window::new(psn);
        w.advance(psn.add(1));
        w.arrived(psn, Seen::Received, Instant(1));
        w.keep(psn, kept(1), &mut budget);
        w.keep(psn, kept(2), &mut budget);
        assert_eq!(*w.kept_at(psn).unwrap().buf, 1, "the first one stays");
        w.discard(psn, &mut budget);
        assert_eq!((w.kept(), budget.packets()), (0, 0));
        w.keep(psn, kept(2), &mut budget);
        assert_eq!(*w.kept_at(psn).unwrap().buf, 2);
        assert_eq!((w.kept(), budget.packets()), (1, 1));
    }

    #[test]
    fn keeps_over_the_wrap_and_growth() {
        let mut budget = Budget::new(10_000, 1 << 30);
        let first = Psn::new(0xff_ff00);
        let mut w = Window::new(first);
        for n in 0..1000 {
            let psn = first.add(n);
            w.advance(psn.add(1));
            w.arrived(psn, Seen::Received, Instant(n as u64));
            w.keep(psn, kept(n as u32), &mut budget);
        }
        assert_eq!((w.kept(), budget.packets(), w.len()), (1000, 1000, 1000));
        for n in 0..1000 {
            assert_eq!(*w.kept_at(first.add(n)).unwrap().buf, n as u32);
            assert_eq!(w.at(first.add(n)), Some(Instant(n as u64)));
        }
        w.drop_before(first.add(600), &mut budget);
        assert_eq!(
            (w.kept(), budget.packets()),
            (400, 401),
            "the last neighbour counts"
        );
        assert_eq!(w.place(first.add(599)), Place::Behind);
        assert_eq!(w.place(first.add(600)), Place::In(Seen::Received));
        assert_eq!(w.place(first.add(1000)), Place::Ahead);
        assert_eq!(
            w.before(first.add(600)).unwrap().0,
            first.add(599),
            "the last one dropped still serves as a neighbour"
        );
        w.clear(&mut budget);
        assert_eq!((w.kept(), budget.packets(), budget.octets()), (0, 0, 0));
        assert!(w.before(first.add(1000)).is_none());
    }

    #[test]
    fn neighbours_are_the_nearest() {
        let mut budget = Budget::new(100, 1 << 20);
        let mut w = Window::new(Psn::new(10));
        w.advance(Psn::new(30));
        for n in [12, 25] {
            w.arrived(Psn::new(n), Seen::Received, Instant(0));
            w.keep(Psn::new(n), kept(n), &mut budget);
        }
        w.note(Psn::new(20), Seen::Missing, Instant(7));
        assert_eq!(w.before(Psn::new(20)).unwrap().0, Psn::new(12));
        assert_eq!(w.after(Psn::new(20)).unwrap().0, Psn::new(25));
        assert!(w.before(Psn::new(12)).is_none() && w.after(Psn::new(25)).is_none());
        assert!(w.count_lost(Psn::new(20)) && !w.count_lost(Psn::new(20)));
        assert!(!w.count_lost(Psn::new(12)) && !w.count_lost(Psn::new(21)));
    }

    #[test]
    fn stale_slots_do_not_speak_for_later_psns() {
        let mut budget = Budget::new(100, 1 << 20);
        let mut w = Window::new(Psn::new(0));
        w.advance(Psn::new(1));
        w.arrived(Psn::new(0), Seen::Received, Instant(0));
        w.keep(Psn::new(0), kept(0), &mut budget);
        w.drop_before(Psn::new(1), &mut budget);
        let far = Psn::new(FIRST_SLOTS as u32);
        w.drop_before(far, &mut budget);
        assert_eq!((w.base(), w.next()), (far, far));
        w.advance(far.add(1));
        assert_eq!(w.place(far), Place::In(Seen::Nothing));
        w.arrived(far, Seen::Received, Instant(9));
        assert!(w.kept_at(far).is_none());
        assert_eq!(w.excess(far.add(MAX_SPAN as i32 + 5)), 5);
    }
}
