//! Reading untyped values into typed ones while collecting every problem: the walker that the config
//! document and the bootstrap share. It knows no key of either. The same walk can be made without a value, to
//! note what it would take (`read/shape.rs`).

mod issue;
mod shape;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::Serialize;
use serde_json::{Map, Value, json};

pub use issue::{Code, Invalid, Issue, Issues};

/// Longest rendering of a found value in an issue, in characters.
const FOUND_MAX: usize = 80;

/// The JSON schema of what a reader takes. It may take less: what values have to fulfil together does not show.
#[cfg(feature = "openapi")]
pub(crate) fn schema<T>(read: impl FnOnce(&Node<'_>) -> Option<T>) -> Value {
    let issues = Issues::describing();
    let _ = read(&Node {
        value: None,
        pointer: Cow::Borrowed(""),
        issues: &issues,
    });
    issues.shape.unwrap_or_default().schema("")
}

/// One value of the document, or the place where it is missing.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    value: Option<&'a Value>,
    pointer: Cow<'a, str>,
    issues: &'a Issues,
}

impl<'a> Node<'a> {
    /// The root of a document.
    pub fn root(value: &'a Value, issues: &'a Issues) -> Self {
        Self {
            value: Some(value),
            pointer: Cow::Borrowed(""),
            issues,
        }
    }

