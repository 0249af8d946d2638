//! A fleet in a scenario: etcd in a namespace of its own, an agent beside the control process of each gateway, and
//! somebody who writes documents into etcd while flows run. The gateways get their documents in no other way.

mod act;
mod store;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::act::Act;
use self::store::Store;
use super::Failure;
use super::api::{self, http::Ask, http::Http};
use super::check::Finding;
use super::process::{Process, Programs};
use super::report::{RunReport, gateway_name};
use super::spec::{Host, Scenario};
use super::topology::{Place, Topology};

/// Time to come up, and for each document to get where it is to be.
const LIMIT: Duration = Duration::from_secs(15);
/// After so many seconds a change that nobody confirms comes back by itself. An agent gives it up after three quarters.
const CONFIRM_S: u64 = 12;
/// How often it is looked whether it is there.
const LOOK: Duration = Duration::from_millis(100);
/// What of a document is of one gateway; the rest is the base of both.
const OWN: [&str; 3] = ["served", "peers", "inband"];

/// A fleet: the gateways are configured through etcd only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fleet {
    /// How long etcd is away, milliseconds.
    #[serde(default = "default_away")]
    pub away_ms: u64,
    /// How long all has to be well before a change is confirmed, seconds.
    #[serde(default = "default_settle")]
    pub settle_s: u64,
    /// What is done, in order.
    #[serde(default = "default_acts")]
    pub acts: Vec<Act>,
}

fn default_settle() -> u64 {
    1
}

fn default_acts() -> Vec<Act> {
    Act::USUAL.to_vec()
}

