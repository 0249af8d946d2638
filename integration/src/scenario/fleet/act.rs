//! What is done to the fleet while flows run, in order, and what has to follow from each.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::Failure;
use super::super::api::{self, http::Ask, http::Http};
use super::super::gateway::SEGMENT;
use super::super::spec::Host;
use super::{BASE, FleetSite, HALTED, LOCK, node, overlay, status};

/// Something that is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// The policy of the base is another: both gateways get it.
    Change,
    /// etcd is killed: nothing changes.
    Away,
    /// etcd comes back, with another change: both gateways get it.
    Back,
    /// A wrong document: both gateways refuse it and keep what they have.
    Wrong,
    /// A right one: both gateways get it.
    Mended,
    /// Documents, good by themselves, with which no flow is protected any more: gateway A begins, notices it and takes
    /// it back. Gateway B, which is to follow, never begins.
    Worse,
    /// Good ones in their place: both gateways get them, and packets are restored again.
    Better,
}

impl Act {
    /// Those of a scenario that names none.
    pub(super) const USUAL: [Self; 5] = [
        Self::Change,
        Self::Away,
        Self::Back,
        Self::Wrong,
        Self::Mended,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Change => "a policy at both",
            Self::Away => "etcd away",
            Self::Back => "etcd back and a policy at both",
            Self::Wrong => "a wrong document refused by both",
            Self::Mended => "a right one at both",
            Self::Worse => "protection lost, taken back by A and not begun by B",
            Self::Better => "a better one at both",
        }
    }

    /// Whether it ends with another document confirmed by both gateways.
    pub(super) fn is_confirmed(self) -> bool {
        matches!(
            self,
            Self::Change | Self::Back | Self::Mended | Self::Better
        )
    }

    /// `policy.target_fec` that both have once it is done; none if that of the first document.
    fn target(self) -> Option<f64> {
        match self {
            Self::Change | Self::Away => Some(2e-6),
            Self::Back | Self::Wrong => Some(3e-6),
            Self::Mended | Self::Better => Some(4e-6),
            Self::Worse => None,
        }
    }

    /// Whether it may begin.
    pub(super) fn is_due(self, restored: u64) -> bool {
        // What was never there is not missed.
        self != Self::Worse || restored > 0
    }

    pub(super) fn begin(self, fleet: &mut FleetSite, restored: u64) -> Result<(), Failure> {
        match self {
            // Gateway B follows once A has begun, so that the order is known.
            Self::Worse => return self.put_overlay(fleet, Host::A),
            Self::Better => {
                fleet.report.restored_again = restored;
                for host in FleetSite::HOSTS {
                    self.put_overlay(fleet, host)?;
                }
                return Ok(());
            }
            _ => {}
        }
        if self == Self::Away {
            fleet.report.restored_without_etcd = restored;
            return fleet.kill_etcd();
        }
        if self == Self::Back {
            fleet.start_etcd()?;
        }
        let mut base = fleet.base.clone().ok_or("there is no base")?;
        let policy = &mut base["segments"][SEGMENT]["policy"];
        policy["target_fec"] = json!(self.target());
        if self == Self::Wrong {
            policy["k"] = json!(1_000);
        }
        fleet.store.put(BASE, &base.to_string())
    }

    /// What gateway `host` has of its own, with this act's part of it.
    fn put_overlay(self, fleet: &FleetSite, host: Host) -> Result<(), Failure> {
        let mut own = fleet.own.get(&host).cloned().ok_or("there is no overlay")?;
        let segment = &mut own["segments"][SEGMENT];
        if self == Self::Worse {
            // No flow gets what its reports cost: the sender function gives protection up.
            segment["limits"]["report_budget"] = json!(1);
        } else {
            segment["policy"]["target_fec"] = json!(self.target());
        }
        fleet.store.put(&overlay(host), &own.to_string())
    }

    pub(super) fn is_done(
        self,
        fleet: &mut FleetSite,
        since: Instant,
        restored: u64,
    ) -> Result<bool, Failure> {
        match self {
            Self::Worse => return self.is_taken_back(fleet),
            Self::Better if restored <= fleet.report.restored_again => return Ok(false),
            _ => {}
        }
        let mut all = true;
        for host in FleetSite::HOSTS {
            all &= match self {
                Self::Away => since.elapsed() >= fleet.away && self.is_in_force(host)?,
                Self::Wrong => is_refused(&self.told(fleet, host)?) && self.is_in_force(host)?,
                _ => self.told(fleet, host)?["state"] == "applied" && self.is_in_force(host)?,
            };
        }
        Ok(all)
    }

    /// Gateway A has what it had, the fleet stands still for the reason that is wanted, and B waits for that.
    fn is_taken_back(self, fleet: &mut FleetSite) -> Result<bool, Failure> {
        if !fleet.is_followed {
            let lock = fleet.store.read(LOCK)?;
            fleet.is_followed = lock.is_some_and(|lock| lock["node"] == node(Host::A));
            if fleet.is_followed {
                self.put_overlay(fleet, Host::B)?;
            }
            return Ok(false);
        }
        let halted = fleet.store.read(HALTED)?;
        let Some(kind) = halted.as_ref().and_then(|h| h["problem"]["type"].as_str()) else {
            return Ok(false);
        };
        let told = FleetSite::HOSTS.map(|host| self.told(fleet, host));
        let [a, b] = told;
        let (a, b) = (a?, b?);
        let waits = b["waiting_for"].as_str().unwrap_or_default();
        let over = a["state"] == "failed" && waits.contains(HALTED);
        let problem = &halted.as_ref().ok_or("there is no halt")?["problem"]["detail"];
        fleet.report.halted = Some(format!("{kind}: {problem}"));
        Ok(over && self.is_in_force(Host::A)? && self.is_in_force(Host::B)?)
    }

    pub(super) fn end(self, fleet: &mut FleetSite, restored: u64) {
        if self == Self::Away {
            let report = &mut fleet.report;
            report.restored_without_etcd = restored.saturating_sub(report.restored_without_etcd);
        }
        if self == Self::Better {
            let report = &mut fleet.report;
            report.restored_again = restored.saturating_sub(report.restored_again);
        }
    }

    fn told(self, fleet: &FleetSite, host: Host) -> Result<Value, Failure> {
        Ok(fleet.store.read(&status(host))?.unwrap_or_default())
    }

    /// The confirmed document has the value, and the data plane says that it runs that revision.
    fn is_in_force(self, host: Host) -> Result<bool, Failure> {
        let mut http = Http::connect(&api::socket(host))?;
        let pointer = format!("/segments/{SEGMENT}/policy/target_fec");
        let budget = format!("/segments/{SEGMENT}/limits/report_budget");
        let document = http.ask(Ask::get("/v1/config?view=confirmed"))?.json();
        let revisions = http.ask(Ask::get("/v1/revisions?limit=1"))?.json();
        let plane = http.ask(Ask::get("/v1/state/dataplane"))?.json();
        let target = self.target().map(|target| json!(target));
        Ok(document.pointer(&pointer) == target.as_ref()
            && (self != Self::Worse || document.pointer(&budget).is_none())
            && revisions["running"] == revisions["confirmed"]
            && plane["revision"] == revisions["running"])
    }
}

fn is_refused(status: &Value) -> bool {
    let error = &status["problem"]["errors"][0]["pointer"];
    status["state"] == "refused" && *error == format!("/segments/{SEGMENT}/policy/k")
}
