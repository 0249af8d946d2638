//! The peers whose next hops are wanted, and for how long. Asking the kernel for them is in `kernel.rs`.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Peers asked for besides those of the document: a bound on what messages of others can make us ask.
/// The kernel's neighbour table takes 1024 by default, for all interfaces together.
const MAX_ASKED: usize = 512;
/// How long a peer that was asked for is tried without success.
const ASKED_FOR: Duration = Duration::from_secs(10);

/// Interface number, next hop, peer.
type WantedPeer = (usize, IpAddr, IpAddr);

/// The peers whose next hops are wanted: those of the document always, others as long as their next hop
/// is known or not asked for in vain for long.
#[derive(Default)]
pub(super) struct WantedPeers {
    configured: HashSet<WantedPeer>,
    /// With the time when each was asked for last.
    asked: HashMap<WantedPeer, Instant>,
}

impl WantedPeers {
    /// Whether the peer is wanted now; `asked` is `None` for one of the document.
    pub(super) fn add(&mut self, peer: WantedPeer, asked: Option<Instant>) -> bool {
        match asked {
            None => {
                self.configured.insert(peer);
            }
            Some(_) if self.configured.contains(&peer) => {}
            Some(now) if self.asked.len() < MAX_ASKED || self.asked.contains_key(&peer) => {
                self.asked.insert(peer, now);
            }
            Some(_) => return false,
        }
        true
    }

    /// Forgets who was asked for in vain.
    pub(super) fn forget(&mut self, now: Instant, is_known: impl Fn(&(usize, IpAddr)) -> bool) {
        self.asked.retain(|(number, hop, _), at| {
            is_known(&(*number, *hop)) || now.saturating_duration_since(*at) < ASKED_FOR
        });
    }

    fn all(&self) -> impl Iterator<Item = &WantedPeer> {
        self.configured.iter().chain(self.asked.keys())
    }

    /// Each next hop once.
    pub(super) fn hops(&self) -> HashSet<(usize, IpAddr)> {
        self.all().map(|(number, hop, _)| (*number, *hop)).collect()
    }

    /// The peers behind a next hop.
    pub(super) fn behind(&self, number: usize, hop: IpAddr) -> impl Iterator<Item = IpAddr> {
        self.all()
            .filter(move |w| (w.0, w.1) == (number, hop))
            .map(|w| w.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_asked_for_in_vain_are_bounded_and_forgotten() {
        let peer = |n: usize| {
            let address = IpAddr::from([10, 0, (n >> 8) as u8, n as u8]);
            (0, address, address)
        };
        let (mut wanted, start) = (WantedPeers::default(), Instant::now());
        assert!(wanted.add(peer(0), None));
        for n in 0..=MAX_ASKED {
            assert!(wanted.add(peer(n), Some(start)), "{n}");
        }
        let one_more = peer(MAX_ASKED + 1);
        assert!(!wanted.add(one_more, Some(start)));
        assert!(wanted.add(peer(7), Some(start)) && wanted.add(one_more, None));
        assert_eq!(wanted.hops().len(), MAX_ASKED + 2);
        wanted.forget(start + ASKED_FOR / 2, |_| false);
        assert_eq!(wanted.hops().len(), MAX_ASKED + 2);
        wanted.forget(start + ASKED_FOR, |hop| *hop == (0, peer(9).1));
        let mut left: Vec<_> = wanted.all().map(|w| w.2).collect();
        left.sort();
        assert_eq!(left, [peer(0).2, peer(9).2, one_more.2]);
        assert_eq!(wanted.behind(0, peer(9).1).collect::<Vec<_>>(), [peer(9).2]);
    }
}
