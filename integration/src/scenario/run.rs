//! One run of a scenario: build, start, watch, collect, take down.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crem_rawsock::StopFlag;
use crem_rdma_peer::Report as PeerReport;
use crem_wan::LogEntry;

use super::Failure;
use super::gateway::Gateway;
use super::ledger::balance;
use super::machine::Ticks;
use super::process::{Process, Programs};
use super::report::{FlowReport, Outcome, RunReport};
use super::spec::{Event, Family, Flow, Host, Mode, Scenario, inband};
use super::tap::Tap;
use super::tcp;
use super::topology::{HOST_INTERFACE, Place, Topology, WAN_SIDES, mac};

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
/// Most of a window that processor time lost to others may take: no frame is awaited longer.
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
    if scenario.expect.inband_tcp_closed && mode.is_active() {
        stage.try_tcp(&mut report)?;
    }
    stage.transfer(&mut report)?;
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

/// The ends of one flow.
struct Ends {
    requester: Process,
    responder: Process,
    requester_report: PathBuf,
    responder_report: PathBuf,
}

/// Everything that runs. Fields are dropped in order: programs before the namespaces they are in.
struct Stage<'a> {
    context: &'a Context,
    scenario: &'a Scenario,
    mode: Mode,
    folder: PathBuf,
    ends: Vec<Ends>,
    gateways: Vec<Gateway>,
    taps: Vec<Tap>,
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
        let mut gateways = Vec::new();
        if mode != Mode::Bare {
            for host in [Host::A, Host::B] {
                let mut gateway = Gateway::prepare(scenario, host, mode, &folder)?;
                gateway.start(&world, &context.programs)?;
                gateways.push(gateway);
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
            taps,
            wan,
            world,
        })
    }

    /// The path works, addresses are resolved.
    fn warm_up(&self) -> Result<(), Failure> {
        let end = Instant::now() + PING_LIMIT;
        let target = self.scenario.family.host(Host::B);
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
        let (open, tried) = tcp::open_ports(&path, inband(Host::A))?;
        report.inband_open_ports = Some(open);
        report.inband_tried_ports = tried;
        Ok(())
    }

    /// Runs the flows and the events to the end.
    fn transfer(&mut self, report: &mut RunReport) -> Result<(), Failure> {
        for host in [Host::A, Host::B] {
            let path = self.world.path(Place::Host(host));
            let port = self.scenario.wan.crem_port;
            self.taps.push(Tap::start(path, HOST_INTERFACE, port)?);
        }
        report.flows = self
            .scenario
            .flow
            .iter()
            .map(|_| FlowReport::default())
            .collect();
        for (index, flow) in self.scenario.flow.iter().enumerate() {
            self.start_flow(index, flow)?;
        }
        let (start, ticks) = (Instant::now(), Ticks::now());
        let mut script = Script::new(&self.scenario.event, start);
        let mut asked = start;
        loop {
            self.check_stop()?;
            self.run_script(&mut script, report)?;
            for gateway in &mut self.gateways {
                gateway.check_alive()?;
            }
            if asked.elapsed() >= ASK {
                asked = Instant::now();
                self.watch_flows(start, &script, report);
            }
            if self.requesters_ended()? && script.is_over() {
                break;
            }
            if start.elapsed() > Duration::from_secs(self.scenario.limit_s) {
                report.given_up = true;
                break;
            }
            std::thread::sleep(WATCH);
        }
        self.watch_flows(start, &script, report);
        report.wall_seconds = start.elapsed().as_secs_f64();
        report.machine = Ticks::now().since(ticks);
        std::thread::sleep(DRAIN + 2 * Duration::from_micros(self.scenario.rtt_us()));
        Ok(())
    }

    fn start_flow(&mut self, index: usize, flow: &Flow) -> Result<(), Failure> {
        let (near, far) = (flow.requester, flow.requester.other());
        let file = |role: &str| self.folder.join(format!("{role}-{index}.json"));
        let (requester_report, responder_report) = (file("requester"), file("responder"));
        let begin = |role: &str, host: Host, report: &Path| -> Result<Process, Failure> {
            let mut command = self
                .world
                .command(Place::Host(host), &self.context.programs.peer);
            command.args(self.peer_arguments(index, flow, role, host));
            command.arg("--report").arg(report);
            let mut process = Process::start(command, &format!("{role}-{index}"), &self.folder)?;
            process.wait_ready(READY_LIMIT)?;
            Ok(process)
        };
        let responder = begin("responder", far, &responder_report)?;
        let requester = begin("requester", near, &requester_report)?;
        self.ends.push(Ends {
            requester,
            responder,
            requester_report,
            responder_report,
        });
        Ok(())
    }

    fn peer_arguments(&self, index: usize, flow: &Flow, role: &str, host: Host) -> Vec<String> {
        let family = self.scenario.family;
        let mut all: Vec<String> = Vec::new();
        let mut set = |key: &str, value: String| all.extend([format!("--{key}"), value]);
        set("role", role.to_owned());
        set("interface", HOST_INTERFACE.to_owned());
        set("local-ip", family.host(host).to_string());
        set("peer-ip", family.host(host.other()).to_string());
        set("peer-mac", mac(host.other()));
        let qp = |host: Host| queue_pair(index, host).to_string();
        set("local-qp", qp(host));
        set("peer-qp", qp(host.other()));
        set("udp-source", (0xc011 + index as u32).to_string());
        set("operation", flow.operation.name().to_owned());
        set("mtu", flow.rdma_mtu.to_string());
        set("message", flow.message.to_string());
        match flow.messages {
            Some(messages) => set("messages", messages.to_string()),
            None => set("duration", flow.seconds.to_string()),
        }
        set("seed", (index + 1).to_string());
        set("rate-mbit", flow.rate_mbit.to_string());
        set("rtt-us", self.scenario.rtt_us().max(1_000).to_string());
        if let Some(vlan) = flow.vlan {
            set("vlan", vlan.to_string());
        }
        if flow.selective_repeat {
            all.push("--selective-repeat".to_owned());
        }
        all
    }

    fn requesters_ended(&mut self) -> Result<bool, Failure> {
        let mut all = true;
        for (index, ends) in self.ends.iter_mut().enumerate() {
            match ends.requester.ended()? {
                Some(status) if !status.success() => {
                    let tail = ends.requester.tail();
                    return Err(format!("requester {index} ended with {status}{tail}").into());
                }
                ended => all &= ended.is_some(),
            }
            if let Some(status) = ends.responder.ended()? {
                let tail = ends.responder.tail();
                return Err(format!("responder {index} ended with {status}{tail}").into());
            }
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
            if act.start {
                gateway.start(&self.world, &self.context.programs)?;
                script.restarted = Some(Instant::now());
                // Protection is to come back: what was seen before does not count.
                for flow in &mut report.flows {
                    flow.protected_again_ms = None;
                }
            } else {
                gateway.crash()?;
            }
        }
        Ok(())
    }

    /// Notes when each flow is first, and again, protected at both gateways.
    fn watch_flows(&self, start: Instant, script: &Script, report: &mut RunReport) {
        if !self.mode.is_active() {
            return;
        }
        let seen: Vec<_> = self.gateways.iter().map(Gateway::flows).collect();
        for (index, flow) in self.scenario.flow.iter().enumerate() {
            let Some(entry) = report.flows.get_mut(index) else {
                continue;
            };
            let states: Vec<_> = seen
                .iter()
                .map(|flows| {
                    flows
                        .iter()
                        .find(|state| self.is_data_of(index, flow, state))
                })
                .collect();
            entry.states = states
                .iter()
                .flatten()
                .map(|state| state.state.clone())
                .collect();
            entry.reasons = states
                .iter()
                .flatten()
                .filter_map(|state| state.reason.clone())
                .collect();
            let protected = states
                .iter()
                .all(|s| s.is_some_and(|s| s.state == "protected"));
            if !protected {
                continue;
            }
            entry.protected = true;
            let ms = |since: Instant| since.elapsed().as_millis() as u64;
            entry.protected_after_ms.get_or_insert(ms(start));
            if let Some(restarted) = script.restarted {
                entry.protected_again_ms.get_or_insert(ms(restarted));
            }
        }
    }

    /// Whether a gateway's flow is the data direction of flow `index`.
    fn is_data_of(&self, index: usize, flow: &Flow, state: &crem_api::state::Flow) -> bool {
        let responses = flow.operation == super::spec::Operation::Read;
        let from = if responses {
            flow.requester.other()
        } else {
            flow.requester
        };
        let family = self.scenario.family;
        state.source == family.host(from)
            && state.destination == family.host(from.other())
            && state.qp == queue_pair(index, from.other())
            && state.space == if responses { "responses" } else { "requests" }
    }

    /// Ends everything and reads what each part has to say.
    fn collect(&mut self, report: &mut RunReport) -> Result<(), Failure> {
        for (ends, flow) in self.ends.iter_mut().zip(&mut report.flows) {
            ends.requester.stop()?;
            ends.responder.stop()?;
            flow.requester = read_json::<PeerReport>(&ends.requester_report)?;
            flow.responder = read_json::<PeerReport>(&ends.responder_report)?;
            let cpu = ends.requester.cpu_seconds() + ends.responder.cpu_seconds();
            *report
                .cpu_seconds
                .entry("rdma-peer".to_owned())
                .or_default() += cpu;
        }
        self.wan.stop()?;
        report.wan = read_json(&self.folder.join("wan-report.json"))?;
        report
            .cpu_seconds
            .insert("wan".to_owned(), self.wan.cpu_seconds());
        for gateway in &mut self.gateways {
            let name = if gateway.host == Host::A {
                "gwA"
            } else {
                "gwB"
            };
            report
                .gateways
                .extend(gateway.counters().map(|c| (name.to_owned(), c)));
            report.cpu_seconds.insert(name.to_owned(), gateway.stop()?);
        }
        self.balance(report)
    }

    fn balance(&mut self, report: &mut RunReport) -> Result<(), Failure> {
        let mut records = Vec::new();
        for tap in self.taps.drain(..) {
            records.push(tap.finish()?);
        }
        let text = std::fs::read_to_string(self.folder.join("wan.log.txt"))?;
        let log: Vec<LogEntry> = text.lines().filter_map(LogEntry::parse).collect();
        if let [a, b] = records.as_slice() {
            report.a_to_b = balance(a, b, &log, true);
            report.b_to_a = balance(b, a, &log, false);
            report.capture_drops = a.kernel_drops + b.kernel_drops;
            report.crem_at_hosts = a.crem_seen + b.crem_seen;
        }
        Ok(())
    }
}

