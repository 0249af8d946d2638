//! IPFIX: messages and what is in them, messages that have to be refused, templates against the
//! profiles. What was decoded is also encoded again and has to give the same octets.

use std::collections::BTreeMap;
use std::sync::Arc;

use crem_ipfix::decode::{DataRecord, DecodeError, DecodeLimits, Decoder, Delivery, HEADER_LEN};
use crem_ipfix::element::Mapping;
use crem_ipfix::profile::{Kind, Namespace, Profile, QpOctets, check, classify};
use crem_ipfix::template::{Field, VARIABLE};
use crem_ipfix::value::Value as Decoded;
use serde::Deserialize;
use serde_json::{Value, json};

use super::case::{Hex, Tally, equal, hex};

#[derive(Deserialize)]
struct MessageCase {
    hex: Hex,
    sequence: u32,
    domain: u32,
    templates: Vec<u16>,
    withdrawn: Vec<u16>,
    records: Vec<RecordCase>,
}

#[derive(Deserialize)]
struct RecordCase {
    template: u16,
    values: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct MalformedCase {
    prior: Vec<Hex>,
    hex: Hex,
    reason: String,
}

#[derive(Deserialize)]
struct TemplateCase {
    profile: String,
    selection: bool,
    fields: Vec<(String, u16)>,
    ok: bool,
    errors: Vec<String>,
    classify: Option<String>,
}

pub(super) fn run(document: &Value, tally: &mut Tally) -> &'static [&'static str] {
    let mapping = match mapping(document) {
        Ok(mapping) => Arc::new(mapping),
        Err(what) => {
            tally.check(|| "mapping".to_owned(), Err(what));
            return &[];
        }
    };
    let decoder = || {
        Decoder::new(
            Arc::clone(&mapping),
            Delivery::Ordered,
            DecodeLimits::default(),
        )
    };
    let mut session = decoder();
    // shows: BTH-IE-01, BTH-IE-03, BTH-IE-04, BTH-IE-05, BTH-IE-09, BTH-PARSE-12, BTH-PKT-02, BTH-PKT-03
    // shows: BTH-PKT-05, BTH-AGG-06, BTH-AGG-08, SEQ-EXP-12, SEQ-IE-01, SEQ-IANA-02
    tally.each(document, "messages", |case: MessageCase| {
        message(&mut session, &mapping, &case)
    });
    tally.each(document, "malformed", |case: MalformedCase| {
        malformed(decoder(), &case)
    });
    // shows: BTH-IE-06, BTH-IE-07, BTH-IE-08, BTH-IE-10, BTH-IE-11, BTH-TMPL-01, BTH-TMPL-02, BTH-TMPL-03
    // shows: BTH-TMPL-04, BTH-TMPL-06, BTH-TMPL-09, BTH-SEL-01, BTH-SEL-02, BTH-AGG-02, BTH-AGG-04, BTH-AGG-05
    // shows: SEQ-ID-03, SEQ-EXP-03, SEQ-EXP-09, SEQ-EXP-10, SEQ-EXP-13
    tally.each(document, "template_checks", |case: TemplateCase| {
        template(&mapping, &case)
    });
    if let Some(octets) = document.get("seq_record_octets") {
        tally.check(
            || "seq_record_octets".to_owned(),
            record_octets(&mapping, octets),
        );
    }
    &["messages", "malformed", "template_checks"]
}

fn mapping(document: &Value) -> Result<Mapping, String> {
    let entries = document.get("mapping").ok_or("no mapping")?;
    let entries: BTreeMap<String, (u32, u16)> =
        BTreeMap::deserialize(entries).map_err(|error| error.to_string())?;
    Mapping::new(
        entries
            .iter()
            .map(|(name, (pen, number))| (name.as_str(), *pen, *number)),
    )
    .map_err(|error| error.to_string())
}

fn message(decoder: &mut Decoder, mapping: &Mapping, case: &MessageCase) -> Result<(), String> {
    let found = decoder
        .decode(&case.hex.0)
        .map_err(|error| error.to_string())?;
    equal("sequence number", case.sequence, found.header.sequence)?;
    equal("domain", case.domain, found.header.domain)?;
    equal("templates", &case.templates, &found.defined)?;
    equal("withdrawn", &case.withdrawn, &found.withdrawn)?;
    equal("records", case.records.len(), found.records.len())?;
    for (number, (expected, record)) in case.records.iter().zip(&found.records).enumerate() {
        let what = format!("record {number}");
        equal(&what, expected.template, record.template.id)?;
        equal(&what, &expected.values, &values(record, mapping)?)?;
        encode_again(record, mapping).map_err(|error| format!("{what}: {error}"))?;
    }
    let templates: Vec<_> = found
        .defined
        .iter()
        .filter_map(|id| decoder.template(case.domain, *id))
        .collect();
    if !templates.is_empty() {
        let mut octets = Vec::new();
        for template in templates {
            template.write(&mut octets);
        }
        // Every Template Record stands in the message as we would write it.
        let message = hex(&case.hex.0[HEADER_LEN..]);
        let mut at = 0;
        for id in &found.defined {
            let mut one = Vec::new();
            let template = decoder.template(case.domain, *id).ok_or("template")?;
            template.write(&mut one);
            let place = message[at..].find(&hex(&one));
            at += place.ok_or_else(|| format!("template {id}: encoded otherwise"))?;
        }
    }
    Ok(())
}

