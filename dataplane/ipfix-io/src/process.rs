//! The exporting process: the loop that serves the exporters, the data plane's socket, the status socket,
//! names, certificates and changes of the config document. It ends when told to, in order: what waits is
//! sent, as far as collectors take it within a few seconds.

mod collectors;
mod document;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crem_api::protocol::{Body, ErrorCode, ErrorReply, Get};
use crem_api::state::{Export, Status};
use crem_api::{Confinement, Invalid, Issue};
use crem_meter::Utc;

use crate::exporter::{Exporter, ExporterEvent};
use crate::resolve::Resolver;
use crate::service::Service;
use crate::status::StatusServer;
use crate::wait::{Interest, is_readable, wait};
use collectors::{Member, Wanted};
use document::Document;

/// How long the end of the process waits for collectors.
const LAST: Duration = Duration::from_secs(3);
/// How often certificates and the document are looked at, and the loop turns at least.
const LOOK: Duration = Duration::from_secs(1);

/// What an exporting process is started with.
pub struct ExportOptions {
    /// The config document; its part on IPFIX and the number of workers matter. It is followed: see
    /// [`run_export`].
    pub document: PathBuf,
    /// Set it, and interrupt the process, to have the document read at once.
    pub reload: Arc<AtomicBool>,
    /// Socket for the data plane.
    pub socket: PathBuf,
    /// Status socket.
    pub status_socket: PathBuf,
    /// Version that the status shows.
    pub version: String,
    /// What the process gave up, for its status.
    pub confinement: Confinement,
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
    members: BTreeMap<u16, Member>,
    document: Document,
    looked: Utc,
    /// Documents that are or were in force, and those that were refused.
    documents: [u64; 2],
    version: String,
    confinement: Confinement,
    start: Instant,
}

