//! What is known of the peers that HELLOs go to: round-trip time, whether they answer, and when a dead
//! one is probed (AMB-SCALE). One entry per HELLO destination and Flow Kind, bounded; entries that no
//! flow uses are given up first.

use core::net::{IpAddr, SocketAddr};

use super::probe::Carries;
use crate::packet::PsnSpace;
use crate::rtt::RttEstimator;
use crate::table::{BoundedTable, Class};
use crate::time::{Duration, Instant};

/// A dead peer is probed this often at first,
const PROBE_FIRST: Duration = Duration::from_secs(1);
/// for this long; then the interval doubles
const PROBE_STEADY: Duration = Duration::from_secs(60);
/// up to this.
const PROBE_MAX: Duration = Duration::from_secs(300);
/// An unanswered response-stream HELLO stops that kind for this long (AMB-READRESP).
const RESPONSES_PAUSE: Duration = Duration::from_secs(300);

/// Where HELLO goes, and for which kind of flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct PeerKey {
    pub(super) target: SocketAddr,
    pub(super) space: PsnSpace,
}

#[derive(Clone, Copy, Debug)]
struct Dead {
    since: Instant,
    next_probe: Instant,
    interval: Duration,
    probing: bool,
}

/// One peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    pub(super) rtt: RttEstimator,
    /// The address that HELLO_ACK came from.
    bound_to: Option<SocketAddr>,
    last_heard: Option<Instant>,
    dead: Option<Dead>,
    paused_until: Option<Instant>,
    /// Which symbols reach it.
    pub(super) carries: Carries,
    users: u32,
}

impl Peer {
    /// Whether a HELLO may go there now. A dead peer gets one probe at a time.
    pub(super) fn may_hello(&self, now: Instant) -> bool {
        self.paused_until.is_none_or(|until| until <= now)
            && self
                .dead
                .is_none_or(|dead| !dead.probing && dead.next_probe <= now)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.is_some()
    }

    /// Whether anything was heard of it since `then`.
    pub(super) fn heard_since(&self, then: Instant) -> bool {
        self.last_heard.is_some_and(|at| at >= then)
    }

    pub(super) fn was_ever_heard(&self) -> bool {
        self.last_heard.is_some()
    }

    /// A HELLO exchange begins: if the peer is dead, it is the probe.
    pub(super) fn hello_begins(&mut self, now: Instant) {
        if let Some(dead) = &mut self.dead {
            dead.probing = true;
            if now.since(dead.since) >= PROBE_STEADY {
                dead.interval = (dead.interval * 2).min(PROBE_MAX);
            }
            dead.next_probe = now + dead.interval;
        }
    }

    /// A HELLO exchange that was begun ends without having been answered, or is abandoned.
    pub(super) fn hello_ends(&mut self) {
        if let Some(dead) = &mut self.dead {
            dead.probing = false;
        }
    }
}

/// The table of peers.
#[derive(Debug)]
pub(super) struct Peers {
    table: BoundedTable<PeerKey, Peer>,
    /// Gateways and hosts that had an exchange of Kind 1 with us as the receiver.
    met: BoundedTable<IpAddr, ()>,
    dead: u32,
}

impl Peers {
    pub(super) fn new(bound: u32) -> Self {
        Self {
            table: BoundedTable::new(bound),
            met: BoundedTable::new(bound),
            dead: 0,
        }
    }

    /// The entry for `key`, made if need be and marked as used by one more flow; `None` if the table
    /// is full of peers in use.
    pub(super) fn acquire(&mut self, key: PeerKey) -> Option<u32> {
        let slot = match self.table.slot(&key) {
            Some(slot) => slot,
            None => self.insert(key)?,
        };
        self.table.get_mut(slot)?.users += 1;
        self.table.set_class(slot, Class::Pinned);
        Some(slot)
    }

    fn insert(&mut self, key: PeerKey) -> Option<u32> {
        if self.table.is_full() {
            let victim = self.table.oldest(Class::Candidate)?;
            if let Some((_, gone)) = self.table.remove(victim) {
                self.dead -= u32::from(gone.is_dead());
            }
        }
        self.table.insert(key, Peer::default()).ok()
    }

    /// Octets of memory.
    pub(super) fn octets(&self) -> usize {
        self.table.octets() + self.met.octets()
    }

