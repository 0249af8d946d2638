//! The configurations of a binding at the receiver: acceptance, which one is in force, release (CREM,
//! Parameter Synchronization; AMB-STATUS, AMB-EFFRESEND, AMB-CFGREL). Answering is decided elsewhere.

use alloc::vec::Vec;
use crem_wire::crem::registry::ParamStatus;
use crem_wire::crem::{Limits, ParamUpdate};
use crem_wire::{ConfigId, Psn};

use crate::memory::of_vec;
use crate::plan;
use crate::time::{Duration, Instant};

/// Configurations that a binding may have unreleased at once.
pub(crate) const MAX_CONFIGS: usize = 8;

/// An acknowledged configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Config {
    pub(crate) id: ConfigId,
    pub(crate) scheme: u8,
    pub(crate) k: u8,
    pub(crate) m: u8,
    pub(crate) t: u16,
    effective: Psn,
    acknowledged: Instant,
    /// The stream's PSNs have reached the Effective PSN.
    entered: bool,
    /// When they were first seen k beyond it, k of the older configuration.
    passed: Option<Instant>,
}

/// The configurations of a binding, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Configs {
    list: Vec<Config>,
}

impl Configs {
    /// The configuration with this ID.
    pub(crate) fn get(&self, id: ConfigId) -> Option<&Config> {
        self.list.iter().find(|config| config.id == id)
    }

    /// The newest configuration whose Effective PSN was reached; before that, none.
    pub(crate) fn in_force(&self) -> Option<&Config> {
        self.list.iter().rev().find(|config| config.entered)
    }

    /// From which PSN of a new gap [from, to) on a configuration protects, and with how many symbols.
    pub(crate) fn protects(&self, from: Psn, to: Psn) -> Option<(Psn, u8)> {
        if let Some(config) = self.in_force() {
            return Some((from, config.m));
        }
        let config = self
            .list
            .iter()
            .rev()
            .find(|config| to.is_after(config.effective))?;
        let start = if config.effective.is_after(from) {
            config.effective
        } else {
            from
        };
        Some((start, config.m))
    }

    /// Largest k of all that may be in use; zero without any.
    pub(crate) fn max_k(&self) -> u8 {
        self.list.iter().map(|config| config.k).max().unwrap_or(0)
    }

    /// Octets of memory.
    pub(crate) const fn octets(&self) -> usize {
        of_vec(&self.list)
    }

    /// Takes a PARAM_UPDATE; `memory` says whether its decoding could be provided for. A repetition is
    /// accepted again, with the later Effective PSN; the same ID with other parameters is refused.
    pub(crate) fn update(
        &mut self,
        now: Instant,
        update: &ParamUpdate,
        limits: &Limits,
        memory: bool,
    ) -> ParamStatus {
        if let Some(known) = self.list.iter_mut().find(|c| c.id == update.config) {
            let same = (known.scheme, known.k, known.m, known.t)
                == (update.scheme, update.k, update.m, update.t);
            if !same {
                return ParamStatus::ResourcesExhausted;
            }
            if !known.entered {
                known.effective = update.effective;
            }
            return ParamStatus::Accepted;
        }
        let room = memory && self.list.len() < MAX_CONFIGS;
        let status = plan::param_status(update, limits, room);
        if status == ParamStatus::Accepted {
            // Nearly always there is one, and another only while it changes.
            self.list.reserve_exact(1);
            self.list.push(Config {
                id: update.config,
                scheme: update.scheme,
                k: update.k,
                m: update.m,
                t: update.t,
                effective: update.effective,
                acknowledged: now,
                entered: false,
                passed: None,
            });
        }
        status
    }

    /// The stream's next PSN is `next`: notes which configurations are in force, and releases those
    /// that nothing can refer to any more. `pending` says whether something of the stream before this
    /// PSN is still missing, `used` whether an open block has this ID.
    pub(crate) fn advance(
        &mut self,
        now: Instant,
        next: Psn,
        srtt: Duration,
        pending: impl Fn(Psn) -> bool,
        used: impl Fn(ConfigId) -> bool,
    ) {
        let mut older_k = 0;
        for config in &mut self.list {
            config.entered |= plan::may_use(next, config.effective, true);
            let beyond = config.effective.add(i32::from(older_k));
            if config.passed.is_none() && config.entered && next.distance_from(beyond) >= 0 {
                config.passed = Some(now.max(config.acknowledged));
            }
            older_k = config.k;
        }
        while let [oldest, newer, ..] = self.list.as_slice() {
            // What was sent last with the older one may be asked for twice.
            let over = newer.passed.is_some_and(|at| at + srtt * 4 <= now);
            if !over || pending(newer.effective) || used(oldest.id) {
                return;
            }
            self.list.remove(0);
        }
    }

