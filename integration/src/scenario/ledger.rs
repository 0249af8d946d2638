//! What entered at one host against what left at the other, frame by frame.

use std::collections::{HashMap, HashSet};

use crem_wan::{Class, Fate, LogEntry};
use crem_wire::Psn;
use crem_wire::frame::{Class as FrameClass, ParseConfig, parse};
use serde::{Deserialize, Serialize};

/// How often one frame was seen, and as what.
#[derive(Clone, Copy, Debug)]
struct Seen {
    count: u32,
    class: Class,
    /// It carried a PSN beyond all earlier ones of its stream: not a retransmission.
    new: bool,
}

/// What one host sent and received.
#[derive(Debug, Default)]
pub(crate) struct Record {
    sent: HashMap<u64, Seen>,
    received: HashMap<u64, Seen>,
    /// Highest PSN of each stream sent, by addresses, QP and whether it is responses.
    highest: HashMap<Vec<u8>, Psn>,
    /// CREM messages seen at the host, where there must be none.
    pub(crate) crem_seen: u64,
    /// Frames that the capture missed.
    pub(crate) kernel_drops: u64,
}

impl Record {
    /// Takes a frame down. Frames that are neither RoCEv2 nor CREM are left out.
    pub(crate) fn add(&mut self, outgoing: bool, class: Class, hash: u64, frame: &[u8]) {
        match class {
            Class::Rest => return,
            Class::CremRepair | Class::CremOther => {
                self.crem_seen += 1;
                return;
            }
            Class::RoceSource | Class::RoceResponse | Class::RoceOther => {}
        }
        let new = outgoing && class != Class::RoceOther && self.is_new(class, frame);
        let map = if outgoing {
            &mut self.sent
        } else {
            &mut self.received
        };
        map.entry(hash)
            .or_insert(Seen {
                count: 0,
                class,
                new,
            })
            .count += 1;
    }

    fn is_new(&mut self, class: Class, frame: &[u8]) -> bool {
        let parsed = parse(frame, &ParseConfig::default());
        let (FrameClass::Roce(bth), Some(ip)) = (parsed.class, parsed.ip) else {
            return false;
        };
        let mut key = format!("{} {} {}", ip.source, ip.destination, bth.dest_qp).into_bytes();
        key.push(u8::from(class == Class::RoceResponse));
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
    /// Frames received more often than sent.
    pub extra_copies: u64,
    /// Frames received that nobody sent: not corrupted, and equal to no frame that was sent.
    pub foreign: u64,
    /// Source packets sent and neither lost nor corrupted on the WAN that did not arrive.
    pub vanished: u64,
}

/// Balances what `from` sent against what `to` received. `log` is the WAN's, `a_to_b` the direction.
pub(crate) fn balance(from: &Record, to: &Record, log: &[LogEntry], a_to_b: bool) -> Ledger {
    let entries = || log.iter().filter(|entry| entry.a_to_b == a_to_b);
    let lost: HashSet<u64> = entries()
        .filter(|e| e.fate != Fate::Corrupted)
        .map(|e| e.hash)
        .collect();
    let corrupted: HashSet<u64> = entries()
        .filter(|e| e.fate == Fate::Corrupted)
        .map(|e| e.hash)
        .collect();
    let mut ledger = Ledger::default();
    let mut missing = 0;
    for (hash, seen) in &from.sent {
        ledger.sent += u64::from(seen.count);
        if !matches!(seen.class, Class::RoceSource | Class::RoceResponse) {
            continue;
        }
        let arrived = to.received.contains_key(hash);
        ledger.new_sources += u64::from(seen.new);
        if lost.contains(hash) {
            if seen.new {
                ledger.new_sources_lost += 1;
                ledger.restored_exactly += u64::from(arrived);
            } else {
                ledger.old_sources_lost += 1;
            }
        } else if !arrived {
            missing += 1;
        }
    }
    for (hash, seen) in &to.received {
        let count = u64::from(seen.count);
        ledger.received += count;
        match from.sent.get(hash) {
            Some(sent) => ledger.extra_copies += count.saturating_sub(u64::from(sent.count)),
            None if corrupted.contains(hash) => ledger.corrupted += count,
            None => ledger.foreign += count,
        }
    }
    // A frame corrupted on the way did not arrive as it was sent; its original hash is not logged.
    ledger.vanished = u64::saturating_sub(missing, corrupted.len() as u64);
    ledger
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sent: &[(u64, bool)], received: &[u64]) -> Record {
        let class = Class::RoceSource;
        let mut record = Record::default();
        for &(hash, new) in sent {
            record.sent.insert(
                hash,
                Seen {
                    count: 1,
                    class,
                    new,
                },
            );
        }
        for &hash in received {
            record
                .received
                .entry(hash)
                .or_insert(Seen {
                    count: 0,
                    class,
                    new: false,
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
            vanished: 1,
        };
        assert_eq!(balance(&from, &to, &log, true), expected);
    }
}
