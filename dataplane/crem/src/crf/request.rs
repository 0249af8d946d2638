//! Which requests of a flow are out, when the next may leave, and what their answers say about the RTT
//! (AMB-RANGEWAIT, AMB-REQRETRY, AMB-REQBACKOFF, AMB-CRFRTT). What to ask for is decided elsewhere.

use alloc::collections::VecDeque;
use crem_wire::{Psn, RequestId};

use super::estimate::Times;
use crate::memory::of_queue;
use crate::time::{Duration, Instant};

/// Requests remembered at most; beyond this no further one leaves.
const MAX_RECENT: usize = 256;
/// Requests that a resting flow has memory for.
const REST_REQUESTS: usize = 8;
/// Unanswered requests in a row after which the spacing doubles with each.
const PATIENCE: u32 = 3;
/// Largest spacing of requests.
const MAX_SPACING: Duration = Duration::from_secs(1);

/// PSNs that a request named, for the spacing.
#[derive(Clone, Copy, Debug)]
struct Touched {
    start: Psn,
    end: Psn,
    at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    id: RequestId,
    at: Instant,
    until: Instant,
    answered: bool,
    /// Its answer may wait for the end of a block, and says nothing of the RTT.
    waits: bool,
    /// Counts as an incomplete block if no answer reveals one (AMB-LRINC).
    counts: bool,
}

/// What an answer was found to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    /// Time since the request, for its first answer only, and only if the peer answers at once.
    pub(crate) rtt: Option<Duration>,
}

/// What became of requests whose time is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Expired {
    /// Requests without any answer.
    pub(crate) unanswered: u32,
    /// Of those, requests that stand for an incomplete block.
    pub(crate) blocks: u32,
}

/// The requests of a flow.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    next: RequestId,
    last: Option<Instant>,
    touched: VecDeque<Touched>,
    outstanding: VecDeque<Outstanding>,
    silent: u32,
}

impl Requests {
    /// No request yet; IDs start at `first`.
    pub(crate) const fn new(first: RequestId) -> Self {
        Self {
            next: first,
            last: None,
            touched: VecDeque::new(),
            outstanding: VecDeque::new(),
            silent: 0,
        }
    }

    /// Octets of memory.
    pub(crate) fn octets(&self) -> usize {
        of_queue(&self.touched) + of_queue(&self.outstanding)
    }

    /// Lets go of memory that a time of many requests has left behind.
    pub(crate) fn rest(&mut self) {
        if self.touched.is_empty() && self.outstanding.is_empty() {
            self.touched.shrink_to(REST_REQUESTS);
            self.outstanding.shrink_to(REST_REQUESTS);
        }
    }

    /// Whether the peer has left so many requests unanswered that nothing should wait for it.
    pub(crate) const fn is_backing_off(&self) -> bool {
        self.silent >= PATIENCE
    }

    /// Until when a silent peer is left alone; the beginning of time if it is not silent.
    pub(crate) fn silent_until(&self, times: &Times) -> Instant {
        match self.last {
            Some(last) if self.is_backing_off() => last + self.spacing(times),
            _ => Instant(0),
        }
    }

    /// Distance of requests now.
    fn spacing(&self, times: &Times) -> Duration {
        let doublings = (self.silent + 1).saturating_sub(PATIENCE).min(16);
        let spacing = times.spacing();
        if self.is_backing_off() {
            spacing
                .saturating_mul(1 << doublings)
                .min(MAX_SPACING.max(spacing))
        } else {
            spacing
        }
    }

    /// When a request that names PSNs within `reach` of [start, end) may leave. What a request that
    /// leaves at this very moment named does not count: all of one moment is one request.
    pub(crate) fn allowed_at(
        &mut self,
        now: Instant,
        times: &Times,
        (start, end): (Psn, Psn),
        reach: u8,
    ) -> Instant {
        while self
            .touched
            .pop_front_if(|t| t.at + times.spacing() <= now)
            .is_some()
        {}
        if self.is_backing_off()
            && let Some(last) = self.last.filter(|last| *last < now)
        {
            let next = last + self.spacing(times);
            if next > now {
                return next;
            }
        }
        if self.touched.len() >= MAX_RECENT {
            let first = self.touched.front().map_or(now, |t| t.at);
            return (first + times.spacing()).max(now);
        }
        let (low, high) = (start.add(-i32::from(reach)), end.add(i32::from(reach)));
        self.touched
            .iter()
            .rev()
            .find(|t| t.at < now && high.is_after(t.start) && t.end.is_after(low))
            .map_or(now, |t| t.at + times.spacing())
    }

    /// Takes the ID for a request that leaves now; `counts` as in AMB-LRINC.
    pub(crate) fn open(&mut self, now: Instant, wait: Duration, counts: bool) -> RequestId {
        let id = self.next;
        self.next = id.next();
        self.last = Some(now);
        if self.outstanding.len() >= MAX_RECENT {
            self.outstanding.pop_front();
        }
        self.outstanding.push_back(Outstanding {
            id,
            at: now,
            until: now + wait,
            answered: false,
            waits: false,
            counts,
        });
        id
    }

    /// What this request names may be of a block that the peer has not closed yet: it answers when it does
    /// (AMB-OPENREQ), so the time until then is no sample.
    pub(crate) fn waits_for_block(&mut self, id: RequestId) {
        if let Some(request) = self.outstanding.iter_mut().rev().find(|o| o.id == id) {
            request.waits = true;
        }
    }

