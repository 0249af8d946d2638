//! The two ends of a flow: `rdma-peer` at either host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Failure;
use super::process::{Process, Programs, read_json};
use super::report::FlowReport;
use super::spec::{Flow, Host, Scenario};
use super::topology::{HOST_INTERFACE, Place, Topology, mac};
use super::tunnel;

/// Time to come up.
const READY_LIMIT: Duration = Duration::from_secs(10);

/// The ends of one flow.
#[derive(Debug)]
pub(crate) struct Ends {
    index: usize,
    requester: Process,
    responder: Process,
    requester_report: PathBuf,
    responder_report: PathBuf,
}

impl Ends {
    /// Starts the responder of flow `index`, then the requester.
    pub(crate) fn start(
        world: &Topology,
        programs: &Programs,
        scenario: &Scenario,
        index: usize,
        folder: &Path,
    ) -> Result<Self, Failure> {
        let flow = scenario.flow.get(index).ok_or("no such flow")?;
        let file = |role: &str| folder.join(format!("{role}-{index}.json"));
        let (requester_report, responder_report) = (file("requester"), file("responder"));
        let begin = |role: &str, host: Host, report: &Path| -> Result<Process, Failure> {
            let mut command = world.command(Place::Host(host), &programs.peer);
            command.args(arguments(scenario, flow, index, role, host));
            command.arg("--report").arg(report);
            let mut process = Process::start(command, &format!("{role}-{index}"), folder)?;
            process.wait_ready(READY_LIMIT)?;
            Ok(process)
        };
        let responder = begin("responder", flow.to(), &responder_report)?;
        let requester = begin("requester", flow.requester, &requester_report)?;
        Ok(Self {
            index,
            requester,
            responder,
            requester_report,
            responder_report,
        })
    }

    /// Whether the requester has ended; an end that failed is an error.
    pub(crate) fn ended(&mut self) -> Result<bool, Failure> {
        let ended = self.requester.ended()?;
        if let Some(status) = ended.filter(|status| !status.success()) {
            let (index, tail) = (self.index, self.requester.tail());
            return Err(format!("requester {index} ended with {status}{tail}").into());
        }
        if let Some(status) = self.responder.ended()? {
            let (index, tail) = (self.index, self.responder.tail());
            return Err(format!("responder {index} ended with {status}{tail}").into());
        }
        Ok(ended.is_some())
    }

    /// Ends both, reads what they report, and tells their processor time.
    pub(crate) fn finish(&mut self, flow: &mut FlowReport) -> Result<f64, Failure> {
        self.requester.stop()?;
        self.responder.stop()?;
        flow.requester = read_json(&self.requester_report)?;
        flow.responder = read_json(&self.responder_report)?;
        Ok(self.requester.cpu_seconds() + self.responder.cpu_seconds())
    }
}

/// First queue pair of a flow's end at a host; the others of the flow follow.
pub(crate) fn queue_pair(scenario: &Scenario, index: usize, host: Host) -> u32 {
    0x100 * u32::from(host.number()) + scenario.first_queue_pair(index)
}

fn arguments(
    scenario: &Scenario,
    flow: &Flow,
    index: usize,
    role: &str,
    host: Host,
) -> Vec<String> {
    let family = scenario.family;
    let peer = if role == "requester" {
        flow.to()
    } else {
        flow.requester
    };
    let first = scenario.first_queue_pair(index);
    let mut all: Vec<String> = Vec::new();
    let mut set = |key: &str, value: String| all.extend([format!("--{key}"), value]);
    set("role", role.to_owned());
    let (interface, peer_mac) = if flow.tunnelled {
        (tunnel::TUNNEL_INTERFACE, tunnel::mac(peer))
    } else {
        (HOST_INTERFACE, mac(peer))
    };
    set("interface", interface.to_owned());
    set("local-ip", family.host(host).to_string());
    set("peer-ip", family.host(peer).to_string());
    set("peer-mac", peer_mac);
    set("local-qp", queue_pair(scenario, index, host).to_string());
    set("peer-qp", queue_pair(scenario, index, peer).to_string());
    set("udp-source", (0xc011 + first).to_string());
    set("operation", flow.operation.name().to_owned());
    set("mtu", flow.rdma_mtu.to_string());
    set("message", flow.message.to_string());
    match flow.messages {
        Some(messages) => set("messages", messages.to_string()),
        None => set("duration", flow.seconds.to_string()),
    }
    set("seed", (first + 1).to_string());
    if flow.count > 1 {
        set("queue-pairs", flow.count.to_string());
    }
    set("rate-mbit", flow.rate_mbit.to_string());
    set("rtt-us", scenario.rtt_us().max(1_000).to_string());
    if let Some(packets) = flow.udp_source_lasts {
        set("udp-source-lasts", packets.to_string());
    }
    if let Some(vlan) = flow.vlan {
        set("vlan", vlan.to_string());
    }
    for tag in &flow.tags {
        set("tag", tag.clone());
    }
    if flow.selective_repeat {
        all.push("--selective-repeat".to_owned());
    }
    all
}
