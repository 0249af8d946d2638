//! All meters of one worker: what is observed at which point, behind one recognition per packet.

use alloc::vec::Vec;

use crem_wire::frame::{Parsed, Reason};

use crate::flow::{FlowCache, FlowConfig};
use crate::point::{Place, Point};
use crate::scope::{Observation, Recognition, Scopes, Suspect, Unrecognised, suspect};
use crate::select::SelectionError;
use crate::seq::{Observer, ObserverConfig, Provision, ProvisionError};
use crate::{PacketConfig, PacketObserver, Sink, Utc};

/// What is observed at one point.
#[derive(Clone, PartialEq, Debug)]
pub struct PointConfig {
    /// Where; each place at most once.
    pub place: Place,
    /// observationPointId of worker 0.
    pub base: u64,
    /// Observation of single packets; off by default.
    pub packets: Option<PacketConfig>,
    /// Aggregate flows.
    pub flows: Option<FlowConfig>,
    /// Sequence observation, for one collector session each.
    pub sequences: Vec<(ObserverConfig, Vec<Provision>)>,
}

impl PointConfig {
    /// Octets of memory that its meters take in each worker.
    pub fn memory(&self) -> u64 {
        self.flows.map_or(0, |flows| flows.memory())
            + self
                .sequences
                .iter()
                .map(|(config, _)| config.memory())
                .sum::<u64>()
    }
}

/// Why meters cannot be built.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum MeterError {
    /// Two points at one place.
    Place(Place),
    /// An observationPointId would pass 2^64 - 1, or is that of another point.
    PointId(u64),
    /// A selection that cannot be meant.
    Selection(Place, SelectionError),
    /// A connection that may not be observed.
    Provision(Place, ProvisionError),
    /// More memory than there may be, in octets: needed and allowed.
    Memory(u64, u64),
}

impl core::fmt::Display for MeterError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Place(place) => write!(f, "two Observation Points at {}", place.name()),
            Self::PointId(base) => write!(
                f,
                "observationPointId {base} and the workers' numbers: beyond 64 bits or used twice"
            ),
            Self::Selection(place, error) => write!(f, "{}: {error}", place.name()),
            Self::Provision(place, error) => write!(f, "{}: {error}", place.name()),
            Self::Memory(needed, allowed) => {
                write!(
                    f,
                    "metering needs {needed} octets of memory, {allowed} are allowed"
                )
            }
        }
    }
}

impl core::error::Error for MeterError {}

/// What the meters were shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MeterCounters {
    /// RoCEv2 packets in a scope.
    pub observed: u64,
    /// RoCEv2 packets in no scope.
    pub no_scope: u64,
    /// Other packets, by [`Reason::index`].
    pub unrecognised: [u64; Reason::ALL.len()],
}

/// The meters of one place.
#[derive(Clone, Debug)]
struct Meters {
    point: Point,
    packets: Option<PacketObserver>,
    flows: Option<FlowCache>,
    sequences: Vec<Observer>,
    counters: MeterCounters,
}

/// All meters of one worker.
#[derive(Clone, Debug)]
pub struct Meter {
    scopes: Scopes,
    points: [Option<Meters>; Place::ALL.len()],
}

impl Meter {
    /// Octets of memory that a worker's meters take.
    pub fn memory(points: &[PointConfig]) -> u64 {
        points.iter().map(PointConfig::memory).sum()
    }

    /// The meters of worker number `worker`, at most `allowed` octets of memory.
    ///
    /// # Errors
    /// The first thing that cannot be; nothing is allocated before it is found.
    pub fn new(
        scopes: Scopes,
        points: &[PointConfig],
        worker: u16,
        allowed: u64,
    ) -> Result<Self, MeterError> {
        let mut meter = Self {
            scopes,
            points: Default::default(),
        };
        for (point, config) in numbered(points, worker, allowed)? {
            meter.points[point.place.index()] = Some(Meters::new(point, config)?);
        }
        Ok(meter)
    }

    /// Whether anything is observed at a place: if not, its packets need not be shown.
    pub const fn is_active(&self, place: Place) -> bool {
        self.points[place.index()].is_some()
    }

    /// Shows a packet, with what [`crem_wire::frame::parse`] made of it, to the meters of a place.
    #[inline]
    pub fn observe(
        &mut self,
        place: Place,
        now: Utc,
        frame: &[u8],
        parsed: &Parsed,
        sink: &mut impl Sink,
    ) {
        match self.scopes.recognise(parsed) {
            Ok(packet) => self.show(place, now, frame, &packet, sink),
            Err(reason) => {
                if let Some(meters) = &mut self.points[place.index()] {
                    meters.unrecognised(reason, frame, parsed);
                }
            }
        }
    }

    /// What a packet is to every place; for [`Meter::show`] at several.
    #[inline]
    pub fn recognise(&self, parsed: &Parsed) -> Recognition {
        self.scopes.recognise(parsed)
    }

    /// Shows a packet that was recognised to the meters of a place.
    #[inline]
    pub fn show(
        &mut self,
        place: Place,
        now: Utc,
        frame: &[u8],
        packet: &Observation,
        sink: &mut impl Sink,
    ) {
        let Some(meters) = &mut self.points[place.index()] else {
            return;
        };
        meters.counters.observed += 1;
        for observer in &mut meters.sequences {
            observer.packet(now, packet, sink);
        }
        if let Some(flows) = &mut meters.flows {
            flows.packet(now, packet, sink);
        }
        if let Some(packets) = &mut meters.packets {
            packets.packet(now, packet, packet.ip_payload(frame), sink);
        }
    }

