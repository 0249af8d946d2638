//! Whether a template conforms to a profile, and which profile it is meant for.

use std::fmt;

use super::{Kind, Namespace, Profile, QpOctets};
use crate::element::{Mapping, Private, id};
use crate::template::Field;

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
            let optional = field.pen == 0 && address;
            if !present && !optional {
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
            let allowed = ours || (field.pen == 0 && other.contains(&field.number));
            if !allowed {
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
