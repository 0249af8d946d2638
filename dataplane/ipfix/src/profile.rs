//! The profiles of the two drafts as templates: which fields, and which of them are Flow Keys. Whether a
//! foreign template conforms, and to which profile it belongs, is in `check`.

mod check;

use crate::element::{Mapping, Private, id};
use crate::template::{Field, Template};

pub use check::{Nonconformity, check, classify};

/// A profile. A template belongs to exactly one (section 4 of the BTH draft).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Profile {
    /// One record for one packet.
    Packet,
    /// One record for an interval of a flow.
    Aggregate,
    /// Snapshots of sequence observation.
    Sequence,
}

impl Profile {
    /// A short stable name, as documents and test data use it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packet => "bth-packet",
            Self::Aggregate => "bth-aggregate",
            Self::Sequence => "seq",
        }
    }
}

/// A template that the exporter uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Packet observation.
    Packet {
        /// IPv6.
        v6: bool,
        /// With selectionSequenceId.
        selection: bool,
    },
    /// Aggregate flows.
    Aggregate {
        /// IPv6.
        v6: bool,
        /// The opcode is a Flow Key.
        opcode: bool,
        /// Counters behind a middlebox function.
        post: bool,
    },
    /// Sequence observation.
    Sequence {
        /// IPv6.
        v6: bool,
        /// The namespace field.
        namespace: Namespace,
    },
}

/// What tells equal addresses of different tenants apart in a sequence report (section 4 of the sequence
/// draft).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum Namespace {
    /// Nothing: addresses, QP and partition key are enough.
    #[default]
    None,
    /// dot1qVlanId.
    Vlan,
    /// layer2SegmentId: the VXLAN network identifier.
    Segment,
}

/// Octets of destination QP and PSN in the BTH profiles (AMB-BTH-QP34).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum QpOctets {
    /// As the draft recommends.
    #[default]
    Three,
    /// For collectors that do not know reduced sizes; the high octet is zero.
    Four,
}

impl QpOctets {
    /// The number.
    pub const fn get(self) -> u16 {
        match self {
            Self::Three => 3,
            Self::Four => 4,
        }
    }
}

impl Kind {
    /// Its profile.
    pub const fn profile(self) -> Profile {
        match self {
            Self::Packet { .. } => Profile::Packet,
            Self::Aggregate { .. } => Profile::Aggregate,
            Self::Sequence { .. } => Profile::Sequence,
        }
    }

    /// The fields in order.
    pub fn fields(self, mapping: &Mapping, qp: QpOctets) -> Vec<Field> {
        let private = |element: Private, length: u16| {
            let (pen, number) = mapping.number(element);
            Field {
                pen,
                number,
                length,
            }
        };
        match self {
            Self::Packet { v6, selection } => packet_fields(v6, selection, qp.get(), private),
            Self::Aggregate { v6, opcode, post } => {
                aggregate_fields(v6, opcode, post, qp.get(), private)
            }
            Self::Sequence { v6, namespace } => sequence_fields(v6, namespace, private),
        }
    }

    /// The template with this identifier.
    pub fn template(self, id: u16, mapping: &Mapping, qp: QpOctets) -> Template {
        Template {
            id,
            scope: 0,
            fields: self.fields(mapping, qp),
        }
    }

    /// flowKeyIndicator: bit n is field n, from the lowest (RFC 7011 section 4.4). Packet observation
    /// has no Flow Keys. AMB-BTH-OPID, AMB-SEQ-KEYS.
    pub fn flow_keys(self) -> u64 {
        match self {
            Self::Packet { .. } => 0,
            // Addresses, ports, protocol, direction, partition key, QP, and the opcode behind them.
            Self::Aggregate { opcode, .. } => (1 << (8 + u32::from(opcode))) - 1,
            // Point, addresses, QP, partition key, epoch; the namespace is the last field.
            Self::Sequence { namespace, .. } => {
                0b1001_1111
                    | if namespace == Namespace::None {
                        0
                    } else {
                        1 << 19
                    }
            }
        }
    }
}

