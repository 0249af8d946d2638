//! Monitor mode at the end of the path: what arrived of each flow, what was lost on the way, and what policy
//! would have chosen for that. Nothing is sent, held or coded. The sender function lists the flows that leave;
//! here are those that come.
//!
//! Loss on the way is told from reordering by time alone: what fills a gap within the reordering allowance was
//! late, what comes later was sent again by its host (AMB-HOLD, AMB-LREXP).

mod recent;
mod watched;

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use core::ops::Range;

use self::watched::Watched;
use crate::config::CoreConfig;
use crate::events::Unprotected;
use crate::memory::Memory;
use crate::packet::{Desc, StreamKey};
use crate::policy::{self, Choice, Demand, Losses, Rules};
use crate::table::{BoundedTable, Class};
use crate::time::{Duration, Instant};
use crate::timer::Timers;

/// Round trip that a choice is made for while none is configured: nothing is exchanged that could be measured.
const ASSUMED_RTT: Duration = Duration::from_millis(10);
/// Bound of the reordering allowance, which is otherwise a quarter of the configured round trip.
const ALLOWANCE: Duration = Duration::from_millis(1);

/// What was seen of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Packets.
    pub packets: u64,
    /// Packets with CE.
    pub ce: u64,
    /// Positions whose packet did not come in time.
    pub lost: u64,
    /// Runs of them.
    pub gaps: u64,
    /// The longest run, positions.
    pub longest: u32,
    /// Packets that came late and still filled a gap in time.
    pub reordered: u64,
    /// Packets whose PSN had been lost: their host sent them again.
    pub resent: u64,
    /// Packets whose PSN had arrived: duplicates, and what a host that goes back sends again needlessly.
    pub duplicates: u64,
    /// Packets so far behind that it is not known whether their PSN had arrived.
    pub behind: u64,
    /// Jumps so wide that what lies between is no loss.
    pub jumps: u64,
}

impl Seen {
    /// Adds what came between `before` and `after` of one flow.
    fn add(&mut self, before: &Self, after: &Self) {
        self.packets += after.packets - before.packets;
        self.ce += after.ce - before.ce;
        self.lost += after.lost - before.lost;
        self.gaps += after.gaps - before.gaps;
        self.longest = self.longest.max(after.longest);
        self.reordered += after.reordered - before.reordered;
        self.resent += after.resent - before.resent;
        self.duplicates += after.duplicates - before.duplicates;
        self.behind += after.behind - before.behind;
        self.jumps += after.jumps - before.jumps;
    }
}

/// What policy would have chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WouldChoose {
    /// Block length and symbols.
    pub choice: Choice,
    /// Share of repair, m / k.
    pub overhead: f64,
    /// Share of packets that the symbols sent ahead would not have restored, 0 ..= 1.
    pub residual: f64,
}

/// A flow in monitor mode.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MonitoredFlow {
    /// The stream.
    pub key: StreamKey,
    /// Always [`Unprotected::Monitor`].
    pub unprotected: Unprotected,
    /// What was seen.
    pub seen: Seen,
    /// Estimated loss rate, 0 ..= 1.
    pub loss: f64,
    /// Estimated mean length of runs of losses, packets.
    pub burst: f64,
    /// What policy would have chosen for that.
    pub would: WouldChoose,
}

/// The flows that come from the path.
#[derive(Debug)]
pub struct Monitor {
    flows: BoundedTable<StreamKey, Box<Watched>>,
    timers: Timers,
    cfg: CoreConfig,
    evicted: u64,
    /// Of all flows, those too that are forgotten.
    total: Seen,
}

impl Monitor {
    /// Without flows; as many as [`CrfConfig::max_flows`](crate::config::CrfConfig) at most.
    pub fn new(cfg: CoreConfig) -> Self {
        Self {
            flows: BoundedTable::new(cfg.crf.max_flows),
            timers: Timers::default(),
            cfg,
            evicted: 0,
            total: Seen::default(),
        }
    }

    /// Takes another configuration. The table keeps its bound.
    pub fn set_config(&mut self, cfg: CoreConfig) {
        self.cfg = cfg;
    }