/// Runs an exporting process on the calling thread until `stop` can be read. A document that changes
/// holds a second after it was written, or when it is asked for: collectors come and go, one whose own
/// table or whose records are other ones begins a new session, and the sessions with all others go on. A
/// document that cannot be carried out changes nothing.
///
/// # Errors
/// [`ExportFailure`], when it does not start or cannot wait.
pub fn run_export(options: ExportOptions, stop: BorrowedFd<'_>) -> Result<(), ExportFailure> {
    let mut document = Document::new(options.document, options.reload);
    let wanted = document.begin().map_err(ExportFailure::Invalid)?;
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
    let resolver = Resolver::new()?;
    let service =
        Service::bind(socket).map_err(|error| bootstrap("/export/socket", socket, &error))?;
    let status = StatusServer::bind(status)
        .map_err(|error| bootstrap("/export/status_socket", status, &error))?;
    let mut process = Process {
        service,
        resolver,
        status,
        members: BTreeMap::new(),
        document,
        looked: now(),
        documents: [0; 2],
        version: options.version,
        confinement: options.confinement,
        start: Instant::now(),
    };
    process.adopt(now(), wanted);
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
        let members = &self.members;
        self.service
            .drive(time, &mut |collector, event| log(members, collector, event));
        self.look_up(time);
        self.look(time);
        self.answer(time);
        match stop {
            Some(stop) => is_readable(stop),
            None => Ok(false),
        }
    }

    /// Looks at files: certificates and the document.
    fn look(&mut self, time: Utc) {
        let asked = self.document.is_asked_for();
        if !asked && time.since(self.looked) < LOOK {
            return;
        }
        self.looked = time;
        for (collector, member) in &mut self.members {
            member.renew(self.service.exporters().get_mut(collector));
        }
        if !self.document.has_changed() && !asked {
            return;
        }
        match self.document.read() {
            Ok(wanted) => {
                // Without a part on IPFIX there are no collectors until there is one again.
                let wanted = wanted.unwrap_or_default();
                tracing::info!(collectors = wanted.len(), "document read anew");
                self.adopt(time, wanted);
            }
            Err(invalid) => {
                self.documents[1] += 1;
                for issue in &invalid.issues {
                    tracing::warn!("document refused, the one before holds: {issue}");
                }
            }
        }
    }

    /// Serves the collectors of a document, and no others.
    fn adopt(&mut self, time: Utc, wanted: Wanted) {
        self.documents[0] += 1;
        let before = std::mem::take(&mut self.members);
        let mut tell = |collector: u16, event: &ExporterEvent| log(&before, collector, event);
        for collector in before.keys().filter(|c| !wanted.contains_key(c)) {
            self.service.remove(time, *collector, &mut tell);
        }
        for (collector, (member, config)) in wanted {
            let same = before
                .get(&collector)
                .is_some_and(|b| b.goes_on_as(&member));
            if same && let Some(exporter) = self.service.exporters().get_mut(&collector) {
                exporter.go_on_by(Arc::clone(member.session()));
            } else if let Err(error) = self.service.put(time, collector, config, &mut tell) {
                // The document was checked.
                tracing::error!(collector = member.name, "{error}");
            }
            self.members.insert(collector, member);
        }
    }

    fn look_up(&mut self, time: Utc) {
        while let Some((collector, address)) = self.resolver.answer() {
            if let Some(exporter) = self.service.exporters().get_mut(&collector) {
                exporter.found(time, address);
            }
        }
        for (collector, exporter) in self.service.exporters() {
            let Some(name) = exporter.lookup().map(str::to_owned) else {
                continue;
            };
            if let Err(error) = self.resolver.ask(*collector, &name) {
                exporter.found(time, Err(error));
            }
        }
    }

    fn answer(&mut self, time: Utc) {
        let uptime_ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (service, members, version) = (&mut self.service, &self.members, &self.version);
        let (documents, confinement) = (self.documents, &self.confinement);
        self.status.drive(time, uptime_ms, &mut |get| match get {
            Get::Status => Body::Status(Status {
                version: version.clone(),
                pid: std::process::id(),
                uptime_ms,
                confinement: Some(confinement.clone()),
                ..Status::default()
            }),
            Get::Export => Body::Export(Export {
                confinement: Some(confinement.clone()),
                ..state(service, members, documents)
            }),
            Get::Counters | Get::Flows | Get::Document | Get::Capture => {
                Body::Error(ErrorReply::new(
                    ErrorCode::Unknown,
                    "the exporting process has \"status\" and \"export\"",
                ))
            }
        });
    }

    /// Takes what the data plane handed over, sends what waits, and ends the sessions.
    fn finish(mut self) -> io::Result<()> {
        let start = Instant::now();
        while start.elapsed() < LAST {
            self.turn(None)?;
            let mut exporters = self.service.exporters().values();
            if exporters.all(|e| e.queued() == 0) {
                break;
            }
        }
        let members = self.members;
        self.service.close(now(), &mut |collector, event| {
            log(&members, collector, event);
        });
        Ok(())
    }
}

fn log(members: &BTreeMap<u16, Member>, collector: u16, event: &ExporterEvent) {
    let name = members.get(&collector).map_or("?", |m| m.name.as_str());
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
fn state(
    service: &mut Service,
    members: &BTreeMap<u16, Member>,
    [taken, refused]: [u64; 2],
) -> Export {
    let counters = *service.counters();
    let source = [
        ("connected", u64::from(service.is_connected())),
        ("connections", counters.connections),
        ("batches", counters.batches),
        ("items", counters.items),
        ("damaged_batches", counters.damaged),
        ("unrouted", counters.unrouted),
        ("documents", taken),
        ("documents_refused", refused),
    ];
    let exporters = service.exporters();
    let known = members.iter().filter_map(|(number, member)| {
        let exporter: &Exporter = exporters.get(number)?;
        Some((member.name.clone(), collectors::document(exporter)))
    });
    Export {
        source: source.map(|(name, n)| (name.to_owned(), n)).into(),
        collectors: known.collect(),
        confinement: None,
    }
}
