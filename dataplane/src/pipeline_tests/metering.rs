//! Two gateways that observe what passes: counts at every point, what a lost or missed packet does to
//! epochs, panics in metering, and a ring that nobody empties.

use crem_ipfix::handover::{Control, Item, items};
use crem_meter::flow::{FlowConfig, FlowRecord};
use crem_meter::point::Place;
use crem_meter::scope::{Scope, Scopes};
use crem_meter::select::Selection;
use crem_meter::seq::{Flags, ObserverConfig, Provision, SequenceRecord, Statement};
use crem_meter::{Encapsulation, PacketConfig, PacketRecord, PointConfig};
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::metering::ring::{Handover, Inlet, ring};
use crate::metering::{Change, MeteringConfig, Shared, shared};

mod revised;

const OFFSET: u64 = 1_793_009_730_000_000_000;

fn provision() -> Provision {
    Provision {
        source: "10.0.0.0/8".parse().unwrap(),
        destination: "10.0.0.0/8".parse().unwrap(),
        qp: None,
        pkey: None,
        context: None,
        window: 4096,
        generation: None,
        statement: Statement {
            only_send_and_write: true,
            complete_and_unambiguous: true,
            packets_per_second: 1_000_000,
            longest_retry: Duration::from_secs(1),
        },
    }
}

fn point(place: Place) -> PointConfig {
    let observer = ObserverConfig {
        collector: 3,
        contexts: 16,
        epochs: 16,
        ..ObserverConfig::default()
    };
    PointConfig {
        place,
        base: 100 * (1 + place.index() as u64),
        packets: Some(PacketConfig {
            selection: Selection::All,
            selection_sequence: 1,
            rate_limit: None,
            seed: 0,
        }),
        flows: Some(FlowConfig {
            flows: 16,
            ..FlowConfig::default()
        }),
        sequences: vec![(observer, vec![provision()])],
    }
}

pub(super) fn metering_config(places: &[Place]) -> MeteringConfig {
    let scope = Scope {
        source: "10.0.0.0/8".parse().unwrap(),
        destination: "10.0.0.0/8".parse().unwrap(),
        encapsulation: Encapsulation::Untagged,
    };
    MeteringConfig {
        scopes: Scopes::new(vec![scope]).unwrap(),
        parse: ParseConfig {
            crem_port: Some(CREM_PORT),
            vxlan_port: None,
        },
        points: places.iter().copied().map(point).collect(),
        worker: 2,
        memory: u64::MAX,
    }
}

/// Everything that came out of a ring.
#[derive(Default)]
struct Taken {
    packets: Vec<PacketRecord>,
    flows: Vec<(bool, FlowRecord)>,
    sequences: Vec<SequenceRecord>,
    restarts: usize,
    freed: usize,
}

impl Taken {
    fn take(&mut self, inlet: &Inlet) {
        while let Ok(handover) = inlet.full.try_recv() {
            let mut batch = match handover {
                Handover::Batch(batch) => batch,
                Handover::Restart => {
                    self.restarts += 1;
                    continue;
                }
                Handover::Free(_) => {
                    self.freed += 1;
                    continue;
                }
            };
            for item in items(batch.octets()).unwrap() {
                match item.unwrap() {
                    Item::Packet(record) => self.packets.push(record),
                    Item::Flow(post, record) => self.flows.push((post, record)),
                    Item::Sequence(record) => self.sequences.push(record),
                    Item::Selection(..) | Item::Ignored(..) => {}
                }
            }
            batch.clear();
            let _ = inlet.spare.try_send(batch);
        }
    }

    fn psns(&self, place: Place) -> Vec<u32> {
        let id = 100 * (1 + place.index() as u64) + 2;
        let at = self.packets.iter().filter(|record| record.point == id);
        at.map(|record| record.bth.psn.get()).collect()
    }

    fn last(&self, place: Place) -> &SequenceRecord {
        let id = 100 * (1 + place.index() as u64) + 2;
        let mut of = self.sequences.iter().rev();
        of.find(|record| record.point == id).unwrap()
    }
}

/// The auxiliary thread's end.
struct End {
    inlet: Inlet,
    shared: Arc<Shared>,
}

