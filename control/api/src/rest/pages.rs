//! Lists of the REST API: flows, peers, drops, the audit log; and access to it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Access;
use crate::state::Flow;

/// A line of the audit log.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditRecord {
    /// Counts lines, also over rotation.
    pub seq: u64,
    /// SHA-256 of the line before, without its end.
    pub prev_hash: String,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Who.
    pub actor: String,
    /// How they came: `socket`, `token`, `mtls`, `system`.
    pub via: String,
    /// From where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// What was asked: method and path, or the name of what happened by itself.
    pub action: String,
    /// Revision that it led to or was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The reason that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// HTTP status or a word.
    pub outcome: String,
}

/// A part of the audit log, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditPage {
    /// The records.
    pub records: Vec<AuditRecord>,
}

/// A part of the flows.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlowPage {
    /// When they were listed, milliseconds since 1970.
    pub at_ms: u64,
    /// The flows.
    pub flows: Vec<Flow>,
    /// How many there are that fit the filter, on all pages.
    pub total: u64,
    /// What to ask the next page with; none after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Flows that the data plane itself left out because they were too many.
    pub left_out: u64,
}

/// Frames that ended here for one reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Drop {
    /// Segment.
    pub segment: String,
    /// Reason, a name of `docs/configuration.md`.
    pub reason: String,
    /// How many.
    pub frames: u64,
}

/// Every reason with its count.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DropList {
    /// When they were counted, milliseconds since 1970.
    pub at_ms: u64,
    /// The counts.
    pub drops: Vec<Drop>,
}

/// A peer, as flows show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PeerState {
    /// Its id, `SEGMENT@ADDRESS`.
    pub id: String,
    /// Segment.
    pub segment: String,
    /// Its address.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub address: IpAddr,
    /// MAC address of the next hop toward it, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop_mac: Option<String>,
    /// Whether it answers for a flow.
    pub answered: bool,
    /// Flows that are matched to it.
    pub flows: u64,
    /// Those of them that are protected.
    pub protected_flows: u64,
}

impl PeerState {
    /// A peer of which nothing is known yet.
    pub fn new(segment: &str, address: IpAddr) -> Self {
        Self {
            id: format!("{segment}@{address}"),
            segment: segment.to_owned(),
            address,
            next_hop_mac: None,
            answered: false,
            flows: 0,
            protected_flows: 0,
        }
    }
}

/// All peers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PeerList {
    /// When flows were listed, milliseconds since 1970.
    pub at_ms: u64,
    /// The peers.
    pub peers: Vec<PeerState>,
}

/// Versions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VersionInfo {
    /// Of the control process.
    pub control: String,
    /// Of the data plane, if it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataplane: Option<String>,
    /// Of the config document's format.
    pub document_format: u32,
}

/// A token to make.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Whose it is: 1 to 64 letters, digits and `-_.@`.
    #[cfg_attr(feature = "openapi", schema(pattern = "^[A-Za-z0-9._@-]{1,64}$"))]
    pub name: String,
    /// What it is good for.
    pub access: Access,
    /// How long, such as `720h`: 1 s to 366 days.
    #[cfg_attr(
        feature = "openapi",
        schema(
            pattern = "^([1-9][0-9]{0,6}s|[1-9][0-9]{0,4}m|[1-9][0-9]{0,2}h|[1-7][0-9]{3}h|8[0-6][0-9]{2}h|87[0-7][0-9]h|878[0-4]h|[1-9][0-9]{3,8}ms)$"
        )
    )]
    pub life: String,
}

/// What is known of a token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenInfo {
    /// Whose it is.
    pub name: String,
    /// What it is good for.
    pub access: Access,
    /// When it was made, milliseconds since 1970.
    pub created_ms: u64,
    /// When it ends.
    pub expires_ms: u64,
}

/// A token that was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenMade {
    /// Its id, for deleting it.
    pub id: String,
    /// Its text, for `Authorization: Bearer`. It is told this once.
    pub token: String,
    /// What is known of it.
    #[serde(flatten)]
    pub info: TokenInfo,
}
