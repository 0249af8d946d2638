//! Sequence observation: packets and other events, and the reports that have to come of them.

use core::net::IpAddr;
use std::time::Duration;

use crem_ipfix::session::EpochIds;
use crem_meter::flow::FlowRecord;
use crem_meter::point::{Place, Point};
use crem_meter::scope::Observation;
use crem_meter::seq::{
    ConnectionKey, Observer, ObserverConfig, Provision, SequenceRecord, Statement,
};
use crem_meter::{PacketRecord, Prefix, Sink, Utc};
use crem_wire::roce::{Bth, Opcode};
use crem_wire::{Psn, Qpn};
use serde::Deserialize;
use serde_json::Value;

use super::case::{Tally, equal};

#[derive(Deserialize)]
struct Case {
    #[serde(rename = "W")]
    window: u32,
    generation_verified: bool,
    counter_limit: String,
    events: Vec<Value>,
    records: Vec<Record>,
}

#[derive(Deserialize, PartialEq, Debug)]
struct Record {
    after_event: usize,
    epoch: u64,
    report: u64,
    window: u32,
    flags: u16,
    start: u64,
    end: u64,
    skipped: u64,
    filled: u64,
    expired: u64,
    abandoned: u64,
    pending: u32,
    repeated: u64,
    requests: u64,
    unclassified_late: u64,
}

pub(super) fn run(document: &Value, tally: &mut Tally) -> &'static [&'static str] {
    // shows: SEQ-APP-01, SEQ-APP-03, SEQ-APP-04, SEQ-APP-05, SEQ-APP-06, SEQ-APP-11, SEQ-APP-14, SEQ-ID-04
    // shows: SEQ-ID-05, SEQ-ID-06, SEQ-ID-08, SEQ-ID-09, SEQ-ID-11, SEQ-ID-12, SEQ-ALGO-01, SEQ-ALGO-02
    // shows: SEQ-ALGO-03, SEQ-ALGO-04, SEQ-ALGO-05, SEQ-ALGO-06, SEQ-ALGO-07, SEQ-ALGO-08, SEQ-ALGO-09, SEQ-ALGO-10
    // shows: SEQ-ALGO-11, SEQ-ALGO-12, SEQ-ALGO-13, SEQ-ALGO-14, SEQ-ALGO-15, SEQ-EXP-04, SEQ-EXP-05, SEQ-EXP-06
    // shows: SEQ-EXP-07, SEQ-EXP-08, SEQ-IE-03, SEQ-FLAG-01, SEQ-FLAG-02, SEQ-FLAG-03, SEQ-FLAG-04
    tally.each(document, "cases", case);
    &["cases"]
}

/// The reports of a case, with the identifiers that they get when they are serialised in order.
struct Reports {
    after_event: usize,
    ids: EpochIds,
    records: Vec<Record>,
}

impl Sink for Reports {
    fn packet(&mut self, _: &PacketRecord) -> bool {
        false
    }

    fn flow(&mut self, _: Place, _: &FlowRecord) -> bool {
        false
    }

    fn sequence(&mut self, record: &SequenceRecord) -> bool {
        let last = record.flags.contains(crem_meter::seq::Flags::FINAL);
        let Some(ids) = self
            .ids
            .next(record.point, record.context, record.epoch, last)
        else {
            return false;
        };
        self.records.push(Record {
            after_event: self.after_event,
            epoch: ids.epoch,
            report: ids.report,
            window: record.window,
            flags: record.flags.0,
            start: record.start.millis(),
            end: record.end.millis(),
            skipped: record.counts.skipped,
            filled: record.counts.filled,
            expired: record.counts.expired,
            abandoned: record.counts.abandoned,
            pending: record.counts.pending,
            repeated: record.counts.repeated,
            requests: record.counts.requests,
            unclassified_late: record.counts.unclassified_late,
        });
        true
    }
}

