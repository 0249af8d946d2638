//! Messages as octets: literal cases of every type and rule, round trips, and arbitrary input.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::registry::*;
use super::*;

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let digit = |b: u8| (b as char).to_digit(16).unwrap() as u8;
    digits
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut out = vec![0xee];
    message.encode(&mut out);
    assert_eq!(out.len(), 1 + message.encoded_len());
    out.remove(0);
    out
}

fn repair_octets(header: &RepairHeader, symbol: &[u8]) -> Vec<u8> {
    let mut out = vec![0xee; header.encoded_len()];
    assert_eq!(header.encode(&mut out), out.len());
    out.extend_from_slice(symbol);
    out
}

/// Parses and encodes again.
fn again(datagram: &[u8]) -> Result<Vec<u8>, ParseError> {
    Ok(match parse(datagram)? {
        Parsed::Repair(header, symbol) => repair_octets(&header, symbol),
        Parsed::Message(message) => encoded(&message),
    })
}

/// An ordinary symbol: k = 12, index 2, positions 0 2 4 6 8 10 of 12, T = 4.
const REPAIR: &str = "1100001c f5ed77dc 01010c02 00006400 00000004 aaa00000 01020304";
/// The same as a coded retransmission over 0 2 4.
const RETX: &str = "11800020 f5ed77dc 01010c02 00006400 00070004 aaa00000 a8000000 01020304";
const INFO: &str = "11200018 f5ed77dc 01010c00 00006400 00070000 aaa00000";
const REQUEST: &str = "16000018 f5ed77dc 01010c01 c8ea5d02 061f0000 a8000000";
const RANGES: &str = "16100014 f5ed77dc 26380002 24610403 d8d39e01";
const HELLO: &str =
    "12000028 00000000 01040003 2004044c 04000000 66e1327851a58f16 d707b405 1c462cac 00000123";
const HELLO_ACK: &str = "13000020 f5ed77dc 01040003 2004044c 04000000 4ed24e8777cfb067 00400000";
const PATH: &str =
    "18000034 00000000 03010400 5a709578 3aaef069 00000055 00000001 00000002 00000003 fffffffc
    01020000 00000007 00000008";

/// The case with the octet at `offset` replaced.
fn with(hex: &str, offset: usize, value: u8) -> Vec<u8> {
    let mut datagram = octets(hex);
    datagram[offset] = value;
    datagram
}

// shows: CREM-MSG-07, CREM-MSG-11, AMB-EX44
#[test]
fn coding_example_of_the_draft() {
    let header = RepairHeader {
        flow: FlowId::new(0xbeef).unwrap(),
        last: false,
        info: false,
        config: ConfigId(1),
        scheme: Scheme::CauchyRs.code(),
        k: 4,
        index: 2,
        block_start: Psn::new(0x1000),
        session: RequestId::new(7),
        symbol_length: 16,
        present: Bitmap::first(4),
        lost: Some(Bitmap::first(3)),
    };
    let symbol = octets("00354fdf6d4b40b57e5c400000000000");
    let datagram = repair_octets(&header, &symbol);
    assert_eq!(
        datagram[..28],
        octets("1180002c0000beef010104020010000000070010f0000000e0000000")
    );
    assert_eq!(
        parse(&datagram),
        Ok(Parsed::Repair(header, symbol.as_slice()))
    );
    assert_eq!(header.encode(&mut [0; 27]), 0);
}

