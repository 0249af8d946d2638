//! Datagram traffic that passes: it has no PSN sequence per flow, so it is never protected (AMB-OPCODES).
//! It is noted so that a person who looks for it finds it with its reason, and for nothing else.

use core::net::IpAddr;
use crem_wire::Qpn;

use super::Csf;
use crate::config::Mode;
use crate::events::Unprotected;
use crate::packet::{Namespace, PktBuf};
use crate::table::{BoundedTable, Class};
use crate::time::{Duration, Instant};

/// Noted at once.
const MAX_DATAGRAMS: u32 = 1_024;

/// What datagrams are told apart by. Several senders' PSNs mix in one such flow, and it has no space of
/// its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DatagramKey {
    /// VLAN and tunnel context.
    pub namespace: Namespace,
    /// Source address of the RoCEv2 packets.
    pub source: IpAddr,
    /// Destination address of the RoCEv2 packets.
    pub destination: IpAddr,
    /// Destination queue pair.
    pub qp: Qpn,
}

/// Datagram traffic as the sender function sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramStatus {
    /// Which.
    pub key: DatagramKey,
    /// Always [`Unprotected::Datagram`].
    pub unprotected: Unprotected,
    /// Packets that passed.
    pub packets: u64,
}

#[derive(Clone, Copy, Debug)]
struct Passing {
    packets: u64,
    last: Instant,
}

/// At the bound the least recently used is given up.
#[derive(Debug)]
pub(super) struct Datagrams(BoundedTable<DatagramKey, Passing>);

impl Datagrams {
    pub(super) fn new() -> Self {
        Self(BoundedTable::new(MAX_DATAGRAMS))
    }

    fn oldest(&self) -> Option<(u32, Instant)> {
        let slot = self.0.oldest(Class::Candidate)?;
        Some((slot, self.0.get(slot)?.last))
    }

    /// The oldest has the earliest deadline, since each packet makes its flow the newest.
    pub(super) fn next_timeout(&self, idle: Duration) -> Option<Instant> {
        self.oldest().map(|(_, last)| last + idle)
    }

    pub(super) fn expire(&mut self, now: Instant, idle: Duration) {
        while let Some((slot, last)) = self.oldest()
            && last + idle <= now
        {
            self.0.remove(slot);
        }
    }

    pub(super) fn octets(&self) -> usize {
        self.0.octets()
    }
}

impl<B: PktBuf> Csf<B> {
    /// A packet of unreliable or reliable datagram service left toward the WAN. It is listed by
    /// [`Csf::datagrams`] until none has come for the idle time.
    pub fn on_datagram(&mut self, now: Instant, key: DatagramKey) {
        if self.sh.cfg.mode == Mode::Passthrough {
            return;
        }
        self.sh.counters.datagrams += 1;
        let table = &mut self.datagrams.0;
        if let Some(slot) = table.slot(&key) {
            table.touch(slot);
            if let Some(passing) = table.get_mut(slot) {
                passing.packets += 1;
                passing.last = now;
            }
            return;
        }
        if table.is_full()
            && let Some(oldest) = table.oldest(Class::Candidate)
        {
            table.remove(oldest);
            self.sh.counters.datagrams_evicted += 1;
        }
        let passing = Passing {
            packets: 1,
            last: now,
        };
        // There is room now.
        let _ = table.insert(key, passing);
    }

    /// Datagram traffic that was seen lately, in no particular order.
    pub fn datagrams(&self) -> impl Iterator<Item = DatagramStatus> {
        self.datagrams
            .0
            .iter()
            .map(|(_, key, passing)| DatagramStatus {
                key: *key,
                unprotected: Unprotected::Datagram,
                packets: passing.packets,
            })
    }
}