impl std::ops::Deref for End {
    type Target = Inlet;
    fn deref(&self) -> &Inlet {
        &self.inlet
    }
}

/// Makes a gateway of the pair observe at these places, with a session of collector 3.
fn observe(pair: &mut Pair, gateway: usize, places: &[Place], batches: usize) -> End {
    let shared = shared(OFFSET);
    let (outbox, inlet) = ring(batches, Arc::clone(&shared));
    let nothing = MeteringConfig::nothing(2);
    let start = Some((outbox, OFFSET));
    let mut change = Change::new(0, &nothing, metering_config(places), start).unwrap();
    let now = Instant(pair.now.get());
    pair.gateways[gateway].observe(now, &mut change);
    inlet.controls.try_send(Control::Begin(3, 1)).unwrap();
    End { inlet, shared }
}

fn metered_transfer(count: u32, lost: impl Fn(u32) -> bool) -> (Pair, Taken, Taken, usize) {
    let mut pair = Pair::new(true);
    let near = observe(&mut pair, 0, &[Place::LanIngress, Place::WanEgress], 32);
    let far_places = [
        Place::WanIngress,
        Place::LanEgressBeforeRepair,
        Place::LanEgressAfterRepair,
    ];
    let far = observe(&mut pair, 1, &far_places, 32);
    let (mut at_near, mut at_far) = (Taken::default(), Taken::default());
    for _ in 0..10 {
        pair.step(&mut |_| false);
    }
    let mut arrived = 0;
    let mut lose = |frame: &[u8]| psn_of(frame).is_some_and(&lost);
    for n in 0..2 * count + 1000 {
        if n % 2 == 0 && n / 2 < count {
            pair.gateways[0].lan.device.arrive(&packet(n / 2));
        }
        pair.step(&mut lose);
        arrived += pair.received().len();
        at_near.take(&near);
        at_far.take(&far);
    }
    let now = Instant(pair.now.get());
    pair.gateways
        .iter_mut()
        .for_each(|gateway| gateway.close(now));
    at_near.take(&near);
    at_far.take(&far);
    (pair, at_near, at_far, arrived)
}

// shows: AMB-BTH-RESTORED, AMB-BTH-OPID
// shows: BTH-PKT-01, BTH-PKT-04, BTH-PKT-06, BTH-AGG-01, BTH-AGG-07, SEQ-APP-07, SEQ-ID-09, SEQ-ID-14
// shows: SEQ-EXP-04
#[test]
fn every_point_sees_what_passes_it_and_repair_lies_between_the_last_two() {
    let lost = |psn: u32| psn > 1000 && psn % 40 == 7;
    let (_, near, far, arrived) = metered_transfer(2000, lost);
    assert_eq!(arrived, 2000);
    let all: Vec<u32> = (0..2000).collect();
    let through: Vec<u32> = (0..2000).filter(|psn| !lost(*psn)).collect();
    assert_eq!(near.psns(Place::LanIngress), all);
    assert_eq!(near.psns(Place::WanEgress), all);
    assert_eq!(far.psns(Place::WanIngress), through);
    assert_eq!(far.psns(Place::LanEgressBeforeRepair), through);
    assert_eq!(far.psns(Place::LanEgressAfterRepair), all);
    assert!(
        near.packets
            .iter()
            .all(|r| r.direction as u64 == (r.point / 100 - 1) % 2)
    );
    assert!(
        near.packets
            .iter()
            .all(|r| r.time.0 > OFFSET && r.time.0 < OFFSET + 1_000_000_000)
    );
    // Flows: only behind repair are counters those of a middlebox.
    let octets = (20 + 8 + MIN_PAYLOAD + 1024) as u64;
    for taken in [&near, &far] {
        for (post, flow) in &taken.flows {
            let repaired = flow.point == 502;
            let complete = repaired || flow.point < 300;
            let packets = if complete { 2000 } else { through.len() as u64 };
            assert_eq!(*post, repaired);
            assert_eq!((flow.packets, flow.octets), (packets, packets * octets));
        }
    }
    assert_eq!((near.flows.len(), far.flows.len()), (2, 3));
    // Sequences: what is lost on the path is pending at its end and nowhere else.
    let open = |record: &SequenceRecord| record.counts.skipped - record.counts.filled;
    assert_eq!(open(near.last(Place::LanIngress)), 0);
    assert_eq!(open(near.last(Place::WanEgress)), 0);
    assert_eq!(open(far.last(Place::WanIngress)), 25);
    assert_eq!(open(far.last(Place::LanEgressBeforeRepair)), 25);
    assert_eq!(open(far.last(Place::LanEgressAfterRepair)), 0);
    for record in near.sequences.iter().chain(&far.sequences) {
        assert!(record.flags.contains(Flags::GENERATION_UNVERIFIED));
        assert_eq!((record.collector, record.session), (3, 1));
    }
}

