//! Sessions, read back with the decoder: order, numbers, options, and the mistakes that exporters make.
#![allow(clippy::unwrap_used, clippy::panic)]
#![allow(clippy::type_complexity, clippy::cloned_ref_to_slice_refs)]

use std::net::IpAddr;
use std::time::Duration;

use crem_meter::flow::FlowKey;
use crem_meter::point::Direction;
use crem_meter::select::Selection;
use crem_meter::seq::{ConnectionKey, Counts};
use crem_wire::roce::{Bth, Opcode};
use crem_wire::{Psn, Qpn};
use proptest::prelude::*;

use super::*;
use crate::collect::Report;
use crate::decode::{DecodeLimits, Decoder, Delivery, Message};
use crate::element::{DataType, Mapping, Private};
use crate::profile::{QpOctets, check, classify};
use crate::value::Value;

const NOW: Utc = Utc(1_793_009_730_125_000_000);

fn config(transport: Transport) -> SessionConfig {
    let sequence = matches!(transport, Transport::Stream { .. });
    SessionConfig {
        domain: 7,
        transport,
        mapping: Arc::new(Mapping::consecutive(32473, 1).unwrap()),
        qp: QpOctets::Three,
        packets: Some(PacketProfile {
            unselected: true,
            selections: vec![
                SelectionSequence {
                    id: 9001,
                    point: 12,
                    selection: Selection::Count {
                        interval: 1,
                        space: 99,
                    },
                },
                SelectionSequence {
                    id: 9002,
                    point: 13,
                    selection: Selection::Probability(0.25),
                },
                SelectionSequence {
                    id: 9003,
                    point: 14,
                    selection: Selection::Hash {
                        offset: 8,
                        size: 12,
                        initial: 3,
                        from: 0,
                        to: 99,
                    },
                },
            ],
            time_error: 1000.0,
        }),
        flows: Some(FlowProfile {
            opcode: false,
            before: true,
            after: true,
            active_timeout: 60,
            idle_timeout: 15,
        }),
        sequence: sequence.then_some(SequenceProfile {
            namespaces: true,
            contexts: 100,
        }),
        metering_process: 1,
        exporting_process: 2,
    }
}

const STREAM: Transport = Transport::Stream { max_message: 1400 };

fn session(config: SessionConfig) -> Session {
    Session::new(Arc::new(config), 1, Totals::default()).unwrap()
}

/// The messages in a buffer.
fn messages(mut octets: &[u8]) -> Vec<&[u8]> {
    let mut messages = Vec::new();
    while !octets.is_empty() {
        let length = usize::from(u16::from_be_bytes([octets[2], octets[3]]));
        let (message, rest) = octets.split_at(length);
        messages.push(message);
        octets = rest;
    }
    messages
}

fn mapping() -> Arc<Mapping> {
    Arc::new(Mapping::consecutive(32473, 1).unwrap())
}

/// Decodes everything with a fresh decoder; the sequence numbers have to count the Data Records.
fn decode(octets: &[u8], delivery: Delivery) -> Vec<Message<'_>> {
    let mut decoder = Decoder::new(mapping(), delivery, DecodeLimits::default());
    let mut expected = 0;
    messages(octets)
        .into_iter()
        .map(|octets| {
            let message = decoder.decode(octets).unwrap();
            assert_eq!(message.header.sequence, expected);
            assert_eq!(message.header.domain, 7);
            expected += message.records.len() as u32;
            message
        })
        .collect()
}

fn packet(source: &str, psn: u32, selection: Option<u64>) -> PacketRecord {
    let source: IpAddr = source.parse().unwrap();
    PacketRecord {
        point: 12,
        time: NOW,
        source,
        destination: source,
        source_port: 49152,
        destination_port: 4791,
        tos: 3,
        direction: Direction::Ingress,
        selection,
        bth: Bth {
            opcode: Opcode(0xff),
            octet1: 0xb0,
            pkey: 0xffff,
            octet4: 0xff,
            dest_qp: Qpn::new(0xab_cdef),
            octet8: 0xff,
            psn: Psn::new(psn),
        },
    }
}

