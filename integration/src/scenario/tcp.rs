//! Trying TCP connections from a host: the in-band address must accept none.

use std::fs::File;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

use super::Failure;

/// Ports tried: those that services of a box would be on, and some at random.
const PORTS: [u16; 24] = [
    1, 21, 22, 23, 25, 53, 80, 110, 111, 179, 443, 830, 2049, 4791, 4801, 5201, 6379, 7681, 8080,
    8443, 9090, 9100, 50_051, 65_535,
];
/// Patience for one port.
const PATIENCE: Duration = Duration::from_millis(400);

/// The ports of `target` that accept a connection from the namespace at `path`, and how many were tried.
pub(crate) fn open_ports(path: &Path, target: IpAddr) -> Result<(Vec<u16>, usize), Failure> {
    let namespace = File::open(path)?;
    let tries: Vec<_> = PORTS
        .iter()
        .map(|&port| {
            let namespace = namespace.try_clone();
            std::thread::spawn(move || -> Result<Option<u16>, Failure> {
                setns(namespace?.as_fd(), CloneFlags::CLONE_NEWNET)?;
                let address = SocketAddr::new(target, port);
                Ok(TcpStream::connect_timeout(&address, PATIENCE)
                    .is_ok()
                    .then_some(port))
            })
        })
        .collect();
    let mut open = Vec::new();
    for one in tries {
        open.extend(one.join().map_err(|_| "a connecting thread panicked")??);
    }
    Ok((open, PORTS.len()))
}