#[test]
fn nothing_is_shown_where_nothing_is_observed() {
    let mut pair = Pair::new(true);
    let inlet = observe(&mut pair, 0, &[Place::WanEgress], 4);
    transfer(&mut pair, 50, |_| false);
    let mut taken = Taken::default();
    taken.take(&inlet);
    assert_eq!(taken.packets.len(), 50);
    assert!(taken.packets.iter().all(|record| record.point == 202));
    let snapshot = pair.snapshot(0);
    assert_eq!(snapshot.points.len(), 1);
    assert_eq!(snapshot.points[0].seen.observed, 50);
    assert_eq!(pair.snapshot(1).metering, None);
}

// shows: SEQ-APP-07, SEQ-APP-11, SEQ-APP-12, SEQ-SEC-05, SEQ-SEC-06
#[test]
fn what_a_port_missed_ends_the_epochs_of_its_place() {
    let mut pair = Pair::new(true);
    let inlet = observe(&mut pair, 0, &[Place::LanIngress, Place::WanIngress], 32);
    let mut taken = Taken::default();
    let run = |pair: &mut Pair, psns: std::ops::Range<u32>, at_wan: bool| {
        for psn in psns {
            let gateway = &mut pair.gateways[0];
            gateway.lan.device.arrive(&packet(psn));
            if at_wan {
                gateway.wan.device.arrive(&packet(psn));
            }
            pair.step(&mut |_| true);
        }
        for _ in 0..500 {
            pair.step(&mut |_| true);
        }
    };
    run(&mut pair, 0..1, false);
    run(&mut pair, 1..100, true);
    pair.gateways[0].lan.device.missed = 3;
    run(&mut pair, 0..0, false);
    run(&mut pair, 100..200, true);
    pair.gateways[0].close(Instant(pair.now.get()));
    taken.take(&inlet);
    let finals = |id: u64| -> Vec<(bool, u64)> {
        let of = taken.sequences.iter().filter(|record| record.point == id);
        of.filter(|record| record.flags.contains(Flags::FINAL))
            .map(|r| {
                (
                    r.flags.contains(Flags::CAPTURE_DISCONTINUITY),
                    r.counts.requests,
                )
            })
            .collect()
    };
    assert_eq!(finals(102), [(true, 100), (false, 100)]);
    assert_eq!(finals(302), [(false, 199)], "the other port missed nothing");
    let (counters, _) = pair.snapshot(0).metering.unwrap();
    assert_eq!(counters.missed_frames, 3);
}

// shows: BTH-OPS-01
#[test]
fn a_ring_that_nobody_empties_costs_records_and_no_frame() {
    let mut pair = Pair::new(true);
    let inlet = observe(&mut pair, 0, &[Place::LanIngress], 1);
    let arrived = transfer(&mut pair, 3000, |_| false);
    assert_eq!(psns(&arrived), (0..3000).collect::<Vec<_>>());
    let snapshot = pair.snapshot(0);
    let (counters, reason) = snapshot.metering.unwrap();
    let packets = snapshot.points[0].packets.unwrap();
    assert!(counters.ring_full > 0 && packets.lost_records > 0);
    assert_eq!(packets.records + packets.lost_records, 3000);
    assert_eq!(reason, None);
    // What was lost is told.
    pair.gateways[0].close(Instant(pair.now.get()));
    let mut taken = Taken::default();
    taken.take(&inlet);
    assert_eq!(taken.packets.len() as u64, packets.records);
    let ignored = inlet
        .shared
        .ignored_packets
        .load(std::sync::atomic::Ordering::Relaxed);
    // The record of the flow found no room either.
    assert_eq!(ignored, 3000);
}

