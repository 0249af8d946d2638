//! Configurations of one flow and their synchronization: Config IDs, PARAM_UPDATE with its Effective
//! PSN, its retransmission, and which configuration a block starts with. What configuration is wanted
//! is decided in `report.rs` and `negotiate.rs`.

use crem_wire::crem::ParamUpdate;
use crem_wire::{ConfigId, FlowId, Psn};

use crate::mutate::{self, Fault};
use crate::plan;
use crate::time::{Duration, Instant};

/// PARAM_UPDATEs sent before the flow is given up.
const ATTEMPTS: u8 = 8;
/// Smallest retransmission timeout.
const MIN_RTO: Duration = Duration::from_millis(1);
/// An Effective PSN lies at most this far ahead (AMB-EFFPSN).
const MAX_AHEAD: u32 = 1 << 22;

/// What a block is coded with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Config {
    pub(super) id: ConfigId,
    pub(super) scheme: u8,
    pub(super) k: u8,
    pub(super) m: u8,
    pub(super) t: u16,
}

/// A configuration without its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) scheme: u8,
    pub(super) k: u8,
    pub(super) m: u8,
    pub(super) t: u16,
}

impl Config {
    pub(super) fn shape(&self) -> Shape {
        Shape {
            scheme: self.scheme,
            k: self.k,
            m: self.m,
            t: self.t,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    config: Config,
    effective: Psn,
    sent: u8,
    first_sent: Instant,
    next_at: Instant,
    rto: Duration,
    acked: Option<Instant>,
}

/// What a PARAM_ACK or a timeout means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Acked {
    /// Not for the pending configuration, or for one acknowledged before.
    Unmatched,
    /// Accepted; with the round-trip time if only one PARAM_UPDATE was sent.
    Accepted(Option<Duration>),
    /// Refused with this status.
    Refused(u8),
}

/// What the retransmission timer asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Retry {
    /// Nothing yet.
    Wait,
    /// Send this.
    Send(ParamUpdate),
    /// Eight attempts were unanswered.
    GiveUp,
}

/// Where the flow is and how fast it goes: what an Effective PSN is chosen by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// PSN after the highest.
    pub(super) next: Psn,
    /// Positions per second.
    pub(super) rate: u64,
    /// Smoothed round-trip time.
    pub(super) srtt: Duration,
}

impl Pace {
    /// Positions that pass in one SRTT, at least 1.
    fn ahead(&self) -> u32 {
        let positions = u128::from(self.rate) * self.srtt.as_nanos() / 1_000_000_000;
        u32::try_from(positions)
            .unwrap_or(MAX_AHEAD)
            .clamp(1, MAX_AHEAD)
    }

    fn effective(&self) -> Psn {
        self.next.add(self.ahead() as i32)
    }
}

/// The configurations of one flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Params {
    active: Option<Config>,
    pending: Option<Pending>,
    last_id: u8,
    /// The last refusal.
    refused: Option<(ConfigId, Instant)>,
    /// Changes refused since one was accepted.
    refusals: u8,
    last_change: Option<Instant>,
    /// The first configuration was already tried smaller.
    pub(super) smaller_tried: bool,
}

impl Params {
    pub(super) fn new() -> Self {
        Self {
            active: None,
            pending: None,
            last_id: 0,
            refused: None,
            refusals: 0,
            last_change: None,
            smaller_tried: false,
        }
    }

    /// The configuration that blocks start with now.
    pub(super) fn active(&self) -> Option<Config> {
        self.active
    }

    /// Whether a configuration waits for its acknowledgment or its Effective PSN.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Forgets a configuration that is not in force yet.
    pub(super) fn drop_pending(&mut self) {
        self.pending = None;
    }

    /// Announces a configuration. A change counts against the hysteresis, the first one does not.
    pub(super) fn announce(
        &mut self,
        flow: FlowId,
        shape: Shape,
        pace: Pace,
        now: Instant,
    ) -> ParamUpdate {
        let Shape { scheme, k, m, t } = shape;
        let config = Config {
            id: self.free_id(now, pace.srtt),
            scheme,
            k,
            m,
            t,
        };
        self.last_id = config.id.0;
        // One that takes the place of an acknowledged one is a change, in force or not.
        if self.active.is_some() || self.pending.is_some() {
            self.last_change = Some(now);
        }
        let rto = (pace.srtt * 2).max(MIN_RTO);
        let effective = pace.effective();
        self.pending = Some(Pending {
            config,
            effective,
            sent: 1,
            first_sent: now,
            next_at: now + rto,
            rto,
            acked: None,
        });
        message(flow, &config, effective)
    }

