//! Trying TCP connections from a host: the in-band address must answer on no port. A refusal is an
//! answer too: it shows that the segment reached the kernel. So that an accepting kernel would be seen,
//! some ports of the gateway's namespace are listened on meanwhile.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::sockopt::SocketError;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, socket,
};

use super::Failure;

/// Connections begun at once: fewer frames than a gateway's receive ring holds.
const BURST: usize = 500;
/// Pause between these.
const PAUSE: Duration = Duration::from_millis(10);
/// How long answers are waited for after the last of a group.
const PATIENCE: Duration = Duration::from_millis(250);
/// Sockets open at once, if the system allows that many.
const GROUP: u64 = 8_192;
/// Ports listened on in the gateway's namespace while all ports are tried.
const LISTENED: [u16; 4] = [22, 443, 8_080, 49_800];

/// Listens on a few ports of the namespace at `path`, on every address, until the result is dropped.
/// Each is shown to be reachable there under `own`.
pub(crate) fn listen(path: &Path, own: IpAddr) -> Result<Vec<TcpListener>, Failure> {
    let path: PathBuf = path.to_owned();
    let start = std::thread::spawn(move || -> Result<Vec<TcpListener>, Failure> {
        setns(File::open(path)?.as_fd(), CloneFlags::CLONE_NEWNET)?;
        let mut listeners = Vec::new();
        for port in LISTENED {
            listeners.push(TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?);
            TcpStream::connect_timeout(&SocketAddr::new(own, port), PATIENCE)
                .map_err(|e| format!("port {port} of {own} from inside its own box: {e}"))?;
        }
        Ok(listeners)
    });
    start.join().map_err(|_| "the listening thread panicked")?
}

/// The ports of `target` that answer a connection from the namespace at `path`, and how many were
/// tried: all of them.
pub(crate) fn answering_ports(path: &Path, target: IpAddr) -> Result<(Vec<u16>, usize), Failure> {
    let path: PathBuf = path.to_owned();
    let scan = std::thread::spawn(move || -> Result<(Vec<u16>, usize), Failure> {
        setns(File::open(path)?.as_fd(), CloneFlags::CLONE_NEWNET)?;
        let ports: Vec<u16> = (1..=u16::MAX).collect();
        let mut open = Vec::new();
        for group in ports.chunks(room()?) {
            open.extend(try_group(target, group)?);
        }
        Ok((open, ports.len()))
    });
    scan.join().map_err(|_| "the scanning thread panicked")?
}

/// Sockets that may be open at once, besides what the program has open anyway.
fn room() -> Result<usize, Failure> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let wanted = hard.min(GROUP).max(soft);
    setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)?;
    Ok(usize::try_from(wanted)?.saturating_sub(256).max(64))
}

/// The ports of a group that accept or refuse.
fn try_group(target: IpAddr, group: &[u16]) -> Result<Vec<u16>, Failure> {
    let mut pending: Vec<(u16, OwnedFd)> = Vec::new();
    let mut open = Vec::new();
    for burst in group.chunks(BURST) {
        for &port in burst {
            let fd = begin()?;
            let address = SockaddrStorage::from(SocketAddr::new(target, port));
            match connect(fd.as_raw_fd(), &address) {
                Ok(()) | Err(Errno::ECONNREFUSED) => open.push(port),
                Err(Errno::EINPROGRESS) => pending.push((port, fd)),
                Err(errno) => return Err(format!("connecting to port {port}: {errno}").into()),
            }
        }
        std::thread::sleep(PAUSE);
    }
    std::thread::sleep(PATIENCE);
    for (port, fd) in &pending {
        if is_answered(fd)? {
            open.push(*port);
        }
    }
    Ok(open)
}

fn begin() -> Result<OwnedFd, Errno> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    socket(AddressFamily::Inet, SockType::Stream, flags, None)
}

fn is_answered(fd: &OwnedFd) -> Result<bool, Errno> {
    let mut polled = [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)];
    poll(&mut polled, PollTimeout::ZERO)?;
    let [polled] = polled;
    let answered = polled.any().unwrap_or(true);
    let error = getsockopt(fd, SocketError)?;
    Ok(answered && (error == 0 || error == Errno::ECONNREFUSED as i32))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn open_ports_and_refusing_ones_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let closed = {
            let other = TcpListener::bind("127.0.0.1:0").unwrap();
            other.local_addr().unwrap().port()
        };
        let target = [127, 0, 0, 1].into();
        let mut found = try_group(target, &[port, closed]).unwrap();
        found.sort_unstable();
        let mut both = [port, closed];
        both.sort_unstable();
        assert_eq!(found, both);
    }
}
