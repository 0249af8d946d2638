//! One connection, whatever carries it: connecting without waiting, sending what fits, and always
//! reading. What is sent and when to give up is decided elsewhere.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

/// Octets of TLS records that wait for the socket at most.
const TLS_BUFFER: usize = 64 * 1024;

/// What reading brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// Nothing for now.
    Nothing,
    /// So many octets of data; with TLS also 0, if only TLS itself had something to say.
    Data(usize),
    /// The peer is done.
    End,
}

/// TLS over TCP.
#[derive(Debug)]
pub(crate) struct Tls {
    stream: TcpStream,
    connection: Connection,
}

/// A connection.
#[derive(Debug)]
pub(crate) enum Link {
    /// TCP.
    Tcp(TcpStream),
    /// TLS over TCP.
    Tls(Box<Tls>),
    /// UDP, connected.
    Udp(UdpSocket),
    /// SCTP, one message at a time, in order.
    Sctp(OwnedFd),
    /// A file; it is only written.
    File(File),
}

impl Link {
    /// Starts connecting by TCP; [`Link::connected`] tells when it is done.
    pub(crate) fn tcp(address: SocketAddr) -> io::Result<Self> {
        let fd = socket(family(&address), SockType::Stream, flags(), None)?;
        begin_connect(&fd, &address)?;
        Ok(Self::Tcp(fd.into()))
    }

    /// Starts connecting by SCTP.
    ///
    /// # Errors
    /// `Unsupported` if this kernel has no SCTP.
    pub(crate) fn sctp(address: SocketAddr) -> io::Result<Self> {
        let fd = sctp_socket(family(&address))?;
        begin_connect(&fd, &address)?;
        Ok(Self::Sctp(fd))
    }

