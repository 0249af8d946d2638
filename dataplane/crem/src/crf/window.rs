//! What is known of each recent PSN of a stream, and the source packets that are kept for decoding: the
//! PSNs [base, next), in pages out of the pool in `pages.rs`. What happens to a PSN is decided elsewhere.
//!
//! A stretch of which nothing was noted, such as a READ span, takes no page.

use alloc::boxed::Box;
use alloc::vec::Vec;
use crem_wire::Psn;

use super::pages::{Cell, PAGE, Page, Store};
use crate::time::Instant;

/// Places for pages that a stream starts with.
const FIRST_PLACES: usize = 4;
/// Places that the empty window of a flow that rests keeps at most.
const REST_PLACES: usize = 16;
/// Largest number of PSNs between base and next: somewhat more than a CSF retains of one flow.
pub(crate) const MAX_SPAN: u32 = (1 << 17) - PAGE;
/// How far a neighbour is looked for: no Identification is believed from further away (AMB-IPID).
const MAX_REACH: i32 = 4096;

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

/// The window of a stream.
#[derive(Debug)]
pub(crate) struct Window<B> {
    /// A ring by page number, as long as a power of two. Only pages of [base, next) stand in it.
    pages: Vec<Option<Box<Page<B>>>>,
    base: Psn,
    next: Psn,
    kept: u32,
    /// The last source packet that left the window: a neighbour for what follows it.
    last: Option<(Psn, Kept<B>)>,
}

/// First PSN of the page that holds `psn`.
const fn page_start(psn: Psn) -> Psn {
    Psn::new(psn.get() & !(PAGE - 1))
}

const fn place_in_page(psn: Psn) -> usize {
    (psn.get() & (PAGE - 1)) as usize
}

