//! How large the packets of a flow are, and the symbol length T that follows: one of two steps, so that
//! messages of some hundred octets do not carry symbols of four kilobytes, and so that a flow changes its
//! configuration rarely. And what happens where such symbols fit neither the path nor the limits.

use core::net::SocketAddr;
use crem_wire::crem::registry::CloseReason;

use super::adapt::fitting_k;
use super::flow::{Flow, Shared};
use super::negotiate::Cause;
use super::states::Input;
use crate::events::Unprotected;
use crate::plan::{self, Family, RDMA_MTUS};
use crate::time::{Duration, Instant};

/// The largest payload of this time and of as much before it counts: T falls only after a while.
const WINDOW: Duration = Duration::from_secs(10);
/// RDMA MTU that the lower step carries, octets.
const SMALL: u16 = 256;
/// The largest RDMA MTU, octets.
const LARGEST: u16 = 4096;
/// A flow that begins is taken for one of small packets after so many of them and this time: large ones
/// that come later find no room in their blocks for a round trip.
const SETTLED_PACKETS: u32 = 256;
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// Largest UDP payloads of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    current: u16,
    before: u16,
    since: Instant,
    first: Option<Instant>,
    packets: u32,
}

impl Sizes {
    /// A packet with a payload of so many octets. One that is longer than RDMA packets can be asks for
    /// nothing (AMB-OVERSIZE). Constant time.
    pub(super) fn note(&mut self, now: Instant, octets: u16) {
        if octets > plan::symbol_length(LARGEST, true) - 2 {
            return;
        }
        if now.since(self.since) >= WINDOW {
            let recent = now.since(self.since) < WINDOW * 2;
            self.before = if recent { self.current } else { 0 };
            self.current = 0;
            self.since = now;
        }
        self.current = self.current.max(octets);
        self.first.get_or_insert(now);
        self.packets = self.packets.saturating_add(1);
    }

    fn is_settled(&self, now: Instant) -> bool {
        let long = self.first.is_some_and(|at| now.since(at) >= SETTLED_AFTER);
        long && self.packets >= SETTLED_PACKETS
    }

    /// The largest payload, octets.
    pub(super) fn largest(&self) -> u16 {
        self.current.max(self.before)
    }

    /// The lower step, if all packets fit it.
    fn small(&self, rdma_mtu: u16, xrc: bool) -> Option<u16> {
        let small = plan::symbol_length(SMALL.min(rdma_mtu), xrc);
        (self.largest().saturating_add(2) <= small).then_some(small)
    }

    /// The upper step: for the flow's RDMA MTU, or for a larger one if packets show it.
    fn full(&self, rdma_mtu: u16, xrc: bool) -> u16 {
        let needed = self.largest().saturating_add(2);
        let lengths = RDMA_MTUS.map(|mtu| plan::symbol_length(mtu, xrc));
        let shown = lengths.into_iter().find(|t| *t >= needed).unwrap_or(needed);
        shown.max(plan::symbol_length(rdma_mtu, xrc))
    }
}

impl<B: Clone> Flow<B> {
    /// The largest k, not above the configured one, with which symbols of `t` octets fit the path to
    /// `target`.
    fn k_for(&self, t: u16, sh: &Shared<B>, target: SocketAddr) -> Option<u8> {
        let (path_mtu, tunnel) = self.path(sh);
        let family = Family::of(&target.ip());
        let k = sh.cfg.fec.k.clamp(1, sh.cfg.fec.max_k.max(1));
        fitting_k(k, |k| {
            plan::max_symbol_length(path_mtu, family, k, tunnel) >= t
        })
    }

