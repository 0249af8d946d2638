//! Our own templates conform; each rule of the drafts refuses something.
#![allow(clippy::unwrap_used)]

use super::*;

fn mapping() -> Mapping {
    Mapping::consecutive(32473, 1).unwrap()
}

fn kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for v6 in [false, true] {
        for flag in [false, true] {
            kinds.push(Kind::Packet {
                v6,
                selection: flag,
            });
            for post in [false, true] {
                kinds.push(Kind::Aggregate {
                    v6,
                    opcode: flag,
                    post,
                });
            }
        }
        for namespace in [Namespace::None, Namespace::Vlan, Namespace::Segment] {
            kinds.push(Kind::Sequence { v6, namespace });
        }
    }
    kinds
}

// shows: BTH-TMPL-01, BTH-TMPL-02, BTH-TMPL-04, BTH-TMPL-06, BTH-TMPL-09, BTH-PKT-05, SEQ-ID-03, SEQ-EXP-09
#[test]
fn our_templates_conform_and_are_of_one_profile() {
    let mapping = mapping();
    for kind in kinds() {
        for qp in [QpOctets::Three, QpOctets::Four] {
            let fields = kind.fields(&mapping, qp);
            let selection = matches!(
                kind,
                Kind::Packet {
                    selection: true,
                    ..
                }
            );
            assert_eq!(
                check(&fields, kind.profile(), selection, &mapping),
                [],
                "{kind:?}"
            );
            assert_eq!(classify(&fields, &mapping), Some(kind.profile()));
            for other in [Profile::Packet, Profile::Aggregate, Profile::Sequence] {
                let conforms = check(&fields, other, selection, &mapping).is_empty();
                assert_eq!(conforms, other == kind.profile(), "{kind:?} as {other:?}");
            }
        }
    }
}

// shows: BTH-IE-09, BTH-PKT-05, SEQ-EXP-12, SEQ-EXP-13
#[test]
fn sizes_are_those_of_the_drafts() {
    let mapping = mapping();
    let size = |kind: Kind, qp| kind.template(256, &mapping, qp).min_record();
    let packet = |v6, selection| size(Kind::Packet { v6, selection }, QpOctets::Three);
    assert_eq!([packet(false, false), packet(false, true)], [43, 51]);
    assert_eq!([packet(true, false), packet(true, true)], [67, 75]);
    let four = size(
        Kind::Packet {
            v6: false,
            selection: false,
        },
        QpOctets::Four,
    );
    assert_eq!(four, 45);
    let aggregate = Kind::Aggregate {
        v6: false,
        opcode: false,
        post: false,
    };
    assert_eq!(size(aggregate, QpOctets::Three), 59);
    let sequence = Kind::Sequence {
        v6: false,
        namespace: Namespace::None,
    };
    assert_eq!(size(sequence, QpOctets::Three), 120);
    // 14 enterprise fields (AMB-SEQ-TMPLLEN).
    assert_eq!(
        sequence.template(256, &mapping, QpOctets::Three).size(),
        136
    );
}

// shows: BTH-IE-07, BTH-IE-08, BTH-AGG-02, BTH-AGG-03, BTH-COR-02, SEQ-ID-01, SEQ-EXP-11
#[test]
fn flow_keys_name_the_keys_and_nothing_else() {
    let mapping = mapping();
    let keys = |kind: Kind| -> Vec<&str> {
        let fields = kind.fields(&mapping, QpOctets::Three);
        assert_eq!(kind.flow_keys() >> fields.len(), 0);
        let bit = |place: usize| kind.flow_keys() >> place & 1 != 0;
        let named = fields.iter().enumerate().filter(|(place, _)| bit(*place));
        named
            .map(|(_, field)| field.name(&mapping).unwrap())
            .collect()
    };
    let aggregate = [
        "sourceIPv6Address",
        "destinationIPv6Address",
        "sourceTransportPort",
        "destinationTransportPort",
        "protocolIdentifier",
        "flowDirection",
        "rocev2BthPartitionKey",
        "rocev2BthDestinationQp",
        "rocev2BthOpcode",
    ];
    assert_eq!(
        keys(Kind::Aggregate {
            v6: true,
            opcode: true,
            post: false
        }),
        aggregate
    );
    assert_eq!(
        keys(Kind::Aggregate {
            v6: true,
            opcode: false,
            post: true
        }),
        aggregate[..8]
    );
    let sequence = [
        "observationPointId",
        "sourceIPv4Address",
        "destinationIPv4Address",
        "rocev2BthDestinationQp",
        "rocev2BthPartitionKey",
        "rdmaSequenceEpochId",
        "dot1qVlanId",
    ];
    assert_eq!(
        keys(Kind::Sequence {
            v6: false,
            namespace: Namespace::Vlan
        }),
        sequence
    );
    assert_eq!(
        keys(Kind::Sequence {
            v6: false,
            namespace: Namespace::None
        }),
        sequence[..6]
    );
    // As the vectors have it.
    assert_eq!(
        Kind::Sequence {
            v6: true,
            namespace: Namespace::None
        }
        .flow_keys(),
        159
    );
    assert!(
        keys(Kind::Packet {
            v6: false,
            selection: true
        })
        .is_empty()
    );
}

