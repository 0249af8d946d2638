//! `bench-dataplane`: what a packet costs the real pipeline on one core, from memory ports and memory that
//! no cache holds. Prints a table and the targets, writes JSON.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use crem_bench_dataplane::alone::Alone;
use crem_bench_dataplane::crew::Crew;
use crem_bench_dataplane::latency::{self, Latency};
use crem_bench_dataplane::leaving::{self, Many};
use crem_bench_dataplane::report::{Target, latency_targets, line, targets, to_json};
use crem_bench_dataplane::rows::{self, Plan, Pools, Row, STEPS, measure, needed_mb, plans};
use crem_bench_dataplane::testpmd::{self, Forwarded};
use crem_bench_dataplane::timing::tsc_per_ns;
use crem_dpdk::{Clock, Eal, EalConfig, Memory};
use serde_json::{Value, json};

const USAGE: &str = "usage: bench-dataplane [--json PATH] [--cpu N] [--check] [--counters] [--steps N] [--only \"WORDS\"]…
--steps is for how long each is measured; --only measures the worlds with a row whose title has all these words; several: any of them; \"testpmd\" runs DPDK's own";
/// Memory besides the pools, MB.
const OVERHEAD_MB: u32 = 64;
/// Rows of which the time in the gateway is measured too.
const LATENCIES: [&str; 2] = ["csf 4KiB m=2 flows=64", "csf 1KiB m=2 flows=64"];

struct Options {
    json: PathBuf,
    cpu: Option<u32>,
    check: bool,
    counters: bool,
    /// Steps of the world that are measured.
    steps: usize,
    only: Vec<Vec<String>>,
}

impl Options {
    fn wants_testpmd(&self) -> bool {
        self.only.is_empty() || self.only.iter().any(|words| *words == ["testpmd"])
    }

    /// Wherever senders are measured.
    fn wants_alone(&self) -> bool {
        let about = |words: &Vec<String>| words.iter().any(|word| word == "csf");
        self.only.is_empty() || self.only.iter().any(about)
    }

    fn wants(&self, plan: &Plan) -> bool {
        let has = |title: &str, words: &[String]| {
            let mut words = words.iter();
            words.all(|wanted| title.split(' ').any(|word| word == wanted))
        };
        let any = |title: &str| self.only.iter().any(|words| has(title, words));
        self.only.is_empty() || plan.rows.iter().any(|(_, title)| any(title))
    }
}

fn options(mut words: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options {
        json: "target/results/bench-dataplane.json".into(),
        cpu: None,
        check: false,
        counters: false,
        steps: STEPS,
        only: Vec::new(),
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => options.json = words.next()?.into(),
            "--cpu" => options.cpu = Some(words.next()?.parse().ok()?),
            "--steps" => options.steps = words.next()?.parse().ok()?,
            "--check" => options.check = true,
            "--counters" => options.counters = true,
            "--only" => {
                let wanted = words.next()?;
                let wanted = wanted.split(' ').map(str::to_owned);
                options.only.push(wanted.collect());
            }
            _ => return None,
        }
    }
    Some(options)
}

fn main() -> ExitCode {
    let Some(options) = options(env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-dataplane: {error}");
            ExitCode::from(2)
        }
    }
}

/// Everything that was measured.
#[derive(Default)]
struct Results {
    tsc_per_ns: f64,
    rows: Vec<Row>,
    failed: Vec<Value>,
    latencies: Vec<Latency>,
    forwarded: Vec<Forwarded>,
    alone: Vec<Alone>,
    many: Option<Many>,
}

fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let plans: Vec<Plan> = plans().into_iter().filter(|p| options.wants(p)).collect();
    let leaving = Some(rows::leaving()).filter(|plan| options.wants(plan));
    let all: Vec<Plan> = plans.iter().chain(&leaving).cloned().collect();
    let mut results = Results::default();
    if options.wants_testpmd() {
        results.forwarded = testpmd::run()?;
    }
    let eal = Eal::init(EalConfig {
        cpu: options.cpu,
        memory: Memory::Auto {
            mb: needed_mb(&all) + OVERHEAD_MB,
        },
        ..EalConfig::default()
    })?;
    let clock = Clock::new();
    results.tsc_per_ns = tsc_per_ns(&clock);
    println!(
        "TSC {:.4} per ns, memory {:?}",
        results.tsc_per_ns,
        eal.memory()
    );
    for run in &results.forwarded {
        println!("{}", run.line(results.tsc_per_ns));
    }
    let workers = plans.iter().map(|plan| plan.setting.workers).max();
    let others = usize::from(workers.unwrap_or(1)).saturating_sub(1);
    let crew = Crew::new(&eal, options.cpu, others)?;
    let pools = Pools::new(&eal, &all, crew)?;
    if options.wants_alone() {
        results.alone = pools.alone()?;
    }
    for alone in &results.alone {
        println!("{}", alone.line(results.tsc_per_ns));
    }
    for plan in &plans {
        if let Err(why) = results.add(plan, &pools, clock, options) {
            let titles: Vec<&str> = plan.rows.iter().map(|row| row.1.as_str()).collect();
            println!("{:40} FAILED: {why}", titles.join(", "));
            results.failed.push(json!({ "rows": titles, "why": why }));
        }
    }
    if let Some(plan) = &leaving {
        results.leave(plan, &pools, clock);
    }
    let met = results.finish(options)?;
    drop(pools);
    if let Err(e) = eal.shutdown() {
        eprintln!("bench-dataplane: {e}");
    }
    Ok(met)
}

impl Results {
    /// Measures a world, and how long packets are in the gateway where that is to be known.
    fn add(
        &mut self,
        plan: &Plan,
        pools: &Pools,
        clock: Clock,
        options: &Options,
    ) -> Result<(), String> {
        let rate = self.tsc_per_ns;
        for row in measure(plan, pools, clock, options.steps)? {
            println!("{}", line(&row, rate));
            if options.counters {
                let counts = row.counts.iter();
                counts.for_each(|(name, n)| println!("    {name} {n}"));
            }
            if LATENCIES.contains(&row.title.as_str()) {
                let ns = row.cost.mean / rate;
                let latency = latency::measure(plan, &row.title, ns, pools, clock, rate)?;
                println!("{}", latency.line());
                self.latencies.push(latency);
            }
            self.rows.push(row);
        }
        Ok(())
    }

    /// Measures leaving the mode; flows that were not told are a failure.
    fn leave(&mut self, plan: &Plan, pools: &Pools, clock: Clock) {
        let many = match leaving::measure(plan, pools, clock) {
            Ok(many) => many,
            Err(why) => {
                println!("{:40} FAILED: {why}", "leaving");
                self.failed.push(json!({ "rows": ["leaving"], "why": why }));
                return;
            }
        };
        println!("{}", many.line());
        for leaving in &many.leaving {
            println!("{}", leaving.line());
            if !leaving.is_right() {
                let why = json!({ "rows": [leaving.title], "why": "flows were not told" });
                self.failed.push(why);
            }
        }
        self.many = Some(many);
    }

    fn finish(&self, options: &Options) -> io::Result<bool> {
        let mut targets = targets(&self.rows, self.tsc_per_ns);
        targets.extend(self.latencies.iter().flat_map(latency_targets));
        println!();
        targets.iter().for_each(|t| println!("{}", t.line()));
        let missed = targets.iter().filter(|target| !target.met()).count();
        let ok = missed == 0 && self.failed.is_empty();
        println!(
            "bench-dataplane: {} rows={} failed={} targets={} missed={missed} tsc_per_ns={:.4}",
            if ok { "ok" } else { "short" },
            self.rows.len(),
            self.failed.len(),
            targets.len(),
            self.tsc_per_ns,
        );
        let rate = self.tsc_per_ns;
        let report = json!({
            "tsc_per_ns": rate,
            "testpmd": self.forwarded.iter().map(Forwarded::to_json).collect::<Vec<_>>(),
            "coding_alone": self.alone.iter().map(|alone| alone.to_json(rate)).collect::<Vec<_>>(),
            "rows": self.rows.iter().map(|row| to_json(row, rate)).collect::<Vec<_>>(),
            "many_flows": self.many.as_ref().map(Many::to_json),
            "latencies": self.latencies.iter().map(Latency::to_json).collect::<Vec<_>>(),
            "failed": self.failed,
            "targets": targets.iter().map(Target::to_json).collect::<Vec<_>>(),
        });
        write(&options.json, &report)?;
        Ok(ok || !options.check)
    }
}

fn write(path: &Path, report: &Value) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, format!("{report:#}\n"))
}
