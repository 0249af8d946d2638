//! The decoder on messages that are wrong in one place each, and on anything.
#![allow(clippy::unwrap_used, clippy::panic)]
#![allow(clippy::type_complexity, clippy::cloned_ref_to_slice_refs)]

use proptest::prelude::*;

use super::*;
use crate::template::{OPTIONS_SET, TEMPLATE_SET};

fn mapping() -> Arc<Mapping> {
    Arc::new(Mapping::consecutive(32473, 1).unwrap())
}

fn decoder(delivery: Delivery) -> Decoder {
    Decoder::new(mapping(), delivery, DecodeLimits::default())
}

fn set(id: u16, body: &[u8]) -> Vec<u8> {
    let mut set = id.to_be_bytes().to_vec();
    set.extend_from_slice(&(body.len() as u16 + 4).to_be_bytes());
    set.extend_from_slice(body);
    set
}

fn message(sets: &[Vec<u8>]) -> Vec<u8> {
    let body = sets.concat();
    let mut octets = vec![0, 10];
    octets.extend_from_slice(&(body.len() as u16 + 16).to_be_bytes());
    octets.extend_from_slice(&[0x6a, 0xdd, 0xee, 0x32, 0, 0, 0, 0, 0, 0, 0, 7]);
    octets.extend_from_slice(&body);
    octets
}

fn template(id: u16, fields: &[Field]) -> Vec<u8> {
    let template = Template {
        id,
        scope: 0,
        fields: fields.to_vec(),
    };
    let mut body = Vec::new();
    template.write(&mut body);
    set(TEMPLATE_SET, &body)
}

fn refusal(delivery: Delivery, messages: &[Vec<u8>]) -> &'static str {
    let mut decoder = decoder(delivery);
    let (last, before) = messages.split_last().unwrap();
    for message in before {
        decoder.decode(message).unwrap();
    }
    let templates = decoder.len();
    let result = decoder.decode(last);
    assert!(decoder.len() == templates || result.is_ok());
    match result {
        Ok(_) => "",
        Err(error) => error.name(),
    }
}

fn ordered(messages: &[Vec<u8>]) -> &'static str {
    refusal(Delivery::Ordered, messages)
}

const POINT: Field = Field::iana(138, 8);
const TIME: Field = Field::iana(325, 8);
const NAME: Field = Field::iana(341, VARIABLE);

#[test]
fn headers_that_do_not_fit() {
    let good = message(&[template(256, &[POINT])]);
    assert_eq!(ordered(&[good.clone()]), "");
    assert_eq!(ordered(&[good[..15].to_vec()]), "short");
    let mut version = good.clone();
    version[1] = 9;
    assert_eq!(ordered(&[version]), "version");
    let mut longer = good.clone();
    longer.push(0);
    assert_eq!(ordered(&[longer]), "length");
    assert_eq!(ordered(&[good[..good.len() - 1].to_vec()]), "length");
}

#[test]
fn sets_that_do_not_fit() {
    for length in [0u16, 3, 13, 65535] {
        let mut wrong = template(256, &[POINT]);
        wrong[2..4].copy_from_slice(&length.to_be_bytes());
        assert_eq!(ordered(&[message(&[wrong])]), "set_length", "{length}");
    }
    assert_eq!(ordered(&[message(&[vec![0, 2, 0]])]), "set_length");
    for id in [0, 1, 4, 255] {
        assert_eq!(ordered(&[message(&[set(id, &[0; 4])])]), "set_id");
    }
    let defined = message(&[template(256, &[POINT])]);
    for id in [2, 3, 256] {
        assert_eq!(
            ordered(&[defined.clone(), message(&[set(id, &[])])]),
            "empty_set"
        );
    }
    // Less than a record is padding behind one, but no record.
    assert_eq!(
        ordered(&[defined.clone(), message(&[set(256, &[0; 7])])]),
        "empty_set"
    );
    assert_eq!(ordered(&[defined, message(&[set(256, &[0; 15])])]), "");
}

#[test]
fn templates_that_make_no_sense() {
    assert_eq!(
        ordered(&[message(&[template(255, &[POINT])])]),
        "template_id"
    );
    let whole = template(256, &[POINT, TIME]);
    let cut = set(TEMPLATE_SET, &whole[4..whole.len() - 1]);
    assert_eq!(ordered(&[message(&[cut])]), "template");
    let nothing = template(256, &[Field::iana(210, 0)]);
    assert_eq!(ordered(&[message(&[nothing])]), "template");
    let pen = Field {
        pen: 32473,
        number: 3,
        length: 4,
    };
    let without_pen = template(256, &[pen]);
    let cut = set(TEMPLATE_SET, &without_pen[4..without_pen.len() - 4]);
    assert_eq!(ordered(&[message(&[cut])]), "template");
}

