//! Many worlds: seeds over threads, what they came to, and whether that is enough.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use crate::coverage::{Coverage, Entry};
use crate::frame::Mode;
use crate::scenario;
use crate::world::{Outcome, World};

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The first seed.
    pub first: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// From one seed to the next.
    pub every: u64,
    /// Of those, so many are run with octets as well and must come to the same.
    pub equal: u64,
    /// Threads.
    pub threads: usize,
    /// Packets that all seeds together have to carry.
    pub packets: u64,
    /// Everything that can occur has to.
    pub complete: bool,
    /// The world of many flows as well.
    pub many: bool,
}

impl Plan {
    /// Every directed scenario once, from the seed `first` on, a multiple of [`scenario::DIRECTED`].
    pub const fn directed(self, first: u64) -> Self {
        Self {
            first,
            seeds: scenario::KINDS,
            every: scenario::DIRECTED,
            ..self
        }
    }
}

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct Failed {
    /// The seed.
    pub seed: u64,
    /// The scenario's name.
    pub name: String,
    /// Rules that were broken.
    pub violations: Vec<String>,
    /// It failed with octets only.
    pub octets: bool,
    /// It is the world of many flows.
    pub many: bool,
}

impl Failed {
    /// The command that repeats it.
    pub fn command(&self) -> String {
        if self.many {
            return "make sim SEED=many".into();
        }
        let octets = if self.octets {
            " SIMFLAGS=--octets"
        } else {
            ""
        };
        format!("make sim SEED={}{octets}", self.seed)
    }
}

/// What all seeds came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Seeds run.
    pub seeds: u64,
    /// Packets that hosts sent, those of octet mode not counted.
    pub packets: u64,
    /// Packets restored and delivered.
    pub restored: u64,
    /// Seeds that came to the same with and without octets.
    pub equal: u64,
    /// Seeds that failed, in order.
    pub failed: Vec<Failed>,
    /// What occurred.
    pub coverage: Coverage,
    /// What is missing, in words.
    pub missing: Vec<String>,
    /// The world of many flows, if it was run.
    pub many: Option<Many>,
}

/// What the world of many flows came to.
#[derive(Clone, Copy, Debug)]
pub struct Many {
    /// Flows protected at the end.
    pub flows: usize,
    /// Octets of state a flow at the sender and at the receiver, packets aside.
    pub state: [u64; 2],
    /// LOSS_REPORTs a second of virtual time.
    pub reports: u64,
    /// Time it took to run.
    pub seconds: f64,
}

impl Many {
    fn of(outcome: &Outcome, seconds: f64) -> Self {
        let reports = outcome.coverage.counted("crf", "reports") as f64;
        Self {
            flows: outcome.protected,
            state: outcome.state.octets,
            reports: (reports / outcome.took.as_secs_f64()) as u64,
            seconds,
        }
    }
}

impl fmt::Display for Many {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [sender, receiver] = self.state;
        write!(f, "flows={} state={sender}/{receiver}", self.flows)
    }
}

impl Report {
    /// Whether everything is as it has to be.
    pub fn is_ok(&self) -> bool {
        self.failed.is_empty() && self.missing.is_empty()
    }

    /// The report as a document.
    pub fn to_json(&self) -> Value {
        let entry = |e: &Entry| json!({"name": e.name, "count": e.count, "excused": e.excused});
        let failed = |f: &Failed| {
            json!({
                "seed": f.seed, "name": f.name, "octets": f.octets, "command": f.command(),
                "violations": f.violations,
            })
        };
        json!({
            "status": if self.is_ok() { "ok" } else { "short" },
            "seeds": self.seeds,
            "packets": self.packets,
            "restored": self.restored,
            "equal_in_octets": self.equal,
            "many_flows": self.many.map(|many| json!({
                "flows": many.flows,
                "state_per_flow_sender": many.state[0],
                "state_per_flow_receiver": many.state[1],
                "state_limit": scenario::many::STATE,
                "reports_per_second": many.reports,
                "seconds": many.seconds,
            })),
            "failed": self.failed.iter().map(failed).collect::<Vec<_>>(),
            "missing": self.missing,
            "coverage": self.coverage.entries().iter().map(entry).collect::<Vec<_>>(),
        })
    }

    /// The last line.
    pub fn verdict(&self) -> String {
        let (seeds, packets) = (self.seeds, self.packets);
        let many = self.many.map_or(String::new(), |many| format!(" {many}"));
        if self.is_ok() {
            return format!("sim: ok seeds={seeds} packets={packets}{many}");
        }
        let (failed, missing) = (self.failed.len(), self.missing.len());
        format!(
            "sim: short seeds={seeds} packets={packets} failed={failed} missing={missing}{many}"
        )
    }
}