fn default_away() -> u64 {
    1_500
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetReport {
    /// What was done and what has to follow from it, each with the milliseconds until it did.
    pub done: Vec<(String, u64)>,
    /// What did not follow in time.
    pub missing: Option<String>,
    /// Packets that the gateways restored while etcd was away.
    pub restored_without_etcd: u64,
    /// From each change of a gateway to its confirmation, milliseconds since 1970.
    pub changes: Vec<(String, u64, u64)>,
    /// From each change of a gateway to its being cancelled.
    pub cancelled: Vec<(String, u64, u64)>,
    /// Changes that were begun at each gateway.
    pub begun: BTreeMap<String, u64>,
    /// Why nobody began any more.
    pub halted: Option<String>,
    /// Packets that were restored after a better document was written.
    pub restored_again: u64,
}

/// The fleet at work.
#[derive(Debug)]
pub(crate) struct FleetSite {
    etcd: Option<Process>,
    agents: Vec<(Host, Process)>,
    store: Store,
    world: String,
    program: PathBuf,
    folder: PathBuf,
    base: Option<Value>,
    own: BTreeMap<Host, Value>,
    away: Duration,
    settle_s: u64,
    /// The second gateway has been given what the first one has begun with.
    is_followed: bool,
    acts: std::vec::IntoIter<Act>,
    now: Option<(Act, Instant)>,
    looked: Instant,
    report: FleetReport,
}

impl FleetSite {
    /// Starts etcd, if the scenario has a fleet.
    pub(crate) fn start(
        scenario: &Scenario,
        world: &Topology,
        programs: &Programs,
        folder: &Path,
    ) -> Result<Option<Self>, Failure> {
        let Some(fleet) = &scenario.fleet else {
            return Ok(None);
        };
        let program = programs.etcd.clone();
        let program = program.ok_or("there is no etcd: see integration/scripts/etcd")?;
        let mut site = Self {
            etcd: None,
            agents: Vec::new(),
            store: Store::new(world.path(Place::Store)),
            world: world.name(Place::Store),
            program,
            folder: folder.to_owned(),
            base: None,
            own: BTreeMap::new(),
            away: Duration::from_millis(fleet.away_ms),
            settle_s: fleet.settle_s,
            is_followed: false,
            acts: fleet.acts.clone().into_iter(),
            now: None,
            looked: Instant::now(),
            report: FleetReport::default(),
        };
        site.start_etcd()?;
        Ok(Some(site))
    }

    fn start_etcd(&mut self) -> Result<(), Failure> {
        let mut command = Topology::command_in(&self.world, &self.program);
        command.arg("--data-dir").arg(self.folder.join("etcd"));
        self.etcd = Some(Process::start(command, "etcd", &self.folder)?);
        let end = Instant::now() + LIMIT;
        while self.store.read("/").is_err() {
            if Instant::now() > end {
                return Err(format!("etcd does not answer in {LIMIT:?}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn kill_etcd(&mut self) -> Result<(), Failure> {
        let mut etcd = self.etcd.take().ok_or("etcd is not running")?;
        etcd.crash()
    }

    /// Puts the first document of a gateway there, starts its agent, and waits until it is confirmed.
    pub(crate) fn add(
        &mut self,
        programs: &Programs,
        host: Host,
        document: &Value,
    ) -> Result<(), Failure> {
        let (base, own) = parted(document)?;
        self.store.put(&overlay(host), &own.to_string())?;
        self.own.insert(host, own);
        if self.base.is_none() {
            self.store.put(BASE, &base.to_string())?;
            self.base = Some(base);
        }
        let settings = self
            .folder
            .join(format!("{}-fleet.toml", gateway_name(host)));
        std::fs::write(&settings, self.settings(host))?;
        let mut command = Topology::command_in(&self.world, &programs.control);
        command.arg("fleet").arg("--config").arg(&settings);
        let name = format!("{}-fleet", gateway_name(host));
        let mut agent = Process::start(command, &name, &self.folder)?;
        agent.wait_ready(LIMIT)?;
        self.agents.push((host, agent));
        let end = Instant::now() + LIMIT;
        while self.state(host)? != "applied" {
            if Instant::now() > end {
                let status = self.store.read(&status(host))?;
                return Err(format!("the first document was not applied: {status:?}").into());
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn settings(&self, host: Host) -> String {
        let file = |name: &str| self.folder.join(format!("{}-{name}", gateway_name(host)));
        format!(
            "node = {:?}\nfleet = \"sc\"\npair = \"ab\"\ncontrol = {:?}\nmemory = {:?}\nstatus = {:?}\n\
             [etcd]\nendpoints = {{ \"http://127.0.0.1:2379\" = {{}} }}\nlease_s = 5\n\
             [rollout]\nconfirm_s = {CONFIRM_S}\nsettle_s = {}\n",
            node(host),
            api::socket(host).display().to_string(),
            file("memory.json").display().to_string(),
            file("status.json").display().to_string(),
            self.settle_s,
        )
    }

    /// Whether everything that is to be done while flows run is done; does what is due. `restored` is how many
    /// packets the gateways have restored so far.
    pub(crate) fn step(&mut self, restored: impl Fn() -> u64) -> Result<bool, Failure> {
        for (host, agent) in &mut self.agents {
            if let Some(status) = agent.ended()? {
                let name = gateway_name(*host);
                return Err(format!("the agent of {name} ended ({status}){}", agent.tail()).into());
            }
        }
        if self.report.missing.is_some() || self.looked.elapsed() < LOOK {
            return Ok(self.report.missing.is_some());
        }
        self.looked = Instant::now();
        let Some((act, since)) = self.now else {
            let Some(&act) = self.acts.as_slice().first() else {
                return Ok(true);
            };
            if act.is_due(restored()) {
                self.acts.next();
                act.begin(self, restored())?;
                self.now = Some((act, Instant::now()));
            }
            return Ok(false);
        };
        if act.is_done(self, since, restored())? {
            let ms = since.elapsed().as_millis() as u64;
            self.report.done.push((act.name().to_owned(), ms));
            act.end(self, restored());
            self.now = None;
        } else if since.elapsed() > LIMIT {
            let statuses = Self::HOSTS.map(|host| self.store.read(&status(host)).ok());
            self.report.missing = Some(format!("{}: {statuses:?}", act.name()));
        }
        Ok(false)
    }

    const HOSTS: [Host; 2] = [Host::A, Host::B];

    fn state(&self, host: Host) -> Result<String, Failure> {
        let status = self.store.read(&status(host))?.unwrap_or_default();
        Ok(status["state"].as_str().unwrap_or_default().to_owned())
    }

    /// What was seen. Read while the control processes still run.
    pub(crate) fn finish(&mut self) -> Result<FleetReport, Failure> {
        for host in Self::HOSTS {
            let page = Http::connect(&api::socket(host))?.ask(Ask::get("/v1/audit?limit=1000"))?;
            let page = page.json();
            let name = gateway_name(host);
            let named = |times: Vec<(u64, u64)>| {
                let all = times.into_iter();
                all.map(move |(from, to)| (name.to_owned(), from, to))
            };
            let report = &mut self.report;
            report.changes.extend(named(changes(&page, CONFIRM)?));
            report.cancelled.extend(named(changes(&page, CANCEL)?));
            report.begun.insert(name.to_owned(), begun(&page));
        }
        for (host, agent) in &mut self.agents {
            let status = agent.stop()?;
            if !status.success() {
                return Err(
                    format!("the agent of {} ended with {status}", gateway_name(*host)).into(),
                );
            }
        }
        Ok(std::mem::take(&mut self.report))
    }
}

/// Keys.
const BASE: &str = "/crem/v1/fleets/sc/base";
const HALTED: &str = "/crem/v1/fleets/sc/rollout/halted";
const LOCK: &str = "/crem/v1/fleets/sc/rollout/locks/ab";
/// What ends a change, as the audit log names it.
const CONFIRM: &str = "POST /v1/commit:confirm";
const CANCEL: &str = "POST /v1/commit:cancel";

fn node(host: Host) -> String {
    gateway_name(host).to_lowercase()
}

fn overlay(host: Host) -> String {
    format!("/crem/v1/nodes/{}/overlay", node(host))
}

fn status(host: Host) -> String {
    format!("/crem/v1/nodes/{}/status", node(host))
}

/// What both gateways share, and what is the one's own.
fn parted(document: &Value) -> Result<(Value, Value), Failure> {
    let mut base = document.clone();
    let mut own = serde_json::json!({ "segments": {} });
    let segments = base["segments"].as_object_mut();
    for (id, segment) in segments.ok_or("a document without segments")? {
        let segment = segment
            .as_object_mut()
            .ok_or("a segment that is no table")?;
        for key in OWN {
            if let Some(value) = segment.remove(key) {
                own["segments"][id][key] = value;
            }
        }
    }
    Ok((base, own))
}

/// From each change in an audit log to what ended it.
fn changes(page: &Value, end: &str) -> Result<Vec<(u64, u64)>, Failure> {
    let records = page["records"].as_array().ok_or("no audit log")?;
    let mut begun = None;
    let mut changes = Vec::new();
    for record in records {
        let at = record["at_ms"].as_u64().ok_or("a record without a time")?;
        if is_begun(record) {
            begun = Some(at);
        } else if record["action"] == end && record["outcome"] == "200" {
            changes.extend(begun.take().map(|from| (from, at)));
        }
    }
    Ok(changes)
}

fn is_begun(record: &Value) -> bool {
    let outcome = record["outcome"].as_str();
    record["action"] == "PUT /v1/config" && matches!(outcome, Some("200" | "202"))
}

/// Changes in an audit log, whatever became of them.
fn begun(page: &Value) -> u64 {
    let records = page["records"].as_array().into_iter().flatten();
    records.filter(|record| is_begun(record)).count() as u64
}

/// Whether changes of one gateway and of the other never were under way at once.
fn in_turn(changes: &[(String, u64, u64)]) -> bool {
    changes.iter().enumerate().all(|(at, (name, from, to))| {
        let others = changes
            .iter()
            .skip(at + 1)
            .filter(|(other, ..)| other != name);
        others
            .into_iter()
            .all(|(_, begin, end)| to <= begin || end <= from)
    })
}

/// Everything about the fleet in a run.
pub(crate) fn judge(scenario: &Scenario, run: &RunReport, found: &mut Vec<Finding>) {
    let Some(wanted) = &scenario.fleet else {
        return;
    };
    let fleet = &run.fleet;
    let times: Vec<_> = fleet
        .done
        .iter()
        .map(|(n, ms)| format!("{n} after {ms} ms"))
        .collect();
    found.push(Finding::new(
        fleet.missing.is_none() && fleet.done.len() == wanted.acts.len(),
        format!(
            "{}: through etcd {}; missing {:?}",
            run.mode,
            times.join(", "),
            fleet.missing
        ),
    ));
    let of = |name: &str| fleet.changes.iter().filter(|(n, ..)| n == name).count();
    // The first document, and what the acts bring.
    let confirmed = 1 + wanted.acts.iter().filter(|act| act.is_confirmed()).count();
    let (a, b) = (of("gwA"), of("gwB"));
    found.push(Finding::new(
        a == confirmed && b == confirmed && in_turn(&fleet.changes),
        format!(
            "{}: {a} and {b} changes, {confirmed} each, confirmed, never both gateways at once: {:?}",
            run.mode, fleet.changes
        ),
    ));
    if wanted.acts.contains(&Act::Away) {
        found.push(Finding::new(
            fleet.restored_without_etcd > 0,
            format!(
                "{}: {} packets restored while etcd was away",
                run.mode, fleet.restored_without_etcd
            ),
        ));
    }
    if wanted.acts.contains(&Act::Worse) {
        found.extend(gate(fleet, confirmed as u64, &run.mode));
    }
    if wanted.acts.contains(&Act::Better) {
        let again = fleet.restored_again;
        let words = "packets restored since a better document was written";
        found.push(Finding::new(
            again > 0,
            format!("{}: {again} {words}", run.mode),
        ));
    }
}

/// The gate of gateway A took one change back, before the gateway did so by itself, and B never began with it.
fn gate(fleet: &FleetReport, confirmed: u64, mode: &str) -> [Finding; 3] {
    let gate_ms = CONFIRM_S * 750..CONFIRM_S * 1000;
    let in_time = |(name, from, to): &(String, u64, u64)| {
        name == "gwA" && gate_ms.contains(&to.saturating_sub(*from))
    };
    let cancelled = &fleet.cancelled;
    let reason = fleet.halted.as_deref().unwrap_or_default();
    let begun = |name: &str| fleet.begun.get(name).copied();
    [
        Finding::new(
            matches!(cancelled.as_slice(), [one] if in_time(one)),
            format!("{mode}: one change taken back by A after {gate_ms:?} ms: {cancelled:?}"),
        ),
        Finding::new(
            reason.starts_with("urn:crem:problem:fleet-health: ") && reason.contains("peer "),
            format!("{mode}: the fleet stood still: {reason:?}"),
        ),
        Finding::new(
            begun("gwA") == Some(confirmed + 1) && begun("gwB") == Some(confirmed),
            format!(
                "{mode}: changes begun, one more at A than at B: {:?}",
                fleet.begun
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_is_parted_into_what_both_share_and_what_is_own() {
        let document =
            json!({"version": 1, "segments": {"wan": {"mode": "active", "served": {"x": {}}}}});
        let (base, own) = parted(&document).unwrap();
        assert_eq!(
            base,
            json!({"version": 1, "segments": {"wan": {"mode": "active"}}})
        );
        assert_eq!(own, json!({"segments": {"wan": {"served": {"x": {}}}}}));
    }

    #[test]
    fn changes_at_once_are_seen() {
        let change = |name: &str, from, to| (name.to_owned(), from, to);
        let mut changes = vec![
            change("gwA", 1, 5),
            change("gwB", 6, 9),
            change("gwA", 20, 30),
        ];
        assert!(in_turn(&changes));
        changes.push(change("gwB", 29, 31));
        assert!(!in_turn(&changes));
    }

    #[test]
    fn only_confirmed_changes_count() {
        let record = |at: u64, action: &str, outcome: &str| json!({"at_ms": at, "action": action, "outcome": outcome});
        let page = json!({"records": [
            record(1, "PUT /v1/config", "202"),
            record(2, "POST /v1/commit:confirm", "409"),
            record(3, "POST /v1/commit:confirm", "200"),
            record(4, "PUT /v1/config", "422"),
            record(5, "PUT /v1/config", "202"),
        ]});
        assert_eq!(changes(&page, CONFIRM).unwrap(), [(1, 3)]);
        assert_eq!((changes(&page, CANCEL).unwrap(), begun(&page)), (vec![], 2));
    }

    #[test]
    fn a_gate_that_did_not_act_is_seen() {
        let well = FleetReport {
            cancelled: vec![("gwA".to_owned(), 1_000, 10_200)],
            begun: [("gwA".to_owned(), 3), ("gwB".to_owned(), 2)].into(),
            halted: Some("urn:crem:problem:fleet-health: peer 10.0.0.2 does not answer".to_owned()),
            ..FleetReport::default()
        };
        let ok = |spoil: fn(&mut FleetReport)| {
            let mut fleet = well.clone();
            spoil(&mut fleet);
            gate(&fleet, 2, "x").iter().all(|f| f.ok)
        };
        assert!(ok(|_| ()));
        assert!(!ok(|f| f.cancelled.clear()));
        assert!(!ok(|f| f.cancelled[0].0 = "gwB".to_owned()));
        assert!(!ok(|f| f.cancelled[0].2 = 13_000), "the deadline did it");
        assert!(!ok(|f| f.cancelled[0].2 = 5_000));
        assert!(!ok(|f| f.halted = None));
        assert!(!ok(
            |f| f.halted = Some("urn:crem:problem:rolled-back: peer ".to_owned())
        ));
        assert!(!ok(|f| f
            .begun
            .insert("gwB".to_owned(), 3)
            .map_or((), drop)));
    }
}
