//! What several values on IPFIX must fulfil together, and beside the segments.

use std::collections::BTreeMap;

use super::{Collector, CollectorTransport, Ipfix};
use crate::document::Document;
use crate::read::{Issue, Issues};

/// The PEN of reverse elements (RFC 5103), which is nobody's own.
const REVERSE_PEN: u32 = 29305;
/// UDP port of RoCEv2.
const ROCE_PORT: u16 = 4791;
/// Half of the PSN space: a retransmission has to come sooner (AMB-SEQ-HALF).
const HALF_SPACE: u64 = 1 << 23;

struct Check<'a>(&'a Issues);

impl Check<'_> {
    fn say(&self, place: &str, found: impl Into<String>, expected: impl Into<String>) {
        self.0
            .push(Issue::new(format!("/ipfix{place}"), found, expected));
    }
}

/// Notes every contradiction.
pub(crate) fn ipfix(document: &Document, issues: &Issues) {
    let Some(ipfix) = &document.ipfix else {
        return;
    };
    let check = Check(issues);
    numbers(ipfix, &check);
    points(document, ipfix, &check);
    connections(ipfix, &check);
    let mut numbers = BTreeMap::new();
    for (number, name, collector) in ipfix.numbered() {
        self::collector(collector, &format!("/collectors/{name}"), &check);
        if let Some(other) = numbers.insert(number, name) {
            let found = format!("a name with the number of collector {other}, {number}");
            check.say(&format!("/collectors/{name}"), found, "another name");
        }
    }
    if ipfix.collectors.is_empty() {
        check.say("/collectors", "no collector", "at least one collector");
    }
}

fn numbers(ipfix: &Ipfix, check: &Check<'_>) {
    if ipfix.pen == REVERSE_PEN {
        let expected = "a private enterprise number of your own; 29305 stands for reverse elements";
        check.say("/pen", ipfix.pen.to_string(), expected);
    }
    if ipfix.vxlan_port == ROCE_PORT {
        let expected = "another port than that of RoCEv2";
        check.say("/vxlan_port", ROCE_PORT.to_string(), expected);
    }
    if ipfix.first_element.is_some() != ipfix.elements.is_empty() {
        let found = if ipfix.first_element.is_some() {
            "both first_element and elements"
        } else {
            "neither first_element nor elements"
        };
        check.say("", found, "exactly one of first_element and elements");
    }
}

fn points(document: &Document, ipfix: &Ipfix, check: &Check<'_>) {
    if !ipfix.points.is_empty() && ipfix.scopes.is_empty() {
        check.say(
            "/scopes",
            "no scope",
            "at least one scope: without one nothing is observed",
        );
    }
    let (mut places, mut bases) = (BTreeMap::new(), BTreeMap::new());
    let mut selections = BTreeMap::new();
    for (name, point) in &ipfix.points {
        let at = |key: &str| format!("/points/{name}/{key}");
        if !document.segments.contains_key(&point.segment) {
            let found = format!("{:?}", point.segment.as_str());
            check.say(
                &at("segment"),
                found,
                "the id of a segment of this document",
            );
        }
        if let Some(other) = places.insert((&point.segment, point.place), name) {
            let found = format!("the place of point {other} too");
            check.say(&at("place"), found, "each place of a segment once");
        }
        if let Some(other) = bases.insert(point.base, name) {
            let found = format!("{}, which point {other} has too", point.base);
            check.say(&at("base"), found, "a base of its own for each point");
        }
        let selection = point.packets.as_ref().and_then(|p| p.selection_sequence);
        if let Some(selection) = selection
            && let Some(other) = selections.insert(selection, name)
        {
            let found = format!("{selection}, which point {other} has too");
            let expected = "a Selection Sequence of its own for each point";
            check.say(&at("packets/selection_sequence"), found, expected);
        }
        if point.sequence && ipfix.connections.is_empty() {
            let expected = "at least one provisioned connection where a point observes sequences";
            check.say("/connections", "no connection", expected);
        }
        if point.packets.is_none() && !point.flows && !point.sequence {
            let expected = "at least one of packets, flows, sequence";
            check.say(&format!("/points/{name}"), "nothing to observe", expected);
        }
    }
}

fn connections(ipfix: &Ipfix, check: &Check<'_>) {
    for (name, connection) in &ipfix.connections {
        let at = |key: &str| format!("/connections/{name}/{key}");
        let late = connection.packets_of_retry();
        if late >= HALF_SPACE {
            let found = format!(
                "{} ms: a retransmission may come {late} packets late",
                connection.longest_retry_ms
            );
            let expected = format!("fewer than {HALF_SPACE} packets, half of the PSN space");
            check.say(&at("longest_retry_ms"), found, expected);
        }
        if connection.generation.is_some() && !connection.is_one() {
            let expected = "one source, destination, qp, pkey and VLAN where a generation is given";
            check.say(&at("generation"), "a generation for many", expected);
        }
        if connection.source.address().is_ipv4() != connection.destination.address().is_ipv4() {
            let found = connection.destination.to_string();
            check.say(&at("destination"), found, "the address family of source");
        }
    }
}

fn collector(collector: &Collector, at: &str, check: &Check<'_>) {
    let secure = collector.transport == CollectorTransport::Tls;
    if secure && collector.tls.is_none() {
        let expected = "certificate, key, authorities and names with transport \"tls\"";
        check.say(&format!("{at}/tls"), "nothing", expected);
    }
    if !secure && collector.tls.is_some() {
        let expected = "no table tls with another transport than \"tls\"";
        check.say(&format!("{at}/tls"), "a table", expected);
    }
    let loopback = collector.address().is_some_and(|a| a.is_loopback());
    if collector.sequence {
        if collector.transport.is_datagram() {
            let expected = "false: datagrams do not keep the order of reports";
            check.say(&format!("{at}/sequence"), "true", expected);
        } else if !secure && !loopback {
            let expected = "false, or transport \"tls\": sequence reports need it, except to the loopback address";
            check.say(&format!("{at}/sequence"), "true", expected);
        }
    }
    if !collector.packets && !collector.flows && !collector.sequence {
        let expected = "at least one of packets, flows, sequence";
        check.say(at, "no records for it", expected);
    }
    let message = if collector.transport.is_datagram() {
        collector.mtu.unwrap_or(512)
    } else {
        collector.max_message
    };
    let needed = (4 * u32::from(message)).div_ceil(1024);
    if collector.queue_kb < needed {
        let expected = format!("at least {needed} KB: room for four messages of {message} octets");
        check.say(
            &format!("{at}/queue_kb"),
            collector.queue_kb.to_string(),
            expected,
        );
    }
}
