//! Reaction to congestion notifications in the manner of DCQCN: the rate is cut at a notification and
//! grows back by timer. The responder's side, one notification per interval, is here too.

use crem_core::time::{Duration, Instant};

/// Parameters of the reaction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DcqcnConfig {
    /// Weight of a notification in the congestion estimate.
    pub gain: f64,
    /// Time without a notification after which the estimate falls and the rate grows a step.
    pub period: Duration,
    /// Steps that halve the distance to the target before the target itself grows.
    pub fast_steps: u32,
    /// Growth of the target per step, as a share of the line rate.
    pub additive: f64,
    /// The rate never falls below this share of the line rate.
    pub floor: f64,
}

impl Default for DcqcnConfig {
    fn default() -> Self {
        Self {
            gain: 1.0 / 16.0,
            period: Duration::from_micros(300),
            fast_steps: 5,
            additive: 0.001,
            floor: 0.001,
        }
    }
}

/// The requester's rate, as a share of its line rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Dcqcn {
    config: DcqcnConfig,
    alpha: f64,
    rate: f64,
    target: f64,
    steps: u32,
    next: Instant,
    cut_at: Option<Instant>,
}

impl Dcqcn {
    /// Starts at line rate.
    pub fn new(config: DcqcnConfig) -> Self {
        Self {
            config,
            alpha: 1.0,
            rate: 1.0,
            target: 1.0,
            steps: 0,
            next: Instant(0),
            cut_at: None,
        }
    }

    /// A notification arrived. At most one cut per period.
    pub fn on_cnp(&mut self, now: Instant) {
        if self
            .cut_at
            .is_some_and(|at| now.since(at) < self.config.period)
        {
            return;
        }
        self.cut_at = Some(now);
        self.target = self.rate;
        self.rate = (self.rate * (1.0 - self.alpha / 2.0)).max(self.config.floor);
        self.alpha += (1.0 - self.alpha) * self.config.gain;
        self.steps = 0;
        self.next = now + self.config.period;
    }

    /// The share of the line rate that may be sent at now.
    pub fn rate(&mut self, now: Instant) -> f64 {
        while self.rate < 1.0 && self.next <= now {
            self.next = self.next + self.config.period;
            self.alpha *= 1.0 - self.config.gain;
            self.steps += 1;
            if self.steps > self.config.fast_steps {
                self.target = (self.target + self.config.additive).min(1.0);
            }
            self.rate = ((self.rate + self.target) / 2.0).min(1.0);
            if self.target >= 1.0 && self.rate > 0.999_999 {
                self.rate = 1.0;
            }
        }
        self.rate
    }
}

/// Turns marked packets into notifications, at most one per interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CnpSource {
    interval: Duration,
    last: Option<Instant>,
}

impl CnpSource {
    /// One notification per `interval` at most.
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            last: None,
        }
    }

    /// A marked packet arrived; whether a notification is due.
    pub fn on_ce(&mut self, now: Instant) -> bool {
        let due = self.last.is_none_or(|at| now.since(at) >= self.interval);
        if due {
            self.last = Some(now);
        }
        due
    }
}
