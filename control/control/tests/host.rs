//! The machine's own interfaces, in a network namespace with a real kernel: what the API says of them, what is
//! other than the document, and what is set where the document says so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};
use support::{Control, document};

fn in_a_namespace(work: impl FnOnce() + Send + 'static) {
    let run = std::thread::spawn(move || {
        if let Err(e) = unshare(CloneFlags::CLONE_NEWNET) {
            println!("skipped: no network namespace: {e}");
            return;
        }
        for command in [
            "link set lo up",
            "link add mgmt0 type veth peer name far0",
            "link set far0 up",
        ] {
            ip(command);
        }
        work();
    });
    if let Err(panic) = run.join() {
        std::panic::resume_unwind(panic);
    }
}

fn ip(arguments: &str) {
    let done = Command::new("ip")
        .args(arguments.split(' '))
        .status()
        .unwrap();
    assert!(done.success(), "ip {arguments}");
}

fn until(what: &str, control: &Control, path: &str, so: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + Duration::from_secs(15);
    loop {
        let answer = control.get(path).json();
        if so(&answer) {
            return answer;
        }
        assert!(Instant::now() < end, "{what}: {answer}");
        std::thread::sleep(Duration::from_millis(30));
    }
}

fn put(control: &Control, document: &Value, query: &str) {
    let headers = [("If-Match", "*"), ("Content-Type", "application/json")];
    let path = format!("/v1/config{query}");
    let answer = control.ask("PUT", &path, &headers, document.to_string().as_bytes());
    assert!(answer.status == 200 || answer.status == 202, "{answer:?}");
}

fn with(addressing: &str, address: &str) -> Value {
    let mut document = document(32);
    document["management"] = json!({
        "addressing": addressing,
        "interfaces": {"mgmt0": {"addresses": {address: {}}, "mtu": 1400}},
        "routes": {"203.0.113.0/24": {"gateway": "192.0.2.254"}},
    });
    document
}

fn kinds(list: &Value) -> Vec<&str> {
    let drift = list["drift"].as_array().unwrap();
    drift.iter().map(|d| d["kind"].as_str().unwrap()).collect()
}

