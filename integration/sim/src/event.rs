//! What is on its way: packets and messages in order of arrival. Datagrams of one link mostly arrive in
//! the order in which they were sent, so each link has a lane, a plain queue; what overtakes goes to a
//! heap. No decision lives here.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::Instant;

/// A link's place among the lanes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Lane(pub(crate) u16);

/// Far away: no event.
const NEVER: Instant = Instant(u64::MAX);

struct Overtaker<T> {
    at: Instant,
    serial: u64,
    lane: Lane,
    item: T,
}

impl<T> PartialEq for Overtaker<T> {
    fn eq(&self, other: &Self) -> bool {
        self.serial == other.serial
    }
}
impl<T> Eq for Overtaker<T> {}
impl<T> PartialOrd for Overtaker<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Overtaker<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

struct Queue<T> {
    waiting: VecDeque<(Instant, T)>,
    last: Instant,
}

/// Everything that is on its way.
pub(crate) struct InFlight<T> {
    lanes: Vec<Queue<T>>,
    /// When the first of each lane arrives.
    heads: Vec<Instant>,
    overtaking: BinaryHeap<Reverse<Overtaker<T>>>,
    serial: u64,
}

impl<T> InFlight<T> {
    pub(crate) fn new() -> Self {
        Self {
            lanes: Vec::new(),
            heads: Vec::new(),
            overtaking: BinaryHeap::new(),
            serial: 0,
        }
    }

    /// One more lane.
    pub(crate) fn add_lane(&mut self) -> Lane {
        self.lanes.push(Queue {
            waiting: VecDeque::new(),
            last: Instant(0),
        });
        self.heads.push(NEVER);
        Lane(self.lanes.len() as u16 - 1)
    }

    /// `item` arrives over `lane` at `at`.
    pub(crate) fn push(&mut self, lane: Lane, at: Instant, item: T) {
        let queue = &mut self.lanes[usize::from(lane.0)];
        if at >= queue.last {
            queue.last = at;
            if queue.waiting.is_empty() {
                self.heads[usize::from(lane.0)] = at;
            }
            queue.waiting.push_back((at, item));
        } else {
            self.serial += 1;
            let serial = self.serial;
            self.overtaking.push(Reverse(Overtaker {
                at,
                serial,
                lane,
                item,
            }));
        }
    }

    /// When the next one arrives.
    pub(crate) fn next(&self) -> Option<Instant> {
        let heap = self.overtaking.peek().map_or(NEVER, |Reverse(o)| o.at);
        let first = self.heads.iter().fold(heap, |first, at| first.min(*at));
        (first != NEVER).then_some(first)
    }

    /// Takes one that has arrived over `lane` in its own turn.
    pub(crate) fn pop(&mut self, lane: Lane, now: Instant) -> Option<T> {
        let head = self.heads.get_mut(usize::from(lane.0))?;
        if *head > now {
            return None;
        }
        let queue = &mut self.lanes[usize::from(lane.0)];
        let (_, item) = queue.waiting.pop_front()?;
        *head = queue.waiting.front().map_or(NEVER, |(at, _)| *at);
        Some(item)
    }

    /// Takes one that has arrived and overtook others.
    pub(crate) fn pop_overtaking(&mut self, now: Instant) -> Option<(Lane, T)> {
        if self.overtaking.peek().is_none_or(|Reverse(o)| o.at > now) {
            return None;
        }
        let Reverse(o) = self.overtaking.pop()?;
        Some((o.lane, o.item))
    }

    /// The lanes.
    pub(crate) fn lanes(&self) -> u16 {
        self.lanes.len() as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_come_in_order_of_time_whoever_overtakes() {
        let mut events = InFlight::new();
        let (a, b) = (events.add_lane(), events.add_lane());
        for (lane, at) in [(a, 10), (a, 30), (b, 20), (a, 15), (b, 40)] {
            events.push(lane, Instant(at), at);
        }
        let mut seen = Vec::new();
        while let Some(now) = events.next() {
            while let Some((_, item)) = events.pop_overtaking(now) {
                seen.push(item);
            }
            for lane in [a, b] {
                while let Some(item) = events.pop(lane, now) {
                    seen.push(item);
                }
            }
        }
        assert_eq!(seen, [10, 15, 20, 30, 40]);
    }
}
