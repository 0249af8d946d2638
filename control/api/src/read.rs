//! Reading untyped values into typed ones while collecting every problem: the walker that the config
//! document and the bootstrap share. It knows no key of either.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Longest rendering of a found value in an issue, in characters.
const FOUND_MAX: usize = 80;

/// The kind of a problem, for programs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The text is no document at all.
    Syntax,
    /// Another type of value.
    WrongType,
    /// The right type, but not in the form or of the kind that is accepted there.
    InvalidValue,
    /// A number outside its range; the range is the limit.
    OutOfRange,
    /// A key that has to be there is not.
    Missing,
    /// No key of this name is known there.
    UnknownKey,
    /// A key that is no id, network or name as its table asks for.
    InvalidKey,
    /// More entries than the limit.
    TooMany,
    /// Too small for what another value asks for; the least is the limit.
    TooSmall,
    /// Too large beside another value; the most is the limit.
    TooLarge,
    /// Legal alone, but not beside another value or on this machine.
    #[default]
    Conflict,
}

/// One problem of a document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Issue {
    /// JSON pointer (RFC 6901) of the value, or of the place where one is missing.
    pub pointer: String,
    /// Kind of the problem.
    #[serde(default)]
    pub code: Code,
    /// The limit that was not kept, if the problem is one of size: a number, or the two ends of a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Value>,
    /// The value seen there, as compact JSON, or `nothing`.
    pub found: String,
    /// What is accepted there.
    pub expected: String,
}

impl Issue {
    /// A problem of the kind [`Code::Conflict`], without a limit.
    pub fn new(
        pointer: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self {
            pointer: pointer.into(),
            code: Code::Conflict,
            limit: None,
            found: found.into(),
            expected: expected.into(),
        }
    }

    /// The same problem as one of another kind.
    #[must_use]
    pub fn of(mut self, code: Code) -> Self {
        self.code = code;
        self
    }

    /// The same problem with a limit.
    #[must_use]
    pub fn limited(mut self, code: Code, limit: impl Into<Value>) -> Self {
        self.code = code;
        self.limit = Some(limit.into());
        self
    }
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = if self.pointer.is_empty() {
            "/"
        } else {
            &self.pointer
        };
        write!(f, "{at}: found {}, expected {}", self.found, self.expected)
    }
}

/// A document that cannot be accepted, with all its problems.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Invalid {
    /// At least one problem, in document order as far as it is known.
    pub issues: Vec<Issue>,
}

impl Invalid {
    /// One problem that has no place inside the document: it could not be read at all.
    pub fn whole(found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self {
            issues: vec![Issue::new("", found, expected).of(Code::Syntax)],
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, issue) in self.issues.iter().enumerate() {
            let end = if n + 1 < self.issues.len() { "\n" } else { "" };
            write!(f, "{issue}{end}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Invalid {}

/// The problems met so far.
#[derive(Default, Debug)]
pub struct Issues(RefCell<Vec<Issue>>);

impl Issues {
    /// Notes one problem.
    pub fn push(&self, issue: Issue) {
        self.0.borrow_mut().push(issue);
    }

    /// `value` if nothing was noted, else everything that was.
    ///
    /// # Errors
    /// All the problems noted. A reader that gave no value noted why; should it not have, the result is
    /// still an error.
    pub fn conclude<T>(self, value: Option<T>) -> Result<T, Invalid> {
        let issues = self.0.into_inner();
        match value {
            Some(value) if issues.is_empty() => Ok(value),
            _ if issues.is_empty() => Err(Invalid::whole("a value", "a readable document")),
            _ => Err(Invalid { issues }),
        }
    }
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
        let issue = Issue::new(self.pointer.as_ref(), found, expected).of(code);
        self.issues.push(Issue { limit, ..issue });
        None
    }

    /// A table with a fixed set of keys.
    pub fn table(&self) -> Option<Table<'a>> {
        match self.value {
            Some(Value::Object(map)) => Some(Table {
                node: self.clone(),
                map,
                known: Vec::new(),
            }),
            _ => self.wrong_type("a table"),
        }
    }

    /// A table whose keys are ids or addresses; every entry is read, also after a bad one.
    pub fn map<K: Ord, V>(
        &self,
        key_expected: &str,
        key_of: impl Fn(&str) -> Option<K>,
        read: impl Fn(&Node<'a>) -> Option<V>,
    ) -> Option<BTreeMap<K, V>> {
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
        // Both are numbers, and so is what they are written as.
        let number = |text: String| serde_json::from_str(&text).unwrap_or(Value::Null);
        let limit = Value::Array(vec![number(from.to_string()), number(to.to_string())]);
        self.refuse(Code::OutOfRange, Some(limit), expected)
    }

    /// The value if it is an integer without sign; nothing is noted if it is not.
    pub fn unsigned(&self) -> Option<u64> {
        self.value.and_then(Value::as_u64)
    }

    /// A number within a range; integers count as numbers.
    pub fn number(&self, range: RangeInclusive<f64>) -> Option<f64> {
        self.value
            .and_then(Value::as_f64)
            .filter(|n| range.contains(n))
            .or_else(|| self.outside("a number", range.start(), range.end()))
    }

    /// `true` or `false`.
    pub fn flag(&self) -> Option<bool> {
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
        self.value
            .and_then(Value::as_str)
            .filter(|s| !s.is_empty())
            .or_else(|| self.fail(expected))
    }

    /// A string in the syntax of `T`.
    pub fn parsed<T: FromStr>(&self, expected: &str) -> Option<T> {
        self.value
            .and_then(Value::as_str)
            .and_then(|s| s.parse().ok())
            .or_else(|| self.fail(expected))
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
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
        self.value.and_then(Value::as_str) == Some(word)
    }
}

/// A table being read key by key; [`finish`](Self::finish) reports the keys nobody asked for.
#[derive(Debug)]
pub struct Table<'a> {
    node: Node<'a>,
    map: &'a Map<String, Value>,
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
        self.node.child(key, self.map.get(key))
    }

    /// A key that must be there.
    pub fn required<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Node<'a>) -> Option<T>,
    ) -> Option<T> {
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

    /// Reports every key that no call asked for.
    pub fn finish(mut self) {
        self.known.sort_unstable();
        for (key, value) in self.map {
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
