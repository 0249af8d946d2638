//! A whole path in one direction: a queue, loss in transmission, delay, jitter, equal-cost members,
//! repeated and damaged datagrams, marks that no queue explains.

use super::loss::{Loss, LossProcess};
use super::queue::{Queue, QueueConfig, QueueFigures, Queued};
use super::{Cause, Class, Datagram, Link, Verdict};
use crate::rng::Rng;
use crate::{Duration, Instant};

/// What a path does.
#[derive(Clone, PartialEq, Debug)]
pub struct PathConfig {
    /// Propagation, one way.
    pub delay: Duration,
    /// Up to this is added to a datagram's delay, drawn for each: it reorders.
    pub jitter: Duration,
    /// Equal-cost members; each further one is `member_delay` longer. Which one a datagram takes
    /// depends on its hash.
    pub members: u32,
    /// Additional delay from one member to the next.
    pub member_delay: Duration,
    /// Packets are spread over the members one by one instead of by hash.
    pub spray: bool,
    /// Loss of host packets and REPAIR in transmission.
    pub loss: Loss,
    /// Loss of all other CREM messages.
    pub control_loss: f64,
    /// Loss of acknowledgments.
    pub ack_loss: f64,
    /// Share of datagrams that arrive twice, up to a millisecond apart.
    pub duplicate: f64,
    /// Share of datagrams damaged so that no device notices.
    pub damage: f64,
    /// Share of ECN capable datagrams marked for no reason of ours.
    pub mark: f64,
    /// The queue at its entry.
    pub queue: Option<QueueConfig>,
}

impl PathConfig {
    /// A clean path without queue.
    pub fn clean(delay: Duration) -> Self {
        Self {
            delay,
            jitter: Duration::ZERO,
            members: 1,
            member_delay: Duration::ZERO,
            spray: false,
            loss: Loss::None,
            control_loss: 0.0,
            ack_loss: 0.0,
            duplicate: 0.0,
            damage: 0.0,
            mark: 0.0,
            queue: None,
        }
    }
}

/// A path and its state.
#[derive(Clone, Debug)]
pub struct Path {
    config: PathConfig,
    loss: LossProcess,
    queue: Option<Queue>,
    sprayed: u32,
    lost: u64,
}

impl Path {
    /// The path that `config` describes.
    pub fn new(config: PathConfig) -> Self {
        Self {
            loss: LossProcess::new(config.loss.clone()),
            queue: config.queue.map(Queue::new),
            config,
            sprayed: 0,
            lost: 0,
        }
    }

    /// From now on another loss process.
    pub fn set_loss(&mut self, loss: Loss) {
        self.loss.set(loss);
    }

    /// The loss process, for outages.
    pub fn loss_mut(&mut self) -> &mut LossProcess {
        &mut self.loss
    }

    /// From now on another queue; what waits stays where there was one.
    pub fn set_queue(&mut self, config: QueueConfig) {
        match &mut self.queue {
            Some(queue) => queue.set(config),
            None => self.queue = Some(Queue::new(config)),
        }
    }

    /// What the queue counted.
    pub fn queue_figures(&self) -> QueueFigures {
        self.queue.as_ref().map(Queue::figures).unwrap_or_default()
    }

    /// Datagrams lost in transmission.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn loses(&mut self, class: Class, rng: &mut Rng) -> bool {
        match class {
            Class::Source | Class::Repair | Class::Cross => self.loss.loses(rng),
            Class::Control => rng.chance(self.config.control_loss),
            Class::Acknowledgment => rng.chance(self.config.ack_loss),
        }
    }

    fn detour(&mut self, hash: u32, rng: &mut Rng) -> Duration {
        let members = self.config.members.max(1);
        let member = if self.config.spray {
            self.sprayed = self.sprayed.wrapping_add(1);
            self.sprayed % members
        } else {
            hash % members
        };
        let jitter = if self.config.jitter.is_zero() {
            Duration::ZERO
        } else {
            rng.time_below(self.config.jitter)
        };
        self.config.member_delay * member + jitter
    }
}

