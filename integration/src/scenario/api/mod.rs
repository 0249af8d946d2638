//! Control processes in a scenario: one beside each gateway, which gets its document through their API and in
//! no other way. While flows run, somebody changes the documents (`operator`), many ask (`clients`), and somebody looks
//! closer (`diagnosis`).

mod clients;
mod diagnosis;
pub(super) mod http;
mod operator;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crem_api::state::{Named, SegmentCounters};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::clients::{Clients, Load};
use self::diagnosis::{Diagnosis, Diagnostician};
use self::http::{Ask, Http};
use self::operator::Operator;
use super::Failure;
use super::changes::Changes;
use super::check::Finding;
use super::process::{Process, Programs};
use super::report::{RunReport, gateway_name};
use super::spec::{Host, Scenario};
use super::topology::{Place, Topology};

/// Time to come up.
const READY: Duration = Duration::from_secs(10);
/// Niceness of the process, as in its systemd unit: forwarding goes first.
const NICE: &str = "10";
/// What a gateway did not forward although it had room on the path, by its own account.
const SOURCE_DROPS: [&str; 5] = [
    "truncated",
    "tx_full_lan",
    "tx_full_wan",
    "held_lost",
    "handover_full",
];

/// Control processes: the gateways are configured through their API only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Api {
    /// Changes to make while the flows run, both gateways together.
    #[serde(default)]
    pub changes: u64,
    /// Clients that ask while the flows run, both gateways together.
    #[serde(default)]
    pub clients: u32,
    /// Milliseconds between the answer to a client and its next request.
    #[serde(default = "default_pause")]
    pub pause_ms: u64,
    /// Whether gateway A is looked at closer while the flows run: a capture, a test of its peer, a support bundle.
    #[serde(default)]
    pub diagnose: bool,
    /// Longest time that 99 % of the answers may take, milliseconds; without it they are only told.
    pub answer_ms: Option<f64>,
}

