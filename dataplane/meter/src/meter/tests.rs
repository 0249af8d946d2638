//! All meters together: one recognition, every enabled meter, places apart.
#![allow(clippy::unwrap_used, clippy::panic)]

use core::time::Duration;
use std::string::ToString as _;

use crem_wire::frame::{ParseConfig, parse};

use super::*;
use crate::flow::FlowRecord;
use crate::scope::Scope;
use crate::select::Selection;
use crate::seq::{SequenceRecord, Statement};
use crate::{Encapsulation, PacketRecord, Record};

#[derive(Default)]
pub(super) struct All(pub(super) Vec<Record>);

impl Sink for All {
    fn packet(&mut self, record: &PacketRecord) -> bool {
        self.0.push(Record::Packet(*record));
        true
    }
    fn flow(&mut self, _: Place, record: &FlowRecord) -> bool {
        self.0.push(Record::Flow(*record));
        true
    }
    fn sequence(&mut self, record: &SequenceRecord) -> bool {
        self.0.push(Record::Sequence(*record));
        true
    }
}

pub(super) fn frame(psn: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 60];
    frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 1, 1]);
    frame.extend_from_slice(&[0xc0, 0, 0x12, 0xb7, 0, 40, 0, 0]);
    frame.extend_from_slice(&[4, 0, 0xff, 0xff, 0, 0, 1, 2, 0, 0, 0, psn]);
    frame.resize(14 + 60, 0);
    frame
}

pub(super) fn scopes() -> Scopes {
    Scopes::new(vec![Scope {
        source: "10.0.0.0/16".parse().unwrap(),
        destination: "10.0.0.0/16".parse().unwrap(),
        encapsulation: Encapsulation::Untagged,
    }])
    .unwrap()
}

pub(super) fn point(place: Place, base: u64) -> PointConfig {
    let provision = Provision {
        source: "10.0.0.0/16".parse().unwrap(),
        destination: "10.0.0.0/16".parse().unwrap(),
        qp: None,
        pkey: None,
        context: None,
        window: 64,
        generation: None,
        statement: Statement {
            only_send_and_write: true,
            complete_and_unambiguous: true,
            packets_per_second: 1_000_000,
            longest_retry: Duration::from_secs(1),
        },
    };
    let observer = ObserverConfig {
        contexts: 8,
        epochs: 8,
        window: 64,
        ..ObserverConfig::default()
    };
    PointConfig {
        place,
        base,
        packets: Some(PacketConfig {
            selection: Selection::Count {
                interval: 1,
                space: 1,
            },
            selection_sequence: 77,
            rate_limit: Some(1000),
            seed: 0,
        }),
        flows: Some(FlowConfig {
            flows: 8,
            ..FlowConfig::default()
        }),
        sequences: [0, 4]
            .map(|collector| {
                let observer = ObserverConfig {
                    collector,
                    ..observer
                };
                (observer, vec![provision])
            })
            .into(),
    }
}

pub(super) const MUCH: u64 = 1 << 30;

pub(super) fn show(meter: &mut Meter, place: Place, now: u64, frame: &[u8], sink: &mut All) {
    let config = ParseConfig {
        crem_port: Some(4793),
        vxlan_port: None,
    };
    let parsed = parse(frame, &config);
    meter.observe(place, Utc::from_millis(now), frame, &parsed, sink);
}

// shows: BTH-SEL-02
#[test]
fn every_enabled_meter_sees_a_packet() {
    let points = [
        point(Place::LanIngress, 10),
        point(Place::LanEgressAfterRepair, 20),
    ];
    let mut meter = Meter::new(scopes(), &points, 3, MUCH).unwrap();
    let ids: Vec<u64> = meter.points().map(|point| point.id).collect();
    assert_eq!(ids, [13, 23]);
    assert_eq!(meter.collector(1).count(), 0);
    for observer in meter.collector(4) {
        observer.begin_session(1);
    }
    let mut all = All::default();
    for psn in 1..=4 {
        show(&mut meter, Place::LanIngress, 1000, &frame(psn), &mut all);
        show(&mut meter, Place::WanIngress, 1000, &frame(psn), &mut all);
    }
    assert!(meter.is_active(Place::LanIngress) && !meter.is_active(Place::WanIngress));
    // Packets 1 and 3 are selected.
    assert_eq!(all.0.len(), 2);
    let Record::Packet(first) = all.0[0] else {
        panic!()
    };
    assert_eq!(
        (first.point, first.selection, first.bth.psn.get()),
        (13, Some(77), 1)
    );
    let packets = meter.packets(Place::LanIngress).unwrap();
    let (sequence, stats) = packets.selection().unwrap();
    assert_eq!((sequence, stats.observed, stats.selected), (77, 4, 2));
    meter.flush(&mut all);
    let [_, _, Record::Sequence(report), Record::Flow(flow)] = all.0[..] else {
        panic!("{:?}", all.0)
    };
    // The other observer has no session.
    assert_eq!(report.collector, 4);
    assert_eq!((report.point, report.counts.requests), (13, 4));
    assert_eq!((flow.packets, flow.octets), (4, 240));
    assert_eq!(meter.counters(Place::LanIngress).unwrap().observed, 4);
    assert_eq!(
        meter
            .counters(Place::LanEgressAfterRepair)
            .unwrap()
            .observed,
        0
    );
}