impl<B: Clone> Window<B> {
    /// An empty window before `first`.
    pub(crate) const fn new(first: Psn) -> Self {
        Self {
            pages: Vec::new(),
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

    /// Octets of memory besides the pages.
    pub(crate) const fn octets(&self) -> usize {
        self.pages.capacity() * size_of::<Option<Box<Page<B>>>>()
    }

    const fn place_of_page(&self, psn: Psn) -> usize {
        (psn.get() / PAGE) as usize & self.pages.len().wrapping_sub(1)
    }

    const fn holds(&self, psn: Psn) -> bool {
        psn.distance_from(self.base) >= 0 && psn.distance_from(self.next) < 0
    }

    fn cell(&self, psn: Psn) -> Option<&Cell<B>> {
        let page = self.pages.get(self.place_of_page(psn))?.as_ref()?;
        page.get(place_in_page(psn)).filter(|_| self.holds(psn))
    }

    fn cell_mut(&mut self, psn: Psn) -> Option<&mut Cell<B>> {
        if !self.holds(psn) {
            return None;
        }
        let place = self.place_of_page(psn);
        let page = self.pages.get_mut(place)?.as_mut()?;
        page.get_mut(place_in_page(psn))
    }

    /// What is known of `psn`. O(1).
    pub(crate) fn place(&self, psn: Psn) -> Place {
        if psn.distance_from(self.next) >= 0 {
            Place::Ahead
        } else if psn.distance_from(self.base) < 0 {
            Place::Behind
        } else {
            Place::In(self.cell(psn).map_or(Seen::Nothing, |cell| cell.seen))
        }
    }

    /// When `psn` arrived, or when it was seen to be missing.
    pub(crate) fn at(&self, psn: Psn) -> Option<Instant> {
        self.cell(psn).filter(|cell| cell.is_noted()).map(|c| c.at)
    }

    /// The kept packet of `psn`, if it was received and is still kept.
    pub(crate) fn kept_at(&self, psn: Psn) -> Option<&Kept<B>> {
        self.cell(psn).and_then(|cell| cell.kept.as_ref())
    }

    /// How far the window would have to move up to reach `upto` (exclusive) within its largest size;
    /// zero if it fits.
    pub(crate) fn excess(&self, upto: Psn) -> u32 {
        (upto.distance_from(self.base).max(0) as u32).saturating_sub(MAX_SPAN)
    }

    /// Moves `next` to `upto`, which must fit (see [`Window::excess`]). Of the PSNs passed nothing is
    /// noted. Allocates only while the ring of pages grows to its working size.
    pub(crate) fn advance(&mut self, upto: Psn) {
        let span = upto.distance_from(page_start(self.base)).max(0) as u32;
        let needed = span.div_ceil(PAGE) as usize;
        if needed > self.pages.len() {
            self.grow(needed);
        }
        if upto.is_after(self.next) {
            self.next = upto;
        }
    }

    fn grow(&mut self, needed: usize) {
        let mut old = core::mem::take(&mut self.pages);
        let size = needed.next_power_of_two().max(FIRST_PLACES);
        self.pages.reserve_exact(size);
        self.pages.resize_with(size, || None);
        let first = page_start(self.base);
        let mask = old.len().wrapping_sub(1);
        for n in 0..old.len() {
            let psn = first.add((n as u32 * PAGE) as i32);
            let from = (psn.get() / PAGE) as usize & mask;
            let to = self.place_of_page(psn);
            if let (Some(page), Some(place)) = (old.get_mut(from), self.pages.get_mut(to)) {
                *place = page.take();
            }
        }
    }

    /// Notes `seen` for a PSN in the window; a kept packet stays. `at` is noted where nothing was noted
    /// before. `false` if there is no page left to note it in.
    pub(crate) fn note(&mut self, psn: Psn, seen: Seen, at: Instant, store: &mut Store<B>) -> bool {
        if !self.holds(psn) {
            return true;
        }
        let place = self.place_of_page(psn);
        let Some(page) = self.pages.get_mut(place) else {
            return false;
        };
        if page.is_none() {
            *page = store.pages.take();
        }
        let Some(cell) = page.as_mut().and_then(|p| p.get_mut(place_in_page(psn))) else {
            return false;
        };
        if !cell.is_noted() {
            cell.at = at;
        }
        cell.seen = seen;
        true
    }

    /// Notes that a packet with this PSN arrived, the source or one that was sent again. `false` if there
    /// is no page left to note it in.
    pub(crate) fn arrived(
        &mut self,
        psn: Psn,
        seen: Seen,
        now: Instant,
        store: &mut Store<B>,
    ) -> bool {
        let noted = self.note(psn, seen, now, store);
        if let Some(cell) = self.cell_mut(psn) {
            cell.at = now;
        }
        noted
    }

    /// Whether nothing was ever noted of `psn`.
    pub(crate) fn is_blank(&self, psn: Psn) -> bool {
        self.cell(psn).is_none_or(|cell| !cell.is_noted())
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

    /// Keeps the source packet of a received PSN; the caller has room in the budget.
    pub(crate) fn keep(&mut self, psn: Psn, kept: Kept<B>, store: &mut Store<B>) {
        if let Some(cell) = self.cell_mut(psn)
            && cell.kept.is_none()
        {
            store.budget.add(kept.len);
            cell.kept = Some(kept);
            self.kept += 1;
        }
    }

    /// Lets go of the packet kept for a PSN because it is damaged: it serves for nothing, not even as a
    /// neighbour.
    pub(crate) fn discard(&mut self, psn: Psn, store: &mut Store<B>) {
        if let Some(kept) = self.cell_mut(psn).and_then(|cell| cell.kept.take()) {
            self.kept -= 1;
            store.budget.remove(kept.len);
        }
    }

    /// Whether a missing position has been counted as lost.
    pub(crate) fn is_counted(&self, psn: Psn) -> bool {
        self.cell(psn).is_some_and(|cell| cell.counted)
    }

    /// Marks a missing position as counted; false if it was already, or is not missing.
    pub(crate) fn count_lost(&mut self, psn: Psn) -> bool {
        self.cell_mut(psn).is_some_and(|cell| {
            matches!(cell.seen, Seen::Missing | Seen::Left)
                && !core::mem::replace(&mut cell.counted, true)
        })
    }

    /// Moves `base` up to `psn` and lets go of what was kept before it; beyond `next` the window becomes
    /// empty there. O(1) per PSN passed and noted, and per page passed.
    pub(crate) fn drop_before(&mut self, psn: Psn, store: &mut Store<B>) {
        let end = super::track::earlier(psn, self.next);
        self.let_go(self.base, end, store);
        let mut page = page_start(self.base);
        while end.distance_from(page.add(PAGE as i32)) >= 0 {
            self.give_back(page, store);
            page = page.add(PAGE as i32);
        }
        if psn.is_after(self.base) {
            self.base = psn;
        }
        if self.base.distance_from(self.next) >= 0 {
            self.next = self.base;
            // The rest of the last page: what it says is of the past.
            self.give_back(page, store);
        }
    }

    /// Lets go of places for pages that a long window has left behind. For a flow that rests only: one that
    /// is caught up for a moment needs as many again with the next block that stays incomplete for long.
    pub(crate) fn rest(&mut self) {
        if self.base == self.next && self.pages.len() > REST_PLACES {
            self.pages = Vec::new();
        }
    }

    fn give_back(&mut self, page: Psn, store: &mut Store<B>) {
        let place = self.place_of_page(page);
        if let Some(page) = self.pages.get_mut(place).and_then(Option::take) {
            store.pages.give_back(page);
        }
    }

    /// Lets go of the packets kept in [from, to). O(1) per PSN.
    pub(crate) fn let_go(&mut self, from: Psn, to: Psn, store: &mut Store<B>) {
        let mut at = from;
        while self.kept > 0 && to.is_after(at) {
            let place = self.place_of_page(at);
            if self.pages.get(place).is_none_or(Option::is_none) {
                at = page_start(at).add(PAGE as i32);
            } else {
                self.release(at, store);
                at = at.add(1);
            }
        }
    }

    fn release(&mut self, psn: Psn, store: &mut Store<B>) {
        if let Some(cell) = self.cell_mut(psn)
            && let Some(kept) = cell.kept.take()
        {
            let received = cell.seen == Seen::Received;
            self.kept -= 1;
            let newest = self.last.as_ref().is_none_or(|(at, _)| psn.is_after(*at));
            // The newest of those let go of stays counted.
            let gone = if received && newest {
                self.last.replace((psn, kept)).map(|(_, old)| old)
            } else {
                Some(kept)
            };
            if let Some(gone) = gone {
                store.budget.remove(gone.len);
                store.departed.add(gone.buf);
            }
        }
    }

    /// Lets go of everything, the last neighbour included.
    pub(crate) fn clear(&mut self, store: &mut Store<B>) {
        self.drop_before(self.next, store);
        self.forget_last(store);
    }

    /// Lets go of the last neighbour.
    pub(crate) fn forget_last(&mut self, store: &mut Store<B>) {
        if let Some((_, kept)) = self.last.take() {
            store.budget.remove(kept.len);
        }
    }

    /// The first kept packet of `psns`, one that was received before one that was restored: both have
    /// verified headers, but only the former came from the network.
    fn nearest(&self, psns: impl Iterator<Item = Psn>) -> Option<(Psn, &Kept<B>)> {
        let mut restored = None;
        for psn in psns {
            let Some(cell) = self.cell(psn) else {
                continue;
            };
            match (&cell.kept, cell.seen) {
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
        self.next.distance_from(self.base).max(0) as u32
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::CrfConfig;
    use alloc::rc::Rc;

    fn store(packets: u32) -> Store<Rc<u32>> {
        Store::new(&CrfConfig {
            keep_packets: packets,
            max_flows: 1,
            ..CrfConfig::default()
        })
    }

    fn kept(n: u32) -> Kept<Rc<u32>> {
        Kept {
            buf: Rc::new(n),
            off: 42,
            len: 100,
        }
    }

    #[test]
    fn a_window_that_is_caught_up_keeps_its_places_until_it_rests() {
        let mut store = store(10);
        let psn = Psn::new(5);
        let mut w = Window::new(psn);
        w.advance(psn.add(4000));
        let long = w.octets();
        w.drop_before(psn.add(4000), &mut store);
        assert_eq!((w.len(), w.octets()), (0, long));
        w.advance(psn.add(4100));
        w.rest();
        assert_eq!(w.octets(), long, "it is not empty");
        w.drop_before(psn.add(4100), &mut store);
        w.rest();
        assert_eq!(w.octets(), 0);
    }

    #[test]
    fn a_discarded_packet_makes_room_for_another() {
        let mut store = store(10);
        let psn = Psn::new(5);
        let mut w = Window::new(psn);
        w.advance(psn.add(1));
        assert!(w.arrived(psn, Seen::Received, Instant(1), &mut store));
        w.keep(psn, kept(1), &mut store);
        w.keep(psn, kept(2), &mut store);
        assert_eq!(*w.kept_at(psn).unwrap().buf, 1, "the first one stays");
        w.discard(psn, &mut store);
        assert_eq!((w.kept(), store.budget.packets()), (0, 0));
        w.keep(psn, kept(2), &mut store);
        assert_eq!(*w.kept_at(psn).unwrap().buf, 2);
        assert_eq!((w.kept(), store.budget.packets()), (1, 1));
    }

    #[test]
    fn keeps_over_the_wrap_and_growth() {
        let mut store = store(10_000);
        let first = Psn::new(0xff_ff00);
        let mut w = Window::new(first);
        for n in 0..1000 {
            let psn = first.add(n);
            w.advance(psn.add(1));
            assert!(w.arrived(psn, Seen::Received, Instant(n as u64), &mut store));
            w.keep(psn, kept(n as u32), &mut store);
        }
        assert_eq!(
            (w.kept(), store.budget.packets(), w.len()),
            (1000, 1000, 1000)
        );
        for n in 0..1000 {
            assert_eq!(*w.kept_at(first.add(n)).unwrap().buf, n as u32);
            assert_eq!(w.at(first.add(n)), Some(Instant(n as u64)));
        }
        w.drop_before(first.add(600), &mut store);
        assert_eq!(
            (w.kept(), store.budget.packets()),
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
        w.clear(&mut store);
        assert_eq!(
            (w.kept(), store.budget.packets(), store.budget.octets()),
            (0, 0, 0)
        );
        assert!(w.before(first.add(1000)).is_none());
    }

    #[test]
    fn neighbours_are_the_nearest() {
        let mut store = store(100);
        let mut w = Window::new(Psn::new(10));
        w.advance(Psn::new(30));
        for n in [12, 25] {
            assert!(w.arrived(Psn::new(n), Seen::Received, Instant(0), &mut store));
            w.keep(Psn::new(n), kept(n), &mut store);
        }
        assert!(w.note(Psn::new(20), Seen::Missing, Instant(7), &mut store));
        assert_eq!(w.before(Psn::new(20)).unwrap().0, Psn::new(12));
        assert_eq!(w.after(Psn::new(20)).unwrap().0, Psn::new(25));
        assert!(w.before(Psn::new(12)).is_none() && w.after(Psn::new(25)).is_none());
        assert!(w.count_lost(Psn::new(20)) && !w.count_lost(Psn::new(20)));
        assert!(!w.count_lost(Psn::new(12)) && !w.count_lost(Psn::new(21)));
    }

    #[test]
    fn stale_slots_do_not_speak_for_later_psns() {
        let mut store = store(100);
        let mut w = Window::new(Psn::new(0));
        w.advance(Psn::new(1));
        assert!(w.arrived(Psn::new(0), Seen::Received, Instant(0), &mut store));
        w.keep(Psn::new(0), kept(0), &mut store);
        w.drop_before(Psn::new(1), &mut store);
        let far = Psn::new(FIRST_PLACES as u32 * PAGE);
        w.drop_before(far, &mut store);
        assert_eq!((w.base(), w.next()), (far, far));
        w.advance(far.add(1));
        assert_eq!(w.place(far), Place::In(Seen::Nothing));
        assert!(w.arrived(far, Seen::Received, Instant(9), &mut store));
        assert!(w.kept_at(far).is_none());
        assert_eq!(w.excess(far.add(MAX_SPAN as i32 + 5)), 5);
    }
}
