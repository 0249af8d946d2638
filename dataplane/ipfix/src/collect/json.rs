//! Events of a collector as JSON values, one object each. Elements keep their names: a position that
//! expired is called that and nothing else.

use serde_json::{Map, Value as Json, json};

use super::epochs::Stored;
use super::report::{Report, ReportKey};
use super::session::Event;
use crate::decode::DataRecord;
use crate::element::Mapping;
use crate::profile::Profile;
use crate::template::Template;
use crate::value::Value;

/// An event as an object with the member `event`; templates and records of others' elements included.
pub fn event(event: &Event<'_>, mapping: &Mapping) -> Json {
    match event {
        Event::Message(header) => json!({
            "event": "message",
            "domain": header.domain,
            "export_time": header.export_time,
            "sequence": header.sequence,
            "octets": header.length,
        }),
        Event::Template(domain, template) => template_object(*domain, template, mapping),
        Event::Record(domain, profile, record) => json!({
            "event": "record",
            "domain": domain,
            "template": record.template.id,
            "options": record.template.is_options(),
            "profile": profile.map(Profile::name),
            "values": values(record, mapping),
        }),
        Event::Report(domain, report, verdict) => json!({
            "event": "report",
            "domain": domain,
            "verdict": verdict.name(),
            "key": key(&report.key),
            "epoch": report.epoch,
            "report": report.report,
            "flags": report.flags.names().collect::<Vec<_>>(),
        }),
        Event::Stored(domain, stored) => stored_object(*domain, stored),
        Event::Issue(domain, issue) => json!({
            "event": "issue",
            "domain": domain,
            "issue": issue.to_string(),
        }),
    }
}

fn template_object(domain: u32, template: &Template, mapping: &Mapping) -> Json {
    let field = |field: &crate::template::Field| {
        json!({
            "element": field.name(mapping),
            "pen": field.pen,
            "number": field.number,
            "octets": field.length,
        })
    };
    json!({
        "event": "template",
        "domain": domain,
        "template": template.id,
        "scope": template.scope,
        "fields": template.fields.iter().map(field).collect::<Vec<_>>(),
    })
}

/// The values of a record by element name, or by `PEN/number` if it has none. An element that is there
/// twice has a list.
pub fn values(record: &DataRecord<'_>, mapping: &Mapping) -> Map<String, Json> {
    let mut values = Map::new();
    for (field, octets) in record.fields() {
        let (name, value) = match mapping.definition(field.pen, field.number) {
            Some(definition) => (
                definition.name.to_owned(),
                value(&Value::decode(definition.data_type, octets)),
            ),
            None => (
                format!("{}/{}", field.pen, field.number),
                json!(hex(octets)),
            ),
        };
        match values.get_mut(&name) {
            None => {
                values.insert(name, value);
            }
            Some(Json::Array(list)) => list.push(value),
            Some(first) => *first = json!([first.take(), value]),
        }
    }
    values
}

fn value(value: &Value<'_>) -> Json {
    match value {
        Value::Unsigned(v) | Value::Seconds(v) | Value::Millis(v) | Value::Nanos(v) => json!(v),
        Value::Signed(v) => json!(v),
        Value::Float(v) => json!(v),
        Value::Boolean(v) => json!(v),
        Value::Text(v) => json!(v),
        Value::Octets(v) => json!(hex(v)),
        Value::Address(v) => json!(v.to_string()),
    }
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn key(key: &ReportKey) -> Json {
    json!({
        "observationPointId": key.point,
        "source": key.source.to_string(),
        "destination": key.destination.to_string(),
        "rocev2BthDestinationQp": key.qp,
        "rocev2BthPartitionKey": key.pkey,
        "dot1qVlanId": key.vlan,
        "layer2SegmentId": key.segment,
    })
}

fn stored_object(domain: u32, stored: &Stored) -> Json {
    json!({
        "event": "epoch",
        "domain": domain,
        "key": key(&stored.key),
        "epoch": stored.epoch,
        "outcome": stored.outcome.name(),
        "report_gap": stored.gap,
        "unsupported": stored.unsupported,
        "final": stored.final_seen,
        "last_report": stored.last_report,
        "flags": stored.flags.names().collect::<Vec<_>>(),
        "flowStartMilliseconds": stored.start,
        "flowEndMilliseconds": stored.end,
        "measurements": stored.measurements.as_ref().map(|counts| json!({
            "skippedPsnTotalCount": counts.skipped,
            "filledPsnTotalCount": counts.filled,
            "expiredPsnTotalCount": counts.expired,
            "abandonedPsnTotalCount": counts.abandoned,
            "pendingPsnCount": counts.pending,
            "repeatedPsnTotalCount": counts.repeated,
            "requestPacketTotalCount": counts.requests,
            "unclassifiedLatePacketTotalCount": counts.unclassified_late,
        })),
    })
}

impl Report {
    /// The report as a record of a live table: key, epoch, flags and counters by element name.
    pub fn to_json(&self) -> Json {
        let counts = &self.counts;
        json!({
            "key": key(&self.key),
            "rdmaSequenceEpochId": self.epoch,
            "rdmaSequenceReportId": self.report,
            "flags": self.flags.names().collect::<Vec<_>>(),
            "skippedPsnTotalCount": counts.skipped,
            "filledPsnTotalCount": counts.filled,
            "expiredPsnTotalCount": counts.expired,
            "abandonedPsnTotalCount": counts.abandoned,
            "pendingPsnCount": counts.pending,
            "repeatedPsnTotalCount": counts.repeated,
            "requestPacketTotalCount": counts.requests,
            "unclassifiedLatePacketTotalCount": counts.unclassified_late,
        })
    }
}
