//! The loop of a worker: turns of its segments, answers of the auxiliary thread, a snapshot ten times a
//! second, and sleep when there is nothing to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use crem_api::Side;
use crem_core::time::Instant;
use crem_wire::frame::Mac;
use tokio::sync::mpsc::Sender;

use crate::apply::{MakeRemake, Orders};
use crate::buffer::Platform;
use crate::capture::NewProbe;
use crate::listing::Listing;
use crate::protect::Protection;
use crate::segment::Segment;
use crate::snapshot::{NextHop, Snapshot, Wanted};

/// Time between snapshots.
const PUBLISH: Duration = Duration::from_millis(100);
/// Empty turns before the first sleep: fewest and most. A sleep from which the worker wakes to find frames
/// doubles them, a long one that nothing ends halves them: steady traffic is polled for, gaps between
/// transfers are slept through. At most some tens of microseconds: who polls through the gaps of a slow flow
/// takes a core for it, and on a small machine takes it from the hosts. `busy` is for that.
const PATIENCE: core::ops::RangeInclusive<u32> = 64..=256;
/// Sleeps before longer ones.
const SHORT_SLEEPS: u32 = 64;
const SHORT_SLEEP: Duration = Duration::from_micros(20);
const LONG_SLEEP: Duration = Duration::from_micros(50);

/// What a worker does when nothing arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Idle {
    /// Polls while frames come steadily, sleeps for tens of microseconds at a time when they do not.
    #[default]
    Adaptive,
    /// Polls on; takes its core in full.
    Busy,
}

/// How long a worker polls in vain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Backoff {
    patience: u32,
    empty: u32,
    sleeps: u32,
}

impl Backoff {
    const fn new() -> Self {
        Self {
            patience: *PATIENCE.start(),
            empty: 0,
            sleeps: 0,
        }
    }

    /// A turn had something to do.
    fn busy(&mut self) {
        if self.sleeps > 0 && self.sleeps <= SHORT_SLEEPS {
            self.patience = (self.patience * 2).min(*PATIENCE.end());
        }
        (self.empty, self.sleeps) = (0, 0);
    }

    /// A turn had nothing to do: how long to sleep before the next one, if at all.
    fn idle(&mut self) -> Option<Duration> {
        if self.empty < self.patience {
            self.empty += 1;
            return None;
        }
        self.sleeps = self.sleeps.saturating_add(1);
        if self.sleeps.is_multiple_of(SHORT_SLEEPS) {
            self.patience = (self.patience / 2).max(*PATIENCE.start());
        }
        Some(if self.sleeps > SHORT_SLEEPS {
            LONG_SLEEP
        } else {
            SHORT_SLEEP
        })
    }
}

/// Something that is only to be freed.
pub type Spent = Box<dyn Send>;

/// Both directions between a worker and the auxiliary thread, the worker's ends.
#[derive(Debug)]
pub struct Links {
    /// Number of the worker.
    pub worker: u16,
    /// Counts the turns, for whoever watches that there are some.
    pub heartbeat: Arc<AtomicU64>,
    /// Snapshots to the auxiliary thread.
    pub snapshots: Sender<Box<Snapshot>>,
    /// Their memory, given back.
    pub spare: Receiver<Box<Snapshot>>,
    /// Next hops that are lacking.
    pub wanted: Sender<Wanted>,
    /// Next hops found and lost.
    pub next_hops: Receiver<NextHop>,
    /// Changes of the configuration.
    pub orders: Receiver<Box<Orders>>,
    /// The same given back, in force.
    pub done: Sender<Box<Orders>>,
    /// Captures that begin; looked for as often as snapshots are sent.
    pub probes: Receiver<NewProbe>,
    /// What has come to its end and takes long to free.
    pub attic: SyncSender<Spent>,
    /// Set: the next snapshot is to list the flows.
    pub list_flows: Arc<AtomicBool>,
    /// Set: end.
    pub stop: Arc<AtomicBool>,
}

/// A worker with its segments.
pub struct Worker<P: Platform> {
    segments: Vec<Segment<P>>,
    make: MakeRemake<P>,
    links: Links,
    idle: Idle,
    loops: u64,
    busy_loops: u64,
    published: Instant,
    generation: u64,
    /// The list of flows that is being made.
    listing: Option<Listing>,
}

