//! One worker of a gateway with its ports, and the turns that it is given. Where several workers run at once
//! is in `crew.rs`.

use std::time::Duration;

use crem_core::time::Instant;
use crem_dataplane::segment::Segment;
use crem_dpdk::{Clock, rdtsc};

use crate::port::{Lane, Memory};
use crate::timing::{BATCH, Meter, thread_time};

/// A worker.
pub struct Seat {
    /// The product's, with its devices in it.
    pub segment: Segment<Memory>,
    /// What its turns took.
    pub meter: Meter,
    /// Processor time of the longest turn so far; nothing unless wanted.
    pub longest: Option<Duration>,
}

/// When the turns of a batch are.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// The first, nanoseconds of simulated time.
    pub first: u64,
    /// Nanoseconds from one to the next.
    pub gap: u64,
}

impl Seat {
    /// Its device toward the hosts.
    pub fn lan(&mut self) -> &mut Lane {
        self.segment.devices().0
    }

    /// Its device toward the path.
    pub fn wan(&mut self) -> &mut Lane {
        self.segment.devices().1
    }

    fn sources_taken(&mut self) -> u64 {
        let (lan, wan) = self.segment.devices();
        lan.sources_taken + wan.sources_taken
    }

    /// The turns of a batch, `wait` before each of them. A turn with a full burst is followed by another one
    /// at once while more is there.
    pub fn run(&mut self, batch: Batch, clock: &Clock, mut wait: impl FnMut()) {
        let before = self.sources_taken();
        let begun = self.meter.begin();
        let mut last = (0, before);
        for turn in 0..BATCH as u64 {
            wait();
            last.0 = rdtsc();
            let now = batch.first + turn * batch.gap;
            let (lan, wan) = self.segment.devices();
            (lan.now, wan.now) = (now, now);
            loop {
                let began = self.longest.map(|_| thread_time());
                let probed = self.meter.probe.map_or(0, |probe| probe());
                self.segment.turn(&|| {
                    // What the worker's clock costs, though the world's time is another.
                    core::hint::black_box(clock.now_ns());
                    Instant(now)
                });
                if let (Some(longest), Some(began)) = (&mut self.longest, began) {
                    *longest = thread_time().saturating_sub(began).max(*longest);
                }
                let (tsc, taken) = (rdtsc(), self.sources_taken());
                self.meter.turn(tsc - last.0, taken - last.1);
                self.meter.probed += self.meter.probe.map_or(0, |probe| probe() - probed);
                let (lan, wan) = self.segment.devices();
                wan.note_sent();
                last = (rdtsc(), taken);
                if !lan.is_due() && !wan.is_due() {
                    break;
                }
            }
        }
        self.meter.end(&begun, last.1 - before);
    }
}
