//! Changes of the meters: what stays goes on, what goes makes its last records, what is new begins afresh.

#![allow(clippy::unwrap_used, clippy::panic)]

use core::time::Duration;

use super::*;
use crate::flow::FlowRecord;
use crate::meter::tests::{All, MUCH, frame, point, scopes, show};
use crate::scope::Scope;
use crate::select::Selection;
use crate::seq::{Flags, SequenceRecord};
use crate::{Encapsulation, Record};

const PLACE: Place = Place::LanIngress;

struct Rig {
    meter: Meter,
    scopes: Scopes,
    points: Vec<PointConfig>,
    all: All,
}

impl Rig {
    /// Meters that have seen packets 0 to 3, with a session of collector 4.
    fn new(points: Vec<PointConfig>) -> Self {
        let mut meter = Meter::new(scopes(), &points, 3, MUCH).unwrap();
        begin(&mut meter);
        let mut rig = Self {
            meter,
            scopes: scopes(),
            points,
            all: All::default(),
        };
        (0..4).for_each(|psn| rig.show(psn));
        rig
    }

    fn show(&mut self, psn: u8) {
        let now = 1000 + u64::from(psn);
        show(&mut self.meter, PLACE, now, &frame(psn), &mut self.all);
    }

    /// Changes the meters and lets those that go make their records.
    fn change(&mut self, scopes: Scopes, points: Vec<PointConfig>) {
        let before = (&self.scopes, &self.points[..]);
        let mut revision = Revision::new(before, (&scopes, &points), 3, MUCH).unwrap();
        let mut gone = self.meter.revise(&mut revision);
        let mut turns = 0;
        while gone.drain(Utc::from_millis(2000), 1, &mut self.all) {
            turns += 1;
            assert!(turns < 1000);
        }
        begin(&mut self.meter);
        self.points = points;
        self.scopes = scopes;
    }

    fn close(mut self) -> All {
        self.meter.flush(&mut self.all);
        self.all
    }
}

fn begin(meter: &mut Meter) {
    meter.collector(4).for_each(|o| o.begin_session(1));
}

fn sequences(all: &All) -> Vec<SequenceRecord> {
    let records = all.0.iter();
    let of = records.filter_map(|record| match record {
        Record::Sequence(record) => Some(*record),
        _ => None,
    });
    of.collect()
}

fn flows(all: &All) -> Vec<FlowRecord> {
    let records = all.0.iter();
    let of = records.filter_map(|record| match record {
        Record::Flow(record) => Some(*record),
        _ => None,
    });
    of.collect()
}

fn changed(change: impl FnOnce(&mut PointConfig)) -> Vec<PointConfig> {
    let mut point = point(PLACE, 10);
    change(&mut point);
    vec![point]
}

#[test]
fn what_is_as_before_goes_on() {
    let mut rig = Rig::new(changed(|_| {}));
    // Another limit of packets, another place, and a connection that is not there.
    let mut points = changed(|p| {
        p.packets.as_mut().unwrap().rate_limit = None;
        for (_, provisions) in &mut p.sequences {
            let mut other = provisions[0];
            other.source = "10.0.77.0/24".parse().unwrap();
            provisions.insert(0, other);
        }
    });
    points.push(point(Place::WanEgress, 30));
    rig.change(scopes(), points);
    (4..8).for_each(|psn| rig.show(psn));
    let (_, stats) = rig.meter.packets(PLACE).unwrap().selection().unwrap();
    assert_eq!((stats.observed, stats.selected), (8, 4));
    assert_eq!(rig.meter.counters(PLACE).unwrap().observed, 8);
    let all = rig.close();
    let [sequence] = sequences(&all)[..] else {
        panic!("one epoch")
    };
    assert_eq!((sequence.counts.requests, sequence.counts.skipped), (8, 0));
    assert_eq!(
        flows(&all).iter().map(|f| f.packets).collect::<Vec<_>>(),
        [8]
    );
}

// shows: SEQ-ID-08, SEQ-ID-10
#[test]
fn what_changes_makes_its_last_records_and_begins_afresh() {
    let mut rig = Rig::new(changed(|_| {}));
    let points = changed(|p| {
        p.flows.as_mut().unwrap().opcode_key = true;
        p.packets.as_mut().unwrap().selection = Selection::All;
        for (observer, _) in &mut p.sequences {
            observer.report_interval = Duration::from_secs(1);
        }
    });
    rig.change(scopes(), points);
    (4..8).for_each(|psn| rig.show(psn));
    assert!(rig.meter.packets(PLACE).unwrap().selection().is_none());
    let all = rig.close();
    let [old, new] = sequences(&all)[..] else {
        panic!("two epochs")
    };
    assert_eq!(
        old.flags.0 & !Flags::GENERATION_UNVERIFIED.0,
        Flags::FINAL.0
    );
    assert_eq!((old.counts.requests, new.counts.requests), (4, 4));
    assert!(new.epoch > old.epoch, "no number is used again");
    let flows = flows(&all);
    let found: Vec<_> = flows.iter().map(|f| (f.packets, f.key.opcode)).collect();
    assert_eq!(found, [(4, None), (4, Some(4))]);
}

#[test]
fn a_place_that_is_left_makes_its_last_records_and_one_that_comes_has_other_numbers() {
    let mut rig = Rig::new(changed(|_| {}));
    rig.change(scopes(), vec![]);
    assert_eq!((sequences(&rig.all).len(), flows(&rig.all).len()), (1, 1));
    rig.show(4);
    assert!(!rig.meter.is_active(PLACE));
    rig.change(scopes(), changed(|p| p.base = 50));
    rig.show(5);
    let all = rig.close();
    let points: Vec<_> = sequences(&all).iter().map(|s| s.point).collect();
    assert_eq!(points, [13, 53]);
}

// shows: SEQ-APP-07
#[test]
fn packets_that_may_be_left_out_end_epochs_and_flows_go_on() {
    let more = |source: &str| {
        let scope = |source: &str| Scope {
            source: source.parse().unwrap(),
            destination: "10.0.0.0/16".parse().unwrap(),
            encapsulation: Encapsulation::Untagged,
        };
        Scopes::new(vec![scope(source), scope("10.9.0.0/16")]).unwrap()
    };
    let mut rig = Rig::new(changed(|_| {}));
    rig.change(more("10.0.0.0/16"), changed(|_| {}));
    rig.show(4);
    assert!(sequences(&rig.all).is_empty(), "more is observed, no less");
    rig.change(more("10.0.0.0/24"), changed(|_| {}));
    rig.show(5);
    let [record] = sequences(&rig.all)[..] else {
        panic!("one report")
    };
    assert!(
        record
            .flags
            .contains(Flags::FINAL | Flags::CAPTURE_DISCONTINUITY)
    );
    assert_eq!(record.counts.requests, 5);
    let all = rig.close();
    assert_eq!(
        flows(&all).iter().map(|f| f.packets).collect::<Vec<_>>(),
        [6]
    );
}

#[test]
fn what_cannot_be_is_refused() {
    let scopes = scopes();
    let points = changed(|_| {});
    let wide = changed(|p| p.sequences[0].1[0].window = 65);
    let refused = Revision::new((&scopes, &points), (&scopes, &wide), 3, MUCH);
    assert!(matches!(refused, Err(MeterError::Provision(..))));
    let small = Revision::new((&scopes, &points), (&scopes, &points), 3, 100);
    assert!(matches!(small, Err(MeterError::Memory(..))));
}