// shows: BTH-TMPL-03, BTH-TMPL-07, SEQ-EXP-03, SEQ-EXP-10
#[test]
fn every_missing_field_is_named() {
    let mapping = mapping();
    for kind in [
        Kind::Aggregate {
            v6: false,
            opcode: false,
            post: false,
        },
        Kind::Sequence {
            v6: true,
            namespace: Namespace::None,
        },
    ] {
        let fields = kind.fields(&mapping, QpOctets::Three);
        for place in 0..fields.len() {
            let mut less = fields.clone();
            let gone = less.remove(place);
            let name = gone.name(&mapping).unwrap();
            if kind.profile() == Profile::Aggregate && name == "observationPointId" {
                continue;
            }
            let found = check(&less, kind.profile(), false, &mapping);
            assert_eq!(found, [Nonconformity::Missing(name)], "{kind:?}");
        }
    }
}

// shows: BTH-IE-10, BTH-IE-11, BTH-TMPL-06, BTH-PARSE-15, BTH-AGG-05
#[test]
fn foreign_fields_are_refused() {
    let mapping = mapping();
    let with = |kind: Kind, name: &str, length| {
        let (pen, number) = mapping.by_name(name).unwrap();
        let mut fields = kind.fields(&mapping, QpOctets::Three);
        fields.push(Field {
            pen,
            number,
            length,
        });
        check(&fields, kind.profile(), false, &mapping)
    };
    let packet = Kind::Packet {
        v6: false,
        selection: false,
    };
    let aggregate = Kind::Aggregate {
        v6: false,
        opcode: false,
        post: false,
    };
    let sequence = Kind::Sequence {
        v6: false,
        namespace: Namespace::None,
    };
    for (kind, name) in [
        (packet, "packetDeltaCount"),
        (packet, "flowStartMilliseconds"),
        (packet, "rdmaSequenceEpochId"),
        (aggregate, "rocev2BthPacketSequenceNumber"),
        (aggregate, "rocev2BthOctetAtOffset1"),
        (aggregate, "rocev2BthOctetAtOffset4"),
        (aggregate, "rocev2BthOctetAtOffset8"),
        (aggregate, "observationTimeNanoseconds"),
        (sequence, "sourceTransportPort"),
        (sequence, "selectionSequenceId"),
    ] {
        let name = mapping
            .by_name(name)
            .and_then(|(p, n)| mapping.definition(p, n))
            .unwrap()
            .name;
        let found = with(kind, name, 8);
        assert!(
            found.contains(&Nonconformity::Forbidden(name))
                || found.contains(&Nonconformity::Duplicate(name)),
            "{kind:?} with {name}: {found:?}"
        );
    }
    assert_eq!(
        with(packet, "selectionSequenceId", 8),
        [Nonconformity::Selection]
    );
    assert!(with(sequence, "sourceIPv6Address", 16).contains(&Nonconformity::Families));
    assert!(with(aggregate, "postPacketDeltaCount", 8).contains(&Nonconformity::Counters));
    let twice = with(sequence, "rdmaSequenceWindow", 4);
    assert_eq!(twice, [Nonconformity::Duplicate("rdmaSequenceWindow")]);
    let mut unknown = sequence.fields(&mapping, QpOctets::Three);
    unknown.push(Field {
        pen: 9,
        number: 1,
        length: 4,
    });
    let found = check(&unknown, Profile::Sequence, false, &mapping);
    assert_eq!(found, [Nonconformity::Unexpected(9, 1)]);
}

#[test]
fn a_template_without_our_elements_is_of_no_profile() {
    let mapping = mapping();
    let fields = [Field::iana(8, 4), Field::iana(2, 8), Field::iana(325, 8)];
    assert_eq!(classify(&fields, &mapping), None);
}
