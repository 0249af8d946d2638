//! Measures the gateways against the bare wire: see `crem_sim::experiments`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use crem_sim::experiments::{Options, classify, curves, gates, overload, streams};

const USAGE: &str = "experiments NAME... [--shrink N] [--threads N] [--seed N] [--only TEXT] [--results FOLDER] [--docs FOLDER]
names: writes residual classify overload curves";

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok((names, options)) => run(&names, &options),
        Err(message) => {
            eprintln!("experiments: {message}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(args: impl Iterator<Item = String>) -> Result<(Vec<String>, Options), String> {
    let (mut names, mut options) = (Vec::new(), Options::default());
    let mut args = args;
    while let Some(arg) = args.next() {
        if !arg.starts_with("--") {
            names.push(arg);
            continue;
        }
        let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
        let number = || {
            value
                .parse::<u64>()
                .map_err(|e| format!("{arg} {value}: {e}"))
        };
        match arg.as_str() {
            "--shrink" => options.shrink = number()?,
            "--threads" => options.threads = number()? as usize,
            "--seed" => options.seed = number()?,
            "--only" => options.only = Some(value),
            "--results" => options.results = value.into(),
            "--docs" => options.docs = value.into(),
            _ => return Err(format!("{arg} is not known")),
        }
    }
    if names.is_empty() {
        return Err("nothing to run".into());
    }
    Ok((names, options))
}

fn run(names: &[String], options: &Options) -> ExitCode {
    let mut all_met = true;
    for name in names {
        let result = match name.as_str() {
            "writes" => gates::run(options),
            "residual" => streams::run(options),
            "classify" => classify::run(options),
            "curves" => curves::run(options),
            "overload" => overload::run(options),
            _ => {
                eprintln!("experiments: {name} is not known\n{USAGE}");
                return ExitCode::from(2);
            }
        };
        match result {
            Ok(met) => all_met &= met,
            Err(error) => {
                eprintln!("experiments: {name}: cannot write results: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    if all_met {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
