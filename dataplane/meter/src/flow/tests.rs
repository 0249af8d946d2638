//! Conservation: every packet is in one record, whatever is idle, active too long or evicted.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use crem_wire::roce::{Bth, Opcode};
use crem_wire::{Psn, Qpn};
use proptest::prelude::*;

use super::*;
use crate::PacketRecord;
use crate::seq::SequenceRecord;

#[derive(Default)]
struct Flows(Vec<FlowRecord>);

impl Sink for Flows {
    fn packet(&mut self, _: &PacketRecord) -> bool {
        false
    }
    fn flow(&mut self, place: Place, record: &FlowRecord) -> bool {
        assert_eq!(place, Place::WanEgress);
        assert_eq!(record.direction, Direction::Egress);
        assert!(record.start <= record.end && record.packets > 0);
        self.0.push(*record);
        true
    }
    fn sequence(&mut self, _: &SequenceRecord) -> bool {
        false
    }
}

fn packet(qp: u32, opcode: u8, octets: u16) -> Observation {
    Observation {
        source: IpAddr::from([10, 0, 0, 1]),
        destination: IpAddr::from([10, 0, 1, 1]),
        source_port: 49152,
        destination_port: 4791,
        tos: 0,
        ip_octets: octets,
        payload_off: 42,
        payload_octets: 60,
        context: 0,
        bth: Bth {
            opcode: Opcode(opcode),
            octet1: 0,
            pkey: 0xffff,
            octet4: 0,
            dest_qp: Qpn::new(qp),
            octet8: 0,
            psn: Psn::new(0),
        },
    }
}

fn cache(flows: u32, opcode_key: bool) -> FlowCache {
    let point = Point::new(Place::WanEgress, 3, 1).unwrap();
    let config = FlowConfig {
        flows,
        active_timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(15),
        opcode_key,
    };
    FlowCache::new(point, config)
}

fn at(seconds: u64) -> Utc {
    Utc((1_000_000 + seconds) * 1_000_000_000)
}

#[test]
fn idle_and_active_timeouts() {
    let mut cache = cache(10, false);
    let mut flows = Flows::default();
    // A packet a second for 70 seconds, then silence.
    let mut due = Vec::new();
    for second in 0..120 {
        if second <= 70 {
            cache.packet(at(second), &packet(5, 4, 100), &mut flows);
        }
        let before = flows.0.len();
        cache.poll(at(second), 10, &mut flows);
        due.extend((before..flows.0.len()).map(|_| second));
    }
    let got: Vec<(u64, u64, Utc, Utc)> = flows
        .0
        .iter()
        .map(|f| (f.packets, f.octets, f.start, f.end))
        .collect();
    assert_eq!(got, [(60, 6000, at(0), at(59)), (11, 1100, at(60), at(70))]);
    assert!((85..=86).contains(&due[0]), "{due:?}");
    assert_eq!((cache.counters().active, cache.counters().idle), (1, 1));
    assert!(cache.is_empty() && cache.next_timeout().is_none());
    assert_eq!(flows.0[0].point, 4);
}

#[test]
fn an_active_flow_is_told_without_a_packet() {
    let mut cache = cache(10, false);
    let mut flows = Flows::default();
    for second in [0, 14, 28, 42, 56] {
        cache.packet(at(second), &packet(5, 4, 100), &mut flows);
        cache.poll(at(second), 10, &mut flows);
    }
    cache.poll(at(61), 10, &mut flows);
    assert_eq!(
        (flows.0.len(), cache.counters().active, cache.len()),
        (1, 1, 1)
    );
    // Nothing further was seen: idle, and no empty record.
    cache.poll(at(73), 10, &mut flows);
    assert_eq!((flows.0.len(), cache.len()), (1, 0));
}

