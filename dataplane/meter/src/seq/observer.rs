//! All connections whose sequence is observed at one Observation Point for one collector session: their
//! contexts, when a report is due, and what closes an epoch (sections 3 and 4 of the sequence draft).
//! Counting is in `epoch`. Epoch and report identifiers are given out where reports are serialised.

use alloc::vec::Vec;

use crem_wire::roce::{ICRC_LEN, Opcode};
use hashbrown::HashMap;

use super::config::PAIRS;
use super::connection::{Context, State};
use super::{
    ConnectionKey, Epoch, Flags, ObserverConfig, ObserverCounters, Provision, ProvisionError,
    SequenceRecord, Step,
};
use crate::key::Words;
use crate::point::Point;
use crate::scope::Observation;
use crate::time::nanos;
use crate::wheel::Wheel;
use crate::{Sink, Utc};

/// Epochs among which the one to give up is looked for.
const CANDIDATES: usize = 8;
const NO_SLOT: u32 = u32::MAX;
/// SEND and WRITE: opcodes 0x00 to 0x0B.
const ELIGIBLE: usize = 0x0c;

/// The observer of one Observation Point for one collector session.
#[derive(Clone, Debug)]
pub struct Observer {
    point: Point,
    config: ObserverConfig,
    /// The idle timeout in nanoseconds.
    idle: u64,
    /// Octets of UDP payload that each eligible opcode needs: headers and ICRC, padding apart.
    needed: [u16; ELIGIBLE],
    provisions: Vec<Provision>,
    /// Counts changes of the provisions.
    version: u32,
    /// The collector session, while there is one.
    session: Option<u32>,
    suspended: bool,
    /// Capture faults that may touch every connection, and those by pair of addresses.
    faults: u32,
    pair_faults: Vec<u32>,
    index: HashMap<Words, u32>,
    /// The connection of the last packet.
    last: (Words, u32),
    contexts: Vec<Context>,
    free_contexts: Vec<u32>,
    epochs: Vec<Epoch>,
    free_epochs: Vec<u32>,
    /// The context of each epoch.
    owners: Vec<u32>,
    /// Where the search for a context and for an epoch to give up goes on.
    hand: u32,
    epoch_hand: usize,
    /// Contexts that are still to be looked at for a capture fault or other provisions.
    sweep: u32,
    next_epoch: u64,
    wheel: Wheel,
    counters: ObserverCounters,
}

impl Observer {
    /// An observer without a session: it counts nothing until [`Observer::begin_session`].
    ///
    /// # Errors
    /// The first provision that does not state what the profile demands, or whose window is larger than
    /// the configured one.
    pub fn new(
        point: Point,
        config: ObserverConfig,
        provisions: Vec<Provision>,
    ) -> Result<Self, ProvisionError> {
        Self::check(&provisions, &config)?;
        let tick = nanos(config.report_interval.min(config.idle_timeout)) / 256;
        Ok(Self {
            point,
            config,
            idle: nanos(config.idle_timeout),
            needed: core::array::from_fn(needed_octets),
            provisions,
            version: 0,
            session: None,
            suspended: false,
            faults: 0,
            pair_faults: alloc::vec![0; PAIRS],
            // Twice the entries: a table that is at most half full is cleaned up in place.
            index: HashMap::with_capacity(2 * config.contexts as usize),
            last: (Words::NONE, NO_SLOT),
            contexts: Vec::with_capacity(config.contexts as usize),
            free_contexts: Vec::with_capacity(config.contexts as usize),
            epochs: (0..config.epochs)
                .map(|_| Epoch::new(config.window))
                .collect(),
            free_epochs: (0..config.epochs).rev().collect(),
            owners: alloc::vec![NO_SLOT; config.epochs as usize],
            hand: 0,
            epoch_hand: 0,
            sweep: 0,
            next_epoch: 0,
            wheel: Wheel::new(config.contexts, tick.max(1_000_000)),
            counters: ObserverCounters::default(),
        })
    }

    /// Whether these provisions can be observed so.
    ///
    /// # Errors
    /// As [`Observer::new`].
    pub(crate) fn check(
        provisions: &[Provision],
        config: &ObserverConfig,
    ) -> Result<(), ProvisionError> {
        if provisions.len() > ObserverConfig::MAX_PROVISIONS {
            return Err(ProvisionError::TooMany(provisions.len()));
        }
        for provision in provisions {
            provision.check()?;
            if provision.window > config.window {
                return Err(ProvisionError::Window(provision.window));
            }
        }
        Ok(())
    }

    /// Starts metering for a new Transport Session, with fresh state: epochs of the one before end
    /// without a report. Connections that are disabled stay so.
    pub fn begin_session(&mut self, session: u32) {
        self.session = Some(session);
    }

    /// Stops metering: there is no session to report to.
    pub fn end_session(&mut self) {
        self.session = None;
    }

