//! Metering in a scenario: the keys of its file, and beside each gateway the exporting process with its
//! collectors. What the document says of it is in `document`, what collectors wrote is read in `decode`,
//! and `judge` holds that against the gateways' own counters and against what hosts and WAN saw.

mod decode;
mod document;
mod judge;
mod slow;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crem_api::client::Client;
use crem_api::state::{Export, Named};
use serde::{Deserialize, Serialize};

use decode::{Collected, Epochs};
pub(crate) use document::tables;
pub(crate) use judge::judge;

use self::slow::Slow;
use super::Failure;
use super::process::{Process, Programs};
use super::report::gateway_name;
use super::spec::Host;
use super::topology::{Place, Topology};

/// Name that the certificate of exporters has.
const EXPORTER: &str = "exporter.lab.test";
/// Name that the certificate of collectors has.
const COLLECTOR: &str = "collector.lab.test";
/// Time for a process to come up.
const READY: Duration = Duration::from_secs(10);
/// Time for an answer of the exporting process.
const ANSWER: Duration = Duration::from_millis(500);
/// How long sessions are awaited before flows start.
const SESSIONS: Duration = Duration::from_secs(10);
/// How long a worker may take to hear of a session.
const TOLD: Duration = Duration::from_millis(100);
/// How long the exporting process is given to take what a gateway hands over at its end.
const LAST: Duration = Duration::from_millis(500);

/// What is observed and exported.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metering {
    /// Which packets have records of their own.
    #[serde(default)]
    pub packets: Packets,
    /// Gateway that has a collector which reads slowly, so that its queue overflows.
    pub slow_at: Option<Host>,
    /// What happens while the flows run.
    #[serde(default)]
    pub event: Vec<MeteringEvent>,
}

/// Which packets have records of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Packets {
    /// Every one at LAN ingress, and a selection of another kind at each other point.
    #[default]
    Selected,
    /// Every one everywhere.
    All,
}

/// Something that happens to the export of a gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeteringEvent {
    /// Milliseconds after the requesters started.
    pub at_ms: u64,
    /// Which gateway.
    pub at: Host,
    /// What.
    pub does: Deed,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deed {
    /// The exporting process ends with SIGKILL.
    KillExport,
    /// It is started again.
    StartExport,
    /// A further collector is started and stands in the document, which nobody is told of.
    AddCollector,
}

/// What a gateway exported and what its collectors got.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SiteReport {
    /// Records on their way to the exporting process, by the gateway.
    pub relay: Named,
    /// The exporting process, by itself, since its last start.
    pub export: Export,
    /// What each collector wrote, by name.
    pub collected: BTreeMap<String, Collected>,
    /// The exporting process was killed.
    pub killed: bool,
}

/// A collecting process.
#[derive(Debug)]
struct Collecting {
    name: &'static str,
    process: Process,
    out: PathBuf,
}

/// The exporting process of a gateway, and its collectors.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) host: Host,
    folder: PathBuf,
    sockets: Sockets,
    files: Vec<PathBuf>,
    export: Option<Process>,
    collectors: Vec<Collecting>,
    slow: Option<Slow>,
    killed: bool,
}

/// Sockets of an exporting process. Short, since a socket's path has little room.
#[derive(Clone, Debug)]
pub(crate) struct Sockets {
    /// Takes records.
    pub(crate) records: PathBuf,
    /// Serves the status.
    pub(crate) status: PathBuf,
}

impl Sockets {
    pub(crate) fn of(host: Host) -> Self {
        let side = if host == Host::A { 'a' } else { 'b' };
        let path = |kind| {
            let name = format!("crem-sc-{}-{side}{kind}.sock", std::process::id());
            std::env::temp_dir().join(name)
        };
        Self {
            records: path('r'),
            status: path('s'),
        }
    }
}

/// Certificates of both ends, by `openssl`.
pub(crate) fn certificates(folder: &Path) -> Result<(), Failure> {
    let key = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
    let mut lines = vec![format!(
        "{key} -x509 -subj /CN=ca -keyout ca.key -out ca.crt"
    )];
    for (name, dns) in [("exporter", EXPORTER), ("collector", COLLECTOR)] {
        std::fs::write(
            folder.join(format!("{name}.ext")),
            format!("subjectAltName=DNS:{dns}\n"),
        )?;
        lines.push(format!(
            "{key} -subj /CN={name} -keyout {name}.key -out {name}.csr"
        ));
        lines.push(format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 \
             -extfile {name}.ext -out {name}.crt"
        ));
    }
    for line in lines {
        let done = std::process::Command::new("openssl")
            .args(line.split_whitespace())
            .current_dir(folder)
            .output()
            .map_err(|e| format!("openssl: {e}"))?;
        if !done.status.success() {
            return Err(
                format!("openssl {line}: {}", String::from_utf8_lossy(&done.stderr)).into(),
            );
        }
    }
    Ok(())
}

impl Site {
    /// Starts the collectors of a gateway, then its exporting process. Both files of the gateway are
    /// there.
    pub(crate) fn start(
        metering: &Metering,
        host: Host,
        world: &Topology,
        programs: &Programs,
        folder: &Path,
    ) -> Result<Self, Failure> {
        let mut site = Self {
            host,
            folder: folder.to_owned(),
            sockets: Sockets::of(host),
            files: Vec::new(),
            export: None,
            collectors: Vec::new(),
            slow: None,
            killed: false,
        };
        site.collector("tls", world, programs)?;
        site.collector("tcp", world, programs)?;
        if metering.slow_at == Some(host) {
            let file = site.file("slow.ipfix");
            let path = world.path(Place::Gateway(host));
            world.narrow(Place::Gateway(host))?;
            site.slow = Some(Slow::start(path, document::SLOW_PORT, &file)?);
            site.files.push(file);
        }
        site.export(world, programs)?;
        site.await_sessions()?;
        Ok(site)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder
            .join(format!("{}-{name}", gateway_name(self.host)))
    }

