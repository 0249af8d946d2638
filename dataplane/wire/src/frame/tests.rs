//! Frames built and taken apart again, one case per reason, and arbitrary input.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;

use super::*;
use crate::roce::{Bth, Opcode};
use crate::{Psn, Qpn};

const CREM_PORT: u16 = 50_000;
const CONFIG: ParseConfig = ParseConfig {
    crem_port: Some(CREM_PORT),
    vxlan_port: None,
};
const TUNNELS: ParseConfig = ParseConfig {
    crem_port: Some(CREM_PORT),
    vxlan_port: Some(VXLAN_PORT),
};

fn bth() -> Bth {
    Bth {
        opcode: Opcode::SEND_ONLY,
        octet1: 0x40,
        pkey: 0xffff,
        octet4: 0,
        dest_qp: Qpn::new(0x11),
        octet8: 0x80,
        psn: Psn::new(0xab_cdef),
    }
}

fn roce_payload(len: usize) -> Vec<u8> {
    let mut payload = vec![0x5a; len];
    bth().write(&mut payload);
    payload
}

fn headers(v6: bool, tags: &[Tag], port: u16) -> UdpFrame {
    let address = |last: u8| match v6 {
        false => IpAddr::from([10, 0, 0, last]),
        true => IpAddr::from([0xfd, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]),
    };
    let mut kept = Tags::NONE;
    assert!(tags.iter().all(|tag| kept.push(*tag)));
    UdpFrame {
        destination_mac: Mac([2, 0, 0, 0, 0, 1]),
        source_mac: Mac([2, 0, 0, 0, 0, 2]),
        tags: kept,
        source: SocketAddr::new(address(1), 0xc000),
        destination: SocketAddr::new(address(2), port),
        tos: tos(26, Ecn::Ect0),
        ttl: 64,
        ident: 0x1234,
        dont_fragment: true,
        udp_checksum: v6,
    }
}

fn build(headers: &UdpFrame, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xee; headers.header_len()];
    frame.extend_from_slice(payload);
    assert_eq!(headers.write(&mut frame), Some(headers.header_len()));
    frame
}

fn reason(frame: &[u8]) -> Option<Reason> {
    match parse(frame, &CONFIG).class {
        Class::Other(reason) => Some(reason),
        _ => None,
    }
}

// shows: QOS-HDR-01, QOS-VLAN-01
#[test]
fn built_frames_come_apart_the_same() {
    let two_tags = [
        Tag {
            tpid: ETHERTYPE_QINQ,
            tci: 0x6064,
        },
        Tag::vlan(0x0014),
    ];
    for v6 in [false, true] {
        for tags in [&two_tags[..0], &two_tags[1..], &two_tags[..]] {
            let headers = headers(v6, tags, 4791);
            let payload = roce_payload(31);
            let frame = build(&headers, &payload);
            let parsed = parse(&frame, &CONFIG);
            let (link, ip, udp) = (
                parsed.link.unwrap(),
                parsed.ip.unwrap(),
                parsed.udp.unwrap(),
            );
            assert_eq!(parsed.class, Class::Roce(bth()));
            assert_eq!(parsed.payload(&frame), payload);
            assert_eq!(
                (link.destination, link.source),
                (headers.destination_mac, headers.source_mac)
            );
            assert_eq!(link.tags.as_slice(), tags);
            assert_eq!(
                (ip.source, ip.destination),
                (headers.source.ip(), headers.destination.ip())
            );
            assert_eq!(
                (ip.tos, ip.ttl, ip.ident),
                (headers.tos, 64, (!v6).then_some(0x1234))
            );
            assert_eq!(ip.end(), frame.len());
            assert_eq!((udp.source, udp.destination), (0xc000, 4791));
            assert_eq!(usize::from(udp.payload_off), headers.header_len());
            assert!(udp_checksum_ok(
                ip.source,
                ip.destination,
                &frame[usize::from(udp.offset)..]
            ));
            assert_eq!(udp.checksum != 0, v6);
            if !v6 {
                let header = &frame[usize::from(ip.offset)..usize::from(udp.offset)];
                assert_eq!(Checksum::default().add_octets(header).finish(), 0);
            }
        }
    }
}

