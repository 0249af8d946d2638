//! k and m as a pure function of what path and flow look like and of the operator's rules (AMB-POLICY).
//! What may keep a flow from getting what is chosen here, such as congestion, is decided in `csf`.

use super::block::{Losses, smallest_m};
use super::targets::Targets;
use crate::mutate::{self, Fault};
use crate::time::Duration;

/// Shortest blocks that are chosen for the length of bursts, and for fitting into the hold.
const SHORTEST: u8 = 4;
const SHORTEST_HELD: u8 = 8;
/// Largest bound of the reordering allowance that a block must leave room for in the hold (AMB-HOLD).
const ALLOWANCE: Duration = Duration::from_micros(100);
/// A longer block must save this share of the repair traffic of a shorter one, in percent.
const WORTH_PERCENT: u32 = 20;
/// A k this close to the current one, in percent, is no other.
const SAME_K_PERCENT: u32 = 25;

/// Bounds that a choice of m keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Smallest m.
    pub min: u8,
    /// Largest m; the index space (k + m <= 256) limits it further.
    pub max: u8,
}

impl Bounds {
    /// The bounds as far as the index space of a block of k lets them be.
    fn within(self, k: u8) -> (u8, u8) {
        let room = u8::try_from(256 - u16::from(k.max(1))).unwrap_or(u8::MAX);
        let max = self.max.min(room);
        (self.min.min(max), max)
    }
}

/// What a block length needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// Symbols.
    pub m: u8,
    /// Symbols that would be needed at a loss rate a quarter higher: m is not lowered below it, so that noise
    /// of the estimate does not change it to and fro.
    pub down_to: u8,
    /// Whether `m` reaches the target.
    pub reached: bool,
}

/// What a block of k needs at these losses: the smallest m within `bounds` with which a block of k + m packets
/// loses more than m of them with a probability strictly below its epsilon, from m = 0 on; the largest
/// allowed m if none reaches it (AMB-POLICY). Costs about k + m^2 multiplications; with losses in runs this follows a chain over k + m packets, some
/// microseconds: callers keep the result.
pub fn need(k: u8, losses: Losses, targets: &Targets, bounds: Bounds) -> Need {
    let lax = if mutate::has(Fault::Epsilon) {
        10.0
    } else {
        1.0
    };
    let at = |losses: Losses| {
        let epsilon = |m| targets.block_epsilon(k, m, losses) * lax;
        smallest_m(k, losses, bounds.within(k), epsilon)
    };
    let (m, reached) = at(losses);
    let (down_to, _) = at(Losses {
        rate: losses.rate * 1.25,
        ..losses
    });
    Need {
        m,
        down_to: down_to.max(m),
        reached,
    }
}

impl Need {
    /// The m to go to from `current`: up at once, down as far as `down_to`.
    fn from(&self, current: u8) -> u8 {
        if self.m >= current {
            self.m
        } else {
            self.down_to.min(current)
        }
    }
}

/// What a flow and its path look like.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Demand {
    /// Configuration in force: (k, m).
    pub current: Option<(u8, u8)>,
    /// Mean time between new packets.
    pub spacing: Duration,
    /// Minimum round-trip time.
    pub min_rtt: Duration,
    /// Mean length of bursts, positions; `None` for a stream.
    pub burst_length: Option<f64>,
    /// Shortest block with which the receiver can hold all open ones (AMB-OPENBLOCKS).
    pub open_floor: u8,
}

/// What the operator, the peer and the path MTU allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Preferred block length.
    pub k: u8,
    /// Largest block length.
    pub k_max: u8,
    /// Whether k follows the flow; otherwise it is `k`, or the floor of the open blocks.
    pub adapt: bool,
}

/// k and m.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Block length.
    pub k: u8,
    /// Symbols a block.
    pub m: u8,
}

impl Choice {
    /// Share m / k that is smaller than `percent` of that of `other`.
    fn is_below(&self, other: &Self, percent: u32) -> bool {
        let share = |a: &Self, b: &Self| u32::from(a.m) * u32::from(b.k);
        share(self, other) * 100 < share(other, self) * percent
    }
}

