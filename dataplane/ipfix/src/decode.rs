//! Taking IPFIX Messages apart (RFC 7011 sections 3, 7, 8 and 9), strictly: a message that is malformed
//! is refused as a whole and changes nothing. One decoder serves one Transport Session.

use std::collections::HashMap;
use std::sync::Arc;

use crate::element::{DataType, Mapping};
use crate::template::{Field, Template, VARIABLE};
use crate::value::Value;

mod error;
mod sets;

pub use error::DecodeError;
use sets::{Change, Work};

/// Octets of a Message Header.
pub const HEADER_LEN: usize = 16;
/// Version Number of IPFIX.
pub const VERSION: u16 = 10;

/// What the transport below promises (RFC 7011 section 8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// All messages in order: TCP, TLS, files. Templates are withdrawn before they change.
    Ordered,
    /// Messages may be lost: UDP. A new definition replaces the old one, withdrawals are ignored, data
    /// without a template is skipped.
    Lossy,
}

/// What a decoder keeps at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecodeLimits {
    /// Templates of one session, all domains together.
    pub templates: usize,
    /// Fields of one template.
    pub fields: usize,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self {
            templates: 4096,
            fields: 512,
        }
    }
}

/// A Message Header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Octets of the message.
    pub length: u16,
    /// Export Time, seconds since 1970 modulo 2^32.
    pub export_time: u32,
    /// Sequence Number.
    pub sequence: u32,
    /// Observation Domain ID.
    pub domain: u32,
}

/// Something a careful exporter does not do, but no reason to refuse a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// A template was defined again as it was.
    Repeated(u16),
    /// A withdrawal of a template that is not there, or over a transport without withdrawals.
    Withdrawal(u16),
    /// Data without a template was skipped.
    Skipped(u16),
    /// Padding with other octets than zero.
    Padding(u16),
    /// A field of an element that the mapping and the registry do not have.
    UnknownElement(u16, u32, u16),
}

/// A message taken apart.
#[derive(Clone, PartialEq, Debug)]
pub struct Message<'a> {
    /// Its header.
    pub header: Header,
    /// Identifiers of the templates that it defines, in order.
    pub defined: Vec<u16>,
    /// Identifiers of the templates that it withdraws, in order; 2 and 3 for all.
    pub withdrawn: Vec<u16>,
    /// Its Data Records, options included, in order.
    pub records: Vec<DataRecord<'a>>,
    /// What else was seen.
    pub notes: Vec<Note>,
}

/// A Data Record and its template.
#[derive(Clone, PartialEq, Debug)]
pub struct DataRecord<'a> {
    /// The template.
    pub template: Arc<Template>,
    octets: &'a [u8],
}

impl<'a> DataRecord<'a> {
    /// The octets of the record.
    pub const fn octets(&self) -> &'a [u8] {
        self.octets
    }

    /// The fields in order, with the octets of their values (without the prefix of a variable length).
    pub fn fields(&self) -> impl Iterator<Item = (&Field, &'a [u8])> {
        let mut rest = self.octets;
        self.template.fields.iter().map_while(move |field| {
            let (value, behind) = split_field(field, rest)?;
            rest = behind;
            Some((field, value))
        })
    }

    /// The first value of an element.
    pub fn get(&self, pen: u32, number: u16, data_type: DataType) -> Option<Value<'a>> {
        self.fields()
            .find(|(field, _)| field.pen == pen && field.number == number)
            .map(|(_, octets)| Value::decode(data_type, octets))
    }
}

/// Splits the value of a field off the front.
fn split_field<'a>(field: &Field, octets: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    if field.length != VARIABLE {
        return octets.split_at_checked(usize::from(field.length));
    }
    let (first, rest) = octets.split_first()?;
    if *first < 255 {
        return rest.split_at_checked(usize::from(*first));
    }
    let (length, rest) = rest.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

/// Templates of one Transport Session, by Observation Domain and identifier.
#[derive(Clone, Debug)]
pub struct Decoder {
    mapping: Arc<Mapping>,
    delivery: Delivery,
    limits: DecodeLimits,
    templates: HashMap<(u32, u16), Arc<Template>>,
}

impl Decoder {
    /// A decoder for a new session.
    pub fn new(mapping: Arc<Mapping>, delivery: Delivery, limits: DecodeLimits) -> Self {
        Self {
            mapping,
            delivery,
            limits,
            templates: HashMap::new(),
        }
    }

    /// The template of this identifier.
    pub fn template(&self, domain: u32, id: u16) -> Option<&Arc<Template>> {
        self.templates.get(&(domain, id))
    }

    /// Templates that are kept.
    pub fn len(&self) -> usize {
        self.templates.len()
    }

    /// Whether no template is kept.
    pub fn is_empty(&self) -> bool {
        self.templates.is_empty()
    }

    /// Takes a message apart.
    ///
    /// # Errors
    /// It is malformed; nothing of it is taken.
    pub fn decode<'a>(&mut self, octets: &'a [u8]) -> Result<Message<'a>, DecodeError> {
        let header = header(octets)?;
        let mut work = Work {
            decoder: self,
            domain: header.domain,
            changes: Vec::new(),
            message: Message {
                header,
                defined: Vec::new(),
                withdrawn: Vec::new(),
                records: Vec::new(),
                notes: Vec::new(),
            },
        };
        let mut rest = &octets[HEADER_LEN..];
        while !rest.is_empty() {
            rest = work.set(rest)?;
        }
        let Work {
            changes, message, ..
        } = work;
        self.apply(header.domain, changes);
        Ok(message)
    }

    fn apply(&mut self, domain: u32, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Define(template) => {
                    self.templates.insert((domain, template.id), template);
                }
                Change::Withdraw(id) => {
                    self.templates.remove(&(domain, id));
                }
                Change::WithdrawAll { options } => {
                    self.templates.retain(|(of, _), template| {
                        *of != domain || template.is_options() != options
                    });
                }
            }
        }
    }
}

/// The header of a message, checked against the octets that there are.
///
/// # Errors
/// `Short`, `Version` or `Length`.
pub fn header(octets: &[u8]) -> Result<Header, DecodeError> {
    let head = octets
        .first_chunk::<HEADER_LEN>()
        .ok_or(DecodeError::Short)?;
    let [
        v0,
        v1,
        l0,
        l1,
        t0,
        t1,
        t2,
        t3,
        s0,
        s1,
        s2,
        s3,
        d0,
        d1,
        d2,
        d3,
    ] = *head;
    let version = u16::from_be_bytes([v0, v1]);
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let length = u16::from_be_bytes([l0, l1]);
    if usize::from(length) != octets.len() {
        return Err(DecodeError::Length(length, octets.len()));
    }
    Ok(Header {
        length,
        export_time: u32::from_be_bytes([t0, t1, t2, t3]),
        sequence: u32::from_be_bytes([s0, s1, s2, s3]),
        domain: u32::from_be_bytes([d0, d1, d2, d3]),
    })
}

#[cfg(test)]
mod tests;
