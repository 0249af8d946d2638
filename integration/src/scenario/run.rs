//! One run of a scenario: build, start, watch, collect, take down.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crem_rawsock::StopFlag;
use crem_wan::LogEntry;

use super::Failure;
use super::api::Users;
use super::ends::Ends;
use super::fleet::FleetSite;
use super::gateway::Gateway;
use super::intruder::Intruder;
use super::ledger::{Record, balance};
use super::links::try_links;
use super::machine::Ticks;
use super::metering::{Site, SiteReport, certificates};
use super::process::{Process, Programs, read_json};
use super::report::{FlowReport, Outcome, RunReport, gateway_name};
use super::router::Fate;
use super::script::{Restart, Script};
use super::spec::{Family, Host, Mode, Part, Scenario, inband};
use super::tap::Tap;
use super::tcp;
use super::topology::{HOST_INTERFACE, Place, Topology, WAN_SIDES};
use super::tunnel;
use super::watch::watch;

mod deeds;
mod values;

/// CREM port of a scenario that names none.
const CREM_PORT: u16 = 49_800;
/// Time for a program to come up.
const READY_LIMIT: Duration = Duration::from_secs(10);
/// Time for the first ping to pass.
const PING_LIMIT: Duration = Duration::from_secs(10);
/// How often the programs are looked at.
const WATCH: Duration = Duration::from_millis(25);
/// How often the gateways are asked for their flows.
const ASK: Duration = Duration::from_millis(100);
/// How long frames under way are awaited at the end, besides two round-trip times.
const DRAIN: Duration = Duration::from_millis(300);

/// What all runs of a program share.
#[derive(Debug)]
pub struct Context {
    /// The programs.
    pub programs: Programs,
    /// Where results go.
    pub results: PathBuf,
    /// Ends the run when it is set.
    pub stop: StopFlag,
}

/// Runs a scenario in every mode that its expectations need.
///
/// # Errors
/// It could not be carried out.
pub fn run_all_modes(context: &Context, scenario: &Scenario) -> Result<Outcome, Failure> {
    let mut outcome = Outcome {
        name: scenario.name.clone(),
        ..Outcome::default()
    };
    for mode in scenario.modes() {
        outcome.runs.push(run(context, scenario, mode)?);
    }
    Ok(outcome)
}

/// Runs a scenario once.
///
/// # Errors
/// It could not be carried out; everything is taken down all the same.
pub fn run(context: &Context, scenario: &Scenario, mode: Mode) -> Result<RunReport, Failure> {
    let scenario = prepared(scenario, mode);
    context.programs.check(mode != Mode::Bare)?;
    let folder = context.results.join(&scenario.name).join(mode.name());
    // Logs of an earlier run would be appended to.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let folder = folder.canonicalize()?;
    let mut stage = Stage::build(context, &scenario, mode, folder)?;
    stage.warm_up()?;
    let mut report = RunReport {
        mode: mode.name().to_owned(),
        ..RunReport::default()
    };
    stage.transfer(&mut report)?;
    if scenario.expect.inband_tcp_closed && mode.is_active() {
        stage.try_tcp(&mut report)?;
    }
    if scenario.link_propagation {
        stage.try_links(&mut report)?;
    }
    stage.collect(&mut report)?;
    Ok(report)
}

/// The scenario as it is in a mode.
pub(crate) fn prepared(scenario: &Scenario, mode: Mode) -> Scenario {
    let mut scenario = scenario.clone();
    if scenario.wan.crem_port == 0 {
        scenario.wan.crem_port = CREM_PORT;
    }
    if mode == Mode::Lossless {
        scenario.wan.a_to_b.loss = crem_wan::config::Loss::None;
        scenario.wan.b_to_a.loss = crem_wan::config::Loss::None;
    }
    scenario
}

/// Everything that runs. Fields are dropped in order: programs before the namespaces they are in.
struct Stage<'a> {
    context: &'a Context,
    scenario: &'a Scenario,
    mode: Mode,
    folder: PathBuf,
    ends: Vec<Ends>,
    gateways: Vec<Gateway>,
    /// When the worker of one of them was stopped.
    stuck_since: Option<Instant>,
    sites: Vec<Site>,
    fleet: Option<FleetSite>,
    taps: Vec<Tap>,
    /// What captures that have ended took.
    records: Vec<Record>,
    intruder: Option<Intruder>,
    wan: Process,
    world: Topology,
}

