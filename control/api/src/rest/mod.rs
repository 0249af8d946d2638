//! Documents of the REST API: what clients send and get besides the config document and the state
//! documents. Paths, methods and roles are in `crem-control`.

mod captures;
mod host;
mod pages;
mod peers;
mod ports;
mod support;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::diff::Difference;
use crate::impact::{Change, Impact};
use crate::read::{Code, Issue};

pub use captures::{Capture, CaptureList, CapturePhase, NewCapture};
pub use host::{
    AddressState, ConfinementList, DnsState, Drift, DriftKind, DriftList, Enrol, InterfaceList,
    InterfaceState, RouteList, RouteState, SyslogState, TimeState,
};
pub use pages::{
    AuditPage, AuditRecord, Drop, DropList, FlowPage, NewToken, PeerList, PeerState, TokenInfo,
    TokenMade, VersionInfo,
};
pub use peers::{Compatibility, Direction, EchoReport, FlowsReport, Mismatch, PeerTest, Setting};
pub use ports::{
    FecState, LldpCounters, LldpList, LldpNeighbour, Module, ModuleLane, PortEntry, PortLink,
    PortList,
};
pub use support::{Bundle, BundleList, BundlePhase};

/// Media type of [`Problem`].
pub const PROBLEM_JSON: &str = "application/problem+json";
/// Media type of a merge patch (RFC 7396).
pub const MERGE_PATCH: &str = "application/merge-patch+json";
/// Media type of a patch by operations (RFC 6902).
pub const JSON_PATCH: &str = "application/json-patch+json";

/// What a client may do; each role includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Reads everything but secrets.
    Viewer,
    /// Also confirms and cancels commits.
    Operator,
    /// Also changes the document and who has access.
    Admin,
}

/// A problem of one place of the document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FieldError {
    /// JSON pointer of the value, or of the place where one is missing.
    pub pointer: String,
    /// Kind of the problem.
    pub code: Code,
    /// The limit that was not kept: a number, or the two ends of a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Value>,
    /// A sentence for a person.
    pub detail: String,
}

impl From<Issue> for FieldError {
    fn from(issue: Issue) -> Self {
        let Issue {
            pointer,
            code,
            limit,
            found,
            expected,
        } = issue;
        Self {
            detail: format!("Found {found}, expected {expected}."),
            pointer,
            code,
            limit,
        }
    }
}

/// A problem document (RFC 9457).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Kind of the problem: `urn:crem:problem:` and a name.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// This problem in words.
    pub detail: String,
    /// Every problem of a document at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// Places whose impact is above what was allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Change>,
    /// ETag of the document that runs, where another one was expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_etag: Option<String>,
    /// What the running document has other than the expected one, as far as that one is still known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<Vec<Difference>>,
    /// The commit that is in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Commit>,
    /// The operation that ended like this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Why a commit was rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// Why the document from before a commit came back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Nobody confirmed in time.
    Timeout,
    /// Somebody cancelled.
    Cancelled,
    /// It could not be brought into force.
    ApplyFailed,
    /// The control process started anew meanwhile, by itself or with the machine.
    Restart,
    /// The data plane started anew meanwhile, and did so from the confirmed document.
    DataplaneRestart,
}

impl Cause {
    /// Its name in documents and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::ApplyFailed => "apply_failed",
            Self::Restart => "restart",
            Self::DataplaneRestart => "dataplane_restart",
        }
    }
}

/// Where a commit stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CommitPhase {
    /// What runs is confirmed.
    #[default]
    None,
    /// A document is being brought into force.
    Applying,
    /// It is in force and waits to be confirmed.
    Pending,
    /// The confirmed document is being brought back.
    RollingBack,
}

/// The one commit that may be under way.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Commit {
    /// Where it stands.
    pub state: CommitPhase,
    /// Its revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The revision that comes back unless it is confirmed; none if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_to: Option<u64>,
    /// When that happens, milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Milliseconds until then, at the time of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The operation that follows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
}