fn events(control: &Control) -> String {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(&control.socket).unwrap();
    stream
        .write_all(b"GET /v1/events HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 0\r\n\r\n")
        .unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(octets) = stream.read(&mut part) {
        if octets == 0 {
            break;
        }
        all.extend_from_slice(&part[..octets]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn interfaces_routes_and_link_events_are_those_of_the_kernel() {
    in_a_namespace(|| {
        let (control, _dataplane) = Control::start(true);
        until("the interface", &control, "/v1/state/interfaces", |l| {
            l["interfaces"]["mgmt0"]["carrier"] == false
        });
        ip("link set mgmt0 mtu 1450 up");
        ip("address add 192.0.2.1/24 dev mgmt0");
        ip("route add 198.51.100.0/24 via 192.0.2.9 metric 7");
        let list = until("the address", &control, "/v1/state/interfaces", |l| {
            l["interfaces"]["mgmt0"]["addresses"]["192.0.2.1/24"].is_object()
        });
        let interface = &list["interfaces"]["mgmt0"];
        assert_eq!(
            (
                &interface["mtu"],
                &interface["enabled"],
                &interface["carrier"]
            ),
            (&json!(1450), &json!(true), &json!(true))
        );
        assert_eq!(interface["addresses"]["192.0.2.1/24"]["permanent"], true);
        assert_eq!(interface["mac"].as_str().unwrap().len(), 17);
        let routes = until("the route", &control, "/v1/state/routes", |l| {
            l["routes"].as_array().unwrap().len() >= 2
        });
        let route = routes["routes"].as_array().unwrap().iter();
        let route = route
            .clone()
            .find(|r| r["destination"] == "198.51.100.0/24")
            .unwrap();
        assert_eq!(
            (&route["gateway"], &route["interface"], &route["metric"]),
            (&json!("192.0.2.9"), &json!("mgmt0"), &json!(7))
        );
        // The far end goes down, and the carrier with it.
        ip("link set far0 down");
        until("no carrier", &control, "/v1/state/interfaces", |l| {
            l["interfaces"]["mgmt0"]["carrier"] == false
        });
        ip("link delete mgmt0");
        until("no interface", &control, "/v1/state/interfaces", |l| {
            l["interfaces"]["mgmt0"].is_null()
        });
        let events = events(&control);
        for text in [
            "mgmt0: the link is up.",
            "mgmt0: the link is down.",
            "The interface mgmt0 is gone.",
        ] {
            assert!(events.contains(text), "{text} in {events}");
        }
    });
}

#[test]
fn what_the_system_sets_otherwise_is_told_and_left_alone() {
    in_a_namespace(|| {
        let (control, _dataplane) = Control::start(false);
        ip("link set mgmt0 up");
        ip("address add 192.0.2.7/24 dev mgmt0");
        put(&control, &with("system", "192.0.2.1/24"), "");
        let list = until("drift", &control, "/v1/state/drift", |l| {
            kinds(l).len() == 4
        });
        assert_eq!(
            kinds(&list),
            ["mtu", "address_missing", "address_extra", "route_missing"]
        );
        assert_eq!(
            list["drift"][0]["pointer"],
            "/management/interfaces/mgmt0/mtu"
        );
        assert_eq!(list["drift"][0]["configured"], "1400");
        // Somebody sets it, and the difference is gone.
        ip("link set mgmt0 mtu 1400");
        ip("address add 192.0.2.1/24 dev mgmt0");
        ip("address delete 192.0.2.7/24 dev mgmt0");
        ip("address replace 192.0.2.1/24 dev mgmt0");
        ip("route replace 203.0.113.0/24 via 192.0.2.254");
        until("no drift", &control, "/v1/state/drift", |l| {
            kinds(l).is_empty()
        });
        let events = events(&control);
        assert!(
            events.contains("the document has 1400, the machine 1500"),
            "{events}"
        );
        assert!(events.contains("as in the document again"), "{events}");
    });
}

#[test]
fn the_gateway_sets_addresses_where_the_document_says_so_and_takes_them_back() {
    in_a_namespace(|| {
        let (control, _dataplane) = Control::start(false);
        ip("address add 198.51.100.1/24 dev mgmt0");
        put(&control, &with("gateway", "192.0.2.1/24"), "");
        until("the address", &control, "/v1/state/interfaces", |l| {
            let mgmt0 = &l["interfaces"]["mgmt0"];
            mgmt0["addresses"]["192.0.2.1/24"].is_object()
                && mgmt0["addresses"]["198.51.100.1/24"].is_null()
        });
        until("no drift", &control, "/v1/state/drift", |l| {
            kinds(l).is_empty()
        });
        let state = control.get("/v1/state/interfaces").json();
        let interface = &state["interfaces"]["mgmt0"];
        assert_eq!(
            (&interface["mtu"], &interface["enabled"]),
            (&json!(1400), &json!(true))
        );
        let addresses = interface["addresses"].as_object().unwrap();
        assert!(addresses.contains_key("192.0.2.1/24"), "{addresses:?}");
        assert!(!addresses.contains_key("198.51.100.1/24"), "{addresses:?}");
        let routes = control.get("/v1/state/routes").json().to_string();
        assert!(routes.contains("203.0.113.0/24"), "{routes}");
        // Another address, which nobody confirms: the first one comes back.
        let headers = [("If-Match", "*"), ("Content-Type", "application/json")];
        let next = with("gateway", "192.0.2.2/24").to_string();
        let answer = control.ask("PUT", "/v1/config?confirm=2s", &headers, next.as_bytes());
        assert_eq!(answer.status, 202, "{answer:?}");
        let has = |address: &'static str| {
            move |l: &Value| l["interfaces"]["mgmt0"]["addresses"][address].is_object()
        };
        until(
            "the new address",
            &control,
            "/v1/state/interfaces",
            has("192.0.2.2/24"),
        );
        until(
            "the old address",
            &control,
            "/v1/state/interfaces",
            has("192.0.2.1/24"),
        );
        // A document that leaves it to the system: the route that only we know of goes, the address stays.
        let mut none = document(32);
        none["management"] = json!({});
        let answer = control.ask(
            "PUT",
            "/v1/config?confirm=60s",
            &headers,
            none.to_string().as_bytes(),
        );
        assert_eq!(answer.status, 202, "{answer:?}");
        until("no route of ours", &control, "/v1/state/routes", |l| {
            !l.to_string().contains("203.0.113.0/24")
        });
        assert!(has("192.0.2.1/24")(
            &control.get("/v1/state/interfaces").json()
        ));
        // An interface that goes and comes again gets what it should have.
        let cancelled = control.post("/v1/commit:cancel", &json!({"revision": 3}));
        assert_eq!(cancelled.status, 200, "{cancelled:?}");
        ip("link delete mgmt0");
        ip("link add mgmt0 type veth peer name far1");
        until(
            "the address again",
            &control,
            "/v1/state/interfaces",
            has("192.0.2.1/24"),
        );
    });
}

/// An LLDP frame of a switch, as it would stand on the wire.
fn lldp(ttl: u8) -> Vec<u8> {
    let mut frame = vec![0x01, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 9, 0x88, 0xcc];
    let parts: [(u8, &[u8]); 5] = [
        (1, b"\x04\x02\0\0\0\0\x09"),
        (2, b"\x05Ethernet1/7"),
        (3, &[0, ttl]),
        (5, b"leaf-1"),
        (0, b""),
    ];
    for (kind, value) in parts {
        frame.extend([kind << 1, u8::try_from(value.len()).unwrap()]);
        frame.extend(value);
    }
    frame.resize(frame.len().max(60), 0);
    frame
}

fn send(interface: &str, frame: &[u8]) {
    use nix::ifaddrs::getifaddrs;
    use nix::sys::socket::*;
    use std::os::fd::AsRawFd;
    let mut all = getifaddrs()
        .unwrap()
        .filter(|i| i.interface_name == interface);
    let address = all
        .find_map(|i| i.address?.as_link_addr().copied())
        .unwrap();
    let socket = socket(
        AddressFamily::Packet,
        SockType::Raw,
        SockFlag::empty(),
        None,
    )
    .unwrap();
    sendto(socket.as_raw_fd(), frame, &address, MsgFlags::empty()).unwrap();
}

#[test]
fn neighbours_are_heard_on_real_interfaces_and_forgotten_in_time() {
    in_a_namespace(|| {
        let (control, _dataplane) = Control::start(true);
        ip("link set mgmt0 up");
        until("the link", &control, "/v1/state/interfaces", |l| {
            l["interfaces"]["mgmt0"]["carrier"] == true
        });
        let list = until("a neighbour", &control, "/v1/state/lldp", |l| {
            send("far0", &lldp(3));
            l["neighbours"]
                .as_array()
                .unwrap()
                .iter()
                .any(|n| n["interface"] == "mgmt0")
        });
        let all = list["neighbours"].as_array().unwrap();
        let neighbour = all.iter().find(|n| n["interface"] == "mgmt0").unwrap();
        assert_eq!(neighbour["system_name"], "leaf-1");
        assert_eq!(neighbour["port"], "Ethernet1/7");
        // What we see ourselves send is not a neighbour.
        assert!(all.iter().all(|n| n["interface"] != "far0"), "{list}");
        let mut broken = lldp(3);
        broken[15] = 0xff;
        send("far0", &broken);
        until("malformed", &control, "/v1/state/lldp", |l| {
            l["counters"]["malformed"] == 1
        });
        until("forgotten", &control, "/v1/state/lldp", |l| {
            l["neighbours"].as_array().unwrap().is_empty()
        });
        let events = events(&control);
        assert!(
            events.contains("mgmt0: leaf-1, port Ethernet1/7, is a neighbour."),
            "{events}"
        );
        assert!(events.contains("is no neighbour any more."), "{events}");
    });
}

#[test]
fn drivers_tell_of_ports_what_they_know() {
    in_a_namespace(|| {
        let (control, _dataplane) = Control::start(false);
        ip("link add lan0 type veth peer name lan1");
        ip("link set lan0 up");
        ip("link set lan1 up");
        let mut document = with("system", "192.0.2.1/24");
        document["segments"]["a"]["lan"] = json!({"interface": "lan0"});
        document["segments"]["a"]["wan"] = json!({"vdev": "net_null0"});
        put(&control, &document, "");
        let list = control.get("/v1/state/ports").json();
        let port = |role: &str| {
            let ports = list["ports"].as_array().unwrap();
            ports.iter().find(|p| p["role"] == role).unwrap().clone()
        };
        let lan = port("lan");
        assert_eq!(
            (&lan["segment"], &lan["interface"]),
            (&json!("a"), &json!("lan0"))
        );
        assert_eq!(lan["link"]["up"], true);
        // What a veth says of itself.
        assert_eq!(lan["link"]["speed_mbit"], 10_000);
        assert_eq!(lan["link"]["duplex"], "full");
        assert_eq!(lan["link"]["autonegotiation"], false);
        let not_known = lan["link"]["not_known"].to_string();
        assert!(
            not_known.contains("module: the driver does not tell"),
            "{not_known}"
        );
        let wan = port("wan");
        assert_eq!(
            wan["link"]["not_known"][0],
            "the device has no kernel interface"
        );
        assert_eq!(port("management")["device"], "mgmt0");
    });
}

#[test]
fn resolvers_and_time_servers_follow_the_document_also_back() {
    in_a_namespace(|| {
        let (control, _dataplane) = Control::start(false);
        let beside = |name: &str| control.socket.with_file_name(name);
        let with = |resolver: &str| {
            let mut document = document(32);
            document["management"] = json!({
                "addressing": "gateway",
                "dns": {"servers": {resolver: {}}, "search": {"site.example": {}}},
                "ntp": {"servers": {"time.example": {}}},
            });
            document
        };
        let wait_for = |name: &str, text: &str| {
            let end = Instant::now() + Duration::from_secs(10);
            while !std::fs::read_to_string(beside(name)).is_ok_and(|t| t.contains(text)) {
                assert!(Instant::now() < end, "{name} without {text}");
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        put(&control, &with("192.0.2.53"), "");
        wait_for(
            "resolv.conf",
            "nameserver 192.0.2.53\nsearch site.example\n",
        );
        wait_for("timesyncd.conf", "[Time]\nNTP=time.example\n");
        let mode = std::fs::metadata(beside("resolv.conf")).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o644);
        // The system of this machine asks others, which is told and left alone.
        until("drift", &control, "/v1/state/drift", |l| {
            kinds(l).contains(&"resolvers") && kinds(l).contains(&"time_servers")
        });
        assert_eq!(control.get("/v1/state/dns").json()["by_gateway"], false);
        let time = control.get("/v1/state/time").json();
        assert_eq!(
            (&time["by_gateway"], &time["error"]),
            (&json!(false), &json!(null))
        );
        // Nobody confirms other ones: the first come back.
        let headers = [("If-Match", "*"), ("Content-Type", "application/json")];
        let next = with("192.0.2.54").to_string();
        let answer = control.ask("PUT", "/v1/config?confirm=2s", &headers, next.as_bytes());
        assert_eq!(answer.status, 202, "{answer:?}");
        wait_for("resolv.conf", "192.0.2.54");
        wait_for("resolv.conf", "192.0.2.53");
        let none = document(32).to_string();
        let answer = control.ask("PUT", "/v1/config?confirm=60s", &headers, none.as_bytes());
        assert_eq!(answer.status, 202, "{answer:?}");
        let end = Instant::now() + Duration::from_secs(10);
        while beside("resolv.conf").exists() || beside("timesyncd.conf").exists() {
            assert!(Instant::now() < end, "files stay without their keys");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

#[test]
fn links_of_ports_become_what_the_document_says_as_far_as_drivers_can() {
    in_a_namespace(|| {
        // A TAP takes a speed, and has no FEC.
        ip("tuntap add dev lan0 mode tap");
        let (control, _dataplane) = Control::start(false);
        let mut wanted = document(32);
        let pause = json!({"priorities": {"3": {}}});
        wanted["segments"]["a"]["lan_link"] =
            json!({"speed_mbit": 25000, "autonegotiation": false, "fec": "rs", "pause": pause});
        put(&control, &wanted, "");
        let lan = |l: &Value| {
            let ports = l["ports"].as_array().cloned().unwrap_or_default();
            ports.into_iter().find(|p| p["role"] == "lan").unwrap()
        };
        let list = until("the speed", &control, "/v1/state/ports", |l| {
            lan(l)["link"]["speed_mbit"] == 25000 && lan(l)["not_applied"] != json!([])
        });
        let told = lan(&list)["not_applied"].to_string();
        assert!(told.contains("fec: RS wanted"), "{told}");
        assert!(
            told.contains("fec RS: the driver does not offer it"),
            "{told}"
        );
        assert!(told.contains("pause: "), "{told}");
        assert!(!told.contains("speed_mbit"), "{told}");
        let said = events(&control);
        assert!(
            said.contains("lan0: 25000 Mbit/s, autonegotiation false."),
            "{said}"
        );
        // What somebody else does later is told, and not fought over.
        let done = Command::new("ethtool")
            .args([
                "-s", "lan0", "speed", "10000", "duplex", "full", "autoneg", "off",
            ])
            .status();
        assert!(done.unwrap().success());
        ip("link set lan0 up");
        until("the difference", &control, "/v1/state/ports", |l| {
            let told = lan(l)["not_applied"].to_string();
            // With the reason why the driver refused the rest, though it is not asked again.
            told.contains("25000 wanted, 10000") && told.contains("driver does not offer it")
        });
        // Said otherwise it is set again.
        wanted["segments"]["a"]["lan_link"] = json!({"speed_mbit": 40000});
        put(&control, &wanted, "");
        until("the other speed", &control, "/v1/state/ports", |l| {
            lan(l)["link"]["speed_mbit"] == 40000 && lan(l)["not_applied"] == json!([])
        });
        // Taken back, changed by somebody, and said once more, it is set once more.
        put(&control, &document(32), "");
        std::thread::sleep(Duration::from_millis(500));
        let done = Command::new("ethtool")
            .args(["-s", "lan0", "speed", "10000", "duplex", "full"])
            .status();
        assert!(done.unwrap().success());
        put(&control, &wanted, "");
        until("the speed once more", &control, "/v1/state/ports", |l| {
            lan(l)["link"]["speed_mbit"] == 40000
        });
    });
}
