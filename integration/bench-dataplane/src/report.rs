//! The figures as a table and as JSON, and what they have to reach.

use serde_json::{Value, json};

use crate::latency::Latency;
use crate::rows::{Row, Work};

/// The table's line of a row.
pub fn line(row: &Row, tsc_per_ns: f64) -> String {
    let cost = &row.cost;
    let ns = |counts: f64| counts / tsc_per_ns;
    let all = cost.batches + cost.left_out;
    format!(
        "{:40} {:8.1} ns {:8.1} cycles/packet (best tenth {:6.1}) {:7.1} Gbit/s  turns p50 {:.0} p99 {:.0} p99.9 {:.0} ns/packet  protected {}/{}  left out {:.1} %",
        row.title,
        ns(cost.mean),
        cost.mean,
        cost.least,
        row.gigabits(tsc_per_ns),
        ns(cost.p50),
        ns(cost.p99),
        ns(cost.p999),
        row.protected,
        if row.work == Work::Pass {
            0
        } else {
            row.setting.flows
        },
        cost.left_out as f64 * 100.0 / all.max(1) as f64,
    )
}

/// A row for other programs.
pub fn to_json(row: &Row, tsc_per_ns: f64) -> Value {
    let cost = &row.cost;
    json!({
        "title": row.title,
        "flows": row.setting.flows,
        "payload": row.setting.payload,
        "protected": row.protected,
        "cycles_per_packet": cost.mean,
        "cycles_per_packet_median_stretch": cost.median,
        "cycles_per_packet_best_tenth": cost.least,
        "ns_per_packet": cost.mean / tsc_per_ns,
        "gbit_per_s": row.gigabits(tsc_per_ns),
        "turn_ns_per_packet": {
            "p50": cost.p50 / tsc_per_ns,
            "p99": cost.p99 / tsc_per_ns,
            "p99.9": cost.p999 / tsc_per_ns,
        },
        "packets": cost.packets,
        "batches": cost.batches,
        "batches_left_out": cost.left_out,
        "counters": row.counts.iter().map(|(name, n)| (name.clone(), json!(n)))
            .collect::<serde_json::Map<_, _>>(),
    })
}

/// What a figure has to reach.
#[derive(Clone, Debug)]
pub struct Target {
    /// Of what.
    pub what: String,
    /// The figure.
    pub is: f64,
    /// What it has to be.
    pub wanted: f64,
    /// At most that; else at least.
    pub at_most: bool,
    /// Its unit.
    pub unit: &'static str,
}

impl Target {
    /// Whether it is reached.
    pub fn met(&self) -> bool {
        if self.at_most {
            self.is <= self.wanted
        } else {
            self.is >= self.wanted
        }
    }

    /// The report's line.
    pub fn line(&self) -> String {
        format!(
            "{:6} {}: {:.2} {}, {} {} wanted",
            if self.met() { "met" } else { "MISSED" },
            self.what,
            self.is,
            self.unit,
            if self.at_most { "at most" } else { "at least" },
            self.wanted,
        )
    }

    /// For other programs.
    pub fn to_json(&self) -> Value {
        json!({
            "what": self.what, "is": self.is, "wanted": self.wanted,
            "at_most": self.at_most, "unit": self.unit, "met": self.met(),
        })
    }
}

/// The targets for which there are rows.
pub fn targets(rows: &[Row], tsc_per_ns: f64) -> Vec<Target> {
    let find = |title: &str| rows.iter().find(|row| row.title == title);
    let mut targets = Vec::new();
    if let Some(row) = find("passthrough 64B memory") {
        targets.push(Target {
            what: row.title.clone(),
            is: row.cost.mean,
            wanted: 200.0,
            at_most: true,
            unit: "cycles/packet",
        });
    }
    for (title, wanted) in [
        ("csf 4KiB m=2 flows=64", 100.0),
        ("crf 4KiB m=2 flows=64 clean", 100.0),
        ("crf 4KiB m=2 flows=64 loss=1%", 60.0),
        ("csf 1KiB m=2 flows=64", 40.0),
    ] {
        targets.extend(find(title).map(|row| Target {
            what: row.title.clone(),
            is: row.gigabits(tsc_per_ns),
            wanted,
            at_most: false,
            unit: "Gbit/s",
        }));
    }
    for work in ["csf 1KiB m=2 flows=N", "crf 1KiB m=2 flows=N clean"] {
        let few = find(&work.replace('N', "64"));
        let many = find(&work.replace('N', "10000"));
        if let (Some(few), Some(many)) = (few, many) {
            targets.push(Target {
                what: format!("{work}: 10000 to 64 flows"),
                is: many.cost.mean / few.cost.mean,
                wanted: 1.6,
                at_most: true,
                unit: "times the cost",
            });
        }
    }
    targets
}

/// The targets of the time in the gateway.
pub fn latency_targets(latency: &Latency) -> [Target; 2] {
    [(0.5, "median", 2.0), (0.999, "p99.9", 20.0)].map(|(q, name, wanted)| Target {
        what: format!("{} from rx to tx at half load, {name}", latency.title),
        is: latency.quantile_us(q),
        wanted,
        at_most: true,
        unit: "us",
    })
}
