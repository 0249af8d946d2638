//! The exporting process: from the config document to exporters, and the loop that serves them, the data
//! plane's socket, the status socket, names and certificates. It ends when told to, in order: what waits
//! is sent, as far as collectors take it within a few seconds.

mod collectors;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crem_api::ipfix::Ipfix;
use crem_api::protocol::{Body, ErrorCode, ErrorReply, Get};
use crem_api::state::{Export, Status};
use crem_api::{Invalid, Issue};
use crem_ipfix::plan::Plan;
use crem_meter::Utc;

use crate::exporter::{Exporter, ExporterEvent};
use crate::resolve::Resolver;
use crate::service::{Service, connect_to};
use crate::status::{StatusServer, vacate};
use crate::wait::{Interest, is_readable, wait};
use collectors::{Planned, Watch};

/// How long the end of the process waits for collectors.
const LAST: Duration = Duration::from_secs(3);
/// How often certificates are looked at, and the loop turns at least.
const LOOK: Duration = Duration::from_secs(1);

/// What an exporting process is started with.
pub struct ExportOptions {
    /// The part of the config document on IPFIX.
    pub ipfix: Ipfix,
    /// Workers of the data plane.
    pub workers: u16,
    /// Socket for the data plane.
    pub socket: PathBuf,
    /// Status socket.
    pub status_socket: PathBuf,
    /// Version that the status shows.
    pub version: String,
    /// Called once, when both sockets answer.
    pub on_ready: Box<dyn FnOnce()>,
}

/// Why an exporting process did not start, or ended otherwise than it was told to.
#[derive(Debug, thiserror::Error)]
pub enum ExportFailure {
    /// The document cannot be carried out here.
    #[error("{0}")]
    Invalid(Invalid),
    /// The bootstrap cannot be carried out here.
    #[error("{0}")]
    Bootstrap(Invalid),
    /// The system refused.
    #[error(transparent)]
    System(#[from] io::Error),
}

fn now() -> Utc {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Utc(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

struct Process {
    service: Service,
    resolver: Resolver,
    status: StatusServer,
    names: Vec<String>,
    watch: Watch,
    version: String,
    start: Instant,
}

/// Runs an exporting process on the calling thread until `stop` can be read.
///
/// # Errors
/// [`ExportFailure`], when it does not start or cannot wait.
pub fn run_export(options: ExportOptions, stop: BorrowedFd<'_>) -> Result<(), ExportFailure> {
    let plan = Plan::new(&options.ipfix, options.workers).map_err(ExportFailure::Invalid)?;
    let planned = Planned::all(&options.ipfix, &plan).map_err(ExportFailure::Invalid)?;
    let Planned {
        exporters,
        names,
        watch,
    } = planned;
    let bootstrap = |pointer: &str, path: &Path, error: &io::Error| {
        ExportFailure::Bootstrap(Invalid {
            issues: vec![Issue::new(
                pointer,
                format!("{path:?}: {error}"),
                "a path where a Unix socket of its own can be made",
            )],
        })
    };
    let (socket, status) = (&options.socket, &options.status_socket);
    let resolver = Resolver::new(exporters.len())?;
    let service = vacate(socket, |path| connect_to(path).is_ok())
        .and_then(|()| Service::bind(socket, exporters))
        .map_err(|error| bootstrap("/export/socket", socket, &error))?;
    let status = StatusServer::bind(status)
        .map_err(|error| bootstrap("/export/status_socket", status, &error))?;
    let mut process = Process {
        service,
        resolver,
        status,
        names,
        watch,
        version: options.version,
        start: Instant::now(),
    };
    (options.on_ready)();
    while !process.turn(Some(stop))? {}
    tracing::info!("asked to stop");
    process.finish()?;
    Ok(())
}

impl Process {
    /// Waits for something and does it; whether it is time to stop.
    fn turn(&mut self, stop: Option<BorrowedFd<'_>>) -> io::Result<bool> {
        let read = |fd| Interest {
            fd,
            read: true,
            write: false,
        };
        let due = self
            .service
            .next_timeout()
            .map_or(LOOK, |at| at.since(now()));
        let mut interests = self.service.interests();
        interests.push(read(self.resolver.as_fd()));
        interests.extend(self.status.interests());
        interests.extend(stop.map(read));
        wait(&interests, due.min(LOOK))?;
        drop(interests);
        let time = now();
        let names = &self.names;
        self.service.drive(time, &mut |place, event| {
            log(names.get(place).map_or("?", String::as_str), event);
        });
        self.look_up(time);
        self.watch.look(time, self.service.exporters(), &self.names);
        self.answer(time);
        match stop {
            Some(stop) => is_readable(stop),
            None => Ok(false),
        }
    }

    fn look_up(&mut self, time: Utc) {
        while let Some((place, address)) = self.resolver.answer() {
            if let Some(exporter) = self.service.exporters().get_mut(place) {
                exporter.found(time, address);
            }
        }
        for place in 0..self.names.len() {
            let exporter = self.service.exporters().get_mut(place);
            let Some(name) = exporter.and_then(Exporter::lookup).map(str::to_owned) else {
                continue;
            };
            if let Err(error) = self.resolver.ask(place, &name)
                && let Some(exporter) = self.service.exporters().get_mut(place)
            {
                exporter.found(time, Err(error));
            }
        }
    }

    fn answer(&mut self, time: Utc) {
        let uptime_ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (service, names, version) = (&mut self.service, &self.names, &self.version);
        self.status.drive(time, uptime_ms, &mut |get| match get {
            Get::Status => Body::Status(Status {
                version: version.clone(),
                pid: std::process::id(),
                uptime_ms,
                ..Status::default()
            }),
            Get::Export => Body::Export(document(service, names)),
            Get::Counters | Get::Flows | Get::Document => Body::Error(ErrorReply::new(
                ErrorCode::Unknown,
                "the exporting process has \"status\" and \"export\"",
            )),
        });
    }

    /// Takes what the data plane handed over, sends what waits, and ends the sessions.
    fn finish(mut self) -> io::Result<()> {
        let start = Instant::now();
        while start.elapsed() < LAST {
            self.turn(None)?;
            if self.service.exporters().iter().all(|e| e.queued() == 0) {
                break;
            }
        }
        let names = self.names;
        self.service.close(now(), &mut |place, event| {
            log(names.get(place).map_or("?", String::as_str), event);
        });
        Ok(())
    }
}

fn log(name: &str, event: &ExporterEvent) {
    match event {
        ExporterEvent::Began(session) => {
            tracing::info!(collector = name, session, "session began");
        }
        ExporterEvent::Ended(session, reason) => {
            tracing::warn!(collector = name, session, "session ended: {reason}");
        }
        ExporterEvent::Failed(reason) => tracing::warn!(collector = name, "{reason}"),
    }
}

/// The state of everything, for the status socket.
fn document(service: &mut Service, names: &[String]) -> Export {
    let counters = *service.counters();
    let source = [
        ("connected", u64::from(service.is_connected())),
        ("connections", counters.connections),
        ("batches", counters.batches),
        ("items", counters.items),
        ("damaged_batches", counters.damaged),
        ("unrouted", counters.unrouted),
    ];
    let collectors = names.iter().zip(service.exporters().iter());
    Export {
        source: source.map(|(name, n)| (name.to_owned(), n)).into(),
        collectors: collectors
            .map(|(name, exporter)| (name.clone(), collectors::document(exporter)))
            .collect(),
    }
}
