//! The status that a gateway tells the fleet: one JSON document in a key of its own, which goes with the lease of
//! the agent; and the same with what the agent knows of itself in a file of the gateway.

use std::collections::BTreeMap;

use crate::rest::Problem;
use serde::{Deserialize, Serialize};

/// How a gateway stands to the document that it is to have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// There is no layer: the gateway is left alone.
    #[default]
    None,
    /// It waits: `waiting_for` says for what.
    Waiting,
    /// It is changing.
    RollingOut,
    /// It has the document, confirmed.
    Applied,
    /// It had the document, and somebody changed it at the gateway.
    ChangedLocally,
    /// The document cannot be accepted here; nothing was changed.
    Refused,
    /// The document was in force, or was to come into force, and what ran before came back.
    Failed,
}

/// The status of a gateway.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Which gateway.
    pub node: String,
    /// Its fleet.
    pub fleet: String,
    /// Its pair.
    pub pair: String,
    /// Version of the program.
    pub software: String,
    /// How it stands.
    pub state: Phase,
    /// Version of the document that it is to have: the revision of etcd in which the last layer was written, and a
    /// digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<String>,
    /// Version that was applied and confirmed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<String>,
    /// Revision of the gateway that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    /// Mode in force of each segment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<String, String>,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// Why it was refused or failed: a problem document (RFC 9457).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Box<Problem>>,
}

/// The status in the file of the gateway.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Local {
    /// As the fleet is told.
    #[serde(flatten)]
    pub status: Status,
    /// The agent itself.
    pub agent: Agent,
}

/// What the agent knows of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Agent {
    /// Whether etcd answers.
    pub etcd: bool,
    /// What became of documents since the agent started.
    pub counts: Counts,
}

/// What became of documents since the agent started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Applied, and confirmed or in force already.
    pub applied: u64,
    /// Refused; nothing was changed.
    pub refused: u64,
    /// Given up: in force, or to be, and what ran before came back.
    pub failed: u64,
    /// Changes that were in force and were taken back, those that are tried again among them.
    pub rolled_back: u64,
    /// Halts of the fleet that this gateway asked for.
    pub halts: u64,
    /// Documents refused or given up by reason, one of [`REASONS`].
    pub reasons: BTreeMap<String, u64>,
}

/// Reasons for which documents are refused or given up: names of problems, and all others.
pub const REASONS: [&str; 7] = [
    "validation",
    "impact-not-allowed",
    "fleet-layer",
    "fleet-health",
    "apply-failed",
    "rolled-back",
    OTHER,
];
/// The one that stands for all others.
pub const OTHER: &str = "other";
