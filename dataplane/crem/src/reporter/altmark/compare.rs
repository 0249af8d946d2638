//! The downstream measurement point: its own counts against those of the upstream one.

use alloc::collections::VecDeque;
use crem_wire::altmark::AltMark;

use super::meter::{MarkMeter, MeterCounters, PeriodCount, final_at};
use super::{AltMarkConfig, MarkedFlow};
use crate::counters::counters;
use crate::table::{BoundedTable, Class};
use crate::time::Instant;
use crate::timer::Timers;

counters! {
    /// Counters of one [`MarkCompare`].
    CompareCounters {
        /// Counts of the upstream point told to it.
        upstream,
        /// Periods compared.
        compared,
        /// Packets lost in them.
        lost,
        /// Periods with more packets here than upstream: duplicates, or the clocks are too far apart.
        inconsistent,
        /// Counts of either point without one of the other in time.
        unmatched,
        /// Counts of periods that had begun when this point started to count.
        partial,
        /// Counts of flows that this point never saw.
        elsewhere,
        /// Counts given up for want of room.
        crowded,
        /// Results dropped because nobody polled.
        results_dropped,
    }
}

/// What a marking period of a flow lost between the points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeriodLoss {
    /// Marking Period Number: the low 32 bits of the period's.
    pub period: u32,
    /// Packets lost.
    pub lost: u32,
    /// Change of the delay since the period that was timed before, microseconds.
    pub delay_change_us: i32,
}

/// A period of a flow of which one count is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    flow: MarkedFlow,
    period: u64,
}

#[derive(Clone, Copy, Debug)]
enum Half {
    Upstream(PeriodCount),
    Here(PeriodCount),
}

/// The delay as told last, and of which period.
#[derive(Clone, Copy, Debug)]
struct Delay {
    period: u64,
    us: i64,
}

/// Compares the counts of two points at the downstream one.
#[derive(Debug)]
pub struct MarkCompare {
    cfg: AltMarkConfig,
    meter: MarkMeter,
    halves: BoundedTable<Key, Half>,
    timers: Timers,
    delays: BoundedTable<MarkedFlow, Delay>,
    /// The first period that was counted from its start.
    first: u64,
    out: VecDeque<(MarkedFlow, PeriodLoss)>,
    counters: CompareCounters,
}

impl MarkCompare {
    /// A point that counts from `now` on.
    pub fn new(cfg: AltMarkConfig, now: Instant) -> Self {
        // Early packets of a period may come during the second half of the one before.
        let first = (now.0 + cfg.nanos() / 2) / cfg.nanos() + 1;
        let halves = cfg.max_flows.saturating_mul(cfg.wait_periods.max(1));
        Self {
            meter: MarkMeter::new(cfg),
            halves: BoundedTable::new(halves),
            timers: Timers::default(),
            delays: BoundedTable::new(cfg.max_flows),
            first,
            out: VecDeque::new(),
            counters: CompareCounters::default(),
            cfg,
        }
    }

    /// A marked packet passes here.
    pub fn observe(&mut self, now: Instant, flow: MarkedFlow, mark: &AltMark) {
        self.meter.observe(now, flow, mark);
    }

    /// The upstream point counted this.
    pub fn on_upstream(&mut self, now: Instant, count: PeriodCount) {
        self.counters.upstream += 1;
        if count.period < self.first {
            self.counters.partial += 1;
        } else if now >= self.given_up_at(count.period) {
            // Our own count may be gone, and is then no sign of loss.
            self.counters.unmatched += 1;
        } else if !self.meter.knows(&count.flow) {
            self.counters.elsewhere += 1;
        } else {
            self.meet(now, Half::Upstream(count));
        }
    }

    /// Compares what is complete and gives up what waited too long.
    pub fn on_timeout(&mut self, now: Instant) {
        self.meter.on_timeout(now);
        while let Some(count) = self.meter.poll() {
            if count.period < self.first {
                self.counters.partial += 1;
            } else {
                self.meet(now, Half::Here(count));
            }
        }
        while let Some(slot) = self.timers.pop_due(now) {
            match self.halves.remove(slot) {
                // The period is over here as well, and nothing of it came.
                Some((key, Half::Upstream(count))) => self.compare(&count, &nothing(key)),
                Some((_, Half::Here(_))) => self.counters.unmatched += 1,
                None => {}
            }
        }
    }