impl Link for Path {
    fn send(&mut self, now: Instant, datagram: &Datagram, rng: &mut Rng) -> Verdict {
        if self.loss.is_down(now) {
            return Verdict::Drop(Cause::Down);
        }
        let (mut at, mut ce) = (now, false);
        if let Some(queue) = &mut self.queue {
            match queue.push(now, datagram.octets, datagram.ect, rng) {
                Queued::Leaves {
                    at: leaves,
                    ce: marked,
                } => (at, ce) = (leaves, marked),
                Queued::Overflow => return Verdict::Drop(Cause::Overflow),
            }
        }
        if self.loses(datagram.class, rng) {
            self.lost += 1;
            return Verdict::Drop(Cause::Transmission);
        }
        let at = at + self.config.delay + self.detour(datagram.hash, rng);
        let again = rng
            .chance(self.config.duplicate)
            .then(|| at + rng.time_below(Duration::from_millis(1)));
        Verdict::Deliver {
            at,
            ce: ce || datagram.ect && rng.chance(self.config.mark),
            damaged: rng.chance(self.config.damage),
            again,
        }
    }

    fn backlog(&self, now: Instant) -> u64 {
        self.queue.as_ref().map_or(0, |queue| queue.backlog(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(5);

    fn source(hash: u32) -> Datagram {
        Datagram {
            octets: 1_000,
            ect: true,
            class: Class::Source,
            hash,
        }
    }

    fn arrivals(config: PathConfig, count: u64) -> Vec<Verdict> {
        let (mut path, mut rng) = (Path::new(config), Rng::new(1));
        (0..count)
            .map(|n| path.send(Instant(n * 1_000), &source(n as u32), &mut rng))
            .collect()
    }

    #[test]
    fn a_clean_path_only_delays() {
        for (n, verdict) in arrivals(PathConfig::clean(DELAY), 100).iter().enumerate() {
            let expected = Verdict::Deliver {
                at: Instant(n as u64 * 1_000) + DELAY,
                ce: false,
                damaged: false,
                again: None,
            };
            assert_eq!(*verdict, expected);
        }
    }

    #[test]
    fn members_separate_flows_and_spraying_reorders_one() {
        let members = PathConfig {
            members: 2,
            member_delay: Duration::from_micros(50),
            ..PathConfig::clean(DELAY)
        };
        let (mut path, mut rng) = (Path::new(members.clone()), Rng::new(1));
        let mut at = |path: &mut Path, n: u64| match path.send(Instant(n), &source(0), &mut rng) {
            Verdict::Deliver { at, .. } => at,
            Verdict::Drop(_) => Instant(0),
        };
        assert!(at(&mut path, 0) < at(&mut path, 1));
        let mut path = Path::new(PathConfig {
            spray: true,
            ..members
        });
        assert!(at(&mut path, 0) > at(&mut path, 1));
    }

    #[test]
    fn each_class_has_its_own_loss() {
        let mut path = Path::new(PathConfig {
            loss: Loss::Uniform(1.0),
            ..PathConfig::clean(DELAY)
        });
        let mut rng = Rng::new(1);
        let mut lost = |class| {
            let datagram = Datagram { class, ..source(0) };
            path.send(Instant(0), &datagram, &mut rng) == Verdict::Drop(Cause::Transmission)
        };
        assert!(lost(Class::Source) && lost(Class::Repair));
        assert!(!lost(Class::Control) && !lost(Class::Acknowledgment));
        assert_eq!(path.lost(), 2);
    }

    #[test]
    fn marks_copies_and_damage_come_at_their_rates() {
        let config = PathConfig {
            duplicate: 0.1,
            damage: 0.2,
            mark: 0.3,
            ..PathConfig::clean(DELAY)
        };
        let mut counts = [0; 3];
        for verdict in arrivals(config, 10_000) {
            if let Verdict::Deliver {
                ce, damaged, again, ..
            } = verdict
            {
                counts[0] += u32::from(again.is_some());
                counts[1] += u32::from(damaged);
                counts[2] += u32::from(ce);
            }
        }
        for (count, share) in counts.into_iter().zip([0.1, 0.2, 0.3]) {
            assert!((f64::from(count) / 1e4 - share).abs() < 0.02, "{counts:?}");
        }
    }
}
