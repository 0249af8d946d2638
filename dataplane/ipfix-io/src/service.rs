//! The exporting process between the data plane and its collectors: takes batches of records from a local
//! socket, gives each exporter what is for it, and tells the data plane which collectors have a session.
//! The data plane never waits for it: what does not fit into the socket is dropped there.
//!
//! The socket keeps messages apart (SOCK_SEQPACKET): a message is one batch of [`crem_ipfix::handover`],
//! the other way one [`Control`].

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crem_api::socket::vacate_unless;
use crem_ipfix::handover::{BatchError, Control, Item, items};
use crem_ipfix::session::Ignored;
use crem_meter::Utc;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
};

use crate::exporter::{Exporter, ExporterConfig, ExporterError, ExporterEvent, Past};
use crate::link::would_block;
use crate::wait::Interest;

/// Octets of a batch at most.
pub const MAX_BATCH: usize = 64 * 1024;
/// Batches that are taken before exporters get their turn.
const BATCHES: usize = 64;

/// What the process took over and could not use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServiceCounters {
    /// Connections of the data plane.
    pub connections: u64,
    /// Batches taken.
    pub batches: u64,
    /// Items in them.
    pub items: u64,
    /// Batches of another format, or damaged.
    pub damaged: u64,
    /// Sequence records for a collector that is not there.
    pub unrouted: u64,
}

/// The exporting process.
#[derive(Debug)]
pub struct Service {
    path: PathBuf,
    listener: UnixListener,
    source: Option<UnixStream>,
    exporters: BTreeMap<u16, Exporter>,
    /// Of collectors that are gone, should they come again: their sessions and totals count on.
    past: BTreeMap<u16, Past>,
    ignored: Ignored,
    counters: ServiceCounters,
    buffer: Vec<u8>,
}

impl Service {
    /// A service without collectors that listens at a path. A socket that is left over from a process that is gone is
    /// replaced. Only the same user may connect.
    ///
    /// # Errors
    /// The path cannot be listened at, `AddrInUse` if another process does.
    pub fn bind(path: &Path) -> io::Result<Self> {
        vacate_unless(path, |path| connect_to(path).is_ok())?;
        let fd = seqpacket()?;
        bind(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        listen(&fd, Backlog::new(4)?)?;
        Ok(Self {
            path: path.to_path_buf(),
            listener: fd.into(),
            source: None,
            exporters: BTreeMap::new(),
            past: BTreeMap::new(),
            ignored: Ignored::default(),
            counters: ServiceCounters::default(),
            buffer: vec![0; MAX_BATCH],
        })
    }

    /// The exporters, by the number of their collector.
    pub const fn exporters(&mut self) -> &mut BTreeMap<u16, Exporter> {
        &mut self.exporters
    }

    /// Serves a collector from now on. If it is served already, its session ends in order first, and the
    /// next one has other terms.
    ///
    /// # Errors
    /// A configuration that cannot be meant; nothing changes.
    pub fn put(
        &mut self,
        now: Utc,
        collector: u16,
        config: ExporterConfig,
        tell: &mut dyn FnMut(u16, &ExporterEvent),
    ) -> Result<(), ExporterError> {
        let mut exporter = Exporter::new(config)?;
        self.remove(now, collector, tell);
        if let Some(past) = self.past.remove(&collector) {
            exporter.go_on_from(past);
        }
        exporter.set_ignored(self.ignored);
        self.exporters.insert(collector, exporter);
        Ok(())
    }

    /// Ends the session with a collector in order and serves it no more.
    pub fn remove(&mut self, now: Utc, collector: u16, tell: &mut dyn FnMut(u16, &ExporterEvent)) {
        let Some(mut exporter) = self.exporters.remove(&collector) else {
            return;
        };
        exporter.close(now);
        self.events(collector, &mut exporter, tell);
        self.past.insert(collector, exporter.into_past());
    }

    /// What it did so far.
    pub const fn counters(&self) -> &ServiceCounters {
        &self.counters
    }

    /// Whether the data plane is connected.
    pub const fn is_connected(&self) -> bool {
        self.source.is_some()
    }

    /// What to wait for.
    pub fn interests(&self) -> Vec<Interest<'_>> {
        let read = |fd| Interest {
            fd,
            read: true,
            write: false,
        };
        let mut interests = vec![read(self.listener.as_fd())];
        interests.extend(self.source.as_ref().map(|source| read(source.as_fd())));
        interests.extend(self.exporters.values().filter_map(Exporter::interest));
        interests
    }

    /// When to call [`Service::drive`] whatever the descriptors say.
    pub fn next_timeout(&self) -> Option<Utc> {
        self.exporters
            .values()
            .filter_map(Exporter::next_timeout)
            .min()
    }

