//! What a receiver function lets out against what it got: every packet exactly once and as it came,
//! none later than the hold allows, none behind one that came later and stands before it.

use crem_core::actions::Delivery;

use super::Violations;
use crate::frame::Frame;
use crate::packet::Packet;
use crate::rng::mix;
use crate::{Duration, Instant};

/// The packet furthest ahead that left for one stream.
#[derive(Clone, Copy, Default)]
struct Front {
    psn: crem_wire::Psn,
    order: u64,
    any: bool,
}

/// The account of one receiver function.
pub(crate) struct DeliveryCheck {
    /// The longest that a packet may be held.
    pub(crate) hold: Duration,
    pub(crate) given: u64,
    pub(crate) out: u64,
    /// Sums of what identifies each packet that went in and out: equal when the same ones did.
    sum_in: u64,
    sum_out: u64,
    fronts: Vec<Front>,
    pub(crate) restored: u64,
    /// The longest hold seen.
    pub(crate) longest: Duration,
}

fn identity(packet: &Packet) -> u64 {
    mix(packet.serial ^ mix(packet.content.0 ^ u64::from(packet.damage)))
}

impl DeliveryCheck {
    pub(crate) fn new(hold: Duration, streams: usize) -> Self {
        Self {
            hold,
            given: 0,
            out: 0,
            sum_in: 0,
            sum_out: 0,
            fronts: vec![Front::default(); streams],
            restored: 0,
            longest: Duration::ZERO,
        }
    }

    /// The function gets a packet.
    pub(crate) fn taken(&mut self, packet: &Packet) {
        self.given += 1;
        self.sum_in = self.sum_in.wrapping_add(identity(packet));
    }

    /// The function lets a packet out.
    pub(crate) fn delivered(
        &mut self,
        now: Instant,
        how: Delivery,
        frame: &Frame,
        stream: usize,
        violations: &mut Violations,
    ) {
        let Some(packet) = frame.as_packet() else {
            violations.add(now, || "a REPAIR was delivered to a host".into());
            return;
        };
        if how == Delivery::Restored {
            self.restored += 1;
            return;
        }
        self.out += 1;
        self.sum_out = self.sum_out.wrapping_add(identity(packet));
        let held = now.since(frame.arrived);
        self.longest = self.longest.max(held);
        let limit = self.hold;
        violations.require(now, held <= limit, || {
            format!("held for {held:?}, more than {limit:?}: {packet:?}")
        });
        let Some(front) = self.fronts.get_mut(stream) else {
            return;
        };
        if front.any && front.psn.is_after(packet.psn) {
            let order = frame.order;
            violations.require(now, order > front.order, || {
                format!(
                    "left behind {} though it came before: {packet:?}",
                    front.psn.get()
                )
            });
        } else {
            (front.psn, front.order, front.any) = (packet.psn, frame.order, true);
        }
    }

    /// After each step: what went in and did not come out is held, as many as the function keeps
    /// references to at most.
    pub(crate) fn step(&self, now: Instant, references: usize, violations: &mut Violations) {
        let inside = self.given - self.out.min(self.given);
        violations.require(now, self.out <= self.given, || {
            format!("{} packets came out of {}", self.out, self.given)
        });
        violations.require(now, inside <= references as u64, || {
            format!("{inside} packets neither came out nor are kept ({references} are)")
        });
    }

    /// Everything was let out: the same packets must have come out that went in.
    pub(crate) fn finish(&self, now: Instant, violations: &mut Violations) {
        let same = self.given == self.out && self.sum_in == self.sum_out;
        violations.require(now, same, || {
            format!(
                "{} packets went in, {} came out, or others",
                self.given, self.out
            )
        });
    }

    /// The function died with what it held.
    pub(crate) fn forget(&mut self) {
        (self.given, self.out, self.sum_in, self.sum_out) = (0, 0, 0, 0);
        self.fronts.fill(Front::default());
    }
}
