//! The Path Reporter: tells the CSF of a flow what a node on its path knows of losses and queueing (CREM,
//! On-Path Path Reports). Sans-IO like the rest: the node calls in with what it dropped, how long packets
//! wait and what marking periods show, and sends the messages that come out.
//!
//! A report leaves an aggregation interval after the first thing that it tells, when the rate limits of its
//! flow and of its port give it a turn; what is not told yet goes with the next one. Counting by marks
//! is in `altmark`, messages are laid out in `message.rs`.
//!
//! # Cost
//!
//! One table look-up for each drop and each delay told. Messages are allocated; nothing else is once a flow
//! is known. Everything is bounded by [`ReporterConfig`].

pub mod altmark;
mod config;
mod counters;
mod limit;
mod local;
mod marked;
mod message;
mod pending;
#[cfg(test)]
mod tests;

pub use config::{ReporterConfig, SourcePrefix};
pub use counters::ReporterCounters;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use crem_wire::Psn;
use crem_wire::crem::registry::{LossCause, Method};
use crem_wire::crem::{FlowDescriptor, PathReport};

use self::altmark::PeriodLoss;
use self::limit::Pacer;
use self::local::Local;
use self::marked::{Added, Marked};
use self::pending::{Own, Pending, Stage};
use crate::table::{BoundedTable, Class};
use crate::time::{Duration, Instant};
use crate::timer::Timers;

/// A packet of a flow as the node saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Observed {
    /// The flow: addresses and destination QP.
    pub flow: FlowDescriptor,
    /// Port of the node, 0 and up.
    pub port: u16,
    /// DSCP of the packet, which the report takes over (AMB-CTRLDSCP).
    pub dscp: u8,
}

/// A report to send: UDP from the CREM port to `to`, Not-ECT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// Address of the CSF, or of the flow's source, and the CREM port.
    pub to: SocketAddr,
    /// DSCP to send with.
    pub dscp: u8,
    /// Port of the node that the flow passed.
    pub port: u16,
    /// The message.
    pub report: PathReport,
}

/// What is to be done with a report of another node that passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passing {
    /// It leaves as part of ours: drop it.
    Merged,
    /// Forward it as it is.
    Forward,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    flow: FlowDescriptor,
    method: Method,
}

/// A Path Reporter.
#[derive(Debug)]
pub struct Reporter {
    cfg: ReporterConfig,
    flows: BoundedTable<Key, Pending>,
    ports: Vec<Pacer>,
    timers: Timers,
    /// Number of the next entry of our own drops.
    next_period: u32,
    out: VecDeque<Outgoing>,
    counters: ReporterCounters,
}

impl Reporter {
    /// A reporter that knows nothing yet. It numbers the entries of its own drops from `first_period` on: a
    /// random one, or a CSF may take the first entries after a restart for repeated ones.
    pub fn new(cfg: ReporterConfig, first_period: u32) -> Self {
        let pacer = Pacer::new(cfg.reports_per_port);
        Self {
            flows: BoundedTable::new(cfg.max_flows),
            ports: alloc::vec![pacer; usize::from(cfg.ports.max(1))],
            timers: Timers::default(),
            next_period: first_period,
            out: VecDeque::new(),
            counters: ReporterCounters::default(),
            cfg,
        }
    }

    /// The node dropped a packet with this PSN.
    pub fn on_drop(&mut self, now: Instant, packet: &Observed, psn: Psn, cause: LossCause) {
        self.counters.drops += 1;
        let Some(slot) = self.flow(packet, Method::NodeLocal) else {
            return;
        };
        if let Some(pending) = self.flows.get_mut(slot)
            && let Own::Local(local) = &mut pending.own
            && !local.drop(psn, cause)
        {
            pending.cut = true;
            self.counters.psns_left_out += 1;
        }
        self.wake(slot, now);
    }

