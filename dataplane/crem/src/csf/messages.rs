//! Messages to the sender function: finds the flow that a message is for, and checks that it comes from
//! the peer that the flow is bound to.

use core::net::SocketAddr;
use crem_wire::FlowId;
use crem_wire::crem::{Close, HelloAck, Message};

use super::Csf;
use super::flow::{Flow, Io, Shared};
use super::negotiate::Cause;
use super::states::{Input, State};
use crate::actions::Actions;
use crate::config::Mode;
use crate::events::Unprotected;
use crate::packet::PktBuf;
use crate::time::Instant;

impl<B: PktBuf> Csf<B> {
    /// Takes a message that the peer at `from` sent to us in its role as receiver, or a node on the path
    /// as Path Reporter. `_ce`: the datagram was CE marked, which says nothing that LOSS_REPORT does not
    /// say.
    pub fn on_message(
        &mut self,
        now: Instant,
        from: SocketAddr,
        message: &Message,
        _ce: bool,
        actions: &mut Actions<B>,
    ) {
        if self.sh.cfg.mode != Mode::Active {
            self.sh.counters.unexpected_message += 1;
            return;
        }
        match message {
            Message::HelloAck(ack) => self.on_hello_ack(now, from, ack),
            Message::ParamAck(ack) => self.on_flow(from, ack.flow, now, |flow, sh| {
                flow.on_param_ack(ack, sh, now)
            }),
            Message::LossReport(report) => {
                self.on_flow(from, report.flow, now, |flow, sh| {
                    flow.on_report(report, sh, now)
                });
            }
            Message::Close(close) => {
                self.on_flow(from, close.flow, now, |flow, sh| {
                    flow.on_close(close, sh, now)
                });
            }
            Message::BlockRequest(_) | Message::RangeRequest(_) => {
                self.on_request(now, from, message, actions)
            }
            Message::PathReport(report) => self.on_path_report(now, from, report, actions),
            Message::Hello(_) | Message::ParamUpdate(_) => self.sh.counters.unexpected_message += 1,
        }
    }

    fn on_hello_ack(&mut self, now: Instant, from: SocketAddr, ack: &HelloAck) {
        let Some(&slot) = self.sh.by_nonce.get(&ack.nonce) else {
            self.sh.counters.hello_ack_unmatched += 1;
            return;
        };
        if !self.sh.cfg.allows(from.ip()) {
            self.sh.counters.hello_ack_forbidden += 1;
            return;
        }
        self.with_flow(slot, |flow, sh| flow.on_hello_ack(ack, from, sh, now));
    }

    fn on_request(
        &mut self,
        now: Instant,
        from: SocketAddr,
        message: &Message,
        actions: &mut Actions<B>,
    ) {
        let id = match message {
            Message::BlockRequest(request) => request.flow,
            Message::RangeRequest(request) => request.flow,
            _ => return,
        };
        self.on_flow(from, id, now, |flow, sh| {
            flow.on_request(message, &mut Io { sh, actions, now })
        });
    }

    /// Runs `f` on the flow that this peer knows by this ID.
    fn on_flow(
        &mut self,
        from: SocketAddr,
        id: FlowId,
        now: Instant,
        f: impl FnOnce(&mut Flow<B>, &mut Shared<B>),
    ) {
        let Some(&slot) = self.sh.by_id.get(&(from, id)) else {
            self.sh.counters.unknown_flow += 1;
            return;
        };
        self.with_flow(slot, |flow, sh| {
            flow.heard(from, sh, now);
            f(flow, sh);
        });
    }
}

impl<B: PktBuf> Flow<B> {
    fn on_close(&mut self, close: &Close, sh: &mut Shared<B>, now: Instant) {
        sh.counters.close_received += 1;
        let reason = Unprotected::ClosedByPeer(close.reason);
        self.step(Input::PeerClose, Cause::Reason(reason), sh, now);
    }

    fn on_request(&mut self, message: &Message, io: &mut Io<'_, B>) {
        if self.state != State::Active {
            io.sh.counters.requests_silent += 1;
            return;
        }
        self.with_binding(io, |binding, ctx| match message {
            Message::BlockRequest(request) => binding.on_block_request(request, ctx),
            Message::RangeRequest(request) => binding.on_range_request(request, ctx),
            _ => {}
        });
    }
}
