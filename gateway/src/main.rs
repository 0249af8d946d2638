//! The gateway program: one binary with a subcommand for each process. Arguments, bootstrap, logging,
//! exit status; everything else is in the crates.
#![forbid(unsafe_code)]

mod boot;
mod bootstrap;
mod capture;
mod collect;
mod control;
mod export;
mod fleet;
mod logging;
mod notify;
mod sandbox;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use crem_api::Invalid;
use crem_dataplane::start::{Failure, MemoryKind, Options, run};

use signal_hook::consts::{SIGINT, SIGTERM};

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
    /// Runs the control process: the API, the history of the config document, commits.
    Control(control::ControlFlags),
    /// Runs the exporting process: IPFIX records from the data plane to collectors.
    Export(export::ExportFlags),
    /// Collects IPFIX and checks what exporters do: over TCP, TLS and UDP, or from files.
    Collect(Box<collect::CollectFlags>),
    /// Keeps this gateway's document as the fleet's store says, which is etcd; nothing needs it to start.
    Fleet(fleet::FleetFlags),
    /// Captures frames of a running data plane into a pcapng file.
    Capture(capture::CaptureFlags),
}

fn main() -> ExitCode {
    match Arguments::parse().process {
        Process::Dataplane(flags) => dataplane(&flags),
        Process::Control(flags) => control::control(&flags),
        Process::Export(flags) => export::export(&flags),
        Process::Collect(flags) => collect::collect(&flags),
        Process::Fleet(flags) => fleet::fleet(&flags),
        Process::Capture(flags) => capture::capture(&flags),
    }
}

fn dataplane(flags: &Flags) -> ExitCode {
    let bootstrap = match Bootstrap::read(flags, std::env::vars()) {
        Ok(bootstrap) => bootstrap,
        Err(invalid) => return refuse("bootstrap", &invalid),
    };
    if let Err(invalid) = logging::begin(&bootstrap.log_filter, None) {
        return refuse("bootstrap", &invalid);
    }
    let chosen = match boot::choose(&bootstrap) {
        Ok(chosen) => chosen,
        Err(refused) => {
            for (path, invalid) in &refused {
                refuse(&path.display().to_string(), invalid);
            }
            return ExitCode::from(INVALID);
        }
    };
    sandbox::dataplane_begins(&bootstrap.sandbox);
    let name = chosen.path.display().to_string();
    let confine = Box::new(sandbox::dataplane(&bootstrap, &chosen.document));
    let options = Options {
        document: chosen.document,
        instead: chosen.instead,
        status_socket: bootstrap.status_socket,
        export_socket: bootstrap.export_socket,
        cpus: bootstrap.worker.cpus,
        interface_queues: bootstrap.worker.interface_queues,
        watchdog: bootstrap.worker.watchdog,
        fault_after: bootstrap.worker.fault_after,
        memory: bootstrap.memory,
        memory_mb: bootstrap.memory_mb,
        pool_frames: bootstrap.pool_frames,
        ring_frames: bootstrap.ring_frames,
        idle: bootstrap.worker.idle,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        confine,
        on_ready: Box::new(say_ready),
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Invalid(invalid)) => refuse(&name, &invalid),
        Err(Failure::Bootstrap(invalid)) => refuse("bootstrap", &invalid),
        Err(Failure::NoMemory(failure)) if bootstrap.memory == MemoryKind::Auto => {
            tracing::warn!("{failure}; once more, with ordinary pages");
            fail(&again_with_ordinary_pages())
        }
        Err(failure) => fail(&failure),
    }
}

/// Starts this process anew: DPDK cannot be started twice in one. Free hugepages are counted before they
/// are taken, so of two processes that start at the same moment one may come too late.
fn again_with_ordinary_pages() -> std::io::Error {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_else(|| "crem-gateway".into());
    std::process::Command::new(std::env::current_exe().unwrap_or_else(|_| program.into()))
        .args(arguments)
        .env(bootstrap::MEMORY_KIND, "ordinary")
        .exec()
}

fn fail(failure: &dyn std::error::Error) -> ExitCode {
    eprintln!("crem-gateway: {failure}");
    ExitCode::from(FAILED)
}

/// The line that whoever started us waits for.
fn say_ready() {
    let mut out = std::io::stdout();
    // Nobody may be listening; that is no reason to stop forwarding.
    let _ = writeln!(out, "ready").and_then(|()| out.flush());
    notify::tell("READY=1");
}

fn refuse(what: &str, invalid: &Invalid) -> ExitCode {
    let count = invalid.issues.len();
    let problems = if count == 1 {
        "1 problem"
    } else {
        &format!("{count} problems")
    };
    eprintln!("crem-gateway: {what}: {problems}");
    for issue in &invalid.issues {
        eprintln!("  {issue}");
    }
    ExitCode::from(INVALID)
}

/// Readable once SIGTERM or SIGINT came.
fn stop_signals() -> std::io::Result<UnixStream> {
    let (stop, wake) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT] {
        signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
    }
    Ok(stop)
}
