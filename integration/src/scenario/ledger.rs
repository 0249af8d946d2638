//! What entered at one host against what left at the other, frame by frame.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crem_wan::{Class, Fate, LogEntry};
use crem_wire::Psn;
use crem_wire::frame::{Class as FrameClass, ParseConfig, Parsed, VXLAN_PORT, parse};
use serde::{Deserialize, Serialize};

use super::intruder::{is_a_strangers, is_between_others};

/// Hosts send VXLAN where the scenario says so, and nothing else to that port.
const PARSE: ParseConfig = ParseConfig {
    crem_port: None,
    vxlan_port: Some(VXLAN_PORT),
};
/// Foreign frames that are described.
const MAX_DESCRIBED: usize = 8;

/// How often one frame was seen, and as what.
#[derive(Clone, Copy, Debug)]
struct Seen {
    count: u32,
    class: Class,
    /// It carried a PSN beyond all earlier ones of its stream: not a retransmission.
    new: bool,
    brief: Brief,
    /// Where it stands among the frames sent, the last one of equal frames, and its stream.
    place: u64,
    stream: u32,
}

/// What tells a frame to a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Brief {
    opcode: u8,
    psn: Psn,
    /// IPv4 Identification.
    ident: Option<u16>,
    octets: u16,
}

impl Brief {
    fn of(frame: &[u8], parsed: &Parsed) -> Self {
        let bth = match parsed.class {
            FrameClass::Roce(bth) => Some(bth),
            _ => None,
        };
        Self {
            opcode: bth.map_or(0, |bth| bth.opcode.0),
            psn: bth.map_or(Psn::default(), |bth| bth.psn),
            ident: parsed.ip.and_then(|ip| ip.ident),
            octets: frame.len().min(usize::from(u16::MAX)) as u16,
        }
    }
}

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "opcode {:#04x} PSN {} ", self.opcode, self.psn)?;
        if let Some(ident) = self.ident {
            write!(f, "Identification {ident:#06x} ")?;
        }
        write!(f, "{} octets", self.octets)
    }
}

/// What one host sent and received.
#[derive(Debug, Default)]
pub(crate) struct Record {
    sent: HashMap<u64, Seen>,
    received: HashMap<u64, Seen>,
    /// Highest PSN of each stream sent, by addresses, QP and whether it is responses.
    highest: HashMap<Vec<u8>, Psn>,
    /// Number of each such stream.
    streams: HashMap<Vec<u8>, u32>,
    /// Source packets received, in their order.
    arrivals: Vec<u64>,
    frames: u64,
    /// CREM messages seen at the host, where there must be none.
    pub(crate) crem_seen: u64,
    /// Those of a stranger to others, which pass.
    pub(crate) between_others: u64,
    /// Frames that the capture missed.
    pub(crate) kernel_drops: u64,
}

impl Record {
    /// Takes in what another host at the same side sent and received.
    pub(crate) fn join(&mut self, other: Self) {
        let streams = self.streams.len() as u32;
        for (mine, theirs) in [
            (&mut self.sent, other.sent),
            (&mut self.received, other.received),
        ] {
            for (hash, mut seen) in theirs {
                seen.place += self.frames;
                seen.stream += streams;
                let sum = mine.get(&hash).map_or(0, |seen| seen.count) + seen.count;
                seen.count = sum;
                mine.insert(hash, seen);
            }
        }
        // Streams and their highest PSNs are asked for while frames are taken down, which is over.
        self.arrivals.extend(other.arrivals);
        self.frames += other.frames;
        self.crem_seen += other.crem_seen;
        self.between_others += other.between_others;
        self.kernel_drops += other.kernel_drops;
    }

