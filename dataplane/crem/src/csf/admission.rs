//! Which flows may be protected while not all can be, and whose HELLO goes first (AMB-SCALE). Every
//! admitted flow costs one LOSS_REPORT per round trip; all together stay within the report budget, the
//! busiest flows first. Here are the accounts and the ranking; the walk over the flows is at the end.
//!
//! Flows are ranked by classes of packet rate, two to a doubling, so that one pass over the table finds
//! the rate below which the budget ends: O(1) per flow and second, in slices of [`SLICE`] flows. A flow
//! that has its place counts one class higher than it is, so that two flows of like rate do not push each
//! other out in turn. First HELLOs are ranked the same way among the flows that asked for one within the
//! last few milliseconds.

use super::Csf;
use super::flow::{Flow, Shared};
use super::negotiate::Cause;
use super::states::{Input, State};
use crate::events::Unprotected;
use crate::packet::PktBuf;
use crate::time::{Duration, Instant};

/// Classes of packet rate: two to a doubling, up to 2^31 packets a second.
const CLASSES: usize = 64;
/// Length of a ranking.
const ROUND: Duration = Duration::from_secs(1);
/// Flows looked at in one step of a ranking.
const SLICE: u32 = 256;
/// Smallest time between two steps: tables of more flows are ranked less often than once a second.
const STEP_MIN: Duration = Duration::from_millis(4);
/// Asking for a HELLO counts for this long.
const ASKING: Duration = Duration::from_millis(10);
/// Windows of asking in a second.
const ASKINGS_PER_SECOND: u32 = 100;
/// Round trip taken for what a flow costs while its peer's is unknown: the one of a short WAN path.
const ASSUMED_RTT: Duration = Duration::from_millis(10);
/// Thousandths of a report per second in a report per second.
const MILLI: u64 = 1_000;

/// The accounts of admission.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    /// What the admitted flows cost, thousandths of a report per second.
    committed: u64,
    /// The class that the budget ends in: flows below it wait. 0 while there is room for all.
    cut: u8,
    /// Cost of flows of the cut class that has to give way to busier ones.
    excess: u64,
    /// What the busier ones leave to those of the cut class that wait.
    cut_room: u64,
    /// Next slot of the table to be looked at.
    next_slot: u32,
    /// When the next step of the ranking is due; `None` while there are no flows.
    next_at: Option<Instant>,
    /// When the running ranking and the one before began.
    round: Instant,
    round_before: Instant,
    /// Cost of the flows seen by the running ranking: of those with a place, and of those that wait.
    placed: [u64; CLASSES],
    waiting: [u64; CLASSES],
    hello: HelloRank,
}

/// Flows that asked for a HELLO lately, by class.
#[derive(Clone, Debug)]
struct HelloRank {
    window: u32,
    began: Instant,
    asked: [u16; CLASSES],
    /// Flows below this class leave the tokens of this window to others.
    cut: u8,
}

/// What a flow knows of its own rank.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rank {
    /// What it is charged, thousandths of a report per second; 0 without a place.
    charge: u32,
    /// Class of its rate in the last ranking that it took part in; `None` before one.
    class: Option<u8>,
    /// New packets at that time.
    packets: u32,
    /// The window in which it asked for a HELLO last.
    asked: u32,
}

/// The class of a rate in packets per second.
pub(super) fn class_of(rate: u64) -> u8 {
    let Some(octave) = rate.checked_ilog2() else {
        return 0;
    };
    let half = if octave == 0 {
        0
    } else {
        rate >> (octave - 1) & 1
    };
    let class = 2 * u64::from(octave) + half + 1;
    class.min(CLASSES as u64 - 1) as u8
}

/// Thousandths of a report per second that a flow with this round trip costs.
fn cost_of(rtt: Duration) -> u32 {
    let nanos = rtt.as_nanos().max(1);
    u32::try_from(1_000_000_000_000 / nanos).unwrap_or(u32::MAX)
}

impl Admission {
    pub(super) const fn new() -> Self {
        Self {
            committed: 0,
            cut: 0,
            excess: 0,
            cut_room: u64::MAX,
            next_slot: 0,
            next_at: None,
            round: Instant(0),
            round_before: Instant(0),
            placed: [0; CLASSES],
            waiting: [0; CLASSES],
            hello: HelloRank {
                window: 1,
                began: Instant(0),
                asked: [0; CLASSES],
                cut: 0,
            },
        }
    }

    /// When the next step of the ranking is due.
    pub(super) const fn next_at(&self) -> Option<Instant> {
        self.next_at
    }

    /// There is a flow: rankings go on.
    pub(super) fn wake(&mut self, now: Instant) {
        if self.next_at.is_none() {
            (self.round, self.round_before) = (now, now);
            self.next_slot = 0;
            self.next_at = Some(now + ROUND);
        }
    }

