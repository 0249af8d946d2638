//! Packet observation (section 4.2 of the BTH draft): one record for one packet, with selection and a
//! limit on the rate.

use crate::point::Point;
use crate::scope::Observation;
use crate::select::{RateLimit, Selection, SelectionError, SelectionStats, Selector};
use crate::{PacketRecord, Sink, Utc};

/// How single packets are observed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PacketConfig {
    /// Which packets are selected.
    pub selection: Selection,
    /// selectionSequenceId, unique in the Observation Domain; only used with a selection.
    pub selection_sequence: u64,
    /// Most records per second, `None` for no limit. What exceeds it is dropped and counted.
    pub rate_limit: Option<u64>,
    /// For random selection: the same seed selects the same packets.
    pub seed: u64,
}

/// What became of observed packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketCounters {
    /// Records made and taken.
    pub records: u64,
    /// Selected packets without a record because of the rate limit.
    pub rate_limited: u64,
    /// IP octets of those.
    pub rate_limited_octets: u64,
    /// Records that the sink did not take.
    pub lost_records: u64,
    /// IP octets of those.
    pub lost_octets: u64,
}

/// Observes single packets at one point.
#[derive(Clone, Debug)]
pub struct PacketObserver {
    point: Point,
    selector: Selector,
    selection: Option<u64>,
    limit: RateLimit,
    counters: PacketCounters,
}

impl PacketObserver {
    /// An observer that has seen nothing.
    ///
    /// # Errors
    /// A selection that cannot be meant.
    pub fn new(point: Point, config: &PacketConfig) -> Result<Self, SelectionError> {
        config.selection.check()?;
        let active = config.selection.is_active();
        Ok(Self {
            point,
            selector: Selector::new(config.selection, config.seed),
            selection: active.then_some(config.selection_sequence),
            limit: RateLimit::new(config.rate_limit),
            counters: PacketCounters::default(),
        })
    }

    /// Observes a packet; `ip_payload` is what is behind its IP header.
    #[inline]
    pub fn packet(
        &mut self,
        now: Utc,
        packet: &Observation,
        ip_payload: &[u8],
        sink: &mut impl Sink,
    ) {
        if !self.selector.select(ip_payload) {
            return;
        }
        let octets = u64::from(packet.ip_octets);
        if !self.limit.take(now) {
            self.counters.rate_limited += 1;
            self.counters.rate_limited_octets += octets;
            return;
        }
        let record = PacketRecord {
            point: self.point.id,
            time: now,
            source: packet.source,
            destination: packet.destination,
            source_port: packet.source_port,
            destination_port: packet.destination_port,
            tos: packet.tos,
            direction: self.point.place.direction(),
            selection: self.selection,
            bth: packet.bth,
        };
        if sink.packet(&record) {
            self.counters.records += 1;
        } else {
            self.counters.lost_records += 1;
            self.counters.lost_octets += octets;
        }
    }

    /// Another limit of the export rate; what selection has seen stays.
    pub(crate) fn set_rate_limit(&mut self, per_second: Option<u64>) {
        self.limit = RateLimit::new(per_second);
    }

    /// The Selection Sequence and what it has seen, at this point in time; `None` if every packet is
    /// taken.
    pub fn selection(&self) -> Option<(u64, SelectionStats)> {
        self.selection
            .map(|sequence| (sequence, self.selector.stats()))
    }

    /// What happened so far.
    pub const fn counters(&self) -> &PacketCounters {
        &self.counters
    }
}
