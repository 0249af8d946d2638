//! HELLO, PARAM_UPDATE and CLOSE at the receiver: who is bound to which flow (CREM, Capability
//! Negotiation, Parameter Synchronization, CLOSE; AMB-HELLODUP, AMB-HELLONEW, AMB-REFUSE, AMB-FLOWID0,
//! AMB-CLOSEPAIR, AMB-CRFRTT). The table of cases is in `lifecycle.rs`.

use alloc::boxed::Box;
use core::net::SocketAddr;

use crem_wire::crem::registry::{CloseReason, FlowKind, ParamStatus, Scheme};
use crem_wire::crem::{Close, Hello, HelloAck, Limits, Message, ParamAck, ParamUpdate};
use crem_wire::{FlowId, RequestId};

use super::lifecycle::{LifeAct, LifeEvent};
use super::params::Configs;
use super::stream::{FlowKey, Stream};
use super::track::{Cx, Offer, Track};
use super::{Crf, cx};
use crate::actions::Actions;
use crate::events::{Event, Unprotected};
use crate::packet::{Namespace, PktBuf, PsnSpace, StreamKey};
use crate::plan;
use crate::rtt::RttEstimator;
use crate::table::Class;
use crate::time::Instant;

/// Flow IDs offered for one flow that wait for their first PARAM_UPDATE.
const MAX_OFFERS: usize = 4;
/// Draws of a Flow ID before a HELLO is refused.
const MAX_DRAWS: u32 = 1024;
/// Peers whose RTT is remembered.
const MAX_PEERS: usize = 4096;

/// Whether a drawn Flow ID may be assigned (AMB-CLOSEPAIR, ownership by workers).
pub(crate) type Usable<'a> = &'a dyn Fn(FlowId) -> bool;

impl<B: PktBuf> Crf<B> {
    /// Our limits as HELLO_ACK states them.
    fn limits(&self) -> Limits {
        Limits {
            schemes: self.config.fec.schemes,
            max_k: self.config.fec.max_k,
            max_m: self.config.fec.m_max,
            max_t: self.config.fec.max_t,
        }
    }

    /// The PSN space of a Flow Kind that we protect.
    fn space_of(&self, kind: u8) -> Option<PsnSpace> {
        if kind == FlowKind::RoceV2.code() {
            Some(PsnSpace::Requests)
        } else if kind == FlowKind::RoceV2Responses.code() && self.config.responses {
            Some(PsnSpace::Responses)
        } else {
            None
        }
    }

    /// The stream that this peer is bound to under this Flow ID.
    pub fn stream_of(&self, peer: SocketAddr, flow: FlowId) -> Option<StreamKey> {
        let slot = self.flows.get(&flow)?;
        let track = self.table.get(*slot)?.bound.as_ref()?;
        (track.offer.flow == flow && track.offer.peer == peer).then_some(track.key)
    }

    pub(crate) fn on_hello(
        &mut self,
        now: Instant,
        from: SocketAddr,
        hello: &Hello,
        usable: Usable<'_>,
    ) {
        let common = plan::common_limits(&self.limits(), &hello.limits);
        let descriptor = &hello.flow;
        let space = self.space_of(hello.kind);
        let possible = self.config.allows(from.ip())
            && hello.rdma_mtu > 0
            && descriptor.source.is_ipv4() == descriptor.destination.is_ipv4()
            && common.schemes & Scheme::CauchyRs.bit() != 0
            && common.max_k > 0;
        let Some(space) = space.filter(|_| possible) else {
            self.shared.counters.hellos_refused += 1;
            return;
        };
        let key = FlowKey {
            source: descriptor.source,
            destination: descriptor.destination,
            qp: descriptor.qp,
            space,
        };
        let Some(slot) = self.table.slot(&key).or_else(|| self.admit(now, from, key)) else {
            self.shared.counters.flows_refused_full += 1;
            return;
        };
        let Some(stream) = self.table.get(slot) else {
            return;
        };
        let again = stream.offer_of(from, hello.nonce).copied();
        let stranger = stream
            .bound
            .as_ref()
            .is_some_and(|track| track.offer.peer.ip() != from.ip());
        let event = match (again, stranger) {
            (Some(_), _) => LifeEvent::HelloAgain,
            (None, true) => LifeEvent::HelloStranger,
            (None, false) => LifeEvent::HelloNew,
        };
        match (stream.life().on(event), again) {
            (LifeAct::AnswerAgain, Some(offer)) => {
                self.shared.counters.hellos_repeated += 1;
                self.acknowledge(slot, &offer, hello);
            }
            (LifeAct::Offer, _) => self.offer(now, slot, from, hello, common, usable),
            _ => self.shared.counters.hellos_of_strangers += 1,
        }
    }

