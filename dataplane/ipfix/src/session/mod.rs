//! Exporter sessions. A [`Session`] is one Transport Session to one collector and owns everything that
//! is of the session: templates, the sequence number, the export time, epoch and report identifiers. A
//! new connection is a new session, so nothing of the old one can be left over.
//!
//! Messages are appended to a buffer of the caller, each whole: what was appended has its number in the
//! sequence and has to be sent, or the session is over.

mod announce;
mod config;
mod ids;
mod message;
mod options;
mod records;

use std::collections::HashMap;
use std::sync::Arc;

use crem_meter::flow::FlowRecord;
use crem_meter::select::SelectionStats;
use crem_meter::seq::{Flags, SequenceRecord};
use crem_meter::{PacketRecord, Utc};

use crate::profile::{Kind, Namespace};
use crate::template::{FIRST_ID, Template};

pub use config::{
    FlowProfile, PacketProfile, SelectionSequence, SequenceProfile, SessionConfig, SessionError,
    Transport, datagram_size,
};
pub use ids::{EpochIds, Ids};
use message::Builder;
use options::Options;
pub use options::{Ignored, NotSent, Totals};

/// Why a record was not written. It is not in the sequence then, and the caller counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The session has no template for it.
    #[error("records of this kind are not configured")]
    Kind,
    /// It was made for another session.
    #[error("the record is of another session")]
    Session,
    /// No epoch identifier for it: more contexts than configured.
    #[error("more contexts than configured")]
    Contexts,
    /// Its tenant cannot be told with one element.
    #[error("two VLAN tags cannot be told apart in a report")]
    Namespace,
}

/// A session with a collector.
#[derive(Clone, Debug)]
pub struct Session {
    config: Arc<SessionConfig>,
    /// The number that sequence records of this session bear.
    number: u32,
    templates: Vec<(Kind, Template)>,
    by_kind: HashMap<Kind, (u16, usize)>,
    message: Builder,
    /// Data Records before the open message, modulo 2^32.
    sequence: u32,
    /// Seconds; never goes back within a session.
    export_time: u64,
    clock_steps: u64,
    ids: EpochIds,
    totals: Totals,
    /// Records of the profiles in the open message.
    open_records: u64,
    announced: Utc,
}

impl Session {
    /// A new session, number `number`; `totals` is what was sent to this collector in sessions before.
    /// Call [`Session::announce`] first.
    ///
    /// # Errors
    /// A configuration that cannot be meant.
    pub fn new(
        config: Arc<SessionConfig>,
        number: u32,
        totals: Totals,
    ) -> Result<Self, SessionError> {
        config.check()?;
        let templates: Vec<(Kind, Template)> = config
            .kinds()
            .into_iter()
            .zip(FIRST_ID..)
            .map(|(kind, id)| (kind, kind.template(id, &config.mapping, config.qp)))
            .collect();
        let by_kind = templates
            .iter()
            .map(|(kind, template)| (*kind, (template.id, template.min_record())))
            .collect();
        let contexts = config.sequence.map_or(0, |sequence| sequence.contexts);
        Ok(Self {
            message: Builder::new(config.transport.max_message()),
            config,
            number,
            templates,
            by_kind,
            sequence: 0,
            export_time: 0,
            clock_steps: 0,
            ids: EpochIds::new(contexts),
            totals,
            open_records: 0,
            announced: Utc(0),
        })
    }

    /// Its number.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// What was sent to this collector, over all sessions, the open message excluded.
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// Records of the profiles in the open message: lost if the session ends before the message is complete.
    pub const fn open_records(&self) -> u64 {
        self.open_records
    }

    /// How often the clock was behind an earlier message: the message got the earlier time.
    pub const fn clock_steps(&self) -> u64 {
        self.clock_steps
    }

    /// Over UDP, announces again when it is time.
    pub fn poll(&mut self, now: Utc, out: &mut Vec<u8>) {
        if let Some(at) = self.next_timeout()
            && now >= at
        {
            self.announce(now, out);
        }
    }

    /// When [`Session::poll`] has something to do.
    pub fn next_timeout(&self) -> Option<Utc> {
        match self.config.transport {
            Transport::Stream { .. } => None,
            Transport::Datagram { refresh, .. } => Some(self.announced.after(refresh)),
        }
    }

    /// Completes the open message, if there is anything in it.
    pub fn flush(&mut self, now: Utc, out: &mut Vec<u8>) {
        if self.message.is_empty() {
            return;
        }
        let seconds = now.seconds();
        if seconds < self.export_time {
            self.clock_steps += 1;
        } else {
            self.export_time = seconds;
        }
        let before = out.len();
        let time = self.export_time as u32;
        let records = self
            .message
            .finish(time, self.sequence, self.config.domain, out);
        self.sequence = self.sequence.wrapping_add(records);
        self.totals.messages += 1;
        self.totals.records += std::mem::take(&mut self.open_records);
        self.totals.octets += (out.len() - before) as u64;
    }

    /// Writes the record of a packet.
    ///
    /// # Errors
    /// The session has no template for it.
    #[inline]
    pub fn packet(
        &mut self,
        now: Utc,
        record: &PacketRecord,
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        let kind = Kind::Packet {
            v6: record.source.is_ipv6(),
            selection: record.selection.is_some(),
        };
        let qp = self.config.qp;
        self.write(now, kind, out, |octets| records::packet(record, qp, octets))
    }

