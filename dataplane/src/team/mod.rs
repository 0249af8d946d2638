//! Several workers at one segment: which of them owns a flow, and what they hand each other.
//!
//! A flow belongs to the worker that a hash of its addresses and queue pair names, whatever queue its
//! packets come in by. A frame from the LAN is sent by the worker that received it, in the order of
//! arrival, before anything else; the owner gets a reference. A frame from the WAN goes through its
//! owner only. Between two workers there is one bounded ring each way ([`ring`]), so that no hand-over
//! changes the order of a flow. Facts that more than one worker has to know go to all of them
//! ([`Fact`]): they are few, and bounded tables at each worker are cheaper than asking.
//!
//! Worker 0 is the home of what exists once: the in-band interface and, where a port has fewer queues
//! than there are workers, its queue ([`outlet`]). What a segment does with what it is handed is in
//! [`inbox`].

mod directory;
mod inbox;
mod outlet;
mod ring;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crem_core::config::Shard;
use crem_core::learn::{Ack, Managed};
use crem_core::packet::{Desc, PsnSpace, StreamKey};
use crem_core::time::Instant;
use crem_wire::Qpn;
use crem_wire::crem::{FlowDescriptor, LossReport};

use crate::buffer::{BURST, Buffer, Platform};
use crate::classify::{Datagram, Side};

pub use directory::Directory;
pub use outlet::{Outlet, Relayed, relay};
pub use ring::{Ring, Takes, Teams, teams};

/// How long frames from the WAN stay in the port because another worker's ring is full. Then they are
/// dropped in its stead, so that one slow worker does not hold up all others.
const PATIENCE: Duration = Duration::from_millis(5);

/// A worker among others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its number, from 0.
    pub index: u16,
    /// How many there are.
    pub count: u16,
    /// Makes the owner of a flow something that hosts cannot choose. The same for all workers.
    pub seed: u64,
}

impl Place {
    /// The only worker.
    pub const ALONE: Self = Self {
        index: 0,
        count: 1,
        seed: 0,
    };

    /// What the protocol functions have to know of it.
    pub fn shard(&self) -> Shard {
        Shard {
            index: self.index,
            count: self.count,
        }
    }

    /// The worker that owns the flows toward this queue pair.
    pub fn owner(&self, source: IpAddr, destination: IpAddr, qp: Qpn) -> u16 {
        let mixed = mix(mix(self.seed, word(source)), word(destination));
        let hash = mix(mixed, u64::from(qp.get())) >> 32;
        // A fraction of 2^32, times the number of workers.
        u16::try_from((hash * u64::from(self.count)) >> 32).unwrap_or(0)
    }

    /// The owner of a stream.
    pub fn owner_of(&self, key: &StreamKey) -> u16 {
        self.owner(key.source, key.destination, key.qp)
    }

    /// The worker whose number is in something that it drew itself: a Flow ID or a nonce.
    pub fn stamped(&self, drawn: u64) -> u16 {
        u16::try_from(drawn % u64::from(self.count.max(1))).unwrap_or(0)
    }

    /// Its part of a bound that is for the whole segment, rounded up.
    pub fn share(&self, bound: u32) -> u32 {
        bound.div_ceil(u32::from(self.count.max(1)))
    }

    /// Its part of a bound of a table of flows: hashing does not spread them evenly.
    pub fn share_of_flows(&self, bound: u32) -> u32 {
        if self.count <= 1 {
            return bound;
        }
        let even = self.share(bound);
        bound.min(even.saturating_add(even / 4).saturating_add(64))
    }
}

