//! Packet selection (RFC 5475, section 4.2 of the BTH draft) and the limit on the export rate. What is
//! selected is one question, what is dropped for overload another: only the first belongs into reports
//! on the Selection Process (AMB-BTH-OVERLOAD).

use core::fmt;

use crate::Utc;
use crate::hash::{Random, bob};

/// How packets are selected.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Selection {
    /// Every packet: no Selection Process applies (AMB-BTH-SELNONE).
    All,
    /// Systematic by count: `interval` packets, then none of `space` packets.
    Count {
        /// samplingPacketInterval, at least 1.
        interval: u32,
        /// samplingPacketSpace.
        space: u32,
    },
    /// Each packet with the same probability.
    Probability(f64),
    /// By the BOB hash of a section of the IP payload: what one point selects, another does as well.
    Hash {
        /// hashIPPayloadOffset, octets behind the IP header.
        offset: u16,
        /// hashIPPayloadSize, octets; a shorter payload is hashed as far as it goes.
        size: u16,
        /// hashInitialiserValue.
        initial: u32,
        /// hashSelectedRangeMin.
        from: u32,
        /// hashSelectedRangeMax, included.
        to: u32,
    },
}

/// A selection that cannot be meant.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SelectionError {
    /// A count interval of 0 selects nothing.
    Interval,
    /// A probability that is not in 0 < p <= 1.
    Probability(f64),
    /// A hash section of no octets, or an empty range.
    Hash,
}

impl fmt::Display for SelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interval => f.write_str("interval of 0 packets: nothing would be selected"),
            Self::Probability(p) => write!(f, "probability {p}: expected more than 0, at most 1"),
            Self::Hash => f.write_str("hash of no octets, or of an empty range"),
        }
    }
}

impl core::error::Error for SelectionError {}

impl Selection {
    /// Whether it can be meant.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), SelectionError> {
        match *self {
            Self::Count { interval: 0, .. } => Err(SelectionError::Interval),
            Self::Probability(p) if !(p > 0.0 && p <= 1.0) => Err(SelectionError::Probability(p)),
            Self::Hash { size, from, to, .. } if size == 0 || from > to => {
                Err(SelectionError::Hash)
            }
            _ => Ok(()),
        }
    }

    /// Whether a Selection Process applies.
    pub const fn is_active(&self) -> bool {
        !matches!(self, Self::All)
    }
}

/// How many packets a Selection Sequence has seen, at one point in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SelectionStats {
    /// selectorIdTotalPktsObserved.
    pub observed: u64,
    /// selectorIdTotalPktsSelected.
    pub selected: u64,
}

/// A Selection Process at work.
#[derive(Clone, Debug)]
pub(crate) struct Selector {
    selection: Selection,
    /// Packets of the current period of a count selection.
    phase: u64,
    random: Random,
    stats: SelectionStats,
}

impl Selector {
    pub(crate) fn new(selection: Selection, seed: u64) -> Self {
        Self {
            selection,
            phase: 0,
            random: Random::new(seed),
            stats: SelectionStats::default(),
        }
    }

    /// Whether the packet with this IP payload is selected.
    #[inline]
    pub(crate) fn select(&mut self, ip_payload: &[u8]) -> bool {
        let selected = match self.selection {
            Selection::All => true,
            Selection::Count { interval, space } => {
                let selected = self.phase < u64::from(interval);
                self.phase += 1;
                if self.phase >= u64::from(interval) + u64::from(space) {
                    self.phase = 0;
                }
                selected
            }
            Selection::Probability(p) => {
                // 53 bits, all that a number in 0 ..= 1 can tell apart.
                ((self.random.next() >> 11) as f64) < p * (1u64 << 53) as f64
            }
            Selection::Hash {
                offset,
                size,
                initial,
                from,
                to,
            } => {
                let rest = ip_payload.get(usize::from(offset)..).unwrap_or_default();
                let hash = bob(&rest[..rest.len().min(usize::from(size))], initial);
                (from..=to).contains(&hash)
            }
        };
        self.stats.observed += 1;
        self.stats.selected += u64::from(selected);
        selected
    }

    pub(crate) const fn stats(&self) -> SelectionStats {
        self.stats
    }
}

/// At most so many records per second, with a burst of a tenth of a second.
#[derive(Clone, Debug)]
pub(crate) struct RateLimit {
    /// Nanoseconds that a record costs; 0 for no limit.
    cost: u64,
    burst: u64,
    /// Nanoseconds of records that may be made now.
    credit: u64,
    last: Utc,
}

