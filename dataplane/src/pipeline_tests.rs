//! Whole segments over queues instead of ports, in simulated time: two gateways with a lossy wire
//! between them, and one alone for what happens to single frames.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use crem_api::{Mode, Segment as SegmentConfig, Syntax, parse as parse_document};
use crem_core::config::Prefix;
use crem_core::reporter::{Observed, Reporter, ReporterConfig, SourcePrefix};
use crem_core::time::Instant;
use crem_fec::Engine;
use crem_wire::crem::registry::LossCause;
use crem_wire::crem::{FlowDescriptor, Message, Parsed};
use crem_wire::frame::{self, Mac, ParseConfig, Tags, UdpFrame};
use crem_wire::roce::{Bth, MIN_PAYLOAD, Opcode, UDP_PORT};
use crem_wire::{Psn, Qpn, icrc};

use crate::buffer::Buffer;
use crate::buffer::heap::{Heap, HeapBuf, HeapPool, HeapPort, panic_at_clone};
use crate::classify::{NEVER_CUT, Side, Station, View};
use crate::control_frames::ControlFrames;
use crate::guard::Remake;
use crate::inband::Inband;
use crate::protect::{Protection, Share};
use crate::segment::{Parts, Segment};
use crate::snapshot::SegmentSnapshot;

mod changes;
mod frames;
mod lengths;
mod metering;
mod ports;
mod responses;
mod team;
mod watching;

const HOSTS: [&str; 2] = ["10.0.1.1", "10.0.2.1"];
const GATEWAYS: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const CREM_PORT: u16 = 4801;
const DELAY_NS: u64 = 2_000_000;
const STEP_NS: u64 = 20_000;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn mac(last: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, last])
}

fn gateway_mac(gateway: usize) -> Mac {
    mac(0x10 + u8::try_from(gateway).unwrap())
}

/// The segment of one gateway; the other one is named as peer or not.
fn config(own: usize, peered: bool, policy: &str) -> SegmentConfig {
    config_with(own, peered, policy, "")
}

/// The same with further keys.
fn config_with(own: usize, peered: bool, policy: &str, more: &str) -> SegmentConfig {
    let other = 1 - own;
    let peers = if peered {
        format!(
            "peers = {{ \"{}\" = {{ address = \"{}\" }} }}",
            HOSTS[other], GATEWAYS[other]
        )
    } else {
        "allowed_peers = { \"192.0.2.0/24\" = {} }".to_owned()
    };
    let text = format!(
        r#"
        version = 1
        [segments.a]
        mode = "active"
        crem_port = {CREM_PORT}
        path_mtu = 1500
        rdma_mtu = 1024
        lan = {{ interface = "lan0" }}
        wan = {{ interface = "wan0" }}
        served = {{ "{}" = {{}} }}
        reporters = {{ "198.51.100.0/24" = {{}} }}
        {peers}
        inband = {{ address = "{}/24" }}
        policy = {{ {policy} }}
        {more}
        "#,
        HOSTS[own], GATEWAYS[own]
    );
    let document = parse_document(&text, Syntax::Toml).unwrap_or_else(|e| panic!("{e}"));
    document.segments.into_values().next().unwrap()
}

fn segment(own: usize, peered: bool, policy: &str) -> Segment<Heap> {
    segment_in(None, own, peered, policy)
}

fn station(own: usize, vlan: Option<u16>) -> Station {
    Station {
        address: address(GATEWAYS[own]),
        mac: gateway_mac(own),
        vlan,
    }
}

fn view(config: &SegmentConfig, station: Station) -> View {
    View {
        parse: ParseConfig {
            crem_port: Some(CREM_PORT),
            vxlan_port: config.vxlan.as_ref().map(|vxlan| vxlan.port),
        },
        served: config.served.keys().copied().collect(),
        own: Some(station),
        active: true,
        watched: false,
        responses: config.policy.responses,
        learn: config.policy.learn,
        verify_sources: false,
        control: ControlFrames::new(&config.control_frames),
        networks: config
            .vxlan
            .iter()
            .flat_map(|vxlan| vxlan.networks.keys().copied())
            .collect(),
        cut_from: [NEVER_CUT; 2],
    }
}