#[test]
fn a_panic_in_metering_stops_metering_only_and_it_begins_anew() {
    let mut pair = Pair::new(true);
    let inlet = observe(&mut pair, 0, &[Place::LanIngress, Place::WanEgress], 32);
    let mut taken = Taken::default();
    transfer(&mut pair, 20, |_| false);
    taken.take(&inlet);
    pair.gateways[0].metering.as_mut().unwrap().panic_next();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let arrived = transfer(&mut pair, 50, |_| false);
    std::panic::set_hook(hook);
    assert_eq!(psns(&arrived), (0..50).collect::<Vec<_>>());
    let (counters, reason) = pair.snapshot(0).metering.unwrap();
    assert_eq!(
        (counters.panics, pair.snapshot(0).counters.coding.panics),
        (1, 0)
    );
    assert_eq!(reason, Some("a panic in metering; begins anew after 10 s"));
    assert_eq!(pair.snapshot(0).points, []);
    taken.take(&inlet);
    assert_eq!((taken.packets.len(), taken.restarts), (41, 1));
    pair.now.set(pair.now.get() + 11_000_000_000);
    transfer(&mut pair, 20, |_| false);
    taken.take(&inlet);
    assert_eq!(taken.packets.len(), 81);
    assert_eq!(pair.snapshot(0).metering.unwrap().1, None);
    // The session is still there for the new meters.
    pair.gateways[0].close(Instant(pair.now.get()));
    taken.take(&inlet);
    assert_eq!(taken.last(Place::WanEgress).counts.requests, 20);
}

// shows: AMB-SEQ-TIME
#[test]
fn a_step_of_the_system_clock_closes_what_is_open() {
    let mut pair = Pair::new(true);
    let inlet = observe(&mut pair, 0, &[Place::LanIngress], 32);
    let mut taken = Taken::default();
    transfer(&mut pair, 20, |_| false);
    let later = OFFSET + 3_600_000_000_000;
    inlet
        .shared
        .utc_offset
        .store(later, std::sync::atomic::Ordering::Relaxed);
    for _ in 0..500 {
        pair.step(&mut |_| false);
    }
    taken.take(&inlet);
    assert!(taken.last(Place::LanIngress).flags.contains(Flags::FINAL));
    assert!(taken.last(Place::LanIngress).end.0 < OFFSET + 10_000_000_000);
    transfer(&mut pair, 20, |_| false);
    pair.gateways[0].close(Instant(pair.now.get()));
    taken.take(&inlet);
    assert!(taken.last(Place::LanIngress).start.0 > later);
    assert_eq!(pair.snapshot(0).metering.unwrap().0.clock_steps, 1);
}

// shows: SEQ-APP-10
#[test]
fn where_misses_cannot_be_told_no_sequence_is_observed() {
    let mut pair = Pair::new(true);
    let inlet = observe(&mut pair, 0, &[Place::LanIngress, Place::WanEgress], 32);
    let blind = &inlet.shared.blind[0];
    blind.store(true, std::sync::atomic::Ordering::Relaxed);
    for _ in 0..300 {
        pair.step(&mut |_| false);
    }
    transfer(&mut pair, 50, |_| false);
    let suspended = |pair: &mut Pair| {
        let points = pair.snapshot(0).points;
        points
            .iter()
            .map(|p| p.sequences.unwrap().0.suspended)
            .collect::<Vec<_>>()
    };
    assert_eq!(suspended(&mut pair), [50, 0]);
    blind.store(false, std::sync::atomic::Ordering::Relaxed);
    for _ in 0..300 {
        pair.step(&mut |_| false);
    }
    transfer(&mut pair, 20, |_| false);
    pair.gateways[0].close(Instant(pair.now.get()));
    let mut taken = Taken::default();
    taken.take(&inlet);
    assert_eq!(taken.last(Place::LanIngress).counts.requests, 20);
    assert_eq!(
        taken.packets.len(),
        140,
        "packets are observed all the same"
    );
}