#[test]
fn headers_that_cannot_be_written_are_refused() {
    let good = headers(false, &[], 4791);
    assert_eq!(good.write(&mut [0; 41]), None);
    assert_eq!(good.write(&mut vec![0; 14 + 65_536]), None);
    let mixed = UdpFrame {
        source: headers(true, &[], 1).source,
        ..good
    };
    assert_eq!(mixed.write(&mut [0; 100]), None);
}

// shows: AMB-PAYLEN
#[test]
fn link_padding_is_not_payload() {
    let mut frame = build(&headers(false, &[], 4791), &roce_payload(16));
    frame.resize(60, 0);
    let parsed = parse(&frame, &CONFIG);
    assert_eq!(
        (parsed.payload(&frame).len(), parsed.ip.unwrap().end()),
        (16, 58)
    );
}

// shows: CREM-PORT-02
#[test]
fn crem_port_is_crem_only_where_configured() {
    let frame = build(&headers(true, &[], CREM_PORT), b"anything");
    assert_eq!(parse(&frame, &CONFIG).class, Class::Crem);
    assert_eq!(
        parse(&frame, &ParseConfig::default()).class,
        Class::Other(Reason::NotRoce)
    );
}

// shows: CREM-SCOPE-01, QOS-PFC-02, QOS-HDR-04, A17-01, A17-03, AMB-FRAG
// shows: BTH-PARSE-11
#[test]
fn one_case_for_each_reason() {
    let good = build(&headers(false, &[], 4791), &roce_payload(20));
    assert_eq!(reason(&good), None);
    let with = |changes: &[(usize, u8)]| {
        let mut frame = good.clone();
        for &(offset, value) in changes {
            frame[offset] = value;
        }
        reason(&frame)
    };
    assert_eq!(reason(&good[..13]), Some(Reason::Short));
    assert_eq!(
        reason(&build(&headers(false, &[Tag::vlan(1)], 4791), &[])[..17]),
        Some(Reason::Short)
    );
    assert_eq!(with(&[(12, 0x88), (13, 0x08)]), Some(Reason::MacControl));
    assert_eq!(with(&[(13, 0x06)]), Some(Reason::NotIp));
    assert_eq!(with(&[(14, 0x65)]), Some(Reason::NotIp));
    assert_eq!(reason(&good[..33]), Some(Reason::IpLength));
    assert_eq!(reason(&good[..good.len() - 1]), Some(Reason::IpLength));
    assert_eq!(with(&[(14, 0x44)]), Some(Reason::IpLength));
    assert_eq!(
        with(&[(14, 0x4f)]),
        Some(Reason::IpLength),
        "options reach beyond the packet"
    );
    assert_eq!(with(&[(17, 19)]), Some(Reason::IpLength));
    assert_eq!(
        with(&[(17, 19), (23, 6)]),
        Some(Reason::IpLength),
        "before the protocol"
    );
    assert_eq!(with(&[(20, 0x20)]), Some(Reason::Fragment), "first");
    assert_eq!(with(&[(21, 0x01)]), Some(Reason::Fragment), "later");
    assert_eq!(with(&[(23, 6)]), Some(Reason::NotUdp));
    assert_eq!(
        with(&[(39, 29)]),
        Some(Reason::UdpLength),
        "longer than the packet"
    );
    assert_eq!(
        with(&[(39, 27)]),
        Some(Reason::UdpLength),
        "shorter than the packet"
    );
    assert_eq!(
        with(&[(17, 27)]),
        Some(Reason::UdpLength),
        "no room for a UDP header"
    );
    assert_eq!(with(&[(37, 0xb8)]), Some(Reason::NotRoce));
    assert_eq!(with(&[(43, 0x41)]), Some(Reason::BthVersion));
    assert_eq!(
        reason(&build(&headers(false, &[], 4791), &[0; 11])),
        Some(Reason::BthShort)
    );
    assert_eq!(
        reason(&build(&headers(false, &[], 4791), &[0; 12])),
        None,
        "a BTH is all it takes"
    );
}

