//! Flows in frames of every form: tags of 802.1Q and 802.1ad, IPv4 options, IPv6 extension headers, VXLAN,
//! packets shorter than Ethernet frames are.

use crem_wire::frame::{
    Class, ETHERTYPE_QINQ, Ecn, MIN_FRAME_LEN, Tag, Tunnel, VXLAN_PORT, VxlanHeader,
    ipv4_header_checksum,
};

use super::*;

const PARSE: ParseConfig = ParseConfig {
    crem_port: Some(CREM_PORT),
    vxlan_port: Some(VXLAN_PORT),
};

/// PSN of a RoCEv2 packet, in a tunnel or not.
fn psn_within(frame: &[u8]) -> Option<u32> {
    match frame::parse(frame, &PARSE).class {
        Class::Roce(bth) => Some(bth.psn.get()),
        _ => None,
    }
}

/// A pair with further keys in both documents.
fn pair(more: &str) -> Pair {
    let policy = "m_min = 2, initial_loss = 0.02";
    let config = |own| config_with(own, true, policy, more);
    Pair::of([0, 1].map(|own| segment_of(&config(own), None, own)))
}

fn lost(psn: u32) -> bool {
    psn > 1000 && (psn % 40 == 7 || psn % 160 == 8)
}

/// Sends packets 0 to `count`, one every two steps, and gives back what arrived, in order.
fn transfer_of(
    pair: &mut Pair,
    make: &dyn Fn(u32) -> Vec<u8>,
    count: u32,
    lost: &dyn Fn(u32) -> bool,
) -> Vec<HeapBuf> {
    let mut arrived = Vec::new();
    let mut lose = |frame: &[u8]| psn_within(frame).is_some_and(lost);
    for n in 0..2 * count + 1000 {
        if n % 2 == 0 && n / 2 < count {
            pair.gateways[0].lan.device.arrive(&make(n / 2));
        }
        pair.step(&mut lose);
        arrived.extend(pair.received());
    }
    arrived
}

/// The packet as it leaves when it was restored: no mark in any of its IP headers.
fn unmarked(mut frame: Vec<u8>) -> Vec<u8> {
    let parsed = frame::parse(&frame, &PARSE);
    let plain = |tos: u8| tos & !3;
    frame::set_tos(&mut frame, &parsed, plain(parsed.ip.unwrap().tos));
    if let Some(tunnel) = parsed.tunnel {
        frame::set_outer_tos(&mut frame, &parsed, plain(tunnel.ip.tos));
    }
    frame
}

/// Every lost packet arrives in its place, octet by octet as it was sent but for the ECN field.
fn all_are_restored(pair: &mut Pair, make: &dyn Fn(u32) -> Vec<u8>) {
    let count = 2500;
    let arrived = transfer_of(pair, make, count, &lost);
    let arrived: Vec<(u32, HeapBuf)> = arrived
        .into_iter()
        .filter_map(|f| Some((psn_within(f.octets())?, f)))
        .collect();
    let strays = arrived.iter().zip(0..).find(|((psn, _), at)| psn != at);
    assert!(arrived.len() == 2500 && strays.is_none(), "{strays:?}");
    are_as_sent(pair, &arrived, make);
}

fn are_as_sent(pair: &mut Pair, arrived: &[(u32, HeapBuf)], make: &dyn Fn(u32) -> Vec<u8>) {
    let mut restored = 0;
    for (psn, frame) in arrived {
        let mut expected = make(*psn);
        if lost(*psn) {
            restored += 1;
            expected = unmarked(expected);
        }
        assert_eq!(frame.octets(), expected, "{psn}");
    }
    let counters = pair.snapshot(1).counters;
    assert!(restored > 0);
    assert_eq!(counters.coding.restored, restored);
    assert_eq!(counters.drops, Default::default());
}

fn tags(all: &[(u16, u16)]) -> Tags {
    let mut tags = Tags::NONE;
    for &(tpid, tci) in all {
        assert!(tags.push(Tag { tpid, tci }));
    }
    tags
}

// shows: QOS-VLAN-02, QOS-VLAN-03, AMB-HDRREST, AMB-TENANT
#[test]
fn packets_are_restored_in_every_kind_of_tags() {
    const C: u16 = 0x8100;
    const S: u16 = ETHERTYPE_QINQ;
    let kinds: [&[(u16, u16)]; 5] = [
        &[(S, 0xa000 | 100), (C, 7)],
        &[(C, 100), (C, 0x6000 | 7)],
        &[(S, 0x1000 | 4094)],
        // Priority alone, without a VLAN.
        &[(C, 5 << 13)],
        &[(S, 3 << 13), (C, 3 << 13)],
    ];
    for kind in kinds {
        let tags = tags(kind);
        all_are_restored(&mut pair(""), &|psn| packet_in(tags, psn));
    }
}

