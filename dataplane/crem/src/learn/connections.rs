//! Connections as the messages of the connection manager tell of them: who talks to whom, which queue
//! pairs belong together, with which first PSNs and RDMA MTU. A bounded table; nothing is sent, and
//! nothing here decides about protection.

use crem_wire::roce::{CmMessage, CommId};
use crem_wire::{Psn, Qpn};
use hashbrown::HashMap;

use super::Direction;
use crate::memory::of_map;
use crate::table::{BoundedTable, Class};

/// One end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct End {
    /// Its queue pair.
    pub qp: Qpn,
    /// First PSN of the requests toward it, as agreed.
    pub first: Psn,
}

/// A connection whose both ends are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// From the active side to the passive one.
    pub forward: Direction,
    /// The side that sent REQ.
    pub active: End,
    /// The side that sent REP.
    pub passive: End,
    /// RDMA MTU, octets, if REQ named one.
    pub mtu: Option<u16>,
}

impl Connection {
    /// The requests of each side: their direction, and the end that they go to.
    pub const fn streams(&self) -> [(Direction, End); 2] {
        [
            (self.forward, self.passive),
            (self.forward.reversed(), self.active),
        ]
    }
}

/// What a message told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Learned {
    /// A connection begins: whatever its queue pairs carried before is over.
    Opened(Connection),
    /// A connection ends.
    Closed(Connection),
}

/// A connection by the direction from its active side and what that calls it.
type Name = (Direction, CommId);

#[derive(Clone, Copy, Debug)]
struct Known {
    forward: Direction,
    active: End,
    mtu: Option<u16>,
    passive: Option<End>,
}

impl Known {
    fn connection(&self) -> Option<Connection> {
        self.passive.map(|passive| Connection {
            forward: self.forward,
            active: self.active,
            passive,
            mtu: self.mtu,
        })
    }
}

/// The table. At its bound the oldest connection is forgotten.
#[derive(Debug)]
pub struct Connections {
    table: BoundedTable<Name, Known>,
    /// The connection that the requests of a direction toward a queue pair belong to.
    ends: HashMap<(Direction, Qpn), u32>,
}

impl Connections {
    /// A table of at most `bound` connections.
    pub fn new(bound: u32) -> Self {
        Self {
            table: BoundedTable::new(bound),
            ends: HashMap::new(),
        }
    }

    /// Octets of memory.
    pub(crate) fn octets(&self) -> usize {
        self.table.octets() + of_map(&self.ends)
    }

    /// Connections known, also those that are only asked for.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Takes a message that went this way. Repetitions tell nothing.
    pub fn on_message(&mut self, way: Direction, message: &CmMessage) -> Option<Learned> {
        let by_sender = |comm| (way, comm);
        let by_receiver = |comm| (way.reversed(), comm);
        match *message {
            CmMessage::Request {
                local,
                qp,
                first,
                mtu,
            } => {
                self.requested(by_sender(local), End { qp, first }, mtu);
                None
            }
            CmMessage::Reply {
                remote, qp, first, ..
            } => self.replied(by_receiver(remote), End { qp, first }),
            CmMessage::Reject { local, remote } | CmMessage::Disconnect { local, remote, .. } => {
                self.ended(by_receiver(remote))
                    .or_else(|| self.ended(by_sender(local)))
            }
            CmMessage::Ready { .. } | CmMessage::Disconnected { .. } => None,
        }
    }

    /// RDMA MTU of the requests of this direction toward queue pair `qp`.
    pub fn mtu(&self, way: Direction, qp: Qpn) -> Option<u16> {
        let slot = self.ends.get(&(way, qp))?;
        self.table.get(*slot)?.mtu
    }

    /// The queue pair that sends the requests of this direction toward queue pair `qp`.
    pub fn sender_of(&self, way: Direction, qp: Qpn) -> Option<Qpn> {
        let slot = self.ends.get(&(way, qp))?;
        let connection = self.table.get(*slot)?.connection()?;
        Some(
            if connection.forward == way && connection.passive.qp == qp {
                connection.active.qp
            } else {
                connection.passive.qp
            },
        )
    }