/// The events that are still to come.
struct Script {
    acts: Vec<(Instant, Act)>,
    restarted: Option<Instant>,
}

/// A gateway goes, or comes back.
#[derive(Clone, Copy)]
struct Act {
    host: Host,
    start: bool,
}

impl Script {
    fn new(events: &[Event], start: Instant) -> Self {
        let mut acts = Vec::new();
        for event in events {
            let gone = start + Duration::from_millis(event.at_ms);
            let back = gone + Duration::from_millis(event.restart_after_ms);
            acts.push((
                gone,
                Act {
                    host: event.kill,
                    start: false,
                },
            ));
            acts.push((
                back,
                Act {
                    host: event.kill,
                    start: true,
                },
            ));
        }
        acts.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        Self {
            acts,
            restarted: None,
        }
    }

    fn due(&mut self, now: Instant) -> Option<Act> {
        self.acts.pop_if(|(at, _)| *at <= now).map(|(_, act)| act)
    }

    fn is_over(&self) -> bool {
        self.acts.is_empty()
    }
}

/// Queue pair of a flow's end at a host.
fn queue_pair(index: usize, host: Host) -> u32 {
    let side = if host == Host::A { 0x100 } else { 0x200 };
    side + index as u32
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

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()).into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_kills_and_restarts_in_order() {
        let start = Instant::now();
        let event = |at_ms, kill| Event {
            at_ms,
            kill,
            restart_after_ms: 100,
        };
        let mut script = Script::new(&[event(500, Host::B), event(50, Host::A)], start);
        let mut seen = Vec::new();
        while let Some(act) = script.due(start + Duration::from_millis(550)) {
            seen.push((act.host, act.start));
        }
        assert_eq!(seen, [(Host::A, false), (Host::A, true), (Host::B, false)]);
        assert!(!script.is_over());
        let last = script.due(start + Duration::from_millis(600));
        assert!(last.is_some_and(|act| act.start) && script.is_over());
    }
}
