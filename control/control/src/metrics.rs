//! Metrics in the format of Prometheus, made when somebody asks from what was seen last: nothing counts
//! on the way of a frame. Names begin with `crem_`, have base units, and labels of which there are few:
//! segments, ports, and names of counters, never flows or addresses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::SystemTime;

use axum::http::StatusCode;
use crem_api::rest::SyslogState;
use crem_api::state::{Named, SegmentCounters};
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge, with_local_recorder};
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::clock;
use crate::host::Machine;
use crate::view::View;
use crate::watcher::Seen;

mod distributions;
mod fleet;
mod host;

/// Metrics of this process that are no part of any other state.
#[derive(Debug)]
pub struct Metrics {
    directory: PathBuf,
    fleet_status: PathBuf,
    answers: Mutex<BTreeMap<u16, u64>>,
    not_taken: Mutex<fleet::NotTaken>,
}

impl Metrics {
    /// Metrics of a process that keeps its state in a directory; `fleet_status` is the file of the fleet agent.
    pub fn new(directory: &Path, fleet_status: &Path) -> Self {
        Self {
            directory: directory.to_path_buf(),
            fleet_status: fleet_status.to_path_buf(),
            answers: Mutex::default(),
            not_taken: Mutex::default(),
        }
    }

    /// Where the process keeps its state.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Counts an answer.
    pub fn answered(&self, status: StatusCode) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        *answers.entry(status.as_u16()).or_default() += 1;
    }

    /// All metrics as text.
    pub fn render(
        &self,
        view: &View,
        seen: &Seen,
        machine: &Machine,
        syslog: &BTreeMap<String, SyslogState>,
    ) -> String {
        // A new one each time: what is no more, a segment for example, is no more shown either.
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        with_local_recorder(&recorder, || {
            describe();
            host::describe();
            self.process(view);
            host::set(machine, syslog);
            let not_taken = self.not_taken.lock();
            let mut not_taken = not_taken.unwrap_or_else(PoisonError::into_inner);
            fleet::describe();
            fleet::set(&self.fleet_status, SystemTime::now(), &mut not_taken);
            dataplane(seen);
        });
        handle.render() + &distributions::render(seen)
    }

    fn process(&self, view: &View) {
        gauge!("crem_build_info", "version" => env!("CARGO_PKG_VERSION"), "process" => "control")
            .set(1.0);
        let number = |n: Option<u64>| n.unwrap_or(0) as f64;
        gauge!("crem_config_revision", "kind" => "running").set(number(view.machine.running()));
        gauge!("crem_config_revision", "kind" => "confirmed").set(number(view.machine.confirmed()));
        let commit = view.commit(clock::now());
        let pending = commit.deadline_ms.map_or(0.0, |ms| ms as f64 / 1000.0);
        gauge!("crem_config_confirm_deadline_timestamp_seconds").set(pending);
        gauge!("crem_config_restart_needed").set(f64::from(u8::from(view.restart_needed)));
        for cause in CAUSES {
            let count = view.rollbacks.get(cause).copied().unwrap_or(0);
            counter!("crem_config_rollbacks_total", "cause" => *cause).absolute(count);
        }
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        for (status, count) in &*answers {
            counter!("crem_api_responses_total", "status" => status.to_string()).absolute(*count);
        }
    }
}

const CAUSES: &[&str] = &[
    "timeout",
    "cancelled",
    "apply_failed",
    "restart",
    "dataplane_restart",
];

fn describe() {
    describe_gauge!("crem_build_info", "Version of each process; always 1.");
    describe_gauge!(
        "crem_config_revision",
        "Revision that runs, and revision that a start begins with."
    );
    describe_gauge!(
        "crem_config_confirm_deadline_timestamp_seconds",
        Unit::Seconds,
        "When the pending commit is rolled back; 0 if there is none."
    );
    describe_gauge!(
        "crem_config_restart_needed",
        "1 if the data plane takes the document only at its next start."
    );
    describe_counter!(
        "crem_config_rollbacks_total",
        "Commits that were rolled back, by cause."
    );
    describe_counter!(
        "crem_api_responses_total",
        "Answers of the API by HTTP status."
    );
    describe_gauge!("crem_dataplane_up", "1 if the data plane answers.");
    describe_gauge!(
        "crem_dataplane_uptime_seconds",
        Unit::Seconds,
        "Time since the data plane started."
    );
    describe_gauge!("crem_segment_mode", "1 for the mode that is in force.");
    describe_gauge!("crem_port_link_up", "1 if the link is up.");
    describe_gauge!("crem_frame_buffers", "Frame buffers of the data plane.");
    describe_gauge!("crem_frame_buffers_used", "Frame buffers in use.");
    describe_counter!("crem_port_receive_frames_total", "Frames received.");
    describe_counter!(
        "crem_port_receive_bytes_total",
        Unit::Bytes,
        "Octets received, without FCS."
    );
    describe_counter!(
        "crem_port_transmit_frames_total",
        "Frames given to the device."
    );
    describe_counter!(
        "crem_port_transmit_bytes_total",
        Unit::Bytes,
        "Octets given to the device, without FCS."
    );
    describe_counter!(
        "crem_port_transmit_deferred_frames_total",
        "Frames that had to wait for room in the device."
    );
    describe_counter!(
        "crem_port_missed_frames_total",
        "Frames dropped before the data plane saw them, by who dropped them."
    );
    describe_counter!(
        "crem_drops_total",
        "Frames that ended in the gateway, by reason."
    );
    describe_counter!(
        "crem_messages_total",
        "CREM messages by direction and type, and those refused, by reason."
    );
    describe_counter!("crem_sender_total", "Counters of the sender function.");
    describe_counter!("crem_receiver_total", "Counters of the receiver function.");
    describe_counter!(
        "crem_passed_total",
        "Frames that passed and are of no flow, by reason."
    );
    describe_counter!("crem_coding_total", "Counters of coding and rebuilding.");
    describe_counter!("crem_inband_total", "Counters of the in-band interface.");
    describe_counter!(
        "crem_monitor_total",
        "What was seen of flows that are only watched."
    );
    describe_counter!("crem_metering_total", "Counters of metering.");
    describe_counter!(
        "crem_ipfix_source_total",
        "What the exporting process got from the data plane."
    );
    describe_counter!(
        "crem_ipfix_collector_total",
        "What was and was not sent to a collector."
    );
    describe_gauge!(
        "crem_ipfix_collector_up",
        "1 while there is a session with the collector."
    );
}

