//! A collector's listeners and the connections to them: TCP, TLS, UDP; and files. Every connection is a
//! Transport Session with rules of its own, judged in `crem-ipfix`.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use crem_ipfix::collect::{CollectCounters, CollectorSession, Deframer, EpochLimits, Event};
use crem_ipfix::decode::{DecodeLimits, Delivery};
use crem_ipfix::element::Mapping;
use crem_meter::Utc;
use rustls::ServerConfig;

use crate::link::{Link, Received, would_block};
use crate::wait::Interest;

mod file;

pub use file::read_file;

/// Where to listen.
#[derive(Clone, Debug)]
pub enum Listen {
    /// TCP without protection.
    Tcp(SocketAddr),
    /// TLS 1.3 over TCP, with the configuration from [`crate::TlsFiles::collector`].
    Tls(SocketAddr, Arc<ServerConfig>),
    /// UDP.
    Udp(SocketAddr),
}

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {0}: {1}")]
pub struct ListenError(pub SocketAddr, #[source] pub io::Error);

/// Bounds of a collector; operators see and set them.
#[derive(Clone, Debug)]
pub struct CollectorConfig {
    /// The numbers of the drafts' elements, as the exporters have them.
    pub mapping: Arc<Mapping>,
    /// Of each session.
    pub decode: DecodeLimits,
    /// Of each session and Observation Domain.
    pub epochs: EpochLimits,
    /// Sessions at once. A connection that exceeds it is closed, a datagram is dropped.
    pub sessions: usize,
    /// A connection without a message for so long is closed; a UDP session is forgotten.
    pub idle_timeout: Duration,
    /// For the handshake of TLS.
    pub handshake_timeout: Duration,
}

impl CollectorConfig {
    /// The usual bounds.
    pub fn new(mapping: Arc<Mapping>) -> Self {
        Self {
            mapping,
            decode: DecodeLimits::default(),
            epochs: EpochLimits::default(),
            sessions: 256,
            idle_timeout: Duration::from_secs(1800),
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

/// The other end of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Number of the session within the collector, from 1.
    pub session: u64,
    /// Its address; `None` for a file.
    pub address: Option<SocketAddr>,
}

/// What a collector tells.
#[derive(Debug)]
pub enum CollectorEvent<'a> {
    /// A session began.
    Began,
    /// A session ended; with a reason if it was not the peer's wish.
    Ended(Option<&'a str>),
    /// Something in a session.
    Session(&'a Event<'a>),
}

/// What a collector did, beside what its sessions count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CollectorCounters {
    /// Sessions that began.
    pub sessions: u64,
    /// Connections and datagrams refused because of the bound.
    pub refused: u64,
    /// Connections whose handshake failed: not authorised, or not TLS 1.3.
    pub unauthorised: u64,
    /// What all sessions counted.
    pub collected: CollectCounters,
}

#[derive(Debug)]
struct Connection {
    peer: Peer,
    link: Link,
    deframer: Deframer,
    session: CollectorSession,
    ready: bool,
    touched: Utc,
}

#[derive(Debug)]
struct Datagrams {
    socket: UdpSocket,
    sessions: HashMap<SocketAddr, (Peer, CollectorSession, Utc)>,
}

/// A collector.
#[derive(Debug)]
pub struct Collector {
    config: CollectorConfig,
    listeners: Vec<(TcpListener, Option<Arc<ServerConfig>>)>,
    datagrams: Vec<Datagrams>,
    connections: Vec<Connection>,
    counters: CollectorCounters,
    /// When idle sessions and epochs were last looked for.
    swept: Utc,
}

/// Who is told: the session and what happened.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(Peer, CollectorEvent<'_>);

impl Collector {
    /// A collector that listens.
    ///
    /// # Errors
    /// The first address that cannot be listened on.
    pub fn new(config: CollectorConfig, listen: &[Listen]) -> Result<Self, ListenError> {
        let (mut listeners, mut datagrams) = (Vec::new(), Vec::new());
        for listen in listen {
            match listen {
                Listen::Tcp(address) => listeners.push((tcp(*address)?, None)),
                Listen::Tls(address, tls) => {
                    listeners.push((tcp(*address)?, Some(Arc::clone(tls))));
                }
                Listen::Udp(address) => {
                    let failed = |error| ListenError(*address, error);
                    let socket = UdpSocket::bind(address).map_err(failed)?;
                    socket.set_nonblocking(true).map_err(failed)?;
                    datagrams.push(Datagrams {
                        socket,
                        sessions: HashMap::new(),
                    });
                }
            }
        }
        Ok(Self {
            config,
            listeners,
            datagrams,
            connections: Vec::new(),
            counters: CollectorCounters::default(),
            swept: Utc(0),
        })
    }

    /// The addresses that it listens on, TCP and TLS before UDP.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let streams = self
            .listeners
            .iter()
            .filter_map(|(socket, _)| socket.local_addr().ok());
        let datagrams = self
            .datagrams
            .iter()
            .filter_map(|d| d.socket.local_addr().ok());
        streams.chain(datagrams).collect()
    }

    /// Certificates for the connections to come; for every TLS listener.
    pub fn set_tls(&mut self, config: &Arc<ServerConfig>) {
        for (_, tls) in &mut self.listeners {
            if tls.is_some() {
                *tls = Some(Arc::clone(config));
            }
        }
    }

    /// What it did so far, sessions that go on included.
    pub fn counters(&self) -> CollectorCounters {
        let mut counters = self.counters;
        let datagrams = self.datagrams.iter().flat_map(|d| d.sessions.values());
        let open = self
            .connections
            .iter()
            .map(|connection| &connection.session);
        for session in open.chain(datagrams.map(|(_, session, _)| session)) {
            add(&mut counters.collected, session.counters());
        }
        counters
    }

    /// Sessions that go on.
    pub fn sessions(&self) -> usize {
        self.connections.len()
            + self
                .datagrams
                .iter()
                .map(|d| d.sessions.len())
                .sum::<usize>()
    }

    /// The sessions that go on, for a live view.
    pub fn iter(&self) -> impl Iterator<Item = (Peer, &CollectorSession)> {
        let streams = self.connections.iter().map(|c| (c.peer, &c.session));
        let datagrams = self.datagrams.iter().flat_map(|d| d.sessions.values());
        streams.chain(datagrams.map(|(peer, session, _)| (*peer, session)))
    }

    /// What to wait for.
    pub fn interests(&self) -> Vec<Interest<'_>> {
        let read = |fd| Interest {
            fd,
            read: true,
            write: false,
        };
        let mut interests: Vec<Interest<'_>> = self
            .listeners
            .iter()
            .map(|(socket, _)| read(socket.as_fd()))
            .collect();
        interests.extend(self.datagrams.iter().map(|d| read(d.socket.as_fd())));
        interests.extend(self.connections.iter().map(|connection| Interest {
            fd: connection.link.as_fd(),
            read: true,
            write: connection.link.has_unsent(),
        }));
        interests
    }

    /// Does what can be done now: accepts, reads, judges, gives up what is idle.
    pub fn drive(&mut self, now: Utc, tell: Tell<'_>) {
        self.accept(now);
        let mut place = 0;
        while let Some(connection) = self.connections.get_mut(place) {
            match serve(now, connection, &self.config, tell) {
                None => place += 1,
                Some(reason) => {
                    let connection = self.connections.swap_remove(place);
                    self.finish(connection, reason, tell);
                }
            }
        }
        for place in 0..self.datagrams.len() {
            self.receive(now, place, tell);
        }
        if now.since(self.swept) >= Duration::from_secs(1) {
            self.swept = now;
            self.sweep(now, tell);
        }
    }

    fn accept(&mut self, now: Utc) {
        for (listener, tls) in &self.listeners {
            // What is more waits in the kernel for the next time.
            for _ in 0..16 {
                let Ok((stream, address)) = listener.accept() else {
                    break;
                };
                if self.connections.len() >= self.config.sessions {
                    self.counters.refused += 1;
                    continue;
                }
                let link = stream.set_nonblocking(true).map(|()| Link::Tcp(stream));
                let link = link.and_then(|link| match tls {
                    Some(config) => link.into_tls_server(Arc::clone(config)),
                    None => Ok(link),
                });
                let Ok(link) = link else {
                    continue;
                };
                self.counters.sessions += 1;
                self.connections.push(Connection {
                    peer: Peer {
                        session: self.counters.sessions,
                        address: Some(address),
                    },
                    link,
                    deframer: Deframer::new(),
                    session: new_session(&self.config, Delivery::Ordered),
                    ready: false,
                    touched: now,
                });
            }
        }
    }

    fn finish(&mut self, mut connection: Connection, reason: End, tell: Tell<'_>) {
        let peer = connection.peer;
        if !connection.ready {
            self.counters.unauthorised += 1;
        }
        let partial = connection.deframer.is_partial();
        connection.session.end(partial, &mut |event| {
            tell(peer, CollectorEvent::Session(&event))
        });
        add(&mut self.counters.collected, connection.session.counters());
        connection.link.close();
        tell(peer, CollectorEvent::Ended(reason.as_deref()));
    }

    fn receive(&mut self, now: Utc, place: usize, tell: Tell<'_>) {
        let mut buffer = vec![0; 65536];
        for _ in 0..1024 {
            let Some(datagrams) = self.datagrams.get_mut(place) else {
                return;
            };
            let (octets, address) = match datagrams.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if would_block(&error) => return,
                Err(_) => continue,
            };
            if !datagrams.sessions.contains_key(&address) {
                if datagrams.sessions.len() >= self.config.sessions {
                    self.counters.refused += 1;
                    continue;
                }
                self.counters.sessions += 1;
                let peer = Peer {
                    session: self.counters.sessions,
                    address: Some(address),
                };
                let session = new_session(&self.config, Delivery::Lossy);
                datagrams.sessions.insert(address, (peer, session, now));
                tell(peer, CollectorEvent::Began);
            }
            if let Some((peer, session, touched)) = datagrams.sessions.get_mut(&address) {
                *touched = now;
                let peer = *peer;
                // A datagram that is refused is told as an issue.
                let _ = session.message(now, &buffer[..octets], &mut |event| {
                    tell(peer, CollectorEvent::Session(&event));
                });
            }
        }
    }

    /// Epochs and UDP sessions without news for too long.
    fn sweep(&mut self, now: Utc, tell: Tell<'_>) {
        for connection in &mut self.connections {
            let peer = connection.peer;
            connection.session.expire(now, &mut |event| {
                tell(peer, CollectorEvent::Session(&event))
            });
        }
        let idle = self.config.idle_timeout;
        let collected = &mut self.counters.collected;
        for datagrams in &mut self.datagrams {
            datagrams.sessions.retain(|_, (peer, session, touched)| {
                let peer = *peer;
                session.expire(now, &mut |event| {
                    tell(peer, CollectorEvent::Session(&event))
                });
                let keep = now.since(*touched) < idle;
                if !keep {
                    session.end(false, &mut |event| {
                        tell(peer, CollectorEvent::Session(&event))
                    });
                    add(collected, session.counters());
                    tell(peer, CollectorEvent::Ended(Some("idle")));
                }
                keep
            });
        }
    }

    /// Ends every session and stops listening.
    pub fn close(mut self, tell: Tell<'_>) -> CollectorCounters {
        for connection in std::mem::take(&mut self.connections) {
            self.finish(connection, None, tell);
        }
        for datagrams in &mut self.datagrams {
            for (_, (peer, mut session, _)) in datagrams.sessions.drain() {
                session.end(false, &mut |event| {
                    tell(peer, CollectorEvent::Session(&event))
                });
                add(&mut self.counters.collected, session.counters());
                tell(peer, CollectorEvent::Ended(None));
            }
        }
        self.counters
    }
}

