//! A packet of a real adapter, and which changes the ICRC does and does not notice.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::frame::{ParseConfig, parse};

/// A congestion notification as a ConnectX-4 Lx sent it, Ethernet header included (published with
/// scapy's tests).
const CNP: [u8; 74] = [
    0xe4, 0x1d, 0x2d, 0xab, 0x2b, 0xc2, 0x7c, 0xfe, 0x90, 0x64, 0x3b, 0x32, 0x08, 0x00, 0x45, 0xc2,
    0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61, 0x0a, 0x00, 0x11, 0x01, 0x0a, 0x00,
    0x12, 0x01, 0x00, 0x00, 0x12, 0xb7, 0x00, 0x28, 0x00, 0x00, 0x81, 0x00, 0xff, 0xff, 0x40, 0x00,
    0x01, 0x18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x82, 0xfd, 0x00, 0x2a,
];

/// The same payload over IPv6, with the ICRC that belongs there.
fn over_ipv6(extensions: &[u8]) -> (Vec<u8>, usize) {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, 17, 64];
    packet[6] = if extensions.is_empty() { 17 } else { 60 };
    packet[5] = (extensions.len() + 40) as u8;
    packet.extend([0xfd; 32]);
    packet.extend_from_slice(extensions);
    packet.extend_from_slice(&CNP[34..]);
    let udp = 40 + extensions.len();
    assert!(write(&mut packet, udp));
    (packet, udp)
}

/// Offsets whose octet may change without the ICRC noticing.
fn unnoticed(packet: &[u8], udp: usize) -> Vec<usize> {
    (0..packet.len() - ICRC_LEN)
        .filter(|&at| {
            let mut changed = packet.to_vec();
            changed[at] ^= 0x5a;
            verify(&changed, udp)
        })
        .collect()
}

// shows: QOS-CNP-01, QOS-CNP-05
#[test]
fn real_packet_verifies() {
    let parsed = parse(&CNP, &ParseConfig::default());
    assert!(verify_frame(&CNP, &parsed));
    let Class::Roce(bth) = parsed.class else {
        unreachable!("a CNP is RoCEv2")
    };
    assert_eq!((bth.opcode.0, bth.psn.get()), (0x81, 0));
    assert_eq!(parsed.payload(&CNP)[12..28], [0; 16]);
    assert_eq!(compute(&CNP[14..], 20), Some([0x82, 0xfd, 0x00, 0x2a]));
    let mut damaged = CNP;
    damaged[72] ^= 1;
    assert!(!verify_frame(&damaged, &parsed));
    assert!(write_frame(&mut damaged, &parsed));
    assert_eq!(damaged, CNP);
}

// shows: QOS-ICRC-01, QOS-ICRC-03, QOS-ICRC-04
#[test]
fn only_variant_fields_are_masked_over_ipv4() {
    // TOS, TTL, header checksum, UDP checksum, BTH octet 4.
    assert_eq!(unnoticed(&CNP[14..], 20), [1, 8, 10, 11, 26, 27, 32]);
}

#[test]
fn options_are_covered() {
    let mut packet = CNP[14..].to_vec();
    packet[0] = 0x46;
    packet.splice(20..20, [0x94, 4, 0, 0]);
    assert!(write(&mut packet, 24));
    assert_eq!(unnoticed(&packet, 24), [1, 8, 10, 11, 30, 31, 36]);
}

// shows: QOS-ICRC-01, QOS-ICRC-03
#[test]
fn only_variant_fields_are_masked_over_ipv6() {
    let (packet, udp) = over_ipv6(&[]);
    let unnoticed = unnoticed(&packet, udp);
    // Octet 0 is half version, half traffic class; the octet as a whole is noticed.
    assert_eq!(unnoticed, [1, 2, 3, 7, 46, 47, 52]);
    let mut class = packet;
    class[0] ^= 0x0f;
    assert!(verify(&class, udp));
    let (packet, udp) = over_ipv6(&[17, 0, 1, 4, 0, 0, 0, 0]);
    assert!(verify(&packet, udp));
    assert!(!verify(&packet, 40));
}

#[test]
fn packets_without_room_have_no_icrc() {
    assert_eq!(compute(&[], 20), None);
    assert_eq!(compute(&CNP[14..14 + 43], 20), None);
    assert!(compute(&CNP[14..14 + 44], 20).is_some());
    assert_eq!(compute(&CNP[14..], usize::MAX), None);
    assert_eq!(compute(&CNP[14..], 8), None, "inside the IP header");
    assert!(!write(&mut [0x45; 10], 20));
    let parsed = parse(&CNP[..60], &ParseConfig::default());
    assert!(!verify_frame(&CNP[..60], &parsed));
}