    /// A packet finds a queue in which it waits for `delay`. Call it for every packet of a flow, or for some.
    pub fn on_delay(&mut self, now: Instant, packet: &Observed, delay: Duration) {
        let step = self.cfg.delay_step;
        let Some(slot) = self.flow(packet, Method::NodeLocal) else {
            return;
        };
        let news = match self.flows.get_mut(slot).map(|pending| &mut pending.own) {
            Some(Own::Local(local)) => local.delay(delay, step),
            _ => false,
        };
        if news {
            self.wake(slot, now);
        }
    }

    /// A marking period of the flow was compared with what passed upstream (see [`altmark::MarkCompare`]).
    pub fn on_period(&mut self, now: Instant, packet: &Observed, period: &PeriodLoss) {
        self.counters.periods += 1;
        self.counters.marked_losses += u64::from(period.lost);
        let (node, step) = (self.cfg.node, self.cfg.delay_step);
        let Some(slot) = self.flow(packet, Method::AlternateMarking) else {
            return;
        };
        let added = match self.flows.get_mut(slot).map(|pending| &mut pending.own) {
            Some(Own::Marked(marked)) => marked.add(node, period, step),
            _ => Added::Nothing,
        };
        self.counters.periods_folded += u64::from(added == Added::Folded);
        if added != Added::Nothing {
            self.wake(slot, now);
        }
    }

    /// A report of the node at `from` passes on its way to `to`. It is taken in if that node is on the list,
    /// the report goes where ours on this flow do, and there is room; it then leaves within the aggregation
    /// interval, as it would have left anyway. `packet` is the flow of the report as it leaves here.
    pub fn on_report(
        &mut self,
        now: Instant,
        (from, to): (IpAddr, IpAddr),
        packet: &Observed,
        report: &PathReport,
    ) -> Passing {
        let taken = self.take_in(now, (from, to), packet, report).is_some();
        if taken {
            self.counters.merged += 1;
            Passing::Merged
        } else {
            self.counters.not_merged += 1;
            Passing::Forward
        }
    }

    fn take_in(
        &mut self,
        now: Instant,
        (from, to): (IpAddr, IpAddr),
        packet: &Observed,
        report: &PathReport,
    ) -> Option<()> {
        let method = Method::from_code(report.method)?;
        let ours = self.cfg.destination(report.flow.source) == Some(to);
        if !ours || !self.cfg.may_merge(from) || packet.flow != report.flow {
            return None;
        }
        let slot = self.flow(packet, method)?;
        let room = message::room(&report.flow, to, self.cfg.mtu());
        let pending = self.flows.get_mut(slot)?;
        if !pending.can_carry(&report.hops, room) {
            return None;
        }
        pending.carried.extend(report.hops.iter().cloned());
        pending.cut |= report.truncated;
        if pending.stage == Stage::Idle {
            pending.stage = Stage::Gathering;
        }
        // Sooner than a turn that our own part may be waiting for.
        self.timers.set_earlier(slot, now + self.cfg.interval);
        self.flows.set_class(slot, Class::Pinned);
        Some(())
    }

    /// Makes the reports that are due.
    pub fn on_timeout(&mut self, now: Instant) {
        while let Some(slot) = self.timers.pop_due(now) {
            if let Some(turn) = self.turn(slot, now) {
                self.counters.reports_delayed += 1;
                self.timers.set(slot, turn);
            } else {
                self.report(slot, now);
            }
        }
    }

    /// When `on_timeout` is to be called next.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Takes the next report to send.
    pub fn poll_transmit(&mut self) -> Option<Outgoing> {
        self.out.pop_front()
    }

    /// The counters.
    pub fn counters(&self) -> ReporterCounters {
        self.counters
    }

