//! Ports on kernel interfaces of the suite's own network namespace: the two ends of a veth pair, and a
//! tap.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crem_dpdk::{
    Batch, Error, FlowControl, Mbuf, Mempool, MempoolConfig, Port, PortConfig, PriorityFlowControl,
    RxQueue, Told, TxQueue, Vdev, vdev,
};

use super::devices::assert_nothing_offered;
use super::{Case, LARGE_MTU, PATH_MTU, World, ip};

pub(super) const CASES: &[Case] = &[
    ("wire::small_pool_is_refused", small_pool_is_refused),
    ("wire::veth", veth),
    (
        "wire::tap_on_a_thread_of_its_own",
        tap_on_a_thread_of_its_own,
    ),
];

const TAP_MAC: [u8; 6] = [0x02, 0xc4, 0xe3, 0, 0, 1];

pub(super) fn make_interfaces() {
    // Nothing but our own frames on these: no router solicitations.
    for all in ["all", "default"] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{all}/disable_ipv6"), "1").unwrap();
    }
    for pair in ["g", "k"] {
        ip(&format!(
            "link add {pair}0 mtu 9000 type veth peer name {pair}1 mtu 9000"
        ));
        ip(&format!("link set {pair}0 up"));
        ip(&format!("link set {pair}1 up"));
    }
}

pub(super) fn vdevs() -> Vec<Vdev> {
    vec![
        vdev::af_packet("net_af_packet0", "g0", LARGE_MTU, 256),
        vdev::af_packet("net_af_packet1", "g1", PATH_MTU, 256),
        vdev::af_packet("net_af_packet2", "k0", PATH_MTU, 64),
        vdev::tap("net_tap0", "crem0", Some(TAP_MAC)),
    ]
}

fn small_pool_is_refused(w: &World) {
    let e = Port::open(&w.eal, "net_af_packet2", &PortConfig::default(), &w.small).unwrap_err();
    let text = e.to_string();
    assert!(
        matches!(
            e,
            Error::Port {
                call: "rte_eth_rx_queue_setup",
                ..
            }
        ),
        "{text}"
    );
    assert!(text.contains("will not fit"), "{text}");
}

/// A port pair on one veth.
struct Link {
    left: (RxQueue, TxQueue),
    right: (RxQueue, TxQueue),
}

fn veth(w: &World) {
    let open = |name| Port::open(&w.eal, name, &PortConfig::default(), &w.large).unwrap();
    let (left, right) = (open("net_af_packet0"), open("net_af_packet1"));
    for (port, iface) in [(&left, "g0"), (&right, "g1")] {
        let info = port.info().unwrap();
        assert_eq!(info.driver, "net_af_packet");
        assert_eq!(Some(info.if_index), crem_dpdk::iface::index(iface));
        assert!(port.link().unwrap().up && port.promiscuous().unwrap());
        assert_nothing_offered(&port.link_told());
    }
    let ends = |p: &Port| (p.rx_queue(0).unwrap(), p.tx_queue(0).unwrap());
    let mut link = Link {
        left: ends(&left),
        right: ends(&right),
    };
    both_ways(&mut link, w);
    held_stays_intact(&mut link, w);
    several_segments(&mut link, w);
    tags_and_odd_frames(&mut link, w);
    too_long_is_found_cut(&mut link, w);
    fragments_come_reassembled(&mut link, w);
    many(&mut link, w);
    let (l, r) = (left.stats().unwrap(), right.stats().unwrap());
    // Two fragments went in and one frame came out.
    assert_eq!(l.tx_packets, r.rx_packets + 1);
    assert!(r.rx_octets > 4158 && r.rx_no_mbuf == 0);
}

