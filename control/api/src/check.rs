//! What values of a document must fulfil together. Each finding points at the value to change and names
//! both numbers.

use std::collections::BTreeMap;

use crate::document::Document;
use crate::net::Prefix;
use crate::policy::Hold;
use crate::read::{Code, Issue, Issues};
use crate::segment::{Device, Inband, Mode, Segment, SegmentId};
use crate::vxlan::Vxlan;

/// Octets that a source symbol adds to the RDMA MTU: length prefix 2, BTH 12, RETH 16, immediate data 4,
/// ICRC 4.
const SYMBOL_OVER_RDMA_MTU: u16 = 38;
/// Common header and REPAIR fields.
const REPAIR_FIXED: u16 = 20;
const UDP_HEADER: u16 = 8;
/// Ports that RoCEv2, VXLAN and IPFIX have in every domain.
const TAKEN_PORTS: &[u16] = &[ROCE_PORT, 4789, 4739];
const ROCE_PORT: u16 = 4791;

/// Octets of UDP payload that the largest source has beside RDMA payload: BTH, RETH, immediate data, ICRC.
const SOURCE_OVER_RDMA_MTU: u16 = SYMBOL_OVER_RDMA_MTU - 2;

/// IP MTU that the largest REPAIR needs: the RETX form with both bitmaps.
fn needed_mtu(segment: &Segment, ipv6: bool) -> u16 {
    let bitmaps = 8 * u16::from(segment.policy.k).div_ceil(32);
    let ip = if ipv6 { 40 } else { 20 };
    segment.rdma_mtu + SYMBOL_OVER_RDMA_MTU + REPAIR_FIXED + bitmaps + UDP_HEADER + ip
}

struct Check<'a> {
    issues: &'a Issues,
    at: String,
}

impl Check<'_> {
    fn say(&self, place: &str, found: impl Into<String>, expected: impl Into<String>) {
        self.issues
            .push(Issue::new(format!("{}{place}", self.at), found, expected));
    }

    fn say_limit(
        &self,
        place: &str,
        (code, limit): (Code, u64),
        found: impl Into<String>,
        expected: impl Into<String>,
    ) {
        let pointer = format!("{}{place}", self.at);
        self.issues
            .push(Issue::new(pointer, found, expected).limited(code, limit));
    }

    fn say_at(&self, map: &str, key: &Prefix, found: String, expected: String) {
        let key = key.to_string().replace('/', "~1");
        self.say(&format!("/{map}/{key}"), found, expected);
    }
}

/// Notes every contradiction of a document whose single values are all legal.
pub(crate) fn document(document: &Document, issues: &Issues) {
    for (id, segment) in &document.segments {
        let check = Check {
            issues,
            at: format!("/segments/{id}"),
        };
        policy(segment, &check);
        crate::link::check(id.as_str(), segment, issues);
        addresses(segment, &check);
        if matches!(segment.mode, Mode::Active | Mode::Monitor) {
            served(segment, &check);
        }
        if segment.mode == Mode::Active {
            active(segment, &check);
        }
    }
    devices(document, issues);
    between_segments(document, issues);
    crate::ipfix::check::ipfix(document, issues);
    if let Some(management) = &document.management {
        management.check(issues);
    }
}

/// Flows are told by the hosts that they come from or go to.
fn served(segment: &Segment, check: &Check<'_>) {
    if segment.served.is_empty() {
        let expected = format!("at least one prefix in mode {:?}", segment.mode.name());
        check.say("/served", "no prefix", expected);
    }
}

