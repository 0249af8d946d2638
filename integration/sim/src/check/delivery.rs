//! What a receiver function lets out against what it got: every packet exactly once and as it came,
//! none later than the hold allows, none behind one that came later and stands before it.

use std::collections::HashMap;

use crem_core::actions::Delivery;
use crem_core::config::Hold;

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

/// An operator's hold ends after so many round trips at the latest.
const FIXED: u32 = 4;
/// One that the function chooses, after this part of one.
const QUARTER: u32 = 4;

/// The account of one receiver function.
pub(crate) struct DeliveryCheck {
    /// What was configured, at any time.
    holds: Vec<Hold>,
    /// Offers that were sent and not taken: by Flow ID, the stream and when the first one left.
    offers: HashMap<u32, (usize, Instant)>,
    /// By stream, the longest round trip that the function can take for the shortest: from the first
    /// HELLO_ACK of a flow to the PARAM_UPDATE that binds it. Every other sample only lowers it.
    round_trips: Vec<Duration>,
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
    pub(crate) fn new(holds: Vec<Hold>, streams: usize) -> Self {
        Self {
            holds,
            offers: HashMap::new(),
            round_trips: vec![Duration::ZERO; streams],
            given: 0,
            out: 0,
            sum_in: 0,
            sum_out: 0,
            fronts: vec![Front::default(); streams],
            restored: 0,
            longest: Duration::ZERO,
        }
    }

    /// The function offers a flow.
    pub(crate) fn offers(&mut self, now: Instant, flow: u32, stream: usize) {
        self.offers.entry(flow).or_insert((stream, now));
    }

    /// The function takes the parameters of a flow.
    pub(crate) fn binds(&mut self, now: Instant, flow: u32) {
        if let Some((stream, offered)) = self.offers.remove(&flow)
            && let Some(known) = self.round_trips.get_mut(stream)
        {
            *known = (*known).max(now.since(offered));
        }
    }

    /// The longest that a packet of a stream may be held.
    fn limit(&self, stream: usize) -> Duration {
        let trip = self.round_trips.get(stream).copied().unwrap_or_default();
        let of = |hold: &Hold| match *hold {
            Hold::Off => Duration::ZERO,
            Hold::Fixed(hold) => hold.min(trip * FIXED),
            Hold::Auto => trip / QUARTER,
        };
        self.holds.iter().map(of).max().unwrap_or_default()
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
        account: usize,
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
        let limit = self.limit(account);
        violations.require(now, held <= limit, || {
            format!("held for {held:?}, more than {limit:?}: {packet:?}")
        });
        let psn = packet.wire_psn();
        let Some(front) = self.fronts.get_mut(stream) else {
            return;
        };
        if front.any && front.psn.is_after(psn) {
            let order = frame.order;
            violations.require(now, order > front.order, || {
                format!(
                    "left behind {} though it came before: {packet:?}",
                    front.psn.get()
                )
            });
        } else {
            (front.psn, front.order, front.any) = (psn, frame.order, true);
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
        self.offers.clear();
        self.round_trips.fill(Duration::ZERO);
        (self.given, self.out, self.sum_in, self.sum_out) = (0, 0, 0, 0);
        self.fronts.fill(Front::default());
    }
}
