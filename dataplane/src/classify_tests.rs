//! Single frames and what is decided on them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crem_wire::Qpn;
use crem_wire::frame::{ETHERTYPE_MAC_CONTROL, Tag, Tags, UdpFrame};
use crem_wire::roce::{Aeth, CommId, Opcode, Syndrome};

const OWN: Mac = Mac([2, 0, 0, 0, 0, 0x10]);
const HOST: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);

fn view(own: &str, vlan: Option<u16>) -> View {
    View {
        parse: ParseConfig {
            crem_port: Some(4801),
            vxlan_port: None,
        },
        served: vec![
            "10.0.1.0/24".parse().unwrap(),
            "2001:db8:1::/64".parse().unwrap(),
        ],
        own: Some(Station {
            address: own.parse().unwrap(),
            mac: OWN,
            vlan,
        }),
        active: true,
        watched: false,
        responses: false,
        learn: false,
        verify_sources: false,
        control: ControlFrames::default(),
        networks: Vec::new(),
        cut_from: [500, NEVER_CUT],
    }
}

fn udp(to: Mac, source: &str, destination: &str, tags: Tags, payload: &[u8]) -> Vec<u8> {
    let headers = UdpFrame {
        destination_mac: to,
        source_mac: HOST,
        tags,
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        tos: 26 << 2 | 3,
        ttl: 64,
        ident: 1,
        dont_fragment: true,
        udp_checksum: false,
    };
    let mut frame = vec![0; headers.header_len()];
    frame.extend_from_slice(payload);
    headers.write(&mut frame).unwrap();
    frame
}

fn tags(tcis: &[u16]) -> Tags {
    let mut tags = Tags::NONE;
    tcis.iter()
        .for_each(|tci| assert!(tags.push(Tag::vlan(*tci))));
    tags
}

fn roce(opcode: u8, payload: usize) -> Vec<u8> {
    let bth = Bth {
        opcode: Opcode(opcode),
        octet1: 0,
        pkey: 0xffff,
        octet4: 0,
        dest_qp: Qpn::new(9),
        octet8: 0,
        psn: Psn::new(77),
    };
    let mut octets = vec![0; Bth::LEN + payload];
    bth.write(&mut octets);
    octets
}

fn ethernet(to: Mac, from: Mac, ethertype: u16, rest: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0, &ethertype.to_be_bytes(), rest].concat()
}

fn arp(sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    [
        &[0, 1, 8, 0, 6, 4, 0, 1][..],
        &HOST.0,
        &sender,
        &[0; 6],
        &target,
    ]
    .concat()
}

fn icmp(destination: [u8; 4], kind: u8) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 1, 5];
    packet.extend_from_slice(&destination);
    packet.extend_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 0]);
    packet
}

// shows: QOS-ECN-07, AMB-PAIR
#[test]
fn sources_are_requests_of_or_for_served_hosts() {
    let view = view("192.0.2.1", None);
    let request = roce(0x07, 1024 + 4);
    let out = udp(
        OTHER,
        "10.0.1.5:1",
        "10.0.2.5:4791",
        tags(&[5 << 13 | 7]),
        &request,
    );
    let Verdict::Source(source) = view.classify(&out, Side::Lan) else {
        panic!()
    };
    assert_eq!(
        (source.psn.get(), source.opcode, source.key.qp.get()),
        (77, 7, 9)
    );
    assert_eq!((source.payload_len, source.payload_off), (1040, 46));
    assert_eq!(
        (source.mtu_seen, source.read_length, source.ce),
        (Some(1024), None, true)
    );
    assert_eq!((source.dscp, source.pcp), (26, 5));
    assert_ne!(source.key.namespace, Namespace(0));
    // The same frame from the WAN is for a host that is not ours.
    assert_eq!(view.classify(&out, Side::Wan), Verdict::Forward);
    let back = udp(OTHER, "10.0.2.5:1", "10.0.1.5:4791", Tags::NONE, &request);
    assert!(matches!(
        view.classify(&back, Side::Wan),
        Verdict::Source(_)
    ));
    assert_eq!(view.classify(&back, Side::Lan), Verdict::Forward);
    let v6 = udp(
        OTHER,
        "[2001:db8:1::5]:1",
        "[2001:db8:2::5]:4791",
        Tags::NONE,
        &request,
    );
    assert!(matches!(view.classify(&v6, Side::Lan), Verdict::Source(_)));
}

