//! Frames of LLDP from any neighbour: whole TLVs of all kinds, damaged ones, and octets that are none.

use crem_control::lldp::table::{MAX_OF_INTERFACE, Neighbours};

use super::Reader;

/// Characters of a text that are kept (a text may be shown as hexadecimal digits and colons).
const MAX_SHOWN: usize = 3 * 511;

fn tlv(reader: &mut Reader<'_>, kind: u8, into: &mut Vec<u8>) {
    let length = match reader.octet() {
        long @ 250.. => 2 * usize::from(long),
        short => usize::from(short % 24),
    };
    into.extend([kind << 1 | (length >> 8) as u8, length as u8]);
    // A subtype that exists, mostly.
    let subtype = reader.octet();
    let subtype = if subtype < 224 { subtype % 9 } else { subtype };
    let octets = core::iter::once(subtype).chain(core::iter::repeat_with(|| reader.octet()));
    into.extend(octets.take(length));
}

fn payload(reader: &mut Reader<'_>) -> Vec<u8> {
    let mut octets = Vec::new();
    if reader.once_in(8) {
        return reader.rest().to_vec();
    }
    for kind in [1, 2] {
        tlv(reader, kind, &mut octets);
    }
    octets.extend([3 << 1, 2, 0, reader.octet()]);
    for _ in 0..reader.octet() % 6 {
        let kind = match reader.octet() {
            rare @ 240.. => rare & 127,
            127.. => 127,
            common => common % 9,
        };
        tlv(reader, kind, &mut octets);
    }
    reader.damage(&mut octets);
    octets
}

/// Takes frames as a listener does; how many were good. Nobody gets more neighbours into the table than it holds, and
/// texts are fit to be shown.
///
/// # Panics
/// What must hold does not: what the fuzzer is looking for.
pub fn frame(data: &[u8]) -> u64 {
    let mut reader = Reader::new(data);
    let (mut known, mut good) = (Neighbours::default(), 0);
    for at in 0..24 {
        if reader.is_empty() {
            break;
        }
        let payload = payload(&mut reader);
        let Ok(said) = crem_control::lldp::frame::parse(&payload) else {
            assert!(known.take("lan", &payload, at).is_empty());
            continue;
        };
        good += 1;
        let neighbour = &said.neighbour;
        for text in [
            Some(&neighbour.chassis),
            Some(&neighbour.port),
            neighbour.system_name.as_ref(),
            neighbour.system_description.as_ref(),
        ]
        .into_iter()
        .flatten()
        {
            assert!(text.chars().count() <= MAX_SHOWN, "{text}");
            assert!(!text.chars().any(char::is_control), "{text:?}");
        }
        known.take("lan", &payload, at);
    }
    let list = known.list(24);
    assert!(list.neighbours.len() <= MAX_OF_INTERFACE);
    good
}
