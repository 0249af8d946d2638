//! What an exporter is told, what it tells, and what it counts.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crem_ipfix::session::{SessionConfig, SessionError, Transport};
use rustls::ClientConfig;

/// Where records go.
#[derive(Clone, Debug)]
pub enum Destination {
    /// TCP without protection: only where nobody else listens (AMB-BTH-TRANSPORT).
    Tcp(SocketAddr),
    /// TLS 1.3 over TCP.
    Tls {
        /// The collector.
        address: SocketAddr,
        /// Its DNS name, sent to it; which names are authorised is in `config`.
        name: String,
        /// From [`crate::TlsFiles::exporter`].
        config: Arc<ClientConfig>,
    },
    /// UDP without protection: only on a network of its own.
    Udp(SocketAddr),
    /// SCTP, if the kernel has it; see [`crate::probe_sctp`].
    Sctp(SocketAddr),
    /// A file of messages (RFC 5655 without its own options).
    File(PathBuf),
}

impl Destination {
    /// The address, where there is one.
    pub(crate) fn address_mut(&mut self) -> Option<&mut SocketAddr> {
        match self {
            Self::Tcp(address)
            | Self::Tls { address, .. }
            | Self::Udp(address)
            | Self::Sctp(address) => Some(address),
            Self::File(_) => None,
        }
    }
}

/// An exporter to one collector.
#[derive(Clone, Debug)]
pub struct ExporterConfig {
    /// Where records go.
    pub destination: Destination,
    /// The host's name: it is looked up at every attempt (see [`crate::Exporter::lookup`]), and takes the
    /// place of the address in the destination.
    pub host: Option<String>,
    /// What sessions are like; its transport has to match the destination.
    pub session: Arc<SessionConfig>,
    /// Octets that wait for the collector at most, without what the kernel holds. What exceeds it is
    /// dropped, whole records at a time.
    pub queue: usize,
    /// Between two attempts to connect at least; doubled after each that fails, to ten times at most.
    /// RFC 7011 section 10.4.4 demands a minute by default.
    pub retry: Duration,
    /// For connecting, and for the handshake of TLS.
    pub connect_timeout: Duration,
    /// How long TLS waits for a refusal: a client is told only after its handshake that its certificate
    /// is not accepted. A server that says anything before is taken to have accepted.
    pub confirm: Duration,
    /// Without any progress in sending for so long, the session ends.
    pub stall_timeout: Duration,
    /// A message that is not full leaves after so long.
    pub flush: Duration,
    /// Between two reports on what was sent and not sent.
    pub statistics: Duration,
    /// Spreads the attempts of many exporters.
    pub seed: u64,
}

impl ExporterConfig {
    /// An exporter with the usual times.
    pub fn new(destination: Destination, session: Arc<SessionConfig>) -> Self {
        Self {
            destination,
            host: None,
            session,
            queue: 4 << 20,
            retry: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(10),
            confirm: Duration::from_secs(1),
            stall_timeout: Duration::from_secs(30),
            flush: Duration::from_secs(1),
            statistics: Duration::from_secs(60),
            seed: 0,
        }
    }

    /// Whether it can be meant.
    ///
    /// # Errors
    /// The first thing that cannot.
    pub fn check(&self) -> Result<(), ExporterError> {
        self.session.check()?;
        let datagrams = matches!(self.destination, Destination::Udp(_));
        if datagrams != matches!(self.session.transport, Transport::Datagram { .. }) {
            return Err(ExporterError::Transport);
        }
        let protected = matches!(self.destination, Destination::Tls { .. });
        let file = matches!(self.destination, Destination::File(_));
        // Section 10 of the sequence draft; loopback is for tests.
        if self.session.sequence.is_some() && !protected && !file && !self.is_loopback() {
            return Err(ExporterError::Unprotected);
        }
        if self.queue < 4 * self.session.transport.max_message() {
            return Err(ExporterError::Queue(self.queue));
        }
        Ok(())
    }

    fn is_loopback(&self) -> bool {
        match &self.destination {
            Destination::Tcp(address)
            | Destination::Tls { address, .. }
            | Destination::Udp(address)
            | Destination::Sctp(address) => address.ip().is_loopback(),
            Destination::File(_) => false,
        }
    }
}

/// A configuration that cannot be meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExporterError {
    /// The session cannot be meant.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Datagrams over a stream, or the other way round.
    #[error("the session's transport does not match the destination")]
    Transport,
    /// The sequence profile without TLS.
    #[error("the sequence profile needs TLS, except to the loopback address")]
    Unprotected,
    /// Not even a few messages fit.
    #[error("a queue of {0} octets: four messages have to fit")]
    Queue(usize),
}

/// Why a session, or an attempt at one, ended.
#[derive(Debug)]
pub enum EndReason {
    /// The collector cannot be reached, or the connection broke.
    Broken(std::io::Error),
    /// Its name has no address.
    Unknown(std::io::Error),
    /// The collector ended the connection.
    ClosedByCollector,
    /// No connection, or no handshake, in time.
    ConnectTimeout,
    /// The collector is not one that we trust, or TLS failed otherwise.
    Untrusted(std::io::Error),
    /// The collector did not accept our certificate.
    NotAuthorised(std::io::Error),
    /// The collector took nothing for too long.
    Stalled,
    /// The exporter was closed.
    Closed,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(error) => write!(f, "connection failed: {error}"),
            Self::Unknown(error) => write!(f, "the collector's name has no address: {error}"),
            Self::ClosedByCollector => f.write_str("closed by the collector"),
            Self::ConnectTimeout => f.write_str("the collector did not answer in time"),
            Self::Untrusted(error) => write!(f, "TLS failed: {error}"),
            Self::NotAuthorised(error) => {
                write!(
                    f,
                    "not authorised: the collector refused our certificate ({error})"
                )
            }
            Self::Stalled => f.write_str("the collector took nothing for too long"),
            Self::Closed => f.write_str("closed"),
        }
    }
}

/// What an exporter tells.
#[derive(Debug)]
pub enum ExporterEvent {
    /// A session began: observers for this collector begin anew, with this number.
    Began(u32),
    /// The session of this number ended: observers for this collector stop.
    Ended(u32, EndReason),
    /// An attempt to connect failed.
    Failed(EndReason),
}

/// What an exporter did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExporterCounters {
    /// Attempts to connect.
    pub attempts: u64,
    /// Sessions that began.
    pub sessions: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Attempts and sessions that ended because our certificate was refused.
    pub not_authorised: u64,
    /// Sessions that ended because the collector took nothing.
    pub stalled: u64,
    /// Messages handed to the kernel, or to TLS.
    pub messages: u64,
    /// Octets of those.
    pub octets: u64,
    /// Records of profiles in those.
    pub records: u64,
    /// Records dropped because there was no session.
    pub dropped_disconnected: u64,
    /// Records dropped because the queue was full.
    pub dropped_full: u64,
    /// Records dropped because the session had no template or no identifier for them.
    pub refused: u64,
    /// Sequence records of another session, dropped.
    pub stale: u64,
    /// Records that were taken but not sent when their session ended.
    pub lost: u64,
    /// Datagrams that the network refused.
    pub datagram_errors: u64,
    /// Octets that the collector sent, which it has no reason to.
    pub unexpected_octets: u64,
}
