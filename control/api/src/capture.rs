//! Capturing frames of a segment into a file on request: what is asked and what is told. Who may ask and
//! who writes the file is elsewhere.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::read::{Code, Issue};
use crate::segment::Side;

/// Longest capture, seconds.
pub const MAX_SECONDS: u32 = 3600;
/// Most frames of a capture.
pub const MAX_FRAMES: u64 = 10_000_000;
/// Most octets of frames in a capture, as kept.
pub const MAX_OCTETS: u64 = 4 << 30;
/// Octets of a frame that can be kept.
pub const SNAP: core::ops::RangeInclusive<u32> = 64..=9216;

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureAsk {
    /// Begin one. There is one at a time.
    Start(Box<CaptureRequest>),
    /// End the one that runs, if any.
    Stop,
}

/// Frames of which kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CaptureKind {
    /// Every frame.
    #[default]
    All,
    /// RoCEv2: UDP to port 4791 with a whole BTH.
    Roce,
    /// Messages on the CREM port of the segment, as the UDP destination.
    Crem,
}

/// A capture to begin. Every limit ends it, the first that is reached.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureRequest {
    /// Id of the segment.
    pub segment: String,
    /// Ports whose frames are kept, both directions of each.
    #[serde(default = "both")]
    pub ports: Vec<Side>,
    /// File to make, pcapng; an absolute path. A file that exists is never touched.
    pub file: PathBuf,
    /// Kind of frames to keep.
    #[serde(default)]
    pub kind: CaptureKind,
    /// Only frames from or to this address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Octets to keep of each frame, from the Ethernet header on; [`SNAP`].
    #[serde(default = "snap")]
    pub snap_octets: u32,
    /// Frames to keep, at most [`MAX_FRAMES`].
    #[serde(default = "frames")]
    pub max_frames: u64,
    /// Octets to keep of all frames, at most [`MAX_OCTETS`].
    #[serde(default = "octets")]
    pub max_octets: u64,
    /// Duration, seconds, at most [`MAX_SECONDS`].
    #[serde(default = "seconds")]
    pub seconds: u32,
}

fn both() -> Vec<Side> {
    vec![Side::Lan, Side::Wan]
}

fn snap() -> u32 {
    256
}

fn frames() -> u64 {
    10_000
}

fn octets() -> u64 {
    64 << 20
}

fn seconds() -> u32 {
    60
}

impl CaptureRequest {
    /// A request with every limit at its default.
    pub fn new(segment: String, file: PathBuf) -> Self {
        Self {
            segment,
            ports: both(),
            file,
            kind: CaptureKind::default(),
            address: None,
            snap_octets: snap(),
            max_frames: frames(),
            max_octets: octets(),
            seconds: seconds(),
        }
    }

    /// Every value that is out of its range; pointers are into the request.
    pub fn problems(&self) -> Vec<Issue> {
        let mut issues = Vec::new();
        let mut within = |name: &str, value: u64, low: u64, high: u64| {
            if !(low..=high).contains(&value) {
                issues.push(Issue {
                    pointer: format!("/capture/start/{name}"),
                    code: Code::OutOfRange,
                    limit: Some(serde_json::json!([low, high])),
                    found: value.to_string(),
                    expected: format!("{low} to {high}"),
                });
            }
        };
        let (low, high) = (u64::from(*SNAP.start()), u64::from(*SNAP.end()));
        within("snap_octets", u64::from(self.snap_octets), low, high);
        within("max_frames", self.max_frames, 1, MAX_FRAMES);
        within("max_octets", self.max_octets, 1, MAX_OCTETS);
        within(
            "seconds",
            u64::from(self.seconds),
            1,
            u64::from(MAX_SECONDS),
        );
        if self.ports.is_empty() {
            issues.push(Issue::new("/capture/start/ports", "[]", "lan, wan or both"));
        }
        if !self.file.is_absolute() {
            let found = format!("{:?}", self.file);
            issues.push(Issue::new("/capture/start/file", found, "an absolute path"));
        }
        issues
    }
}

/// Why a capture ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureEnd {
    /// As many frames as were asked for.
    Frames,
    /// As many octets as were asked for.
    Octets,
    /// The time was over.
    Time,
    /// It was asked to end.
    Stopped,
    /// The file could not be written, and why.
    Failed(String),
}

/// The capture that runs, or else the last one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CaptureState {
    /// What was asked for; nothing if none ever was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<CaptureRequest>,
    /// Whether it still runs.
    pub running: bool,
    /// Frames in the file.
    pub frames: u64,
    /// Octets of these frames in the file, without what pcapng adds.
    pub octets: u64,
    /// Frames that were to be kept and found no room on the way to the file: the disk is too slow.
    pub lost: u64,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<CaptureEnd>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_request_needs_a_segment_and_a_file_and_names_all_that_is_wrong() {
        let text = r#"{"segment":"a","file":"/run/x.pcapng"}"#;
        let request: CaptureRequest = serde_json::from_str(text).unwrap();
        let named = CaptureRequest::new("a".to_owned(), "/run/x.pcapng".into());
        assert_eq!(request, named);
        assert!(request.problems().is_empty());
        let wrong = CaptureRequest {
            ports: Vec::new(),
            file: "x".into(),
            snap_octets: 1,
            max_frames: 0,
            max_octets: u64::MAX,
            seconds: 0,
            ..request
        };
        let pointers: Vec<String> = wrong.problems().into_iter().map(|i| i.pointer).collect();
        assert_eq!(pointers.len(), 6, "{pointers:?}");
        assert!(
            serde_json::from_str::<CaptureRequest>(r#"{"segment":"a","file":"/x","fil":1}"#)
                .is_err()
        );
    }
}
