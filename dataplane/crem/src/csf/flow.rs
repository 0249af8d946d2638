//! One flow: its place in the negotiation, what is observed of it, and what it is bound to. The files
//! around this one add its behaviour: `negotiate.rs` HELLO to CLOSE, `repair.rs` blocks and symbols,
//! `answer.rs` requests, `report.rs` reports and policy.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use crem_wire::crem::{Limits, Message, PsnRange};
use crem_wire::{FlowId, Psn, Qpn};
use hashbrown::HashMap;

use super::admission::{Admission, Rank};
use super::ahead::Begun;
use super::answer::Deferred;
use super::block::OpenBlock;
use super::counters::CsfCounters;
use super::early::Early;
use super::elsewhere::FlowIdChange;
use super::params::{Pace, Params};
use super::path::Path;
use super::path_report::{Owed, PathIntake};
use super::peers::Peers;
use super::probe::Probe;
use super::report::Reports;
use super::retain::{BlockId, Retention};
use super::states::State;
use super::track::Track;
use super::volume::Volume;
use crate::actions::{Actions, Transmit};
use crate::bucket::{RatioBucket, TimeBucket};
use crate::config::CoreConfig;
use crate::events::{EventQueue, Unprotected};
use crate::packet::{PsnSpace, StreamKey};
use crate::policy::{BurstLength, DelaySum};
use crate::rng::Rng;
use crate::table::BoundedTable;
use crate::time::{Duration, Instant};
use crate::timer::Timers;

/// Round-trip time taken where none is known; a binding always knows at least an upper bound.
const UNKNOWN_RTT: Duration = Duration::from_millis(100);
/// Floor of the burst timeout before the round-trip bound (AMB-BURSTEND).
const BURST_FLOOR: Duration = Duration::from_micros(200);

/// What HELLO names a flow by: equal for streams that differ in the namespace only.
pub(super) type Descriptor = (IpAddr, IpAddr, Qpn, PsnSpace);

/// What all flows share.
#[derive(Debug)]
pub(super) struct Shared<B> {
    pub(super) cfg: CoreConfig,
    pub(super) peers: Peers,
    /// By the address that flows are bound to.
    pub(super) paths: BoundedTable<SocketAddr, Path>,
    pub(super) by_id: HashMap<(SocketAddr, FlowId), u32>,
    /// Changes of `by_id` that other workers are to know of.
    pub(super) flow_ids: VecDeque<FlowIdChange>,
    pub(super) by_nonce: HashMap<u64, u32>,
    pub(super) descriptors: HashMap<Descriptor, u32>,
    pub(super) hello_bucket: TimeBucket,
    pub(super) admission: Admission,
    pub(super) retained: Retention<B>,
    pub(super) begun: Begun,
    pub(super) timers: Timers,
    pub(super) rng: Rng,
    pub(super) counters: CsfCounters,
    pub(super) events: EventQueue,
    pub(super) outbox: VecDeque<Transmit<B>>,
    /// Work space for the ranges of one request.
    pub(super) ranges: Vec<PsnRange>,
    /// What is remembered of path reports.
    pub(super) path: PathIntake,
}

impl<B> Shared<B> {
    /// Queues a message.
    pub(super) fn send(&mut self, to: SocketAddr, message: Message, dscp: u8, along: Option<B>) {
        if self.outbox.len() >= self.cfg.max_transmits as usize {
            self.counters.transmit_dropped += 1;
            return;
        }
        let dscp = self.cfg.control_dscp.unwrap_or(dscp);
        self.outbox.push_back(Transmit {
            to,
            message,
            dscp,
            along,
        });
    }
}

/// What a call into a flow works with.
pub(super) struct Io<'a, B> {
    pub(super) sh: &'a mut Shared<B>,
    pub(super) actions: &'a mut Actions<B>,
    pub(super) now: Instant,
}

/// What a call into a binding works with.
pub(super) struct Ctx<'a, B> {
    pub(super) sh: &'a mut Shared<B>,
    pub(super) actions: &'a mut Actions<B>,
    pub(super) now: Instant,
    pub(super) who: &'a Who,
    pub(super) counts: &'a mut FlowCounts,
}

