//! Other meters while packets pass. A [`Revision`] is built where there is time for it, and has memory only for
//! what is new; [`Meter::revise`] puts it into force in a few steps, and what it replaces is emptied little by
//! little by [`Meter::drain`]. Whatever is configured as before goes on: flows, what selection has seen, epochs
//! of connections whose terms are the same.

use alloc::vec::Vec;

use super::{Meter, MeterCounters, MeterError, Meters, PointConfig};
use super::{numbered, observer_of, packets_of};
use crate::flow::FlowCache;
use crate::packet::{PacketConfig, PacketObserver};
use crate::point::{Place, Point};
use crate::scope::{Scopes, Suspect};
use crate::seq::{Observer, ObserverConfig, Provision};
use crate::{Sink, Utc};

/// What turns the meters of one configuration into those of another.
#[derive(Clone, Debug)]
pub struct Revision {
    scopes: Scopes,
    /// Packets that were looked at may be left out from now on, and come back later.
    narrows: bool,
    points: [Option<Revised>; Place::ALL.len()],
}

/// A place where something is observed afterwards.
#[derive(Clone, Debug)]
struct Revised {
    point: Point,
    packets: Part<PacketObserver, Limit>,
    flows: Part<FlowCache, ()>,
    sequences: Vec<Part<Observer, Terms>>,
}

/// A meter of a place.
#[derive(Clone, Debug)]
enum Part<T, C> {
    /// The one that is there, changed in this.
    Stays(C),
    /// Another one, or none.
    Is(Option<T>),
}

/// Another limit of the export rate.
type Limit = Option<Option<u64>>;
/// Which observer, and its provisions; those it had before are left here.
type Terms = (ObserverConfig, Vec<Provision>);

impl Revision {
    /// From the scopes and points of `before` to those of `after`, of worker number `worker`, with at most
    /// `allowed` octets of memory afterwards.
    ///
    /// # Errors
    /// As [`Meter::new`].
    pub fn new(
        before: (&Scopes, &[PointConfig]),
        after: (&Scopes, &[PointConfig]),
        worker: u16,
        allowed: u64,
    ) -> Result<Self, MeterError> {
        let mut revision = Self {
            scopes: after.0.clone(),
            narrows: !after.0.have_all_of(before.0),
            points: Default::default(),
        };
        for (point, config) in numbered(after.1, worker, allowed)? {
            let known = before.1.iter();
            let old = known
                .filter(|old| old.base == config.base)
                .find(|old| old.place == config.place);
            revision.points[point.place.index()] = Some(Revised::new(point, old, config)?);
        }
        Ok(revision)
    }

    /// Packets are looked at in another layer from now on.
    pub const fn change_layer(&mut self) {
        self.narrows = true;
    }
}

impl Revised {
    fn new(
        point: Point,
        old: Option<&PointConfig>,
        config: &PointConfig,
    ) -> Result<Self, MeterError> {
        let packets = match (old.and_then(|old| old.packets), config.packets) {
            (Some(old), Some(new)) if is_same_selection(&old, &new) => {
                Part::Stays((old.rate_limit != new.rate_limit).then_some(new.rate_limit))
            }
            _ => Part::Is(packets_of(point, config)?),
        };
        let flows = if old.is_some_and(|old| old.flows == config.flows) {
            Part::Stays(())
        } else {
            Part::Is(config.flows.map(|flows| FlowCache::new(point, flows)))
        };
        let stays = |observer: &ObserverConfig| {
            old.is_some_and(|old| old.sequences.iter().any(|(known, _)| known == observer))
        };
        let sequence = |sequence: &Terms| {
            if !stays(&sequence.0) {
                return observer_of(point, sequence).map(|new| Part::Is(Some(new)));
            }
            Observer::check(&sequence.1, &sequence.0)
                .map_err(|error| MeterError::Provision(point.place, error))?;
            Ok(Part::Stays(sequence.clone()))
        };
        Ok(Self {
            point,
            packets,
            flows,
            sequences: config
                .sequences
                .iter()
                .map(sequence)
                .collect::<Result<_, _>>()?,
        })
    }

