//! Problems of a document: what is told of each, and where they are gathered.

use std::cell::RefCell;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::shape::Shape;

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
pub struct Issues {
    noted: RefCell<Vec<Issue>>,
    /// Set where nothing is read, but noted what would be taken.
    pub(super) shape: Option<Shape>,
}

impl Issues {
    /// Where nothing is read, but noted what would be taken.
    #[cfg(feature = "openapi")]
    pub(super) fn describing() -> Self {
        Self {
            shape: Some(Shape::default()),
            ..Self::default()
        }
    }

    /// Notes one problem.
    pub fn push(&self, issue: Issue) {
        self.noted.borrow_mut().push(issue);
    }

    /// `value` if nothing was noted, else everything that was.
    ///
    /// # Errors
    /// All the problems noted. A reader that gave no value noted why; should it not have, the result is
    /// still an error.
    pub fn conclude<T>(self, value: Option<T>) -> Result<T, Invalid> {
        let issues = self.noted.into_inner();
        match value {
            Some(value) if issues.is_empty() => Ok(value),
            _ if issues.is_empty() => Err(Invalid::whole("a value", "a readable document")),
            _ => Err(Invalid { issues }),
        }
    }
}