/// What is known of a revision besides its document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Revision {
    /// Its number; revisions count from 1 and are never changed.
    pub number: u64,
    /// The revision that it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u64>,
    /// When it was made, milliseconds since 1970.
    pub at_ms: u64,
    /// Who made it.
    pub actor: String,
    /// By what: `put`, `patch`, `restore` or `import`.
    pub source: String,
    /// What its maker said about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// What bringing it into force disturbed.
    pub impact: Impact,
    /// SHA-256 of its document as it is stored.
    pub document_sha256: String,
    /// `hash` of the revision before it; empty for the first.
    pub prev_hash: String,
    /// SHA-256 over all of the above, so that no revision can be changed or left out unnoticed.
    pub hash: String,
}

impl Revision {
    /// The strong ETag of its document.
    pub fn etag(&self) -> String {
        let short = self.document_sha256.get(..8).unwrap_or_default();
        format!("\"{}-{short}\"", self.number)
    }
}

/// A part of the history, newest first.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Revisions {
    /// The revisions.
    pub revisions: Vec<Revision>,
    /// The one that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    /// The one that a start begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<u64>,
}

/// What a change would do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Plan {
    /// Revision that it was compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<u64>,
    /// Whether the document would be accepted.
    pub valid: bool,
    /// Every problem if not.
    pub errors: Vec<FieldError>,
    /// What differs.
    pub diff: Vec<Difference>,
    /// What bringing it into force would disturb at most.
    pub impact: Impact,
    /// The same place by place, defaults filled in.
    pub fields: Vec<Change>,
    /// Whether it would only be accepted with `confirm`, because it could lock its maker out.
    pub confirm_required: bool,
}

/// What a write did.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Written {
    /// Whether anything is different now; a write that changes nothing makes no revision.
    pub changed: bool,
    /// The revision that runs now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// What differs from the one before.
    pub diff: Vec<Difference>,
    /// What that disturbed.
    pub impact: Impact,
    /// The operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The commit, if it waits to be confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Commit>,
    /// Whether the data plane takes it only at its next start.
    #[serde(default)]
    pub restart_needed: bool,
}

/// How an operation stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// Not over: it is applied, or waits to be confirmed.
    Running,
    /// Its revision is confirmed.
    Succeeded,
    /// It never came into force.
    Failed,
    /// It was in force, and what was before it came back.
    RolledBack,
}

/// A step of an operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Step {
    /// When, milliseconds since 1970.
    pub at_ms: u64,
    /// What happened.
    pub text: String,
}

/// A write and what became of it; kept over restarts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Operation {
    /// Id.
    pub id: String,
    /// How it stands.
    pub state: OperationState,
    /// Its revision.
    pub revision: u64,
    /// Who asked for it.
    pub actor: String,
    /// What happened so far.
    pub steps: Vec<Step>,
    /// Why it failed or was rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Box<Problem>>,
    /// What the client was answered, for the same request again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<Written>,
    /// Hash of the idempotency key and hash of the request that came with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub idempotency: Option<(String, String)>,
}

/// Which commit is meant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// Its revision.
    #[serde(deserialize_with = "whole")]
    pub revision: u64,
}

/// Which commit is to wait longer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Extension {
    /// Its revision.
    #[serde(deserialize_with = "whole")]
    pub revision: u64,
    /// How much longer, such as `"60s"`.
    #[cfg_attr(feature = "openapi", schema(pattern = "^[0-9]{1,9}(ms|s|m|h)$"))]
    pub by: String,
}

/// A whole number, however it is written: to JSON, 7 and 7.0 are one.
fn whole<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let number = serde_json::Number::deserialize(from)?;
    let written = number
        .as_f64()
        .filter(|f| f.fract() == 0.0 && (0.0..EXACT).contains(f));
    number
        .as_u64()
        .or(written.map(|f| f as u64))
        .ok_or_else(|| {
            serde::de::Error::custom(format!("revision: found {number}, expected a whole number"))
        })
}

/// Above it not every whole number is a number with a fraction: 2^53.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// Its number; numbers rise by one.
    pub id: u64,
    /// When, milliseconds since 1970.
    pub at_ms: u64,
    /// Its kind, such as `commit_pending`.
    #[serde(rename = "type")]
    pub kind: String,
    /// A sentence.
    pub text: String,
    /// The revision it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
}