    /// Makes room for a new flow, within the table and the report budget (AMB-SCALE). What was only
    /// offered gives way, oldest first: HELLOs without consequence must not keep others out.
    fn admit(&mut self, now: Instant, from: SocketAddr, key: FlowKey) -> Option<u32> {
        let srtt = self
            .shared
            .peers
            .get(&from.ip())
            .and_then(RttEstimator::srtt)
            .or(self.config.domain_rtt);
        let reports = f64::from(self.config.crf.report_budget);
        let affordable =
            srtt.is_none_or(|rtt| (self.table.len() as f64) < reports * rtt.as_secs_f64());
        if (!affordable || self.table.is_full()) && !self.give_up_offered() {
            return None;
        }
        let slot = self.table.insert(key, Box::new(Stream::new(now))).ok()?;
        self.timers.set(slot, now + self.config.crf.idle);
        Some(slot)
    }

    /// Forgets the oldest flow that is bound to nobody. Whether there was one.
    fn give_up_offered(&mut self) -> bool {
        let oldest = self.table.oldest(Class::Candidate);
        let Some((slot, (_, stream))) = oldest.and_then(|s| Some((s, self.table.remove(s)?)))
        else {
            return false;
        };
        self.timers.clear(slot);
        for offer in &stream.offers {
            self.flows.remove(&offer.flow);
        }
        self.shared.counters.offers_evicted += 1;
        true
    }

    fn offer(
        &mut self,
        now: Instant,
        slot: u32,
        from: SocketAddr,
        hello: &Hello,
        limits: Limits,
        usable: Usable<'_>,
    ) {
        let drawn = (0..MAX_DRAWS)
            .filter_map(|_| FlowId::new(self.rng.next_u32()))
            .find(|id| !self.flows.contains_key(id) && usable(*id));
        let Some(flow) = drawn else {
            self.shared.counters.hellos_refused += 1;
            self.forget_if_unknown(slot);
            return;
        };
        let offer = Offer {
            flow,
            peer: from,
            nonce: hello.nonce,
            limits,
            rdma_mtu: hello.rdma_mtu,
            answered: now,
        };
        let Some(stream) = self.table.get_mut(slot) else {
            return;
        };
        stream.heard = now;
        if stream.offers.len() >= MAX_OFFERS {
            let oldest = stream.offers.remove(0);
            self.flows.remove(&oldest.flow);
        }
        stream.offers.reserve_exact(1);
        stream.offers.push(offer);
        self.flows.insert(flow, slot);
        self.shared.counters.hellos_accepted += 1;
        self.acknowledge(slot, &offer, hello);
    }

    fn acknowledge(&mut self, slot: u32, offer: &Offer, hello: &Hello) {
        let message = Message::HelloAck(HelloAck {
            flow: offer.flow,
            kind: hello.kind,
            af: if hello.flow.source.is_ipv4() { 4 } else { 6 },
            limits: self.limits(),
            rdma_mtu: hello.rdma_mtu,
            nonce: hello.nonce,
            max_open_blocks: self.config.crf.max_open_blocks,
        });
        let dscp = self.table.get(slot).map_or(0, |stream| stream.dscp());
        self.shared.send(&self.config, offer.peer, message, dscp);
    }

    pub(crate) fn on_param_update(
        &mut self,
        now: Instant,
        from: SocketAddr,
        update: &ParamUpdate,
        out: &mut Actions<B>,
    ) {
        let Some((slot, bound)) = self.addressed(now, from, update.flow) else {
            return;
        };
        let event = if bound {
            LifeEvent::UpdateBound
        } else {
            LifeEvent::UpdateOffered
        };
        let act = self
            .table
            .get(slot)
            .map_or(LifeAct::Ignore, |stream| stream.life().on(event));
        match act {
            LifeAct::Configure => self.configure(now, slot, update, out),
            LifeAct::Bind => self.bind(now, slot, update, out),
            _ => {}
        }
        self.refresh_timer(slot);
    }

