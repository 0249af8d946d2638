//! The profiles of the two drafts as templates: which fields, which are Flow Keys, whether a foreign
//! template conforms, and to which profile it belongs.

use std::fmt;

use crate::element::{Mapping, Private, id};
use crate::template::{Field, Template};

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

/// Why a template does not conform to a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nonconformity {
    /// An element that every record needs.
    Missing(&'static str),
    /// An element that has no meaning in the profile.
    Forbidden(&'static str),
    /// An element twice.
    Duplicate(&'static str),
    /// An element that the profile does not have, by PEN and number.
    Unexpected(u32, u16),
    /// Addresses of both families.
    Families,
    /// selectionSequenceId without a Selection Process, or none with one.
    Selection,
    /// Neither packet nor octet counter of one kind, or of both kinds.
    Counters,
}

impl fmt::Display for Nonconformity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => write!(f, "missing {name}"),
            Self::Forbidden(name) => write!(f, "forbidden {name}"),
            Self::Duplicate(name) => write!(f, "duplicate {name}"),
            Self::Unexpected(pen, number) => write!(f, "unexpected element {pen}/{number}"),
            Self::Families => f.write_str("two address families"),
            Self::Selection => f.write_str("selectionSequenceId presence"),
            Self::Counters => f.write_str("counters before and after a middlebox mixed"),
        }
    }
}

/// The profile that a template with these fields is meant for; `None` if it is none of ours.
pub fn classify(fields: &[Field], mapping: &Mapping) -> Option<Profile> {
    let privates = || {
        fields
            .iter()
            .filter_map(|field| mapping.private(field.pen, field.number))
    };
    if privates().any(Private::is_sequence) {
        return Some(Profile::Sequence);
    }
    privates().next()?;
    let has = |number| {
        fields
            .iter()
            .any(|field| field.pen == 0 && field.number == number)
    };
    if OBSERVATION_TIMES.iter().any(|number| has(*number)) {
        return Some(Profile::Packet);
    }
    if COUNTERS.iter().any(|number| has(*number)) || FLOW_TIMES.iter().any(|number| has(*number)) {
        return Some(Profile::Aggregate);
    }
    None
}

const OBSERVATION_TIMES: [u16; 4] = [
    id::OBSERVATION_TIME_SECONDS,
    id::OBSERVATION_TIME_MILLISECONDS,
    id::OBSERVATION_TIME_MICROSECONDS,
    id::OBSERVATION_TIME_NANOSECONDS,
];
const COUNTERS: [u16; 4] = [
    id::OCTET_DELTA_COUNT,
    id::PACKET_DELTA_COUNT,
    id::POST_OCTET_DELTA_COUNT,
    id::POST_PACKET_DELTA_COUNT,
];
const FLOW_TIMES: [u16; 2] = [id::FLOW_START_MILLISECONDS, id::FLOW_END_MILLISECONDS];
const CONTEXT: [u16; 4] = [
    id::SOURCE_TRANSPORT_PORT,
    id::DESTINATION_TRANSPORT_PORT,
    id::PROTOCOL_IDENTIFIER,
    id::FLOW_DIRECTION,
];

/// Whether fields conform to a profile; `selection` says whether a Selection Process is active. All that
/// is wrong, in the order of the rules.
pub fn check(
    fields: &[Field],
    profile: Profile,
    selection: bool,
    mapping: &Mapping,
) -> Vec<Nonconformity> {
    let mut check = Check {
        fields,
        mapping,
        found: Vec::new(),
    };
    match profile {
        Profile::Packet => check.packet(),
        Profile::Aggregate => check.aggregate(),
        Profile::Sequence => check.sequence(),
    }
    check.addresses();
    if profile != Profile::Sequence && check.has(id::SELECTION_SEQUENCE_ID) != selection {
        check.found.push(Nonconformity::Selection);
    }
    check.duplicates();
    check.found
}

struct Check<'a> {
    fields: &'a [Field],
    mapping: &'a Mapping,
    found: Vec<Nonconformity>,
}