/// Facts of a flow that its binding needs, taken together once per call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who {
    pub(super) slot: u32,
    pub(super) key: StreamKey,
    pub(super) dscp: u8,
    pub(super) srtt: Duration,
    pub(super) min_rtt: Duration,
    pub(super) pace: Pace,
    pub(super) spacing: Duration,
    /// The longest symbol that was found to reach the peer, octets.
    pub(super) carried: u16,
}

impl Who {
    /// How long a closed block is kept (AMB-KEEP).
    pub(super) fn keep(&self, floor: Duration) -> Duration {
        (self.srtt * 8).max(floor)
    }

    /// Without a new source for this long a burst has ended (AMB-BURSTEND).
    pub(super) fn burst_timeout(&self) -> Duration {
        (self.min_rtt / 4).min(BURST_FLOOR.max(self.spacing * 4))
    }
}

/// A HELLO exchange.
#[derive(Debug)]
pub(super) struct HelloTry<B> {
    pub(super) nonce: u64,
    pub(super) sent: u8,
    pub(super) began: Instant,
    pub(super) next_at: Instant,
    pub(super) gap: Duration,
    pub(super) rdma_mtu: u16,
    pub(super) along: Option<B>,
}

/// A closed block as the flow finds it by PSN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed {
    pub(super) start: Psn,
    pub(super) k: u8,
    pub(super) id: BlockId,
}

/// Counts of one flow, for its status.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowCounts {
    /// New source packets.
    pub sources: u64,
    /// Packets at or behind the highest PSN.
    pub behind: u64,
    /// Blocks closed.
    pub blocks: u64,
    /// Ordinary symbols sent.
    pub ordinary: u64,
    /// Coded retransmission symbols sent.
    pub coded: u64,
    /// Source Copies sent.
    pub copies: u64,
    /// INFO sent, asked for or not.
    pub info: u64,
    /// Source packets that reports call lost.
    pub reported_lost: u64,
    /// Source packets that reports call expected.
    pub reported_expected: u64,
    /// Packets that reports call restored.
    pub reported_restored: u64,
}

/// What a flow is bound to, and everything that ends with the binding.
#[derive(Debug)]
pub(super) struct Binding<B> {
    pub(super) to: SocketAddr,
    pub(super) id: FlowId,
    /// Limits of both sides.
    pub(super) limits: Limits,
    pub(super) max_open_blocks: u16,
    pub(super) rdma_mtu: u16,
    pub(super) params: Params,
    /// The first configuration took force: the buckets are set.
    pub(super) in_force: bool,
    pub(super) open: Option<OpenBlock<B>>,
    /// Ascending by PSN; entries at the front may have been given up by the store.
    pub(super) closed: VecDeque<Closed>,
    /// Blocks before this have been acknowledged by the host and hold no packets any more.
    pub(super) acknowledged: Option<Psn>,
    /// From here to the highest PSN every position is in a block, or carried no source.
    pub(super) known_from: Option<Psn>,
    pub(super) last_source: Instant,
    /// +m/k per source, in symbols.
    pub(super) packet_tokens: RatioBucket,
    /// The octet cap, in octets.
    pub(super) octet_tokens: RatioBucket,
    /// Unsolicited INFO, +1/k per source.
    pub(super) info_tokens: RatioBucket,
    /// INFO for stretches without blocks.
    pub(super) stretch_tokens: TimeBucket,
    /// Share of the blocks that the CRF can hold: carries the remainder.
    pub(super) block_share: u64,
    pub(super) volume: Volume,
    pub(super) deferred: Option<Deferred>,
    /// Blocks of which nodes on the path dropped packets.
    pub(super) owed: Owed,
    pub(super) reports: Reports,
    /// Whether symbols reach the peer.
    pub(super) probe: Probe,
    /// Growth of the queueing delay that hops report for the flow.
    pub(super) queue_delay: DelaySum,
    pub(super) burst_length: BurstLength,
    /// PSN after the last position that a request named, as long as nothing else was named.
    pub(super) run_end: Option<Psn>,
    pub(super) bound_at: Instant,
    pub(super) silent_since: Instant,
    pub(super) active_since: Option<Instant>,
}

