//! When flows become protected, as both gateways tell it.

use std::time::Instant;

use crem_api::state::Flow as FlowState;

use super::ends::queue_pair;
use super::gateway::Gateway;
use super::report::FlowReport;
use super::spec::{Family, Flow, Operation, Scenario};

/// Notes for each flow whether, and when first, both gateways call it protected: since `start`, and
/// since `restarted` if a gateway came back.
pub(crate) fn watch(
    scenario: &Scenario,
    gateways: &[Gateway],
    start: Instant,
    restarted: Option<Instant>,
    reports: &mut [FlowReport],
) {
    let known: Vec<Vec<FlowState>> = gateways.iter().map(Gateway::flows).collect();
    for (index, (flow, report)) in scenario.flow.iter().zip(reports).enumerate() {
        let ours = |state: &&FlowState| is_data_of(scenario.family, index, flow, state);
        let states: Vec<Option<&FlowState>> =
            known.iter().map(|flows| flows.iter().find(ours)).collect();
        note(&states, start, restarted, report);
    }
}

/// Takes down the state of one flow at each gateway.
fn note(
    states: &[Option<&FlowState>],
    start: Instant,
    restarted: Option<Instant>,
    report: &mut FlowReport,
) {
    let seen = || states.iter().flatten();
    report.states = seen().map(|state| state.state.clone()).collect();
    report.reasons = seen().filter_map(|state| state.reason.clone()).collect();
    if !states
        .iter()
        .all(|state| state.is_some_and(|state| state.state == "protected"))
    {
        return;
    }
    report.protected = true;
    let ms = |since: Instant| since.elapsed().as_millis() as u64;
    report.protected_after_ms.get_or_insert(ms(start));
    if let Some(restarted) = restarted {
        report.protected_again_ms.get_or_insert(ms(restarted));
    }
}

/// Whether a gateway's flow is the data direction of flow `index`.
fn is_data_of(family: Family, index: usize, flow: &Flow, state: &FlowState) -> bool {
    let (from, space) = match flow.operation {
        Operation::Read => (flow.requester.other(), "responses"),
        Operation::Write | Operation::Send => (flow.requester, "requests"),
    };
    state.source == family.host(from)
        && state.destination == family.host(from.other())
        && state.qp == queue_pair(index, from.other())
        && state.space == space
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(name: &str) -> FlowState {
        FlowState {
            segment: "wan".to_owned(),
            role: crem_api::state::Role::Csf,
            source: [10, 77, 1, 1].into(),
            destination: [10, 77, 2, 1].into(),
            qp: 0x200,
            space: "requests".to_owned(),
            state: name.to_owned(),
            reason: None,
            reason_values: crem_api::state::Named::new(),
            supported: true,
            matched: None,
            flow_id: None,
            applied: None,
            loss: None,
            loss_class: None,
            would_apply: None,
            advice: None,
            counters: crem_api::state::Named::new(),
        }
    }

    #[test]
    fn protected_needs_both_gateways() {
        let (good, waiting, start) = (state("protected"), state("waiting"), Instant::now());
        let protected = |states: &[Option<&FlowState>]| {
            let mut report = FlowReport::default();
            note(states, start, None, &mut report);
            report.protected
        };
        assert!(protected(&[Some(&good), Some(&good)]));
        assert!(!protected(&[Some(&good), Some(&waiting)]));
        assert!(!protected(&[Some(&good), None]));
    }
}