// shows: CREM-SCOPE-01, CREM-SCOPE-06, CREM-BLOCK-06, QOS-CNP-02, QOS-HDR-04, A17-03, AMB-OPCODES
// shows: AMB-BADSRC
#[test]
fn what_is_no_source_just_passes() {
    let mut view = view("192.0.2.1", None);
    let frame = |opcode, len| {
        udp(
            OTHER,
            "10.0.1.5:1",
            "10.0.2.5:4791",
            Tags::NONE,
            &roce(opcode, len),
        )
    };
    // Acknowledgment, CNP, READ response, and a payload without room for an ICRC.
    for (opcode, len) in [(0x11, 8), (0x81, 20), (0x0d, 40), (0x07, 3)] {
        assert_eq!(
            view.classify(&frame(opcode, len), Side::Lan),
            Verdict::Forward,
            "{opcode:#x}"
        );
    }
    // Users' datagrams are no sources; those of the managers are nobody's flows.
    let to_qp = |opcode, qp| {
        let mut frame = frame(opcode, 40);
        let at = frame.len() - 52 + 5;
        frame[at..at + 3].copy_from_slice(&[0, 0, qp]);
        frame
    };
    for opcode in [0x64, 0x65, 0x44] {
        let verdict = view.classify(&to_qp(opcode, 9), Side::Lan);
        let Verdict::Unsequenced(key) = verdict else {
            panic!("{opcode:#x}: {verdict:?}");
        };
        assert_eq!(key.qp, Qpn::new(9));
        for (qp, side) in [(0, Side::Lan), (1, Side::Lan), (9, Side::Wan)] {
            let verdict = view.classify(&to_qp(opcode, qp), side);
            assert_eq!(verdict, Verdict::Forward, "{opcode:#x} to {qp}");
        }
    }
    view.responses = true;
    assert!(matches!(
        view.classify(&frame(0x0d, 40), Side::Lan),
        Verdict::Source(_)
    ));
    view.verify_sources = true;
    assert_eq!(
        view.classify(&frame(0x07, 40), Side::Lan),
        Verdict::Unverified
    );
    let mut good = frame(0x07, 40);
    let parsed = parse(&good, &view.parse);
    assert!(icrc::write_frame(&mut good, &parsed));
    assert!(matches!(
        view.classify(&good, Side::Lan),
        Verdict::Source(_)
    ));
    view.active = false;
    assert_eq!(view.classify(&good, Side::Lan), Verdict::Forward);
    view.active = true;
    // TCP to the same port, version 1 of RoCE, opcodes that nobody knows yet.
    let mut tcp = good.clone();
    tcp[23] = 6;
    let v1 = ethernet(OTHER, HOST, 0x8915, &roce(0x07, 40));
    for frame in [tcp, v1, frame(0xc5, 40), frame(0x1f, 40)] {
        assert_eq!(view.classify(&frame, Side::Lan), Verdict::Forward);
    }
    assert_eq!(view.classify(&[1, 2, 3], Side::Lan), Verdict::Forward);
}

// shows: CREM-SCOPE-02
#[test]
fn read_requests_tell_their_length() {
    let view = view("192.0.2.1", None);
    let mut read = roce(0x0c, Reth::LEN + 4);
    Reth {
        virtual_address: 1,
        rkey: 2,
        dma_length: 70_000,
    }
    .write(&mut read[Bth::LEN..]);
    let frame = udp(OTHER, "10.0.1.5:1", "10.0.2.5:4791", Tags::NONE, &read);
    let Verdict::Source(source) = view.classify(&frame, Side::Lan) else {
        panic!()
    };
    assert_eq!(source.read_length, Some(70_000));
}

