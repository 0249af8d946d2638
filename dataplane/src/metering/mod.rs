//! Metering beside forwarding: what the frames of a segment are shown to, and where the records go.
//!
//! A turn of the segment keeps a reference to every frame that came in or was given to a device at a
//! place where something is observed. Only when all frames of the turn are on their way are they shown
//! to the meters (`crem-meter`), so that metering makes no frame wait. Records go in batches through a
//! bounded ring ([`ring`]) to the auxiliary thread, which passes them to the exporting process
//! ([`relay`]). A full ring costs records, each of them counted, and never time.
//!
//! Whatever panics in here ends metering for a while, not forwarding. How records look to a collector
//! is decided in `crem-ipfix`.

mod change;
mod clock;
mod counters;
mod observe;
pub mod relay;
pub mod ring;
mod setup;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crem_core::time::{Duration, Instant};
use crem_meter::point::Place;
use crem_meter::scope::{Recognition, Scopes};
use crem_meter::{Meter, MeterError, PointConfig};
use crem_wire::frame::{ParseConfig, Parsed};

use crate::buffer::{BURST, Platform};
use crate::classify::Side;

pub use change::Change;
pub use clock::{UtcClock, utc_offset};
pub use counters::{MeteringCounters, PointCounters, each_name};

pub use setup::{Metered, Relaying, Wanted};

use change::Gone;
use ring::Outbox;

/// Time without metering after a panic in it.
const PAUSE: Duration = Duration::from_secs(10);
/// Panics after which metering stays off.
const CHANCES: u32 = 3;
/// Frames of a turn at one place that find room without an allocation: a burst, and what was held
/// behind a gap.
const ROOM: usize = 8 * BURST;

/// What is observed in one segment.
#[derive(Clone, PartialEq, Debug)]
pub struct MeteringConfig {
    /// What is RoCEv2 here; nothing else is exported (AMB-BTH-CTX).
    pub scopes: Scopes,
    /// Ports of CREM and VXLAN: the layer that is observed.
    pub parse: ParseConfig,
    /// What is observed where.
    pub points: Vec<PointConfig>,
    /// Number of the worker, which each observationPointId has on top of its base.
    pub worker: u16,
    /// Octets of memory that the meters may take.
    pub memory: u64,
}

impl MeteringConfig {
    /// Nothing is observed.
    pub fn nothing(worker: u16) -> Self {
        Self {
            scopes: Scopes::default(),
            parse: ParseConfig::default(),
            points: Vec::new(),
            worker,
            memory: u64::MAX,
        }
    }

    /// Meters of it that have seen nothing.
    ///
    /// # Errors
    /// The first thing that cannot be.
    pub fn build(&self) -> Result<Meter, MeterError> {
        Meter::new(self.scopes.clone(), &self.points, self.worker, self.memory)
    }

    /// The places where something is observed.
    pub fn has(&self, place: Place) -> bool {
        self.points.iter().any(|point| point.place == place)
    }
}

/// Frames that came in during a turn, and when.
#[derive(Debug)]
struct Arrived<B> {
    frames: Vec<B>,
    /// What classification found them to be, as far as they were classified, in the same order.
    seen: Vec<Recognition>,
    at: Instant,
    /// They are observed where they come in, or where they leave.
    kept: bool,
}

impl<B> Arrived<B> {
    const fn new() -> Self {
        Self {
            frames: Vec::new(),
            seen: Vec::new(),
            at: Instant(0),
            kept: false,
        }
    }

    /// Frames are kept from now on, or not.
    fn keep(&mut self, kept: bool) {
        self.clear();
        self.kept = kept;
        if kept {
            self.frames.reserve(BURST);
            self.seen.reserve(BURST);
        }
    }

    fn clear(&mut self) {
        self.frames.clear();
        self.seen.clear();
    }
}

/// The meters of a segment and what they are shown.
#[derive(Debug)]
pub struct Metering<P: Platform> {
    config: MeteringConfig,
    meter: Option<Meter>,
    /// Meters that a change replaced, while their last records are made.
    gone: Option<Gone>,
    outbox: Outbox,
    clock: UtcClock,
    lan: Arrived<P::Buf>,
    wan: Arrived<P::Buf>,
    /// Frames on their way to the LAN that are restored, where that makes a difference.
    restored: Vec<P::Buf>,
    /// Collectors by number, with their sessions.
    sessions: Vec<(u16, Option<u32>)>,
    /// Frames that each port missed, by its own count and the kernel's, when they were last asked for.
    missed: Option<[u64; 2]>,
    /// Ports that nobody knows what they miss.
    blind: [bool; 2],
    next_tick: Instant,
    next_account: Instant,
    failures: u32,
    again_at: Option<Instant>,
    counters: MeteringCounters,
    /// Room for the counters of the points.
    points: Vec<PointCounters>,
    /// What meters that are gone had left out of account.
    ignored_before: (u64, u64),
    #[cfg(test)]
    panic_next: bool,
}

