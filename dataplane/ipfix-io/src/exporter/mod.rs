//! An exporter to one collector: connects, keeps a session while the connection stands, takes records
//! into it, sends, reads, and begins anew after a while when the connection ends. It never waits and
//! blocks nobody: call [`Exporter::drive`] when its descriptor is ready or its time has come.

mod config;
mod connect;
mod outbox;
mod past;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

use crem_ipfix::session::{Ignored, NotSent, Refused, Session, SessionConfig, Totals};
use crem_meter::flow::FlowRecord;
use crem_meter::select::SelectionStats;
use crem_meter::seq::SequenceRecord;
use crem_meter::{PacketRecord, Utc};
use rustls::ClientConfig;

pub use config::{
    Destination, EndReason, ExporterConfig, ExporterCounters, ExporterError, ExporterEvent,
};
use connect::refusal;
use outbox::Outbox;
pub(crate) use past::Past;

use crate::link::{Link, Received};
use crate::wait::Interest;

/// Events that wait to be taken at most.
const MAX_EVENTS: usize = 64;

#[derive(Debug)]
enum State {
    /// Not connected until the next attempt.
    Waiting {
        until: Utc,
    },
    /// Its name is being looked up.
    Resolving {
        until: Utc,
    },
    /// TCP or SCTP.
    Connecting {
        link: Link,
        until: Utc,
    },
    /// TLS.
    Handshaking {
        link: Link,
        until: Utc,
    },
    /// TLS: our side is done, the collector may still refuse.
    Confirming {
        link: Link,
        until: Utc,
    },
    Open(Box<Open>),
    Closed,
}

#[derive(Debug)]
struct Open {
    link: Link,
    session: Session,
    outbox: Outbox,
    /// Sent in this session.
    sent: Totals,
    since: Utc,
    progress: Utc,
    /// When the open message leaves, if there may be one.
    flush: Option<Utc>,
    statistics: Utc,
}

/// An exporter to one collector.
#[derive(Debug)]
pub struct Exporter {
    config: ExporterConfig,
    state: State,
    number: u32,
    /// Attempts in a row without a session that lasted.
    failures: u32,
    attempt: Utc,
    lookup_due: bool,
    /// Sent in all sessions that are over.
    totals: Totals,
    not_sent: NotSent,
    ignored: Ignored,
    selections: Vec<(u64, SelectionStats)>,
    events: VecDeque<ExporterEvent>,
    counters: ExporterCounters,
}

impl Exporter {
    /// An exporter that connects at its first [`Exporter::drive`].
    ///
    /// # Errors
    /// A configuration that cannot be meant.
    pub fn new(config: ExporterConfig) -> Result<Self, ExporterError> {
        config.check()?;
        Ok(Self {
            config,
            state: State::Waiting { until: Utc(0) },
            number: 0,
            failures: 0,
            attempt: Utc(0),
            lookup_due: false,
            totals: Totals::default(),
            not_sent: NotSent::default(),
            ignored: Ignored::default(),
            selections: Vec::new(),
            events: VecDeque::new(),
            counters: ExporterCounters::default(),
        })
    }

    /// The number of the session, while there is one.
    pub fn session(&self) -> Option<u32> {
        matches!(self.state, State::Open(_)).then_some(self.number)
    }

    /// What it did so far.
    pub const fn counters(&self) -> &ExporterCounters {
        &self.counters
    }

    /// Records that were made for this collector and not sent.
    pub const fn not_sent(&self) -> &NotSent {
        &self.not_sent
    }

