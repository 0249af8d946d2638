//! Which configuration a bound flow gets: what policy chooses for its path and its packets, held back by
//! congestion, by the watch over raises, by the breaker. Reports come in through `report.rs`.

use crem_wire::crem::Message;

use super::flow::{Binding, Flow, Shared, Who};
use super::params::{Config, Shape};
use super::states::State;
use crate::plan::{self, Family};
use crate::policy::{self, Choice, Demand, Need, Rules};
use crate::time::{Duration, Instant};

/// A symbol length with the largest k whose REPAIR fits the path.
#[derive(Clone, Copy)]
struct Room {
    k: u8,
    t: u16,
}

impl<B: Clone> Flow<B> {
    /// Announces another configuration if one is wanted and allowed now.
    pub(super) fn reconsider(&mut self, sh: &mut Shared<B>, now: Instant) {
        if self.state != State::Active {
            return;
        }
        let who = self.who(sh, now);
        let Some(wanted) = self.wanted_shape(sh, &who, now) else {
            self.give_up_unfit(sh, now);
            return;
        };
        let Some(binding) = &mut self.binding else {
            return;
        };
        let keep = who.keep(sh.cfg.csf.keep_floor);
        let stalled = binding.params.is_stalled(who.pace, now);
        let changed = binding
            .params
            .active()
            .is_some_and(|active| active.shape() != wanted);
        let csf = &sh.cfg.csf;
        let refused = (binding.params).is_refused(now, csf.retry_first, csf.retry_max);
        let free = changed && binding.params.may_change(now, who.srtt, keep) && !refused;
        if stalled || free {
            let update = binding.params.announce(binding.id, wanted, who.pace, now);
            sh.counters.param_update_sent += 1;
            sh.send(binding.to, Message::ParamUpdate(update), who.dscp, None);
        }
    }

    /// The configuration that policy wants for the bound flow now; `None` if the T that it needs
    /// fits neither the path nor the limits.
    pub(super) fn wanted_shape(
        &self,
        sh: &mut Shared<B>,
        who: &Who,
        now: Instant,
    ) -> Option<Shape> {
        let binding = self.binding.as_ref()?;
        let room = self.room(binding, sh)?;
        let active = binding.params.active();
        let demand = Demand {
            current: active.map(|config| (config.k, config.m)),
            spacing: who.spacing,
            min_rtt: who.min_rtt,
            burst_length: binding.burst_length.mean(),
            open_floor: open_floor(sh.cfg.fec.k, binding.max_open_blocks, who),
        };
        let rules = Rules {
            k: sh.cfg.fec.k,
            k_max: room.k,
            adapt: sh.cfg.fec.adapt_k,
        };
        let max_m = binding.limits.max_m;
        let choice = policy::choose(&demand, &rules, |k| sh.need(binding.to, k, max_m));
        let choice = match active {
            Some(active) => held_back(choice, &active, binding, sh, now),
            None => Choice {
                m: if is_congested(binding, sh) {
                    choice.m.min(sh.cfg.fec.m_cong.max(sh.cfg.fec.m_min))
                } else {
                    choice.m
                },
                ..choice
            },
        };
        let open = sh
            .path(binding.to)
            .is_some_and(|path| path.breaker.is_open());
        Some(Shape {
            scheme: 1,
            k: choice.k,
            m: if open {
                0
            } else {
                binding.reports.allowed(choice.m)
            },
            t: room.t,
        })
    }

    /// T, and the longest block whose bitmaps leave it room (AMB-TMTU).
    fn room(&self, binding: &Binding<B>, sh: &Shared<B>) -> Option<Room> {
        let limits = &binding.limits;
        let (path_mtu, tunnel) = self.path(sh);
        let family = Family::of(&binding.to.ip());
        let longest = sh.cfg.fec.max_k.min(limits.max_k).max(1);
        let wanted = self.wanted_t(sh, binding.to, limits.max_t);
        let t = wanted.min(limits.max_t);
        if self.track.sizes.largest().saturating_add(2) > t {
            return None;
        }
        let fits = |k: u8| plan::max_symbol_length(path_mtu, family, k, tunnel) >= t;
        fitting_k(longest, fits).map(|k| Room { k, t })
    }