// shows: CREM-PORT-02, CREM-PR-07, AMB-PRICEPT, AMB-PAIR
#[test]
fn crem_stops_where_it_is_ours_to_read() {
    let view = view("192.0.2.1", None);
    let frame =
        |to, destination: &str| udp(to, "192.0.2.9:4801", destination, Tags::NONE, &[1; 12]);
    let ours = view.classify(&frame(OWN, "192.0.2.1:4801"), Side::Wan);
    let Verdict::Message(datagram) = ours else {
        panic!("{ours:?}")
    };
    assert_eq!(datagram.from, "192.0.2.9:4801".parse().unwrap());
    assert_eq!(
        (datagram.to_served, datagram.payload_len, datagram.ce),
        (false, 12, true)
    );
    assert_eq!(datagram.side, Side::Wan);
    let served = frame(HOST, "10.0.1.5:4801");
    let Verdict::Message(datagram) = view.classify(&served, Side::Wan) else {
        panic!()
    };
    assert!(datagram.to_served);
    assert_eq!(view.classify(&served, Side::Lan), Verdict::Transit);
    assert_eq!(
        view.classify(&frame(OTHER, "10.9.9.9:4801"), Side::Wan),
        Verdict::Transit
    );
    // To our address, by way of another station.
    let around = view.classify(&frame(OTHER, "192.0.2.1:4801"), Side::Lan);
    assert!(matches!(around, Verdict::Message(datagram) if datagram.side == Side::Lan));
    // Nobody else speaks for us, to whomever.
    for (to, side) in [("192.0.2.9:4801", Side::Lan), ("10.0.1.5:4801", Side::Wan)] {
        let pretended = udp(OTHER, "192.0.2.1:4801", to, Tags::NONE, &[1; 12]);
        assert_eq!(
            view.classify(&pretended, side),
            Verdict::Refuse(Refusal::OwnSource(side))
        );
    }
    // Another port of ours is nobody's.
    let other = udp(OWN, "192.0.2.9:1", "192.0.2.1:53", Tags::NONE, &[1; 12]);
    assert_eq!(
        view.classify(&other, Side::Lan),
        Verdict::Refuse(Refusal::InbandOther)
    );
}

#[test]
fn the_kernel_gets_arp_and_icmp_and_nothing_else() {
    let view = view("192.0.2.1", None);
    let verdict = |frame: &[u8]| view.classify(frame, Side::Lan);
    let own = [192, 0, 2, 1];
    let ask = arp([192, 0, 2, 7], own);
    assert_eq!(
        verdict(&ethernet(Mac::BROADCAST, HOST, 0x0806, &ask)),
        Verdict::ForwardAndKernel
    );
    let elsewhere = arp([192, 0, 2, 7], [192, 0, 2, 8]);
    assert_eq!(
        verdict(&ethernet(Mac::BROADCAST, HOST, 0x0806, &elsewhere)),
        Verdict::Forward
    );
    let announce = arp([192, 0, 2, 7], [192, 0, 2, 7]);
    let announce = ethernet(Mac::BROADCAST, HOST, 0x0806, &announce);
    assert_eq!(verdict(&announce), Verdict::ForwardAndKernel);
    assert_eq!(verdict(&ethernet(OWN, HOST, 0x0806, &ask)), Verdict::Kernel);
    for (kind, expected) in [
        (8, Verdict::Kernel),
        (0, Verdict::Kernel),
        (3, Verdict::Kernel),
        // Redirect, timestamp.
        (5, Verdict::Refuse(Refusal::InbandOther)),
        (13, Verdict::Refuse(Refusal::InbandOther)),
    ] {
        assert_eq!(
            verdict(&ethernet(OWN, HOST, 0x0800, &icmp(own, kind))),
            expected,
            "{kind}"
        );
    }
    let routed = ethernet(OWN, HOST, 0x0800, &icmp([192, 0, 2, 99], 8));
    assert_eq!(verdict(&routed), Verdict::Refuse(Refusal::InbandOther));
    let mut tcp = ethernet(OWN, HOST, 0x0800, &icmp(own, 8));
    tcp[23] = 6;
    assert_eq!(verdict(&tcp), Verdict::Refuse(Refusal::InbandOther));
    assert!(!may_leave_kernel(&tcp));
    assert!(may_leave_kernel(&ethernet(OTHER, OWN, 0x0806, &ask)));
    assert!(may_leave_kernel(&ethernet(
        OTHER,
        OWN,
        0x0800,
        &icmp([192, 0, 2, 7], 0)
    )));
}

