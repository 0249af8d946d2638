//! From text or a file to a checked document, and back to a value.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::check;
use crate::document::Document;
use crate::read::{Invalid, Issues, Node};

/// Syntax of a document; the keys are the same in both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syntax {
    /// TOML.
    Toml,
    /// JSON.
    Json,
}

/// Reads a document from a file: JSON if its name ends in `.json`, else TOML.
///
/// # Errors
/// A file that cannot be read, or every problem of its content.
pub fn load(path: &Path) -> Result<Document, Invalid> {
    let text = fs::read_to_string(path)
        .map_err(|e| Invalid::whole(format!("{}: {e}", path.display()), "a readable file"))?;
    let json = path
        .extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("json"));
    parse(&text, if json { Syntax::Json } else { Syntax::Toml })
}

/// Reads a document from text.
///
/// # Errors
/// The place where the syntax is wrong, else every problem of the content at once: first those of single
/// values, and once all values are legal those between them.
pub fn parse(text: &str, syntax: Syntax) -> Result<Document, Invalid> {
    from_value(&value_of(text, syntax)?)
}

/// Reads a document from a value.
///
/// # Errors
/// As [`parse`], but for the syntax.
pub fn from_value(value: &Value) -> Result<Document, Invalid> {
    let issues = Issues::default();
    let document = Document::read(&Node::root(value, &issues));
    if let Some(document) = &document {
        check::document(document, &issues);
    }
    issues.conclude(document)
}

/// The document as a value with every key set, in the form that [`parse`] reads back.
pub fn to_value(document: &Document) -> Value {
    // Maps with text keys, numbers and strings only: there is nothing in it that JSON cannot hold.
    serde_json::to_value(document).unwrap_or(Value::Null)
}

/// Reads text as a value with the keys that are written, without looking at what they say.
///
/// # Errors
/// The place where the syntax is wrong.
pub fn value_of(text: &str, syntax: Syntax) -> Result<Value, Invalid> {
    match syntax {
        Syntax::Json => {
            serde_json::from_str(text).map_err(|e| Invalid::whole(e.to_string(), "a JSON document"))
        }
        Syntax::Toml => toml::from_str(text)
            .map_err(|e| Invalid::whole(e.to_string().trim_end().to_owned(), "a TOML document")),
    }
}
