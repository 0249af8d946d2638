//! The program `sim`: arguments, printing, exit status. What it runs lives in the library.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use crem_sim::coverage::Entry;
use crem_sim::frame::Mode;
use crem_sim::runner::{Plan, Report, run, run_many, run_seed};
use crem_sim::world::Outcome;

/// Gateways, hosts and networks in virtual time, with checkers on every step.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Many seeds.
    Seeds {
        /// How many.
        seeds: u64,
        /// The first one.
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// From one seed to the next; with 4, and 4 the first, all are directed at something rare.
        #[arg(long, default_value_t = 1)]
        every: u64,
        /// So many of them also with octets.
        #[arg(long, default_value_t = 0)]
        equal: u64,
        /// Packets that they have to carry together.
        #[arg(long, default_value_t = 0)]
        packets: u64,
        /// Fail if something that can occur never did.
        #[arg(long)]
        complete: bool,
        /// The world of ten thousand flows as well.
        #[arg(long)]
        many: bool,
        /// Where to write the report.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// One seed.
    Seed {
        /// Which.
        seed: u64,
        /// With octets.
        #[arg(long)]
        octets: bool,
        /// Print every message between the gateways.
        #[arg(long)]
        trace: bool,
    },
    /// The world of ten thousand flows.
    Many {
        /// Print every message between the gateways.
        #[arg(long)]
        trace: bool,
    },
}

fn main() -> ExitCode {
    match Arguments::parse().what {
        What::Seed {
            seed,
            octets,
            trace,
        } => one(seed, octets, trace),
        What::Many { trace } => many_flows(trace),
        What::Seeds {
            seeds,
            first,
            every,
            equal,
            packets,
            complete,
            many: with_many,
            json,
        } => {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            let plan = Plan {
                first,
                seeds,
                every,
                equal,
                threads,
                packets,
                complete,
                many: with_many,
            };
            many(&plan, json)
        }
    }
}

fn one(seed: u64, octets: bool, trace: bool) -> ExitCode {
    let mode = if octets { Mode::Octets } else { Mode::Rank };
    let start = Instant::now();
    let outcome = run_seed(seed, mode, trace);
    println!(
        "seed {seed} ({}): {} packets in {:?}, {:?} of virtual time, {} connections not done",
        outcome.name,
        outcome.packets,
        start.elapsed(),
        outcome.took,
        outcome.unfinished
    );
    println!("{:?}", outcome.sums);
    println!(
        "longest hold {:?}, digest {:x}",
        outcome.held, outcome.digest
    );
    judge(&outcome, &format!("seed={seed}"))
}

fn many_flows(trace: bool) -> ExitCode {
    let (outcome, many) = run_many(trace);
    println!(
        "{}: {} packets in {:.1} s, {:?} of virtual time, {} LOSS_REPORTs a second",
        outcome.name, outcome.packets, many.seconds, outcome.took, many.reports
    );
    println!("{:?}", outcome.sums);
    judge(&outcome, &many.to_string())
}

/// The last lines about one world.
fn judge(outcome: &Outcome, what: &str) -> ExitCode {
    for violation in &outcome.violations {
        println!("BROKEN {violation}");
    }
    if outcome.broken == 0 {
        println!("sim: ok {what}");
        ExitCode::SUCCESS
    } else {
        println!("sim: short {what} broken={}", outcome.broken);
        ExitCode::FAILURE
    }
}

fn many(plan: &Plan, json: Option<PathBuf>) -> ExitCode {
    let start = Instant::now();
    let report = run(plan);
    print(&report, start);
    if let Some(path) = json {
        let written = serde_json::to_string_pretty(&report.to_json())
            .map_err(std::io::Error::other)
            .and_then(|text| std::fs::write(&path, text));
        if let Err(error) = written {
            println!("sim: short cannot write {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    println!("{}", report.verdict());
    if report.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn print(report: &Report, start: Instant) {
    println!("coverage ('-' cannot occur, '!' never did):");
    for Entry {
        name,
        count,
        excused,
    } in report.coverage.entries()
    {
        let mark = match (count, excused) {
            (0, Some(_)) => "-",
            (0, None) => "!",
            _ => " ",
        };
        println!("{mark} {count:>12}  {name}");
    }
    for failed in &report.failed {
        println!(
            "seed {} ({}) failed; repeat with: {}",
            failed.seed,
            failed.name,
            failed.command()
        );
        for violation in &failed.violations {
            println!("    {violation}");
        }
    }
    for missing in &report.missing {
        println!("missing: {missing}");
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} seeds, {} of them with octets as well; {} packets, {} restored; {:.0} s, {:.0} packets/s",
        report.seeds,
        report.equal,
        report.packets,
        report.restored,
        seconds,
        report.packets as f64 / seconds
    );
}
