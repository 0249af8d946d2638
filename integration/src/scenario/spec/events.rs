//! What happens while the flows run: processes that go, values that change, reports of the path.

use serde::{Deserialize, Serialize};

use super::Host;

/// A process of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// What forwards.
    #[default]
    Dataplane,
    /// What keeps the document. Where an event names it every gateway has one, and the data planes begin with the
    /// document that it confirmed.
    Control,
}

/// Something that happens.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Milliseconds after the requesters started.
    pub at_ms: u64,
    /// Gateway to end, with SIGKILL unless `stuck_worker` is there.
    pub kill: Host,
    /// Of its processes, which one.
    #[serde(default)]
    pub process: Part,
    /// The worker of this number is stopped, and the gateway has to end by itself.
    pub stuck_worker: Option<u16>,
    /// Milliseconds until it is started again.
    pub restart_after_ms: u64,
}

/// A value of the segment in a gateway's document changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// Milliseconds after the requesters started.
    pub at_ms: u64,
    /// At which gateway.
    pub at: Host,
    /// Key of the segment, with `/` between parts.
    pub key: String,
    /// Its new value.
    pub value: toml::Value,
}

/// Which gateway does what with the PATH_REPORTs of the WAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathReports {
    /// Takes them and sends further repair for what they name.
    pub answered_at: Host,
    /// Gets them from a node that it does not believe.
    pub refused_at: Host,
}
