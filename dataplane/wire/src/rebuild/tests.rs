//! Every kind of frame rebuilt from its neighbours, the rules on the Identification at their edges, and
//! input that must be refused.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;

use super::*;
use crate::Qpn;
use crate::frame::{Ecn, Mac, Tag, Tags, UdpFrame, VXLAN_PORT, VxlanHeader, parse, tos};
use crate::roce::Opcode;

/// What the frames of a flow look like.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    v6: bool,
    tagged: bool,
    tunnelled: bool,
    udp_checksum: bool,
    ecn: u8,
}

fn policy() -> RebuildPolicy {
    let parse = ParseConfig {
        crem_port: None,
        vxlan_port: Some(VXLAN_PORT),
    };
    RebuildPolicy {
        parse,
        ..RebuildPolicy::default()
    }
}

fn headers(shape: Shape, ident: u16, port: u16) -> UdpFrame {
    let address = |last: u8| match shape.v6 {
        false => IpAddr::from([10, 0, 0, last]),
        true => IpAddr::from([0xfd, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]),
    };
    let mut tags = Tags::NONE;
    assert!(!shape.tagged || tags.push(Tag::vlan(0x6064)));
    UdpFrame {
        destination_mac: Mac([2, 0, 0, 0, 0, 1]),
        source_mac: Mac([2, 0, 0, 0, 0, 2]),
        tags,
        source: SocketAddr::new(address(1), 0xc123),
        destination: SocketAddr::new(address(2), port),
        tos: tos(26, Ecn::NotEct) | shape.ecn,
        ttl: 61,
        ident,
        dont_fragment: true,
        udp_checksum: shape.udp_checksum,
    }
}

fn build(headers: &UdpFrame, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; headers.header_len()];
    frame.extend_from_slice(payload);
    headers.write(&mut frame).unwrap();
    frame
}

/// Packet `psn` of a flow, with this Identification and payload behind the BTH.
fn packet(shape: Shape, psn: u32, ident: u16, data: &[u8]) -> Vec<u8> {
    let bth = Bth {
        opcode: Opcode::SEND_ONLY,
        octet1: 0,
        pkey: 0xffff,
        octet4: 0,
        dest_qp: Qpn::new(0x11),
        octet8: 0,
        psn: Psn::new(psn),
    };
    let mut payload = bth.to_octets().to_vec();
    payload.extend_from_slice(data);
    payload.extend_from_slice(&[0; 4]);
    let inner = headers(
        Shape {
            tunnelled: false,
            ..shape
        },
        ident,
        4791,
    );
    let mut frame = build(&inner, &payload);
    // The checksum over UDP comes after the ICRC.
    let parsed = parse(&frame, &policy().parse);
    assert!(icrc::write_frame(&mut frame, &parsed));
    inner.write(&mut frame).unwrap();
    if shape.tunnelled {
        let mut inside = vec![0; VxlanHeader::LEN];
        VxlanHeader { vni: 0x1234 }.write(&mut inside);
        inside.extend_from_slice(&frame);
        frame = build(
            &headers(Shape { v6: false, ..shape }, 0x7777, VXLAN_PORT),
            &inside,
        );
    }
    frame
}

fn payload_of(frame: &[u8]) -> Vec<u8> {
    parse(frame, &policy().parse).payload(frame).to_vec()
}

fn neighbour(frame: &[u8], psn: u32) -> Option<NeighbourRef<'_>> {
    Some(NeighbourRef {
        frame,
        psn: Psn::new(psn),
    })
}

fn shapes() -> impl Iterator<Item = Shape> {
    (0..16u8).map(|bits| Shape {
        v6: bits & 1 != 0,
        tagged: bits & 2 != 0,
        tunnelled: bits & 4 != 0,
        udp_checksum: bits & 8 != 0,
        ecn: 0,
    })
}

// shows: CREM-ARCH-05, QOS-HDR-02, QOS-HDR-05, QOS-VLAN-02, QOS-VXLAN-02, QOS-VXLAN-03, QOS-ICRC-04
// shows: AMB-HDRREST, QOS-ICRC-02
// shows: CREM-PR-13
#[test]
fn every_shape_comes_back_octet_by_octet() {
    for shape in shapes() {
        // Neighbours of other lengths, so that every length field has to change.
        let before = packet(shape, 99, 1000, &[1; 300]);
        let victim = packet(shape, 100, 1001, &[2; 77]);
        let after = packet(shape, 101, 1002, &[]);
        let mut out = [0xee; 600];
        let rebuilt = rebuild(
            &payload_of(&victim),
            neighbour(&before, 99),
            neighbour(&after, 101),
            &policy(),
            &mut out,
        )
        .unwrap();
        assert_eq!(out[..rebuilt.len], victim, "{shape:?}");
        assert_eq!(rebuilt.psn, Psn::new(100));
        assert_eq!(&out[rebuilt.payload_off..rebuilt.len], payload_of(&victim));
        let expected = if shape.v6 {
            Identification::Absent
        } else {
            Identification::Solved
        };
        assert_eq!(rebuilt.identification, expected);
    }
}

