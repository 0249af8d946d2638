//! Templates: the fields of a record, and their octets in Template and Options Template Records (RFC 7011
//! sections 3.2 and 3.4).

use crate::element::Mapping;

/// Field Length of a field of variable length.
pub const VARIABLE: u16 = 65535;
/// Smallest identifier of a template; below are Set IDs with a meaning of their own.
pub const FIRST_ID: u16 = 256;
/// Set ID of Template Records.
pub const TEMPLATE_SET: u16 = 2;
/// Set ID of Options Template Records.
pub const OPTIONS_SET: u16 = 3;

/// A Field Specifier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Field {
    /// Private Enterprise Number, 0 for registered elements.
    pub pen: u32,
    /// Element number, 15 bits.
    pub number: u16,
    /// Octets, or [`VARIABLE`].
    pub length: u16,
}

impl Field {
    /// A field of a registered element.
    pub const fn iana(number: u16, length: u16) -> Self {
        Self {
            pen: 0,
            number,
            length,
        }
    }

    /// Octets of the specifier.
    const fn size(&self) -> usize {
        if self.pen == 0 { 4 } else { 8 }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let enterprise = if self.pen == 0 { 0 } else { 0x8000 };
        out.extend_from_slice(&(self.number & 0x7fff | enterprise).to_be_bytes());
        out.extend_from_slice(&self.length.to_be_bytes());
        if self.pen != 0 {
            out.extend_from_slice(&self.pen.to_be_bytes());
        }
    }

    /// The name of the element, if it is known.
    pub fn name(&self, mapping: &Mapping) -> Option<&'static str> {
        mapping
            .definition(self.pen, self.number)
            .map(|definition| definition.name)
    }
}

/// A Template, or an Options Template if it has scope fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    /// Template ID, from 256.
    pub id: u16,
    /// Number of scope fields, which come first; 0 for a Template.
    pub scope: u16,
    /// The fields.
    pub fields: Vec<Field>,
}

impl Template {
    /// Whether it is an Options Template.
    pub const fn is_options(&self) -> bool {
        self.scope > 0
    }

    /// Fewest octets of a record.
    pub fn min_record(&self) -> usize {
        let least = |field: &Field| match field.length {
            VARIABLE => 1,
            length => usize::from(length),
        };
        self.fields.iter().map(least).sum()
    }

    /// Octets of the Template Record.
    pub fn size(&self) -> usize {
        let header = if self.is_options() { 6 } else { 4 };
        header + self.fields.iter().map(Field::size).sum::<usize>()
    }

    /// Appends the Template Record or Options Template Record.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(&(self.fields.len() as u16).to_be_bytes());
        if self.is_options() {
            out.extend_from_slice(&self.scope.to_be_bytes());
        }
        for field in &self.fields {
            field.write(out);
        }
    }

    /// Set ID that its record goes into.
    pub const fn set_id(&self) -> u16 {
        if self.is_options() {
            OPTIONS_SET
        } else {
            TEMPLATE_SET
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifiers_with_and_without_enterprise() {
        let template = Template {
            id: 258,
            scope: 0,
            fields: vec![
                Field::iana(138, 8),
                Field {
                    pen: 32473,
                    number: 3,
                    length: 3,
                },
            ],
        };
        let mut out = Vec::new();
        template.write(&mut out);
        assert_eq!(
            out,
            [1, 2, 0, 2, 0, 138, 0, 8, 0x80, 3, 0, 3, 0, 0, 0x7e, 0xd9]
        );
        assert_eq!((template.size(), template.min_record()), (out.len(), 11));
    }

    #[test]
    fn options_count_their_scope() {
        let template = Template {
            id: 400,
            scope: 1,
            fields: vec![Field::iana(145, 2), Field::iana(341, VARIABLE)],
        };
        let mut out = Vec::new();
        template.write(&mut out);
        assert_eq!(
            out,
            [1, 0x90, 0, 2, 0, 1, 0, 145, 0, 2, 1, 0x55, 0xff, 0xff]
        );
        assert_eq!((template.size(), template.min_record()), (out.len(), 3));
        assert_eq!(template.set_id(), OPTIONS_SET);
    }
}
