//! Config documents from text: what is accepted, and that every problem of a bad one is told at once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crem_api::{Document, Hold, LinkFec, Mode, Policy, Side, Syntax, parse, to_value};

const EXAMPLE: &str = include_str!("../examples/segment.toml");

fn refused(text: &str) -> Vec<String> {
    let invalid = parse(text, Syntax::Toml).unwrap_err();
    invalid.issues.iter().map(ToString::to_string).collect()
}

/// The example with one line replaced, so that a test says only what it is about.
fn with(line_start: &str, replacement: &str) -> String {
    let mut hits = 0;
    let lines: Vec<&str> = EXAMPLE
        .lines()
        .map(|line| {
            let hit = line.starts_with(line_start);
            hits += usize::from(hit);
            if hit { replacement } else { line }
        })
        .collect();
    assert_eq!(hits, 1, "{line_start}");
    lines.join("\n")
}

fn example() -> Document {
    parse(EXAMPLE, Syntax::Toml).unwrap()
}

#[test]
fn the_example_is_read() {
    let document = example();
    let segment = document.segments.values().next().unwrap();
    assert_eq!(
        (segment.mode, segment.crem_port, segment.path_mtu),
        (Mode::Active, 4801, 4214)
    );
    assert_eq!(segment.lan.name(), "lan0");
    assert_eq!(segment.policy.hold_ns, Hold::Auto);
    assert_eq!(segment.inband.as_ref().unwrap().port, Side::Wan);
    assert!(segment.is_allowed_peer("192.0.2.2".parse().unwrap()));
    assert!(segment.is_allowed_peer("192.0.2.14".parse().unwrap()));
    assert!(!segment.is_allowed_peer("192.0.2.16".parse().unwrap()));
    let (lan, wan) = (&segment.lan_link, &segment.wan_link);
    assert_eq!(
        (lan.speed_mbit, lan.autonegotiation, lan.fec),
        (Some(100_000), Some(false), Some(LinkFec::Rs))
    );
    assert_eq!(
        (wan.speed_mbit, wan.autonegotiation, wan.fec),
        (None, Some(true), None)
    );
    let management = document.management.as_ref().unwrap();
    let (dns, ntp) = (management.dns.as_ref(), management.ntp.as_ref());
    assert_eq!(
        dns.unwrap().servers_in_order(),
        ["192.0.2.53", "2001:db8::53"]
    );
    assert_eq!(dns.unwrap().search_in_order(), ["example.net"]);
    assert_eq!(
        ntp.unwrap().servers_in_order(),
        ["ntp.example.net", "192.0.2.123"]
    );
}

#[test]
fn toml_json_and_the_written_form_are_one() {
    let document = example();
    let value = to_value(&document);
    let json = parse(&value.to_string(), Syntax::Json).unwrap();
    assert_eq!(json, document);
    let again = parse(&toml::to_string(&value).unwrap(), Syntax::Toml).unwrap();
    assert_eq!(again, document);
}

/// A parser that is off by a unit in the last place shows a change that nobody made.
#[test]
fn fractions_come_back_to_the_last_bit() {
    let mut document = example();
    let mut state = 1_u64;
    for _ in 0..2_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let fraction = (state >> 11) as f64 / (1_u64 << 54) as f64;
        let segment = document.segments.values_mut().next().unwrap();
        segment.policy.initial_loss = fraction;
        let text = to_value(&document).to_string();
        let again = parse(&text, Syntax::Json).unwrap();
        let read = again.segments.values().next().unwrap().policy.initial_loss;
        assert_eq!(read.to_bits(), fraction.to_bits(), "{fraction}");
    }
}