#[test]
fn neighbour_discovery_is_what_arp_is() {
    let view = view("2001:db8::1", None);
    let packet = |kind: u8, target: &str| {
        let mut packet = vec![0x60, 0, 0, 0, 0, 24, 58, 255];
        packet.extend_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        packet.extend_from_slice(&[0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 1]);
        packet.extend_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 0]);
        let target: std::net::Ipv6Addr = target.parse().unwrap();
        packet.extend_from_slice(&target.octets());
        packet
    };
    let group = Mac([0x33, 0x33, 0xff, 0, 0, 1]);
    let verdict = |to, kind, target| {
        view.classify(
            &ethernet(to, HOST, 0x86dd, &packet(kind, target)),
            Side::Wan,
        )
    };
    assert_eq!(
        verdict(group, 135, "2001:db8::1"),
        Verdict::ForwardAndKernel
    );
    assert_eq!(verdict(group, 135, "2001:db8::2"), Verdict::Forward);
    assert_eq!(
        verdict(group, 136, "2001:db8::2"),
        Verdict::ForwardAndKernel
    );
    // Router advertisement.
    assert_eq!(verdict(group, 134, "2001:db8::2"), Verdict::Forward);
    assert_eq!(
        verdict(OWN, 134, "2001:db8::2"),
        Verdict::Refuse(Refusal::InbandOther)
    );
    assert_eq!(verdict(OWN, 136, "2001:db8::2"), Verdict::Kernel);
}

#[test]
fn our_vlan_is_the_only_one_we_answer_in() {
    let view = view("192.0.2.1", Some(7));
    let ask = arp([192, 0, 2, 7], [192, 0, 2, 1]);
    let tagged = |vid: u16| {
        let rest = [&vid.to_be_bytes()[..], &[0x08, 0x06], &ask].concat();
        ethernet(Mac::BROADCAST, HOST, 0x8100, &rest)
    };
    assert_eq!(
        view.classify(&tagged(7), Side::Wan),
        Verdict::ForwardAndKernel
    );
    assert_eq!(view.classify(&tagged(8), Side::Wan), Verdict::Forward);
    let untagged = ethernet(OWN, HOST, 0x0806, &ask);
    assert_eq!(
        view.classify(&untagged, Side::Wan),
        Verdict::Refuse(Refusal::InbandVlan)
    );
    let crem = udp(
        OWN,
        "192.0.2.9:4801",
        "192.0.2.1:4801",
        tags(&[7]),
        &[1; 12],
    );
    assert!(matches!(
        view.classify(&crem, Side::Wan),
        Verdict::Message(_)
    ));
}

