//! Marks as they lie on the wire, written octet by octet from RFC 9343.
#![allow(clippy::unwrap_used, clippy::panic)]

use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

use super::*;
use crate::frame::{Class, ParseConfig, parse};

/// FlowMonID 0xabcde, L set, D clear.
const OPTION: [u8; 6] = [0x12, 4, 0xab, 0xcd, 0xe8, 0x00];

/// An Ethernet frame with a RoCEv2 packet over IPv6 behind these extension headers, each given by its kind
/// and what follows its first two octets.
fn frame(extensions: &[(u8, Vec<u8>)]) -> Vec<u8> {
    const UDP: u8 = 17;
    let kinds = extensions.iter().map(|e| e.0).chain([UDP]);
    let kinds: Vec<u8> = kinds.collect();
    let mut payload = Vec::new();
    for ((_, body), next) in extensions.iter().zip(&kinds[1..]) {
        let len = 2 + body.len();
        assert_eq!(len % 8, 0);
        payload.extend([*next, (len / 8 - 1) as u8]);
        payload.extend(body);
    }
    payload.extend([0xc0, 0, 0x12, 0xb7, 0, 24, 0, 0]);
    payload.extend([0x0a, 0, 0xff, 0xff, 0, 0, 0, 9, 0, 0, 0, 5, 1, 2, 3, 4]);
    let mut frame = vec![2; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend((payload.len() as u16).to_be_bytes());
    frame.extend([kinds[0], 64]);
    frame.extend([1; 16]);
    frame.extend([2; 16]);
    frame.extend(payload);
    frame
}

fn mark(frame: &[u8]) -> Option<AltMark> {
    let parsed = parse(frame, &ParseConfig::default());
    AltMark::of_packet(frame, &parsed.ip?)
}

fn expected() -> AltMark {
    AltMark {
        flow_mon_id: FlowMonId::new(0xabcde),
        loss: true,
        delay: false,
    }
}

#[test]
fn the_option_is_found_in_either_header_and_the_packet_is_still_roce() {
    for kind in [HOP_BY_HOP, DESTINATION] {
        let marked = frame(&[(kind, OPTION.to_vec())]);
        assert_eq!(mark(&marked), Some(expected()));
        let parsed = parse(&marked, &ParseConfig::default());
        assert!(matches!(parsed.class, Class::Roce(_)), "{:?}", parsed.class);
    }
}

#[test]
fn flags_and_reserved_bits_are_told_apart() {
    let of = |low: u16| {
        let [high, low] = low.to_be_bytes();
        let mark = AltMark::from_data([0xff, 0xff, high, low]);
        (mark.flow_mon_id.get(), mark.loss, mark.delay)
    };
    assert_eq!(of(0xf000), (0xf_ffff, false, false));
    assert_eq!(of(0xf800), (0xf_ffff, true, false));
    assert_eq!(of(0xf400), (0xf_ffff, false, true));
    assert_eq!(of(0x0bff), (0xf_fff0, true, false));
    assert_eq!(FlowMonId::new(0x1f_ffff).get(), 0xf_ffff);
}

#[test]
fn padding_and_other_options_are_passed_over() {
    let mut body = vec![0, 0, 1, 0, 0x3e, 2, 7, 7];
    body.extend(OPTION);
    body.extend([1, 6, 0, 0, 0, 0, 0, 0]);
    assert_eq!(mark(&frame(&[(HOP_BY_HOP, body)])), Some(expected()));
    // Behind another header without it.
    let empty = vec![1, 4, 0, 0, 0, 0];
    let routed = [
        (HOP_BY_HOP, empty.clone()),
        (ROUTING, empty.clone()),
        (DESTINATION, OPTION.to_vec()),
    ];
    assert_eq!(mark(&frame(&routed)), Some(expected()));
    assert_eq!(mark(&frame(&[(HOP_BY_HOP, empty)])), None);
}

#[test]
fn what_is_no_such_option_is_not_taken_for_one() {
    // In a routing header the same octets mean something else.
    assert_eq!(mark(&frame(&[(ROUTING, OPTION.to_vec())])), None);
    // Another length of its data.
    let longer = vec![0x12, 5, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(mark(&frame(&[(HOP_BY_HOP, longer)])), None);
    // Data that the header does not hold.
    assert_eq!(
        mark(&frame(&[(HOP_BY_HOP, vec![1, 1, 0, 0x12, 4, 0])])),
        None
    );
    assert_eq!(mark(&frame(&[])), None);
    // IPv4 has no such options.
    let mut four = vec![2; 12];
    four.extend([0x08, 0x00, 0x45, 0, 0, 36, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    four.extend([10, 0, 0, 1, 10, 0, 0, 2, 0xc0, 0, 0x12, 0xb7, 0, 16, 0, 0]);
    four.extend([0; 8]);
    assert_eq!(mark(&four), None);
}

proptest! {
    /// Whatever the octets are: no panic, and a mark only where the six octets of its option stand.
    #[test]
    fn any_headers_are_survived(
        kinds in prop::collection::vec((prop_oneof![Just(0u8), Just(43), Just(60), any::<u8>()],
            prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0x12), Just(4), any::<u8>()], 0..5)), 0..4),
    ) {
        let extensions: Vec<_> = kinds.into_iter().map(|(kind, mut body)| {
            body.resize(6, 0);
            (kind, body)
        }).collect();
        let octets = frame(&extensions);
        if let Some(found) = mark(&octets) {
            let id = found.flow_mon_id.get();
            let word = id << 12 | u32::from(found.loss) << 11 | u32::from(found.delay) << 10;
            let holds = octets.windows(6).any(|w| {
                w[..2] == [0x12, 4] && u32::from_be_bytes([w[2], w[3], w[4], w[5]]) & !0x3ff == word
            });
            prop_assert!(holds);
        }
        for cut in 0..octets.len() {
            let _ = mark(&octets[..cut]);
        }
    }
}