    fn requested(&mut self, name: Name, active: End, mtu: Option<u16>) {
        if let Some(slot) = self.table.slot(&name) {
            let same = self.table.get(slot).is_some_and(|k| k.active == active);
            if same {
                return;
            }
            self.forget(slot);
        }
        if self.table.is_full()
            && let Some(oldest) = self.table.oldest(Class::Candidate)
        {
            self.forget(oldest);
        }
        let known = Known {
            forward: name.0,
            active,
            mtu,
            passive: None,
        };
        // A table that is bounded to nothing learns nothing.
        let _ = self.table.insert(name, known);
    }

    fn replied(&mut self, name: Name, passive: End) -> Option<Learned> {
        let slot = self.table.slot(&name)?;
        let known = self.table.get_mut(slot)?;
        if known.passive.is_some() {
            return None;
        }
        known.passive = Some(passive);
        let connection = known.connection()?;
        self.table.touch(slot);
        for (way, receiver) in connection.streams() {
            let end = (way, receiver.qp);
            if let Some(old) = self.ends.insert(end, slot)
                && old != slot
            {
                // The queue pair is used anew, its former connection is over.
                self.forget(old);
                self.ends.insert(end, slot);
            }
        }
        Some(Learned::Opened(connection))
    }

    fn ended(&mut self, name: Name) -> Option<Learned> {
        let slot = self.table.slot(&name)?;
        let known = self.forget(slot)?;
        known.connection().map(Learned::Closed)
    }

