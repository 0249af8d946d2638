//! Counting the marked packets of flows at one point, by marking period.

use alloc::collections::VecDeque;
use crem_wire::altmark::AltMark;

use super::{AltMarkConfig, MarkedFlow};
use crate::counters::counters;
use crate::table::{BoundedTable, Class};
use crate::time::Instant;
use crate::timer::Timers;

/// Periods of a flow that may be open at once: the running one, its neighbours, and one that was just over.
const OPEN: usize = 4;

counters! {
    /// Counters of one [`MarkMeter`].
    MeterCounters {
        /// Marked packets counted.
        packets,
        /// Counts of whole periods.
        periods,
        /// Flows forgotten for want of room while a period of theirs was still open.
        flows_evicted,
        /// Results dropped because nobody polled.
        results_dropped,
    }
}

/// What passed a point in one period of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeriodCount {
    /// The flow.
    pub flow: MarkedFlow,
    /// Number of the period since the epoch of the domain's clock.
    pub period: u64,
    /// Packets with the colour of the period.
    pub packets: u32,
    /// Packets of them with the D mark.
    pub timed: u32,
    /// Sum of the times at which those passed, nanoseconds since the start of the period.
    pub time_sum_ns: i128,
}

/// Counts at one point.
#[derive(Debug)]
pub struct MarkMeter {
    cfg: AltMarkConfig,
    flows: BoundedTable<MarkedFlow, [Option<PeriodCount>; OPEN]>,
    timers: Timers,
    out: VecDeque<PeriodCount>,
    counters: MeterCounters,
}

impl MarkMeter {
    /// A point that saw nothing yet.
    pub fn new(cfg: AltMarkConfig) -> Self {
        Self {
            flows: BoundedTable::new(cfg.max_flows),
            timers: Timers::default(),
            out: VecDeque::new(),
            counters: MeterCounters::default(),
            cfg,
        }
    }

    /// A marked packet of the flow passes at `now` of the domain's clock. One look-up; no allocation once
    /// the flow is known.
    pub fn observe(&mut self, now: Instant, flow: MarkedFlow, mark: &AltMark) {
        self.counters.packets += 1;
        let Some(slot) = self.slot(flow) else { return };
        let nanos = self.cfg.nanos();
        let period = period_of(now, mark.loss, nanos);
        let Some(places) = self.flows.get_mut(slot) else {
            return;
        };
        let Some(place) = places.get_mut((period % OPEN as u64) as usize) else {
            return;
        };
        // What is four periods older was to be handed over long ago.
        let over = place.take_if(|count| count.period != period);
        let count = place.get_or_insert(PeriodCount {
            flow,
            period,
            packets: 0,
            timed: 0,
            time_sum_ns: 0,
        });
        count.packets = count.packets.saturating_add(1);
        if mark.delay {
            count.timed = count.timed.saturating_add(1);
            count.time_sum_ns += i128::from(now.0) - i128::from(period) * i128::from(nanos);
        }
        self.timers.set_earlier(slot, final_at(period, nanos));
        if let Some(over) = over {
            self.hand_over(over);
        }
    }

    /// Hands over the counts of periods that are over.
    pub fn on_timeout(&mut self, now: Instant) {
        let nanos = self.cfg.nanos();
        while let Some(slot) = self.timers.pop_due(now) {
            let Some(places) = self.flows.get_mut(slot) else {
                continue;
            };
            let mut over: [Option<PeriodCount>; OPEN] = [None; OPEN];
            for (place, over) in places.iter_mut().zip(&mut over) {
                *over = place.take_if(|count| final_at(count.period, nanos) <= now);
            }
            let open = places.iter().flatten();
            if let Some(next) = open.map(|count| final_at(count.period, nanos)).min() {
                self.timers.set(slot, next);
            } else {
                self.flows.set_class(slot, Class::Candidate);
            }
            over.sort_unstable_by_key(|count| count.map(|count| count.period));
            over.into_iter()
                .flatten()
                .for_each(|count| self.hand_over(count));
        }
    }

    /// When `on_timeout` is to be called next.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Takes the next count of a period that is over.
    pub fn poll(&mut self) -> Option<PeriodCount> {
        self.out.pop_front()
    }

    /// Whether packets of the flow were seen here.
    pub fn knows(&self, flow: &MarkedFlow) -> bool {
        self.flows.slot(flow).is_some()
    }

    /// The counters.
    pub fn counters(&self) -> MeterCounters {
        self.counters
    }

    fn slot(&mut self, flow: MarkedFlow) -> Option<u32> {
        if let Some(slot) = self.flows.slot(&flow) {
            self.flows.touch(slot);
            self.flows.set_class(slot, Class::Pinned);
            return Some(slot);
        }
        if self.flows.is_full() {
            let idle = self.flows.oldest(Class::Candidate);
            let victim = idle.or_else(|| self.flows.oldest(Class::Pinned))?;
            self.counters.flows_evicted += u64::from(idle.is_none());
            self.timers.clear(victim);
            self.flows.remove(victim);
        }
        let slot = self.flows.insert(flow, [None; OPEN]).ok()?;
        self.flows.set_class(slot, Class::Pinned);
        Some(slot)
    }

    fn hand_over(&mut self, count: PeriodCount) {
        if self.out.len() >= self.cfg.max_results as usize {
            self.counters.results_dropped += 1;
            return;
        }
        self.counters.periods += 1;
        self.out.push_back(count);
    }
}

/// The period that a packet of this colour belongs to: the running one or the nearer of its neighbours.
fn period_of(now: Instant, loss: bool, nanos: u64) -> u64 {
    let running = now.0 / nanos;
    if (running % 2 == 1) == loss {
        running
    } else if now.0 % nanos < nanos / 2 {
        // Before the epoch there is nothing.
        running.saturating_sub(1)
    } else {
        running + 1
    }
}

/// From then on no packet is counted for the period any more: half a period after its end.
pub(super) fn final_at(period: u64, nanos: u64) -> Instant {
    let end = period.saturating_add(1).saturating_mul(nanos);
    Instant(end.saturating_add(nanos.div_ceil(2)))
}