/// RoCEv2 between the hosts over IPv4 with options.
fn with_options(psn: u32) -> Vec<u8> {
    let plain = packet(psn);
    // Router alert, and no operations up to the word.
    let options = [0x94, 4, 0, 0, 1, 1, 1, 1];
    let mut frame = [&plain[..34], &options, &plain[34..]].concat();
    frame[14] = 0x40 | 7;
    let total = u16::from_be_bytes([frame[16], frame[17]]) + 8;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[24..26].fill(0);
    let checksum = ipv4_header_checksum(&frame[14..42]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    resealed(frame)
}

fn resealed(mut frame: Vec<u8>) -> Vec<u8> {
    let parsed = frame::parse(&frame, &PARSE);
    assert!(matches!(parsed.class, Class::Roce(_)));
    assert!(icrc::write_frame(&mut frame, &parsed));
    frame
}

// shows: AMB-HDRREST, AMB-PAYLEN
#[test]
fn packets_with_ipv4_options_are_restored_with_them() {
    assert_eq!(
        frame::parse(&with_options(1), &PARSE)
            .ip
            .unwrap()
            .header_len,
        28
    );
    all_are_restored(&mut pair(""), &with_options);
}

const V6_HOSTS: [&str; 2] = ["2001:db8:1::1", "2001:db8:2::1"];

/// A pair whose hosts have IPv6 addresses.
fn v6_pair() -> Pair {
    let of = |own: usize| {
        let mut config = config(own, true, "m_min = 2, initial_loss = 0.02");
        let prefix = |host: &str| format!("{host}/128").parse().unwrap();
        let peer = *config.peers.values().next().unwrap();
        config.served = [(prefix(V6_HOSTS[own]), Default::default())].into();
        config.peers = [(prefix(V6_HOSTS[1 - own]), peer)].into();
        segment_of(&config, None, own)
    };
    Pair::of([of(0), of(1)])
}

/// The same over IPv6 with a hop-by-hop and a destination options header.
fn with_extensions(psn: u32) -> Vec<u8> {
    let plain = packet(psn);
    let headers = UdpFrame {
        destination_mac: mac(2),
        source_mac: mac(1),
        tags: Tags::NONE,
        source: SocketAddr::new(address(V6_HOSTS[0]), 50_000),
        destination: SocketAddr::new(address(V6_HOSTS[1]), UDP_PORT),
        tos: 26 << 2 | 2,
        ttl: 64,
        ident: 0,
        dont_fragment: false,
        udp_checksum: false,
    };
    let mut frame = vec![0; headers.header_len()];
    frame.extend_from_slice(&plain[42..]);
    headers.write(&mut frame).unwrap();
    // Each of eight octets: what follows, length, and options that only pad.
    let extensions = [60, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0];
    let mut frame = [&frame[..54], &extensions, &frame[54..]].concat();
    frame[20] = 0;
    let length = u16::from_be_bytes([frame[18], frame[19]]) + 16;
    frame[18..20].copy_from_slice(&length.to_be_bytes());
    resealed(frame)
}

// shows: AMB-HDRREST
#[test]
fn packets_with_ipv6_extension_headers_are_restored_with_them() {
    assert_eq!(
        frame::parse(&with_extensions(1), &PARSE)
            .ip
            .unwrap()
            .header_len,
        56
    );
    all_are_restored(&mut v6_pair(), &with_extensions);
}

// shows: AMB-FRAG
#[test]
fn what_cannot_be_taken_apart_passes_and_is_counted_by_reason() {
    let mut pair = pair("");
    let first_fragment = |mut frame: Vec<u8>| {
        frame[20] = 0x20;
        frame
    };
    let long_udp = |mut frame: Vec<u8>| {
        frame[38] += 1;
        frame
    };
    let other_version = |mut frame: Vec<u8>| {
        frame[43] |= 1;
        frame
    };
    let forms: [&dyn Fn(Vec<u8>) -> Vec<u8>; 3] = [&first_fragment, &long_udp, &other_version];
    for psn in 0..60 {
        for form in forms {
            let frame = form(packet(psn));
            pair.gateways[0].lan.device.arrive(&frame);
            pair.step(&mut |_| false);
            let sent = pair.wires[0].pop_back().unwrap();
            assert_eq!(sent.1.octets(), frame, "no octet is changed");
        }
    }
    let snapshot = pair.snapshot(0);
    let mut counted = Vec::new();
    snapshot.counters.passed.for_each(|name, count| {
        if count > 0 {
            counted.push((name, count));
        }
    });
    assert_eq!(
        counted,
        [("fragment", 60), ("udp_length", 60), ("bth_version", 60)]
    );
    let protected = |name| snapshot.csf.iter().find(|(n, _)| *n == name).unwrap().1;
    assert_eq!(protected("packets"), 0);
}

/// A request without payload, padded as an adapter does.
fn short(psn: u32) -> Vec<u8> {
    let mut frame = packet(psn);
    frame.truncate(14 + 20 + 8 + MIN_PAYLOAD);
    frame[42] = Opcode::SEND_ONLY.0;
    let total = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[38..40].copy_from_slice(&(total - 20).to_be_bytes());
    frame[24..26].fill(0);
    let checksum = ipv4_header_checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = resealed(frame);
    frame.resize(MIN_FRAME_LEN, 0);
    frame
}

// shows: AMB-PAYLEN
#[test]
fn padding_is_no_part_of_a_symbol_and_restored_packets_are_padded_again() {
    assert_eq!(
        frame::parse(&short(1), &PARSE).payload(&short(1)).len(),
        MIN_PAYLOAD
    );
    // Symbols are much longer than such packets, so most repair is asked for and comes behind them.
    let mut pair = pair("");
    let arrived = transfer_of(&mut pair, &short, 2500, &lost);
    let arrived = arrived
        .into_iter()
        .filter_map(|f| Some((psn_within(f.octets())?, f)));
    let arrived: Vec<_> = arrived.collect();
    let mut psns: Vec<u32> = arrived.iter().map(|(psn, _)| *psn).collect();
    psns.sort_unstable();
    assert_eq!(psns, (0..2500).collect::<Vec<_>>());
    are_as_sent(&mut pair, &arrived, &short);
}

const TUNNEL_ENDS: [&str; 2] = ["172.31.1.1", "172.31.2.1"];

/// A packet inside of VXLAN; `outer` and `inner` are the ECN fields of the two IP headers.
fn tunnelled(vni: u32, outer: Ecn, inner: Ecn, psn: u32) -> Vec<u8> {
    let mut inside = packet_in(tags(&[(0x8100, 12)]), psn);
    let parsed = frame::parse(&inside, &PARSE);
    frame::set_tos(&mut inside, &parsed, frame::tos(26, inner));
    let headers = UdpFrame {
        destination_mac: mac(0x32),
        source_mac: mac(0x31),
        tags: tags(&[(0x8100, 5 << 13 | 900)]),
        source: SocketAddr::new(address(TUNNEL_ENDS[0]), 61_000),
        destination: SocketAddr::new(address(TUNNEL_ENDS[1]), VXLAN_PORT),
        tos: frame::tos(30, outer),
        ttl: 60,
        ident: 7,
        dont_fragment: false,
        udp_checksum: false,
    };
    let before = headers.header_len();
    let mut frame = vec![0; before + VxlanHeader::LEN];
    VxlanHeader { vni }.write(&mut frame[before..]);
    frame.append(&mut inside);
    headers.write(&mut frame).unwrap();
    frame
}

// shows: QOS-VXLAN-01, QOS-VXLAN-02, QOS-VXLAN-03, AMB-DSCPTUN, AMB-HDRREST
#[test]
fn packets_in_vxlan_are_restored_in_their_tunnel() {
    let make = |psn| tunnelled(5000, Ecn::Ect0, Ecn::Ect0, psn);
    let mut pair = pair("vxlan = { networks = { \"5000\" = {} } }");
    all_are_restored(&mut pair, &make);
    let Some(Tunnel { vni, udp, .. }) = frame::parse(&make(1), &PARSE).tunnel else {
        panic!("not in a tunnel")
    };
    assert_eq!((vni, udp.destination), (5000, VXLAN_PORT));
}

// shows: AMB-TENANT
#[test]
fn equal_flows_in_two_networks_do_not_mix() {
    let mut pair = pair("vxlan = {}");
    // The second network begins when the flow of the first is protected.
    let both = |n: u32| {
        let (vni, psn) = match n.checked_sub(1000) {
            None => (5000, n),
            Some(later) if later % 2 == 0 => (5000, 1000 + later / 2),
            Some(later) => (5001, 4000 + later / 2),
        };
        tunnelled(vni, Ecn::Ect0, Ecn::Ect0, psn)
    };
    let arrived = transfer_of(&mut pair, &both, 3000, &|psn| psn < 4000 && lost(psn));
    let of = |vni| {
        let psns = arrived.iter().filter_map(move |f| {
            let parsed = frame::parse(f.octets(), &PARSE);
            (parsed.tunnel?.vni == vni).then(|| psn_within(f.octets()))?
        });
        let mut psns: Vec<u32> = psns.collect();
        // What is restored when the hold has ended comes behind others.
        psns.sort_unstable();
        psns
    };
    assert_eq!(of(5000), (0..2000).collect::<Vec<_>>());
    assert_eq!(of(5001), (4000..5000).collect::<Vec<_>>());
    let sender = pair.snapshot(0);
    let count = |name| sender.csf.iter().find(|(n, _)| *n == name).unwrap().1;
    assert!(count("namespace_conflicts") > 0);
    assert_eq!(pair.snapshot(1).counters.coding.corrupt, 0);
}

#[test]
fn other_networks_and_tunnels_without_the_key_pass_unprotected() {
    for (more, other) in [("vxlan = { networks = { \"1\" = {} } }", 400), ("", 0)] {
        let mut pair = pair(more);
        let make = |psn| tunnelled(5000, Ecn::Ect0, Ecn::Ect0, psn);
        let arrived = transfer_of(&mut pair, &make, 400, &|_| false);
        assert_eq!(arrived.len(), 400);
        let sender = pair.snapshot(0);
        assert_eq!(sender.counters.passed.other_network, other);
        assert_eq!(
            sender.counters.messages,
            Default::default(),
            "nothing is said"
        );
    }
}

/// Packets that a report in this frame calls marked.
fn marks_in(octets: &[u8]) -> u32 {
    let parsed = frame::parse(octets, &PARSE);
    match crem_wire::crem::parse(parsed.payload(octets)) {
        Ok(Parsed::Message(Message::LossReport(report))) if parsed.class == Class::Crem => {
            report.ce_marked
        }
        _ => 0,
    }
}

// shows: AMB-QOS-VXCE, QOS-ECN-07, QOS-VXLAN-05, QOS-VXLAN-06
#[test]
fn a_mark_of_either_header_counts_as_the_receiver_will_see_it() {
    // A marked outer header over an inner one that cannot be marked is dropped at the tunnel's end.
    for (outer, inner, marked) in [
        (Ecn::Ce, Ecn::Ect0, true),
        (Ecn::Ect0, Ecn::Ce, true),
        (Ecn::Ect0, Ecn::Ect0, false),
        (Ecn::Ce, Ecn::NotEct, false),
    ] {
        let mut pair = pair("vxlan = {}");
        let make = |psn| tunnelled(5000, outer, inner, psn);
        let (mut arrived, mut ce) = (Vec::new(), 0);
        let gone = |psn: u32| psn > 1000 && psn % 50 == 7;
        let mut lose = |frame: &[u8]| {
            ce += marks_in(frame);
            psn_within(frame).is_some_and(gone)
        };
        for n in 0..4000u32 {
            if n % 2 == 0 && n < 3000 {
                pair.gateways[0].lan.device.arrive(&make(n / 2));
            }
            pair.step(&mut lose);
            arrived.extend(pair.received());
        }
        assert_eq!(arrived.len(), 1500);
        assert_eq!(ce > 0, marked, "{outer:?} around {inner:?}: {ce}");
        for frame in &arrived {
            let psn = psn_within(frame.octets()).unwrap();
            if gone(psn) {
                let parsed = frame::parse(frame.octets(), &PARSE);
                let outer = Ecn::of(parsed.tunnel.unwrap().ip.tos);
                assert_eq!((outer, parsed.ce()), (Ecn::NotEct, false), "restored {psn}");
            }
        }
    }
}

// shows: QOS-PFC-02, QOS-PFC-06, AMB-QOS-PFC
#[test]
fn pause_never_passes_in_whatever_tags_and_neighbours_protocols_as_the_document_says() {
    let mut pair = pair("control_frames = { lldp = \"transparent\", stp = \"drop\" }");
    let frame = |last: u8, tags: &[u8], kind: u16| {
        let mut frame = vec![1, 0x80, 0xc2, 0, 0, last, 2, 0, 0, 0, 0, 1];
        frame.extend_from_slice(tags);
        frame.extend_from_slice(&kind.to_be_bytes());
        frame.resize(MIN_FRAME_LEN, 0);
        frame
    };
    let qinq = [0x88, 0xa8, 0, 5, 0x81, 0, 0, 6];
    for octets in [
        frame(1, &[], 0x8808),
        frame(1, &qinq[..4], 0x8808),
        frame(1, &qinq, 0x8808),
        frame(0, &[], 38),
        frame(0x0e, &[], 0x88cc),
        frame(2, &[], 0x8809),
    ] {
        pair.gateways[0].lan.device.arrive(&octets);
        pair.gateways[0].wan.device.arrive(&octets);
    }
    pair.step(&mut |_| false);
    let passed: Vec<u16> = pair.gateways[0]
        .lan
        .device
        .sent
        .iter()
        .map(|f| u16::from_be_bytes([f.octets()[12], f.octets()[13]]))
        .collect();
    assert_eq!(passed, [0x88cc, 0x8809]);
    assert_eq!(pair.wires[0].len(), 2);
    let drops = pair.snapshot(0).counters.drops;
    assert_eq!((drops.mac_control, drops.stp, drops.lldp), (6, 2, 0));
}
