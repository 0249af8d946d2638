//! The reduction of m while REPAIR messages are marked or lost (CREM, Congestion Control Considerations;
//! AMB-REDUCE): halved at every finding, zero once the condition lasted, back by one at a time.

use crate::time::{Duration, Instant};

/// The condition counts as lasting, and as over, after this.
const PERSISTS: Duration = Duration::from_secs(1);

/// The most that may be sent of m.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reduction {
    cap: Option<u8>,
    since: Option<Instant>,
    /// When the condition was seen last, or the cap last rose.
    last: Instant,
}

impl Reduction {
    /// m that may be sent of a configured m.
    pub fn allowed(&self, m: u8) -> u8 {
        self.cap.map_or(m, |cap| cap.min(m))
    }

    /// REPAIRs were found marked or lost at a configured m. `true` if less may be sent than before.
    pub fn found(&mut self, m: u8, now: Instant) -> bool {
        let before = self.allowed(m);
        self.cap = Some(before / 2);
        self.lasts(m, now);
        self.allowed(m) < before
    }

    /// Nothing new was found, but the last finding stands. `true` if less may be sent than before.
    pub fn lasts(&mut self, m: u8, now: Instant) -> bool {
        let before = self.allowed(m);
        self.last = now;
        let since = *self.since.get_or_insert(now);
        if now.since(since) >= PERSISTS {
            self.cap = Some(0);
        }
        self.allowed(m) < before
    }

    /// The condition is absent. After a second of that one more symbol is allowed, and the next one not
    /// before it stayed away for as long again.
    pub fn absent(&mut self, m: u8, now: Instant) {
        let Some(cap) = self.cap else { return };
        if now.since(self.last) < PERSISTS {
            return;
        }
        self.since = None;
        self.last = now;
        self.cap = (cap + 1 < m).then_some(cap + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    // shows: CREM-CC-06, CREM-CC-07, AMB-REDUCE
    #[test]
    fn halves_then_stops_then_comes_back_by_one() {
        let mut cap = Reduction::default();
        assert!(cap.found(8, at(0)));
        assert_eq!(cap.allowed(8), 4);
        assert!(cap.found(8, at(20)));
        assert_eq!(cap.allowed(8), 2);
        cap.absent(8, at(500));
        assert_eq!(cap.allowed(8), 2, "not before a second without marks");
        assert!(cap.found(8, at(1000)));
        assert_eq!(cap.allowed(8), 0, "lasted for a second");
        cap.absent(8, at(2000));
        assert_eq!(cap.allowed(8), 1);
        cap.absent(8, at(2020));
        assert_eq!(cap.allowed(8), 1);
        for second in 3..20 {
            cap.absent(8, at(second * 1000));
        }
        assert_eq!(cap.allowed(8), 8);
    }

    #[test]
    fn a_standing_finding_stops_after_a_second_without_halving() {
        let mut cap = Reduction::default();
        cap.found(16, at(0));
        assert!(!cap.lasts(16, at(900)));
        assert_eq!(cap.allowed(16), 8);
        assert!(cap.lasts(16, at(1000)));
        assert_eq!(cap.allowed(16), 0);
    }
}