    /// Whether memory for decoding with this configuration can be reserved: one block of it.
    fn has_memory(&self, update: &ParamUpdate) -> bool {
        self.shared
            .store
            .budget
            .has_room(u64::from(update.k), u64::from(update.t))
    }

    fn configure(&mut self, now: Instant, slot: u32, update: &ParamUpdate, out: &mut Actions<B>) {
        let memory = self.has_memory(update);
        let Some(track) = self.table.get_mut(slot).and_then(|s| s.bound.as_mut()) else {
            return;
        };
        let known = track.configs.get(update.config).is_some();
        let limits = track.offer.limits;
        let status = track.configs.update(now, update, &limits, memory);
        let mut cx = cx(now, &self.config, &mut self.shared, out);
        answer_params(track, update, status, &mut cx);
        if status == ParamStatus::Accepted && !known {
            cx.shared.events.push(Event::ConfigChanged {
                stream: track.key,
                config: update.config,
                k: update.k,
                m: update.m,
                t: update.t,
            });
        }
    }

    /// The first PARAM_UPDATE of an offered Flow ID: if its parameters are accepted, it is bound, and a
    /// Flow ID that was bound before ends.
    fn bind(&mut self, now: Instant, slot: u32, update: &ParamUpdate, out: &mut Actions<B>) {
        let memory = self.has_memory(update);
        let key = self.table.key(slot).copied();
        let (Some(stream), Some(key)) = (self.table.get_mut(slot), key) else {
            return;
        };
        let Some(place) = stream.offers.iter().position(|o| o.flow == update.flow) else {
            return;
        };
        let offer = stream.offers[place];
        let mut configs = Configs::default();
        let status = configs.update(now, update, &offer.limits, memory);
        let mut cx = cx(now, &self.config, &mut self.shared, out);
        if status != ParamStatus::Accepted {
            cx.shared.counters.params_refused += 1;
            send_ack(&offer, update, status, stream.dscp(), &mut cx);
            return;
        }
        stream.offers.remove(place);
        stream.offers.shrink_to_fit();
        if let Some(mut old) = stream.bound.take() {
            old.end(&mut cx);
            self.flows.remove(&old.offer.flow);
        }
        let rtt = peer_rtt(&offer, now, &mut cx);
        let first = RequestId::new(self.rng.next_u32() as u16).unwrap_or(FIRST_REQUEST);
        let stream_key = key.stream(stream.namespace.unwrap_or(Namespace(0)));
        let mut track = Track::new(slot, stream_key, offer, rtt, first, now);
        track.configs = configs;
        answer_params(&mut track, update, status, &mut cx);
        track.update_times(&cx);
        stream.bound = Some(track);
        cx.shared.reverse.bind(&key, slot);
        cx.shared.events.push(Event::FlowProtected(stream_key));
        self.table.set_class(slot, Class::Pinned);
    }

    pub(crate) fn on_close(
        &mut self,
        now: Instant,
        from: SocketAddr,
        close: &Close,
        out: &mut Actions<B>,
    ) {
        let Some((slot, bound)) = self.addressed(now, from, close.flow) else {
            return;
        };
        self.shared.counters.closes_received += 1;
        let event = if bound {
            LifeEvent::CloseBound
        } else {
            LifeEvent::CloseOffered
        };
        let Some(stream) = self.table.get_mut(slot) else {
            return;
        };
        match stream.life().on(event) {
            LifeAct::Unbind => {
                if let Some(mut track) = stream.bound.take() {
                    let key = FlowKey::of(&track.key);
                    self.shared.reverse.unbind(&key, slot);
                    let mut cx = cx(now, &self.config, &mut self.shared, out);
                    track.end(&mut cx);
                    let why = Unprotected::ClosedByPeer(close.reason);
                    cx.shared
                        .events
                        .push(Event::FlowUnprotected(track.key, why));
                    self.table.set_class(slot, Class::Candidate);
                }
            }
            LifeAct::Withdraw => stream.offers.retain(|offer| offer.flow != close.flow),
            _ => {}
        }
        self.flows.remove(&close.flow);
        self.forget_if_unknown(slot);
        self.refresh_timer(slot);
    }

