//! A clean stream of our own exporter raises no issue; each mistake that exporters make raises one.
#![allow(clippy::unwrap_used, clippy::panic)]
#![allow(clippy::type_complexity, clippy::cloned_ref_to_slice_refs)]

use std::time::Duration;

use crem_meter::PacketRecord;
use crem_meter::point::Direction;
use crem_meter::select::{Selection, SelectionStats};
use crem_meter::seq::{ConnectionKey, Counts, Flags, SequenceRecord};
use crem_wire::roce::{Bth, Opcode};
use crem_wire::{Psn, Qpn};
use proptest::prelude::*;

use super::*;
use crate::collect::{Outcome, json};
use crate::profile::QpOctets;
use crate::session::{
    PacketProfile, SelectionSequence, SequenceProfile, Session, SessionConfig, Totals, Transport,
};

const NOW: Utc = Utc(1_793_009_730_125_000_000);

fn mapping() -> Arc<Mapping> {
    Arc::new(Mapping::consecutive(32473, 1).unwrap())
}

fn config() -> SessionConfig {
    SessionConfig {
        domain: 7,
        transport: Transport::Stream { max_message: 1400 },
        mapping: mapping(),
        qp: QpOctets::Three,
        packets: Some(PacketProfile {
            unselected: false,
            selections: vec![SelectionSequence {
                id: 9001,
                point: 12,
                selection: Selection::Count {
                    interval: 1,
                    space: 9,
                },
            }],
            time_error: 100.0,
        }),
        flows: None,
        sequence: Some(SequenceProfile {
            namespaces: false,
            contexts: 10,
        }),
        metering_process: 1,
        exporting_process: 1,
    }
}

fn packet(psn: u32) -> PacketRecord {
    PacketRecord {
        point: 12,
        time: NOW,
        source: "10.0.0.1".parse().unwrap(),
        destination: "10.0.0.2".parse().unwrap(),
        source_port: 49152,
        destination_port: 4791,
        tos: 3,
        direction: Direction::Ingress,
        selection: Some(9001),
        bth: Bth {
            opcode: Opcode(4),
            octet1: 0,
            pkey: 0xffff,
            octet4: 0,
            dest_qp: Qpn::new(291),
            octet8: 0,
            psn: Psn::new(psn),
        },
    }
}

fn snapshot(epoch: u64, flags: Flags, requests: u64) -> SequenceRecord {
    SequenceRecord {
        point: 1,
        collector: 0,
        session: 1,
        context: 0,
        epoch,
        key: ConnectionKey {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            qp: Qpn::new(291),
            pkey: 0xffff,
            context: 0,
        },
        flags,
        window: 64,
        start: NOW,
        end: NOW,
        counts: Counts {
            requests,
            ..Counts::default()
        },
    }
}

/// Announcement, then a message with two packets, then one with reports of an epoch up to the final one.
fn stream() -> Vec<Vec<u8>> {
    let mut session = Session::new(Arc::new(config()), 1, Totals::default()).unwrap();
    let mut out = Vec::new();
    session.announce(NOW, &mut out);
    let stats = SelectionStats {
        observed: 20,
        selected: 2,
    };
    session
        .selection_stats(NOW, 9001, &stats, &mut out)
        .unwrap();
    session.packet(NOW, &packet(1), &mut out).unwrap();
    session.packet(NOW, &packet(2), &mut out).unwrap();
    session.flush(NOW, &mut out);
    session
        .sequence(NOW, &snapshot(5, Flags::NONE, 1), &mut out)
        .unwrap();
    session
        .sequence(NOW, &snapshot(5, Flags::NONE, 2), &mut out)
        .unwrap();
    session
        .sequence(NOW, &snapshot(5, Flags::FINAL, 3), &mut out)
        .unwrap();
    session.flush(NOW.after(Duration::from_secs(2)), &mut out);
    let mut deframer = super::super::Deframer::new();
    deframer.push(&out);
    let mut messages = Vec::new();
    while let Some(message) = deframer.message().unwrap() {
        messages.push(message.to_vec());
    }
    messages
}

