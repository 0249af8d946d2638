//! A gateway process: its two files, starting, crashing and restarting it, and asking it for counters
//! and flows.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crem_api::client::Client;
use crem_api::state::{Counters, Flow as FlowState, Named, SegmentCounters, SegmentStatus};
use nix::sys::signal::Signal;
use toml::{Table, Value};

use super::Failure;
use super::api::{self, ControlProcess};
use super::changes::collector;
use super::control_dies::{Control, ControlReport};
use super::fleet::FleetSite;
use super::guest;
use super::metering::{self, Sockets};
use super::process::{Process, Programs};
use super::report::gateway_name;
use super::spec::{Host, Mode, Ports, Scenario, inband, routed};
use super::topology::{LAN_INTERFACE, Place, Topology, WAN_INTERFACE};

/// Id of the one segment.
pub(crate) const SEGMENT: &str = "wan";
/// Frame buffers: retention and hold at their defaults, rings and slack; about 80 MB.
const POOL_FRAMES: i64 = 8_191;
/// Time to come up: DPDK initialises its memory.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Longest wait for a process with a stuck worker to end.
const STUCK_LIMIT: Duration = Duration::from_secs(5);
/// Time for an answer on the status socket.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);

/// A gateway of the pair.
#[derive(Debug)]
pub(crate) struct Gateway {
    /// Which one.
    pub(crate) host: Host,
    folder: PathBuf,
    socket: PathBuf,
    process: Option<Process>,
    /// Where there is one, the document comes through it.
    api: Option<ControlProcess>,
    /// Processor time of processes that were killed.
    earlier_cpu: f64,
    starts: u32,
    workers: u16,
    ports: Ports,
    watchdog_ms: i64,
    panic_at_ms: Option<i64>,
    /// Its other process, if the scenario has one, and packets restored when that one was killed.
    control: Option<Control>,
    restored: u64,
    /// MTU of its ports, if it runs in a guest; and the way to its status socket then.
    guest_mtu: Option<u16>,
    relay: Option<guest::Relay>,
}

impl Gateway {
    /// Writes the files of a gateway; it is not started yet.
    pub(crate) fn prepare(
        scenario: &Scenario,
        host: Host,
        mode: Mode,
        folder: &Path,
    ) -> Result<Self, Failure> {
        let gateway = Self {
            host,
            folder: folder.to_owned(),
            socket: socket_path(host),
            process: None,
            api: None,
            earlier_cpu: 0.0,
            starts: 0,
            workers: scenario.workers,
            ports: scenario.ports,
            watchdog_ms: watchdog_ms(scenario),
            panic_at_ms: scenario.panic_at_ms.filter(|_| host == Host::B),
            control: scenario.has_control().then(|| Control::new(host, folder)),
            restored: 0,
            guest_mtu: scenario.guest.filter(|&g| g == host).map(|_| scenario.mtu),
            relay: None,
        };
        std::fs::write(
            gateway.document(),
            document(scenario, host, mode, folder).to_string(),
        )?;
        let bootstrap = gateway.bootstrap_table(scenario.metering.is_some());
        std::fs::write(gateway.bootstrap(), bootstrap.to_string())?;
        Ok(gateway)
    }

    /// Starts its control process and has the document get there, which the data plane begins with then: through
    /// its API, or through the store of a fleet.
    pub(crate) fn configure(
        &mut self,
        world: &Topology,
        programs: &Programs,
        fleet: Option<&mut FleetSite>,
    ) -> Result<(), Failure> {
        let text = std::fs::read_to_string(self.document())?;
        let document = serde_json::to_value(text.parse::<Table>()?)?;
        let control =
            ControlProcess::start(world, programs, self.host, &self.socket, &self.folder)?;
        match fleet {
            Some(fleet) => fleet.add(programs, self.host, &document)?,
            None => control.configure(&document)?,
        }
        self.api = Some(control);
        Ok(())
    }

    /// Its status socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its ports keep many buffers to themselves: those through AF_XDP, and devices with descriptors of their own.
    fn keeps_many(&self) -> bool {
        self.ports == Ports::Xdp || self.guest_mtu.is_some()
    }

