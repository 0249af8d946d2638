//! The demonstration: the same transfer bare, protected, and protected without loss.

use super::Failure;
use super::check::{Finding, formula_mbit, packet_rate};
use super::report::{Outcome, RunReport, print, save};
use super::run::{Context, run};
use super::spec::{Mode, Scenario};

/// The scenario of the demonstration.
const DEMO: &str = include_str!("../../scenarios/demo.toml");

/// Protected goodput over bare, at least.
const MIN_RATIO: f64 = 3.0;
/// Protected goodput over lossless, at least.
const MIN_OF_LOSSLESS: f64 = 0.8;
/// How far bare may be from the formula.
const FORMULA_WITHIN: f64 = 0.3;

/// Runs the demonstration, prints the table and saves `demo.json`. True if every target was met.
///
/// # Errors
/// It could not be carried out.
pub fn demo(context: &Context) -> Result<bool, Failure> {
    let scenario = Scenario::parse(DEMO)?;
    println!("{}", scenario.about);
    let mut outcome = Outcome {
        name: scenario.name.clone(),
        ..Outcome::default()
    };
    for mode in [Mode::Passthrough, Mode::Active, Mode::Lossless] {
        println!("running {} …", mode.name());
        let mut report = run(context, &scenario, mode)?;
        if mode == Mode::Passthrough {
            "bare".clone_into(&mut report.mode);
        }
        outcome.runs.push(report);
    }
    let figures = Figures::of(&scenario, &outcome).ok_or("a run is missing")?;
    outcome.findings = figures.findings();
    print(&outcome);
    print_formula(&scenario, &figures);
    save(&outcome, &context.results)?;
    println!("{}", figures.line(outcome.ok()));
    Ok(outcome.ok())
}

/// The figures that the targets are about.
struct Figures {
    bare: f64,
    protected: f64,
    lossless: f64,
    formula: f64,
    wrong: u64,
    complete: bool,
    exact: bool,
}

impl Figures {
    fn of(scenario: &Scenario, outcome: &Outcome) -> Option<Self> {
        let goodput = |mode: &str| outcome.run(mode).map(RunReport::goodput_mbit);
        let whole = |run: &RunReport| run.flows.iter().all(|flow| flow.requester.completed);
        let exact = |run: &RunReport| {
            run.a_to_b.foreign + run.b_to_a.foreign + run.capture_drops + run.crem_at_hosts == 0
        };
        Some(Self {
            bare: goodput("bare")?,
            protected: goodput("protected")?,
            lossless: goodput("lossless")?,
            formula: scenario
                .flow
                .iter()
                .map(|flow| formula_mbit(scenario, flow))
                .sum(),
            wrong: outcome.runs.iter().map(RunReport::bytes_wrong).sum(),
            complete: outcome.runs.iter().all(whole),
            exact: outcome.runs.iter().all(exact),
        })
    }

    fn ratio(&self) -> f64 {
        if self.bare > 0.0 {
            self.protected / self.bare
        } else {
            0.0
        }
    }

    fn of_lossless(&self) -> f64 {
        if self.lossless > 0.0 {
            self.protected / self.lossless
        } else {
            0.0
        }
    }

    fn of_formula(&self) -> f64 {
        self.bare / self.formula
    }

    fn findings(&self) -> Vec<Finding> {
        let (ratio, lossless, formula) = (self.ratio(), self.of_lossless(), self.of_formula());
        vec![
            Finding::new(self.complete, "every transfer completed".to_owned()),
            Finding::new(self.wrong == 0, format!("bytes wrong {}", self.wrong)),
            Finding::new(
                self.exact,
                "every RoCEv2 frame delivered equals one that was sent".to_owned(),
            ),
            Finding::new(
                ratio >= MIN_RATIO,
                format!("protected is {ratio:.2} times bare, at least {MIN_RATIO}"),
            ),
            Finding::new(
                lossless >= MIN_OF_LOSSLESS,
                format!("protected is {lossless:.2} of lossless, at least {MIN_OF_LOSSLESS}"),
            ),
            Finding::new(
                (formula - 1.0).abs() <= FORMULA_WITHIN,
                format!("bare is {formula:.2} of the go-back-N formula, within {FORMULA_WITHIN}"),
            ),
        ]
    }

    fn line(&self, ok: bool) -> String {
        format!(
            "demo: {} ratio={:.2} of_lossless={:.2} of_formula={:.2} bytes_wrong={}",
            if ok { "ok" } else { "short" },
            self.ratio(),
            self.of_lossless(),
            self.of_formula(),
            self.wrong
        )
    }
}

fn print_formula(scenario: &Scenario, figures: &Figures) {
    let Some(flow) = scenario.flow.first() else {
        return;
    };
    let loss = scenario.wan.a_to_b.loss.mean();
    let in_rtt = packet_rate(scenario, flow) * scenario.rtt_us() as f64 / 1e6;
    println!(
        "go-back-N: (1-p)/(1-p+p*W) of the rate, p = {loss}, W = {in_rtt:.0} packets a round trip: {:.1} Mbit/s",
        figures.formula
    );
}
