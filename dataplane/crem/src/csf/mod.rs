//! The sender function: watches the flows that leave toward the WAN, agrees with the peer on protecting
//! them, forms blocks, emits repair, answers requests, adapts to reports.
//!
//! Sans-IO: frames are references, symbols are slots of the caller, time is an argument.
//!
//! # Cost
//!
//! Per packet `on_burst` compares the key with the previous packet's, adds to a few counters and buckets,
//! and for a protected flow takes one reference and later gives it back. Per run of packets of one flow
//! in a burst it makes one hash look-up, one table touch and one peer look-up. Per block there is one
//! code job, or with [`Ahead`] one for several packets, and, where symbols are sent, one more clone of every reference. The timer of a flow fires at
//! most once per burst timeout. Nothing of it allocates once lists and tables have grown to their working
//! size (`tests/allocations.rs`), and all of them are bounded by [`CoreConfig`]. `examples/csf_cost.rs`
//! prints what that is in nanoseconds: some 30 to 40 a packet in bursts of 32, 250 to 270 alone.
//! `examples/flows_cost.rs` prints it for both functions where thousands of flows take turns: about 1 µs a
//! packet with 100 flows and 3 to 4 µs with 10,000, whose state then comes from memory.
//!
//! A flow takes less than 2 KiB of state, tables included and packets not (`tests/memory.rs`).

mod adapt;
mod admission;
mod ahead;
mod answer;
mod block;
mod counters;
mod datagram;
mod early;
mod elsewhere;
mod flow;
mod hello;
mod learn;
mod memory;
mod messages;
mod negotiate;
mod params;
mod path;
mod path_report;
mod peers;
mod probe;
mod repair;
mod report;
mod retain;
mod sizes;
pub(crate) mod states;
mod status;
mod symbols;
pub(crate) mod track;
mod traffic;
mod volume;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use ahead::Ahead;
pub use counters::CsfCounters;
pub use datagram::{DatagramKey, DatagramStatus};
pub use elsewhere::FlowIdChange;
pub use flow::FlowCounts;
pub use path::PathStatus;
pub use states::State;
pub use status::FlowStatus;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::ops::Range;
use crem_wire::FlowId;
use crem_wire::crem::registry::CloseReason;
use hashbrown::HashMap;

use self::admission::Admission;
use self::ahead::Begun;
use self::datagram::Datagrams;
use self::flow::{Flow, Io, Shared};
use self::learn::Learn;
use self::negotiate::Cause;
use self::path_report::PathIntake;
use self::peers::Peers;
use self::retain::Retention;
use self::states::Input;
use crate::actions::{Actions, Transmit};
use crate::bucket::TimeBucket;
use crate::config::{CoreConfig, Mode};
use crate::events::{Event, EventQueue, Unprotected};
use crate::packet::{Desc, PktBuf, PsnSpace, StreamKey};
use crate::rng::Rng;
use crate::table::{BoundedTable, Class};
use crate::time::{Duration, Instant};
use crate::timer::Timers;

/// HELLO tokens that can be saved up: a hundredth of a second's worth, at least this.
const HELLO_BURST_MIN: u32 = 16;
/// A timer never fires twice within this, whatever is due.
const TIMER_STEP: Duration = Duration::from_micros(1);

/// The sender function for the flows of one worker.
#[derive(Debug)]
pub struct Csf<B> {
    flows: BoundedTable<StreamKey, Box<Flow<B>>>,
    learn: Learn,
    datagrams: Datagrams,
    sh: Shared<B>,
}

impl<B: PktBuf> Csf<B> {
    /// A sender function without flows. `seed` determines every random choice.
    pub fn new(cfg: CoreConfig, seed: [u8; 32]) -> Self {
        let csf = &cfg.csf;
        Self {
            flows: BoundedTable::new(csf.max_flows),
            learn: Learn::new(csf.max_flows),
            datagrams: Datagrams::new(),
            sh: Shared {
                peers: Peers::new(csf.max_peers),
                paths: BoundedTable::new(csf.max_peers),
                by_id: HashMap::new(),
                flow_ids: VecDeque::new(),
                by_nonce: HashMap::new(),
                descriptors: HashMap::new(),
                hello_bucket: hello_bucket(&cfg, Instant(0)),
                admission: Admission::new(),
                retained: Retention::new(csf),
                begun: Begun::default(),
                timers: Timers::default(),
                rng: Rng::new(seed),
                counters: CsfCounters::default(),
                events: EventQueue::new(cfg.max_events),
                outbox: VecDeque::new(),
                ranges: Vec::new(),
                path: PathIntake::default(),
                cfg,
            },
        }
    }

    /// From now on up to `limit` references that are given up wait in [`Csf::departed`] to be dropped by the
    /// caller.
    pub fn defer_drops(&mut self, limit: usize) {
        self.sh.retained.departed.set_limit(limit);
    }

    /// References that were given up and not dropped yet: the caller's to drop (see [`Csf::defer_drops`]).
    pub const fn departed(&mut self) -> &mut Vec<B> {
        self.sh.retained.departed.waiting()
    }

