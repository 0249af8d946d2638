//! `scenario FILE…`, `scenario all`, `scenario demo`: runs scenarios in network namespaces and judges
//! them. Exit status 0 if all expectations are met, 1 if not, 2 if one could not be carried out.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use crem_integration::scenario::{
    Context, Failure, Programs, Scenario, check, demo, print, remove_leftovers, run_all_modes, save,
};
use crem_rawsock::StopFlag;

/// Runs scenarios of two hosts, two gateways and a WAN.
#[derive(Parser)]
struct Arguments {
    /// Scenario files; `all` for every file of the folder, `demo` for the demonstration.
    #[arg(required = true)]
    what: Vec<String>,
    /// Folder that `all` means.
    #[arg(long, default_value = "integration/scenarios")]
    scenarios: PathBuf,
    /// Where results and logs go.
    #[arg(long, default_value = "target/results")]
    results: PathBuf,
    /// The gateway program, if not the one beside this program.
    #[arg(long)]
    gateway: Option<PathBuf>,
    /// The program of control processes, if not the one beside this program.
    #[arg(long)]
    control: Option<PathBuf>,
}

fn main() -> ExitCode {
    match go(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("scenario: {error}");
            ExitCode::from(2)
        }
    }
}

fn go(arguments: &Arguments) -> Result<bool, Failure> {
    let mut programs = Programs::beside_this()?;
    if let Some(gateway) = &arguments.gateway {
        programs.gateway.clone_from(gateway);
    }
    remove_leftovers();
    if let Some(control) = &arguments.control {
        programs.control.clone_from(control);
    }
    let stop = StopFlag::install()?;
    let context = Context {
        programs,
        results: arguments.results.clone(),
        stop,
    };
    let mut all_ok = true;
    let mut verdicts = Vec::new();
    for what in &arguments.what {
        if what == "demo" {
            all_ok &= demo(&context)?;
            continue;
        }
        for file in files(what, &arguments.scenarios)? {
            if what == "all" && lacks_etcd(&context, &file)? {
                continue;
            }
            let verdict = judge(&context, &file)?;
            all_ok &= verdict.ok;
            verdicts.push(verdict);
        }
    }
    match &verdicts[..] {
        [] => {}
        [one] => println!("{}", one.line()),
        several => summarise(several, &arguments.results)?,
    }
    Ok(all_ok)
}

/// Whether a scenario cannot be carried out for want of etcd; it is told as skipped then.
fn lacks_etcd(context: &Context, file: &Path) -> Result<bool, Failure> {
    let lacks = context.programs.etcd.is_none() && Scenario::load(file)?.fleet.is_some();
    if lacks {
        println!("skipped: {}: there is no etcd", file.display());
    }
    Ok(lacks)
}

/// How a scenario ended.
struct Verdict {
    name: String,
    ok: bool,
    /// It failed at first and was run a second time.
    rerun: bool,
    /// What was looked at, and how much of it was not as it should be.
    findings: (usize, usize),
}

impl Verdict {
    /// The last line of a run of one scenario.
    fn line(&self) -> String {
        let word = if self.ok { "ok" } else { "short" };
        let (all, failed) = self.findings;
        let rerun = u8::from(self.rerun);
        format!(
            "{}: {word} findings={all} failed={failed} rerun={rerun}",
            self.name
        )
    }
}

/// Runs a scenario, and a second time if it failed: its shares and times need the machine to itself, and
/// the machine may have been busy with something else. Both runs are printed, and the summary says so.
fn judge(context: &Context, file: &Path) -> Result<Verdict, Failure> {
    let verdict = one(context, file)?;
    if verdict.ok {
        return Ok(verdict);
    }
    println!("\n{}: failed, once more", verdict.name);
    Ok(Verdict {
        rerun: true,
        ..one(context, file)?
    })
}

fn summarise(verdicts: &[Verdict], results: &Path) -> Result<(), Failure> {
    println!("\nscenarios");
    for verdict in verdicts {
        let word = if verdict.ok { "ok  " } else { "FAIL" };
        let rerun = if verdict.rerun { " (second run)" } else { "" };
        println!("  {word} {}{rerun}", verdict.name);
    }
    let count = |of: fn(&Verdict) -> bool| verdicts.iter().filter(|v| of(v)).count();
    let (failed, rerun) = (count(|v| !v.ok), count(|v| v.rerun));
    let names = |of: fn(&Verdict) -> bool| -> Vec<&str> {
        verdicts
            .iter()
            .filter(|v| of(v))
            .map(|v| v.name.as_str())
            .collect()
    };
    let document = serde_json::json!({
        "scenarios": names(|_| true),
        "failed": names(|v| !v.ok),
        "rerun": names(|v| v.rerun),
    });
    let file = results.join("e2e.json");
    std::fs::write(&file, format!("{document:#}\n"))
        .map_err(|error| format!("{}: {error}", file.display()))?;
    let word = if failed == 0 { "ok" } else { "short" };
    println!(
        "e2e: {word} scenarios={} failed={failed} rerun={rerun}",
        verdicts.len()
    );
    Ok(())
}

fn one(context: &Context, file: &Path) -> Result<Verdict, Failure> {
    let scenario = Scenario::load(file)?;
    println!("\n{}: {}", scenario.name, scenario.about);
    let mut outcome =
        run_all_modes(context, &scenario).map_err(|e| format!("{}: {e}", scenario.name))?;
    outcome.findings = check(&scenario, &outcome);
    print(&outcome);
    save(&outcome, &context.results)?;
    let failed = outcome.findings.iter().filter(|finding| !finding.ok);
    Ok(Verdict {
        ok: outcome.ok(),
        rerun: false,
        findings: (outcome.findings.len(), failed.count()),
        name: scenario.name,
    })
}

/// Scenarios that are not among `all`: the demonstration, one that takes long, and one that needs a kernel for guests.
const APART: [&str; 3] = ["demo", "api-load", "qemu"];

/// The scenario files that a word means.
fn files(what: &str, folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    if what != "all" {
        return Ok(vec![PathBuf::from(what)]);
    }
    let entries =
        std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .filter(|path| {
            let name = path.file_stem().and_then(|stem| stem.to_str());
            name.is_some_and(|name| !APART.contains(&name))
        })
        .collect();
    files.sort();
    if files.is_empty() {
        return Err(format!("no scenarios in {}", folder.display()).into());
    }
    Ok(files)
}
