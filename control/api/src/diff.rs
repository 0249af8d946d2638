//! What differs between two documents as values, place by place.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What happened to a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// It is new.
    Add,
    /// It is gone.
    Remove,
    /// It has another value.
    Replace,
}

/// One difference.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Difference {
    /// What happened.
    pub op: Op,
    /// JSON pointer (RFC 6901) of the place.
    pub pointer: String,
    /// Value before; `null` if there was none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub old: Value,
    /// Value after; `null` if there is none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub new: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.pointer.is_empty() {
            "/"
        } else {
            &self.pointer
        };
        match self.op {
            Op::Add => write!(f, "+ {place}: {}", self.new),
            Op::Remove => write!(f, "- {place}: {}", self.old),
            Op::Replace => write!(f, "~ {place}: {} -> {}", self.old, self.new),
        }
    }
}

/// Every difference, in the order of the keys. Tables are looked into; everything else differs as a whole.
pub fn diff(old: &Value, new: &Value) -> Vec<Difference> {
    let mut changes = Vec::new();
    walk(&mut String::new(), old, new, &mut changes);
    changes
}

fn walk(place: &mut String, old: &Value, new: &Value, changes: &mut Vec<Difference>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => tables(place, old, new, changes),
        _ if old == new => {}
        _ => changes.push(Difference {
            op: match (old, new) {
                (Value::Null, _) => Op::Add,
                (_, Value::Null) => Op::Remove,
                _ => Op::Replace,
            },
            pointer: place.clone(),
            old: old.clone(),
            new: new.clone(),
        }),
    }
}

fn tables(
    place: &mut String,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    changes: &mut Vec<Difference>,
) {
    let length = place.len();
    let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        push_token(place, key);
        let side = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or(Value::Null);
        match (old.get(key), new.get(key)) {
            (Some(old), Some(new)) => walk(place, old, new, changes),
            _ => walk(place, &side(old), &side(new), changes),
        }
        place.truncate(length);
    }
}

/// Appends a key to a JSON pointer.
pub fn push_token(pointer: &mut String, key: &str) {
    pointer.push('/');
    for c in key.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_are_told_at_the_deepest_place() {
        let old = json!({"a": {"10.0.0.0/8": {}, "x": 1}, "b": 2});
        let new = json!({"a": {"x": 3}, "c": {"d": [1]}});
        let lines: Vec<String> = diff(&old, &new).iter().map(Difference::to_string).collect();
        assert_eq!(
            lines,
            [
                "- /a/10.0.0.0~18: {}",
                "~ /a/x: 1 -> 3",
                "- /b: 2",
                "+ /c: {\"d\":[1]}",
            ]
        );
    }

    #[test]
    fn equal_values_do_not_differ_whatever_the_order_of_their_keys() {
        let old: Value = serde_json::from_str(r#"{"a":1,"b":{"c":[1,2]}}"#).unwrap();
        let new: Value = serde_json::from_str(r#"{"b":{"c":[1,2]},"a":1}"#).unwrap();
        assert!(diff(&old, &new).is_empty());
        assert_eq!(diff(&Value::Null, &new).len(), 1);
    }
}