impl<P: Platform + 'static> Worker<P>
where
    Protection<P>: Send,
{
    /// A worker that has not begun. `make` is asked when a segment is to protect flows anew.
    pub fn new(segments: Vec<Segment<P>>, make: MakeRemake<P>, links: Links, idle: Idle) -> Self {
        Self {
            segments,
            make,
            links,
            idle,
            loops: 0,
            busy_loops: 0,
            published: Instant(0),
            generation: 0,
            listing: None,
        }
    }

    /// Runs until it is told to stop.
    pub fn run(&mut self, clock: &impl Fn() -> Instant) {
        self.segments.iter_mut().for_each(Segment::discard_early);
        self.publish(clock());
        let mut backoff = Backoff::new();
        while !self.links.stop.load(Ordering::Relaxed) {
            if self.turn(clock) {
                backoff.busy();
                continue;
            }
            match self.idle {
                Idle::Adaptive => match backoff.idle() {
                    Some(sleep) => std::thread::sleep(sleep),
                    None => core::hint::spin_loop(),
                },
                Idle::Busy => core::hint::spin_loop(),
            }
        }
    }

    /// Lets go of everything held and takes leave of the peers. The one that others send by comes last.
    pub fn end(mut self, clock: &impl Fn() -> Instant) {
        let now = clock();
        self.segments
            .iter_mut()
            .for_each(|segment| segment.close(now));
        self.publish(now);
    }

    /// One turn of all segments. Whether there was anything to do.
    pub fn turn(&mut self, clock: &impl Fn() -> Instant) -> bool {
        let mut busy = false;
        for (number, segment) in self.segments.iter_mut().enumerate() {
            busy |= segment.turn(clock);
            if let Some(spent) = segment.take_spent() {
                // Full: it is freed here.
                let _ = self.links.attic.try_send(Box::new(spent));
            }
            for peer in segment.take_wanted() {
                // Full: it is asked for again with the next message.
                let _ = self.links.wanted.try_send(Wanted {
                    segment: number,
                    peer,
                });
            }
        }
        while let Ok(found) = self.links.next_hops.try_recv() {
            if let Some(segment) = self.segments.get_mut(found.segment) {
                segment.set_next_hop(found.peer, found.mac.map(Mac));
            }
        }
        busy |= self.obey(clock) | self.list_on(clock);
        self.loops += 1;
        self.links.heartbeat.store(self.loops, Ordering::Relaxed);
        self.busy_loops += u64::from(busy);
        let now = clock();
        if now.since(self.published) >= PUBLISH {
            self.publish(now);
        }
        busy
    }

    /// Brings into force what is ordered. Whether there was anything.
    fn obey(&mut self, clock: &impl Fn() -> Instant) -> bool {
        let Ok(mut orders) = self.links.orders.try_recv() else {
            return false;
        };
        for order in &mut orders.segments {
            if let Some(segment) = self.segments.get_mut(order.segment) {
                segment.reconfigure(clock(), order, &self.make);
            }
        }
        for change in &mut orders.metering {
            if let Some(segment) = self.segments.get_mut(change.segment) {
                segment.observe(clock(), change);
            }
        }
        self.generation = orders.generation;
        self.publish(clock());
        // Full only if nobody waits for it; then it is freed here.
        let _ = self.links.done.try_send(orders);
        true
    }

    /// Sends a snapshot, unless the auxiliary thread has not taken the last ones yet.
    fn publish(&mut self, now: Instant) {
        self.publish_with(now, None);
    }

    /// The same with a list of flows.
    fn publish_with(&mut self, now: Instant, flows: Option<Listing>) {
        self.published = now;
        while let Ok(NewProbe {
            segment,
            side,
            probe,
        }) = self.links.probes.try_recv()
        {
            if let Some(segment) = self.segments.get_mut(segment) {
                match side {
                    Side::Lan => segment.lan.probe(probe),
                    Side::Wan => segment.wan.probe(probe),
                }
            }
        }
        let mut snapshot = match self.links.spare.try_recv() {
            Ok(spare) => spare,
            // The first ones; later their memory comes back.
            Err(_) if self.links.snapshots.capacity() > 0 => Box::default(),
            Err(_) => {
                self.listing = flows.or(self.listing.take());
                return;
            }
        };
        snapshot.worker = self.links.worker;
        snapshot.at_ns = now.0;
        snapshot.generation = self.generation;
        snapshot.loops = self.loops;
        snapshot.busy_loops = self.busy_loops;
        snapshot.buffers = self.segments.first().map_or((0, 0), Segment::buffers);
        snapshot
            .segments
            .resize_with(self.segments.len(), Default::default);
        for (segment, to) in self.segments.iter_mut().zip(&mut snapshot.segments) {
            segment.guarded(now, |s| s.describe(to));
        }
        snapshot.flows = flows.map(Listing::into_flows);
        let _ = self.links.snapshots.try_send(snapshot);
        if self.listing.is_none() && self.links.list_flows.swap(false, Ordering::Relaxed) {
            self.listing = Some(Listing::new());
        }
    }

    /// Goes on with the list of flows; a snapshot takes it when it is complete. Whether there is one.
    fn list_on(&mut self, clock: &impl Fn() -> Instant) -> bool {
        let Some(mut listing) = self.listing.take() else {
            return false;
        };
        match self.segments.get_mut(listing.segment()) {
            Some(segment) => {
                segment.guarded(clock(), |s| s.list_on(&mut listing));
                self.listing = Some(listing);
            }
            None => self.publish_with(clock(), Some(listing)),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until_sleep(backoff: &mut Backoff) -> u32 {
        (0..).take_while(|_| backoff.idle().is_none()).count() as u32
    }

    #[test]
    fn steady_traffic_is_polled_for_and_pauses_are_slept_through() {
        let mut backoff = Backoff::new();
        let first = until_sleep(&mut backoff);
        // Frames come whenever it has just fallen asleep.
        for _ in 0..20 {
            backoff.busy();
            until_sleep(&mut backoff);
        }
        backoff.busy();
        assert_eq!(until_sleep(&mut backoff), *PATIENCE.end());
        assert_eq!(backoff.idle(), Some(SHORT_SLEEP));
        // Nothing comes for long.
        for _ in 0..SHORT_SLEEPS * 20 {
            backoff.idle();
        }
        assert_eq!(backoff.idle(), Some(LONG_SLEEP));
        backoff.busy();
        assert_eq!(until_sleep(&mut backoff), first);
    }
}