impl<B> Binding<B> {
    /// Whether the breaker of the flow or of its path is open.
    pub(super) fn is_broken(&self, sh: &Shared<B>) -> bool {
        self.reports.breaker.is_open() || sh.path(self.to).is_some_and(|p| p.breaker.is_open())
    }

    /// Finds the closed block that covers `psn`.
    pub(super) fn closed_at(&self, psn: Psn) -> Option<usize> {
        let index = self
            .closed
            .partition_point(|c| c.start.distance_from(psn) <= 0)
            .checked_sub(1)?;
        let found = self.closed.get(index)?;
        (0..i32::from(found.k))
            .contains(&psn.distance_from(found.start))
            .then_some(index)
    }

    /// Gives up all blocks, open and closed.
    pub(super) fn clear_blocks(&mut self, slot: u32, sh: &mut Shared<B>) {
        if let Some(open) = self.open.take() {
            sh.begun.abandon(open.begun);
            sh.retained.abandon(slot, open.sources);
        }
        for closed in self.closed.drain(..) {
            sh.retained.release(closed.id);
        }
        self.known_from = None;
        self.deferred = None;
        self.owed.clear();
    }
}

/// A flow.
#[derive(Debug)]
pub(super) struct Flow<B> {
    pub(super) slot: u32,
    pub(super) key: StreamKey,
    pub(super) state: State,
    /// Why it is not protected, as long as it is not.
    pub(super) reason: Unprotected,
    pub(super) track: Track,
    pub(super) peer: Option<u32>,
    pub(super) claimed: bool,
    pub(super) hello: Option<Box<HelloTry<B>>>,
    pub(super) binding: Option<Box<Binding<B>>>,
    pub(super) held_until: Instant,
    pub(super) hold_off: Duration,
    /// How long the next CLOSE for the breaker keeps it from being offered again (AMB-CBRETRY).
    pub(super) breaker_hold: Duration,
    pub(super) mtu_changes: u8,
    pub(super) rank: Rank,
    pub(super) early: Early,
    pub(super) counts: FlowCounts,
    /// To be removed from the table by the caller.
    pub(super) doomed: bool,
}

impl<B> Flow<B> {
    pub(super) fn new(slot: u32, key: StreamKey, cfg: &CoreConfig) -> Self {
        Self {
            slot,
            key,
            state: State::Observing,
            reason: Unprotected::BelowThreshold {
                seen: 0,
                needed: cfg.csf.start_after,
            },
            track: Track::default(),
            peer: None,
            claimed: false,
            hello: None,
            binding: None,
            held_until: Instant(0),
            hold_off: cfg.csf.retry_first,
            breaker_hold: cfg.csf.breaker_retry,
            mtu_changes: 0,
            rank: Rank::default(),
            early: Early::default(),
            counts: FlowCounts::default(),
            doomed: false,
        }
    }

    /// Smoothed and minimum round-trip time of the peer, as far as known.
    pub(super) fn rtt(&self, sh: &Shared<B>) -> (Option<Duration>, Option<Duration>) {
        let rtt = self
            .peer
            .and_then(|slot| sh.peers.get(slot))
            .map(|peer| &peer.rtt);
        let domain = sh.cfg.domain_rtt;
        (
            rtt.and_then(|r| r.srtt()).or(domain),
            rtt.and_then(|r| r.min()).or(domain),
        )
    }

