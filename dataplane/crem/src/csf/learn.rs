//! What the sender function learns of its flows besides from their own packets (AMB-ACKMAP): a connection
//! that begins or ends, its RDMA MTU, and what the receiving host has acknowledged. All of it is optional
//! (`CsfConfig::learn`).
//!
//! What is acknowledged is not needed for repair any more: its packets are let go of. The descriptions of
//! its blocks stay as long as ever, so that a receiver function that asks is told which positions carried
//! a packet.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crem_wire::crem::registry::CloseReason;
use crem_wire::{Psn, Qpn};
use hashbrown::HashMap;

use super::Csf;
use super::flow::{Binding, Flow, Shared};
use super::negotiate::Cause;
use super::states::Input;
use crate::config::Mode;
use crate::events::Unprotected;
use crate::learn::{Ack, Candidates, Connection, Connections, Direction, Learned, Managed, Pairs};
use crate::memory::{of_map, of_vec};
use crate::packet::{PktBuf, PsnSpace, StreamKey};
use crate::table::BoundedTable;
use crate::time::{Duration, Instant};

/// Acknowledgments further behind than this are of another use of the queue pair.
const MAX_BEHIND: i32 = 1 << 22;
/// PSNs that count as sent of late at any rate.
const LATE_MIN: u64 = 64;

/// What is known besides the flows.
#[derive(Debug)]
pub(super) struct Learn {
    connections: Connections,
    pairs: Pairs,
    /// The flows of requests of each direction.
    flows: HashMap<Direction, Vec<u32>>,
}

impl Learn {
    pub(super) fn new(bound: u32) -> Self {
        Self {
            connections: Connections::new(bound),
            pairs: Pairs::new(bound),
            flows: HashMap::new(),
        }
    }

    /// Octets of memory.
    pub(super) fn octets(&self) -> usize {
        let slots = self.flows.values().map(of_vec);
        self.connections.octets() + self.pairs.octets() + of_map(&self.flows) + slots.sum::<usize>()
    }

    /// A flow is tracked from now on; gives its RDMA MTU if its connection told it.
    pub(super) fn flow_begins(&mut self, key: &StreamKey, slot: u32) -> Option<u16> {
        let way = Direction::of(key);
        if key.space == PsnSpace::Requests {
            self.flows.entry(way).or_default().push(slot);
        }
        self.connections.mtu(way, key.qp)
    }

    /// A flow is tracked no more.
    pub(super) fn flow_ends(&mut self, key: &StreamKey, slot: u32) {
        let way = Direction::of(key);
        if key.space == PsnSpace::Requests
            && let Some(slots) = self.flows.get_mut(&way)
        {
            slots.retain(|s| *s != slot);
            if slots.is_empty() {
                self.flows.remove(&way);
            }
        }
    }
}

/// The flows of requests, as acknowledgments are matched with them.
struct Sent<'a, B> {
    by_way: &'a HashMap<Direction, Vec<u32>>,
    flows: &'a BoundedTable<StreamKey, Box<Flow<B>>>,
    sh: &'a Shared<B>,
    now: Instant,
}

impl<B: PktBuf> Candidates for Sent<'_, B> {
    fn only_sender_of(&self, way: Direction, psn: Psn) -> Option<Qpn> {
        let slots = self.by_way.get(&way)?.iter();
        let mut senders = slots
            .filter_map(|slot| self.flows.get(*slot))
            .filter(|flow| flow.sent_lately(psn, self.sh, self.now));
        let first = senders.next()?;
        senders.next().is_none().then_some(first.key.qp)
    }
}

impl<B: PktBuf> Csf<B> {
    fn learns(&self) -> bool {
        self.sh.cfg.csf.learn && self.sh.cfg.mode == Mode::Active
    }

    /// A message of the connection manager passed, in either direction.
    pub fn on_managed(&mut self, now: Instant, managed: &Managed) {
        if !self.learns() {
            return;
        }
        self.sh.counters.connection_messages += 1;
        let learned = self
            .learn
            .connections
            .on_message(managed.way, &managed.message);
        match learned {
            Some(Learned::Opened(connection)) => {
                self.sh.counters.connections_opened += 1;
                self.for_flows(&connection, |flow, sh| {
                    flow.begin_anew(connection.mtu, sh, now);
                });
            }
            Some(Learned::Closed(connection)) => {
                self.sh.counters.connections_closed += 1;
                let cause = || Cause::Close(Unprotected::Idle, CloseReason::FlowEnded);
                self.for_flows(&connection, |flow, sh| {
                    flow.step(Input::Idle, cause(), sh, now);
                });
            }
            None => {}
        }
    }

