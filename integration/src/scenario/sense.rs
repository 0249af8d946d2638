//! What makes a scenario one: whatever contradicts itself, or would show nothing, is refused before anything is
//! made. The types are in `spec.rs`.

use super::spec::{Flow, Gateways, Host, Mode, Operation, Scenario};

/// Least loss of a scenario that claims protection.
const MIN_LOSS: f64 = 0.01;

/// Every contradiction.
pub(super) fn problems(scenario: &Scenario) -> Vec<String> {
    let mut found = scenario.wan.problems();
    protection(scenario, &mut found);
    reports(scenario, &mut found);
    without_gateways(scenario, &mut found);
    flows(scenario, &mut found);
    if scenario.gateways == Gateways::Hub && scenario.metering.is_some() {
        found.push("metering at three sites".to_owned());
    }
    let pair = scenario.gateways == Gateways::Pair && scenario.api.is_none();
    if scenario.fleet.is_some() && !pair {
        found.push(
            "a fleet with anything else than a pair, or whose documents others change".to_owned(),
        );
    }
    guest(scenario, &mut found);
    if scenario.router.is_some() && scenario.gateways != Gateways::Pair {
        found.push("a router that is not between two gateways".to_owned());
    }
    found
}

fn protection(scenario: &Scenario, found: &mut Vec<String>) {
    let protects = scenario.expect.protection;
    if protects && scenario.gateways == Gateways::None {
        found.push("protection without gateways".to_owned());
    }
    let loss = |flow: &Flow| {
        let direction = if flow.data_from() == Host::A {
            &scenario.wan.a_to_b
        } else {
            &scenario.wan.b_to_a
        };
        direction.loss.mean()
    };
    if protects && scenario.flow.iter().any(|flow| loss(flow) < MIN_LOSS) {
        found.push(format!(
            "protection is shown at a loss of {MIN_LOSS} or more only"
        ));
    }
    let bare = scenario.gateways == Gateways::None;
    if scenario.runs.iter().any(|&m| (m == Mode::Bare) != bare) {
        found.push("runs that do not fit the gateways".to_owned());
    }
}

fn reports(scenario: &Scenario, found: &mut Vec<String>) {
    let Some(expected) = scenario.expect.path_reports else {
        return;
    };
    let at = |host| match host {
        Host::A => &scenario.wan.a_to_b.reporter,
        Host::B | Host::C => &scenario.wan.b_to_a.reporter,
    };
    if at(expected.answered_at).is_none() || at(expected.refused_at).is_none() {
        found.push("path reports are expected of a direction without reporter".to_owned());
    }
}

/// What takes gateways where there are none.
fn without_gateways(scenario: &Scenario, found: &mut Vec<String>) {
    let events = !scenario.event.is_empty();
    if scenario.metering.is_some() && (scenario.gateways == Gateways::None || events) {
        found.push("metering without gateways, or with gateways that go".to_owned());
    }
    if scenario.gateways != Gateways::None {
        return;
    }
    let faults = scenario.panic_at_ms.is_some() || scenario.intruder.is_some();
    for (present, what) in [
        (faults, "a fault or an intruder"),
        (
            !scenario.set.is_empty() || scenario.link_propagation,
            "values to set or links to mirror",
        ),
        (
            scenario.changes > 0 || scenario.api.is_some() || scenario.fleet.is_some(),
            "changes, an API or a fleet",
        ),
        (events, "events"),
    ] {
        if present {
            found.push(format!("{what} without gateways"));
        }
    }
}

/// What is beside a gateway in the same machine cannot be beside one in a guest.
fn guest(scenario: &Scenario, found: &mut Vec<String>) {
    let Some(host) = scenario.guest else {
        return;
    };
    let beside = scenario.metering.is_some()
        || scenario.api.is_some()
        || scenario.has_control()
        || scenario.event.iter().any(|e| e.stuck_worker.is_some());
    if beside || !scenario.has_gateways() || !scenario.hosts().contains(&host) {
        found.push("a guest that is no gateway, or with other processes beside it".to_owned());
    }
}

fn flows(scenario: &Scenario, found: &mut Vec<String>) {
    let flows = &scenario.flow;
    if flows.is_empty() {
        found.push("no [[flow]]".to_owned());
    }
    if scenario.vxlan.is_none() && flows.iter().any(|flow| flow.tunnelled) {
        found.push("a tunnelled flow without vxlan".to_owned());
    }
    let hosts = scenario.hosts();
    let strange = |flow: &Flow| {
        let ends = [flow.requester, flow.to()];
        let at_hub = ends.contains(&Host::A) && flow.requester != flow.to();
        !at_hub || ends.iter().any(|end| !hosts.contains(end))
    };
    if flows.iter().any(strange) {
        found.push("a flow that is not between site A and another one that is there".to_owned());
    }
    // Nothing spaces the answers of several responders.
    let read = |flow: &Flow| flow.count > 1 && flow.operation == Operation::Read;
    if flows.iter().any(|flow| flow.count == 0 || read(flow)) {
        found.push("a flow of no queue pairs, or READs of several".to_owned());
    }
}
