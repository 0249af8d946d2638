//! Giving the ports what is ready for them, and how long it was here. What waits for a port is `tx.rs`.

use crem_core::time::Instant;

use crate::buffer::Platform;
use crate::segment::Segment;

impl<P: Platform> Segment<P> {
    /// Sends what leaves with the burst of `now`.
    pub(crate) fn send_to_wan(&mut self, now: Instant, clock: &impl Fn() -> Instant) {
        let count = self.to_wan.len() as u64;
        self.wan
            .send(&mut self.to_wan, &mut self.counters.drops.tx_full_wan);
        if count > 0 {
            let sent = clock();
            let took = sent.since(now).as_nanos() as u64;
            self.times.lan_to_wan_ns.record_n(took, count);
            self.times.first_forwarded.get_or_insert(sent);
        }
    }

    pub(crate) fn send_to_lan<C: Fn() -> Instant>(&mut self, now: Instant, clock: Option<&C>) {
        let count = self.to_lan.len() as u64;
        self.lan
            .send(&mut self.to_lan, &mut self.counters.drops.tx_full_lan);
        if let Some(clock) = clock.filter(|_| count > 0) {
            let sent = clock();
            let took = sent.since(now).as_nanos() as u64;
            self.times.wan_to_lan_ns.record_n(took, count);
            self.times.first_forwarded.get_or_insert(sent);
        } else if count > 0 {
            self.times.first_forwarded.get_or_insert(now);
        }
    }

    /// Gives the devices what is ready for them.
    pub(crate) fn send_both(&mut self) {
        let drops = &mut self.counters.drops;
        self.lan.send(&mut self.to_lan, &mut drops.tx_full_lan);
        self.wan.send(&mut self.to_wan, &mut drops.tx_full_wan);
    }
}
