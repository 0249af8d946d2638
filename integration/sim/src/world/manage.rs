//! Messages of the connection manager and acknowledgments, as far as gateways learn from them. A message
//! that gets lost is not repeated: the gateways then learn less.

use crem_core::learn::{Ack, Direction, Managed};
use crem_wire::roce::{CmMessage, CommId};
use crem_wire::{Psn, Qpn};

use super::build::REQUESTER_QP;
use super::{Item, World, looked_at};
use crate::net::{Class, Datagram, Link, Verdict};
use crate::packet::{self, Packet, opcode};

/// Octets of a management datagram on the wire.
const OCTETS: u32 = 356;

/// A message of the connection manager on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Managing {
    connection: usize,
    managed: Managed,
}

impl World {
    /// The requester asks for its connection.
    pub(super) fn opens(&mut self, connection: usize) {
        let config = &self.scenario.connections[connection];
        let message = CmMessage::Request {
            local: comm(connection, false),
            qp: Qpn::new(config.qp + REQUESTER_QP),
            first: Psn::new(0),
            mtu: Some(config.transport.mtu),
        };
        let side = config.side;
        self.manage(side, connection, message);
    }

    /// The requester ends its connection.
    pub(super) fn ends(&mut self, connection: usize) {
        let config = &self.scenario.connections[connection];
        let message = CmMessage::Disconnect {
            local: comm(connection, false),
            remote: comm(connection, true),
            qp: Qpn::new(config.qp),
        };
        let side = config.side;
        self.manage(side, connection, message);
    }

    /// A host at `side` says something: through its gateway and onto the WAN.
    fn manage(&mut self, side: usize, connection: usize, message: CmMessage) {
        let way = self.way(side, connection);
        let managed = Managed { way, message };
        self.learn(side, &managed);
        let datagram = Datagram {
            octets: OCTETS,
            ect: false,
            class: Class::Control,
            hash: connection as u32,
        };
        let wan = &mut self.sides[side].wan;
        if let Verdict::Deliver { at, .. } = wan.path.send(self.now, &datagram, &mut wan.rng) {
            let managing = Managing {
                connection,
                managed,
            };
            let at = looked_at(at, self.scenario.poll);
            let item = Item::Managed(Box::new(managing));
            self.flight.push(wan.lane, at, item);
        }
    }

    /// A message of the connection manager at the WAN port of `side`: its host answers.
    pub(super) fn managing_arrives(&mut self, side: usize, managing: Managing) {
        self.learn(side, &managing.managed);
        let connection = managing.connection;
        let config = &self.scenario.connections[connection];
        let (active, passive) = (comm(connection, false), comm(connection, true));
        let answer = match managing.managed.message {
            CmMessage::Request { .. } => CmMessage::Reply {
                local: passive,
                remote: active,
                qp: Qpn::new(config.qp),
                first: Psn::new(config.transport.first as u32),
            },
            CmMessage::Reply { .. } => CmMessage::Ready {
                local: active,
                remote: passive,
            },
            CmMessage::Disconnect { .. } => CmMessage::Disconnected {
                local: passive,
                remote: active,
            },
            _ => return,
        };
        self.manage(side, connection, answer);
    }

    fn learn(&mut self, side: usize, managed: &Managed) {
        let (now, here) = (self.now, &mut self.sides[side]);
        if here.up_at > now {
            return;
        }
        if let Some(gateway) = &mut here.gateway {
            gateway.csf.on_managed(now, managed);
            self.settle(side);
        }
    }

    /// From the host of `side` to the other one of the connection.
    fn way(&self, side: usize, connection: usize) -> Direction {
        let requests = Direction::of(&self.streams[connection * 2].key);
        if self.scenario.connections[connection].side == side {
            requests
        } else {
            requests.reversed()
        }
    }

    /// An acknowledgment that arrived from the WAN passes the sender function of `side`.
    pub(super) fn acknowledged(&mut self, side: usize, packet: &Packet) {
        if packet.opcode != opcode::ACKNOWLEDGE {
            return;
        }
        let connection = packet.conn.0 as usize;
        let config = &self.scenario.connections[connection];
        let ack = Ack {
            way: self.way(1 - side, connection),
            qp: Qpn::new(config.qp + REQUESTER_QP),
            psn: packet.wire_psn(),
            negative: packet.ack != packet::Ack::Positive,
            mtu: None,
        };
        if let Some(gateway) = &mut self.sides[side].gateway {
            gateway.csf.on_ack(self.now, &ack);
        }
    }
}

fn comm(connection: usize, passive: bool) -> CommId {
    CommId(connection as u32 * 2 + 1 + u32::from(passive))
}
