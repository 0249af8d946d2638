//! HELLO and HELLO_ACK: when a HELLO may go out, its repetition, what an answer must match, and what an
//! exchange says about the peer.

use alloc::boxed::Box;
use core::net::SocketAddr;
use crem_wire::crem::registry::{CloseReason, FlowKind, Scheme};
use crem_wire::crem::{FlowDescriptor, Hello, HelloAck, Limits, Message};

use super::flow::{Flow, HelloTry, Shared};
use super::negotiate::Cause;
use super::peers::PeerKey;
use super::states::{Input, State};
use crate::config::CoreConfig;
use crate::events::{Event, Unprotected};
use crate::packet::PsnSpace;
use crate::plan;
use crate::time::{Duration, Instant};

/// HELLOs of one exchange.
const HELLO_ATTEMPTS: u8 = 8;
/// First gap between HELLOs while the peer's round-trip time is unknown.
const HELLO_GAP: Duration = Duration::from_millis(1);
/// Largest gap between HELLOs to a peer whose round-trip time is known, unless that is longer.
const HELLO_GAP_MAX: Duration = Duration::from_millis(250);
/// The RDMA MTU of a flow is taken to change at most this often.
const MTU_CHANGES: u8 = 4;
impl<B: Clone> Flow<B> {
    pub(super) fn enqueue(&mut self, sh: &mut Shared<B>) {
        self.reason = Unprotected::HelloPacing;
        if self.peer.is_some() {
            return;
        }
        let configured = sh
            .cfg
            .peer_for(self.key.destination)
            .and_then(|peer| peer.address);
        // A HELLO toward an address inside of a tunnel would reach somebody else, or nobody.
        let interceptable = !sh.cfg.allowed_peers.is_empty() && !self.key.namespace.is_tunnel();
        if configured.is_none() && !interceptable {
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
    pub(super) fn may_hello(
        &mut self,
        sh: &mut Shared<B>,
        now: Instant,
    ) -> Result<(), Unprotected> {
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
                Unprotected::KindUnknown
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
        self.check_carried(&peer.carries, target, sh, now)?;
        if !self.may_be_placed(sh, now) {
            return Err(Unprotected::ReportBudget);
        }
        if !self.has_turn(sh, now) {
            return Err(Unprotected::HelloPacing);
        }
        let room = sh.by_nonce.len() < sh.cfg.csf.hello_outstanding as usize;
        if room && sh.hello_bucket.take(now) {
            Ok(())
        } else {
            Err(Unprotected::HelloPacing)
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
                    Unprotected::PathMtu { .. } if changed => {
                        sh.events.push(Event::FlowUnprotected(self.key, reason));
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

    /// Sends the first HELLO of an exchange, with a new nonce.
    pub(super) fn begin_hello(&mut self, cause: Cause<'_, B>, sh: &mut Shared<B>, now: Instant) {
        let shard = sh.cfg.shard;
        let mut nonce = shard.stamp(sh.rng.next_u64());
        while sh.by_nonce.contains_key(&nonce) {
            nonce = shard.stamp(sh.rng.next_u64());
        }
        sh.by_nonce.insert(nonce, self.slot);
        sh.descriptors.insert(self.descriptor(), self.slot);
        self.claimed = true;
        self.take_place(sh, now);
        let rtt = self.rtt(sh).0;
        let gap = rtt.map_or(HELLO_GAP, |rtt| HELLO_GAP.max(rtt * 5 / 4));
        let peer = self.peer.and_then(|slot| sh.peers.get_mut(slot));
        let probe = peer.as_ref().is_some_and(|peer| peer.is_dead());
        if let Some(peer) = peer {
            peer.hello_begins(now);
        }
        if self.state == State::Hello {
            self.reason = if probe {
                Unprotected::PeerDead
            } else {
                Unprotected::NoHelloAck {
                    sent: 1,
                    of: HELLO_ATTEMPTS,
                }
            };
        }
        let peer = sh.cfg.peer_for(self.key.destination);
        let intercepted = peer.is_none_or(|peer| peer.address.is_none());
        let along = match cause {
            Cause::Frame(frame) if intercepted => Some(frame.clone()),
            _ => None,
        };
        let rdma_mtu = self.rdma_mtu(sh);
        let next_at = now + gap;
        self.hello = Some(Box::new(HelloTry {
            nonce,
            sent: 1,
            began: now,
            next_at,
            gap,
            rdma_mtu,
            along,
        }));
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
            if let Unprotected::NoHelloAck { sent, .. } = &mut self.reason {
                *sent = hello.sent;
            }
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
            (Input::Refused, Unprotected::NegativeCache)
        };
        self.step(input, Cause::Reason(reason), sh, now);
    }

    pub(super) fn hello_failed(&mut self, sh: &mut Shared<B>, now: Instant) {
        sh.counters.hello_unanswered += 1;
        self.end_hello(sh);
        match self.state {
            State::HeldOff => self.wait(Unprotected::NegativeCache, sh, now),
            State::Queued => {
                self.reason = match self.key.space {
                    PsnSpace::Requests => Unprotected::PeerDead,
                    PsnSpace::Responses => Unprotected::KindUnknown,
                };
                sh.events
                    .push(Event::FlowUnprotected(self.key, self.reason));
            }
            _ => {}
        }
    }

    /// Ends a HELLO exchange, answered or not.
    pub(super) fn end_hello(&mut self, sh: &mut Shared<B>) {
        if let Some(hello) = self.hello.take() {
            sh.by_nonce.remove(&hello.nonce);
            if let Some(peer) = self.peer.and_then(|slot| sh.peers.get_mut(slot)) {
                peer.hello_ends();
            }
        }
    }

    pub(super) fn unclaim(&mut self, sh: &mut Shared<B>) {
        if core::mem::take(&mut self.claimed) {
            sh.descriptors.remove(&self.descriptor());
        }
    }

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
        let t = self.wanted_t(sh, from, common.max_t);
        common.schemes & Scheme::CauchyRs.bit() != 0
            && common.max_k > 0
            && common.max_t >= t
            && self.check_mtu(sh, from).is_ok()
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

/// The limits that HELLO announces.
pub(super) fn our_limits(cfg: &CoreConfig) -> Limits {
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