/// The result with these Identifications before, in and after the hole.
fn with_idents(
    before: Option<u16>,
    victim: u16,
    after: Option<u16>,
) -> Result<Identification, RebuildError> {
    let shape = Shape::default();
    let frame = |ident: Option<u16>, psn| ident.map(|ident| packet(shape, psn, ident, &[7; 20]));
    let (earlier, later) = (frame(before, 9), frame(after, 11));
    let lost = packet(shape, 10, victim, &[8; 40]);
    let mut out = [0; 200];
    let rebuilt = rebuild(
        &payload_of(&lost),
        earlier.as_deref().and_then(|frame| neighbour(frame, 9)),
        later.as_deref().and_then(|frame| neighbour(frame, 11)),
        &policy(),
        &mut out,
    )?;
    assert_eq!(out[..rebuilt.len], lost);
    Ok(rebuilt.identification)
}

// shows: QOS-ICRC-04, AMB-IPID
#[test]
fn identification_is_believed_only_where_it_may_be() {
    use Identification::{Copied, Solved};
    let refused = Err(RebuildError::Identification);
    // The flow's constant.
    assert_eq!(with_idents(Some(0), 0, Some(0)), Ok(Copied));
    assert_eq!(with_idents(None, 5, Some(5)), Ok(Copied));
    assert_eq!(with_idents(Some(5), 5, None), Ok(Copied));
    assert_eq!(with_idents(Some(0), 1, Some(0)), refused);
    // Between the neighbours, at most 4,096 apart, over the wrap as well.
    assert_eq!(with_idents(Some(10), 11, Some(12)), Ok(Solved));
    assert_eq!(with_idents(Some(10), 13, Some(12)), refused);
    assert_eq!(with_idents(Some(10), 9, Some(12)), refused);
    assert_eq!(with_idents(Some(0xfff0), 3, Some(9)), Ok(Solved));
    assert_eq!(with_idents(Some(100), 2000, Some(4196)), Ok(Solved));
    assert_eq!(with_idents(Some(100), 2000, Some(4197)), refused);
    // Falling Identifications are no range.
    assert_eq!(with_idents(Some(12), 11, Some(10)), refused);
    // A little ahead of an earlier neighbour; nothing but the constant before a later one.
    assert_eq!(with_idents(Some(0xffff), 63, None), Ok(Solved));
    assert_eq!(with_idents(Some(0xffff), 64, None), refused);
    assert_eq!(with_idents(Some(10), 9, None), refused);
    assert_eq!(with_idents(None, 10, Some(11)), refused);
    assert_eq!(with_idents(None, 10, None), Err(RebuildError::NoNeighbour));
}

#[test]
fn headers_come_from_the_nearer_neighbour() {
    let shape = Shape::default();
    let victim = packet(shape, 10, 2, &[1; 8]);
    let (mut before, mut after) = (packet(shape, 7, 1, &[]), packet(shape, 12, 3, &[]));
    before[22] = 50;
    after[22] = 40;
    let mut out = [0; 200];
    let mut ttl = |before_psn, after_psn| {
        rebuild(
            &payload_of(&victim),
            neighbour(&before, before_psn),
            neighbour(&after, after_psn),
            &policy(),
            &mut out,
        )
        .unwrap();
        out[22]
    };
    assert_eq!(ttl(7, 12), 40);
    assert_eq!(ttl(9, 12), 50);
    assert_eq!(ttl(8, 12), 50, "as near: the earlier");
}

// shows: CREM-RECV-13, QOS-ECN-02, AMB-RESTECN
#[test]
fn a_restored_packet_has_no_ecn_mark() {
    for (ecn, ect0) in [(1, false), (2, false), (3, false), (3, true), (0, true)] {
        for tunnelled in [false, true] {
            let shape = Shape {
                ecn,
                tunnelled,
                ..Shape::default()
            };
            let before = packet(shape, 9, 1, &[7; 20]);
            let expected = packet(
                Shape {
                    ecn: if ect0 { 2 } else { 0 },
                    ..shape
                },
                10,
                1,
                &[8; 40],
            );
            let mut out = [0; 300];
            let policy = RebuildPolicy { ect0, ..policy() };
            let payload = payload_of(&expected);
            let rebuilt =
                rebuild(&payload, neighbour(&before, 9), None, &policy, &mut out).unwrap();
            assert_eq!(out[..rebuilt.len], expected);
        }
    }
}

