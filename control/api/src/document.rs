//! The root of the config document.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;

use crate::ipfix::Ipfix;
use crate::management::Management;
use crate::read::Node;
use crate::segment::{Segment, SegmentId};

/// The format of the document that this version reads and writes: the value of its key `version`.
pub const FORMAT_VERSION: u32 = 1;

/// The config document of a gateway: everything an operator decides but the bootstrap of each process.
/// Every value is set; those that the text left out have their defaults.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Document {
    /// Format of the document, [`FORMAT_VERSION`].
    pub version: u32,
    /// Workers of the data plane, each on a CPU of its own, 1 to 64. Flows are spread over them.
    pub workers: u16,
    /// The segments by their ids, at least one.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Segment>))]
    pub segments: BTreeMap<SegmentId, Segment>,
    /// IPFIX export; nothing is observed without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipfix: Option<Ipfix>,
    /// Management over the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub management: Option<Management>,
}

impl Document {
    pub(crate) fn read(node: &Node<'_>) -> Option<Self> {
        let mut table = node.table()?;
        let version = table.required("version", |n| n.integer(FORMAT_VERSION..=FORMAT_VERSION));
        let workers = table.or_told("workers", 1, |n| n.integer(1..=64));
        let segments = table.required("segments", read_segments);
        let ipfix = table.optional("ipfix", |n| n.table().and_then(Ipfix::read));
        let management = table.optional("management", |n| n.table().and_then(Management::read));
        table.finish();
        Some(Self {
            version: version?,
            workers: workers?,
            segments: segments?,
            ipfix: ipfix?,
            management: management?,
        })
    }
}

fn read_segments(node: &Node<'_>) -> Option<BTreeMap<SegmentId, Segment>> {
    let id = |text: &str| text.parse::<SegmentId>().ok();
    node.describe(|| json!({"minProperties": 1, "propertyNames": {"pattern": SegmentId::PATTERN}}));
    let segments = node.map(SegmentId::EXPECTED, id, |n| {
        n.table().and_then(Segment::read)
    })?;
    if segments.is_empty() {
        node.fail("at least one segment")
    } else {
        Some(segments)
    }
}
