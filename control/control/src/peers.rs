//! What flows and settings say of a peer: figures each way, and what does not fit together. Only reckoned here from
//! what is given; nothing is asked or sent.

use std::net::IpAddr;

use crem_api::rest::{Compatibility, Direction, EchoReport, FlowsReport, Mismatch, Setting};
use crem_api::state::{Flow, Named, PathStatus, Role};
use crem_api::{Prefix, Segment};

/// Version of the protocol that this gateway speaks.
const PROTOCOL: u8 = 1;
/// Flows that a mismatch of a whole segment names.
const NO_FLOW: u64 = 0;

/// A peer by the segment and the address in its id, `SEGMENT@ADDRESS`.
pub fn parse_id(id: &str) -> Option<(&str, IpAddr)> {
    let (segment, address) = id.split_once('@')?;
    Some((segment, address.parse().ok()?))
}

/// The id of a peer.
pub fn id(segment: &str, address: IpAddr) -> String {
    format!("{segment}@{address}")
}

/// Flows of one peer.
pub fn flows_of<'a>(
    flows: &'a [Flow],
    segment: &'a str,
    address: IpAddr,
) -> impl Iterator<Item = &'a Flow> + Clone {
    flows.iter().filter(move |flow| {
        flow.segment == segment && flow.matched.is_some_and(|m| m.peer.ip() == address)
    })
}

/// The figures of both directions.
pub fn reports<'a>(flows: impl Iterator<Item = &'a Flow> + Clone, at_ms: u64) -> Vec<FlowsReport> {
    let ways = [
        (
            Direction::ToPeer,
            Role::Csf,
            "reported_expected",
            "reported_lost",
        ),
        (Direction::FromPeer, Role::Crf, "sources", "lost"),
    ];
    let report = |(direction, role, packets, lost)| {
        let own = flows.clone().filter(|flow| flow.role == role);
        let sum = |name: &str| own.clone().map(|flow| count(flow, name)).sum();
        let mut times: Vec<u64> = own.clone().map(|f| count(f, "srtt_ns")).collect();
        times.retain(|ns| *ns > 0);
        times.sort_unstable();
        let shortest = own.clone().map(|f| count(f, "min_rtt_ns"));
        FlowsReport {
            direction,
            at_ms,
            flows: own.clone().count() as u64,
            protected: own.clone().filter(|flow| flow.reason.is_none()).count() as u64,
            packets: sum(packets),
            lost: sum(lost),
            rtt_min_us: shortest.filter(|ns| *ns > 0).min().map(|ns| ns / 1000),
            rtt_median_us: times.get(times.len() / 2).map(|ns| ns / 1000),
            symbol_octets: own.clone().filter_map(|f| f.applied).map(|a| a.t).max(),
        }
    };
    ways.into_iter().map(report).collect()
}

fn count(flow: &Flow, name: &str) -> u64 {
    flow.counters.get(name).copied().unwrap_or(0)
}

/// What an operator should know of a path, in sentences.
pub fn findings(
    echo: &EchoReport,
    flows: &[FlowsReport],
    path: Option<&PathStatus>,
    path_mtu: u16,
) -> Vec<String> {
    let mut found = Vec::new();
    match (&echo.unavailable, echo.sent, echo.received) {
        (Some(why), ..) => found.push(format!("No echo could be sent: {why}.")),
        (None, sent, 0) => found.push(format!(
            "None of {sent} echoes came back: the peer is not there, or something on the way drops ICMP."
        )),
        (None, sent, received) if received < sent => {
            let lost = sent - received;
            found.push(format!("{lost} of {sent} echoes were lost, on either way."));
        }
        _ => {}
    }
    if let (passed, Some(refused)) = (echo.mtu_both_ways, echo.mtu_refused) {
        let passed = passed.map_or("no length".to_owned(), |n| format!("{n} octets"));
        found.push(format!(
            "IP packets of {refused} octets do not come back, {passed} do; path_mtu says {path_mtu}."
        ));
    } else if echo.mtu_both_ways.is_some() && u32::from(path_mtu) > echo.mtu_tried {
        found.push(format!(
            "Lengths above {} octets, which path_mtu of {path_mtu} allows, are tried by repair of flows alone.",
            echo.mtu_tried
        ));
    }
    if let Some(path) = path.filter(|path| path.breaker != "closed") {
        let breaker = &path.breaker;
        found.push(format!(
            "The circuit breaker of the path is {breaker}: no flow is protected."
        ));
    }
    if flows.iter().all(|way| way.flows == 0) {
        found.push(
            "No flow of this peer is known: there are no figures of packets of hosts.".to_owned(),
        );
    }
    for way in flows.iter().filter(|way| way.lost > 0 && way.packets > 0) {
        let words = match way.direction {
            Direction::ToPeer => "to the peer",
            Direction::FromPeer => "from the peer",
        };
        let ppm = way.lost.saturating_mul(1_000_000) / way.packets;
        let (lost, packets) = (way.lost, way.packets);
        found.push(format!(
            "{lost} of {packets} packets {words} were lost, {ppm} ppm."
        ));
    }
    found
}

