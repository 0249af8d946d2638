//! Whether recent losses of a path come from congestion or from transmission (CREM, Redundancy Policy;
//! AMB-CLASSIFY): the evidence, the window it is weighed over, the verdict. What follows from the verdict
//! is decided in `csf`.

use crate::time::{Duration, Instant};

/// The window is four reports, which come once per SRTT, and at least this.
const WINDOW_MIN: Duration = Duration::from_millis(100);
/// Evidence counts for so long besides: a report names a loss up to eight SRTT and 100 ms later than it
/// counts the marks on the packets around it (AMB-LREXP).
const REMEMBERED_SRTTS: u32 = 12;
/// A window with fewer received sources reaches further back, as far as there are slots.
const WINDOW_SOURCES: u64 = 1_000;
/// Slots that make up the window, and those that are kept.
const WINDOW_SLOTS: usize = 8;
const SLOTS: usize = 2 * WINDOW_SLOTS;

/// What PATH_REPORTs said of one flow: summed over the hop entries that were not known yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathEvidence {
    /// Sum of the changes in queueing delay, microseconds.
    pub queue_delay_us: i64,
    /// An entry has cause 1, queue overflow.
    pub overflow: bool,
}

/// What speaks for congestion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Evidence {
    /// CE marks on sources beyond the threshold that are not falling.
    Marks,
    /// The queueing delay that hops report has grown.
    QueueDelay,
    /// A node reports drops for queue overflow.
    Overflow,
    /// Loss rose with our own repair traffic (AMB-POLICY).
    SelfInduced,
}

/// What recent losses are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LossClass {
    /// Neither loss nor a sign of congestion in the window.
    #[default]
    Clean,
    /// Losses without a sign of congestion.
    Transmission,
    /// There is evidence of congestion, with or without losses.
    Congestion(Evidence),
}

impl LossClass {
    /// Whether redundancy must not be raised beyond `m_cong`.
    pub const fn is_congestion(self) -> bool {
        matches!(self, Self::Congestion(_))
    }

    /// The name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Transmission => "transmission",
            Self::Congestion(Evidence::Marks) => "congestion_marks",
            Self::Congestion(Evidence::QueueDelay) => "congestion_queue_delay",
            Self::Congestion(Evidence::Overflow) => "congestion_overflow",
            Self::Congestion(Evidence::SelfInduced) => "congestion_self_induced",
        }
    }
}

/// Thresholds of the classification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// CE-marked share of the received sources above which marks are evidence, in thousandths.
    pub ce_permille: u32,
    /// Growth of the queueing delay above which it is evidence, microseconds.
    pub queue_delay_us: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            ce_permille: 10,
            queue_delay_us: 100,
        }
    }
}

/// Sources of a stretch of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Slot {
    start: Instant,
    expected: u64,
    received: u64,
    ce: u64,
}

impl Slot {
    fn add(&mut self, other: &Self) {
        self.expected += other.expected;
        self.received += other.received;
        self.ce += other.ce;
    }
}

/// The classification of one path. 0.5 KiB; a report costs one addition, a verdict sixteen.
#[derive(Clone, Debug)]
pub struct Classifier {
    /// Newest first.
    slots: [Slot; SLOTS],
    marks_seen: Option<Instant>,
    delay_seen: Option<Instant>,
    overflow_seen: Option<Instant>,
    self_induced_until: Instant,
}

impl Default for Classifier {
    fn default() -> Self {
        Self::new()
    }
}

impl Classifier {
    /// Nothing known.
    pub const fn new() -> Self {
        const EMPTY: Slot = Slot {
            start: Instant(0),
            expected: 0,
            received: 0,
            ce: 0,
        };
        Self {
            slots: [EMPTY; SLOTS],
            marks_seen: None,
            delay_seen: None,
            overflow_seen: None,
            self_induced_until: Instant(0),
        }
    }

    /// The window: as long as four reports, at least 100 ms.
    pub fn window(srtt: Duration) -> Duration {
        (srtt * 4).max(WINDOW_MIN)
    }

    /// Takes a report of one of the flows of the path: sources expected, received, and marked.
    pub fn report(&mut self, now: Instant, srtt: Duration, expected: u32, received: u32, ce: u32) {
        let width = Self::window(srtt) / WINDOW_SLOTS as u32;
        let [newest, ..] = &mut self.slots;
        if now.since(newest.start) >= width {
            self.slots.rotate_right(1);
            self.slots[0] = Slot {
                start: now,
                ..Slot::default()
            };
        }
        let [newest, ..] = &mut self.slots;
        newest.add(&Slot {
            start: now,
            expected: u64::from(expected),
            received: u64::from(received.min(expected)),
            ce: u64::from(ce.min(received)),
        });
    }

