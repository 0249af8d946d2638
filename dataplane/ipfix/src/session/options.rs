//! The options that a session sends: their templates and records (RFC 7011 section 4, RFC 5610, RFC 5476
//! section 6.5, sections 4.2 and 4.3 of the BTH draft).

use crem_meter::Utc;
use crem_meter::select::{Selection, SelectionStats};

use super::config::SelectionSequence;
use crate::element::{Definition, id};
use crate::template::{Field, Template, VARIABLE};

/// Kinds of options. The number is the template identifier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub(super) enum Options {
    /// RFC 5610.
    TypeInformation = 512,
    FlowKeys = 513,
    Timeouts = 514,
    SelectionSequence = 515,
    SelectorCount = 516,
    SelectorProbability = 517,
    SelectorHash = 518,
    SelectionStatistics = 519,
    Accuracy = 520,
    MeteringStatistics = 521,
    MeteringReliability = 522,
    ExportingReliability = 523,
}

/// Packets that a Metering Process did not take into account.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ignored {
    /// ignoredPacketTotalCount.
    pub packets: u64,
    /// ignoredOctetTotalCount, IP octets.
    pub octets: u64,
    /// When the first and the last of them was observed.
    pub times: Option<(Utc, Utc)>,
}

/// Records that were made but not sent to this collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NotSent {
    /// notSentFlowTotalCount: records.
    pub records: u64,
    /// notSentPacketTotalCount: packets of those records.
    pub packets: u64,
    /// notSentOctetTotalCount: IP octets of those packets, as far as they are known.
    pub octets: u64,
    /// When the first and the last of them was dropped.
    pub times: Option<(Utc, Utc)>,
}

impl NotSent {
    /// Adds one record.
    pub fn add(&mut self, now: Utc, packets: u64, octets: u64) {
        self.records = self.records.saturating_add(1);
        self.packets = self.packets.saturating_add(packets);
        self.octets = self.octets.saturating_add(octets);
        let first = self.times.map_or(now, |(first, _)| first);
        self.times = Some((first, now));
    }
}

/// Everything sent to a collector so far, over all sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// exportedMessageTotalCount.
    pub messages: u64,
    /// exportedFlowRecordTotalCount: Data Records without options.
    pub records: u64,
    /// exportedOctetTotalCount.
    pub octets: u64,
}

impl Options {
    /// Its template.
    pub(super) fn template(self) -> Template {
        let (scope, fields): (u16, &[(u16, u16)]) = match self {
            // The order that libfixbuf writes; all nine fields are needed for it to take notice.
            Self::TypeInformation => (
                2,
                &[
                    (id::PRIVATE_ENTERPRISE_NUMBER, 4),
                    (id::INFORMATION_ELEMENT_ID, 2),
                    (id::INFORMATION_ELEMENT_DATA_TYPE, 1),
                    (id::INFORMATION_ELEMENT_SEMANTICS, 1),
                    (id::INFORMATION_ELEMENT_UNITS, 2),
                    (id::INFORMATION_ELEMENT_RANGE_BEGIN, 8),
                    (id::INFORMATION_ELEMENT_RANGE_END, 8),
                    (id::INFORMATION_ELEMENT_NAME, VARIABLE),
                    (id::INFORMATION_ELEMENT_DESCRIPTION, VARIABLE),
                ],
            ),
            Self::FlowKeys => (1, &[(id::TEMPLATE_ID, 2), (id::FLOW_KEY_INDICATOR, 8)]),
            Self::Timeouts => (
                1,
                &[
                    (id::OBSERVATION_DOMAIN_ID, 4),
                    (id::FLOW_ACTIVE_TIMEOUT, 2),
                    (id::FLOW_IDLE_TIMEOUT, 2),
                ],
            ),
            Self::SelectionSequence => (
                1,
                &[
                    (id::SELECTION_SEQUENCE_ID, 8),
                    (id::OBSERVATION_POINT_ID, 8),
                    (id::SELECTOR_ID, 8),
                ],
            ),
            Self::SelectorCount => (
                1,
                &[
                    (id::SELECTOR_ID, 8),
                    (id::SELECTOR_ALGORITHM, 2),
                    (id::SAMPLING_PACKET_INTERVAL, 4),
                    (id::SAMPLING_PACKET_SPACE, 4),
                ],
            ),
            Self::SelectorProbability => (
                1,
                &[
                    (id::SELECTOR_ID, 8),
                    (id::SELECTOR_ALGORITHM, 2),
                    (id::SAMPLING_PROBABILITY, 8),
                ],
            ),
            Self::SelectorHash => (
                1,
                &[
                    (id::SELECTOR_ID, 8),
                    (id::SELECTOR_ALGORITHM, 2),
                    (id::HASH_IP_PAYLOAD_OFFSET, 8),
                    (id::HASH_IP_PAYLOAD_SIZE, 8),
                    (id::HASH_OUTPUT_RANGE_MIN, 8),
                    (id::HASH_OUTPUT_RANGE_MAX, 8),
                    (id::HASH_SELECTED_RANGE_MIN, 8),
                    (id::HASH_SELECTED_RANGE_MAX, 8),
                    (id::HASH_DIGEST_OUTPUT, 1),
                    (id::HASH_INITIALISER_VALUE, 8),
                ],
            ),
            Self::SelectionStatistics => (
                1,
                &[
                    (id::SELECTION_SEQUENCE_ID, 8),
                    (id::SELECTOR_ID_TOTAL_PKTS_OBSERVED, 8),
                    (id::SELECTOR_ID_TOTAL_PKTS_SELECTED, 8),
                ],
            ),
            Self::Accuracy => (
                2,
                &[
                    (id::TEMPLATE_ID, 2),
                    (id::INFORMATION_ELEMENT_ID, 2),
                    (id::ABSOLUTE_ERROR, 8),
                ],
            ),
            Self::MeteringStatistics => (
                2,
                &[
                    (id::OBSERVATION_DOMAIN_ID, 4),
                    (id::METERING_PROCESS_ID, 4),
                    (id::EXPORTED_MESSAGE_TOTAL_COUNT, 8),
                    (id::EXPORTED_FLOW_RECORD_TOTAL_COUNT, 8),
                    (id::EXPORTED_OCTET_TOTAL_COUNT, 8),
                ],
            ),
            Self::MeteringReliability => (
                2,
                &[
                    (id::OBSERVATION_DOMAIN_ID, 4),
                    (id::METERING_PROCESS_ID, 4),
                    (id::IGNORED_PACKET_TOTAL_COUNT, 8),
                    (id::IGNORED_OCTET_TOTAL_COUNT, 8),
                    (id::OBSERVATION_TIME_MILLISECONDS, 8),
                    (id::OBSERVATION_TIME_MILLISECONDS, 8),
                ],
            ),
            Self::ExportingReliability => (
                1,
                &[
                    (id::EXPORTING_PROCESS_ID, 4),
                    (id::NOT_SENT_FLOW_TOTAL_COUNT, 8),
                    (id::NOT_SENT_PACKET_TOTAL_COUNT, 8),
                    (id::NOT_SENT_OCTET_TOTAL_COUNT, 8),
                    (id::OBSERVATION_TIME_MILLISECONDS, 8),
                    (id::OBSERVATION_TIME_MILLISECONDS, 8),
                ],
            ),
        };
        let fields = fields
            .iter()
            .map(|&(number, length)| Field::iana(number, length))
            .collect();
        Template {
            id: self as u16,
            scope,
            fields,
        }
    }

