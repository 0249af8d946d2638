//! References that are given up wait for a caller that wants to drop them itself, up to its limit.
#![allow(missing_docs)]

#[path = "support/many.rs"]
mod many;

use many::Pair;

const FLOWS: u32 = 4;
const LIMIT: usize = 4;

/// A pair of which every flow is protected and has sent some blocks.
fn protected() -> Pair {
    let mut pair = Pair::new(FLOWS);
    run(&mut pair, 0);
    assert_eq!(pair.protected(), (FLOWS as usize, FLOWS as usize));
    pair
}

fn run(pair: &mut Pair, from: u32) {
    for psn in from..from + 200 {
        pair.round(FLOWS, 32, psn);
    }
}

#[test]
fn nothing_waits_for_a_caller_that_did_not_ask() {
    let mut pair = protected();
    assert!(pair.csf.give_up(8) >= 8);
    assert!(pair.csf.departed().is_empty() && pair.crf.departed().is_empty());
}

#[test]
fn what_is_given_up_waits_up_to_the_limit() {
    let mut pair = protected();
    pair.csf.defer_drops(LIMIT);
    pair.crf.defer_drops(LIMIT);
    let kept = pair.csf.retained().0;
    let gone = pair.csf.give_up(8);
    assert_eq!(
        pair.csf.retained().0,
        kept - gone,
        "what waits is not counted as retained"
    );
    assert_eq!(pair.csf.departed().len(), LIMIT);
    run(&mut pair, 200);
    assert_eq!(pair.crf.departed().len(), LIMIT);
    // The list is the caller's, and fills again.
    pair.csf.departed().clear();
    pair.crf.departed().clear();
    assert!(pair.csf.give_up(8) >= 8);
    run(&mut pair, 400);
    assert!(!pair.csf.departed().is_empty() && pair.crf.departed().len() == LIMIT);
}
