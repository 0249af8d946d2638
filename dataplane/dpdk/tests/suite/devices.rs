//! Ports on devices without a kernel interface.

use crem_dpdk::{
    Batch, Error, LinkFec, LinkSettings, LinkTold, MempoolConfig, Pause, Port, PortConfig,
    PriorityFlowControl, QueuesTold, Told, Vdev, vdev,
};

use super::{Case, World};

pub(super) const CASES: &[Case] = &[
    (
        "devices::null_receives_and_swallows",
        null_receives_and_swallows,
    ),
    (
        "devices::ring_gives_back_the_same",
        ring_gives_back_the_same,
    ),
    ("devices::what_is_not_sent_stays", what_is_not_sent_stays),
    (
        "devices::each_thing_has_one_owner",
        each_thing_has_one_owner,
    ),
    ("devices::several_queues", several_queues),
    (
        "devices::an_empty_pool_is_no_fault",
        an_empty_pool_is_no_fault,
    ),
    (
        "devices::a_link_that_a_driver_does_not_offer_is_told",
        a_link_that_a_driver_does_not_offer_is_told,
    ),
    (
        "devices::what_a_driver_does_not_have_is_told_without_being_set",
        what_a_driver_does_not_have_is_told_without_being_set,
    ),
    (
        "devices::failed_probe_names_the_interface",
        failed_probe_names_the_interface,
    ),
    ("devices::pcap_goes_in_and_out", pcap_goes_in_and_out),
];

/// Classic little-endian pcap, Ethernet, one frame of 60 octets.
fn one_frame_capture() -> Vec<u8> {
    let mut f = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1, 0, 0, 60, 60] {
        f.extend_from_slice(&word.to_le_bytes());
    }
    f.extend((0..60).map(|i| i * 3));
    f
}

fn capture(which: &str) -> String {
    let file = format!("crem-dpdk-{}-{which}.pcap", std::process::id());
    std::env::temp_dir().join(file).to_str().unwrap().to_owned()
}

pub(super) fn vdevs() -> Vec<Vdev> {
    std::fs::write(capture("in"), one_frame_capture()).unwrap();
    vec![
        vdev::null("net_null0", 200, true),
        vdev::sink("net_null1"),
        vdev::ring("net_ring0"),
        vdev::ring("net_ring1"),
        vdev::null("net_null2", 64, false),
        vdev::null("net_null3", 64, false),
        vdev::null("net_null4", 64, false),
        vdev::pcap("net_pcap0", &capture("in"), &capture("out")),
        // Past the check that `af_packet` makes before the start.
        Vdev::new("net_af_packet9", "iface=nope0"),
        vdev::null("net_null5", 64, false),
        vdev::ring("net_ring2"),
    ]
}

fn open(w: &World, name: &str) -> Port {
    Port::open(&w.eal, name, &PortConfig::default(), &w.small).unwrap()
}

fn null_receives_and_swallows(w: &World) {
    let (source, sink) = (open(w, "net_null0"), open(w, "net_null1"));
    let (mut rx, mut tx) = (source.rx_queue(0).unwrap(), sink.tx_queue(0).unwrap());
    assert_eq!((rx.port_name(), tx.port_name()), ("net_null0", "net_null1"));
    let mut batch = Batch::<32>::new();
    let mut kept = Vec::new();
    for _ in 0..100 {
        assert_eq!(rx.burst(&mut batch), 32);
        assert!(
            batch
                .iter()
                .all(|m| m.len() == 200 && m.port() == source.id())
        );
        assert_eq!(rx.burst(&mut batch), 0, "the batch is full");
        kept.push(batch[7].share());
        assert_eq!(tx.burst(&mut batch), 32);
        assert!(batch.is_empty());
        assert_eq!(tx.burst(&mut batch), 0);
    }
    assert_eq!(w.small.in_use(), 100);
    assert!(kept.iter().all(|m| m.refcnt() == 1));
    let (got, sent) = (source.stats().unwrap(), sink.stats().unwrap());
    // This driver counts no octets.
    assert_eq!(
        (got.rx_packets, got.rx_errors, got.rx_no_mbuf),
        (3200, 0, 0)
    );
    assert_eq!((sent.tx_packets, sent.rx_packets), (3200, 0));
    assert_eq!(source.info().unwrap().driver, "net_null");
    assert!(sink.link().unwrap().mbps.is_some());
    assert_ne!(source.mac().unwrap(), [0; 6]);
}