/// What is known of a peer besides its flows.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// Its segment.
    pub segment: &'a str,
    /// Its address.
    pub address: IpAddr,
    /// The segment's part of the document that runs.
    pub config: &'a Segment,
    /// Counters of messages in the segment.
    pub messages: Option<&'a Named>,
}

/// Why a flow is not protected, the setting here that it is about, and what is the matter.
const REASONS: [(&str, &str, &str); 12] = [
    (
        "no_hello_ack",
        "crem_port",
        "The peer has not answered HELLO yet. Is it on the same crem_port, and does it accept this gateway as a peer?",
    ),
    (
        "peer_dead",
        "peers",
        "The peer answers nobody. Is it there, on the same crem_port, and does it accept this gateway as a peer?",
    ),
    (
        "negative_cache",
        "peers",
        "The peer answers for other flows but not for these. Does it serve their destinations?",
    ),
    (
        "kind_not_known",
        "policy/responses",
        "The peer does not answer for flows of responses: they are off there, or its version has none.",
    ),
    (
        "limits",
        "policy",
        "The limits of both gateways leave no parameters: compare k_max, m_max and limits there and here.",
    ),
    (
        "mtu",
        "path_mtu",
        "Repair for these packets does not fit the path MTU: raise path_mtu, or lower the RDMA MTU of the hosts.",
    ),
    (
        "path_mtu",
        "path_mtu",
        "Messages with their symbols do not reach the peer, while packets do: path_mtu is larger than the path.",
    ),
    (
        "parameters",
        "policy",
        "The peer did not acknowledge, or refused, the parameters: compare k_max, m_max and limits there and here.",
    ),
    (
        "closed_by_peer",
        "mode",
        "The peer closed them. Its mode, or its limits.flows, may not take them.",
    ),
    (
        "no_reports",
        "limits/report_budget",
        "The peer stopped to report loss: it may have started anew, or its report_budget is used up.",
    ),
    (
        "second_namespace",
        "vxlan",
        "The same hosts and QP are protected in another VLAN or tunnel: both gateways have to tell them apart.",
    ),
    (
        "breaker",
        "policy",
        "The circuit breaker is open: most messages to the peer were lost.",
    ),
];

/// What both sides agreed on beside what is configured here.
pub fn compatibility<'a>(
    about: &About<'_>,
    flows: impl Iterator<Item = &'a Flow> + Clone,
    at_ms: u64,
) -> Compatibility {
    let sent = flows.clone().filter(|flow| flow.role == Role::Csf);
    let answers = flows.clone().any(|f| f.matched.is_some_and(|m| m.answered));
    let applied = sent.clone().filter_map(|flow| flow.applied);
    let mut schemes: Vec<u8> = applied.clone().map(|a| a.scheme).collect();
    schemes.sort_unstable();
    schemes.dedup();
    let policy = &about.config.policy;
    let pointer = |place: &str| format!("/segments/{}/{place}", about.segment);
    let setting =
        |(place, meaning): (&str, &str), configured: u64, values: &mut dyn Iterator<Item = u64>| {
            let (mut least, mut most) = (None, None);
            for value in values {
                least = Some(least.map_or(value, |l: u64| l.min(value)));
                most = Some(most.map_or(value, |m: u64| m.max(value)));
            }
            Setting {
                pointer: pointer(place),
                configured,
                meaning: meaning.to_owned(),
                least,
                most,
            }
        };
    let k = || applied.clone().map(|a| u64::from(a.k));
    let m = || applied.clone().map(|a| u64::from(a.m));
    let t = || applied.clone().map(|a| u64::from(a.t));
    let (of_k, of_m, of_t) = (
        "packets of a block, k",
        "ordinary repair symbols of a block, m",
        "symbol length T, octets: the RDMA MTU and headers",
    );
    let settings = vec![
        setting(("policy/k", of_k), policy.k.into(), &mut k()),
        setting(("policy/k_max", of_k), policy.k_max.into(), &mut k()),
        setting(("policy/m_min", of_m), policy.m_min.into(), &mut m()),
        setting(("policy/m_max", of_m), policy.m_max.into(), &mut m()),
        setting(("rdma_mtu", of_t), about.config.rdma_mtu.into(), &mut t()),
    ];
    Compatibility {
        id: id(about.segment, about.address),
        at_ms,
        answers,
        protocol: answers.then_some(PROTOCOL),
        flows: flows.clone().count() as u64,
        schemes,
        settings,
        mismatches: mismatches(about, flows, &pointer),
    }
}