// shows: CREM-MSG-04, CREM-MSG-13, CREM-MSG-17, CREM-MSG-21, CREM-MSG-22, CREM-MSG-25, CREM-PR-04
// shows: AMB-PACK248, AMB-PRWIDTH, AMB-PRPSN
#[test]
fn fields_are_where_the_formats_put_them() {
    let Ok(Parsed::Message(Message::Hello(hello))) = parse(&octets(HELLO)) else {
        panic!()
    };
    assert_eq!(
        hello.limits,
        Limits {
            schemes: 3,
            max_k: 32,
            max_m: 4,
            max_t: 0x44c
        }
    );
    assert_eq!(
        (hello.kind, hello.rdma_mtu, hello.nonce),
        (1, 1024, 0x66e1_3278_51a5_8f16)
    );
    assert_eq!(
        hello.flow.destination,
        IpAddr::from([0x1c, 0x46, 0x2c, 0xac])
    );
    assert_eq!(hello.flow.qp, Qpn::new(0x123));

    let Ok(Parsed::Message(Message::BlockRequest(request))) = parse(&octets(REQUEST)) else {
        panic!()
    };
    assert_eq!(
        (request.held, request.suggested, request.request.get()),
        (1, 2, 0x061f)
    );
    assert_eq!(request.block_start, Psn::new(0xc8ea5d));
    assert!(request.lost.iter().eq([0, 2, 4]) && !request.fallback);

    let Ok(Parsed::Message(Message::PathReport(report))) = parse(&octets(PATH)) else {
        panic!()
    };
    let hop = &report.hops[0];
    assert_eq!(
        (hop.node, hop.period, hop.lost, hop.queue_delay_change_us),
        (1, 2, 3, -4)
    );
    assert_eq!(
        (hop.cause, hop.dropped.as_slice()),
        (1, &[Psn::new(7), Psn::new(8)][..])
    );

    let Ok(Parsed::Message(Message::RangeRequest(ranges))) = parse(&octets(RANGES)) else {
        panic!()
    };
    assert_eq!(
        ranges.ranges.iter().nth(1),
        Some(PsnRange {
            start: Psn::new(0xd8d39e),
            count: 1
        })
    );
}

#[test]
fn literal_cases_round_trip() {
    for case in [REPAIR, RETX, INFO, REQUEST, RANGES, HELLO, HELLO_ACK, PATH] {
        assert_eq!(again(&octets(case)), Ok(octets(case)), "{case}");
    }
}

// shows: CREM-MSG-02, AMB-LENGTH
#[test]
fn every_cut_and_every_tail_is_a_length_error() {
    for case in [REPAIR, RETX, INFO, REQUEST, RANGES, HELLO, HELLO_ACK, PATH] {
        let good = octets(case);
        for cut in 0..good.len() {
            let expected = if cut < 8 {
                ParseError::Short
            } else {
                ParseError::Length
            };
            assert_eq!(
                parse(&good[..cut]).err(),
                Some(expected),
                "{case} cut to {cut}"
            );
        }
        for extra in 1..8 {
            let mut long = good.clone();
            long.resize(good.len() + extra, 0);
            assert_eq!(parse(&long).err(), Some(ParseError::Length));
            // Also with a Length that agrees: no padding is defined.
            long[3] += extra as u8;
            assert!(parse(&long).is_err(), "{case} with {extra} more");
        }
    }
}

// shows: CREM-MSG-01, CREM-MSG-03, CREM-MSG-05, CREM-MSG-06, AMB-FLOWID0
#[test]
fn rules_of_the_common_header() {
    assert_eq!(
        parse(&with(REPAIR, 0, 0x21)).err(),
        Some(ParseError::Version)
    );
    for kind in [0u8, 10, 15] {
        assert_eq!(
            parse(&with(REPAIR, 0, 0x10 | kind)).err(),
            Some(ParseError::Type)
        );
    }
    for case in [REPAIR, REQUEST, RANGES, HELLO_ACK] {
        let mut datagram = octets(case);
        datagram[4..8].fill(0);
        assert_eq!(parse(&datagram).err(), Some(ParseError::FlowId));
    }
    for case in [HELLO, PATH] {
        assert_eq!(parse(&with(case, 7, 5)).err(), Some(ParseError::FlowId));
    }
}