    fn child(&self, key: &str, value: Option<&'a Value>) -> Node<'a> {
        let escaped = key.replace('~', "~0").replace('/', "~1");
        let pointer = Cow::Owned(format!("{}/{escaped}", self.pointer));
        Node {
            value,
            pointer,
            issues: self.issues,
        }
    }

    /// JSON pointer of this place.
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// Says to a schema what cannot be seen from the questions of a reader, in keywords of JSON schema. While a
    /// document is read it does nothing.
    pub(crate) fn describe(&self, keywords: impl FnOnce() -> Value) {
        if let Some(shape) = &self.issues.shape {
            shape.note(&self.pointer, keywords());
        }
    }

    pub(crate) fn describes(&self) -> bool {
        self.issues.shape.is_some()
    }

    /// Notes that this place holds something else than `expected`; gives `None` for the caller to pass on.
    pub fn fail<T>(&self, expected: impl Into<String>) -> Option<T> {
        self.refuse(Code::InvalidValue, None, expected)
    }

    /// Like [`fail`](Self::fail), with words of the caller's for what was found.
    pub fn note<T>(&self, found: impl Into<String>, expected: impl Into<String>) -> Option<T> {
        self.say(Code::InvalidValue, None, found, expected)
    }

    fn wrong_type<T>(&self, expected: &str) -> Option<T> {
        self.refuse(Code::WrongType, None, expected)
    }

    /// Notes a problem of what is here; what is not here is missing, whatever else would be wrong with it.
    fn refuse<T>(
        &self,
        code: Code,
        limit: Option<Value>,
        expected: impl Into<String>,
    ) -> Option<T> {
        match self.value {
            Some(value) => self.say(code, limit, render(value), expected),
            None => self.say(Code::Missing, None, "nothing", expected),
        }
    }

    fn say<T>(
        &self,
        code: Code,
        limit: Option<Value>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Option<T> {
        if !self.describes() {
            let issue = Issue::new(self.pointer.as_ref(), found, expected).of(code);
            self.issues.push(Issue { limit, ..issue });
        }
        None
    }

    /// A table with a fixed set of keys.
    pub fn table(&self) -> Option<Table<'a>> {
        self.describe(|| json!({"type": "object"}));
        let map = match self.value {
            Some(Value::Object(map)) => Some(map),
            _ if self.describes() => None,
            _ => return self.wrong_type("a table"),
        };
        Some(Table {
            node: self.clone(),
            map,
            known: Vec::new(),
        })
    }

    /// A table whose keys are ids or addresses; every entry is read, also after a bad one.
    pub fn map<K: Ord, V>(
        &self,
        key_expected: &str,
        key_of: impl Fn(&str) -> Option<K>,
        read: impl Fn(&Node<'a>) -> Option<V>,
    ) -> Option<BTreeMap<K, V>> {
        if self.describes() {
            let keys = json!({"description": format!("Each key is {key_expected}.")});
            self.describe(|| json!({"type": "object", "propertyNames": keys}));
            let _ = read(&self.child(shape::ANY, None));
            return Some(BTreeMap::new());
        }
        let Some(Value::Object(map)) = self.value else {
            return self.wrong_type("a table");
        };
        let mut out = BTreeMap::new();
        let mut complete = true;
        for (key, value) in map {
            let node = self.child(key, Some(value));
            let value = read(&node);
            let parsed = key_of(key).or_else(|| {
                let found = format!("the key {}", render(&Value::String(key.clone())));
                node.say(Code::InvalidKey, None, found, key_expected)
            });
            match (parsed, value) {
                (Some(parsed), Some(value)) => {
                    if out.insert(parsed, value).is_some() {
                        complete = false;
                        let found = "a key that equals another one";
                        node.say::<()>(Code::InvalidKey, None, found, "distinct keys");
                    }
                }
                _ => complete = false,
            }
        }
        complete.then_some(out)
    }

    /// An integer within a range.
    pub fn integer<T>(&self, range: RangeInclusive<T>) -> Option<T>
    where
        T: TryFrom<u64> + PartialOrd + fmt::Display,
    {
        self.describe(|| ranged("integer", range.start(), range.end()));
        self.value
            .and_then(Value::as_u64)
            .and_then(|n| T::try_from(n).ok())
            .filter(|n| range.contains(n))
            .or_else(|| self.outside("an integer", range.start(), range.end()))
    }

    fn outside<T>(
        &self,
        kind: &str,
        from: &impl fmt::Display,
        to: &impl fmt::Display,
    ) -> Option<T> {
        let expected = format!("{kind} {from} to {to}");
        if !self.value.is_some_and(Value::is_number) {
            return self.wrong_type(&expected);
        }
        let limit = Value::Array(vec![number_of(from), number_of(to)]);
        self.refuse(Code::OutOfRange, Some(limit), expected)
    }

    /// The value if it is an integer without sign; nothing is noted if it is not.
    pub fn unsigned(&self) -> Option<u64> {
        self.describe(|| json!({"type": "integer", "minimum": 0}));
        self.value.and_then(Value::as_u64)
    }

    /// A number within a range; integers count as numbers.
    pub fn number(&self, range: RangeInclusive<f64>) -> Option<f64> {
        self.describe(|| ranged("number", range.start(), range.end()));
        self.value
            .and_then(Value::as_f64)
            .filter(|n| range.contains(n))
            .or_else(|| self.outside("a number", range.start(), range.end()))
    }

    /// `true` or `false`.
    pub fn flag(&self) -> Option<bool> {
        self.describe(|| json!({"type": "boolean"}));
        self.value
            .and_then(Value::as_bool)
            .or_else(|| self.wrong_type("true or false"))
    }

    /// Notes that a table has more entries than it may.
    pub fn too_many<T>(&self, entries: usize, most: usize) -> Option<T> {
        self.say(
            Code::TooMany,
            Some(most.into()),
            format!("{entries} entries"),
            format!("at most {most} entries"),
        )
    }

    /// A string that is not empty.
    pub fn text(&self, expected: &str) -> Option<&'a str> {
        self.describe(|| json!({"type": "string", "minLength": 1, "x-expected": expected}));
        self.value
            .and_then(Value::as_str)
            .filter(|s| !s.is_empty())
            .or_else(|| self.fail(expected))
    }

    /// A string in the syntax of `T`.
    pub fn parsed<T: FromStr>(&self, expected: &str) -> Option<T> {
        self.describe(|| json!({"type": "string", "x-expected": expected}));
        self.value
            .and_then(Value::as_str)
            .and_then(|s| s.parse().ok())
            .or_else(|| self.fail(expected))
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let named = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>();
        self.describe(|| json!({"enum": named()}));
        let found = self.value.and_then(Value::as_str);
        words
            .iter()
            .find(|(word, _)| found == Some(*word))
            .map(|(_, value)| *value)
            .or_else(|| {
                let words: Vec<_> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
                self.fail(format!("one of {}", words.join(", ")))
            })
    }

    /// Whether the value is this very string.
    pub fn is_word(&self, word: &str) -> bool {
        self.describe(|| shape::word(word));
        self.value.and_then(Value::as_str) == Some(word)
    }
}

/// A table being read key by key; [`finish`](Self::finish) reports the keys nobody asked for.
#[derive(Debug)]
pub struct Table<'a> {
    node: Node<'a>,
    /// None where nothing is read.
    map: Option<&'a Map<String, Value>>,
    known: Vec<&'static str>,
}