fn flow() -> FlowRecord {
    FlowRecord {
        point: 12,
        direction: Direction::Egress,
        key: FlowKey {
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8::2".parse().unwrap(),
            source_port: 1,
            destination_port: 4791,
            pkey: 2,
            qp: Qpn::new(3),
            opcode: None,
        },
        start: NOW,
        end: NOW.after(Duration::from_millis(5)),
        packets: 6,
        octets: 7,
    }
}

fn snapshot(context: u32, epoch: u64, flags: Flags, session: u32) -> SequenceRecord {
    SequenceRecord {
        point: 1,
        collector: 0,
        session,
        context,
        epoch,
        key: ConnectionKey {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            qp: Qpn::new(291),
            pkey: 0xffff,
            context: 0,
        },
        flags,
        window: 64,
        start: NOW,
        end: NOW.after(Duration::from_secs(1)),
        counts: Counts {
            skipped: 5,
            filled: 2,
            expired: 1,
            pending: 2,
            requests: 9,
            ..Counts::default()
        },
    }
}

#[test]
fn types_come_before_templates_and_templates_before_data() {
    let mut session = session(config(STREAM));
    let mut out = Vec::new();
    session.announce(NOW, &mut out);
    session
        .packet(NOW, &packet("10.0.0.1", 5, None), &mut out)
        .unwrap();
    session.flush(NOW, &mut out);
    let all = decode(&out, Delivery::Ordered);
    let templates: Vec<u16> = all
        .iter()
        .flat_map(|message| message.defined.clone())
        .collect();
    assert_eq!(templates[0], Options::TypeInformation as u16);
    let records: Vec<u16> = all
        .iter()
        .flat_map(|message| &message.records)
        .map(|record| record.template.id)
        .collect();
    assert!(
        records[..19]
            .iter()
            .all(|id| *id == Options::TypeInformation as u16)
    );
    // The types were complete before the first template that uses them: one decoder reads in order.
    let first_use = out
        .windows(6)
        .position(|w| w == [0x80, 1, 0, 1, 0, 0])
        .unwrap();
    let last_type = out
        .windows(9)
        .rposition(|w| w == b"unclassif".as_slice())
        .unwrap();
    assert!(last_type < first_use);
    assert_eq!(records.last(), Some(&256));
    assert!(messages(&out).iter().all(|message| message.len() <= 1400));
}

// shows: BTH-IE-01, SEQ-IE-01
#[test]
fn type_records_have_all_nine_fields_and_the_defined_type() {
    let mut session = session(config(STREAM));
    let mut out = Vec::new();
    session.announce(NOW, &mut out);
    let all = decode(&out, Delivery::Ordered);
    let types: Vec<_> = all
        .iter()
        .flat_map(|message| &message.records)
        .filter(|record| record.template.id == Options::TypeInformation as u16)
        .collect();
    assert_eq!(types.len(), Private::COUNT);
    for (record, (_, definition)) in types.iter().zip(PRIVATE) {
        assert_eq!(record.template.fields.len(), 9);
        let number = |id, kind| record.get(0, id, kind).unwrap().as_u64().unwrap();
        assert_eq!(number(346, DataType::Unsigned32), 32473);
        assert!(number(303, DataType::Unsigned16) < 0x8000);
        assert_eq!(
            number(339, DataType::Unsigned8),
            definition.data_type as u64
        );
        assert_eq!(
            record.get(0, 341, DataType::String),
            Some(Value::Text(definition.name))
        );
        assert_eq!(
            record.octets().len(),
            options::type_information_len(definition)
        );
    }
}

use crate::element::PRIVATE;

#[test]
fn options_templates_have_a_set_each() {
    let mut session = session(config(STREAM));
    let mut out = Vec::new();
    session.announce(NOW, &mut out);
    for message in messages(&out) {
        let mut rest = &message[16..];
        while !rest.is_empty() {
            let id = u16::from_be_bytes([rest[0], rest[1]]);
            let length = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
            if id == 3 {
                let count = usize::from(u16::from_be_bytes([rest[6], rest[7]]));
                assert_eq!(length, 4 + 6 + 4 * count, "one record, no padding");
            }
            rest = &rest[length..];
        }
    }
}