#[test]
fn a_third_tag_is_not_looked_behind() {
    let tags = [Tag::vlan(1), Tag::vlan(2)];
    let mut frame = build(&headers(false, &tags, 4791), &roce_payload(20));
    frame.splice(12..12, [0x81, 0, 0, 3]);
    let parsed = parse(&frame, &CONFIG);
    assert_eq!(parsed.class, Class::Other(Reason::NotIp));
    assert_eq!(
        parsed.link.unwrap().tags.as_slice(),
        [Tag::vlan(3), Tag::vlan(1)]
    );
}

// shows: QOS-HDR-01
#[test]
fn ipv4_options_are_skipped() {
    let mut frame = build(&headers(false, &[], 4791), &roce_payload(20));
    frame.splice(34..34, [0x94, 4, 0, 0]);
    frame[14] = 0x46;
    frame[17] += 4;
    let parsed = parse(&frame, &CONFIG);
    assert_eq!(parsed.class, Class::Roce(bth()));
    assert_eq!(
        (
            parsed.ip.unwrap().header_len,
            parsed.udp.unwrap().payload_off
        ),
        (24, 46)
    );
}

/// A RoCEv2 packet over IPv6 with these octets between base header and UDP.
fn extended(first: u8, extensions: &[u8]) -> Vec<u8> {
    let mut frame = build(&headers(true, &[], 4791), &roce_payload(20));
    frame.splice(54..54, extensions.iter().copied());
    frame[20] = first;
    frame[19] += extensions.len() as u8;
    frame
}

// shows: QOS-HDR-01
// shows: BTH-PARSE-06
#[test]
fn ipv6_extension_headers_lead_to_udp() {
    let chain = [
        60, 0, 1, 4, 0, 0, 0, 0, 43, 0, 1, 4, 0, 0, 0, 0, 17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0,
    ];
    let frame = extended(0, &chain);
    let parsed = parse(&frame, &CONFIG);
    assert_eq!(parsed.class, Class::Roce(bth()));
    assert_eq!(parsed.ip.unwrap().header_len, 40 + 32);
    // A fragment header, the first fragment's and that of a whole packet.
    assert_eq!(
        reason(&extended(44, &[17, 0, 0, 1, 0, 0, 0, 9])),
        Some(Reason::Fragment)
    );
    assert_eq!(
        reason(&extended(44, &[17, 0, 0, 0, 0, 0, 0, 9])),
        Some(Reason::Fragment)
    );
    assert_eq!(
        reason(&extended(51, &[17, 0, 0, 0, 0, 0, 0, 9])),
        Some(Reason::NotUdp),
        "AH"
    );
    assert_eq!(
        reason(&extended(60, &[17, 200, 0, 0, 0, 0, 0, 0])),
        Some(Reason::IpLength)
    );
    let endless: Vec<u8> = [60, 0, 1, 4, 0, 0, 0, 0].repeat(9);
    assert_eq!(reason(&extended(60, &endless)), Some(Reason::NotUdp));
}

fn vxlan(inner: &[u8], outer_ce: bool) -> Vec<u8> {
    let mut payload = vec![0; VxlanHeader::LEN];
    assert_eq!(VxlanHeader { vni: 0x85_6b13 }.write(&mut payload), 8);
    payload.extend_from_slice(inner);
    let mut outer = headers(false, &[Tag::vlan(7)], VXLAN_PORT);
    outer.tos = tos(1, if outer_ce { Ecn::Ce } else { Ecn::NotEct });
    build(&outer, &payload)
}