// shows: CREM-FEC-06, CREM-MSG-08, CREM-MSG-09, CREM-MSG-12, AMB-BITPAD, AMB-REQID0
#[test]
fn rules_of_repair() {
    let reject = |datagram: Vec<u8>, reason| assert_eq!(parse(&datagram).err(), Some(reason));
    reject(with(REPAIR, 10, 0), ParseError::BlockLength);
    reject(with(REPAIR, 9, 3), ParseError::Scheme);
    reject(with(REPAIR, 11, 244), ParseError::Index);
    assert!(parse(&with(REPAIR, 11, 243)).is_ok());
    reject(with(REPAIR, 17, 1), ParseError::Session);
    reject(with(RETX, 17, 0), ParseError::Session);
    reject(
        with(REPAIR, 20, 0)
            .into_iter()
            .enumerate()
            .map(|(i, o)| if i == 21 { 0 } else { o })
            .collect(),
        ParseError::Bitmap,
    );
    reject(with(REPAIR, 21, 0xa8), ParseError::Bitmap);
    reject(with(RETX, 24, 0), ParseError::Bitmap);
    reject(with(RETX, 24, 0x40), ParseError::Bitmap);
    reject(with(RETX, 27, 1), ParseError::Bitmap);
    // INFO with a symbol, INFO as a retransmission, no INFO and no symbol.
    reject(with(REPAIR, 1, flags::REPAIR_INFO), ParseError::Flags);
    reject(
        with(RETX, 1, flags::REPAIR_RETX | flags::REPAIR_INFO),
        ParseError::Flags,
    );
    reject(with(INFO, 1, 0), ParseError::SymbolLength);
    // A block without any source, unsolicited.
    assert!(
        parse(&octets(
            "11600018 f5ed77dc 01010c00 00006400 00000000 00000000"
        ))
        .is_ok()
    );
}

// shows: CREM-FEC-01, CREM-FEC-13, AMB-COPY
#[test]
fn rules_of_repair_by_scheme() {
    let copy = |index: u8, session: u8| {
        let mut datagram = with(REPAIR, 9, Scheme::SourceCopy.code());
        datagram[11] = index;
        datagram[17] = session;
        parse(&datagram).err()
    };
    assert_eq!((copy(2, 0), copy(2, 9), copy(10, 9)), (None, None, None));
    assert_eq!(copy(1, 9), Some(ParseError::Index));
    assert_eq!(parse(&with(RETX, 9, 0)).err(), Some(ParseError::Flags));
    assert_eq!(parse(&with(RETX, 9, 2)).err(), Some(ParseError::Flags));
    assert_eq!(parse(&with(REPAIR, 9, 2)).err(), Some(ParseError::Index));
    let mut parity = with(REPAIR, 9, 2);
    parity[11] = 0;
    assert!(parse(&parity).is_ok());
}

// shows: CREM-MSG-14, CREM-MSG-26, CREM-MSG-28, AMB-METHOD, AMB-RANGE
#[test]
fn rules_of_the_other_messages() {
    let reject = |datagram: Vec<u8>, reason| assert_eq!(parse(&datagram).err(), Some(reason));
    reject(with(HELLO, 8, 0), ParseError::FlowKind);
    reject(with(HELLO, 9, 5), ParseError::AddressFamily);
    reject(with(HELLO, 9, 6), ParseError::Length);
    reject(with(HELLO_ACK, 9, 0), ParseError::AddressFamily);
    reject(with(HELLO_ACK, 8, 0), ParseError::FlowKind);
    reject(with(REQUEST, 10, 0), ParseError::BlockLength);
    reject(with(REQUEST, 23, 1), ParseError::Bitmap);
    reject(with(REQUEST, 20, 0), ParseError::Bitmap);
    reject(with(REQUEST, 9, 7), ParseError::Scheme);
    let mut unnamed = octets(REQUEST);
    unnamed[16..18].fill(0);
    reject(unnamed, ParseError::Session);
    let mut unnamed = octets(RANGES);
    unnamed[8..10].fill(0);
    reject(unnamed, ParseError::Session);
    reject(with(RANGES, 15, 0), ParseError::Count);
    reject(octets("1610000c f5ed77dc 26380000"), ParseError::Count);
    reject(with(RANGES, 11, 1), ParseError::Length);
    for (count, reason) in [
        (0, ParseError::Count),
        (17, ParseError::Count),
        (2, ParseError::Length),
    ] {
        reject(with(PATH, 9, count), reason);
    }
    reject(with(PATH, 8, 0), ParseError::Method);
    reject(with(PATH, 8, 4), ParseError::Method);
    reject(with(PATH, 10, 7), ParseError::AddressFamily);
    reject(with(PATH, 41, 3), ParseError::Length);
}

