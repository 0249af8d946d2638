//! The part on IPFIX of config documents: what is accepted, and what is said of what is not.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crem_api::ipfix::{CollectorTransport, Ipfix, ObservationPlace, Select};
use crem_api::{Syntax, parse, to_value};

const EXAMPLE: &str = include_str!("../examples/ipfix.toml");

fn refused(text: &str) -> Vec<String> {
    let invalid = parse(text, Syntax::Toml).unwrap_err();
    invalid.issues.iter().map(ToString::to_string).collect()
}

/// The example with a text in it replaced.
fn with(old: &str, new: &str) -> String {
    assert_eq!(EXAMPLE.matches(old).count(), 1, "{old}");
    EXAMPLE.replace(old, new)
}

fn example() -> Ipfix {
    parse(EXAMPLE, Syntax::Toml).unwrap().ipfix.unwrap()
}

#[test]
fn the_example_is_read() {
    let ipfix = example();
    let point = &ipfix.points[&"in".parse().unwrap()];
    assert_eq!(point.place, ObservationPlace::LanIngress);
    let packets = point.packets.as_ref().unwrap();
    let select = Select::Count {
        interval: 1,
        space: 999,
    };
    assert_eq!(packets.select, select);
    let numbered: Vec<_> = ipfix
        .numbered()
        .map(|(number, name, collector)| (number, name.as_str(), collector.transport))
        .collect();
    assert_eq!(
        numbered,
        [
            (45001, "audit", CollectorTransport::Tls),
            (44014, "flows", CollectorTransport::Udp)
        ]
    );
}

#[test]
fn names_of_collectors_that_would_get_one_number_are_refused() {
    let text = with("[ipfix.collectors.audit]", "[ipfix.collectors.caox]")
        .replace("[ipfix.collectors.flows]", "[ipfix.collectors.caeq]")
        .replace("[ipfix.collectors.audit.", "[ipfix.collectors.caox.");
    let issues = refused(&text);
    assert!(
        issues[0]
            .starts_with("/ipfix/collectors/caox: found a name with the number of collector caeq"),
        "{issues:?}"
    );
}

#[test]
fn what_is_written_is_read_back() {
    let document = parse(EXAMPLE, Syntax::Toml).unwrap();
    let text = to_value(&document).to_string();
    assert_eq!(parse(&text, Syntax::Json).unwrap(), document);
}

#[test]
fn what_the_example_calls_default_is_the_default() {
    let short: String = EXAMPLE
        .lines()
        .filter(|line| !line.ends_with("# default"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(short.len() < EXAMPLE.len() - 700);
    let document = parse(&short, Syntax::Toml).unwrap();
    assert_eq!(document.ipfix.unwrap(), example());
}

// shows: BTH-CTX-01
#[test]
fn nothing_is_observed_without_the_table() {
    let text = &EXAMPLE[..EXAMPLE.find("[ipfix]").unwrap()];
    assert_eq!(parse(text, Syntax::Toml).unwrap().ipfix, None);
}

// shows: SEQ-IANA-01
#[test]
fn numbers_have_no_default() {
    let text = with("pen = 32473 ", "# ");
    assert_eq!(
        refused(&text),
        ["/ipfix/pen: found nothing, expected an integer 1 to 4294967295"]
    );
    let text = with("first_element = 1 ", "# ");
    assert_eq!(
        refused(&text),
        [
            "/ipfix: found neither first_element nor elements, expected exactly one of first_element and elements"
        ]
    );
    let text = with("pen = 32473 ", "pen = 29305 ");
    assert!(refused(&text)[0].starts_with("/ipfix/pen: found 29305"));
}

#[test]
fn every_problem_is_told_with_its_place() {
    let text = with("place = \"lan_ingress\"", "place = \"roof\"")
        .replace("probability\", \"hash\"", "")
        .replace("interval = 1 ", "interval = 0 ")
        .replace("transport = \"udp\"", "transport = \"pigeon\"")
        .replace("only_send_and_write = true", "only_send_and_write = false");
    let issues = refused(&text);
    for place in [
        "/ipfix/points/in/place: found \"roof\"",
        "/ipfix/points/in/packets/interval: found 0",
        "/ipfix/collectors/flows/transport: found \"pigeon\"",
        "/ipfix/connections/storage/only_send_and_write: found false",
    ] {
        assert!(issues.iter().any(|i| i.starts_with(place)), "{issues:?}");
    }
    assert_eq!(issues.len(), 4, "{issues:?}");
}

#[test]
fn contradictions_are_told_with_both_sides() {
    let text = with(
        "place = \"lan_egress_after_repair\"",
        "place = \"lan_ingress\"",
    )
    .replace("base = 200", "base = 100")
    .replace("longest_retry_ms = 4000 ", "longest_retry_ms = 9000 ")
    .replace(
        "sequence = false                # default",
        "sequence = true",
    );
    assert_eq!(
        refused(&text),
        [
            "/ipfix/points/out/place: found the place of point in too, expected each place of a segment once",
            "/ipfix/points/out/base: found 100, which point in has too, expected a base of its own for each point",
            "/ipfix/connections/storage/longest_retry_ms: found 9000 ms: a retransmission may come 9000000 packets late, expected fewer than 8388608 packets, half of the PSN space",
            "/ipfix/collectors/flows/sequence: found true, expected false: datagrams do not keep the order of reports",
        ]
    );
}

#[test]
fn selection_needs_its_number() {
    let text = with("selection_sequence = 9001\n", "");
    assert_eq!(
        refused(&text),
        [
            "/ipfix/points/in/packets/selection_sequence: found nothing, expected a number for the Selection Sequence"
        ]
    );
}

#[test]
fn sequence_reports_go_by_tls_or_stay_on_the_machine() {
    let plain = |host: &str| {
        let tls = EXAMPLE.find("[ipfix.collectors.audit.tls]").unwrap();
        let rest = EXAMPLE.find("[ipfix.collectors.flows]").unwrap();
        let text = format!("{}{}", &EXAMPLE[..tls], &EXAMPLE[rest..]);
        text.replace("transport = \"tls\"", "transport = \"tcp\"")
            .replace(
                "\"collector.example.net\"\nport",
                &format!("\"{host}\"\nport"),
            )
    };
    assert!(parse(&plain("127.0.0.1"), Syntax::Toml).is_ok());
    let issues = refused(&plain("10.0.0.1"));
    assert_eq!(issues.len(), 1, "{issues:?}");
    assert!(issues[0].starts_with("/ipfix/collectors/audit/sequence: found true"));
}

#[test]
fn names_and_addresses_of_collectors_are_checked() {
    for bad in ["10.0.0", "a b", "-x.net", "256.1.1.1", ""] {
        let text = with("host = \"10.9.0.5\"", &format!("host = {bad:?}"));
        assert_eq!(refused(&text).len(), 1, "{bad}");
    }
    let text = with("# fingerprints = { \"0123…\"", "fingerprints = { \"0123\"");
    assert!(refused(&text)[0].contains("64 hexadecimal digits"));
}
