//! The Sets of a message: templates, withdrawals and data, in their order. What a message changes in the
//! template table is collected, and takes effect when the whole message was read.

use std::sync::Arc;

use super::{DataRecord, DecodeError, Decoder, Delivery, Message, Note, split_field};
use crate::mutate::{self, Fault};
use crate::template::{FIRST_ID, Field, OPTIONS_SET, TEMPLATE_SET, Template};

/// A change of the template table that a message asks for.
pub(super) enum Change {
    Define(Arc<Template>),
    Withdraw(u16),
    WithdrawAll { options: bool },
}

/// A message while it is taken apart.
pub(super) struct Work<'a, 'd> {
    pub(super) decoder: &'d Decoder,
    pub(super) domain: u32,
    pub(super) changes: Vec<Change>,
    pub(super) message: Message<'a>,
}

impl<'a> Work<'a, '_> {
    /// Takes one Set off the front.
    pub(super) fn set(&mut self, octets: &'a [u8]) -> Result<&'a [u8], DecodeError> {
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