// shows: QOS-VXLAN-01, QOS-VXLAN-06, AMB-QOS-VXCE
#[test]
fn vxlan_is_entered_only_where_configured() {
    let frame = vxlan(
        &build(&headers(true, &[Tag::vlan(9)], 4791), &roce_payload(20)),
        true,
    );
    assert_eq!(parse(&frame, &CONFIG).class, Class::Other(Reason::NotRoce));
    let parsed = parse(&frame, &TUNNELS);
    let tunnel = parsed.tunnel.unwrap();
    assert_eq!(parsed.class, Class::Roce(bth()));
    assert_eq!(
        (tunnel.vni, tunnel.udp.destination),
        (0x85_6b13, VXLAN_PORT)
    );
    assert_eq!(tunnel.link.tags.as_slice(), [Tag::vlan(9)]);
    assert!(parsed.ip.unwrap().source.is_ipv6() && tunnel.ip.source.is_ipv4());
    assert_eq!(parsed.payload(&frame), roce_payload(20));
    assert!(parsed.ce(), "CE outside over ECT(0) inside");
    // The same context whatever the underlay's tag; another one without the tunnel.
    let plain = build(&headers(true, &[Tag::vlan(9)], 4791), &roce_payload(20));
    assert_ne!(parsed.context(), parse(&plain, &TUNNELS).context());
    assert_eq!(
        Network::of_context(parsed.context()),
        Network::Vxlan(0x85_6b13)
    );
    assert_eq!(
        parse(&plain, &TUNNELS).class,
        Class::Roce(bth()),
        "native packets stay recognised"
    );

    let mut no_vni = frame.clone();
    no_vni[14 + 4 + 28] = 0;
    assert_eq!(parse(&no_vni, &TUNNELS).class, Class::Other(Reason::Vxlan));
    for cut in 1..34 {
        let short = vxlan(
            &build(&headers(true, &[], 4791), &roce_payload(20))[..cut],
            false,
        );
        let expected = if cut < 14 {
            Reason::Vxlan
        } else {
            Reason::IpLength
        };
        assert_eq!(
            parse(&short, &TUNNELS).class,
            Class::Other(expected),
            "{cut}"
        );
    }
}

// shows: BTH-PARSE-10
#[test]
fn an_inner_packet_cannot_reach_beyond_its_tunnel() {
    let inner = build(&headers(false, &[], 4791), &roce_payload(20));
    let mut frame = vxlan(&inner[..inner.len() - 4], false);
    // What is missing stands behind the outer packet as link padding.
    frame.extend_from_slice(&inner[inner.len() - 4..]);
    assert_eq!(
        parse(&frame, &TUNNELS).class,
        Class::Other(Reason::IpLength)
    );
}

#[test]
fn contexts_tell_their_network() {
    let network = |tags: &[Tag]| {
        let frame = build(&headers(false, tags, 4791), &roce_payload(20));
        Network::of_context(parse(&frame, &CONFIG).context())
    };
    assert_eq!(network(&[]), Network::Untagged);
    assert_eq!(network(&[Tag::vlan(0)]), Network::Vlan(0));
    assert_eq!(network(&[Tag::vlan(0xefff)]), Network::Vlan(0xfff));
    assert_eq!(
        network(&[Tag::vlan(0), Tag::vlan(100)]),
        Network::QinQ(0, 100)
    );
}

// shows: AMB-TENANT
#[test]
fn contexts_differ_by_vlan_and_not_by_priority() {
    let context = |tags: &[Tag]| {
        parse(
            &build(&headers(false, tags, 4791), &roce_payload(20)),
            &CONFIG,
        )
        .context()
    };
    let all = [
        context(&[]),
        context(&[Tag::vlan(0)]),
        context(&[Tag::vlan(100)]),
        context(&[Tag::vlan(0), Tag::vlan(100)]),
        context(&[Tag::vlan(100), Tag::vlan(0)]),
        context(&[Tag::vlan(0xfff)]),
        context(&[Tag::vlan(0), Tag::vlan(0xfff)]),
    ];
    for (i, a) in all.iter().enumerate() {
        assert!(all[..i].iter().all(|b| a != b), "{all:?}");
    }
    assert_eq!(all[0], 0);
    assert_eq!(all[2], context(&[Tag::vlan(0x6064)]));
}

