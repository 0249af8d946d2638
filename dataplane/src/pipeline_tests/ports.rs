//! The port by which messages to the gateway come in: a host that writes a peer's address is not the peer.

use crem_wire::crem::{Close, Hello, Limits, LossReport, RepairHeader};
use crem_wire::{Bitmap, ConfigId, FlowId};

use super::*;
use crate::snapshot::FlowSnapshot;

/// A message from an address to a gateway, as a station sends it.
fn message_from(station: Mac, sender: &str, gateway: usize, payload: &[u8]) -> Vec<u8> {
    let headers = UdpFrame {
        destination_mac: gateway_mac(gateway),
        source_mac: station,
        tags: Tags::NONE,
        source: SocketAddr::new(address(sender), CREM_PORT),
        destination: SocketAddr::new(address(GATEWAYS[gateway]), CREM_PORT),
        tos: 0,
        ttl: 64,
        ident: 0,
        dont_fragment: true,
        udp_checksum: true,
    };
    let mut octets = vec![0; headers.header_len()];
    octets.extend_from_slice(payload);
    headers.write(&mut octets).unwrap();
    octets
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut octets = Vec::new();
    message.encode(&mut octets);
    octets
}

fn close(flow: FlowId) -> Vec<u8> {
    encoded(&Message::Close(Close { flow, reason: 0 }))
}

/// That half of all packets were lost.
fn report(flow: FlowId) -> Vec<u8> {
    encoded(&Message::LossReport(LossReport {
        flow,
        interval_us: 100_000,
        expected: 1000,
        received: 500,
        restored: 0,
        incomplete_blocks: 30,
        ce_marked: 0,
        repairs_received: 0,
        repairs_ce_marked: 0,
    }))
}

fn hello() -> Vec<u8> {
    encoded(&Message::Hello(Hello {
        kind: 1,
        limits: Limits {
            schemes: 7,
            max_k: 64,
            max_m: 8,
            max_t: 1100,
        },
        rdma_mtu: 1024,
        nonce: 1,
        flow: FlowDescriptor {
            source: address("10.0.9.1"),
            destination: address(HOSTS[1]),
            qp: Qpn::new(0x11),
        },
    }))
}

fn repair(flow: FlowId) -> Vec<u8> {
    let header = RepairHeader {
        flow,
        last: true,
        info: false,
        config: ConfigId(1),
        scheme: 1,
        k: 16,
        index: 0,
        block_start: Psn::new(16),
        session: None,
        symbol_length: 1042,
        present: Bitmap::first(16),
        lost: None,
    };
    let mut octets = vec![0x5a; header.encoded_len() + 1042];
    header.encode(&mut octets);
    octets
}

/// The Flow ID of the only flow.
fn flow_id(pair: &Pair) -> FlowId {
    let mut flows = Vec::new();
    pair.gateways[1].list_flows(0, &mut flows);
    let mut ids = flows.iter().filter_map(|(_, flow)| match flow {
        FlowSnapshot::Receiver(flow) => flow.flow,
        _ => None,
    });
    ids.next().unwrap()
}

fn crf(snapshot: &SegmentSnapshot, name: &str) -> u64 {
    let mut all = snapshot.crf.iter();
    all.find(|(n, _)| *n == name).unwrap().1
}

fn csf(snapshot: &SegmentSnapshot, name: &str) -> u64 {
    let mut all = snapshot.csf.iter();
    all.find(|(n, _)| *n == name).unwrap().1
}

/// Messages that came by the wrong port: from the LAN, and from the WAN.
fn astray(segment: &Segment<Heap>) -> (u64, u64) {
    let counters = segment.counters.messages;
    (counters.wrong_port_lan, counters.wrong_port_wan)
}

