//! The document that a gateway is to have: layers from etcd merged into one (RFC 7396), with a version that names
//! exactly this content as it was written at exactly this time.

use std::fmt::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crem_api::read::Code;
use crem_api::rest::{FieldError, Problem};
use ring::digest::{SHA256, digest};
use serde_json::Value;

use crate::store::Entry;

/// Hexadecimal digits of a digest in a version.
const DIGITS: usize = 16;

/// Names a document: the revision of etcd in which the last of its layers was written, and a digest of what they
/// are together. The same document written once more is another version: that is how one asks for another try.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    /// Revision of etcd.
    pub revision: u64,
    /// The first digits of the SHA-256 of the document.
    pub digest: String,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.revision, self.digest)
    }
}

/// A document that a gateway is to have.
#[derive(Clone, PartialEq, Debug)]
pub struct Desired {
    /// Its name.
    pub version: Version,
    /// The layers, merged; `Err` if that is impossible.
    pub document: Result<Value, Box<Problem>>,
}

/// Merges layers, the first one first; none if there is none.
pub fn merge<'a>(layers: impl IntoIterator<Item = (&'a str, &'a Entry)>) -> Option<Desired> {
    let (mut merged, mut revision) = (Value::Null, 0);
    let (mut errors, mut content) = (Vec::new(), Vec::new());
    for (key, entry) in layers {
        revision = revision.max(entry.mod_revision);
        content.extend_from_slice(&entry.value);
        match serde_json::from_slice::<Value>(&entry.value) {
            Ok(layer @ Value::Object(_)) => json_patch::merge(&mut merged, &layer),
            Ok(other) => errors.push(wrong(key, &format!("found {}", kind_of(&other)))),
            Err(e) => errors.push(wrong(key, &e.to_string())),
        }
    }
    if revision == 0 {
        return None;
    }
    let (document, digested) = if errors.is_empty() {
        let text = merged.to_string();
        (Ok(merged), text.into_bytes())
    } else {
        (Err(unreadable(errors)), content)
    };
    let digest = hex(digest(&SHA256, &digested).as_ref());
    Some(Desired {
        version: Version { revision, digest },
        document,
    })
}

fn hex(octets: &[u8]) -> String {
    let mut text = String::new();
    for octet in octets.iter().take(DIGITS / 2) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{octet:02x}");
    }
    text
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

fn wrong(key: &str, why: &str) -> FieldError {
    FieldError {
        pointer: String::new(),
        code: Code::Syntax,
        limit: None,
        detail: format!("The layer {key} is no JSON object: {why}."),
    }
}

fn unreadable(errors: Vec<FieldError>) -> Box<Problem> {
    Box::new(Problem {
        kind: "urn:crem:problem:fleet-layer".to_owned(),
        title: "A layer cannot be read".to_owned(),
        status: 422,
        detail: "The layers make no document; nothing was changed.".to_owned(),
        errors,
        ..Problem::default()
    })
}

/// Octets as etcd's JSON gateway writes them.
pub(crate) fn encode(octets: impl AsRef<[u8]>) -> String {
    STANDARD.encode(octets)
}

/// The reverse of [`encode`].
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn entry(revision: u64, value: &str) -> Entry {
        Entry {
            create_revision: 1,
            mod_revision: revision,
            lease: 0,
            value: value.as_bytes().to_vec(),
        }
    }

    fn merged(layers: &[Entry]) -> Option<Desired> {
        merge(layers.iter().map(|layer| ("/layer", layer)))
    }

    #[test]
    fn later_layers_win_and_null_takes_away() {
        let layers = [
            entry(4, r#"{"a":{"x":1,"y":2},"b":3}"#),
            entry(9, r#"{"a":{"y":null,"z":5}}"#),
            entry(7, r#"{"c":true,"b":4}"#),
        ];
        let desired = merged(&layers).unwrap();
        let expected = json!({"a": {"x": 1, "z": 5}, "b": 4, "c": true});
        assert_eq!(desired.document.unwrap(), expected);
        assert_eq!(desired.version.revision, 9);
        assert_eq!(desired.version.to_string().len(), "9-".len() + DIGITS);
    }

    #[test]
    fn without_a_layer_nothing_is_desired() {
        assert_eq!(merged(&[]), None);
    }

    #[test]
    fn the_same_document_written_again_is_another_version() {
        let before = merged(&[entry(4, r#"{"a":1}"#)]).unwrap();
        let again = merged(&[entry(5, r#" {"a":1}"#)]).unwrap();
        assert_ne!(before.version, again.version);
        assert_eq!(before.version.digest, again.version.digest);
    }

    #[test]
    fn every_layer_that_is_no_object_is_named() {
        let layers = [entry(1, "[1]"), entry(2, "{}"), entry(3, "{\"a\":")];
        let problem = merged(&layers).unwrap().document.unwrap_err();
        assert_eq!(problem.errors.len(), 2);
        assert!(problem.errors[0].detail.contains("found a list"));
        assert!(problem.errors[0].detail.contains("/layer"));
    }
}
