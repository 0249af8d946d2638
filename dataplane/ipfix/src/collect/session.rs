//! A collector's side of one Transport Session: messages are decoded, checked against the rules that an
//! exporter has to keep, and handed on record by record. What an exporter got wrong is told as an
//! [`Issue`].

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crem_meter::Utc;

use super::epochs::{EpochLimits, Epochs, Stored, Verdict};
use super::report::{NotAReport, Report};
use crate::decode::{
    DataRecord, DecodeError, DecodeLimits, Decoder, Delivery, Header, Message, Note,
};
use crate::element::{Mapping, id};
use crate::profile::{Nonconformity, Profile, check, classify};
use crate::template::Template;

/// Something an exporter got wrong, or that got lost on the way to the collector.
#[derive(Clone, PartialEq, Debug)]
pub enum Issue {
    /// A message was refused.
    Refused(DecodeError),
    /// The message was careless.
    Note(Note),
    /// The sequence number is not the number of Data Records so far: expected and found.
    Sequence(u32, u32),
    /// The export time is before that of an earlier message: earlier and found.
    ExportTime(u32, u32),
    /// A template does not conform to its profile.
    Template(u16, Nonconformity),
    /// A record of a sequence template is no report.
    Report(NotAReport),
    /// A report was not simply accepted.
    Verdict(Verdict),
    /// A sequence template over a transport that does not keep order.
    SequenceTransport(u16),
    /// Our elements are in use and their types were not announced before (RFC 5610).
    Untyped(u16),
    /// A record with a selectionSequenceId that no Selection Sequence report describes.
    Selection(u64),
    /// The stream ended within a message.
    Partial,
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "message refused: {error}"),
            Self::Note(note) => write!(f, "careless: {note:?}"),
            Self::Sequence(expected, found) => {
                write!(f, "sequence number {found}, expected {expected}")
            }
            Self::ExportTime(before, found) => {
                write!(
                    f,
                    "export time {found} is before {before} of an earlier message"
                )
            }
            Self::Template(id, wrong) => write!(f, "template {id}: {wrong}"),
            Self::Report(error) => write!(f, "{error}"),
            Self::Verdict(verdict) => write!(f, "sequence report: {}", verdict.name()),
            Self::SequenceTransport(id) => {
                write!(
                    f,
                    "template {id}: the sequence profile needs a transport that keeps order"
                )
            }
            Self::Untyped(id) => write!(f, "template {id}: element types were not announced"),
            Self::Selection(id) => write!(f, "selection sequence {id} is not described"),
            Self::Partial => f.write_str("the stream ended within a message"),
        }
    }
}

