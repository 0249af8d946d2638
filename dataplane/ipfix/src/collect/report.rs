//! A sequence report as a collector sees it, and the checks that need nothing but the report itself.

use std::net::IpAddr;

use crem_meter::seq::{Counts, Flags, Window};

use crate::decode::DataRecord;
use crate::element::{Mapping, Private, id};
use crate::value::Value;

/// The full key of an epoch, without its number and the outer context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ReportKey {
    /// observationPointId.
    pub point: u64,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// rocev2BthDestinationQp.
    pub qp: u32,
    /// rocev2BthPartitionKey.
    pub pkey: u16,
    /// dot1qVlanId, if the template has it.
    pub vlan: Option<u16>,
    /// layer2SegmentId, if the template has it.
    pub segment: Option<u64>,
}

/// A sequence report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// The key.
    pub key: ReportKey,
    /// rdmaSequenceEpochId.
    pub epoch: u64,
    /// rdmaSequenceReportId.
    pub report: u64,
    /// rdmaSequenceWindow, positions.
    pub window: u32,
    /// rdmaSequenceFlags.
    pub flags: Flags,
    /// flowStartMilliseconds.
    pub start: u64,
    /// flowEndMilliseconds.
    pub end: u64,
    /// The counters.
    pub counts: Counts,
}

/// A record that is no sequence report: this element is missing or has no value of its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a sequence report: {0}")]
pub struct NotAReport(pub &'static str);

impl Report {
    /// Reads a report from a record.
    ///
    /// # Errors
    /// The first element that is missing.
    pub fn read(record: &DataRecord<'_>, mapping: &Mapping) -> Result<Self, NotAReport> {
        let mut report = Self::empty();
        let mut seen = [false; Private::COUNT];
        let (mut source, mut destination, mut point) = (None, None, None);
        let (mut start, mut end) = (None, None);
        for (field, octets) in record.fields() {
            let Some(definition) = mapping.definition(field.pen, field.number) else {
                continue;
            };
            let value = Value::decode(definition.data_type, octets);
            if let Some(element) = mapping.private(field.pen, field.number) {
                let number = value.as_u64().ok_or(NotAReport(definition.name))?;
                seen[element as usize] = report.set(element, number);
                continue;
            }
            match (field.number, value) {
                (id::OBSERVATION_POINT_ID, Value::Unsigned(number)) => point = Some(number),
                (id::SOURCE_IPV4_ADDRESS | id::SOURCE_IPV6_ADDRESS, Value::Address(address)) => {
                    source = Some(address);
                }
                (
                    id::DESTINATION_IPV4_ADDRESS | id::DESTINATION_IPV6_ADDRESS,
                    Value::Address(address),
                ) => destination = Some(address),
                (id::FLOW_START_MILLISECONDS, Value::Millis(time)) => start = Some(time),
                (id::FLOW_END_MILLISECONDS, Value::Millis(time)) => end = Some(time),
                (id::DOT1Q_VLAN_ID, Value::Unsigned(vlan)) => report.key.vlan = Some(vlan as u16),
                (id::LAYER2_SEGMENT_ID, Value::Unsigned(id)) => report.key.segment = Some(id),
                _ => {}
            }
        }
        report.key.point = point.ok_or(NotAReport("observationPointId"))?;
        report.key.source = source.ok_or(NotAReport("source address"))?;
        report.key.destination = destination.ok_or(NotAReport("destination address"))?;
        report.start = start.ok_or(NotAReport("flowStartMilliseconds"))?;
        report.end = end.ok_or(NotAReport("flowEndMilliseconds"))?;
        let needed = |element: &Private| {
            element.is_sequence()
                || matches!(element, Private::DestinationQp | Private::PartitionKey)
        };
        for (element, definition) in crate::element::PRIVATE {
            if needed(element) && !seen[*element as usize] {
                return Err(NotAReport(definition.name));
            }
        }
        Ok(report)
    }

    fn empty() -> Self {
        let unspecified = IpAddr::from([0, 0, 0, 0]);
        Self {
            key: ReportKey {
                point: 0,
                source: unspecified,
                destination: unspecified,
                qp: 0,
                pkey: 0,
                vlan: None,
                segment: None,
            },
            epoch: 0,
            report: 0,
            window: 0,
            flags: Flags::NONE,
            start: 0,
            end: 0,
            counts: Counts::default(),
        }
    }

    /// Sets a field; `false` if the element is none of a report.
    fn set(&mut self, element: Private, value: u64) -> bool {
        match element {
            Private::DestinationQp => self.key.qp = value as u32,
            Private::PartitionKey => self.key.pkey = value as u16,
            Private::EpochId => self.epoch = value,
            Private::ReportId => self.report = value,
            Private::Window => self.window = value as u32,
            Private::Flags => self.flags = Flags(value as u16),
            Private::Skipped => self.counts.skipped = value,
            Private::Filled => self.counts.filled = value,
            Private::Expired => self.counts.expired = value,
            Private::Abandoned => self.counts.abandoned = value,
            Private::Pending => self.counts.pending = value as u32,
            Private::Repeated => self.counts.repeated = value,
            Private::Requests => self.counts.requests = value,
            Private::UnclassifiedLate => self.counts.unclassified_late = value,
            _ => return false,
        }
        true
    }

    /// Whether it closes its epoch.
    pub const fn is_final(&self) -> bool {
        self.flags.contains(Flags::FINAL)
    }

    /// Whether ranges, flags and arithmetic hold (sections 5, 7 and 8 of the sequence draft). Unassigned
    /// flags are another matter.
    pub fn is_valid(&self) -> bool {
        let window = (1..=Window::MAX_WIDTH).contains(&self.window);
        let closure = if self.is_final() {
            self.counts.pending == 0
        } else {
            self.counts.abandoned == 0 && !self.flags.intersects(Flags::REASONS)
        };
        self.epoch > 0
            && self.report > 0
            && window
            && self.key.qp <= 0x00ff_ffff
            && self.start <= self.end
            && closure
            && self.counts.is_consistent(self.window)
    }
}
