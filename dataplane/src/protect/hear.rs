//! What the protocol functions are told by messages, and what one worker's functions learn that those of
//! others have to know.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crem_core::time::Instant;
use crem_wire::FlowId;
use crem_wire::crem::{Message, RepairHeader};

use super::Protection;
use crate::buffer::Platform;
use crate::team::{Directory, Fact, Place};

/// How often a REPAIR says that its sender is alive.
const REVIVE: Duration = Duration::from_millis(100);

/// Which worker the functions are for, and whose Flow IDs are.
#[derive(Clone, Debug)]
pub struct Share {
    /// The worker.
    pub place: Place,
    /// Flow IDs of all workers; `None` where there is one.
    pub directory: Option<Arc<Directory>>,
}

impl Share {
    /// Of the only worker.
    pub const ALONE: Self = Self {
        place: Place::ALONE,
        directory: None,
    };

    /// Whether the receiver function may assign this Flow ID to flows of `peer`: no sender function uses
    /// it (AMB-CLOSEPAIR), and it tells the worker.
    fn is_free(&self, peer: SocketAddr, id: FlowId) -> bool {
        let taken = self.directory.as_ref().and_then(|d| d.find(peer, id));
        taken.is_none() && self.place.stamped(u64::from(id.get())) == self.place.index
    }
}

impl<P: Platform> Protection<P> {
    /// A REPAIR with the offset of its symbol in the frame.
    pub fn repair(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &RepairHeader,
        symbol: Option<(P::Buf, u16)>,
        ce: bool,
    ) {
        // Any valid message ends a dead state (AMB-SCALE); once in a while is at once.
        if now >= self.revive_at {
            self.revive_at = now + REVIVE;
            self.alive(from, None);
        }
        self.crf
            .on_repair(now, from, header, symbol, ce, &mut self.actions);
    }

    /// Any other message.
    pub fn message(&mut self, now: Instant, from: SocketAddr, message: &Message, ce: bool) {
        match message {
            Message::Hello(hello) => {
                self.alive(from, Some(hello.flow.source));
                let Self {
                    csf,
                    crf,
                    actions,
                    share,
                    ..
                } = self;
                let usable = |id| !csf.uses(from, id) && share.is_free(from, id);
                crf.on_message(now, from, message, &usable, actions);
            }
            Message::ParamUpdate(update) => {
                self.alive(from, None);
                self.crf
                    .on_message(now, from, message, &|_| true, &mut self.actions);
                if let Some(stream) = self.crf.stream_of(from, update.flow) {
                    self.csf.peer_met(from, stream.source, stream.space);
                    let (host, space) = (stream.source, stream.space);
                    self.tell(Fact::Met { from, host, space });
                }
            }
            // Both spaces of Flow IDs share address and port (AMB-CLOSEPAIR).
            Message::Close(close) => {
                if self.csf.uses(from, close.flow) {
                    self.csf
                        .on_message(now, from, message, ce, &mut self.actions);
                }
                self.crf
                    .on_message(now, from, message, &|_| true, &mut self.actions);
            }
            Message::LossReport(report) => {
                if let Some(srtt) = self.csf.srtt_of(from, report.flow) {
                    let (peer, report) = (from, *report);
                    self.tell(Fact::Report { peer, report, srtt });
                }
                self.csf
                    .on_message(now, from, message, ce, &mut self.actions);
            }
            Message::HelloAck(_)
            | Message::ParamAck(_)
            | Message::BlockRequest(_)
            | Message::RangeRequest(_)
            | Message::PathReport(_) => {
                self.csf
                    .on_message(now, from, message, ce, &mut self.actions);
            }
        }
    }

    /// A peer is alive in its role as sender, for flows of a host where that is known.
    fn alive(&mut self, from: SocketAddr, host: Option<IpAddr>) {
        self.csf.peer_alive(from, host);
        self.tell(Fact::Alive { from, host });
    }

    fn tell(&mut self, fact: Fact) {
        // One worker has nobody to tell.
        if self.share.directory.is_some() {
            self.facts.push(fact);
        }
    }

    /// Takes a fact from another worker.
    pub fn take_fact(&mut self, now: Instant, fact: &Fact) {
        match fact {
            Fact::Alive { from, host } => self.csf.peer_alive(*from, *host),
            Fact::Met { from, host, space } => self.csf.peer_met(*from, *host, *space),
            Fact::Report { peer, report, srtt } => {
                self.csf.on_report_elsewhere(now, *peer, report, *srtt);
            }
            Fact::Acked(ack) => self.csf.on_ack(now, ack),
            Fact::Managed(managed) => self.csf.on_managed(now, managed),
        }
    }

    /// Facts that other workers have to know; the caller takes all.
    pub fn facts(&mut self) -> &mut Vec<Fact> {
        &mut self.facts
    }

    /// Enters what changed about Flow IDs.
    pub(super) fn note_flow_ids(&mut self) {
        while let Some(change) = self.csf.poll_flow_id() {
            if let Some(directory) = &self.share.directory {
                let (peer, id, owner) = (change.peer, change.id, self.share.place.index);
                if change.bound {
                    directory.enter(peer, id, owner);
                } else {
                    directory.leave(peer, id, owner);
                }
            }
        }
    }
}
