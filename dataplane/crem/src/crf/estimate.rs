//! Times that the receiver function derives from what it sees: packet spacing, reordering, how far
//! repair lags, and from them the reordering allowance A, the hold H and the burst timeout. Pure
//! arithmetic over samples that the callers take.

use alloc::collections::VecDeque;
use crem_wire::Psn;

use crate::config::Hold;
use crate::mutate::{self, Fault};
use crate::rtt::RttEstimator;
use crate::time::{Duration, Instant};

/// A peak loses half of its height in this time without a higher sample.
const HALF_LIFE: Duration = Duration::from_secs(4);
/// Floor of the reordering allowance where the RTT allows it (AMB-HOLD).
const ALLOWANCE_FLOOR: Duration = Duration::from_micros(100);
/// Round trips that an operator's hold has at most: a coded round and its repetition take no longer, and
/// a host whose packets come later than that has long sent them again.
const HOLD_ROUND_TRIPS: u32 = 4;
/// Floor of the burst timeout (AMB-BURSTEND).
const BURST_FLOOR: Duration = Duration::from_micros(200);
/// A pause of this length is no packet spacing.
const PAUSE: Duration = Duration::from_millis(10);
/// Packets after which the spacing counts as known.
const SPACING_PACKETS: u64 = 32;
/// Stands for the RTT where nothing is known at all.
const RTT_UNKNOWN: Duration = Duration::from_millis(100);

/// A maximum that decays.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peak {
    value: Duration,
    at: Instant,
}

impl Peak {
    /// Takes a sample.
    pub(crate) fn note(&mut self, now: Instant, sample: Duration) {
        if sample >= self.get(now) {
            self.value = sample;
            self.at = now;
        }
    }

    /// The peak as it stands at `now`.
    pub(crate) fn get(&self, now: Instant) -> Duration {
        let halves = now.since(self.at).as_nanos() / HALF_LIFE.as_nanos();
        let nanos = self.value.as_nanos() as u64;
        Duration::from_nanos(nanos.checked_shr(halves.min(64) as u32).unwrap_or(0))
    }
}

/// Mean time between the packets of a stream while it is active.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spacing {
    mean_nanos: u64,
    last: Instant,
    seen: u64,
}

impl Spacing {
    /// `packets` new source packets arrived at `now`.
    pub(crate) fn note(&mut self, now: Instant, packets: u64) {
        let elapsed = now.since(self.last);
        if self.seen == 0 || elapsed > PAUSE {
            // The first packets of a burst start the clock and have no spacing of their own.
            self.last = now;
            self.seen = self.seen.max(1);
            return;
        }
        if elapsed.is_zero() || packets == 0 {
            return;
        }
        let sample = elapsed.as_nanos() as u64 / packets;
        self.mean_nanos = if self.seen == 1 {
            sample
        } else {
            // A short pause is hardly told from a lower rate: it counts as twice the spacing at most.
            (self.mean_nanos * 7 + sample.min(2 * self.mean_nanos + 1)) / 8
        };
        self.seen = self.seen.saturating_add(packets);
        self.last = now;
    }

    /// The mean spacing, once enough packets were seen.
    pub(crate) fn mean(&self) -> Option<Duration> {
        (self.seen > SPACING_PACKETS).then(|| Duration::from_nanos(self.mean_nanos.max(1)))
    }
}

/// A time and a PSN in eight octets: 40 bits of time in units of [`MARK_UNIT`], which come round after
/// three days, and the PSN.
#[derive(Clone, Copy, Debug)]
struct Mark(u64);

/// Nanoseconds that one step of a mark's time stands for, as a power of two.
const MARK_UNIT: u32 = 8;
const MARK_TIME: u64 = (1 << 40) - 1;

impl Mark {
    const fn new(at: Instant, psn: Psn) -> Self {
        Self((at.0 >> MARK_UNIT & MARK_TIME) << 24 | psn.get() as u64)
    }

    const fn psn(self) -> Psn {
        Psn::new((self.0 & 0xff_ffff) as u32)
    }

    const fn moved_to(self, psn: Psn) -> Self {
        Self(self.0 & !0xff_ffff | psn.get() as u64)
    }

    /// How long before `now` it was set.
    const fn age(self, now: Instant) -> Duration {
        self.before(now.0 >> MARK_UNIT)
    }

    /// How long before `later` it was set.
    const fn until(self, later: Self) -> Duration {
        self.before(later.0 >> 24)
    }

    const fn before(self, units: u64) -> Duration {
        Duration::from_nanos((units.wrapping_sub(self.0 >> 24) & MARK_TIME) << MARK_UNIT)
    }
}