/// The same with the in-band address in a VLAN.
fn segment_in(vlan: Option<u16>, own: usize, peered: bool, policy: &str) -> Segment<Heap> {
    segment_of(&config(own, peered, policy), vlan, own)
}

fn segment_of(config: &SegmentConfig, vlan: Option<u16>, own: usize) -> Segment<Heap> {
    let station = station(own, vlan);
    let view = view(config, station);
    let mut inband = Inband::new(station, HeapPort::default(), Side::Wan, Instant(0));
    inband.set_next_hop(address(GATEWAYS[1 - own]), Some(gateway_mac(1 - own)));
    let remake = remake(own, config, &view);
    Segment::new(Parts {
        mode: Mode::Active,
        view,
        lan: HeapPort::default(),
        wan: HeapPort::default(),
        pool: HeapPool::default(),
        inband: Some(inband),
        wan_rate: None,
        remake: Some(remake),
    })
}

fn remake(own: usize, config: &SegmentConfig, view: &View) -> Remake<Heap> {
    let (config, seen) = (config.clone(), view.clone());
    Box::new(move || {
        let seed = [u8::try_from(own).unwrap() + 1; 32];
        let at = address(GATEWAYS[own]);
        let (engine, share) = (Engine::scalar(), Share::ALONE);
        Some(Protection::new(&config, at, &seen, engine, seed, share))
    })
}

/// A request packet from host 0 to host 1.
fn packet(psn: u32) -> Vec<u8> {
    packet_in(Tags::NONE, psn)
}

fn packet_in(tags: Tags, psn: u32) -> Vec<u8> {
    let headers = UdpFrame {
        destination_mac: mac(2),
        source_mac: mac(1),
        tags,
        source: SocketAddr::new(address(HOSTS[0]), 50_000),
        destination: SocketAddr::new(address(HOSTS[1]), UDP_PORT),
        tos: 26 << 2 | 2,
        ttl: 64,
        ident: 0,
        dont_fragment: true,
        udp_checksum: false,
    };
    let bth = Bth {
        opcode: Opcode::SEND_MIDDLE,
        octet1: 0x40,
        pkey: 0xffff,
        octet4: 0,
        dest_qp: Qpn::new(0x11),
        octet8: 0,
        psn: Psn::new(psn),
    };
    let before = headers.header_len();
    let mut octets = vec![0; before + MIN_PAYLOAD + 1024];
    let filler = (0..1024u32).map(|n| (n.wrapping_mul(psn.wrapping_add(7)) >> 3) as u8);
    octets[before + Bth::LEN..]
        .iter_mut()
        .zip(filler)
        .for_each(|(o, f)| *o = f);
    bth.write(&mut octets[before..]);
    headers.write(&mut octets).unwrap();
    let parsed = frame::parse(&octets, &ParseConfig::default());
    assert!(icrc::write_frame(&mut octets, &parsed));
    octets
}

fn psn_of(frame: &[u8]) -> Option<u32> {
    let parsed = frame::parse(frame, &ParseConfig::default());
    match parsed.class {
        frame::Class::Roce(bth) => Some(bth.psn.get()),
        _ => None,
    }
}

/// Two gateways; what one sends to the WAN reaches the other after the delay unless `loses` says no.
struct Pair {
    gateways: [Segment<Heap>; 2],
    wires: [VecDeque<(u64, HeapBuf)>; 2],
    now: Cell<u64>,
    /// The second gateway is not scheduled; frames for it wait at its port.
    paused: bool,
}

impl Pair {
    fn new(peered: bool) -> Self {
        Self::with_policy(peered, "m_min = 2, initial_loss = 0.02")
    }

    fn with_policy(peered: bool, policy: &str) -> Self {
        Self::of([segment(0, peered, policy), segment(1, peered, policy)])
    }

    fn of(gateways: [Segment<Heap>; 2]) -> Self {
        Self {
            gateways,
            wires: Default::default(),
            now: Cell::new(1_000_000),
            paused: false,
        }
    }

