//! The local protocol between processes of one machine: JSON objects, one a line, over a Unix stream
//! socket. A client sends a [`Request`] and gets one [`Reply`] line for each; any number in turn over one
//! connection. Transport is in [`client`](crate::client) and in the processes that serve it.
//!
//! `v` counts incompatible changes only. New keys may appear in replies at any time and are to be
//! ignored; a server refuses versions and requests it does not know with an [`ErrorReply`] and keeps the
//! connection.

use serde::{Deserialize, Serialize};

use crate::state::{Counters, Export, Flows, Status};

/// The version that this crate speaks.
pub const VERSION: u32 = 1;

/// Longest request line, octets with its newline.
pub const MAX_REQUEST: usize = 4096;

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
}

/// One request line, such as `{"v":1,"get":"counters"}`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// [`VERSION`].
    pub v: u32,
    /// What is asked for.
    pub get: Get,
}

impl Request {
    /// A request of this version.
    pub fn new(get: Get) -> Self {
        Self { v: VERSION, get }
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
        let malformed = |e: serde_json::Error| ErrorReply {
            code: ErrorCode::Malformed,
            message: e.to_string(),
        };
        let Version { v } = serde_json::from_str(line).map_err(malformed)?;
        if v != VERSION {
            let message = format!("version {v} is not spoken here, {VERSION} is");
            return Err(ErrorReply {
                code: ErrorCode::Version,
                message,
            });
        }
        serde_json::from_str(line).map_err(|e| ErrorReply {
            code: ErrorCode::Unknown,
            message: e.to_string(),
        })
    }
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
}

/// A refusal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ErrorReply {
    /// Kind of refusal.
    pub code: ErrorCode,
    /// Words for a person.
    pub message: String,
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
        assert!(Request::parse(r#"{"v":1,"get":"flows"}"#).is_ok());
    }
}
