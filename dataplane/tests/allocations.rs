//! After warm-up a packet costs the pipeline no allocation. Over real DPDK ports that give back what was
//! sent on them, so that frames go round: from the LAN to the WAN and back. One test only: the count is
//! the process's, and so is EAL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::alloc::System;
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::mpsc::Receiver;

use crem_api::{Mode, Syntax, parse};
use crem_core::time::Instant;
use crem_dataplane::buffer::Platform;
use crem_dataplane::classify::{Side, Station, View};
use crem_dataplane::control_frames::ControlFrames;
use crem_dataplane::dpdk::{Device, Dpdk, FramePool};
use crem_dataplane::guard::Remake;
use crem_dataplane::inband::Inband;
use crem_dataplane::metering::Metered;
use crem_dataplane::metering::ring::Inlet;
use crem_dataplane::protect::{Protection, Share};
use crem_dataplane::segment::{Parts, Segment};
use crem_dataplane::snapshot::SegmentSnapshot;
use crem_dataplane::team::Outlet;
use crem_dpdk::{Batch, Eal, EalConfig, Memory, Mempool, MempoolConfig, Port, PortConfig, vdev};
use crem_fec::Engine;
use crem_wire::frame::{Mac, ParseConfig, Tags, UdpFrame};
use crem_wire::roce::{Bth, Opcode, UDP_PORT};
use crem_wire::{Psn, Qpn};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const FRAMES: u32 = 24;
const TURNS: u64 = 2000;

const DOCUMENT: &str = r#"
    version = 1
    [segments.a]
    mode = "active"
    crem_port = 4801
    path_mtu = 1500
    rdma_mtu = 1024
    lan = { vdev = "net_ring0" }
    wan = { vdev = "net_ring1" }
    served = { "10.0.1.0/24" = {} }
    peers = { "10.0.2.0/24" = { address = "192.0.2.2" } }
    inband = { address = "192.0.2.1/24" }

    [ipfix]
    domain = 1
    pen = 32473
    first_element = 1
    [ipfix.scopes.all]
    source = "10.0.0.0/8"
    destination = "10.0.0.0/8"
    [ipfix.points.lan-in]
    segment = "a"
    place = "lan_ingress"
    base = 100
    packets = { select = "all" }
    flows = true
    sequence = true
    [ipfix.points.wan-out]
    segment = "a"
    place = "wan_egress"
    base = 200
    packets = { select = "all" }
    flows = true
    sequence = true
    [ipfix.points.lan-out]
    segment = "a"
    place = "lan_egress_before_repair"
    base = 300
    packets = { select = "all" }
    [ipfix.connections.all]
    source = "10.0.0.0/8"
    destination = "10.0.0.0/8"
    only_send_and_write = true
    complete_and_unambiguous = true
    packets_per_s = 1000
    longest_retry_ms = 1000
    [ipfix.collectors.c]
    transport = "tcp"
    host = "127.0.0.1"
    packets = true
    sequence = false
"#;

fn packet(psn: u32) -> Vec<u8> {
    let headers = UdpFrame {
        destination_mac: Mac([2, 0, 0, 0, 0, 2]),
        source_mac: Mac([2, 0, 0, 0, 0, 1]),
        tags: Tags::NONE,
        source: "10.0.1.1:50000".parse::<SocketAddr>().unwrap(),
        destination: format!("10.0.2.1:{UDP_PORT}").parse().unwrap(),
        tos: 2,
        ttl: 64,
        ident: 0,
        dont_fragment: true,
        udp_checksum: false,
    };
    let bth = Bth {
        opcode: Opcode::SEND_MIDDLE,
        octet1: 0,
        pkey: 0xffff,
        octet4: 0,
        dest_qp: Qpn::new(0x11),
        octet8: 0,
        psn: Psn::new(psn),
    };
    let mut frame = vec![0; headers.header_len() + Bth::LEN + 1024 + 4];
    bth.write(&mut frame[headers.header_len()..]);
    headers.write(&mut frame).unwrap();
    frame
}

fn open(eal: &Eal, name: &str, pool: &Mempool, frames: u32) -> <Dpdk as Platform>::Port {
    let port = Port::open(eal, name, &PortConfig::default(), pool).unwrap();
    let mut batch = Batch::<32>::new();
    for psn in 0..frames {
        batch.push(pool.alloc_from(&packet(psn)).unwrap()).unwrap();
    }
    port.tx_queue(0).unwrap().burst(&mut batch);
    assert!(batch.is_empty());
    Outlet::Queue(Device::new(port).unwrap())
}

