//! Carries out what the table in `states.rs` says: binds, announces parameters, goes silent, lets go. HELLO
//! itself is in `hello.rs`.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::net::SocketAddr;
use crem_wire::FlowId;
use crem_wire::crem::registry::{CloseReason, ParamStatus};
use crem_wire::crem::{Close, HelloAck, Message, ParamAck};

use super::flow::{Binding, Flow, Shared};
use super::hello::our_limits;
use super::params::{Acked, Params, Retry, Shape};
use super::path_report::Owed;
use super::probe::Probe;
use super::report::Reports;
use super::states::{Effect, Input, State, transition};
use super::volume::Volume;
use crate::bucket::{RatioBucket, TimeBucket};
use crate::coverage;
use crate::events::{Event, Unprotected};
use crate::plan;
use crate::policy::{Breaker, BurstLength, DelaySum};
use crate::time::{Duration, Instant};

/// A binding that lived this long makes the next refusal the first one again.
const SETTLED: Duration = Duration::from_secs(60);
/// INFO for stretches without blocks: per second, and at once.
const STRETCH_INFO: (u32, u32) = (1_000, 64);

/// What came with an input, for its effect.
pub(super) enum Cause<'a, B> {
    /// Nothing.
    None,
    /// A frame of the flow.
    Frame(&'a B),
    /// A HELLO_ACK and where it came from.
    Offer(&'a HelloAck, SocketAddr),
    /// Why the flow is not protected from now on.
    Reason(Unprotected),
    /// Why, and the reason that CLOSE shall give.
    Close(Unprotected, CloseReason),
}

impl<B: Clone> Flow<B> {
    /// Takes an input through the table and carries out the effect.
    pub(super) fn step(
        &mut self,
        input: Input,
        cause: Cause<'_, B>,
        sh: &mut Shared<B>,
        now: Instant,
    ) {
        let was_protected = self.is_protected();
        coverage::pair(
            coverage::Table::Negotiation,
            self.state as usize,
            input as usize,
        );
        let (next, effect) = transition(self.state, input);
        self.state = next;
        self.carry_out(effect, cause, sh, now);
        if !(next.hello_out() || next.is_bound()) {
            self.unclaim(sh);
            self.discharge(sh);
        }
        match (was_protected, self.is_protected()) {
            (true, false) => sh
                .events
                .push(Event::FlowUnprotected(self.key, self.reason)),
            (false, true) => sh.events.push(Event::FlowProtected(self.key)),
            _ => {}
        }
    }

    fn carry_out(&mut self, effect: Effect, cause: Cause<'_, B>, sh: &mut Shared<B>, now: Instant) {
        match effect {
            Effect::Ignore | Effect::Switch => {}
            Effect::Enqueue => self.enqueue(sh),
            Effect::SendHello => self.begin_hello(cause, sh, now),
            Effect::Bind => self.bind(cause, sh, now),
            Effect::CloseOffer => self.close_offer(cause, sh, now),
            Effect::HelloFailed => self.hello_failed(sh, now),
            Effect::Activate => self.activate(now),
            Effect::Smaller => self.announce_smaller(sh, now),
            Effect::KeepParams => {}
            Effect::CloseParams => self.close_and_wait(cause, sh, now),
            Effect::CloseBreaker => self.close_for_breaker(cause, sh, now),
            Effect::GoSilent => self.go_silent(sh, now),
            Effect::Resume => self.resume(sh, now),
            Effect::Release => self.release(cause, sh),
            Effect::DropBinding => self.drop_closed(cause, sh, now),
            Effect::Restart => self.restart(cause, sh),
            Effect::Remove => self.remove(cause, sh),
        }
    }

    fn bind(&mut self, cause: Cause<'_, B>, sh: &mut Shared<B>, now: Instant) {
        let Cause::Offer(ack, from) = cause else {
            return;
        };
        let Some(rdma_mtu) = self.hello.as_ref().map(|hello| hello.rdma_mtu) else {
            return;
        };
        self.end_hello(sh);
        let old = self.binding.as_deref();
        let fresh = Binding::new(ack, from, rdma_mtu, old, sh, now);
        self.drop_binding(sh);
        sh.counters.hello_ack_bound += 1;
        sh.flow_id_bound(from, ack.flow, self.slot);
        self.binding = Some(Box::new(fresh));
        self.reason = Unprotected::AwaitingParameters;
        let who = self.who(sh, now);
        if let Some(shape) = self.wanted_shape(sh, &who, now) {
            self.announce(shape, sh, now);
        }
    }

    fn close_offer(&mut self, cause: Cause<'_, B>, sh: &mut Shared<B>, now: Instant) {
        let Cause::Offer(ack, from) = cause else {
            return;
        };
        self.end_hello(sh);
        self.send_close(from, ack.flow, CloseReason::Normal, sh);
        self.close_binding(CloseReason::Normal, sh);
        self.wait(Unprotected::Limits, sh, now);
    }

    // ---- parameters

    fn announce(&mut self, shape: Shape, sh: &mut Shared<B>, now: Instant) {
        let who = self.who(sh, now);
        let Some(binding) = &mut self.binding else {
            return;
        };
        let update = binding.params.announce(binding.id, shape, who.pace, now);
        sh.counters.param_update_sent += 1;
        sh.send(binding.to, Message::ParamUpdate(update), who.dscp, None);
    }

    /// Half of everything, for a CRF that has no room (AMB-STATUS).
    fn announce_smaller(&mut self, sh: &mut Shared<B>, now: Instant) {
        let who = self.who(sh, now);
        let Some(wanted) = self.wanted_shape(sh, &who, now) else {
            return;
        };
        if let Some(binding) = &mut self.binding {
            binding.params.smaller_tried = true;
        }
        self.announce(
            Shape {
                k: (wanted.k / 2).max(1),
                m: wanted.m / 2,
                ..wanted
            },
            sh,
            now,
        );
    }

    /// Takes a PARAM_ACK of this flow.
    pub(super) fn on_param_ack(&mut self, ack: &ParamAck, sh: &mut Shared<B>, now: Instant) {
        let Some(binding) = &mut self.binding else {
            return;
        };
        let smaller_tried = binding.params.smaller_tried;
        // What is refused may stand in for a first configuration that was acknowledged but never came
        // into force: then there is none to keep.
        let keeps_none = self.state == State::Active && binding.params.active().is_none();
        match binding.params.on_ack(ack.config, ack.status, now) {
            Acked::Unmatched => sh.counters.param_ack_unmatched += 1,
            Acked::Accepted(rtt) => {
                sh.counters.param_accepted += 1;
                if let Some(rtt) = rtt
                    && let Some(peer) = self.peer.and_then(|slot| sh.peers.get_mut(slot))
                {
                    peer.rtt.sample(now, rtt);
                }
                self.step(Input::Accepted, Cause::None, sh, now);
            }
            Acked::Refused(status) => {
                sh.counters.param_refused += 1;
                let for_size = [ParamStatus::LimitsExceeded, ParamStatus::ResourcesExhausted]
                    .iter()
                    .any(|s| s.code() == status);
                let reason = if for_size {
                    CloseReason::ResourcesExhausted
                } else {
                    CloseReason::SyncFailed
                };
                let input = if keeps_none {
                    Input::NoParamAck
                } else if for_size && !smaller_tried {
                    Input::TooLarge
                } else {
                    Input::Rejected
                };
                self.step(
                    input,
                    Cause::Close(Unprotected::Parameters, reason),
                    sh,
                    now,
                );
            }
        }
    }

    /// Serves the PARAM_UPDATE timer.
    pub(super) fn on_param_timer(&mut self, sh: &mut Shared<B>, now: Instant) {
        if !matches!(self.state, State::Params | State::Active) {
            return;
        }
        let who = self.who(sh, now);
        let Some(binding) = &mut self.binding else {
            return;
        };
        match binding.params.on_timer(binding.id, who.pace, now) {
            Retry::Wait => {}
            Retry::Send(update) => {
                sh.counters.param_update_sent += 1;
                sh.send(binding.to, Message::ParamUpdate(update), who.dscp, None);
            }
            Retry::GiveUp => {
                sh.counters.param_unanswered += 1;
                let cause = Cause::Close(Unprotected::Parameters, CloseReason::SyncFailed);
                self.step(Input::NoParamAck, cause, sh, now);
            }
        }
    }

    fn activate(&mut self, now: Instant) {
        if let Some(binding) = &mut self.binding {
            binding.active_since = Some(now);
        }
    }

    // ---- silence and ends

    fn go_silent(&mut self, sh: &mut Shared<B>, now: Instant) {
        sh.counters.flows_silent += 1;
        self.reason = Unprotected::NoReports;
        if let Some(binding) = &mut self.binding {
            binding.silent_since = now;
            binding.params.drop_pending();
            binding.clear_blocks(self.slot, sh);
        }
    }

    /// Goes on with the old binding. Where its first configuration was not in force yet, silence took it
    /// away: it is announced anew.
    fn resume(&mut self, sh: &mut Shared<B>, now: Instant) {
        self.end_hello(sh);
        let who = self.who(sh, now);
        let is_bare = self
            .binding
            .as_ref()
            .is_some_and(|b| b.params.active().is_none() && !b.params.is_pending());
        if is_bare {
            self.reason = Unprotected::AwaitingParameters;
            if let Some(shape) = self.wanted_shape(sh, &who, now) {
                self.announce(shape, sh, now);
            }
        }
    }

    fn drop_closed(&mut self, cause: Cause<'_, B>, sh: &mut Shared<B>, now: Instant) {
        let lived = self
            .drop_binding(sh)
            .is_some_and(|since| now.since(since) >= SETTLED);
        if self.state == State::HeldOff {
            if lived {
                self.hold_off = sh.cfg.csf.retry_first;
            }
            self.wait(cause.reason(Unprotected::ClosedByPeer(0)), sh, now);
        }
    }

    fn close_and_wait(&mut self, cause: Cause<'_, B>, sh: &mut Shared<B>, now: Instant) {
        self.close_binding(cause.close_reason(CloseReason::SyncFailed), sh);
        self.wait(cause.reason(Unprotected::Parameters), sh, now);
    }

    /// Leaves the flow to its transport for a long time, longer each time (AMB-CBRETRY).
    fn close_for_breaker(&mut self, cause: Cause<'_, B>, sh: &mut Shared<B>, now: Instant) {
        self.close_binding(cause.close_reason(CloseReason::CircuitBreaker), sh);
        self.reason = cause.reason(Unprotected::Breaker);
        self.held_until = now + self.breaker_hold;
        self.breaker_hold = self.breaker_hold.saturating_mul(2);
    }

    /// Ends the binding; the flow goes on to queue for another one.
    fn release(&mut self, cause: Cause<'_, B>, sh: &mut Shared<B>) {
        self.close_binding(CloseReason::Normal, sh);
        self.reason = cause.reason(self.reason);
    }

    fn restart(&mut self, cause: Cause<'_, B>, sh: &mut Shared<B>) {
        self.end_hello(sh);
        self.close_binding(cause.close_reason(CloseReason::FlowEnded), sh);
        self.reason = cause.reason(Unprotected::QpReuse);
    }

    fn remove(&mut self, cause: Cause<'_, B>, sh: &mut Shared<B>) {
        self.end_hello(sh);
        self.close_binding(cause.close_reason(CloseReason::FlowEnded), sh);
        self.reason = cause.reason(Unprotected::Idle);
        if let Some(slot) = self.peer.take() {
            sh.peers.release(slot);
        }
        sh.timers.clear(self.slot);
        self.doomed = true;
    }

    /// Waits before the next HELLO, longer each time.
    pub(super) fn wait(&mut self, reason: Unprotected, sh: &Shared<B>, now: Instant) {
        self.reason = reason;
        self.held_until = now + self.hold_off;
        self.hold_off = self.hold_off.saturating_mul(2).min(sh.cfg.csf.retry_max);
    }

    fn close_binding(&mut self, reason: CloseReason, sh: &mut Shared<B>) {
        if let Some((to, id)) = self.binding.as_ref().map(|b| (b.to, b.id)) {
            self.send_close(to, id, reason, sh);
            self.drop_binding(sh);
        }
    }

    fn send_close(&self, to: SocketAddr, flow: FlowId, reason: CloseReason, sh: &mut Shared<B>) {
        sh.counters.close_sent += 1;
        let close = Close {
            flow,
            reason: reason.code(),
        };
        sh.send(to, Message::Close(close), self.track.dscp, None);
    }

    /// Forgets the binding and all its blocks; returns since when it was active.
    fn drop_binding(&mut self, sh: &mut Shared<B>) -> Option<Instant> {
        let mut binding = self.binding.take()?;
        binding.clear_blocks(self.slot, sh);
        sh.flow_id_released(binding.to, binding.id);
        binding.active_since
    }
}

impl<B> Binding<B> {
    /// What a HELLO_ACK offers. Neither a new binding nor the silence before it closes a breaker, nor
    /// does it change the packets of the flow.
    fn new(
        ack: &HelloAck,
        from: SocketAddr,
        rdma_mtu: u16,
        old: Option<&Self>,
        sh: &Shared<B>,
        now: Instant,
    ) -> Self {
        let (rate, depth) = STRETCH_INFO;
        let breaker = old.map_or_else(Breaker::default, |old| old.reports.breaker);
        Self {
            to: from,
            id: ack.flow,
            limits: plan::common_limits(&our_limits(&sh.cfg), &ack.limits),
            max_open_blocks: ack.max_open_blocks,
            rdma_mtu,
            params: Params::new(),
            in_force: false,
            open: None,
            closed: VecDeque::new(),
            acknowledged: None,
            known_from: None,
            last_source: now,
            packet_tokens: RatioBucket::default(),
            octet_tokens: RatioBucket::default(),
            info_tokens: RatioBucket::default(),
            stretch_tokens: TimeBucket::new(rate, depth, now),
            block_share: 0,
            volume: Volume::new(),
            deferred: None,
            owed: Owed::default(),
            reports: Reports::new(&sh.cfg.fec, breaker, now),
            probe: Probe::default(),
            queue_delay: DelaySum::default(),
            burst_length: old.map_or_else(BurstLength::default, |old| old.burst_length),
            run_end: None,
            bound_at: now,
            silent_since: now,
            active_since: None,
        }
    }
}

impl<B> Cause<'_, B> {
    fn reason(&self, otherwise: Unprotected) -> Unprotected {
        match self {
            Self::Reason(reason) | Self::Close(reason, _) => *reason,
            _ => otherwise,
        }
    }

    fn close_reason(&self, otherwise: CloseReason) -> CloseReason {
        match self {
            Self::Close(_, reason) => *reason,
            _ => otherwise,
        }
    }
}