    fn step(&mut self, loses: &mut impl FnMut(&[u8]) -> bool) {
        self.now.set(self.now.get() + STEP_NS);
        let now = self.now.get();
        for (from, wire) in self.wires.iter_mut().enumerate() {
            while wire.front().is_some_and(|(due, _)| *due <= now) {
                let (_, frame) = wire.pop_front().unwrap();
                self.gateways[1 - from]
                    .wan
                    .device
                    .waiting
                    .borrow_mut()
                    .push_back(frame);
            }
            let gateway = &mut self.gateways[from];
            if from == 1 && self.paused {
                continue;
            }
            gateway.turn(&|| Instant(now));
            for frame in gateway.wan.device.sent.drain(..) {
                if !loses(frame.octets()) {
                    wire.push_back((now + DELAY_NS, frame));
                }
            }
        }
    }

    fn received(&mut self) -> Vec<HeapBuf> {
        std::mem::take(&mut self.gateways[1].lan.device.sent)
    }

    fn snapshot(&mut self, gateway: usize) -> SegmentSnapshot {
        let mut snapshot = SegmentSnapshot::default();
        self.gateways[gateway].describe(&mut snapshot);
        snapshot
    }
}

/// Sends `count` packets, one every two steps, and gives back what arrived, in order.
fn transfer(pair: &mut Pair, count: u32, loses: impl Fn(u32) -> bool) -> Vec<HeapBuf> {
    let mut arrived = Vec::new();
    let mut lose = |frame: &[u8]| psn_of(frame).is_some_and(&loses);
    for n in 0..2 * count + 1000 {
        if n % 2 == 0 && n / 2 < count {
            pair.gateways[0].lan.device.arrive(&packet(n / 2));
        }
        pair.step(&mut lose);
        arrived.extend(pair.received());
    }
    arrived
}

fn psns(frames: &[HeapBuf]) -> Vec<u32> {
    frames.iter().filter_map(|f| psn_of(f.octets())).collect()
}

// shows: CREM-SCOPE-03, CREM-ARCH-05, CREM-PR-13, CREM-RECV-13, QOS-DSCP-03
#[test]
fn a_lossy_wire_becomes_a_good_one() {
    for peered in [true, false] {
        let mut pair = Pair::new(peered);
        // Once protected, every 40th packet is lost and every 160th with its neighbour.
        let lost = |psn: u32| psn > 1000 && (psn % 40 == 7 || psn % 160 == 8);
        let arrived = transfer(&mut pair, 3000, lost);
        assert_eq!(
            psns(&arrived),
            (0..3000).collect::<Vec<_>>(),
            "peered {peered}"
        );
        for (frame, psn) in arrived.iter().zip(0..) {
            // Restored packets carry no ECN mark; the header checksum follows.
            let mut expected = packet(psn);
            if lost(psn) {
                let parsed = frame::parse(&expected, &ParseConfig::default());
                frame::set_tos(&mut expected, &parsed, 26 << 2);
            }
            assert_eq!(frame.octets(), expected, "{psn}");
        }
        let count = (0..3000).filter(|p| lost(*p)).count() as u64;
        let receiver = pair.snapshot(1);
        assert_eq!(receiver.counters.coding.restored, count);
        assert_eq!(receiver.counters.messages.intercepted > 0, !peered);
        assert_eq!(receiver.counters.drops, Default::default());
        assert_eq!(pair.snapshot(0).counters.drops, Default::default());
    }
}

// shows: CREM-PORT-01
#[test]
fn nothing_of_ours_reaches_the_hosts_and_repair_follows_its_sources() {
    let mut pair = Pair::new(false);
    let arrived = transfer(&mut pair, 400, |_| false);
    let is_crem = |f: &HeapBuf| {
        let config = ParseConfig {
            crem_port: Some(CREM_PORT),
            vxlan_port: None,
        };
        frame::parse(f.octets(), &config).class == frame::Class::Crem
    };
    assert!(!arrived.iter().any(is_crem));
    assert_eq!(arrived.len(), 400);
    let sender = pair.snapshot(0).counters;
    assert!(sender.coding.repair_ordinary > 0);
    assert_eq!(sender.coding.code_refused, 0);
}

/// A node on the way from gateway 0 that drops packets and says so.
struct Reporting {
    reporter: RefCell<Reporter>,
    address: SocketAddr,
}