// shows: QOS-ECN-06, QOS-HDR-05
#[test]
fn a_new_tos_keeps_the_header_checksum_right() {
    for v6 in [false, true] {
        let mut frame = build(&headers(v6, &[], 4791), &roce_payload(20));
        for value in 0..=255u8 {
            let parsed = parse(&frame, &CONFIG);
            set_tos(&mut frame, &parsed, value);
            let expected = build(
                &UdpFrame {
                    tos: value,
                    ..headers(v6, &[], 4791)
                },
                &roce_payload(20),
            );
            assert_eq!(frame, expected, "{value}");
        }
    }
    // Every checksum that a header can have, so that every carry happens.
    for ident in 0..=u16::MAX {
        let mut frame = build(
            &UdpFrame {
                ident,
                tos: 0xff,
                ..headers(false, &[], 4791)
            },
            &[0; 12],
        );
        for value in [1, 0xff] {
            let parsed = parse(&frame, &CONFIG);
            set_tos(&mut frame, &parsed, value);
            let sum = Checksum::default().add_octets(&frame[14..34]).finish();
            assert_eq!(sum, 0, "{ident} to {value}");
        }
    }
    let mut frame = vxlan(&build(&headers(false, &[], 4791), &roce_payload(20)), true);
    let parsed = parse(&frame, &TUNNELS);
    set_outer_tos(&mut frame, &parsed, 4);
    assert_eq!(
        frame,
        vxlan(&build(&headers(false, &[], 4791), &roce_payload(20)), false)
    );
}

#[test]
fn reasons_are_distinct_and_indexed() {
    for (i, reason) in Reason::ALL.into_iter().enumerate() {
        assert_eq!(reason.index(), i);
        assert!(
            Reason::ALL
                .iter()
                .all(|other| other == &reason || other.name() != reason.name())
        );
    }
    assert_eq!(Mac([2, 0, 0, 0xab, 0, 1]).to_string(), "02:00:00:ab:00:01");
    assert!(Mac::BROADCAST.is_group() && !Mac([2, 0, 0, 0, 0, 1]).is_group());
    assert_eq!((Tag::vlan(0x6064).pcp(), Tag::vlan(0x6064).vid()), (3, 100));
}

/// All offsets of a result lie in the frame, and in order.
fn consistent(frame: &[u8], parsed: &Parsed) -> bool {
    let layers = parsed.ip.zip(parsed.udp).is_none_or(|(ip, udp)| {
        let start = usize::from(udp.payload_off);
        ip.end() <= frame.len()
            && udp.offset == ip.offset + ip.header_len
            && start + usize::from(udp.payload_len) == ip.end()
            && parsed.payload(frame).len() == usize::from(udp.payload_len)
    });
    layers && (matches!(parsed.class, Class::Other(_)) || parsed.udp.is_some())
}

proptest! {
    #[test]
    fn arbitrary_octets_never_panic(mut frame in prop::collection::vec(any::<u8>(), 0..200), ethertype in 0usize..6) {
        let types = [ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, ETHERTYPE_QINQ, ETHERTYPE_MAC_CONTROL, 0x9100];
        if let Some(place) = frame.get_mut(12..14) {
            place.copy_from_slice(&types[ethertype].to_be_bytes());
        }
        let parsed = parse(&frame, &TUNNELS);
        prop_assert!(consistent(&frame, &parsed));
        parsed.context();
        parsed.ce();
    }

    #[test]
    fn damaged_frames_never_panic(
        v6: bool, tunnel: bool, tags in 0usize..3, len in 0usize..64,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(), shorten: bool,
    ) {
        let tags = &[Tag::vlan(5), Tag::vlan(6)][..tags];
        let mut frame = build(&headers(v6, tags, 4791), &vec![0x40; len]);
        if tunnel {
            frame = vxlan(&frame, false);
        }
        for (at, value) in damage {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        if shorten {
            frame.truncate(cut.index(frame.len()));
        }
        let mut parsed = parse(&frame, &TUNNELS);
        prop_assert!(consistent(&frame, &parsed));
        set_tos(&mut frame, &parsed, 0xff);
        set_outer_tos(&mut frame, &parsed, 0xff);
        parsed = parse(&frame, &TUNNELS);
        prop_assert!(consistent(&frame, &parsed));
        crate::icrc::verify_frame(&frame, &parsed);
    }
}
