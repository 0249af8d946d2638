//! What is done to the fleet while flows run, in order, and what has to follow from each.

use std::time::Instant;

use serde_json::{Value, json};

use super::super::Failure;
use super::super::api::{self, http::Ask, http::Http};
use super::super::gateway::SEGMENT;
use super::super::spec::Host;
use super::{BASE, FleetSite, status};

/// Something that is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Act {
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
}

impl Act {
    pub(super) const ALL: [Self; 5] = [
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
        }
    }

    /// `policy.target_fec` that both have once it is done.
    fn target(self) -> f64 {
        match self {
            Self::Change | Self::Away => 2e-6,
            Self::Back | Self::Wrong => 3e-6,
            Self::Mended => 4e-6,
        }
    }

    pub(super) fn begin(self, fleet: &mut FleetSite, restored: u64) -> Result<(), Failure> {
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

    pub(super) fn is_done(self, fleet: &FleetSite, since: Instant) -> Result<bool, Failure> {
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

    pub(super) fn end(self, fleet: &mut FleetSite, restored: u64) {
        if self == Self::Away {
            let report = &mut fleet.report;
            report.restored_without_etcd = restored.saturating_sub(report.restored_without_etcd);
        }
    }

    fn told(self, fleet: &FleetSite, host: Host) -> Result<Value, Failure> {
        Ok(fleet.store.read(&status(host))?.unwrap_or_default())
    }

    /// The confirmed document has the value, and the data plane says that it runs that revision.
    fn is_in_force(self, host: Host) -> Result<bool, Failure> {
        let mut http = Http::connect(&api::socket(host))?;
        let pointer = format!("/segments/{SEGMENT}/policy/target_fec");
        let document = http.ask(Ask::get("/v1/config?view=confirmed"))?.json();
        let revisions = http.ask(Ask::get("/v1/revisions?limit=1"))?.json();
        let plane = http.ask(Ask::get("/v1/state/dataplane"))?.json();
        Ok(document.pointer(&pointer) == Some(&json!(self.target()))
            && revisions["running"] == revisions["confirmed"]
            && plane["revision"] == revisions["running"])
    }
}

fn is_refused(status: &Value) -> bool {
    let error = &status["problem"]["errors"][0]["pointer"];
    status["state"] == "refused" && *error == format!("/segments/{SEGMENT}/policy/k")
}
