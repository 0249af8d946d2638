//! Connections whose sequence is observed, and what their provisioning has to state.

use serde::Serialize;
use serde_json::json;

use super::{Tags, read_network};
use crate::net::Prefix;
use crate::read::{Node, Table};

/// Most of them: a request of none is compared with all.
pub(super) const MAX: usize = 4096;
/// Largest W, positions.
const MAX_WINDOW: u32 = 1 << 22;

/// A connection, or all connections of a kind, whose sequence is observed (section 3 of the sequence
/// draft). Nothing of what is stated here can be seen from packets.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Connection {
    /// Source addresses of the requests.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub source: Prefix,
    /// Destination addresses.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub destination: Prefix,
    /// Destination QP; any but 0 and 1 without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qp: Option<u32>,
    /// Partition key; any without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pkey: Option<u16>,
    /// VLAN tags.
    #[serde(flatten)]
    pub tags: Tags,
    /// W, positions.
    pub window: u32,
    /// Names the generation of the connection, where something but the packets tells it. A change closes
    /// the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Stated: only SEND and WRITE requests, by what the endpoints do.
    pub only_send_and_write: bool,
    /// Stated: the point sees all paths, and the key names one connection.
    pub complete_and_unambiguous: bool,
    /// Stated: packets a second at most.
    pub packets_per_s: u64,
    /// Stated: a retransmission comes at most so late, milliseconds.
    pub longest_retry_ms: u32,
}

impl Connection {
    pub(super) fn read(mut t: Table<'_>) -> Option<Self> {
        let source = t.required("source", read_network);
        let destination = t.required("destination", read_network);
        let qp = t.optional("qp", |n| n.integer(2..=0x00ff_ffff));
        let pkey = t.optional("pkey", |n| n.integer(0..=u16::MAX));
        let tags = Tags::read(&mut t);
        let window = t.or_told("window", 4096, |n| n.integer(1..=MAX_WINDOW));
        let generation = t.optional("generation", |n| n.integer(0..=u64::MAX));
        let operations = t.required("only_send_and_write", stated);
        let coverage = t.required("complete_and_unambiguous", stated);
        let rate = t.required("packets_per_s", |n| n.integer(1..=10_000_000_000));
        let retry = t.required("longest_retry_ms", |n| n.integer(0..=600_000));
        t.finish();
        Some(Self {
            source: source?,
            destination: destination?,
            qp: qp?,
            pkey: pkey?,
            tags: tags?,
            window: window?,
            generation: generation?,
            only_send_and_write: operations?,
            complete_and_unambiguous: coverage?,
            packets_per_s: rate?,
            longest_retry_ms: retry?,
        })
    }

    /// Packets that may lie between a packet and its retransmission, as stated.
    pub fn packets_of_retry(&self) -> u64 {
        let late = u128::from(self.packets_per_s) * u128::from(self.longest_retry_ms) / 1000;
        u64::try_from(late).unwrap_or(u64::MAX)
    }

    /// Whether it names one connection.
    pub fn is_one(&self) -> bool {
        let host =
            |prefix: &Prefix| prefix.length() == if prefix.address().is_ipv4() { 32 } else { 128 };
        host(&self.source)
            && host(&self.destination)
            && self.qp.is_some()
            && self.pkey.is_some()
            && !self.tags.any_tags
    }
}

/// What has to be stated has no default, and nothing but `true` will do.
fn stated(node: &Node<'_>) -> Option<bool> {
    node.describe(|| json!({"const": true}));
    if node.flag()? {
        Some(true)
    } else {
        node.fail("true: without it the sequence draft does not permit the observation")
    }
}