// shows: BTH-SEL-01, BTH-SEL-03, BTH-SEL-04, BTH-AGG-09
#[test]
fn all_four_reports_on_selections_and_the_timeouts() {
    let mut session = session(config(STREAM));
    let mut out = Vec::new();
    session.announce(NOW, &mut out);
    let stats = SelectionStats {
        observed: 100,
        selected: 1,
    };
    session
        .selection_stats(NOW, 9001, &stats, &mut out)
        .unwrap();
    assert_eq!(
        session.selection_stats(NOW, 5, &stats, &mut out),
        Err(Refused::Kind)
    );
    session.flush(NOW, &mut out);
    let all = decode(&out, Delivery::Ordered);
    let of = |options: Options| -> Vec<Vec<u64>> {
        all.iter()
            .flat_map(|message| &message.records)
            .filter(|record| record.template.id == options as u16)
            .map(|record| {
                record
                    .fields()
                    .map(|(_, octets)| crate::value::unsigned(octets))
                    .collect()
            })
            .collect()
    };
    let sequences = of(Options::SelectionSequence);
    assert_eq!(
        sequences,
        [[9001, 12, 9001], [9002, 13, 9002], [9003, 14, 9003]]
    );
    assert_eq!(of(Options::SelectorCount), [[9001, 1, 1, 99]]);
    assert_eq!(
        of(Options::SelectorProbability),
        [[9002, 4, 0.25f64.to_bits()]]
    );
    assert_eq!(
        of(Options::SelectorHash),
        [[9003, 6, 8, 12, 0, u64::from(u32::MAX), 0, 99, 2, 3]]
    );
    assert_eq!(of(Options::SelectionStatistics), [[9001, 100, 1]]);
    let error = 1000.0f64.to_bits();
    assert_eq!(
        of(Options::Accuracy),
        [[257, 325, error], [264, 325, error]]
    );
    assert_eq!(of(Options::Timeouts), [[7, 60, 15]]);
    let keys = of(Options::FlowKeys);
    assert_eq!(keys.len(), 4 + 6);
    assert!(keys.contains(&vec![260, 159]));
}

/// The number of scope fields and the elements of every options template, as the RFCs have them. Values are
/// written in this order, which the tests of values do not see.
// shows: BTH-SEL-03, BTH-SEL-04, BTH-AGG-03, BTH-AGG-09
#[test]
fn options_have_the_elements_that_their_values_are_of() {
    let all: [(Options, u16, &[u16]); 12] = [
        (
            Options::TypeInformation,
            2,
            &[346, 303, 339, 344, 345, 342, 343, 341, 340],
        ),
        (Options::FlowKeys, 1, &[145, 173]),
        (Options::Timeouts, 1, &[149, 36, 37]),
        (Options::SelectionSequence, 1, &[301, 138, 302]),
        (Options::SelectorCount, 1, &[302, 304, 305, 306]),
        (Options::SelectorProbability, 1, &[302, 304, 311]),
        (
            Options::SelectorHash,
            1,
            &[302, 304, 327, 328, 329, 330, 331, 332, 333, 334],
        ),
        (Options::SelectionStatistics, 1, &[301, 318, 319]),
        (Options::Accuracy, 2, &[145, 303, 320]),
        (Options::MeteringStatistics, 2, &[149, 143, 41, 42, 40]),
        (
            Options::MeteringReliability,
            2,
            &[149, 143, 164, 165, 323, 323],
        ),
        (
            Options::ExportingReliability,
            1,
            &[144, 166, 167, 168, 323, 323],
        ),
    ];
    for (options, scope, numbers) in all {
        let template = options.template();
        let found: Vec<u16> = template.fields.iter().map(|field| field.number).collect();
        assert_eq!(
            (template.scope, found.as_slice()),
            (scope, numbers),
            "{options:?}"
        );
    }
}

// shows: BTH-TMPL-05
#[test]
fn every_template_in_use_conforms() {
    let mut session = session(config(STREAM));
    let mut out = Vec::new();
    session.announce(NOW, &mut out);
    let mapping = mapping();
    for (kind, template) in &session.templates {
        let selection = matches!(
            kind,
            Kind::Packet {
                selection: true,
                ..
            }
        );
        let profile = classify(&template.fields, &mapping).unwrap();
        assert_eq!(check(&template.fields, profile, selection, &mapping), []);
    }
}