    /// The slot of a flow, made if need be; `None` outside the domain.
    fn flow(&mut self, packet: &Observed, method: Method) -> Option<u32> {
        if self.cfg.destination(packet.flow.source).is_none() {
            self.counters.outside_domain += 1;
            return None;
        }
        let key = Key {
            flow: packet.flow,
            method,
        };
        if self.flows.slot(&key).is_none() {
            self.make_room();
            let own = match method {
                Method::NodeLocal => Own::Local(Local::default()),
                Method::AlternateMarking => Own::Marked(Marked::default()),
                Method::ClusteredAlternateMarking => return None,
            };
            let pending = Pending {
                own,
                port: packet.port,
                dscp: packet.dscp,
                pacer: Pacer::new(self.cfg.reports_per_flow),
                stage: Stage::Idle,
                carried: Vec::new(),
                cut: false,
            };
            self.flows.insert(key, pending).ok()?;
        }
        let slot = self.flows.slot(&key)?;
        self.flows.touch(slot);
        if let Some(pending) = self.flows.get_mut(slot) {
            (pending.port, pending.dscp) = (packet.port, packet.dscp);
        }
        Some(slot)
    }

    /// Forgets the flow without anything to tell that was seen last the longest time ago, or failing that
    /// one with.
    fn make_room(&mut self) {
        if !self.flows.is_full() {
            return;
        }
        let idle = self.flows.oldest(Class::Candidate);
        let Some(slot) = idle.or_else(|| self.flows.oldest(Class::Pinned)) else {
            return;
        };
        self.timers.clear(slot);
        if let Some((_, pending)) = self.flows.remove(slot)
            && pending.stage != Stage::Idle
        {
            self.counters.flows_evicted += 1;
            self.counters.losses_forgotten += pending.lost();
        }
    }

    /// There is something to tell of this flow.
    fn wake(&mut self, slot: u32, now: Instant) {
        if let Some(pending) = self.flows.get_mut(slot)
            && pending.stage == Stage::Idle
        {
            pending.stage = Stage::Gathering;
            self.timers.set(slot, now + self.cfg.interval);
            self.flows.set_class(slot, Class::Pinned);
        }
    }

    /// Moves a flow to its next stage; the time to wait for, or `None` if it may report now. A report that
    /// carries another node's entries takes the place of that one and needs no turn.
    fn turn(&mut self, slot: u32, now: Instant) -> Option<Instant> {
        let pending = self.flows.get_mut(slot)?;
        if !pending.carried.is_empty() {
            return None;
        }
        if pending.stage == Stage::Gathering {
            pending.stage = Stage::FlowTurn;
            let at = pending.pacer.turn(now);
            if at > now {
                return Some(at);
            }
        }
        if pending.stage == Stage::FlowTurn {
            pending.stage = Stage::PortTurn;
            let last = self.ports.len().saturating_sub(1);
            let port = self.ports.get_mut(usize::from(pending.port).min(last))?;
            let at = port.turn(now);
            return (at > now).then_some(at);
        }
        None
    }

    /// Makes the report of a flow.
    fn report(&mut self, slot: u32, now: Instant) {
        let Some(key) = self.flows.key(slot).copied() else {
            return;
        };
        let Some(to) = self.cfg.destination(key.flow.source) else {
            return;
        };
        let Some(pending) = self.flows.get_mut(slot) else {
            return;
        };
        let mut hops = pending.take(self.cfg.node, &mut self.next_period);
        pending.stage = Stage::Idle;
        let room = message::room(&key.flow, to, self.cfg.mtu());
        let left_out = message::cut(&mut hops, room);
        let truncated = core::mem::take(&mut pending.cut) || left_out > 0;
        let (dscp, port, more) = (pending.dscp, pending.port, pending.has_own());
        if more {
            self.wake(slot, now);
        } else {
            self.flows.set_class(slot, Class::Candidate);
        }
        self.counters.psns_left_out += left_out as u64;
        if hops.is_empty() {
            return;
        }
        self.counters.reports_truncated += u64::from(truncated);
        self.send(Outgoing {
            to: SocketAddr::new(to, self.cfg.crem_port),
            dscp,
            port,
            report: PathReport {
                truncated,
                method: key.method.code(),
                flow: key.flow,
                hops,
            },
        });
    }

    fn send(&mut self, outgoing: Outgoing) {
        if self.out.len() >= self.cfg.max_transmits as usize {
            self.counters.transmit_dropped += 1;
            return;
        }
        self.counters.reports += 1;
        self.out.push_back(outgoing);
    }
}
