//! What is shown: rates between two looks at the gateway, as text. No terminal and no socket here.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::table;

/// One look at the gateway.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Look {
    /// When, milliseconds on a clock that only rises.
    pub(super) at_ms: u64,
    /// The data plane as a whole; null while it does not answer.
    pub(super) status: Value,
    /// Its counters.
    pub(super) counters: Value,
    /// Flows, the first page.
    pub(super) flows: Value,
    /// The commit that waits, if any.
    pub(super) commit: Value,
}

/// What flows are ordered by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Order {
    /// Packets a second.
    #[default]
    Rate,
    /// Loss before restoration.
    Loss,
}

/// Counts of a segment whose rates are shown, by heading: groups of counters and names in them.
const RATES: [(&str, &[(&str, &str)]); 7] = [
    ("lan_rx_pps", &[("lan", "rx_frames")]),
    ("wan_rx_pps", &[("wan", "rx_frames")]),
    ("lan_rx_bps", &[("lan", "rx_octets")]),
    ("wan_rx_bps", &[("wan", "rx_octets")]),
    ("restored_ps", &[("coding", "restored")]),
    (
        "repair_ps",
        &[
            ("coding", "repair_ordinary"),
            ("coding", "repair_coded"),
            ("coding", "repair_copy"),
        ],
    ),
    ("drops_ps", &[("drops", "*")]),
];

/// The rates between two looks, as one document.
pub(super) fn rates(before: &Look, now: &Look, order: Order, most: usize) -> Value {
    let seconds = now.at_ms.saturating_sub(before.at_ms).max(1) as f64 / 1000.0;
    json!({
        "status": {
            "version": now.status["version"], "revision": now.status["revision"],
            "uptime_ms": now.status["uptime_ms"],
        },
        "commit": now.commit,
        "seconds": seconds,
        "segments": segments(before, now, seconds),
        "flows": flows(before, now, seconds, order, most),
        "flows_total": now.flows["total"],
    })
}

/// What two counts differ by, a second. A count that fell began anew.
fn rate(before: u64, now: u64, seconds: f64) -> u64 {
    let more = now.checked_sub(before).unwrap_or(now);
    (more as f64 / seconds).round() as u64
}

fn segments(before: &Look, now: &Look, seconds: f64) -> Vec<Value> {
    let sum = |look: &Look, id: &str, parts: &[(&str, &str)]| -> u64 {
        let groups = &look.counters["segments"][id];
        let part = |(group, name): &(&str, &str)| match *name {
            "*" => {
                let all = groups[*group].as_object().into_iter().flatten();
                all.filter_map(|(_, count)| count.as_u64()).sum()
            }
            name => groups[*group][name].as_u64().unwrap_or(0),
        };
        parts.iter().map(part).sum()
    };
    let row = |(id, status): (&String, &Value)| {
        let mut row = json!({
            "segment": id, "mode": status["mode"], "why": status["mode_reason"],
            "lan_up": status["lan"]["link_up"], "wan_up": status["wan"]["link_up"],
        });
        for (name, parts) in RATES {
            let mut rate = rate(sum(before, id, parts), sum(now, id, parts), seconds);
            if name.ends_with("_bps") {
                rate = rate.saturating_mul(8);
            }
            row[name] = rate.into();
        }
        row
    };
    let all = now.status["segments"].as_object();
    all.into_iter().flatten().map(row).collect()
}

/// What tells flows apart.
fn key(flow: &Value) -> String {
    let part = |name: &str| table::cell(&flow[name]);
    ["segment", "role", "source", "destination", "qp", "space"]
        .map(part)
        .join(" ")
}