    /// Takes a frame down. Frames that are neither RoCEv2 nor CREM are left out.
    pub(crate) fn add(&mut self, outgoing: bool, class: Class, hash: u64, frame: &[u8]) {
        match class {
            Class::Rest => return,
            Class::CremRepair | Class::CremOther if outgoing && is_a_strangers(frame) => return,
            Class::CremRepair | Class::CremOther if is_between_others(frame) => {
                self.between_others += 1;
                return;
            }
            Class::CremRepair | Class::CremOther => {
                self.crem_seen += 1;
                return;
            }
            Class::RoceSource | Class::RoceResponse | Class::RoceOther => {}
        }
        let parsed = parse(frame, &PARSE);
        let brief = Brief::of(frame, &parsed);
        let stream = self.stream_of(class, &parsed);
        let new = outgoing && class != Class::RoceOther && self.is_new(class, &parsed);
        if !outgoing && is_source(class) {
            self.arrivals.push(hash);
        }
        self.frames += 1;
        let place = self.frames;
        let map = if outgoing {
            &mut self.sent
        } else {
            &mut self.received
        };
        let seen = map.entry(hash).or_insert(Seen {
            count: 0,
            class,
            new,
            brief,
            place,
            stream,
        });
        seen.count += 1;
        seen.place = place;
    }

    /// Number of the stream that a frame belongs to.
    fn stream_of(&mut self, class: Class, parsed: &Parsed) -> u32 {
        let next = self.streams.len() as u32;
        let key = stream_key(class, parsed).unwrap_or_default();
        *self.streams.entry(key).or_insert(next)
    }

    fn is_new(&mut self, class: Class, parsed: &Parsed) -> bool {
        let (FrameClass::Roce(bth), Some(key)) = (parsed.class, stream_key(class, parsed)) else {
            return false;
        };
        match self.highest.get_mut(&key) {
            Some(highest) if bth.psn.is_after(*highest) => {
                *highest = bth.psn;
                true
            }
            Some(_) => false,
            None => {
                self.highest.insert(key, bth.psn);
                true
            }
        }
    }
}

/// Addresses, queue pair and whether it is responses.
fn stream_key(class: Class, parsed: &Parsed) -> Option<Vec<u8>> {
    let (FrameClass::Roce(bth), Some(ip)) = (parsed.class, parsed.ip) else {
        return None;
    };
    let mut key = format!("{} {} {}", ip.source, ip.destination, bth.dest_qp).into_bytes();
    key.push(u8::from(class == Class::RoceResponse));
    Some(key)
}

/// One direction, from the sending host to the receiving one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// RoCEv2 frames sent by the host.
    pub sent: u64,
    /// RoCEv2 frames received by the other host.
    pub received: u64,
    /// Packets of protected kinds sent with a new PSN.
    pub new_sources: u64,
    /// Of these, lost on the WAN.
    pub new_sources_lost: u64,
    /// Of these, received all the same, every octet as sent but for ECN bits and IPv4 header checksum.
    pub restored_exactly: u64,
    /// Retransmitted source packets lost on the WAN: no sources for protection.
    pub old_sources_lost: u64,
    /// Frames received that were corrupted on the WAN.
    pub corrupted: u64,
    /// Frames received more often than sent, restored and duplicated on the WAN.
    pub extra_copies: u64,
    /// Frames received that nobody sent: not corrupted, and equal to no frame that was sent.
    pub foreign: u64,
    /// Some of these, with the frames of the same PSN and opcode that were sent.
    pub foreign_frames: Vec<String>,
    /// Source packets sent and neither lost nor corrupted on the WAN that did not arrive.
    pub vanished: u64,
    /// Source packets received, not lost on the WAN, behind one that was sent after them in their stream.
    pub out_of_order: u64,
    /// Source packets lost on the WAN and received all the same, behind one that was sent after them.
    pub restored_behind: u64,
}

/// What the WAN did to the frames of one direction, by hash.
#[derive(Default)]
struct Impaired {
    lost: HashMap<u64, u32>,
    duplicated: HashMap<u64, u32>,
    corrupted: HashSet<u64>,
    /// Source packets among the corrupted.
    corrupted_sources: u64,
}