/// An IPv4 frame of `ip_len` octets of IP with a pattern.
fn frame(ip_len: u16, seed: u8) -> Vec<u8> {
    let mut f = [0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x08, 0].to_vec();
    f.extend_from_slice(&[0x45, 0]);
    f.extend_from_slice(&ip_len.to_be_bytes());
    // Do not fragment: the driver has the kernel reassemble what looks like a fragment.
    f.extend_from_slice(&[seed, 0, 0x40, 0]);
    f.extend((8..ip_len).map(|i| (i as u8).wrapping_mul(13).wrapping_add(seed)));
    f
}

fn send(tx: &mut TxQueue, m: Mbuf) {
    let mut batch = Batch::<1>::new();
    batch.push(m).unwrap();
    assert_eq!(tx.burst(&mut batch), 1);
}

fn receive(rx: &mut RxQueue, n: usize) -> Vec<Mbuf> {
    let (mut got, mut batch) = (Vec::new(), Batch::<32>::new());
    let give_up = Instant::now() + Duration::from_secs(2);
    while got.len() < n && Instant::now() < give_up {
        if rx.burst(&mut batch) == 0 {
            thread::sleep(Duration::from_micros(100));
        }
        got.extend(batch.drain());
    }
    assert_eq!(got.len(), n, "frames received");
    got
}

fn both_ways(link: &mut Link, w: &World) {
    let f = frame(4158, 1);
    send(&mut link.left.1, w.large.alloc_from(&f).unwrap());
    assert_eq!(receive(&mut link.right.0, 1)[0].data(), f);
    let f = frame(4158, 2);
    send(&mut link.right.1, w.large.alloc_from(&f).unwrap());
    let got = &receive(&mut link.left.0, 1)[0];
    assert_eq!(got.data(), f);
    assert!(!vdev::is_cut(got.data(), got.len()));
}

fn held_stays_intact(link: &mut Link, w: &World) {
    let f = frame(4158, 3);
    let mut held = w.large.alloc_from(&f).unwrap();
    for _ in 0..3 {
        send(&mut link.left.1, held.share());
        assert_eq!(receive(&mut link.right.0, 1)[0].data(), f);
    }
    assert_eq!((held.refcnt(), held.data()), (1, &f[..]));
    assert!(
        held.data_mut().is_ok(),
        "the driver has given its references back"
    );
}

fn several_segments(link: &mut Link, w: &World) {
    let f = frame(4158, 4);
    let mut chain = w.small.alloc_from(&f[..1400]).unwrap();
    chain
        .chain(w.small.alloc_from(&f[1400..2800]).unwrap())
        .unwrap();
    chain
        .chain(w.small.alloc_from(&f[2800..]).unwrap())
        .unwrap();
    send(&mut link.left.1, chain);
    assert_eq!(receive(&mut link.right.0, 1)[0].data(), f);

    let held = w.large.alloc_from(&f).unwrap();
    let mut payload = held.clone_indirect(&w.small).unwrap();
    payload.trim_front(14).unwrap();
    let mut renewed = w.small.alloc_from(&[0xEE; 12]).unwrap();
    renewed.append(2).unwrap().copy_from_slice(&f[12..14]);
    renewed.chain(payload).unwrap();
    send(&mut link.left.1, renewed);
    let got = receive(&mut link.right.0, 1);
    assert_eq!(got[0].data(), [&[0xEE; 12][..], &f[12..]].concat());
    assert_eq!((held.refcnt(), held.data()), (1, &f[..]));
}

fn tags_and_odd_frames(link: &mut Link, w: &World) {
    let plain = frame(4158, 5);
    let tag = |tpid: u16, tci: u16| [tpid.to_be_bytes(), tci.to_be_bytes()].concat();
    let with = |tags: &[u8]| [&plain[..12], tags, &plain[12..]].concat();
    // Priority 3, VLAN 100; and a provider tag around it, which comes out as 0x8100.
    let one = with(&tag(0x8100, 0x6064));
    let two = with(&[tag(0x88a8, 0x2007), tag(0x8100, 0x6064)].concat());
    let two_out = with(&[tag(0x8100, 0x2007), tag(0x8100, 0x6064)].concat());
    let short = plain[..34].to_vec();
    let pause = [
        &[1, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0x08][..],
        &[1; 46],
    ]
    .concat();
    let pairs = [
        (one.clone(), one),
        (two, two_out),
        (short.clone(), short),
        (pause.clone(), pause),
    ];
    for (sent, expected) in pairs {
        send(&mut link.left.1, w.large.alloc_from(&sent).unwrap());
        assert_eq!(receive(&mut link.right.0, 1)[0].data(), expected);
    }
}

