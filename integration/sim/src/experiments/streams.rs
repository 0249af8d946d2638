//! Open-loop streams over a lossy path: what is missing after repair, and what the repair costs. Nothing
//! is sent again by the endpoints, so what did not arrive was not repaired.

use std::io;

use crem_core::config::CoreConfig;
use crem_core::csf::CsfCounters;
use serde_json::json;

use super::flow::{Flow, Sink, Traffic};
use super::pair::{Pair, PairConfig, Protection, roomy};
use super::report::adaptation;
use super::report::{Check, Report, on_threads};
use super::settings::Options;
use super::wire::Tally;
use super::writes::MTU;
use crate::endpoint::rc::OpenSource;
use crate::net::loss::Loss;
use crate::{Duration, Instant};

const RTT: Duration = Duration::from_millis(25);
const RATE: f64 = 25e9;
const PORT_RATE: f64 = 100e9;
/// Octets of a packet on the line.
const LINE: f64 = 4096.0 + 58.0 + 24.0;
const PACKETS: u64 = 20_000_000;
/// Steps of the loss, each at another time within a round trip.
const STEPS: u64 = 25;
const STEP_RATES: [f64; 2] = [5e9, 25e9];
const WARM: Duration = Duration::from_secs(2);

/// An open-loop flow at this rate, bit/s, until then.
pub fn open_flow(number: u16, start: Instant, rate: f64, until: Instant) -> Flow {
    let gap = LINE * 8e9 / rate;
    let first = u64::from(number % 64) * 100_003;
    Flow::new(
        number,
        Traffic::Open {
            source: OpenSource::new(start, first, MTU, gap, 64),
            sink: Sink::default(),
            until,
        },
    )
}

/// What came of a stream after it was warm.
#[derive(Clone, Debug)]
pub struct StreamResult {
    /// Packets sent.
    pub sent: u64,
    /// Packets that never arrived.
    pub missing: u64,
    /// What went toward the WAN.
    pub tally: Tally,
    /// Packets restored from ordinary symbols alone.
    pub by_fec: u64,
    /// Symbols a block and positions a block at the end.
    pub shape: (u8, u8),
    /// What the sender function counted in all.
    pub csf: CsfCounters,
}

impl StreamResult {
    fn raw(&self) -> f64 {
        self.tally.sources_lost as f64 / self.sent as f64
    }

    fn residual(&self) -> f64 {
        self.missing as f64 / self.sent as f64
    }

    fn after_fec(&self) -> f64 {
        self.tally.sources_lost.saturating_sub(self.by_fec) as f64 / self.sent as f64
    }

    fn ordinary(&self) -> f64 {
        self.tally.ordinary as f64 / self.sent as f64
    }

    fn repair(&self) -> f64 {
        self.tally.repair() as f64 / self.sent as f64
    }
}

/// Sends `packets` over a path with this loss after two seconds of warm-up with it.
pub fn stream(core: CoreConfig, loss: Loss, packets: u64, seed: u64) -> StreamResult {
    let protection = Protection::Crem(Box::new(core));
    let mut config = PairConfig::new(protection, RTT, PORT_RATE, seed);
    config.path.loss = loss;
    let start = Instant(1_000_000_000);
    let warm = start + WARM;
    let span = packets as f64 * LINE * 8.0 / RATE;
    let until = warm + Duration::from_secs_f64(span);
    let mut pair = Pair::new(config, vec![open_flow(0, start, RATE, until)]);
    pair.run_until(warm);
    let (before, from) = (pair.tally(), pair.flows[0].top());
    let fec_before = pair.counters().1.restored_ordinary;
    // What is under way at either end is a millionth of the whole.
    pair.run_until(until);
    let (tally, to) = (pair.tally().since(&before), pair.flows[0].top());
    pair.run_until(until + RTT * 12);
    let arrived = match &pair.flows[0].traffic {
        Traffic::Open { sink, .. } => sink.arrived(from, to),
        Traffic::Writes { .. } => 0,
    };
    let shape = pair.csf.flows().next().map_or((0, 0), |f| (f.m, f.k));
    StreamResult {
        sent: to - from,
        missing: to - from - arrived,
        tally,
        by_fec: pair.counters().1.restored_ordinary - fec_before,
        shape,
        csf: pair.csf.counters(),
    }
}

struct Case {
    label: &'static str,
    core: CoreConfig,
    loss: Loss,
    /// Bounds: residual, ordinary share, share of all repair, after FEC alone as a share of the raw loss.
    residual: f64,
    ordinary: Option<f64>,
    repair: Option<f64>,
    after_fec: Option<f64>,
}

/// At most five ordinary symbols for a hundred packets, these targets, and `rounds` coded rounds.
fn frugal(fec: Option<f64>, last: Option<f64>, rounds: u8) -> CoreConfig {
    let mut core = roomy();
    core.fec.repair_share_permille = 50;
    (core.fec.targets.fec, core.fec.targets.last) = (fec, last);
    (core.fec.targets.rounds, core.crf.rounds) = (rounds, rounds);
    core.crf.fallback = false;
    core
}

