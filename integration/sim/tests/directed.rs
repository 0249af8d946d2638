//! The directed worlds alone, each of them once, meet everything that can occur: no luck of a drawn world is
//! needed for it.
#![allow(clippy::unwrap_used)]

use crem_sim::runner::{Plan, run};
use crem_sim::scenario::DIRECTED;

#[test]
fn one_round_of_directed_worlds_meets_every_pair_of_state_and_event() {
    let plan = Plan {
        first: 0,
        seeds: 0,
        every: 1,
        equal: 0,
        threads: 2,
        packets: 0,
        complete: false,
        many: false,
    };
    // Not the round that `make sim` runs first.
    let report = run(&plan.directed(1_000_000 * DIRECTED));
    let failed: Vec<_> = report.failed.iter().map(|f| (f.seed, &f.name)).collect();
    assert!(failed.is_empty(), "{failed:?}");
    let entries = report.coverage.entries();
    let missing: Vec<_> = entries.iter().filter(|e| e.is_missing()).collect();
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(entries.len() > 300);
}