    /// When `on_timeout` is to be called next.
    pub fn next_timeout(&self) -> Option<Instant> {
        let times = [self.meter.next_timeout(), self.timers.next()];
        times.into_iter().flatten().min()
    }

    /// Takes the next result.
    pub fn poll(&mut self) -> Option<(MarkedFlow, PeriodLoss)> {
        self.out.pop_front()
    }

    /// The counters.
    pub fn counters(&self) -> CompareCounters {
        self.counters
    }

    /// The counters of the meter at this point.
    pub fn meter_counters(&self) -> MeterCounters {
        self.meter.counters()
    }

    /// Joins a count with that of the other point, or keeps it until that one comes.
    fn meet(&mut self, now: Instant, half: Half) {
        let (Half::Upstream(count) | Half::Here(count)) = half;
        let key = Key {
            flow: count.flow,
            period: count.period,
        };
        let slot = self.halves.slot(&key);
        match (half, slot.and_then(|slot| self.halves.get(slot)).copied()) {
            (Half::Upstream(up), Some(Half::Here(here)))
            | (Half::Here(here), Some(Half::Upstream(up))) => {
                self.forget(slot);
                self.compare(&up, &here);
            }
            // Told twice.
            (_, Some(_)) => self.counters.unmatched += 1,
            (_, None) => self.keep(now, key, half),
        }
    }

    fn keep(&mut self, now: Instant, key: Key, half: Half) {
        if self.halves.is_full() {
            self.counters.crowded += 1;
            let oldest = self.halves.oldest(Class::Candidate);
            self.forget(oldest);
        }
        let Ok(slot) = self.halves.insert(key, half) else {
            return;
        };
        let until = match half {
            Half::Upstream(_) => final_at(key.period, self.cfg.nanos()).max(now),
            Half::Here(_) => self.given_up_at(key.period),
        };
        self.timers.set(slot, until);
    }

    /// When a count of this period is no longer waited for.
    fn given_up_at(&self, period: u64) -> Instant {
        final_at(period, self.cfg.nanos()) + self.cfg.period * self.cfg.wait_periods
    }

    fn forget(&mut self, slot: Option<u32>) {
        if let Some(slot) = slot {
            self.timers.clear(slot);
            self.halves.remove(slot);
        }
    }

    fn compare(&mut self, up: &PeriodCount, here: &PeriodCount) {
        self.counters.compared += 1;
        self.counters.inconsistent += u64::from(here.packets > up.packets);
        let lost = up.packets.saturating_sub(here.packets);
        self.counters.lost += u64::from(lost);
        let result = PeriodLoss {
            // The field has 32 bits.
            period: up.period as u32,
            lost,
            delay_change_us: self.delay_change(up, here),
        };
        if self.out.len() >= self.cfg.max_results as usize {
            self.counters.results_dropped += 1;
            return;
        }
        self.out.push_back((up.flow, result));
    }

    /// How the mean delay of the D-marked packets changed. Only where none of them was lost, or the means
    /// would be of different packets.
    fn delay_change(&mut self, up: &PeriodCount, here: &PeriodCount) -> i32 {
        if up.timed == 0 || up.timed != here.timed {
            return 0;
        }
        let mean_ns = (here.time_sum_ns - up.time_sum_ns) / i128::from(up.timed);
        let us = i64::try_from(mean_ns / 1_000).unwrap_or(i64::MAX);
        let now = Delay {
            period: up.period,
            us,
        };
        let Some(slot) = self.delays.slot(&up.flow) else {
            if self.delays.is_full()
                && let Some(oldest) = self.delays.oldest(Class::Candidate)
            {
                self.delays.remove(oldest);
            }
            // There is room now.
            let _ = self.delays.insert(up.flow, now);
            return 0;
        };
        self.delays.touch(slot);
        let Some(told) = self
            .delays
            .get_mut(slot)
            .filter(|told| told.period < now.period)
        else {
            return 0;
        };
        let change = now.us.saturating_sub(told.us);
        *told = now;
        i32::try_from(change).unwrap_or(if change < 0 { i32::MIN } else { i32::MAX })
    }
}

/// The count of a period in which nothing came.
fn nothing(key: Key) -> PeriodCount {
    PeriodCount {
        flow: key.flow,
        period: key.period,
        packets: 0,
        timed: 0,
        time_sum_ns: 0,
    }
}
