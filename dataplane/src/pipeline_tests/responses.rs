//! READs of host 1 through both gateways, with their responses protected.

use crem_wire::roce::{Aeth, Reth, Syndrome};

use super::*;

/// A packet of one host to the other; `body` is everything between BTH and ICRC.
fn roce(from: usize, opcode: Opcode, psn: u32, body: &[u8]) -> Vec<u8> {
    let headers = UdpFrame {
        destination_mac: mac(if from == 0 { 2 } else { 1 }),
        source_mac: mac(if from == 0 { 1 } else { 2 }),
        tags: Tags::NONE,
        source: SocketAddr::new(address(HOSTS[from]), 50_000),
        destination: SocketAddr::new(address(HOSTS[1 - from]), UDP_PORT),
        tos: 26 << 2 | 2,
        ttl: 64,
        ident: 0,
        dont_fragment: true,
        udp_checksum: false,
    };
    let bth = Bth {
        opcode,
        octet1: 0x40,
        pkey: 0xffff,
        octet4: 0,
        dest_qp: Qpn::new(0x11),
        octet8: 0,
        psn: Psn::new(psn),
    };
    let before = headers.header_len();
    let mut octets = vec![0; before + MIN_PAYLOAD + body.len()];
    octets[before + Bth::LEN..][..body.len()].copy_from_slice(body);
    bth.write(&mut octets[before..]);
    headers.write(&mut octets).unwrap();
    let parsed = frame::parse(&octets, &ParseConfig::default());
    assert!(icrc::write_frame(&mut octets, &parsed));
    octets
}

/// PSNs of one READ of host 1.
const SPAN: u32 = 16;

/// A READ request of host 1 for what is left of its READ from `psn` on.
fn read_request(psn: u32) -> Vec<u8> {
    let reth = Reth {
        virtual_address: 0x1000,
        rkey: 7,
        dma_length: (SPAN - psn % SPAN) * 1024,
    };
    let mut body = [0; Reth::LEN];
    reth.write(&mut body);
    roce(1, Opcode::READ_REQUEST, psn, &body)
}

/// The response of host 0 with this PSN.
fn read_response(psn: u32) -> Vec<u8> {
    let opcode = match psn % SPAN {
        0 => Opcode::READ_RESPONSE_FIRST,
        n if n == SPAN - 1 => Opcode::READ_RESPONSE_LAST,
        _ => Opcode::READ_RESPONSE_MIDDLE,
    };
    let mut body = Vec::new();
    if opcode != Opcode::READ_RESPONSE_MIDDLE {
        let mut aeth = [0; Aeth::LEN];
        Aeth::new(Syndrome::Ack(31), psn / SPAN).write(&mut aeth);
        body.extend(aeth);
    }
    body.extend((0..1024u32).map(|n| (n.wrapping_mul(psn.wrapping_add(3)) >> 2) as u8));
    roce(0, opcode, psn, &body)
}

/// Host 1 reads, four requests ahead; what it gets of the responses `psns`.
fn read(
    pair: &mut Pair,
    range: core::ops::Range<u32>,
    loses: impl Fn(u32) -> bool,
) -> Vec<HeapBuf> {
    let mut arrived = Vec::new();
    let mut lose = |frame: &[u8]| {
        let parsed = frame::parse(frame, &ParseConfig::default());
        matches!(parsed.class, frame::Class::Roce(bth)
            if bth.opcode != Opcode::READ_REQUEST && loses(bth.psn.get()))
    };
    for n in 0..4 {
        let request = read_request(range.start + n * SPAN);
        pair.gateways[1].lan.device.arrive(&request);
    }
    for psn in range {
        if psn.is_multiple_of(SPAN) {
            let request = read_request(psn + 4 * SPAN);
            pair.gateways[1].lan.device.arrive(&request);
        }
        pair.gateways[0].lan.device.arrive(&read_response(psn));
        pair.step(&mut lose);
        pair.step(&mut lose);
        arrived.extend(pair.received());
    }
    for _ in 0..1000 {
        pair.step(&mut lose);
        arrived.extend(pair.received());
    }
    arrived
}

