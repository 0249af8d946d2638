//! Link propagation with real interfaces: after the flows host A's link goes, and what is at the other port of its
//! gateway has to notice; then it comes back, and frames have to pass again.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Failure;
use super::check::Finding;
use super::gateway::Gateway;
use super::report::RunReport;
use super::spec::Host;
use super::topology::{HOST_INTERFACE, Place, Topology, WAN_SIDES};

/// Longest wait for a link to go, to come, and for frames to pass.
const LIMIT: Duration = Duration::from_secs(5);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// What became of the links at gateway A.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Milliseconds from the end of the host's link until the WAN had none.
    pub went_after_ms: Option<u64>,
    /// The gateway said that it holds it down.
    pub told: bool,
    /// Milliseconds from the return of the host's link until the WAN had its own again.
    pub came_after_ms: Option<u64>,
    /// Milliseconds until host B was reached again.
    pub reached_after_ms: Option<u64>,
    /// The gateway's counters of links.
    pub counters: crem_api::state::Named,
}

/// Takes the link of host A down and lets it come up again.
pub(crate) fn try_links(
    world: &Topology,
    gateway: &Gateway,
    far: std::net::IpAddr,
) -> Result<LinkReport, Failure> {
    let [wan, _] = WAN_SIDES;
    let carries = || {
        let mut command = world.command(Place::Wan, Path::new("cat"));
        command.arg(format!("/sys/class/net/{wan}/carrier"));
        command
            .output()
            .is_ok_and(|out| out.stdout.starts_with(b"1"))
    };
    let host = Place::Host(Host::A);
    let mut report = LinkReport::default();
    if !carries() {
        return Err("the WAN has no link to begin with".into());
    }
    world.set_link(host, HOST_INTERFACE, false)?;
    report.went_after_ms = after(|| !carries());
    let held = || gateway.status().is_some_and(|s| s.wan.induced_down);
    report.told = after(held).is_some();
    world.set_link(host, HOST_INTERFACE, true)?;
    report.came_after_ms = after(carries);
    report.reached_after_ms = after(|| world.ping(far, 1));
    let counters = gateway.counters().map(|counters| counters.links);
    report.counters = counters.unwrap_or_default();
    Ok(report)
}

/// Milliseconds until something is so.
fn after(is_so: impl Fn() -> bool) -> Option<u64> {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        if is_so() {
            return Some(start.elapsed().as_millis() as u64);
        }
        std::thread::sleep(LOOK);
    }
    None
}

/// The link went no sooner than configured, came back, and nothing was taken for a fault of the WAN.
pub(crate) fn judge(delay_ms: u64, run: &RunReport, found: &mut Vec<Finding>) {
    let report = run.links.clone().unwrap_or_default();
    let count = |name: &str| report.counters.get(name).copied();
    found.push(Finding::new(
        report.went_after_ms.is_some_and(|ms| ms >= delay_ms) && report.told,
        format!(
            "{}: the WAN's link went {:?} ms after host A's, at least {delay_ms}; the gateway says so: {}",
            run.mode, report.went_after_ms, report.told
        ),
    ));
    found.push(Finding::new(
        report.came_after_ms.is_some() && report.reached_after_ms.is_some(),
        format!(
            "{}: it came back after {:?} ms, and host B was reached {:?} ms later",
            run.mode, report.came_after_ms, report.reached_after_ms
        ),
    ));
    let counts = [
        "lan_down",
        "wan_induced",
        "released",
        "wan_down",
        "lan_induced",
    ]
    .map(count);
    found.push(Finding::new(
        counts == [Some(1), Some(1), Some(1), Some(0), Some(0)],
        format!("{}: counters of links {:?}", run.mode, report.counters),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_goes_too_soon_or_stays_away_is_found() {
        let good = LinkReport {
            went_after_ms: Some(700),
            told: true,
            came_after_ms: Some(90),
            reached_after_ms: Some(10),
            counters: [
                ("lan_down", 1),
                ("wan_down", 0),
                ("lan_induced", 0),
                ("wan_induced", 1),
                ("released", 1),
            ]
            .map(|(name, count)| (name.to_owned(), count))
            .into(),
        };
        let judged = |report: &LinkReport| -> Vec<bool> {
            let run = RunReport {
                links: Some(report.clone()),
                ..RunReport::default()
            };
            let mut found = Vec::new();
            judge(500, &run, &mut found);
            found.iter().map(|finding| finding.ok).collect()
        };
        assert_eq!(judged(&good), [true, true, true]);
        let mut soon = good.clone();
        soon.went_after_ms = Some(300);
        assert_eq!(judged(&soon), [false, true, true]);
        let mut away = good.clone();
        away.reached_after_ms = None;
        assert_eq!(judged(&away), [true, false, true]);
        let mut own = good;
        own.counters.insert("wan_down".to_owned(), 1);
        assert_eq!(judged(&own), [true, true, false]);
        assert_eq!(judged(&LinkReport::default()), [false, false, false]);
    }
}
