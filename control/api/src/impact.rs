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
    ("/segments/*/control_frames", Impact::Hot),
    ("/segments/*/on_failure", Impact::Hot),
    ("/segments/*/link_propagation", Impact::Hot),
    // Of a kernel interface; a device of our own gets its link when it is opened, see `impact`.
    ("/segments/*/lan_link", Impact::Hot),
    ("/segments/*/wan_link", Impact::Hot),
    // Not the relay, which is claimed at the start.
    ("/segments/*/bypass/duration_s", Impact::Hot),
    ("/segments/*/bypass/reason", Impact::Hot),
    // Tables are made for as many flows.
    ("/segments/*/limits/flows", Impact::Segment),
    ("/segments/*/limits", Impact::Hot),
    ("/segments/*/policy", Impact::Hot),
    ("/segments/*/mode", Impact::Segment),
    ("/segments/*/path_mtu", Impact::Segment),
    ("/segments/*/rdma_mtu", Impact::Segment),
    ("/segments/*/vxlan", Impact::Segment),
    // The control process has it.
    ("/management", Impact::Hot),
    // What is observed changes between two bursts; collectors are the exporting process's business.
    ("/ipfix", Impact::Hot),
];

/// Every difference between what runs and what is wanted, in the order of the keys.
pub fn changes(running: &Document, wanted: &Document) -> Vec<Change> {
    let differences = diff(&to_value(running), &to_value(wanted));
    let changes = differences.into_iter().map(|difference| Change {
        impact: impact(&difference, wanted),
        pointer: difference.pointer,
    });
    changes.collect()
}

/// The largest impact among `changes`.
pub fn largest(changes: &[Change]) -> Impact {
    let all = changes.iter().map(|change| change.impact);
    all.max().unwrap_or(Impact::None)
}

fn impact(difference: &Difference, wanted: &Document) -> Impact {
    if is_of_own_device(&difference.pointer, wanted) {
        return Impact::Process;
    }
    let found = PLACES
        .iter()
        .find(|(place, _)| is_in(&difference.pointer, place));
    found.map_or(Impact::Process, |(_, impact)| *impact)
}

/// Whether this is the link of a port that has no kernel interface.
fn is_of_own_device(pointer: &str, wanted: &Document) -> bool {
    let mut segments = wanted.segments.iter();
    segments.any(|(id, segment)| {
        let links = [("lan_link", &segment.lan), ("wan_link", &segment.wan)];
        links.iter().any(|(key, device)| {
            device.kernel_interface().is_none() && is_in(pointer, &format!("/segments/{id}/{key}"))
        })
    })
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
            (
                "\"active\"",
                "\"bypass\"",
                "/segments/a/mode",
                Impact::Segment,
            ),
            (
                "crem_port = 4801",
                "crem_port = 4801\non_failure = \"wire\"",
                "/segments/a/on_failure",
                Impact::Hot,
            ),
            (
                "crem_port = 4801",
                "crem_port = 4801\nlink_propagation = { mode = \"wire\" }",
                "/segments/a/link_propagation/mode",
                Impact::Hot,
            ),
            (
                "crem_port = 4801",
                "crem_port = 4801\nbypass = { duration_s = 60 }",
                "/segments/a/bypass/duration_s",
                Impact::Hot,
            ),
            (
                "crem_port = 4801",
                "crem_port = 4801\nbypass = { relay = { test = \"/x\" } }",
                "/segments/a/bypass/relay",
                Impact::Process,
            ),
            (
                "crem_port = 4801",
                "crem_port = 4801\nvxlan = {}",
                "/segments/a/vxlan",
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
    fn what_is_observed_and_exported_changes_hot() {
        let with = |ipfix: &str| {
            parse(&format!("{BASE}\n{ipfix}"), Syntax::Toml).unwrap_or_else(|e| panic!("{e}"))
        };
        const IPFIX: &str = r#"
            [ipfix]
            domain = 1
            pen = 32473
            first_element = 1
            [ipfix.flows]
            active_timeout_s = 60
            [ipfix.scopes]
            all = { source = "10.0.0.0/8", destination = "10.0.0.0/8" }
            [ipfix.points]
            out = { segment = "a", place = "wan_egress", base = 100, flows = true }
            [ipfix.collectors]
            a = { transport = "tcp", host = "192.0.2.9", port = 4739 }
        "#;
        let (without, running) = (with(""), with(IPFIX));
        assert_eq!(largest(&changes(&without, &running)), Impact::Hot);
        assert_eq!(largest(&changes(&running, &without)), Impact::Hot);
        for (from, to) in [
            ("= 32473", "= 32474"),
            ("= 60", "= 61"),
            ("10.0.0.0/8", "10.0.0.0/9"),
            ("wan_egress", "lan_ingress"),
            ("192.0.2.9", "192.0.2.8"),
        ] {
            assert!(IPFIX.contains(from), "{from}");
            let wanted = with(&IPFIX.replacen(from, to, 1));
            assert_eq!(largest(&changes(&running, &wanted)), Impact::Hot, "{to}");
        }
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
