//! IPFIX as a collector gets it: a stream of octets cut anywhere, messages into a session, templates,
//! records and times; and the batches of a data plane.

use std::sync::Arc;

use crem_ipfix::collect::Deframer;
use crem_ipfix::decode::{DecodeLimits, Decoder, Delivery};
use crem_ipfix::element::{DataType, Mapping};
use crem_ipfix::handover;
use crem_ipfix::value::Value;

use super::Reader;

const TYPES: &[DataType] = &[
    DataType::Unsigned64,
    DataType::Signed32,
    DataType::Float64,
    DataType::Boolean,
    DataType::String,
    DataType::DateTimeNanoseconds,
    DataType::Ipv6Address,
];

/// One message with any sets: templates with few fields, options templates, data, nonsense.
fn message(reader: &mut Reader<'_>) -> Vec<u8> {
    let mut octets = vec![0, 10, 0, 0];
    octets.extend_from_slice(&reader.long().to_be_bytes());
    octets.extend_from_slice(&u32::from(reader.octet() % 4).to_be_bytes());
    octets.extend_from_slice(&u32::from(reader.octet() % 2).to_be_bytes());
    for _ in 0..reader.octet() % 4 {
        let body = body(reader);
        let id = [2u16, 3, 256, 257, 258, u16::from(reader.octet())];
        let id = reader.pick(&id).copied().unwrap_or(2);
        octets.extend_from_slice(&id.to_be_bytes());
        let length = body.len() as u16 + 4;
        octets.extend_from_slice(&length.to_be_bytes());
        octets.extend_from_slice(&body);
    }
    let length = (octets.len() as u16).to_be_bytes();
    octets[2..4].copy_from_slice(&length);
    if reader.once_in(3) {
        for _ in 0..reader.octet() % 4 {
            let at = reader.below(octets.len());
            octets[at] = reader.octet();
        }
    }
    octets
}

fn body(reader: &mut Reader<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    if reader.once_in(2) {
        body.extend_from_slice(&(256 + u16::from(reader.octet() % 3)).to_be_bytes());
        let fields = reader.octet() % 5;
        body.extend_from_slice(&u16::from(fields).to_be_bytes());
        if reader.once_in(4) {
            body.extend_from_slice(&1u16.to_be_bytes());
        }
        for _ in 0..fields {
            let number = reader.word() & if reader.once_in(4) { 0xffff } else { 0x00ff };
            body.extend_from_slice(&number.to_be_bytes());
            let length = if reader.once_in(6) {
                0xffff
            } else {
                u16::from(reader.octet() % 18)
            };
            body.extend_from_slice(&length.to_be_bytes());
            if number & 0x8000 != 0 {
                body.extend_from_slice(&32473u32.to_be_bytes());
            }
        }
    } else {
        body.extend((0..reader.octet() % 40).map(|_| reader.octet()));
    }
    body
}

/// Reads a stream of messages; how many were good.
///
/// # Panics
/// What must hold does not: what the fuzzer is looking for.
pub fn stream(data: &[u8]) -> u64 {
    let mut reader = Reader::new(data);
    let delivery = if reader.once_in(2) {
        Delivery::Lossy
    } else {
        Delivery::Ordered
    };
    let limits = DecodeLimits::default();
    let Ok(mapping) = Mapping::consecutive(32473, 1) else {
        return 0;
    };
    let mut decoder = Decoder::new(Arc::new(mapping), delivery, limits);
    let mut deframer = Deframer::new();
    let mut good = 0;
    while !reader.is_empty() {
        let octets = message(&mut reader);
        let cut = reader.below(octets.len() + 1);
        let (first, second) = octets.split_at(cut);
        for part in [first, second] {
            deframer.push(part);
            loop {
                match deframer.message() {
                    Ok(Some(message)) => good += decode(&mut decoder, message),
                    Ok(None) => break,
                    Err(_) => {
                        // The stream is over; a collector would end the session.
                        deframer = Deframer::new();
                        break;
                    }
                }
            }
        }
        if let Ok(items) = handover::items(&octets) {
            let _ = items.count();
        }
    }
    good
}

fn decode(decoder: &mut Decoder, octets: &[u8]) -> u64 {
    let Ok(message) = decoder.decode(octets) else {
        return 0;
    };
    for record in &message.records {
        for (_, value) in record.fields() {
            assert!(value.len() <= octets.len());
            for kind in TYPES {
                let _ = Value::decode(*kind, value);
            }
        }
    }
    1
}
