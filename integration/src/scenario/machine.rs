//! How busy the machine was during a run: figures of a starved machine say little about the gateways.

use serde::{Deserialize, Serialize};

/// Use of all processors over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineUse {
    /// Processors.
    pub cpus: usize,
    /// Share of their time that was not idle, whoever used it.
    pub busy: f64,
    /// Share that the hypervisor gave to others.
    pub stolen: f64,
}

/// Processor time since boot, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    all: u64,
    idle: u64,
    stolen: u64,
}

impl Ticks {
    pub(crate) fn now() -> Self {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        Self::parse(&text).unwrap_or_default()
    }

    /// The first line: user, nice, system, idle, iowait, irq, softirq, steal.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let fields: Vec<u64> = line
            .split_whitespace()
            .map_while(|f| f.parse().ok())
            .collect();
        let &[_, _, _, idle, waiting, _, _, stolen, ..] = fields.as_slice() else {
            return None;
        };
        // Guest time, behind these, is part of user time.
        let all = fields.iter().take(8).sum();
        Some(Self {
            all,
            idle: idle + waiting,
            stolen,
        })
    }

    /// Use between `earlier` and `self`.
    pub(crate) fn since(self, earlier: Self) -> MachineUse {
        let all = self.all.saturating_sub(earlier.all).max(1) as f64;
        let share = |now: u64, then: u64| now.saturating_sub(then) as f64 / all;
        MachineUse {
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            busy: 1.0 - share(self.idle, earlier.idle),
            stolen: share(self.stolen, earlier.stolen),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn shares_come_from_the_first_line() {
        let parse = |text| Ticks::parse(text).unwrap();
        let before = parse("cpu  10 0 10 70 10 0 0 0 5 5\ncpu0 1 1 1 1 1 1 1 1\n");
        let after = parse("cpu  40 0 30 110 10 0 0 10 9 9\n");
        let used = after.since(before);
        assert!((used.busy - 0.6).abs() < 1e-9, "{used:?}");
        assert!((used.stolen - 0.1).abs() < 1e-9);
        assert_eq!(Ticks::parse("intr 5"), None);
    }
}