fn receiver_count(pair: &mut Pair, name: &str) -> u64 {
    let snapshot = pair.snapshot(1);
    snapshot.crf.iter().find(|(n, _)| *n == name).unwrap().1
}

// shows: AMB-READRESP
#[test]
fn lost_read_responses_are_restored_until_they_are_asked_for_again() {
    let policy = "m_min = 2, initial_loss = 0.02, responses = true";
    let mut pair = Pair::with_policy(true, policy);
    let lost = |psn: u32| psn > 1500 && (psn % 40 == 7 || psn % 160 == 8);
    let arrived = read(&mut pair, 0..3200, lost);
    assert_eq!(psns(&arrived), (0..3200).collect::<Vec<_>>());
    for (frame, psn) in arrived.iter().zip(0..) {
        let mut expected = read_response(psn);
        if lost(psn) {
            let parsed = frame::parse(&expected, &ParseConfig::default());
            frame::set_tos(&mut expected, &parsed, 26 << 2);
        }
        assert_eq!(frame.octets(), expected, "{psn}");
    }
    let count = (0..3200).filter(|p| lost(*p)).count() as u64;
    assert_eq!(receiver_count(&mut pair, "restored"), count);
    assert_eq!(receiver_count(&mut pair, "requests_reissued"), 0);
    // The requester noticed at once.
    let mut lose = |frame: &[u8]| psn_of(frame) == Some(3205) && frame.len() > 500;
    let mut arrived = Vec::new();
    for n in 0..2000 {
        if n < 16 {
            let response = read_response(3200 + n);
            pair.gateways[0].lan.device.arrive(&response);
        }
        pair.step(&mut lose);
        let frames = pair.received();
        if frames.iter().any(|f| psn_of(f.octets()) == Some(3204)) {
            pair.gateways[1].lan.device.arrive(&read_request(3205));
        }
        arrived.extend(frames);
    }
    let expected: Vec<u32> = (3200..3216).filter(|p| *p != 3205).collect();
    assert_eq!(psns(&arrived), expected);
    assert_eq!(receiver_count(&mut pair, "restored"), count);
    assert_eq!(receiver_count(&mut pair, "requests_reissued"), 1);
}

// shows: AMB-READRESP, AMB-HOLD
#[test]
fn an_acknowledgment_arrives_behind_the_responses_before_it() {
    let policy = "m_min = 2, initial_loss = 0.02, responses = true";
    let mut pair = Pair::with_policy(true, policy);
    // Which asks for 64 more.
    assert_eq!(read(&mut pair, 0..3200, |_| false).len(), 3200);
    let mut lose = |frame: &[u8]| psn_of(frame) == Some(3251) && frame.len() > 500;
    let mut arrived = Vec::new();
    let mut aeth = [0; Aeth::LEN];
    Aeth::new(Syndrome::Ack(31), 300).write(&mut aeth);
    let write_done = roce(0, Opcode(0x11), 3264, &aeth);
    for psn in 3200..3264 {
        pair.gateways[0].lan.device.arrive(&read_response(psn));
        pair.step(&mut lose);
        pair.step(&mut lose);
        arrived.extend(pair.received());
    }
    pair.gateways[0].lan.device.arrive(&write_done);
    for _ in 0..1000 {
        pair.step(&mut lose);
        arrived.extend(pair.received());
    }
    assert_eq!(psns(&arrived), (3200..=3264).collect::<Vec<_>>());
    assert_eq!(arrived.last().map(HeapBuf::octets), Some(&write_done[..]));
    assert_eq!(receiver_count(&mut pair, "restored"), 1);
    assert_eq!(receiver_count(&mut pair, "acknowledgments_held"), 1);
}