/// Chooses k and m (AMB-POLICY). Among the lengths that fit the bursts of the flow and the hold it takes the
/// one with the least repair traffic for the target; a longer one only if it saves a fifth. `need_of` says
/// what a length needs.
pub fn choose(demand: &Demand, rules: &Rules, mut need_of: impl FnMut(u8) -> Need) -> Choice {
    let limit = longest(demand, rules);
    let mut best: Option<(Choice, bool)> = None;
    let mut k = rules.k.clamp(1, limit).max(demand.open_floor.min(limit));
    loop {
        let length = if rules.adapt {
            fitted(k, limit, demand)
        } else {
            k
        };
        let need = need_of(length);
        let m = match demand.current {
            Some((current, m)) if current == length => need.from(m),
            _ => need.m,
        };
        let choice = Choice { k: length, m };
        best = Some(match best {
            Some((other, reached))
                if !is_better((&choice, need.reached), (&other, reached), demand) =>
            {
                (other, reached)
            }
            _ => (choice, need.reached),
        });
        let next = k.saturating_mul(2).min(limit);
        if next == k || !rules.adapt {
            break;
        }
        k = next;
    }
    best.map_or(Choice { k: 1, m: 0 }, |(choice, _)| choice)
}

/// Whether the longer block is to be preferred. The length in force stays where no other is better.
fn is_better(longer: (&Choice, bool), shorter: (&Choice, bool), demand: &Demand) -> bool {
    match (longer, shorter) {
        ((longer, true), (shorter, true)) => {
            if demand.current.is_some_and(|(k, _)| k == longer.k) {
                !shorter.is_below(longer, 100)
            } else {
                longer.is_below(shorter, 100 - WORTH_PERCENT)
            }
        }
        // Neither reaches the target: the longer one loses less of its sources to a run.
        ((_, false), (_, false)) => true,
        ((_, reached), _) => reached,
    }
}

/// The longest block that may be chosen: what all sides allow, and what fits into the hold.
fn longest(demand: &Demand, rules: &Rules) -> u8 {
    let allowed = rules.k_max.max(1);
    if !rules.adapt {
        return allowed;
    }
    let room = (demand.min_rtt / 4).saturating_sub(ALLOWANCE);
    let fits = room.as_nanos() / demand.spacing.as_nanos().max(1);
    let fits = u8::try_from(fits).unwrap_or(u8::MAX);
    // The rate wavers: what is in force may be a little longer.
    let stays = demand
        .current
        .map(|(k, _)| k)
        .filter(|k| u32::from(*k) * 100 <= u32::from(fits) * (100 + SAME_K_PERCENT));
    fits.max(stays.unwrap_or(0))
        .max(SHORTEST_HELD)
        .max(demand.open_floor)
        .min(allowed)
}

/// A length near `k` into which the bursts of the flow divide without a short rest.
fn fitted(k: u8, limit: u8, demand: &Demand) -> u8 {
    let current = demand.current.map(|(k, _)| k);
    let current = current.filter(|k| *k <= limit && *k >= demand.open_floor);
    let Some(burst) = demand.burst_length else {
        let near = |c: &u8| u32::from(c.abs_diff(k)) * 100 <= u32::from(k) * SAME_K_PERCENT;
        return current.filter(near).unwrap_or(k);
    };
    let whole = ceil(burst);
    let mut parts = ((whole + u32::from(k) / 2) / u32::from(k)).max(1);
    if whole.div_ceil(parts) > u32::from(limit) {
        parts = whole.div_ceil(u32::from(limit));
    }
    let length = u8::try_from(whole.div_ceil(parts)).unwrap_or(limit);
    let shortest = SHORTEST.max(demand.open_floor).min(limit);
    let length = length.clamp(shortest, limit);
    // A block that is a little too long costs the end of a burst part of a symbol; one that is too short
    // leaves a rest.
    current
        .filter(|c| (length..=length.saturating_add(length / 8)).contains(c))
        .unwrap_or(length)
}