    /// The flow that a message names, and whether the Flow ID is the bound one; `None` and counted if
    /// there is none or the message comes from elsewhere (AMB-UNKFLOW, AMB-PEERADDR).
    pub(crate) fn addressed(
        &mut self,
        now: Instant,
        from: SocketAddr,
        flow: FlowId,
    ) -> Option<(u32, bool)> {
        let found = self
            .flows
            .get(&flow)
            .and_then(|slot| Some((*slot, self.table.get_mut(*slot)?)));
        let Some((slot, stream)) = found else {
            self.shared.counters.unknown_flow += 1;
            return None;
        };
        let bound = stream
            .bound
            .as_ref()
            .map(|track| &track.offer)
            .filter(|o| o.flow == flow);
        let is_bound = bound.is_some();
        let peer = bound
            .or_else(|| stream.offers.iter().find(|o| o.flow == flow))
            .map(|offer| offer.peer);
        if peer != Some(from) {
            self.shared.counters.wrong_peer += 1;
            return None;
        }
        stream.heard = now;
        Some((slot, is_bound))
    }

    /// Removes a flow that has neither binding nor offers left.
    pub(crate) fn forget_if_unknown(&mut self, slot: u32) {
        let empty = self
            .table
            .get(slot)
            .is_some_and(|stream| stream.bound.is_none() && stream.offers.is_empty());
        if empty {
            self.table.remove(slot);
            self.timers.clear(slot);
        }
    }

    /// Ends everything of a flow; tells the CSF if `reason` is given.
    pub(crate) fn drop_flow(
        &mut self,
        now: Instant,
        slot: u32,
        reason: Option<CloseReason>,
        why: Unprotected,
        out: &mut Actions<B>,
    ) {
        let Some((key, stream)) = self.table.remove(slot) else {
            return;
        };
        self.shared.reverse.unbind(&key, slot);
        self.timers.clear(slot);
        for offer in &stream.offers {
            self.flows.remove(&offer.flow);
        }
        let Some(mut track) = stream.bound else {
            return;
        };
        self.flows.remove(&track.offer.flow);
        let mut cx = cx(now, &self.config, &mut self.shared, out);
        track.end(&mut cx);
        if let Some(reason) = reason {
            cx.shared.counters.closes_sent += 1;
            let close = Close {
                flow: track.offer.flow,
                reason: reason.code(),
            };
            cx.send(track.offer.peer, Message::Close(close), track.dscp);
        }
        cx.shared
            .events
            .push(Event::FlowUnprotected(track.key, why));
    }
}

/// The ID that stands in for a drawn zero.
const FIRST_REQUEST: RequestId = match RequestId::new(1) {
    Some(id) => id,
    None => unreachable!(),
};

impl FlowKey {
    fn stream(self, namespace: Namespace) -> StreamKey {
        StreamKey {
            namespace,
            source: self.source,
            destination: self.destination,
            qp: self.qp,
            space: self.space,
        }
    }
}

/// The RTT that a new binding starts from, with the sample of this exchange (AMB-CRFRTT).
fn peer_rtt<B: Clone>(offer: &Offer, now: Instant, cx: &mut Cx<'_, B>) -> RttEstimator {
    let address = offer.peer.ip();
    let known = cx.shared.peers.get(&address).copied();
    let mut rtt = known.unwrap_or_default();
    let sample = now.since(offer.answered);
    // A PARAM_UPDATE long after the HELLO_ACK measures a lost message, not the path.
    let plausible = rtt.srtt().is_none_or(|srtt| sample <= srtt + srtt / 2);
    if plausible {
        rtt.sample(now, sample);
    }
    if known.is_some() || cx.shared.peers.len() < MAX_PEERS {
        cx.shared.peers.insert(address, rtt);
    }
    rtt
}

fn answer_params<B: Clone>(
    track: &mut Track<B>,
    update: &ParamUpdate,
    status: ParamStatus,
    cx: &mut Cx<'_, B>,
) {
    if status == ParamStatus::Accepted {
        cx.shared.counters.params_accepted += 1;
    } else {
        cx.shared.counters.params_refused += 1;
    }
    send_ack(&track.offer, update, status, track.dscp, cx);
}

fn send_ack<B: Clone>(
    offer: &Offer,
    update: &ParamUpdate,
    status: ParamStatus,
    dscp: u8,
    cx: &mut Cx<'_, B>,
) {
    let ack = ParamAck {
        flow: update.flow,
        config: update.config,
        status: status.code(),
    };
    cx.send(offer.peer, Message::ParamAck(ack), dscp);
}