    /// Takes evidence that is no count.
    pub fn evidence(&mut self, now: Instant, evidence: Evidence, lasts: Duration) {
        match evidence {
            // Marks are counted in reports.
            Evidence::Marks => {}
            Evidence::QueueDelay => self.delay_seen = Some(now),
            Evidence::Overflow => self.overflow_seen = Some(now),
            Evidence::SelfInduced => {
                self.self_induced_until = self.self_induced_until.max(now + lasts);
            }
        }
    }

    /// The verdict now. Any evidence makes it congestion, until losses from the time of the evidence have
    /// been reported.
    pub fn class(&mut self, now: Instant, srtt: Duration, thresholds: &Thresholds) -> LossClass {
        let window = Self::window(srtt);
        let (newer, older) = self.halves(now, window);
        if is_marked(&newer, &older, thresholds) {
            self.marks_seen = Some(now);
        }
        let lasts = window.max(srtt * REMEMBERED_SRTTS) + WINDOW_MIN;
        let recent = |seen: Option<Instant>| seen.is_some_and(|at: Instant| now.since(at) <= lasts);
        if recent(self.overflow_seen) {
            return LossClass::Congestion(Evidence::Overflow);
        }
        if recent(self.delay_seen) {
            return LossClass::Congestion(Evidence::QueueDelay);
        }
        if recent(self.marks_seen) {
            return LossClass::Congestion(Evidence::Marks);
        }
        if self.self_induced_until > now {
            return LossClass::Congestion(Evidence::SelfInduced);
        }
        if newer.expected + older.expected > newer.received + older.received {
            LossClass::Transmission
        } else {
            LossClass::Clean
        }
    }

    /// The sums over the newer and the older half of the window, which reaches back until it holds enough
    /// sources.
    fn halves(&self, now: Instant, window: Duration) -> (Slot, Slot) {
        let used = self.window_slots(now, window);
        let mut sums = [Slot::default(); 2];
        for (n, slot) in self.slots.iter().take(used).enumerate() {
            sums[usize::from(2 * n >= used)].add(slot);
        }
        let [newer, older] = sums;
        (newer, older)
    }

    fn window_slots(&self, now: Instant, window: Duration) -> usize {
        let mut received = 0;
        for (n, slot) in self.slots.iter().enumerate() {
            let inside = now.since(slot.start) < window;
            if !inside && received >= WINDOW_SOURCES {
                return n;
            }
            received += slot.received;
        }
        SLOTS
    }
}

/// Marks beyond the threshold, and the newer half of the window not below half of the older one's share.
fn is_marked(newer: &Slot, older: &Slot, thresholds: &Thresholds) -> bool {
    let (ce, received) = (newer.ce + older.ce, newer.received + older.received);
    let above = ce * 1000 > received * u64::from(thresholds.ce_permille);
    // newer.ce / newer.received < older.ce / older.received / 2, without division by zero.
    let falling = 2 * u128::from(newer.ce) * u128::from(older.received)
        < u128::from(older.ce) * u128::from(newer.received);
    above && !falling
}

/// Growth of the queueing delay of one flow over a window: the sum over the running stretch and the one
/// before, each as long as the window.
#[derive(Clone, Copy, Debug, Default)]
pub struct DelaySum {
    start: Instant,
    current: i64,
    previous: i64,
}