impl Reporting {
    fn new(at: &str) -> Self {
        let mut own = ReporterConfig::new(7, CREM_PORT);
        own.sources = vec![SourcePrefix {
            prefix: Prefix {
                address: address("10.0.0.0"),
                length: 8,
            },
            csf: None,
        }];
        Self {
            reporter: RefCell::new(Reporter::new(own, 0)),
            address: SocketAddr::new(address(at), CREM_PORT),
        }
    }

    fn dropped(&self, now: u64, psn: u32) {
        let flow = FlowDescriptor {
            source: address(HOSTS[0]),
            destination: address(HOSTS[1]),
            qp: Qpn::new(0x11),
        };
        let packet = Observed {
            flow,
            port: 0,
            dscp: 26,
        };
        let cause = LossCause::TransmissionError;
        let mut reporter = self.reporter.borrow_mut();
        reporter.on_drop(Instant(now), &packet, Psn::new(psn), cause);
    }

    /// Reports that are due, as frames toward host 0.
    fn frames(&self, now: u64) -> Vec<Vec<u8>> {
        let mut reporter = self.reporter.borrow_mut();
        reporter.on_timeout(Instant(now));
        let frames = std::iter::from_fn(|| reporter.poll_transmit());
        frames
            .map(|out| {
                let headers = UdpFrame {
                    destination_mac: mac(1),
                    source_mac: mac(9),
                    tags: Tags::NONE,
                    source: self.address,
                    destination: out.to,
                    tos: out.dscp << 2,
                    ttl: 64,
                    ident: 0,
                    dont_fragment: true,
                    udp_checksum: true,
                };
                let mut message = Vec::new();
                Message::PathReport(out.report).encode(&mut message);
                let mut frame = vec![0; headers.header_len()];
                frame.append(&mut message);
                headers.write(&mut frame).unwrap();
                frame
            })
            .collect()
    }
}

/// Whether a frame carries a symbol that answers a request.
fn is_answer(octets: &[u8]) -> bool {
    let config = ParseConfig {
        crem_port: Some(CREM_PORT),
        vxlan_port: None,
    };
    let parsed = frame::parse(octets, &config);
    let of_crem = parsed.class == frame::Class::Crem;
    let repair = crem_wire::crem::parse(parsed.payload(octets));
    matches!(repair, Ok(Parsed::Repair(header, _)) if of_crem && header.session.is_some())
}

/// Transfers 2,000 packets over a path that loses three in a row of which the node tells, and every answer
/// to a request; gives how many arrived and the sender's gateway.
fn transfer_with_reports(node: &Reporting) -> (usize, Pair) {
    let mut pair = Pair::with_policy(true, "m_min = 2, m_max = 2, hold_ns = 3000000");
    let mut arrived = 0;
    for n in 0..5_000u32 {
        if n % 2 == 0 && n < 4_000 {
            pair.gateways[0].lan.device.arrive(&packet(n / 2));
        }
        let now = pair.now.get();
        let mut lose = |octets: &[u8]| {
            let psn = psn_of(octets).filter(|psn| *psn >= 600 && psn % 200 < 3);
            psn.iter().for_each(|psn| node.dropped(now, *psn));
            psn.is_some() || is_answer(octets)
        };
        pair.step(&mut lose);
        for frame in node.frames(pair.now.get()) {
            pair.gateways[0].wan.device.arrive(&frame);
        }
        arrived += psns(&pair.received()).len();
        let to_host = std::mem::take(&mut pair.gateways[0].lan.device.sent);
        assert!(to_host.is_empty(), "nothing of it reaches the host");
    }
    (arrived, pair)
}

fn csf_counter(pair: &mut Pair, name: &str) -> u64 {
    let snapshot = pair.snapshot(0);
    let found = snapshot.csf.iter().find(|counter| counter.0 == name);
    found.expect("a counter of that name").1
}

// shows: CREM-PR-02, CREM-PR-05, CREM-PR-07, CREM-FEC-11, CREM-PR-13, AMB-PRICEPT
#[test]
fn a_burst_that_a_node_reports_to_the_host_is_restored_without_a_request() {
    let node = Reporting::new("198.51.100.9");
    let (arrived, mut pair) = transfer_with_reports(&node);
    assert_eq!(arrived, 2_000);
    assert_eq!(csf_counter(&mut pair, "path_psns"), 21);
    // Two symbols a block were sent anyway, and a burst may be shared by two blocks.
    let symbols = csf_counter(&mut pair, "path_symbols");
    assert!((4..=7).contains(&symbols), "{symbols}");
    let sender = pair.snapshot(0).counters.messages;
    let reports = node.reporter.borrow().counters().reports;
    assert_eq!((sender.intercepted, reports > 0), (reports, true));
}

