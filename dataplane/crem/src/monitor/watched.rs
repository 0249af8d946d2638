//! One flow in monitor mode: its gaps while they may still be filled, and what became of them.

use alloc::collections::VecDeque;

use crem_wire::Psn;

use super::Seen;
use super::recent::{RECENT, Recent};
use crate::csf::track::{Seen as Place, Track};
use crate::memory::of_queue;
use crate::packet::Desc;
use crate::policy::{BurstEstimate, PathEstimate};
use crate::time::{Duration, Instant};

/// Gaps that may still be filled; beyond it the oldest counts as lost at once.
const MAX_GAPS: usize = 64;
/// A jump over more PSNs is none on the path.
const MAX_JUMP: u32 = 4_096;

/// Missing PSNs in a row.
#[derive(Clone, Copy, Debug)]
struct Gap {
    start: Psn,
    /// PSNs of it that are still missing are these many from `start` on.
    count: u32,
    seen: Instant,
}

impl Gap {
    fn contains(&self, psn: Psn) -> bool {
        u32::try_from(psn.distance_from(self.start)).is_ok_and(|at| at < self.count)
    }
}

/// What is known of a flow.
#[derive(Debug)]
pub(super) struct Watched {
    track: Track,
    recent: Recent,
    /// In the order in which they were seen.
    gaps: VecDeque<Gap>,
    pub(super) seen: Seen,
    pub(super) loss: PathEstimate,
    pub(super) burst: BurstEstimate,
    last: Instant,
}

impl Default for Watched {
    fn default() -> Self {
        Self {
            track: Track::default(),
            recent: Recent::default(),
            gaps: VecDeque::new(),
            seen: Seen::default(),
            loss: PathEstimate::new(0),
            burst: BurstEstimate::default(),
            last: Instant(0),
        }
    }
}

impl Watched {
    /// Takes a packet in. `mtu` is the RDMA MTU to reckon READ spans with until the flow shows it.
    pub(super) fn on_packet<B>(
        &mut self,
        packet: &Desc<B>,
        mtu: u16,
        allowance: Duration,
        now: Instant,
    ) {
        self.last = now;
        self.settle(allowance, now);
        self.seen.packets += 1;
        self.seen.ce += u64::from(packet.ce);
        match self.track.observe(packet, mtu, allowance, now) {
            Place::New { jump, absent } => {
                let missing = jump.saturating_sub(1);
                let start = packet.psn.add(-(missing as i32));
                self.advance(start, missing, packet.psn, absent);
                if missing > MAX_JUMP {
                    self.seen.jumps += 1;
                } else if missing > 0 {
                    self.gap(start, missing, now);
                }
                self.final_positions(1, 1, now);
            }
            Place::Behind => self.behind(packet.psn, now),
            Place::Reused { absent } => {
                self.gaps.clear();
                self.recent = Recent::default();
                self.advance(packet.psn, 0, packet.psn, absent);
            }
        }
    }

    /// `missing` PSNs, the packet's own, and those that its READ leaves out.
    fn advance(&mut self, from: Psn, missing: u32, psn: Psn, absent: u32) {
        self.recent.advance(from, missing + 1 + absent);
        self.recent.arrived(psn);
    }

    fn gap(&mut self, start: Psn, count: u32, now: Instant) {
        if self.gaps.len() >= MAX_GAPS
            && let Some(oldest) = self.gaps.pop_front()
        {
            self.lose(oldest.count, now);
        }
        self.gaps.push_back(Gap {
            start,
            count,
            seen: now,
        });
    }

    fn behind(&mut self, psn: Psn, now: Instant) {
        if let Some(index) = self.gaps.iter().position(|gap| gap.contains(psn)) {
            self.seen.reordered += 1;
            self.recent.arrived(psn);
            self.fill(index, psn);
            self.final_positions(1, 1, now);
            return;
        }
        let back = self.track.next().distance_from(psn);
        if u32::try_from(back).is_ok_and(|back| back > RECENT) {
            self.seen.behind += 1;
        } else if self.recent.arrived(psn) {
            self.seen.resent += 1;
        } else {
            self.seen.duplicates += 1;
        }
    }

    /// A packet in the middle of a gap leaves two, the second right behind the first.
    fn fill(&mut self, index: usize, psn: Psn) {
        let Some(gap) = self.gaps.remove(index) else {
            return;
        };
        let before = psn.distance_from(gap.start).max(0) as u32;
        let parts = [
            (gap.start, before),
            (psn.add(1), gap.count.saturating_sub(before + 1)),
        ];
        for (start, count) in parts.into_iter().rev() {
            if count > 0 {
                let part = Gap {
                    start,
                    count,
                    ..gap
                };
                self.gaps.insert(index, part);
            }
        }
    }

    /// Gaps whose time is over are losses.
    pub(super) fn settle(&mut self, allowance: Duration, now: Instant) {
        while let Some(gap) = self.gaps.front().filter(|gap| gap.seen + allowance <= now) {
            let count = gap.count;
            self.gaps.pop_front();
            self.lose(count, now);
        }
    }

    fn lose(&mut self, count: u32, now: Instant) {
        self.seen.lost += u64::from(count);
        self.seen.gaps += 1;
        self.seen.longest = self.seen.longest.max(count);
        self.burst.bare_block(count, 1);
        self.burst.age(count);
        self.final_positions(count, 0, now);
    }

    fn final_positions(&mut self, expected: u32, received: u32, now: Instant) {
        let burst = self.burst.mean();
        self.loss
            .report(now, Duration::ZERO, (expected, received), burst);
    }

    /// When something is to be done for the flow.
    pub(super) fn due(&self, allowance: Duration, idle: Duration) -> Instant {
        let rest = self.last + idle;
        self.gaps
            .front()
            .map_or(rest, |gap| rest.min(gap.seen + allowance))
    }

    pub(super) fn is_idle(&self, idle: Duration, now: Instant) -> bool {
        self.last + idle <= now
    }

    /// Mean time between new packets.
    pub(super) fn spacing(&self) -> Duration {
        self.track.spacing(self.last)
    }

    pub(super) fn octets(&self) -> usize {
        size_of::<Self>() + of_queue(&self.gaps)
    }
}