impl RateLimit {
    /// `None` for no limit.
    pub(crate) fn new(per_second: Option<u64>) -> Self {
        let cost = per_second.map_or(0, |rate| 1_000_000_000u64.div_ceil(rate.max(1)));
        let burst = cost.max(100_000_000);
        Self {
            cost,
            burst,
            credit: burst,
            last: Utc(0),
        }
    }

    /// Whether a record may be made now.
    #[inline]
    pub(crate) fn take(&mut self, now: Utc) -> bool {
        if self.cost == 0 {
            return true;
        }
        let gained = now.0.saturating_sub(self.last.0);
        self.last = self.last.max(now);
        self.credit = self.credit.saturating_add(gained).min(self.burst);
        match self.credit.checked_sub(self.cost) {
            Some(rest) => {
                self.credit = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use alloc::vec::Vec;

    fn chosen(selection: Selection, packets: u32) -> Vec<u32> {
        let mut selector = Selector::new(selection, 1);
        let chosen: Vec<u32> = (0..packets)
            .filter(|n| selector.select(&n.to_be_bytes()))
            .collect();
        let stats = selector.stats();
        assert_eq!(stats.observed, u64::from(packets));
        assert_eq!(stats.selected, chosen.len() as u64);
        chosen
    }

    #[test]
    fn one_in_four() {
        let selection = Selection::Count {
            interval: 1,
            space: 3,
        };
        assert_eq!(chosen(selection, 12), [0, 4, 8]);
        assert_eq!(
            chosen(
                Selection::Count {
                    interval: 2,
                    space: 1
                },
                6
            ),
            [0, 1, 3, 4]
        );
        assert_eq!(
            chosen(
                Selection::Count {
                    interval: 1,
                    space: 0
                },
                3
            ),
            [0, 1, 2]
        );
    }

    #[test]
    fn a_probability_selects_its_share() {
        let share = chosen(Selection::Probability(0.25), 40_000).len();
        assert!((9_700..=10_300).contains(&share), "{share}");
        assert_eq!(chosen(Selection::Probability(1.0), 1000).len(), 1000);
    }

    #[test]
    fn a_hash_selects_by_content() {
        let selection = Selection::Hash {
            offset: 0,
            size: 4,
            initial: 7,
            from: 0,
            to: u32::MAX / 8,
        };
        let first = chosen(selection, 8000);
        assert!((800..=1200).contains(&first.len()), "{}", first.len());
        assert_eq!(first, chosen(selection, 8000));
        // Behind the end of the packet there is nothing to hash: all the same.
        let behind = Selection::Hash {
            offset: 9,
            size: 4,
            initial: 0,
            from: 0,
            to: u32::MAX,
        };
        assert_eq!(chosen(behind, 10).len(), 10);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        assert_eq!(
            Selection::Count {
                interval: 0,
                space: 1
            }
            .check(),
            Err(SelectionError::Interval)
        );
        for p in [0.0, -0.5, 1.5] {
            assert_eq!(
                Selection::Probability(p).check(),
                Err(SelectionError::Probability(p))
            );
        }
        assert!(Selection::Probability(f64::NAN).check().is_err());
        let hash = |size, from, to| Selection::Hash {
            offset: 0,
            size,
            initial: 0,
            from,
            to,
        };
        assert_eq!(hash(0, 0, 1).check(), Err(SelectionError::Hash));
        assert_eq!(hash(4, 2, 1).check(), Err(SelectionError::Hash));
        assert_eq!(hash(4, 1, 1).check(), Ok(()));
        assert_eq!(Selection::Probability(1.0).check(), Ok(()));
    }

    // shows: BTH-SEC-02
    #[test]
    fn the_rate_is_kept() {
        let mut limit = RateLimit::new(Some(1000));
        let start = 1_700_000_000_000_000_000u64;
        let taken = (0..2_000_000u64)
            .filter(|us| limit.take(Utc(start + us * 1000)))
            .count();
        // Two seconds, and the burst of a tenth of a second.
        assert!((2090..=2101).contains(&taken), "{taken}");
        let mut none = RateLimit::new(None);
        assert!((0..100).all(|_| none.take(Utc(0))));
        // A clock that steps back gives nothing.
        let mut limit = RateLimit::new(Some(1));
        assert!(limit.take(Utc(start)));
        assert!(!limit.take(Utc(start - 10_000_000_000)));
        assert!(!limit.take(Utc(start)));
    }
}
