//! Mode `monitor`: what comes from the WAN is watched after it was sent on, and nothing is sent because of it. What
//! is counted, and what policy would choose, is decided in `crem_core::monitor`.

use crem_core::config::CoreConfig;
use crem_core::monitor::Monitor;
use crem_core::packet::Desc;
use crem_core::time::Instant;

use crate::buffer::Platform;
use crate::counters::MonitorCounters;
use crate::segment::Segment;

/// The flows that a segment watches.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) monitor: Monitor,
    /// What those counted that were there before it.
    before: MonitorCounters,
}

impl Watch {
    pub(crate) fn new(core: CoreConfig, before: MonitorCounters) -> Self {
        Self {
            monitor: Monitor::new(core),
            before,
        }
    }

    pub(crate) fn configure(&mut self, core: CoreConfig) {
        self.monitor.set_config(core);
    }

    /// Everything counted until now.
    fn counters(&self) -> MonitorCounters {
        let total = self.monitor.total();
        let mut all = MonitorCounters {
            packets: total.packets,
            ce: total.ce,
            lost: total.lost,
            gaps: total.gaps,
            reordered: total.reordered,
            resent: total.resent,
            duplicates: total.duplicates,
            behind: total.behind,
            jumps: total.jumps,
            evicted: self.monitor.evicted(),
        };
        all.add(&self.before);
        all
    }
}

impl<P: Platform> Segment<P> {
    /// Watches flows, where the mode is `monitor`; `core` is the configuration of this worker.
    pub fn with_watch(mut self, core: Option<CoreConfig>) -> Self {
        if core.is_some() {
            self.guard.watch_with(core);
            self.equip();
        }
        self
    }

    /// What the mode asks for, from nothing: protection or a watch.
    pub(crate) fn equip(&mut self) {
        self.end_watch();
        self.protection = self.guard.make();
        let core = self.guard.watched();
        self.watch = core.map(|core| Watch::new(core.clone(), self.counters.monitor));
        self.look_for_flows();
    }

    /// Keeps what was counted.
    pub(crate) fn end_watch(&mut self) {
        self.count_watched();
        self.watch = None;
    }

    /// Brings the counters up to date.
    pub(crate) fn count_watched(&mut self) {
        if let Some(watch) = &self.watch {
            self.counters.monitor = watch.counters();
        }
    }

    /// Shows packets that came from the WAN and are on their way.
    pub(crate) fn watch_burst(&mut self, now: Instant) {
        if let Some(watch) = self.watch.as_mut().filter(|_| !self.descs.is_empty()) {
            let descs: &[Desc<P::Buf>] = &self.descs;
            watch.monitor.on_burst(now, descs);
        }
    }

    /// Settles gaps whose time is over. Whether there was anything.
    pub(crate) fn run_watch(&mut self, now: Instant) -> bool {
        let Some(watch) = &mut self.watch else {
            return false;
        };
        let due = watch.monitor.next_timeout().is_some_and(|at| at <= now);
        if due {
            watch.monitor.on_timeout(now);
        }
        due
    }
}
