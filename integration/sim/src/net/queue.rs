//! A queue in front of a link: a rate, a capacity, tail drop, ECN marking, and other traffic in it. It is
//! computed when something arrives and needs no events of its own.

use crate::rng::Rng;
use crate::{Duration, Instant};

/// When a queue marks ECN capable datagrams.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Marking {
    /// Never.
    Off,
    /// All of them while more than this many octets wait.
    Step(u64),
    /// RED on the momentary length: none up to `low` octets, `at_high` of them at `high`, all beyond.
    Ramp {
        /// Octets where marking begins.
        low: u64,
        /// Octets where all are marked.
        high: u64,
        /// Probability just below `high`.
        at_high: f64,
    },
}

/// Other traffic in a queue: bursts and pauses of random length, sent at a rate while on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CrossConfig {
    /// Mean rate, bit/s.
    pub rate: f64,
    /// Rate while on, bit/s; at least `rate`.
    pub peak: f64,
    /// Mean length of a burst.
    pub burst: Duration,
}

/// A queue.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct QueueConfig {
    /// Service rate, bit/s.
    pub rate: f64,
    /// Octets that may wait.
    pub capacity: u64,
    /// ECN.
    pub marking: Marking,
    /// Other traffic.
    pub cross: Option<CrossConfig>,
}

/// What a queue does with a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queued {
    /// It leaves then, possibly marked CE.
    Leaves {
        /// When the last octet is sent.
        at: Instant,
        /// Marked.
        ce: bool,
    },
    /// There was no room.
    Overflow,
}

/// What a queue counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueFigures {
    /// Datagrams taken.
    pub taken: u64,
    /// Datagrams that found no room.
    pub dropped: u64,
    /// Datagrams marked CE.
    pub marked: u64,
    /// Octets of other traffic that found no room.
    pub cross_dropped: u64,
}

/// A queue and what waits in it.
#[derive(Clone, Debug)]
pub struct Queue {
    config: QueueConfig,
    backlog: f64,
    now: Instant,
    cross_on: bool,
    cross_until: Instant,
    figures: QueueFigures,
}

impl Queue {
    /// An empty queue.
    pub fn new(config: QueueConfig) -> Self {
        Self {
            config,
            backlog: 0.0,
            now: Instant(0),
            cross_on: false,
            cross_until: Instant(0),
            figures: QueueFigures::default(),
        }
    }

    /// Takes other parameters; what waits stays.
    pub fn set(&mut self, config: QueueConfig) {
        self.config = config;
    }

    /// A datagram arrives.
    pub fn push(&mut self, now: Instant, octets: u32, ect: bool, rng: &mut Rng) -> Queued {
        self.advance(now, rng);
        let after = self.backlog + f64::from(octets);
        if after > self.config.capacity as f64 {
            self.figures.dropped += 1;
            return Queued::Overflow;
        }
        self.backlog = after;
        self.figures.taken += 1;
        let ce = ect && self.marks(rng);
        self.figures.marked += u64::from(ce);
        let wait = after * 8e9 / self.config.rate;
        Queued::Leaves {
            at: Instant(now.0 + wait as u64),
            ce,
        }
    }

    fn marks(&self, rng: &mut Rng) -> bool {
        let waiting = self.backlog as u64;
        match self.config.marking {
            Marking::Off => false,
            Marking::Step(at) => waiting > at,
            Marking::Ramp { low, high, at_high } => {
                let span = high.saturating_sub(low).max(1) as f64;
                let share = waiting.saturating_sub(low) as f64 / span;
                share >= 1.0 || rng.chance(share * at_high)
            }
        }
    }

    /// Octets that wait at `now`, other traffic since the last arrival aside.
    pub fn backlog(&self, now: Instant) -> u64 {
        let served = now.since(self.now).as_nanos() as f64 * self.config.rate / 8e9;
        (self.backlog - served).max(0.0) as u64
    }