    /// Whether [`Configs::advance`] can change anything.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.list.as_slice(), [] | [Config { entered: true, .. }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const MS: Duration = Duration::from_millis(1);

    fn limits() -> Limits {
        Limits {
            schemes: 0b111,
            max_k: 64,
            max_m: 8,
            max_t: 1100,
        }
    }

    fn update(id: u8, effective: u32) -> ParamUpdate {
        ParamUpdate {
            flow: crem_wire::FlowId::new(1).unwrap_or_else(|| unreachable!()),
            config: ConfigId(id),
            scheme: 1,
            k: 32,
            m: 2,
            t: 1062,
            effective: Psn::new(effective),
        }
    }

    // shows: AMB-EFFRESEND, AMB-STATUS
    #[test]
    fn repetitions_are_accepted_and_conflicts_refused() {
        let mut c = Configs::default();
        let at = Instant(0);
        assert_eq!(
            c.update(at, &update(1, 100), &limits(), true),
            ParamStatus::Accepted
        );
        assert_eq!(
            c.update(at, &update(1, 300), &limits(), false),
            ParamStatus::Accepted
        );
        let other = ParamUpdate {
            k: 16,
            ..update(1, 100)
        };
        assert_eq!(
            c.update(at, &other, &limits(), true),
            ParamStatus::ResourcesExhausted
        );
        let large = ParamUpdate {
            k: 65,
            ..update(2, 100)
        };
        assert_eq!(
            c.update(at, &large, &limits(), true),
            ParamStatus::LimitsExceeded
        );
        assert_eq!(
            c.update(at, &update(3, 100), &limits(), false),
            ParamStatus::ResourcesExhausted
        );
        let unknown = ParamUpdate {
            scheme: 9,
            ..update(4, 100)
        };
        assert_eq!(
            c.update(at, &unknown, &limits(), true),
            ParamStatus::UnsupportedScheme
        );
        c.advance(at, Psn::new(200), MS, |_| false, |_| false);
        assert!(c.in_force().is_none(), "the later Effective PSN holds");
        c.advance(at, Psn::new(300), MS, |_| false, |_| false);
        assert_eq!(c.in_force().map(|c| c.id), Some(ConfigId(1)));
        assert!(c.is_settled());
    }

    // shows: CREM-PARAM-11, AMB-CFGREL
    #[test]
    fn the_older_is_released_when_nothing_can_refer_to_it() {
        let mut c = Configs::default();
        let at = |ms: u64| Instant(0) + MS * ms as u32;
        c.update(at(0), &update(1, 0xff_fff0), &limits(), true);
        c.update(at(0), &update(2, 5), &limits(), true);
        c.advance(at(0), Psn::new(4), MS, |_| false, |_| false);
        assert_eq!(c.in_force().map(|c| c.id), Some(ConfigId(1)));
        c.advance(at(9), Psn::new(36), MS, |_| false, |_| false);
        assert_eq!(c.in_force().map(|c| c.id), Some(ConfigId(2)));
        assert!(c.get(ConfigId(1)).is_some(), "k beyond is not reached");
        c.advance(at(9), Psn::new(37), MS, |_| false, |_| false);
        c.advance(at(12), Psn::new(37), MS, |_| false, |_| false);
        assert!(c.get(ConfigId(1)).is_some(), "4 SRTT have not passed");
        c.advance(at(13), Psn::new(37), MS, |_| false, |id| id == ConfigId(1));
        assert!(c.get(ConfigId(1)).is_some(), "an open block uses it");
        c.advance(
            at(13),
            Psn::new(37),
            MS,
            |psn| psn == Psn::new(5),
            |_| false,
        );
        assert!(
            c.get(ConfigId(1)).is_some(),
            "a gap before the newer one is open"
        );
        c.advance(at(13), Psn::new(37), MS, |_| false, |_| false);
        assert!(c.get(ConfigId(1)).is_none() && c.get(ConfigId(2)).is_some());
        c.advance(at(13), Psn::new(37 + (1 << 23)), MS, |_| false, |_| false);
        assert_eq!(
            c.in_force().map(|c| c.id),
            Some(ConfigId(2)),
            "in force for good"
        );
    }

    #[test]
    fn unreleased_configurations_are_bounded() {
        let mut c = Configs::default();
        let accepted = (0..20u8)
            .filter(|id| {
                c.update(Instant(0), &update(*id, 9), &limits(), true) == ParamStatus::Accepted
            })
            .count();
        assert_eq!(accepted, MAX_CONFIGS);
        assert_eq!(c.max_k(), 32);
    }
}