impl<'a> Table<'a> {
    /// The place of the table itself.
    pub fn node(&self) -> &Node<'a> {
        &self.node
    }

    /// The place of one key, present or not.
    pub fn at(&mut self, key: &'static str) -> Node<'a> {
        self.known.push(key);
        self.node.child(key, self.map.and_then(|map| map.get(key)))
    }

    /// A key that must be there.
    pub fn required<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Node<'a>) -> Option<T>,
    ) -> Option<T> {
        self.node.describe(|| json!({"required": [key]}));
        read(&self.at(key))
    }

    /// A key that may be missing. The outer `None` is a bad value, the inner one a missing key.
    pub fn optional<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Node<'a>) -> Option<T>,
    ) -> Option<Option<T>> {
        let node = self.at(key);
        if node.value.is_none() {
            if node.describes() {
                let _ = read(&node);
            }
            Some(None)
        } else {
            read(&node).map(Some)
        }
    }

    /// A key with a default.
    pub fn or<T>(
        &mut self,
        key: &'static str,
        default: T,
        read: impl FnOnce(&Node<'a>) -> Option<T>,
    ) -> Option<T> {
        self.optional(key, read)
            .map(|value| value.unwrap_or(default))
    }

    /// A key with a default that a schema tells.
    pub(crate) fn or_told<T: Serialize>(
        &mut self,
        key: &'static str,
        default: T,
        read: impl FnOnce(&Node<'a>) -> Option<T>,
    ) -> Option<T> {
        if self.node.describes() {
            let place = self.node.child(key, None);
            place.describe(|| default_of(&default));
        }
        self.or(key, default, read)
    }

    /// Says to a schema which keys belong to which word of the key `key`: those that `read` asks for. While a
    /// document is read it does nothing.
    pub(crate) fn describe_choice(
        &mut self,
        key: &'static str,
        word: &str,
        read: impl FnOnce(&mut Self),
    ) {
        let pointer = self.node.pointer.to_string();
        let Some(shape) = &self.node.issues.shape else {
            return;
        };
        let (known, required) = (self.known.len(), shape.required(&pointer));
        read(self);
        let required = shape.take_required(&pointer, required);
        let own = self.known.iter().skip(known);
        let none: Map<String, Value> = own.map(|k| ((*k).to_owned(), false.into())).collect();
        let chosen = json!({"properties": {key: {"const": word}}});
        let rule = json!({
            "if": chosen, "then": {"required": required}, "else": {"properties": none},
        });
        shape.note(&pointer, json!({"allOf": [rule]}));
    }

    /// Reports every key that no call asked for.
    pub fn finish(mut self) {
        self.known.sort_unstable();
        for (key, value) in self.map.into_iter().flatten() {
            if !self.known.contains(&key.as_str()) {
                let expected = if self.known.is_empty() {
                    "no key here".to_owned()
                } else {
                    format!("one of the keys {}", self.known.join(", "))
                };
                let node = self.node.child(key, Some(value));
                node.say::<()>(Code::UnknownKey, None, "an unknown key", expected);
            }
        }
    }
}

/// What is written is a number, and so is what it is read as.
fn number_of(written: &impl fmt::Display) -> Value {
    serde_json::from_str(&written.to_string()).unwrap_or(Value::Null)
}

fn ranged(kind: &str, from: &impl fmt::Display, to: &impl fmt::Display) -> Value {
    json!({"type": kind, "minimum": number_of(from), "maximum": number_of(to)})
}

/// The default of a table is an empty one: each of its keys has a default of its own.
fn default_of(default: &impl Serialize) -> Value {
    match serde_json::to_value(default) {
        Ok(Value::Object(_)) => json!({"default": {}}),
        Ok(value) => json!({"default": value}),
        Err(_) => Value::Null,
    }
}

fn render(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= FOUND_MAX {
        return text;
    }
    text.chars().take(FOUND_MAX).chain("…".chars()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::json;

    #[test]
    fn every_problem_is_reported_with_its_pointer() {
        let value = json!({"a": 300, "b/c": true, "d": {"x": 1}});
        let issues = Issues::default();
        let root = Node::root(&value, &issues);
        let mut table = root.table().unwrap();
        assert_eq!(table.required("a", |n| n.integer(1u8..=9)), None);
        assert_eq!(table.required("e", |n| n.flag()), None);
        table.required("d", |n| n.table().map(Table::finish));
        table.finish();
        let invalid = issues.conclude(Some(())).unwrap_err();
        let lines: Vec<String> = invalid.issues.iter().map(Issue::to_string).collect();
        let codes: Vec<Code> = invalid.issues.iter().map(|i| i.code).collect();
        assert_eq!(
            codes,
            [
                Code::OutOfRange,
                Code::Missing,
                Code::UnknownKey,
                Code::UnknownKey
            ]
        );
        assert_eq!(invalid.issues[0].limit, Some(json!([1, 9])));
        assert_eq!(
            lines,
            [
                "/a: found 300, expected an integer 1 to 9",
                "/e: found nothing, expected true or false",
                "/d/x: found an unknown key, expected no key here",
                "/b~1c: found an unknown key, expected one of the keys a, d, e",
            ]
        );
    }

    #[test]
    fn a_reader_that_gave_nothing_and_said_nothing_is_still_an_error() {
        assert!(Issues::default().conclude(None::<()>).is_err());
    }

    #[test]
    fn long_values_are_cut() {
        let value = Value::String("é".repeat(200));
        assert_eq!(render(&value).chars().count(), FOUND_MAX + 1);
    }
}