fn active(segment: &Segment, check: &Check<'_>) {
    if segment.peers.is_empty() && segment.allowed_peers.is_empty() {
        check.say(
            "/allowed_peers",
            "neither peers nor allowed_peers",
            "at least one entry in either in mode \"active\"",
        );
    }
    let Some(inband) = &segment.inband else {
        check.say(
            "/inband",
            "nothing",
            "a table with the in-band address in mode \"active\"",
        );
        return;
    };
    if let Some(vxlan) = &segment.vxlan {
        tunnels(segment, vxlan, check);
    }
    let ipv6 = inband.address.address().is_ipv6();
    let needed = needed_mtu(segment, ipv6);
    if segment.path_mtu < needed {
        check.say_limit(
            "/path_mtu",
            (Code::TooSmall, needed.into()),
            segment.path_mtu.to_string(),
            format!(
                "at least {needed} octets, which the repair message needs over {} at rdma_mtu {} \
                 and k {}",
                if ipv6 { "IPv6" } else { "IPv4" },
                segment.rdma_mtu,
                segment.policy.k
            ),
        );
    }
}

/// Flows inside of tunnels: their packets have to fit the path in their tunnel, and their addresses are
/// none that a HELLO could be sent to.
fn tunnels(segment: &Segment, vxlan: &Vxlan, check: &Check<'_>) {
    let ipv6 = segment.served.keys().any(|p| p.address().is_ipv6());
    let ip: u16 = if ipv6 { 40 } else { 20 };
    let inner = segment.rdma_mtu + SOURCE_OVER_RDMA_MTU + UDP_HEADER + ip;
    let needed = inner + vxlan.overhead;
    if segment.path_mtu < needed {
        check.say_limit(
            "/path_mtu",
            (Code::TooSmall, needed.into()),
            segment.path_mtu.to_string(),
            format!(
                "at least {needed} octets, which packets of rdma_mtu {} need in VXLAN: {inner} and {} \
                 around them",
                segment.rdma_mtu, vxlan.overhead
            ),
        );
    }
    if segment.peers.is_empty() {
        check.say(
            "/peers",
            "no entry beside vxlan",
            "the gateway that serves the hosts inside of tunnels: no HELLO reaches their own addresses",
        );
    }
}

fn policy(segment: &Segment, check: &Check<'_>) {
    let p = &segment.policy;
    if p.k > p.k_max {
        let expected = format!("at most k_max, which is {}", p.k_max);
        check.say_limit(
            "/policy/k",
            (Code::TooLarge, p.k_max.into()),
            p.k.to_string(),
            expected,
        );
    }
    if p.m_min > p.m_max {
        let expected = format!("at most m_max, which is {}", p.m_max);
        check.say_limit(
            "/policy/m_min",
            (Code::TooLarge, p.m_max.into()),
            p.m_min.to_string(),
            expected,
        );
    }
    if let (Hold::Fixed(hold), Some(timeout)) = (p.hold_ns, p.rnic_timeout_ns)
        && hold >= timeout
    {
        let expected = format!("less than rnic_timeout_ns, which is {timeout}");
        let limit = (Code::TooLarge, timeout - 1);
        check.say_limit("/policy/hold_ns", limit, hold.to_string(), expected);
    }
    if let Some(vxlan) = &segment.vxlan
        && (vxlan.port == segment.crem_port || vxlan.port == ROCE_PORT)
    {
        let expected = "a port other than crem_port and that of RoCEv2";
        check.say("/vxlan/port", vxlan.port.to_string(), expected);
    }
    if TAKEN_PORTS.contains(&segment.crem_port) {
        let expected = "a port other than those of RoCEv2, VXLAN and IPFIX";
        check.say("/crem_port", segment.crem_port.to_string(), expected);
    }
}

fn addresses(segment: &Segment, check: &Check<'_>) {
    overlaps(&segment.served, check);
    for (remote, peer) in &segment.peers {
        if let Some(own) = segment.served.keys().find(|own| own.overlaps(remote)) {
            check.say_at(
                "peers",
                remote,
                format!("a remote prefix that overlaps the served prefix {own}"),
                "prefixes that are not served here".to_owned(),
            );
        }
        if segment
            .inband
            .as_ref()
            .is_some_and(|i| i.address.address() == peer.address)
        {
            check.say_at(
                "peers",
                remote,
                format!("the own in-band address {} as peer", peer.address),
                "the in-band address of another gateway".to_owned(),
            );
        }
    }
    if let Some(inband) = &segment.inband {
        next_hops(segment, inband, check);
    }
}

