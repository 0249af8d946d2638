//! Documents of the REST API on support bundles.

use serde::{Deserialize, Serialize};

/// How a support bundle stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum BundlePhase {
    /// It is being made.
    Running,
    /// Its file is there.
    Succeeded,
    /// It could not be made; `detail` says why.
    Failed,
}

/// A support bundle: one file for those who help, without secrets. Its file goes with it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Bundle {
    /// Its id.
    pub id: String,
    /// Who asked for it.
    pub actor: String,
    /// When, milliseconds since 1970.
    pub at_ms: u64,
    /// How it stands.
    pub state: BundlePhase,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The files in it.
    pub files: Vec<String>,
    /// Its size, octets.
    pub octets: u64,
}

/// The support bundles that there are, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BundleList {
    /// The bundles.
    pub bundles: Vec<Bundle>,
}