// shows: CREM-MSG-17, CREM-IANA-01, AMB-RESERVED, AMB-FLAGS, AMB-LABEL
#[test]
fn reserved_fields_and_undefined_flags_are_ignored() {
    let cases = [
        (REPAIR, 15, 0xff),
        (REPAIR, 1, 0x0f),
        (RETX, 1, 0x9f),
        (HELLO, 19, 0xff),
        (HELLO, 36, 0x80),
    ];
    for (case, offset, value) in cases {
        assert_eq!(
            again(&with(case, offset, value)),
            Ok(octets(case)),
            "{case} octet {offset}"
        );
    }
    assert_eq!(
        again(&octets("19000014 f5ed77dc 00017777 00000000")).err(),
        Some(ParseError::Length)
    );
    assert_eq!(
        again(&octets("1901000c f5ed77dc 00017777")),
        Ok(octets("1900000c f5ed77dc 00010000"))
    );
    assert!(
        parse(&octets("1500000c f5ed77dc 33c80000")).is_ok(),
        "unknown status"
    );
}

// shows: CREM-MSG-28
#[test]
fn counts_are_cut_at_what_their_fields_can_say() {
    let hop = HopEntry {
        node: 1,
        period: 2,
        lost: 3,
        queue_delay_change_us: 4,
        cause: 0,
        dropped: vec![Psn::new(9); 300],
    };
    let flow = FlowDescriptor {
        source: [1, 2, 3, 4].into(),
        destination: [5, 6, 7, 8].into(),
        qp: Qpn::new(1),
    };
    let report = Message::PathReport(PathReport {
        truncated: true,
        method: 1,
        flow,
        hops: vec![hop; 20],
    });
    let datagram = encoded(&report);
    let Ok(Parsed::Message(Message::PathReport(report))) = parse(&datagram) else {
        panic!()
    };
    assert_eq!((report.hops.len(), report.hops[0].dropped.len()), (16, 255));
    let range = PsnRange {
        start: Psn::new(1),
        count: 1,
    };
    let (flow, request) = (FlowId::new(1).unwrap(), RequestId::new(1).unwrap());
    let ranges = Message::RangeRequest(RangeRequest {
        flow,
        fallback: true,
        request,
        ranges: core::iter::repeat_n(range, 20_000).collect(),
    });
    assert!(parse(&encoded(&ranges)).is_ok());
}

#[test]
fn error_names_are_distinct_and_indexed() {
    for (i, error) in ParseError::ALL.into_iter().enumerate() {
        assert_eq!(error.index(), i);
        assert!(
            ParseError::ALL
                .iter()
                .all(|other| other == &error || other.name() != error.name())
        );
    }
    assert_eq!(LossCause::of(200), LossCause::Unknown);
    for scheme in Scheme::ALL {
        assert_eq!(Scheme::from_code(scheme.code()), Some(*scheme));
    }
}