    /// Path MTU to the peer and what tunnels take of it.
    pub(super) fn path(&self, sh: &Shared<B>) -> (u16, u16) {
        sh.cfg
            .peer_for(self.key.destination)
            .map_or((sh.cfg.path_mtu, 0), |peer| {
                (peer.path_mtu, peer.tunnel_overhead)
            })
    }
}

fn is_congested<B>(binding: &Binding<B>, sh: &Shared<B>) -> bool {
    sh.path(binding.to)
        .is_some_and(|path| path.class().is_congestion())
}

/// What may be taken of a choice. A larger share of repair than in force waits while a raise is watched or
/// raises are barred (AMB-POLICY); in congestion m does not grow beyond `m_cong` (AMB-MCONG).
fn held_back<B>(
    choice: Choice,
    active: &Config,
    binding: &Binding<B>,
    sh: &mut Shared<B>,
    now: Instant,
) -> Choice {
    let more =
        u32::from(choice.m) * u32::from(active.k) > u32::from(active.m) * u32::from(choice.k);
    if !more {
        return choice;
    }
    let same = |m| Choice { k: active.k, m };
    if sh.path(binding.to).is_some_and(|path| path.is_barred(now)) {
        return same(
            binding
                .reports
                .reverted
                .map_or(active.m, |m| m.min(active.m)),
        );
    }
    if binding.reports.raise.is_watching() {
        return same(active.m);
    }
    if is_congested(binding, sh) {
        let wanted = sh.need(binding.to, active.k, binding.limits.max_m).m;
        return same(wanted.min(active.m.max(sh.cfg.fec.m_cong)));
    }
    choice
}

impl<B> Shared<B> {
    /// What a block of k toward `peer` needs, within the operator's bounds and the peer's.
    fn need(&mut self, peer: core::net::SocketAddr, k: u8, max_m: u8) -> Need {
        let fec = &self.cfg.fec;
        let bounds = fec.bounds(k, max_m);
        let targets = fec.targets;
        let initial = policy::Losses::independent(f64::from(fec.initial_loss_ppm) / 1e6);
        match self.path_of(peer) {
            Some(path) => path.need(k, &targets, bounds),
            None => policy::need(k, initial, &targets, bounds),
        }
    }
}

/// The preferred k, doubled until the CRF can hold the open blocks (AMB-OPENBLOCKS).
fn open_floor(preferred: u8, max_open_blocks: u16, who: &Who) -> u8 {
    let mut k = preferred.max(1);
    let limit = u64::from(max_open_blocks);
    if open_blocks(who, k) <= limit {
        return 1;
    }
    while open_blocks(who, k) > limit && k < u8::MAX {
        k = k.saturating_mul(2);
    }
    k
}

/// Blocks that the CRF holds open at once: rate x (SRTT + 2 H) / k, with H at its automatic bound of a
/// quarter of the minimum RTT.
pub(super) fn open_blocks(who: &Who, k: u8) -> u64 {
    let span: Duration = who.srtt + who.min_rtt / 2;
    let positions = u128::from(who.pace.rate) * span.as_nanos() / 1_000_000_000;
    u64::try_from(positions / u128::from(k.max(1))).unwrap_or(u64::MAX)
}

/// The largest k not above `k` that fits; a bitmap word holds 32 positions (AMB-TMTU).
pub(super) fn fitting_k(mut k: u8, fits: impl Fn(u8) -> bool) -> Option<u8> {
    while !fits(k) {
        k = (k.checked_sub(1)?) / 32 * 32;
        if k == 0 {
            return None;
        }
    }
    Some(k)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k_falls_by_bitmap_words() {
        assert_eq!(fitting_k(100, |k| k <= 70), Some(64));
        assert_eq!(fitting_k(100, |k| k <= 100), Some(100));
        assert_eq!(fitting_k(128, |k| k <= 32), Some(32));
        assert_eq!(fitting_k(32, |k| k <= 31), None);
        assert_eq!(fitting_k(20, |_| false), None);
    }
}