/// The values of a record by name, as the files write them; padding has none.
fn values(record: &DataRecord, mapping: &Mapping) -> Result<BTreeMap<String, Value>, String> {
    let mut values = BTreeMap::new();
    for (field, octets) in record.fields() {
        let definition = mapping
            .definition(field.pen, field.number)
            .ok_or("element without a name")?;
        if definition.name == "paddingOctets" {
            continue;
        }
        let value = match Decoded::decode(definition.data_type, octets) {
            Decoded::Unsigned(v) | Decoded::Seconds(v) | Decoded::Millis(v) | Decoded::Nanos(v) => {
                json!(v)
            }
            Decoded::Signed(v) => json!(v),
            Decoded::Float(v) => json!(v),
            Decoded::Boolean(v) => json!(v),
            Decoded::Text(v) => json!(v),
            Decoded::Octets(v) => json!(hex(v)),
            Decoded::Address(_) => json!(hex(octets)),
        };
        values.insert(definition.name.to_owned(), value);
    }
    Ok(values)
}

fn encode_again(record: &DataRecord, mapping: &Mapping) -> Result<(), String> {
    let mut octets = Vec::new();
    for (field, value) in record.fields() {
        let definition = mapping
            .definition(field.pen, field.number)
            .ok_or("no element")?;
        let value = Decoded::decode(definition.data_type, value);
        if !value.encode(definition.data_type, field.length, &mut octets) {
            return Err(format!("{}: cannot be encoded", definition.name));
        }
    }
    equal("octets", hex(record.octets()), hex(&octets))
}

/// Every reason that the decoder has.
fn is_reason(name: &str) -> bool {
    let all = [
        DecodeError::Short,
        DecodeError::Version(0),
        DecodeError::Length(0, 0),
        DecodeError::SetLength(0, 0),
        DecodeError::TemplateId(0),
        DecodeError::FieldLength(0, 0, 0, 0),
        DecodeError::Scope(0, 0, 0),
    ];
    all.iter().any(|error| error.name() == name)
}

fn malformed(mut decoder: Decoder, case: &MalformedCase) -> Result<(), String> {
    for prior in &case.prior {
        decoder
            .decode(&prior.0)
            .map_err(|error| format!("prior: {error}"))?;
    }
    match decoder.decode(&case.hex.0) {
        Ok(_) => Err("was not refused".to_owned()),
        // A reason that both sides have a name for has to be the same.
        Err(error) if is_reason(&case.reason) => {
            equal("reason", case.reason.as_str(), error.name())
        }
        Err(_) => Ok(()),
    }
}

fn template(mapping: &Mapping, case: &TemplateCase) -> Result<(), String> {
    let field = |(name, length): &(String, u16)| {
        let (pen, number) = mapping
            .by_name(name)
            .ok_or_else(|| format!("element {name}"))?;
        Ok(Field {
            pen,
            number,
            length: *length,
        })
    };
    let fields = case
        .fields
        .iter()
        .map(field)
        .collect::<Result<Vec<_>, String>>()?;
    let profile = match case.profile.as_str() {
        "packet" => Profile::Packet,
        "aggregate" => Profile::Aggregate,
        "seq" => Profile::Sequence,
        other => return Err(format!("profile {other:?}")),
    };
    let found: Vec<String> = check(&fields, profile, case.selection, mapping)
        .iter()
        .map(ToString::to_string)
        .collect();
    equal("conforms", case.ok, found.is_empty())?;
    // Wordings differ, the elements that are complained about may not.
    equal(
        "errors",
        named(mapping, &case.errors),
        named(mapping, &found),
    )?;
    let class = classify(&fields, mapping).map(Profile::name);
    equal("class", case.classify.as_deref(), class)
}

/// The element names in complaints, sorted, each once.
fn named(mapping: &Mapping, errors: &[String]) -> Vec<String> {
    let words = errors
        .iter()
        .flat_map(|error| error.split(|c: char| !c.is_alphanumeric()));
    let mut names: Vec<String> = words
        .filter(|word| mapping.by_name(word).is_some())
        .map(ToOwned::to_owned)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn record_octets(mapping: &Mapping, expected: &Value) -> Result<(), String> {
    for (name, v6) in [("ipv4", false), ("ipv6", true)] {
        let kind = Kind::Sequence {
            v6,
            namespace: Namespace::None,
        };
        let template = kind.template(256, mapping, QpOctets::Three);
        if template.fields.iter().any(|field| field.length == VARIABLE) {
            return Err("a variable field".to_owned());
        }
        equal(
            name,
            expected.get(name),
            Some(&json!(template.min_record())),
        )?;
    }
    Ok(())
}