fn mismatches<'a>(
    about: &About<'_>,
    flows: impl Iterator<Item = &'a Flow> + Clone,
    pointer: &dyn Fn(&str) -> String,
) -> Vec<Mismatch> {
    let of_reason = |(reason, place, text): &(&str, &str, &str)| {
        let is = |flow: &&Flow| flow.reason.as_deref() == Some(*reason);
        let concerned = flows.clone().filter(is).count() as u64;
        (concerned > 0).then(|| Mismatch {
            pointer: pointer(place),
            flows: concerned,
            text: (*text).to_owned(),
        })
    };
    let mut found: Vec<Mismatch> = REASONS.iter().filter_map(of_reason).collect();
    // With a k that does not follow anything, less than what is wanted is what the peer takes at most.
    let policy = &about.config.policy;
    let smaller =
        |flow: &&Flow| flow.role == Role::Csf && flow.applied.is_some_and(|a| a.k < policy.k);
    let smaller = flows.clone().filter(smaller).count() as u64;
    if smaller > 0 && !policy.adapt_k {
        found.push(Mismatch {
            pointer: pointer("policy/k"),
            flows: NO_FLOW,
            text: format!(
                "{smaller} flows are protected with blocks of fewer than {} packets: its k_max is smaller.",
                policy.k
            ),
        });
    }
    let served =
        |flow: &&Flow| flow.role == Role::Csf && is_served(&about.config.served, flow.destination);
    let looped = flows.clone().filter(served).count() as u64;
    if looped > 0 {
        found.push(Mismatch {
            pointer: pointer("served"),
            flows: looped,
            text: "Destinations of these flows are served here and by the peer.".to_owned(),
        });
    }
    let versions = about.messages.and_then(|m| m.get("malformed_version"));
    if let Some(count) = versions.filter(|count| **count > 0) {
        found.push(Mismatch {
            pointer: pointer("crem_port"),
            flows: NO_FLOW,
            text: format!(
                "{count} messages of another version of the protocol came in this segment, from this peer or another."
            ),
        });
    }
    found
}