proptest! {
    // shows: BTH-IE-03, BTH-IE-15, BTH-PARSE-13, BTH-PKT-02
    #[test]
    fn packets_come_back_as_they_were(
        point: u64,
        nanos in 0..4_000_000_000_000_000_000u64,
        v6: bool,
        address: u128,
        ports: (u16, u16),
        octets: [u8; 12],
        tos: u8,
        selection in proptest::option::of(any::<u64>()),
        four: bool,
    ) {
        let source: IpAddr = if v6 {
            IpAddr::from(address.to_be_bytes())
        } else {
            IpAddr::from((address as u32).to_be_bytes())
        };
        let record = PacketRecord {
            point,
            time: Utc(nanos),
            source,
            destination: source,
            source_port: ports.0,
            destination_port: ports.1,
            tos,
            direction: Direction::Egress,
            selection,
            bth: Bth::parse(&octets).unwrap(),
        };
        let mut config = config(STREAM);
        config.qp = if four { QpOctets::Four } else { QpOctets::Three };
        let mut session = session(config);
        let mut out = Vec::new();
        session.announce(NOW, &mut out);
        session.packet(NOW, &record, &mut out).unwrap();
        session.flush(NOW, &mut out);
        let all = decode(&out, Delivery::Ordered);
        let found = all.last().unwrap().records.last().unwrap();
        let mapping = mapping();
        let value = |name: &str| {
            let (pen, number) = mapping.by_name(name).unwrap();
            let data_type = mapping.definition(pen, number).unwrap().data_type;
            found.get(pen, number, data_type)
        };
        let number = |name: &str| value(name).and_then(|value| value.as_u64());
        prop_assert_eq!(number("observationPointId"), Some(point));
        prop_assert_eq!(number("observationTimeNanoseconds"), Some(nanos));
        let source_name = if v6 { "sourceIPv6Address" } else { "sourceIPv4Address" };
        prop_assert_eq!(value(source_name), Some(Value::Address(source)));
        prop_assert_eq!(number("sourceTransportPort"), Some(ports.0.into()));
        prop_assert_eq!(number("destinationTransportPort"), Some(ports.1.into()));
        prop_assert_eq!(number("protocolIdentifier"), Some(17));
        prop_assert_eq!(number("ipClassOfService"), Some(tos.into()));
        prop_assert_eq!(number("flowDirection"), Some(1));
        prop_assert_eq!(number("selectionSequenceId"), selection);
        prop_assert_eq!(number("rocev2BthOpcode"), Some(octets[0].into()));
        prop_assert_eq!(number("rocev2BthOctetAtOffset1"), Some(octets[1].into()));
        prop_assert_eq!(number("rocev2BthPartitionKey"), Some(u64::from(record.bth.pkey)));
        prop_assert_eq!(number("rocev2BthOctetAtOffset4"), Some(octets[4].into()));
        prop_assert_eq!(number("rocev2BthDestinationQp"), Some(record.bth.dest_qp.get().into()));
        prop_assert_eq!(number("rocev2BthOctetAtOffset8"), Some(octets[8].into()));
        prop_assert_eq!(number("rocev2BthPacketSequenceNumber"), Some(record.bth.psn.get().into()));
    }
}

