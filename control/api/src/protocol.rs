//! The local protocol between processes of one machine: JSON objects, one a line, over a Unix stream
//! socket. A client sends a [`Request`] and gets one [`Reply`] line for each; any number in turn over one
//! connection. Transport is in [`client`](crate::client) and in the processes that serve it.
//!
//! `v` counts incompatible changes only. New keys may appear in replies at any time and are to be
//! ignored; a server refuses versions and requests it does not know with an [`ErrorReply`] and keeps the
//! connection.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::capture::{CaptureAsk, CaptureState};
use crate::impact::{Change, Impact};
use crate::read::{Invalid, Issue};
use crate::state::{Counters, Export, Flows, Status};

/// The version that this crate speaks.
pub const VERSION: u32 = 1;

/// Longest request line, octets with its newline.
pub const MAX_REQUEST: usize = 4096;

/// Longest line that carries a document, octets with its newline; taken only from those who may bring one
/// into force.
pub const MAX_APPLY: usize = 8 << 20;

/// Most flows in one [`Flows`] document.
pub const MAX_FLOWS: usize = 10_000;

/// What a client may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Get {
    /// [`Status`].
    Status,
    /// [`Counters`].
    Counters,
    /// [`Flows`].
    Flows,
    /// [`Export`], of the exporting process.
    Export,
    /// [`Running`].
    Document,
    /// [`CaptureState`].
    Capture,
}

/// A document to bring into force without a new start.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Apply {
    /// Number under which the sender keeps it; shown by [`Running`] and not interpreted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Refuse if it disturbs more than this.
    #[serde(default = "most")]
    pub max_impact: Impact,
    /// Say what would happen, and do nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// The whole document, as JSON.
    pub document: Value,
}

/// All that a running process can do.
fn most() -> Impact {
    Impact::Segment
}

/// What a request asks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Something to be told.
    Get(Get),
    /// Something to be done.
    Apply(Box<Apply>),
    /// A capture to begin or to end.
    Capture(CaptureAsk),
}

/// One request line, such as `{"v":1,"get":"counters"}`, `{"v":1,"apply":{"document":{…}}}` or
/// `{"v":1,"capture":"stop"}`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Request {
    /// [`VERSION`].
    pub v: u32,
    /// The request itself, under a key of its name.
    #[serde(flatten)]
    pub ask: Ask,
}

impl Request {
    /// A question of this version.
    pub fn new(get: Get) -> Self {
        Self {
            v: VERSION,
            ask: Ask::Get(get),
        }
    }

    /// A document of this version.
    pub fn apply(apply: Apply) -> Self {
        Self {
            v: VERSION,
            ask: Ask::Apply(Box::new(apply)),
        }
    }

    /// A capture to begin or to end.
    pub fn capture(ask: CaptureAsk) -> Self {
        Self {
            v: VERSION,
            ask: Ask::Capture(ask),
        }
    }

    /// Reads a request line.
    ///
    /// # Errors
    /// The reply to send instead of an answer.
    pub fn parse(line: &str) -> Result<Self, ErrorReply> {
        #[derive(Deserialize)]
        struct Version {
            v: u32,
        }
        // The version first: a later one may have another shape.
        let malformed = |e: serde_json::Error| ErrorReply::new(ErrorCode::Malformed, e.to_string());
        let Version { v } = serde_json::from_str(line).map_err(malformed)?;
        if v != VERSION {
            let message = format!("version {v} is not spoken here, {VERSION} is");
            return Err(ErrorReply::new(ErrorCode::Version, message));
        }
        let unknown = |message: String| ErrorReply::new(ErrorCode::Unknown, message);
        let keys: Keys = serde_json::from_str(line).map_err(|e| unknown(e.to_string()))?;
        let ask = match (keys.get, keys.apply, keys.capture) {
            (Some(get), None, None) => Ask::Get(get),
            (None, Some(apply), None) => Ask::Apply(apply),
            (None, None, Some(capture)) => Ask::Capture(capture),
            _ => {
                let message = "exactly one of get, apply and capture is wanted";
                return Err(unknown(message.to_owned()));
            }
        };
        Ok(Self { v, ask })
    }
}

/// What a request line may have. Flattened enums take unknown keys, which would hide a misspelling.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(rename = "v")]
    _v: u32,
    #[serde(default)]
    get: Option<Get>,
    #[serde(default)]
    apply: Option<Box<Apply>>,
    #[serde(default)]
    capture: Option<CaptureAsk>,
}

/// Why a request got no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// Not a JSON object with a version.
    Malformed,
    /// Another version of the protocol.
    Version,
    /// The version is right but nothing of that name can be had.
    Unknown,
    /// This client may ask but not change anything.
    Forbidden,
    /// The document is not acceptable: see `issues`.
    Invalid,
    /// The document is acceptable but disturbs more than was allowed, or than a running process can do:
    /// see `changes`.
    Impact,
    /// The answer did not come in time; whether something was done is to be asked.
    Timeout,
}

