//! `vectors DIR`: runs every vector file of a directory against the product crates, names each failure
//! and ends with the line `N passed, M failed, K not covered`. The report also goes to
//! `target/results/vectors.json`, or to the path given with `--json`.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use crem_integration::vectors::{Report, run_directory};

const USAGE: &str = "usage: vectors DIR [--json PATH]";
const DEFAULT_JSON: &str = "target/results/vectors.json";

fn main() -> ExitCode {
    let Some((directory, json)) = arguments(env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let report = match run_directory(&directory) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("vectors: {error}");
            return ExitCode::from(2);
        }
    };
    print(&report);
    if let Err(error) = write_json(&json, &report) {
        eprintln!("vectors: {}: {error}", json.display());
        return ExitCode::from(2);
    }
    let (passed, failed, not_covered) = report.totals();
    println!("{passed} passed, {failed} failed, {not_covered} not covered");
    ExitCode::from(u8::from(failed > 0))
}

fn arguments(mut words: impl Iterator<Item = String>) -> Option<(PathBuf, PathBuf)> {
    let mut directory = None;
    let mut json = PathBuf::from(DEFAULT_JSON);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => json = words.next()?.into(),
            _ if word.starts_with('-') || directory.is_some() => return None,
            _ => directory = Some(word.into()),
        }
    }
    Some((directory?, json))
}

fn print(report: &Report) {
    for file in &report.files {
        let tally = &file.tally;
        for failure in &tally.failures {
            println!("FAILED {}: {}: {}", file.name, failure.case, failure.what);
        }
        println!(
            "{:12} {:5} passed {:5} failed {:5} not covered",
            file.name,
            tally.passed,
            tally.failures.len(),
            tally.not_covered
        );
    }
}

fn write_json(path: &Path, report: &Report) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, format!("{:#}\n", report.to_json()))
}