fn cases() -> Vec<Case> {
    let bursts = |burst| Loss::Bursts { rate: 0.01, burst };
    let case = |label, core, loss| Case {
        label,
        core,
        loss,
        residual: 1e-5,
        ordinary: None,
        repair: Some(0.065),
        after_fec: None,
    };
    vec![
        Case {
            ordinary: Some(0.05),
            repair: None,
            ..case(
                "2 % uniform, one round",
                frugal(None, Some(1e-5), 1),
                Loss::Uniform(0.02),
            )
        },
        Case {
            ordinary: Some(0.05),
            after_fec: Some(0.6),
            ..case(
                "1 % in bursts of 4",
                frugal(Some(0.005), None, 2),
                bursts(4.0),
            )
        },
        Case {
            ordinary: Some(0.05),
            after_fec: Some(0.9),
            ..case(
                "1 % in bursts of 10",
                frugal(Some(0.005), None, 2),
                bursts(10.0),
            )
        },
        case(
            "1 % in bursts of 40",
            frugal(None, Some(1e-5), 2),
            bursts(40.0),
        ),
    ]
}

/// Residual loss and repair at given losses; then a step of the loss, and a clean path.
pub fn run(options: &Options) -> io::Result<bool> {
    let mut report = Report::new("residual");
    let mut cases = cases();
    cases.retain(|case| options.wants(case.label));
    let packets = options.size(PACKETS);
    let results = on_threads(options.threads, &cases, |case| {
        stream(case.core.clone(), case.loss.clone(), packets, options.seed)
    });
    for (case, result) in cases.iter().zip(&results) {
        judge(&mut report, case, result);
    }
    if options.wants("loss step") {
        for rate in STEP_RATES {
            step(&mut report, rate, options);
        }
    }
    if options.wants("clean path") {
        clean(&mut report, packets / 4, options.seed);
    }
    report.finish(options)
}

fn judge(report: &mut Report, case: &Case, result: &StreamResult) {
    let label = case.label;
    println!(
        "{label}: {} packets, lost {:.3e}, after FEC {:.3e}, residual {:.3e} ({}), ordinary {:.4}, all repair {:.4}, (m, k) {:?}",
        result.sent,
        result.raw(),
        result.after_fec(),
        result.residual(),
        result.missing,
        result.ordinary(),
        result.repair(),
        result.shape,
    );
    println!("  adaptation {}", adaptation(&result.csf));
    report.figures(
        label,
        json!({
            "packets": result.sent,
            "lost": result.raw(),
            "after_fec": result.after_fec(),
            "residual": result.residual(),
            "missing": result.missing,
            "ordinary": result.ordinary(),
            "coded": result.tally.coded,
            "repair": result.repair(),
            "m": result.shape.0,
            "k": result.shape.1,
            "adaptation": adaptation(&result.csf),
        }),
    );
    let name = |what: &str| format!("{what} ({label})");
    report.check(Check::at_most(
        name("residual"),
        result.residual(),
        case.residual,
    ));
    if let Some(bound) = case.ordinary {
        report.check(Check::at_most(
            name("ordinary repair"),
            result.ordinary(),
            bound,
        ));
    }
    if let Some(bound) = case.repair {
        report.check(Check::at_most(name("all repair"), result.repair(), bound));
    }
    if let Some(bound) = case.after_fec {
        let share = result.after_fec() / result.raw();
        report.check(Check::at_most(name("after FEC over raw"), share, bound));
    }
}

/// How soon a step of the loss is answered by symbols, in RTT after the first lost packet.
fn step(report: &mut Report, rate: f64, options: &Options) {
    let runs: Vec<_> = (0..STEPS).map(|run| options.seed + run).collect();
    let all = on_threads(options.threads, &runs, |seed| step_once(rate, *seed));
    let worst = all.iter().copied().fold(0.0, f64::max);
    let label = format!("loss step 1e-6 to 1e-2 at {} Gbit/s", rate / 1e9);
    println!("{label}: RTT until symbols, at {STEPS} times: {all:.2?}");
    report.figures(format!("{label}, RTT until symbols"), json!(all));
    // Five RTT and the reordering allowance, at its lower bound.
    let bound = 5.0 + 100e-6 / RTT.as_secs_f64();
    report.check(Check::at_most(
        format!("RTT from the first loss to symbols ({label})"),
        worst,
        bound,
    ));
}

fn step_once(rate: f64, seed: u64) -> f64 {
    let protection = Protection::Crem(Box::new(roomy()));
    let mut config = PairConfig::new(protection, RTT, PORT_RATE, seed);
    config.path.loss = Loss::Uniform(1e-6);
    let start = Instant(1_000_000_000);
    let at = start + WARM + RTT * (seed % STEPS) as u32 / STEPS as u32;
    let until = at + RTT * 40;
    let mut pair = Pair::new(config, vec![open_flow(0, start, rate, until)]);
    pair.run_until(at);
    let before = pair.tally();
    pair.path().set_loss(Loss::Uniform(1e-2));
    pair.run_while(|p| p.tally().sources_lost == before.sources_lost);
    let first = pair.now();
    // One loss in a million may have earned a symbol before.
    let protected = |p: &Pair| p.csf.flows().any(|f| f.m > 0);
    pair.run_while(|p| !protected(p) && p.now() < until);
    pair.now().since(first).as_secs_f64() / RTT.as_secs_f64()
}

fn clean(report: &mut Report, packets: u64, seed: u64) {
    for (label, loss) in [
        ("clean path", Loss::None),
        ("loss 1e-6", Loss::Uniform(1e-6)),
    ] {
        let result = stream(roomy(), loss, packets, seed);
        let infos = result.tally.infos as f64 / result.sent as f64;
        println!(
            "{label}: {} packets, symbols {:.6}, INFO {infos:.6}",
            result.sent,
            result.repair()
        );
        report.figures(
            label,
            json!({ "packets": result.sent, "symbols": result.repair(), "infos": infos }),
        );
        if label == "clean path" {
            report.check(Check::at_most(
                "symbols on a clean path",
                result.repair(),
                1e-3,
            ));
        }
    }
}