    /// Octets that wait to be sent.
    pub fn queued(&self) -> usize {
        match &self.state {
            State::Open(open) => open.outbox.len(),
            _ => 0,
        }
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<ExporterEvent> {
        self.events.pop_front()
    }

    /// Certificates for the connections to come; the one that stands goes on. `false` if the
    /// destination is not reached by TLS.
    pub fn set_tls(&mut self, new: Arc<ClientConfig>) -> bool {
        match &mut self.config.destination {
            Destination::Tls { config, .. } => {
                *config = new;
                true
            }
            _ => false,
        }
    }

    /// Takes terms that the session [goes on](SessionConfig::goes_on_as) by.
    pub fn go_on_by(&mut self, config: Arc<SessionConfig>) {
        if let State::Open(open) = &mut self.state {
            open.session.go_on_by(Arc::clone(&config));
        }
        self.config.session = config;
    }

    /// Whether packet records are for this collector.
    pub fn takes_packets(&self) -> bool {
        self.config.session.packets.is_some()
    }

    /// Whether aggregate flows are for this collector.
    pub fn takes_flows(&self) -> bool {
        self.config.session.flows.is_some()
    }

    /// What makes the records is a new process: its epochs are not those of the one before, whatever their
    /// numbers. Open epochs stay without a final report.
    pub fn source_restarted(&mut self) {
        if let State::Open(open) = &mut self.state {
            open.session.forget_epochs();
        }
    }

    /// Tells what a Selection Sequence has seen; reported at intervals.
    pub fn set_selection(&mut self, sequence: u64, stats: SelectionStats) {
        match self.selections.iter_mut().find(|(of, _)| *of == sequence) {
            Some((_, known)) => *known = stats,
            None => self.selections.push((sequence, stats)),
        }
    }

    /// Tells what the metering did not take into account; reported at intervals.
    pub fn set_ignored(&mut self, ignored: Ignored) {
        self.ignored = ignored;
    }

    /// What to wait for; `None` while there is no connection.
    pub fn interest(&self) -> Option<Interest<'_>> {
        let (link, write) = match &self.state {
            State::Connecting { link, .. } => (link, true),
            State::Handshaking { link, .. } | State::Confirming { link, .. } => {
                (link, link.has_unsent())
            }
            // A file can always be written.
            State::Open(open) if matches!(open.link, Link::File(_)) => return None,
            State::Open(open) => (
                &open.link,
                !open.outbox.is_empty() || open.link.has_unsent(),
            ),
            State::Waiting { .. } | State::Resolving { .. } | State::Closed => return None,
        };
        Some(Interest {
            fd: link.as_fd(),
            read: true,
            write,
        })
    }

    /// When to call [`Exporter::drive`] whatever the descriptor says; `None` if it is closed.
    pub fn next_timeout(&self) -> Option<Utc> {
        match &self.state {
            State::Waiting { until }
            | State::Resolving { until }
            | State::Connecting { until, .. }
            | State::Handshaking { until, .. }
            | State::Confirming { until, .. } => Some(*until),
            State::Open(open) => {
                let stall = (!open.outbox.is_empty())
                    .then(|| open.progress.after(self.config.stall_timeout));
                [
                    Some(open.statistics),
                    open.flush,
                    stall,
                    open.session.next_timeout(),
                ]
                .into_iter()
                .flatten()
                .min()
            }
            State::Closed => None,
        }
    }

    /// Does what can be done now.
    pub fn drive(&mut self, now: Utc) {
        // Each step may make the next possible; four lead from nothing to an open session.
        for _ in 0..5 {
            let state = std::mem::replace(&mut self.state, State::Closed);
            let (next, again) = self.step(now, state);
            self.state = next;
            if !again {
                break;
            }
        }
    }

    /// One step: the state to go on with, and whether another step may follow at once.
    fn step(&mut self, now: Utc, state: State) -> (State, bool) {
        match state {
            State::Waiting { until } if now >= until => self.attempt(now),
            State::Resolving { until } if now >= until => {
                (self.fail(now, EndReason::ConnectTimeout), false)
            }
            State::Connecting { link, until } => match link.connected() {
                Ok(true) => self.connected(now, link),
                Ok(false) if now >= until => (self.fail(now, EndReason::ConnectTimeout), false),
                Ok(false) => (State::Connecting { link, until }, false),
                Err(error) => (self.fail(now, EndReason::Broken(error)), false),
            },
            State::Handshaking { link, until } => self.handshake(now, link, until),
            State::Confirming { link, until } => self.confirm(now, link, until),
            State::Open(open) => (self.serve(now, open), false),
            state => (state, false),
        }
    }