fn dataplane(seen: &Seen) {
    gauge!("crem_dataplane_up").set(f64::from(u8::from(seen.status.is_some())));
    if let Some(status) = &seen.status {
        gauge!("crem_build_info", "version" => status.version.clone(), "process" => "dataplane")
            .set(1.0);
        gauge!("crem_dataplane_uptime_seconds").set(status.uptime_ms as f64 / 1000.0);
        for (id, segment) in &status.segments {
            let mode = segment.mode.clone();
            gauge!("crem_segment_mode", "segment" => id.clone(), "mode" => mode).set(1.0);
            for (port, state) in [("lan", &segment.lan), ("wan", &segment.wan)] {
                gauge!("crem_port_link_up", "segment" => id.clone(), "port" => port)
                    .set(f64::from(u8::from(state.link_up)));
            }
            gauge!("crem_frame_buffers").set(segment.buffers_total as f64);
            gauge!("crem_frame_buffers_used").set(segment.buffers_used as f64);
        }
    }
    if let Some(counters) = &seen.counters {
        for (id, segment) in &counters.segments {
            self::segment(id, segment);
        }
    }
    if let Some(export) = &seen.export {
        for (name, count) in &export.source {
            counter!("crem_ipfix_source_total", "counter" => name.clone()).absolute(*count);
        }
        for (id, collector) in &export.collectors {
            let up = f64::from(u8::from(collector.session.is_some()));
            gauge!("crem_ipfix_collector_up", "collector" => id.clone()).set(up);
            for (name, count) in &collector.counters {
                counter!("crem_ipfix_collector_total", "collector" => id.clone(), "counter" => name.clone())
                    .absolute(*count);
            }
        }
    }
}

/// Counters of a port that have a metric of their own.
const PORT: &[(&str, &str)] = &[
    ("rx_frames", "crem_port_receive_frames_total"),
    ("rx_octets", "crem_port_receive_bytes_total"),
    ("tx_frames", "crem_port_transmit_frames_total"),
    ("tx_octets", "crem_port_transmit_bytes_total"),
    ("tx_deferred", "crem_port_transmit_deferred_frames_total"),
];

fn segment(id: &str, counters: &SegmentCounters) {
    for (port, named) in [("lan", &counters.lan), ("wan", &counters.wan)] {
        for (name, metric) in PORT {
            if let Some(count) = named.get(*name) {
                counter!(*metric, "segment" => id.to_owned(), "port" => port).absolute(*count);
            }
        }
        for (name, by) in [("device_drops", "device"), ("ring_drops", "kernel")] {
            if let Some(count) = named.get(name) {
                counter!("crem_port_missed_frames_total",
                    "segment" => id.to_owned(), "port" => port, "by" => by)
                .absolute(*count);
            }
        }
    }
    let groups: [(&'static str, &'static str, &Named); 9] = [
        ("crem_drops_total", "reason", &counters.drops),
        ("crem_messages_total", "type", &counters.messages),
        ("crem_sender_total", "counter", &counters.csf),
        ("crem_receiver_total", "counter", &counters.crf),
        ("crem_passed_total", "reason", &counters.passed),
        ("crem_coding_total", "counter", &counters.coding),
        ("crem_inband_total", "counter", &counters.inband),
        ("crem_monitor_total", "counter", &counters.monitor),
        ("crem_metering_total", "counter", &counters.metering),
    ];
    for (metric, label, named) in groups {
        for (name, count) in named {
            counter!(metric, "segment" => id.to_owned(), label => name.clone()).absolute(*count);
        }
    }
}