    fn forget(&mut self, slot: u32) -> Option<Known> {
        let (_, known) = self.table.remove(slot)?;
        if let Some(connection) = known.connection() {
            for (way, receiver) in connection.streams() {
                let end = (way, receiver.qp);
                if self.ends.get(&end) == Some(&slot) {
                    self.ends.remove(&end);
                }
            }
        }
        Some(known)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::packet::Namespace;
    use alloc::vec::Vec;
    use core::net::IpAddr;
    use proptest::prelude::*;

    fn way(from: u8, to: u8) -> Direction {
        Direction {
            namespace: Namespace(0),
            from: IpAddr::from([10, 0, 0, from]),
            to: IpAddr::from([10, 0, 0, to]),
        }
    }

    fn request(comm: u32, qp: u32) -> CmMessage {
        CmMessage::Request {
            local: CommId(comm),
            qp: Qpn::new(qp),
            first: Psn::new(100),
            mtu: Some(2048),
        }
    }

    fn reply(comm: u32, remote: u32, qp: u32) -> CmMessage {
        CmMessage::Reply {
            local: CommId(comm),
            remote: CommId(remote),
            qp: Qpn::new(qp),
            first: Psn::new(200),
        }
    }

    // shows: AMB-ACKMAP
    #[test]
    fn request_and_reply_make_a_connection() {
        let mut all = Connections::new(8);
        let (there, back) = (way(1, 2), way(2, 1));
        assert_eq!(all.on_message(there, &request(7, 0x11)), None);
        assert_eq!(all.on_message(there, &request(7, 0x11)), None, "repeated");
        assert_eq!(all.on_message(back, &reply(8, 9, 0x21)), None, "of another");
        assert_eq!(all.on_message(there, &reply(8, 7, 0x21)), None, "backward");
        let Some(Learned::Opened(c)) = all.on_message(back, &reply(8, 7, 0x21)) else {
            panic!()
        };
        assert_eq!(
            (c.forward, c.active.qp, c.active.first),
            (there, Qpn::new(0x11), Psn::new(100))
        );
        assert_eq!(
            (c.passive.qp, c.passive.first),
            (Qpn::new(0x21), Psn::new(200))
        );
        assert_eq!(all.on_message(back, &reply(8, 7, 0x21)), None, "repeated");
        assert_eq!(all.mtu(there, Qpn::new(0x21)), Some(2048));
        assert_eq!(all.mtu(back, Qpn::new(0x11)), Some(2048));
        assert_eq!(all.mtu(there, Qpn::new(0x11)), None);
        assert_eq!(all.sender_of(there, Qpn::new(0x21)), Some(Qpn::new(0x11)));
        assert_eq!(all.sender_of(back, Qpn::new(0x11)), Some(Qpn::new(0x21)));
    }

    #[test]
    fn either_side_may_end_it() {
        for (from, to, local, remote) in [(1, 2, 7, 8), (2, 1, 8, 7)] {
            let mut all = Connections::new(8);
            all.on_message(way(1, 2), &request(7, 0x11));
            all.on_message(way(2, 1), &reply(8, 7, 0x21));
            let end = CmMessage::Disconnect {
                local: CommId(local),
                remote: CommId(remote),
                qp: Qpn::new(0),
            };
            let closed = all.on_message(way(from, to), &end);
            assert!(matches!(closed, Some(Learned::Closed(_))));
            assert!(all.is_empty() && all.ends.is_empty());
            assert_eq!(all.on_message(way(from, to), &end), None);
        }
    }

    #[test]
    fn a_refused_connection_was_none() {
        let mut all = Connections::new(8);
        all.on_message(way(1, 2), &request(7, 0x11));
        let refuse = CmMessage::Reject {
            local: CommId(0),
            remote: CommId(7),
        };
        assert_eq!(all.on_message(way(2, 1), &refuse), None);
        assert!(all.is_empty());
    }

    #[test]
    fn a_queue_pair_that_is_used_anew_leaves_its_former_connection() {
        let mut all = Connections::new(8);
        for comm in [7, 70] {
            all.on_message(way(1, 2), &request(comm, 0x11));
            let opened = all.on_message(way(2, 1), &reply(comm + 1, comm, 0x21));
            assert!(matches!(opened, Some(Learned::Opened(_))));
        }
        assert_eq!(all.len(), 1);
        assert!(all.sender_of(way(1, 2), Qpn::new(0x21)).is_some());
    }

    #[test]
    fn the_oldest_is_forgotten_at_the_bound() {
        let mut all = Connections::new(2);
        for n in 0..5 {
            all.on_message(way(1, 2), &request(n, 0x11 + n));
            all.on_message(way(2, 1), &reply(100 + n, n, 0x21 + n));
        }
        assert_eq!((all.len(), all.ends.len()), (2, 4));
        assert!(all.mtu(way(1, 2), Qpn::new(0x21)).is_none());
        assert!(all.mtu(way(1, 2), Qpn::new(0x25)).is_some());
        let mut none = Connections::new(0);
        none.on_message(way(1, 2), &request(1, 1));
        assert!(none.is_empty());
    }

    fn message() -> impl Strategy<Value = (u8, u8, CmMessage)> {
        let id = 0..4u32;
        let body = (0..6u8, id.clone(), id, 0..4u32).prop_map(|(kind, l, r, qp)| {
            let (local, remote, qp) = (CommId(l), CommId(r), Qpn::new(qp));
            match kind {
                0 => request(l, qp.get()),
                1 => reply(l, r, qp.get()),
                2 => CmMessage::Ready { local, remote },
                3 => CmMessage::Reject { local, remote },
                4 => CmMessage::Disconnect { local, remote, qp },
                _ => CmMessage::Disconnected { local, remote },
            }
        });
        (0..3u8, 0..3u8, body)
    }

    proptest! {
        /// Whatever comes, in whatever order: bounded, and every end names a connection that has it.
        #[test]
        fn ends_and_connections_agree(messages in proptest::collection::vec(message(), 0..200)) {
            let mut all = Connections::new(3);
            for (from, to, message) in &messages {
                all.on_message(way(*from, *to), message);
                prop_assert!(all.len() <= 3);
                for ((way, qp), slot) in &all.ends {
                    let c = all.table.get(*slot).and_then(Known::connection);
                    let has = |c: &Connection| c.streams().iter().any(|(w, end)|
                        (w, end.qp) == (way, *qp));
                    prop_assert!(c.as_ref().is_some_and(has));
                }
            }
            let complete: Vec<_> = all.table.iter().filter_map(|(_, _, k)| k.connection()).collect();
            prop_assert!(all.ends.len() <= 2 * complete.len());
        }
    }
}
