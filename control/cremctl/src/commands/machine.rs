//! Tables of the machine that a gateway runs on.

use serde_json::Value;

use super::items;
use crate::table;

/// One line an interface.
pub(super) fn interfaces(all: &Value) -> String {
    let row = |(name, i): (&String, &Value)| {
        let addresses = i["addresses"].as_object().into_iter().flatten();
        let addresses: Vec<&str> = addresses.map(|(address, _)| address.as_str()).collect();
        vec![
            name.clone(),
            table::cell(&i["operational"]),
            table::cell(&i["carrier"]),
            table::cell(&i["mtu"]),
            table::cell(&i["mac"]),
            addresses.join(" "),
        ]
    };
    let rows: Vec<Vec<String>> = all["interfaces"]
        .as_object()
        .into_iter()
        .flatten()
        .map(row)
        .collect();
    let header = ["interface", "state", "carrier", "mtu", "mac", "addresses"];
    table::rows(&header, &rows)
}

/// One line a process.
pub(super) fn confinement(all: &Value) -> String {
    let row = |(process, c): (&String, &Value)| {
        let words = |name: &str| {
            let words: Vec<String> = items(&c[name]).map(table::cell).collect();
            words.join(" ")
        };
        vec![
            process.clone(),
            table::cell(&c["enabled"]),
            table::cell(&c["system_calls_filtered"]),
            table::cell(&c["landlock_abi"]),
            words("capabilities"),
            words("problems"),
        ]
    };
    let rows: Vec<Vec<String>> = all.as_object().into_iter().flatten().map(row).collect();
    let header = [
        "process",
        "confined",
        "calls filtered",
        "Landlock",
        "capabilities",
        "problems",
    ];
    table::rows(&header, &rows)
}

/// One line a value.
pub(super) fn pairs(all: &Value) -> String {
    let row = |(name, value): (&String, &Value)| {
        let text = match value.as_array() {
            Some(list) => list.iter().map(table::cell).collect::<Vec<_>>().join(" "),
            None => table::cell(value),
        };
        vec![name.clone(), text]
    };
    let rows: Vec<Vec<String>> = all.as_object().into_iter().flatten().map(row).collect();
    table::rows(&["name", "value"], &rows)
}

/// One line a server.
pub(super) fn syslog(all: &Value) -> String {
    let members = ["connected", "sent", "dropped", "connections", "error"];
    let row = |(name, s): (&String, &Value)| {
        let rest = members.iter().map(|m| table::cell(&s[*m]));
        std::iter::once(name.clone()).chain(rest).collect()
    };
    let rows: Vec<Vec<String>> = all.as_object().into_iter().flatten().map(row).collect();
    table::rows(
        &[
            "server",
            "connected",
            "sent",
            "dropped",
            "connections",
            "error",
        ],
        &rows,
    )
}

/// One line a port, and below one a setting that is not as the document has it, with the reason.
pub(super) fn ports(all: &Value) -> String {
    let row = |p: &Value| {
        let (link, module) = (&p["link"], &p["link"]["module"]);
        let up = match link["up"].as_bool().or(p["dataplane_link_up"].as_bool()) {
            Some(true) => "up",
            Some(false) => "down",
            None => "-",
        };
        let light = items(&module["lanes"]).map(|lane| table::cell(&lane["receive_dbm"]));
        vec![
            table::cell(&p["segment"]),
            table::cell(&p["role"]),
            table::cell(&p["device"]),
            up.to_owned(),
            table::cell(&link["speed_mbit"]),
            table::cell(&link["autonegotiation"]),
            table::cell(&link["fec"]["active"]),
            items(&p["not_applied"]).count().to_string(),
            table::cell(&module["vendor"]),
            table::cell(&module["part"]),
            light.collect::<Vec<_>>().join(" "),
        ]
    };
    let rows: Vec<Vec<String>> = items(&all["ports"]).map(row).collect();
    let header = [
        "segment",
        "role",
        "device",
        "link",
        "Mbit/s",
        "autoneg",
        "FEC",
        "not as asked",
        "vendor",
        "part",
        "received dBm",
    ];
    let mut text = table::rows(&header, &rows);
    let reasons: Vec<Vec<String>> = items(&all["ports"]).flat_map(not_as_asked).collect();
    if !reasons.is_empty() {
        text.push('\n');
        let header = ["segment", "role", "not as asked", "why"];
        text.push_str(&table::rows(&header, &reasons));
    }
    text
}

/// A row for each setting of a port's link that is otherwise. The API has each as one text, "setting: reason".
fn not_as_asked(port: &Value) -> impl Iterator<Item = Vec<String>> {
    items(&port["not_applied"]).map(|told| {
        let told = table::cell(told);
        let (what, why) = told.split_once(": ").unwrap_or(("-", told.as_str()));
        vec![
            table::cell(&port["segment"]),
            table::cell(&port["role"]),
            what.to_owned(),
            why.to_owned(),
        ]
    })
}