impl<'a> Stage<'a> {
    fn build(
        context: &'a Context,
        scenario: &'a Scenario,
        mode: Mode,
        folder: PathBuf,
    ) -> Result<Self, Failure> {
        let world = Topology::build(scenario, mode.name())?;
        let mut wan = start_wan(context, scenario, &world, &folder)?;
        wan.wait_ready(READY_LIMIT)?;
        let (mut gateways, mut sites) = (Vec::new(), Vec::new());
        let mut fleet = FleetSite::start(scenario, &world, &context.programs, &folder)?;
        if scenario.metering.is_some() {
            certificates(&folder)?;
        }
        if mode != Mode::Bare {
            for &host in scenario.hosts() {
                let mut gateway = Gateway::prepare(scenario, host, mode, &folder)?;
                gateway.start_control(&world, &context.programs)?;
                if scenario.api.is_some() || fleet.is_some() {
                    gateway.configure(&world, &context.programs, fleet.as_mut())?;
                }
                gateway.start(&world, &context.programs)?;
                gateways.push(gateway);
                if let Some(metering) = &scenario.metering {
                    let programs = &context.programs;
                    sites.push(Site::start(metering, host, &world, programs, &folder)?);
                }
            }
        }
        let (ends, taps) = (Vec::new(), Vec::new());
        Ok(Self {
            context,
            scenario,
            mode,
            folder,
            ends,
            gateways,
            stuck_since: None,
            sites,
            fleet,
            taps,
            records: Vec::new(),
            intruder: None,
            wan,
            world,
        })
    }

    /// The path works, addresses are resolved.
    fn warm_up(&self) -> Result<(), Failure> {
        for &host in self.scenario.hosts() {
            if host != Host::A {
                self.reach(self.scenario.family.host(host))?;
            }
        }
        match &self.scenario.vxlan {
            Some(_) => self.reach(tunnel::end(Host::B)),
            None => Ok(()),
        }
    }

    fn reach(&self, target: std::net::IpAddr) -> Result<(), Failure> {
        let end = Instant::now() + PING_LIMIT;
        while !self.world.ping(target, 1) {
            self.check_stop()?;
            if Instant::now() > end {
                return Err(format!("no ping from host A to {target} in {PING_LIMIT:?}").into());
            }
        }
        Ok(())
    }

    fn check_stop(&self) -> Result<(), Failure> {
        if self.context.stop.is_set() {
            Err("stopped by a signal".into())
        } else {
            Ok(())
        }
    }

    fn try_tcp(&self, report: &mut RunReport) -> Result<(), Failure> {
        report.inband_ping = Some(self.world.ping_inband(2));
        let path = self.world.path(Place::Host(Host::A));
        let own = inband(Host::A);
        let _listeners = tcp::listen(&self.world.path(Place::Gateway(Host::A)), own)?;
        let (answering, tried) = tcp::answering_ports(&path, own)?;
        report.inband_open_ports = Some(answering);
        report.inband_tried_ports = tried;
        Ok(())
    }

    /// The captures end first: their interface goes.
    fn try_links(&mut self, report: &mut RunReport) -> Result<(), Failure> {
        self.end_captures()?;
        let gateway = self.gateways.first().ok_or("there is no gateway")?;
        let far = self.scenario.family.host(Host::B);
        report.links = Some(try_links(&self.world, gateway, far)?);
        Ok(())
    }