fn addresses(v6: bool) -> [Field; 2] {
    if v6 {
        [
            Field::iana(id::SOURCE_IPV6_ADDRESS, 16),
            Field::iana(id::DESTINATION_IPV6_ADDRESS, 16),
        ]
    } else {
        [
            Field::iana(id::SOURCE_IPV4_ADDRESS, 4),
            Field::iana(id::DESTINATION_IPV4_ADDRESS, 4),
        ]
    }
}

fn packet_fields(
    v6: bool,
    selection: bool,
    qp: u16,
    private: impl Fn(Private, u16) -> Field,
) -> Vec<Field> {
    let mut fields = vec![
        Field::iana(id::OBSERVATION_POINT_ID, 8),
        Field::iana(id::OBSERVATION_TIME_NANOSECONDS, 8),
    ];
    fields.extend(addresses(v6));
    fields.extend([
        Field::iana(id::SOURCE_TRANSPORT_PORT, 2),
        Field::iana(id::DESTINATION_TRANSPORT_PORT, 2),
        Field::iana(id::PROTOCOL_IDENTIFIER, 1),
        Field::iana(id::IP_CLASS_OF_SERVICE, 1),
        Field::iana(id::FLOW_DIRECTION, 1),
    ]);
    if selection {
        fields.push(Field::iana(id::SELECTION_SEQUENCE_ID, 8));
    }
    fields.extend([
        private(Private::Opcode, 1),
        private(Private::PartitionKey, 2),
        private(Private::DestinationQp, qp),
        private(Private::PacketSequenceNumber, qp),
        private(Private::OctetAtOffset1, 1),
        private(Private::OctetAtOffset4, 1),
        private(Private::OctetAtOffset8, 1),
    ]);
    fields
}

fn aggregate_fields(
    v6: bool,
    opcode: bool,
    post: bool,
    qp: u16,
    private: impl Fn(Private, u16) -> Field,
) -> Vec<Field> {
    let mut fields = addresses(v6).to_vec();
    fields.extend([
        Field::iana(id::SOURCE_TRANSPORT_PORT, 2),
        Field::iana(id::DESTINATION_TRANSPORT_PORT, 2),
        Field::iana(id::PROTOCOL_IDENTIFIER, 1),
        Field::iana(id::FLOW_DIRECTION, 1),
        private(Private::PartitionKey, 2),
        private(Private::DestinationQp, qp),
    ]);
    if opcode {
        fields.push(private(Private::Opcode, 1));
    }
    let (packets, octets) = if post {
        (id::POST_PACKET_DELTA_COUNT, id::POST_OCTET_DELTA_COUNT)
    } else {
        (id::PACKET_DELTA_COUNT, id::OCTET_DELTA_COUNT)
    };
    fields.extend([
        Field::iana(id::OBSERVATION_POINT_ID, 8),
        Field::iana(id::FLOW_START_MILLISECONDS, 8),
        Field::iana(id::FLOW_END_MILLISECONDS, 8),
        Field::iana(packets, 8),
        Field::iana(octets, 8),
    ]);
    fields
}

fn sequence_fields(
    v6: bool,
    namespace: Namespace,
    private: impl Fn(Private, u16) -> Field,
) -> Vec<Field> {
    let mut fields = vec![Field::iana(id::OBSERVATION_POINT_ID, 8)];
    fields.extend(addresses(v6));
    fields.extend([
        private(Private::DestinationQp, 4),
        private(Private::PartitionKey, 2),
        Field::iana(id::FLOW_START_MILLISECONDS, 8),
        Field::iana(id::FLOW_END_MILLISECONDS, 8),
        private(Private::EpochId, 8),
        private(Private::ReportId, 8),
        private(Private::Window, 4),
        private(Private::Flags, 2),
        private(Private::Skipped, 8),
        private(Private::Filled, 8),
        private(Private::Expired, 8),
        private(Private::Abandoned, 8),
        private(Private::Pending, 4),
        private(Private::Repeated, 8),
        private(Private::Requests, 8),
        private(Private::UnclassifiedLate, 8),
    ]);
    match namespace {
        Namespace::None => {}
        Namespace::Vlan => fields.push(Field::iana(id::DOT1Q_VLAN_ID, 2)),
        Namespace::Segment => fields.push(Field::iana(id::LAYER2_SEGMENT_ID, 8)),
    }
    fields
}

#[cfg(test)]
mod tests;
