//! Prints what a source packet costs the sender function, coding and forwarding excluded:
//! `cargo run --release -p crem-core --example csf_cost`.
#![allow(clippy::expect_used)]

#[path = "../tests/support/scripted.rs"]
mod scripted;

use std::time::Instant;

use scripted::Scripted;

const BURSTS: u32 = 200_000;

fn main() {
    for burst in [1, 8, 32] {
        for m in [0, 2, 4] {
            let alone = cost(burst, m, false);
            let acked = cost(burst, m, true);
            println!(
                "bursts of {burst:2}, m = {m}: {alone:6.1} ns a packet, {acked:6.1} with an acknowledgment a burst"
            );
        }
    }
}

/// The least time of five runs, nanoseconds a packet.
fn cost(burst: usize, m: u8, acks: bool) -> f64 {
    let mut flow = Scripted::new(burst, m);
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for n in 0..BURSTS / burst as u32 {
            flow.burst();
            if acks {
                flow.ack();
            }
            if n % 1_000 == 0 {
                flow.report();
            }
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(BURSTS));
    }
    assert!(flow.is_protected());
    best
}
