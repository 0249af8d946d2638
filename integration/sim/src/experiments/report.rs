//! What an experiment says at its end: checks against targets, figures as JSON, one line that a script can
//! read.

use std::io;

use crem_core::csf::CsfCounters;
use serde_json::{Map, Value, json};

use super::settings::Options;

/// One target and what was measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Check {
    /// What was measured.
    pub what: String,
    /// The figure.
    pub value: f64,
    /// Its bound.
    pub bound: f64,
    /// Whether the bound is the largest allowed value; else it is the smallest.
    pub at_most: bool,
}

impl Check {
    /// `value` may be `bound` at most.
    pub fn at_most(what: impl Into<String>, value: f64, bound: f64) -> Self {
        let what = what.into();
        Self {
            what,
            value,
            bound,
            at_most: true,
        }
    }

    /// `value` must be `bound` at least.
    pub fn at_least(what: impl Into<String>, value: f64, bound: f64) -> Self {
        Self {
            at_most: false,
            ..Self::at_most(what, value, bound)
        }
    }

    /// Whether the target is met; a figure that is none misses it.
    pub fn is_met(&self) -> bool {
        if self.at_most {
            self.value <= self.bound
        } else {
            self.value >= self.bound
        }
    }

    fn line(&self) -> String {
        let relation = if self.at_most { "at most" } else { "at least" };
        let verdict = if self.is_met() { "ok   " } else { "short" };
        format!(
            "  {verdict} {}: {:.6} ({relation} {})",
            self.what, self.value, self.bound
        )
    }
}

/// The report of an experiment.
#[derive(Debug)]
pub struct Report {
    name: &'static str,
    checks: Vec<Check>,
    figures: Map<String, Value>,
}

impl Report {
    /// An empty report.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            checks: Vec::new(),
            figures: Map::new(),
        }
    }

    /// Adds a target and prints how it came out.
    pub fn check(&mut self, check: Check) {
        println!("{}", check.line());
        self.checks.push(check);
    }

    /// Adds figures under a name.
    pub fn figures(&mut self, name: impl Into<String>, value: Value) {
        self.figures.insert(name.into(), value);
    }

    /// Writes `NAME.json` and prints the last line. Whether all targets were met.
    pub fn finish(self, options: &Options) -> io::Result<bool> {
        let missed: Vec<_> = self.checks.iter().filter(|c| !c.is_met()).collect();
        let checks: Vec<_> = self.checks.iter().map(check_json).collect();
        let document = json!({
            "name": self.name,
            "ok": missed.is_empty(),
            "checks": checks,
            "figures": self.figures,
        });
        let text = serde_json::to_string_pretty(&document)? + "\n";
        for folder in options.folders() {
            std::fs::create_dir_all(folder)?;
            std::fs::write(folder.join(format!("{}.json", self.name)), &text)?;
        }
        if missed.is_empty() {
            let met = self.checks.len();
            println!("{}: ok targets={met} met={met}", self.name);
            return Ok(true);
        }
        let list: Vec<_> = missed.iter().map(|check| by_how_much(check)).collect();
        let (count, all) = (missed.len(), self.checks.len());
        println!(
            "{}: short targets={all} met={} missed: {}",
            self.name,
            all - count,
            list.join("; ")
        );
        Ok(false)
    }
}

fn check_json(check: &Check) -> Value {
    json!({
        "what": check.what,
        "value": check.value,
        "bound": check.bound,
        "at_most": check.at_most,
        "ok": check.is_met(),
    })
}

fn by_how_much(check: &Check) -> String {
    format!("{} {:.6} for {}", check.what, check.value, check.bound)
}

/// What moved m, counted over a whole run.
pub(super) fn adaptation(csf: &CsfCounters) -> Value {
    json!({
        "configurations": csf.param_accepted,
        "raises_reverted": csf.raises_reverted,
        "repair_loss_reductions": csf.repair_loss_reductions,
        "ce_reductions": csf.ce_reductions,
        "flows_silent": csf.flows_silent,
        "requests_volume_capped": csf.requests_volume_capped,
    })
}

/// Runs `run` on every one of `cells` on `threads` threads; the results come in the order of the cells.
pub fn on_threads<C: Sync, R: Send>(
    threads: usize,
    cells: &[C],
    run: impl Fn(&C) -> R + Sync,
) -> Vec<R> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let results: Vec<_> = cells.iter().map(|_| std::sync::Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let (Some(cell), Some(place)) = (cells.get(index), results.get(index)) else {
                        break;
                    };
                    let result = run(cell);
                    if let Ok(mut place) = place.lock() {
                        *place = Some(result);
                    }
                }
            });
        }
    });
    let taken = results
        .into_iter()
        .filter_map(|place| place.into_inner().ok()?);
    taken.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_missed_by_what_is_no_number() {
        assert!(Check::at_most("x", 1.0, 1.0).is_met());
        assert!(!Check::at_most("x", 1.1, 1.0).is_met());
        assert!(!Check::at_most("x", f64::NAN, 1.0).is_met());
        assert!(Check::at_least("x", 1.0, 1.0).is_met());
        assert!(!Check::at_least("x", f64::NAN, 1.0).is_met());
    }

    #[test]
    fn results_keep_the_order_of_the_cells() {
        let cells: Vec<u64> = (0..100).collect();
        let doubled = on_threads(4, &cells, |n| n * 2);
        assert_eq!(doubled, cells.iter().map(|n| n * 2).collect::<Vec<_>>());
    }
}