    /// The meters of a place where nothing was observed, or another point.
    fn fresh(&mut self) -> Meters {
        Meters {
            point: self.point,
            packets: self.packets.take(),
            flows: self.flows.take(),
            sequences: self.sequences.iter_mut().filter_map(Part::take).collect(),
            counters: MeterCounters::default(),
        }
    }

    /// Changes the meters of this point; gives back those that go.
    fn change(&mut self, meters: &mut Meters) -> Meters {
        let mut gone = Meters {
            point: self.point,
            packets: None,
            flows: None,
            sequences: core::mem::take(&mut meters.sequences),
            counters: MeterCounters::default(),
        };
        match &mut self.packets {
            Part::Stays(limit) => {
                if let (Some(limit), Some(packets)) = (limit, &mut meters.packets) {
                    packets.set_rate_limit(*limit);
                }
            }
            Part::Is(packets) => {
                gone.packets = core::mem::replace(&mut meters.packets, packets.take())
            }
        }
        if let Part::Is(flows) = &mut self.flows {
            gone.flows = core::mem::replace(&mut meters.flows, flows.take());
        }
        for sequence in &mut self.sequences {
            let observer = match sequence {
                Part::Is(observer) => observer.take(),
                Part::Stays((config, provisions)) => {
                    let known = gone.sequences.iter().position(|o| o.config() == config);
                    known.map(|place| {
                        let mut observer = gone.sequences.swap_remove(place);
                        observer.swap_provisions(provisions);
                        observer
                    })
                }
            };
            meters.sequences.extend(observer);
        }
        gone
    }
}

impl<T, C> Part<T, C> {
    const fn take(&mut self) -> Option<T> {
        match self {
            Self::Is(part) => part.take(),
            Self::Stays(_) => None,
        }
    }
}

/// Whether what selection has seen and its random choice can go on.
fn is_same_selection(old: &PacketConfig, new: &PacketConfig) -> bool {
    PacketConfig {
        rate_limit: new.rate_limit,
        ..*old
    } == *new
}

impl Meter {
    /// Takes a revision of what these meters are configured to. The meters that go are given back and make no
    /// record any more but by [`Meter::drain`]; new observers have no session yet. What the revision replaces
    /// besides is left in it.
    pub fn revise(&mut self, revision: &mut Revision) -> Self {
        core::mem::swap(&mut self.scopes, &mut revision.scopes);
        let mut gone = Self {
            scopes: Scopes::default(),
            points: Default::default(),
        };
        let places = self.points.iter_mut().zip(&mut revision.points);
        for ((now, after), gone) in places.zip(&mut gone.points) {
            *gone = match (now.as_mut(), after) {
                (Some(meters), Some(after)) if meters.point == after.point => {
                    Some(after.change(meters))
                }
                (_, after) => core::mem::replace(now, after.as_mut().map(Revised::fresh)),
            };
        }
        for old in gone
            .points
            .iter_mut()
            .flatten()
            .flat_map(|m| &mut m.sequences)
        {
            for observer in self
                .points
                .iter_mut()
                .flatten()
                .flat_map(|m| &mut m.sequences)
            {
                observer.number_after(old);
            }
            old.retire();
        }
        if revision.narrows {
            for observer in self
                .points
                .iter_mut()
                .flatten()
                .flat_map(|m| &mut m.sequences)
            {
                observer.missed(Suspect::Any);
            }
        }
        gone
    }

    /// Makes records of what is open in meters that were given back, up to `budget` or a little more. Epochs
    /// close in the ordinary way. Returns whether there is more.
    pub fn drain(&mut self, now: Utc, budget: usize, sink: &mut impl Sink) -> bool {
        self.points.iter_mut().flatten().any(|meters| {
            let mut sequences = meters.sequences.iter_mut();
            sequences.any(|observer| observer.poll(now, budget, sink))
                || meters
                    .flows
                    .as_mut()
                    .is_some_and(|flows| flows.flush_some(budget, sink))
        })
    }
}

#[cfg(test)]
mod tests;