// shows: CREM-FEC-01, CREM-MSG-05, CREM-MSG-08, CREM-MSG-15, CREM-MSG-23, CREM-MSG-26, CREM-MSG-30
// shows: CREM-IANA-01, CREM-IANA-02
#[test]
fn codes_are_those_of_the_registries() {
    use MessageType as M;
    let types = [
        (M::Repair, 1),
        (M::Hello, 2),
        (M::HelloAck, 3),
        (M::ParamUpdate, 4),
        (M::ParamAck, 5),
        (M::RepairRequest, 6),
        (M::LossReport, 7),
        (M::PathReport, 8),
        (M::Close, 9),
    ];
    assert!(types.iter().all(|(kind, code)| kind.code() == *code));
    assert_eq!(M::ALL.len(), types.len());
    let codes = |all: &[Scheme]| all.iter().map(|s| (s.code(), s.bit())).collect::<Vec<_>>();
    assert_eq!(codes(Scheme::ALL), [(0, 1), (1, 2), (2, 4)]);
    assert_eq!(Scheme::CauchyRs.code(), 1);
    assert_eq!(
        (FlowKind::RoceV2.code(), FlowKind::RoceV2Responses.code()),
        (1, 0xc1)
    );
    let statuses = ParamStatus::ALL.iter().map(|s| s.code());
    assert!(statuses.eq([0, 1, 2, 3]));
    assert_eq!(ParamStatus::UnsupportedScheme.code(), 1);
    assert_eq!(ParamStatus::LimitsExceeded.code(), 2);
    let reasons = [
        CloseReason::Normal,
        CloseReason::FlowEnded,
        CloseReason::SyncFailed,
        CloseReason::ResourcesExhausted,
        CloseReason::CircuitBreaker,
    ];
    assert!(reasons.iter().map(|r| r.code()).eq(0..5));
    assert_eq!(
        (
            Method::AlternateMarking.code(),
            Method::ClusteredAlternateMarking.code(),
            Method::NodeLocal.code()
        ),
        (1, 2, 3)
    );
    assert_eq!(
        (
            LossCause::QueueOverflow.code(),
            LossCause::TransmissionError.code()
        ),
        (1, 2)
    );
    assert_eq!(
        [
            flags::REPAIR_RETX,
            flags::REPAIR_LAST,
            flags::REPAIR_INFO,
            flags::REQUEST_FALLBACK,
            flags::REQUEST_RANGES,
            flags::PATH_TRUNCATED
        ],
        [0x80, 0x40, 0x20, 0x20, 0x10, 0x80]
    );
}

// shows: CREM-HELLO-09
#[test]
fn an_answer_to_hello_is_smaller_than_any_hello() {
    let len = |hex: &str| octets(hex).len();
    assert_eq!((len(HELLO_ACK), len(HELLO)), (32, 40));
    let Ok(Parsed::Message(Message::Hello(mut hello))) = parse(&octets(HELLO)) else {
        panic!()
    };
    hello.flow.source = Ipv6Addr::LOCALHOST.into();
    hello.flow.destination = Ipv6Addr::LOCALHOST.into();
    assert_eq!(encoded(&Message::Hello(hello)).len(), 64);
}

fn any_flow() -> impl Strategy<Value = FlowId> {
    (1u32..).prop_map(|id| FlowId::new(id).unwrap())
}

fn any_request() -> impl Strategy<Value = RequestId> {
    (1u16..).prop_map(|id| RequestId::new(id).unwrap())
}

fn any_psn() -> impl Strategy<Value = Psn> {
    any::<u32>().prop_map(Psn::new)
}

/// A non-empty set of positions below `k`.
fn any_set(k: u8) -> impl Strategy<Value = Bitmap> {
    prop::collection::vec(0..k, 1..=usize::from(k))
        .prop_map(|positions| positions.into_iter().collect())
}

fn any_descriptor() -> impl Strategy<Value = FlowDescriptor> {
    let v4 = any::<([u8; 4], [u8; 4])>()
        .prop_map(|(a, b)| (IpAddr::V4(Ipv4Addr::from(a)), IpAddr::V4(Ipv4Addr::from(b))));
    let v6 = any::<([u8; 16], [u8; 16])>()
        .prop_map(|(a, b)| (IpAddr::V6(Ipv6Addr::from(a)), IpAddr::V6(Ipv6Addr::from(b))));
    (prop_oneof![v4, v6], any::<u32>()).prop_map(|((source, destination), qp)| FlowDescriptor {
        source,
        destination,
        qp: Qpn::new(qp),
    })
}

fn any_limits() -> impl Strategy<Value = Limits> {
    any::<(u16, u8, u8, u16)>().prop_map(|(schemes, max_k, max_m, max_t)| Limits {
        schemes,
        max_k,
        max_m,
        max_t,
    })
}