// shows: QOS-PFC-01, QOS-PFC-06, AMB-QOS-PFC
#[test]
fn cut_frames_pause_and_our_own_are_refused() {
    let view = view("192.0.2.1", None);
    let mut cut = udp(OTHER, "10.0.1.5:1", "10.0.2.5:99", Tags::NONE, &[0; 600]);
    cut.truncate(500);
    assert_eq!(
        view.classify(&cut, Side::Lan),
        Verdict::Refuse(Refusal::Truncated)
    );
    let mut v6 = udp(
        OTHER,
        "[2001:db8::5]:1",
        "[2001:db8::6]:9",
        tags(&[3, 4]),
        &[0; 600],
    );
    v6.pop();
    assert_eq!(
        view.classify(&v6, Side::Lan),
        Verdict::Refuse(Refusal::Truncated)
    );
    // Shorter than what the port has room for: its sender wrote the length that is wrong. A port that
    // cuts nothing lets all of them pass.
    cut.truncate(499);
    assert_eq!(view.classify(&cut, Side::Lan), Verdict::Forward);
    assert_eq!(view.classify(&v6, Side::Wan), Verdict::Forward);
    // A header that contradicts itself is not cut: it is somebody's, and passes.
    let mut odd = udp(OTHER, "10.0.1.5:1", "10.0.2.5:99", Tags::NONE, &[0; 60]);
    odd[14] = 0x41;
    assert_eq!(view.classify(&odd, Side::Lan), Verdict::Forward);
    let pause = ethernet(
        Mac([1, 0x80, 0xc2, 0, 0, 1]),
        HOST,
        ETHERTYPE_MAC_CONTROL,
        &[0; 46],
    );
    assert_eq!(
        view.classify(&pause, Side::Lan),
        Verdict::Refuse(Refusal::MacControl)
    );
    let returned = ethernet(OTHER, OWN, 0x88b5, &[0; 46]);
    assert_eq!(
        view.classify(&returned, Side::Wan),
        Verdict::Refuse(Refusal::OwnSource(Side::Wan))
    );
    let lldp = ethernet(Mac([1, 0x80, 0xc2, 0, 0, 0x0e]), HOST, 0x88cc, &[0; 46]);
    assert_eq!(
        view.classify(&lldp, Side::Lan),
        Verdict::Refuse(Refusal::Control(Control::Lldp))
    );
    let open = View {
        control: ControlFrames::new(&crem_api::ControlFrames {
            lldp: crem_api::ControlPolicy::Transparent,
            stp: crem_api::ControlPolicy::Drop,
            ..crem_api::ControlFrames::default()
        }),
        ..view.clone()
    };
    assert_eq!(open.classify(&lldp, Side::Lan), Verdict::Forward);
    // Spanning tree and link aggregation pass.
    let lacp = ethernet(Mac([1, 0x80, 0xc2, 0, 0, 2]), HOST, 0x8809, &[0; 46]);
    assert_eq!(view.classify(&lacp, Side::Lan), Verdict::Forward);
    let stp = ethernet(Mac([1, 0x80, 0xc2, 0, 0, 0]), HOST, 38, &[0x42; 46]);
    assert_eq!(view.classify(&stp, Side::Wan), Verdict::Forward);
    assert_eq!(
        open.classify(&stp, Side::Wan),
        Verdict::Refuse(Refusal::Control(Control::Stp))
    );
}

/// The stream that a packet from the LAN belongs to.
fn key_of(view: &View, frame: &[u8]) -> StreamKey {
    match view.classify(frame, Side::Lan) {
        Verdict::Source(source) => source.key,
        other => panic!("{other:?}"),
    }
}

// shows: CREM-SCOPE-02
#[test]
fn only_opcode_queue_pair_and_psn_of_a_packet_are_read() {
    let view = view("192.0.2.1", None);
    let payload = roce(0x04, 40);
    let frame = udp(OTHER, "10.0.1.5:1", "10.0.2.5:4791", Tags::NONE, &payload);
    let verdict = view.classify(&frame, Side::Lan);
    assert!(matches!(verdict, Verdict::Source(_)));
    let start = frame.len() - payload.len();
    for at in 0..payload.len() {
        let mut other = frame.clone();
        other[start + at] ^= 0x20;
        let read = matches!(at, 0 | 5..=7 | 9..=11);
        assert_eq!(
            view.classify(&other, Side::Lan) != verdict,
            read,
            "octet {at}"
        );
    }
}

