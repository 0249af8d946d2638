//! Results as JSON and as a table.

use std::collections::BTreeMap;
use std::path::Path;

use crem_api::state::SegmentCounters;
use crem_rdma_peer::Report as PeerReport;
use crem_wan::{Class, Fate, Report as WanReport};
use serde::{Deserialize, Serialize};

use super::Failure;
use super::api::ApiReport;
use super::changes::Changes;
use super::check::Finding;
use super::control_dies::ControlReport;
use super::fleet::FleetReport;
use super::intruder::Sent;
use super::ledger::Ledger;
use super::links::LinkReport;
use super::machine::MachineUse;
use super::metering::SiteReport;
use super::router::StepReport;
use super::spec::Host;

/// A scenario's runs and what was found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// The scenario.
    pub name: String,
    /// One run a mode.
    pub runs: Vec<RunReport>,
    /// Every expectation, met or not.
    pub findings: Vec<Finding>,
}

impl Outcome {
    /// Whether every expectation was met.
    pub fn ok(&self) -> bool {
        self.findings.iter().all(|finding| finding.ok)
    }

    /// The run in a mode.
    pub fn run(&self, mode: &str) -> Option<&RunReport> {
        self.runs.iter().find(|run| run.mode == mode)
    }
}

/// One run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunReport {
    /// `bare`, `passthrough`, `monitor`, `protected` or `lossless`.
    pub mode: String,
    /// Seconds from the start of the flows to the end of the last.
    pub wall_seconds: f64,
    /// The time limit was reached.
    pub given_up: bool,
    /// The flows in the order of the file.
    pub flows: Vec<FlowReport>,
    /// The WAN.
    pub wan: WanReport,
    /// Counters of the gateways since their last start.
    pub gateways: BTreeMap<String, SegmentCounters>,
    /// What the gateways exported and collectors got, where the scenario has metering.
    #[serde(default)]
    pub metering: BTreeMap<String, SiteReport>,
    /// What gateways in mode `monitor` tell of their flows.
    #[serde(default)]
    pub watched: BTreeMap<String, Vec<crem_api::state::Flow>>,
    /// CREM frames that a stranger sent.
    #[serde(default)]
    pub intruder: Sent,
    /// Of these, those between others that arrived at a host's link.
    #[serde(default)]
    pub between_others_arrived: u64,
    /// Control processes that were killed.
    #[serde(default)]
    pub control: BTreeMap<String, ControlReport>,
    /// Values of documents that were set in time, and seen in force afterwards.
    #[serde(default)]
    pub set: u64,
    /// What became of a router between the gateways.
    #[serde(default)]
    pub router: Vec<StepReport>,
    /// What became of links that went.
    #[serde(default)]
    pub links: Option<LinkReport>,
    /// Mode of each gateway in the end, and why it is not that of its document.
    #[serde(default)]
    pub modes: BTreeMap<String, (String, Option<String>)>,
    /// Documents brought into force meanwhile.
    pub changes: Changes,
    /// What was asked of control processes meanwhile.
    #[serde(default)]
    pub api: ApiReport,
    /// What was done to the fleet meanwhile.
    #[serde(default)]
    pub fleet: FleetReport,
    /// Frames from host A to host B.
    pub a_to_b: Ledger,
    /// Frames from host B to host A.
    pub b_to_a: Ledger,
    /// Frames that the captures missed.
    pub capture_drops: u64,
    /// CREM messages that reached a host.
    pub crem_at_hosts: u64,
    /// The in-band address of gateway A answers ping from host A.
    pub inband_ping: Option<bool>,
    /// TCP ports of the in-band address that accepted or refused a connection.
    pub inband_open_ports: Option<Vec<u16>>,
    /// TCP ports tried.
    pub inband_tried_ports: usize,
    /// Milliseconds that a gateway with a stuck worker took to end by itself.
    #[serde(default)]
    pub stuck_ended_ms: Option<u64>,
    /// Milliseconds from then, its worker's stop, until it forwarded again.
    #[serde(default)]
    pub stuck_gap_ms: Option<u64>,
    /// Use of the machine while the flows ran.
    pub machine: MachineUse,
    /// Processor seconds by program.
    pub cpu_seconds: BTreeMap<String, f64>,
}

/// One flow.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FlowReport {
    /// The asking or sending end.
    pub requester: PeerReport,
    /// The other end.
    pub responder: PeerReport,
    /// It was seen protected at both gateways.
    pub protected: bool,
    /// Milliseconds after its start.
    pub protected_after_ms: Option<u64>,
    /// Milliseconds after the first frame that a gateway forwarded after its last restart, as its own clock says; or
    /// after a value was set.
    pub protected_again_ms: Option<u64>,
    /// The same after the restarted gateway said that it is ready.
    #[serde(default)]
    pub protected_after_ready_ms: Option<u64>,
    /// Looks at which it was not protected any more.
    #[serde(default)]
    pub lapses: u64,
    /// State at the gateways, as last seen.
    pub states: Vec<String>,
    /// Reasons for not being protected, as last seen.
    pub reasons: Vec<String>,
}

impl FlowReport {
    /// Protection is to come back: what was seen before does not count.
    pub(crate) fn forget_return(&mut self) {
        self.protected_again_ms = None;
        self.protected_after_ready_ms = None;
    }

    /// Packets that the transport sent again: data, whichever end it comes from.
    pub fn resent(&self) -> u64 {
        self.requester.packets_resent + self.responder.packets_resent
    }

    /// Octets that arrived wrong.
    pub fn bytes_wrong(&self) -> u64 {
        self.requester.bytes_wrong + self.responder.bytes_wrong
    }
}

