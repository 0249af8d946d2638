//! Observation Points: where in a segment packets are observed, and which of them.

use serde::Serialize;
use serde_json::json;

use crate::read::Table;
use crate::segment::SegmentId;

/// Where in a segment packets are observed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ObservationPlace {
    /// Received from the LAN.
    LanIngress,
    /// Sent to the WAN.
    WanEgress,
    /// Received from the WAN, before repair.
    WanIngress,
    /// Sent to the LAN, restored packets left out.
    LanEgressBeforeRepair,
    /// Sent to the LAN, restored packets included.
    LanEgressAfterRepair,
}

/// An Observation Point.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ObservationPoint {
    /// Its segment.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub segment: SegmentId,
    /// Its place there.
    pub place: ObservationPlace,
    /// observationPointId of the first worker; the next ones count on from there.
    pub base: u64,
    /// Observation of single packets; off without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<PacketObservation>,
    /// Whether aggregate flows are counted.
    pub flows: bool,
    /// Whether the sequence of `connections` is observed.
    pub sequence: bool,
}

/// How single packets are observed.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PacketObservation {
    /// Which ones.
    #[serde(flatten)]
    pub select: Select,
    /// selectionSequenceId of the first worker, the next ones count on; needed if packets are selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selection_sequence: Option<u64>,
    /// Most records a second and worker; what exceeds it is dropped and counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_per_s: Option<u64>,
}

/// Which packets are observed.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "select", rename_all = "snake_case")]
pub enum Select {
    /// Every packet.
    All,
    /// `interval` packets, then none of `space` packets.
    Count {
        /// samplingPacketInterval.
        interval: u32,
        /// samplingPacketSpace.
        space: u32,
    },
    /// Each with the same probability.
    Probability {
        /// More than 0, at most 1.
        probability: f64,
    },
    /// By a hash of the IP payload, so that all points select the same packets.
    Hash {
        /// hashIPPayloadOffset, octets.
        offset: u16,
        /// hashIPPayloadSize, octets.
        size: u16,
        /// hashInitialiserValue.
        initial: u32,
        /// hashSelectedRangeMin.
        from: u32,
        /// hashSelectedRangeMax.
        to: u32,
    },
}

const PLACES: &[(&str, ObservationPlace)] = &[
    ("lan_ingress", ObservationPlace::LanIngress),
    ("wan_egress", ObservationPlace::WanEgress),
    ("wan_ingress", ObservationPlace::WanIngress),
    (
        "lan_egress_before_repair",
        ObservationPlace::LanEgressBeforeRepair,
    ),
    (
        "lan_egress_after_repair",
        ObservationPlace::LanEgressAfterRepair,
    ),
];

impl ObservationPoint {
    pub(super) fn read(mut t: Table<'_>) -> Option<Self> {
        let segment = t.required("segment", |n| {
            n.describe(|| json!({"pattern": SegmentId::PATTERN}));
            n.parsed(SegmentId::EXPECTED)
        });
        let place = t.required("place", |n| n.choice(PLACES));
        let base = t.required("base", |n| n.integer(0..=u64::MAX - u64::from(u16::MAX)));
        let packets = t.optional("packets", |n| n.table().and_then(PacketObservation::read));
        let flows = t.or_told("flows", false, |n| n.flag());
        let sequence = t.or_told("sequence", false, |n| n.flag());
        t.finish();
        Some(Self {
            segment: segment?,
            place: place?,
            base: base?,
            packets: packets?,
            flows: flows?,
            sequence: sequence?,
        })
    }
}

impl PacketObservation {
    fn read(mut t: Table<'_>) -> Option<Self> {
        let words = [("all", 0), ("count", 1), ("probability", 2), ("hash", 3)];
        let chosen = t.required("select", |n| {
            n.describe(|| json!({"description": "Which packets are observed."}));
            n.choice(&words)
        });
        let select = match chosen {
            None => None,
            Some(0) => Some(Select::All),
            Some(1) => read_count(&mut t),
            Some(2) => read_probability(&mut t),
            Some(_) => read_hash(&mut t),
        };
        let readers = [read_count, read_probability, read_hash];
        for ((word, _), read) in words.iter().skip(1).zip(readers) {
            t.describe_choice("select", word, |t| {
                let _ = read(t);
                t.node()
                    .describe(|| json!({"required": ["selection_sequence"]}));
            });
        }
        let sequence = t.optional("selection_sequence", |n| {
            n.integer(1..=u64::MAX - u64::from(u16::MAX))
        });
        let max = t.optional("max_per_s", |n| n.integer(1..=1_000_000_000));
        let missing = !matches!(select, None | Some(Select::All)) && sequence == Some(None);
        if missing {
            let node = t.at("selection_sequence");
            node.fail::<()>("a number for the Selection Sequence");
        }
        t.finish();
        if missing {
            return None;
        }
        Some(Self {
            select: select?,
            selection_sequence: sequence?,
            max_per_s: max?,
        })
    }
}

fn read_count(t: &mut Table<'_>) -> Option<Select> {
    let interval = t.or_told("interval", 1, |n| n.integer(1..=u32::MAX));
    let space = t.required("space", |n| n.integer(0..=u32::MAX));
    let (interval, space) = interval.zip(space)?;
    Some(Select::Count { interval, space })
}

fn read_probability(t: &mut Table<'_>) -> Option<Select> {
    t.required("probability", |n| n.number(f64::MIN_POSITIVE..=1.0))
        .map(|probability| Select::Probability { probability })
}

fn read_hash(t: &mut Table<'_>) -> Option<Select> {
    let offset = t.or_told("offset", 0, |n| n.integer(0..=u16::MAX));
    // UDP header and BTH: what differs from packet to packet.
    let size = t.or_told("size", 20, |n| n.integer(1..=u16::MAX));
    let initial = t.or_told("initial", 0, |n| n.integer(0..=u32::MAX));
    let from = t.or_told("from", 0, |n| n.integer(0..=u32::MAX))?;
    let to = t.required("to", |n| n.integer(from..=u32::MAX));
    Some(Select::Hash {
        offset: offset?,
        size: size?,
        initial: initial?,
        from,
        to: to?,
    })
}