// shows: CREM-SCOPE-07, QOS-QP-01, QOS-HDR-06, A17-02
#[test]
fn a_flow_is_its_addresses_and_queue_pair_in_one_direction() {
    let view = view("192.0.2.1", None);
    let frame = |from: &str, to: &str| udp(OTHER, from, to, Tags::NONE, &roce(0x04, 40));
    let base = frame("10.0.1.5:1", "10.0.2.5:4791");
    let key = key_of(&view, &base);
    // The source port is the network's, not the flow's.
    assert_eq!(key_of(&view, &frame("10.0.1.5:777", "10.0.2.5:4791")), key);
    assert_ne!(key_of(&view, &frame("10.0.1.6:1", "10.0.2.5:4791")), key);
    assert_ne!(key_of(&view, &frame("10.0.1.5:1", "10.0.2.6:4791")), key);
    let mut other_pair = base.clone();
    other_pair[42 + 7] ^= 1;
    assert_ne!(key_of(&view, &other_pair), key);
    // The way back is another flow, even toward an equal number.
    let back = frame("10.0.2.5:1", "10.0.1.5:4791");
    let Verdict::Source(back) = view.classify(&back, Side::Wan) else {
        panic!()
    };
    assert_eq!(back.key.qp, key.qp);
    assert_ne!(back.key, key);
    // Nor does the Flow Label of IPv6 name a flow.
    let v6 = frame("[2001:db8:1::5]:1", "[2001:db8:2::5]:4791");
    let mut labelled = v6.clone();
    labelled[15] |= 0x0a;
    labelled[16..18].copy_from_slice(&[0xbc, 0xde]);
    assert_eq!(key_of(&view, &labelled), key_of(&view, &v6));
}

fn learning() -> View {
    View {
        learn: true,
        ..view("192.0.2.1", None)
    }
}

// shows: AMB-RDMAMTU
#[test]
fn the_first_response_of_a_read_tells_the_rdma_mtu_where_that_is_wanted() {
    let frame = |opcode, octets: usize| {
        let payload = roce(opcode, 4 + octets + 4);
        udp(OTHER, "10.0.2.5:1", "10.0.1.5:4791", Tags::NONE, &payload)
    };
    let first = frame(0x0d, 1024);
    let Verdict::Ack(ack) = learning().classify(&first, Side::Wan) else {
        panic!()
    };
    assert_eq!(
        (ack.qp, ack.psn, ack.mtu),
        (Qpn::new(9), Psn::new(77), Some(1024))
    );
    let protected = View {
        responses: true,
        ..learning()
    };
    let Verdict::Source(source) = protected.classify(&first, Side::Wan) else {
        panic!("{first:?}")
    };
    assert_eq!(
        source.acknowledges(&first),
        Some(ack),
        "the same where responses are protected"
    );
    for other in [frame(0x0e, 1024), frame(0x0f, 100)] {
        assert_eq!(learning().classify(&other, Side::Wan), Verdict::Forward);
    }
    assert_eq!(learning().classify(&first, Side::Lan), Verdict::Forward);
    let off = view("192.0.2.1", None);
    assert_eq!(off.classify(&first, Side::Wan), Verdict::Forward);
}

// shows: AMB-READRESP, AMB-ACKMAP
#[test]
fn acknowledgments_go_among_the_responses_where_these_are_protected() {
    let mut payload = roce(0x11, 8);
    Aeth::new(Syndrome::RnrNak(3), 5).write(&mut payload[Bth::LEN..]);
    let frame = udp(OTHER, "10.0.2.5:1", "10.0.1.5:4791", Tags::NONE, &payload);
    let Verdict::Ack(ack) = learning().classify(&frame, Side::Wan) else {
        panic!()
    };
    for learn in [false, true] {
        let protected = View {
            responses: true,
            learn,
            ..view("192.0.2.1", None)
        };
        let Verdict::Source(source) = protected.classify(&frame, Side::Wan) else {
            panic!()
        };
        assert_eq!(source.key.space, PsnSpace::Responses);
        assert_eq!((source.key.qp, source.psn), (Qpn::new(9), Psn::new(77)));
        assert_eq!(source.acknowledges(&frame), Some(ack));
        assert_eq!(protected.classify(&frame, Side::Lan), Verdict::Forward);
        let others = udp(OTHER, "10.0.2.5:1", "10.0.9.5:4791", Tags::NONE, &payload);
        assert_eq!(protected.classify(&others, Side::Wan), Verdict::Forward);
    }
}

