//! From a running document and a client's change to a new document, or to everything that is wrong with
//! it. Nothing is stored and nothing moves.

use crem_api::diff::{Difference, diff};
use crem_api::rest::{FieldError, Plan};
use std::path::Path;

use crem_api::{Change, Code, Document, Impact, Invalid, Issue, Syntax, changes, largest};
use serde_json::Value;

/// What a client sends.
#[derive(Clone, PartialEq, Debug)]
pub enum Edit {
    /// The whole document.
    Replace(Value),
    /// A merge patch (RFC 7396).
    Merge(Value),
    /// Operations (RFC 6902).
    Operations(Value),
}

impl Edit {
    /// The same change one level deeper: at the place that a JSON pointer names.
    #[must_use]
    pub fn at(self, pointer: &str, base: &Value) -> Self {
        if pointer.is_empty() {
            return self;
        }
        let keys: Vec<String> = pointer
            .split('/')
            .skip(1)
            .map(|key| key.replace("~1", "/").replace("~0", "~"))
            .collect();
        match self {
            Self::Merge(patch) => Self::Merge(wrapped(&keys, patch)),
            Self::Replace(value) => {
                let mut whole = base.clone();
                set(&mut whole, &keys, value);
                Self::Replace(whole)
            }
            Self::Operations(Value::Array(mut operations)) => {
                for operation in &mut operations {
                    for member in ["path", "from"] {
                        if let Some(Value::String(place)) = operation.get_mut(member) {
                            place.insert_str(0, pointer);
                        }
                    }
                }
                Self::Operations(Value::Array(operations))
            }
            other @ Self::Operations(_) => other,
        }
    }
}

fn wrapped(keys: &[String], value: Value) -> Value {
    keys.iter().rev().fold(value, |inner, key| {
        Value::Object([(key.clone(), inner)].into_iter().collect())
    })
}

fn set(whole: &mut Value, keys: &[String], value: Value) {
    let Some((key, deeper)) = keys.split_first() else {
        *whole = value;
        return;
    };
    if !whole.is_object() {
        *whole = Value::Object(serde_json::Map::new());
    }
    if let Value::Object(map) = whole {
        set(map.entry(key.clone()).or_insert(Value::Null), deeper, value);
    }
}

/// A change that would be accepted.
#[derive(Clone, PartialEq, Debug)]
pub struct Planned {
    /// The new document as its maker wrote it, without the defaults.
    pub value: Value,
    /// The same with every value set and checked.
    pub document: Document,
    /// What differs in what was written.
    pub diff: Vec<Difference>,
    /// What differs with defaults filled in, and what each place disturbs.
    pub fields: Vec<Change>,
    /// The largest of that.
    pub impact: Impact,
}

/// What runs, as far as anything does.
#[derive(Clone, Copy, Debug)]
pub struct Base<'a> {
    /// As it was written.
    pub value: &'a Value,
    /// With every value set.
    pub document: Option<&'a Document>,
}

/// Computes the new document.
///
/// # Errors
/// Every problem of the change or of what would come out of it.
pub fn plan(base: Base<'_>, edit: Edit) -> Result<Planned, Invalid> {
    let value = edited(base.value, edit)?;
    let document = parse(&value)?;
    let diff = diff(base.value, &value);
    let (fields, impact) = match base.document {
        Some(running) => {
            let fields = changes(running, &document);
            let impact = largest(&fields);
            (fields, impact)
        }
        // Nothing runs that could be disturbed: the data plane starts with this document.
        None => (Vec::new(), Impact::Hot),
    };
    Ok(Planned {
        value,
        document,
        diff,
        fields,
        impact,
    })
}

/// Reads and checks a document that is a value already.
///
/// # Errors
/// Every problem of it.
pub fn parse(value: &Value) -> Result<Document, Invalid> {
    crem_api::from_value(value)
}

fn edited(base: &Value, edit: Edit) -> Result<Value, Invalid> {
    match edit {
        Edit::Replace(value) => Ok(value),
        Edit::Merge(patch) => {
            let mut value = base.clone();
            json_patch::merge(&mut value, &patch);
            Ok(value)
        }
        Edit::Operations(operations) => {
            let operations: json_patch::Patch =
                serde_json::from_value(operations).map_err(|e| {
                    Invalid::whole(e.to_string(), "an array of operations as in RFC 6902")
                })?;
            let mut value = base.clone();
            json_patch::patch(&mut value, &operations).map_err(|e| {
                let issue = Issue::new(
                    e.path.to_string(),
                    format!("operation {}: {}", e.operation, e.kind),
                    "operations that fit the running document",
                );
                Invalid {
                    issues: vec![issue.of(Code::Conflict)],
                }
            })?;
            Ok(value)
        }
    }
}

/// What `:plan` answers.
pub fn describe(base: Option<u64>, planned: Result<Planned, Invalid>) -> Plan {
    match planned {
        Ok(planned) => Plan {
            base,
            valid: true,
            errors: Vec::new(),
            confirm_required: confirm_required(&planned.fields),
            diff: planned.diff,
            impact: planned.impact,
            fields: planned.fields,
        },
        Err(invalid) => Plan {
            base,
            valid: false,
            errors: invalid.issues.into_iter().map(FieldError::from).collect(),
            diff: Vec::new(),
            impact: Impact::None,
            fields: Vec::new(),
            confirm_required: false,
        },
    }
}

/// Whether a change could lock its maker out: it touches how the API is reached.
pub fn confirm_required(fields: &[Change]) -> bool {
    fields.iter().any(|f| {
        let inside = f.pointer == "/management" || f.pointer.starts_with("/management/");
        // Where messages go locks nobody out.
        inside && !f.pointer.starts_with("/management/syslog")
    })
}

/// A document from before there was a history, as a first revision.
///
/// # Errors
/// A file that cannot be read, or every problem of its content.
pub fn import(path: &Path) -> Result<Value, Invalid> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        let found = format!("{}: {e}", path.display());
        Invalid {
            issues: vec![Issue::new("", found, "a readable file")],
        }
    })?;
    let json = path.extension().is_some_and(|e| e == "json");
    let syntax = if json { Syntax::Json } else { Syntax::Toml };
    let value = crem_api::value_of(&text, syntax)?;
    crem_api::from_value(&value)?;
    Ok(value)
}