fn any_handshake() -> impl Strategy<Value = Message> {
    let hello = (1u8.., any_limits(), any::<(u16, u64)>(), any_descriptor()).prop_map(
        |(kind, limits, (rdma_mtu, nonce), flow)| {
            Message::Hello(Hello {
                kind,
                limits,
                rdma_mtu,
                nonce,
                flow,
            })
        },
    );
    let ack = (
        any_flow(),
        1u8..,
        prop_oneof![Just(4), Just(6)],
        any_limits(),
        any::<(u16, u64, u16)>(),
    )
        .prop_map(
            |(flow, kind, af, limits, (rdma_mtu, nonce, max_open_blocks))| {
                Message::HelloAck(HelloAck {
                    flow,
                    kind,
                    af,
                    limits,
                    rdma_mtu,
                    nonce,
                    max_open_blocks,
                })
            },
        );
    let update = (any_flow(), any::<([u8; 4], u16)>(), any_psn()).prop_map(
        |(flow, ([config, scheme, k, m], t), effective)| {
            Message::ParamUpdate(ParamUpdate {
                flow,
                config: ConfigId(config),
                scheme,
                k,
                m,
                t,
                effective,
            })
        },
    );
    let status = (any_flow(), any::<(u8, u8)>()).prop_map(|(flow, (config, status))| {
        Message::ParamAck(ParamAck {
            flow,
            config: ConfigId(config),
            status,
        })
    });
    let close = (any_flow(), any::<u16>())
        .prop_map(|(flow, reason)| Message::Close(Close { flow, reason }));
    prop_oneof![hello, ack, update, status, close]
}

fn any_request_message() -> impl Strategy<Value = Message> {
    let block = (1u8..)
        .prop_flat_map(|k| (Just(k), any_set(k)))
        .prop_flat_map(|set| {
            (
                Just(set),
                any_flow(),
                any_request(),
                any_psn(),
                0u8..3,
                any::<(bool, [u8; 3])>(),
            )
        })
        .prop_map(
            |(
                (k, lost),
                flow,
                request,
                block_start,
                scheme,
                (fallback, [config, held, suggested]),
            )| {
                let config = ConfigId(config);
                Message::BlockRequest(BlockRequest {
                    flow,
                    fallback,
                    config,
                    scheme,
                    k,
                    held,
                    block_start,
                    suggested,
                    request,
                    lost,
                })
            },
        );
    let range = (any_psn(), 1u8..).prop_map(|(start, count)| PsnRange { start, count });
    let ranges = (
        any_flow(),
        any::<bool>(),
        any_request(),
        prop::collection::vec(range, 1..100),
    )
        .prop_map(|(flow, fallback, request, ranges)| {
            Message::RangeRequest(RangeRequest {
                flow,
                fallback,
                request,
                ranges: ranges.into_iter().collect(),
            })
        });
    prop_oneof![block, ranges]
}

fn any_report() -> impl Strategy<Value = Message> {
    let loss = (any_flow(), any::<[u32; 8]>()).prop_map(|(flow, w)| {
        Message::LossReport(LossReport {
            flow,
            interval_us: w[0],
            expected: w[1],
            received: w[2],
            restored: w[3],
            incomplete_blocks: w[4],
            ce_marked: w[5],
            repairs_received: w[6],
            repairs_ce_marked: w[7],
        })
    });
    let hop = (
        any::<(u32, u32, u32, i32, u8)>(),
        prop::collection::vec(any_psn(), 0..20),
    )
        .prop_map(
            |((node, period, lost, queue_delay_change_us, cause), dropped)| HopEntry {
                node,
                period,
                lost,
                queue_delay_change_us,
                cause,
                dropped,
            },
        );
    let path = (
        any::<bool>(),
        1u8..4,
        any_descriptor(),
        prop::collection::vec(hop, 1..=16),
    )
        .prop_map(|(truncated, method, flow, hops)| {
            Message::PathReport(PathReport {
                truncated,
                method,
                flow,
                hops,
            })
        });
    prop_oneof![loss, path]
}

