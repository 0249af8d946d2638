//! What an observer is told, what it hands out and what it counts.

use core::time::Duration;

use super::connection::Context;
use super::{ConnectionKey, Counts, Epoch, Flags, Window};
use crate::Utc;
use crate::key::Words;
use crate::wheel::Wheel;

/// Pairs of addresses that share a count of capture faults: a power of two.
pub(super) const PAIRS: usize = 1024;

/// A snapshot of an epoch, all that a report carries but its identifiers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SequenceRecord {
    /// observationPointId.
    pub point: u64,
    /// The collector that this is for, see [`ObserverConfig::collector`].
    pub collector: u16,
    /// Its session, see [`Observer::begin_session`](super::Observer::begin_session).
    pub session: u32,
    /// Number of the context within the observer; a place that is used again.
    pub context: u32,
    /// Number of the epoch within the observer, never used again.
    pub epoch: u64,
    /// The connection.
    pub key: ConnectionKey,
    /// Flags.
    pub flags: Flags,
    /// W.
    pub window: u32,
    /// Arrival of the first accounted request.
    pub start: Utc,
    /// Arrival of the last accounted request.
    pub end: Utc,
    /// The counters.
    pub counts: Counts,
}

/// Bounds and intervals of an observer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObserverConfig {
    /// The collector that reports are for, by its number in the configuration: its sessions start and end
    /// independently of those of others.
    pub collector: u16,
    /// Most connections known at once, disabled ones included.
    pub contexts: u32,
    /// Most epochs active at once; the memory for their windows is taken at construction.
    pub epochs: u32,
    /// Largest W of any connection, positions.
    pub window: u32,
    /// Between two reports of an epoch.
    pub report_interval: Duration,
    /// Without a request for so long, an epoch closes.
    pub idle_timeout: Duration,
    /// No counter and no number of reports passes this; 2^64 - 1 but for tests.
    pub counter_limit: u64,
}

impl Default for ObserverConfig {
    /// What AMB-SEQ-IDLE suggests, for a thousand connections.
    fn default() -> Self {
        Self {
            collector: 0,
            contexts: 1024,
            epochs: 1024,
            window: 4096,
            report_interval: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            counter_limit: u64::MAX,
        }
    }
}

impl ObserverConfig {
    /// Most provisions there may be: a request of none is compared with all.
    pub const MAX_PROVISIONS: usize = 4096;

    /// Octets of memory that an observer so configured takes. A plan is checked with it before anything
    /// is built.
    pub fn memory(&self) -> u64 {
        let per_context = size_of::<Context>() + 2 * (size_of::<(Words, u32)>() + 2);
        let per_epoch = size_of::<Epoch>() + 12 + Window::memory(self.window);
        self.contexts as u64 * per_context as u64
            + self.epochs as u64 * per_epoch as u64
            + Wheel::memory(self.contexts) as u64
            + PAIRS as u64 * 4
    }
}

/// What an observer did, beside counting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObserverCounters {
    /// Requests of no provisioned connection (AMB-SEQ-PKEY).
    pub unprovisioned: u64,
    /// Requests of connections that are disabled.
    pub disabled: u64,
    /// Requests while capture was known to be incomplete.
    pub suspended: u64,
    /// Connections disabled by a violation of the profile.
    pub violations: u64,
    /// Connections not admitted because all contexts are in use by disabled or active ones.
    pub refused: u64,
    /// Epochs given up for another one.
    pub evicted: u64,
    /// Reports made, final ones included.
    pub reports: u64,
    /// Final reports made.
    pub finals: u64,
    /// Reports that the sink did not take.
    pub lost_reports: u64,
}