#[test]
fn lengths_that_a_type_does_not_have() {
    for field in [
        Field::iana(325, 4),
        Field::iana(8, 16),
        Field::iana(152, 4),
        Field::iana(138, 9),
        Field::iana(138, 0),
        Field::iana(138, VARIABLE),
        Field::iana(311, 5),
        Field {
            pen: 32473,
            number: 3,
            length: 5,
        },
    ] {
        assert_eq!(
            ordered(&[message(&[template(256, &[field])])]),
            "field_length",
            "{field:?}"
        );
    }
    for field in [
        Field::iana(138, 1),
        Field {
            pen: 32473,
            number: 3,
            length: 3,
        },
        Field {
            pen: 9,
            number: 3,
            length: 5,
        },
        NAME,
    ] {
        assert_eq!(
            ordered(&[message(&[template(256, &[field])])]),
            "",
            "{field:?}"
        );
    }
}

#[test]
fn scopes_that_are_none() {
    for (scope, count) in [(0u16, 1u16), (2, 1)] {
        let mut body = vec![1, 4];
        body.extend_from_slice(&count.to_be_bytes());
        body.extend_from_slice(&scope.to_be_bytes());
        body.extend_from_slice(&[0, 145, 0, 2]);
        assert_eq!(ordered(&[message(&[set(OPTIONS_SET, &body)])]), "scope");
    }
}

#[test]
fn order_is_kept_where_the_transport_keeps_it() {
    let defined = message(&[template(256, &[POINT])]);
    let data = message(&[set(256, &[0; 8])]);
    let other = message(&[template(256, &[POINT, TIME])]);
    let withdrawal = message(&[set(TEMPLATE_SET, &[1, 0, 0, 0])]);
    let all = message(&[set(TEMPLATE_SET, &[0, 2, 0, 0])]);
    assert_eq!(ordered(&[data.clone()]), "no_template");
    assert_eq!(ordered(&[defined.clone(), data.clone()]), "");
    assert_eq!(ordered(&[defined.clone(), other.clone()]), "redefined");
    assert_eq!(ordered(&[defined.clone(), defined.clone()]), "");
    for withdrawal in [&withdrawal, &all] {
        let gone = [defined.clone(), withdrawal.clone(), data.clone()];
        assert_eq!(ordered(&gone), "no_template");
        assert_eq!(
            ordered(&[defined.clone(), withdrawal.clone(), other.clone()]),
            ""
        );
    }
    // A template and an options template cannot share an identifier.
    let options = set(OPTIONS_SET, &[1, 0, 0, 1, 0, 1, 0, 145, 0, 2]);
    assert_eq!(
        ordered(&[defined.clone(), message(&[options])]),
        "redefined"
    );
    // Data before its template in the same message.
    let backwards = message(&[set(256, &[0; 8]), template(256, &[POINT])]);
    assert_eq!(ordered(&[backwards]), "no_template");
    let forwards = message(&[template(256, &[POINT]), set(256, &[0; 8])]);
    assert_eq!(ordered(&[forwards]), "");

    let lossy = |messages: &[Vec<u8>]| refusal(Delivery::Lossy, messages);
    assert_eq!(lossy(&[data.clone()]), "");
    assert_eq!(lossy(&[defined.clone(), other]), "");
    let mut decoder = decoder(Delivery::Lossy);
    decoder.decode(&defined).unwrap();
    let ignored = decoder.decode(&withdrawal).unwrap();
    assert_eq!(ignored.notes, [Note::Withdrawal(256)]);
    assert_eq!(decoder.decode(&data).unwrap().records.len(), 1);
}

#[test]
fn a_refused_message_changes_nothing() {
    let mut decoder = decoder(Delivery::Ordered);
    let half = message(&[template(256, &[POINT]), set(300, &[0; 4])]);
    assert_eq!(decoder.decode(&half), Err(DecodeError::NoTemplate(300)));
    assert!(decoder.is_empty());
}

// shows: BTH-AGG-08
#[test]
fn domains_have_templates_of_their_own() {
    let mut decoder = decoder(Delivery::Ordered);
    decoder
        .decode(&message(&[template(256, &[POINT])]))
        .unwrap();
    let mut other = message(&[set(256, &[0; 8])]);
    other[15] = 8;
    assert_eq!(decoder.decode(&other), Err(DecodeError::NoTemplate(256)));
}

