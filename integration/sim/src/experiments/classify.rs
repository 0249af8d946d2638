//! What the sender function takes losses for, against what they are: a confusion matrix over many drawn
//! paths.

use std::io;

use serde_json::json;

use super::pair::{Pair, PairConfig, Protection, roomy};
use super::report::{Check, Report, on_threads};
use super::settings::Options;
use super::streams::open_flow;
use crate::net::loss::Loss;
use crate::net::queue::{CrossConfig, Marking, QueueConfig};
use crate::rng::{Rng, mix};
use crate::{Duration, Instant};

const RATE: f64 = 2e9;
const FLOWS: u16 = 4;
const RUNS: u64 = 24;
const PORT_RATE: f64 = 100e9;
const WARM: Duration = Duration::from_secs(3);
const TIME: Duration = Duration::from_secs(9);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    EcnQueue,
    ReportedDrop,
    Uniform,
    Bursts,
    BackgroundCe,
    SelfInduced,
}

const KINDS: [Kind; 6] = [
    Kind::EcnQueue,
    Kind::ReportedDrop,
    Kind::Uniform,
    Kind::Bursts,
    Kind::BackgroundCe,
    Kind::SelfInduced,
];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::EcnQueue => "ECN queue",
            Kind::ReportedDrop => "tail drop with path report",
            Kind::Uniform => "uniform loss",
            Kind::Bursts => "bursts",
            Kind::BackgroundCe => "loss with 0.5 % background CE",
            Kind::SelfInduced => "tail drop by self-induced loss alone",
        }
    }

    fn is_congestion(self) -> bool {
        matches!(
            self,
            Kind::EcnQueue | Kind::ReportedDrop | Kind::SelfInduced
        )
    }

    fn recall(self) -> f64 {
        if self == Kind::SelfInduced { 0.8 } else { 0.95 }
    }
}

/// Lost packets by the verdict at the time when they were reported.
#[derive(Clone, Copy, Default, Debug)]
struct Verdicts {
    transmission: u64,
    congestion: u64,
}

impl Verdicts {
    fn all(&self) -> u64 {
        self.transmission + self.congestion
    }

    fn add(&mut self, other: &Self) {
        self.transmission += other.transmission;
        self.congestion += other.congestion;
    }

    /// Share of right verdicts.
    fn right(&self, kind: Kind) -> f64 {
        let right = if kind.is_congestion() {
            self.congestion
        } else {
            self.transmission
        };
        right as f64 / self.all().max(1) as f64
    }
}

/// A full queue: the flows' load is a little too much, or, with `others`, other traffic peaks.
fn queue(marking: Marking, others: bool, rng: &mut Rng) -> (QueueConfig, f64) {
    let room = (RATE / 8.0 * rng.log_between(0.001, 0.01)) as u64;
    let marking = match marking {
        Marking::Off => Marking::Off,
        _ => Marking::Ramp {
            low: room / 10,
            high: room / 2,
            at_high: 0.3,
        },
    };
    let cross = (others && rng.chance(0.5)).then(|| CrossConfig {
        rate: RATE * 0.3,
        peak: RATE * 0.9,
        burst: Duration::from_millis(rng.between(1, 20)),
    });
    let load = if cross.is_some() {
        0.7
    } else {
        1.005 + rng.unit() * 0.045
    };
    let config = QueueConfig {
        rate: RATE,
        capacity: room,
        marking,
        cross,
    };
    (config, load)
}

fn world(kind: Kind, seed: u64) -> (PairConfig, f64) {
    let mut rng = Rng::new(mix(seed ^ (kind as u64) << 32));
    let rtt = Duration::from_secs_f64(rng.log_between(0.005, 0.05));
    let core = roomy();
    let mut config = PairConfig::new(Protection::Crem(Box::new(core)), rtt, PORT_RATE, seed);
    config.poll = Duration::from_micros(50);
    let rate = rng.log_between(1e-3, 0.03);
    let mut load = 0.4;
    match kind {
        Kind::EcnQueue => {
            let (queue, wanted) = queue(Marking::Step(0), true, &mut rng);
            (config.path.queue, load) = (Some(queue), wanted);
        }
        Kind::ReportedDrop | Kind::SelfInduced => {
            // Only what rises with the repair shows without marks and reports: not the peaks of others.
            let others = kind == Kind::ReportedDrop;
            let (queue, wanted) = queue(Marking::Off, others, &mut rng);
            (config.path.queue, load) = (Some(queue), wanted);
            config.path_reports = kind == Kind::ReportedDrop;
        }
        Kind::Uniform => config.path.loss = Loss::Uniform(rate),
        Kind::Bursts => {
            let burst = rng.log_between(2.0, 40.0);
            config.path.loss = Loss::Bursts { rate, burst };
        }
        Kind::BackgroundCe => {
            config.path.loss = Loss::Uniform(rate);
            config.path.mark = 0.005;
        }
    }
    (config, load)
}

fn run_one(kind: Kind, seed: u64) -> Verdicts {
    let (config, load) = world(kind, seed);
    let start = Instant(1_000_000_000);
    let end = start + WARM + TIME;
    let rate = load * RATE / f64::from(FLOWS);
    let flows = (0..FLOWS).map(|n| open_flow(n, start, rate, end)).collect();
    let mut pair = Pair::new(config, flows);
    pair.run_until(start + WARM);
    let before = pair.counters().0;
    pair.run_until(end);
    let after = pair.counters().0;
    Verdicts {
        transmission: after.lost_transmission - before.lost_transmission,
        congestion: after.lost_congestion - before.lost_congestion,
    }
}

/// The confusion matrix.
pub fn run(options: &Options) -> io::Result<bool> {
    let mut report = Report::new("classify");
    let runs = options.size(RUNS);
    let wanted = KINDS.iter().filter(|kind| options.wants(kind.name()));
    let cells: Vec<_> = wanted
        .flat_map(|kind| (0..runs).map(|n| (*kind, options.seed + n)))
        .collect();
    let results = on_threads(options.threads, &cells, |(kind, seed)| {
        run_one(*kind, *seed)
    });
    println!("lost packets by verdict: transmission, congestion");
    for kind in KINDS {
        let mut sum = Verdicts::default();
        let (mut right, mut count, mut share) = (0, 0, 0.0);
        for ((_, seed), result) in cells.iter().zip(&results).filter(|(c, _)| c.0 == kind) {
            sum.add(result);
            count += 1;
            share += result.right(kind);
            right += u64::from(result.right(kind) > 0.5);
            if result.right(kind) < kind.recall() {
                println!("  seed {seed}: {}: {result:?}", kind.name());
            }
        }
        if count > 0 {
            let recall = share / count as f64;
            judge(&mut report, kind, &sum, recall, (right, count));
        }
    }
    report.finish(options)
}

fn judge(report: &mut Report, kind: Kind, sum: &Verdicts, recall: f64, (right, count): (u64, u64)) {
    let name = kind.name();
    println!(
        "{name:40} {:9} {:9}  paths right {right} of {count}",
        sum.transmission, sum.congestion
    );
    report.figures(
        name,
        json!({
            "transmission": sum.transmission,
            "congestion": sum.congestion,
            "paths": count,
            "paths_right": right,
        }),
    );
    let what = format!("recall ({name})");
    report.check(Check::at_least(what, recall, kind.recall()));
}
