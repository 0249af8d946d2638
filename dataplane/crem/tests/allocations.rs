//! After warm-up a packet of a protected flow costs the sender function no allocation. One test only: the
//! counter counts the whole process.
#![allow(clippy::expect_used, missing_docs)]

#[path = "support/scripted.rs"]
mod scripted;

use std::alloc::System;

use scripted::Scripted;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn a_packet_allocates_nothing_after_warm_up() {
    let mut flow = Scripted::new(32, 4);
    // Longer than blocks are kept, so that as many are given up as are closed.
    for n in 0..20_000 {
        flow.burst();
        flow.ack();
        if n % 2_000 == 0 {
            flow.report();
        }
    }
    let symbols = flow.symbols;
    let region = Region::new(GLOBAL);
    for n in 0..10_000 {
        flow.burst();
        flow.ack();
        if n % 2_000 == 0 {
            flow.report();
        }
    }
    let change = region.change();
    assert_eq!(
        (change.allocations, change.reallocations),
        (0, 0),
        "{change:?}"
    );
    assert_eq!(
        flow.symbols - symbols,
        40_000,
        "the flow was protected all along"
    );
    let let_go = flow.csf.counters().retain_acknowledged;
    assert!(let_go > 300_000, "acknowledgments were taken: {let_go}");
}