// shows: BTH-OPS-01, BTH-SEC-02
#[test]
fn the_rate_limit_drops_and_counts() {
    let mut config = point(Place::LanIngress, 1);
    let packets = config.packets.as_mut().unwrap();
    packets.selection = Selection::All;
    packets.rate_limit = Some(2);
    let mut meter = Meter::new(scopes(), &[config], 0, MUCH).unwrap();
    let mut all = All::default();
    for n in 0..10 {
        show(&mut meter, Place::LanIngress, 1000 + n, &frame(1), &mut all);
    }
    let packets = meter.packets(Place::LanIngress).unwrap();
    assert_eq!(packets.selection(), None);
    let counters = packets.counters();
    assert_eq!((counters.records, counters.rate_limited), (1, 9));
    assert_eq!(counters.rate_limited_octets, 9 * 60);
}

// shows: SEQ-APP-07
#[test]
fn unusable_and_missed_packets_close_epochs() {
    let mut meter = Meter::new(scopes(), &[point(Place::WanIngress, 1)], 0, MUCH).unwrap();
    for observer in meter.sequences(Place::WanIngress) {
        observer.begin_session(1);
    }
    let mut all = All::default();
    let finals = |all: &All| {
        all.0
            .iter()
            .filter(|r| matches!(r, Record::Sequence(_)))
            .count()
    };
    show(&mut meter, Place::WanIngress, 1000, &frame(1), &mut all);
    let cut = &frame(2)[..60];
    show(&mut meter, Place::WanIngress, 1001, cut, &mut all);
    show(&mut meter, Place::WanIngress, 1002, &frame(3), &mut all);
    assert_eq!(finals(&all), 2, "one for each collector");
    assert_eq!(
        meter.counters(Place::WanIngress).unwrap().unrecognised[Reason::IpLength.index()],
        1
    );
    meter.missed(Place::WanIngress);
    assert!(
        meter
            .next_timeout()
            .is_some_and(|due| due <= Utc::from_millis(1003))
    );
    meter.poll(Utc::from_millis(1003), 10, &mut all);
    assert_eq!(finals(&all), 4);
}

#[test]
fn meters_that_cannot_be_built() {
    let new = |points: &[PointConfig], allowed| Meter::new(scopes(), points, 1, allowed).err();
    let one = point(Place::LanIngress, 1);
    let needed = Meter::memory(core::slice::from_ref(&one));
    assert_eq!(new(core::slice::from_ref(&one), needed), None);
    let refused = new(core::slice::from_ref(&one), needed - 1);
    assert_eq!(refused, Some(MeterError::Memory(needed, needed - 1)));
    let twice = [one.clone(), point(Place::LanIngress, 5)];
    assert_eq!(
        new(&twice, MUCH),
        Some(MeterError::Place(Place::LanIngress))
    );
    let same = [one.clone(), point(Place::WanIngress, 1)];
    assert_eq!(new(&same, MUCH), Some(MeterError::PointId(1)));
    let beyond = point(Place::LanIngress, u64::MAX);
    assert_eq!(new(&[beyond], MUCH), Some(MeterError::PointId(u64::MAX)));
    let mut nothing = one.clone();
    nothing.packets.as_mut().unwrap().selection = Selection::Probability(2.0);
    assert!(matches!(
        new(&[nothing], MUCH),
        Some(MeterError::Selection(..))
    ));
    let mut unstated = one;
    unstated.sequences[1].1[0].statement.only_send_and_write = false;
    let error = new(&[unstated], MUCH).unwrap();
    assert!(matches!(error, MeterError::Provision(Place::LanIngress, _)));
    assert!(error.to_string().starts_with("lan_ingress: not stated"));
}

// shows: BTH-IE-03, BTH-IE-14
#[test]
fn octet_4_of_the_bth_is_copied_and_says_nothing_of_congestion() {
    let mut point = point(Place::LanIngress, 1);
    point.packets.as_mut().unwrap().selection = Selection::All;
    let mut meter = Meter::new(scopes(), &[point], 0, MUCH).unwrap();
    let mut sink = All::default();
    // F and B without a mark in IP, and a mark in IP without F and B.
    let (mut bits, mut marked) = (frame(1), frame(2));
    bits[46] = 0xff;
    marked[15] = 3;
    for (frame, ce, tos, octet_4) in [(&bits, false, 0, 0xff), (&marked, true, 3, 0)] {
        sink.0.clear();
        assert_eq!(parse(frame, &ParseConfig::default()).ce(), ce);
        show(&mut meter, Place::LanIngress, 1, frame, &mut sink);
        let Some(Record::Packet(record)) = sink.0.last() else {
            panic!("{:?}", sink.0)
        };
        let seen = (record.tos, record.bth.octet4);
        assert_eq!(seen, (tos, octet_4));
    }
}

#[test]
fn what_was_recognised_once_can_be_shown_everywhere() {
    let places = [Place::LanIngress, Place::WanEgress];
    let points = places.map(|place| point(place, 10 * place.index() as u64));
    let mut once = Meter::new(scopes(), &points, 0, MUCH).unwrap();
    let mut again = once.clone();
    let (mut from_once, mut from_again) = (All::default(), All::default());
    for number in 0..20 {
        let frame = frame(number);
        let parsed = parse(&frame, &ParseConfig::default());
        let packet = once.recognise(&parsed).unwrap();
        // From the UDP header to the ICRC.
        assert_eq!(packet.ip_payload(&frame), &frame[34..]);
        for place in places {
            let now = Utc::from_millis(number.into());
            once.show(place, now, &frame, &packet, &mut from_once);
            again.observe(place, now, &frame, &parsed, &mut from_again);
        }
    }
    assert!(from_once.0.len() >= 20 && from_once.0 == from_again.0);
}
