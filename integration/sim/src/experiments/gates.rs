//! WRITEs of 16 MiB at 100 Gbit/s over 25 ms, data lost toward the receiver, flows warm: held against the
//! same without loss.

use std::io;

use serde_json::json;

use super::pair::Protection;
use super::report::{Check, Report, adaptation, on_threads};
use super::settings::{ENDPOINTS, Options, with_block_epsilon};
use super::writes::{WriteCell, WriteResult};
use crate::Duration;
use crate::endpoint::rc::Recovery;
use crate::net::loss::Loss;

const RTT: Duration = Duration::from_millis(25);
const RATE: u64 = 100_000_000_000;
/// The WAN port has room for repair besides a host at line rate.
const PORT_RATE: f64 = 125e9;
const OCTETS: u32 = 16 << 20;
const WRITES: u64 = 20_000;
const WARM: u64 = 300;
const LOSSES: [f64; 4] = [1e-5, 1e-4, 1e-3, 1e-2];
/// Accepted probability that the symbols of a block do not restore it.
const BLOCK_EPSILON: f64 = 1e-10;
const MEAN: f64 = 1.25;
const TAIL: f64 = 1.3;
const REPAIR: f64 = 0.2;

struct Gate {
    label: String,
    gated: bool,
    cell: WriteCell,
}

fn cell(protection: Protection, recovery: Recovery, loss: f64, options: &Options) -> WriteCell {
    WriteCell {
        protection,
        recovery,
        rtt: RTT,
        rate: RATE,
        port_rate: PORT_RATE,
        octets: OCTETS,
        outstanding: 1,
        loss: if loss > 0.0 {
            Loss::Uniform(loss)
        } else {
            Loss::None
        },
        back_loss: 0.0,
        calm: 0,
        warm: WARM,
        warm_budget: u64::MAX / 2,
        messages: options.size(WRITES),
        budget: u64::MAX / 2,
        seed: options.seed,
    }
}

fn gates(options: &Options) -> Vec<Gate> {
    let mut gates = Vec::new();
    for (endpoint, recovery) in ENDPOINTS {
        for loss in LOSSES {
            let strict = Protection::Crem(Box::new(with_block_epsilon(BLOCK_EPSILON)));
            let usual = Protection::Crem(Box::new(super::pair::roomy()));
            let gate = |kind: &str, gated, cell| Gate {
                label: format!("{kind}, {endpoint}, loss {loss:e}"),
                gated,
                cell,
            };
            let strict = cell(strict, recovery, loss, options);
            let mut printed = cell(usual, recovery, loss, options);
            printed.messages = options.size(WRITES / 10);
            let cold = WriteCell {
                warm: 0,
                messages: 100,
                ..strict.clone()
            };
            let acks = WriteCell {
                back_loss: loss,
                messages: options.size(WRITES / 10),
                ..strict.clone()
            };
            gates.push(gate("warm", true, strict));
            gates.push(gate("default target", false, printed));
            gates.push(gate("cold, first 100", false, cold));
            gates.push(gate("loss both ways", false, acks));
        }
    }
    gates.retain(|gate| options.wants(&gate.label));
    gates
}

/// Runs the gates.
pub fn run(options: &Options) -> io::Result<bool> {
    let mut report = Report::new("writes");
    let lossless: Vec<_> = ENDPOINTS
        .iter()
        .map(|(_, recovery)| {
            let mut bare = cell(Protection::Bare, *recovery, 0.0, options);
            bare.messages = 200;
            let result = bare.run();
            (*recovery, result.mean(), result.quantile(0.999))
        })
        .collect();
    let gates = gates(options);
    let results = on_threads(options.threads, &gates, |gate| gate.cell.run());
    for (gate, result) in gates.iter().zip(&results) {
        let base = lossless.iter().find(|base| base.0 == gate.cell.recovery);
        let (mean, tail) = base.map_or((f64::NAN, f64::NAN), |base| (base.1, base.2));
        judge(&mut report, gate, result, mean, tail);
    }
    report.finish(options)
}

fn judge(report: &mut Report, gate: &Gate, result: &WriteResult, mean: f64, tail: f64) {
    let (m, k) = result.shape.unwrap_or_default();
    let ratio = (result.mean() / mean, result.quantile(0.999) / tail);
    println!(
        "{}: {} WRITEs, mean {:.3} ms ({:.3}), p99.9 {:.3} ms ({:.3}), repair {:.4}, sent again {}, m {m} k {k}",
        gate.label,
        result.times.len(),
        result.mean() * 1e3,
        ratio.0,
        result.quantile(0.999) * 1e3,
        ratio.1,
        result.overhead(),
        result.again,
    );
    println!("  adaptation {}", adaptation(&result.csf));
    report.figures(
        gate.label.clone(),
        json!({
            "writes": result.times.len(),
            "mean_ms": result.mean() * 1e3,
            "p99_ms": result.quantile(0.99) * 1e3,
            "p999_ms": result.quantile(0.999) * 1e3,
            "mean_ratio": ratio.0,
            "p999_ratio": ratio.1,
            "repair": result.overhead(),
            "ordinary": result.tally.ordinary,
            "coded": result.tally.coded,
            "copies": result.tally.copies,
            "infos": result.tally.infos,
            "packets": result.packets,
            "lost": result.tally.sources_lost,
            "sent_again": result.again,
            "failed": result.failed,
            "m": m,
            "k": k,
            "adaptation": adaptation(&result.csf),
        }),
    );
    if gate.gated {
        let label = |what: &str| format!("{what} ({})", gate.label);
        report.check(Check::at_most(label("mean over lossless"), ratio.0, MEAN));
        report.check(Check::at_most(label("p99.9 over lossless"), ratio.1, TAIL));
        report.check(Check::at_most(label("repair"), result.overhead(), REPAIR));
    }
}
