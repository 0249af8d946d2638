//! The collector's rules: reports and what becomes of them, and what is stored of each epoch.

use core::net::IpAddr;

use crem_ipfix::collect::{EpochLimits, Epochs, Report, ReportKey, Stored};
use crem_meter::Utc;
use crem_meter::seq::{Counts, Flags};
use serde::Deserialize;
use serde_json::Value;

use super::case::{Tally, equal};

#[derive(Deserialize)]
struct Case {
    max_contexts: Option<usize>,
    steps: Vec<Step>,
    high_water: u64,
    stored: Vec<StoredCase>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Step {
    Record {
        record: RecordCase,
        verdict: String,
    },
    Op {
        op: String,
        epoch: Option<u64>,
        result: Option<StoredCase>,
    },
}

#[derive(Deserialize)]
struct RecordCase {
    key: (String, IpAddr, IpAddr, u32, u16),
    epoch: u64,
    report: u64,
    window: u32,
    flags: u16,
    start: u64,
    end: u64,
    #[serde(flatten)]
    counts: CountsCase,
}

#[derive(Deserialize, PartialEq, Debug)]
struct CountsCase {
    skipped: u64,
    filled: u64,
    expired: u64,
    abandoned: u64,
    pending: u32,
    repeated: u64,
    requests: u64,
    unclassified_late: u64,
}

#[derive(Deserialize, PartialEq, Debug)]
struct StoredCase {
    epoch: u64,
    outcome: String,
    gap: bool,
    unsupported: bool,
    #[serde(rename = "final")]
    final_seen: bool,
    last_report: u64,
    measurements: Option<CountsCase>,
}

pub(super) fn run(document: &Value, tally: &mut Tally) -> &'static [&'static str] {
    // shows: SEQ-ID-01, SEQ-ID-13, SEQ-ALGO-13, SEQ-ALGO-14, SEQ-EXP-14, SEQ-COL-01, SEQ-COL-02, SEQ-COL-03
    // shows: SEQ-COL-04, SEQ-COL-05, SEQ-COL-06, SEQ-COL-07, SEQ-COL-08, SEQ-COL-09, SEQ-COL-10, SEQ-COL-11
    // shows: SEQ-COL-13, SEQ-COL-15, SEQ-COL-16, SEQ-COL-17, SEQ-COL-18, SEQ-COL-19, SEQ-COL-20, SEQ-COL-21
    // shows: SEQ-COL-22, SEQ-IE-02, SEQ-FLAG-01, SEQ-FLAG-02, SEQ-FLAG-03, SEQ-IANA-03
    tally.each(document, "cases", case);
    &["cases"]
}

fn case(case: Case) -> Result<(), String> {
    let defaults = EpochLimits::default();
    let limits = EpochLimits {
        contexts: case.max_contexts.unwrap_or(defaults.contexts),
        ..defaults
    };
    let mut epochs = Epochs::new(limits);
    let mut stored: Vec<Stored> = Vec::new();
    for (number, step) in case.steps.iter().enumerate() {
        match step {
            Step::Record { record, verdict } => {
                let found = epochs.report(Utc(0), &report(record)?);
                let what = format!("step {number}");
                equal(&what, verdict.as_str(), found.name())?;
            }
            Step::Op { op, epoch, result } => {
                let before = stored.len();
                operation(op, *epoch, &mut epochs, &mut stored)?;
                let found = stored[before..].last().map(stored_case);
                if result.is_some() {
                    equal(&format!("step {number}"), result.as_ref(), found.as_ref())?;
                }
            }
        }
    }
    equal("high-water epoch", case.high_water, epochs.high_water())?;
    epochs.end_session(|epoch| stored.push(epoch));
    let found: Vec<StoredCase> = stored.iter().map(stored_case).collect();
    equal("stored", case.stored, found)
}

fn operation(
    op: &str,
    epoch: Option<u64>,
    epochs: &mut Epochs,
    stored: &mut Vec<Stored>,
) -> Result<(), String> {
    match (op, epoch) {
        ("session_end", _) => epochs.end_session(|epoch| stored.push(epoch)),
        ("retire" | "timeout", Some(epoch)) => stored.extend(epochs.retire(epoch)),
        // Everything that is kept has been silent since time 0.
        ("retire" | "timeout", None) => {
            epochs.expire(Utc(u64::MAX), |epoch| stored.push(epoch));
        }
        _ => return Err(format!("operation {op:?}")),
    }
    Ok(())
}

fn report(case: &RecordCase) -> Result<Report, String> {
    let (point, source, destination, qp, pkey) = &case.key;
    let digits = point.trim_start_matches(|c: char| !c.is_ascii_digit());
    let counts = &case.counts;
    Ok(Report {
        key: ReportKey {
            point: digits.parse().map_err(|_| format!("point {point:?}"))?,
            source: *source,
            destination: *destination,
            qp: *qp,
            pkey: *pkey,
            vlan: None,
            segment: None,
        },
        epoch: case.epoch,
        report: case.report,
        window: case.window,
        flags: Flags(case.flags),
        start: case.start,
        end: case.end,
        counts: Counts {
            skipped: counts.skipped,
            filled: counts.filled,
            expired: counts.expired,
            abandoned: counts.abandoned,
            pending: counts.pending,
            repeated: counts.repeated,
            requests: counts.requests,
            unclassified_late: counts.unclassified_late,
        },
    })
}

fn stored_case(stored: &Stored) -> StoredCase {
    StoredCase {
        epoch: stored.epoch,
        outcome: stored.outcome.name().to_owned(),
        gap: stored.gap,
        unsupported: stored.unsupported,
        final_seen: stored.final_seen,
        last_report: stored.last_report,
        measurements: stored.measurements.map(|counts| CountsCase {
            skipped: counts.skipped,
            filled: counts.filled,
            expired: counts.expired,
            abandoned: counts.abandoned,
            pending: counts.pending,
            repeated: counts.repeated,
            requests: counts.requests,
            unclassified_late: counts.unclassified_late,
        }),
    }
}