// shows: BTH-AGG-06
#[test]
fn flows_and_snapshots_come_back() {
    let mut session = session(config(STREAM));
    let mut out = Vec::new();
    session.announce(NOW, &mut out);
    session.flow(NOW, true, &flow(), &mut out).unwrap();
    let ids = session
        .sequence(NOW, &snapshot(0, 40, Flags::NONE, 1), &mut out)
        .unwrap();
    assert_eq!(
        ids,
        Ids {
            epoch: 1,
            report: 1
        }
    );
    let mut vxlan = snapshot(1, 41, Flags::FINAL | Flags::SERIAL_DISCONTINUITY, 1);
    vxlan.key.context = 1 << 63 | 77 << 26;
    (vxlan.counts.pending, vxlan.counts.abandoned) = (0, 2);
    session.sequence(NOW, &vxlan, &mut out).unwrap();
    session.flush(NOW, &mut out);
    let all = decode(&out, Delivery::Ordered);
    let records = &all.last().unwrap().records;
    let [flow, plain, vxlan] = &records[records.len() - 3..] else {
        panic!()
    };
    assert_eq!(
        flow.get(0, 24, DataType::Unsigned64),
        Some(Value::Unsigned(6))
    );
    assert_eq!(
        flow.get(0, 23, DataType::Unsigned64),
        Some(Value::Unsigned(7))
    );
    assert_eq!(flow.get(0, 2, DataType::Unsigned64), None);
    let end = Value::Millis(1_793_009_730_130);
    assert_eq!(flow.get(0, 153, DataType::DateTimeMilliseconds), Some(end));
    let plain = Report::read(plain, &mapping()).unwrap();
    assert!(plain.is_valid());
    assert_eq!(
        (plain.epoch, plain.report, plain.window, plain.key.qp),
        (1, 1, 64, 291)
    );
    assert_eq!((plain.counts.skipped, plain.counts.requests), (5, 9));
    assert_eq!((plain.key.vlan, plain.key.segment), (None, None));
    let vxlan = Report::read(vxlan, &mapping()).unwrap();
    assert!(vxlan.is_valid() && vxlan.is_final());
    assert_eq!(vxlan.key.segment, Some(1 << 56 | 77));
    assert_eq!(vxlan.epoch, 2);
}

#[test]
fn what_is_refused_uses_no_number() {
    let mut session = session(config(STREAM));
    let mut out = Vec::new();
    session.announce(NOW, &mut out);
    let stale = snapshot(0, 1, Flags::NONE, 2);
    assert_eq!(
        session.sequence(NOW, &stale, &mut out),
        Err(Refused::Session)
    );
    let mut two_tags = snapshot(0, 1, Flags::NONE, 1);
    two_tags.key.context = 5 << 13 | 6;
    assert_eq!(
        session.sequence(NOW, &two_tags, &mut out),
        Err(Refused::Namespace)
    );
    let mut opcode = flow();
    opcode.key.opcode = Some(1);
    assert_eq!(
        session.flow(NOW, false, &opcode, &mut out),
        Err(Refused::Kind)
    );
    let ids = session
        .sequence(NOW, &snapshot(0, 1, Flags::NONE, 1), &mut out)
        .unwrap();
    assert_eq!(
        ids,
        Ids {
            epoch: 1,
            report: 1
        }
    );
    session.flush(NOW, &mut out);
    decode(&out, Delivery::Ordered);
}

#[test]
fn export_time_never_goes_back() {
    let mut session = session(config(STREAM));
    let mut out = Vec::new();
    session.announce(NOW, &mut out);
    session
        .packet(NOW, &packet("::1", 1, None), &mut out)
        .unwrap();
    session.flush(Utc(NOW.0 - 5_000_000_000), &mut out);
    assert_eq!(session.clock_steps(), 1);
    session
        .packet(NOW, &packet("::1", 1, None), &mut out)
        .unwrap();
    session.flush(NOW.after(Duration::from_secs(3)), &mut out);
    let times: Vec<u32> = decode(&out, Delivery::Ordered)
        .iter()
        .map(|message| message.header.export_time)
        .collect();
    assert!(times.windows(2).all(|pair| pair[0] <= pair[1]), "{times:?}");
    assert_eq!(times.last(), Some(&1_793_009_733));
}

#[test]
fn messages_are_full_and_never_too_long() {
    for (max, per_message) in [(1472, 33), (65535, 1523)] {
        let mut config = config(Transport::Stream { max_message: max });
        config.sequence = None;
        let mut session = session(config);
        let mut out = Vec::new();
        session.announce(NOW, &mut out);
        let start = out.len();
        for psn in 0..2 * per_message {
            session
                .packet(NOW, &packet("10.0.0.1", psn, None), &mut out)
                .unwrap();
        }
        session.flush(NOW, &mut out);
        let data = messages(&out[start..]);
        assert_eq!(data.len(), 2, "{max}");
        assert!(data.iter().all(|message| message.len() <= max));
        decode(&out, Delivery::Ordered);
    }
}

