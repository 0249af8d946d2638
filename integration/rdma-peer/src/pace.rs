//! The sending rate, and how congestion notifications change it (in the manner of DCQCN, simplified).

/// Octets a frame takes on a real link beside its own: preamble 8, FCS 4, gap 12.
const LINK_OVERHEAD: u64 = 24;
/// Weight of a notification in the congestion estimate.
const GAIN: f64 = 1.0 / 16.0;
/// Recovery steps that halve the distance to the rate before the cut; then the target itself grows.
const FAST_STEPS: u32 = 5;

/// Spaces frames by the current rate.
#[derive(Clone, Debug)]
pub struct Pacer {
    line_mbit: f64,
    rate_mbit: f64,
    target_mbit: f64,
    congestion: f64,
    steps: u32,
    next_step: u64,
    step_interval: u64,
    last_cut: u64,
    next: u64,
    burst_ns: u64,
}

impl Pacer {
    /// A pacer at `rate_mbit` (0 is unlimited) that may catch up `burst_ns` after a pause. A cut takes
    /// effect, and recovery makes a step, once in `step_interval` nanoseconds: the round-trip time, so
    /// that the marks of one queue are answered once.
    pub fn new(rate_mbit: u64, burst_ns: u64, step_interval: u64) -> Self {
        let line = rate_mbit as f64;
        Self {
            line_mbit: line,
            rate_mbit: line,
            target_mbit: line,
            congestion: 1.0,
            steps: 0,
            next_step: u64::MAX,
            step_interval: step_interval.max(1),
            last_cut: 0,
            next: 0,
            burst_ns,
        }
    }

    /// Whether a frame may leave at `now`.
    pub fn ready(&self, now: u64) -> bool {
        self.next <= now
    }

    /// When the next frame may leave.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The current rate in Mbit/s; 0 is unlimited.
    pub fn rate_mbit(&self) -> f64 {
        self.rate_mbit
    }

    /// Accounts for a frame that leaves at `now`.
    pub fn sent(&mut self, now: u64, octets: usize) {
        self.recover(now);
        if self.line_mbit > 0.0 {
            let time = (octets as u64 + LINK_OVERHEAD) as f64 * 8_000.0 / self.rate_mbit;
            self.next = self.next.max(now.saturating_sub(self.burst_ns)) + time as u64;
        }
    }

    /// A congestion notification arrived: cut the rate.
    pub fn on_cnp(&mut self, now: u64) {
        if self.line_mbit == 0.0 || (self.last_cut != 0 && now < self.last_cut + self.step_interval)
        {
            return;
        }
        self.last_cut = now;
        self.target_mbit = self.rate_mbit;
        self.congestion = (1.0 - GAIN) * self.congestion + GAIN;
        self.rate_mbit *= 1.0 - self.congestion / 2.0;
        self.rate_mbit = self.rate_mbit.max(self.line_mbit / 100.0);
        self.steps = 0;
        self.next_step = now + self.step_interval;
    }

    fn recover(&mut self, now: u64) {
        while now >= self.next_step {
            self.next_step = self.next_step.saturating_add(self.step_interval);
            self.congestion *= 1.0 - GAIN;
            self.steps += 1;
            if self.steps > FAST_STEPS {
                self.target_mbit = (self.target_mbit + self.line_mbit / 50.0).min(self.line_mbit);
            }
            self.rate_mbit = f64::midpoint(self.rate_mbit, self.target_mbit);
            if self.line_mbit - self.rate_mbit < self.line_mbit * 1e-3 {
                self.rate_mbit = self.line_mbit;
                self.next_step = u64::MAX;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_frames_and_bounds_catching_up() {
        let mut pacer = Pacer::new(100, 200_000, 1);
        pacer.sent(0, 976);
        assert_eq!(pacer.next(), 80_000);
        assert!(!pacer.ready(79_999) && pacer.ready(80_000));
        let mut burst = 0;
        while pacer.ready(10_000_000) {
            pacer.sent(10_000_000, 976);
            burst += 1;
        }
        assert_eq!(burst, 3);
    }

    #[test]
    fn cuts_and_recovers() {
        let mut pacer = Pacer::new(100, 0, 1_000_000);
        pacer.on_cnp(1);
        assert!(pacer.rate_mbit() <= 51.0);
        pacer.on_cnp(900_000);
        assert!(pacer.rate_mbit() >= 49.0, "one cut per interval");
        let mut last = pacer.rate_mbit();
        for ms in 2..200 {
            pacer.sent(ms * 1_000_000, 1000);
            assert!(pacer.rate_mbit() >= last);
            last = pacer.rate_mbit();
        }
        assert!((last - 100.0).abs() < 1e-9);
    }

    #[test]
    fn unlimited_never_waits() {
        let mut pacer = Pacer::new(0, 0, 1);
        pacer.sent(5, 9_000);
        pacer.on_cnp(6);
        assert!(pacer.ready(5));
    }
}
