//! Hosts that send again before the repair of a loss can have arrived: their adapter's retransmission
//! timeout is shorter than a round trip with a hold and a coded round, so every repair comes too late and
//! every packet that waits for one is sent twice. What is counted here becomes advice to the operator;
//! no decision hangs on it.
//!
//! A packet that comes again sooner than the round trip was sent again by a timer: no NAK can have come
//! back by then. One that comes later, but sooner than a repaired packet can be acknowledged, counts if
//! the reports around it say that nothing was lost. Cost: a comparison per packet at or behind the highest
//! PSN; the block of a run's first packet is looked up by binary search.

use core::num::NonZeroU32;
use crem_wire::Psn;

use super::flow::{Flow, Io, Shared};
use crate::events::Event;
use crate::packet::Desc;
use crate::time::{Duration, Instant};

/// What comes again this soon was duplicated on the way here, not sent again.
const DUPLICATE: Duration = Duration::from_micros(100);
/// Between two pieces of advice for one flow.
const ADVICE_EVERY: Duration = Duration::from_secs(60);
/// The unit of RNIC timeouts: they are this times a power of two.
const TIMEOUT_UNIT_NANOS: u64 = 4_096;

/// What is known of a flow's early retransmissions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Early {
    /// The PSN that continues the run of repeated packets under way.
    next: Option<Psn>,
    last: Instant,
    /// When a run began that the next reports have to judge,
    began: Instant,
    /// and its age at most, as long as there is one.
    suspect: Option<Micros>,
    /// The last report of a loss; the beginning of time before one.
    lossy: Instant,
    /// Runs that began too early.
    pub(super) runs: u32,
    /// The shortest time after which one began.
    shortest: Option<Micros>,
    /// The last advice; the beginning of time before any.
    advised: Instant,
}

/// A time in whole microseconds, at least one: four octets where a [`Duration`] takes sixteen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Micros(NonZeroU32);

impl Micros {
    fn of(time: Duration) -> Self {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        Self(NonZeroU32::new(micros).unwrap_or(NonZeroU32::MIN))
    }

    fn duration(self) -> Duration {
        Duration::from_micros(self.0.get().into())
    }
}

/// The smallest RNIC timeout that is not shorter than `needed`.
pub(super) fn timeout_for(needed: Duration) -> Duration {
    let needed = u64::try_from(needed.as_nanos()).unwrap_or(u64::MAX);
    let factor = needed.div_ceil(TIMEOUT_UNIT_NANOS).max(1);
    let factor = factor.checked_next_power_of_two().unwrap_or(1 << 31);
    Duration::from_nanos(factor.saturating_mul(TIMEOUT_UNIT_NANOS))
}

impl Early {
    /// A repeated packet; whether a run of them begins with it.
    fn begins(&mut self, psn: Psn, now: Instant, pause: Duration) -> bool {
        let continues = self.next == Some(psn) && now.since(self.last) < pause;
        self.next = Some(psn.add(1));
        self.last = now;
        !continues
    }

    /// The shortest time after which a run began too early, in whole microseconds.
    pub(super) fn shortest(&self) -> Option<Duration> {
        self.shortest.map(Micros::duration)
    }

    /// A report came that says so much of losses; the age of a suspect that it clears as early.
    fn judge(&mut self, lost: bool, span: Duration, now: Instant) -> Option<Duration> {
        if lost {
            self.lossy = now;
        }
        let began = self.began;
        if now.since(began) < span {
            return None;
        }
        let age = self.suspect.take()?;
        let at = self.lossy;
        let clean = at == Instant(0) || began.since(at) > span && at < began;
        clean.then(|| age.duration())
    }
}

impl<B: Clone> Flow<B> {
    /// A packet at or behind the highest PSN came from the LAN.
    pub(super) fn note_repeated(&mut self, packet: &Desc<B>, io: &mut Io<'_, B>) {
        let (srtt, min_rtt) = self.rtt(io.sh);
        let (Some(srtt), Some(min_rtt), now) = (srtt, min_rtt, io.now) else {
            return;
        };
        if !self.early.begins(packet.psn, now, srtt) {
            return;
        }
        let Some((least, most)) = self.age_of(packet.psn, io.sh, now) else {
            return;
        };
        if most < DUPLICATE {
            return;
        }
        if most < min_rtt {
            self.came_early(most, io.sh, now);
        } else if least < self.time_to_repair(io.sh) && self.early.suspect.is_none() {
            self.early.suspect = Some(Micros::of(most));
            self.early.began = now;
        }
    }

