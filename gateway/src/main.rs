//! The gateway program: one binary with a subcommand for each process. Arguments, bootstrap, logging,
//! exit status; everything else is in the crates.
#![forbid(unsafe_code)]

mod bootstrap;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use crem_api::Invalid;
use crem_dataplane::start::{Failure, Options, run};

use bootstrap::{Bootstrap, Flags};

/// Bad configuration.
const INVALID: u8 = 2;
/// Anything else.
const FAILED: u8 = 1;

/// Gateway that protects RoCEv2 flows across a WAN with CREM.
#[derive(Parser, Debug)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    process: Process,
}

#[derive(Subcommand, Debug)]
enum Process {
    /// Runs the data plane: ports, forwarding, protection.
    Dataplane(Flags),
}

fn main() -> ExitCode {
    match Arguments::parse().process {
        Process::Dataplane(flags) => dataplane(&flags),
    }
}

fn dataplane(flags: &Flags) -> ExitCode {
    let bootstrap = match Bootstrap::read(flags, std::env::vars()) {
        Ok(bootstrap) => bootstrap,
        Err(invalid) => return refuse("bootstrap", &invalid),
    };
    if let Err(invalid) = log_to_stderr(&bootstrap.log_filter) {
        return refuse("bootstrap", &invalid);
    }
    let document = match crem_api::load(&bootstrap.document) {
        Ok(document) => document,
        Err(invalid) => return refuse(&bootstrap.document.display().to_string(), &invalid),
    };
    let name = bootstrap.document.display().to_string();
    let options = Options {
        document,
        status_socket: bootstrap.status_socket,
        cpu: bootstrap.cpu,
        memory: bootstrap.memory,
        memory_mb: bootstrap.memory_mb,
        pool_frames: bootstrap.pool_frames,
        ring_frames: bootstrap.ring_frames,
        idle: bootstrap.idle,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        on_ready: Box::new(say_ready),
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Invalid(invalid)) => refuse(&name, &invalid),
        Err(failure) => {
            eprintln!("crem-gateway: {failure}");
            ExitCode::from(FAILED)
        }
    }
}

/// The line that whoever started us waits for.
fn say_ready() {
    let mut out = std::io::stdout();
    // Nobody may be listening; that is no reason to stop forwarding.
    let _ = writeln!(out, "ready").and_then(|()| out.flush());
}

fn refuse(what: &str, invalid: &Invalid) -> ExitCode {
    let count = invalid.issues.len();
    let problems = if count == 1 { "1 problem" } else { &format!("{count} problems") };
    eprintln!("crem-gateway: {what}: {problems}");
    for issue in &invalid.issues {
        eprintln!("  {issue}");
    }
    ExitCode::from(INVALID)
}

fn log_to_stderr(filter: &str) -> Result<(), Invalid> {
    let filter: tracing_subscriber::EnvFilter = filter.parse().map_err(|e| {
        Invalid::whole(format!("logging.filter {filter:?}: {e}"), "a filter such as \"info\"")
    })?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    Ok(())
}