    /// Last ID plus one, over those in use or refused less than two SRTT ago (AMB-CFGID). IDs of older
    /// blocks and of older refusals cannot come up: it takes 255 announcements until then.
    fn free_id(&self, now: Instant, srtt: Duration) -> ConfigId {
        let taken = |id: u8| {
            self.active.is_some_and(|c| c.id.0 == id)
                || self.pending.is_some_and(|p| p.config.id.0 == id)
                || (self.refused).is_some_and(|(r, at)| r.0 == id && now.since(at) < srtt * 2)
        };
        let mut id = self.last_id.wrapping_add(1);
        while taken(id) {
            id = id.wrapping_add(1);
        }
        ConfigId(id)
    }

    /// Whether a further configuration may be announced: none is pending, and the last change is two
    /// SRTT ago, or, where blocks are kept much longer than that, long enough ago that an ID cannot
    /// come round to a kept block.
    pub(super) fn may_change(&self, now: Instant, srtt: Duration, keep: Duration) -> bool {
        let spacing = (srtt * 2).max(keep / 100);
        self.pending.is_none() && self.last_change.is_none_or(|at| now.since(at) >= spacing)
    }

    /// Whether a change is held back because the peer refused the last one: for `first`, twice as long
    /// after each further refusal, up to `longest`. Whatever else policy comes to want meanwhile, a peer
    /// that is short of something is not asked at every report.
    pub(super) fn is_refused(&self, now: Instant, first: Duration, longest: Duration) -> bool {
        let doublings = u32::from(self.refusals.saturating_sub(1)).min(16);
        let wait = first.saturating_mul(1 << doublings).min(longest);
        (self.refused).is_some_and(|(_, at)| self.refusals > 0 && now.since(at) < wait)
    }

    /// Takes a PARAM_ACK.
    pub(super) fn on_ack(&mut self, id: ConfigId, status: u8, now: Instant) -> Acked {
        let Some(pending) = self
            .pending
            .as_mut()
            .filter(|p| p.config.id == id && p.acked.is_none())
        else {
            return Acked::Unmatched;
        };
        if status == 0 {
            pending.acked = Some(now);
            self.refusals = 0;
            let unambiguous = pending.sent == 1;
            return Acked::Accepted(unambiguous.then(|| now.since(pending.first_sent)));
        }
        self.refused = Some((id, now));
        self.refusals = self.refusals.saturating_add(1);
        self.pending = None;
        Acked::Refused(status)
    }

    /// When the retransmission timer is due.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.pending
            .filter(|p| p.acked.is_none())
            .map(|p| p.next_at)
    }

    /// Serves the retransmission timer: sends at 0, 1, 3, … 127 RTO, gives up at 255 (AMB-PUTIMEOUT).
    /// A passed Effective PSN is replaced by a later one (AMB-EFFRESEND).
    pub(super) fn on_timer(&mut self, flow: FlowId, pace: Pace, now: Instant) -> Retry {
        let Some(pending) = self
            .pending
            .as_mut()
            .filter(|p| p.acked.is_none() && p.next_at <= now)
        else {
            return Retry::Wait;
        };
        if pending.sent >= ATTEMPTS {
            return Retry::GiveUp;
        }
        if pace.next.distance_from(pending.effective) > 0 {
            pending.effective = pace.effective();
        }
        pending.next_at = now + pending.rto * (1 << pending.sent);
        pending.sent += 1;
        Retry::Send(message(flow, &pending.config, pending.effective))
    }

    /// The configuration for a block that starts at `start`, if one is in force. Puts an acknowledged
    /// one in force once its Effective PSN is reached, and says so.
    pub(super) fn for_block(&mut self, start: Psn) -> Option<(Config, bool)> {
        let due = self.pending.filter(|p| {
            let acked = p.acked.is_some() || mutate::has(Fault::NotAcknowledged);
            plan::may_use(start, p.effective, acked)
        });
        if let Some(pending) = due {
            self.active = Some(pending.config);
            self.pending = None;
        }
        self.active.map(|config| (config, due.is_some()))
    }

    /// Whether an acknowledged configuration waits for an Effective PSN that the flow, slower than it
    /// was when it was chosen, will not reach within two SRTT.
    pub(super) fn is_stalled(&self, pace: Pace, now: Instant) -> bool {
        self.pending.is_some_and(|p| {
            let left = p.effective.distance_from(pace.next);
            p.acked.is_some_and(|at| now.since(at) > pace.srtt * 2)
                && left > 0
                && left as u32 > pace.ahead().saturating_mul(2)
        })
    }
}

