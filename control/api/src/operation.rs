//! What an operator sets of a segment as of a box in a wire: what becomes of the wire when the box fails or is taken
//! out of it, and what one link tells the other. Carrying it out is the data plane's business.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::json;

use crate::read::{Node, Table};

/// What is to become of the wire when the data plane does not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The ports are joined. Only a bypass relay can do that.
    Wire,
    /// Nothing passes.
    #[default]
    Block,
}

impl OnFailure {
    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Block => "block",
        }
    }
}

/// The relay that can join the two ports of a segment without this process.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Relay {
    /// There is none.
    #[default]
    None,
    /// Keeps what a relay would be told in a file, for tests.
    Test(PathBuf),
}

/// Written out: there is none for paths.
#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for Relay {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        let test = "File that keeps what a relay would be told, for tests.";
        let test = utoipa::openapi::Object::builder().description(Some(test));
        utoipa::openapi::Object::builder()
            .property("test", test)
            .into()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for Relay {}

/// Mode `bypass`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Bypass {
    /// The relay that the ports have.
    pub relay: Relay,
    /// Seconds after which the mode before comes back.
    pub duration_s: u32,
    /// Why, for the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Half an hour of maintenance.
const DURATION_S: u32 = 1_800;
/// A week.
const MAX_DURATION_S: u32 = 604_800;
/// Characters of a reason.
const MAX_REASON: usize = 256;
/// As other boxes have it.
const MAX_DELAY_MS: u32 = 240_000;

impl Default for Bypass {
    fn default() -> Self {
        Self {
            relay: Relay::None,
            duration_s: DURATION_S,
            reason: None,
        }
    }
}

impl Bypass {
    pub(crate) fn read(mut t: Table<'_>) -> Option<Self> {
        let d = Self::default();
        let relay = t.or_told("relay", d.relay, read_relay);
        let duration_s = t.or_told("duration_s", d.duration_s, |n| {
            n.integer(1..=MAX_DURATION_S)
        });
        let reason = t.optional("reason", |n| {
            let expected = "1 to 256 characters";
            n.describe(|| json!({"maxLength": MAX_REASON}));
            let text = n.text(expected)?;
            if text.chars().count() <= MAX_REASON {
                Some(text.to_owned())
            } else {
                n.fail(expected)
            }
        });
        t.finish();
        Some(Self {
            relay: relay?,
            duration_s: duration_s?,
            reason: reason?,
        })
    }
}

/// `"none"`, or a table with the key `test`.
fn read_relay(node: &Node<'_>) -> Option<Relay> {
    if node.is_word("none") {
        return Some(Relay::None);
    }
    let mut t = node.table()?;
    let path = t.required("test", |n| {
        let expected = "the absolute path of a file";
        n.describe(|| json!({"pattern": "^/"}));
        let path = PathBuf::from(n.text(expected)?);
        if path.is_absolute() {
            Some(path)
        } else {
            n.fail(expected)
        }
    });
    t.finish();
    Some(Relay::Test(path?))
}

/// What a port does when the link of the other one goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Propagation {
    /// Nothing; links that go are counted.
    #[default]
    Hub,
    /// Its own goes too, and comes back after it.
    Wire,
}

/// How a link that goes is told to the other side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LinkPropagation {
    /// What the other port does.
    pub mode: Propagation,
    /// Milliseconds that a link has to be down before the other one is taken down.
    pub down_delay_ms: u32,
    /// Milliseconds that it has to be up again before the other one is let go.
    pub up_delay_ms: u32,
}

impl Default for LinkPropagation {
    fn default() -> Self {
        Self {
            mode: Propagation::Hub,
            down_delay_ms: 1_000,
            up_delay_ms: 0,
        }
    }
}

impl LinkPropagation {
    pub(crate) fn read(mut t: Table<'_>) -> Option<Self> {
        let d = Self::default();
        let words = [("hub", Propagation::Hub), ("wire", Propagation::Wire)];
        let mode = t.or_told("mode", d.mode, |n| n.choice(&words));
        let down = t.or_told("down_delay_ms", d.down_delay_ms, |n| {
            n.integer(0..=MAX_DELAY_MS)
        });
        let up = t.or_told("up_delay_ms", d.up_delay_ms, |n| {
            n.integer(0..=MAX_DELAY_MS)
        });
        t.finish();
        Some(Self {
            mode: mode?,
            down_delay_ms: down?,
            up_delay_ms: up?,
        })
    }
}