impl RunReport {
    /// Packets that the transport sent again, all flows.
    pub fn resent(&self) -> u64 {
        self.flows.iter().map(FlowReport::resent).sum()
    }

    /// Octets that arrived wrong, all flows.
    pub fn bytes_wrong(&self) -> u64 {
        self.flows.iter().map(FlowReport::bytes_wrong).sum()
    }

    /// Sum of the flows' goodput in Mbit/s.
    pub fn goodput_mbit(&self) -> f64 {
        self.flows
            .iter()
            .map(|flow| flow.requester.goodput_mbit)
            .sum()
    }

    /// Longest completion time of a flow in seconds.
    pub fn seconds(&self) -> f64 {
        self.flows
            .iter()
            .map(|flow| flow.requester.seconds)
            .fold(0.0, f64::max)
    }

    /// Source packets lost on the WAN, both directions, retransmitted ones included.
    pub fn lost_on_wan(&self) -> u64 {
        [&self.wan.a_to_b, &self.wan.b_to_a]
            .into_iter()
            .flat_map(|way| {
                [Class::RoceSource, Class::RoceResponse]
                    .into_iter()
                    .flat_map(move |class| {
                        [Fate::Lost, Fate::QueueDropped].map(|fate| way.count(class, fate))
                    })
            })
            .sum()
    }

    /// Retransmission timeouts, all flows.
    pub fn timeouts(&self) -> u64 {
        self.flows.iter().map(|flow| flow.requester.timeouts).sum()
    }

    /// A count of both directions together.
    pub fn sum(&self, count: fn(&Ledger) -> u64) -> u64 {
        count(&self.a_to_b) + count(&self.b_to_a)
    }

    /// A counter of the sender function of one gateway; 0 if it is not known.
    pub fn csf_at(&self, host: Host, name: &str) -> u64 {
        let gateway = self.gateways.get(gateway_name(host));
        gateway
            .and_then(|counters| counters.csf.get(name))
            .copied()
            .unwrap_or(0)
    }

    /// A counter of the receiver function, summed over both gateways.
    pub fn crf(&self, name: &str) -> u64 {
        self.gateways
            .values()
            .filter_map(|counters| counters.crf.get(name))
            .sum()
    }
}

/// The name of a gateway in reports and of its files.
pub(crate) fn gateway_name(host: Host) -> &'static str {
    match host {
        Host::A => "gwA",
        Host::B => "gwB",
        Host::C => "gwC",
    }
}

/// Names of the receiver function's counters that the table shows.
pub(crate) const RESTORED_FEC: &str = "restored_ordinary";
/// See [`RESTORED_FEC`].
pub(crate) const RESTORED_CODED: &str = "restored_coded";
/// See [`RESTORED_FEC`].
pub(crate) const RESTORED_COPY: &str = "restored_copy";
/// See [`RESTORED_FEC`].
pub(crate) const REPLAYED: &str = "replayed";

/// A line of the table: its name and its value for a run.
type Row = (&'static str, fn(&RunReport) -> String);

/// The lines of the table.
const ROWS: [Row; 16] = [
    ("goodput Mbit/s", |r| format!("{:.1}", r.goodput_mbit())),
    ("completion s", |r| format!("{:.2}", r.seconds())),
    ("lost on the WAN", |r| r.lost_on_wan().to_string()),
    ("  of these new sources", |r| {
        r.sum(|l| l.new_sources_lost).to_string()
    }),
    ("  arrived all the same", |r| {
        r.sum(|l| l.restored_exactly).to_string()
    }),
    ("restored by FEC", |r| r.crf(RESTORED_FEC).to_string()),
    ("restored by coded retransmission", |r| {
        r.crf(RESTORED_CODED).to_string()
    }),
    ("restored by source copy", |r| {
        r.crf(RESTORED_COPY).to_string()
    }),
    ("holes of resent runs filled", |r| {
        r.crf(REPLAYED).to_string()
    }),
    ("retransmitted by the transport", |r| r.resent().to_string()),
    ("transport timeouts", |r| r.timeouts().to_string()),
    ("message time ms, median", |r| worst(r, 0)),
    ("message time ms, 99 %", |r| worst(r, 1)),
    ("frames nobody sent", |r| r.sum(|l| l.foreign).to_string()),
    ("bytes wrong", |r| r.bytes_wrong().to_string()),
    ("machine busy, %", |r| {
        format!("{:.0}", 100.0 * r.machine.busy)
    }),
];

/// Prints the runs of a scenario side by side, then what was found.
pub fn print(outcome: &Outcome) {
    println!("\n{}", outcome.name);
    print!("{:<34}", "");
    for run in &outcome.runs {
        print!("{:>14}", run.mode);
    }
    println!();
    for (name, value) in ROWS {
        print!("{name:<34}");
        for run in &outcome.runs {
            print!("{:>14}", value(run));
        }
        println!();
    }
    for finding in &outcome.findings {
        println!(
            "  {} {}",
            if finding.ok { "ok  " } else { "FAIL" },
            finding.what
        );
    }
}

/// The largest message time of a kind over the flows, in milliseconds.
fn worst(run: &RunReport, which: usize) -> String {
    let times = run
        .flows
        .iter()
        .filter_map(|f| f.requester.message_us.get(which));
    format!("{:.1}", f64::from(times.copied().max().unwrap_or(0)) / 1e3)
}

/// Writes `NAME.json` into the folder of results.
///
/// # Errors
/// The file cannot be written.
pub fn save(outcome: &Outcome, folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(format!("{}.json", outcome.name));
    std::fs::write(path, serde_json::to_string_pretty(outcome)? + "\n")?;
    Ok(())
}