#[test]
fn variable_lengths_and_what_is_cut() {
    let defined = message(&[template(256, &[NAME, Field::iana(138, 1)])]);
    let record = |lengths: &[&[u8]]| message(&[set(256, &lengths.concat())]);
    let long = [b'x'; 300];
    let mut decoder = decoder(Delivery::Ordered);
    decoder.decode(&defined).unwrap();
    let both = record(&[&[0, 5], &[255, 1, 44], &long, &[6], &[2, b'a', b'b', 7]]);
    let found = decoder.decode(&both).unwrap();
    let points: Vec<u64> = found
        .records
        .iter()
        .map(|record| {
            record
                .get(0, 138, DataType::Unsigned64)
                .unwrap()
                .as_u64()
                .unwrap()
        })
        .collect();
    assert_eq!(points, [5, 6, 7]);
    let name = found.records[1].get(0, 341, DataType::String);
    assert_eq!(name, Some(Value::Text(std::str::from_utf8(&long).unwrap())));
    for cut in [
        record(&[&[9, 1, 2]]),
        record(&[&[255, 0]]),
        record(&[&[255, 1]]),
    ] {
        assert_eq!(
            decoder.decode(&cut).map(|_| ()),
            Err(DecodeError::Record(256))
        );
    }
}

#[test]
fn what_is_merely_careless_is_noted() {
    let mut decoder = decoder(Delivery::Ordered);
    let unknown = Field {
        pen: 9,
        number: 3,
        length: 2,
    };
    let defined = message(&[template(256, &[POINT, unknown])]);
    let found = decoder.decode(&defined).unwrap();
    assert_eq!(found.notes, [Note::UnknownElement(256, 9, 3)]);
    let again = decoder.decode(&defined).unwrap();
    assert!(again.notes.contains(&Note::Repeated(256)));
    let padded = message(&[set(256, &[0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 1])]);
    let found = decoder.decode(&padded).unwrap();
    assert_eq!(
        (found.records.len(), found.notes.as_slice()),
        (1, &[Note::Padding(256)][..])
    );
    let withdrawal = message(&[set(TEMPLATE_SET, &[1, 44, 0, 0])]);
    let nothing = decoder.decode(&withdrawal).unwrap();
    assert_eq!(nothing.notes, [Note::Withdrawal(300)]);
}

// shows: SEQ-COL-14
#[test]
fn what_is_kept_is_bounded() {
    let limits = DecodeLimits {
        templates: 3,
        fields: 2,
    };
    let mut decoder = Decoder::new(mapping(), Delivery::Ordered, limits);
    let many: Vec<Vec<u8>> = (256..260).map(|id| template(id, &[POINT])).collect();
    assert_eq!(
        decoder.decode(&message(&many)).map(|_| ()),
        Err(DecodeError::Limit)
    );
    decoder.decode(&message(&many[..3])).unwrap();
    assert_eq!(
        decoder.decode(&message(&many[3..])).map(|_| ()),
        Err(DecodeError::Limit)
    );
    let wide = message(&[template(256, &[POINT, TIME, NAME])]);
    assert_eq!(decoder.decode(&wide).map(|_| ()), Err(DecodeError::Limit));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn anything_is_decoded_or_refused(
        sets in proptest::collection::vec(
            (prop_oneof![Just(2u16), Just(3), Just(256), Just(257), 0..5u16], any::<Vec<u8>>()),
            0..4,
        ),
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
        lossy: bool,
    ) {
        let delivery = if lossy { Delivery::Lossy } else { Delivery::Ordered };
        let mut decoder = decoder(delivery);
        decoder.decode(&message(&[template(256, &[POINT, NAME]), template(257, &[TIME])])).unwrap();
        let sets: Vec<Vec<u8>> = sets.iter().map(|(id, body)| set(*id, body)).collect();
        let mut octets = message(&sets);
        for (place, octet) in flips {
            let place = place.index(octets.len());
            octets[place] = octet;
        }
        if let Ok(found) = decoder.decode(&octets) {
            for record in &found.records {
                for (field, value) in record.fields() {
                    let _ = field.name(&mapping());
                    let _ = Value::decode(DataType::DateTimeNanoseconds, value);
                }
            }
        }
        let _ = decoder.decode(&octets[..octets.len() / 2]);
    }
}