impl Check<'_> {
    fn has(&self, number: u16) -> bool {
        self.fields
            .iter()
            .any(|field| field.pen == 0 && field.number == number)
    }

    fn has_private(&self, element: Private) -> bool {
        let number = self.mapping.number(element);
        self.fields
            .iter()
            .any(|field| (field.pen, field.number) == number)
    }

    fn name(&self, number: u16) -> &'static str {
        self.mapping
            .definition(0, number)
            .map_or("", |definition| definition.name)
    }

    fn need(&mut self, numbers: &[u16]) {
        for number in numbers {
            if !self.has(*number) {
                self.found.push(Nonconformity::Missing(self.name(*number)));
            }
        }
    }

    fn need_private(&mut self, elements: &[Private]) {
        for element in elements {
            if !self.has_private(*element) {
                self.found
                    .push(Nonconformity::Missing(element.definition().name));
            }
        }
    }

    fn forbid(&mut self, numbers: &[u16]) {
        for number in numbers {
            if self.has(*number) {
                self.found
                    .push(Nonconformity::Forbidden(self.name(*number)));
            }
        }
    }

    fn packet(&mut self) {
        let times = OBSERVATION_TIMES
            .iter()
            .filter(|number| self.has(**number))
            .count();
        if times == 0 {
            self.need(&[id::OBSERVATION_TIME_NANOSECONDS]);
        }
        if times > 1 {
            self.found
                .push(Nonconformity::Duplicate("observationTimeNanoseconds"));
        }
        self.need(&[id::OBSERVATION_POINT_ID]);
        self.need(&CONTEXT);
        self.need(&[id::IP_CLASS_OF_SERVICE]);
        self.forbid(&COUNTERS);
        self.forbid(&FLOW_TIMES);
        self.no_sequence();
    }

    fn aggregate(&mut self) {
        self.need(&CONTEXT);
        self.need_private(&[Private::PartitionKey, Private::DestinationQp]);
        self.need(&FLOW_TIMES);
        let [octets, packets, post_octets, post_packets] = COUNTERS.map(|number| self.has(number));
        match (octets || packets, post_octets || post_packets) {
            (true, true) => self.found.push(Nonconformity::Counters),
            (false, true) => self.need(&[id::POST_PACKET_DELTA_COUNT, id::POST_OCTET_DELTA_COUNT]),
            _ => self.need(&[id::PACKET_DELTA_COUNT, id::OCTET_DELTA_COUNT]),
        }
        for element in [
            Private::PacketSequenceNumber,
            Private::OctetAtOffset1,
            Private::OctetAtOffset4,
            Private::OctetAtOffset8,
        ] {
            if self.has_private(element) {
                self.found
                    .push(Nonconformity::Forbidden(element.definition().name));
            }
        }
        self.forbid(&OBSERVATION_TIMES);
        self.no_sequence();
    }

    fn no_sequence(&mut self) {
        for field in self.fields {
            if let Some(element) = self.mapping.private(field.pen, field.number)
                && element.is_sequence()
            {
                self.found
                    .push(Nonconformity::Forbidden(element.definition().name));
            }
        }
    }

    /// Exactly the fields of the profile, and declared namespace fields (AMB-COL-TMPL).
    fn sequence(&mut self) {
        let kind = Kind::Sequence {
            v6: false,
            namespace: Namespace::None,
        };
        let all = kind.fields(self.mapping, QpOctets::Four);
        for field in &all {
            let present = self
                .fields
                .iter()
                .any(|other| (other.pen, other.number) == (field.pen, field.number));
            let address =
                [id::SOURCE_IPV4_ADDRESS, id::DESTINATION_IPV4_ADDRESS].contains(&field.number);
            if !present && !(field.pen == 0 && address) {
                let name = field.name(self.mapping).unwrap_or_default();
                self.found.push(Nonconformity::Missing(name));
            }
        }
        for field in self.fields {
            let ours = all
                .iter()
                .any(|other| (other.pen, other.number) == (field.pen, field.number));
            let other = [
                id::SOURCE_IPV6_ADDRESS,
                id::DESTINATION_IPV6_ADDRESS,
                id::DOT1Q_VLAN_ID,
                id::LAYER2_SEGMENT_ID,
            ];
            if !ours && !(field.pen == 0 && other.contains(&field.number)) {
                self.found.push(match field.name(self.mapping) {
                    Some(name) => Nonconformity::Forbidden(name),
                    None => Nonconformity::Unexpected(field.pen, field.number),
                });
            }
        }
    }

    /// Both addresses, of one family.
    fn addresses(&mut self) {
        let v4 = self.has(id::SOURCE_IPV4_ADDRESS) || self.has(id::DESTINATION_IPV4_ADDRESS);
        let v6 = self.has(id::SOURCE_IPV6_ADDRESS) || self.has(id::DESTINATION_IPV6_ADDRESS);
        match (v4, v6) {
            (true, true) => self.found.push(Nonconformity::Families),
            (false, true) => {
                self.need(&[id::SOURCE_IPV6_ADDRESS, id::DESTINATION_IPV6_ADDRESS]);
            }
            _ => self.need(&[id::SOURCE_IPV4_ADDRESS, id::DESTINATION_IPV4_ADDRESS]),
        }
    }

    fn duplicates(&mut self) {
        for (place, field) in self.fields.iter().enumerate() {
            let number = (field.pen, field.number);
            let before = &self.fields[..place];
            let padding = number == (0, id::PADDING_OCTETS);
            if !padding
                && before
                    .iter()
                    .any(|other| (other.pen, other.number) == number)
            {
                self.found.push(match field.name(self.mapping) {
                    Some(name) => Nonconformity::Duplicate(name),
                    None => Nonconformity::Unexpected(field.pen, field.number),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