// shows: CREM-SEC-01, AMB-PEERADDR
#[test]
fn a_host_does_not_speak_for_a_peer() {
    let mut pair = Pair::new(true);
    transfer(&mut pair, 1000, |_| false);
    let id = flow_id(&pair);
    let before = [0, 1].map(|gateway| pair.snapshot(gateway));
    let host = mac(1);
    for _ in 0..50 {
        for payload in [close(id), repair(id), hello()] {
            let forged = message_from(host, GATEWAYS[0], 1, &payload);
            pair.gateways[1].lan.device.arrive(&forged);
        }
        for payload in [close(id), report(id)] {
            let forged = message_from(host, GATEWAYS[1], 0, &payload);
            pair.gateways[0].lan.device.arrive(&forged);
        }
        pair.step(&mut |_| false);
    }
    (0..1000).for_each(|_| pair.step(&mut |_| false));
    assert_eq!(astray(&pair.gateways[0]), (100, 0));
    assert_eq!(astray(&pair.gateways[1]), (150, 0));
    let after = [0, 1].map(|gateway| pair.snapshot(gateway));
    for name in [
        "closes_received",
        "hellos_accepted",
        "repairs",
        "unknown_flow",
    ] {
        assert_eq!(crf(&after[1], name), crf(&before[1], name), "{name}");
    }
    for name in ["close_received", "loss_reports", "unknown_flow"] {
        assert_eq!(csf(&after[0], name), csf(&before[0], name), "{name}");
    }
    assert_eq!(flow_id(&pair), id);
    // The same from where the peer is would have been believed.
    let believed = message_from(gateway_mac(0), GATEWAYS[0], 1, &close(id));
    pair.gateways[1].wan.device.arrive(&believed);
    pair.step(&mut |_| false);
    let closed = pair.snapshot(1);
    let name = "closes_received";
    assert_eq!(crf(&closed, name), crf(&before[1], name) + 1);
    assert_eq!(astray(&pair.gateways[1]), (150, 0));
}

// shows: AMB-PEERADDR
#[test]
fn a_peer_behind_the_lan_port_speaks_there_and_only_there() {
    let mut segment = segment(1, true, "");
    let (router, stranger) = (gateway_mac(0), mac(9));
    let id = FlowId::new(7).unwrap();
    let unknown = |segment: &mut Segment<Heap>| {
        let mut snapshot = SegmentSnapshot::default();
        segment.describe(&mut snapshot);
        crf(&snapshot, "unknown_flow")
    };
    // The router toward the peer is seen by the LAN port and nowhere else.
    let said = message_from(router, GATEWAYS[0], 1, &repair(id));
    segment.lan.device.arrive(&said);
    segment.turn(&|| Instant(STEP_NS));
    assert_eq!((astray(&segment), unknown(&mut segment)), ((0, 0), 1));
    let forged = message_from(stranger, GATEWAYS[0], 1, &repair(id));
    segment.wan.device.arrive(&forged);
    segment.turn(&|| Instant(2 * STEP_NS));
    assert_eq!((astray(&segment), unknown(&mut segment)), ((0, 1), 1));
}

// shows: AMB-PAIR
#[test]
fn the_first_hello_of_a_peer_comes_by_either_port() {
    let mut segment = segment(1, false, "");
    // Allowed, and no next hop toward it is known.
    let sender = "192.0.2.9";
    let id = FlowId::new(7).unwrap();
    for payload in [close(id), hello()] {
        let said = message_from(mac(9), sender, 1, &payload);
        segment.lan.device.arrive(&said);
    }
    segment.turn(&|| Instant(STEP_NS));
    assert_eq!(astray(&segment), (1, 0));
    let wanted: Vec<IpAddr> = segment.take_wanted().collect();
    assert_eq!(wanted, [address(sender)]);
    // It is found at the LAN port, and speaks there from now on.
    segment.set_next_hop(address(sender), Some(mac(9)));
    let said = message_from(mac(9), sender, 1, &close(id));
    segment.lan.device.arrive(&said);
    segment.turn(&|| Instant(2 * STEP_NS));
    assert_eq!(astray(&segment), (1, 0));
}