    /// Whether symbols for what the flow carries fit the path (AMB-TMTU).
    pub(super) fn check_mtu(&self, sh: &Shared<B>, target: SocketAddr) -> Result<(), Unprotected> {
        let t = self.wanted_t(sh, target, sh.cfg.fec.max_t);
        if self.k_for(t, sh, target).is_some() {
            return Ok(());
        }
        let (available, tunnel) = self.path(sh);
        let k = sh.cfg.fec.k.clamp(1, 32);
        let needed = plan::path_mtu_needed(t, Family::of(&target.ip()), k, tunnel);
        let needed = u16::try_from(needed).unwrap_or(u16::MAX);
        Err(Unprotected::Mtu { needed, available })
    }

    /// What the flow has come to carry does not fit the path, or the peer's limits (AMB-TMTU).
    pub(super) fn give_up_unfit(&mut self, sh: &mut Shared<B>, now: Instant) {
        let Some(to) = self.binding.as_ref().map(|binding| binding.to) else {
            return;
        };
        let why = self.check_mtu(sh, to).err().unwrap_or(Unprotected::Limits);
        if let Unprotected::Mtu { .. } = why {
            sh.counters.mtu_too_small += 1;
        }
        self.step(
            Input::GiveUp,
            Cause::Close(why, CloseReason::Normal),
            sh,
            now,
        );
    }

    /// T for what the flow carries: the upper step while little is known of it and there is room for
    /// that on the way to `target` and below `max_t`.
    pub(super) fn wanted_t(&self, sh: &Shared<B>, target: SocketAddr, max_t: u16) -> u16 {
        let announced = self.binding.as_ref().map(|binding| binding.rdma_mtu);
        let rdma_mtu = announced.unwrap_or_else(|| self.rdma_mtu(sh));
        let (sizes, xrc) = (&self.track.sizes, self.track.xrc);
        let full = sizes.full(rdma_mtu, xrc);
        let Some(small) = sizes.small(rdma_mtu, xrc) else {
            return full;
        };
        let fits = full <= max_t && self.k_for(full, sh, target).is_some();
        if sizes.is_settled(self.track.last_packet) || !fits {
            small
        } else {
            full
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(0) + Duration::from_secs(seconds)
    }

    // shows: CREM-SYM-02, AMB-OVERSIZE
    #[test]
    fn two_steps_by_what_was_seen() {
        let mut sizes = Sizes::default();
        sizes.note(at(100), 80);
        assert_eq!(sizes.small(4096, false), Some(294));
        assert_eq!(sizes.small(4096, true), Some(298));
        assert_eq!(sizes.full(4096, false), 4134);
        sizes.note(at(100), 292);
        assert_eq!(sizes.small(4096, false), Some(294));
        sizes.note(at(100), 293);
        assert_eq!(sizes.small(4096, false), None);
        assert_eq!(
            sizes.full(1024, false),
            1062,
            "the flow's own, not one in between"
        );
        sizes.note(at(100), 1500);
        assert_eq!(sizes.full(1024, false), 2086, "more than the flow's own");
        sizes.note(at(100), 5000);
        assert_eq!(sizes.full(1024, false), 2086, "no RDMA packet");
    }

    #[test]
    fn a_flow_of_small_packets_is_known_after_a_while() {
        let mut sizes = Sizes::default();
        for _ in 0..1000 {
            sizes.note(at(100), 80);
        }
        assert!(!sizes.is_settled(at(100)) && sizes.is_settled(at(101)));
        let mut sizes = Sizes::default();
        sizes.note(at(100), 80);
        assert!(!sizes.is_settled(at(200)));
    }

    #[test]
    fn large_packets_are_remembered_for_a_while() {
        let mut sizes = Sizes::default();
        sizes.note(at(100), 1000);
        for second in 100..120 {
            assert_eq!(sizes.largest(), 1000, "{second}");
            sizes.note(at(second), 80);
        }
        sizes.note(at(120), 80);
        assert_eq!(sizes.largest(), 80);
        sizes.note(at(125), 1000);
        sizes.note(at(200), 80);
        assert_eq!(sizes.largest(), 80, "a pause is no memory");
    }
}