    /// Packets from the path, in their order. Constant time each, but for what they fill.
    pub fn on_burst<B>(&mut self, now: Instant, burst: &[Desc<B>]) {
        let allowance = self.allowance();
        for run in burst.chunk_by(|a, b| a.key == b.key) {
            let Some(slot) = run.first().and_then(|first| self.slot_of(first.key)) else {
                continue;
            };
            let Some(flow) = self.flows.get_mut(slot) else {
                continue;
            };
            let before = flow.seen;
            for packet in run {
                flow.on_packet(packet, self.cfg.fec.rdma_mtu, allowance, now);
            }
            self.total.add(&before, &flow.seen);
            let due = flow.due(allowance, self.cfg.crf.idle);
            self.timers.set_earlier(slot, due);
        }
    }

    fn slot_of(&mut self, key: StreamKey) -> Option<u32> {
        if let Some(slot) = self.flows.slot(&key) {
            self.flows.touch(slot);
            return Some(slot);
        }
        if self.flows.is_full() {
            let oldest = self.flows.oldest(Class::Candidate)?;
            self.flows.remove(oldest);
            self.timers.clear(oldest);
            self.evicted += 1;
        }
        self.flows.insert(key, Box::default()).ok()
    }

    /// Settles gaps whose time is over and forgets flows at rest.
    pub fn on_timeout(&mut self, now: Instant) {
        let (allowance, idle) = (self.allowance(), self.cfg.crf.idle);
        while let Some(slot) = self.timers.pop_due(now) {
            let Some(flow) = self.flows.get_mut(slot) else {
                continue;
            };
            let before = flow.seen;
            flow.settle(allowance, now);
            self.total.add(&before, &flow.seen);
            if flow.is_idle(idle, now) {
                self.flows.remove(slot);
            } else {
                let due = flow.due(allowance, idle);
                self.timers.set(slot, due);
            }
        }
    }

    /// When [`Monitor::on_timeout`] is to be called next.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Flows given up because the table was full.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// What was seen of all flows since the start, those too that are forgotten.
    pub fn total(&self) -> &Seen {
        &self.total
    }

    /// Every flow, in no particular order. Reckons what policy would choose: for status, not for every burst.
    pub fn flows(&self) -> impl Iterator<Item = MonitoredFlow> {
        self.flows_in(0..self.slots())
    }

    /// The flows in some slots of the table, so that thousands can be listed a few at a time.
    pub fn flows_in(&self, slots: Range<u32>) -> impl Iterator<Item = MonitoredFlow> {
        let flows = self.flows.iter_in(slots);
        flows.map(|(_, key, flow)| MonitoredFlow {
            key: *key,
            unprotected: Unprotected::Monitor,
            seen: flow.seen,
            loss: flow.loss.rate(),
            burst: flow.burst.mean(),
            would: self.would_choose(flow),
        })
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

    /// Octets of memory held now.
    pub fn memory(&self) -> Memory {
        let flows = self.flows.iter();
        let flow_state: usize = flows.map(|(_, _, flow)| flow.octets()).sum();
        Memory {
            flows: self.flows.len() as u64,
            flow_state: flow_state as u64,
            tables: (self.flows.octets() + self.timers.octets()) as u64,
            packets: 0,
        }
    }

    fn allowance(&self) -> Duration {
        let quarter = self.cfg.domain_rtt.map_or(ALLOWANCE, |rtt| rtt / 4);
        quarter.min(ALLOWANCE)
    }

    fn would_choose(&self, flow: &Watched) -> WouldChoose {
        let fec = &self.cfg.fec;
        let losses = Losses {
            rate: flow.loss.rate(),
            burst: flow.burst.mean(),
        };
        let demand = Demand {
            current: None,
            spacing: flow.spacing(),
            min_rtt: self.cfg.domain_rtt.unwrap_or(ASSUMED_RTT),
            burst_length: None,
            open_floor: 1,
        };
        let rules = Rules {
            k: fec.k,
            k_max: fec.max_k,
            adapt: fec.adapt_k,
        };
        let choice = policy::choose(&demand, &rules, |k| {
            policy::need(k, losses, &fec.targets, fec.bounds(k, u8::MAX))
        });
        WouldChoose {
            choice,
            overhead: f64::from(choice.m) / f64::from(choice.k.max(1)),
            residual: policy::residual_rate(choice.k, choice.m, losses.rate),
        }
    }
}
