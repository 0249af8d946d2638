//! Totals of what a collector wrote as JSON lines: records of packets and flows, and epochs, by Observation
//! Point, and what the exporter reported as ignored or not sent.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::Failure;

/// Issues that are kept word for word.
const MAX_ISSUES: usize = 8;

/// Totals of a collector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// Exit status of the collector.
    pub status: Option<i32>,
    /// Nothing was wrong, by its own summary.
    pub clean: bool,
    /// Sessions that began.
    pub sessions: u64,
    /// Records of packets, by point.
    pub packets: BTreeMap<u64, u64>,
    /// Packets and octets in records of flows, by point.
    pub flows: BTreeMap<u64, (u64, u64)>,
    /// Records of packets and flows, and reports of epochs.
    pub records: u64,
    /// Epochs, by point.
    pub epochs: BTreeMap<u64, Epochs>,
    /// Reports of what each Selection Sequence saw.
    pub selection_reports: u64,
    /// Packets that metering did not take into account, as last reported.
    pub ignored: u64,
    /// Records that were not sent to this collector, as last reported.
    pub not_sent: u64,
    /// What was wrong.
    pub issues: Vec<String>,
}

/// Epochs of a point, and the sum of their last measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epochs {
    /// With a final report and nothing missing.
    pub complete: u64,
    /// Without.
    pub incomplete: u64,
    /// Contradictory.
    pub invalid: u64,
    /// requestPacketTotalCount.
    pub requests: u64,
    /// skippedPsnTotalCount.
    pub skipped: u64,
    /// filledPsnTotalCount.
    pub filled: u64,
    /// expiredPsnTotalCount.
    pub expired: u64,
    /// abandonedPsnTotalCount.
    pub abandoned: u64,
    /// pendingPsnCount.
    pub pending: u64,
    /// repeatedPsnTotalCount.
    pub repeated: u64,
    /// unclassifiedLatePacketTotalCount.
    pub late: u64,
}

/// Reads what a collector wrote; the last line may be cut if it was killed.
pub(super) fn read(path: &Path) -> Result<Collected, Failure> {
    let mut all = Collected::default();
    for line in BufReader::new(File::open(path)?).lines() {
        let line = line?;
        let event: Value = serde_json::from_str(&line)
            .map_err(|error| format!("{}: {error}: {line}", path.display()))?;
        all.add(&event);
    }
    Ok(all)
}

fn number(value: &Value, name: &str) -> Option<u64> {
    value.get(name)?.as_u64()
}

impl Collected {
    fn add(&mut self, event: &Value) {
        match event["event"].as_str().unwrap_or_default() {
            "began" => self.sessions += 1,
            "record" => self.record(&event["profile"], &event["values"]),
            "report" => self.records += 1,
            "epoch" => {
                let point = number(&event["key"], "observationPointId").unwrap_or_default();
                self.epochs.entry(point).or_default().add(event);
            }
            "issue" if self.issues.len() < MAX_ISSUES => self.issues.push(event.to_string()),
            "summary" => self.clean = event["clean"] == true,
            _ => {}
        }
    }

    fn record(&mut self, profile: &Value, values: &Value) {
        let value = |name| number(values, name);
        let point = value("observationPointId").unwrap_or_default();
        match profile.as_str() {
            Some("bth-packet") => {
                *self.packets.entry(point).or_default() += 1;
                self.records += 1;
            }
            Some("bth-aggregate") => {
                let either = |one, other| value(one).or(value(other)).unwrap_or_default();
                let flow = self.flows.entry(point).or_default();
                flow.0 += either("packetDeltaCount", "postPacketDeltaCount");
                flow.1 += either("octetDeltaCount", "postOctetDeltaCount");
                self.records += 1;
            }
            Some(_) => {}
            None => {
                self.selection_reports += u64::from(value("selectorIdTotalPktsObserved").is_some());
                self.ignored = value("ignoredPacketTotalCount").unwrap_or(self.ignored);
                self.not_sent = value("notSentFlowTotalCount").unwrap_or(self.not_sent);
            }
        }
    }
}

impl Epochs {
    fn add(&mut self, event: &Value) {
        match event["outcome"].as_str() {
            Some("complete") => self.complete += 1,
            Some("incomplete") => self.incomplete += 1,
            _ => self.invalid += 1,
        }
        let count = |name| number(&event["measurements"], name).unwrap_or_default();
        self.requests += count("requestPacketTotalCount");
        self.skipped += count("skippedPsnTotalCount");
        self.filled += count("filledPsnTotalCount");
        self.expired += count("expiredPsnTotalCount");
        self.abandoned += count("abandonedPsnTotalCount");
        self.pending += count("pendingPsnCount");
        self.repeated += count("repeatedPsnTotalCount");
        self.late += count("unclassifiedLatePacketTotalCount");
    }

    /// Positions that were passed over and not seen later.
    pub(super) fn unfilled(&self) -> u64 {
        self.expired + self.abandoned + self.pending
    }
}