    /// Runs the flows and the events to the end.
    fn transfer(&mut self, report: &mut RunReport) -> Result<(), Failure> {
        for &host in self.scenario.hosts() {
            let path = self.world.path(Place::Host(host));
            let port = self.scenario.wan.crem_port;
            self.taps.push(Tap::start(path, HOST_INTERFACE, port)?);
        }
        let port = self.scenario.wan.crem_port;
        let stranger = self.scenario.intruder;
        self.intruder = stranger.map(|stranger| Intruder::start(&self.world, stranger, port));
        let (world, programs) = (&self.world, &self.context.programs);
        for index in 0..self.scenario.flow.len() {
            let ends = Ends::start(world, programs, self.scenario, index, &self.folder)?;
            self.ends.push(ends);
            report.flows.push(FlowReport::default());
        }
        let (start, ticks) = (Instant::now(), Ticks::now());
        self.watch_to_the_end(start, report)?;
        report.wall_seconds = start.elapsed().as_secs_f64();
        report.machine = Ticks::now().since(ticks);
        std::thread::sleep(DRAIN + 2 * Duration::from_micros(self.scenario.rtt_us()));
        Ok(())
    }

    fn watch_to_the_end(&mut self, start: Instant, report: &mut RunReport) -> Result<(), Failure> {
        let mut script = Script::new(&self.scenario.event, start);
        let mut deeds = self.deeds(start);
        let mut sets = self.sets(start);
        let mut asked = start;
        let mut router = self.router(start);
        let users = self.scenario.api.as_ref().map(Users::start).transpose()?;
        loop {
            self.check_stop()?;
            self.run_script(&mut script, report)?;
            self.do_deeds(&mut deeds)?;
            self.do_sets(&mut sets, &mut script, report)?;
            for gateway in &mut self.gateways {
                gateway.check_alive()?;
            }
            for site in &mut self.sites {
                site.check_alive()?;
            }
            if self.mode.is_active() && report.changes.made < self.scenario.changes {
                report.changes.step(&self.gateways)?;
            }
            let done = users.as_ref().is_none_or(Users::are_done) && sets.is_empty();
            let done = self.step_fleet()? && done;
            let routed = router.as_ref().is_none_or(Fate::is_over);
            let over =
                self.requesters_ended()? && script.is_over() && deeds.is_empty() && done && routed;
            report.given_up = !over && start.elapsed() > self.limit();
            let last = over || report.given_up;
            if self.mode.is_active() && (last || asked.elapsed() >= ASK) {
                asked = Instant::now();
                if let Some(router) = &mut router {
                    router.drive(&self.world, &self.gateways, &mut report.router)?;
                }
                let (gateways, flows) = (&self.gateways, &mut report.flows);
                watch(self.scenario, gateways, start, script.restarted, flows);
                self.tell_intruder();
            }
            if last {
                break;
            }
            std::thread::sleep(WATCH);
        }
        if let Some(users) = users {
            report.api = users.finish()?;
        }
        Ok(())
    }