// shows: CREM-POL-03, CREM-POL-07, CREM-POL-09
#[test]
fn what_the_example_calls_default_is_the_default() {
    let short: String = EXAMPLE
        .lines()
        .filter(|line| !line.ends_with("# default"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(short.len() < EXAMPLE.len() - 500);
    assert_eq!(parse(&short, Syntax::Toml).unwrap(), example());
}

// shows: CREM-PORT-05
#[test]
fn all_problems_come_at_once() {
    let text = r#"
        version = 2
        colour = "red"
        [segments.a]
        mode = "on"
        lan = { interface = "lan0", pci = "0000:01:00.0" }
        path_mtu = "big"
        served = { "10.0.1.7/24" = {}, "10.0.2.0/24" = { x = 1 } }
        peers = { "10.0.3.0/24" = { address = "224.0.0.1" } }
        [segments.a.inband]
        address = "192.0.2.1/24"
        mac = "03:00:00:00:00:01"
        vlan = 4095
        [segments.a.policy]
        k = 129
        epsilon = 0
        [segments.B]
    "#;
    let port = "found nothing, expected an integer 1 to 65535";
    let device = "found nothing, expected a table";
    let prefix = r#"expected a network such as "10.0.1.0/24", no host bits set"#;
    let expected = [
        "/version: found 2, expected an integer 1 to 1".to_owned(),
        r#"/segments/a/mode: found "on", expected one of "active", "monitor", "passthrough", "block", "bypass""#.to_owned(),
        r#"/segments/a/lan: found {"interface":"lan0","pci":"0000:01:00.0"}, expected exactly one of the keys interface, xdp, pci, vdev"#.to_owned(),
        format!("/segments/a/wan: {device}"),
        format!("/segments/a/crem_port: {port}"),
        r#"/segments/a/path_mtu: found "big", expected an integer 576 to 9216"#.to_owned(),
        format!("/segments/a/served/10.0.1.7~124: found the key \"10.0.1.7/24\", {prefix}"),
        "/segments/a/served/10.0.2.0~124/x: found an unknown key, expected no key here".to_owned(),
        r#"/segments/a/peers/10.0.3.0~124/address: found "224.0.0.1", expected the IP address of one station"#.to_owned(),
        r#"/segments/a/inband/mac: found "03:00:00:00:00:01", expected the MAC address of a station, such as "02:00:00:00:00:01""#.to_owned(),
        "/segments/a/inband/vlan: found 4095, expected an integer 1 to 4094".to_owned(),
        "/segments/a/policy/k: found 129, expected an integer 1 to 128".to_owned(),
        "/segments/a/policy/epsilon: found 0, expected a number 0.000000000001 to 0.5".to_owned(),
        "/colour: found an unknown key, expected one of the keys ipfix, management, segments, version, workers".to_owned(),
        r#"/segments/B: found the key "B", expected an id of 1 to 32 characters a-z, 0-9 and -"#.to_owned(),
        format!("/segments/B/crem_port: {port}"),
    ];
    let found = refused(text);
    for line in &expected {
        assert!(
            found.contains(line),
            "missing: {line}\nin:\n{}",
            found.join("\n")
        );
    }
    // Besides those listed, segment B lacks mode, lan, wan and path_mtu.
    assert_eq!(found.len(), expected.len() + 4, "{}", found.join("\n"));
}

// shows: CREM-OPS-01, QOS-MTU-04
#[test]
fn a_path_mtu_too_small_for_repair_is_refused_with_both_numbers() {
    // k 128 needs 24 octets of bitmaps more than k 32: the figures are RDMA MTU + 118 over IPv4.
    let text = with("k = 32", "k = 128").replace("path_mtu = 4214", "path_mtu = 4213");
    assert_eq!(
        refused(&text),
        [
            "/segments/a/path_mtu: found 4213, expected at least 4214 octets, which the repair message \
          needs over IPv4 at rdma_mtu 4096 and k 128"
        ]
    );
    let fits = with("k = 32", "k = 128");
    assert!(parse(&fits, Syntax::Toml).is_ok());
    let v6 = fits
        .replace("192.0.2.1/24", "2001:db8::1/64")
        .replace("address = \"192.0.2.2\"", "address = \"2001:db8::2\"");
    assert_eq!(
        refused(&v6),
        [
            "/segments/a/path_mtu: found 4214, expected at least 4234 octets, which the repair message \
          needs over IPv6 at rdma_mtu 4096 and k 128"
        ]
    );
    assert!(
        parse(
            &v6.replace("path_mtu = 4214", "path_mtu = 4234"),
            Syntax::Toml
        )
        .is_ok()
    );
}

#[test]
fn passthrough_needs_no_addresses_and_no_room_for_repair() {
    let text = r#"
        version = 1
        [segments.a]
        mode = "passthrough"
        crem_port = 4801
        path_mtu = 1500
        lan = { interface = "lan0" }
        wan = { interface = "wan0" }
    "#;
    let document = parse(text, Syntax::Toml).unwrap();
    assert_eq!(
        document.segments.values().next().unwrap().policy,
        Policy::default()
    );
    // Without prefixes there is nothing to watch; addresses and peers are not needed for it.
    let monitor = text.replace("passthrough", "monitor");
    assert_eq!(
        refused(&monitor),
        [r#"/segments/a/served: found no prefix, expected at least one prefix in mode "monitor""#]
    );
    let served = format!("{monitor}served = {{ \"10.0.1.0/24\" = {{}} }}");
    assert!(parse(&served, Syntax::Toml).is_ok());
    let active = text.replace("passthrough", "active");
    let found = refused(&active);
    assert_eq!(found.len(), 3, "{found:?}");
    for key in ["served", "allowed_peers", "inband"] {
        assert!(
            found
                .iter()
                .any(|f| f.starts_with(&format!("/segments/a/{key}:"))),
            "{found:?}"
        );
    }
}

// shows: CREM-PORT-04
#[test]
fn contradictions_between_values_are_refused() {
    let cases = [
        (
            with("m_max = 16", "m_max = 2").replace("m_min = 0", "m_min = 3"),
            "/segments/a/policy/m_min:",
        ),
        (
            with("crem_port", "crem_port = 4791"),
            "/segments/a/crem_port:",
        ),
        (
            with("crem_port", "crem_port = 4789"),
            "/segments/a/crem_port:",
        ),
        (
            with("crem_port", "crem_port = 4739"),
            "/segments/a/crem_port:",
        ),
        (
            with("wan = {", "wan = { interface = \"lan0\" }"),
            "/segments/a/wan:",
        ),
        (
            with(
                "\"10.0.2.0/24\"",
                "\"10.0.0.0/16\" = { address = \"192.0.2.2\" }",
            ),
            "/segments/a/peers/10.0.0.0~116:",
        ),
        (
            with(
                "\"10.0.2.0/24\"",
                "\"10.0.2.0/24\" = { address = \"192.0.2.1\" }",
            ),
            "/segments/a/peers/10.0.2.0~124:",
        ),
        (
            with(
                "\"10.0.2.0/24\"",
                "\"10.0.2.0/24\" = { address = \"198.51.100.2\" }",
            ),
            "/segments/a/peers/10.0.2.0~124:",
        ),
        (
            with(
                "\"10.0.2.0/24\"",
                "\"10.0.2.0/24\" = { address = \"2001:db8::2\" }",
            ),
            "/segments/a/peers/10.0.2.0~124:",
        ),
        (
            with("# gateway", "gateway = \"198.51.100.1\""),
            "/segments/a/inband/gateway:",
        ),
        (
            with(
                "\"10.0.1.0/24\"",
                "\"10.0.1.0/24\" = {}\n\"10.0.0.0/16\" = {}",
            ),
            "/segments/a/served/10.0.1.0~124:",
        ),
        (
            with("hold_ns", "hold_ns = 500")
                .replace("# rnic_timeout_ns = 67000000", "rnic_timeout_ns = 400"),
            "/segments/a/policy/hold_ns:",
        ),
    ];
    for (text, pointer) in cases {
        let found = refused(&text);
        assert!(
            found.iter().any(|f| f.starts_with(pointer)),
            "{pointer} not in {found:?}"
        );
    }
}

#[test]
fn addresses_that_no_station_has_are_refused() {
    for address in [
        "192.0.2.0/24",
        "192.0.2.255/24",
        "127.0.0.1/8",
        "255.255.255.255/32",
    ] {
        let found = refused(&with("address =", &format!("address = {address:?}")));
        assert!(
            found
                .iter()
                .any(|f| f.starts_with("/segments/a/inband/address:")),
            "{address}: {found:?}"
        );
    }
    let peer = with(
        "\"10.0.2.0/24\"",
        "\"10.0.2.0/24\" = { address = \"192.0.2.255\" }",
    );
    assert!(refused(&peer)[0].starts_with("/segments/a/peers/10.0.2.0~124:"));
    for pci in ["zz", "0000:3b:00", "3b:00.00", "0000:3b:0:0.0"] {
        let found = refused(&with("lan = {", &format!("lan = {{ pci = {pci:?} }}")));
        assert!(found[0].starts_with("/segments/a/lan/pci:"), "{found:?}");
    }
    let good = with("lan = {", "lan = { pci = \"0000:3b:00.0\" }");
    assert!(parse(&good, Syntax::Toml).is_ok());
}

#[test]
fn segments_must_not_share() {
    let (segment, _) = EXAMPLE.split_once("[management]").unwrap();
    let second = segment
        .replace("segments.a", "segments.b")
        .replace("version = 1", "");
    let both = format!("{EXAMPLE}\n{second}");
    let found = refused(&both);
    for pointer in ["lan", "wan", "inband/address", "served/10.0.1.0~124"] {
        let pointer = format!("/segments/b/{pointer}:");
        assert!(
            found.iter().any(|f| f.starts_with(&pointer)),
            "{pointer} not in {found:?}"
        );
    }
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn wrong_syntax_names_its_place() {
    assert!(
        refused("version = 1\nsegments = {")
            .iter()
            .any(|f| f.contains("line 2"))
    );
    let json = parse("{\"version\": 1,,}", Syntax::Json).unwrap_err();
    assert!(json.to_string().contains("line 1"), "{json}");
}

// shows: QOS-MTU-03, AMB-TENANT
#[test]
fn tunnels_are_looked_into_where_their_packets_fit_the_path() {
    let key = |vxlan: &str| with("path_mtu", &format!("path_mtu = 4214\nvxlan = {vxlan}"));
    let read = |text: &str| {
        let document = parse(text, Syntax::Toml).unwrap();
        let again = parse(&to_value(&document).to_string(), Syntax::Json).unwrap();
        assert_eq!(again, document);
        document
            .segments
            .into_values()
            .next()
            .unwrap()
            .vxlan
            .unwrap()
    };
    let all = read(&key("{}"));
    assert_eq!((all.port, all.networks.len(), all.overhead), (4789, 0, 50));
    let some = read(&key(
        r#"{ port = 8472, networks = { "5000" = {}, "0" = {} } }"#,
    ));
    assert_eq!(
        (some.port, some.networks.into_keys().collect()),
        (8472, vec![0, 5000])
    );

    // 4096 and 36 of RoCEv2, 28 of UDP and IPv4, and what is around.
    for (overhead, needed) in [(54, 4214), (55, 4215), (70, 4230)] {
        let text = key(&format!("{{ overhead = {overhead} }}"));
        let expected = format!(
            "/segments/a/path_mtu: found 4214, expected at least {needed} octets, which packets of \
             rdma_mtu 4096 need in VXLAN: 4160 and {overhead} around them"
        );
        match parse(&text, Syntax::Toml) {
            Ok(_) => assert_eq!(needed, 4214),
            Err(invalid) => assert_eq!(invalid.to_string(), expected),
        }
    }
    let inner_v6 = key("{}").replace("\"10.0.1.0/24\" = {}", "\"2001:db8::/64\" = {}");
    assert!(
        refused(&inner_v6)[0].contains("at least 4230"),
        "{inner_v6}"
    );
}

#[test]
fn tunnels_that_cannot_be_are_refused() {
    let key = |vxlan: &str| with("path_mtu", &format!("path_mtu = 4214\nvxlan = {vxlan}"));
    let vni = "expected a VXLAN network identifier, 0 to 16777215";
    for (text, expected) in [
        (key("{ port = 4791 }"), "/segments/a/vxlan/port: found 4791, expected a port other than crem_port and that of RoCEv2".to_owned()),
        (key("{ port = 4801 }"), "/segments/a/vxlan/port: found 4801, expected a port other than crem_port and that of RoCEv2".to_owned()),
        (key("{ overhead = 49 }"), "/segments/a/vxlan/overhead: found 49, expected an integer 50 to 78".to_owned()),
        (key("{ networks = { } }"), "/segments/a/vxlan/networks: found {}, expected at least one network, or no key networks for all of them".to_owned()),
        (key(r#"{ networks = { "16777216" = {} } }"#), format!("/segments/a/vxlan/networks/16777216: found the key \"16777216\", {vni}")),
        (key(r#"{ networks = { "007" = {} } }"#), format!("/segments/a/vxlan/networks/007: found the key \"007\", {vni}")),
        (
            key("{}").replace("\"10.0.2.0/24\" = { address = \"192.0.2.2\" }", ""),
            "/segments/a/peers: found no entry beside vxlan, expected the gateway that serves the hosts inside of tunnels: no HELLO reaches their own addresses".to_owned(),
        ),
    ] {
        assert_eq!(refused(&text), [expected]);
    }
}

#[test]
fn an_interface_is_one_device_however_it_is_reached() {
    let xdp = with("lan =", r#"lan = { xdp = "lan0" }"#);
    let document = parse(&xdp, Syntax::Toml).unwrap();
    let segment = document.segments.into_values().next().unwrap();
    assert_eq!(segment.lan.kernel_interface(), Some("lan0"));
    let twice = with("lan =", r#"lan = { xdp = "wan0" }"#);
    assert_eq!(
        refused(&twice),
        [
            r#"/segments/a/wan: found "wan0", which /segments/a/lan uses too, expected a device of its own for each port"#
        ]
    );
    let odd = with("lan =", r#"lan = { xdp = "lan0,x=1" }"#);
    assert!(refused(&odd)[0].contains("an interface name of 1 to 15 characters"));
}