    fn open(&mut self, now: Utc, link: Link) -> State {
        self.number = self.number.wrapping_add(1);
        let session = Arc::clone(&self.config.session);
        // The configuration was checked; were it not, there would be nothing to send.
        let Ok(session) = Session::new(session, self.number, self.totals) else {
            return State::Closed;
        };
        let mut open = Box::new(Open {
            link,
            session,
            outbox: Outbox::default(),
            sent: Totals::default(),
            since: now,
            progress: now,
            flush: None,
            statistics: now,
        });
        open.write(|session, out| session.announce(now, out));
        self.counters.sessions += 1;
        self.tell(ExporterEvent::Began(self.number));
        State::Open(open)
    }

    /// Reads, writes and reports.
    fn serve(&mut self, now: Utc, mut open: Box<Open>) -> State {
        if now >= open.statistics {
            open.statistics = now.after(self.config.statistics);
            self.report(now, &mut open);
        }
        open.write(|session, out| session.poll(now, out));
        if open.flush.is_some_and(|at| now >= at) {
            open.flush = None;
            open.write(|session, out| session.flush(now, out));
        }
        match self.exchange(now, &mut open) {
            None => State::Open(open),
            Some(reason) => self.end(now, &open, reason),
        }
    }

    fn report(&mut self, now: Utc, open: &mut Open) {
        for (sequence, stats) in &self.selections {
            // One that is not configured for this collector is not for it.
            let _ = open.write(|session, out| session.selection_stats(now, *sequence, stats, out));
        }
        let (ignored, not_sent) = (self.ignored, self.not_sent);
        open.write(|session, out| {
            session.reliability(now, &ignored, &not_sent, out);
            session.flush(now, out);
        });
    }

    /// Reads and sends; why the session is over, if it is.
    fn exchange(&mut self, now: Utc, open: &mut Open) -> Option<EndReason> {
        let datagrams = matches!(open.link, Link::Udp(_));
        let mut buffer = [0; 4096];
        // A collector sends nothing; a flood of it does not keep us from sending.
        for _ in 0..16 {
            match open.link.receive(&mut buffer) {
                Ok(Received::Data(octets)) => self.counters.unexpected_octets += octets as u64,
                Ok(Received::Nothing) => break,
                Ok(Received::End) => return Some(EndReason::ClosedByCollector),
                Err(_) if datagrams => self.counters.datagram_errors += 1,
                Err(error) if refusal(&error) => return Some(EndReason::NotAuthorised(error)),
                Err(error) => return Some(broken(error)),
            }
        }
        let (counters, total) = (&mut self.counters, &mut open.sent);
        let mut done = |totals: Totals| {
            counters.messages += totals.messages;
            counters.records += totals.records;
            counters.octets += totals.octets;
            total.messages += totals.messages;
            total.records += totals.records;
            total.octets += totals.octets;
        };
        match open.outbox.send(&mut open.link, &mut done) {
            Ok(true) => open.progress = now,
            Ok(false) => {}
            // The port is closed now and then; the next datagram may be welcome (go-ipfix PR 427).
            Err(_) if datagrams => {
                open.outbox.skip_message(|_| {});
                counters.datagram_errors += 1;
            }
            Err(error) => return Some(broken(error)),
        }
        if let Err(error) = open.link.flush() {
            return Some(broken(error));
        }
        if open.outbox.is_empty() {
            open.progress = now;
        }
        let stalled = now.since(open.progress) >= self.config.stall_timeout;
        stalled.then_some(EndReason::Stalled)
    }

