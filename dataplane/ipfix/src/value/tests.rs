//! Values there and back, and what does not fit.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::template::VARIABLE;

fn round_trip(value: Value, data_type: DataType, length: u16) -> Option<Vec<u8>> {
    let mut octets = Vec::new();
    value
        .encode(data_type, length, &mut octets)
        .then_some(octets)
}

proptest! {
    #[test]
    fn nanoseconds_survive_cutting_and_rounding(nanos in 0..4_000_000_000_000_000_000u64) {
        let ntp = to_ntp(nanos);
        prop_assert_eq!(from_ntp(ntp), nanos);
        // A decoder that rounds to nearest sees the same.
        let rounded = ((u128::from(ntp & 0xffff_ffff) * 1_000_000_000 + (1 << 31)) >> 32) as u64;
        prop_assert_eq!(rounded, nanos % 1_000_000_000);
    }

    // shows: BTH-IE-09
    #[test]
    fn reduced_integers_lose_nothing(value: u64, length in 1..=8u16, shift in 0..64u32) {
        let value = value >> shift;
        let encoded = round_trip(Value::Unsigned(value), DataType::Unsigned64, length);
        let fits = length == 8 || value < 1 << (8 * length);
        prop_assert_eq!(encoded.is_some(), fits);
        if let Some(octets) = encoded {
            prop_assert_eq!(octets.len(), usize::from(length));
            prop_assert_eq!(Value::decode(DataType::Unsigned64, &octets), Value::Unsigned(value));
        }
        let signed = value as i64 >> shift;
        if let Some(octets) = round_trip(Value::Signed(signed), DataType::Signed64, length) {
            prop_assert_eq!(Value::decode(DataType::Signed64, &octets), Value::Signed(signed));
        } else {
            prop_assert!(length < 8);
        }
    }

    #[test]
    fn any_octets_decode(octets in proptest::collection::vec(any::<u8>(), 0..20), number in 0..23u8) {
        let data_type = TYPES[usize::from(number)];
        let value = Value::decode(data_type, &octets);
        let length = octets.len() as u16;
        if let Value::Nanos(_) | Value::Float(_) | Value::Boolean(None) | Value::Octets(_) = value {
            return Ok(());
        }
        prop_assert_eq!(round_trip(value, data_type, length), Some(octets));
    }

    #[test]
    fn texts_of_every_length_prefix(length in prop_oneof![0..300usize, Just(65535), Just(65534)]) {
        let text = "x".repeat(length);
        let octets = round_trip(Value::Text(&text), DataType::String, VARIABLE).unwrap();
        let front = if length < 255 { 1 } else { 3 };
        prop_assert_eq!(octets.len(), length + front);
        prop_assert_eq!(octets[0], if length < 255 { length as u8 } else { 255 });
    }
}

const TYPES: [DataType; 23] = [
    DataType::OctetArray,
    DataType::Unsigned8,
    DataType::Unsigned16,
    DataType::Unsigned32,
    DataType::Unsigned64,
    DataType::Signed8,
    DataType::Signed16,
    DataType::Signed32,
    DataType::Signed64,
    DataType::Float32,
    DataType::Float64,
    DataType::Boolean,
    DataType::MacAddress,
    DataType::String,
    DataType::DateTimeSeconds,
    DataType::DateTimeMilliseconds,
    DataType::DateTimeMicroseconds,
    DataType::DateTimeNanoseconds,
    DataType::Ipv4Address,
    DataType::Ipv6Address,
    DataType::BasicList,
    DataType::SubTemplateList,
    DataType::SubTemplateMultiList,
];

#[test]
fn type_numbers_are_those_of_the_registry() {
    for (number, data_type) in TYPES.iter().enumerate() {
        assert_eq!(*data_type as usize, number);
    }
}

#[test]
fn the_example_of_the_draft() {
    // 2026-10-26T10:15:30.125Z.
    assert_eq!(to_ntp(1_793_009_730_125_000_000), 0xee89_a6c2_2000_0000);
    assert_eq!(to_ntp(999_999_999) & 0xffff_ffff, 4_294_967_292);
    // Era 1 begins on 2036-02-07 06:28:16.
    assert_eq!(to_ntp(2_085_978_496 * 1_000_000_000), 0);
    assert_eq!(from_ntp(0), 2_085_978_496 * 1_000_000_000);
}

#[test]
fn truth_is_one_and_falsehood_two() {
    assert_eq!(
        round_trip(Value::Boolean(Some(true)), DataType::Boolean, 1),
        Some(vec![1])
    );
    assert_eq!(
        round_trip(Value::Boolean(Some(false)), DataType::Boolean, 1),
        Some(vec![2])
    );
    assert_eq!(round_trip(Value::Boolean(None), DataType::Boolean, 1), None);
    assert_eq!(Value::decode(DataType::Boolean, &[0]), Value::Boolean(None));
}

#[test]
fn times_and_addresses_are_never_shorter() {
    for data_type in [
        DataType::DateTimeNanoseconds,
        DataType::DateTimeMilliseconds,
        DataType::DateTimeSeconds,
        DataType::Ipv4Address,
        DataType::Ipv6Address,
        DataType::Boolean,
        DataType::MacAddress,
        DataType::Float32,
    ] {
        let size = data_type.size().unwrap();
        assert!(data_type.fits(size));
        assert!(
            !data_type.fits(size - 1) && !data_type.fits(size + 1),
            "{data_type:?}"
        );
    }
    assert!(DataType::Unsigned32.fits(3) && !DataType::Unsigned32.fits(5));
    assert!(!DataType::Unsigned32.fits(0) && !DataType::Unsigned32.fits(VARIABLE));
    assert!(DataType::Float64.fits(4) && !DataType::Float64.fits(6));
    assert!(DataType::String.fits(VARIABLE) && DataType::String.fits(0));
}

#[test]
fn floats_are_singles_or_doubles() {
    let octets = round_trip(Value::Float(0.25), DataType::Float64, 8).unwrap();
    assert_eq!(
        Value::decode(DataType::Float64, &octets),
        Value::Float(0.25)
    );
    let octets = round_trip(Value::Float(0.25), DataType::Float64, 4).unwrap();
    assert_eq!(
        Value::decode(DataType::Float64, &octets),
        Value::Float(0.25)
    );
}