    fn collector(
        &mut self,
        name: &'static str,
        world: &Topology,
        programs: &Programs,
    ) -> Result<(), Failure> {
        let mut command = world.command(Place::Gateway(self.host), &programs.gateway);
        command.args([
            "collect",
            "--strict",
            "--pen",
            "32473",
            "--first-element",
            "1",
        ]);
        let port = document::port(name);
        if name == "tls" {
            command.args(["--tls", &format!("127.0.0.1:{port}"), "--name", EXPORTER]);
            for (flag, file) in [
                ("--certificate", "collector.crt"),
                ("--key", "collector.key"),
                ("--authorities", "ca.crt"),
            ] {
                command.arg(flag).arg(self.folder.join(file));
            }
        } else {
            command.args(["--tcp", &format!("127.0.0.1:{port}")]);
        }
        let out = self.file(&format!("{name}.jsonl"));
        let label = format!("{}-collect-{name}", gateway_name(self.host));
        let mut process =
            Process::start_into(command, &label, &self.folder, Some(File::create(&out)?))?;
        process.wait_logged("listening ", READY)?;
        self.collectors.push(Collecting { name, process, out });
        Ok(())
    }

    fn export(&mut self, world: &Topology, programs: &Programs) -> Result<(), Failure> {
        let name = gateway_name(self.host);
        let mut command = world.command(Place::Gateway(self.host), &programs.gateway);
        command.arg("export");
        let file = |end: &str| self.folder.join(format!("{name}{end}"));
        command.arg("--config").arg(file("-bootstrap.toml"));
        command.arg("--document").arg(file(".toml"));
        let mut process = Process::start(command, &format!("{name}-export"), &self.folder)?;
        process.wait_ready(READY)?;
        self.export = Some(process);
        Ok(())
    }

    fn await_sessions(&self) -> Result<(), Failure> {
        let end = Instant::now() + SESSIONS;
        loop {
            let state = self.state().unwrap_or_default();
            let all = &state.collectors;
            // The gateway has to know of them too: what passes before is observed for nobody.
            let connected = state.source.get("connected") == Some(&1);
            if connected && !all.is_empty() && all.values().all(|c| c.state == "session") {
                std::thread::sleep(TOLD);
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("no session with every collector: {state:?}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn state(&self) -> Option<Export> {
        let mut client = Client::connect(&self.sockets.status, ANSWER).ok()?;
        client.export().ok()
    }

    /// Does what an event says.
    pub(crate) fn act(
        &mut self,
        deed: Deed,
        world: &Topology,
        programs: &Programs,
    ) -> Result<(), Failure> {
        match deed {
            Deed::KillExport => {
                let mut process = self.export.take().ok_or("export is not running")?;
                process.crash()?;
                self.killed = true;
                Ok(())
            }
            Deed::StartExport => self.export(world, programs),
            Deed::AddCollector => {
                self.collector("late", world, programs)?;
                let path = self
                    .folder
                    .join(format!("{}.toml", gateway_name(self.host)));
                let text = std::fs::read_to_string(&path)?;
                // Nobody sees half of it.
                let next = path.with_extension("next");
                std::fs::write(&next, document::with_late(&text)?)?;
                std::fs::rename(next, path)?;
                Ok(())
            }
        }
    }

    /// Fails if a process ended by itself.
    pub(crate) fn check_alive(&mut self) -> Result<(), Failure> {
        let collectors = self.collectors.iter_mut().map(|c| &mut c.process);
        for process in collectors.chain(&mut self.export) {
            if let Some(status) = process.ended()? {
                return Err(format!("ended by itself ({status}){}", process.tail()).into());
            }
        }
        Ok(())
    }

    /// Ends everything in order, after the gateway has ended, and reads what was collected.
    pub(crate) fn finish(&mut self, report: &mut SiteReport) -> Result<(), Failure> {
        std::thread::sleep(LAST);
        report.export = self
            .state()
            .ok_or("the exporting process does not answer")?;
        report.killed = self.killed;
        if let Some(process) = &mut self.export {
            let status = process.stop()?;
            if !status.success() {
                return Err(format!("export ended with {status}{}", process.tail()).into());
            }
        }
        if let Some(slow) = self.slow.take() {
            slow.finish()?;
        }
        for collecting in &mut self.collectors {
            let status = collecting.process.stop()?;
            let mut collected = decode::read(&collecting.out)?;
            collected.status = status.code();
            report
                .collected
                .insert(collecting.name.to_owned(), collected);
        }
        Ok(())
    }

    /// Has `collect` read what the slow collector got.
    pub(crate) fn read_slow(
        &self,
        programs: &Programs,
        report: &mut SiteReport,
    ) -> Result<(), Failure> {
        for file in &self.files {
            let out = file.with_extension("jsonl");
            let status = std::process::Command::new(&programs.gateway)
                .args([
                    "collect",
                    "--strict",
                    "--pen",
                    "32473",
                    "--first-element",
                    "1",
                ])
                .arg(file)
                .stdout(File::create(&out)?)
                .status()?;
            let mut collected = decode::read(&out)?;
            collected.status = status.code();
            report.collected.insert("slow".to_owned(), collected);
        }
        Ok(())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.export = None;
        // A socket that is not there is as good.
        for path in [&self.sockets.records, &self.sockets.status] {
            let _ = std::fs::remove_file(path);
        }
    }
}
