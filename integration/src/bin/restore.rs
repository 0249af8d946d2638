//! `restore FILE.pcap…`: removes every request packet of every flow of the captures, alone and in
//! bursts, restores it from repair symbols and other frames, and compares. Ends with a line that begins
//! `restore: ok` or `restore: FAILED`; the report also goes to `target/results/restore.json`.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use crem_integration::restore::{Kinds, Report, check_file};
use crem_wire::frame::ParseConfig;

const USAGE: &str = "usage: restore [--responses] [--vxlan PORT] [--json PATH] FILE.pcap[.gz]...";
const DEFAULT_JSON: &str = "target/results/restore.json";

/// Exit status for arguments and files that cannot be used.
const BAD_INPUT: u8 = 2;

struct Arguments {
    files: Vec<PathBuf>,
    json: PathBuf,
    kinds: Kinds,
    config: ParseConfig,
}

fn main() -> ExitCode {
    let Some(arguments) = arguments(env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(BAD_INPUT);
    };
    let mut report = Report::default();
    for file in &arguments.files {
        match check_file(file, &arguments.config, arguments.kinds) {
            Ok(result) => report.files.push(result),
            Err(error) => {
                eprintln!("restore: {}: {error}", file.display());
                return ExitCode::from(BAD_INPUT);
            }
        }
    }
    if let Err(error) = write_json(&arguments.json, &report) {
        eprintln!("restore: {}: {error}", arguments.json.display());
        return ExitCode::from(BAD_INPUT);
    }
    println!("{report}");
    ExitCode::from(u8::from(!report.is_ok()))
}

fn arguments(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut arguments = Arguments {
        files: Vec::new(),
        json: PathBuf::from(DEFAULT_JSON),
        kinds: Kinds::Requests,
        config: ParseConfig::default(),
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--responses" => arguments.kinds = Kinds::Responses,
            "--vxlan" => arguments.config.vxlan_port = Some(words.next()?.parse().ok()?),
            "--json" => arguments.json = PathBuf::from(words.next()?),
            option if option.starts_with('-') => return None,
            file => arguments.files.push(PathBuf::from(file)),
        }
    }
    (!arguments.files.is_empty()).then_some(arguments)
}

fn write_json(path: &Path, report: &Report) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut text = serde_json::to_string_pretty(&report.to_json())?;
    text.push('\n');
    fs::write(path, text)
}