    /// The session is over: what was not sent is counted as such.
    fn end(&mut self, now: Utc, open: &Open, reason: EndReason) -> State {
        let unsent = open.outbox.unsent().records + open.session.open_records();
        self.counters.lost += unsent;
        for _ in 0..unsent {
            self.not_sent.add(now, 0, 0);
        }
        self.totals.messages += open.sent.messages;
        self.totals.records += open.sent.records;
        self.totals.octets += open.sent.octets;
        match &reason {
            EndReason::NotAuthorised(_) => self.counters.not_authorised += 1,
            EndReason::Stalled => self.counters.stalled += 1,
            _ => {}
        }
        if now.since(open.since) >= self.config.retry {
            self.failures = 0;
        }
        self.tell(ExporterEvent::Ended(self.number, reason));
        self.wait(now)
    }

    /// An attempt failed.
    fn fail(&mut self, now: Utc, reason: EndReason) -> State {
        self.counters.failures += 1;
        if matches!(reason, EndReason::NotAuthorised(_)) {
            self.counters.not_authorised += 1;
        }
        self.tell(ExporterEvent::Failed(reason));
        self.wait(now)
    }

    fn tell(&mut self, event: ExporterEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Takes the record of a packet; `false` if it is dropped, which is counted.
    pub fn packet(&mut self, now: Utc, record: &PacketRecord) -> bool {
        self.take(now, 1, 0, |session, out| session.packet(now, record, out))
    }

    /// Takes the record of an aggregate flow, `post` if it was counted behind repair; `false` if it is
    /// dropped, which is counted.
    pub fn flow(&mut self, now: Utc, post: bool, record: &FlowRecord) -> bool {
        let (packets, octets) = (record.packets, record.octets);
        self.take(now, packets, octets, |session, out| {
            session.flow(now, post, record, out)
        })
    }

    /// Takes the snapshot of an epoch; `false` if it is dropped, which is counted. One of an earlier
    /// session is dropped without being owed to this one.
    pub fn sequence(&mut self, now: Utc, record: &SequenceRecord) -> bool {
        if self.session() != Some(record.session) {
            self.counters.stale += 1;
            return false;
        }
        self.take(now, 0, 0, |session, out| {
            session.sequence(now, record, out).map(drop)
        })
    }

    fn take(
        &mut self,
        now: Utc,
        packets: u64,
        octets: u64,
        write: impl FnOnce(&mut Session, &mut Vec<u8>) -> Result<(), Refused>,
    ) -> bool {
        let State::Open(open) = &mut self.state else {
            self.counters.dropped_disconnected += 1;
            self.not_sent.add(now, packets, octets);
            return false;
        };
        // A record completes one message at most; it has to fit before anything gets a number.
        let room = open.outbox.len() + self.config.session.transport.max_message();
        if room > self.config.queue {
            self.counters.dropped_full += 1;
            self.not_sent.add(now, packets, octets);
            return false;
        }
        if open.write(write).is_err() {
            self.counters.refused += 1;
            self.not_sent.add(now, packets, octets);
            return false;
        }
        if open.flush.is_none() {
            open.flush = Some(now.after(self.config.flush));
        }
        true
    }

    /// Reports for the last time, sends what there is as far as that goes at once, and ends the session. No
    /// attempt follows.
    pub fn close(&mut self, now: Utc) {
        if let State::Open(mut open) = std::mem::replace(&mut self.state, State::Closed) {
            self.report(now, &mut open);
            let reason = self.exchange(now, &mut open).unwrap_or(EndReason::Closed);
            open.link.close();
            self.end(now, &open, reason);
        }
    }
}

impl Open {
    fn write<R>(&mut self, write: impl FnOnce(&mut Session, &mut Vec<u8>) -> R) -> R {
        self.outbox
            .append(&mut self.session, Session::totals, write)
    }
}

/// The kernel gives up a connection whose peer takes nothing for as long as we would.
fn broken(error: std::io::Error) -> EndReason {
    match error.kind() {
        std::io::ErrorKind::TimedOut => EndReason::Stalled,
        _ => EndReason::Broken(error),
    }
}