    /// Does what can be done now; tells what happened at which exporter.
    pub fn drive(&mut self, now: Utc, tell: &mut dyn FnMut(u16, &ExporterEvent)) {
        self.accept();
        self.receive(now);
        let mut exporters = std::mem::take(&mut self.exporters);
        for (collector, exporter) in &mut exporters {
            exporter.drive(now);
            self.events(*collector, exporter, tell);
        }
        self.exporters = exporters;
    }

    fn events(
        &mut self,
        collector: u16,
        exporter: &mut Exporter,
        tell: &mut dyn FnMut(u16, &ExporterEvent),
    ) {
        while let Some(event) = exporter.poll_event() {
            tell(collector, &event);
            match event {
                ExporterEvent::Began(session) => self.send(Control::Begin(collector, session)),
                ExporterEvent::Ended(..) => self.send(Control::End(collector)),
                ExporterEvent::Failed(_) => {}
            }
        }
    }

    /// A data plane that connects is a new one: it knows of no session, and its epochs are others.
    fn accept(&mut self) {
        while let Ok((source, _)) = self.listener.accept() {
            if source.set_nonblocking(true).is_err() {
                continue;
            }
            self.counters.connections += 1;
            self.source = Some(source);
            let mut sessions = Vec::new();
            for (collector, exporter) in &mut self.exporters {
                exporter.source_restarted();
                sessions.extend(exporter.session().map(|session| (*collector, session)));
            }
            for (collector, session) in sessions {
                self.send(Control::Begin(collector, session));
            }
        }
    }

    /// Tells the data plane. If it takes nothing, it is not working and is let go.
    fn send(&mut self, control: Control) {
        if let Some(source) = &mut self.source
            && source.write_all(&control.encode()).is_err()
        {
            self.source = None;
        }
    }

    fn receive(&mut self, now: Utc) {
        for _ in 0..BATCHES {
            let Some(source) = &mut self.source else {
                return;
            };
            let mut buffer = std::mem::take(&mut self.buffer);
            let received = source.read(&mut buffer);
            match received {
                Ok(0) => self.source = None,
                Ok(octets) => self.batch(now, &buffer[..octets]),
                Err(error) if would_block(&error) => {
                    self.buffer = buffer;
                    return;
                }
                Err(_) => self.source = None,
            }
            self.buffer = buffer;
        }
    }

    fn batch(&mut self, now: Utc, octets: &[u8]) {
        self.counters.batches += 1;
        let taken = items(octets).and_then(|items| {
            for item in items {
                self.item(now, &item?);
            }
            Ok::<(), BatchError>(())
        });
        if taken.is_err() {
            self.counters.damaged += 1;
        }
    }

    /// Packets and flows are for every collector, a snapshot for one.
    fn item(&mut self, now: Utc, item: &Item) {
        self.counters.items += 1;
        match item {
            Item::Packet(record) => {
                for exporter in self.exporters.values_mut().filter(|e| e.takes_packets()) {
                    exporter.packet(now, record);
                }
            }
            Item::Flow(post, record) => {
                for exporter in self.exporters.values_mut().filter(|e| e.takes_flows()) {
                    exporter.flow(now, *post, record);
                }
            }
            Item::Sequence(record) => match self.exporters.get_mut(&record.collector) {
                Some(exporter) => {
                    exporter.sequence(now, record);
                }
                None => self.counters.unrouted += 1,
            },
            Item::Selection(sequence, stats) => {
                for exporter in self.exporters.values_mut().filter(|e| e.takes_packets()) {
                    exporter.set_selection(*sequence, *stats);
                }
            }
            Item::Ignored(packets, octets) => self.ignore(now, *packets, *octets),
        }
    }

    /// The counts are totals; when the first and the last came is seen from here.
    fn ignore(&mut self, now: Utc, packets: u64, octets: u64) {
        if packets > self.ignored.packets {
            let first = self.ignored.times.map_or(now, |(first, _)| first);
            self.ignored = Ignored {
                packets,
                octets,
                times: Some((first, now)),
            };
            for exporter in self.exporters.values_mut() {
                exporter.set_ignored(self.ignored);
            }
        }
    }

    /// Ends every session in order and removes the socket.
    pub fn close(mut self, now: Utc, tell: &mut dyn FnMut(u16, &ExporterEvent)) {
        let all: Vec<u16> = self.exporters.keys().copied().collect();
        for collector in all {
            self.remove(now, collector, tell);
        }
        // Somebody may have replaced it; then it stays.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn seqpacket() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    Ok(socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        flags,
        None,
    )?)
}

/// Connects to a service, as the data plane does: reading and writing never wait, and each is one message.
///
/// # Errors
/// Nobody listens at the path.
pub fn connect_to(path: &Path) -> io::Result<UnixStream> {
    let fd = seqpacket()?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(fd.into())
}
