//! What a reader asks for, noted instead of read: the same code that takes a document apart says of every
//! place which values it takes, so that a JSON schema cannot drift from it. Notes are kept by JSON pointer;
//! [`Shape::schema`] puts them together. What the keys mean is not known here.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The key that stands for every entry of a table with free keys.
pub(super) const ANY: &str = "*";
/// Keyword for words that may stand in place of anything else; no part of JSON schema.
const WORDS: &str = "x-words";
/// Keywords whose lists grow.
const LISTS: [&str; 3] = ["required", "allOf", WORDS];

/// Notes on every place.
#[derive(Default, Debug)]
pub(super) struct Shape(RefCell<BTreeMap<String, Map<String, Value>>>);

impl Shape {
    /// Adds keywords of JSON schema to a place. Lists grow; of everything else the last one counts.
    pub(super) fn note(&self, pointer: &str, keywords: Value) {
        let Value::Object(keywords) = keywords else {
            return;
        };
        let mut places = self.0.borrow_mut();
        let place = places.entry(pointer.to_owned()).or_default();
        for (name, value) in keywords {
            match (place.get_mut(&name), value) {
                (Some(Value::Array(list)), Value::Array(more))
                    if LISTS.contains(&name.as_str()) =>
                {
                    list.extend(more);
                }
                (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
                (_, value) => {
                    place.insert(name, value);
                }
            }
        }
    }

    /// Takes the keys that were noted as required from number `from` on.
    pub(super) fn take_required(&self, pointer: &str, from: usize) -> Vec<Value> {
        let mut places = self.0.borrow_mut();
        let required = places.get_mut(pointer).and_then(|p| p.get_mut("required"));
        match required {
            Some(Value::Array(list)) if list.len() > from => list.split_off(from),
            _ => Vec::new(),
        }
    }

    /// Keys that are noted as required.
    pub(super) fn required(&self, pointer: &str) -> usize {
        let places = self.0.borrow();
        let required = places.get(pointer).and_then(|p| p.get("required"));
        required.and_then(Value::as_array).map_or(0, Vec::len)
    }

    /// The schema of a place with everything below it.
    #[cfg(feature = "openapi")]
    pub(super) fn schema(&self, pointer: &str) -> Value {
        let places = self.0.borrow();
        let mut own = places.get(pointer).cloned().unwrap_or_default();
        let mut properties = Map::new();
        let (below, mut free) = (format!("{pointer}/"), None);
        for place in places.range(below.clone()..).map(|(place, _)| place) {
            let Some(key) = place.strip_prefix(&below) else {
                break;
            };
            if key.contains('/') {
                continue;
            }
            let schema = self.schema(place);
            if key == ANY {
                free = Some(schema);
            } else {
                properties.insert(key.replace("~1", "/").replace("~0", "~"), schema);
            }
        }
        if own.get("type") == Some(&json!("object")) {
            own.insert("properties".to_owned(), Value::Object(properties));
            let free = free.unwrap_or(Value::Bool(false));
            own.insert("additionalProperties".to_owned(), free);
        }
        alternatives(own)
    }
}

/// Words beside something else become a choice; what is said of the place as a whole stays outside of it.
#[cfg(feature = "openapi")]
fn alternatives(mut own: Map<String, Value>) -> Value {
    let Some(words) = own.remove(WORDS) else {
        return Value::Object(own);
    };
    let mut whole = Map::new();
    if let Some(default) = own.remove("default") {
        whole.insert("default".to_owned(), default);
    }
    whole.insert("oneOf".to_owned(), json!([{ "enum": words }, own]));
    Value::Object(whole)
}

/// The note that a word may stand somewhere.
pub(super) fn word(word: &str) -> Value {
    json!({ WORDS: [word] })
}