/// When the highest PSN of a stream stood where, coarsely and not for long: as much as it takes to tell
/// how far something lags behind a PSN.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passage<const MARKS: u32> {
    marks: VecDeque<Mark>,
}

impl<const MARKS: u32> Passage<MARKS> {
    /// The next PSN is `next`. What lies back further than `span` is forgotten, but for one mark; marks
    /// closer together than the span takes to fill all of them are merged.
    pub(crate) fn note(&mut self, now: Instant, next: Psn, span: Duration) {
        let grain = span / (MARKS - 2);
        if let Some(last) = self.marks.back_mut()
            && last.age(now) < grain
        {
            *last = last.moved_to(next);
            return;
        }
        while self
            .marks
            .get(1)
            .is_some_and(|second| second.age(now) > span)
        {
            self.marks.pop_front();
        }
        if self.marks.len() >= MARKS as usize {
            self.marks.pop_front();
        }
        self.marks.push_back(Mark::new(now, next));
    }

    /// Whether there is no mark.
    pub(crate) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Where the stream stood `ago` before its newest mark, to the grain of the marks; `None` if that is
    /// forgotten.
    pub(crate) fn before_newest(&self, ago: Duration) -> Option<Psn> {
        let newest = *self.marks.back()?;
        let place = (self.marks).partition_point(|mark| mark.until(newest) >= ago);
        Some(self.marks.get(place.checked_sub(1)?)?.psn())
    }

    /// How long ago the stream went past `psn`, to the grain of the marks; `None` if it has not, or too
    /// long ago.
    pub(crate) fn since(&self, now: Instant, psn: Psn) -> Option<Duration> {
        let place = self.marks.partition_point(|mark| !mark.psn().is_after(psn));
        let mark = self.marks.get(place).filter(|_| place > 0)?;
        Some(mark.age(now))
    }

    /// Whether the stream went past `psn` at least `ago` ago.
    pub(crate) fn is_past(&self, now: Instant, psn: Psn, ago: Duration) -> bool {
        let first = self.marks.front().filter(|mark| mark.psn().is_after(psn));
        let age = first.map(|mark| mark.age(now));
        age.or(self.since(now, psn)).is_some_and(|age| age >= ago)
    }

    /// Octets of memory.
    pub(crate) fn octets(&self) -> usize {
        self.marks.capacity() * size_of::<Mark>()
    }
}

/// What the times of a stream follow from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Basis<'a> {
    /// RTT samples of the stream.
    pub(crate) rtt: &'a RttEstimator,
    /// The domain's RTT, for want of samples.
    pub(crate) domain_rtt: Option<Duration>,
    /// Packet spacing.
    pub(crate) spacing: Option<Duration>,
    /// How late reordered packets come.
    pub(crate) displacement: Duration,
    /// How far the first REPAIR of a block lags behind the block's last source.
    pub(crate) lag: Duration,
    /// k of the configuration in force; `None` without one.
    pub(crate) k: Option<u8>,
    /// Ordinary symbols a block of that configuration.
    pub(crate) m: u8,
    /// The operator's choice.
    pub(crate) hold: Hold,
}

/// The times of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Times {
    /// Smoothed RTT, or the best substitute.
    pub(crate) srtt: Duration,
    /// Minimum RTT, if known.
    pub(crate) min_rtt: Option<Duration>,
    /// Reordering allowance A (AMB-HOLD).
    pub(crate) allowance: Duration,
    /// Hold H; `None` where nothing may be held.
    pub(crate) hold: Option<Duration>,
    /// What the operator's hold would have to be to fit one coded round, if it is shorter.
    pub(crate) short_of: Option<Duration>,
    /// Without a source packet for this long a burst has ended (AMB-BURSTEND).
    pub(crate) burst: Duration,
}

