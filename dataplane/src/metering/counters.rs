//! What metering counts, as plain numbers on the worker; names are made where they are shown.

use crem_meter::flow::FlowCounters;
use crem_meter::point::{Place, Point};
use crem_meter::seq::ObserverCounters;
use crem_meter::{Meter, MeterCounters, PacketCounters};
use crem_wire::frame::Reason;

use crate::counters::counters;

counters! {
    /// Of a segment, besides its points.
    MeteringCounters {
        /// Batches handed to the auxiliary thread.
        batches,
        /// Records and other items in them.
        items,
        /// Those that found the ring full.
        ring_full,
        /// Frames that the ports missed, by their own count: each time epochs close.
        missed_frames,
        /// Steps of the system's clock, each of which closed everything open.
        clock_steps,
        /// Panics in metering, each of which ended it for a while.
        panics,
    }
}

/// Of one Observation Point. Those of meters that panicked are not in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PointCounters {
    /// The point.
    pub point: Point,
    /// What was shown to it.
    pub seen: MeterCounters,
    /// Observation of single packets.
    pub packets: Option<PacketCounters>,
    /// Aggregate flows, and how many are known now.
    pub flows: Option<(FlowCounters, u64)>,
    /// Sequence observation, all collectors together, with epochs active and connections disabled now.
    pub sequences: Option<(ObserverCounters, u64, u64)>,
}

impl PointCounters {
    /// Those of every point of `meter` into `to`.
    pub(super) fn collect(meter: &mut Meter, to: &mut Vec<Self>) {
        for place in Place::ALL {
            let Some(point) = meter.points().find(|point| point.place == place) else {
                continue;
            };
            let seen = meter.counters(place).copied().unwrap_or_default();
            let packets = meter.packets(place).map(|packets| *packets.counters());
            let flows = meter
                .flows(place)
                .map(|flows| (*flows.counters(), flows.len() as u64));
            to.push(Self {
                point,
                seen,
                packets,
                flows,
                sequences: sequences(meter, place),
            });
        }
    }
}

/// Packets of which a record was not made or not taken by any of the meters, and their octets as far as
/// known. A packet that is missing at a point both alone and in its flow counts once, as far as that can be
/// told.
pub(super) fn ignored(meter: &Meter) -> (u64, u64) {
    let at = |place| {
        let packets = meter.packets(place).map(|packets| *packets.counters());
        let packets = packets.unwrap_or_default();
        let flows = meter
            .flows(place)
            .map_or(0, |flows| flows.counters().lost_packets);
        (
            flows.max(packets.rate_limited + packets.lost_records),
            packets.rate_limited_octets + packets.lost_octets,
        )
    };
    Place::ALL.into_iter().map(at).fold((0, 0), sum)
}

/// Both numbers together.
pub(super) const fn sum(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (one.0 + other.0, one.1 + other.1)
}

fn sequences(meter: &mut Meter, place: Place) -> Option<(ObserverCounters, u64, u64)> {
    let observers = meter.sequences(place);
    if observers.is_empty() {
        return None;
    }
    let mut sum = ObserverCounters::default();
    let (mut active, mut disabled) = (0, 0);
    for observer in observers {
        let c = observer.counters();
        sum.unprovisioned += c.unprovisioned;
        sum.disabled += c.disabled;
        sum.suspended += c.suspended;
        sum.violations += c.violations;
        sum.refused += c.refused;
        sum.evicted += c.evicted;
        sum.reports += c.reports;
        sum.finals += c.finals;
        sum.lost_reports += c.lost_reports;
        active += observer.active() as u64;
        disabled += observer.disabled().count() as u64;
    }
    Some((sum, active, disabled))
}

/// Calls `f` with the name and the value of every counter of a point, its place in front of each name.
pub fn each_name(point: &PointCounters, mut f: impl FnMut(String, u64)) {
    let place = point.point.place.name();
    let mut tell = |name: &str, value| f(format!("{place}_{name}"), value);
    tell("observed", point.seen.observed);
    tell("no_scope", point.seen.no_scope);
    for reason in Reason::ALL {
        let count = point.seen.unrecognised.get(reason.index());
        let name = format!("unrecognised_{}", reason.name());
        tell(&name, count.copied().unwrap_or_default());
    }
    if let Some(packets) = &point.packets {
        tell("packet_records", packets.records);
        tell("packet_rate_limited", packets.rate_limited);
        tell("packet_lost_records", packets.lost_records);
    }
    if let Some((flows, known)) = &point.flows {
        tell("flow_packets", flows.packets);
        tell("flow_records_idle", flows.idle);
        tell("flow_records_active", flows.active);
        tell("flow_records_evicted", flows.evicted);
        tell("flow_records_flushed", flows.flushed);
        tell("flow_lost_records", flows.lost_records);
        tell("flow_lost_packets", flows.lost_packets);
        tell("flow_known", *known);
    }
    if let Some((sequence, active, disabled)) = &point.sequences {
        tell("sequence_unprovisioned", sequence.unprovisioned);
        tell("sequence_disabled_requests", sequence.disabled);
        tell("sequence_suspended_requests", sequence.suspended);
        tell("sequence_violations", sequence.violations);
        tell("sequence_refused", sequence.refused);
        tell("sequence_evicted", sequence.evicted);
        tell("sequence_reports", sequence.reports);
        tell("sequence_finals", sequence.finals);
        tell("sequence_lost_reports", sequence.lost_reports);
        tell("sequence_active", *active);
        tell("sequence_disabled", *disabled);
    }
}