    fn for_flows(
        &mut self,
        connection: &Connection,
        mut f: impl FnMut(&mut Flow<B>, &mut Shared<B>),
    ) {
        for (way, end) in connection.streams() {
            let requests = way.requests(end.qp);
            let responses = StreamKey {
                space: PsnSpace::Responses,
                ..requests
            };
            for key in [requests, responses] {
                if let Some(slot) = self.flows.slot(&key) {
                    self.with_flow(slot, &mut f);
                }
            }
        }
    }

    /// An acknowledgment passed, from a receiving host toward one whose requests leave here. Costs, once
    /// it is known whose requests it acknowledges, three look-ups and O(blocks that it lets go of).
    pub fn on_ack(&mut self, now: Instant, ack: &Ack) {
        if !self.learns() {
            return;
        }
        self.sh.counters.acks += 1;
        let told = self.learn.connections.sender_of(ack.way, ack.qp);
        let candidates = Sent {
            by_way: &self.learn.flows,
            flows: &self.flows,
            sh: &self.sh,
            now,
        };
        let Some(qp) = told.or_else(|| self.learn.pairs.on_ack(ack, &candidates)) else {
            self.sh.counters.acks_unmatched += 1;
            return;
        };
        let key = ack.way.reversed().requests(qp);
        let flow = self
            .flows
            .slot(&key)
            .and_then(|slot| self.flows.get_mut(slot));
        let agrees = flow.is_some_and(|flow| flow.acknowledged(ack.next(), &mut self.sh));
        if !agrees {
            self.sh.counters.acks_unmatched += 1;
            self.learn.pairs.doubt(ack);
        } else if let Some(mtu) = ack.mtu {
            self.learn_mtu(now, &key, mtu);
        }
    }
}

impl<B: PktBuf> Flow<B> {
    /// Whether this PSN is one of those sent within the last two round trips.
    fn sent_lately(&self, psn: Psn, sh: &Shared<B>, now: Instant) -> bool {
        let back = self.track.next().distance_from(psn);
        let srtt = self.rtt(sh).0.unwrap_or(Duration::from_millis(100));
        let micros = u64::try_from(srtt.as_micros()).unwrap_or(u64::MAX);
        let sent = self.track.rate(now).saturating_mul(micros) / 500_000;
        let packets = sent.saturating_add(LATE_MIN).min(self.track.new_packets);
        let lately = self.track.positions_of(packets);
        u64::try_from(back).is_ok_and(|back| (1..=lately).contains(&back))
    }

    /// Everything before `next` has arrived at the host; `false` if it cannot have.
    fn acknowledged(&mut self, next: Psn, sh: &mut Shared<B>) -> bool {
        let ahead = next.distance_from(self.track.next());
        let possible = (-MAX_BEHIND..=0).contains(&ahead);
        if possible && let Some(binding) = &mut self.binding {
            binding.let_go_before(next, sh);
        }
        possible
    }

    /// The queue pair is that of another connection from now on (AMB-QPREUSE).
    fn begin_anew(&mut self, mtu: Option<u16>, sh: &mut Shared<B>, now: Instant) {
        if self.track.new_packets > 0 {
            sh.counters.qp_reused += 1;
            let cause = Cause::Close(Unprotected::QpReuse, CloseReason::FlowEnded);
            self.step(Input::Reset, cause, sh, now);
        }
        self.track.begin_anew(mtu);
    }
}

impl<B> Binding<B> {
    /// Lets go of the packets of blocks that end before `next`, each once.
    fn let_go_before(&mut self, next: Psn, sh: &mut Shared<B>) {
        let mut index = self.acknowledged.map_or(0, |done| {
            self.closed
                .partition_point(|closed| done.is_after(closed.start))
        });
        while let Some(closed) = self.closed.get(index) {
            let end = closed.start.add(i32::from(closed.k));
            if end.is_after(next) {
                return;
            }
            sh.counters.retain_acknowledged += u64::from(sh.retained.let_go(closed.id));
            self.acknowledged = Some(end);
            index += 1;
        }
    }
}
