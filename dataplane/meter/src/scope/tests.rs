//! Recognition at its edges, and what an unusable packet may have been.
#![allow(clippy::unwrap_used)]

use crem_wire::frame::{ParseConfig, VXLAN_PORT, parse};

use super::*;

const CONFIG: ParseConfig = ParseConfig {
    crem_port: Some(4793),
    vxlan_port: None,
};

/// Ethernet, IPv4, UDP 4791, and a payload.
fn frame(tags: &[u16], payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for vid in tags {
        frame.extend_from_slice(&[0x81, 0]);
        frame.extend_from_slice(&vid.to_be_bytes());
    }
    frame.extend_from_slice(&[8, 0, 0x45, 3]);
    frame.extend_from_slice(&(28 + payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 1, 1]);
    frame.extend_from_slice(&[0xc0, 0, 0x12, 0xb7]);
    frame.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(payload);
    frame
}

const BTH: [u8; 12] = [0xff, 0xa0, 0xff, 0xff, 0xc0, 1, 2, 3, 0x80, 4, 5, 6];

fn scope(source: &str, encapsulation: Encapsulation) -> Scope {
    Scope {
        source: source.parse().unwrap(),
        destination: "10.0.1.0/24".parse().unwrap(),
        encapsulation,
    }
}

fn scopes(list: &[Scope]) -> Scopes {
    Scopes::new(list.to_vec()).unwrap()
}

// shows: BTH-CTX-01, BTH-PARSE-01
#[test]
fn without_a_scope_nothing_is_recognised() {
    let frame = frame(&[], &BTH);
    let parsed = parse(&frame, &CONFIG);
    let none = Scopes::default().recognise(&parsed);
    assert_eq!(none, Err(Unrecognised::NoScope));
    let ours = scopes(&[scope("10.0.0.0/24", Encapsulation::Untagged)]);
    let seen = ours.recognise(&parsed).unwrap();
    // Any opcode, reserved bits as they are, ECN in the octet.
    assert_eq!(seen.bth.to_octets(), BTH);
    assert_eq!((seen.tos, seen.ip_octets, seen.payload_octets), (3, 40, 12));
    assert_eq!((seen.source_port, seen.destination_port), (0xc000, 4791));
    let other = scopes(&[scope("10.0.2.0/24", Encapsulation::Untagged)]);
    assert_eq!(other.recognise(&parsed), Err(Unrecognised::NoScope));
    assert!(Scopes::new(vec![scope("10.0.0.0/8", Encapsulation::Untagged); 65]).is_none());
}

// shows: BTH-PARSE-08, SEQ-APP-09, SEQ-ID-02
#[test]
fn encapsulations_are_told_apart() {
    let cases: [(&[u16], &[Encapsulation]); 4] = [
        (&[], &[Encapsulation::Untagged]),
        (&[100], &[Encapsulation::Vlan(100)]),
        (&[0x6064], &[Encapsulation::Vlan(100)]),
        (&[7, 100], &[Encapsulation::QinQ(7, 100)]),
    ];
    let all = [
        Encapsulation::Untagged,
        Encapsulation::Vlan(100),
        Encapsulation::QinQ(7, 100),
        Encapsulation::Vxlan(5),
    ];
    for (tags, holding) in cases {
        let frame = frame(tags, &BTH);
        let parsed = parse(&frame, &CONFIG);
        for encapsulation in all {
            let held = scopes(&[scope("10.0.0.0/24", encapsulation)])
                .recognise(&parsed)
                .is_ok();
            assert_eq!(
                held,
                holding.contains(&encapsulation),
                "{tags:?} in {encapsulation:?}"
            );
        }
        assert!(Encapsulation::AnyTags.holds(&parsed));
    }
}

