//! The process `collect`: its arguments, signals and exit status.

use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use crem_api::ipfix::Fingerprint;
use crem_ipfix::element::Mapping;
use crem_ipfix::plan::Plan;
use crem_ipfix_io::{
    Authorised, CollectFailure, CollectOptions, CollectTls, Collected, CollectorConfig, Listen,
    Output, TlsFiles, run_collect,
};

use crate::{FAILED, INVALID, logging, refuse, stop_signals};

/// With `--strict`: an exporter did what it must not, or something is missing.
const UNCLEAN: u8 = 3;

/// How results are shown.
#[derive(Clone, Copy, ValueEnum, Debug)]
enum Show {
    /// One JSON object a line.
    Json,
    /// A table that is drawn anew every second.
    Table,
    /// One JSON object at the end.
    Summary,
}

/// Arguments.
#[derive(Args, Debug)]
pub(crate) struct CollectFlags {
    /// Listen for TCP; any number of times.
    #[arg(long, value_name = "ADDRESS:PORT")]
    tcp: Vec<SocketAddr>,
    /// Listen for UDP; any number of times.
    #[arg(long, value_name = "ADDRESS:PORT")]
    udp: Vec<SocketAddr>,
    /// Listen for TLS 1.3 over TCP; any number of times.
    #[arg(long, value_name = "ADDRESS:PORT", requires_all = ["certificate", "key", "authorities"])]
    tls: Vec<SocketAddr>,
    /// For TLS: our certificate, PEM.
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// For TLS: its key, PEM.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// For TLS: the authorities of the exporters' certificates, PEM.
    #[arg(long, value_name = "FILE")]
    authorities: Option<PathBuf>,
    /// For TLS: DNS name of an exporter that may connect; any number of times.
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// For TLS: SHA-256 fingerprint of a certificate that may connect; any number of times.
    #[arg(long, value_name = "HEX", value_parser = |text: &str| text.parse::<Fingerprint>().map_err(|_| "expected 64 hexadecimal digits"))]
    fingerprint: Vec<Fingerprint>,
    /// Config document of an exporter, for the numbers of the elements.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pen", "first_element"])]
    document: Option<PathBuf>,
    /// Private Enterprise Number of the elements.
    #[arg(long, value_name = "N", requires = "first_element")]
    pen: Option<u32>,
    /// Number of the first element.
    #[arg(long, value_name = "N", requires = "pen")]
    first_element: Option<u16>,
    /// What is written to standard output.
    #[arg(long, value_enum, default_value = "json")]
    show: Show,
    /// Exit status 3 if an exporter did what it must not, or records are missing.
    #[arg(long)]
    strict: bool,
    /// Sessions at once at most.
    #[arg(long, default_value_t = 256, value_name = "N")]
    max_sessions: usize,
    /// Epochs of a session and Observation Domain at once at most.
    #[arg(long, default_value_t = 65536, value_name = "N")]
    max_epochs: usize,
    /// Templates of a session at most.
    #[arg(long, default_value_t = 4096, value_name = "N")]
    max_templates: usize,
    /// An epoch without a report for so long is given up as incomplete.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    inactivity: u64,
    /// A closed epoch is kept for so long, to notice contradictions.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    retention: u64,
    /// A session without a message for so long is ended.
    #[arg(long, default_value_t = 1800, value_name = "SECONDS")]
    idle: u64,
    /// Log filter.
    #[arg(long, default_value = "info", value_name = "FILTER")]
    log: String,
    /// Files of messages (RFC 5655), read before listening.
    files: Vec<PathBuf>,
}

/// Runs the process.
pub(crate) fn collect(flags: &CollectFlags) -> ExitCode {
    if let Err(invalid) = logging::begin(&flags.log, None) {
        return refuse("arguments", &invalid);
    }
    let collected = match run(flags) {
        Ok(collected) => collected,
        Err((status, message)) => {
            eprintln!("crem-gateway: {message}");
            return ExitCode::from(status);
        }
    };
    if flags.strict && !collected.is_clean() {
        return ExitCode::from(UNCLEAN);
    }
    ExitCode::SUCCESS
}

type Refused = (u8, String);

fn invalid(error: impl ToString) -> Refused {
    (INVALID, error.to_string())
}

fn run(flags: &CollectFlags) -> Result<Collected, Refused> {
    let config = config(flags)?;
    let tls = tls(flags);
    let mut listen = Vec::new();
    if let Some(tls) = tls.as_ref().filter(|_| !flags.tls.is_empty()) {
        let server = tls.files.collector(&tls.exporters).map_err(invalid)?;
        let of = |address: &SocketAddr| Listen::Tls(*address, Arc::clone(&server));
        listen.extend(flags.tls.iter().map(of));
    }
    listen.extend(flags.tcp.iter().copied().map(Listen::Tcp));
    listen.extend(flags.udp.iter().copied().map(Listen::Udp));
    if listen.is_empty() && flags.files.is_empty() {
        return Err(invalid(
            "nothing to collect: expected --tcp, --tls, --udp or files",
        ));
    }
    let stop = stop_signals().map_err(|error| (FAILED, error.to_string()))?;
    let options = CollectOptions {
        listen,
        tls,
        files: flags.files.clone(),
        config,
        output: match flags.show {
            Show::Json => Output::Json,
            Show::Table => Output::Table,
            Show::Summary => Output::Summary,
        },
    };
    let mut out = std::io::BufWriter::new(std::io::stdout());
    run_collect(options, stop.as_fd(), &mut out, &mut say_addresses).map_err(|error| {
        let status = match error {
            CollectFailure::Tls(_) => INVALID,
            _ => FAILED,
        };
        (status, error.to_string())
    })
}

/// For whoever started us; standard output has results only.
fn say_addresses(addresses: &[SocketAddr]) {
    let mut err = std::io::stderr();
    for address in addresses {
        // Nobody may be listening; that is no reason to stop collecting.
        let _ = writeln!(err, "listening {address}");
    }
}

fn tls(flags: &CollectFlags) -> Option<CollectTls> {
    Some(CollectTls {
        files: TlsFiles {
            certificate: flags.certificate.clone()?,
            key: flags.key.clone()?,
            authorities: flags.authorities.clone()?,
        },
        exporters: Authorised {
            names: flags.name.clone(),
            fingerprints: flags.fingerprint.iter().map(|f| f.0).collect(),
        },
    })
}

fn config(flags: &CollectFlags) -> Result<CollectorConfig, Refused> {
    let mapping = match (&flags.document, flags.pen.zip(flags.first_element)) {
        (Some(path), _) => {
            let document = crem_api::load(path).map_err(invalid)?;
            let ipfix = document
                .ipfix
                .ok_or_else(|| invalid(format!("{}: no table ipfix", path.display())))?;
            let plan = Plan::new(&ipfix, 1).map_err(invalid)?;
            Arc::clone(plan.mapping())
        }
        (None, Some((pen, first))) => Arc::new(Mapping::consecutive(pen, first).map_err(invalid)?),
        (None, None) => {
            let message =
                "the numbers of the elements: expected --document, or --pen and --first-element";
            return Err(invalid(message));
        }
    };
    let mut config = CollectorConfig::new(mapping);
    config.sessions = flags.max_sessions;
    config.epochs.contexts = flags.max_epochs;
    config.decode.templates = flags.max_templates;
    config.epochs.inactivity = Duration::from_secs(flags.inactivity);
    config.epochs.retention = Duration::from_secs(flags.retention);
    config.idle_timeout = Duration::from_secs(flags.idle);
    Ok(config)
}
