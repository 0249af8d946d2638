//! The hold queue of a stream: frames behind a gap wait for a bounded time, so that restored packets
//! reach the receiver in order (CREM, Receiver Operation; AMB-HOLD). Which gap is waited for and for
//! how long is decided by the caller; here is only the order.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use crem_wire::Psn;

use super::budget::Budget;
use super::spare::Shelf;
use crate::actions::Delivery;
use crate::time::Instant;

#[derive(Clone, Debug)]
struct Held<B> {
    psn: Psn,
    octets: u16,
    kind: Delivery,
    /// When it came, for the record.
    at: Instant,
    buf: B,
}

/// A frame on its way to the receiver.
#[derive(Clone, Debug)]
pub(crate) struct Frame<B> {
    pub(crate) psn: Psn,
    pub(crate) octets: u16,
    pub(crate) kind: Delivery,
    pub(crate) buf: B,
}

/// What was held and is not any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Released {
    pub(crate) psn: Psn,
    pub(crate) kind: Delivery,
    /// When it came.
    pub(crate) at: Instant,
}

/// The memory of a hold queue.
#[derive(Debug)]
pub(crate) struct Queues<B> {
    waits: VecDeque<Psn>,
    queue: VecDeque<Held<B>>,
    /// Arrivals in order of time; those before the first waited PSN have left.
    arrivals: VecDeque<(Instant, Psn)>,
}

impl<B> Default for Queues<B> {
    fn default() -> Self {
        Self {
            waits: VecDeque::new(),
            queue: VecDeque::new(),
            arrivals: VecDeque::new(),
        }
    }
}

impl<B> Queues<B> {
    fn is_empty(&self) -> bool {
        self.waits.is_empty() && self.queue.is_empty()
    }

    /// Octets of memory.
    pub(crate) fn octets(&self) -> usize {
        size_of::<Self>()
            + self.waits.capacity() * size_of::<Psn>()
            + self.queue.capacity() * size_of::<Held<B>>()
            + self.arrivals.capacity() * size_of::<(Instant, Psn)>()
    }
}

/// Frames that wait, and the missing PSNs that they wait for.
///
/// A frame is held exactly while a PSN before its own is waited for. Both queues are in serial order. It
/// has memory only from the first PSN that is waited for until [`HoldQueue::rest`].
#[derive(Debug)]
pub(crate) struct HoldQueue<B>(Option<Box<Queues<B>>>);

impl<B> HoldQueue<B> {
    /// Nothing waits.
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    fn waits(&self) -> Option<&VecDeque<Psn>> {
        self.0.as_ref().map(|queues| &queues.waits)
    }

