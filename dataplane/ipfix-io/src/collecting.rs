//! The collecting process: listeners or files, what they tell as JSON lines or as a live table, and a
//! summary at the end. What is right and wrong is judged in `crem-ipfix`; nothing here says of a packet
//! that it was lost, because no report can tell.

mod table;

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crem_ipfix::collect::{CollectCounters, Event, Outcome, json};
use crem_ipfix::element::Mapping;
use crem_meter::Utc;
use serde_json::{Value, json};

use crate::collector::{
    Collector, CollectorConfig, CollectorEvent, Listen, ListenError, Peer, read_file,
};
use crate::tls::{Authorised, TlsError, TlsFiles};
use crate::wait::{Interest, wait};

/// What is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// One JSON object a line for everything that happens.
    Json,
    /// The state of sessions and epochs, anew every second.
    Table,
    /// Only the summary.
    Summary,
}

/// A TLS listener's certificates and whom it lets in; files are read anew when they change.
#[derive(Clone, Debug)]
pub struct CollectTls {
    /// Our files.
    pub files: TlsFiles,
    /// Exporters that may connect.
    pub exporters: Authorised,
}

/// What a collecting process is started with.
#[derive(Clone, Debug)]
pub struct CollectOptions {
    /// Listeners; none if only files are read.
    pub listen: Vec<Listen>,
    /// For the TLS listeners among them.
    pub tls: Option<CollectTls>,
    /// Files of messages, read before listening.
    pub files: Vec<PathBuf>,
    /// Bounds and numbers.
    pub config: CollectorConfig,
    /// What is shown.
    pub output: Output,
}

/// Why a collecting process did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum CollectFailure {
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A file cannot be read.
    #[error("{0}: {1}")]
    File(PathBuf, #[source] io::Error),
    /// Output failed, or waiting.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// What was collected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Collected {
    /// Sessions, files included.
    pub sessions: u64,
    /// Connections that were not let in: too many, or not authorised.
    pub turned_away: u64,
    /// What sessions counted.
    pub counters: CollectCounters,
    /// Epochs that were given up complete, incomplete, invalid.
    pub epochs: [u64; 3],
}

impl Collected {
    /// Whether no exporter did anything that it must not, and nothing is missing by the sequence numbers.
    pub const fn is_clean(&self) -> bool {
        self.counters.issues == 0
            && self.counters.refused == 0
            && self.counters.missing_records == 0
            && self.epochs[2] == 0
            && self.turned_away == 0
    }
}

fn now() -> Utc {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Utc(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Writes what happens, and remembers that writing failed.
struct Show<'a> {
    out: &'a mut dyn Write,
    output: Output,
    mapping: Arc<Mapping>,
    epochs: [u64; 3],
    failed: Option<io::Error>,
}

impl Show<'_> {
    fn line(&mut self, value: &Value) {
        if self.failed.is_none()
            && let Err(error) = writeln!(self.out, "{value}")
        {
            self.failed = Some(error);
        }
    }

    fn hear(&mut self, peer: Peer, event: &CollectorEvent<'_>) {
        if let CollectorEvent::Session(Event::Stored(_, stored)) = event {
            let place = match stored.outcome {
                Outcome::Complete => 0,
                Outcome::Incomplete => 1,
                Outcome::Invalid => 2,
            };
            self.epochs[place] += 1;
        }
        if self.output != Output::Json {
            return;
        }
        let mut value = match event {
            CollectorEvent::Began => json!({"event": "began"}),
            CollectorEvent::Ended(reason) => json!({"event": "ended", "reason": reason}),
            // Nothing is in it that its records do not tell.
            CollectorEvent::Session(Event::Message(_)) => return,
            CollectorEvent::Session(event) => json::event(event, &self.mapping),
        };
        value["session"] = json!(peer.session);
        value["peer"] = json!(peer.address.map(|address| address.to_string()));
        self.line(&value);
    }

    fn check(&mut self) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }
}