fn default_pause() -> u64 {
    1_000
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ApiReport {
    /// Documents changed, and seen in force or taken back as asked.
    pub changes: Changes,
    /// What clients were answered.
    pub load: Load,
    /// What looking closer showed.
    #[serde(default)]
    pub diagnosis: Option<Diagnosis>,
}

/// A control process.
#[derive(Debug)]
pub(crate) struct ControlProcess {
    process: Process,
    socket: PathBuf,
}

/// Directory of the history of a gateway.
pub(crate) fn state(host: Host, folder: &Path) -> PathBuf {
    folder.join(format!("{}-state", gateway_name(host)))
}

/// What a data plane starts with.
pub(crate) fn confirmed(host: Host, folder: &Path) -> PathBuf {
    state(host, folder).join("confirmed.json")
}

/// Local socket of the API of a gateway. Short, since a socket's path has little room.
pub(crate) fn socket(host: Host) -> PathBuf {
    let side = if host == Host::A { 'a' } else { 'b' };
    std::env::temp_dir().join(format!("crem-sc-{}-{side}c.sock", std::process::id()))
}

impl ControlProcess {
    /// Starts it without a document, beside a data plane that will have this status socket.
    pub(crate) fn start(
        world: &Topology,
        programs: &Programs,
        host: Host,
        dataplane: &Path,
        folder: &Path,
    ) -> Result<Self, Failure> {
        let socket = socket(host);
        let mut command = world.command(Place::Gateway(host), Path::new("nice"));
        command.args(["-n", NICE]).arg(&programs.control);
        command.arg("control");
        command.arg("--state").arg(state(host, folder));
        command.arg("--socket").arg(&socket);
        command.arg("--status-socket").arg(dataplane);
        let name = format!("{}-control", gateway_name(host));
        let mut process = Process::start(command, &name, folder)?;
        process.wait_ready(READY)?;
        Ok(Self { process, socket })
    }

    /// Puts the first document there. No data plane runs yet: it starts with this one.
    pub(crate) fn configure(&self, document: &Value) -> Result<(), Failure> {
        let answer = Http::connect(&self.socket)?.ask(Ask {
            method: "PUT",
            path: "/v1/config?comment=first",
            headers: &[("If-Match", "\"0\""), ("Content-Type", "application/json")],
            body: &document.to_string(),
        })?;
        if answer.status != 200 || answer.json()["revision"] != 1 {
            return Err(format!("the first document: {}", answer.words()).into());
        }
        Ok(())
    }

    /// Waits until it has heard of its data plane.
    pub(crate) fn wait_dataplane(&self) -> Result<(), Failure> {
        let end = Instant::now() + READY;
        let mut http = Http::connect(&self.socket)?;
        while http.ask(Ask::get("/readyz"))?.status != 200 {
            if Instant::now() > end {
                return Err(format!("control has not heard of its data plane in {READY:?}").into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Fails if it ended by itself.
    pub(crate) fn check_alive(&mut self) -> Result<(), Failure> {
        match self.process.ended()? {
            Some(status) => {
                Err(format!("a control process ended ({status}){}", self.process.tail()).into())
            }
            None => Ok(()),
        }
    }

    /// Ends it in order; tells its processor time.
    pub(crate) fn stop(mut self) -> Result<f64, Failure> {
        let status = self.process.stop()?;
        if !status.success() {
            return Err(format!("a control process ended with {status}").into());
        }
        Ok(self.process.cpu_seconds())
    }
}

impl Drop for ControlProcess {
    fn drop(&mut self) {
        // It removes its socket unless it was killed.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// All who use the API while flows run.
#[derive(Debug)]
pub(crate) struct Users {
    operator: Operator,
    clients: Clients,
    diagnostician: Option<Diagnostician>,
}

impl Users {
    pub(crate) fn start(api: &Api) -> Result<Self, Failure> {
        let sockets = [Host::A, Host::B].map(socket);
        let pause = Duration::from_millis(api.pause_ms);
        Ok(Self {
            clients: Clients::start(api.clients, pause, &sockets)?,
            operator: Operator::start(api.changes, sockets.to_vec()),
            diagnostician: api.diagnose.then(|| Diagnostician::start(socket(Host::A))),
        })
    }

    /// Whether every change is made and everything is looked at.
    pub(crate) fn are_done(&self) -> bool {
        let mut diagnostician = self.diagnostician.iter();
        self.operator.is_over() && diagnostician.all(Diagnostician::is_over)
    }

    pub(crate) fn finish(self) -> Result<ApiReport, Failure> {
        Ok(ApiReport {
            load: self.clients.finish()?,
            changes: self.operator.finish()?,
            diagnosis: self.diagnostician.map(Diagnostician::finish).transpose()?,
        })
    }
}

/// Everything about the API in a run.
pub(crate) fn judge(scenario: &Scenario, run: &RunReport, found: &mut Vec<Finding>) {
    let Some(api) = &scenario.api else {
        return;
    };
    let (changes, load) = (&run.api.changes, &run.api.load);
    found.push(Finding::new(
        changes.made == api.changes && changes.seen == changes.made,
        format!(
            "{}: of {} changes through the API {} made and {} as asked, {:?}, the slowest after {:.1} ms",
            run.mode, api.changes, changes.made, changes.seen, changes.kinds, changes.slowest_ms
        ),
    ));
    let [median, most, longest] = load.answer_ms;
    let in_time = api.answer_ms.is_none_or(|limit| most <= limit);
    found.push(Finding::new(
        load.failed == 0 && in_time && load.answered >= u64::from(api.clients),
        format!(
            "{}: {} API clients got {} answers, {:.0} a second, median {median:.1} ms, p99 {most:.1} ms, \
             longest {longest:.1} ms; {} failed {:?}; goodput {:.1} Mbit/s",
            run.mode, load.clients, load.answered, load.per_second, load.failed, load.first_failure,
            run.goodput_mbit()
        ),
    ));
    if api.diagnose {
        let seen = run.api.diagnosis.clone().unwrap_or_default();
        diagnosis::judge(&run.mode.to_string(), &seen, scenario.rtt_us(), found);
    }
    for (name, counters) in &run.gateways {
        let drops = source_drops(counters);
        found.push(Finding::new(
            drops.values().all(|&n| n == 0),
            format!("{}: source packets dropped at {name} {drops:?}", run.mode),
        ));
    }
    found.push(Finding::new(
        run.gateways.len() == 2,
        format!("{}: counters of {} gateways", run.mode, run.gateways.len()),
    ));
}

/// By the gateway's own counters.
fn source_drops(counters: &SegmentCounters) -> Named {
    let ports = [("lan", &counters.lan), ("wan", &counters.wan)];
    let of_ports = ports.into_iter().flat_map(|(port, named)| {
        ["device_drops", "ring_drops"].map(|key| (format!("{port}_{key}"), named.get(key).copied()))
    });
    let named = SOURCE_DROPS.map(|key| (key.to_owned(), counters.drops.get(key).copied()));
    // A counter that is not there is no proof that nothing was dropped.
    let all = of_ports.chain(named);
    all.map(|(key, n)| (key, n.unwrap_or(u64::MAX))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn scenario() -> Scenario {
        Scenario::parse(
            "name = \"x\"\nabout = \"y\"\n[api]\nchanges = 3\nclients = 2\nanswer_ms = 50.0\ndiagnose = true\n\
             [wan.a_to_b.loss]\nuniform = 0.01\n[[flow]]\nrate_mbit = 9\n",
        )
        .unwrap()
    }

    fn run() -> RunReport {
        let mut run = RunReport::default();
        (run.api.changes.made, run.api.changes.seen) = (3, 3);
        (run.api.load.answered, run.api.load.answer_ms) = (9, [1.0, 40.0, 90.0]);
        run.api.diagnosis = Some(Diagnosis {
            frames: 7,
            file_octets: 700,
            echoes: 50,
            rtt_min_us: 50,
            mtu: 1500,
            answers: true,
            bundle_octets: 900,
        });
        for name in ["gwA", "gwB"] {
            let counters = run.gateways.entry(name.to_owned()).or_default();
            for key in SOURCE_DROPS {
                counters.drops.insert(key.to_owned(), 0);
            }
            for named in [&mut counters.lan, &mut counters.wan] {
                named.insert("device_drops".to_owned(), 0);
                named.insert("ring_drops".to_owned(), 0);
            }
        }
        run
    }

    fn good(run: &RunReport) -> bool {
        let mut found = Vec::new();
        judge(&scenario(), run, &mut found);
        found.len() == 6 && found.iter().all(|f| f.ok)
    }

    #[test]
    fn changes_answers_and_drops_are_judged() {
        assert!(good(&run()));
        let spoilt: [fn(&mut RunReport); 8] = [
            |r| r.api.changes.seen = 2,
            |r| r.api.load.failed = 1,
            |r| r.api.diagnosis = None,
            |r| r.api.diagnosis.as_mut().unwrap().mtu = 1400,
            |r| r.api.load.answer_ms[1] = 60.0,
            |r| {
                *r.gateways
                    .get_mut("gwA")
                    .unwrap()
                    .drops
                    .get_mut("held_lost")
                    .unwrap() = 1
            },
            |r| {
                assert!(
                    r.gateways
                        .get_mut("gwB")
                        .unwrap()
                        .wan
                        .remove("ring_drops")
                        .is_some()
                )
            },
            |r| assert!(r.gateways.remove("gwB").is_some()),
        ];
        for spoil in spoilt {
            let mut run = run();
            spoil(&mut run);
            assert!(!good(&run));
        }
    }
}