fn ring_gives_back_the_same(w: &World) {
    let port = open(w, "net_ring0");
    let (mut rx, mut tx) = (port.rx_queue(0).unwrap(), port.tx_queue(0).unwrap());
    let mut batch = Batch::<32>::new();
    for seed in 0..32 {
        batch
            .push(w.small.alloc_from(&[seed; 60]).unwrap())
            .unwrap();
    }
    let ids: Vec<usize> = batch.iter().map(|m| m.id()).collect();
    let held = batch[3].share();
    assert_eq!(tx.burst(&mut batch), 32);
    assert!(batch.is_empty());
    assert_eq!(rx.burst(&mut batch), 32);
    assert_eq!(batch.iter().map(|m| m.id()).collect::<Vec<_>>(), ids);
    assert_eq!((batch[3].refcnt(), held.refcnt()), (2, 2));
    assert!(batch[3].data_mut().is_err(), "the sender still holds it");
    drop(held);
    assert!(batch[3].data_mut().is_ok());
    assert_eq!(batch[31].data(), [31; 60]);
}

fn what_is_not_sent_stays(w: &World) {
    // A ring port takes 1,023 and then no more.
    let port = open(w, "net_ring1");
    let mut tx = port.tx_queue(0).unwrap();
    let (mut sent, mut serial) = (0, 0_u16);
    let rest = loop {
        let mut batch = Batch::<32>::new();
        while batch.spare() > 0 {
            batch
                .push(w.small.alloc_from(&serial.to_be_bytes()).unwrap())
                .unwrap();
            serial += 1;
        }
        let n = tx.burst(&mut batch);
        sent += n;
        assert_eq!(n + batch.len(), 32);
        if n < 32 {
            break batch;
        }
    };
    assert_eq!(sent, 1023);
    assert_eq!(rest.len(), 1);
    assert_eq!(
        rest[0].data(),
        1023_u16.to_be_bytes(),
        "the first that was not sent"
    );
    let mut rx = port.rx_queue(0).unwrap();
    let mut batch = Batch::<32>::new();
    while rx.burst(&mut batch) > 0 {
        batch.clear();
    }
}

fn each_thing_has_one_owner(w: &World) {
    let port = open(w, "net_null2");
    let again = Port::open(&w.eal, "net_null2", &PortConfig::default(), &w.small);
    assert!(matches!(again, Err(Error::InUse { .. })), "{again:?}");
    let rx = port.rx_queue(0).unwrap();
    assert!(matches!(port.rx_queue(0), Err(Error::InUse { .. })));
    assert!(matches!(port.rx_queue(1), Err(Error::Argument { .. })));
    assert!(port.tx_queue(0).is_ok());
    drop(rx);
    let mut rx = port.rx_queue(0).unwrap();
    drop(port);
    let mut batch = Batch::<8>::new();
    assert_eq!(rx.burst(&mut batch), 8, "a queue keeps its port running");
    drop(rx);
    let closed = Port::open(&w.eal, "net_null2", &PortConfig::default(), &w.small);
    assert!(matches!(closed, Err(Error::NoPort { .. })), "{closed:?}");
    let none = Port::open(&w.eal, "net_none0", &PortConfig::default(), &w.small);
    assert!(matches!(none, Err(Error::NoPort { .. })));
    let nul = Port::open(&w.eal, "net\0null", &PortConfig::default(), &w.small);
    assert!(matches!(nul, Err(Error::NoPort { .. })));
}

fn several_queues(w: &World) {
    let two = PortConfig {
        rx_queues: 2,
        ..PortConfig::default()
    };
    let port = Port::open(&w.eal, "net_pcap0", &two, &w.small);
    let text = port.unwrap_err().to_string();
    assert!(
        text.contains("receive queues") && text.contains("1 to 1"),
        "{text}"
    );
}