/// A refusal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ErrorReply {
    /// Kind of refusal.
    pub code: ErrorCode,
    /// Words for a person.
    pub message: String,
    /// Every problem of a document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issues: Vec<Issue>,
    /// What a document would have changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

impl ErrorReply {
    /// A refusal that needs no more than words.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            issues: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// A document with problems.
    pub fn invalid(invalid: Invalid) -> Self {
        Self {
            issues: invalid.issues,
            ..Self::new(ErrorCode::Invalid, "the document has problems")
        }
    }
}

/// The document in force.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Running {
    /// Counts the documents that were in force since the start; the first is 0.
    pub generation: u64,
    /// What was given with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The document with every value set.
    pub document: Value,
}

/// A document came into force, or would.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Applied {
    /// Generation in force after it.
    pub generation: u64,
    /// The largest impact of `changes`.
    pub impact: Impact,
    /// Every difference to what was in force before.
    pub changes: Vec<Change>,
}

/// The part of a reply that depends on the request, under a key of its name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// Answer to [`Get::Status`].
    Status(Status),
    /// Answer to [`Get::Counters`].
    Counters(Counters),
    /// Answer to [`Get::Flows`].
    Flows(Flows),
    /// Answer to [`Get::Export`].
    Export(Export),
    /// Answer to [`Get::Document`].
    Document(Running),
    /// Answer to [`Apply`].
    Applied(Applied),
    /// Answer to [`CaptureAsk`] and [`Get::Capture`].
    Capture(CaptureState),
    /// Refusal.
    Error(ErrorReply),
}

/// One reply line, such as `{"v":1,"at_ms":1200,"counters":{…}}`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Reply {
    /// [`VERSION`].
    pub v: u32,
    /// Milliseconds since the start of the server at which the content was taken.
    pub at_ms: u64,
    /// The answer.
    #[serde(flatten)]
    pub body: Body,
}

impl Reply {
    /// A reply of this version.
    pub fn new(at_ms: u64, body: Body) -> Self {
        Self {
            v: VERSION,
            at_ms,
            body,
        }
    }

    /// The line to send, newline included.
    pub fn to_line(&self) -> String {
        // Text keys, integers and strings only: there is nothing in it that JSON cannot hold.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_written_form_is_as_documented() {
        let text = serde_json::to_string(&Request::new(Get::Counters)).unwrap();
        assert_eq!(text, r#"{"v":1,"get":"counters"}"#);
        let line = Reply::new(7, Body::Flows(Flows::default())).to_line();
        assert_eq!(
            line,
            "{\"v\":1,\"at_ms\":7,\"flows\":{\"flows\":[],\"left_out\":0}}\n"
        );
        let back: Reply = serde_json::from_str(&line).unwrap();
        assert_eq!(back.body, Body::Flows(Flows::default()));
    }

    #[test]
    fn refusals_name_their_kind() {
        let code = |line| Request::parse(line).unwrap_err().code;
        assert_eq!(code("{"), ErrorCode::Malformed);
        assert_eq!(code("{}"), ErrorCode::Malformed);
        assert_eq!(code(r#"{"v":2,"ask":"else"}"#), ErrorCode::Version);
        assert_eq!(code(r#"{"v":1,"get":"money"}"#), ErrorCode::Unknown);
        assert_eq!(
            code(r#"{"v":1,"get":"flows","of":"a"}"#),
            ErrorCode::Unknown
        );
        assert_eq!(code(r#"{"v":1}"#), ErrorCode::Unknown);
        assert_eq!(code(r#"{"v":1,"apply":{}}"#), ErrorCode::Unknown);
        let both = r#"{"v":1,"get":"flows","apply":{"document":{}}}"#;
        assert_eq!(code(both), ErrorCode::Unknown);
        let force = r#"{"v":1,"apply":{"document":{},"force":true}}"#;
        assert_eq!(code(force), ErrorCode::Unknown);
        assert!(Request::parse(r#"{"v":1,"get":"flows"}"#).is_ok());
    }

    #[test]
    fn a_document_travels_with_what_it_may_disturb() {
        let line = r#"{"v":1,"apply":{"document":{"version":1}}}"#;
        let Ask::Apply(apply) = Request::parse(line).unwrap().ask else {
            panic!("a document was sent");
        };
        assert_eq!((apply.max_impact, apply.dry_run), (Impact::Segment, false));
        let sent = Request::apply(Apply {
            revision: Some(7),
            max_impact: Impact::Hot,
            dry_run: true,
            document: apply.document,
        });
        let text = serde_json::to_string(&sent).unwrap();
        assert_eq!(Request::parse(&text).unwrap(), sent);
    }
}
