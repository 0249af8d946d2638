//! HELLO to CLOSE: carries out what the table in `states.rs` says, sends and repeats HELLO and the first
//! PARAM_UPDATE, binds, and lets go.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::net::SocketAddr;
use crem_wire::crem::registry::{CloseReason, FlowKind, ParamStatus, Scheme};
use crem_wire::crem::{Close, FlowDescriptor, Hello, HelloAck, Limits, Message, ParamAck};

use super::flow::{Binding, Flow, HelloTry, Shared};
use super::params::{Acked, Params, Retry, Shape};
use super::peers::PeerKey;
use super::report::{Reports, fitting_k};
use super::states::{Effect, Input, State, transition};
use super::volume::Volume;
use crate::bucket::{RatioBucket, TimeBucket};
use crate::events::{Event, Unprotected};
use crate::packet::PsnSpace;
use crate::plan::{self, Family};
use crate::time::{Duration, Instant};

/// HELLOs of one exchange.
const HELLO_ATTEMPTS: u8 = 8;
/// First gap between HELLOs while the peer's round-trip time is unknown.
const HELLO_GAP: Duration = Duration::from_millis(1);
/// Largest gap between HELLOs to a peer whose round-trip time is known, unless that is longer.
const HELLO_GAP_MAX: Duration = Duration::from_millis(250);
/// The RDMA MTU of a flow is taken to change at most this often.
const MTU_CHANGES: u8 = 4;
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
        let (next, effect) = transition(self.state, input);
        self.state = next;
        self.carry_out(effect, cause, sh, now);
        if !(next.hello_out() || next.is_bound()) {
            self.unclaim(sh);
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
            Effect::GoSilent => self.go_silent(sh, now),
            Effect::Resume => self.end_hello(sh),
            Effect::CloseSilent => self.close_binding(CloseReason::Normal, sh),
            Effect::DropBinding => self.drop_closed(cause, sh, now),
            Effect::Restart => self.restart(cause, sh),
            Effect::Remove => self.remove(cause, sh),
        }
    }

    // ---- HELLO

    fn enqueue(&mut self, sh: &mut Shared<B>) {
        self.reason = Unprotected::HelloPacing;
        if self.peer.is_some() {
            return;
        }
        let configured = sh
            .cfg
            .peer_for(self.key.destination)
            .and_then(|peer| peer.address);
        if configured.is_none() && sh.cfg.allowed_peers.is_empty() {
            self.reason = Unprotected::NoPeer;
            return;
        }
        let target = configured.unwrap_or(SocketAddr::new(self.key.destination, sh.cfg.crem_port));
        self.peer = sh.peers.acquire(PeerKey {
            target,
            space: self.key.space,
        });
        if self.peer.is_none() {
            sh.counters.peers_no_room += 1;
            self.reason = Unprotected::TableFull;
        }
    }

    /// Whether a HELLO may go out now; if so it is paid for. Checks that cost nothing come first.
    pub(super) fn may_hello(&self, sh: &mut Shared<B>, now: Instant) -> Result<(), Unprotected> {
        let Some(peer_slot) = self.peer else {
            return Err(self.reason);
        };
        let (Some(peer), Some(target)) = (sh.peers.get(peer_slot), sh.peers.target(peer_slot))
        else {
            return Err(Unprotected::NoPeer);
        };
        if !peer.may_hello(now) {
            return Err(if peer.is_dead() {
                Unprotected::PeerDead
            } else {
                Unprotected::PeerRefuses
            });
        }
        if self.key.space == PsnSpace::Responses && !sh.peers.knows_requests(target) {
            return Err(Unprotected::HelloPacing);
        }
        if sh
            .descriptors
            .get(&self.descriptor())
            .is_some_and(|slot| *slot != self.slot)
        {
            return Err(Unprotected::NamespaceConflict);
        }
        self.check_mtu(sh, target)?;
        let room = sh.by_nonce.len() < sh.cfg.csf.hello_outstanding as usize;
        if room && sh.hello_bucket.take(now) {
            Ok(())
        } else {
            Err(Unprotected::HelloPacing)
        }
    }

    fn check_mtu(&self, sh: &Shared<B>, target: SocketAddr) -> Result<(), Unprotected> {
        let t = plan::symbol_length(self.rdma_mtu(sh), self.track.xrc);
        let (path_mtu, tunnel) = self.path(sh);
        let family = Family::of(&target.ip());
        let k = sh.cfg.fec.k.clamp(1, sh.cfg.fec.max_k.max(1));
        match fitting_k(k, |k| {
            plan::max_symbol_length(path_mtu, family, k, tunnel) >= t
        }) {
            Some(_) => Ok(()),
            None => {
                let needed = plan::path_mtu_needed(t, family, k.min(32), tunnel);
                let needed = u16::try_from(needed).unwrap_or(u16::MAX);
                Err(Unprotected::Mtu {
                    needed,
                    available: path_mtu,
                })
            }
        }
    }

    /// Tries to send the first HELLO along `frame`, and notes why not.
    pub(super) fn try_hello(&mut self, frame: &B, sh: &mut Shared<B>, now: Instant) {
        match self.may_hello(sh, now) {
            Ok(()) => self.step(Input::Grant, Cause::Frame(frame), sh, now),
            Err(reason) => {
                let changed =
                    core::mem::discriminant(&self.reason) != core::mem::discriminant(&reason);
                match reason {
                    Unprotected::NamespaceConflict if changed => {
                        sh.counters.namespace_conflicts += 1
                    }
                    Unprotected::Mtu { .. } if changed => {
                        sh.counters.mtu_too_small += 1;
                        sh.events.push(Event::FlowUnprotected(self.key, reason));
                    }
                    _ => {}
                }
                self.reason = if self.state == State::SilentQueued {
                    Unprotected::NoReports
                } else {
                    reason
                };
            }
        }
    }

    fn begin_hello(&mut self, cause: Cause<'_, B>, sh: &mut Shared<B>, now: Instant) {
        let mut nonce = sh.rng.next_u64();
        while sh.by_nonce.contains_key(&nonce) {
            nonce = sh.rng.next_u64();
        }
        let peer = self.peer.and_then(|slot| sh.peers.get_mut(slot));
        let rtt = peer
            .as_ref()
            .and_then(|p| p.rtt.srtt())
            .or(sh.cfg.domain_rtt);
        if let Some(peer) = peer {
            peer.hello_begins(now);
        }
        let gap = rtt.map_or(HELLO_GAP, |rtt| HELLO_GAP.max(rtt * 5 / 4));
        let intercepted = sh
            .cfg
            .peer_for(self.key.destination)
            .is_none_or(|p| p.address.is_none());
        let along = match cause {
            Cause::Frame(frame) if intercepted => Some(frame.clone()),
            _ => None,
        };
        sh.by_nonce.insert(nonce, self.slot);
        sh.descriptors.insert(self.descriptor(), self.slot);
        self.claimed = true;
        if self.state == State::Hello {
            self.reason = Unprotected::Negotiating;
        }
        let rdma_mtu = self.rdma_mtu(sh);
        let try_ = HelloTry {
            nonce,
            sent: 1,
            began: now,
            next_at: now + gap,
            gap,
            rdma_mtu,
            along,
        };
        self.hello = Some(try_);
        self.send_hello(sh);
    }

    fn send_hello(&self, sh: &mut Shared<B>) {
        let Some(hello) = &self.hello else { return };
        let Some(target) = self.peer.and_then(|slot| sh.peers.target(slot)) else {
            return;
        };
        let message = Message::Hello(Hello {
            kind: flow_kind(self.key.space),
            limits: our_limits(&sh.cfg),
            rdma_mtu: hello.rdma_mtu,
            nonce: hello.nonce,
            flow: FlowDescriptor {
                source: self.key.source,
                destination: self.key.destination,
                qp: self.key.qp,
            },
        });
        sh.counters.hello_sent += 1;
        sh.send(target, message, self.track.dscp, hello.along.clone());
    }

    /// Serves the HELLO timer: repeats it, or ends the exchange after eight.
    pub(super) fn on_hello_timer(&mut self, sh: &mut Shared<B>, now: Instant) {
        let rtt = self.rtt(sh).0;
        let Some(hello) = self.hello.as_mut().filter(|hello| hello.next_at <= now) else {
            return;
        };
        if hello.sent < HELLO_ATTEMPTS {
            hello.sent += 1;
            let cap = rtt.map_or(Duration::MAX, |rtt| HELLO_GAP_MAX.max(rtt * 5 / 4));
            hello.gap = (hello.gap * 2).min(cap);
            hello.next_at = now + hello.gap;
            self.send_hello(sh);
            return;
        }
        let began = hello.began;
        let (peer_gone, newly_dead) = match self.peer {
            Some(slot) => sh.peers.unanswered(slot, began, now),
            None => (false, None),
        };
        if let Some(target) = newly_dead {
            sh.counters.peers_dead += 1;
            sh.events.push(Event::PeerDead(target));
        }
        let (input, reason) = if peer_gone {
            (Input::NoAnswer, Unprotected::PeerDead)
        } else {
            (Input::Refused, Unprotected::PeerRefuses)
        };
        self.step(input, Cause::Reason(reason), sh, now);
    }

    fn hello_failed(&mut self, sh: &mut Shared<B>, now: Instant) {
        sh.counters.hello_unanswered += 1;
        self.end_hello(sh);
        match self.state {
            State::HeldOff => self.wait(Unprotected::PeerRefuses, sh, now),
            State::Queued => {
                self.reason = Unprotected::PeerDead;
                sh.events
                    .push(Event::FlowUnprotected(self.key, self.reason));
            }
            _ => {}
        }
    }

    /// Ends a HELLO exchange, answered or not.
    fn end_hello(&mut self, sh: &mut Shared<B>) {
        if let Some(hello) = self.hello.take() {
            sh.by_nonce.remove(&hello.nonce);
            if let Some(peer) = self.peer.and_then(|slot| sh.peers.get_mut(slot)) {
                peer.hello_ends();
            }
        }
    }

    fn unclaim(&mut self, sh: &mut Shared<B>) {
        if core::mem::take(&mut self.claimed) {
            sh.descriptors.remove(&self.descriptor());
        }
    }

    // ---- HELLO_ACK

    /// Takes a HELLO_ACK whose nonce is this flow's.
    pub(super) fn on_hello_ack(
        &mut self,
        ack: &HelloAck,
        from: SocketAddr,
        sh: &mut Shared<B>,
        now: Instant,
    ) {
        let af = if self.key.source.is_ipv4() { 4 } else { 6 };
        let matches = self
            .hello
            .as_ref()
            .is_some_and(|hello| hello.rdma_mtu == ack.rdma_mtu)
            && ack.kind == flow_kind(self.key.space)
            && ack.af == af;
        if !matches {
            sh.counters.hello_ack_unmatched += 1;
        } else if sh
            .by_id
            .get(&(from, ack.flow))
            .is_some_and(|slot| *slot != self.slot)
        {
            sh.counters.hello_ack_duplicate_id += 1;
        } else {
            self.heard(from, sh, now);
            self.sample_hello(sh, now);
            let usable = self.usable(ack, from, sh);
            if !usable {
                sh.counters.hello_ack_unusable += 1;
            }
            let input = if usable {
                Input::Ack
            } else {
                Input::AckUnusable
            };
            self.step(input, Cause::Offer(ack, from), sh, now);
        }
    }

    /// Notes that the peer lives.
    pub(super) fn heard(&self, from: SocketAddr, sh: &mut Shared<B>, now: Instant) {
        if let Some(target) = self.peer.and_then(|slot| sh.peers.heard(slot, from, now)) {
            sh.events.push(Event::PeerAlive(target));
        }
    }

    /// One HELLO and its answer are a sample; after a repetition only an upper bound is known.
    fn sample_hello(&self, sh: &mut Shared<B>, now: Instant) {
        let Some(hello) = &self.hello else { return };
        let Some(peer) = self.peer.and_then(|slot| sh.peers.get_mut(slot)) else {
            return;
        };
        let elapsed = now.since(hello.began);
        if hello.sent == 1 {
            peer.rtt.sample(now, elapsed)
        } else {
            peer.rtt.upper_bound(elapsed)
        }
    }

    /// Whether the offered limits leave anything to work with (AMB-LIMITS, AMB-TMTU).
    fn usable(&self, ack: &HelloAck, from: SocketAddr, sh: &Shared<B>) -> bool {
        let common = plan::common_limits(&our_limits(&sh.cfg), &ack.limits);
        let t = plan::symbol_length(ack.rdma_mtu, self.track.xrc);
        common.schemes & Scheme::CauchyRs.bit() != 0
            && common.max_k > 0
            && common.max_t >= t
            && self.check_mtu(sh, from).is_ok()
    }

    fn bind(&mut self, cause: Cause<'_, B>, sh: &mut Shared<B>, now: Instant) {
        let Cause::Offer(ack, from) = cause else {
            return;
        };
        let Some(rdma_mtu) = self.hello.as_ref().map(|hello| hello.rdma_mtu) else {
            return;
        };
        self.end_hello(sh);
        self.drop_binding(sh);
        sh.counters.hello_ack_bound += 1;
        sh.by_id.insert((from, ack.flow), self.slot);
        let (rate, depth) = STRETCH_INFO;
        self.binding = Some(Box::new(Binding {
            to: from,
            id: ack.flow,
            limits: plan::common_limits(&our_limits(&sh.cfg), &ack.limits),
            max_open_blocks: ack.max_open_blocks,
            rdma_mtu,
            params: Params::new(),
            in_force: false,
            open: None,
            closed: VecDeque::new(),
            known_from: None,
            last_source: now,
            t_needed: 0,
            packet_tokens: RatioBucket::default(),
            octet_tokens: RatioBucket::default(),
            info_tokens: RatioBucket::default(),
            stretch_tokens: TimeBucket::new(rate, depth, now),
            block_share: 0,
            volume: Volume::new(),
            deferred: None,
            reports: Reports::new(&sh.cfg.fec, now),
            silent_since: now,
            active_since: None,
        }));
        self.reason = Unprotected::AwaitingParameters;
        let who = self.who(sh, now);
        if let Some(shape) = self.wanted_shape(sh, &who) {
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
        let Some(wanted) = self.wanted_shape(sh, &who) else {
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
                let input = if for_size && !smaller_tried {
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

    fn restart(&mut self, cause: Cause<'_, B>, sh: &mut Shared<B>) {
        self.end_hello(sh);
        self.close_binding(cause.close_reason(CloseReason::FlowEnded), sh);
        self.reason = cause.reason(Unprotected::BelowThreshold);
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
    fn wait(&mut self, reason: Unprotected, sh: &Shared<B>, now: Instant) {
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

    fn send_close(
        &self,
        to: SocketAddr,
        flow: crem_wire::FlowId,
        reason: CloseReason,
        sh: &mut Shared<B>,
    ) {
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
        sh.by_id.remove(&(binding.to, binding.id));
        binding.active_since
    }

    /// The RDMA MTU differs from the one announced: all READ spans and T were wrong (AMB-RDMAMTU).
    pub(super) fn check_announced_mtu(&mut self, sh: &mut Shared<B>, now: Instant) {
        let announced = self
            .hello
            .as_ref()
            .map(|h| h.rdma_mtu)
            .or(self.binding.as_ref().map(|b| b.rdma_mtu));
        let differs = announced.is_some_and(|mtu| self.track.mtu.is_some_and(|seen| seen != mtu));
        if differs && self.mtu_changes < MTU_CHANGES {
            self.mtu_changes += 1;
            self.step(
                Input::Reset,
                Cause::Close(Unprotected::MtuChanged, CloseReason::Normal),
                sh,
                now,
            );
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

/// The limits that HELLO announces.
fn our_limits(cfg: &crate::config::CoreConfig) -> Limits {
    let fec = &cfg.fec;
    Limits {
        schemes: fec.schemes,
        max_k: fec.max_k,
        max_m: fec.m_max,
        max_t: fec.max_t,
    }
}

fn flow_kind(space: PsnSpace) -> u8 {
    match space {
        PsnSpace::Requests => FlowKind::RoceV2.code(),
        PsnSpace::Responses => FlowKind::RoceV2Responses.code(),
    }
}
