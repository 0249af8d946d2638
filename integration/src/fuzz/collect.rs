//! A collector's session against an exporter that is fine, and a network and peers that are not: messages
//! of a real session are damaged, repeated, left out and put out of order, time passes, epochs are given
//! up. What section 7 of the sequence draft promises has to hold all the same.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crem_ipfix::collect::{CollectorSession, EpochLimits, Event, Outcome, Verdict, json};
use crem_ipfix::decode::{DecodeLimits, Delivery};
use crem_ipfix::element::Mapping;
use crem_ipfix::profile::QpOctets;
use crem_ipfix::session::{SequenceProfile, Session, SessionConfig, Totals, Transport};
use crem_meter::Utc;
use crem_meter::seq::{ConnectionKey, Counts, Flags, SequenceRecord};
use crem_wire::Qpn;

use super::Reader;

/// Epochs of a domain at once: few, so that admission is refused now and then.
const CONTEXTS: usize = 3;
/// Connections of the exporter.
const CONNECTIONS: u32 = 5;

fn exporter(mapping: &Arc<Mapping>) -> Option<Session> {
    let config = SessionConfig {
        domain: 7,
        transport: Transport::Stream { max_message: 512 },
        mapping: Arc::clone(mapping),
        qp: QpOctets::Three,
        packets: None,
        flows: None,
        sequence: Some(SequenceProfile {
            namespaces: false,
            contexts: CONNECTIONS as usize,
        }),
        metering_process: 1,
        exporting_process: 1,
    };
    Session::new(Arc::new(config), 1, Totals::default()).ok()
}

/// The state of a connection at the exporter.
#[derive(Clone, Copy, Default)]
struct Connection {
    epoch: u64,
    counts: Counts,
}

/// A snapshot that goes on from the one before, mostly consistent.
fn record(reader: &mut Reader<'_>, context: u32, connection: &mut Connection) -> SequenceRecord {
    let counts = &mut connection.counts;
    counts.requests += 1 + u64::from(reader.octet());
    counts.repeated += u64::from(reader.octet() % 2);
    let skipped = u64::from(reader.octet() % 4);
    counts.skipped += skipped;
    counts.expired += skipped;
    let last = reader.once_in(4);
    let mut flags = Flags(0x20 | u16::from(last));
    if reader.once_in(16) {
        flags = Flags(reader.word());
    }
    let record = SequenceRecord {
        point: 12,
        collector: 0,
        session: 1,
        context,
        epoch: connection.epoch,
        key: ConnectionKey {
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, context as u8].into(),
            qp: Qpn::new(context + 2),
            pkey: 0xffff,
            context: 0,
        },
        flags,
        window: 64,
        start: Utc::from_millis(connection.epoch),
        end: Utc::from_millis(connection.epoch + counts.requests),
        counts: *counts,
    };
    if flags.contains(Flags::FINAL) {
        *connection = Connection {
            epoch: connection.epoch + 1,
            ..Connection::default()
        };
    }
    record
}

/// The messages of an exporter's session.
fn messages(reader: &mut Reader<'_>, mapping: &Arc<Mapping>) -> Vec<Vec<u8>> {
    let Some(mut session) = exporter(mapping) else {
        return Vec::new();
    };
    let mut octets = Vec::new();
    let now = Utc::from_millis(1_800_000_000_000);
    session.announce(now, &mut octets);
    let mut connections = [Connection::default(); CONNECTIONS as usize];
    for _ in 0..4 + reader.octet() % 32 {
        let context = reader.below(connections.len());
        let Some(connection) = connections.get_mut(context) else {
            continue;
        };
        let record = record(reader, context as u32, connection);
        // One without an identifier left is not written, and the collector never sees it.
        let _ = session.sequence(now, &record, &mut octets);
        if reader.once_in(3) {
            session.flush(now, &mut octets);
        }
    }
    session.flush(now, &mut octets);
    let mut messages = Vec::new();
    let mut rest = octets.as_slice();
    while let [_, _, high, low, ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low])).clamp(1, rest.len());
        let (message, behind) = rest.split_at(length);
        messages.push(message.to_vec());
        rest = behind;
    }
    messages
}

/// Watches what a collector says.
#[derive(Default)]
struct Watch {
    /// Epochs that were given up, by domain.
    stored: BTreeSet<(u32, u64)>,
    taken: u64,
}

impl Watch {
    fn hear(&mut self, event: &Event<'_>, mapping: &Mapping) {
        let value = json::event(event, mapping);
        assert!(value.get("event").is_some());
        match event {
            Event::Report(domain, report, verdict) => {
                let taken = matches!(
                    verdict,
                    Verdict::Accepted | Verdict::AcceptedGap | Verdict::Unsupported
                );
                if taken {
                    self.taken += 1;
                    assert!(report.is_valid(), "an inconsistent report is taken");
                    let again = self.stored.contains(&(*domain, report.epoch));
                    assert!(!again, "an epoch that was given up is opened again");
                }
            }
            Event::Stored(domain, stored) => {
                if stored.outcome == Outcome::Complete {
                    assert!(stored.final_seen && !stored.gap && !stored.unsupported);
                }
                let new = self.stored.insert((*domain, stored.epoch));
                assert!(new, "an epoch is given up twice");
            }
            _ => {}
        }
    }
}

/// Collects a session of which some octets, messages and their order are wrong; how many reports were
/// taken.
///
/// # Panics
/// What must hold does not: what the fuzzer is looking for.
pub fn session(data: &[u8]) -> u64 {
    let mut reader = Reader::new(data);
    let Ok(mapping) = Mapping::consecutive(32473, 1) else {
        return 0;
    };
    let mapping = Arc::new(mapping);
    let delivery = if reader.once_in(4) {
        Delivery::Lossy
    } else {
        Delivery::Ordered
    };
    let limits = EpochLimits {
        contexts: CONTEXTS,
        inactivity: Duration::from_secs(60),
        retention: Duration::from_secs(10),
    };
    let decode = DecodeLimits::default();
    let mut collector = CollectorSession::new(Arc::clone(&mapping), delivery, decode, limits);
    let mut watch = Watch::default();
    let mut now = Utc::from_millis(1_800_000_000_000);
    let mut given = 0;
    for mut message in messages(&mut reader, &mapping) {
        let mut times = 1;
        match reader.octet() % 24 {
            0 => times = 0,
            1 => times = 2,
            2 => reader.damage(&mut message),
            3 => now = now.after(Duration::from_secs(u64::from(reader.octet()))),
            _ => {}
        }
        for _ in 0..times {
            given += 1;
            let _ = collector.message(now, &message, &mut |event| watch.hear(&event, &mapping));
        }
        if reader.once_in(4) {
            collector.expire(now, &mut |event| watch.hear(&event, &mapping));
        }
        bounded(&collector, given);
    }
    collector.end(reader.once_in(2), &mut |event| watch.hear(&event, &mapping));
    assert_eq!(
        collector.epochs().count(),
        0,
        "an epoch outlives its session"
    );
    watch.taken
}

fn bounded(collector: &CollectorSession, given: u64) {
    let counters = collector.counters();
    assert_eq!(counters.messages + counters.refused, given);
    let mut of_domain = std::collections::BTreeMap::new();
    for (domain, _) in collector.epochs() {
        *of_domain.entry(domain).or_insert(0) += 1;
    }
    assert!(of_domain.values().all(|epochs| *epochs <= CONTEXTS));
}