// shows: AMB-ACKMAP
#[test]
fn acknowledgments_toward_a_served_host_are_told_where_that_is_wanted() {
    let mut payload = roce(0x11, 8);
    Aeth::new(Syndrome::RnrNak(3), 5).write(&mut payload[Bth::LEN..]);
    let frame = udp(OTHER, "10.0.2.5:1", "10.0.1.5:4791", Tags::NONE, &payload);
    let Verdict::Ack(ack) = learning().classify(&frame, Side::Wan) else {
        panic!()
    };
    let ends = (ack.way.from.to_string(), ack.way.to.to_string());
    assert_eq!(ends, ("10.0.2.5".to_owned(), "10.0.1.5".to_owned()));
    assert_eq!(
        (ack.qp, ack.psn, ack.negative),
        (Qpn::new(9), Psn::new(77), true)
    );
    assert_eq!(learning().classify(&frame, Side::Lan), Verdict::Forward);
    let view = view("192.0.2.1", None);
    assert_eq!(view.classify(&frame, Side::Wan), Verdict::Forward);
    // Reserved syndrome, and an AETH that is not there.
    payload[Bth::LEN] = 0x40;
    let frame = udp(OTHER, "10.0.2.5:1", "10.0.1.5:4791", Tags::NONE, &payload);
    assert_eq!(learning().classify(&frame, Side::Wan), Verdict::Forward);
    let frame = udp(
        OTHER,
        "10.0.2.5:1",
        "10.0.1.5:4791",
        Tags::NONE,
        &payload[..14],
    );
    assert_eq!(learning().classify(&frame, Side::Wan), Verdict::Forward);
}

/// The datagrams of a captured connection, by sender, receiver and UDP payload.
fn captured() -> Vec<(String, String, Vec<u8>)> {
    let text = include_str!("../wire/testdata/cm_rping.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            let [from, to, hex] = fields[..] else {
                panic!()
            };
            let octet = |n: usize| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap();
            let payload = (0..hex.len() / 2).map(octet).collect();
            (from.to_owned(), to.to_owned(), payload)
        })
        .collect()
}

// shows: AMB-ACKMAP
#[test]
fn captured_connection_messages_are_told_in_either_direction() {
    let mut told = Vec::new();
    for (from, to, payload) in captured() {
        // The hosts of the capture, moved to where one of them is served.
        let host = |address: &str| {
            address
                .replace("10.1.0.1", "10.0.1.5")
                .replace("10.1.0.2", "10.0.2.5")
        };
        let (from, to) = (host(&from), host(&to));
        let side = if from == "10.0.1.5" {
            Side::Lan
        } else {
            Side::Wan
        };
        let (source, destination) = (format!("{from}:1"), format!("{to}:4791"));
        let mut frame = udp(OTHER, &source, &destination, Tags::NONE, &payload);
        let damaged = learning().classify(&frame, side);
        assert_eq!(damaged, Verdict::Forward, "the ICRC is of other addresses");
        let parsed = parse(&frame, &ParseConfig::default());
        assert!(icrc::write_frame(&mut frame, &parsed));
        let Verdict::Managed(managed) = learning().classify(&frame, side) else {
            panic!()
        };
        assert_eq!(managed.way.from.to_string(), from);
        let off = view("192.0.2.1", None).classify(&frame, side);
        assert_eq!(off, Verdict::Forward);
        told.push(managed.message);
    }
    assert_eq!(told.len(), 5);
    let (CmMessage::Request { local, .. }, CmMessage::Reply { remote, .. }) = (told[0], told[1])
    else {
        panic!()
    };
    assert_eq!((local, remote), (CommId(0xbb34_192f), local));
}