    /// A request that left now named [start, end).
    pub(crate) fn touch(&mut self, now: Instant, start: Psn, end: Psn) {
        self.touched.push_back(Touched {
            start,
            end,
            at: now,
        });
    }

    /// A REPAIR came, whichever.
    pub(crate) fn heard(&mut self) {
        self.silent = 0;
    }

    /// A REPAIR with this session came; `None` if no such request is out. `reveals` says that it names
    /// a block.
    pub(crate) fn answer(&mut self, now: Instant, id: RequestId, reveals: bool) -> Option<Answer> {
        let request = self.outstanding.iter_mut().rev().find(|o| o.id == id)?;
        let first = !core::mem::replace(&mut request.answered, true);
        request.counts &= !reveals;
        Some(Answer {
            rtt: (first && !request.waits).then(|| now.since(request.at)),
        })
    }

    /// Forgets the requests whose time is over.
    pub(crate) fn expire(&mut self, now: Instant) -> Expired {
        let mut expired = Expired::default();
        while let Some(request) = self.outstanding.pop_front_if(|o| o.until <= now) {
            if !request.answered {
                expired.unanswered += 1;
                self.silent = self.silent.saturating_add(1);
            }
            expired.blocks += u32::from(request.counts && !request.answered);
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::estimate::Basis;
    use super::*;
    use crate::config::Hold;
    use crate::rtt::RttEstimator;
    const MS: Duration = Duration::from_millis(1);
    const TICK: Duration = Duration::from_nanos(1);

    fn times() -> Times {
        let mut rtt = RttEstimator::new();
        rtt.sample(Instant(0), 20 * MS);
        Times::of(&Basis {
            rtt: &rtt,
            domain_rtt: None,
            spacing: None,
            displacement: Duration::ZERO,
            lag: Duration::ZERO,
            k: Some(32),
            m: 1,
            hold: Hold::Auto,
        })
    }

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn requests() -> Requests {
        Requests::new(RequestId::new(0xffff).unwrap())
    }

    fn psns(start: u32, end: u32) -> (Psn, Psn) {
        (Psn::new(start), Psn::new(end))
    }

    // shows: AMB-RANGEWAIT
    #[test]
    fn requests_for_one_block_keep_their_distance() {
        let (mut r, t) = (requests(), times());
        let id = r.open(at(0), t.answer(), false);
        r.touch(at(0), Psn::new(100), Psn::new(110));
        assert_eq!(
            (id.get(), r.open(at(0), t.answer(), false).get()),
            (0xffff, 1)
        );
        assert_eq!(r.allowed_at(at(1), &t, psns(130, 131), 32), at(25));
        assert_eq!(r.allowed_at(at(1), &t, psns(142, 143), 32), at(1));
        assert_eq!(r.allowed_at(at(1), &t, psns(60, 68), 32), at(1));
        assert_eq!(r.allowed_at(at(1), &t, psns(60, 69), 32), at(25));
        assert_eq!(r.allowed_at(at(25), &t, psns(100, 101), 32), at(25));
    }

    #[test]
    fn only_the_first_answer_gives_a_sample() {
        let (mut r, t) = (requests(), times());
        let id = r.open(at(0), t.answer(), true);
        assert_eq!(r.answer(at(21), id, true).unwrap().rtt, Some(21 * MS));
        assert_eq!(r.answer(at(22), id, true).unwrap().rtt, None);
        assert_eq!(r.answer(at(22), id.next(), true), None);
        assert_eq!(r.expire(at(100)), Expired::default());
    }

    #[test]
    fn an_answer_that_may_have_waited_for_a_block_is_no_sample() {
        let (mut r, t) = (requests(), times());
        let id = r.open(at(0), t.answer(), true);
        let other = r.open(at(0), t.answer(), true);
        r.waits_for_block(id);
        assert_eq!(r.answer(at(21), id, true), Some(Answer { rtt: None }));
        assert_eq!(r.answer(at(21), other, true).unwrap().rtt, Some(21 * MS));
    }

    // shows: AMB-REQBACKOFF
    #[test]
    fn silence_doubles_the_spacing_up_to_a_second() {
        let (mut r, t) = (requests(), times());
        let mut now = at(0);
        let mut distances = Vec::new();
        for _ in 0..10 {
            let allowed = r.allowed_at(now + TICK, &t, psns(0, 1), 32);
            distances.push((allowed.0 - now.0) / 1_000_000);
            now = allowed;
            r.open(now, MS, true);
            r.touch(now, Psn::new(0), Psn::new(1));
            let expired = r.expire(now + MS);
            assert_eq!((expired.unanswered, expired.blocks), (1, 1));
        }
        assert_eq!(distances, [0, 25, 25, 50, 100, 200, 400, 800, 1000, 1000]);
        assert!(r.is_backing_off());
        r.heard();
        assert!(!r.is_backing_off());
        assert_eq!(r.allowed_at(now + TICK, &t, psns(0, 1), 32), now + 25 * MS);
    }

    #[test]
    fn memory_is_bounded() {
        let (mut r, t) = (requests(), times());
        for n in 0..10_000u32 {
            if r.allowed_at(at(1), &t, psns(n * 100, n * 100 + 1), 32) <= at(1) {
                r.open(at(1), MS, false);
                r.touch(at(1), Psn::new(n * 100), Psn::new(n * 100 + 1));
            }
        }
        assert!(r.touched.len() <= MAX_RECENT && r.outstanding.len() <= MAX_RECENT);
    }
}
