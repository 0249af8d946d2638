//! Whether messages as large as REPAIR reach a peer: what does not fit a tunnel on the way is lost without a
//! word, and the protocol has no discovery of the path MTU (AMB-TMTU). Symbols that are sent anyway are what
//! it is tried with; where policy sends none, one of a closed block is sent for it, once a round trip. Reports
//! tell whether any arrived. Which T a flow needs and what the configured MTU lets through is in `sizes.rs`.

use crem_wire::crem::LossReport;
use crem_wire::crem::registry::CloseReason;

use super::flow::{Binding, Ctx, Flow, Shared};
use super::negotiate::Cause;
use super::retain::Block;
use super::states::{Input, State};
use super::symbols::Symbols;
use crate::events::Unprotected;
use crate::plan::{self, Family};
use crate::time::{Duration, Instant};
use crem_wire::Bitmap;

/// After so many round trips with such messages and none that arrived a path is taken to carry none.
const TRIES: u8 = 8;
/// Time between two of them at least.
const PAUSE: Duration = Duration::from_millis(10);
/// A finding holds for this long.
const HOLDS: Duration = Duration::from_secs(300);

/// What was found of the path to a peer, in symbol lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Carries {
    /// The longest that arrived.
    proven: Option<(u16, Instant)>,
    /// The shortest that did not.
    refuted: Option<(u16, Instant)>,
}

impl Carries {
    /// Whether symbols of `t` octets were found not to arrive.
    pub(super) fn refuses(&self, t: u16, now: Instant) -> bool {
        self.refuted
            .is_some_and(|(length, at)| t >= length && now.since(at) < HOLDS)
    }

    /// The longest symbol that was found to arrive, octets.
    pub(super) fn proven(&self, now: Instant) -> u16 {
        self.proven
            .filter(|(_, at)| now.since(*at) < HOLDS)
            .map_or(0, |(length, _)| length)
    }

    fn arrived(&mut self, t: u16, now: Instant) {
        if t >= self.proven(now) {
            self.proven = Some((t, now));
        }
        self.refuted = self.refuted.filter(|(length, _)| *length > t);
    }

    /// Forgets that symbols of `t` octets arrived; whether that was known.
    fn doubt(&mut self, t: u16, now: Instant) -> bool {
        let known = self.proven(now) >= t;
        if known {
            self.proven = None;
        }
        known
    }

    fn failed(&mut self, t: u16, now: Instant) {
        self.refuted = Some((t, now));
        self.proven = self.proven.filter(|(length, _)| *length < t);
    }
}

/// What one binding tries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probe {
    /// Symbol length that it is about; 0 before the first.
    t: u16,
    /// Round trips in which such symbols were sent, up to [`TRIES`].
    tries: u8,
    /// When the last of them began.
    last: Instant,
    /// Reports before this also tell of symbols of another length.
    from: Instant,
    /// INFO sent since then, and REPAIR messages of all kinds that reports call received.
    info: u32,
    received: u32,
}

impl Probe {
    /// A message with a symbol of `t` octets leaves.
    pub(super) fn symbol_sent(&mut self, t: u16, srtt: Duration, now: Instant) {
        if self.t != t {
            let from = if self.t == 0 { now } else { now + srtt * 2 };
            *self = Self {
                t,
                from,
                ..Self::default()
            };
        }
        if self.is_due(t, srtt, now) {
            self.tries += 1;
            self.last = now;
        }
    }

    /// An INFO leaves: a report counts it as it does symbols.
    pub(super) fn info_sent(&mut self) {
        self.info = self.info.saturating_add(1);
    }

    /// Whether another round trip shall have such a symbol.
    fn is_due(&self, t: u16, srtt: Duration, now: Instant) -> bool {
        let paused = self.tries == 0 || now.since(self.last) >= srtt.max(PAUSE);
        self.t != t || self.tries < TRIES && paused
    }

    /// Takes a report: whether symbols of this length arrive, once that is known. Then it begins anew.
    fn report(&mut self, report: &LossReport, srtt: Duration, now: Instant) -> Option<bool> {
        if self.tries == 0 || now < self.from {
            return None;
        }
        self.received = self.received.saturating_add(report.repairs_received);
        let arrived = self.received > self.info;
        let interval = Duration::from_micros(report.interval_us.into());
        let waited = now.since(self.last) >= srtt * 2 + interval;
        // Where most sources are lost it says nothing of lengths.
        let sources_arrive = report.received > report.expected / 2;
        let failed = self.tries >= TRIES && waited && sources_arrive;
        (arrived || failed).then(|| {
            (self.tries, self.info, self.received) = (0, 0, 0);
            arrived
        })
    }
}

