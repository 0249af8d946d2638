//! A router between the gateways, and what becomes of it while flows run: it answers at another MAC address all of a
//! sudden, then not at all, then again. Each time the gateways have to find it, and repair has to come through again.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Failure;
use super::check::Finding;
use super::gateway::Gateway;
use super::report::{RunReport, gateway_name};
use super::spec::Host;
use super::topology::Topology;

/// MAC address at which the router is found after the first step, not announced to anybody.
const OTHER_MAC: &str = "02:77:00:00:00:fe";

/// A router in the scenario: gateways A and B are on links of their own with it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Router {
    /// Milliseconds after the requesters started at which its MAC address changes. What follows begins a second after
    /// repair comes through again.
    pub at_ms: u64,
    /// Milliseconds in which the gateways have to notice, and repair to come through again.
    pub within_ms: u64,
    /// Pings sent at once to gateway A's in-band address in the first second: more than its kernel gets.
    pub pings: u32,
}

/// What is done to it, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Another MAC address.
    Moves,
    /// No address, no route.
    Goes,
    /// Both again.
    Returns,
}

const STEPS: [Step; 3] = [Step::Moves, Step::Goes, Step::Returns];

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepReport {
    /// What was done.
    pub step: Step,
    /// Milliseconds until both gateways knew.
    pub known_after_ms: Option<u64>,
    /// Milliseconds until gateway B restored again, where that is to be expected.
    pub restored_after_ms: Option<u64>,
}

/// The router's fate in a run.
#[derive(Debug)]
pub(crate) struct Fate {
    router: Router,
    next: Instant,
    pings_at: Option<Instant>,
    left: std::slice::Iter<'static, Step>,
    /// The step under way, since when, and how much B had restored when both knew.
    current: Option<(Instant, StepReport, Option<u64>)>,
}

impl Fate {
    pub(crate) fn new(router: Router, start: Instant) -> Self {
        Self {
            router,
            next: start + Duration::from_millis(router.at_ms),
            pings_at: Some(start + Duration::from_millis(router.at_ms / 2)),
            left: STEPS.iter(),
            current: None,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.current.is_none() && self.left.len() == 0
    }

    /// Does what is due, and looks at what became of it.
    pub(crate) fn drive(
        &mut self,
        world: &Topology,
        gateways: &[Gateway],
        report: &mut Vec<StepReport>,
    ) -> Result<(), Failure> {
        let now = Instant::now();
        if self.pings_at.take_if(|at| *at <= now).is_some() {
            world.flood_inband(self.router.pings)?;
        }
        let Some((since, step, before)) = &mut self.current else {
            if now >= self.next
                && let Some(&step) = self.left.next()
            {
                act(world, step)?;
                let report = StepReport {
                    step,
                    known_after_ms: None,
                    restored_after_ms: None,
                };
                self.current = Some((Instant::now(), report, None));
            }
            return Ok(());
        };
        let ms = since.elapsed().as_millis() as u64;
        if step.known_after_ms.is_none() && gateways.iter().all(|g| knows(g, step.step)) {
            step.known_after_ms = Some(ms);
            *before = Some(restored(gateways));
        } else if before.is_some_and(|before| restored(gateways) > before) {
            step.restored_after_ms.get_or_insert(ms);
        }
        let done = step.restored_after_ms.is_some()
            || (step.step == Step::Goes && step.known_after_ms.is_some());
        if done || ms > 2 * self.router.within_ms {
            report.push(step.clone());
            self.current = None;
            self.next = now + Duration::from_secs(1);
        }
        Ok(())
    }
}

fn act(world: &Topology, step: Step) -> Result<(), Failure> {
    match step {
        Step::Moves => world.move_router(OTHER_MAC),
        Step::Goes => world.route(false),
        Step::Returns => world.route(true),
    }
}

/// Whether a gateway has seen what was done.
fn knows(gateway: &Gateway, step: Step) -> bool {
    let Some(status) = gateway.status() else {
        return false;
    };
    let mut macs = status
        .peers
        .values()
        .map(|peer| peer.next_hop_mac.as_deref());
    match step {
        Step::Moves | Step::Returns => macs.all(|mac| mac == Some(OTHER_MAC)),
        Step::Goes => macs.all(|mac| mac.is_none()),
    }
}

/// Packets that gateway B has restored.
fn restored(gateways: &[Gateway]) -> u64 {
    let counters = gateways
        .iter()
        .find(|gateway| gateway.host == Host::B)
        .and_then(Gateway::counters);
    let restored = counters.and_then(|c| c.coding.get("restored").copied());
    restored.unwrap_or(0)
}

/// Every step was noticed in time, repair came through again in time, and the counters say so.
pub(crate) fn judge(router: &Router, run: &RunReport, found: &mut Vec<Finding>) {
    let in_time = |ms: Option<u64>| ms.is_some_and(|ms| ms <= router.within_ms);
    for step in STEPS {
        let seen = run.router.iter().find(|report| report.step == step);
        let (known, restored) = seen.map_or((None, None), |report| {
            (report.known_after_ms, report.restored_after_ms)
        });
        found.push(Finding::new(
            in_time(known) && (step == Step::Goes || in_time(restored)),
            format!(
                "{}: router {step:?}: both gateways knew after {known:?} ms, repair came through after {restored:?} ms, \
                 at most {}",
                run.mode, router.within_ms
            ),
        ));
    }
    for host in [Host::A, Host::B] {
        let gateway = run.gateways.get(gateway_name(host));
        let count = |name: &str| gateway.and_then(|g| g.inband.get(name).copied());
        let (came, went) = (count("next_hops_found"), count("next_hops_lost"));
        found.push(Finding::new(
            came.is_some_and(|n| n >= 3) && went.is_some_and(|n| n >= 1),
            format!(
                "{}: next hops found {came:?}, lost {went:?} at gateway {host:?}",
                run.mode
            ),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_that_is_found_late_or_never_is_told() {
        let router = Router {
            at_ms: 0,
            within_ms: 1_000,
            pings: 0,
        };
        let report = |step, known_after_ms, restored_after_ms| StepReport {
            step,
            known_after_ms,
            restored_after_ms,
        };
        let good = [
            report(Step::Moves, Some(900), Some(1_000)),
            report(Step::Goes, Some(500), None),
            report(Step::Returns, Some(10), Some(20)),
        ];
        let judged = |reports: &[StepReport]| -> Vec<bool> {
            let run = RunReport {
                router: reports.to_vec(),
                ..RunReport::default()
            };
            let mut found = Vec::new();
            judge(&router, &run, &mut found);
            found.iter().map(|finding| finding.ok).collect()
        };
        assert_eq!(judged(&good), [true, true, true, false, false]);
        let mut late = good.clone();
        late[0].restored_after_ms = Some(1_001);
        late[1].known_after_ms = None;
        assert_eq!(judged(&late), [false, false, true, false, false]);
        assert_eq!(judged(&good[..2]), [true, true, false, false, false]);
    }
}
