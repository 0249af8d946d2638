//! State of a flow, packets aside: at most 2 KiB on each side with 10,000 flows at 20 ms. One test only: the
//! counter counts the whole process.
#![allow(missing_docs)]

#[path = "support/many.rs"]
mod many;

use std::alloc::System;

use crem_core::memory::Memory;
use many::Pair;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const FLOWS: u32 = 10_000;
/// State of a flow on one side, octets.
const LIMIT: u64 = 2048;
/// Packets sent before the first measurement.
const ROUNDS: u32 = 60;

fn allocated(region: &Region<'_, System>) -> u64 {
    let change = region.change();
    (change.bytes_allocated - change.bytes_deallocated) as u64
}

fn check(side: &str, memory: Memory) {
    let flows = u64::from(FLOWS);
    println!(
        "{side}: {} octets a flow of its own, {} of tables, {} for packets",
        memory.flow_state / flows,
        memory.tables / flows,
        memory.packets / flows
    );
    assert_eq!(memory.flows, flows);
    assert!(memory.state_per_flow() <= LIMIT, "{side}: {memory:?}");
}

// shows: CREM-OPS-02
#[test]
fn ten_thousand_flows_take_two_kibibytes_each_at_most() {
    let region = Region::new(GLOBAL);
    let mut pair = Pair::new(FLOWS);
    for psn in 0..ROUNDS {
        pair.round(FLOWS, 32, psn);
    }
    assert_eq!(pair.protected(), (FLOWS as usize, FLOWS as usize));
    // No divisor of the number of flows: each loses some.
    pair.loss = 49;
    for psn in ROUNDS..ROUNDS + 20 {
        pair.round(FLOWS, 32, psn);
    }
    assert!(
        pair.crf.counters().requests_range > 1_000,
        "losses were seen"
    );
    let (sender, receiver) = (pair.csf.memory(), pair.crf.memory());
    check("sender", sender);
    check("receiver", receiver);
    let sum = sender.total() + receiver.total();
    let all = allocated(&region);
    println!("accounted for: {sum} of {all} octets");
    assert!(
        sum <= all && all - sum <= all / 20,
        "what is counted is what there is"
    );
}