// shows: BTH-PARSE-02, BTH-PARSE-08, BTH-PARSE-09, BTH-PARSE-10, BTH-PKT-03
#[test]
fn a_tunnel_is_looked_into_only_where_configured() {
    let inner = frame(&[], &BTH);
    let mut payload = vec![8, 0, 0, 0, 0, 0, 5, 0];
    payload.extend_from_slice(&inner);
    let mut outer = frame(&[], &payload);
    let port = 14 + 20 + 2;
    outer[port..port + 2].copy_from_slice(&VXLAN_PORT.to_be_bytes());
    let all = scopes(&[
        scope("10.0.0.0/24", Encapsulation::Vxlan(5)),
        scope("10.0.0.0/24", Encapsulation::AnyTags),
    ]);
    let plain = parse(&outer, &CONFIG);
    assert_eq!(
        all.recognise(&plain),
        Err(Unrecognised::Frame(Reason::NotRoce))
    );
    let config = ParseConfig {
        vxlan_port: Some(VXLAN_PORT),
        ..CONFIG
    };
    let parsed = parse(&outer, &config);
    assert!(all.recognise(&parsed).is_ok());
    let other = scopes(&[
        scope("10.0.0.0/24", Encapsulation::Vxlan(6)),
        scope("10.0.0.0/24", Encapsulation::AnyTags),
    ]);
    assert_eq!(other.recognise(&parsed), Err(Unrecognised::NoScope));
}

// shows: BTH-IE-17, BTH-TMPL-05, BTH-TMPL-07, BTH-PARSE-03, BTH-PARSE-05, BTH-PARSE-07, BTH-PARSE-11
#[test]
fn what_is_not_complete_is_not_recognised() {
    let scopes = scopes(&[scope("0.0.0.0/0", Encapsulation::AnyTags)]);
    let good = frame(&[], &BTH);
    let reason = |frame: &[u8]| match scopes.recognise(&parse(frame, &CONFIG)) {
        Err(Unrecognised::Frame(reason)) => Some(reason),
        _ => None,
    };
    assert_eq!(reason(&good), None);
    assert_eq!(reason(&frame(&[], &BTH[..11])), Some(Reason::BthShort));
    assert_eq!(reason(&good[..good.len() - 1]), Some(Reason::IpLength));
    let mut version = good.clone();
    version[14 + 28 + 1] |= 1;
    assert_eq!(reason(&version), Some(Reason::BthVersion));
    for fragment in [[0x20, 0], [0, 1]] {
        let mut frame = good.clone();
        frame[20..22].copy_from_slice(&fragment);
        assert_eq!(reason(&frame), Some(Reason::Fragment));
    }
    // Every cut of the frame is refused or the same packet.
    for length in 0..good.len() {
        assert!(reason(&good[..length]).is_some(), "{length}");
    }
}

#[test]
fn suspects_are_named_by_complete_headers_only() {
    let pair = Some(Suspect::Pair([10, 0, 0, 1].into(), [10, 0, 1, 1].into()));
    let of = |frame: &[u8]| suspect(frame, &parse(frame, &CONFIG));
    let good = frame(&[5], &BTH);
    assert_eq!(of(&good), None);
    assert_eq!(of(&good[..good.len() - 1]), pair, "truncated");
    assert_eq!(
        of(&good[..18 + 19]),
        Some(Suspect::Any),
        "not even addresses"
    );
    assert_eq!(of(&good[..13]), None);
    let mut fragment = good.clone();
    fragment[25] = 1;
    assert_eq!(of(&fragment), pair, "a later fragment");
    let mut tcp = fragment.clone();
    tcp[18 + 9] = 6;
    assert_eq!(of(&tcp), None, "a fragment of TCP");
    let mut length = good.clone();
    length[18 + 20 + 5] ^= 1;
    assert_eq!(of(&length), pair, "UDP length");
    let mut port = good.clone();
    port[18 + 20 + 3] ^= 1;
    assert_eq!(of(&port), None, "another port");
    let mut arp = good;
    arp[17] = 6;
    assert_eq!(of(&arp), None);
    assert_eq!(of(&frame(&[], &BTH[..11])), pair);
}

// shows: BTH-PARSE-13, BTH-PARSE-14, BTH-PARSE-15
#[test]
fn a_packet_may_lack_what_its_opcode_needs() {
    let scopes = scopes(&[scope("10.0.0.0/24", Encapsulation::Untagged)]);
    let malformed = |opcode: u8, octet1: u8, len: usize| {
        let mut payload = BTH.to_vec();
        (payload[0], payload[1]) = (opcode, octet1);
        payload.resize(len, 0);
        let frame = frame(&[], &payload);
        scopes
            .recognise(&parse(&frame, &CONFIG))
            .unwrap()
            .is_malformed()
    };
    assert!(malformed(4, 0, 15) && !malformed(4, 0, 16));
    assert!(malformed(4, 0x30, 18) && !malformed(4, 0x30, 19));
    assert!(malformed(0x0a, 0, 31) && !malformed(0x0a, 0, 32));
    assert!(!malformed(0xff, 0, 12), "no layout is known");
}
