//! The process `export`: its flags, signals and exit status.

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use crem_ipfix_io::{ExportFailure, ExportOptions, run_export};
use signal_hook::consts::{SIGHUP, SIGUSR1, SIGUSR2};

use crate::bootstrap::{Bootstrap, Flags};
use crate::{fail, logging, refuse, sandbox, say_ready, stop_signals};

/// Flags; they win over the environment and the file.
#[derive(Args, Debug)]
pub(crate) struct ExportFlags {
    /// Bootstrap file, TOML; the data plane's will do.
    #[arg(long, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    /// Config document, TOML or (named *.json) JSON; the data plane's.
    #[arg(long, value_name = "FILE")]
    document: Option<String>,
    /// Unix socket that takes records from the data plane.
    #[arg(long, value_name = "PATH")]
    socket: Option<String>,
    /// Unix socket that serves the status.
    #[arg(long, value_name = "PATH")]
    status_socket: Option<String>,
    /// Whether the process gives up capabilities, system calls and places to write: on or off.
    #[arg(long, value_name = "on|off")]
    sandbox: Option<String>,
    /// Log filter, for example info or crem_ipfix_io=debug.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

impl ExportFlags {
    fn bootstrap(&self) -> Flags {
        Flags {
            config: self.config.clone(),
            document: self.document.clone(),
            log: self.log.clone(),
            sandbox: self.sandbox.clone(),
            export_socket: self.socket.clone(),
            export_status_socket: self.status_socket.clone(),
            ..Flags::default()
        }
    }
}

/// SIGHUP has the document read anew; the signals that others take for that, or for a dump, do not end the
/// process.
fn hear_reloads() -> std::io::Result<Arc<AtomicBool>> {
    let reload = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGHUP, Arc::clone(&reload))?;
    for signal in [SIGUSR1, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    Ok(reload)
}

/// Runs the process.
pub(crate) fn export(flags: &ExportFlags) -> ExitCode {
    let bootstrap = match Bootstrap::read(&flags.bootstrap(), std::env::vars()) {
        Ok(bootstrap) => bootstrap,
        Err(invalid) => return refuse("bootstrap", &invalid),
    };
    if let Err(invalid) = logging::begin(&bootstrap.log_filter, None) {
        return refuse("bootstrap", &invalid);
    }
    let confinement = sandbox::export(&bootstrap);
    let document = bootstrap.documents.into_iter().next().unwrap_or_default();
    let name = document.display().to_string();
    let signals = hear_reloads().and_then(|reload| Ok((reload, stop_signals()?)));
    let (reload, stop) = match signals {
        Ok(signals) => signals,
        Err(failure) => return fail(&failure),
    };
    let options = ExportOptions {
        document,
        reload,
        socket: bootstrap.export_socket,
        status_socket: bootstrap.export_status_socket,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        confinement,
        on_ready: Box::new(say_ready),
    };
    match run_export(options, stop.as_fd()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(ExportFailure::Invalid(invalid)) => refuse(&name, &invalid),
        Err(ExportFailure::Bootstrap(invalid)) => refuse("bootstrap", &invalid),
        Err(failure) => fail(&failure),
    }
}
