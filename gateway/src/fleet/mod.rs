//! The subcommand `fleet`: settings and signals of the agent that gets this gateway's document from etcd. What it
//! decides is in `crem-fleet`; here are its connections, its files and its clock.

mod agent;
mod control;
mod etcd;
mod files;
mod http;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use crem_api::Invalid;
use crem_fleet::Settings;

use crate::{fail, logging, notify, refuse, sandbox, say_ready, stop_signals};

/// Flags of the agent.
#[derive(Args, Debug)]
pub(crate) struct FleetFlags {
    /// Settings of the agent, TOML.
    #[arg(long, value_name = "FILE", default_value = "/etc/crem/fleet.toml")]
    config: PathBuf,
    /// Log filter, for example info.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Whether the agent gives up capabilities, system calls and places to write: on or off.
    #[arg(long, value_name = "on|off", value_parser = ["on", "off"], default_value = "on")]
    sandbox: String,
    /// Only reads the settings and tells what is wrong with them.
    #[arg(long)]
    check: bool,
}

pub(crate) fn fleet(flags: &FleetFlags) -> ExitCode {
    let name = flags.config.display().to_string();
    let settings = match read(flags) {
        Ok(settings) => settings,
        Err(invalid) => return refuse(&name, &invalid),
    };
    if flags.check {
        return ExitCode::SUCCESS;
    }
    if let Err(invalid) = logging::begin(&settings.log_filter, None) {
        return refuse(&name, &invalid);
    }
    // Before there are threads.
    sandbox::fleet(flags.sandbox == "on", &[&settings.memory, &settings.status]);
    match run(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn read(flags: &FleetFlags) -> Result<Settings, Invalid> {
    let text = std::fs::read_to_string(&flags.config)
        .map_err(|e| Invalid::whole(e.to_string(), "a readable file"))?;
    let mut settings = Settings::parse(&text)?;
    if let Some(filter) = &flags.log {
        settings.log_filter.clone_from(filter);
    }
    Ok(settings)
}

fn run(settings: Settings) -> std::io::Result<()> {
    let mut signals = stop_signals()?;
    let (stop, stopped) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // A signal, or the end of the other side: both are the end.
        let _ = std::io::Read::read(&mut signals, &mut [0]);
        notify::tell("STOPPING=1");
        let _ = stop.send(());
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    // Ready is who can begin: etcd may be away for as long as it likes.
    say_ready();
    runtime.block_on(agent::Agent::new(settings).run(stopped));
    Ok(())
}
