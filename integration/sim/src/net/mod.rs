//! What a link does to what is sent over it: delay, loss, queue, marking, reordering, damage. One module
//! for each model; where links stand is the world's business.

pub mod loss;
pub mod path;
pub mod queue;

use crate::Instant;
use crate::rng::Rng;

/// What kind of datagram is sent, for models and counters that tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// Packets of hosts that CREM may protect.
    Source,
    /// Acknowledgments and CNPs of hosts.
    Acknowledgment,
    /// REPAIR messages.
    Repair,
    /// All other CREM messages.
    Control,
    /// Traffic that has nothing to do with the gateways.
    Cross,
}

/// A datagram as a link sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Octets that it occupies on the wire.
    pub octets: u32,
    /// ECN capable.
    pub ect: bool,
    /// Kind.
    pub class: Class,
    /// What equal-cost multipath hashes: equal for packets of one UDP flow.
    pub hash: u32,
}

/// Why a link dropped something.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// The queue was full.
    Overflow,
    /// Lost or damaged in transmission.
    Transmission,
    /// The link is down.
    Down,
}

/// What becomes of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It arrives.
    Deliver {
        /// When; not before the time of sending. May be earlier than that of an earlier datagram: the
        /// path reorders.
        at: Instant,
        /// The link marked it CE.
        ce: bool,
        /// Its octets were damaged unnoticed.
        damaged: bool,
        /// A second copy arrives then.
        again: Option<Instant>,
    },
    /// It does not.
    Drop(Cause),
}

/// One direction of a link or of a whole path.
pub trait Link {
    /// A datagram is sent at `now`, which never goes back.
    fn send(&mut self, now: Instant, datagram: &Datagram, rng: &mut Rng) -> Verdict;

    /// Octets that wait in its queue at `now`.
    fn backlog(&self, now: Instant) -> u64;
}