fn message(flow: FlowId, config: &Config, effective: Psn) -> ParamUpdate {
    ParamUpdate {
        flow,
        config: config.id,
        scheme: config.scheme,
        k: config.k,
        m: config.m,
        t: config.t,
        effective,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use alloc::vec::Vec;

    const MS: Duration = Duration::from_millis(1);
    const SHAPE: Shape = Shape {
        scheme: 1,
        k: 32,
        m: 2,
        t: 1062,
    };

    fn flow() -> FlowId {
        FlowId::new(7).unwrap()
    }

    fn pace(next: u32, rate: u64, srtt: Duration) -> Pace {
        Pace {
            next: Psn::new(next),
            rate,
            srtt,
        }
    }

    // shows: CREM-PARAM-03, CREM-PARAM-04, AMB-PUTIMEOUT
    #[test]
    fn sends_at_the_doubling_timeout_and_gives_up_at_255() {
        for (srtt, rto) in [
            (MS / 2, MS),
            (2 * MS, 4 * MS),
            (Duration::from_micros(12_500), 25 * MS),
        ] {
            let mut params = Params::new();
            params.announce(flow(), SHAPE, pace(0, 0, srtt), Instant(0));
            let mut sent = Vec::from([Instant(0)]);
            let give_up = loop {
                let at = params.next_at().unwrap();
                assert_eq!(
                    params.on_timer(flow(), pace(0, 0, srtt), at - Duration::from_nanos(1)),
                    Retry::Wait
                );
                match params.on_timer(flow(), pace(0, 0, srtt), at) {
                    Retry::Send(_) => sent.push(at),
                    Retry::GiveUp => break at,
                    Retry::Wait => panic!("due"),
                }
            };
            let expected: Vec<_> = [0, 1, 3, 7, 15, 31, 63, 127]
                .into_iter()
                .map(|n| Instant(0) + rto * n)
                .collect();
            assert_eq!(sent, expected);
            assert_eq!(give_up, Instant(0) + rto * 255);
        }
    }

    // shows: CREM-PARAM-07, AMB-EFFPSN, AMB-EFFRESEND
    #[test]
    fn effective_psn_is_one_srtt_ahead_and_moves_only_when_passed() {
        let mut params = Params::new();
        let first = params.announce(
            flow(),
            SHAPE,
            pace(0xff_fff0, 1_000_000, 20 * MS),
            Instant(0),
        );
        assert_eq!(first.effective, Psn::new(0xff_fff0).add(20_000));
        let at = params.next_at().unwrap();
        let Retry::Send(again) = params.on_timer(flow(), pace(10_000, 1_000_000, 20 * MS), at)
        else {
            panic!("must send")
        };
        assert_eq!(
            (again.config, again.effective),
            (first.config, first.effective)
        );
        let at = params.next_at().unwrap();
        let Retry::Send(later) = params.on_timer(flow(), pace(60_000, 1_000_000, 20 * MS), at)
        else {
            panic!("must send")
        };
        assert_eq!(
            (later.config, later.effective),
            (first.config, Psn::new(80_000))
        );
        // A rate beyond reason is clamped.
        let far = Params::new().announce(flow(), SHAPE, pace(0, u64::MAX, 20 * MS), Instant(0));
        assert_eq!(far.effective, Psn::new(1 << 22));
    }

    // shows: CREM-PARAM-05, CREM-PARAM-06
    #[test]
    fn used_only_after_ack_and_from_the_effective_psn_on() {
        let mut params = Params::new();
        let update = params.announce(flow(), SHAPE, pace(100, 0, MS), Instant(0));
        assert_eq!(update.effective, Psn::new(101));
        assert_eq!(params.for_block(Psn::new(200)), None);
        assert_eq!(params.on_ack(ConfigId(99), 0, Instant(1)), Acked::Unmatched);
        let rtt = Duration::from_nanos(5);
        assert_eq!(
            params.on_ack(update.config, 0, Instant(5)),
            Acked::Accepted(Some(rtt))
        );
        assert_eq!(
            params.on_ack(update.config, 0, Instant(6)),
            Acked::Unmatched
        );
        assert_eq!(params.for_block(Psn::new(100)), None);
        assert!(matches!(params.for_block(Psn::new(101)), Some((_, true))));
        assert!(matches!(params.for_block(Psn::new(102)), Some((_, false))));
    }

    #[test]
    fn a_repeated_update_gives_no_sample() {
        let mut params = Params::new();
        let update = params.announce(flow(), SHAPE, pace(0, 0, MS), Instant(0));
        let at = params.next_at().unwrap();
        assert!(matches!(
            params.on_timer(flow(), pace(0, 0, MS), at),
            Retry::Send(_)
        ));
        assert_eq!(params.on_ack(update.config, 0, at), Acked::Accepted(None));
    }

    // shows: CREM-PARAM-12, AMB-CFGID
    #[test]
    fn refusal_keeps_the_old_and_does_not_reuse_the_id() {
        let mut params = Params::new();
        let first = params.announce(flow(), SHAPE, pace(0, 0, MS), Instant(0));
        params.on_ack(first.config, 0, Instant(1));
        params.for_block(Psn::new(1));
        let second = params.announce(flow(), SHAPE, pace(1, 0, MS), Instant(2));
        assert_ne!(second.config, first.config);
        assert!(!params.may_change(Instant(3), MS, MS));
        assert_eq!(
            params.on_ack(second.config, 3, Instant(3)),
            Acked::Refused(3)
        );
        assert_eq!(params.active().unwrap().id, first.config);
        params.last_id = second.config.0.wrapping_sub(1);
        let third = params.announce(flow(), SHAPE, pace(1, 0, MS), Instant(4));
        assert_ne!(third.config, second.config);
    }

    #[test]
    fn a_peer_that_refuses_changes_is_asked_less_and_less_often() {
        let mut params = Params::new();
        let first = params.announce(flow(), SHAPE, pace(0, 0, MS), Instant(0));
        params.on_ack(first.config, 0, Instant(0));
        params.for_block(Psn::new(1));
        let (mut now, mut waits) = (Instant(0) + MS, Vec::new());
        let held = |params: &Params, now| params.is_refused(now, 10 * MS, 50 * MS);
        assert!(!held(&params, now));
        for _ in 0..5 {
            let update = params.announce(flow(), SHAPE, pace(1, 0, MS), now);
            params.on_ack(update.config, 3, now);
            let began = now;
            while held(&params, now) {
                now = now + MS;
            }
            waits.push(now.since(began));
        }
        assert_eq!(waits, [10, 20, 40, 50, 50].map(|n| n * MS));
        let update = params.announce(flow(), SHAPE, pace(1, 0, MS), now);
        params.on_ack(update.config, 0, now);
        assert!(!held(&params, now), "accepted: all is forgotten");
    }

    // shows: CREM-PARAM-02, AMB-CFGID
    #[test]
    fn replacing_what_never_came_into_force_is_a_change() {
        // shows: CREM-POL-04, AMB-HYST
        let mut params = Params::new();
        let first = params.announce(flow(), SHAPE, pace(0, 1_000_000, MS), Instant(0));
        params.on_ack(first.config, 0, Instant(0) + MS);
        let stalled = Instant(0) + 4 * MS;
        assert!(params.is_stalled(pace(10, 0, MS), stalled));
        let second = params.announce(flow(), SHAPE, pace(10, 0, MS), stalled);
        params.on_ack(second.config, 0, stalled + MS);
        assert!(params.for_block(Psn::new(11)).is_some());
        assert!(!params.may_change(stalled + MS, MS, MS));
        assert!(params.may_change(stalled + 2 * MS, MS, MS));
    }

    #[test]
    fn ids_wrap_over_those_in_use() {
        let mut params = Params::new();
        let mut now = Instant(0);
        for _ in 0..600 {
            let before = params.active().map(|c| c.id);
            now = now + 10 * MS;
            let update = params.announce(flow(), SHAPE, pace(0, 0, MS), now);
            assert_ne!(Some(update.config), before);
            params.on_ack(update.config, 0, now);
            params.for_block(Psn::new(1));
            assert_eq!(params.active().unwrap().id, update.config);
        }
    }
}