    /// How long ago a PSN was sent, at least and at most, if its block is still kept.
    fn age_of(&self, psn: Psn, sh: &Shared<B>, now: Instant) -> Option<(Duration, Duration)> {
        let binding = self.binding.as_ref()?;
        if let Some(open) = &binding.open
            && open.position(psn).is_some()
        {
            return Some((now.since(binding.last_source), now.since(open.opened)));
        }
        let closed = binding.closed.get(binding.closed_at(psn)?)?;
        let block = sh.retained.get(closed.id)?;
        Some((now.since(block.closed_at), now.since(block.opened)))
    }

    /// What an RNIC has to wait for at least: an acknowledgment takes a round trip; if its packet is
    /// repaired in a coded round, another one; and the receiver's gateway may hold it for a quarter.
    pub(super) fn time_to_repair(&self, sh: &Shared<B>) -> Duration {
        let (srtt, min_rtt) = self.rtt(sh);
        let srtt = srtt.unwrap_or_default();
        srtt * 2 + min_rtt.unwrap_or(srtt) / 4
    }

    /// A report came for this flow.
    pub(super) fn judge_repeated(&mut self, lost: u32, sh: &mut Shared<B>, now: Instant) {
        let span = self.time_to_repair(sh);
        if let Some(age) = self.early.judge(lost > 0, span, now) {
            self.came_early(age, sh, now);
        }
    }

    fn came_early(&mut self, after: Duration, sh: &mut Shared<B>, now: Instant) {
        sh.counters.early_retransmissions += 1;
        let early = &mut self.early;
        early.runs = early.runs.saturating_add(1);
        let micros = Micros::of(after);
        early.shortest = Some(early.shortest.map_or(micros, |least| least.min(micros)));
        if early.advised == Instant(0) || now.since(early.advised) >= ADVICE_EVERY {
            early.advised = now;
            let raise_to = timeout_for(self.time_to_repair(sh));
            sh.events.push(Event::RetransmittedEarly {
                stream: self.key,
                after,
                raise_to,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    #[test]
    fn advice_is_a_timeout_that_adapters_have() {
        assert_eq!(timeout_for(Duration::ZERO), Duration::from_nanos(4_096));
        assert_eq!(
            timeout_for(Duration::from_nanos(4_097)),
            Duration::from_nanos(8_192)
        );
        // 4.096 us x 2^14 = 67.1 ms: what is set where nobody thought about it.
        assert_eq!(timeout_for(45 * MS), Duration::from_nanos(4_096 << 14));
    }

    #[test]
    fn a_run_begins_once() {
        let mut early = Early::default();
        assert!(early.begins(Psn::new(0xff_fffe), at(0), MS));
        assert!(!early.begins(Psn::new(0xff_ffff), at(0), MS));
        assert!(!early.begins(Psn::new(0), at(0), MS));
        assert!(early.begins(Psn::new(0), at(0), MS));
        assert!(early.begins(Psn::new(1), at(1), MS), "after a pause");
    }

    #[test]
    fn losses_around_a_run_explain_it() {
        let mut early = Early::default();
        let span = 40 * MS;
        (early.began, early.suspect) = (at(100), Some(Micros::of(30 * MS)));
        assert_eq!(early.judge(false, span, at(120)), None, "too soon to say");
        assert_eq!(early.judge(false, span, at(140)), Some(30 * MS));
        assert_eq!(early.judge(false, span, at(160)), None, "judged once");
        for loss_at in [70, 100, 139] {
            let mut early = Early {
                began: at(100),
                suspect: Some(Micros::of(30 * MS)),
                ..Early::default()
            };
            early.lossy = at(loss_at);
            assert_eq!(early.judge(false, span, at(140)), None, "loss at {loss_at}");
        }
        (early.began, early.suspect) = (at(300), Some(Micros::of(30 * MS)));
        early.lossy = at(200);
        assert_eq!(
            early.judge(false, span, at(340)),
            Some(30 * MS),
            "a loss long before"
        );
    }
}