impl Times {
    /// The times that follow from `basis`.
    pub(crate) fn of(basis: &Basis<'_>) -> Self {
        let min_rtt = basis.rtt.min().or(basis.domain_rtt);
        let quarter = min_rtt.map_or(Duration::MAX, |rtt| rtt / 4);
        let allowance = quarter.min(ALLOWANCE_FLOOR.max(basis.displacement.saturating_mul(4)));
        let spacing = basis.spacing.unwrap_or(BURST_FLOOR);
        let burst = quarter.min(BURST_FLOOR.max(spacing.saturating_mul(4)));
        let longest = min_rtt.map_or(Duration::MAX, |rtt| rtt.saturating_mul(HOLD_ROUND_TRIPS));
        let known = min_rtt.is_some() && basis.spacing.is_some();
        let hold = basis.k.filter(|_| known).and_then(|k| match basis.hold {
            Hold::Off => None,
            Hold::Fixed(hold) => Some(hold.min(longest)),
            // Nothing but a reordered packet can come within a quarter of the RTT if no symbols are
            // sent ahead.
            Hold::Auto if basis.m == 0 => Some(allowance),
            Hold::Auto => {
                let block = spacing.saturating_mul(u32::from(k)).max(burst);
                let wanted = block.saturating_add(allowance).saturating_add(basis.lag);
                Some(quarter.min(wanted))
            }
        });
        let hold = if mutate::has(Fault::HeldTooLong) {
            hold.map(|hold| hold * 8)
        } else {
            hold
        };
        let srtt = basis.rtt.srtt().or(basis.domain_rtt);
        let mut times = Self {
            srtt: srtt.unwrap_or(RTT_UNKNOWN),
            min_rtt,
            allowance,
            hold,
            short_of: None,
            burst,
        };
        times.short_of = times.short_of_round(basis);
        times
    }

    /// A gap is asked for once its block has ended and the allowance is over; the answer takes a round trip,
    /// and may be reordered itself.
    fn short_of_round(&self, basis: &Basis<'_>) -> Option<Duration> {
        let (Some(hold), Hold::Fixed(_), Some(k)) = (self.hold, basis.hold, basis.k) else {
            return None;
        };
        let block = basis.spacing?.saturating_mul(u32::from(k)).max(self.burst);
        let round = block + self.srtt + 2 * self.allowance;
        (hold < round).then_some(round)
    }

    /// How long an answer is waited for (AMB-REQRETRY).
    pub(crate) fn answer(&self) -> Duration {
        (self.srtt * 2 + self.allowance).max(Duration::from_millis(1))
    }

    /// Smallest distance of two requests that touch the same block (AMB-RANGEWAIT).
    pub(crate) fn spacing(&self) -> Duration {
        self.srtt + self.srtt / 4
    }