/// Runs one seed.
pub fn run_seed(seed: u64, mode: Mode, trace: bool) -> Outcome {
    let mut scenario = scenario::of(seed, mode);
    scenario.trace = trace;
    World::run(scenario)
}

/// Runs all seeds of a plan.
pub fn run(plan: &Plan) -> Report {
    let report = Mutex::new(Report::default());
    run_all(plan, &report);
    if plan.complete {
        go_on(plan, &report);
    }
    let mut report = report.into_inner().unwrap_or_default();
    report.failed.sort_by_key(|failed| failed.seed);
    judge(plan, &mut report);
    report
}

/// Each directed scenario once more, if something that can occur never did: together they meet whatever drawn
/// worlds meet by luck.
fn go_on(plan: &Plan, report: &Mutex<Report>) {
    let lacks = |report: &Report| report.coverage.entries().iter().any(Entry::is_missing);
    if !report.lock().is_ok_and(|report| lacks(&report)) {
        return;
    }
    let next = (plan.first + plan.seeds * plan.every).next_multiple_of(scenario::DIRECTED);
    run_all(
        &Plan {
            equal: 0,
            many: false,
            ..plan.directed(next)
        },
        report,
    );
}

fn run_all(plan: &Plan, report: &Mutex<Report>) {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..plan.threads.max(1) {
            let next = &next;
            scope.spawn(move || {
                if plan.many && thread == 0 {
                    many(report);
                }
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= plan.seeds {
                        return;
                    }
                    let seed = plan.first + number * plan.every;
                    one(seed, number < plan.equal, report);
                }
            });
        }
    });
}

/// The world of many flows.
pub fn run_many(trace: bool) -> (Outcome, Many) {
    let start = Instant::now();
    let mut scenario = scenario::many::many();
    scenario.trace = trace;
    let outcome = World::run(scenario);
    let many = Many::of(&outcome, start.elapsed().as_secs_f64());
    (outcome, many)
}

fn many(report: &Mutex<Report>) {
    let (outcome, many) = run_many(false);
    let Ok(mut report) = report.lock() else {
        return;
    };
    report.packets += outcome.packets;
    report.restored += outcome.sums.restored;
    report.coverage.merge(&outcome.coverage);
    report.many = Some(many);
    if outcome.broken > 0 {
        report.failed.push(Failed {
            seed: outcome.seed,
            name: outcome.name.clone(),
            violations: outcome.violations,
            octets: false,
            many: true,
        });
    }
}

/// One seed, with octets too if asked for.
fn one(seed: u64, with_octets: bool, report: &Mutex<Report>) {
    let outcome = run_seed(seed, Mode::Rank, false);
    let octets = with_octets.then(|| run_seed(seed, Mode::Octets, false));
    let Ok(mut report) = report.lock() else {
        return;
    };
    report.seeds += 1;
    report.packets += outcome.packets;
    report.restored += outcome.sums.restored;
    report.coverage.merge(&outcome.coverage);
    let failure = |outcome: &Outcome, octets: bool| Failed {
        seed,
        name: outcome.name.clone(),
        violations: outcome.violations.clone(),
        octets,
        many: false,
    };
    if outcome.broken > 0 {
        report.failed.push(failure(&outcome, false));
    } else if let Some(octets) = octets {
        let mut failed = failure(&octets, true);
        if octets.digest != outcome.digest {
            let (rank, full) = (outcome.digest, octets.digest);
            let what =
                format!("with octets other things happen: digest {full:x}, without {rank:x}");
            failed.violations.push(what);
        }
        if failed.violations.is_empty() {
            report.equal += 1;
        } else {
            report.failed.push(failed);
        }
    }
}

/// What is missing.
fn judge(plan: &Plan, report: &mut Report) {
    let equal = plan.equal.min(plan.seeds);
    if report.equal < equal {
        let what = format!("{} of {equal} seeds are the same with octets", report.equal);
        report.missing.push(what);
    }
    if report.packets < plan.packets {
        let what = format!("{} packets, {} wanted", report.packets, plan.packets);
        report.missing.push(what);
    }
    if plan.complete {
        let entries = report.coverage.entries();
        let never = entries.iter().filter(|entry| entry.is_missing());
        report
            .missing
            .extend(never.map(|e| format!("never: {}", e.name)));
        let excused = entries
            .iter()
            .filter(|e| e.count > 0 && e.excused.is_some());
        let wrong = excused.map(|e| format!("said not to occur, but did: {}", e.name));
        report.missing.extend(wrong);
    }
}
