//! The JSON schema of the config document: committed as it is served, complete, and in agreement with what is
//! accepted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::Path;

use crem_api::{Syntax, from_value, value_of};
use jsonschema::Validator;
use serde_json::{Value, json};
use support::Control;

const EXAMPLES: [&str; 2] = [
    include_str!("../../api/examples/segment.toml"),
    include_str!("../../api/examples/ipfix.toml"),
];

fn examples() -> impl Iterator<Item = Value> {
    EXAMPLES
        .into_iter()
        .map(|text| value_of(text, Syntax::Toml).unwrap())
}

fn validator() -> Validator {
    jsonschema::validator_for(&crem_api::schema::config()).unwrap()
}

/// Writes the file anew with `CREM_WRITE_OPENAPI=1`.
#[test]
fn the_committed_schema_is_the_one_that_is_served() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.schema.json");
    let made = format!("{:#}\n", crem_api::schema::config());
    if std::env::var_os("CREM_WRITE_OPENAPI").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "docs/config.schema.json has drifted: CREM_WRITE_OPENAPI=1 cargo test -p crem-control --test schema"
    );
    let (control, _) = Control::start(true);
    let served = control.get("/v1/schema/config");
    assert_eq!(served.headers["content-type"], "application/schema+json");
    assert_eq!(served.json(), crem_api::schema::config());
}

/// Every key of a schema with its place, and what is said of it.
fn keys<'a>(schema: &'a Value, place: &str, found: &mut Vec<(String, &'a Value)>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        found.push((format!("{place}/{name}"), property));
        keys(property, &format!("{place}/{name}"), found);
    }
    if schema["additionalProperties"].is_object() {
        keys(
            &schema["additionalProperties"],
            &format!("{place}/*"),
            found,
        );
    }
    for choice in schema["oneOf"].as_array().into_iter().flatten() {
        keys(choice, place, found);
    }
}

#[test]
fn every_key_says_what_it_means_what_it_takes_and_what_it_is_without() {
    let schema = crem_api::schema::config();
    let mut found = Vec::new();
    keys(&schema, "", &mut found);
    assert!(found.len() > 120, "{}", found.len());
    for (place, key) in &found {
        let said = key["description"].as_str().unwrap_or_default();
        assert!(said.len() > 5, "{place} has no description: {key}");
        let typed = ["type", "enum", "oneOf", "const"]
            .iter()
            .any(|k| key.get(k).is_some());
        assert!(typed, "{place} takes anything: {key}");
        if key["type"] == "integer" || key["type"] == "number" {
            let bounded = key.get("minimum").is_some() && key.get("maximum").is_some();
            assert!(bounded, "{place} has no limits: {key}");
        }
        let name = place.rsplit('/').next().unwrap();
        for unit in ["_ns", "_us", "_ms", "_s", "_mb", "_kb", "_mbit"] {
            assert!(
                !name.ends_with(unit) || key.get("x-unit").is_some(),
                "{place} has no unit"
            );
        }
    }
    let of = |pointer: &str| {
        schema
            .pointer(pointer)
            .unwrap_or_else(|| panic!("{pointer}"))
    };
    let policy = "/properties/segments/additionalProperties/properties/policy/properties";
    let k = of(&format!("{policy}/k"));
    assert_eq!(
        (&k["minimum"], &k["maximum"], &k["default"]),
        (&json!(1), &json!(128), &json!(32))
    );
    let hold = of(&format!("{policy}/hold_ns"));
    assert_eq!(hold["oneOf"][0], json!({"enum": ["auto"]}));
    assert_eq!(
        (&hold["default"], &hold["x-unit"]),
        (&json!("auto"), &json!("nanoseconds"))
    );
    let required = of("/properties/segments/additionalProperties/required");
    assert_eq!(
        required,
        &json!(["mode", "lan", "wan", "crem_port", "path_mtu"])
    );
}

#[test]
fn the_examples_fulfil_it_and_have_every_key_of_it() {
    let validator = validator();
    for example in examples() {
        let errors: Vec<String> = validator
            .iter_errors(&example)
            .map(|e| e.to_string())
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
        let filled = crem_api::to_value(&from_value(&example).unwrap());
        let errors: Vec<String> = validator
            .iter_errors(&filled)
            .map(|e| e.to_string())
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
}

/// Every place of a document.
fn places(value: &Value, place: String, found: &mut Vec<String>) {
    for (key, below) in value.as_object().into_iter().flatten() {
        let key = key.replace('~', "~0").replace('/', "~1");
        places(below, format!("{place}/{key}"), found);
    }
    found.push(place);
}

/// Each place in turn gets a wrong type, a number that is too large, or an unknown key.
#[test]
fn what_a_single_value_is_refused_for_the_schema_refuses_too() {
    let (validator, mut tried) = (validator(), 0);
    for example in examples() {
        let mut found = Vec::new();
        places(&example, String::new(), &mut found);
        for place in &found {
            for wrong in [
                json!([]),
                json!(-1),
                json!(1e30),
                json!(""),
                json!({"unknown key": 1}),
                json!(true),
            ] {
                let mut changed = example.clone();
                let value = changed.pointer_mut(place).unwrap();
                match (value.as_object_mut(), wrong.as_object()) {
                    (Some(table), Some(wrong)) => table.extend(wrong.clone()),
                    _ => *value = wrong.clone(),
                }
                let accepted = from_value(&changed).is_ok();
                // What is accepted fulfils the schema.
                let fulfils = validator.is_valid(&changed);
                assert!(
                    !accepted || fulfils,
                    "{place}: {wrong} is accepted, but not by the schema"
                );
                let is_key = wrong.is_object();
                if !accepted && (wrong.is_array() || is_key || wrong.is_f64()) {
                    tried += 1;
                    assert!(!fulfils, "{place}: {wrong} fulfils the schema");
                }
            }
        }
        for key in ["version", "segments"] {
            let mut without = example.clone();
            without.as_object_mut().unwrap().remove(key);
            assert!(!validator.is_valid(&without), "without {key}");
        }
    }
    assert!(tried > 300, "{tried}");
}

#[test]
fn keys_that_belong_to_another_choice_are_refused() {
    let validator = validator();
    let example = examples().find(|e| e.get("ipfix").is_some()).unwrap();
    let point = |packets: Value| {
        let mut changed = example.clone();
        let points = changed["ipfix"]["points"].as_object_mut().unwrap();
        points.values_mut().next().unwrap()["packets"] = packets;
        validator.is_valid(&changed)
    };
    assert!(point(json!({"select": "all"})));
    assert!(point(
        json!({"select": "count", "space": 9, "selection_sequence": 1})
    ));
    assert!(!point(json!({"select": "count", "selection_sequence": 1})));
    assert!(!point(json!({"select": "count", "space": 9})));
    assert!(!point(json!({"select": "all", "space": 9})));
    assert!(!point(json!({"select": "none"})));
    let device = |device: Value| {
        let mut changed = example.clone();
        let segments = changed["segments"].as_object_mut().unwrap();
        segments.values_mut().next().unwrap()["lan"] = device;
        validator.is_valid(&changed)
    };
    assert!(device(json!({"pci": "0000:3b:00.0"})));
    assert!(!device(json!({"pci": "0000:3b:00.0", "interface": "lan0"})));
    assert!(!device(json!({})));
}