// shows: CREM-PR-14, AMB-PRICEPT
#[test]
fn a_node_that_is_not_configured_changes_nothing_and_stops_at_the_gateway() {
    let node = Reporting::new("198.51.101.9");
    let (arrived, mut pair) = transfer_with_reports(&node);
    // What only reports could restore is lost: of each burst but those shared by two blocks.
    assert!((1_979..=1_988).contains(&arrived), "{arrived}");
    let reports = node.reporter.borrow().counters().reports;
    assert_eq!(csf_counter(&mut pair, "path_reports_forbidden"), reports);
    assert_eq!(csf_counter(&mut pair, "path_reports"), 0);
}

#[test]
fn leaving_lets_go_of_what_is_held_and_closes() {
    let mut pair = Pair::new(true);
    // The end of the transfer is behind a gap that nothing fills.
    let mut arrived = Vec::new();
    let mut lose = |frame: &[u8]| psn_of(frame).map_or(frame.len() > 200, |p| p == 998);
    for n in 0..2000 {
        if n % 2 == 0 {
            pair.gateways[0].lan.device.arrive(&packet(n / 2));
        }
        pair.step(&mut lose);
        arrived.extend(pair.received());
    }
    for _ in 0..DELAY_NS / STEP_NS + 2 {
        pair.step(&mut lose);
        arrived.extend(pair.received());
    }
    let now = Instant(pair.now.get());
    pair.gateways.iter_mut().for_each(|g| g.close(now));
    arrived.extend(pair.received());
    let expected: Vec<u32> = (0..1000).filter(|p| *p != 998).collect();
    assert_eq!(psns(&arrived), expected);
    let mut closes = 0;
    pair.snapshot(1).counters.messages.for_each(|name, count| {
        closes += if name == "tx_close" { count } else { 0 };
    });
    assert_eq!(closes, 1);
}

#[test]
fn a_hold_does_not_end_before_what_has_arrived_was_looked_at() {
    // Blocks of more than one burst, so that the repair is not in the first one.
    let mut pair = Pair::with_policy(true, "k = 128, m_min = 2, initial_loss = 0.02");
    transfer(&mut pair, 400, |_| false);
    let mut arrived = Vec::new();
    let mut lose = |frame: &[u8]| psn_of(frame) == Some(420);
    for n in 0..1000 {
        // From when the gap has been seen until long after its repair; more than one burst waits then.
        pair.paused = (148..700).contains(&n);
        if n % 2 == 0 && n < 600 {
            pair.gateways[0].lan.device.arrive(&packet(400 + n / 2));
        }
        pair.step(&mut lose);
        arrived.extend(pair.received());
    }
    assert_eq!(psns(&arrived), (400..700).collect::<Vec<_>>());
}

#[test]
fn a_panic_in_the_protocol_leaves_a_wire_and_begins_anew() {
    let mut pair = Pair::new(true);
    transfer(&mut pair, 200, |_| false);
    let before = pair.snapshot(1);
    assert!(before.mode == "active" && before.off_reason.is_none());
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut arrived = Vec::new();
    for psn in 200..210 {
        pair.gateways[1].wan.device.arrive(&packet(psn));
    }
    // The receiver function takes references to what it delivers.
    panic_at_clone(1);
    pair.step(&mut |_| false);
    std::panic::set_hook(hook);
    arrived.extend(pair.received());
    assert_eq!(psns(&arrived), (200..210).collect::<Vec<_>>());
    let after = pair.snapshot(1);
    assert_eq!(
        (after.counters.coding.panics, after.mode),
        (1, "passthrough")
    );
    assert!(after.off_reason.is_some());
    pair.gateways[1].wan.device.arrive(&packet(210));
    pair.step(&mut |_| false);
    assert_eq!(psns(&pair.received()), [210]);
    pair.now.set(pair.now.get() + 11_000_000_000);
    // It is looked at every so many turns.
    (0..64).for_each(|_| pair.step(&mut |_| false));
    let again = pair.snapshot(1);
    assert!(again.mode == "active" && again.off_reason.is_none());
}