    /// Time between two looks at a flow: each is looked at once a round.
    fn round_length(&self) -> Duration {
        let length = self.round.since(self.round_before);
        if length.is_zero() { ROUND } else { length }
    }

    /// Whether a flow of this class and cost gets a place now.
    fn has_place(&self, class: u8, cost: u32, budget: u32) -> bool {
        let cost = u64::from(cost);
        let in_turn = class > self.cut || class == self.cut && cost <= self.cut_room;
        in_turn && self.committed + cost <= u64::from(budget) * MILLI
    }

    /// A ranking is complete: finds the class that the budget ends in, and what of it is too much.
    fn conclude(&mut self, budget: u32) {
        let budget = u64::from(budget) * MILLI;
        let mut total = 0u64;
        (self.cut, self.excess, self.cut_room) = (0, 0, u64::MAX);
        let classes = self.placed.iter().zip(&self.waiting).enumerate();
        for (class, (placed, waiting)) in classes.rev() {
            if total + placed + waiting > budget {
                self.cut = class as u8;
                // Those who wait in the class itself push nobody out.
                self.excess = (total + placed).saturating_sub(budget);
                self.cut_room = budget.saturating_sub(total + placed);
                break;
            }
            total += placed + waiting;
        }
        (self.placed, self.waiting) = ([0; CLASSES], [0; CLASSES]);
    }

    /// Notes that a flow of this class wants to send its first HELLO; whether it is among those whose
    /// turn it is.
    fn asks(&mut self, rank: &mut Rank, class: u8, hello_rate: u32, now: Instant) -> bool {
        let hello = &mut self.hello;
        if now.since(hello.began) >= ASKING {
            hello.turn_over(hello_rate, now);
        }
        if rank.asked != hello.window {
            rank.asked = hello.window;
            if let Some(asked) = hello.asked.get_mut(usize::from(class)) {
                *asked = asked.saturating_add(1);
            }
        }
        class >= hello.cut
    }
}

impl HelloRank {
    /// Another window begins; those who asked in the last one say who may have its tokens.
    fn turn_over(&mut self, hello_rate: u32, now: Instant) {
        let tokens = (hello_rate / ASKINGS_PER_SECOND).max(1);
        let recent = now.since(self.began) < ASKING * 2;
        let mut flows = 0u32;
        let enough = self.asked.iter().enumerate().rev().find(|(_, asked)| {
            flows += u32::from(**asked);
            flows >= tokens
        });
        self.cut = enough
            .filter(|_| recent)
            .map_or(0, |(class, _)| class as u8);
        self.asked = [0; CLASSES];
        self.window = self.window.wrapping_add(1).max(1);
        self.began = now;
    }
}

impl<B: Clone> Flow<B> {
    /// What a place costs this flow, thousandths of a report per second.
    fn cost(&self, sh: &Shared<B>) -> u32 {
        cost_of(self.rtt(sh).0.unwrap_or(ASSUMED_RTT))
    }

    /// Whether there is a place for this flow; one that has it keeps it.
    pub(super) fn may_be_placed(&self, sh: &Shared<B>, now: Instant) -> bool {
        let class = self.class(now);
        let budget = sh.cfg.csf.report_budget;
        self.rank.charge > 0 || sh.admission.has_place(class, self.cost(sh), budget)
    }

    /// The class of its rate. A burst says little of a second: it counts only before anything else is
    /// known.
    fn class(&self, now: Instant) -> u8 {
        (self.rank.class).unwrap_or_else(|| class_of(self.track.rate(now)))
    }

    /// Whether it is this flow's turn for a first HELLO.
    pub(super) fn has_turn(&mut self, sh: &mut Shared<B>, now: Instant) -> bool {
        let class = class_of(self.track.rate(now));
        let rate = sh.cfg.csf.hello_rate;
        let among_first = sh.admission.asks(&mut self.rank, class, rate, now);
        // Tokens that nobody busier took lately are free for all.
        among_first || sh.hello_bucket.is_half_full(now)
    }

    /// Takes its place in the budget.
    pub(super) fn take_place(&mut self, sh: &mut Shared<B>, now: Instant) {
        if self.rank.charge == 0 {
            self.charge(sh);
            if self.class(now) == sh.admission.cut {
                let room = &mut sh.admission.cut_room;
                *room = room.saturating_sub(u64::from(self.rank.charge));
            }
        }
    }

    fn charge(&mut self, sh: &mut Shared<B>) {
        self.rank.charge = self.cost(sh).max(1);
        sh.admission.committed += u64::from(self.rank.charge);
    }

    /// Gives its place back.
    pub(super) fn discharge(&mut self, sh: &mut Shared<B>) {
        let charge = core::mem::take(&mut self.rank.charge);
        sh.admission.committed -= u64::from(charge);
    }

