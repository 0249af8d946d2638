//! `cremctl`: the command line of a gateway's API. Each command is one or two requests; nothing is decided
//! here. Exit status: 0 done, 1 failed, 2 wrong use, 3 the document has problems, 4 something else is in
//! the way, 5 the change was rolled back.
#![forbid(unsafe_code)]

mod args;
mod client;
mod commands;
mod pinned;
mod table;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use crem_api::rest::Problem;

use args::{Arguments, Command};

/// Why a command did not do what it was for.
#[derive(Debug)]
enum Failure {
    /// The gateway says so.
    Problem(Box<Problem>),
    /// It could not be asked, or a file could not be used.
    Local(String),
}

impl Failure {
    fn status(&self) -> u8 {
        match self {
            Self::Local(_) => 1,
            Self::Problem(problem) => match (problem.kind.rsplit(':').next(), problem.status) {
                (Some("rolled-back"), _) => 5,
                (_, 400 | 422) => 3,
                (_, 409 | 412 | 428) => 4,
                _ => 1,
            },
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Local(error.to_string())
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match &arguments.command {
        Command::Completion { shell } => {
            let mut out = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "cremctl", &mut out);
            return write_out(&out);
        }
        Command::Man { directory } => {
            let made = clap_mangen::generate_to(Arguments::command(), directory);
            return made.map_or_else(|e| report(&Failure::from(e), false), |()| ExitCode::SUCCESS);
        }
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return report(&Failure::from(error), arguments.json),
    };
    match runtime.block_on(commands::run(&arguments)) {
        Ok(text) => write_out(text.as_bytes()),
        Err(failure) => report(&failure, arguments.json),
    }
}

fn write_out(octets: &[u8]) -> ExitCode {
    let mut out = std::io::stdout();
    match out.write_all(octets).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has seen enough.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// With `--json` a failure is one document on the standard output like everything else.
fn report(failure: &Failure, json: bool) -> ExitCode {
    match (failure, json) {
        (Failure::Problem(problem), true) => {
            let text = serde_json::to_string_pretty(problem).unwrap_or_default();
            write_out(format!("{text}\n").as_bytes());
        }
        (Failure::Local(text), true) => {
            let problem = serde_json::json!({
                "type": "urn:crem:problem:client", "title": "The request could not be made",
                "status": 0, "detail": text,
            });
            write_out(format!("{problem:#}\n").as_bytes());
        }
        (Failure::Problem(problem), false) => eprint!("{}", table::problem(problem)),
        (Failure::Local(text), false) => eprintln!("cremctl: {text}"),
    }
    ExitCode::from(failure.status())
}