impl Impaired {
    fn of(log: &[LogEntry], a_to_b: bool) -> Self {
        let mut all = Self::default();
        for entry in log.iter().filter(|entry| entry.a_to_b == a_to_b) {
            match entry.fate {
                Fate::Corrupted => {
                    all.corrupted.insert(entry.hash);
                    all.corrupted_sources += u64::from(is_source(entry.class));
                }
                Fate::Duplicated => *all.duplicated.entry(entry.hash).or_default() += 1,
                _ => *all.lost.entry(entry.hash).or_default() += 1,
            }
        }
        all
    }
}

fn is_source(class: Class) -> bool {
    matches!(class, Class::RoceSource | Class::RoceResponse)
}

/// Balances what `from` sent against what `to` received. `log` is the WAN's, `a_to_b` the direction.
///
/// Over IPv6 a retransmission may equal the packet it repeats, so copies are counted: a frame that was
/// received more often than the WAN delivered it was restored.
pub(crate) fn balance(from: &Record, to: &Record, log: &[LogEntry], a_to_b: bool) -> Ledger {
    let impaired = Impaired::of(log, a_to_b);
    let mut ledger = Ledger::default();
    for (hash, seen) in &from.sent {
        let count = |map: &HashMap<u64, u32>| map.get(hash).copied().unwrap_or(0);
        let (lost, doubled) = (count(&impaired.lost), count(&impaired.duplicated));
        let received = to.received.get(hash).map_or(0, |seen| seen.count);
        let delivered = seen.count.saturating_sub(lost) + doubled;
        let beyond = received.saturating_sub(delivered);
        let restored = beyond.min(lost);
        ledger.sent += u64::from(seen.count);
        ledger.extra_copies += u64::from(beyond - restored);
        if is_source(seen.class) {
            let new_lost = u32::from(seen.new).min(lost);
            ledger.new_sources += u64::from(seen.new);
            ledger.new_sources_lost += u64::from(new_lost);
            ledger.old_sources_lost += u64::from(lost - new_lost);
            ledger.restored_exactly += u64::from(restored.min(new_lost));
            ledger.vanished += u64::from(delivered.saturating_sub(received));
        }
    }
    for (hash, seen) in &to.received {
        let count = u64::from(seen.count);
        ledger.received += count;
        if from.sent.contains_key(hash) {
            continue;
        }
        if impaired.corrupted.contains(hash) {
            ledger.corrupted += count;
            continue;
        }
        ledger.foreign += count;
        if ledger.foreign_frames.len() < MAX_DESCRIBED {
            ledger.foreign_frames.push(describe(from, &seen.brief));
        }
    }
    order(from, to, &impaired, &mut ledger);
    // A frame corrupted on the way did not arrive as it was sent; its original hash is not logged.
    ledger.vanished = ledger.vanished.saturating_sub(impaired.corrupted_sources);
    ledger
}

/// Compares the order of arrival with that of sending, by stream. Copies count once, the first time: what
/// is filled in from an earlier delivery stands where it is missing.
fn order(from: &Record, to: &Record, impaired: &Impaired, ledger: &mut Ledger) {
    let mut latest: HashMap<u32, u64> = HashMap::new();
    let mut met = HashSet::new();
    for hash in &to.arrivals {
        let Some(sent) = from.sent.get(hash).filter(|_| met.insert(hash)) else {
            continue;
        };
        let latest = latest.entry(sent.stream).or_default();
        if sent.place >= *latest {
            *latest = sent.place;
        } else if impaired.lost.contains_key(hash) {
            ledger.restored_behind += 1;
        } else {
            ledger.out_of_order += 1;
        }
    }
}

