//! Prints for how long a worker would do nothing else when a segment with many flows leaves mode `active` at once: every flow is
//! closed, what is left to say is taken, and the state is freed. Also the longest burst while the tables grew.
//! `cargo run --release -p crem-core --example leave_cost [FLOWS]`
#![allow(missing_docs, dead_code)]

#[path = "../tests/support/many.rs"]
mod many;

use std::time::{Duration, Instant};

use crem_core::actions::Actions;
use crem_wire::crem::registry::CloseReason;
use many::Pair;

fn main() {
    let asked = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let flows: u32 = asked.unwrap_or(10_000);
    let mut pair = Pair::new(flows);
    let mut longest = Duration::ZERO;
    for psn in 0..30 {
        for first in (0..flows).step_by(32) {
            let start = Instant::now();
            pair.burst(first..(first + 32).min(flows), psn);
            longest = longest.max(start.elapsed());
        }
        pair.wait(many::RTT);
    }
    let (sending, restoring) = pair.protected();
    println!("{flows} flows, {sending} protected at the sender, {restoring} at the receiver");
    println!("longest burst of both functions while tables grew {longest:?}");
    let mut actions = Actions::default();
    let Pair {
        mut csf,
        mut crf,
        now,
        ..
    } = pair;
    let closing = Instant::now();
    csf.close_all(CloseReason::Normal);
    crf.close_all(now, CloseReason::Normal, &mut actions);
    let (closed, mut messages) = (closing.elapsed(), 0);
    let saying = Instant::now();
    while csf
        .poll_transmit()
        .or_else(|| crf.poll_transmit())
        .is_some()
    {
        messages += 1;
    }
    let said = saying.elapsed();
    let freeing = Instant::now();
    drop((csf, crf));
    let freed = freeing.elapsed();
    println!("closing {closed:?}, taking {messages} messages {said:?}, freeing {freed:?}");
}