fn flows(before: &Look, now: &Look, seconds: f64, order: Order, most: usize) -> Vec<Value> {
    let listed = |look: &Look| look.flows["flows"].as_array().cloned().unwrap_or_default();
    let sources = |flow: &Value| flow["counters"]["sources"].as_u64().unwrap_or(0);
    let old: BTreeMap<String, u64> = listed(before)
        .iter()
        .map(|f| (key(f), sources(f)))
        .collect();
    let mut rows: Vec<(u64, Value)> = Vec::new();
    for flow in listed(now) {
        // What one has counted before it was first seen is no rate.
        let known = old.get(&key(&flow)).copied().unwrap_or(sources(&flow));
        let pps = rate(known, sources(&flow), seconds);
        let by = match order {
            Order::Rate => pps,
            Order::Loss => flow["loss"]["before_ppm"].as_u64().unwrap_or(0),
        };
        let row = json!({
            "segment": flow["segment"], "role": flow["role"], "source": flow["source"],
            "destination": flow["destination"], "qp": flow["qp"], "pps": pps,
            "supported": flow["supported"], "matched": flow["matched"]["answered"],
            "k": flow["applied"]["k"], "m": flow["applied"]["m"],
            "before_ppm": flow["loss"]["before_ppm"], "after_ppm": flow["loss"]["after_ppm"],
            "why": flow["reason"],
        });
        rows.push((by, row));
    }
    rows.sort_by_key(|(by, _)| std::cmp::Reverse(*by));
    rows.truncate(most);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// The document as text, at most so many columns and lines.
pub(super) fn text(rates: &Value, columns: usize, lines: usize) -> String {
    let mut text = head(rates);
    let segments = rates["segments"].as_array().map_or(&[][..], Vec::as_slice);
    text.push('\n');
    text.push_str(&segment_rows(segments));
    text.push('\n');
    let members = [
        "segment",
        "role",
        "source",
        "destination",
        "qp",
        "pps",
        "supported",
        "matched",
        "k",
        "m",
        "before_ppm",
        "after_ppm",
        "why",
    ];
    let flows = rates["flows"].as_array().map_or(&[][..], Vec::as_slice);
    text.push_str(&table::objects(&members, flows));
    let cut = |line: &str| line.chars().take(columns).collect::<String>();
    let mut shown: String = text.lines().take(lines).map(|l| cut(l) + "\n").collect();
    shown.truncate(shown.trim_end_matches('\n').len());
    shown.push('\n');
    shown
}

fn head(rates: &Value) -> String {
    let status = &rates["status"];
    if status["version"].is_null() {
        return "the data plane does not answer\n".to_owned();
    }
    let uptime = status["uptime_ms"].as_u64().unwrap_or(0) / 1000;
    let mut head = format!(
        "CREM {}, revision {}, up {}:{:02}:{:02}, {} flows",
        table::cell(&status["version"]),
        table::cell(&status["revision"]),
        uptime / 3600,
        uptime / 60 % 60,
        uptime % 60,
        table::cell(&rates["flows_total"]),
    );
    if let Some(ms) = rates["commit"]["remaining_ms"].as_u64() {
        let revision = &rates["commit"]["revision"];
        head.push_str(&format!(
            ", revision {revision} is rolled back in {} s",
            ms / 1000
        ));
    }
    head.push('\n');
    head
}

fn segment_rows(segments: &[Value]) -> String {
    let row = |s: &Value| {
        let link = |up: &Value| if *up == true { "up" } else { "down" };
        let cell = |name: &str| table::cell(&s[name]);
        let bits = |name: &str| scaled(s[name].as_u64().unwrap_or(0));
        vec![
            cell("segment"),
            cell("mode"),
            format!("{}/{}", link(&s["lan_up"]), link(&s["wan_up"])),
            cell("lan_rx_pps"),
            bits("lan_rx_bps"),
            cell("wan_rx_pps"),
            bits("wan_rx_bps"),
            cell("repair_ps"),
            cell("restored_ps"),
            cell("drops_ps"),
            cell("why"),
        ]
    };
    let header = [
        "segment",
        "mode",
        "lan/wan",
        "lan pkt/s",
        "bit/s",
        "wan pkt/s",
        "bit/s",
        "repair/s",
        "restored/s",
        "drops/s",
        "why",
    ];
    let rows: Vec<Vec<String>> = segments.iter().map(row).collect();
    table::rows(&header, &rows)
}

/// A number with the prefix that leaves it three digits.
fn scaled(number: u64) -> String {
    let mut value = number as f64;
    for unit in ["", "k", "M", "G"] {
        if value < 1000.0 {
            return if unit.is_empty() {
                number.to_string()
            } else {
                format!("{value:.1}{unit}")
            };
        }
        value /= 1000.0;
    }
    format!("{value:.1}T")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn look(at_ms: u64, frames: u64, sources: [u64; 2]) -> Look {
        let flow = |qp: usize, loss: u64| {
            json!({
                "segment": "a", "role": "csf", "source": "10.0.1.1", "destination": "10.0.2.1", "qp": qp,
                "space": "requests", "supported": true, "matched": {"answered": true},
                "applied": {"k": 32, "m": 2}, "loss": {"before_ppm": loss, "after_ppm": 0},
                "counters": {"sources": sources[qp]},
            })
        };
        Look {
            at_ms,
            status: json!({
                "version": "1.0", "revision": 3, "uptime_ms": 3_725_000,
                "segments": {"a": {"mode": "active", "lan": {"link_up": true}, "wan": {"link_up": false}}},
            }),
            counters: json!({"segments": {"a": {
                "lan": {"rx_frames": frames, "rx_octets": frames * 1000}, "drops": {"x": frames, "y": 1},
            }}}),
            flows: json!({"flows": [flow(0, 10_000), flow(1, 5)], "total": 2}),
            commit: json!({"state": "pending", "revision": 3, "remaining_ms": 61_000}),
        }
    }

    #[test]
    fn rates_are_what_counts_differ_by_in_a_second() {
        let rates = rates(
            &look(1000, 500, [0, 0]),
            &look(3000, 2500, [100, 4000]),
            Order::Rate,
            10,
        );
        let segment = &rates["segments"][0];
        assert_eq!(
            (&segment["lan_rx_pps"], &segment["lan_rx_bps"]),
            (&json!(1000), &json!(8_000_000))
        );
        assert_eq!(
            (&segment["drops_ps"], &segment["wan_rx_pps"]),
            (&json!(1000), &json!(0))
        );
        let flows: Vec<(u64, u64)> = rates["flows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|f| (f["qp"].as_u64().unwrap(), f["pps"].as_u64().unwrap()))
            .collect();
        assert_eq!(flows, [(1, 2000), (0, 50)]);
    }

    #[test]
    fn the_order_and_the_number_of_flows_are_as_asked() {
        let (before, now) = (look(1000, 0, [0, 0]), look(2000, 0, [1, 2]));
        let by_loss = rates(&before, &now, Order::Loss, 1);
        assert_eq!(by_loss["flows"].as_array().unwrap().len(), 1);
        assert_eq!(by_loss["flows"][0]["qp"], 0);
    }

    #[test]
    fn a_count_that_began_anew_and_a_flow_that_is_new_make_no_jump() {
        let rates = rates(
            &look(1000, 500, [7, 7]),
            &look(2000, 20, [9, 9]),
            Order::Rate,
            9,
        );
        assert_eq!(rates["segments"][0]["lan_rx_pps"], 20);
        let mut without = look(1000, 500, [7, 7]);
        without.flows = Value::Null;
        let rates = super::rates(&without, &look(2000, 500, [9, 9]), Order::Rate, 9);
        assert_eq!(rates["flows"][0]["pps"], 0);
    }

    #[test]
    fn the_text_keeps_to_its_columns_and_lines() {
        let rates = rates(
            &look(1000, 0, [0, 0]),
            &look(2000, 1000, [1, 2]),
            Order::Rate,
            9,
        );
        let whole = text(&rates, usize::MAX, usize::MAX);
        assert!(whole.starts_with(
            "CREM 1.0, revision 3, up 1:02:05, 2 flows, revision 3 is rolled back in 61 s\n"
        ));
        assert!(whole.contains("up/down"), "{whole}");
        assert!(whole.contains("8.0M"), "{whole}");
        let small = text(&rates, 20, 4);
        assert_eq!(small.lines().count(), 4);
        assert!(
            small.lines().all(|line| line.chars().count() <= 20),
            "{small}"
        );
        let nobody = text(
            &super::rates(&Look::default(), &Look::default(), Order::Rate, 9),
            80,
            24,
        );
        assert!(
            nobody.starts_with("the data plane does not answer\n"),
            "{nobody}"
        );
    }
}
