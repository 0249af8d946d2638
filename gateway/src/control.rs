//! The subcommand `control`: bootstrap and signals of the control process.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use crem_control::run::{Alive, Failure, Options, run};
use crem_control::syslog::Feed;
use crem_control::syslog::layer::Forward;
use crem_control::watcher::Sockets;

use crate::bootstrap::{Bootstrap, Flags};
use crate::{fail, logging, notify, refuse, sandbox, say_ready, stop_signals};

/// Flags of the control process.
#[derive(Args, Debug)]
pub(crate) struct ControlFlags {
    /// Bootstrap file, TOML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory for revisions, tokens and the audit log.
    #[arg(long, value_name = "DIRECTORY")]
    state: Option<String>,
    /// Unix socket of the API.
    #[arg(long, value_name = "PATH")]
    socket: Option<String>,
    /// Status socket of the data plane.
    #[arg(long, value_name = "PATH")]
    status_socket: Option<String>,
    /// Status socket of the exporting process.
    #[arg(long, value_name = "PATH")]
    export_status_socket: Option<String>,
    /// File in which the fleet agent, if there is one, tells its status.
    #[arg(long, value_name = "PATH")]
    fleet_status: Option<String>,
    /// Where to listen over TLS for as long as the document has no listener, for the first way in.
    #[arg(long, value_name = "ADDRESS:PORT")]
    first_listener: Option<String>,
    /// A document to begin the history with, if there is none yet.
    #[arg(long, value_name = "FILE")]
    import: Option<PathBuf>,
    /// Whether the process gives up capabilities, system calls and places to write: on or off.
    #[arg(long, value_name = "on|off")]
    sandbox: Option<String>,
    /// Log filter, for example info.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

pub(crate) fn control(flags: &ControlFlags) -> ExitCode {
    let shared = Flags {
        config: flags.config.clone(),
        status_socket: flags.status_socket.clone(),
        export_status_socket: flags.export_status_socket.clone(),
        control_state: flags.state.clone(),
        control_socket: flags.socket.clone(),
        first_listener: flags.first_listener.clone(),
        fleet_status: flags.fleet_status.clone(),
        log: flags.log.clone(),
        sandbox: flags.sandbox.clone(),
        ..Flags::default()
    };
    let bootstrap = match Bootstrap::read(&shared, std::env::vars()) {
        Ok(bootstrap) => bootstrap,
        Err(invalid) => return refuse("bootstrap", &invalid),
    };
    let feed = Feed::default();
    if let Err(invalid) = logging::begin(&bootstrap.log_filter, Some(Forward(feed.clone()))) {
        return refuse("bootstrap", &invalid);
    }
    let confinement = sandbox::control(&bootstrap);
    let signals = match stop_signals() {
        Ok(signals) => signals,
        Err(error) => return fail(&error),
    };
    let (stop, stopped) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut signals = signals;
        // A signal, or the end of the other side: both are the end.
        let _ = std::io::Read::read(&mut signals, &mut [0]);
        notify::tell("STOPPING=1");
        let _ = stop.send(());
    });
    let options = Options {
        state: bootstrap.control_state,
        socket: bootstrap.control_socket,
        others: Sockets {
            dataplane: bootstrap.status_socket,
            export: bootstrap.export_status_socket,
        },
        fleet_status: bootstrap.fleet_status,
        confinement,
        log: feed,
        first_listener: bootstrap.first_listener,
        // Not by way of the log, which may leave the machine.
        tell: Some(Box::new(|text| eprintln!("crem-gateway: {text}"))),
        import: flags.import.clone(),
        stop: stopped,
        on_ready: Box::new(say_ready),
        alive: notify::watchdog().map(|every| Alive {
            every,
            tell: Box::new(|| notify::tell("WATCHDOG=1")),
        }),
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Invalid(invalid)) => refuse("import", &invalid),
        Err(failure) => fail(&failure),
    }
}