    /// Writes the record of an aggregate flow; `post` if it was counted behind repair.
    ///
    /// # Errors
    /// The session has no template for it.
    pub fn flow(
        &mut self,
        now: Utc,
        post: bool,
        record: &FlowRecord,
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        let kind = Kind::Aggregate {
            v6: record.key.source.is_ipv6(),
            opcode: record.key.opcode.is_some(),
            post,
        };
        let qp = self.config.qp;
        self.write(now, kind, out, |octets| records::flow(record, qp, octets))
    }

    /// Writes the snapshot of an epoch. Its identifiers are given out now, so a snapshot that is refused
    /// has used none.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn sequence(
        &mut self,
        now: Utc,
        record: &SequenceRecord,
        out: &mut Vec<u8>,
    ) -> Result<Ids, Refused> {
        if record.session != self.number {
            return Err(Refused::Session);
        }
        let namespaces = self
            .config
            .sequence
            .is_some_and(|sequence| sequence.namespaces);
        let (namespace, octets, len) = if namespaces {
            records::namespace(record.key.context).ok_or(Refused::Namespace)?
        } else {
            (Namespace::None, [0; 8], 0)
        };
        let kind = Kind::Sequence {
            v6: record.key.source.is_ipv6(),
            namespace,
        };
        if !self.by_kind.contains_key(&kind) {
            return Err(Refused::Kind);
        }
        let last = record.flags.contains(Flags::FINAL);
        let ids = self
            .ids
            .next(record.point, record.context, record.epoch, last)
            .ok_or(Refused::Contexts)?;
        self.write(now, kind, out, |out| {
            records::sequence(record, ids, out);
            out.extend_from_slice(&octets[..len]);
        })?;
        Ok(ids)
    }

    /// Takes terms that this session [goes on](SessionConfig::goes_on_as) by.
    pub fn go_on_by(&mut self, config: Arc<SessionConfig>) {
        let contexts = config.sequence.map_or(0, |sequence| sequence.contexts);
        self.ids.set_bound(contexts);
        self.config = config;
    }

    /// Forgets which epochs are open: what made them is gone, and a snapshot with an equal number is of
    /// another epoch. Identifiers go on rising.
    pub fn forget_epochs(&mut self) {
        self.ids.forget_open();
    }

    #[inline]
    fn write(
        &mut self,
        now: Utc,
        kind: Kind,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Refused> {
        let &(id, octets) = self.by_kind.get(&kind).ok_or(Refused::Kind)?;
        if !self.message.fits(id, octets) {
            self.flush(now, out);
        }
        self.message.record(id, write);
        self.open_records += 1;
        Ok(())
    }

    /// Writes a Template Record.
    fn template(&mut self, now: Utc, template: &Template, out: &mut Vec<u8>) {
        if !self.message.fits(template.set_id(), template.size()) {
            self.flush(now, out);
        }
        self.message
            .template(template.set_id(), |octets| template.write(octets));
    }

    /// Writes an options record of so many octets.
    fn option(
        &mut self,
        now: Utc,
        options: Options,
        octets: usize,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        if !self.message.fits(options as u16, octets) {
            self.flush(now, out);
        }
        self.message.record(options as u16, write);
    }

    /// Reports what a Selection Sequence has seen; to be called at intervals, with the counts of one
    /// point in time.
    ///
    /// # Errors
    /// The Selection Sequence is not configured.
    pub fn selection_stats(
        &mut self,
        now: Utc,
        sequence: u64,
        stats: &SelectionStats,
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        if !self
            .config
            .selections()
            .iter()
            .any(|selection| selection.id == sequence)
        {
            return Err(Refused::Kind);
        }
        self.option(now, Options::SelectionStatistics, 24, out, |octets| {
            options::statistics(sequence, stats, octets);
        });
        Ok(())
    }

    /// Reports what was sent so far, the message with this report excluded, and what was not taken into
    /// account or not sent, if there is any (RFC 7011 sections 4.1 to 4.3). To be called at intervals.
    pub fn reliability(
        &mut self,
        now: Utc,
        ignored: &Ignored,
        not_sent: &NotSent,
        out: &mut Vec<u8>,
    ) {
        let (domain, metering) = (self.config.domain, self.config.metering_process);
        let exporting = self.config.exporting_process;
        // The totals are those before this message, so it has to have room for all three records.
        if !self
            .message
            .fits(Options::MeteringStatistics as u16, 3 * 52)
        {
            self.flush(now, out);
        }
        let totals = self.totals;
        self.option(now, Options::MeteringStatistics, 32, out, |octets| {
            octets.extend_from_slice(&domain.to_be_bytes());
            octets.extend_from_slice(&metering.to_be_bytes());
            options::numbers(&[totals.messages, totals.records, totals.octets], octets);
        });
        if let Some((first, last)) = ignored.times {
            self.option(now, Options::MeteringReliability, 40, out, |octets| {
                octets.extend_from_slice(&domain.to_be_bytes());
                octets.extend_from_slice(&metering.to_be_bytes());
                let times = [first.millis(), last.millis()];
                options::numbers(
                    &[ignored.packets, ignored.octets, times[0], times[1]],
                    octets,
                );
            });
        }
        if let Some((first, last)) = not_sent.times {
            self.option(now, Options::ExportingReliability, 44, out, |octets| {
                octets.extend_from_slice(&exporting.to_be_bytes());
                options::numbers(
                    &[not_sent.records, not_sent.packets, not_sent.octets],
                    octets,
                );
                options::numbers(&[first.millis(), last.millis()], octets);
            });
        }
    }
}

#[cfg(test)]
mod tests;