#[test]
fn datagrams_fit_the_path_and_are_announced_again() {
    assert_eq!(datagram_size(None, false), 484);
    assert_eq!(datagram_size(None, true), 464);
    assert_eq!(datagram_size(Some(1500), false), 1472);
    let refresh = Duration::from_secs(600);
    let transport = Transport::Datagram {
        max_message: datagram_size(None, true),
        refresh,
    };
    let mut session = session(config(transport));
    let mut out = Vec::new();
    session.announce(NOW, &mut out);
    assert!(messages(&out).iter().all(|message| message.len() <= 464));
    let once = out.len();
    session.poll(NOW.after(Duration::from_secs(599)), &mut out);
    assert_eq!(out.len(), once);
    session.poll(NOW.after(refresh), &mut out);
    assert_eq!(out.len(), 2 * once);
    // Everything again, options data too, and never a withdrawal.
    let all = decode(&out, Delivery::Lossy);
    assert!(all.iter().all(|message| message.withdrawn.is_empty()));
    let ids = |half: &[Message]| -> Vec<u16> {
        half.iter()
            .flat_map(|m| &m.records)
            .map(|r| r.template.id)
            .collect()
    };
    let (first, second) = all.split_at(all.len() / 2);
    assert_eq!(ids(first), ids(second));
    assert!(session.next_timeout().is_some());
}

#[test]
fn totals_exclude_the_message_that_tells_them() {
    let mut session = session(config(STREAM));
    let mut out = Vec::new();
    session.announce(NOW, &mut out);
    session
        .packet(NOW, &packet("10.0.0.1", 1, None), &mut out)
        .unwrap();
    session.flush(NOW, &mut out);
    let before = (messages(&out).len() as u64, out.len() as u64);
    let mut not_sent = NotSent::default();
    not_sent.add(NOW, 3, 300);
    session
        .packet(NOW, &packet("10.0.0.1", 2, None), &mut out)
        .unwrap();
    session.reliability(NOW, &Ignored::default(), &not_sent, &mut out);
    session.flush(NOW, &mut out);
    let all = decode(&out, Delivery::Ordered);
    let records = &all.last().unwrap().records;
    let statistics = &records[1];
    assert_eq!(statistics.template.id, Options::MeteringStatistics as u16);
    let numbers: Vec<u64> = statistics
        .fields()
        .map(|(_, octets)| crate::value::unsigned(octets))
        .collect();
    assert_eq!(numbers, [7, 1, before.0, 1, before.1]);
    let dropped: Vec<u64> = records[2]
        .fields()
        .map(|(_, octets)| crate::value::unsigned(octets))
        .collect();
    assert_eq!(dropped, [2, 1, 3, 300, NOW.millis(), NOW.millis()]);
    // Nothing was ignored, so nothing is said about it.
    assert_eq!(records.len(), 3);
    // The next session goes on counting from here, and its sequence starts at 0.
    let mut next = Session::new(Arc::new(config(STREAM)), 2, session.totals()).unwrap();
    let mut out = Vec::new();
    next.announce(NOW, &mut out);
    assert!(next.totals().octets > before.1);
    decode(&out, Delivery::Ordered);
}

#[test]
fn configurations_that_cannot_be_meant() {
    let wrong: [(SessionError, fn(&mut SessionConfig)); 5] = [
        (SessionError::Domain, |c| c.domain = 0),
        (SessionError::Message(100), |c| {
            c.transport = Transport::Stream { max_message: 100 }
        }),
        (SessionError::Timeout, |c| {
            c.flows.as_mut().unwrap().idle_timeout = 0
        }),
        (SessionError::Selection(9001), |c| {
            c.packets.as_mut().unwrap().selections[1].id = 9001;
        }),
        (SessionError::SequenceTransport, |c| {
            c.transport = Transport::Datagram {
                max_message: 484,
                refresh: Duration::from_secs(600),
            };
        }),
    ];
    for (error, spoil) in wrong {
        let mut config = config(STREAM);
        spoil(&mut config);
        assert_eq!(
            Session::new(Arc::new(config), 1, Totals::default()).err(),
            Some(error)
        );
    }
}
