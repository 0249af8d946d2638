//! From a running document and a client's change to a new document, or to everything that is wrong with
//! it. Nothing is stored and nothing moves.

use crem_api::diff::{Difference, diff};
use crem_api::rest::{FieldError, Plan};
use std::path::Path;

use crem_api::{Change, Code, Document, Impact, Invalid, Issue, Syntax, changes, largest};
use json_patch::PatchOperation;
use serde_json::Value;

/// Deepest place that a change may name, keys. A document needs a tenth of it; JSON itself is read to such a depth only.
const MAX_DEPTH: usize = 128;
/// Values that the operations of one change may copy and move, each with all that is in it: copies of copies double what
/// they make.
const MAX_MOVED: usize = 100_000;

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
    ///
    /// # Errors
    /// The place is deeper than any document.
    pub fn at(self, pointer: &str, base: &Value) -> Result<Self, Invalid> {
        if pointer.is_empty() {
            return Ok(self);
        }
        if depth_of(pointer) > MAX_DEPTH {
            return Err(too_deep(depth_of(pointer)));
        }
        Ok(self.inside(pointer, base))
    }

    fn inside(self, pointer: &str, base: &Value) -> Self {
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
            operated(base.clone(), &operations)
        }
    }
}

/// Carries out operations one by one, so that what each makes is known before the next.
fn operated(mut value: Value, operations: &[PatchOperation]) -> Result<Value, Invalid> {
    let mut moved = 0;
    for (number, operation) in operations.iter().enumerate() {
        check_size(&value, operation, &mut moved)?;
        json_patch::patch(&mut value, std::slice::from_ref(operation)).map_err(|e| {
            let issue = Issue::new(
                e.path.to_string(),
                format!("operation {number}: {}", e.kind),
                "operations that fit the running document",
            );
            Invalid {
                issues: vec![issue.of(Code::Conflict)],
            }
        })?;
    }
    Ok(value)
}

/// Refuses what would make the document deeper or larger than memory and stacks are for.
fn check_size(
    value: &Value,
    operation: &PatchOperation,
    moved_so_far: &mut usize,
) -> Result<(), Invalid> {
    let depth = depth_of(operation.path().as_str());
    let from = match operation {
        PatchOperation::Copy(copy) => Some(&copy.from),
        PatchOperation::Move(moved) => Some(&moved.from),
        _ => None,
    };
    let mut deepest = depth;
    if let Some(moved) = from.and_then(|from| value.pointer(from.as_str())) {
        let (mut values, mut below) = (0, 0);
        measure(moved, 0, &mut values, &mut below);
        deepest += below;
        *moved_so_far += values;
    }
    if deepest > MAX_DEPTH {
        return Err(too_deep(deepest));
    }
    if *moved_so_far > MAX_MOVED {
        let found = format!("operations that copy and move more than {MAX_MOVED} values");
        return Err(Invalid::whole(found, "at most so many"));
    }
    Ok(())
}

/// Counts values, and finds how deep they are: both are bounded by what was let in before.
fn measure(value: &Value, depth: usize, values: &mut usize, deepest: &mut usize) {
    *values += 1;
    *deepest = depth.max(*deepest);
    let mut next = |inner: &Value| measure(inner, depth + 1, values, deepest);
    match value {
        Value::Array(list) => list.iter().for_each(&mut next),
        Value::Object(map) => map.values().for_each(&mut next),
        _ => {}
    }
}

/// Keys of a JSON pointer.
fn depth_of(pointer: &str) -> usize {
    pointer.matches('/').count()
}

fn too_deep(found: usize) -> Invalid {
    let found = format!("a place {found} keys deep");
    Invalid::whole(found, format!("at most {MAX_DEPTH}"))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    const NONE: Base<'_> = Base {
        value: &Value::Null,
        document: None,
    };

    fn refused(operations: Value) -> String {
        let base = json!({ "a": { "b": 1 } });
        let operations = Edit::Operations(operations);
        let base = Base {
            value: &base,
            ..NONE
        };
        plan(base, operations).unwrap_err().to_string()
    }

    #[test]
    fn copies_of_copies_end_before_memory_does() {
        let double = |n| json!({"op": "copy", "from": "", "path": format!("/{n}")});
        let why = refused((0..60).map(double).collect());
        assert!(why.contains("move more than"), "{why}");
    }

    #[test]
    fn copies_into_themselves_end_before_the_stack_does() {
        let mut path = "/a".to_owned();
        let deeper = |_| {
            let operation = json!({"op": "copy", "from": "/a", "path": path.clone() + "/a"});
            path = path.clone() + &path;
            operation
        };
        let why = refused((0..16).map(deeper).collect());
        assert!(why.contains("keys deep"), "{why}");
    }

    #[test]
    fn a_part_as_deep_as_an_address_is_long_is_refused() {
        let pointer = "/a".repeat(30_000);
        for edit in [Edit::Replace, Edit::Merge, Edit::Operations] {
            let refused = edit(json!(1)).at(&pointer, &Value::Null).unwrap_err();
            assert!(refused.to_string().contains("keys deep"));
        }
        let there = Edit::Merge(json!(1)).at("/a/b", &Value::Null).unwrap();
        assert_eq!(there, Edit::Merge(json!({ "a": { "b": 1 } })));
    }

    #[test]
    fn an_operation_that_does_not_fit_is_named_by_its_number() {
        let why = refused(json!([
            {"op": "add", "path": "/c", "value": 1}, {"op": "remove", "path": "/d"}
        ]));
        assert!(why.contains("operation 1"), "{why}");
    }
}