    fn name(&self) -> &'static str {
        gateway_name(self.host)
    }

    fn document(&self) -> PathBuf {
        self.folder.join(format!("{}.toml", self.name()))
    }

    fn bootstrap(&self) -> PathBuf {
        self.folder.join(format!("{}-bootstrap.toml", self.name()))
    }

    fn bootstrap_table(&self, exports: bool) -> Table {
        let mut all = Table::new();
        let mut worker = Table::new();
        worker.insert("idle".into(), "adaptive".into());
        worker.insert("watchdog_ms".into(), self.watchdog_ms.into());
        if let Some(ms) = self.panic_at_ms {
            worker.insert("fault_after_ms".into(), ms.into());
        }
        all.insert("worker".into(), worker.into());
        all.insert(
            "memory".into(),
            table(
                "pool_frames",
                pool_frames(self.workers, self.keeps_many()).into(),
            ),
        );
        let status = match self.guest_mtu {
            Some(_) => guest::socket(),
            None => table("socket", self.socket.display().to_string().into()),
        };
        all.insert("status".into(), status);
        if let Some(control) = &self.control {
            all.insert("control".into(), control.table().into());
        }
        if exports {
            let sockets = Sockets::of(self.host);
            let path = |path: PathBuf| Value::from(path.display().to_string());
            let mut export = Table::new();
            export.insert("socket".into(), path(sockets.records));
            export.insert("status_socket".into(), path(sockets.status));
            all.insert("export".into(), export.into());
        }
        all
    }

    /// Starts the control process, if there is one: the first time it confirms the document.
    pub(crate) fn start_control(
        &mut self,
        world: &Topology,
        programs: &Programs,
    ) -> Result<(), Failure> {
        let files = [self.bootstrap(), self.document()];
        let Some(control) = &mut self.control else {
            return Ok(());
        };
        let [bootstrap, document] = files;
        control.start(world, programs, &self.folder, [&bootstrap, &document])
    }

    /// Ends the control process as a crash would.
    pub(crate) fn crash_control(&mut self) -> Result<(), Failure> {
        self.restored = self.restored();
        let control = self.control.as_mut().ok_or("there is no control process")?;
        control.crash()
    }

    /// What control did after it came back, and what the data plane did without it.
    pub(crate) fn control_report(&self) -> Option<ControlReport> {
        let restored = self.restored().saturating_sub(self.restored);
        let mut report = self.control.as_ref()?.report();
        report.restored = restored;
        let running = self.ask(Client::document);
        report.changed &= running.is_some_and(|r| Control::is_changed(&r.document));
        Some(report)
    }

    /// Packets that it has restored since its last start.
    pub(crate) fn restored(&self) -> u64 {
        let counters = self.counters();
        let restored = counters.and_then(|c| c.coding.get("restored").copied());
        restored.unwrap_or(0)
    }

    /// Starts the process and waits until it forwards.
    pub(crate) fn start(&mut self, world: &Topology, programs: &Programs) -> Result<(), Failure> {
        if let Some(mtu) = self.guest_mtu {
            return self.start_guest(mtu, world, programs);
        }
        let mut command = world.command(Place::Gateway(self.host), &programs.gateway);
        command.arg("dataplane");
        command.arg("--config").arg(self.bootstrap());
        // Captures are written there, and a data plane writes nowhere but where it is told. One of another version may
        // not know the key, and would refuse it.
        if programs.gateway == programs.control {
            command.env("CREM_CONTROL__STATE", api::state(self.host, &self.folder));
        }
        // With a control process: what that one confirmed.
        if self.api.is_some() {
            command
                .arg("--document")
                .arg(api::confirmed(self.host, &self.folder));
        } else if self.control.is_none() {
            command.arg("--document").arg(self.document());
        }
        let mut process = Process::start(command, self.name(), &self.folder)?;
        process.wait_ready(START_LIMIT)?;
        if let Some(control) = &self.api {
            control.wait_dataplane()?;
        }
        // What other daemons take for a reload or a dump must not end forwarding: the checks that
        // follow fail if it does.
        for harmless in [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2] {
            process.signal(harmless);
        }
        self.process = Some(process);
        self.starts += 1;
        Ok(())
    }

    fn start_guest(
        &mut self,
        mtu: u16,
        world: &Topology,
        programs: &Programs,
    ) -> Result<(), Failure> {
        let setup = guest::Setup {
            host: self.host,
            mtu,
            name: self.name(),
            bootstrap: &self.bootstrap(),
            document: &self.document(),
            socket: &self.socket,
            folder: &self.folder,
        };
        let (process, relay) = guest::start(&setup, world, programs)?;
        self.process = Some(process);
        self.relay = Some(relay);
        self.starts += 1;
        Ok(())
    }

    /// Ends the process as a crash would.
    pub(crate) fn crash(&mut self) -> Result<(), Failure> {
        let mut process = self.process.take().ok_or("the gateway is not running")?;
        process.crash()?;
        self.earlier_cpu += process.cpu_seconds();
        Ok(())
    }

    /// Stops one worker for good and waits until the process has ended by itself; tells how long that took.
    pub(crate) fn get_stuck(&mut self, worker: u16) -> Result<Duration, Failure> {
        let mut process = self.process.take().ok_or("the gateway is not running")?;
        let took = process.stop_thread(worker, STUCK_LIMIT)?;
        self.earlier_cpu += process.cpu_seconds();
        Ok(took)
    }

    /// Fails if the process ended by itself.
    pub(crate) fn check_alive(&mut self) -> Result<(), Failure> {
        let name = self.name();
        if let Some(control) = &mut self.api {
            control.check_alive()?;
        }
        let Some(process) = &mut self.process else {
            return Ok(());
        };
        match process.ended()? {
            Some(status) => {
                Err(format!("{name} ended by itself ({status}){}", process.tail()).into())
            }
            None => Ok(()),
        }
    }

    /// The flows it knows; empty while it is down.
    pub(crate) fn flows(&self) -> Vec<FlowState> {
        self.ask(Client::flows)
            .map(|flows| flows.flows)
            .unwrap_or_default()
    }

    /// Its counters since its last start.
    pub(crate) fn counters(&self) -> Option<SegmentCounters> {
        let counters: Counters = self.ask(Client::counters)?;
        counters.segments.get(SEGMENT).cloned()
    }

    /// Counters of records on their way to the exporting process.
    pub(crate) fn relay(&self) -> Named {
        let counters = self.ask(Client::counters);
        counters.map(|counters| counters.export).unwrap_or_default()
    }

    /// What it says of its segment.
    pub(crate) fn status(&self) -> Option<SegmentStatus> {
        self.ask(Client::status)?.segments.remove(SEGMENT)
    }

    fn ask<T>(
        &self,
        question: impl FnOnce(&mut Client) -> Result<T, crem_api::client::ClientError>,
    ) -> Option<T> {
        self.process.as_ref()?;
        let mut client = Client::connect(&self.socket, ANSWER_LIMIT).ok()?;
        question(&mut client).ok()
    }

    /// Ends its control process, if it has one; tells its processor time.
    pub(crate) fn stop_api(&mut self) -> Result<Option<f64>, Failure> {
        self.api.take().map(ControlProcess::stop).transpose()
    }

    /// Ends it in order; an exit status other than 0 is an error.
    pub(crate) fn stop(&mut self, world: &Topology) -> Result<f64, Failure> {
        let name = self.name();
        if let Some(control) = &mut self.control {
            control.stop()?;
        }
        if let Some(process) = &mut self.process {
            let good = match self.guest_mtu {
                Some(_) => guest::stop(world.path(Place::Gateway(self.host)), process)?,
                None => process.stop()?.success(),
            };
            if !good {
                return Err(format!("{name} did not end as it should{}", process.tail()).into());
            }
        }
        let last = self
            .process
            .take()
            .map_or(0.0, |process| process.cpu_seconds());
        Ok(self.earlier_cpu + last)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // The process goes first; a socket that is not there is as good.
        self.process = None;
        self.relay = None;
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// The product's own limit where it is what is tried. Else longer: on a busy machine even a sound worker may
/// not run for a while.
fn watchdog_ms(scenario: &Scenario) -> i64 {
    let tried = scenario.event.iter().any(|e| e.stuck_worker.is_some());
    if tried { 200 } else { 2_000 }
}

/// Each worker has descriptors, symbols and queues of its own.
fn pool_frames(workers: u16, keeps_many: bool) -> i64 {
    let parts = i64::from(workers) + i64::from(keeps_many);
    parts * (POOL_FRAMES + 1) - 1
}

/// Short, since a socket's path has little room.
fn socket_path(host: Host) -> PathBuf {
    let side = host.letter();
    std::env::temp_dir().join(format!("crem-sc-{}-{side}.sock", std::process::id()))
}

fn document(scenario: &Scenario, host: Host, mode: Mode, folder: &Path) -> Table {
    let mut segment = Table::new();
    let mode = match mode {
        Mode::Active | Mode::Lossless => "active",
        Mode::Monitor => "monitor",
        Mode::Passthrough | Mode::Bare => "passthrough",
    };
    segment.insert("mode".into(), mode.into());
    segment.insert("crem_port".into(), i64::from(scenario.wan.crem_port).into());
    segment.insert("path_mtu".into(), i64::from(scenario.mtu).into());
    let sides = [("lan", LAN_INTERFACE), ("wan", WAN_INTERFACE)];
    for (number, (side, interface)) in sides.into_iter().enumerate() {
        let port = if scenario.guest == Some(host) {
            guest::port(number)
        } else {
            table(scenario.ports.key(), interface.into())
        };
        segment.insert(side.into(), port);
    }
    let family = scenario.family;
    segment.insert(
        "served".into(),
        table(&family.prefix(host), Table::new().into()),
    );
    let others = scenario.hosts().iter().filter(|&&other| match host {
        Host::A => other != host,
        // Sites of a hub have it as their one peer.
        Host::B | Host::C => other == Host::A,
    });
    let peers: Table = others
        .map(|&other| {
            let address = match scenario.router {
                Some(_) => routed(other)[0],
                None => inband(other),
            };
            let peer = table("address", address.to_string().into());
            (family.prefix(other), peer)
        })
        .collect();
    segment.insert("peers".into(), peers.into());
    segment.insert("inband".into(), inband_table(scenario, host).into());
    let reporters = scenario.reporters.iter();
    let reporters: Table = reporters
        .map(|r| (r.clone(), Table::new().into()))
        .collect();
    segment.insert("reporters".into(), reporters.into());
    segment.extend(scenario.segment.clone());
    if let Some(vxlan) = &scenario.vxlan {
        segment.insert("vxlan".into(), vxlan.document());
    }
    segment.insert("policy".into(), scenario.policy.clone().into());
    segment.insert("limits".into(), scenario.limits.clone().into());
    let mut document = Table::new();
    document.insert("version".into(), 1.into());
    document.insert("workers".into(), i64::from(scenario.workers).into());
    document.insert("segments".into(), table(SEGMENT, segment.into()));
    let ipfix = metering::tables(scenario, host, folder);
    document.extend(ipfix.map(|ipfix| ("ipfix".to_owned(), ipfix.into())));
    if scenario.changes > 0 {
        document.insert("ipfix".into(), collector().into());
    }
    document
}

/// All gateways are on one link, or each on one with a router.
fn inband_table(scenario: &Scenario, host: Host) -> Table {
    let mut inband_table = Table::new();
    if scenario.router.is_some() {
        let [own, router] = routed(host);
        inband_table.insert("address".into(), format!("{own}/24").into());
        inband_table.insert("gateway".into(), router.to_string().into());
    } else {
        let own = inband(host);
        inband_table.insert("address".into(), format!("{own}/16").into());
    }
    inband_table
}

/// A table of one key.
pub(crate) fn table(key: &str, value: Value) -> Value {
    let mut table = Table::new();
    table.insert(key.to_owned(), value);
    table.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::run::prepared;
    use super::*;

    #[test]
    fn every_scenario_makes_legal_documents() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let mut read = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let scenario = Scenario::load(&entry.unwrap().path()).unwrap();
            for (host, mode) in [(Host::A, Mode::Passthrough), (Host::B, Mode::Active)] {
                let scenario = prepared(&scenario, mode);
                let text = document(&scenario, host, mode, Path::new("/x")).to_string();
                let result = crem_api::parse(&text, crem_api::Syntax::Toml);
                assert!(result.is_ok(), "{text}\n{result:?}");
                read += 1;
            }
        }
        assert!(read > 10);
    }
}