#[test]
fn what_waited_before_the_start_does_not_go_on() {
    let mut segment = segment(0, true, "");
    let frame = [0x11; 64];
    for _ in 0..100 {
        segment.lan.device.arrive(&frame);
        segment.wan.device.arrive(&frame);
    }
    segment.discard_early();
    let clock = || Instant(1);
    segment.turn(&clock);
    assert_eq!(
        segment.lan.device.sent.len() + segment.wan.device.sent.len(),
        0
    );
    assert_eq!(segment.counters.drops.before_start, 200);
    segment.lan.device.arrive(&frame);
    segment.turn(&clock);
    assert_eq!(segment.wan.device.sent.len(), 1);
}

// shows: CREM-ARCH-04
#[test]
fn sources_leave_first_in_the_turn_in_which_they_came() {
    let mut pair = Pair::new(true);
    let mut repairs = 0;
    for n in 0..1000 {
        pair.gateways[0].lan.device.arrive(&packet(n));
        let mut left = Vec::new();
        pair.step(&mut |frame| {
            left.push(psn_of(frame));
            false
        });
        // What gateway 0 sent comes before what gateway 1 sent.
        assert_eq!(left.first(), Some(&Some(n)), "{left:?}");
        repairs += left.len() - 1;
    }
    assert!(repairs > 50, "{repairs}");
}

/// Frames that are no sources, from a request packet.
fn bystanders() -> Vec<Vec<u8>> {
    let with = |at: usize, octets: &[u8]| {
        let mut frame = packet(5000);
        frame[at..at + octets.len()].copy_from_slice(octets);
        frame
    };
    let mut marked = packet(5001);
    let parsed = frame::parse(&marked, &ParseConfig::default());
    frame::set_tos(&mut marked, &parsed, 48 << 2 | 3);
    vec![
        // Congestion notification, acknowledgment, an opcode that nobody knows.
        with(42, &[0x81]),
        with(42, &[0x11]),
        with(42, &[0xc5]),
        // TCP, RoCE version 1.
        with(23, &[6]),
        with(12, &[0x89, 0x15]),
        // A source with a mark and another DSCP.
        marked,
    ]
}

// shows: CREM-SCOPE-01, CREM-SCOPE-03, CREM-SCOPE-06, QOS-ECN-03, QOS-DSCP-03, QOS-CNP-03
// shows: QOS-CNP-04, QOS-HDR-04, A17-03
#[test]
fn what_passes_is_not_changed_also_while_packets_are_held() {
    let mut pair = Pair::new(true);
    transfer(&mut pair, 1000, |_| false);
    // A gap that nothing fills: what follows of the flow is held.
    for psn in [1001, 1002] {
        pair.gateways[1].wan.device.arrive(&packet(psn));
    }
    let sent = bystanders();
    for frame in &sent[..5] {
        pair.gateways[1].wan.device.arrive(frame);
    }
    let now = Instant(pair.now.get());
    pair.gateways[1].turn(&|| now);
    let octets = |frames: Vec<HeapBuf>| -> Vec<Vec<u8>> {
        frames.iter().map(|f| f.octets().to_vec()).collect()
    };
    assert_eq!(octets(pair.received()), sent[..5], "at once, past the hold");
    for _ in 0..2000 {
        pair.step(&mut |_| false);
    }
    assert_eq!(psns(&pair.received()), [1001, 1002]);
    // Through both gateways.
    for frame in &sent {
        pair.gateways[0].lan.device.arrive(frame);
    }
    for _ in 0..2000 {
        pair.step(&mut |_| false);
    }
    assert_eq!(octets(pair.received()), sent);
}

