//! Plans of documents: of the example, and of changed ones.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
use super::*;
use crem_api::{Syntax, parse};
use crem_wire::frame::Network;

const EXAMPLE: &str = include_str!("../../../../control/api/examples/ipfix.toml");

fn plan(text: &str, workers: u16) -> Result<Plan, Invalid> {
    let document = parse(text, Syntax::Toml).unwrap();
    Plan::new(&document.ipfix.unwrap(), workers)
}

fn segment() -> SegmentId {
    "a".parse().unwrap()
}

#[test]
fn meters_and_sessions_of_the_example_can_be_built() {
    let plan = plan(EXAMPLE, 2).unwrap();
    for worker in 0..2 {
        let points = plan.points(&segment(), worker);
        let meter = Meter::new(plan.scopes().clone(), &points, worker, plan.memory()).unwrap();
        assert!(meter.is_active(Place::LanIngress) && !meter.is_active(Place::WanEgress));
        let of = points
            .iter()
            .find(|p| p.place == Place::LanIngress)
            .unwrap();
        assert_eq!(
            of.packets.unwrap().selection_sequence,
            9001 + u64::from(worker)
        );
        // The collector with sequence reports has an observer, the other has none.
        assert_eq!(of.sequences.len(), 1);
        assert_eq!(
            of.sequences[0].0.collector,
            crem_api::ipfix::collector_number(&"audit".parse().unwrap())
        );
    }
    for (_, _, collector) in plan.ipfix.numbered() {
        plan.session(collector).check().unwrap();
    }
}

// shows: BTH-SEL-04
#[test]
fn sessions_are_told_of_every_selection_and_point() {
    let plan = plan(EXAMPLE, 2).unwrap();
    let sessions: Vec<SessionConfig> = plan
        .ipfix
        .numbered()
        .map(|(_, _, collector)| plan.session(collector))
        .collect();
    let packets = sessions[0].packets.as_ref().unwrap();
    let told: Vec<(u64, u64)> = packets.selections.iter().map(|s| (s.id, s.point)).collect();
    assert_eq!(told, [(9001, 100), (9002, 101)]);
    assert!(!packets.unselected);
    let flows = sessions[1].flows.unwrap();
    assert!(flows.before && flows.after);
    assert_eq!(sessions[0].sequence.unwrap().contexts, 2 * 64);
    assert_eq!((&sessions[1].packets, sessions[1].sequence), (&None, None));
    assert_eq!(sessions[1].transport.max_message(), 1500 - 28);
}

#[test]
fn what_no_collector_wants_is_not_observed() {
    let text = EXAMPLE.replace(
        "sequence = true\nmax_message",
        "sequence = false\npackets = false\nmax_message",
    );
    let plan = plan(&text, 1).unwrap();
    let points = plan.points(&segment(), 0);
    assert!(
        points
            .iter()
            .all(|p| p.flows.is_some() && p.packets.is_none() && p.sequences.is_empty())
    );
}

// shows: SEQ-SEC-05
#[test]
fn memory_is_checked_when_planned() {
    let wide = EXAMPLE.replace("window = 4096 ", "window = 4194304 ");
    assert!(plan(&wide, 1).is_ok());
    let invalid = plan(&wide.replace("max_epochs = 64", "max_epochs = 1024"), 1).unwrap_err();
    assert_eq!(invalid.issues.len(), 1);
    assert_eq!(invalid.issues[0].pointer, "/ipfix/memory_mb");
    // Each worker takes its share.
    let memory = |workers| plan(EXAMPLE, workers).unwrap().memory();
    assert_eq!(memory(2), 2 * memory(1));
}

// shows: SEQ-IANA-01
#[test]
fn elements_are_named_as_the_drafts_name_them() {
    let text = EXAMPLE.replace("first_element = 1 ", "elements = { weather = 1 } ");
    let invalid = plan(&text, 1).unwrap_err();
    assert_eq!(invalid.issues[0].pointer, "/ipfix/elements/weather");
    let all: Vec<String> = crate::element::PRIVATE
        .iter()
        .map(|(element, definition)| format!("{} = {}", definition.name, *element as u16 + 500))
        .collect();
    let text = EXAMPLE.replace(
        "first_element = 1 ",
        &format!("elements = {{ {} }} ", all.join(", ")),
    );
    let plan = plan(&text, 1).unwrap();
    assert_eq!(
        plan.mapping().by_name("rocev2BthOpcode"),
        Some((32473, 500))
    );
}

// shows: BTH-PARSE-08, SEQ-ID-02
#[test]
fn contexts_are_those_of_frames() {
    let tags = |vlan, inner_vlan| Tags {
        vlan,
        inner_vlan,
        ..Tags::default()
    };
    let network = |tags| Network::of_context(context(&tags).unwrap());
    assert_eq!(network(tags(None, None)), Network::Untagged);
    assert_eq!(network(tags(Some(7), None)), Network::Vlan(7));
    assert_eq!(network(tags(Some(7), Some(8))), Network::QinQ(7, 8));
    let inside = Tags {
        vxlan: Some(77),
        ..Tags::default()
    };
    assert_eq!(network(inside), Network::Vxlan(77));
    let any = Tags {
        any_tags: true,
        ..Tags::default()
    };
    assert_eq!(context(&any), None);
}

// shows: BTH-CTX-01
#[test]
fn vxlan_is_looked_into_where_a_scope_says_so() {
    assert_eq!(plan(EXAMPLE, 1).unwrap().vxlan_port(), None);
    let scope = "[ipfix.scopes.inside]\nsource = \"10.0.0.0/8\"\ndestination = \"10.0.0.0/8\"\n";
    let inside = format!("{EXAMPLE}\n{scope}vxlan = 77\n");
    let plan = plan(&inside, 1).unwrap();
    assert_eq!(plan.vxlan_port(), Some(4789));
    let tags = plan.ipfix.scopes[&"inside".parse().unwrap()].tags;
    assert_eq!(encapsulation(&tags), Encapsulation::Vxlan(77));
    // A network and tags on the wire cannot both be meant.
    let text = format!("{inside}vlan = 3\n");
    let issues = parse(&text, Syntax::Toml).unwrap_err().issues;
    assert_eq!(issues[0].pointer, "/ipfix/scopes/inside/vxlan");
}
