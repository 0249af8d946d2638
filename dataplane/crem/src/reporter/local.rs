//! What a node saw of a flow itself since the last report (method 3): its drops by cause, and how long the
//! flow's packets wait.

use alloc::vec::Vec;
use crem_wire::Psn;
use crem_wire::crem::HopEntry;
use crem_wire::crem::registry::LossCause;

use crate::time::Duration;

/// PSNs kept for one cause: what one Hop Entry can list.
const PSNS: usize = 255;

/// Drops of one cause.
#[derive(Debug, Default)]
struct Drops {
    lost: u32,
    psns: Vec<Psn>,
}

/// What is still to be told of one flow.
#[derive(Debug, Default)]
pub(super) struct Local {
    overflow: Drops,
    transmission: Drops,
    unknown: Drops,
    /// Waiting time of a packet in the queue, microseconds: as told last and as it is.
    delay_told: Option<u32>,
    delay_now: u32,
}

impl Local {
    /// Notes a drop; `false` if its PSN has no room in the list.
    pub(super) fn drop(&mut self, psn: Psn, cause: LossCause) -> bool {
        let drops = match cause {
            LossCause::QueueOverflow => &mut self.overflow,
            LossCause::TransmissionError => &mut self.transmission,
            LossCause::Unknown => &mut self.unknown,
        };
        drops.lost = drops.lost.saturating_add(1);
        let room = drops.psns.len() < PSNS;
        if room {
            drops.psns.push(psn);
        }
        room
    }

    /// Notes how long a packet waits in the queue; whether that differs from what was told by at least
    /// `step`. The first packet only sets what later ones are compared with.
    pub(super) fn delay(&mut self, delay: Duration, step: Duration) -> bool {
        self.delay_now = u32::try_from(delay.as_micros()).unwrap_or(u32::MAX);
        let told = *self.delay_told.get_or_insert(self.delay_now);
        let change = Duration::from_micros(self.delay_now.abs_diff(told).into());
        !change.is_zero() && change >= step
    }

    /// Losses that are still to be told.
    pub(super) fn lost(&self) -> u64 {
        let all = [&self.overflow, &self.transmission, &self.unknown];
        all.iter().map(|drops| u64::from(drops.lost)).sum()
    }

    /// Takes out up to `room` Hop Entries, numbered from `period` on. One for each cause: an entry has but
    /// one, and two entries of one number would count as one (AMB-PRDUP). The change of the delay is told
    /// in the first.
    pub(super) fn take(&mut self, room: usize, node: u32, period: &mut u32) -> Vec<HopEntry> {
        let mut change = self.delay_change();
        let causes = [
            (LossCause::QueueOverflow, &mut self.overflow),
            (LossCause::TransmissionError, &mut self.transmission),
            (LossCause::Unknown, &mut self.unknown),
        ];
        let mut entries = Vec::new();
        for (cause, drops) in causes {
            let only_delay = cause == LossCause::Unknown && change != 0;
            if entries.len() < room && (drops.lost > 0 || only_delay) {
                let drops = core::mem::take(drops);
                entries.push(HopEntry {
                    node,
                    period: *period,
                    lost: drops.lost,
                    queue_delay_change_us: core::mem::take(&mut change),
                    cause: cause.code(),
                    dropped: drops.psns,
                });
                *period = period.wrapping_add(1);
            }
        }
        if !entries.is_empty() {
            self.delay_told = self.delay_told.map(|_| self.delay_now);
        }
        entries
    }

    fn delay_change(&self) -> i32 {
        let told = self.delay_told.unwrap_or(self.delay_now);
        let change = i64::from(self.delay_now) - i64::from(told);
        i32::try_from(change).unwrap_or(if change < 0 { i32::MIN } else { i32::MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn causes_are_told_apart_and_counted_in_full() {
        let mut local = Local::default();
        for n in 0..300 {
            assert_eq!(local.drop(Psn::new(n), LossCause::QueueOverflow), n < 255);
        }
        local.drop(Psn::new(7), LossCause::TransmissionError);
        assert_eq!(local.lost(), 301);
        let mut period = u32::MAX;
        let entries = local.take(16, 5, &mut period);
        let told: Vec<_> = entries
            .iter()
            .map(|e| (e.node, e.period, e.lost, e.cause, e.dropped.len()))
            .collect();
        assert_eq!(told, [(5, u32::MAX, 300, 1, 255), (5, 0, 1, 2, 1)]);
        assert_eq!(period, 1);
        assert_eq!(local.take(16, 5, &mut period), []);
        assert_eq!((local.lost(), period), (0, 1), "told is told");
    }

    #[test]
    fn what_has_no_room_stays() {
        let mut local = Local::default();
        local.drop(Psn::new(1), LossCause::Unknown);
        local.drop(Psn::new(2), LossCause::TransmissionError);
        let mut period = 0;
        let causes = |entries: Vec<HopEntry>| entries.iter().map(|e| e.cause).collect::<Vec<_>>();
        assert_eq!(causes(local.take(1, 1, &mut period)), [2]);
        assert_eq!(local.lost(), 1);
        assert_eq!(causes(local.take(1, 1, &mut period)), [0]);
        assert_eq!((local.lost(), period), (0, 2));
    }

    #[test]
    fn changes_of_the_delay_add_up_to_the_delay() {
        let mut local = Local::default();
        let step = US * 100;
        assert!(!local.delay(US * 500, step), "nothing to compare with");
        assert!(!local.delay(US * 599, step));
        assert!(local.delay(US * 600, step));
        assert!(local.delay(US * 640, step));
        let change = |local: &mut Local| {
            let entries = local.take(16, 1, &mut 0);
            entries.iter().map(|e| e.queue_delay_change_us).sum::<i32>()
        };
        assert_eq!(change(&mut local), 140);
        assert_eq!(local.take(16, 1, &mut 0), [], "no change since");
        assert!(!local.delay(US * 600, step));
        assert!(local.delay(US * 10, step));
        local.drop(Psn::new(1), LossCause::TransmissionError);
        local.drop(Psn::new(2), LossCause::QueueOverflow);
        assert_eq!(change(&mut local), -630, "told once, however many entries");
        assert!(
            !local.delay(US * 10, Duration::ZERO),
            "no change is no news"
        );
    }
}
