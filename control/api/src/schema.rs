//! The JSON schema of the config document: what its readers take, with the meaning of each key from where its
//! value is kept. Neither is written twice. What values have to fulfil together is not in it; a plan tells that.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::{PartialSchema, ToSchema};

use crate::document::Document;
use crate::read;

/// What a unit in the name of a key stands for; the longest ending counts.
const UNITS: [(&str, &str); 8] = [
    ("_ns", "nanoseconds"),
    ("_us", "microseconds"),
    ("_ms", "milliseconds"),
    ("_per_s", "per second"),
    ("_s", "seconds"),
    ("_mbit", "Mbit/s"),
    ("_mb", "MB"),
    ("_kb", "KB"),
];
/// Keys that count octets.
const OCTETS: [&str; 8] = [
    "path_mtu",
    "rdma_mtu",
    "mtu",
    "overhead",
    "max_message",
    "qp_octets",
    "offset",
    "size",
];

/// The schema, draft 2020-12 of JSON schema. Every document that is accepted fulfils it.
pub fn config() -> Value {
    let types = Types::new();
    let mut schema = read::schema(Document::read);
    types.explain(&mut schema, std::slice::from_ref(&types.root));
    let Value::Object(schema) = schema else {
        return schema;
    };
    let mut whole = Map::from_iter([
        (
            "$schema".to_owned(),
            json!("https://json-schema.org/draft/2020-12/schema"),
        ),
        ("$id".to_owned(), json!("urn:crem:schema:config")),
        (
            "title".to_owned(),
            json!("The config document of a CREM gateway"),
        ),
    ]);
    whole.extend(schema);
    Value::Object(whole)
}

/// The types that hold a document, as their derived descriptions say it.
struct Types {
    root: Value,
    named: BTreeMap<String, Value>,
}

impl Types {
    fn new() -> Self {
        let mut named = Vec::new();
        Document::schemas(&mut named);
        let value = |schema| serde_json::to_value(schema).unwrap_or_default();
        Self {
            root: value(Document::schema()),
            named: named.into_iter().map(|(n, s)| (n, value(s))).collect(),
        }
    }

    /// A description with all that it is put together from.
    fn parts<'a>(&'a self, of: &'a Value, into: &mut Vec<&'a Value>) {
        into.push(of);
        let name = of["$ref"].as_str().and_then(|r| r.rsplit('/').next());
        if let Some(named) = name.and_then(|name| self.named.get(name)) {
            self.parts(named, into);
        }
        for list in ["allOf", "oneOf", "anyOf"] {
            for part in of[list].as_array().into_iter().flatten() {
                self.parts(part, into);
            }
        }
    }

    /// Gives each key below a place its description, from what the types say of that place.
    fn explain(&self, schema: &mut Value, said: &[Value]) {
        let mut parts = Vec::new();
        for said in said {
            self.parts(said, &mut parts);
        }
        let each = |name: &str| -> Vec<Value> {
            let found = parts.iter().map(|part| &part["properties"][name]);
            found.filter(|p| !p.is_null()).cloned().collect()
        };
        let free: Vec<Value> = parts
            .iter()
            .map(|part| part["additionalProperties"].clone())
            .filter(Value::is_object)
            .collect();
        let choices = schema.get_mut("oneOf").and_then(Value::as_array_mut);
        for choice in choices.into_iter().flatten() {
            self.explain(choice, said);
        }
        let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
        for (name, property) in properties.into_iter().flatten() {
            let said = each(name);
            self.explain(property, &said);
            describe(name, property, self.sentence(&said));
        }
        if let Some(below) = schema
            .get_mut("additionalProperties")
            .filter(|b| b.is_object())
        {
            self.explain(below, &free);
            describe("", below, self.sentence(&free));
        }
    }

    /// The nearest description.
    fn sentence(&self, said: &[Value]) -> Option<String> {
        let mut parts = Vec::new();
        for said in said {
            self.parts(said, &mut parts);
        }
        let mut found = parts.iter().filter_map(|part| part["description"].as_str());
        found.next().map(|text| text.replace('\n', " "))
    }
}

/// Puts the description of a key, what its values have to look like, and its unit where they belong.
fn describe(name: &str, property: &mut Value, sentence: Option<String>) {
    let Value::Object(property) = property else {
        return;
    };
    let expected = property.remove("x-expected");
    let said = property.get("description").and_then(Value::as_str);
    let mut text = sentence.or(said.map(str::to_owned)).unwrap_or_default();
    if let Some(expected) = expected.as_ref().and_then(Value::as_str) {
        text.push_str(&format!(" Expected: {expected}."));
    }
    property.insert("description".to_owned(), json!(text.trim()));
    let unit = UNITS.iter().find(|(end, _)| name.ends_with(end));
    let unit = unit.map(|(_, unit)| *unit);
    if let Some(unit) = unit.or(OCTETS.contains(&name).then_some("octets")) {
        property.insert("x-unit".to_owned(), json!(unit));
    }
}