    /// How long a lost position is worth asking for: what the CSF keeps at least (AMB-KEEP).
    pub(crate) fn keep(&self) -> Duration {
        (self.srtt * 8).max(Duration::from_millis(100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const US: Duration = Duration::from_micros(1);
    const MS: Duration = Duration::from_millis(1);

    fn rtt(of: Duration) -> RttEstimator {
        let mut rtt = RttEstimator::new();
        rtt.sample(Instant(0), of);
        rtt
    }

    fn basis(rtt: &RttEstimator) -> Basis<'_> {
        Basis {
            rtt,
            domain_rtt: None,
            spacing: Some(10 * US),
            displacement: Duration::ZERO,
            lag: Duration::ZERO,
            k: Some(32),
            m: 2,
            hold: Hold::Auto,
        }
    }

    #[test]
    fn automatic_values_follow_the_formulas() {
        let rtt = rtt(20 * MS);
        let b = basis(&rtt);
        let t = Times::of(&b);
        assert_eq!(t.allowance, 100 * US);
        assert_eq!(t.burst, 200 * US);
        assert_eq!(t.hold, Some(320 * US + 100 * US));
        let lagging = Times::of(&Basis { lag: MS, ..b });
        assert_eq!(lagging.hold, Some(420 * US + MS));
        let late = Times::of(&Basis {
            displacement: 200 * US,
            ..b
        });
        assert_eq!(late.allowance, 800 * US);
        let capped = Times::of(&Basis {
            lag: 40 * MS,
            displacement: 40 * MS,
            ..b
        });
        assert_eq!((capped.allowance, capped.hold), (5 * MS, Some(5 * MS)));
    }

    // shows: AMB-HOLD
    #[test]
    fn an_operators_hold_that_is_too_short_for_a_coded_round_is_told() {
        let rtt = rtt(20 * MS);
        let short_of = |hold| {
            let hold = Hold::Fixed(hold);
            Times::of(&Basis {
                hold,
                ..basis(&rtt)
            })
            .short_of
        };
        // A block of 32 takes 320 us; asking and being answered 20 ms and twice 100 us.
        let round = 20 * MS + 520 * US;
        assert_eq!(short_of(round), None);
        assert_eq!(short_of(round - US), Some(round));
        let auto = Times::of(&basis(&rtt));
        assert_eq!(auto.short_of, None, "the automatic one is not meant to");
        let slow = Times::of(&Basis {
            spacing: Some(MS),
            hold: Hold::Fixed(20 * MS),
            ..basis(&rtt)
        });
        assert_eq!(slow.short_of, Some(52 * MS + 200 * US));
    }

    #[test]
    fn nothing_is_held_while_rate_or_rtt_is_unknown() {
        let none = RttEstimator::new();
        let rtt = rtt(20 * MS);
        assert_eq!(Times::of(&basis(&none)).hold, None);
        let domain = Basis {
            domain_rtt: Some(20 * MS),
            ..basis(&none)
        };
        assert_eq!(Times::of(&domain).hold, Some(420 * US));
        for hold in [Hold::Auto, Hold::Fixed(9 * MS)] {
            let b = Basis {
                hold,
                ..basis(&rtt)
            };
            assert_eq!(Times::of(&Basis { spacing: None, ..b }).hold, None);
            assert_eq!(Times::of(&Basis { k: None, ..b }).hold, None);
        }
    }

    #[test]
    fn operators_value_and_no_symbols_ahead() {
        let rtt = rtt(20 * MS);
        let b = basis(&rtt);
        let fixed = Basis {
            hold: Hold::Fixed(70 * MS),
            m: 0,
            ..b
        };
        assert_eq!(Times::of(&fixed).hold, Some(70 * MS));
        let long = Basis {
            hold: Hold::Fixed(90 * MS),
            ..b
        };
        assert_eq!(Times::of(&long).hold, Some(80 * MS), "four round trips");
        assert_eq!(Times::of(&Basis { m: 0, ..b }).hold, Some(100 * US));
        let off = Basis {
            hold: Hold::Off,
            ..b
        };
        assert_eq!(Times::of(&off).hold, None);
    }

    #[test]
    fn passage_tells_how_long_ago() {
        let mut p = Passage::<32>::default();
        // Times whose forty bits come round on the way.
        let start = (1 << 48) - 50 * 1024;
        let (step, psn) = (Duration::from_nanos(1024), |n| Psn::new(0xff_fff0 + n));
        let at = |n: u64| Instant(start + n * 1024);
        for n in 0..100 {
            p.note(at(n), psn(n as u32), step * 30);
        }
        assert_eq!(p.since(at(200), psn(90)), Some(109 * step));
        assert_eq!(p.since(at(200), psn(99)), None, "not passed");
        assert_eq!(p.since(at(200), psn(5)), None, "forgotten");
        assert_eq!(p.before_newest(9 * step), Some(psn(90)));
        assert_eq!(p.before_newest(90 * step), None);
        assert!(
            p.is_past(at(200), psn(5), 100 * step),
            "at least as long ago as the oldest mark"
        );
        assert!(
            p.is_past(at(200), psn(90), 109 * step) && !p.is_past(at(200), psn(90), 110 * step)
        );
        p.note(Instant(start + 99 * 1024 + 512), psn(120), step * 30);
        assert_eq!(
            p.since(at(200), psn(110)),
            Some(101 * step),
            "merged into the mark before"
        );
        assert!(p.marks.capacity() <= 32);
    }

    #[test]
    fn a_slow_stream_takes_few_marks() {
        let mut p = Passage::<32>::default();
        for n in 0..100u64 {
            p.note(Instant(0) + MS * 20 * n as u32, Psn::new(n as u32), 5 * MS);
        }
        let now = Instant(0) + MS * 20 * 99;
        assert_eq!(
            (p.since(now, Psn::new(98)), p.marks.len()),
            (Some(Duration::ZERO), 2)
        );
        assert_eq!(p.since(now + MS, Psn::new(97)), None);
        assert!(p.is_past(now, Psn::new(97), 20 * MS));
    }

    #[test]
    fn peaks_decay_and_spacing_ignores_pauses() {
        let mut peak = Peak::default();
        peak.note(Instant(0), MS);
        peak.note(Instant(1), 10 * US);
        assert_eq!(peak.get(Instant(2)), MS);
        assert_eq!(peak.get(Instant(0) + HALF_LIFE * 2), MS / 4);
        assert_eq!(peak.get(Instant(0) + HALF_LIFE * 500), Duration::ZERO);

        let mut spacing = Spacing::default();
        let mut now = Instant(0);
        for _ in 0..40 {
            spacing.note(now, 4);
            now = now + 40 * US;
        }
        assert_eq!(spacing.mean(), Some(10 * US));
        spacing.note(now + Duration::from_secs(1), 4);
        assert_eq!(spacing.mean(), Some(10 * US));
        let mut slow = Spacing::default();
        slow.note(Instant(0), 31);
        assert_eq!(slow.mean(), None);
    }
}