    pub(super) fn who(&self, sh: &Shared<B>, now: Instant) -> Who {
        let (srtt, min_rtt) = self.rtt(sh);
        let srtt = srtt.unwrap_or(UNKNOWN_RTT);
        let rate = self.track.rate(now);
        Who {
            slot: self.slot,
            key: self.key,
            dscp: self.track.dscp,
            srtt,
            min_rtt: min_rtt.unwrap_or(srtt),
            pace: Pace {
                next: self.track.next(),
                rate,
                srtt,
            },
            spacing: self.track.spacing(now),
            carried: self
                .peer
                .and_then(|slot| sh.peers.get(slot))
                .map_or(0, |peer| peer.carries.proven(now)),
        }
    }

    /// The RDMA MTU to announce: the one seen, else the configured one.
    pub(super) fn rdma_mtu(&self, sh: &Shared<B>) -> u16 {
        self.track.mtu.unwrap_or(sh.cfg.fec.rdma_mtu)
    }

    /// Runs `f` on the binding, if there is one.
    pub(super) fn with_binding(
        &mut self,
        io: &mut Io<'_, B>,
        f: impl FnOnce(&mut Binding<B>, &mut Ctx<'_, B>),
    ) {
        let who = self.who(io.sh, io.now);
        if let Some(binding) = &mut self.binding {
            let counts = &mut self.counts;
            f(
                binding,
                &mut Ctx {
                    sh: io.sh,
                    actions: io.actions,
                    now: io.now,
                    who: &who,
                    counts,
                },
            );
        }
    }

    pub(super) fn descriptor(&self) -> Descriptor {
        (
            self.key.source,
            self.key.destination,
            self.key.qp,
            self.key.space,
        )
    }

    /// Whether blocks are formed and coded now.
    pub(super) fn is_protected(&self) -> bool {
        self.state == State::Active
            && self
                .binding
                .as_ref()
                .is_some_and(|binding| binding.params.active().is_some())
    }

    /// The earliest time at which something has to be done for this flow.
    pub(super) fn deadline(&self, sh: &Shared<B>) -> Instant {
        let mut at = self.track.last_packet + sh.cfg.csf.idle;
        if self.state == State::HeldOff && self.reason == Unprotected::Breaker {
            // It is remembered for as long, packets or not.
            at = at.max(self.held_until);
        }
        let mut sooner = |t: Option<Instant>| at = t.map_or(at, |t| t.min(at));
        sooner(self.hello.as_ref().map(|hello| hello.next_at));
        let Some(binding) = &self.binding else {
            return at;
        };
        match self.state {
            State::Params | State::Active => sooner(binding.params.next_at()),
            State::SilentQueued | State::SilentHello => {
                sooner(Some(binding.silent_since + sh.cfg.csf.silence_close));
            }
            _ => {}
        }
        let who = self.who(sh, self.track.last_packet);
        if binding.open.is_some() {
            sooner(Some(binding.last_source + who.burst_timeout()));
        }
        if let Some(block) = binding.closed.iter().find_map(|c| sh.retained.get(c.id)) {
            // A quarter later than due, so that in steady traffic, where closing a block expires
            // older ones, the timer does not fire for each of them.
            let keep = who.keep(sh.cfg.csf.keep_floor);
            sooner(Some(block.closed_at + keep + keep / 4));
        }
        at
    }

    /// What the deadline depends on besides the time of the last packet, which only moves it back.
    pub(super) fn deadline_shape(&self) -> DeadlineShape {
        let binding = self.binding.as_ref();
        DeadlineShape {
            state: self.state,
            hello: self.hello.as_ref().map(|hello| hello.next_at),
            params: binding.and_then(|b| b.params.next_at()),
            open: binding.is_some_and(|b| b.open.is_some()),
            closed: binding.is_some_and(|b| !b.closed.is_empty()),
        }
    }

    /// Sets the flow's timer unless it fires earlier already; a timer that fires early is set anew.
    pub(super) fn arm(&self, sh: &mut Shared<B>) {
        let at = self.deadline(sh);
        sh.timers.set_earlier(self.slot, at);
    }
}

/// As long as this stays the same, a flow's deadline does not come earlier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DeadlineShape {
    state: State,
    hello: Option<Instant>,
    params: Option<Instant>,
    open: bool,
    closed: bool,
}
