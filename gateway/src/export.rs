//! The process `export`: its flags, signals and exit status.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use crem_api::{Invalid, Issue};
use crem_ipfix_io::{ExportFailure, ExportOptions, run_export};
use signal_hook::consts::{SIGHUP, SIGUSR1, SIGUSR2};

use crate::bootstrap::{Bootstrap, Flags};
use crate::{fail, log_to_stderr, refuse, say_ready, stop_signals};

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
            export_socket: self.socket.clone(),
            export_status_socket: self.status_socket.clone(),
            ..Flags::default()
        }
    }
}

/// Signals that others take for "read your files again" do not end the process: certificates are watched,
/// and a new document needs a new start.
fn survive_reloads() -> std::io::Result<()> {
    for signal in [SIGHUP, SIGUSR1, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    Ok(())
}

/// Runs the process.
pub(crate) fn export(flags: &ExportFlags) -> ExitCode {
    let bootstrap = match Bootstrap::read(&flags.bootstrap(), std::env::vars()) {
        Ok(bootstrap) => bootstrap,
        Err(invalid) => return refuse("bootstrap", &invalid),
    };
    if let Err(invalid) = log_to_stderr(&bootstrap.log_filter) {
        return refuse("bootstrap", &invalid);
    }
    let name = bootstrap.document.display().to_string();
    let (ipfix, workers) = match crem_api::load(&bootstrap.document) {
        Ok(document) => (document.ipfix, document.workers),
        Err(invalid) => return refuse(&name, &invalid),
    };
    let Some(ipfix) = ipfix else {
        let issue = Issue::new("/ipfix", "nothing", "a table that says what to export");
        return refuse(
            &name,
            &Invalid {
                issues: vec![issue],
            },
        );
    };
    let stop = match survive_reloads().and_then(|()| stop_signals()) {
        Ok(stop) => stop,
        Err(failure) => return fail(&failure),
    };
    let options = ExportOptions {
        ipfix,
        workers,
        socket: bootstrap.export_socket,
        status_socket: bootstrap.export_status_socket,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        on_ready: Box::new(say_ready),
    };
    match run_export(options, std::os::fd::AsFd::as_fd(&stop)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(ExportFailure::Invalid(invalid)) => refuse(&name, &invalid),
        Err(ExportFailure::Bootstrap(invalid)) => refuse("bootstrap", &invalid),
        Err(failure) => fail(&failure),
    }
}