fn overlaps<V>(served: &BTreeMap<Prefix, V>, check: &Check<'_>) {
    for (n, prefix) in served.keys().enumerate() {
        if let Some(other) = served.keys().take(n).find(|other| other.overlaps(prefix)) {
            let found = format!("a prefix that overlaps {other}");
            check.say_at(
                "served",
                prefix,
                found,
                "prefixes that do not overlap".to_owned(),
            );
        }
    }
}

fn next_hops(segment: &Segment, inband: &Inband, check: &Check<'_>) {
    let own = inband.address;
    for (remote, peer) in &segment.peers {
        if own.address().is_ipv4() != peer.address.is_ipv4() {
            let expected = format!("an address of the family of inband.address {own}");
            check.say_at("peers", remote, format!("peer {}", peer.address), expected);
        }
    }
    if let Some(gateway) = inband.gateway {
        if !own.contains(gateway) || gateway == own.address() {
            let expected = format!("another address inside {own}");
            check.say("/inband/gateway", gateway.to_string(), expected);
        }
        return;
    }
    for (remote, peer) in &segment.peers {
        let on_link =
            Prefix::new(peer.address, own.length()).filter(|_| own.contains(peer.address));
        if on_link.is_some_and(|p| !p.is_station()) {
            let found = format!(
                "peer {}, the network's own or broadcast address",
                peer.address
            );
            check.say_at(
                "peers",
                remote,
                found,
                format!("a station's address inside {own}"),
            );
        }
    }
    for (remote, peer) in &segment.peers {
        let same_family = own.address().is_ipv4() == peer.address.is_ipv4();
        if same_family && !own.contains(peer.address) {
            check.say_at(
                "peers",
                remote,
                format!("peer {} and no inband.gateway", peer.address),
                format!("a peer inside {own}, or an inband.gateway to reach it"),
            );
        }
    }
}

fn devices(document: &Document, issues: &Issues) {
    // An interface is one device, however it is reached.
    let same = |a: &Device, b: &Device| {
        let interface = a.kernel_interface();
        a == b || interface.is_some() && interface == b.kernel_interface()
    };
    let mut seen: Vec<(&Device, String)> = Vec::new();
    for (id, segment) in &document.segments {
        for (side, device) in [("lan", &segment.lan), ("wan", &segment.wan)] {
            let place = format!("/segments/{id}/{side}");
            match seen.iter().find(|(other, _)| same(other, device)) {
                Some((_, other)) => issues.push(Issue::new(
                    place,
                    format!("{:?}, which {other} uses too", device.name()),
                    "a device of its own for each port",
                )),
                None => seen.push((device, place)),
            }
        }
    }
}

fn between_segments(document: &Document, issues: &Issues) {
    let mut before: Vec<(&SegmentId, &Segment)> = Vec::new();
    for (id, segment) in &document.segments {
        let check = Check {
            issues,
            at: format!("/segments/{id}"),
        };
        for (other_id, other) in &before {
            let inband = |s: &Segment| s.inband.as_ref().map(|i| i.address.address());
            if inband(segment).is_some() && inband(segment) == inband(other) {
                let found = format!("the address that segment {other_id} has too");
                check.say(
                    "/inband/address",
                    found,
                    "an address of its own for each segment",
                );
            }
            for prefix in segment.served.keys() {
                if let Some(own) = other.served.keys().find(|own| own.overlaps(prefix)) {
                    let found = format!("a prefix that overlaps {own} of segment {other_id}");
                    let expected = "prefixes that no other segment serves".to_owned();
                    check.say_at("served", prefix, found, expected);
                }
            }
        }
        before.push((id, segment));
    }
}