/// A frame that nobody sent, beside what was sent with its PSN and opcode.
fn describe(from: &Record, brief: &Brief) -> String {
    let alike = from.sent.values().map(|sent| sent.brief);
    let alike: Vec<String> = alike
        .filter(|sent| sent.psn == brief.psn && sent.opcode == brief.opcode)
        .map(|sent| sent.to_string())
        .collect();
    format!("{brief}; sent alike: {}", alike.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sent: &[(u64, bool)], received: &[u64]) -> Record {
        let (class, brief) = (Class::RoceSource, Brief::default());
        let mut record = Record::default();
        for &(hash, new) in sent {
            record.sent.insert(
                hash,
                Seen {
                    count: 1,
                    class,
                    new,
                    brief,
                    place: hash,
                    stream: 0,
                },
            );
        }
        for &hash in received {
            record.arrivals.push(hash);
            record
                .received
                .entry(hash)
                .or_insert(Seen {
                    count: 0,
                    class,
                    new: false,
                    brief,
                    place: 0,
                    stream: 0,
                })
                .count += 1;
        }
        record
    }

    fn entry(fate: Fate, hash: u64) -> LogEntry {
        LogEntry {
            a_to_b: true,
            fate,
            class: Class::RoceSource,
            hash,
        }
    }

    #[test]
    fn equal_retransmissions_are_not_taken_for_restored() {
        let mut from = record(&[(1, true), (2, true)], &[]);
        for seen in from.sent.values_mut() {
            seen.count = 2;
        }
        // Both were lost once and sent again; only 2 was restored as well. 2 was duplicated besides.
        let to = record(&[], &[1, 2, 2, 2]);
        let log = [
            entry(Fate::Lost, 1),
            entry(Fate::Lost, 2),
            entry(Fate::Duplicated, 2),
        ];
        let ledger = balance(&from, &to, &log, true);
        assert_eq!((ledger.new_sources_lost, ledger.restored_exactly), (2, 1));
        assert_eq!(
            (ledger.extra_copies, ledger.vanished, ledger.foreign),
            (0, 0, 0)
        );
    }

    #[test]
    fn hosts_of_one_side_count_together() {
        let from = record(&[(1, true), (2, true), (3, true)], &[]);
        let mut to = record(&[], &[1]);
        let mut more = record(&[], &[2, 2]);
        more.kernel_drops = 4;
        to.join(more);
        let ledger = balance(&from, &to, &[entry(Fate::Lost, 2)], true);
        assert_eq!((ledger.received, ledger.vanished), (3, 1));
        assert_eq!((ledger.new_sources_lost, ledger.restored_exactly), (1, 1));
        assert_eq!((ledger.extra_copies, to.kernel_drops), (1, 4));
    }

    #[test]
    fn every_frame_is_accounted_for() {
        let from = record(
            &[
                (1, true),
                (2, true),
                (3, true),
                (4, false),
                (5, true),
                (6, true),
            ],
            &[],
        );
        let to = record(&[], &[1, 1, 2, 50, 99]);
        let log = [
            entry(Fate::Lost, 2),
            entry(Fate::QueueDropped, 3),
            entry(Fate::Lost, 4),
            entry(Fate::Corrupted, 50),
            LogEntry {
                a_to_b: false,
                ..entry(Fate::Lost, 6)
            },
        ];
        let expected = Ledger {
            sent: 6,
            received: 5,
            new_sources: 5,
            new_sources_lost: 2,
            restored_exactly: 1,
            old_sources_lost: 1,
            corrupted: 1,
            extra_copies: 1,
            foreign: 1,
            foreign_frames: Vec::new(),
            vanished: 1,
            out_of_order: 0,
            restored_behind: 0,
        };
        let mut seen = balance(&from, &to, &log, true);
        assert_eq!(seen.foreign_frames.len(), 1);
        seen.foreign_frames.clear();
        assert_eq!(seen, expected);
    }

    #[test]
    fn order_is_that_of_sending_and_restored_packets_are_told_apart() {
        let from = record(
            &[(1, true), (2, true), (3, true), (4, true), (5, true)],
            &[],
        );
        let log = [entry(Fate::Lost, 2), entry(Fate::Lost, 4)];
        // 2 was restored in its place, 4 behind 5; 3 was passed by 5. The copy of 1 is none of it.
        let to = record(&[], &[1, 2, 5, 3, 4, 1]);
        let ledger = balance(&from, &to, &log, true);
        assert_eq!((ledger.out_of_order, ledger.restored_behind), (1, 1));
    }
}