    /// Counts a packet, which is of the profile's opcodes or not.
    #[inline]
    pub fn packet(&mut self, now: Utc, packet: &Observation, sink: &mut impl Sink) {
        let opcode = packet.bth.opcode.0;
        // Responses and CNPs are no requests (AMB-SEQ-OPC).
        if self.session.is_none() || matches!(opcode, 0x0d..=0x12 | 0x81) {
            return;
        }
        let Some(slot) = self.lookup(packet, sink) else {
            self.counters.unprovisioned += 1;
            return;
        };
        self.settle(slot, sink);
        let needed = self.needed.get(usize::from(opcode));
        let fits = needed.is_some_and(|needed| {
            packet.payload_octets >= needed + u16::from(packet.bth.pad_count())
        });
        let state = self.contexts[slot as usize].state;
        match state {
            State::Active(epoch) if fits && !self.suspended => {
                let epoch = &mut self.epochs[epoch as usize];
                if now.0.saturating_sub(epoch.last().0) <= self.idle {
                    match epoch.accept(now, packet.bth.psn, self.config.counter_limit) {
                        Step::Counted => return,
                        Step::Discontinuity => self.close(slot, Flags::SERIAL_DISCONTINUITY, sink),
                        Step::Exhausted => self.close(slot, Flags::NONE, sink),
                    }
                } else {
                    self.close(slot, Flags::NONE, sink);
                }
                self.start(now, slot, packet, sink);
            }
            State::Disabled => self.counters.disabled += 1,
            // It was until other provisions came.
            State::Free => self.counters.unprovisioned += 1,
            _ if !fits => self.violate(slot, sink),
            _ if self.suspended => self.counters.suspended += 1,
            _ => self.start(now, slot, packet, sink),
        }
    }

    /// The context of a connection, made if there is none yet.
    #[inline]
    fn lookup(&mut self, packet: &Observation, sink: &mut impl Sink) -> Option<u32> {
        let words = ConnectionKey::words_of(packet);
        if self.last.0 == words {
            return Some(self.last.1);
        }
        let slot = match self.index.get(&words) {
            Some(&slot) => slot,
            None => self.admit(&ConnectionKey::of(packet), words, sink)?,
        };
        self.last = (words, slot);
        Some(slot)
    }

    fn admit(&mut self, key: &ConnectionKey, words: Words, sink: &mut impl Sink) -> Option<u32> {
        let provision = *self.provision_of(key)?;
        let slot = match self.free_contexts.pop() {
            Some(slot) => slot,
            None if self.contexts.len() < self.config.contexts as usize => {
                self.contexts.push(Context::new(*key));
                self.contexts.len() as u32 - 1
            }
            None => self.reuse_context(sink)?,
        };
        self.contexts[slot as usize] = Context {
            window: provision.window,
            generation: provision.generation,
            version: self.version,
            pair: pair_of(&words),
            session: self.session.unwrap_or_default(),
            ..Context::new(*key)
        };
        let faults = self.faults_of(slot);
        self.contexts[slot as usize].faults = faults;
        self.index.insert(words, slot);
        Some(slot)
    }

    /// A context to use again, among the next few: one without an epoch, else the one whose last request
    /// is the longest ago. Disabled ones are kept, or a later request would enable the connection.
    fn reuse_context(&mut self, sink: &mut impl Sink) -> Option<u32> {
        let count = self.contexts.len() as u32;
        let mut oldest: Option<(Utc, u32)> = None;
        for _ in 0..CANDIDATES {
            self.hand = (self.hand + 1) % count.max(1);
            let last = match self.contexts.get(self.hand as usize)?.state {
                State::Idle => Utc(0),
                State::Active(epoch) => self.epochs[epoch as usize].last(),
                State::Free | State::Disabled => continue,
            };
            if oldest.is_none_or(|(earliest, _)| last < earliest) {
                oldest = Some((last, self.hand));
            }
        }
        let Some((_, slot)) = oldest else {
            self.counters.refused += 1;
            return None;
        };
        self.evict(slot, sink);
        self.forget(slot);
        self.free_contexts.pop()
    }

    fn evict(&mut self, slot: u32, sink: &mut impl Sink) {
        if matches!(self.contexts[slot as usize].state, State::Active(_)) {
            self.close(slot, Flags::STATE_EXHAUSTION, sink);
            self.counters.evicted += 1;
        }
    }

    /// Removes a context from the index; it is free then.
    fn forget(&mut self, slot: u32) {
        self.index.remove(&self.contexts[slot as usize].key.words());
        self.contexts[slot as usize].state = State::Free;
        self.free_contexts.push(slot);
        self.forget_last();
    }

    /// The next packet is looked up in the index.
    fn forget_last(&mut self) {
        self.last = (Words::NONE, NO_SLOT);
    }

    /// Brings a context up to what happened since it was last looked at: a new session, a capture fault, other
    /// provisions. Without a provision it is free afterwards.
    #[inline]
    fn settle(&mut self, slot: u32, sink: &mut impl Sink) {
        let faults = self.faults_of(slot);
        let context = &self.contexts[slot as usize];
        if Some(context.session) == self.session
            && context.faults == faults
            && context.version == self.version
        {
            return;
        }
        self.catch_up(slot, faults, sink);
    }