#[test]
fn link_padding_of_a_neighbour_is_not_copied() {
    let shape = Shape::default();
    let mut before = packet(shape, 9, 1, &[]);
    before.resize(60, 0xaa);
    let victim = packet(shape, 10, 1, &[3; 8]);
    let mut out = [0; 100];
    let rebuilt = rebuild(
        &payload_of(&victim),
        neighbour(&before, 9),
        None,
        &policy(),
        &mut out,
    )
    .unwrap();
    assert_eq!(out[..rebuilt.len], victim);
}

// shows: CREM-RECV-03, CREM-BLOCK-08
#[test]
fn damaged_payloads_are_refused() {
    for v6 in [false, true] {
        let shape = Shape {
            v6,
            ..Shape::default()
        };
        let (before, after) = (packet(shape, 9, 1, &[]), packet(shape, 11, 3, &[]));
        let payload = payload_of(&packet(shape, 10, 2, &[8; 40]));
        let mut out = [0; 200];
        for at in 0..payload.len() {
            let mut damaged = payload.clone();
            damaged[at] ^= 0x04;
            let result = rebuild(
                &damaged,
                neighbour(&before, 9),
                neighbour(&after, 11),
                &policy(),
                &mut out,
            );
            match at {
                // Version, then queue pair; octet 4 is outside the ICRC.
                1 => assert_eq!(result, Err(RebuildError::Payload)),
                4 => assert!(result.is_ok()),
                5..=7 => assert_eq!(result, Err(RebuildError::NoNeighbour)),
                _ => assert_eq!(result, Err(RebuildError::Icrc), "octet {at}"),
            }
        }
    }
}

#[test]
fn unusable_input_is_refused() {
    let shape = Shape::default();
    let before = packet(shape, 9, 1, &[]);
    let payload = payload_of(&packet(shape, 10, 1, &[8; 40]));
    let mut out = [0; 200];
    let mut result = |payload: &[u8], frame: &[u8], room: usize| {
        rebuild(
            payload,
            neighbour(frame, 9),
            None,
            &policy(),
            &mut out[..room],
        )
    };
    assert!(result(&payload, &before, 200).is_ok());
    assert_eq!(result(&payload, &before, 97), Err(RebuildError::NoRoom(98)));
    assert_eq!(
        result(&payload[..15], &before, 200),
        Err(RebuildError::Payload)
    );
    assert_eq!(
        result(&payload, &before[..50], 200),
        Err(RebuildError::NoNeighbour)
    );
    let mut other = before.clone();
    other[37] = 0xb8;
    assert_eq!(
        result(&payload, &other, 200),
        Err(RebuildError::NoNeighbour)
    );
    let mut long = payload.clone();
    long.resize(65_536 - 28, 0);
    let mut out = vec![0; 70_000];
    let result = rebuild(&long, neighbour(&before, 9), None, &policy(), &mut out);
    assert_eq!(result, Err(RebuildError::TooLong));
}

#[test]
fn an_unusable_neighbour_leaves_the_other() {
    let shape = Shape::default();
    let after = packet(shape, 13, 1, &[]);
    let victim = packet(shape, 10, 1, &[8; 40]);
    let mut out = [0; 200];
    let payload = payload_of(&victim);
    let rebuilt = rebuild(
        &payload,
        neighbour(b"cut", 9),
        neighbour(&after, 13),
        &policy(),
        &mut out,
    )
    .unwrap();
    assert_eq!(out[..rebuilt.len], victim);
}

proptest! {
    // shows: CREM-RECV-03
    #[test]
    fn arbitrary_input_never_panics(
        payload in prop::collection::vec(any::<u8>(), 0..100),
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 2),
        valid: bool, psns: [u32; 2], room in 0usize..300,
    ) {
        let shape = Shape::default();
        let before = if valid { packet(shape, psns[0], 1, &payload) } else { frames[0].clone() };
        let mut out = vec![0; room];
        let payload = if valid { payload_of(&before) } else { payload };
        let result = rebuild(
            &payload, neighbour(&before, psns[0]), neighbour(&frames[1], psns[1]), &policy(), &mut out,
        );
        if let Ok(rebuilt) = result {
            let frame = &out[..rebuilt.len];
            prop_assert!(icrc::verify_frame(frame, &parse(frame, &policy().parse)));
        }
    }
}
