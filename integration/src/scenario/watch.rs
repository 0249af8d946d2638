//! When flows become protected, as both gateways tell it.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crem_api::state::Flow as FlowState;

use super::ends::queue_pair;
use super::gateway::Gateway;
use super::report::FlowReport;
use super::script::Restart;
use super::spec::{Host, Operation, Scenario};

/// Milliseconds since protection was to come back.
#[derive(Clone, Copy)]
struct Away {
    /// Since the gateway that came back forwarded its first frame; since a value was set where that is what it is.
    first_frame: Option<u64>,
    /// Since it said that it is ready.
    ready: Option<u64>,
}

impl Away {
    /// `first_frame_at` is Unix time in milliseconds, as the restarted gateway tells it.
    fn new(restart: Restart, first_frame_at: Option<u64>) -> Self {
        let since = restart.at.elapsed().as_millis() as u64;
        if restart.gateway.is_none() {
            return Self {
                first_frame: Some(since),
                ready: None,
            };
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_millis() as u64;
        Self {
            first_frame: first_frame_at.map(|at| now.saturating_sub(at)),
            ready: Some(since),
        }
    }
}

/// Notes for each flow whether, and when first, both gateways call it protected: since `start`, and
/// since `restarted` if a gateway came back.
pub(crate) fn watch(
    scenario: &Scenario,
    gateways: &[Gateway],
    start: Instant,
    restarted: Option<Restart>,
    reports: &mut [FlowReport],
) {
    let known: Vec<(Host, Vec<FlowState>)> = gateways.iter().map(|g| (g.host, g.flows())).collect();
    let away = restarted.map(|restart| {
        let mut gateway = gateways.iter().filter(|g| Some(g.host) == restart.gateway);
        let status = gateway.next().and_then(Gateway::status);
        Away::new(restart, status.and_then(|s| s.first_forwarded_at_ms))
    });
    for (index, report) in reports.iter_mut().enumerate() {
        let Some(flow) = scenario.flow.get(index) else {
            return;
        };
        let ends = [flow.requester, flow.to()];
        let at_ends = known.iter().filter(|(host, _)| ends.contains(host));
        let states: Vec<Vec<&FlowState>> = at_ends
            .map(|(_, flows)| {
                let ours = |state: &&FlowState| is_data_of(scenario, index, state);
                flows.iter().filter(ours).collect()
            })
            .collect();
        note(&states, flow.count as usize, start, away, report);
    }
}

/// Takes down the states of one flow at both its gateways: of each of its `count` queue pairs.
fn note(
    states: &[Vec<&FlowState>],
    count: usize,
    start: Instant,
    away: Option<Away>,
    report: &mut FlowReport,
) {
    let seen = || states.iter().flatten();
    report.states = seen().map(|state| state.state.clone()).collect();
    report.reasons = seen().filter_map(|state| state.reason.clone()).collect();
    if count > 1 {
        for names in [&mut report.states, &mut report.reasons] {
            names.sort();
            names.dedup();
        }
    }
    let protects = |known: &Vec<&FlowState>| known.iter().filter(is_protected).count() == count;
    let both = !states.is_empty() && states.iter().all(protects);
    if !both {
        // A gateway that did not answer says nothing.
        let told = states.iter().all(|known| !known.is_empty());
        report.lapses += u64::from(report.protected && told);
        return;
    }
    report.protected = true;
    let ms = |since: Instant| since.elapsed().as_millis() as u64;
    report.protected_after_ms.get_or_insert(ms(start));
    let Some(away) = away else { return };
    if report.protected_again_ms.is_none() {
        report.protected_again_ms = away.first_frame;
        report.protected_after_ready_ms = away.ready;
    }
}

fn is_protected(state: &&&FlowState) -> bool {
    state.state == "protected"
}

/// Whether a gateway's flow is the data direction of a queue pair of flow `index`.
fn is_data_of(scenario: &Scenario, index: usize, state: &FlowState) -> bool {
    let Some(flow) = scenario.flow.get(index) else {
        return false;
    };
    let space = match flow.operation {
        Operation::Read => "responses",
        Operation::Write | Operation::Send => "requests",
    };
    let first = queue_pair(scenario, index, flow.data_to());
    state.source == scenario.family.host(flow.data_from())
        && state.destination == scenario.family.host(flow.data_to())
        && (first..first + flow.count).contains(&state.qp)
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
        let protected = |states: &[Vec<&FlowState>], count| {
            let mut report = FlowReport::default();
            note(states, count, start, None, &mut report);
            report.protected
        };
        assert!(protected(&[vec![&good], vec![&good]], 1));
        assert!(!protected(&[vec![&good], vec![&waiting]], 1));
        assert!(!protected(&[vec![&good], vec![]], 1));
        assert!(protected(&[vec![&good, &good], vec![&good, &good]], 2));
        assert!(!protected(&[vec![&good, &good], vec![&good]], 2));
        assert!(!protected(&[vec![&good, &waiting], vec![&good, &good]], 2));
    }

    #[test]
    fn protection_that_comes_back_counts_from_the_first_frame() {
        let at = Instant::now() - std::time::Duration::from_millis(900);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_millis() as u64;
        let good = state("protected");
        let seen = |gateway, first_frame_at| {
            let away = Away::new(Restart { at, gateway }, first_frame_at);
            let mut report = FlowReport::default();
            for _ in 0..2 {
                note(&[vec![&good], vec![&good]], 1, at, Some(away), &mut report);
            }
            (report.protected_again_ms, report.protected_after_ready_ms)
        };
        let (first, ready) = seen(Some(Host::A), Some(now - 5_000));
        assert!((5_000..6_000).contains(&first.unwrap_or(0)));
        assert!((900..1_900).contains(&ready.unwrap_or(0)));
        // A gateway that forwarded nothing, or does not tell, counts as not back.
        assert_eq!(seen(Some(Host::A), None).0, None);
        let (set, ready) = seen(None, Some(now - 5_000));
        assert!((900..1_900).contains(&set.unwrap_or(0)));
        assert_eq!(ready, None);
    }

    #[test]
    fn protection_that_ends_is_a_lapse_and_silence_is_none() {
        let (good, waiting, start) = (state("protected"), state("waiting"), Instant::now());
        let mut report = FlowReport::default();
        let mut look = |states: &[Vec<&FlowState>]| {
            note(states, 1, start, None, &mut report);
            report.lapses
        };
        assert_eq!(look(&[vec![&waiting], vec![&waiting]]), 0);
        assert_eq!(look(&[vec![&good], vec![&good]]), 0);
        assert_eq!(look(&[vec![&good], vec![]]), 0);
        assert_eq!(look(&[vec![&waiting], vec![&good]]), 1);
    }
}