    /// Takes another configuration: retention, pacing and policy hold from now on, limits for what is
    /// negotiated from now on; other modes than active close every flow. The tables keep the bounds they
    /// were made with.
    pub fn set_config(&mut self, now: Instant, cfg: CoreConfig) {
        if cfg.mode != Mode::Active {
            self.close_all(CloseReason::Normal);
        } else if self.sh.cfg.responses && !cfg.responses {
            let all = 0..self.flows.slots();
            self.close_where(all, CloseReason::Normal, |key| {
                key.space == PsnSpace::Responses
            });
        }
        self.sh.hello_bucket = hello_bucket(&cfg, now);
        self.sh.retained.set_limits(&cfg.csf);
        self.sh.cfg = cfg;
        for slot in 0..self.sh.paths.slots() {
            if let Some(path) = self.sh.paths.get_mut(slot) {
                path.forget_needs();
            }
        }
    }

    /// Takes packets that the caller has forwarded already, in their order.
    pub fn on_burst(&mut self, now: Instant, burst: &[Desc<B>], actions: &mut Actions<B>) {
        self.sh.counters.packets += burst.len() as u64;
        self.sh.begun.give_back(actions);
        if self.sh.cfg.mode == Mode::Passthrough {
            self.sh.counters.passthrough += burst.len() as u64;
            return;
        }
        for run in burst.chunk_by(|a, b| a.key == b.key) {
            let Some(first) = run.first() else { continue };
            if first.key.space == PsnSpace::Responses && !self.sh.cfg.responses {
                self.sh.counters.responses_ignored += run.len() as u64;
                continue;
            }
            match self.flow_of(first.key, now) {
                Some(slot) => self.on_run(slot, run, now, actions),
                None => self.sh.counters.flows_no_room += run.len() as u64,
            }
        }
    }

    fn flow_of(&mut self, key: StreamKey, now: Instant) -> Option<u32> {
        if let Some(slot) = self.flows.slot(&key) {
            self.flows.touch(slot);
            return Some(slot);
        }
        if self.flows.is_full() {
            // Only merely observed flows make room: new keys must not push out protected ones.
            let victim = self.flows.oldest(Class::Candidate)?;
            self.sh.counters.flows_evicted += 1;
            let cause = Cause::Close(Unprotected::TableFull, CloseReason::ResourcesExhausted);
            self.with_flow(victim, |flow, sh| flow.step(Input::Off, cause, sh, now));
        }
        // A flow knows its slot, which the table assigns.
        let slot = self
            .flows
            .insert(key, Box::new(Flow::new(0, key, &self.sh.cfg)))
            .ok()?;
        let mtu = self.learn.flow_begins(&key, slot);
        if let Some(flow) = self.flows.get_mut(slot) {
            flow.slot = slot;
            flow.track.mtu = mtu;
        }
        self.sh.admission.wake(now);
        Some(slot)
    }

    fn on_run(&mut self, slot: u32, run: &[Desc<B>], now: Instant, actions: &mut Actions<B>) {
        self.with_flow(slot, |flow, sh| {
            flow.on_run(run, &mut Io { sh, actions, now })
        });
    }

    /// Runs `f` on a flow, then sees to its timer and its class, and removes it if it is done with.
    fn with_flow<R>(
        &mut self,
        slot: u32,
        f: impl FnOnce(&mut Flow<B>, &mut Shared<B>) -> R,
    ) -> Option<R> {
        let flow = self.flows.get_mut(slot)?;
        let before = flow.deadline_shape();
        let result = f(flow, &mut self.sh);
        if flow.doomed {
            if let Some((key, _)) = self.flows.remove(slot) {
                self.learn.flow_ends(&key, slot);
            }
            return Some(result);
        }
        let after = flow.deadline_shape();
        if before != after || self.sh.timers.get(slot).is_none() {
            flow.arm(&mut self.sh);
            let pinned = flow.state.hello_out() || flow.state.is_bound();
            let class = if pinned {
                Class::Pinned
            } else {
                Class::Candidate
            };
            self.flows.set_class(slot, class);
        }
        Some(result)
    }

    /// Serves everything that is due.
    pub fn on_timeout(&mut self, now: Instant, actions: &mut Actions<B>) {
        self.sh.begun.give_back(actions);
        while let Some(slot) = self.sh.timers.pop_due(now) {
            self.with_flow(slot, |flow, sh| flow.on_timer(&mut Io { sh, actions, now }));
            if self.sh.timers.get(slot).is_some_and(|at| at <= now) {
                self.sh.timers.set(slot, now + TIMER_STEP);
            }
        }
        self.rank_flows(now);
        self.datagrams.expire(now, self.sh.cfg.csf.idle);
    }

    /// When `on_timeout` is to be called next.
    pub fn next_timeout(&self) -> Option<Instant> {
        let ranking = (self.sh.admission.next_at()).filter(|_| !self.flows.is_empty());
        let datagrams = self.datagrams.next_timeout(self.sh.cfg.csf.idle);
        [self.sh.timers.next(), ranking, datagrams]
            .into_iter()
            .flatten()
            .min()
    }

