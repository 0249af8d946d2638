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

/// One problem of a document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Issue {
    /// JSON pointer (RFC 6901) of the value, or of the place where one is missing.
    pub pointer: String,
    /// The value seen there, as compact JSON, or `nothing`.
    pub found: String,
    /// What is accepted there.
    pub expected: String,
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
        let issue = Issue {
            pointer: String::new(),
            found: found.into(),
            expected: expected.into(),
        };
        Self {
            issues: vec![issue],
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
        let found = self.value.map_or_else(|| "nothing".to_owned(), render);
        self.note(found, expected)
    }

    /// Like [`fail`](Self::fail), with words of the caller's for what was found.
    pub fn note<T>(&self, found: impl Into<String>, expected: impl Into<String>) -> Option<T> {
        self.issues.push(Issue {
            pointer: self.pointer.clone().into_owned(),
            found: found.into(),
            expected: expected.into(),
        });
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
            _ => self.fail("a table"),
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
            return self.fail("a table");
        };
        let mut out = BTreeMap::new();
        let mut complete = true;
        for (key, value) in map {
            let node = self.child(key, Some(value));
            let value = read(&node);
            let parsed = key_of(key).or_else(|| {
                node.note(
                    format!("the key {}", render(&Value::String(key.clone()))),
                    key_expected,
                )
            });
            match (parsed, value) {
                (Some(parsed), Some(value)) => {
                    if out.insert(parsed, value).is_some() {
                        complete = false;
                        node.note::<()>("a key that equals another one", "distinct keys");
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
            .or_else(|| self.fail(format!("an integer {} to {}", range.start(), range.end())))
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
            .or_else(|| self.fail(format!("a number {} to {}", range.start(), range.end())))
    }

    /// `true` or `false`.
    pub fn flag(&self) -> Option<bool> {
        self.value
            .and_then(Value::as_bool)
            .or_else(|| self.fail("true or false"))
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
                self.node
                    .child(key, Some(value))
                    .note::<()>("an unknown key", expected);
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