fn is_served<V>(served: &std::collections::BTreeMap<Prefix, V>, address: IpAddr) -> bool {
    served.keys().any(|prefix| prefix.contains(address))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::{Value, json};

    fn flow(role: &str, more: &Value) -> Flow {
        let mut flow = json!({
            "segment": "a", "role": role, "source": "10.0.1.1", "destination": "10.0.2.1", "qp": 7,
            "space": "requests", "state": "protected",
            "matched": {"peer": "192.0.2.2:4801", "answered": true},
        });
        for (key, value) in more.as_object().unwrap() {
            flow[key] = value.clone();
        }
        serde_json::from_value(flow).unwrap()
    }

    fn segment(policy: Value) -> Segment {
        let document = json!({"version": 1, "segments": {"a": {
            "mode": "active", "crem_port": 4801, "path_mtu": 4500,
            "lan": {"interface": "lan0"}, "wan": {"interface": "wan0"},
            "served": {"10.0.1.0/24": {}}, "peers": {"10.0.2.0/24": {"address": "192.0.2.2"}},
            "inband": {"address": "192.0.2.1/24"}, "policy": policy,
        }}});
        let document = crem_api::from_value(&document).unwrap();
        document.segments.into_values().next().unwrap()
    }

    #[test]
    fn figures_are_of_the_flows_of_one_peer_each_way() {
        let counters = json!({"reported_expected": 1000, "reported_lost": 10, "srtt_ns": 20_000_000,
            "min_rtt_ns": 19_000_000});
        let all = [
            flow(
                "csf",
                &json!({"counters": counters, "applied": {"config": 1, "scheme": 2, "k": 32, "m": 2, "t": 4214}}),
            ),
            flow(
                "csf",
                &json!({"counters": {"srtt_ns": 0}, "reason": "limits"}),
            ),
            flow(
                "crf",
                &json!({"counters": {"sources": 500, "lost": 0, "srtt_ns": 3000}}),
            ),
            flow(
                "csf",
                &json!({"matched": {"peer": "192.0.2.3:4801", "answered": true}}),
            ),
            flow("csf", &json!({"segment": "b"})),
        ];
        let own = flows_of(&all, "a", "192.0.2.2".parse().unwrap());
        let ways = reports(own, 5);
        assert_eq!(
            (
                ways[0].flows,
                ways[0].protected,
                ways[0].packets,
                ways[0].lost
            ),
            (2, 1, 1000, 10)
        );
        assert_eq!(
            (ways[0].rtt_min_us, ways[0].rtt_median_us),
            (Some(19_000), Some(20_000))
        );
        assert_eq!(
            (ways[0].symbol_octets, ways[1].symbol_octets),
            (Some(4214), None)
        );
        assert_eq!(
            (ways[1].direction, ways[1].packets),
            (Direction::FromPeer, 500)
        );
        let found = findings(&EchoReport::default(), &ways, None, 4500);
        assert!(
            found.contains(&"10 of 1000 packets to the peer were lost, 10000 ppm.".to_owned()),
            "{found:?}"
        );
    }

    #[test]
    fn a_path_that_is_shorter_than_configured_is_named() {
        let echo = EchoReport {
            sent: 20,
            received: 19,
            mtu_both_ways: Some(1372),
            mtu_refused: Some(1376),
            mtu_tried: 1500,
            ..EchoReport::default()
        };
        let path = PathStatus {
            breaker: "open".to_owned(),
            ..PathStatus::default()
        };
        let found = findings(&echo, &[], Some(&path), 1500);
        assert_eq!(found[0], "1 of 20 echoes were lost, on either way.");
        assert!(
            found[1].contains("1376 octets do not come back, 1372 octets do"),
            "{found:?}"
        );
        assert!(
            found[2].contains("breaker of the path is open"),
            "{found:?}"
        );
        let silent = EchoReport {
            sent: 20,
            ..EchoReport::default()
        };
        assert!(findings(&silent, &[], None, 1500)[0].starts_with("None of 20"));
    }

    #[test]
    fn what_does_not_fit_is_said_at_the_setting_that_it_is_about() {
        let config = segment(json!({"k": 32, "adapt_k": false}));
        let messages: Named = [("malformed_version".to_owned(), 3)].into();
        let about = About {
            segment: "a",
            address: "192.0.2.2".parse().unwrap(),
            config: &config,
            messages: Some(&messages),
        };
        let applied = json!({"applied": {"config": 1, "scheme": 2, "k": 16, "m": 2, "t": 4214}});
        let all = [
            flow("csf", &applied),
            flow(
                "csf",
                &json!({"reason": "kind_not_known", "space": "responses"}),
            ),
            flow("csf", &json!({"reason": "below_threshold"})),
        ];
        let seen = compatibility(&about, all.iter(), 5);
        assert_eq!(
            (seen.answers, seen.protocol, seen.schemes.as_slice()),
            (true, Some(1), [2].as_slice())
        );
        let k = &seen.settings[0];
        assert_eq!((k.configured, k.least, k.most), (32, Some(16), Some(16)));
        let places: Vec<(&str, u64)> = seen
            .mismatches
            .iter()
            .map(|m| (m.pointer.as_str(), m.flows))
            .collect();
        assert_eq!(
            places,
            [
                ("/segments/a/policy/responses", 1),
                ("/segments/a/policy/k", 0),
                ("/segments/a/crem_port", 0)
            ]
        );
        // A k that follows the traffic says nothing of the peer.
        let config = segment(json!({"k": 32}));
        let about = About {
            config: &config,
            messages: None,
            ..about
        };
        assert!(
            compatibility(&about, all[..1].iter(), 5)
                .mismatches
                .is_empty()
        );
    }

    #[test]
    fn ids_name_a_segment_and_an_address() {
        let address: IpAddr = "2001:db8::2".parse().unwrap();
        assert_eq!(parse_id(&id("a", address)), Some(("a", address)));
        assert_eq!(parse_id("a"), None);
        assert_eq!(parse_id("a@b"), None);
    }
}
