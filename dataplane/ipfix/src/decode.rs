//! Taking IPFIX Messages apart (RFC 7011 sections 3, 7, 8 and 9), strictly: a message that is malformed
//! is refused as a whole and changes nothing. One decoder serves one Transport Session.

use std::collections::HashMap;
use std::sync::Arc;

use crate::element::{DataType, Mapping};
use crate::mutate::{self, Fault};
use crate::template::{FIRST_ID, Field, OPTIONS_SET, TEMPLATE_SET, Template, VARIABLE};
use crate::value::Value;

mod error;

pub use error::DecodeError;

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

/// A change of the template table that a message asks for.
enum Change {
    Define(Arc<Template>),
    Withdraw(u16),
    WithdrawAll { options: bool },
}

/// A message while it is taken apart.
struct Work<'a, 'd> {
    decoder: &'d Decoder,
    domain: u32,
    changes: Vec<Change>,
    message: Message<'a>,
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

impl<'a> Work<'a, '_> {
    /// Takes one Set off the front.
    fn set(&mut self, octets: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        let (head, _) = octets
            .split_first_chunk::<4>()
            .ok_or(DecodeError::SetLength(0, 0))?;
        let [i0, i1, l0, l1] = *head;
        let (id, length) = (u16::from_be_bytes([i0, i1]), u16::from_be_bytes([l0, l1]));
        let (set, rest) = octets
            .split_at_checked(usize::from(length))
            .filter(|_| length >= 4)
            .ok_or(DecodeError::SetLength(id, length))?;
        let body = &set[4..];
        if body.is_empty() {
            return Err(DecodeError::EmptySet(id));
        }
        match id {
            TEMPLATE_SET | OPTIONS_SET => self.templates(id, body)?,
            FIRST_ID.. => self.data(id, body)?,
            _ => return Err(DecodeError::SetId(id)),
        }
        Ok(rest)
    }

    fn templates(&mut self, set: u16, mut body: &'a [u8]) -> Result<(), DecodeError> {
        while let Some((head, rest)) = body.split_first_chunk::<4>() {
            let [i0, i1, c0, c1] = *head;
            let (id, count) = (u16::from_be_bytes([i0, i1]), u16::from_be_bytes([c0, c1]));
            // Padding of an Options Template Set may be as long as the head of a withdrawal.
            if set == OPTIONS_SET && (id, count) == (0, 0) && rest.len() < 2 {
                break;
            }
            if count == 0 && id == set {
                self.changes.push(Change::WithdrawAll {
                    options: set == OPTIONS_SET,
                });
                self.withdrawn(id);
                body = rest;
                continue;
            }
            if id < FIRST_ID {
                return Err(DecodeError::TemplateId(id));
            }
            if count == 0 {
                self.withdraw(id);
                body = rest;
            } else {
                body = self.template(set, id, count, rest)?;
            }
        }
        self.padding(set, body);
        Ok(())
    }

    fn withdraw(&mut self, id: u16) {
        if self.decoder.delivery == Delivery::Lossy || self.lookup(id).is_none() {
            self.message.notes.push(Note::Withdrawal(id));
        }
        self.changes.push(Change::Withdraw(id));
        self.withdrawn(id);
    }

    fn withdrawn(&mut self, id: u16) {
        if self.decoder.delivery == Delivery::Lossy {
            self.changes.pop();
        }
        self.message.withdrawn.push(id);
    }

