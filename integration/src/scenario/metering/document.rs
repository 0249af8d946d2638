//! The part of a gateway's document on IPFIX.

use std::path::Path;

use toml::{Table, Value};

use super::super::Failure;
use super::super::gateway::{SEGMENT, table};
use super::super::spec::{Host, Scenario};
use super::{COLLECTOR, Packets};

/// Port of the slow collector.
pub(super) const SLOW_PORT: u16 = 4742;

/// Port of a collector by name.
pub(super) fn port(name: &str) -> u16 {
    match name {
        "tls" => 4740,
        "tcp" => 4739,
        "late" => 4741,
        _ => SLOW_PORT,
    }
}

/// The Observation Points by name of their place, with the base of their identifiers. There is one
/// worker, so the base is the identifier.
pub(super) const POINTS: [(&str, i64); 5] = [
    ("lan_ingress", 100),
    ("wan_egress", 200),
    ("wan_ingress", 300),
    ("lan_egress_before_repair", 400),
    ("lan_egress_after_repair", 500),
];

/// The table `ipfix` of a gateway's document, and nothing if the scenario has no metering.
pub(crate) fn tables(scenario: &Scenario, host: Host, folder: &Path) -> Option<Table> {
    let metering = scenario.metering.as_ref()?;
    let mut all = parsed(
        "pen = 32473\nfirst_element = 1\n\
         flows = { active_timeout_s = 1, idle_timeout_s = 1 }\n\
         sequence = { max_connections = 64, max_epochs = 64, report_interval_ms = 500 }",
    );
    let domain = if host == Host::A { 1 } else { 2 };
    all.insert("domain".into(), domain.into());
    let (mut scopes, mut connections) = (Table::new(), Table::new());
    for from in [Host::A, Host::B] {
        let mut ends = Table::new();
        let family = scenario.family;
        ends.insert("source".into(), family.prefix(from).into());
        ends.insert("destination".into(), family.prefix(from.other()).into());
        let name = format!("from-{from:?}").to_lowercase();
        scopes.insert(name.clone(), ends.clone().into());
        ends.extend(parsed(
            "only_send_and_write = true\ncomplete_and_unambiguous = true\n\
             packets_per_s = 1000000\nlongest_retry_ms = 1000",
        ));
        connections.insert(name, ends.into());
    }
    all.insert("scopes".into(), scopes.into());
    all.insert("connections".into(), connections.into());
    let points = POINTS.iter().map(|&(place, base)| {
        let mut point = parsed("flows = true\nsequence = true");
        point.insert("segment".into(), SEGMENT.into());
        point.insert("place".into(), place.into());
        point.insert("base".into(), base.into());
        let selected = selected(metering.packets, place, base);
        point.insert("packets".into(), selected.into());
        (place.replace('_', "-"), Value::from(point))
    });
    all.insert("points".into(), points.collect::<Table>().into());
    let mut collectors = Table::new();
    collectors.insert("tls".into(), tls(folder).into());
    collectors.insert("tcp".into(), plain(port("tcp"), true).into());
    if metering.slow_at == Some(host) {
        let mut slow = plain(SLOW_PORT, false);
        slow.extend(parsed("queue_kb = 64\nstall_timeout_ms = 60000"));
        collectors.insert("slow".into(), slow.into());
    }
    all.insert("collectors".into(), collectors.into());
    Some(all)
}

/// The document with one more collector.
pub(super) fn with_late(text: &str) -> Result<String, Failure> {
    let mut document: Table = text.parse()?;
    let collectors = document
        .get_mut("ipfix")
        .and_then(|ipfix| ipfix.get_mut("collectors"))
        .and_then(Value::as_table_mut)
        .ok_or("a document without collectors")?;
    collectors.insert("late".into(), plain(port("late"), false).into());
    Ok(document.to_string())
}

/// How packets are selected at a place: each kind of selection somewhere.
fn selected(packets: Packets, place: &str, base: i64) -> Table {
    let mut table = parsed(match (packets, place) {
        (Packets::All, _) | (_, "lan_ingress") => "select = \"all\"",
        (_, "wan_egress") => "select = \"count\"\nspace = 7",
        (_, "wan_ingress") => "select = \"probability\"\nprobability = 0.125",
        _ => "select = \"hash\"\nto = 0x1fffffff",
    });
    table.insert("selection_sequence".into(), (9000 + base).into());
    table
}

fn plain(port: u16, sequence: bool) -> Table {
    let mut collector = parsed(
        "transport = \"tcp\"\nhost = \"127.0.0.1\"\nqueue_kb = 32768\nflush_ms = 100\n\
         statistics_ms = 500\nretry_ms = 300",
    );
    collector.insert("port".into(), i64::from(port).into());
    collector.insert("sequence".into(), sequence.into());
    collector
}

fn tls(folder: &Path) -> Table {
    let mut collector = plain(port("tls"), true);
    collector.insert("transport".into(), "tls".into());
    collector.insert("confirm_ms".into(), 200.into());
    let file = |name: &str| Value::from(folder.join(name).display().to_string());
    let mut tls = Table::new();
    tls.insert("certificate".into(), file("exporter.crt"));
    tls.insert("key".into(), file("exporter.key"));
    tls.insert("authorities".into(), file("ca.crt"));
    tls.insert("names".into(), table(COLLECTOR, Table::new().into()));
    collector.insert("tls".into(), tls.into());
    collector
}

/// What is the same in every document.
fn parsed(text: &str) -> Table {
    // It is ours; an empty table would be refused by the gateway.
    text.parse().unwrap_or_default()
}