impl<B: Clone> Binding<B> {
    /// Whether it is wanted and not known that symbols of `t` octets arrive, and both sides take any that were
    /// not asked for.
    pub(super) fn is_probing(&self, t: u16, ctx: &Ctx<'_, B>) -> bool {
        ctx.sh.cfg.csf.probe_mtu && self.limits.max_m > 0 && ctx.who.carried < t
    }

    /// Sends a symbol of a closed block of which policy sends none, if one is due; how many were sent.
    pub(super) fn send_probe(&mut self, block: &mut Block<B>, ctx: &mut Ctx<'_, B>) -> u8 {
        let t = block.config.t;
        let due = self.is_probing(t, ctx) && self.probe.is_due(t, ctx.who.srtt, ctx.now);
        if !due || ctx.actions.free_slots.is_empty() || self.is_broken(ctx.sh) {
            return 0;
        }
        let indices = Bitmap::first(1);
        let symbols = Symbols::ordinary(block, indices);
        self.emit_symbols(block, &symbols, ctx.who, ctx.actions, ctx.now);
        ctx.sh.counters.mtu_probes += 1;
        1
    }
}

impl<B: Clone> Flow<B> {
    /// Takes from a report whether symbols arrive; a flow whose do not is given up.
    pub(super) fn judge_lengths(
        &mut self,
        report: &LossReport,
        srtt: Duration,
        sh: &mut Shared<B>,
        now: Instant,
    ) {
        if !sh.cfg.csf.probe_mtu || self.state != State::Active {
            return;
        }
        let Some(binding) = &mut self.binding else {
            return;
        };
        let (t, to) = (binding.probe.t, binding.to);
        let Some(arrives) = binding.probe.report(report, srtt, now) else {
            return;
        };
        let Some(peer) = self.peer.and_then(|slot| sh.peers.get_mut(slot)) else {
            return;
        };
        if arrives {
            peer.carries.arrived(t, now);
            return;
        }
        // They arrived before. Messages of any length may have been lost for a while, as where a next hop has gone, and
        // packets not: what comes now decides.
        if peer.carries.doubt(t, now) {
            return;
        }
        peer.carries.failed(t, now);
        sh.counters.mtu_refuted += 1;
        let why = self.not_carried(t, Family::of(&to.ip()), sh);
        let cause = Cause::Close(why, CloseReason::Normal);
        self.step(Input::GiveUp, cause, sh, now);
    }

    /// Refuses a flow whose symbols were found not to reach the peer.
    pub(super) fn check_carried(
        &self,
        carries: &Carries,
        target: core::net::SocketAddr,
        sh: &Shared<B>,
        now: Instant,
    ) -> Result<(), Unprotected> {
        let t = self.wanted_t(sh, target, sh.cfg.fec.max_t);
        if carries.refuses(t, now) {
            return Err(self.not_carried(t, Family::of(&target.ip()), sh));
        }
        Ok(())
    }

    /// The reason with both numbers: what the messages would need, and the longest source that passes.
    fn not_carried(&self, t: u16, family: Family, sh: &Shared<B>) -> Unprotected {
        let (_, tunnel) = self.path(sh);
        let k = sh.cfg.fec.k.clamp(1, 32);
        let needed = plan::path_mtu_needed(t, family, k, tunnel);
        let own = Family::of(&self.key.source);
        Unprotected::PathMtu {
            needed: u16::try_from(needed).unwrap_or(u16::MAX),
            carried: plan::packet_length(self.track.sizes.largest(), own),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    // shows: AMB-TMTU
    #[test]
    fn findings_hold_for_a_while_and_the_newest_counts() {
        let mut carries = Carries::default();
        assert!(!carries.refuses(u16::MAX, at(0)));
        carries.arrived(1062, at(0));
        carries.failed(4134, at(0));
        assert!(carries.refuses(4134, at(1)) && carries.refuses(9000, at(1)));
        assert!(!carries.refuses(4133, at(1)));
        assert_eq!(carries.proven(at(1)), 1062);
        assert!(!carries.doubt(4134, at(1)) && carries.doubt(1062, at(1)));
        assert!(!carries.doubt(1062, at(1)), "once");
        // The path became smaller, then larger.
        carries.failed(1062, at(2));
        assert_eq!(carries.proven(at(2)), 0);
        carries.arrived(4134, at(3));
        assert_eq!(carries.proven(at(3)), 4134);
        assert!(!carries.refuses(4134, at(3)));
        assert_eq!(carries.proven(at(300_003)), 0);
        carries.failed(4134, at(4));
        assert!(!carries.refuses(4134, at(300_004)));
    }
}