/// One step of a 64-bit hash; every bit of both depends on the upper half of the result.
fn mix(state: u64, word: u64) -> u64 {
    let folded = (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (folded ^ (folded >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

fn word(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(a) => u64::from(a.to_bits()),
        IpAddr::V6(a) => {
            let bits = a.to_bits();
            mix((bits >> 64) as u64, bits as u64)
        }
    }
}

/// What more than one worker has to know.
#[derive(Clone, Copy, Debug)]
pub enum Fact {
    /// A valid message of a peer came, for flows of a host where that is known.
    Alive {
        /// The peer.
        from: SocketAddr,
        /// The host.
        host: Option<IpAddr>,
    },
    /// A peer began to send repair for a stream of a host.
    Met {
        /// The peer.
        from: SocketAddr,
        /// The host.
        host: IpAddr,
        /// Kind of stream.
        space: PsnSpace,
    },
    /// A report of a flow, for the estimates of the path.
    Report {
        /// The peer.
        peer: SocketAddr,
        /// What it says.
        report: LossReport,
        /// Round-trip time of the flow.
        srtt: Duration,
    },
    /// An acknowledgment passed.
    Acked(Ack),
    /// A message of the connection manager passed.
    Managed(Managed),
}

/// What a worker hands to another one.
#[derive(Debug)]
pub enum Item<B> {
    /// A packet of a flow of the other one, sent to the WAN already.
    Sent(Desc<B>),
    /// A packet of a flow of the other one, from the WAN.
    Received(Desc<B>),
    /// A READ or atomic request, sent to the WAN already.
    Asked(Desc<B>),
    /// A message for the other one's functions.
    Mail(Datagram, B),
    /// A frame for the in-band interface.
    Kernel(B),
    /// Something to know.
    Fact(Fact),
}

/// The ends of a segment's rings that one worker holds.
#[derive(Debug)]
pub struct Team<P: Platform> {
    /// Which worker this is.
    pub place: Place,
    /// Whose Flow IDs are.
    pub directory: Arc<Directory>,
    out: Vec<Option<ring::Gives<Item<P::Buf>>>>,
    from: Vec<Takes<Item<P::Buf>>>,
    /// Frames of workers that send by this one's queues.
    relayed: Vec<(Side, Takes<Relayed<P::Buf>>)>,
    /// Since when another one's ring has had no room for a burst.
    full_since: Option<Instant>,
}

impl<P: Platform> Team<P> {
    /// Whether this worker has what exists once.
    pub fn is_home(&self) -> bool {
        self.place.index == 0
    }

    /// The owner of a stream, if it is another worker.
    pub fn elsewhere(&self, key: &StreamKey) -> Option<u16> {
        let owner = self.place.owner_of(key);
        (owner != self.place.index).then_some(owner)
    }

    /// The owner of the flow that a message names.
    fn owner_named(&self, flow: &FlowDescriptor) -> u16 {
        self.place.owner(flow.source, flow.destination, flow.qp)
    }

    /// Hands something to another worker; gives it back if its ring is full.
    ///
    /// # Errors
    /// The item.
    pub fn give(&mut self, to: u16, item: Item<P::Buf>) -> Result<(), Item<P::Buf>> {
        match self.out.get_mut(usize::from(to)) {
            Some(Some(ring)) => ring.give(item),
            Some(None) | None => Err(item),
        }
    }

    /// Hands to all others what `make` gives; how many had no room.
    pub fn give_all(&mut self, mut make: impl FnMut() -> Item<P::Buf>) -> u64 {
        let others = self.out.iter_mut().flatten();
        others
            .map(|ring| u64::from(ring.give(make()).is_err()))
            .sum()
    }

    /// Takes frames that others send by this worker's queues, at most some bursts.
    pub fn take_relayed(&mut self, mut each: impl FnMut(Side, Relayed<P::Buf>)) -> bool {
        let mut any = false;
        for (side, ring) in &mut self.relayed {
            for _ in 0..INBOX {
                let Some(relayed) = ring.take() else { break };
                any = true;
                each(*side, relayed);
            }
        }
        any
    }

    /// Adds what others handed in, at most some bursts of each; whether more is there.
    fn take_in(&mut self, into: &mut Vec<Item<P::Buf>>) -> bool {
        let mut more = false;
        for ring in &mut self.from {
            let before = into.len();
            while into.len() < before + INBOX {
                let Some(item) = ring.take() else { break };
                into.push(item);
            }
            more |= into.len() == before + INBOX;
        }
        more
    }

    /// Whether a burst from the WAN may be taken: every ring has room for it, or has had none for so
    /// long that the others must not wait for its worker any more.
    fn has_room(&mut self, clock: &impl Fn() -> Instant) -> bool {
        let room = |ring: &ring::Gives<_>| ring.room() >= BURST;
        if self.out.iter().flatten().all(room) {
            self.full_since = None;
            return true;
        }
        let now = clock();
        let since = *self.full_since.get_or_insert(now);
        now.since(since) >= PATIENCE
    }
}

/// Items that are taken from a ring at once.
const INBOX: usize = 4 * BURST;

/// Room for what a worker takes in at once from all others.
pub(crate) fn inbox_room(count: u16) -> usize {
    INBOX * usize::from(count.saturating_sub(1))
}

/// Whether two frames are one, for marks on frames on their way.
pub(crate) fn is_marked<B: Buffer>(marks: &[B], frame: &B) -> bool {
    marks.iter().any(|mark| mark.is_same(frame))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn place(index: u16, count: u16) -> Place {
        let seed = 0x1234_5678_9abc_def0;
        Place { index, count, seed }
    }

    // shows: CREM-ARCH-04
    #[test]
    fn owners_are_spread_and_agreed_on() {
        let hosts: [IpAddr; 2] = ["10.0.1.1".parse().unwrap(), "10.0.2.1".parse().unwrap()];
        let wide: [IpAddr; 2] = [
            "2001:db8::1".parse().unwrap(),
            "2001:db8:1::1".parse().unwrap(),
        ];
        for [a, b] in [hosts, wide] {
            let mut flows = [0_u32; 4];
            for qp in 0..4000 {
                let owner = place(0, 4).owner(a, b, Qpn::new(qp));
                assert_eq!(owner, place(3, 4).owner(a, b, Qpn::new(qp)));
                flows[usize::from(owner)] += 1;
            }
            assert!(flows.iter().all(|n| (850..1150).contains(n)), "{flows:?}");
        }
        assert_eq!(Place::ALONE.owner(hosts[0], hosts[1], Qpn::new(5)), 0);
    }

    #[test]
    fn bounds_of_the_segment_are_shared() {
        assert_eq!(Place::ALONE.share(2048), 2048);
        assert_eq!(Place::ALONE.share_of_flows(10_000), 10_000);
        assert_eq!(place(1, 4).share(2049), 513);
        assert_eq!(place(1, 4).share_of_flows(10_000), 3189);
        assert_eq!(place(1, 4).share_of_flows(10), 10);
    }
}