// shows: BTH-IE-06, BTH-AGG-04
#[test]
fn the_opcode_parts_flows_only_as_a_key() {
    for (key, records) in [(false, 1), (true, 2)] {
        let mut cache = cache(10, key);
        let mut flows = Flows::default();
        cache.packet(at(0), &packet(5, 4, 100), &mut flows);
        cache.packet(at(0), &packet(5, 0x81, 60), &mut flows);
        cache.flush(&mut flows);
        assert_eq!(flows.0.len(), records);
        assert_eq!(flows.0.iter().map(|f| f.octets).sum::<u64>(), 160);
        assert!(flows.0.iter().all(|f| f.key.opcode.is_some() == key));
        assert_eq!(cache.counters().flushed, records as u64);
    }
}

proptest! {
    // shows: BTH-AGG-01
    #[test]
    fn packets_and_octets_are_conserved(
        ops in proptest::collection::vec((0..30u32, 0..8u64, 40..200u16, any::<bool>()), 1..400),
        bound in 1..12u32,
    ) {
        let mut cache = cache(bound, false);
        let mut flows = Flows::default();
        let mut expected: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let mut now = 0;
        for (qp, seconds, octets, poll) in ops {
            now += seconds;
            cache.packet(at(now), &packet(qp, 4, octets), &mut flows);
            let of = expected.entry(qp).or_default();
            *of = (of.0 + 1, of.1 + u64::from(octets));
            if poll {
                cache.poll(at(now), 3, &mut flows);
            }
            prop_assert!(cache.len() <= bound as usize);
            let sum = expected.values().map(|v| v.0).sum::<u64>();
            prop_assert_eq!(cache.counters().packets, sum);
        }
        cache.flush(&mut flows);
        prop_assert!(cache.is_empty());
        let mut found: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let mut ends: BTreeMap<u32, Utc> = BTreeMap::new();
        for flow in &flows.0 {
            let qp = flow.key.qp.get();
            let of = found.entry(qp).or_default();
            *of = (of.0 + flow.packets, of.1 + flow.octets);
            // Intervals of a flow do not overlap and are no longer than the active timeout.
            prop_assert!(ends.get(&qp).is_none_or(|end| *end <= flow.start));
            prop_assert!(flow.end.since(flow.start) < Duration::from_secs(60));
            ends.insert(qp, flow.end);
        }
        prop_assert_eq!(found, expected);
        let c = cache.counters();
        prop_assert_eq!(c.idle + c.active + c.evicted + c.flushed, flows.0.len() as u64);
    }
}

// shows: BTH-IE-07, BTH-IE-08, BTH-AGG-02, BTH-COR-04
#[test]
fn keys_differ_when_any_part_does() {
    let base = packet(4, 0, 1000);
    let v6 = "::ffff:10.0.0.1".parse().unwrap();
    let bth = |change: fn(&mut Bth)| {
        let mut changed = base;
        change(&mut changed.bth);
        changed
    };
    let packets = [
        base,
        Observation {
            source: IpAddr::from([10, 0, 0, 3]),
            ..base
        },
        Observation {
            destination: IpAddr::from([10, 0, 0, 3]),
            ..base
        },
        Observation {
            source_port: base.destination_port,
            destination_port: base.source_port,
            ..base
        },
        bth(|bth| bth.pkey ^= 1),
        bth(|bth| bth.dest_qp = Qpn::new(5)),
        Observation {
            source: v6,
            destination: v6,
            ..base
        },
    ];
    let keys = packets.map(|packet| words_of(&packet, false));
    for (n, key) in keys.iter().enumerate() {
        assert!(!keys[..n].contains(key), "{:?}", packets[n]);
    }
    // The opcode is a key where it is to be one, also opcode 0.
    let other = bth(|bth| bth.opcode = Opcode(1));
    assert_eq!(words_of(&base, false), words_of(&other, false));
    assert_ne!(words_of(&base, true), words_of(&other, true));
    assert_ne!(words_of(&base, true), words_of(&base, false));
}