const KEY: ConnectionKey = ConnectionKey {
    source: IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    destination: IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
    qp: Qpn::new(0x123),
    pkey: 0xffff,
    context: 0,
};

fn observer(case: &Case) -> Result<Observer, String> {
    let point = Point::new(Place::WanIngress, 1, 0).ok_or("point")?;
    let provision = Provision {
        source: Prefix::host(KEY.source),
        destination: Prefix::host(KEY.destination),
        qp: Some(KEY.qp),
        pkey: Some(KEY.pkey),
        context: Some(KEY.context),
        window: case.window,
        generation: case.generation_verified.then_some(1),
        statement: Statement {
            only_send_and_write: true,
            complete_and_unambiguous: true,
            packets_per_second: 1000,
            longest_retry: Duration::from_secs(1),
        },
    };
    // Reports come by events only.
    let never = Duration::from_secs(1 << 32);
    let config = ObserverConfig {
        collector: 0,
        contexts: 1,
        epochs: 1,
        window: case.window,
        report_interval: never,
        idle_timeout: never,
        counter_limit: case.counter_limit.parse().map_err(|_| "counter limit")?,
    };
    let mut observer =
        Observer::new(point, config, vec![provision]).map_err(|error| error.to_string())?;
    observer.begin_session(1);
    Ok(observer)
}

fn packet(opcode: u8, psn: u32, malformed: bool) -> Observation {
    Observation {
        source: KEY.source,
        destination: KEY.destination,
        source_port: 49152,
        destination_port: 4791,
        tos: 0,
        ip_octets: 128,
        payload_off: 42,
        payload_octets: if malformed { 12 } else { 100 },
        context: KEY.context,
        bth: Bth {
            opcode: Opcode(opcode),
            octet1: 0,
            pkey: KEY.pkey,
            octet4: 0,
            dest_qp: KEY.qp,
            octet8: 0,
            psn: Psn::new(psn),
        },
    }
}

fn case(case: Case) -> Result<(), String> {
    let mut observer = observer(&case)?;
    let mut reports = Reports {
        after_event: 0,
        ids: EpochIds::new(1),
        records: Vec::new(),
    };
    for (number, event) in case.events.iter().enumerate() {
        reports.after_event = number;
        let kind = event.get(0).and_then(Value::as_str).unwrap_or_default();
        match kind {
            "p" => {
                let (opcode, psn, millis, malformed) = packet_event(event)?;
                let now = Utc::from_millis(millis);
                observer.packet(now, &packet(opcode, psn, malformed), &mut reports);
            }
            "report" => observer.report_all(&mut reports),
            "close" => observer.close_all(&mut reports),
            "evict" => observer.evict_all(&mut reports),
            "gap" => {
                observer.capture_lost();
                observer.poll(Utc(0), 2, &mut reports);
            }
            "restore" => observer.capture_restored(),
            "reprovision" => {
                observer.reprovision(&KEY);
            }
            other => return Err(format!("event {number}: {other:?}")),
        }
    }
    for (number, (expected, found)) in case.records.iter().zip(&reports.records).enumerate() {
        equal(&format!("record {number}"), expected, found)?;
    }
    equal("records", case.records.len(), reports.records.len())
}

/// Opcode, PSN, time in milliseconds, and whether the packet is malformed.
fn packet_event(event: &Value) -> Result<(u8, u32, u64, bool), String> {
    let number = |place: usize| {
        event
            .get(place)
            .and_then(Value::as_u64)
            .ok_or_else(|| format!("{event}: no number"))
    };
    let opcode = u8::try_from(number(1)?).map_err(|_| "opcode")?;
    let psn = u32::try_from(number(2)?).map_err(|_| "psn")?;
    let malformed = match event.get(4) {
        None => false,
        Some(flag) => flag.as_bool().unwrap_or(flag != &Value::from(0)),
    };
    Ok((opcode, psn, number(3)?, malformed))
}