    #[cold]
    fn catch_up(&mut self, slot: u32, faults: u32, sink: &mut impl Sink) {
        let context = &mut self.contexts[slot as usize];
        let missed = context.faults != faults;
        context.faults = faults;
        if Some(context.session) != self.session {
            context.session = self.session.unwrap_or_default();
            if let State::Active(epoch) = context.state {
                context.state = State::Idle;
                self.free_epochs.push(epoch);
                self.wheel.remove(slot);
            }
        } else if missed {
            self.close(slot, Flags::CAPTURE_DISCONTINUITY, sink);
        }
        if self.contexts[slot as usize].version != self.version {
            self.provision_anew(slot, sink);
        }
    }

    #[inline]
    fn faults_of(&self, slot: u32) -> u32 {
        let pair = usize::from(self.contexts[slot as usize].pair) % PAIRS;
        self.faults.wrapping_add(self.pair_faults[pair])
    }

    /// An unsupported or malformed request: the connection is not observed any more.
    fn violate(&mut self, slot: u32, sink: &mut impl Sink) {
        self.close(slot, Flags::PROFILE_VIOLATION, sink);
        self.contexts[slot as usize].state = State::Disabled;
        self.counters.violations += 1;
    }

    /// Starts an epoch with a request.
    fn start(&mut self, now: Utc, slot: u32, packet: &Observation, sink: &mut impl Sink) {
        let Some(epoch) = self.free_epochs.pop().or_else(|| self.evict_oldest(sink)) else {
            self.counters.refused += 1;
            return;
        };
        let context = &mut self.contexts[slot as usize];
        self.epochs[epoch as usize].start(now, context.window, packet.bth.psn);
        self.next_epoch += 1;
        context.state = State::Active(epoch);
        self.owners[epoch as usize] = slot;
        context.epoch = self.next_epoch;
        context.reports = 0;
        context.next_report = now.after(self.config.report_interval);
        let at = context.next_report.min(now.after(self.config.idle_timeout));
        self.wheel.set(slot, at);
    }

    /// Gives up, of a few epochs, the one whose last request is the longest ago; all are in use.
    fn evict_oldest(&mut self, sink: &mut impl Sink) -> Option<u32> {
        let count = self.epochs.len();
        let next = (0..CANDIDATES.min(count)).map(|step| (self.epoch_hand + step) % count);
        let oldest = next.min_by_key(|&epoch| self.epochs[epoch].last())?;
        self.epoch_hand = (self.epoch_hand + CANDIDATES) % count;
        self.evict(self.owners[oldest], sink);
        self.free_epochs.pop()
    }

    /// Makes the final report of an active epoch; without one, nothing.
    fn close(&mut self, slot: u32, reason: Flags, sink: &mut impl Sink) {
        let State::Active(epoch) = self.contexts[slot as usize].state else {
            return;
        };
        self.emit(slot, epoch, Flags::FINAL | reason, sink);
        self.contexts[slot as usize].state = State::Idle;
        self.free_epochs.push(epoch);
        self.wheel.remove(slot);
        self.counters.finals += 1;
    }

    fn emit(&mut self, slot: u32, epoch: u32, flags: Flags, sink: &mut impl Sink) {
        let context = &self.contexts[slot as usize];
        let epoch = &self.epochs[epoch as usize];
        let generation = if context.generation.is_some() {
            Flags::NONE
        } else {
            Flags::GENERATION_UNVERIFIED
        };
        let record = SequenceRecord {
            point: self.point.id,
            collector: self.config.collector,
            session: context.session,
            context: slot,
            epoch: context.epoch,
            key: context.key,
            flags: flags | generation,
            window: epoch.width(),
            start: epoch.first(),
            end: epoch.last(),
            counts: epoch.counts(flags.contains(Flags::FINAL)),
        };
        self.counters.reports += 1;
        if !sink.sequence(&record) {
            self.counters.lost_reports += 1;
        }
    }

    /// Makes an ordinary report. The last report number is kept for the final one: in its place the
    /// epoch closes (AMB-SEQ-OVF).
    fn report(&mut self, slot: u32, sink: &mut impl Sink) {
        let State::Active(epoch) = self.contexts[slot as usize].state else {
            return;
        };
        if self.contexts[slot as usize].reports.saturating_add(1) >= self.config.counter_limit {
            self.close(slot, Flags::NONE, sink);
            return;
        }
        self.contexts[slot as usize].reports += 1;
        self.emit(slot, epoch, Flags::NONE, sink);
    }
}

mod control;
#[cfg(test)]
mod tests;

/// Octets that an opcode needs behind the UDP header, padding apart (AMB-SEQ-MALF).
fn needed_octets(opcode: usize) -> u16 {
    let headers = Opcode(opcode as u8).ext().map_or(0, |ext| ext.payload);
    u16::from(headers) + ICRC_LEN as u16
}

/// Where the faults of a pair of addresses are counted.
fn pair_of(words: &Words) -> u16 {
    (words.of_addresses() >> 48) as u16 % PAIRS as u16
}