/// What a collector says to these messages.
struct Said {
    issues: Vec<Issue>,
    stored: Vec<Stored>,
    counters: CollectCounters,
}

fn collect(messages: &[Vec<u8>], delivery: Delivery) -> Said {
    let limits = (DecodeLimits::default(), EpochLimits::default());
    let mut session = CollectorSession::new(mapping(), delivery, limits.0, limits.1);
    let (mut issues, mut stored) = (Vec::new(), Vec::new());
    let mapping = mapping();
    let mut tell = |event: Event<'_>| {
        assert!(json::event(&event, &mapping).get("event").is_some());
        match event {
            Event::Issue(_, issue) => issues.push(issue.clone()),
            Event::Stored(_, epoch) => stored.push(*epoch),
            _ => {}
        }
    };
    for message in messages {
        let _ = session.message(NOW, message, &mut tell);
    }
    session.end(false, &mut tell);
    let counters = *session.counters();
    assert_eq!(counters.issues, issues.len() as u64);
    Said {
        issues,
        stored,
        counters,
    }
}

#[test]
fn a_clean_stream_raises_no_issue() {
    let said = collect(&stream(), Delivery::Ordered);
    assert_eq!(said.issues, []);
    let counters = said.counters;
    assert_eq!(
        (counters.packets, counters.reports, counters.missing_records),
        (2, 3, 0)
    );
    assert_eq!(said.stored.len(), 1);
    assert_eq!(said.stored[0].outcome, Outcome::Complete);
}

/// Changes the octets at every place where `from` stands.
fn replace(message: &mut [u8], from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let mut found = false;
    for at in 0..=message.len() - from.len() {
        if &message[at..at + from.len()] == from {
            message[at..at + from.len()].copy_from_slice(to);
            found = true;
        }
    }
    assert!(found);
}

/// The message of the stream that defines this template.
fn defining(messages: &[Vec<u8>], id: u16) -> usize {
    let mut decoder = Decoder::new(mapping(), Delivery::Ordered, DecodeLimits::default());
    messages
        .iter()
        .position(|octets| decoder.decode(octets).unwrap().defined.contains(&id))
        .unwrap()
}

/// What a mistake does to a clean stream.
type Spoil = fn(&mut Vec<Vec<u8>>);

