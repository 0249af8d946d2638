//! What changes from one document to another, and how much of a running data plane each change disturbs.
//! Nothing is carried out here.

use serde::{Deserialize, Serialize};

use crate::diff::{Difference, diff};
use crate::document::Document;
use crate::load::to_value;

/// How much a change disturbs, in rising order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Impact {
    /// Nothing changes.
    None,
    /// In force between two bursts; flows keep their protection as far as the new values let them.
    Hot,
    /// Forwarding goes on; the flows of the segment are closed and negotiated anew.
    Segment,
    /// The data plane has to be started anew: while it does, the wire is down.
    Process,
}

/// One place where two documents differ.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Change {
    /// JSON pointer (RFC 6901) of the value that is added, removed or replaced.
    pub pointer: String,
    /// What it takes to bring it into force.
    pub impact: Impact,
}

/// Impact by place; `*` stands for one part of a pointer, and what lies deeper goes with it. The first
/// that fits counts. What is in no line, a device or the in-band address, takes a new process.
const PLACES: &[(&str, Impact)] = &[
    ("/segments/*/served", Impact::Hot),
    ("/segments/*/peers", Impact::Hot),
    ("/segments/*/allowed_peers", Impact::Hot),
    ("/segments/*/reporters", Impact::Hot),
    ("/segments/*/lldp", Impact::Hot),
    // Tables are made for as many flows.
    ("/segments/*/limits/flows", Impact::Segment),
    ("/segments/*/limits", Impact::Hot),
    ("/segments/*/policy", Impact::Hot),
    ("/segments/*/mode", Impact::Segment),
    ("/segments/*/path_mtu", Impact::Segment),
    ("/segments/*/rdma_mtu", Impact::Segment),
    // The control process has it.
    ("/management", Impact::Hot),
    // Sequence observation has observers of its own for each collector that gets its reports.
    ("/ipfix/collectors/*/sequence", Impact::Process),
    // All else of them is the exporting process's business.
    (COLLECTOR, Impact::Hot),
];

/// One collector.
const COLLECTOR: &str = "/ipfix/collectors/*";

/// Every difference between what runs and what is wanted, in the order of the keys.
pub fn changes(running: &Document, wanted: &Document) -> Vec<Change> {
    let differences = diff(&to_value(running), &to_value(wanted));
    let changes = differences.into_iter().map(|difference| Change {
        impact: impact(&difference),
        pointer: difference.pointer,
    });
    changes.collect()
}

/// The largest impact among `changes`.
pub fn largest(changes: &[Change]) -> Impact {
    let all = changes.iter().map(|change| change.impact);
    all.max().unwrap_or(Impact::None)
}

fn impact(difference: &Difference) -> Impact {
    let found = PLACES
        .iter()
        .find(|(place, _)| is_in(&difference.pointer, place));
    let observers = [&difference.old, &difference.new]
        .iter()
        .any(|collector| collector.get("sequence") == Some(&true.into()));
    match found {
        Some((COLLECTOR, _)) if observers => Impact::Process,
        Some((_, impact)) => *impact,
        None => Impact::Process,
    }
}

fn is_in(pointer: &str, place: &str) -> bool {
    let mut parts = pointer.split('/');
    place
        .split('/')
        .all(|wanted| parts.next().is_some_and(|p| wanted == "*" || p == wanted))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::load::{Syntax, parse};

    const BASE: &str = r#"
        version = 1
        [segments.a]
        mode = "active"
        crem_port = 4801
        path_mtu = 4500
        lan = { interface = "lan0" }
        wan = { interface = "wan0" }
        served = { "10.0.1.0/24" = {} }
        peers = { "10.0.2.0/24" = { address = "192.0.2.2" } }
        inband = { address = "192.0.2.1/24" }
        limits = { flows = 1000 }
        policy = { k = 32, target_fec = 1e-6 }
    "#;

    fn document(from: &str, to: &str) -> Document {
        assert!(BASE.contains(from), "{from}");
        parse(&BASE.replace(from, to), Syntax::Toml).unwrap_or_else(|e| panic!("{e}"))
    }

    fn found(from: &str, to: &str) -> Vec<(String, Impact)> {
        let changes = changes(&document("", ""), &document(from, to));
        let pairs = changes.into_iter().map(|c| (c.pointer, c.impact));
        pairs.collect()
    }

    #[test]
    fn equal_documents_change_nothing_however_they_were_written() {
        assert!(found("k = 32, ", "k = 32, m_min = 0, ").is_empty());
        assert_eq!(largest(&[]), Impact::None);
    }

    #[test]
    fn each_place_has_its_impact() {
        for (from, to, pointer, impact) in [
            ("1e-6", "1e-7", "/segments/a/policy/target_fec", Impact::Hot),
            (
                "10.0.1.0/24",
                "10.0.1.0/25",
                "/segments/a/served/10.0.1.0~124",
                Impact::Hot,
            ),
            (
                "192.0.2.2",
                "192.0.2.3",
                "/segments/a/peers/10.0.2.0~124/address",
                Impact::Hot,
            ),
            (
                "flows = 1000",
                "flows = 2000",
                "/segments/a/limits/flows",
                Impact::Segment,
            ),
            (
                "\"active\"",
                "\"passthrough\"",
                "/segments/a/mode",
                Impact::Segment,
            ),
            (
                "\"active\"",
                "\"monitor\"",
                "/segments/a/mode",
                Impact::Segment,
            ),
            ("lan0", "lan1", "/segments/a/lan/interface", Impact::Process),
            (
                "192.0.2.1/24",
                "192.0.2.9/24",
                "/segments/a/inband/address",
                Impact::Process,
            ),
            ("segments.a", "segments.b", "/segments/a", Impact::Process),
        ] {
            let found = found(from, to);
            assert_eq!(found.first(), Some(&(pointer.to_owned(), impact)), "{to}");
        }
    }

    #[test]
    fn only_collectors_of_sequences_concern_the_data_plane() {
        let with = |collectors: &str| {
            let ipfix = format!(
                "{BASE}\n[ipfix]\ndomain = 1\npen = 32473\nfirst_element = 1\n[ipfix.collectors]\n{collectors}"
            );
            parse(&ipfix, Syntax::Toml).unwrap_or_else(|e| panic!("{e}"))
        };
        let tls =
            r#"tls = { certificate = "c", key = "k", authorities = "a", names = { "n" = {} } }"#;
        let one = r#"a = { transport = "tcp", host = "192.0.2.9", port = 4739 }"#;
        let slow = one.replace("}", ", retry_ms = 90000 }");
        let two = format!("{one}\n{}", one.replace("a =", "b ="));
        let sequence = format!(
            r#"{one}{}b = {{ transport = "tls", host = "192.0.2.9", port = 4740, sequence = true, {tls} }}"#,
            "\n"
        );
        let impact = |wanted: &str| largest(&changes(&with(one), &with(wanted)));
        assert_eq!(impact(&slow), Impact::Hot);
        assert_eq!(impact(&two), Impact::Hot);
        assert_eq!(impact(&sequence), Impact::Process);
        let largest = largest(&changes(&with(&sequence), &with(one)));
        assert_eq!(largest, Impact::Process);
    }

    #[test]
    fn the_largest_impact_counts() {
        let both = BASE
            .replace("1e-6", "1e-7")
            .replace("\"active\"", "\"block\"");
        let both = parse(&both, Syntax::Toml).unwrap();
        let changes = changes(&document("", ""), &both);
        assert_eq!(changes.len(), 2);
        assert_eq!(largest(&changes), Impact::Segment);
    }
}
