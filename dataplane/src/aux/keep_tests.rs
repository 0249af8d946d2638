//! Against the kernel, in a network namespace of the test's own; the rest in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

use crem_api::{Inband, MacAddr, Side};
use nix::sched::{CloneFlags, unshare};
use rtnetlink::packet_route::address::AddressMessage;

use super::*;
use crate::snapshot::SegmentSnapshot;

fn station(address: &str, gateway: &str) -> KernelStation {
    KernelStation {
        segment: 2,
        interface: "crem-a".to_owned(),
        inband: Inband {
            address: address.parse().unwrap(),
            mac: None,
            vlan: None,
            port: Side::Wan,
            gateway: Some(gateway.parse().unwrap()),
        },
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        mtu: 1400,
        peers: Vec::new(),
    }
}

/// Runs `ip` and gives what it says.
fn ip(arguments: &str) -> String {
    let out = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .unwrap();
    assert!(out.status.success(), "ip {arguments}: {out:?}");
    String::from_utf8(out.stdout).unwrap()
}

/// In a namespace with a dummy of an in-band interface, on a thread of its own. `false` where that is not allowed.
fn in_namespace(what: impl AsyncFnOnce(Handle, u32) + Send + 'static) -> bool {
    let thread = std::thread::spawn(move || {
        if unshare(CloneFlags::CLONE_NEWNET).is_err() {
            return false;
        }
        ip("link add crem-a type veth peer name far");
        ip("link set far up");
        let index = crem_dpdk::iface::index("crem-a").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection().unwrap();
            tokio::spawn(connection);
            what(handle, index).await;
        });
        true
    });
    thread.join().unwrap()
}

fn try_one(address: &'static str, gateway: &'static str, family: &'static str) {
    let ran = in_namespace(async move |handle, index| {
        let station = station(address, gateway);
        let all = [Part::Link, Part::Address, Part::Route, Part::Rule];
        let put = async || furnish(&handle, index, &station).await.unwrap();
        assert_eq!(put().await, all);
        assert_eq!(put().await, [], "all is there");
        ip(&format!("{family} rule del lookup {}", FIRST_TABLE + 2));
        assert_eq!(put().await, [Part::Rule]);
        ip(&format!(
            "{family} route del default table {}",
            FIRST_TABLE + 2
        ));
        assert_eq!(put().await, [Part::Route]);
        // The route goes with the address, or stays, by family.
        ip(&format!("address del {address} dev crem-a"));
        assert!(put().await.contains(&Part::Address));
        ip("link set crem-a mtu 1300");
        assert_eq!(put().await, [Part::Link]);
        ip("link set crem-a down");
        assert_eq!(put().await.first(), Some(&Part::Link));
        // What somebody added stays.
        let more = if family == "-6" {
            "fd99::9/64"
        } else {
            "192.0.2.9/24"
        };
        ip(&format!("address add {more} dev crem-a"));
        assert_eq!(put().await, []);
        let shown = ip(&format!("{family} address show dev crem-a"));
        assert!(shown.contains(address) && shown.contains(more), "{shown}");
        let rules = ip(&format!("{family} rule show"));
        let ours = rules.lines().filter(|rule| rule.contains("4803"));
        assert_eq!(ours.count(), 1, "{rules}");
    });
    if !ran {
        println!("skipped: no network namespace can be made");
    }
}

#[test]
fn what_somebody_removed_is_put_back_and_what_is_there_is_left_alone() {
    try_one("198.51.100.1/24", "198.51.100.254", "-4");
}

#[test]
fn the_same_with_ipv6() {
    try_one("fd77::1/64", "fd77::fe", "-6");
}

#[test]
fn only_what_is_gone_from_our_own_interfaces_calls_for_a_look() {
    let ours = [(7, 2)];
    let address = |index| {
        let mut message = AddressMessage::default();
        message.header.index = index;
        RouteNetlinkMessage::DelAddress(message)
    };
    assert!(takes_away(&address(7), ours) && !takes_away(&address(8), ours));
    let link = |flags| {
        let mut message = LinkMessage::default();
        (message.header.index, message.header.flags) = (7, flags);
        RouteNetlinkMessage::NewLink(message)
    };
    assert!(takes_away(&link(LinkFlags::empty()), ours) && !takes_away(&link(LinkFlags::Up), ours));
    let rule = |table| {
        let mut message = rtnetlink::packet_route::rule::RuleMessage::default();
        message.attributes.push(RuleAttribute::Table(table));
        RouteNetlinkMessage::DelRule(message)
    };
    assert!(takes_away(&rule(FIRST_TABLE + 2), ours) && !takes_away(&rule(FIRST_TABLE), ours));
}

#[test]
fn what_was_put_back_is_counted_by_segment() {
    let put_back = PutBack::new([0, 2]);
    put_back.note(
        &station("198.51.100.1/24", "198.51.100.254"),
        &[Part::Address, Part::Route],
    );
    put_back.note(&station("198.51.100.1/24", "198.51.100.254"), &[]);
    let mut snapshot = Snapshot::default();
    snapshot.segments.resize_with(3, SegmentSnapshot::default);
    put_back.complete(&mut snapshot);
    let counts: Vec<_> = snapshot
        .segments
        .iter()
        .map(|segment| segment.counters.inband.put_back)
        .collect();
    assert_eq!(counts, [0, 0, 2]);
}