// shows: SEQ-COL-01
#[test]
fn each_mistake_is_noticed() {
    let mistakes: [(&str, Spoil, fn(&Issue) -> bool); 16] = [
        (
            "sequence counts messages",
            |s| {
                let last = s.len() - 1;
                s[last][8..12].copy_from_slice(&(last as u32).to_be_bytes());
            },
            |i| matches!(i, Issue::Sequence(..)),
        ),
        (
            "a message is dropped behind its number",
            |s| drop(s.remove(s.len() - 2)),
            |i| matches!(i, Issue::Sequence(..)),
        ),
        (
            "sequence goes on after a reconnect",
            |s| {
                for message in s.iter_mut() {
                    let number =
                        u32::from_be_bytes([message[8], message[9], message[10], message[11]]);
                    message[8..12].copy_from_slice(&(number + 100).to_be_bytes());
                }
            },
            |i| matches!(i, Issue::Sequence(0, 100)),
        ),
        (
            "data before templates",
            |s| s.rotate_right(1),
            |i| matches!(i, Issue::Refused(DecodeError::NoTemplate(_))),
        ),
        (
            "redefined without withdrawal",
            |s| {
                let at = defining(s, 256);
                let mut again = s[at].clone();
                replace(&mut again, &[0, 138, 0, 8], &[0, 138, 0, 7]);
                s.push(again);
            },
            |i| matches!(i, Issue::Refused(DecodeError::Redefined(_))),
        ),
        (
            "length without the header",
            |s| {
                let last = s.last_mut().unwrap();
                let length = last.len() as u16 - 16;
                last[2..4].copy_from_slice(&length.to_be_bytes());
            },
            |i| matches!(i, Issue::Refused(DecodeError::Length(..))),
        ),
        (
            "set beyond its message",
            |s| s.last_mut().unwrap()[18] = 0x40,
            |i| matches!(i, Issue::Refused(DecodeError::SetLength(..))),
        ),
        (
            "an empty set",
            |s| {
                let last = s.last_mut().unwrap();
                last.extend_from_slice(&[1, 0, 0, 4]);
                let length = last.len() as u16;
                last[2..4].copy_from_slice(&length.to_be_bytes());
            },
            |i| matches!(i, Issue::Refused(DecodeError::EmptySet(_))),
        ),
        (
            "time in four octets",
            |s| {
                let at = defining(s, 256);
                replace(&mut s[at], &[1, 69, 0, 8], &[1, 69, 0, 4]);
            },
            |i| matches!(i, Issue::Refused(DecodeError::FieldLength(..))),
        ),
        (
            "export time goes back",
            |s| {
                s.last_mut().unwrap()[4..8].copy_from_slice(&[0; 4]);
            },
            |i| matches!(i, Issue::ExportTime(..)),
        ),
        (
            "no scope",
            |s| {
                let at = defining(s, 512);
                replace(&mut s[at], &[2, 0, 0, 9, 0, 2], &[2, 0, 0, 9, 0, 0]);
            },
            |i| matches!(i, Issue::Refused(DecodeError::Scope(..))),
        ),
        (
            "another enterprise",
            |s| {
                let at = defining(s, 256);
                replace(&mut s[at], &[0, 0, 0x7e, 0xd9], &[0, 0, 0, 9]);
            },
            |i| matches!(i, Issue::Note(Note::UnknownElement(..))),
        ),
        (
            "a counter in the packet profile",
            |s| {
                let at = defining(s, 256);
                replace(&mut s[at], &[1, 45, 0, 8], &[0, 2, 0, 8]);
            },
            |i| {
                matches!(
                    i,
                    Issue::Template(_, Nonconformity::Forbidden("packetDeltaCount"))
                )
            },
        ),
        (
            "a final report with pending positions",
            |s| {
                // The low octets of skippedPsnTotalCount and pendingPsnCount.
                let last = s.last_mut().unwrap();
                let start = last.len() - 120;
                (last[start + 67], last[start + 95]) = (1, 1);
            },
            |i| *i == Issue::Verdict(Verdict::Rejected),
        ),
        (
            "the epoch goes on behind its final report",
            |s| {
                // The flags of the first of three reports.
                let last = s.last_mut().unwrap();
                let start = last.len() - 360;
                last[start + 59] |= 1;
            },
            |i| *i == Issue::Verdict(Verdict::EpochInvalid),
        ),
        (
            "no report on the selection",
            |s| {
                let announced = s.len() - 2;
                for message in &mut s[..announced] {
                    if message.windows(8).any(|w| w == 9001u64.to_be_bytes()) {
                        replace(message, &9001u64.to_be_bytes(), &9002u64.to_be_bytes());
                    }
                }
            },
            |i| *i == Issue::Selection(9001),
        ),
    ];
    for (what, spoil, noticed) in mistakes {
        let mut messages = stream();
        spoil(&mut messages);
        let said = collect(&messages, Delivery::Ordered);
        assert!(said.issues.iter().any(noticed), "{what}: {:?}", said.issues);
    }
}

// shows: BTH-PKT-07
#[test]
fn lost_datagrams_are_counted_as_missing_records() {
    let mut messages = stream();
    let at = messages.len() - 2;
    messages.remove(at);
    let said = collect(&messages, Delivery::Lossy);
    assert_eq!(said.counters.missing_records, 3);
    // Repeated ones are none.
    let mut messages = stream();
    messages.push(messages[at].clone());
    assert_eq!(
        collect(&messages, Delivery::Lossy).counters.missing_records,
        0
    );
    let sequence = |i: &Issue| matches!(i, Issue::SequenceTransport(_));
    assert!(
        collect(&stream(), Delivery::Lossy)
            .issues
            .iter()
            .any(sequence)
    );
}

