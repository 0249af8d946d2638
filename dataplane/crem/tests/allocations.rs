//! After warm-up a packet of a protected flow costs the sender function no allocation, nor does a request.
//! One test only: the counter counts the whole process.
#![allow(clippy::expect_used, missing_docs)]

#[path = "support/scripted.rs"]
mod scripted;

use std::alloc::System;
use std::net::{IpAddr, SocketAddr};

use crem_wire::crem::{Message, Parsed, PsnRange, RangeRequest, parse};
use crem_wire::{FlowId, Psn, RequestId};
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
    requests_allocate_nothing(&mut flow);
}

/// The peer asks for every fourth packet of the newest block, as its messages come: in octets.
fn ask(flow: &mut Scripted, octets: &mut Vec<u8>) {
    let counters = flow.csf.counters();
    let newest = u32::try_from(counters.sources_new).expect("few") - 32;
    let request = u16::try_from(counters.requests_range + 1).expect("few");
    let range = |psn| PsnRange {
        start: Psn::new(psn),
        count: 1,
    };
    let request = Message::RangeRequest(RangeRequest {
        flow: FlowId::new(77).expect("not zero"),
        fallback: false,
        request: RequestId::new(request).expect("not zero"),
        ranges: (newest..newest + 32).step_by(4).map(range).collect(),
    });
    octets.clear();
    request.encode(octets);
    let Ok(Parsed::Message(message)) = parse(octets) else {
        return;
    };
    let peer = SocketAddr::new(IpAddr::from([192, 0, 2, 2]), 50_000);
    let Scripted { csf, out, now, .. } = flow;
    csf.on_message(*now, peer, &message, false, out);
}

/// Nor does a request for ranges, from its octets to the symbols that answer it.
fn requests_allocate_nothing(flow: &mut Scripted) {
    let mut octets = Vec::with_capacity(2048);
    let mut rounds = |flow: &mut Scripted, n| {
        for _ in 0..n {
            for _ in 0..10 {
                flow.burst();
            }
            ask(flow, &mut octets);
        }
    };
    rounds(flow, 2_000);
    let coded = flow.csf.counters().symbols_coded;
    let region = Region::new(GLOBAL);
    rounds(flow, 1_000);
    let change = region.change();
    assert_eq!(
        (change.allocations, change.reallocations),
        (0, 0),
        "{change:?}"
    );
    let coded = flow.csf.counters().symbols_coded - coded;
    assert_eq!(coded, 8_000, "each was answered");
}