/// A segment whose ports are loops and hold `FRAMES` frames.
fn segment(
    eal: &Eal,
    pool: &Mempool,
    ports: [&str; 3],
    active: bool,
    metered: bool,
) -> (Segment<Dpdk>, Receiver<Inlet>) {
    let document = parse(DOCUMENT, Syntax::Toml).unwrap();
    let (setup, inlets) = Metered::new(&document, 0);
    let wanted = setup.plan(&document).unwrap();
    let config = document.segments.into_values().next().unwrap();
    let station = Station {
        address: "192.0.2.1".parse().unwrap(),
        mac: Mac([2, 0, 0, 0, 0, 9]),
        vlan: None,
    };
    let view = View {
        parse: ParseConfig {
            crem_port: Some(4801),
            vxlan_port: None,
        },
        served: config.served.keys().copied().collect(),
        own: Some(station),
        watched: false,
        active,
        responses: false,
        learn: false,
        verify_sources: false,
        control: ControlFrames::default(),
        networks: Vec::new(),
        cut_from: [usize::MAX; 2],
    };
    let [lan, wan, tap] = ports;
    let mut inband = Inband::new(station, open(eal, tap, pool, 0), Side::Wan, Instant(0));
    inband.set_next_hop("192.0.2.2".parse().unwrap(), Some(Mac([2, 0, 0, 0, 0, 8])));
    let seen = view.clone();
    let remake: Remake<Dpdk> = Box::new(move || {
        Some(Protection::new(
            &config,
            station.address,
            &seen,
            Engine::scalar(),
            [7; 32],
            Share::ALONE,
        ))
    });
    let mut segment = Segment::new(Parts {
        mode: Mode::Active,
        view,
        lan: open(eal, lan, pool, FRAMES),
        wan: open(eal, wan, pool, 0),
        pool: FramePool(pool.clone()),
        inband: Some(inband),
        wan_rate: None,
        remake: active.then_some(remake),
    });
    // Nobody empties the ring: after a while records are lost.
    if metered {
        let mut changes = setup.changes(&wanted, 0).unwrap();
        segment.observe(Instant(0), &mut changes[0]);
    }
    (segment, inlets)
}

/// Frames received and allocations in `TURNS` turns after as many for warming up.
fn measure(segment: &mut Segment<Dpdk>) -> (u64, usize) {
    let now = Cell::new(0);
    let clock = || {
        now.set(now.get() + 1000);
        Instant(now.get())
    };
    let mut before = SegmentSnapshot::default();
    let mut after = SegmentSnapshot::default();
    (0..TURNS).for_each(|_| {
        segment.turn(&clock);
    });
    segment.describe(&mut before);
    let region = Region::new(ALLOCATOR);
    (0..TURNS).for_each(|_| {
        segment.turn(&clock);
    });
    let change = region.change();
    segment.describe(&mut after);
    let received = |s: &SegmentSnapshot| s.counters.lan.rx_frames + s.counters.wan.rx_frames;
    (
        received(&after) - received(&before),
        change.allocations + change.reallocations,
    )
}

#[test]
fn a_packet_allocates_nothing_after_warm_up() {
    let names = [
        "net_ring0",
        "net_ring1",
        "net_ring2",
        "net_ring3",
        "net_ring4",
        "net_ring5",
        "net_ring6",
        "net_ring7",
        "net_ring8",
    ];
    let eal = Eal::init(EalConfig {
        memory: Memory::NoHuge { mb: 64 },
        vdevs: names.iter().map(|name| vdev::ring(name)).collect(),
        ..EalConfig::default()
    })
    .unwrap();
    let config = MempoolConfig {
        count: 2047,
        ..MempoolConfig::default()
    };
    let pool = eal.mempool(&config).unwrap();
    let cases = [
        (&names[..3], false, false),
        (&names[3..6], true, false),
        (&names[6..], true, true),
    ];
    for (ports, active, metered) in cases {
        let ports = ports.try_into().unwrap();
        let (mut segment, _inlets) = segment(&eal, &pool, ports, active, metered);
        let (frames, allocations) = measure(&mut segment);
        assert!(
            frames >= TURNS * u64::from(FRAMES),
            "{frames} frames, active {active}"
        );
        assert_eq!(
            allocations, 0,
            "for {frames} frames, active {active}, metered {metered}"
        );
    }
    drop(pool);
    // The frames are still in the rings, so the memory stays until the process ends.
    assert!(eal.shutdown().is_err());
}
