//! The hosts: endpoints get packets and time, what they send goes to their link.

use super::World;
use crate::Instant;
use crate::endpoint::{Failure, Output};
use crate::net::Class;
use crate::packet::Packet;

impl World {
    /// A packet reached its host.
    pub(super) fn at_host(&mut self, packet: &Packet) {
        self.sums.arrived += 1;
        let kind = packet.content.0 ^ u64::from(packet.damage) << 56 ^ u64::from(packet.ce) << 63;
        self.note(kind.rotate_left(packet.serial as u32 & 63));
        let slot = packet.conn.0 as usize * 2 + packet.to as usize;
        let mut output = std::mem::take(&mut self.output);
        self.endpoints[slot].on_packet(self.now, packet, &mut output);
        self.take(slot, &mut output, Some(packet));
        self.output = output;
    }

    /// Endpoints whose time has come.
    pub(super) fn hosts_due(&mut self) {
        while let Some(slot) = self.timers.pop_due(self.now) {
            let slot = slot as usize;
            let mut output = std::mem::take(&mut self.output);
            self.endpoints[slot].on_timer(self.now, &mut output);
            self.take(slot, &mut output, None);
            self.output = output;
        }
    }

    /// Carries out what an endpoint asks for, and sees to its timer.
    fn take(&mut self, slot: usize, output: &mut Output, cause: Option<&Packet>) {
        if !self.quiet {
            for packet in &output.send {
                self.leave(packet);
            }
        }
        for done in &output.completed {
            self.sums.completed += 1;
            self.sums.octets += done.octets;
            self.sums.slowest = self.sums.slowest.max(done.took);
        }
        self.sums.useful += output.useful;
        if let Some(failure) = output.failed {
            self.fail(slot, failure, cause);
        }
        output.clear();
        let next = self.endpoints[slot].next_timer();
        match next {
            // A timer that is due again at once still lets time pass.
            Some(at) => {
                let at = at.max(Instant(self.now.0 + 1));
                if self.timers.get(slot as u32) != Some(at) {
                    self.timers.set(slot as u32, at);
                }
            }
            None => self.timers.clear(slot as u32),
        }
        if !self.done[slot] && slot.is_multiple_of(2) && self.endpoints[slot].is_done() {
            self.done[slot] = true;
            self.pending -= 1;
        }
    }

    fn fail(&mut self, slot: usize, failure: Failure, cause: Option<&Packet>) {
        if self.failed[slot] {
            return;
        }
        self.failed[slot] = true;
        self.sums.failed += 1;
        // Retries run out on a path that is down or hopeless; the rest no network may bring about.
        if failure != Failure::RetryExceeded {
            let conn = slot / 2;
            self.violations.add(self.now, || {
                format!("the queue pair of connection {conn} failed: {failure:?} at {cause:?}")
            });
        }
    }

    /// A packet leaves its host.
    fn leave(&mut self, packet: &Packet) {
        if self.unplugged[packet.conn.0 as usize] {
            return;
        }
        let mut packet = *packet;
        self.serial += 1;
        packet.serial = self.serial;
        if packet.psn.get() == 0 && packet.space().is_some() {
            self.coverage.wrap();
        }
        let side = self.origin(&packet);
        let class = match packet.space() {
            Some(_) => Class::Source,
            None => Class::Acknowledgment,
        };
        let past = self.bypasses(side);
        let here = &mut self.sides[side];
        let (wire, poll) = match &mut here.bypass {
            Some(bypass) if past => (bypass, crate::Duration::ZERO),
            _ => {
                let host =
                    usize::from(self.scenario.connections[packet.conn.0 as usize].hosts[side]);
                (&mut here.from_host[host], self.scenario.poll)
            }
        };
        let carried = super::cross::carry(wire, self.now, &packet, class, poll);
        let lane = wire.lane;
        if let Ok(carried) = carried {
            self.put(lane, carried);
        }
    }
}