fn an_empty_pool_is_no_fault(w: &World) {
    let config = MempoolConfig {
        name: "empty",
        count: 40,
        room: 2176,
        cache: 0,
        socket: None,
    };
    let pool = w.eal.mempool(&config).unwrap();
    let port = Port::open(&w.eal, "net_null3", &PortConfig::default(), &pool).unwrap();
    let mut rx = port.rx_queue(0).unwrap();
    let (mut first, mut second) = (Batch::<32>::new(), Batch::<32>::new());
    assert_eq!(rx.burst(&mut first), 32);
    assert_eq!(
        rx.burst(&mut second),
        0,
        "8 are left and the driver takes all or none"
    );
    drop(first);
    assert_eq!(rx.burst(&mut second), 32, "goes on when they are back");
}

fn failed_probe_names_the_interface(w: &World) {
    let e = Port::open(&w.eal, "net_af_packet9", &PortConfig::default(), &w.small).unwrap_err();
    let text = e.to_string();
    assert!(
        text.contains("net_af_packet9") && text.contains("nope0"),
        "{text}"
    );
    assert!(text.contains("DPDK said"), "{text}");
}

fn pcap_goes_in_and_out(w: &World) {
    let port = open(w, "net_pcap0");
    let (mut rx, mut tx) = (port.rx_queue(0).unwrap(), port.tx_queue(0).unwrap());
    let mut batch = Batch::<32>::new();
    assert_eq!(rx.burst(&mut batch), 1);
    assert_eq!(batch[0].data(), (0..60).map(|i| i * 3).collect::<Vec<u8>>());
    assert_eq!(tx.burst(&mut batch), 1);
    drop((rx, tx, port));
    let written = std::fs::read(capture("out")).unwrap();
    assert!(written.ends_with(&one_frame_capture()[40..]));
    std::fs::remove_file(capture("in")).unwrap();
    std::fs::remove_file(capture("out")).unwrap();
}

/// What a driver cannot do is told, and the port opens all the same.
fn a_link_that_a_driver_does_not_offer_is_told(w: &World) {
    let pause = Pause {
        priorities: 1 << 3,
        high_water_kib: 80,
        low_water_kib: 40,
        quanta: 100,
    };
    let config = PortConfig {
        link: LinkSettings {
            autonegotiation: Some(false),
            speed_mbit: Some(400_000),
            fec: Some(LinkFec::Rs),
            pause: Some(pause),
        },
        ..PortConfig::default()
    };
    let port = Port::open(&w.eal, "net_null4", &config, &w.small).unwrap();
    let told = port.link_not_applied();
    assert_eq!(told.len(), 3, "{told:?}");
    for (said, what) in told
        .iter()
        .zip(["speed_mbit: ", "fec: ", "pause of priority 3: "])
    {
        assert!(said.starts_with(what), "{told:?}");
    }
    // It was tried.
    let link = port.link_told();
    assert_eq!(link.priority_flow_control, PriorityFlowControl::NotOffered);
    let info = port.info().unwrap();
    assert_eq!(info.driver, "net_null");
    let used = info.offloads_used.iter();
    assert!(
        used.clone().all(|name| info.offloads.contains(name)),
        "{info:?}"
    );
    assert!(
        info.offloads
            .iter()
            .all(|n| n.starts_with("rx_") || n.starts_with("tx_"))
    );
}

/// Of flow control and FEC of a device that has neither.
pub(super) fn assert_nothing_offered(link: &LinkTold) {
    assert_eq!(link.flow_control, Told::NotOffered, "{link:?}");
    assert_eq!(link.priority_flow_control, PriorityFlowControl::NotOffered);
    assert_eq!(link.fec, Told::NotOffered, "{link:?}");
    assert_eq!(link.fec_offered, Told::NotOffered, "{link:?}");
}

fn what_a_driver_does_not_have_is_told_without_being_set(w: &World) {
    let config = PortConfig {
        rx_descriptors: 512,
        tx_descriptors: 256,
        ..PortConfig::default()
    };
    for name in ["net_null5", "net_ring2"] {
        let port = Port::open(&w.eal, name, &config, &w.small).unwrap();
        assert_nothing_offered(&port.link_told());
        assert!(port.link_not_applied().is_empty());
        // Neither tells of descriptors.
        let queues = |asked| QueuesTold {
            queues: 1,
            asked,
            descriptors: None,
        };
        assert_eq!(port.queues_told(), [queues(512), queues(256)], "{name}");
    }
}