/// What a collector session tells.
#[derive(Debug)]
pub enum Event<'a> {
    /// The header of a message that was taken.
    Message(Header),
    /// A template was defined.
    Template(u32, &'a Template),
    /// A record, with the profile of its template; `None` for options and others'.
    Record(u32, Option<Profile>, &'a DataRecord<'a>),
    /// A sequence report and what became of it; its record was told before.
    Report(u32, &'a Report, Verdict),
    /// An epoch was given up, by Observation Domain.
    Stored(u32, &'a Stored),
    /// Something is wrong, in this domain if it is known.
    Issue(Option<u32>, &'a Issue),
}

/// What was taken in a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CollectCounters {
    /// Messages taken.
    pub messages: u64,
    /// Messages refused.
    pub refused: u64,
    /// Octets of messages taken.
    pub octets: u64,
    /// Data Records, options included.
    pub records: u64,
    /// Records of packets.
    pub packets: u64,
    /// Records of aggregate flows.
    pub flows: u64,
    /// Sequence reports.
    pub reports: u64,
    /// Data Records that, by the sequence numbers, did not get here.
    pub missing_records: u64,
    /// Issues of any kind.
    pub issues: u64,
}

/// One Observation Domain of the session.
#[derive(Debug)]
struct Domain {
    next_sequence: Option<u32>,
    export_time: u32,
    profiles: HashMap<u16, Profile>,
    typed: bool,
    selections: Vec<u64>,
    epochs: Epochs,
}

/// A collector's side of one Transport Session.
#[derive(Debug)]
pub struct CollectorSession {
    mapping: Arc<Mapping>,
    delivery: Delivery,
    limits: EpochLimits,
    decoder: Decoder,
    domains: HashMap<u32, Domain>,
    counters: CollectCounters,
}

/// Most Observation Domains of a session, and Selection Sequences of a domain.
const MAX_DOMAINS: usize = 256;
const MAX_SELECTIONS: usize = 4096;

impl CollectorSession {
    /// A new session.
    pub fn new(
        mapping: Arc<Mapping>,
        delivery: Delivery,
        decode: DecodeLimits,
        epochs: EpochLimits,
    ) -> Self {
        Self {
            decoder: Decoder::new(Arc::clone(&mapping), delivery, decode),
            mapping,
            delivery,
            limits: epochs,
            domains: HashMap::new(),
            counters: CollectCounters::default(),
        }
    }

    /// What was taken so far.
    pub const fn counters(&self) -> &CollectCounters {
        &self.counters
    }

    /// Takes a whole message.
    ///
    /// # Errors
    /// It was refused, which is also told as an issue. Over a stream, go on or give up as you like.
    pub fn message(
        &mut self,
        now: Utc,
        octets: &[u8],
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), DecodeError> {
        let message = match self.decoder.decode(octets) {
            Ok(message) => message,
            Err(error) => {
                self.counters.refused += 1;
                self.issue(None, Issue::Refused(error), tell);
                return Err(error);
            }
        };
        let domain = message.header.domain;
        if !self.domains.contains_key(&domain) {
            if self.domains.len() >= MAX_DOMAINS {
                self.counters.refused += 1;
                self.issue(Some(domain), Issue::Refused(DecodeError::Limit), tell);
                return Err(DecodeError::Limit);
            }
            self.domains.insert(domain, Domain::new(self.limits));
        }
        self.counters.messages += 1;
        self.counters.octets += octets.len() as u64;
        self.counters.records += message.records.len() as u64;
        tell(Event::Message(message.header));
        self.order(&message, tell);
        for note in &message.notes {
            self.issue(Some(domain), Issue::Note(*note), tell);
        }
        self.templates(&message, tell);
        for record in &message.records {
            self.record(now, domain, record, tell);
        }
        Ok(())
    }

    fn issue(&mut self, domain: Option<u32>, issue: Issue, tell: &mut dyn FnMut(Event<'_>)) {
        self.counters.issues += 1;
        tell(Event::Issue(domain, &issue));
    }

    /// Sequence number and export time.
    fn order(&mut self, message: &Message<'_>, tell: &mut dyn FnMut(Event<'_>)) {
        let header = message.header;
        let Some(domain) = self.domains.get_mut(&header.domain) else {
            return;
        };
        // Over UDP the collector may come in the middle; a stream starts at 0.
        let first = match self.delivery {
            Delivery::Ordered => 0,
            Delivery::Lossy => header.sequence,
        };
        let expected = domain.next_sequence.unwrap_or(first);
        domain.next_sequence = Some(header.sequence.wrapping_add(message.records.len() as u32));
        let earlier = domain.export_time;
        domain.export_time = earlier.max(header.export_time);
        if expected != header.sequence {
            let missing = header.sequence.wrapping_sub(expected);
            // Half the range and more is a step back: repeated or reordered, nothing is missing.
            if missing < 1 << 31 {
                self.counters.missing_records += u64::from(missing);
            }
            let issue = Issue::Sequence(expected, header.sequence);
            self.issue(Some(header.domain), issue, tell);
        }
        if header.export_time < earlier {
            let issue = Issue::ExportTime(earlier, header.export_time);
            self.issue(Some(header.domain), issue, tell);
        }
    }

    fn templates(&mut self, message: &Message<'_>, tell: &mut dyn FnMut(Event<'_>)) {
        let number = message.header.domain;
        for withdrawn in &message.withdrawn {
            if let Some(domain) = self.domains.get_mut(&number) {
                domain.profiles.remove(withdrawn);
            }
        }
        // The types may be in the same message: its records count before its templates.
        let types = message
            .records
            .iter()
            .any(|record| is_type_information(&record.template));
        if types && let Some(domain) = self.domains.get_mut(&number) {
            domain.typed = true;
        }
        for template in &message.defined {
            let Some(template) = self.decoder.template(number, *template).map(Arc::clone) else {
                continue;
            };
            tell(Event::Template(number, &template));
            self.template(number, &template, tell);
        }
    }

    fn template(&mut self, number: u32, template: &Template, tell: &mut dyn FnMut(Event<'_>)) {
        let profile = match template.is_options() {
            true => None,
            false => classify(&template.fields, &self.mapping),
        };
        let Some(domain) = self.domains.get_mut(&number) else {
            return;
        };
        let Some(profile) = profile else {
            domain.profiles.remove(&template.id);
            return;
        };
        let typed = domain.typed;
        let selected = template
            .fields
            .iter()
            .any(|field| field.pen == 0 && field.number == id::SELECTION_SEQUENCE_ID);
        let wrong = check(&template.fields, profile, selected, &self.mapping);
        if wrong.is_empty() {
            domain.profiles.insert(template.id, profile);
        } else {
            // Its records are told, but not read as the profile's (AMB-COL-TMPL).
            domain.profiles.remove(&template.id);
        }
        for wrong in wrong {
            self.issue(Some(number), Issue::Template(template.id, wrong), tell);
        }
        if profile == Profile::Sequence && self.delivery == Delivery::Lossy {
            self.issue(Some(number), Issue::SequenceTransport(template.id), tell);
        }
        if !typed {
            self.issue(Some(number), Issue::Untyped(template.id), tell);
        }
    }

    fn record(
        &mut self,
        now: Utc,
        number: u32,
        record: &DataRecord<'_>,
        tell: &mut dyn FnMut(Event<'_>),
    ) {
        let Some(domain) = self.domains.get_mut(&number) else {
            return;
        };
        let profile = domain.profiles.get(&record.template.id).copied();
        tell(Event::Record(number, profile, record));
        let selection = record
            .get(
                0,
                id::SELECTION_SEQUENCE_ID,
                crate::element::DataType::Unsigned64,
            )
            .and_then(|value| value.as_u64());
        if let Some(selection) = selection {
            let known = domain.selections.contains(&selection);
            if record.template.is_options() {
                if describes_selection(&record.template)
                    && !known
                    && domain.selections.len() < MAX_SELECTIONS
                {
                    domain.selections.push(selection);
                }
            } else if !known {
                self.issue(Some(number), Issue::Selection(selection), tell);
            }
        }
        match profile {
            Some(Profile::Packet) => self.counters.packets += 1,
            Some(Profile::Aggregate) => self.counters.flows += 1,
            Some(Profile::Sequence) => self.report(now, number, record, tell),
            None => {}
        }
    }

    fn report(
        &mut self,
        now: Utc,
        number: u32,
        record: &DataRecord<'_>,
        tell: &mut dyn FnMut(Event<'_>),
    ) {
        let report = match Report::read(record, &self.mapping) {
            Ok(report) => report,
            Err(error) => return self.issue(Some(number), Issue::Report(error), tell),
        };
        let Some(domain) = self.domains.get_mut(&number) else {
            return;
        };
        let verdict = domain.epochs.report(now, &report);
        self.counters.reports += 1;
        tell(Event::Report(number, &report, verdict));
        if !verdict.is_expected() {
            self.issue(Some(number), Issue::Verdict(verdict), tell);
        }
    }

    /// Gives up epochs that were silent for too long or closed long enough ago.
    pub fn expire(&mut self, now: Utc, tell: &mut dyn FnMut(Event<'_>)) {
        for (number, domain) in &mut self.domains {
            domain
                .epochs
                .expire(now, |stored| tell(Event::Stored(*number, &stored)));
        }
    }

    /// The session is over; `partial` if the stream ended within a message.
    pub fn end(&mut self, partial: bool, tell: &mut dyn FnMut(Event<'_>)) {
        if partial {
            self.issue(None, Issue::Partial, tell);
        }
        let mut numbers: Vec<u32> = self.domains.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            if let Some(mut domain) = self.domains.remove(&number) {
                domain
                    .epochs
                    .end_session(|stored| tell(Event::Stored(number, &stored)));
            }
        }
    }

    /// The epochs that are kept now, by domain.
    pub fn epochs(&self) -> impl Iterator<Item = (u32, Stored)> {
        self.domains
            .iter()
            .flat_map(|(number, domain)| domain.epochs.iter().map(|stored| (*number, stored)))
    }
}

impl Domain {
    fn new(limits: EpochLimits) -> Self {
        Self {
            next_sequence: None,
            export_time: 0,
            profiles: HashMap::new(),
            typed: false,
            selections: Vec::new(),
            epochs: Epochs::new(limits),
        }
    }
}

/// Whether records of this options template say what a Selection Sequence is (RFC 5476 section 6.5.1).
fn describes_selection(template: &Template) -> bool {
    template
        .fields
        .iter()
        .any(|field| field.pen == 0 && field.number == id::SELECTOR_ID)
}

/// Whether records of this options template announce the types of elements (RFC 5610 section 3.9).
fn is_type_information(template: &Template) -> bool {
    let scope = template.fields.iter().take(usize::from(template.scope));
    let has = |number| {
        scope
            .clone()
            .any(|field| field.pen == 0 && field.number == number)
    };
    has(id::PRIVATE_ENTERPRISE_NUMBER) && has(id::INFORMATION_ELEMENT_ID)
}

#[cfg(test)]
mod tests;
