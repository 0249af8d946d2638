//! The mapping of the drafts' elements to enterprise-specific numbers (AMB-BTH-PEN). Exporter and
//! collector use the same one; there is no default, because no number is assigned.

use super::{Definition, IANA, PRIVATE, Private};

/// The PEN of reverse elements (RFC 5103); never an exporter's own.
const REVERSE_PEN: u32 = 29305;

/// Which number each of the drafts' elements has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// PEN and number, in the order of [`Private`].
    numbers: [(u32, u16); Private::COUNT],
    /// The same, sorted for looking up.
    sorted: Vec<(u32, u16, Private)>,
}

/// Why a mapping cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MappingError {
    /// No such element in the drafts.
    #[error("{0}: no such element")]
    Unknown(String),
    /// An element without a number.
    #[error("{0}: no number given")]
    Missing(&'static str),
    /// A PEN that is nobody's own.
    #[error("private enterprise number {0}: 0 and 29305 cannot be used")]
    Pen(u32),
    /// A number that is not 1 to 32767.
    #[error("{0}: number {1}, expected 1 to 32767")]
    Number(&'static str, u16),
    /// Two elements with one number.
    #[error("{0} and {1} have the same number")]
    Twice(&'static str, &'static str),
}

impl Mapping {
    /// The mapping that these triples of name, PEN and number give; every element of the drafts has to
    /// be there.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn new<'a>(
        entries: impl IntoIterator<Item = (&'a str, u32, u16)>,
    ) -> Result<Self, MappingError> {
        let mut numbers = [(0, 0); Private::COUNT];
        for (name, pen, number) in entries {
            let element =
                Private::from_name(name).ok_or_else(|| MappingError::Unknown(name.to_owned()))?;
            if pen == 0 || pen == REVERSE_PEN {
                return Err(MappingError::Pen(pen));
            }
            if number == 0 || number > 0x7fff {
                return Err(MappingError::Number(element.definition().name, number));
            }
            numbers[element as usize] = (pen, number);
        }
        let mut sorted = Vec::with_capacity(Private::COUNT);
        for (element, definition) in PRIVATE {
            let (pen, number) = numbers[*element as usize];
            if number == 0 {
                return Err(MappingError::Missing(definition.name));
            }
            sorted.push((pen, number, *element));
        }
        sorted.sort_unstable();
        for pair in sorted.windows(2) {
            if let [(pen, number, first), (pen2, number2, second)] = pair
                && (pen, number) == (pen2, number2)
            {
                let name = |element: &Private| element.definition().name;
                return Err(MappingError::Twice(name(first), name(second)));
            }
        }
        Ok(Self { numbers, sorted })
    }

    /// Numbers from `first` on under one PEN: the BTH elements get `first` to `first + 6`, those of the
    /// sequence profile `first + 100` to `first + 111`.
    ///
    /// # Errors
    /// A PEN that cannot be used, or numbers beyond 32767.
    pub fn consecutive(pen: u32, first: u16) -> Result<Self, MappingError> {
        let number = |element: &Private| {
            let place = *element as u16;
            let offset = if element.is_sequence() {
                place + 93
            } else {
                place
            };
            first.saturating_add(offset)
        };
        Self::new(
            PRIVATE
                .iter()
                .map(|(e, definition)| (definition.name, pen, number(e))),
        )
    }

    /// PEN and number of an element.
    pub const fn number(&self, element: Private) -> (u32, u16) {
        self.numbers[element as usize]
    }

    /// The element of the drafts that has this number.
    pub fn private(&self, pen: u32, number: u16) -> Option<Private> {
        let at = self
            .sorted
            .binary_search_by_key(&(pen, number), |(pen, number, _)| (*pen, *number))
            .ok()?;
        Some(self.sorted[at].2)
    }

    /// The definition of an element by PEN (0 for registered ones) and number; `None` if we do not know
    /// it.
    pub fn definition(&self, pen: u32, number: u16) -> Option<&'static Definition> {
        if pen != 0 {
            return self.private(pen, number).map(Private::definition);
        }
        let at = IANA
            .binary_search_by_key(&number, |(number, _)| *number)
            .ok()?;
        Some(&IANA[at].1)
    }

    /// PEN and number of the element of this name.
    pub fn by_name(&self, name: &str) -> Option<(u32, u16)> {
        if let Some(element) = Private::from_name(name) {
            return Some(self.number(element));
        }
        let (number, _) = IANA
            .iter()
            .find(|(_, definition)| definition.name == name)?;
        Some((0, *number))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::element::id;

    #[test]
    fn consecutive_numbers() {
        let mapping = Mapping::consecutive(32473, 1).unwrap();
        assert_eq!(mapping.number(Private::Opcode), (32473, 1));
        assert_eq!(mapping.number(Private::OctetAtOffset8), (32473, 7));
        assert_eq!(mapping.number(Private::EpochId), (32473, 101));
        assert_eq!(mapping.number(Private::UnclassifiedLate), (32473, 112));
        assert_eq!(mapping.private(32473, 3), Some(Private::DestinationQp));
        assert_eq!(mapping.private(32473, 8), None);
        assert_eq!(mapping.private(1, 3), None);
        assert_eq!(mapping.by_name("rdmaSequenceFlags"), Some((32473, 104)));
        assert_eq!(
            mapping.by_name("observationPointId"),
            Some((0, id::OBSERVATION_POINT_ID))
        );
    }

    // shows: SEQ-IANA-01, SEQ-IANA-02
    #[test]
    fn what_cannot_be_used_is_refused() {
        assert_eq!(Mapping::consecutive(0, 1), Err(MappingError::Pen(0)));
        assert_eq!(
            Mapping::consecutive(29305, 1),
            Err(MappingError::Pen(29305))
        );
        assert!(matches!(
            Mapping::consecutive(1, 32760),
            Err(MappingError::Number(..))
        ));
        assert!(matches!(
            Mapping::consecutive(1, 0),
            Err(MappingError::Number(_, 0))
        ));
        let one = [("rocev2BthOpcode", 1, 1)];
        assert_eq!(
            Mapping::new(one),
            Err(MappingError::Missing("rocev2BthPartitionKey"))
        );
        assert!(matches!(
            Mapping::new([("weather", 1, 1)]),
            Err(MappingError::Unknown(_))
        ));
        let same = PRIVATE
            .iter()
            .map(|(_, definition)| (definition.name, 1, 1));
        assert!(matches!(Mapping::new(same), Err(MappingError::Twice(..))));
    }

    #[test]
    fn tables_are_in_order_and_names_unique() {
        assert!(IANA.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (place, (element, _)) in PRIVATE.iter().enumerate() {
            assert_eq!(*element as usize, place);
        }
        let mut names: Vec<&str> = IANA.iter().map(|(_, d)| d.name).collect();
        names.extend(PRIVATE.iter().map(|(_, d)| d.name));
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    // shows: BTH-IE-18, BTH-COR-03
    #[test]
    fn constants_name_the_table() {
        let named = [
            (id::OCTET_DELTA_COUNT, "octetDeltaCount"),
            (id::FLOW_KEY_INDICATOR, "flowKeyIndicator"),
            (id::SELECTOR_ALGORITHM, "selectorAlgorithm"),
            (
                id::OBSERVATION_TIME_NANOSECONDS,
                "observationTimeNanoseconds",
            ),
            (id::HASH_INITIALISER_VALUE, "hashInitialiserValue"),
            (id::PRIVATE_ENTERPRISE_NUMBER, "privateEnterpriseNumber"),
            (id::LAYER2_SEGMENT_ID, "layer2SegmentId"),
        ];
        let mapping = Mapping::consecutive(32473, 1).unwrap();
        for (number, name) in named {
            assert_eq!(mapping.definition(0, number).unwrap().name, name);
        }
    }
}