    fn template(
        &mut self,
        set: u16,
        id: u16,
        count: u16,
        rest: &'a [u8],
    ) -> Result<&'a [u8], DecodeError> {
        let (scope, mut rest) = if set == OPTIONS_SET {
            let (scope, rest) = rest
                .split_first_chunk::<2>()
                .ok_or(DecodeError::Template(id))?;
            let scope = u16::from_be_bytes(*scope);
            if scope == 0 || scope > count {
                return Err(DecodeError::Scope(id, scope, count));
            }
            (scope, rest)
        } else {
            (0, rest)
        };
        if usize::from(count) > self.decoder.limits.fields {
            return Err(DecodeError::Limit);
        }
        let mut fields = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let (field, behind) = read_field(rest).ok_or(DecodeError::Template(id))?;
            self.check_field(id, &field)?;
            fields.push(field);
            rest = behind;
        }
        let template = Template { id, scope, fields };
        if template.min_record() == 0 {
            return Err(DecodeError::Template(id));
        }
        self.define(template)?;
        Ok(rest)
    }

    fn check_field(&mut self, id: u16, field: &Field) -> Result<(), DecodeError> {
        match self.decoder.mapping.definition(field.pen, field.number) {
            Some(definition) if !definition.data_type.fits(field.length) => {
                if mutate::has(Fault::FieldLength) {
                    return Ok(());
                }
                Err(DecodeError::FieldLength(
                    id,
                    field.pen,
                    field.number,
                    field.length,
                ))
            }
            Some(_) => Ok(()),
            None => {
                let note = Note::UnknownElement(id, field.pen, field.number);
                self.message.notes.push(note);
                Ok(())
            }
        }
    }

    fn define(&mut self, template: Template) -> Result<(), DecodeError> {
        let id = template.id;
        let known = self.lookup(id);
        if known.as_deref() == Some(&template) {
            self.message.notes.push(Note::Repeated(id));
        } else if known.is_some() && self.decoder.delivery == Delivery::Ordered {
            return Err(DecodeError::Redefined(id));
        }
        let stored = if known.is_none() {
            self.decoder.templates.len()
        } else {
            0
        };
        if self.changes.len() + stored >= self.decoder.limits.templates {
            return Err(DecodeError::Limit);
        }
        self.changes.push(Change::Define(Arc::new(template)));
        self.message.defined.push(id);
        Ok(())
    }

    /// The template of an identifier as of here in the message.
    fn lookup(&self, id: u16) -> Option<Arc<Template>> {
        let stored = self.decoder.templates.get(&(self.domain, id));
        let mut current = stored.cloned();
        for change in &self.changes {
            match change {
                Change::Define(template) if template.id == id => {
                    current = Some(Arc::clone(template));
                }
                Change::Withdraw(withdrawn) if *withdrawn == id => current = None,
                Change::WithdrawAll { options } => {
                    current = current.filter(|template| template.is_options() != *options);
                }
                _ => {}
            }
        }
        current
    }

    fn data(&mut self, id: u16, body: &'a [u8]) -> Result<(), DecodeError> {
        let Some(template) = self.lookup(id) else {
            if self.decoder.delivery == Delivery::Ordered {
                return Err(DecodeError::NoTemplate(id));
            }
            self.message.notes.push(Note::Skipped(id));
            return Ok(());
        };
        let least = template.min_record();
        if body.len() < least {
            return Err(DecodeError::EmptySet(id));
        }
        let mut rest = body;
        while rest.len() >= least {
            let mut behind = rest;
            for field in &template.fields {
                (_, behind) = split_field(field, behind).ok_or(DecodeError::Record(id))?;
            }
            let octets = &rest[..rest.len() - behind.len()];
            self.message.records.push(DataRecord {
                template: Arc::clone(&template),
                octets,
            });
            rest = behind;
        }
        self.padding(id, rest);
        Ok(())
    }

    fn padding(&mut self, set: u16, octets: &[u8]) {
        if octets.iter().any(|octet| *octet != 0) {
            self.message.notes.push(Note::Padding(set));
        }
    }
}

fn read_field(octets: &[u8]) -> Option<(Field, &[u8])> {
    let ([n0, n1, l0, l1], rest) = octets.split_first_chunk::<4>()?;
    let number = u16::from_be_bytes([*n0, *n1]);
    let length = u16::from_be_bytes([*l0, *l1]);
    if number & 0x8000 == 0 {
        return Some((Field::iana(number, length), rest));
    }
    let (pen, rest) = rest.split_first_chunk::<4>()?;
    let pen = u32::from_be_bytes(*pen);
    Some((
        Field {
            pen,
            number: number & 0x7fff,
            length,
        },
        rest,
    ))
}

#[cfg(test)]
mod tests;