    /// Makes what is due, up to `budget` records per meter. Returns whether more is due: then call
    /// again soon.
    pub fn poll(&mut self, now: Utc, budget: usize, sink: &mut impl Sink) -> bool {
        let mut more = false;
        for meters in self.points.iter_mut().flatten() {
            for observer in &mut meters.sequences {
                more |= observer.poll(now, budget, sink);
            }
            if let Some(flows) = &mut meters.flows {
                more |= flows.poll(now, budget, sink);
            }
        }
        more
    }

    /// When [`Meter::poll`] has something to do.
    pub fn next_timeout(&self) -> Option<Utc> {
        let of = |meters: &Meters| {
            let sequences = meters
                .sequences
                .iter()
                .filter_map(Observer::next_timeout)
                .min();
            let flows = meters.flows.as_ref().and_then(FlowCache::next_timeout);
            [sequences, flows].into_iter().flatten().min()
        };
        self.points.iter().flatten().filter_map(of).min()
    }

    /// Packets were missed at a place, by the data plane's own count: epochs there close.
    pub fn missed(&mut self, place: Place) {
        if let Some(meters) = &mut self.points[place.index()] {
            for observer in &mut meters.sequences {
                observer.missed(Suspect::Any);
            }
        }
    }

    /// Makes the records of everything that is still open; before the meters go away.
    pub fn flush(&mut self, sink: &mut impl Sink) {
        for meters in self.points.iter_mut().flatten() {
            for observer in &mut meters.sequences {
                observer.close_all(sink);
            }
            if let Some(flows) = &mut meters.flows {
                flows.flush(sink);
            }
        }
    }

    /// The sequence observers of a place, one per collector session.
    pub fn sequences(&mut self, place: Place) -> &mut [Observer] {
        match &mut self.points[place.index()] {
            Some(meters) => &mut meters.sequences,
            None => &mut [],
        }
    }

    /// The sequence observers for one collector at every place, by its number in the configuration.
    pub fn collector(&mut self, number: u16) -> impl Iterator<Item = &mut Observer> {
        self.points
            .iter_mut()
            .flatten()
            .flat_map(|meters| &mut meters.sequences)
            .filter(move |observer| observer.collector() == number)
    }

    /// The packet observer of a place.
    pub fn packets(&self, place: Place) -> Option<&PacketObserver> {
        self.points[place.index()].as_ref()?.packets.as_ref()
    }

    /// The flow cache of a place.
    pub fn flows(&self, place: Place) -> Option<&FlowCache> {
        self.points[place.index()].as_ref()?.flows.as_ref()
    }

    /// The Observation Points that there are.
    pub fn points(&self) -> impl Iterator<Item = Point> {
        self.points.iter().flatten().map(|meters| meters.point)
    }

    /// What the meters of a place were shown.
    pub fn counters(&self, place: Place) -> Option<&MeterCounters> {
        self.points[place.index()]
            .as_ref()
            .map(|meters| &meters.counters)
    }
}

/// The points of a worker with their identifiers, if they can all be.
fn numbered(
    points: &[PointConfig],
    worker: u16,
    allowed: u64,
) -> Result<Vec<(Point, &PointConfig)>, MeterError> {
    let needed = Meter::memory(points);
    if needed > allowed {
        return Err(MeterError::Memory(needed, allowed));
    }
    let mut all: Vec<(Point, &PointConfig)> = Vec::with_capacity(points.len());
    for config in points {
        let point = Point::new(config.place, config.base, worker)
            .ok_or(MeterError::PointId(config.base))?;
        if all.iter().any(|(other, _)| other.place == point.place) {
            return Err(MeterError::Place(config.place));
        }
        if all.iter().any(|(other, _)| other.id == point.id) {
            return Err(MeterError::PointId(config.base));
        }
        all.push((point, config));
    }
    Ok(all)
}

fn packets_of(point: Point, config: &PointConfig) -> Result<Option<PacketObserver>, MeterError> {
    let packets = config.packets.as_ref();
    let packets = packets.map(|config| PacketObserver::new(point, config));
    packets
        .transpose()
        .map_err(|error| MeterError::Selection(point.place, error))
}

fn observer_of(
    point: Point,
    (config, provisions): &(ObserverConfig, Vec<Provision>),
) -> Result<Observer, MeterError> {
    Observer::new(point, *config, provisions.clone())
        .map_err(|error| MeterError::Provision(point.place, error))
}

impl Meters {
    fn new(point: Point, config: &PointConfig) -> Result<Self, MeterError> {
        let sequences = config.sequences.iter();
        Ok(Self {
            point,
            packets: packets_of(point, config)?,
            flows: config.flows.map(|config| FlowCache::new(point, config)),
            sequences: sequences
                .map(|sequence| observer_of(point, sequence))
                .collect::<Result<_, _>>()?,
            counters: MeterCounters::default(),
        })
    }

    /// A packet without a usable BTH: a gap in the capture of those it may have belonged to.
    #[cold]
    fn unrecognised(&mut self, reason: Unrecognised, frame: &[u8], parsed: &Parsed) {
        match reason {
            Unrecognised::Frame(reason) => self.counters.unrecognised[reason.index()] += 1,
            Unrecognised::NoScope => self.counters.no_scope += 1,
            Unrecognised::Crem => {}
        }
        if self.sequences.is_empty() {
            return;
        }
        if let Some(suspect) = suspect(frame, parsed) {
            for observer in &mut self.sequences {
                observer.missed(suspect);
            }
        }
    }
}

mod revision;

pub use revision::Revision;

#[cfg(test)]
mod tests;