fn too_long_is_found_cut(link: &mut Link, w: &World) {
    let longest = vdev::af_packet_max_frame(PATH_MTU);
    let ip_len = u16::try_from(longest).unwrap() - 14;
    for (ip_len, cut) in [(ip_len, false), (ip_len + 1, true), (6000, true)] {
        let f = frame(ip_len, 6);
        send(&mut link.left.1, w.large.alloc_from(&f).unwrap());
        let got = &receive(&mut link.right.0, 1)[0];
        assert_eq!(vdev::is_cut(got.data(), got.len()), cut, "{ip_len}");
        assert_eq!(got.len(), longest.min(u32::from(ip_len) + 14));
    }
}

/// What `docs/dpdk.md` warns of. Where this fails the driver has learnt better: take the warning out.
fn fragments_come_reassembled(link: &mut Link, w: &World) {
    let whole: Vec<u8> = (0..3000_u16).map(|i| i as u8).collect();
    for (at, more) in [(0, 0x2000), (1504, 0)] {
        let part = &whole[at..whole.len().min(at + 1504)];
        let mut f = frame(u16::try_from(20 + part.len()).unwrap(), 7);
        f[20..22].copy_from_slice(&(more | u16::try_from(at / 8).unwrap()).to_be_bytes());
        f[34..].copy_from_slice(part);
        set_header_checksum(&mut f);
        send(&mut link.left.1, w.large.alloc_from(&f).unwrap());
    }
    let got = &receive(&mut link.right.0, 1)[0];
    assert_eq!(got.data()[34..], whole);
}

fn set_header_checksum(f: &mut [u8]) {
    f[24..26].fill(0);
    let words = f[14..34]
        .chunks(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum = words.sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum + (sum >> 16)) as u16);
    f[24..26].copy_from_slice(&sum.to_be_bytes());
}

fn many(link: &mut Link, w: &World) {
    for round in 0..50_u8 {
        let mut batch = Batch::<32>::new();
        while batch.spare() > 0 {
            let seed = round.wrapping_mul(31).wrapping_add(batch.len() as u8);
            batch
                .push(w.large.alloc_from(&frame(1200, seed)).unwrap())
                .unwrap();
        }
        let expected: Vec<Vec<u8>> = batch.iter().map(|m| m.data().to_vec()).collect();
        assert_eq!(link.left.1.burst(&mut batch), 32);
        let got = receive(&mut link.right.0, 32);
        assert!(
            got.iter().zip(&expected).all(|(g, e)| g.data() == e),
            "in order and intact"
        );
    }
}

