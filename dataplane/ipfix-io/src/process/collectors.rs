//! Collectors of the config document as exporters, their state for the status socket, and their
//! certificates, which are read anew when a file changes.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crem_api::ipfix::{Collector, CollectorTransport, Ipfix, TlsPeer};
use crem_api::state::ExportCollector;
use crem_api::{Invalid, Issue};
use crem_ipfix::plan::Plan;
use crem_ipfix::session::SessionConfig;
use rustls::ClientConfig;

use crate::exporter::{Destination, Exporter, ExporterConfig};
use crate::link::probe_sctp;
use crate::tls::{Authorised, Stamp, TlsError, TlsFiles};

/// A collector of the document in force.
#[derive(Debug)]
pub(super) struct Member {
    /// Its name.
    pub(super) name: String,
    collector: Collector,
    session: Arc<SessionConfig>,
    tls: Option<Watched>,
}

/// The members of a document, by number, with what their exporters are told.
pub(super) type Wanted = BTreeMap<u16, (Member, ExporterConfig)>;

/// Every collector of a document.
///
/// # Errors
/// All that cannot be carried out: certificates that cannot be used, SCTP that the kernel lacks.
pub(super) fn wanted(ipfix: &Ipfix, plan: &Plan) -> Result<Wanted, Invalid> {
    let mut issues = Vec::new();
    let mut all = Wanted::new();
    for (number, name, collector) in ipfix.numbered() {
        let mut refuse = |key: &str, found: String, expected: &str| {
            let pointer = format!("/ipfix/collectors/{name}{key}");
            issues.push(Issue::new(pointer, found, expected));
        };
        let destination = match destination(collector) {
            Ok(destination) => destination,
            Err(Refused::Tls(error)) => {
                refuse("/tls", error.to_string(), "certificates that can be used");
                continue;
            }
            Err(Refused::Sctp(error)) => {
                refuse("/transport", error.to_string(), "a transport that is there");
                continue;
            }
        };
        let config = config(number, collector, destination, plan);
        if let Err(error) = config.check() {
            refuse("", error.to_string(), "a collector that can be served");
        }
        let member = Member {
            name: name.to_string(),
            collector: collector.clone(),
            session: Arc::clone(&config.session),
            tls: collector.tls.as_ref().map(Watched::new),
        };
        all.insert(number, (member, config));
    }
    if issues.is_empty() {
        Ok(all)
    } else {
        Err(Invalid { issues })
    }
}

impl Member {
    /// Whether a session goes on by the terms of `other`.
    pub(super) fn goes_on_as(&self, other: &Self) -> bool {
        self.collector == other.collector && self.session.goes_on_as(&other.session)
    }

    /// The terms of its sessions.
    pub(super) const fn session(&self) -> &Arc<SessionConfig> {
        &self.session
    }

    /// Reads certificates that have changed; they hold for the connections to come. Files that cannot be
    /// used, as while they are being replaced, change nothing and are tried again.
    pub(super) fn renew(&mut self, exporter: Option<&mut Exporter>) {
        let name = &self.name;
        match self.tls.as_mut().and_then(Watched::changed) {
            None => {}
            Some(Ok(config)) => {
                if let Some(exporter) = exporter {
                    exporter.set_tls(config);
                }
                tracing::info!(collector = name, "certificates read anew");
            }
            Some(Err(error)) => {
                tracing::warn!(collector = name, "certificates not read: {error}");
            }
        }
    }
}

/// Certificates, and how their files were when they were read.
#[derive(Debug)]
struct Watched {
    files: TlsFiles,
    authorised: Authorised,
    seen: Stamp,
}

impl Watched {
    fn new(tls: &TlsPeer) -> Self {
        let files = files(tls);
        Self {
            seen: files.stamp(),
            files,
            authorised: authorised(tls),
        }
    }

    /// What the files say, if they have changed.
    fn changed(&mut self) -> Option<Result<Arc<ClientConfig>, TlsError>> {
        let current = self.files.stamp();
        if current == self.seen {
            return None;
        }
        let read = self.files.exporter(&self.authorised);
        if read.is_ok() {
            self.seen = current;
        }
        Some(read)
    }
}

enum Refused {
    Tls(TlsError),
    Sctp(io::Error),
}

fn files(tls: &TlsPeer) -> TlsFiles {
    TlsFiles {
        certificate: PathBuf::from(&tls.certificate),
        key: PathBuf::from(&tls.key),
        authorities: PathBuf::from(&tls.authorities),
    }
}

fn authorised(tls: &TlsPeer) -> Authorised {
    Authorised {
        names: tls.names.keys().cloned().collect(),
        fingerprints: tls.fingerprints.keys().map(|f| f.0).collect(),
    }
}

/// The destination; without an address of its own, its name will give one.
fn destination(collector: &Collector) -> Result<Destination, Refused> {
    let ip = collector
        .address()
        .unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let address = SocketAddr::new(ip, collector.port);
    Ok(match collector.transport {
        CollectorTransport::Tcp => Destination::Tcp(address),
        CollectorTransport::Udp => Destination::Udp(address),
        CollectorTransport::Sctp => {
            probe_sctp().map_err(Refused::Sctp)?;
            Destination::Sctp(address)
        }
        CollectorTransport::Tls => {
            // The document was checked: there is a table.
            let tls = collector
                .tls
                .as_ref()
                .ok_or(Refused::Tls(TlsError::Nobody))?;
            let authorised = authorised(tls);
            let config = files(tls).exporter(&authorised).map_err(Refused::Tls)?;
            let named = tls.names.contains_key(&collector.host);
            let name = if named {
                collector.host.clone()
            } else {
                authorised.names.first().cloned().unwrap_or_default()
            };
            Destination::Tls {
                address,
                name,
                config,
            }
        }
    })
}

fn config(
    number: u16,
    collector: &Collector,
    destination: Destination,
    plan: &Plan,
) -> ExporterConfig {
    let millis = |ms: u32| Duration::from_millis(ms.into());
    ExporterConfig {
        host: collector
            .address()
            .is_none()
            .then(|| collector.host.clone()),
        queue: collector.queue_kb as usize * 1024,
        retry: millis(collector.retry_ms),
        connect_timeout: millis(collector.connect_timeout_ms),
        confirm: millis(collector.confirm_ms),
        stall_timeout: millis(collector.stall_timeout_ms),
        flush: millis(collector.flush_ms),
        statistics: millis(collector.statistics_ms),
        // Gateways that start together do not come together.
        seed: u64::from(std::process::id()) << 16 | u64::from(number),
        ..ExporterConfig::new(destination, Arc::new(plan.session(collector)))
    }
}

/// What the status says of a collector.
pub(super) fn document(exporter: &Exporter) -> ExportCollector {
    let c = exporter.counters();
    let counters = [
        ("attempts", c.attempts),
        ("sessions", c.sessions),
        ("failures", c.failures),
        ("not_authorised", c.not_authorised),
        ("stalled", c.stalled),
        ("messages", c.messages),
        ("octets", c.octets),
        ("records", c.records),
        ("dropped_disconnected", c.dropped_disconnected),
        ("dropped_full", c.dropped_full),
        ("refused", c.refused),
        ("stale", c.stale),
        ("lost", c.lost),
        ("datagram_errors", c.datagram_errors),
        ("unexpected_octets", c.unexpected_octets),
        ("not_sent_records", exporter.not_sent().records),
        ("queued_octets", exporter.queued() as u64),
    ];
    ExportCollector {
        state: exporter.state().to_owned(),
        session: exporter.session(),
        counters: counters.map(|(name, n)| (name.to_owned(), n)).into(),
    }
}