    /// One flow less uses it.
    pub(super) fn release(&mut self, slot: u32) {
        let Some(peer) = self.table.get_mut(slot) else {
            return;
        };
        peer.users = peer.users.saturating_sub(1);
        if peer.users == 0 {
            self.table.set_class(slot, Class::Candidate);
        }
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Peer> {
        self.table.get(slot)
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Peer> {
        self.table.get_mut(slot)
    }

    pub(super) fn target(&self, slot: u32) -> Option<SocketAddr> {
        self.table.key(slot).map(|key| key.target)
    }

    /// In the role of the receiver we had an exchange with the gateway at `from` for a stream of `host`. One
    /// of responses ends a pause of that kind. `port` is the CREM port. O(1).
    pub(super) fn met(&mut self, from: SocketAddr, host: IpAddr, port: u16, space: PsnSpace) {
        for target in [from, SocketAddr::new(host, port)] {
            match space {
                PsnSpace::Requests => self.note_met(target.ip()),
                PsnSpace::Responses => {
                    let peer = self.table.slot(&PeerKey { target, space });
                    if let Some(peer) = peer.and_then(|slot| self.table.get_mut(slot)) {
                        peer.paused_until = None;
                    }
                }
            }
        }
    }

    fn note_met(&mut self, address: IpAddr) {
        if let Some(slot) = self.met.slot(&address) {
            self.met.touch(slot);
            return;
        }
        if self.met.is_full()
            && let Some(oldest) = self.met.oldest(Class::Candidate)
        {
            self.met.remove(oldest);
        }
        // With a bound of zero nobody is remembered.
        let _ = self.met.insert(address, ());
    }

    /// Whether a response stream may be offered to `target`: only after an exchange of Kind 1 with it, in
    /// either role.
    pub(super) fn knows_requests(&self, target: SocketAddr) -> bool {
        if self.met.slot(&target.ip()).is_some() {
            return true;
        }
        let key = PeerKey {
            target,
            space: PsnSpace::Requests,
        };
        self.table
            .slot(&key)
            .and_then(|slot| self.table.get(slot))
            .is_some_and(Peer::was_ever_heard)
    }

    /// A valid message of the peer came. Returns its address if it was dead until now.
    pub(super) fn heard(
        &mut self,
        slot: u32,
        from: SocketAddr,
        now: Instant,
    ) -> Option<SocketAddr> {
        let key = self.table.key(slot).copied()?;
        let peer = self.table.get_mut(slot)?;
        peer.last_heard = Some(now);
        peer.bound_to = Some(from);
        let mut revived = peer.dead.take().is_some();
        if self.dead > 0 && key.space == PsnSpace::Responses {
            // Its requests' entry is the one that may be dead.
            let requests = self.table.slot(&PeerKey {
                space: PsnSpace::Requests,
                ..key
            });
            let peer = requests.and_then(|slot| self.table.get_mut(slot));
            revived |= peer.is_some_and(|peer| peer.dead.take().is_some());
        }
        self.dead -= u32::from(revived);
        revived.then_some(key.target)
    }

    /// A HELLO exchange ended without an answer. `false` if the peer answered others meanwhile; else it
    /// is dead now (or, for response streams, left alone for a while). The address is returned when the
    /// peer was not known as dead before.
    pub(super) fn unanswered(
        &mut self,
        slot: u32,
        began: Instant,
        now: Instant,
    ) -> (bool, Option<SocketAddr>) {
        let Some(key) = self.table.key(slot).copied() else {
            return (false, None);
        };
        let Some(peer) = self.table.get_mut(slot) else {
            return (false, None);
        };
        peer.hello_ends();
        if key.space == PsnSpace::Responses {
            peer.paused_until = Some(now + RESPONSES_PAUSE);
            return (true, None);
        }
        if peer.heard_since(began) {
            return (false, None);
        }
        if peer.is_dead() {
            return (true, None);
        }
        let next_probe = now + PROBE_FIRST;
        peer.dead = Some(Dead {
            since: now,
            next_probe,
            interval: PROBE_FIRST,
            probing: false,
        });
        self.dead += 1;
        (true, Some(key.target))
    }

    /// Something valid came from `from`, perhaps on behalf of the flows of `host`, in the role of a
    /// sender: every dead entry that it stands for is alive again. Calls `revived` for each. Constant
    /// time while no peer is dead.
    pub(super) fn alive(
        &mut self,
        from: SocketAddr,
        host: Option<IpAddr>,
        port: u16,
        mut revived: impl FnMut(SocketAddr),
    ) {
        if self.dead == 0 {
            return;
        }
        let host = host.map(|ip| SocketAddr::new(ip, port));
        for slot in 0..self.table.slots() {
            let Some(target) = self.target(slot) else {
                continue;
            };
            let Some(peer) = self.table.get_mut(slot) else {
                continue;
            };
            let same = target == from || Some(target) == host || peer.bound_to == Some(from);
            if same && peer.dead.take().is_some() {
                self.dead -= 1;
                revived(target);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(0) + Duration::from_millis(ms)
    }

    fn key(n: u8) -> PeerKey {
        let target = SocketAddr::new(IpAddr::from([192, 0, 2, n]), 50_000);
        PeerKey {
            target,
            space: PsnSpace::Requests,
        }
    }

    // shows: AMB-SCALE
    #[test]
    fn dead_peer_is_probed_once_a_second_then_less_often() {
        let mut peers = Peers::new(4);
        let slot = peers.acquire(key(1)).unwrap();
        assert_eq!(
            peers.unanswered(slot, at(0), at(255)),
            (true, Some(key(1).target))
        );
        let mut probes = 0;
        let mut last = at(255);
        for ms in 255..1_200_000 {
            let peer = peers.get_mut(slot).unwrap();
            if peer.may_hello(at(ms)) {
                peer.hello_begins(at(ms));
                assert!(!peer.may_hello(at(ms + 5_000)), "one probe at a time");
                peer.hello_ends();
                probes += 1;
                last = at(ms);
            }
            if ms == 60_255 {
                assert!((59..=61).contains(&probes), "{probes} in the first minute");
            }
        }
        // 2, 4, … 256, 300, 300 seconds.
        assert!((70..=73).contains(&probes), "{probes}");
        assert!(at(1_200_000).since(last) <= PROBE_MAX);
    }

    #[test]
    fn any_message_revives() {
        let mut peers = Peers::new(4);
        let slot = peers.acquire(key(1)).unwrap();
        let gateway = key(9).target;
        peers.heard(slot, gateway, at(0));
        assert_eq!(
            peers.unanswered(slot, at(0), at(255)),
            (false, None),
            "it answered others"
        );
        assert_eq!(
            peers.unanswered(slot, at(1), at(255)).1,
            Some(key(1).target)
        );
        let mut revived = 0;
        peers.alive(gateway, None, 50_000, |_| revived += 1);
        assert_eq!((revived, peers.get(slot).unwrap().is_dead()), (1, false));
        peers.unanswered(slot, at(300), at(555));
        peers.alive(key(7).target, Some(key(1).target.ip()), 50_000, |_| {
            revived += 1
        });
        assert_eq!(revived, 2);
        peers.unanswered(slot, at(600), at(855));
        assert_eq!(peers.heard(slot, gateway, at(900)), Some(key(1).target));
        assert!(peers.get(slot).unwrap().may_hello(at(900)));
    }

    #[test]
    fn entries_in_use_are_never_given_up() {
        let mut peers = Peers::new(2);
        let a = peers.acquire(key(1)).unwrap();
        let b = peers.acquire(key(2)).unwrap();
        assert_eq!(peers.acquire(key(3)), None);
        peers.release(a);
        assert!(peers.acquire(key(3)).is_some());
        assert_eq!(peers.target(b), Some(key(2).target));
        assert_eq!(peers.acquire(key(1)), None);
    }

    // shows: AMB-READRESP
    #[test]
    fn response_streams_never_make_a_peer_dead() {
        let mut peers = Peers::new(2);
        let responses = PeerKey {
            space: PsnSpace::Responses,
            ..key(1)
        };
        let slot = peers.acquire(responses).unwrap();
        assert_eq!(peers.unanswered(slot, at(0), at(255)), (true, None));
        let peer = peers.get(slot).unwrap();
        assert!(!peer.is_dead() && !peer.may_hello(at(299_000)) && peer.may_hello(at(300_255)));
        assert!(!peers.knows_requests(key(1).target));
        let (gateway, host) = (key(9).target, key(1).target.ip());
        peers.met(gateway, host, 50_000, PsnSpace::Responses);
        assert!(
            !peers.knows_requests(key(1).target),
            "that says nothing of Kind 1"
        );
        assert!(
            peers.get(slot).unwrap().may_hello(at(256)),
            "it knows the kind"
        );
        peers.met(gateway, host, 50_000, PsnSpace::Requests);
        assert!(peers.knows_requests(key(1).target) && peers.knows_requests(key(9).target));
        assert!(!peers.knows_requests(key(2).target));
    }

    // shows: AMB-SCALE
    #[test]
    fn a_message_of_a_response_stream_revives_the_peer() {
        let mut peers = Peers::new(4);
        let requests = peers.acquire(key(1)).unwrap();
        let responses = PeerKey {
            space: PsnSpace::Responses,
            ..key(1)
        };
        let responses = peers.acquire(responses).unwrap();
        peers.unanswered(requests, at(0), at(255));
        assert!(peers.get(requests).unwrap().is_dead());
        let revived = peers.heard(responses, key(9).target, at(300));
        assert_eq!(revived, Some(key(1).target));
        assert!(!peers.get(requests).unwrap().is_dead());
        assert_eq!(peers.heard(responses, key(9).target, at(301)), None);
    }

    #[test]
    fn those_met_as_receiver_are_bounded() {
        let mut peers = Peers::new(2);
        for n in 1..=3 {
            peers.met(
                key(n).target,
                key(n).target.ip(),
                50_000,
                PsnSpace::Requests,
            );
        }
        assert!(!peers.knows_requests(key(1).target));
        assert!(peers.knows_requests(key(2).target) && peers.knows_requests(key(3).target));
    }
}