#[test]
fn elements_that_were_not_announced_are_told() {
    let mut messages = stream();
    let at = defining(&messages, 256);
    // Without the type information, from a stream that starts later.
    let later = messages.split_off(at);
    let said = collect(&later, Delivery::Lossy);
    assert!(said.issues.contains(&Issue::Untyped(256)) || later.len() == messages.len());
}

// shows: SEQ-COL-20
#[test]
fn silence_ends_epochs_as_incomplete() {
    let mut messages = stream();
    messages.pop();
    let mut session = Session::new(Arc::new(config()), 1, Totals::default()).unwrap();
    let mut out = Vec::new();
    session.announce(NOW, &mut out);
    session
        .sequence(NOW, &snapshot(5, Flags::NONE, 1), &mut out)
        .unwrap();
    session.flush(NOW, &mut out);
    let limits = EpochLimits::default();
    let mut collector = CollectorSession::new(
        mapping(),
        Delivery::Ordered,
        DecodeLimits::default(),
        limits,
    );
    let mut deframer = super::super::Deframer::new();
    deframer.push(&out);
    while let Some(message) = deframer.message().unwrap() {
        collector.message(NOW, message, &mut |_| {}).unwrap();
    }
    assert_eq!(collector.epochs().count(), 1);
    let mut outcome = None;
    collector.expire(NOW.after(limits.inactivity), &mut |event| {
        if let Event::Stored(7, stored) = event {
            outcome = Some((stored.outcome, stored.measurements.map(|m| m.requests)));
        }
    });
    assert_eq!(outcome, Some((Outcome::Incomplete, Some(1))));
    assert_eq!(collector.epochs().count(), 0);
}

// shows: BTH-IE-05, BTH-IE-14, BTH-SEL-05, BTH-COR-01, BTH-COR-03, SEQ-COL-09, SEQ-COL-23, SEQ-COL-24
// shows: SEQ-COL-25, SEQ-COL-26, SEQ-COL-27
#[test]
fn output_names_elements_and_claims_nothing() {
    let mapping = mapping();
    let mut lines = Vec::new();
    let limits = (DecodeLimits::default(), EpochLimits::default());
    let mut session =
        CollectorSession::new(Arc::clone(&mapping), Delivery::Ordered, limits.0, limits.1);
    let mut tell = |event: Event<'_>| lines.push(json::event(&event, &mapping));
    for message in stream() {
        session.message(NOW, &message, &mut tell).unwrap();
    }
    session.end(true, &mut tell);
    let packet = lines
        .iter()
        .find(|line| line["event"] == "record" && line["profile"] == "bth-packet")
        .unwrap();
    assert_eq!(packet["values"]["rocev2BthDestinationQp"], 291);
    assert_eq!(packet["values"]["sourceIPv4Address"], "10.0.0.1");
    assert_eq!(
        packet["values"]["observationTimeNanoseconds"],
        1_793_009_730_125_000_000u64
    );
    let epoch = lines.iter().find(|line| line["event"] == "epoch").unwrap();
    assert_eq!(epoch["outcome"], "complete");
    assert_eq!(epoch["measurements"]["requestPacketTotalCount"], 3);
    let issue = lines.iter().find(|line| line["event"] == "issue").unwrap();
    assert_eq!(issue["issue"], "the stream ended within a message");
    for line in &lines {
        let text = line.to_string().to_lowercase();
        // Type records explain that nothing follows from a PSN alone.
        if line["template"] != 512 {
            for word in ["lost", "loss", "retransmi", "reorder"] {
                assert!(!text.contains(word), "{text}");
            }
        }
    }
}

proptest! {
    #[test]
    fn anything_is_collected_or_refused(
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), 16..1400usize, any::<u8>()), 1..30),
        lossy: bool,
    ) {
        let mut messages = stream();
        for (message, at, octet) in flips {
            let message = message.index(messages.len());
            let length = messages[message].len();
            messages[message][at % length] = octet;
        }
        let delivery = if lossy { Delivery::Lossy } else { Delivery::Ordered };
        let said = collect(&messages, delivery);
        let total = said.counters.messages + said.counters.refused;
        prop_assert_eq!(total, messages.len() as u64);
    }
}