/// Reads the files, then serves the listeners until `stop` can be read. `on_ready` gets the addresses.
///
/// # Errors
/// See [`CollectFailure`].
pub fn run_collect(
    options: CollectOptions,
    stop: BorrowedFd<'_>,
    out: &mut dyn Write,
    on_ready: &mut dyn FnMut(&[std::net::SocketAddr]),
) -> Result<Collected, CollectFailure> {
    let mut show = Show {
        out,
        output: options.output,
        mapping: Arc::clone(&options.config.mapping),
        epochs: [0; 3],
        failed: None,
    };
    let mut collected = Collected::default();
    for path in &options.files {
        let counters = read_file(path, &options.config, now(), &mut |peer, event| {
            show.hear(peer, &event);
        })
        .map_err(|error| CollectFailure::File(path.clone(), error))?;
        collected.sessions += 1;
        add(&mut collected.counters, &counters);
        show.check()?;
    }
    if !options.listen.is_empty() {
        listen(&options, stop, &mut show, on_ready, &mut collected)?;
    }
    collected.epochs = show.epochs;
    if options.output != Output::Table {
        show.line(&summary(&collected));
    }
    show.out.flush()?;
    show.check()?;
    Ok(collected)
}

fn listen(
    options: &CollectOptions,
    stop: BorrowedFd<'_>,
    show: &mut Show<'_>,
    on_ready: &mut dyn FnMut(&[std::net::SocketAddr]),
    collected: &mut Collected,
) -> Result<(), CollectFailure> {
    let mut collector = Collector::new(options.config.clone(), &options.listen)?;
    on_ready(&collector.addresses());
    let mut tls = options.tls.as_ref().map(|tls| (tls, tls.files.stamp()));
    let mut shown = now();
    loop {
        let mut interests = collector.interests();
        interests.push(Interest {
            fd: stop,
            read: true,
            write: false,
        });
        wait(&interests, Duration::from_millis(200))?;
        drop(interests);
        let time = now();
        collector.drive(time, &mut |peer, event| show.hear(peer, &event));
        if time.since(shown) >= Duration::from_secs(1) {
            shown = time;
            if show.output == Output::Table {
                table::write(show.out, &collector)?;
            }
            if let Some((tls, seen)) = &mut tls {
                renew(&mut collector, tls, seen);
            }
        }
        show.out.flush()?;
        show.check()?;
        if crate::wait::is_readable(stop)? {
            break;
        }
    }
    if show.output == Output::Table {
        table::write(show.out, &collector)?;
    }
    let counters = collector.close(&mut |peer, event| show.hear(peer, &event));
    collected.sessions += counters.sessions;
    collected.turned_away = counters.refused + counters.unauthorised;
    add(&mut collected.counters, &counters.collected);
    Ok(())
}

/// Certificates that changed hold for the connections to come; those that cannot be used change nothing.
fn renew(collector: &mut Collector, tls: &CollectTls, seen: &mut crate::tls::Stamp) {
    let current = tls.files.stamp();
    if current == *seen {
        return;
    }
    match tls.files.collector(&tls.exporters) {
        Ok(config) => {
            *seen = current;
            collector.set_tls(&config);
            tracing::info!("certificates read anew");
        }
        Err(error) => tracing::warn!("certificates not read: {error}"),
    }
}

fn add(sum: &mut CollectCounters, part: &CollectCounters) {
    crate::collector::add(sum, part);
}

fn summary(collected: &Collected) -> Value {
    let counters = &collected.counters;
    let [complete, incomplete, invalid] = collected.epochs;
    json!({
        "event": "summary",
        "clean": collected.is_clean(),
        "sessions": collected.sessions,
        "turned_away": collected.turned_away,
        "messages": counters.messages,
        "refused_messages": counters.refused,
        "octets": counters.octets,
        "data_records": counters.records,
        "packets": counters.packets,
        "flows": counters.flows,
        "reports": counters.reports,
        "records_missing_by_sequence_number": counters.missing_records,
        "issues": counters.issues,
        "epochs": {"complete": complete, "incomplete": incomplete, "invalid": invalid},
    })
}