/// Polls the tap where the auxiliary thread would: on a thread that is no lcore.
fn tap_on_a_thread_of_its_own(w: &World) {
    let config = MempoolConfig {
        name: "tap",
        count: 255,
        room: 2176,
        cache: 0,
        socket: None,
    };
    let pool = w.eal.mempool(&config).unwrap();
    // This driver keeps an mbuf per descriptor.
    let ports = PortConfig {
        rx_descriptors: 128,
        ..PortConfig::default()
    };
    let mut port = Port::open(&w.eal, "net_tap0", &ports, &pool).unwrap();
    assert_eq!(port.mac().unwrap(), TAP_MAC);
    // This driver has a function for the one and none for the other.
    let link = port.link_told();
    assert_eq!(link.flow_control, Told::Is(FlowControl::Off), "{link:?}");
    assert_eq!(link.fec, Told::NotOffered, "{link:?}");
    assert_eq!(link.priority_flow_control, PriorityFlowControl::NotOffered);
    assert_eq!(
        port.queues_told().map(|q| (q.queues, q.asked)),
        [(1, 128), (1, 1024)]
    );
    ip("addr add 192.0.2.1/24 dev crem0");
    ip("link set crem0 up");
    let (mut rx, mut tx) = (port.rx_queue(0).unwrap(), port.tx_queue(0).unwrap());
    tap_goes_by_its_mtu(&mut port, &mut tx, &pool);
    let polls = thread::spawn(move || answer_one_ping(&mut rx, &mut tx, &pool));
    let ping = Command::new("ping")
        .args(["-c", "1", "-W", "2", "192.0.2.9"])
        .output();
    let ping = ping.expect("ping is installed");
    polls.join().unwrap();
    let said = String::from_utf8_lossy(&ping.stdout);
    assert!(ping.status.success(), "{said}");
    assert!(port.stats().unwrap().rx_packets >= 2);
}

/// A frame that is too long is not taken, and neither is what comes behind it.
fn tap_goes_by_its_mtu(port: &mut Port, tx: &mut TxQueue, pool: &Mempool) {
    assert_eq!(port.mtu(), Ok(1500));
    port.set_mtu(1400).unwrap();
    assert_eq!(
        (port.mtu(), crem_dpdk::iface::mtu("crem0")),
        (Ok(1400), Ok(1400))
    );
    let mut batch = Batch::<2>::new();
    batch.push(pool.alloc_from(&[0; 1500]).unwrap()).unwrap();
    batch.push(pool.alloc_from(&[0; 60]).unwrap()).unwrap();
    assert_eq!((tx.burst(&mut batch), batch.len()), (0, 2));
    batch.drop_front(1);
    assert_eq!((tx.burst(&mut batch), batch.len()), (1, 0));
    assert!(port.set_mtu(u16::MAX).is_err());
    port.set_mtu(1500).unwrap();
}

const PEER_MAC: [u8; 6] = [0x02, 0xc4, 0xe3, 0, 0, 9];

/// Answers ARP for anything and the first echo request.
fn answer_one_ping(rx: &mut RxQueue, tx: &mut TxQueue, pool: &Mempool) {
    let give_up = Instant::now() + Duration::from_secs(2);
    let mut batch = Batch::<8>::new();
    while Instant::now() < give_up {
        rx.burst(&mut batch);
        for m in batch.drain() {
            let f = m.data();
            let echo = f[12..14] == [8, 0] && f[23] == 1 && f[34] == 8;
            if let Some(answer) = if echo { Some(pong(f)) } else { arp_answer(f) } {
                send(tx, pool.alloc_from(&answer).unwrap());
            }
            if echo {
                return;
            }
        }
        thread::sleep(Duration::from_micros(200));
    }
    panic!("no echo request came through the tap");
}

fn arp_answer(f: &[u8]) -> Option<Vec<u8>> {
    (f[12..14] == [8, 6] && f[21] == 1).then(|| {
        let head = [&f[6..12], &PEER_MAC, &f[12..20], &[0, 2]].concat();
        [&head[..], &PEER_MAC, &f[38..42], &f[22..32]].concat()
    })
}

fn pong(f: &[u8]) -> Vec<u8> {
    let mut a = f.to_vec();
    a[..6].copy_from_slice(&f[6..12]);
    a[6..12].copy_from_slice(&PEER_MAC);
    a[26..30].copy_from_slice(&f[30..34]);
    a[30..34].copy_from_slice(&f[26..30]);
    // Echo reply is 8 less in the first octet of a word, so 0x0800 more in the checksum.
    a[34] = 0;
    let sum = u32::from(u16::from_be_bytes([f[36], f[37]])) + 0x0800;
    let sum = (sum & 0xffff) + (sum >> 16);
    a[36..38].copy_from_slice(&(sum as u16).to_be_bytes());
    a
}