    /// Takes part in the running ranking; gives its place up if busier flows need it.
    fn take_rank(&mut self, sh: &mut Shared<B>, now: Instant) {
        let packets = self.counts.sources as u32;
        let passed = u64::from(packets.wrapping_sub(self.rank.packets));
        let rate = u128::from(passed) * 1_000_000_000 / sh.admission.round_length().as_nanos();
        let class = class_of(u64::try_from(rate).unwrap_or(u64::MAX));
        self.rank.packets = packets;
        self.rank.class = Some(class);
        if self.rank.charge > 0 {
            self.keep_place(class, sh, now);
            return;
        }
        if self.state == State::Queued && self.peer.is_none() {
            // What a flow lacked may have come meanwhile: a peer, or room in the table of peers.
            self.enqueue(sh);
        }
        self.wait_in_rank(class, sh);
    }

    /// Counts among those who wait for a place, if it is one of them.
    fn wait_in_rank(&self, class: u8, sh: &mut Shared<B>) {
        let waits = self.state == State::Queued
            && matches!(
                self.reason,
                Unprotected::HelloPacing | Unprotected::ReportBudget
            );
        let cost = u64::from(self.cost(sh));
        if waits && let Some(waiting) = sh.admission.waiting.get_mut(usize::from(class)) {
            *waiting += cost;
        }
    }

    fn keep_place(&mut self, class: u8, sh: &mut Shared<B>, now: Instant) {
        // The round-trip time, and with it the cost, may have changed.
        self.discharge(sh);
        self.charge(sh);
        let charge = u64::from(self.rank.charge);
        let higher = usize::from(class).saturating_add(1).min(CLASSES - 1);
        let Admission { cut, excess, .. } = &mut sh.admission;
        let below = higher < usize::from(*cut);
        let too_much = higher == usize::from(*cut) && *excess > 0;
        if below || too_much {
            if too_much {
                *excess = excess.saturating_sub(charge);
            }
            let cause = Cause::Reason(Unprotected::ReportBudget);
            let state = self.state;
            self.step(Input::Displaced, cause, sh, now);
            if self.state != state {
                sh.counters.flows_displaced += 1;
                self.wait_in_rank(class, sh);
                return;
            }
        }
        if let Some(placed) = sh.admission.placed.get_mut(higher) {
            *placed += charge;
        }
    }
}

impl<B: PktBuf> Csf<B> {
    /// One step of the ranking, if it is due.
    pub(super) fn rank_flows(&mut self, now: Instant) {
        if self.sh.admission.next_at.is_none_or(|at| at > now) {
            return;
        }
        let slots = self.flows.slots();
        let first = self.sh.admission.next_slot;
        let last = first.saturating_add(SLICE).min(slots);
        for slot in first..last {
            self.with_flow(slot, |flow, sh| flow.take_rank(sh, now));
        }
        let budget = self.sh.cfg.csf.report_budget;
        let steps = slots.div_ceil(SLICE).max(1);
        let admission = &mut self.sh.admission;
        admission.next_slot = last;
        if last >= slots {
            admission.conclude(budget);
            admission.next_slot = 0;
            admission.round_before = admission.round;
            admission.round = now;
        }
        let step = (ROUND / steps).max(STEP_MIN);
        admission.next_at = (!self.flows.is_empty()).then_some(now + step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_two_to_a_doubling() {
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 6, 7, 8].map(class_of),
            [0, 1, 3, 4, 5, 5, 6, 6, 7]
        );
        assert_eq!(class_of(u64::MAX), CLASSES as u8 - 1);
        assert!((1..1 << 20).all(|rate| class_of(rate) <= class_of(rate + 1)));
    }

    #[test]
    fn a_flow_costs_a_report_per_round_trip() {
        assert_eq!(cost_of(Duration::from_millis(20)), 50_000);
        assert_eq!(cost_of(Duration::from_millis(300)), 3_333);
        assert_eq!(cost_of(Duration::ZERO), u32::MAX);
    }

    // shows: AMB-SCALE
    #[test]
    fn the_budget_ends_in_a_class_and_busier_ones_push_out() {
        let mut admission = Admission::new();
        admission.placed[10] = 60_000;
        admission.placed[20] = 30_000;
        admission.waiting[30] = 20_000;
        admission.conclude(100);
        assert_eq!((admission.cut, admission.excess), (10, 10_000));
        admission.placed[10] = 60_000;
        admission.waiting[10] = 60_000;
        admission.conclude(100);
        assert_eq!(
            (admission.cut, admission.excess),
            (10, 0),
            "equals push nobody out"
        );
        admission.placed[10] = 100_000;
        admission.conclude(100);
        assert_eq!(admission.cut, 0, "there is room for all");
    }
}