    /// A UDP socket to this address.
    pub(crate) fn udp(address: SocketAddr) -> io::Result<Self> {
        let any = if address.is_ipv4() {
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
        } else {
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))
        };
        let socket = UdpSocket::bind(any)?;
        socket.set_nonblocking(true)?;
        socket.connect(address)?;
        Ok(Self::Udp(socket))
    }

    /// A file, written from its start.
    pub(crate) fn file(path: &Path) -> io::Result<Self> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map(Self::File)
    }

    /// Begins TLS as a client on a TCP connection.
    pub(crate) fn into_tls_client(
        self,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        self.into_tls(connection.into())
    }

    /// Begins TLS as a server on a TCP connection.
    pub(crate) fn into_tls_server(self, config: Arc<ServerConfig>) -> io::Result<Self> {
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        self.into_tls(connection.into())
    }

    fn into_tls(self, mut connection: Connection) -> io::Result<Self> {
        connection.set_buffer_limit(Some(TLS_BUFFER));
        match self {
            Self::Tcp(stream) => Ok(Self::Tls(Box::new(Tls { stream, connection }))),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Whether a connection that was begun stands; `false` if not yet.
    pub(crate) fn connected(&self) -> io::Result<bool> {
        let fd = match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Sctp(fd) => fd.as_fd(),
            _ => return Ok(true),
        };
        if !crate::wait::is_writable(fd)? {
            return Ok(false);
        }
        match nix::sys::socket::getsockopt(&fd, sockopt::SocketError)? {
            0 => Ok(true),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// Notices dead peers and does not wait for more to send.
    pub(crate) fn keep_alive(&self, patience: Duration) -> io::Result<()> {
        let Some(stream) = self.stream() else {
            return Ok(());
        };
        stream.set_nodelay(true)?;
        setsockopt(stream, sockopt::KeepAlive, &true)?;
        let millis = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        setsockopt(stream, sockopt::TcpUserTimeout, &millis)?;
        Ok(())
    }

    fn stream(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(stream) => Some(stream),
            Self::Tls(tls) => Some(&tls.stream),
            _ => None,
        }
    }

    /// Whether messages go one by one, each whole, or as a stream of octets.
    pub(crate) const fn is_by_message(&self) -> bool {
        matches!(self, Self::Udp(_) | Self::Sctp(_))
    }

    /// Whether the handshake of TLS is still going on.
    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.connection.is_handshaking())
    }

    /// Whether TLS has records that wait for the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.connection.wants_write())
    }

    /// Takes some of these octets for sending; 0 if there is no room now. Over UDP and SCTP they have to
    /// be one message, which is taken whole.
    pub(crate) fn send(&mut self, octets: &[u8]) -> io::Result<usize> {
        let sent = match self {
            Self::Tcp(stream) => stream.write(octets),
            Self::File(file) => file.write(octets),
            Self::Udp(socket) => socket.send(octets),
            Self::Sctp(fd) => send_message(fd, octets),
            Self::Tls(tls) => {
                tls.flush()?;
                let taken = tls.connection.writer().write(octets)?;
                tls.flush()?;
                return Ok(taken);
            }
        };
        match sent {
            Err(error) if would_block(&error) => Ok(0),
            result => result,
        }
    }

    /// Sends what TLS has still to send.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(tls) => tls.flush(),
            Self::File(file) => file.flush(),
            _ => Ok(()),
        }
    }

    /// Reads into `buffer`.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let read = match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Tls(tls) => return tls.receive(buffer),
            Self::File(_) => return Ok(Received::Nothing),
            Self::Sctp(fd) => nix::unistd::read(fd, buffer).map_err(io::Error::from),
            Self::Udp(socket) => {
                return match socket.recv(buffer) {
                    Ok(octets) => Ok(Received::Data(octets)),
                    Err(error) if would_block(&error) => Ok(Received::Nothing),
                    Err(error) => Err(error),
                };
            }
        };
        match read {
            Ok(0) => Ok(Received::End),
            Ok(octets) => Ok(Received::Data(octets)),
            Err(error) if would_block(&error) => Ok(Received::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Says goodbye, as far as that goes without waiting.
    pub(crate) fn close(&mut self) {
        if let Self::Tls(tls) = self {
            tls.connection.send_close_notify();
            let _ = tls.flush();
        }
        if let Some(stream) = self.stream() {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Tls(tls) => tls.stream.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
            Self::Sctp(fd) => fd.as_fd(),
            Self::File(file) => file.as_fd(),
        }
    }
}

impl Tls {
    fn flush(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut self.stream) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if would_block(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut heard = false;
        loop {
            match self.connection.reader().read(buffer) {
                Ok(0) => return Ok(Received::End),
                Ok(octets) => return Ok(Received::Data(octets)),
                Err(error) if would_block(&error) => {}
                // The stream ended without the peer's goodbye.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(Received::End);
                }
                Err(error) => return Err(error),
            }
            match self.connection.read_tls(&mut self.stream) {
                Ok(_) => heard = true,
                Err(error) if would_block(&error) => {
                    self.flush()?;
                    return Ok(if heard {
                        Received::Data(0)
                    } else {
                        Received::Nothing
                    });
                }
                Err(error) => return Err(error),
            }
            if let Err(error) = self.connection.process_new_packets() {
                // The alert that says why goes out first.
                let _ = self.flush();
                return Err(io::Error::other(error));
            }
        }
    }
}

/// Whether an operation has to be tried again later.
pub(crate) fn would_block(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn flags() -> SockFlag {
    SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC
}

fn family(address: &SocketAddr) -> AddressFamily {
    if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    }
}

fn begin_connect(fd: &OwnedFd, address: &SocketAddr) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(*address)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The only protocol of the Internet with sockets of this type is SCTP.
fn sctp_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    socket(family, SockType::SeqPacket, flags(), None).map_err(|_| {
        io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel has no SCTP (CONFIG_IP_SCTP): use TLS over TCP instead",
        )
    })
}

/// Whether this kernel has SCTP.
///
/// # Errors
/// `Unsupported`, and what to do, if it has not.
pub fn probe_sctp() -> io::Result<()> {
    sctp_socket(AddressFamily::Inet).map(drop)
}

fn send_message(fd: &OwnedFd, octets: &[u8]) -> io::Result<usize> {
    use std::os::fd::AsRawFd;
    nix::sys::socket::send(
        fd.as_raw_fd(),
        octets,
        nix::sys::socket::MsgFlags::MSG_NOSIGNAL,
    )
    .map_err(io::Error::from)
}