    /// Takes the next message to send. REPAIR is not among them: it goes through [`Actions::emit`].
    pub fn poll_transmit(&mut self) -> Option<Transmit<B>> {
        self.sh.outbox.pop_front()
    }

    /// Takes the oldest event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.sh.events.pop()
    }

    /// The counters.
    pub fn counters(&self) -> CsfCounters {
        let mut counters = self.sh.counters;
        counters.retain_evicted += self.sh.retained.evicted;
        counters.events_dropped = self.sh.events.dropped;
        counters
    }

    /// Packets and octets held by reference for later repair.
    pub fn retained(&self) -> (u32, u64) {
        (self.sh.retained.packets(), self.sh.retained.octets())
    }

    /// Gives up the oldest retained blocks until `packets` references are back, as far as there are
    /// any; returns how many. For a caller whose buffers run short.
    pub fn give_up(&mut self, packets: u32) -> u32 {
        self.sh.retained.give_up(packets)
    }

    /// Whether this Flow ID is bound toward that peer here. The CRF on this side must not assign it to
    /// the same peer (AMB-CLOSEPAIR).
    pub fn uses(&self, peer: SocketAddr, id: FlowId) -> bool {
        self.sh.by_id.contains_key(&(peer, id))
    }

    /// A valid message came from a peer in its role as sender, for flows of `host`: a peer taken for
    /// dead is tried again at once (AMB-SCALE). Other addresses than those of possible peers are
    /// ignored.
    pub fn peer_alive(&mut self, from: SocketAddr, host: Option<IpAddr>) {
        let Shared {
            peers, events, cfg, ..
        } = &mut self.sh;
        if cfg.allows(from.ip()) {
            peers.alive(from, host, cfg.crem_port, |target| {
                events.push(Event::PeerAlive(target));
            });
        }
    }

    /// A peer accepted, or in the role of a receiver we accepted, an exchange for a stream of `host`: its
    /// HELLO was answered and it sent PARAM_UPDATE. After one of requests, streams of responses may be
    /// offered to it; one of responses shows that it knows that kind (AMB-READRESP).
    pub fn peer_met(&mut self, from: SocketAddr, host: IpAddr, space: PsnSpace) {
        if self.sh.cfg.allows(from.ip()) {
            let port = self.sh.cfg.crem_port;
            self.sh.peers.met(from, host, port, space);
        }
    }

    /// The RDMA MTU of a connection as its other direction shows it, in READ responses for requests of
    /// `stream` (AMB-RDMAMTU); [`Csf::on_ack`] finds it there where learning is on. Of streams that are not
    /// tracked, or have shown it themselves, and for what is no RDMA MTU, nothing happens.
    pub fn learn_mtu(&mut self, now: Instant, stream: &StreamKey, octets: u16) {
        if let Some(slot) = self.flows.slot(stream) {
            self.with_flow(slot, |flow, sh| {
                flow.track.learn_mtu(octets);
                flow.check_announced_mtu(sh, now);
            });
        }
    }

    /// Ends every flow: CLOSE with this reason where bound.
    pub fn close_all(&mut self, reason: CloseReason) {
        self.close_some(0..u32::MAX, reason);
    }

    /// The same for the flows in some slots of the table, so that thousands can be closed a few at a time. Whether
    /// there are further slots.
    pub fn close_some(&mut self, slots: Range<u32>, reason: CloseReason) -> bool {
        let end = self.flows.slots();
        self.close_where(slots.start..slots.end.min(end), reason, |_| true);
        slots.end < end
    }

    fn close_where(
        &mut self,
        slots: Range<u32>,
        reason: CloseReason,
        ends: impl Fn(&StreamKey) -> bool,
    ) {
        for slot in slots {
            if !self.flows.key(slot).is_some_and(&ends) {
                continue;
            }
            let cause = Cause::Close(Unprotected::Off, reason);
            self.with_flow(slot, |flow, sh| {
                flow.step(Input::Off, cause, sh, Instant(0))
            });
        }
    }

    /// The state of every flow, in no particular order.
    pub fn flows(&self) -> impl Iterator<Item = FlowStatus> {
        self.flows_in(0..self.slots())
    }

    /// The state of the flows in some slots of the table, so that thousands can be listed a few at a time.
    pub fn flows_in(&self, slots: Range<u32>) -> impl Iterator<Item = FlowStatus> {
        let flows = self.flows.iter_in(slots);
        flows.map(|(_, _, flow)| status::of(flow, &self.sh))
    }

    /// One past the highest slot of the table that a flow was ever in.
    pub fn slots(&self) -> u32 {
        self.flows.slots()
    }

    /// Flows in the table.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether there is no flow.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// The state of every path that flows are or were bound to, in no particular order.
    pub fn paths(&self) -> impl Iterator<Item = PathStatus> {
        path::statuses(&self.sh)
    }
}

fn hello_bucket(cfg: &CoreConfig, now: Instant) -> TimeBucket {
    let rate = cfg.csf.hello_rate;
    let depth = if rate == 0 {
        0
    } else {
        (rate / 100).max(HELLO_BURST_MIN)
    };
    TimeBucket::new(rate, depth, now)
}