    /// Number of frames held.
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |queues| queues.queue.len())
    }

    /// Octets of memory.
    pub(crate) fn octets(&self) -> usize {
        self.0.as_ref().map_or(0, |queues| queues.octets())
    }

    /// Whether any PSN is waited for.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waits().is_some_and(|waits| !waits.is_empty())
    }

    /// The first PSN that is waited for.
    pub(crate) fn first_wait(&self) -> Option<Psn> {
        self.waits()?.front().copied()
    }

    /// Throws away the frames that `discard` says so of; how many. O(frames held).
    pub(crate) fn discard(
        &mut self,
        budget: &mut Budget,
        discard: impl Fn(Psn, Delivery) -> bool,
    ) -> u64 {
        let Some(queues) = &mut self.0 else {
            return 0;
        };
        let before = queues.queue.len();
        queues.queue.retain(|held| {
            let goes = discard(held.psn, held.kind);
            if goes {
                budget.remove(held.octets);
            }
            !goes
        });
        if queues.queue.is_empty() {
            queues.arrivals.clear();
        }
        (before - queues.queue.len()) as u64
    }

    /// When the frame that is held longest arrived.
    pub(crate) fn oldest(&mut self) -> Option<Instant> {
        let queues = self.0.as_mut()?;
        let first = *queues.waits.front()?;
        while let Some(&(at, psn)) = queues.arrivals.front() {
            if psn.is_after(first) {
                return Some(at);
            }
            queues.arrivals.pop_front();
        }
        None
    }

    /// From now on frames beyond `psn` wait for it; PSNs come in ascending order.
    pub(crate) fn wait_for(&mut self, psn: Psn, spare: &mut Shelf<Box<Queues<B>>>) {
        let queues = self.0.get_or_insert_with(|| spare.take());
        if queues.waits.back().is_none_or(|last| psn.is_after(*last)) {
            queues.waits.push_back(psn);
        }
    }

    /// Puts its memory back if nothing waits.
    pub(crate) fn rest(&mut self, spare: &mut Shelf<Box<Queues<B>>>) {
        if let Some(mut queues) = self.0.take_if(|queues| queues.is_empty()) {
            queues.arrivals.clear();
            spare.put(queues);
        }
    }

    /// Whether this PSN is waited for. O(log waits).
    pub(crate) fn waits_for(&self, psn: Psn) -> bool {
        self.waits().is_some_and(|waits| {
            let place = waits.partition_point(|w| psn.is_after(*w));
            waits.get(place) == Some(&psn)
        })
    }

    /// Whether a frame with this PSN would be held.
    pub(crate) fn holds(&self, psn: Psn) -> bool {
        let first = self.waits().and_then(VecDeque::front);
        first.is_some_and(|first| psn.is_after(*first))
    }

    /// Takes a frame that [`HoldQueue::holds`]; behind those of the same PSN. O(1) for frames in order.
    pub(crate) fn push(&mut self, now: Instant, frame: Frame<B>, budget: &mut Budget) {
        let Some(queues) = &mut self.0 else {
            return;
        };
        budget.add(frame.octets);
        queues.arrivals.push_back((now, frame.psn));
        let held = Held {
            psn: frame.psn,
            octets: frame.octets,
            kind: frame.kind,
            at: now,
            buf: frame.buf,
        };
        let queue = &mut queues.queue;
        let in_order = queue.back().is_none_or(|last| !last.psn.is_after(held.psn));
        if in_order {
            queue.push_back(held);
        } else {
            let place = queue.partition_point(|h| !h.psn.is_after(held.psn));
            queue.insert(place, held);
        }
    }

    /// `psn` is no longer waited for: hands out what waited for nothing else, in serial order.
    pub(crate) fn settle(
        &mut self,
        psn: Psn,
        budget: &mut Budget,
        out: &mut impl FnMut(Released, B),
    ) {
        let Some(queues) = &mut self.0 else {
            return;
        };
        let place = queues.waits.partition_point(|w| psn.is_after(*w));
        if queues.waits.get(place) == Some(&psn) {
            queues.waits.remove(place);
            if place == 0 {
                queues.release(budget, out);
            }
        }
    }

    /// Hands out everything in serial order; nothing is waited for any longer.
    pub(crate) fn release_all(&mut self, budget: &mut Budget, out: &mut impl FnMut(Released, B)) {
        if let Some(queues) = &mut self.0 {
            queues.waits.clear();
            queues.release(budget, out);
        }
    }
}