    fn router(&self, start: Instant) -> Option<Fate> {
        let router = self.scenario.router.filter(|_| self.mode.is_active());
        router.map(|router| Fate::new(router, start))
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.scenario.limit_s)
    }

    fn requesters_ended(&mut self) -> Result<bool, Failure> {
        let mut all = true;
        for ends in &mut self.ends {
            all &= ends.ended()?;
        }
        Ok(all)
    }

    fn run_script(&mut self, script: &mut Script, report: &mut RunReport) -> Result<(), Failure> {
        while let Some(act) = script.due(Instant::now()) {
            let found = self
                .gateways
                .iter_mut()
                .find(|gateway| gateway.host == act.host);
            let gateway = found.ok_or("an event names a gateway that is not there")?;
            if act.process == Part::Control {
                if act.start {
                    gateway.start_control(&self.world, &self.context.programs)?;
                    let name = gateway_name(act.host).to_owned();
                    report
                        .control
                        .extend(gateway.control_report().map(|r| (name, r)));
                } else {
                    gateway.crash_control()?;
                }
            } else if act.start {
                gateway.start(&self.world, &self.context.programs)?;
                script.restarted = Some(Restart {
                    at: Instant::now(),
                    gateway: Some(act.host),
                });
                for flow in &mut report.flows {
                    flow.forget_return();
                }
                if let Some(gone) = self.stuck_since.take() {
                    report.stuck_gap_ms = Some(gone.elapsed().as_millis() as u64);
                }
            } else if let Some(worker) = act.stuck {
                self.stuck_since = Some(Instant::now());
                let took = gateway.get_stuck(worker)?;
                report.stuck_ended_ms = Some(took.as_millis() as u64);
            } else {
                gateway.crash()?;
            }
        }
        Ok(())
    }

    /// Ends everything and reads what each part has to say.
    fn collect(&mut self, report: &mut RunReport) -> Result<(), Failure> {
        for (ends, flow) in self.ends.iter_mut().zip(&mut report.flows) {
            let cpu = ends.finish(flow)?;
            *report
                .cpu_seconds
                .entry("rdma-peer".to_owned())
                .or_default() += cpu;
        }
        if let Some(intruder) = self.intruder.take() {
            report.intruder = intruder.finish()?;
        }
        if let Some(fleet) = &mut self.fleet {
            report.fleet = fleet.finish()?;
        }
        self.wan.stop()?;
        report.wan = read_json(&self.folder.join("wan-report.json"))?;
        report
            .cpu_seconds
            .insert("wan".to_owned(), self.wan.cpu_seconds());
        for gateway in &mut self.gateways {
            let name = gateway_name(gateway.host);
            report
                .gateways
                .extend(gateway.counters().map(|c| (name.to_owned(), c)));
            if let Some(status) = gateway.status() {
                let mode = (status.mode, status.mode_reason);
                report.modes.insert(name.to_owned(), mode);
            }
            if self.mode == Mode::Monitor {
                report.watched.insert(name.to_owned(), gateway.flows());
            }
            let relay = gateway.relay();
            let control = gateway.stop_api()?.map(|s| (format!("{name}-control"), s));
            report.cpu_seconds.extend(control);
            let seconds = gateway.stop(&self.world)?;
            report.cpu_seconds.insert(name.to_owned(), seconds);
            if let Some(site) = self.sites.iter_mut().find(|site| site.host == gateway.host) {
                let mut what = SiteReport {
                    relay,
                    ..SiteReport::default()
                };
                site.finish(&mut what)?;
                site.read_slow(&self.context.programs, &mut what)?;
                report.metering.insert(name.to_owned(), what);
            }
        }
        self.balance(report)
    }

    fn end_captures(&mut self) -> Result<(), Failure> {
        for tap in self.taps.drain(..) {
            self.records.push(tap.finish()?);
        }
        Ok(())
    }

    fn balance(&mut self, report: &mut RunReport) -> Result<(), Failure> {
        self.end_captures()?;
        let mut records = std::mem::take(&mut self.records);
        // Whatever is not at side A is at side B.
        for record in records.split_off(records.len().min(2)) {
            records.last_mut().ok_or("no capture")?.join(record);
        }
        let text = std::fs::read_to_string(self.folder.join("wan.log.txt"))?;
        let log: Vec<LogEntry> = text.lines().filter_map(LogEntry::parse).collect();
        if let [a, b] = records.as_slice() {
            report.a_to_b = balance(a, b, &log, true);
            report.b_to_a = balance(b, a, &log, false);
            report.capture_drops = a.kernel_drops + b.kernel_drops;
            report.crem_at_hosts = a.crem_seen + b.crem_seen;
            report.between_others_arrived = a.between_others + b.between_others;
        }
        Ok(())
    }
}

fn start_wan(
    context: &Context,
    scenario: &Scenario,
    world: &Topology,
    folder: &Path,
) -> Result<Process, Failure> {
    let config = folder.join("wan.json");
    std::fs::write(&config, serde_json::to_string(&scenario.wan)?)?;
    let [a, b] = WAN_SIDES;
    let mut command = world.command(Place::Wan, &context.programs.wan);
    command
        .args(["--a", a, "--b", b])
        .arg("--config")
        .arg(&config);
    command.arg("--report").arg(folder.join("wan-report.json"));
    command.arg("--log").arg(folder.join("wan.log.txt"));
    Process::start(command, "wan", folder)
}

impl Family {
    /// Octets of an IP header.
    pub(crate) fn header(self) -> u64 {
        match self {
            Self::Ipv4 => 20,
            Self::Ipv6 => 40,
        }
    }
}
