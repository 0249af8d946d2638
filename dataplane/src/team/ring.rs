//! Bounded rings between two workers, and the set of them that a segment with several workers needs.

use std::sync::Arc;

use super::{Directory, Item, Place, Relayed, Team};
use crate::buffer::{Buffer, Platform};
use crate::classify::Side;

/// Items that a ring holds: the packets of some milliseconds, as a port's own ring does.
const ITEMS: usize = 2048;

/// The giving end of a ring.
#[derive(Debug)]
pub struct Gives<T>(rtrb::Producer<T>);

/// The taking end of a ring.
#[derive(Debug)]
pub struct Takes<T>(rtrb::Consumer<T>);

/// Both ends.
pub type Ring<T> = (Gives<T>, Takes<T>);

/// A ring with room for some milliseconds of packets.
pub(super) fn ring<T>() -> Ring<T> {
    let (gives, takes) = rtrb::RingBuffer::new(ITEMS);
    (Gives(gives), Takes(takes))
}

impl<T> Gives<T> {
    /// Adds an item; gives it back if there is no room. Never waits.
    pub fn give(&mut self, item: T) -> Result<(), T> {
        self.0
            .push(item)
            .map_err(|rtrb::PushError::Full(item)| item)
    }

    /// Items that there is room for.
    pub fn room(&self) -> usize {
        self.0.slots()
    }
}

impl<T> Takes<T> {
    /// The oldest item, if there is one. Never waits.
    pub fn take(&mut self) -> Option<T> {
        self.0.pop().ok()
    }
}

/// The teams of a segment, in the order of the workers.
pub type Teams<P> = Vec<Team<P>>;

/// Connects `count` workers of a segment with at most `flows` flows. `relays` are the taking ends of
/// what others send by the queues of worker 0.
pub fn teams<P: Platform>(
    count: u16,
    seed: u64,
    flows: u32,
    relays: Vec<(Side, Takes<Relayed<P::Buf>>)>,
) -> Teams<P>
where
    P::Buf: Buffer,
{
    let directory = Arc::new(Directory::new(flows, seed));
    let team = |index| Team {
        place: Place { index, count, seed },
        directory: Arc::clone(&directory),
        out: Vec::with_capacity(usize::from(count)),
        from: Vec::with_capacity(usize::from(count)),
        relayed: Vec::new(),
        full_since: None,
    };
    let mut teams: Teams<P> = (0..count).map(team).collect();
    for from in 0..usize::from(count) {
        for to in 0..usize::from(count) {
            let (gives, takes) = if from == to {
                (None, None)
            } else {
                let (gives, takes) = ring::<Item<P::Buf>>();
                (Some(gives), Some(takes))
            };
            if let Some(team) = teams.get_mut(from) {
                team.out.push(gives);
            }
            if let Some(team) = teams.get_mut(to) {
                team.from.extend(takes);
            }
        }
    }
    if let Some(home) = teams.first_mut() {
        home.relayed = relays;
    }
    teams
}