fn ceil(length: f64) -> u32 {
    // A mean that is off by the weight of old bursts must not add a position.
    (length + 0.95) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WIDE: Bounds = Bounds { min: 0, max: 255 };

    fn choose_m(k: u8, p: f64, epsilon: f64, bounds: Bounds) -> u8 {
        let targets = Targets {
            epsilon,
            ..Targets::default()
        };
        need(k, Losses::independent(p), &targets, bounds).m
    }

    // shows: CREM-POL-06, CREM-POL-08, AMB-POLICY
    #[test]
    fn smallest_m_that_reaches_the_target() {
        for (k, p, epsilon, m) in [
            (8, 0.0, 1e-4, 0),
            (8, 1e-5, 1e-4, 0),
            (16, 1e-5, 1e-4, 1),
            (16, 1e-3, 1e-4, 2),
            (32, 0.01, 1e-4, 4),
            (32, 0.1, 1e-4, 13),
            (64, 0.1, 1e-4, 20),
            (32, 0.001, 1e-2, 1),
            (32, 0.01, 1e-6, 6),
        ] {
            assert_eq!(
                choose_m(k, p, epsilon, WIDE),
                m,
                "k={k} p={p} epsilon={epsilon}"
            );
        }
    }

    #[test]
    fn bounds_and_index_space_limit_m() {
        assert_eq!(choose_m(32, 0.1, 1e-4, Bounds { min: 0, max: 8 }), 8);
        assert_eq!(choose_m(32, 0.0, 1e-4, Bounds { min: 2, max: 8 }), 2);
        assert_eq!(choose_m(255, 0.5, 1e-4, WIDE), 1);
        assert_eq!(choose_m(250, 1.0, 1e-4, WIDE), 6);
        assert_eq!(choose_m(32, 0.0, 1e-4, Bounds { min: 9, max: 4 }), 4);
    }

    #[test]
    fn m_goes_up_at_once_and_down_with_a_margin() {
        let bounds = Bounds { min: 0, max: 16 };
        let m = |current, p| {
            need(32, Losses::independent(p), &Targets::default(), bounds).from(current)
        };
        assert_eq!((m(0, 0.01), m(3, 0.01)), (4, 4));
        // At 0.011 four symbols do; at a quarter more they would not.
        assert_eq!(choose_m(32, 0.011, 1e-4, bounds), 4);
        assert_eq!((m(5, 0.011), m(5, 0.009), m(4, 0.011)), (5, 4, 4));
        assert_eq!(m(7, 0.0), 0);
    }

    const RULES: Rules = Rules {
        k: 32,
        k_max: 128,
        adapt: true,
    };
    /// 100,000 packets a second at 25 ms: 600 positions fit into the hold.
    const FAST: Demand = Demand {
        current: None,
        spacing: Duration::from_micros(10),
        min_rtt: Duration::from_millis(25),
        burst_length: None,
        open_floor: 1,
    };

    fn chosen(demand: &Demand, rules: &Rules, losses: Losses, targets: &Targets) -> (u8, u8) {
        let bounds = Bounds { min: 0, max: 16 };
        let choice = choose(demand, rules, |k| need(k, losses, targets, bounds));
        (choice.k, choice.m)
    }

    // shows: CREM-POL-09, AMB-POLICY
    #[test]
    fn table_of_choices() {
        let every = |us| Demand {
            spacing: Duration::from_micros(us),
            ..FAST
        };
        let bursts = |length| Demand {
            burst_length: Some(length),
            ..FAST
        };
        let in_force = |k, m| Demand {
            current: Some((k, m)),
            ..FAST
        };
        let p = Losses::independent;
        let table: &[(&str, Demand, Losses, (u8, u8))] = &[
            ("clean", FAST, p(0.0), (32, 0)),
            ("nearly clean", FAST, p(1e-6), (32, 0)),
            ("fast: longer blocks save", FAST, p(1e-3), (128, 3)),
            ("fast, 1 %", FAST, p(1e-2), (128, 7)),
            // 6.15 ms of hold, 150 us apart: 41 positions fit.
            (
                "slower: what fits into the hold",
                every(150),
                p(1e-2),
                (41, 4),
            ),
            (
                "slow: the shortest that is held",
                every(5_000),
                p(1e-2),
                (8, 3),
            ),
            ("nothing fits, clean", every(50_000), p(0.0), (8, 0)),
            ("messages of eight", bursts(8.0), p(1e-3), (8, 1)),
            ("messages of two", bursts(2.0), p(1e-3), (4, 1)),
            (
                "messages of 40 are one block",
                bursts(40.0),
                p(1e-2),
                (40, 4),
            ),
            ("messages of 200 are three", bursts(200.0), p(1e-2), (67, 5)),
            (
                "a longer one in force stays",
                in_force(128, 0),
                p(0.0),
                (128, 0),
            ),
            (
                "and goes where it costs more",
                in_force(128, 1),
                p(2e-6),
                (32, 0),
            ),
            (
                "a little longer than bursts",
                Demand {
                    current: Some((34, 4)),
                    ..bursts(32.0)
                },
                p(1e-2),
                (34, 4),
            ),
            (
                "shorter than bursts",
                Demand {
                    current: Some((30, 4)),
                    ..bursts(32.0)
                },
                p(1e-2),
                (32, 4),
            ),
            (
                "open blocks ask for more",
                Demand {
                    open_floor: 64,
                    ..FAST
                },
                p(0.0),
                (64, 0),
            ),
            (
                "out of reach",
                FAST,
                Losses {
                    rate: 1e-2,
                    burst: 40.0,
                },
                (128, 16),
            ),
        ];
        for (what, demand, losses, expected) in table {
            assert_eq!(
                chosen(demand, &RULES, *losses, &Targets::default()),
                *expected,
                "{what}"
            );
        }
        let fixed = Rules {
            adapt: false,
            ..RULES
        };
        assert_eq!(
            chosen(&bursts(8.0), &fixed, p(1e-3), &Targets::default()),
            (32, 2)
        );
    }

    #[test]
    fn low_repair_where_coded_rounds_carry_the_rest() {
        let targets = Targets {
            last: Some(1e-5),
            rounds: 1,
            ..Targets::default()
        };
        // Two percent: less than five percent of ordinary repair, and the round must do one in seventy.
        let (k, m) = chosen(&FAST, &RULES, Losses::independent(0.02), &targets);
        assert!(u32::from(m) * 100 <= 5 * u32::from(k), "k={k} m={m}");
        let after = super::super::residual_rate(k, m, 0.02) * super::super::round_failure(0.02);
        assert!(after < 1e-5, "k={k} m={m}: {after:e}");
    }

    proptest! {
        #[test]
        fn rules_and_index_space_are_kept(
            k in 1u8..=255,
            p in 0.0f64..=1.0,
            max in 0u8..=255,
            (preferred, k_max) in (1u8..=128, 1u8..=128),
            (spacing, rtt) in (1u64..10_000_000, 1_000u64..1_000_000_000),
            burst_length in proptest::option::of(1.0f64..512.0),
            current in proptest::option::of((1u8..=128, 0u8..=16)),
            open_floor in 1u8..=255,
        ) {
            let m = choose_m(k, p, 1e-4, Bounds { min: 0, max });
            prop_assert!(m <= max && u16::from(m) + u16::from(k) <= 256);
            let demand = Demand {
                current,
                spacing: Duration::from_nanos(spacing),
                min_rtt: Duration::from_nanos(rtt),
                burst_length,
                open_floor,
            };
            let rules = Rules { k: preferred, k_max, adapt: true };
            let mut asked = 0;
            let choice = choose(&demand, &rules, |k| {
                asked += 1;
                need(k, Losses::independent(p), &Targets::default(), Bounds { min: 0, max: 16 })
            });
            prop_assert!((1..=k_max).contains(&choice.k) && choice.m <= 16);
            prop_assert!(asked <= 9);
            let again = Demand { current: Some((choice.k, choice.m)), ..demand };
            let second = choose(&again, &rules, |k| {
                need(k, Losses::independent(p), &Targets::default(), Bounds { min: 0, max: 16 })
            });
            // What was chosen stays chosen while nothing changes.
            let third = choose(
                &Demand { current: Some((second.k, second.m)), ..demand },
                &rules,
                |k| need(k, Losses::independent(p), &Targets::default(), Bounds { min: 0, max: 16 }),
            );
            prop_assert_eq!(third, second);
        }
    }
}