/// Why a connection ended, if it was not the peer's wish.
type End = Option<String>;

/// Reads a connection; `Some` if it is over.
fn serve(
    now: Utc,
    connection: &mut Connection,
    config: &CollectorConfig,
    tell: Tell<'_>,
) -> Option<End> {
    let mut buffer = [0; 16384];
    for _ in 0..64 {
        let received = connection.link.receive(&mut buffer);
        if !connection.ready && !connection.link.is_handshaking() && received.is_ok() {
            connection.ready = true;
            tell(connection.peer, CollectorEvent::Began);
        }
        match received {
            Ok(Received::Data(octets)) => {
                connection.deframer.push(&buffer[..octets]);
                if let Some(reason) = judge(now, connection, tell) {
                    return Some(Some(reason));
                }
            }
            Ok(Received::Nothing) => break,
            Ok(Received::End) => return Some(None),
            Err(error) => return Some(Some(error.to_string())),
        }
    }
    let patience = if connection.ready {
        config.idle_timeout
    } else {
        config.handshake_timeout
    };
    (now.since(connection.touched) >= patience).then(|| Some("idle".to_owned()))
}

/// Takes the whole messages that there are; `Some` if the stream cannot go on.
fn judge(now: Utc, connection: &mut Connection, tell: Tell<'_>) -> Option<String> {
    let peer = connection.peer;
    loop {
        let message = match connection.deframer.message() {
            Ok(Some(message)) => message,
            Ok(None) => return None,
            Err(error) => return Some(error.to_string()),
        };
        connection.touched = now;
        // A message that is refused is told as an issue; the stream goes on behind it.
        let _ = connection.session.message(now, message, &mut |event| {
            tell(peer, CollectorEvent::Session(&event));
        });
    }
}

fn tcp(address: SocketAddr) -> Result<TcpListener, ListenError> {
    let failed = |error| ListenError(address, error);
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

fn new_session(config: &CollectorConfig, delivery: Delivery) -> CollectorSession {
    CollectorSession::new(
        Arc::clone(&config.mapping),
        delivery,
        config.decode,
        config.epochs,
    )
}

pub(crate) fn add(sum: &mut CollectCounters, part: &CollectCounters) {
    sum.messages += part.messages;
    sum.refused += part.refused;
    sum.octets += part.octets;
    sum.records += part.records;
    sum.packets += part.packets;
    sum.flows += part.flows;
    sum.reports += part.reports;
    sum.missing_records += part.missing_records;
    sum.issues += part.issues;
}