impl<P: Platform> Metering<P> {
    /// Meters of nothing, which a [`Change`] makes others of, with their end of the ring.
    pub fn new(worker: u16, outbox: Outbox, clock: UtcClock) -> Self {
        let config = MeteringConfig::nothing(worker);
        let shared = &outbox.shared;
        Self {
            // There is nothing in it that could be refused.
            meter: config.build().ok(),
            gone: None,
            // Others may have metered here before.
            ignored_before: (
                shared.ignored_packets.load(Ordering::Relaxed),
                shared.ignored_octets.load(Ordering::Relaxed),
            ),
            outbox,
            clock,
            lan: Arrived::new(),
            wan: Arrived::new(),
            restored: Vec::new(),
            sessions: Vec::new(),
            missed: None,
            blind: [false; 2],
            next_tick: Instant(0),
            next_account: Instant(0),
            failures: 0,
            again_at: None,
            counters: MeteringCounters::default(),
            points: Vec::with_capacity(Place::ALL.len()),
            #[cfg(test)]
            panic_next: false,
            config,
        }
    }

    /// Whether what leaves on a side is to be kept until the end of the turn.
    pub fn wants_egress(&self, side: Side) -> bool {
        match side {
            Side::Wan => self.config.has(Place::WanEgress),
            Side::Lan => {
                self.config.has(Place::LanEgressBeforeRepair)
                    || self.config.has(Place::LanEgressAfterRepair)
            }
        }
    }

    /// Whether restored frames are to be told from others.
    pub fn tells_restored(&self) -> bool {
        self.config.has(Place::LanEgressBeforeRepair)
    }

    /// A burst came in.
    pub fn arrived(&mut self, side: Side, at: Instant, burst: &[P::Buf]) {
        let arrived = match side {
            Side::Lan => &mut self.lan,
            Side::Wan => &mut self.wan,
        };
        if arrived.kept {
            arrived.at = at;
            arrived.frames.extend(burst.iter().cloned());
        }
    }

    /// Classification took the next frame of the burst apart, by `config`. Where metering looks at the same
    /// layer it need not do so again, neither here nor where the frame leaves.
    #[inline]
    pub fn classified(&mut self, side: Side, config: &ParseConfig, parsed: &Parsed) {
        let arrived = match side {
            Side::Lan => &mut self.lan,
            Side::Wan => &mut self.wan,
        };
        if arrived.kept && *config == self.config.parse {
            arrived.seen.push(self.config.scopes.recognise(parsed));
        }
    }

    #[cfg(test)]
    pub(crate) fn fill_ring(&mut self) {
        use crem_ipfix::handover::Item;
        while self.outbox.item(&Item::Ignored(0, 0)) {}
    }

    #[cfg(test)]
    pub(crate) fn panic_next(&mut self) {
        self.panic_next = true;
    }

    /// Why nothing is observed although that is configured.
    pub fn reason(&self) -> Option<&'static str> {
        match (&self.meter, self.again_at) {
            (Some(_), _) => None,
            (None, Some(_)) => Some("a panic in metering; begins anew after 10 s"),
            (None, None) => Some("repeated panics in metering"),
        }
    }
}

/// Frames that left by a port in a turn; `None` where nobody wants to know.
pub(crate) type Tap<B> = Option<Vec<B>>;

pub(crate) fn tap<B>(wanted: bool) -> Tap<B> {
    wanted.then(|| Vec::with_capacity(ROOM))
}

/// Shared between the metering of a segment and the auxiliary thread.
#[derive(Debug, Default)]
pub struct Shared {
    /// UTC less the worker's clock, nanoseconds, as last measured.
    pub utc_offset: AtomicU64,
    /// Packets that metering did not take into account, in all so far.
    pub ignored_packets: AtomicU64,
    /// Their IP octets, as far as known.
    pub ignored_octets: AtomicU64,
    /// Frames that the kernel dropped in front of the LAN and the WAN port, in all so far.
    pub ring_drops: [AtomicU64; 2],
    /// Nobody can tell what the LAN and the WAN port miss: then no sequence is observed there.
    pub blind: [AtomicBool; 2],
}

/// A fresh [`Shared`].
pub fn shared(utc_offset: u64) -> Arc<Shared> {
    Arc::new(Shared {
        utc_offset: utc_offset.into(),
        ..Shared::default()
    })
}
