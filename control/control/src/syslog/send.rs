//! One server: connecting, sending, coming back after failures, counting.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crem_api::{SyslogServer, SyslogTransport};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::Board;
use super::message::{DATAGRAM, Line, STREAM};

/// Waits after failures: the first, and the longest; each is twice the one before.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Longest time for a connection, a handshake, or for one message to be taken.
const PATIENCE: Duration = Duration::from_secs(10);

/// Either end of a stream.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

enum Way {
    Datagrams(UdpSocket),
    Stream(Box<dyn Stream>),
}

pub(super) struct Sender {
    pub(super) name: String,
    pub(super) server: SyslogServer,
    pub(super) host: String,
    pub(super) lines: Receiver<Arc<Line>>,
    pub(super) board: Board,
}

impl Sender {
    /// Sends until the task is dropped. Lines that come meanwhile wait, as many as the queue holds.
    pub(super) async fn run(mut self) {
        let mut wait = FIRST_WAIT;
        loop {
            match self.connect().await {
                Ok(way) => {
                    self.board.update(&self.name, |s| {
                        (s.connected, s.error) = (true, None);
                        s.connections += 1;
                    });
                    wait = FIRST_WAIT;
                    let Err(error) = self.serve(way).await else {
                        return;
                    };
                    self.failed(&error);
                }
                Err(error) => self.failed(&error),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    fn failed(&self, error: &io::Error) {
        let text = error.to_string();
        let mut news = false;
        self.board.update(&self.name, |s| {
            news = s.error.as_ref() != Some(&text);
            (s.connected, s.error) = (false, Some(text.clone()));
        });
        // Once for each kind of failure: it goes to the other servers as well.
        if news {
            tracing::warn!(server = %self.name, "syslog: {text}");
        }
    }

    async fn connect(&self) -> io::Result<Way> {
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        tokio::time::timeout(PATIENCE, self.connect_once())
            .await
            .map_err(late)?
    }

    /// The first address that takes a connection: a name may have several, of both families.
    async fn connect_once(&self) -> io::Result<Way> {
        let host = self.server.host.as_str();
        let addresses = tokio::net::lookup_host((host, self.server.port)).await?;
        let mut last = io::Error::other(format!("{host} has no address"));
        for address in addresses {
            match self.connect_to(address).await {
                Ok(way) => return Ok(way),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn connect_to(&self, address: SocketAddr) -> io::Result<Way> {
        let server = &self.server;
        match server.transport {
            SyslogTransport::Udp => {
                let any: SocketAddr = if address.is_ipv4() {
                    ([0; 4], 0).into()
                } else {
                    ([0u16; 8], 0).into()
                };
                let socket = UdpSocket::bind(any).await?;
                socket.connect(address).await?;
                Ok(Way::Datagrams(socket))
            }
            SyslogTransport::Tcp => {
                let stream = TcpStream::connect(address).await?;
                Ok(Way::Stream(Box::new(stream)))
            }
            SyslogTransport::Tls => {
                let config = tls(server.authorities.as_deref().unwrap_or_default())?;
                let name = ServerName::try_from(server.host.clone()).map_err(io::Error::other)?;
                let stream = TcpStream::connect(address).await?;
                let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
                Ok(Way::Stream(Box::new(
                    connector.connect(name, stream).await?,
                )))
            }
        }
    }

    /// Until the way breaks; `Ok` if no more lines will come.
    async fn serve(&mut self, mut way: Way) -> io::Result<()> {
        let mut heard = [0; 64];
        loop {
            let received = match &mut way {
                Way::Datagrams(_) => self.lines.recv().await,
                // A server says nothing; it only goes.
                Way::Stream(stream) => tokio::select! {
                    line = self.lines.recv() => line,
                    read = stream.read(&mut heard) => match read? {
                        0 => return Err(io::Error::other("the server closed the connection")),
                        _ => continue,
                    },
                },
            };
            let line = match received {
                Ok(line) => line,
                Err(RecvError::Lagged(count)) => {
                    self.board.update(&self.name, |s| s.dropped += count);
                    continue;
                }
                Err(RecvError::Closed) => return Ok(()),
            };
            if line.level > self.server.level {
                continue;
            }
            let sent = tokio::time::timeout(PATIENCE, self.send(&mut way, &line)).await;
            let sent = sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            self.board.update(&self.name, |s| match &sent {
                Ok(()) => s.sent += 1,
                Err(_) => s.dropped += 1,
            });
            sent?;
        }
    }

    async fn send(&self, way: &mut Way, line: &Line) -> io::Result<()> {
        let facility = self.server.facility;
        match way {
            Way::Datagrams(socket) => {
                let message = line.written(facility, &self.host, DATAGRAM);
                socket.send(&message).await.map(|_| ())
            }
            Way::Stream(stream) => {
                let message = line.written(facility, &self.host, STREAM);
                let mut framed = format!("{} ", message.len()).into_bytes();
                framed.extend(message);
                stream.write_all(&framed).await?;
                stream.flush().await
            }
        }
    }
}

fn tls(authorities: &str) -> io::Result<ClientConfig> {
    let named = |e: &dyn std::fmt::Display| io::Error::other(format!("{authorities}: {e}"));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authorities).map_err(|e| named(&e))? {
        let certificate = certificate.map_err(|e| named(&e))?;
        roots.add(certificate).map_err(|e| named(&e))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
