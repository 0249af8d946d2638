//! The control process of a gateway: its state, starting and crashing it, asking its API, and what has to hold
//! when it goes and comes back while flows run.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toml::Table;

use super::Failure;
use super::api::http::{Answer, Ask, Http};
use super::check::Finding;
use super::gateway::SEGMENT;
use super::process::{Process, Programs};
use super::report::{RunReport, gateway_name};
use super::spec::{Host, Scenario};
use super::topology::{Place, Topology};

/// Time to come up.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Time for an answer of the API, which may wait for the data plane.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// What is changed by the process that came back.
const TARGET: f64 = 2e-6;

/// What became of a control process that was killed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ControlReport {
    /// Milliseconds from the kill until another one answered.
    pub away_ms: u64,
    /// Packets that the gateways restored meanwhile.
    pub restored: u64,
    /// The revision that runs, as told before and after.
    pub revisions: [Option<u64>; 2],
    /// A document that was changed through the new process came into force in the data plane.
    pub changed: bool,
}

/// A control process.
#[derive(Debug)]
pub(crate) struct Control {
    host: Host,
    state: PathBuf,
    socket: PathBuf,
    process: Option<Process>,
    killed: Option<Instant>,
    revision: Option<u64>,
}

impl Control {
    /// One that is not started yet.
    pub(crate) fn new(host: Host, folder: &Path) -> Self {
        let name = format!("crem-sc-{}-{}-c.sock", std::process::id(), host.letter());
        Self {
            host,
            state: folder.join(format!("{}-state", gateway_name(host))),
            socket: std::env::temp_dir().join(name),
            process: None,
            killed: None,
            revision: None,
        }
    }

    /// Its part of the bootstrap.
    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new();
        table.insert("state".into(), self.state.display().to_string().into());
        table.insert("socket".into(), self.socket.display().to_string().into());
        table
    }

    /// Starts it; the first time it confirms `document`.
    pub(crate) fn start(
        &mut self,
        world: &Topology,
        programs: &Programs,
        folder: &Path,
        [bootstrap, document]: [&Path; 2],
    ) -> Result<(), Failure> {
        let mut command = world.command(Place::Gateway(self.host), &programs.gateway);
        command.arg("control").arg("--config").arg(bootstrap);
        command.arg("--import").arg(document);
        let name = format!("{}-control", gateway_name(self.host));
        let mut process = Process::start(command, &name, folder)?;
        process.wait_ready(START_LIMIT)?;
        self.process = Some(process);
        Ok(())
    }

    /// Ends it as a crash would.
    pub(crate) fn crash(&mut self) -> Result<(), Failure> {
        self.revision = self.running_revision();
        let mut process = self.process.take().ok_or("control is not running")?;
        self.killed = Some(Instant::now());
        process.crash()
    }

    /// After it came back: how long it was away, whether it knows what runs, and whether it changes that.
    pub(crate) fn report(&self) -> ControlReport {
        let away = self.killed.map_or(Duration::ZERO, |at| at.elapsed());
        ControlReport {
            away_ms: away.as_millis() as u64,
            restored: 0,
            revisions: [self.revision, self.running_revision()],
            changed: self.change().is_ok_and(|status| status == 200),
        }
    }

    /// The value that [`report`](Self::report) changes, in a document of the data plane.
    pub(crate) fn is_changed(document: &Value) -> bool {
        let pointer = format!("/segments/{SEGMENT}/policy/target_fec");
        document.pointer(&pointer) == Some(&json!(TARGET))
    }

    fn running_revision(&self) -> Option<u64> {
        let answer = self.ask(Ask::get("/v1/revisions?limit=1")).ok()?;
        let value = Some(answer.json()).filter(|_| answer.status == 200)?;
        value.pointer("/running")?.as_u64()
    }

    fn change(&self) -> Result<u16, Failure> {
        let patch = json!({ "segments": { SEGMENT: { "policy": { "target_fec": TARGET } } } });
        let ask = Ask {
            method: "PATCH",
            path: "/v1/config?max_impact=hot",
            headers: &[
                ("If-Match", "*"),
                ("Content-Type", "application/merge-patch+json"),
            ],
            body: &patch.to_string(),
        };
        Ok(self.ask(ask)?.status)
    }

    /// One request over the local socket.
    fn ask(&self, ask: Ask<'_>) -> Result<Answer, Failure> {
        Http::connect_for(&self.socket, ANSWER_LIMIT)?.ask(ask)
    }

    /// Ends it in order.
    pub(crate) fn stop(&mut self) -> Result<(), Failure> {
        if let Some(process) = &mut self.process {
            let status = process.stop()?;
            if !status.success() {
                return Err(format!("control ended with {status}{}", process.tail()).into());
            }
        }
        Ok(())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.process = None;
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Protection went on while control was away, and the one that came back has everything in hand.
pub(crate) fn judge(scenario: &Scenario, run: &RunReport, found: &mut Vec<Finding>) {
    if !scenario.has_control() || run.mode != "protected" {
        return;
    }
    let killed = scenario.event.iter().map(|event| event.kill);
    for host in killed {
        let report = run.control.get(gateway_name(host)).cloned();
        let report = report.unwrap_or_default();
        let [before, after] = report.revisions;
        found.push(Finding::new(
            before.is_some() && before == after && report.changed,
            format!(
                "{host:?}: control was away for {} ms; revision {before:?} ran before, {after:?} after; \
                 a change through it in force: {}",
                report.away_ms, report.changed
            ),
        ));
        found.push(Finding::new(
            report.restored > 0,
            format!(
                "{host:?}: {} packets restored without control",
                report.restored
            ),
        ));
    }
    let lapses: u64 = run.flows.iter().map(|flow| flow.lapses).sum();
    found.push(Finding::new(
        lapses == 0,
        format!("looks at which a flow was not protected any more {lapses}"),
    ));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::scenario::report::FlowReport;

    fn judged(report: ControlReport, lapses: u64) -> Vec<bool> {
        let scenario = Scenario::parse(
            "name = \"x\"\nabout = \"y\"\n[wan]\n[[flow]]\nrate_mbit = 9\n[[event]]\nat_ms = 5\n\
             kill = \"A\"\nprocess = \"control\"\nrestart_after_ms = 9",
        );
        let mut run = RunReport {
            mode: "protected".to_owned(),
            ..RunReport::default()
        };
        run.control.insert("gwA".to_owned(), report);
        run.flows.push(FlowReport {
            lapses,
            ..FlowReport::default()
        });
        let mut found = Vec::new();
        judge(&scenario.unwrap(), &run, &mut found);
        found.iter().map(|finding| finding.ok).collect()
    }

    #[test]
    fn each_thing_that_control_takes_along_is_found() {
        let good = ControlReport {
            away_ms: 900,
            restored: 5,
            revisions: [Some(1), Some(1)],
            changed: true,
        };
        assert_eq!(judged(good.clone(), 0), [true, true, true]);
        assert_eq!(judged(good.clone(), 1), [true, true, false]);
        let other = ControlReport {
            revisions: [Some(1), None],
            ..good.clone()
        };
        assert_eq!(judged(other, 0), [false, true, true]);
        let idle = ControlReport {
            restored: 0,
            ..good
        };
        assert_eq!(judged(idle, 0), [true, false, true]);
        assert_eq!(judged(ControlReport::default(), 0), [false, false, true]);
    }
}
