//! Documents of the REST API on captures of frames.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};

use crate::capture::{CaptureKind, CaptureRequest};
use crate::segment::Side;

/// A capture to begin. Every limit ends it, the first that is reached.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewCapture {
    /// Id of the segment.
    #[cfg_attr(feature = "openapi", schema(pattern = "^[a-z0-9-]{1,32}$"))]
    pub segment: String,
    /// The port whose frames are kept, both directions; both ports without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<Side>,
    /// Kind of frames to keep; every frame without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<CaptureKind>,
    /// Only frames from or to this address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "ip"))]
    pub address: Option<IpAddr>,
    /// Octets to keep of each frame, from the Ethernet header on; 256 without it.
    #[serde(
        default,
        deserialize_with = "whole",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(minimum = 64, maximum = 9216))]
    pub snap_octets: Option<u64>,
    /// Frames to keep; 10,000 without it.
    #[serde(
        default,
        deserialize_with = "whole",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 10_000_000))]
    pub max_frames: Option<u64>,
    /// Octets to keep of all frames; 64 MiB without it.
    #[serde(
        default,
        deserialize_with = "whole",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 4_294_967_296_i64))]
    pub max_octets: Option<u64>,
    /// Duration, seconds; 60 without it.
    #[serde(
        default,
        deserialize_with = "whole",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 3600))]
    pub seconds: Option<u64>,
}

/// A whole number or nothing; to JSON, 7 and 7.0 are one number.
fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    struct Whole(#[serde(deserialize_with = "super::whole")] u64);
    Ok(Option::<Whole>::deserialize(from)?.map(|number| number.0))
}

impl NewCapture {
    /// What the data plane is asked for: with every default, into this file.
    pub fn request(&self, file: PathBuf) -> CaptureRequest {
        let base = CaptureRequest::new(self.segment.clone(), file);
        // What does not fit is above every limit, too.
        let short = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        CaptureRequest {
            ports: self.port.map_or(base.ports, |port| vec![port]),
            kind: self.kind.unwrap_or_default(),
            address: self.address,
            snap_octets: self.snap_octets.map_or(base.snap_octets, short),
            max_frames: self.max_frames.unwrap_or(base.max_frames),
            max_octets: self.max_octets.unwrap_or(base.max_octets),
            seconds: self.seconds.map_or(base.seconds, short),
            segment: base.segment,
            file: base.file,
        }
    }
}

/// How a capture stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CapturePhase {
    /// Frames are being kept.
    Running,
    /// As many frames as were asked for.
    Frames,
    /// As many octets as were asked for.
    Octets,
    /// The time was over.
    Time,
    /// Somebody ended it.
    Stopped,
    /// The file could not be written; `detail` says why.
    Failed,
    /// The data plane went away, or somebody made it begin another one: what there is may be cut short.
    Lost,
}

/// A capture. Its file goes with it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Capture {
    /// Its id.
    pub id: String,
    /// Who began it.
    pub actor: String,
    /// When, milliseconds since 1970.
    pub at_ms: u64,
    /// What was asked for.
    pub asked: NewCapture,
    /// How it stands: `running`, or why it ended.
    pub state: CapturePhase,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Frames in the file.
    pub frames: u64,
    /// Octets of these frames in the file.
    pub octets: u64,
    /// Frames that found no room on the way to the file.
    pub lost: u64,
    /// Size of the file, octets.
    pub file_octets: u64,
}

/// The captures that there are, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CaptureList {
    /// The captures.
    pub captures: Vec<Capture>,
    /// Octets that new files may still take.
    pub free_octets: u64,
}