fn any_message() -> impl Strategy<Value = Message> {
    prop_oneof![any_handshake(), any_request_message(), any_report()]
}

/// A coded retransmission or an ordinary symbol of scheme 1.
fn any_repair() -> impl Strategy<Value = (RepairHeader, Vec<u8>)> {
    (1u8..)
        .prop_flat_map(|k| (Just(k), 0..=255 - k, any_set(k), any_set(k), any::<bool>()))
        .prop_flat_map(|block| {
            (
                Just(block),
                any_flow(),
                any_request(),
                any_psn(),
                any::<(bool, u8)>(),
                prop::collection::vec(any::<u8>(), 1..100),
            )
        })
        .prop_map(
            |(
                (k, index, lost, others, retx),
                flow,
                request,
                block_start,
                (last, config),
                symbol,
            )| {
                let header = RepairHeader {
                    flow,
                    last,
                    info: false,
                    config: ConfigId(config),
                    scheme: Scheme::CauchyRs.code(),
                    k,
                    index,
                    block_start,
                    session: retx.then_some(request),
                    symbol_length: symbol.len() as u16,
                    present: lost.or(&others),
                    lost: retx.then_some(lost),
                };
                (header, symbol)
            },
        )
}

proptest! {
    #[test]
    fn messages_round_trip(message in any_message()) {
        let datagram = encoded(&message);
        prop_assert_eq!(parse(&datagram), Ok(Parsed::Message(message)));
    }

    #[test]
    fn repairs_round_trip((header, symbol) in any_repair()) {
        let datagram = repair_octets(&header, &symbol);
        prop_assert_eq!(parse(&datagram), Ok(Parsed::Repair(header, symbol.as_slice())));
    }

    /// Whatever is accepted means the same after encoding it again.
    #[test]
    fn damaged_messages_are_refused_or_consistent(
        message in any_message(), at in any::<prop::sample::Index>(), flip in 1u8..,
    ) {
        let mut datagram = encoded(&message);
        let at = at.index(datagram.len());
        datagram[at] ^= flip;
        if let Ok(canonical) = again(&datagram) {
            prop_assert_eq!(parse(&canonical), parse(&datagram));
            prop_assert_eq!(canonical.len(), datagram.len());
        }
    }

    #[test]
    fn damaged_repairs_are_refused_or_consistent(
        (header, symbol) in any_repair(), at in any::<prop::sample::Index>(), flip in 1u8..,
    ) {
        let mut datagram = repair_octets(&header, &symbol);
        let at = at.index(datagram.len());
        datagram[at] ^= flip;
        if let Ok(canonical) = again(&datagram) {
            prop_assert_eq!(parse(&canonical), parse(&datagram));
        }
    }

    #[test]
    fn arbitrary_octets_never_panic(mut datagram in prop::collection::vec(any::<u8>(), 0..200), kind in 0u8..16) {
        if let [first, _, high, low, ..] = datagram.as_mut_slice() {
            *first = 0x10 | kind;
            *high = 0;
            *low = 0;
        }
        let length = datagram.len() as u8;
        if let Some(low) = datagram.get_mut(3) {
            *low = length;
        }
        if let Ok(canonical) = again(&datagram) {
            prop_assert_eq!(canonical.len(), datagram.len());
        }
    }
}

#[test]
fn a_look_at_type_and_flow_id_agrees_with_parsing() {
    let id = FlowId::new(0xf5ed_77dc);
    assert_eq!(peek(&octets(REPAIR)), Some((MessageType::Repair, id)));
    assert_eq!(
        peek(&octets(RANGES)),
        Some((MessageType::RepairRequest, id))
    );
    assert_eq!(peek(&octets(HELLO)), Some((MessageType::Hello, None)));
    assert_eq!(peek(&octets(HELLO)[..7]), None);
    assert_eq!(peek(&with(HELLO, 0, 0x22)), None, "another version");
    assert_eq!(peek(&with(HELLO, 0, 0x10)), None, "no type");
}
