//! Each planted fault of the protocol functions is found within 200 seeds.
#![allow(clippy::unwrap_used)]

use crem_core::mutate::{Fault, set};
use crem_sim::frame::Mode;
use crem_sim::runner::run_seed;

const SEEDS: u64 = 200;

/// One test, since what is planted is planted in the whole process.
#[test]
fn every_planted_fault_is_found() {
    for fault in Fault::SIMULATED {
        set(Some(fault));
        let found = (1..=SEEDS).find_map(|seed| {
            let outcome = run_seed(seed, Mode::Rank, false);
            Some((seed, outcome.violations.first()?.clone()))
        });
        set(None);
        let (seed, how) = found.unwrap_or_else(|| unreachable!("{fault:?} was not found"));
        let end = how.find(": ").unwrap_or(how.len());
        println!("{fault:?}: found by seed {seed}: {}", &how[..end]);
        assert_eq!(
            run_seed(seed, Mode::Rank, false).broken,
            0,
            "without it, seed {seed} is fine"
        );
    }
}