impl DelaySum {
    /// Adds a change and returns the sum, in microseconds.
    pub fn add(&mut self, now: Instant, window: Duration, change_us: i64) -> i64 {
        let age = now.since(self.start);
        if age >= window * 2 {
            (self.current, self.previous, self.start) = (0, 0, now);
        } else if age >= window {
            (self.previous, self.current, self.start) = (self.current, 0, now);
        }
        self.current = self.current.saturating_add(change_us);
        self.current.saturating_add(self.previous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    fn at(ms: u64) -> Instant {
        Instant(1_000_000_000) + Duration::from_millis(ms)
    }

    fn class(classifier: &mut Classifier, ms: u64) -> LossClass {
        classifier.class(at(ms), RTT, &Thresholds::default())
    }

    /// One report every 20 ms with (expected, received, ce), the last one at the returned time.
    fn reports(reports: &[(u32, u32, u32)]) -> (Classifier, u64) {
        let mut classifier = Classifier::new();
        let mut ms = 0;
        for (expected, received, ce) in reports {
            ms += 20;
            classifier.report(at(ms), RTT, *expected, *received, *ce);
        }
        (classifier, ms)
    }

    // shows: CREM-POL-01, AMB-CLASSIFY
    #[test]
    fn table_of_evidence() {
        use Evidence::{Marks, Overflow, QueueDelay, SelfInduced};
        use LossClass::{Clean, Congestion, Transmission};
        let reported = |list: &[(u32, u32, u32)]| {
            let (mut classifier, ms) = reports(list);
            class(&mut classifier, ms)
        };
        assert_eq!(reported(&[]), Clean);
        assert_eq!(reported(&[(1000, 1000, 0); 4]), Clean);
        assert_eq!(reported(&[(1000, 990, 0); 4]), Transmission);
        // One percent is not above one percent; half a percent in the background neither.
        assert_eq!(reported(&[(1000, 1000, 10); 4]), Clean);
        assert_eq!(reported(&[(1000, 990, 5); 4]), Transmission);
        assert_eq!(reported(&[(1000, 990, 11); 4]), Congestion(Marks));
        assert_eq!(reported(&[(1000, 1000, 50); 4]), Congestion(Marks));
        // Rising, wavering and steady marks count; those that have gone to less than half do not.
        assert_eq!(
            reported(&[
                (1000, 999, 10),
                (1000, 999, 20),
                (1000, 999, 40),
                (1000, 999, 60)
            ]),
            Congestion(Marks)
        );
        let falling = [
            (1000, 999, 300),
            (1000, 999, 300),
            (1000, 999, 20),
            (1000, 999, 10),
        ];
        assert_eq!(
            reported(&[falling[0], falling[1], falling[2], falling[3]]),
            Transmission
        );
        for (evidence, expected) in [
            (Overflow, Congestion(Overflow)),
            (QueueDelay, Congestion(QueueDelay)),
            (SelfInduced, Congestion(SelfInduced)),
            (Marks, Transmission),
        ] {
            let (mut classifier, ms) = reports(&[(1000, 990, 0); 4]);
            classifier.evidence(at(ms), evidence, Duration::from_secs(10));
            assert_eq!(class(&mut classifier, ms), expected);
        }
    }

    #[test]
    fn evidence_ends_with_its_window() {
        let (mut classifier, ms) = reports(&[(1000, 990, 0); 4]);
        classifier.evidence(at(ms), Evidence::Overflow, Duration::ZERO);
        // Twelve round trips and 100 ms.
        assert!(class(&mut classifier, ms + 340).is_congestion());
        assert!(!class(&mut classifier, ms + 341).is_congestion());
        classifier.evidence(at(ms), Evidence::SelfInduced, Duration::from_secs(10));
        assert!(class(&mut classifier, ms + 9_999).is_congestion());
        assert!(!class(&mut classifier, ms + 10_000).is_congestion());
        // Marks leave the window after 100 ms of unmarked reports.
        let mut list = alloc::vec![(1000, 1000, 100); 4];
        list.extend([(1000, 1000, 0); 7]);
        let (mut classifier, ms) = reports(&list);
        assert_eq!(class(&mut classifier, ms), LossClass::Clean);
    }

    #[test]
    fn small_samples_reach_further_back() {
        // Two marks of a hundred: two percent of five reports, but of a thousand sources 0.2 %.
        let mut list = alloc::vec![(100, 100, 0); 15];
        list.push((100, 100, 2));
        let (mut classifier, ms) = reports(&list);
        assert_eq!(class(&mut classifier, ms), LossClass::Clean);
        // Where there are no more sources, what there is decides.
        let (mut classifier, ms) = reports(&[(10, 10, 0), (10, 10, 1)]);
        assert_eq!(
            class(&mut classifier, ms),
            LossClass::Congestion(Evidence::Marks)
        );
    }

    #[test]
    fn delay_sums_over_a_window_only() {
        let window = Duration::from_millis(100);
        let mut sum = DelaySum::default();
        assert_eq!(sum.add(at(0), window, 60), 60);
        assert_eq!(sum.add(at(50), window, 60), 120);
        assert_eq!(sum.add(at(110), window, -100), 20);
        assert_eq!(sum.add(at(210), window, 5), -95);
        assert_eq!(sum.add(at(900), window, 7), 7);
        assert_eq!(sum.add(at(900), window, i64::MAX), i64::MAX);
    }
}