/// A CREM message from a stranger to a host that gateway 1 serves.
fn stranger(message: &Message) -> Vec<u8> {
    let mut payload = Vec::new();
    message.encode(&mut payload);
    let headers = UdpFrame {
        destination_mac: mac(2),
        source_mac: mac(9),
        tags: Tags::NONE,
        source: "203.0.113.9:4801".parse().unwrap(),
        destination: SocketAddr::new(address(HOSTS[1]), CREM_PORT),
        tos: 0,
        ttl: 64,
        ident: 0,
        dont_fragment: true,
        udp_checksum: false,
    };
    let mut octets = vec![0; headers.header_len()];
    octets.extend_from_slice(&payload);
    headers.write(&mut octets).unwrap();
    octets
}

// shows: CREM-SEC-01, CREM-SEC-04, AMB-PRICEPT
#[test]
fn crem_from_outside_ends_at_the_boundary() {
    use crem_wire::crem::{
        Close, FlowDescriptor, Hello, HopEntry, Limits, Message, ParamUpdate, PathReport,
    };
    use crem_wire::{ConfigId, FlowId};
    let flow = FlowId::new(7).unwrap();
    let descriptor = FlowDescriptor {
        source: address(HOSTS[0]),
        destination: address(HOSTS[1]),
        qp: Qpn::new(0x11),
    };
    let hop = HopEntry {
        node: 1,
        period: 1,
        lost: 1,
        queue_delay_change_us: 0,
        cause: 1,
        dropped: Vec::new(),
    };
    let messages = [
        Message::Hello(Hello {
            kind: 1,
            limits: Limits {
                schemes: 7,
                max_k: 64,
                max_m: 8,
                max_t: 1100,
            },
            rdma_mtu: 1024,
            nonce: 1,
            flow: descriptor,
        }),
        Message::ParamUpdate(ParamUpdate {
            flow,
            config: ConfigId(1),
            scheme: 1,
            k: 32,
            m: 2,
            t: 1062,
            effective: Psn::new(0),
        }),
        Message::PathReport(PathReport {
            truncated: false,
            method: 3,
            flow: FlowDescriptor {
                source: address(HOSTS[1]),
                destination: address(HOSTS[0]),
                ..descriptor
            },
            hops: vec![hop],
        }),
        Message::Close(Close { flow, reason: 0 }),
    ];
    let mut segment = segment(1, true, "");
    for message in &messages {
        segment.wan.device.arrive(&stranger(message));
    }
    for n in 1..50 {
        segment.turn(&|| Instant(n * STEP_NS));
    }
    assert!(segment.lan.device.sent.is_empty(), "nothing goes on");
    assert!(segment.wan.device.sent.is_empty(), "nothing is answered");
    let counters = segment.counters.messages;
    assert_eq!((counters.boundary, counters.intercepted), (2, 2));
}

// shows: QOS-DSCP-05, QOS-VLAN-02, AMB-QOS-PCP
#[test]
fn repair_has_the_vlan_of_the_gateway_and_the_priority_of_its_flow() {
    let policy = "m_min = 2, initial_loss = 0.02";
    let mut pair = Pair::new(true);
    pair.gateways = [0, 1].map(|own| segment_in(Some(7), own, true, policy));
    let mut tags = Tags::NONE;
    assert!(tags.push(frame::Tag::vlan(5 << 13 | 100)));
    let config = ParseConfig {
        crem_port: Some(CREM_PORT),
        vxlan_port: None,
    };
    let mut seen = Vec::new();
    for n in 0..1500 {
        pair.gateways[0].lan.device.arrive(&packet_in(tags, n));
        pair.step(&mut |octets| {
            let parsed = frame::parse(octets, &config);
            let repair = parsed.class == frame::Class::Crem && octets.len() > 500;
            if repair {
                let link = parsed.link.unwrap();
                seen.push((link.tags.as_slice().to_vec(), parsed.ip.unwrap().tos));
            }
            psn_of(octets) == Some(1200)
        });
    }
    assert!(seen.len() > 20, "{}", seen.len());
    let expected = (vec![frame::Tag::vlan(5 << 13 | 7)], 26 << 2 | 2);
    assert!(seen.iter().all(|s| *s == expected), "{:?}", seen[0]);
    let arrived = pair.received();
    let restored = arrived.iter().find(|f| psn_of(f.octets()) == Some(1200));
    let restored = frame::parse(restored.unwrap().octets(), &config);
    assert_eq!(
        restored.link.unwrap().tags.as_slice(),
        [frame::Tag::vlan(5 << 13 | 100)]
    );
}