    /// The kind that describes a Selector; `None` if every packet is taken.
    pub(super) const fn of_selector(selection: &Selection) -> Option<Self> {
        match selection {
            Selection::All => None,
            Selection::Count { .. } => Some(Self::SelectorCount),
            Selection::Probability(_) => Some(Self::SelectorProbability),
            Selection::Hash { .. } => Some(Self::SelectorHash),
        }
    }
}

/// Appends a record of [`Options::TypeInformation`]. The type is that of the definition, whatever the
/// length on the wire.
pub(super) fn type_information(pen: u32, number: u16, of: &Definition, out: &mut Vec<u8>) {
    out.extend_from_slice(&pen.to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    out.push(of.data_type as u8);
    out.push(of.semantics as u8);
    out.extend_from_slice(&(of.units as u16).to_be_bytes());
    out.extend_from_slice(&0u64.to_be_bytes());
    // 0 and 0 stand for the whole range of the type.
    out.extend_from_slice(&of.max.unwrap_or(0).to_be_bytes());
    for text in [of.name, of.description] {
        let text = &text.as_bytes()[..text.len().min(254)];
        out.push(text.len() as u8);
        out.extend_from_slice(text);
    }
}

/// Octets of such a record.
pub(super) fn type_information_len(of: &Definition) -> usize {
    26 + 2 + of.name.len().min(254) + of.description.len().min(254)
}

/// Appends the record of a Selector (RFC 5476 section 6.5.2, algorithms of the registry).
pub(super) fn selector(sequence: &SelectionSequence, out: &mut Vec<u8>) {
    const COUNT: u16 = 1;
    const PROBABILITY: u16 = 4;
    const BOB: u16 = 6;
    out.extend_from_slice(&sequence.id.to_be_bytes());
    match sequence.selection {
        Selection::All => {}
        Selection::Count { interval, space } => {
            out.extend_from_slice(&COUNT.to_be_bytes());
            out.extend_from_slice(&interval.to_be_bytes());
            out.extend_from_slice(&space.to_be_bytes());
        }
        Selection::Probability(probability) => {
            out.extend_from_slice(&PROBABILITY.to_be_bytes());
            out.extend_from_slice(&probability.to_be_bytes());
        }
        Selection::Hash {
            offset,
            size,
            initial,
            from,
            to,
        } => {
            out.extend_from_slice(&BOB.to_be_bytes());
            let numbers = [
                offset.into(),
                size.into(),
                0,
                u64::from(u32::MAX),
                from.into(),
                to.into(),
            ];
            for number in numbers {
                out.extend_from_slice(&number.to_be_bytes());
            }
            // hashDigestOutput is false, which is 2: the hash is not exported.
            out.push(2);
            out.extend_from_slice(&u64::from(initial).to_be_bytes());
        }
    }
}

/// Appends numbers of eight octets each.
pub(super) fn numbers(numbers: &[u64], out: &mut Vec<u8>) {
    for number in numbers {
        out.extend_from_slice(&number.to_be_bytes());
    }
}

/// Appends the record of a Selection Sequence's statistics.
pub(super) fn statistics(sequence: u64, stats: &SelectionStats, out: &mut Vec<u8>) {
    numbers(&[sequence, stats.observed, stats.selected], out);
}
