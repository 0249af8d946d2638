//! Which queue pair's requests an acknowledgment acknowledges: the BTH of an acknowledgment names the queue
//! pair that sends, that of a request the one that receives. Without a message of the connection manager
//! the two are matched by PSNs, and only believed after many agreed and none disagreed.
//!
//! A PSN agrees with a stream of requests if the stream sent it within the last two round trips. A match
//! counts only while exactly one stream between the two hosts agrees, and only where the PSN has gone on:
//! queue pairs that count in step are never matched.

use crem_wire::{Psn, Qpn};

use super::{Ack, Direction};
use crate::table::{BoundedTable, Class};

/// Matches in a row that a pair is believed after.
const ENOUGH: u8 = 16;
/// How far behind the last one a repeated acknowledgment may be.
const NEAR: i32 = 4096;
/// Failed attempts after which only every so many acknowledgments are tried.
const PATIENCE: u32 = 64;
const SELDOM: u32 = 64;

/// The streams of requests that acknowledgments may belong to.
pub trait Candidates {
    /// The only stream of this direction that has sent `psn` of late, by the queue pair it goes to;
    /// `None` if there is none or more than one.
    fn only_sender_of(&self, way: Direction, psn: Psn) -> Option<Qpn>;
}

#[derive(Clone, Copy, Debug)]
struct Belief {
    /// The queue pair that the acknowledged requests go to.
    qp: Option<Qpn>,
    hits: u8,
    last: Psn,
    tries: u32,
}

/// What is believed of the queue pairs that acknowledgments go to. Bounded; the one least recently
/// acknowledged is forgotten first.
#[derive(Debug)]
pub struct Pairs(BoundedTable<(Direction, Qpn), Belief>);

impl Pairs {
    /// A table of at most `bound` queue pairs.
    pub fn new(bound: u32) -> Self {
        Self(BoundedTable::new(bound))
    }

    /// Octets of memory.
    pub(crate) fn octets(&self) -> usize {
        self.0.octets()
    }

    /// Takes an acknowledgment; gives the queue pair that the acknowledged requests go to, once that is
    /// believed. O(1) then, and O(candidates) for an attempt before.
    pub fn on_ack(&mut self, ack: &Ack, candidates: &impl Candidates) -> Option<Qpn> {
        let slot = self.slot_of(ack)?;
        self.0.touch(slot);
        let belief = self.0.get_mut(slot)?;
        if belief.hits >= ENOUGH {
            return belief.qp;
        }
        let seldom = belief.tries >= PATIENCE && !belief.tries.is_multiple_of(SELDOM);
        let repeated = belief.hits > 0 && (-NEAR..=0).contains(&ack.psn.distance_from(belief.last));
        if seldom || repeated {
            belief.tries = belief.tries.wrapping_add(u32::from(seldom));
            return None;
        }
        let found = candidates.only_sender_of(ack.way.reversed(), ack.psn);
        if found.is_some() && found == belief.qp {
            belief.hits += 1;
        } else {
            belief.tries = belief.tries.saturating_add(1);
            (belief.qp, belief.hits) = (found, u8::from(found.is_some()));
        }
        belief.last = ack.psn;
        None
    }

    /// An acknowledgment contradicted what was believed of its queue pair.
    pub fn doubt(&mut self, ack: &Ack) {
        let belief = self.0.slot(&(ack.way, ack.qp));
        if let Some(belief) = belief.and_then(|slot| self.0.get_mut(slot)) {
            (belief.qp, belief.hits) = (None, 0);
            belief.tries = belief.tries.saturating_add(1);
        }
    }

    fn slot_of(&mut self, ack: &Ack) -> Option<u32> {
        let key = (ack.way, ack.qp);
        if let Some(slot) = self.0.slot(&key) {
            return Some(slot);
        }
        if self.0.is_full() {
            let oldest = self.0.oldest(Class::Candidate)?;
            self.0.remove(oldest);
        }
        let belief = Belief {
            qp: None,
            hits: 0,
            last: ack.psn,
            tries: 0,
        };
        self.0.insert(key, belief).ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::packet::Namespace;
    use alloc::vec::Vec;
    use core::net::IpAddr;

    /// Streams by queue pair, each with the PSN after its last one; the last hundred count.
    struct Streams(Vec<(u32, u32)>);

    impl Candidates for Streams {
        fn only_sender_of(&self, way: Direction, psn: Psn) -> Option<Qpn> {
            assert_eq!(way, there());
            let agrees = |next: u32| (1..=100).contains(&Psn::new(next).distance_from(psn));
            let mut all = self.0.iter().filter(|(_, next)| agrees(*next));
            let first = all.next()?;
            all.next().is_none().then(|| Qpn::new(first.0))
        }
    }

    fn there() -> Direction {
        Direction {
            namespace: Namespace(0),
            from: IpAddr::from([10, 0, 0, 1]),
            to: IpAddr::from([10, 0, 0, 2]),
        }
    }

    fn ack(qp: u32, psn: u32) -> Ack {
        Ack {
            way: there().reversed(),
            qp: Qpn::new(qp),
            psn: Psn::new(psn),
            negative: false,
            mtu: None,
        }
    }

    // shows: AMB-ACKMAP
    #[test]
    fn a_pair_is_believed_after_many_matches() {
        let mut pairs = Pairs::new(4);
        for n in 1..=u32::from(ENOUGH) {
            let streams = Streams(Vec::from([(7, 1000 + 4 * n), (8, 500_000)]));
            let psn = 990 + 4 * n;
            for repeated in 0..3 {
                let found = pairs.on_ack(&ack(1, psn), &streams);
                let last = n == u32::from(ENOUGH) && repeated > 0;
                assert_eq!(found.is_some(), last, "{n}, {repeated} repetitions");
            }
        }
        let streams = Streams(Vec::new());
        assert_eq!(pairs.on_ack(&ack(1, 5), &streams), Some(Qpn::new(7)));
        pairs.doubt(&ack(1, 5));
        assert_eq!(pairs.on_ack(&ack(1, 5), &streams), None);
    }

    // shows: AMB-ACKMAP
    #[test]
    fn streams_in_step_are_not_matched() {
        let mut pairs = Pairs::new(4);
        for n in 0..1000 {
            let streams = Streams(Vec::from([(7, 1000 + n), (8, 1003 + n)]));
            assert_eq!(pairs.on_ack(&ack(1, 990 + n), &streams), None);
            assert_eq!(pairs.on_ack(&ack(2, 992 + n), &streams), None);
        }
    }

    #[test]
    fn one_disagreement_begins_anew() {
        let mut at = 1000;
        for wrong in [true, false] {
            let mut pairs = Pairs::new(4);
            for n in 0..u32::from(ENOUGH) {
                let streams = Streams(Vec::from([(7, at + 10)]));
                let psn = if wrong && n == 10 { at + 5000 } else { at };
                assert_eq!(pairs.on_ack(&ack(1, psn), &streams), None);
                at += 3;
            }
            let streams = Streams(Vec::from([(7, at + 10)]));
            let found = pairs.on_ack(&ack(1, at), &streams);
            assert_eq!(found.is_some(), !wrong);
        }
    }

    #[test]
    fn bounded() {
        let mut pairs = Pairs::new(2);
        let streams = Streams(Vec::new());
        for qp in 0..10 {
            pairs.on_ack(&ack(qp, 1), &streams);
        }
        assert_eq!(pairs.0.len(), 2);
        assert_eq!(Pairs::new(0).on_ack(&ack(1, 1), &streams), None);
    }
}
