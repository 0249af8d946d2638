//! The retransmission timeout and the round-trip time behind it, and how long messages take.

use std::collections::VecDeque;

/// Timeout before anything is measured or given, in nanoseconds.
const FIRST_TIMEOUT: u64 = 100_000_000;
/// Least timeout, above what a busy machine delays us, in nanoseconds.
const MIN_TIMEOUT: u64 = 4_000_000;
/// Timeout in round-trip times.
const TIMEOUT_RTTS: u64 = 4;
/// Message times kept at most.
const MAX_SAMPLES: usize = 1 << 20;

/// Round-trip time by one timed packet at a time.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    given: Option<u64>,
    smoothed: Option<u64>,
    timed: Option<(u64, u64)>,
}

impl Rtt {
    pub(crate) fn new(given: Option<u64>) -> Self {
        Self {
            given,
            smoothed: None,
            timed: None,
        }
    }

    /// Packet `number` left for the first time and asks for an acknowledgment.
    pub(crate) fn sent(&mut self, number: u64, now: u64) {
        self.timed.get_or_insert((number, now));
    }

    /// Packets from `number` on are sent again: their answer would be ambiguous.
    pub(crate) fn resent(&mut self, number: u64) {
        self.timed = self.timed.filter(|&(timed, _)| timed < number);
    }

    /// Everything before `number` is acknowledged.
    pub(crate) fn acknowledged(&mut self, number: u64, now: u64) {
        let Some((_, at)) = self.timed.filter(|&(timed, _)| timed < number) else {
            return;
        };
        self.timed = None;
        let sample = now.saturating_sub(at);
        self.smoothed = Some(self.smoothed.map_or(sample, |old| (7 * old + sample) / 8));
    }

    /// The measured round-trip time in nanoseconds.
    pub(crate) fn measured(&self) -> Option<u64> {
        self.smoothed
    }

    /// The retransmission timeout in nanoseconds.
    pub(crate) fn timeout(&self) -> u64 {
        match self.given.or(self.smoothed) {
            Some(rtt) => (TIMEOUT_RTTS * rtt).max(MIN_TIMEOUT),
            None => FIRST_TIMEOUT,
        }
    }
}

/// Times from a message's first packet to its completion.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageTimes {
    started: VecDeque<u64>,
    taken_us: Vec<u32>,
}

impl MessageTimes {
    /// The next message starts.
    pub(crate) fn start(&mut self, now: u64) {
        self.started.push_back(now);
    }

    /// The oldest unfinished message is complete.
    pub(crate) fn complete(&mut self, now: u64) {
        if let Some(start) = self.started.pop_front()
            && self.taken_us.len() < MAX_SAMPLES
        {
            self.taken_us
                .push((now.saturating_sub(start) / 1_000).min(u64::from(u32::MAX)) as u32);
        }
    }

    /// Median, 99th percentile and largest, in microseconds.
    pub(crate) fn summary(&self) -> (u32, u32, u32) {
        let mut sorted = self.taken_us.clone();
        sorted.sort_unstable();
        let at = |share: usize| sorted.get(sorted.len() * share / 100).copied().unwrap_or(0);
        (at(50), at(99), sorted.last().copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmitted_packets_are_not_timed() {
        let mut rtt = Rtt::new(None);
        assert_eq!(rtt.timeout(), FIRST_TIMEOUT);
        rtt.sent(5, 1_000);
        rtt.resent(3);
        rtt.acknowledged(6, 9_000_000);
        assert_eq!(rtt.measured(), None);
        rtt.sent(7, 0);
        rtt.acknowledged(7, 4_000_000);
        assert_eq!(rtt.measured(), None, "7 itself is not acknowledged yet");
        rtt.acknowledged(8, 5_000_000);
        assert_eq!(rtt.measured(), Some(5_000_000));
        assert_eq!(rtt.timeout(), 20_000_000);
        assert_eq!(Rtt::new(Some(10_000_000)).timeout(), 40_000_000);
    }

    #[test]
    fn message_times_are_summed_up() {
        let mut times = MessageTimes::default();
        for i in 0..100 {
            times.start(i * 10);
        }
        for i in 0..100 {
            times.complete(i * 10 + 1_000 * (i + 1));
        }
        assert_eq!(times.summary(), (51, 100, 100));
    }
}