    /// What was counted.
    pub fn figures(&self) -> QueueFigures {
        self.figures
    }

    fn advance(&mut self, now: Instant, rng: &mut Rng) {
        let Some(cross) = self.config.cross else {
            self.flow(now, 0.0);
            return;
        };
        while self.cross_until < now {
            self.flow(self.cross_until, self.cross_rate(cross));
            self.cross_on = !self.cross_on;
            let duty = (cross.rate / cross.peak).clamp(1e-6, 1.0);
            let on = cross.burst.as_nanos() as f64;
            let mean = if self.cross_on {
                on
            } else {
                on * (1.0 - duty) / duty
            };
            let span = rng.exponential(mean).max(1.0) as u64;
            self.cross_until = Instant(self.cross_until.0.max(self.now.0) + span);
        }
        self.flow(now, self.cross_rate(cross));
    }

    fn cross_rate(&self, cross: CrossConfig) -> f64 {
        if self.cross_on { cross.peak } else { 0.0 }
    }

    /// Other traffic at this rate flows in, and the link serves, until `to`.
    fn flow(&mut self, to: Instant, cross_rate: f64) {
        let nanos = to.since(self.now).as_nanos() as f64;
        if nanos <= 0.0 {
            return;
        }
        self.now = to;
        self.backlog += nanos * (cross_rate - self.config.rate) / 8e9;
        let over = self.backlog - self.config.capacity as f64;
        if over > 0.0 {
            self.figures.cross_dropped += over as u64;
            self.backlog -= over;
        }
        self.backlog = self.backlog.max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> QueueConfig {
        QueueConfig {
            rate: 8e9,
            capacity: 10_000,
            marking: Marking::Step(5_000),
            cross: None,
        }
    }

    #[test]
    fn a_datagram_waits_for_those_before_it() {
        let (mut queue, mut rng) = (Queue::new(config()), Rng::new(1));
        let at = |nanos| Queued::Leaves {
            at: Instant(nanos),
            ce: false,
        };
        // One octet a nanosecond.
        assert_eq!(queue.push(Instant(0), 1_000, true, &mut rng), at(1_000));
        assert_eq!(queue.push(Instant(500), 1_000, true, &mut rng), at(2_000));
        assert_eq!(queue.push(Instant(5_000), 1_000, true, &mut rng), at(6_000));
        assert_eq!(queue.backlog(Instant(5_400)), 600);
    }

    #[test]
    fn it_marks_what_is_capable_and_drops_at_its_end() {
        let (mut queue, mut rng) = (Queue::new(config()), Rng::new(1));
        let results: Vec<_> = (0..12)
            .map(|n| queue.push(Instant(0), 1_000, n != 7, &mut rng))
            .collect();
        let marked = |n: usize| matches!(results[n], Queued::Leaves { ce: true, .. });
        assert!(!marked(4) && marked(5) && !marked(7) && marked(8));
        assert_eq!(results[10], Queued::Overflow);
        assert_eq!(queue.figures().dropped, 2);
        assert_eq!(queue.figures().marked, 4);
    }

    #[test]
    fn other_traffic_takes_its_share() {
        let mut queue = Queue::new(QueueConfig {
            capacity: 1_000_000,
            marking: Marking::Off,
            cross: Some(CrossConfig {
                rate: 4e9,
                peak: 16e9,
                burst: Duration::from_micros(50),
            }),
            ..config()
        });
        let mut rng = Rng::new(3);
        let (mut waited, mut dropped) = (0, 0);
        // Together 80 % of the rate, in bursts at twice the rate.
        for n in 0..200_000u64 {
            let now = Instant(n * 2_500);
            match queue.push(now, 1_000, false, &mut rng) {
                Queued::Leaves { at, .. } => waited += u64::from(at.since(now).as_nanos() > 1_500),
                Queued::Overflow => dropped += 1,
            }
        }
        assert!(waited > 40_000, "{waited}");
        assert!(dropped < 2_000, "{dropped}");
    }
}
