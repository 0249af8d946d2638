//! Prints what a source packet costs both functions, coding and forwarding excluded, where thousands of
//! flows take turns and no burst has two packets of one flow:
//! `cargo run --release -p crem-core --example flows_cost`.
#![allow(missing_docs)]

#[path = "../tests/support/many.rs"]
mod many;

use std::time::{Duration, Instant};

use many::{Pair, RTT};

fn main() {
    for flows in [100, 1_000, 10_000] {
        let mut pair = Pair::new(flows);
        for psn in 0..60 {
            pair.round(flows, 32, psn);
        }
        assert_eq!(pair.protected(), (flows as usize, flows as usize));
        let rounds = 400_000 / flows;
        let mut best = Duration::MAX;
        for run in 0..3 {
            let start = Instant::now();
            for n in 0..rounds {
                pair.round(flows, 32, 60 + run * rounds + n);
            }
            best = best.min(start.elapsed());
        }
        println!(
            "{flows:6} flows, a packet each in {} ms: {:6.1} ns a packet, reports included",
            RTT.as_millis(),
            best.as_nanos() as f64 / f64::from(rounds * flows)
        );
    }
}