impl<B> Queues<B> {
    fn release(&mut self, budget: &mut Budget, out: &mut impl FnMut(Released, B)) {
        let first = self.waits.front().copied();
        while let Some(held) = self
            .queue
            .pop_front_if(|held| first.is_none_or(|w| !held.psn.is_after(w)))
        {
            budget.remove(held.octets);
            let released = Released {
                psn: held.psn,
                kind: held.kind,
                at: held.at,
            };
            out(released, held.buf);
        }
        if self.queue.is_empty() {
            self.arrivals.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn frame(psn: u32) -> Frame<u32> {
        Frame {
            psn: Psn::new(psn),
            octets: 10,
            kind: Delivery::Source,
            buf: psn,
        }
    }

    #[test]
    fn releases_up_to_the_next_gap() {
        let mut budget = Budget::new(100, 10_000);
        let (mut hold, mut spare) = (HoldQueue::new(), Shelf::default());
        let mut out = Vec::new();
        for gap in [0xff_ffff, 3] {
            hold.wait_for(Psn::new(gap), &mut spare);
        }
        for (at, psn) in [(5, 1), (6, 0), (7, 4), (8, 2), (9, 1)] {
            assert!(hold.holds(Psn::new(psn)));
            hold.push(Instant(at), frame(psn), &mut budget);
        }
        assert_eq!(hold.oldest(), Some(Instant(5)));
        hold.settle(Psn::new(0xff_ffff), &mut budget, &mut |_, b| out.push(b));
        assert_eq!(out, [0, 1, 1, 2]);
        assert_eq!(hold.oldest(), Some(Instant(7)));
        assert!(!hold.holds(Psn::new(2)) && !hold.holds(Psn::new(3)));
        hold.release_all(&mut budget, &mut |_, b| out.push(b));
        assert_eq!(out, [0, 1, 1, 2, 4]);
        assert_eq!((hold.oldest(), budget.packets()), (None, 0));
    }

    #[test]
    fn an_inner_gap_settles_without_release() {
        let mut budget = Budget::new(100, 10_000);
        let (mut hold, mut spare) = (HoldQueue::new(), Shelf::default());
        let mut out = Vec::new();
        for gap in [1, 3, 5] {
            hold.wait_for(Psn::new(gap), &mut spare);
        }
        for psn in [2, 4, 6] {
            hold.push(Instant(0), frame(psn), &mut budget);
        }
        hold.settle(Psn::new(3), &mut budget, &mut |_, b| out.push(b));
        assert!(out.is_empty());
        hold.settle(Psn::new(1), &mut budget, &mut |_, b| out.push(b));
        assert_eq!(out, [2, 4]);
        hold.settle(Psn::new(5), &mut budget, &mut |_, b| out.push(b));
        assert_eq!(out, [2, 4, 6]);
        assert!(!hold.is_waiting());
        hold.rest(&mut spare);
        assert_eq!(hold.octets(), 0);
        hold.wait_for(Psn::new(9), &mut spare);
        assert!(
            hold.octets() > 3 * size_of::<Held<u32>>(),
            "the same memory again"
        );
        hold.rest(&mut spare);
        assert!(hold.is_waiting(), "it is in use");
    }

    proptest! {
        #[test]
        fn every_frame_leaves_once_and_each_release_is_in_order(
            ops in proptest::collection::vec((0u8..4, 0u32..64), 1..300),
        ) {
            let mut budget = Budget::new(1000, 1 << 20);
            let (mut hold, mut spare) = (HoldQueue::new(), Shelf::default());
            let (mut pushed, mut left) = (Vec::new(), Vec::new());
            let mut highest_wait = 0;
            for (n, (op, psn)) in ops.into_iter().enumerate() {
                let mut batch = Vec::new();
                let at = Psn::new(psn);
                match op {
                    0 if psn > highest_wait => {
                        hold.wait_for(at, &mut spare);
                        highest_wait = psn;
                    }
                    1 | 2 if hold.holds(at) => {
                        hold.push(Instant(n as u64), frame(psn), &mut budget);
                        pushed.push(psn);
                    }
                    3 => hold.settle(at, &mut budget, &mut |_, b| batch.push(b)),
                    _ => {}
                }
                prop_assert!(batch.is_sorted());
                left.append(&mut batch);
                prop_assert_eq!(hold.len(), pushed.len() - left.len());
                prop_assert_eq!(budget.packets() as usize, hold.len());
                prop_assert_eq!(hold.oldest().is_some(), hold.len() > 0);
            }
            hold.release_all(&mut budget, &mut |_, b| left.push(b));
            pushed.sort_unstable();
            left.sort_unstable();
            prop_assert_eq!(pushed, left);
        }
    }
}
