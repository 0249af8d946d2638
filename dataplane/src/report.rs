//! What a segment says of itself: counters and states as plain numbers, into memory that is there.

use crem_api::Mode;

use crate::buffer::{Platform, Pool, Port};
use crate::segment::Segment;
use crate::snapshot::SegmentSnapshot;
use crate::team::Team;

impl<P: Platform> Segment<P> {
    /// The devices of its ports, LAN and WAN: for whoever holds their other ends.
    pub fn devices(&mut self) -> (&mut P::Port, &mut P::Port) {
        (&mut self.lan.device, &mut self.wan.device)
    }

    /// Puts the state of the segment into `to`, whose memory is kept.
    pub fn describe(&mut self, to: &mut SegmentSnapshot) {
        // The devices count for all workers.
        if self.team.as_ref().is_none_or(Team::is_home) {
            self.lan.counters.device_drops = self.lan.device.device_drops();
            self.wan.counters.device_drops = self.wan.device.device_drops();
        }
        if let Some(team) = self.team.as_ref().filter(|team| team.is_home()) {
            self.counters.team.unplaced = team.directory.unplaced();
        }
        self.count_watched();
        to.counters = self.counters;
        to.times = *self.times;
        to.counters.lan = self.lan.counters;
        to.counters.wan = self.wan.counters;
        to.lan_up = self.lan.device.link_up();
        to.wan_up = self.wan.device.link_up();
        to.next_hops.clear();
        if let Some(inband) = &self.inband {
            to.counters.inband = inband.counters;
            to.next_hops.extend(inband.next_hops());
        }
        to.csf.clear();
        to.crf.clear();
        to.paths.clear();
        to.mode = match self.mode {
            Mode::Active if self.protection.is_none() => Mode::Passthrough,
            Mode::Monitor if self.watch.is_none() => Mode::Passthrough,
            mode => mode,
        }
        .name();
        let works = self.protection.is_some() || self.watch.is_some();
        to.off_reason = self.guard.reason().filter(|_| !works);
        to.events.clear();
        to.metering = None;
        to.points.clear();
        if let Some(metering) = &mut self.metering {
            metering.describe(to);
        }
        if let Some(protection) = &mut self.protection {
            protection.describe(to);
        }
    }

    /// Buffers taken and in all.
    pub fn buffers(&self) -> (u32, u32) {
        self.pool.usage()
    }
}
