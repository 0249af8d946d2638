//! Unix sockets that the processes of a gateway listen at: how one takes the place of another that was killed.
//! What is said over them is in [`crate::protocol`] and [`crate::rest`].

use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;

/// Makes way for a stream socket at `path`: its directory is made, and the socket that a killed process left
/// there is removed. What is no socket is somebody's file and stays.
///
/// # Errors
/// `AddrInUse` if another process serves it, `AlreadyExists` if it is no socket, or what the system says.
pub fn vacate(path: &Path) -> io::Result<()> {
    vacate_unless(path, |path| UnixStream::connect(path).is_ok())
}

/// As [`vacate`] for a socket of any kind; `serves` tells whether a process serves it.
///
/// # Errors
/// As [`vacate`].
pub fn vacate_unless(path: &Path, serves: impl FnOnce(&Path) -> bool) -> io::Result<()> {
    // Too long for a socket's address, or with an octet 0.
    SocketAddr::from_pathname(path)?;
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "it exists and is no socket",
        )),
        Ok(_) if serves(path) => Err(io::Error::new(
            ErrorKind::AddrInUse,
            "another process serves it",
        )),
        // Somebody else may have removed it just now.
        Ok(_) => match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
    }
}

/// Listens at `path`, without ever waiting for a client, after it was [vacated](vacate).
///
/// # Errors
/// As [`vacate`], or the path cannot be listened at.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    vacate(path)?;
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_a_socket_that_nobody_serves_is_replaced() {
        let folder = std::env::temp_dir().join(format!("crem-vacate-{}", std::process::id()));
        let path = folder.join("deep/er.sock");
        let first = listen(&path).unwrap();
        assert_eq!(listen(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(first);
        assert!(path.exists(), "left there, as by a process that was killed");
        let kept = vacate_unless(&path, |_| true).unwrap_err();
        assert_eq!(kept.kind(), ErrorKind::AddrInUse);
        listen(&path).unwrap();
        let file = folder.join("precious");
        std::fs::write(&file, "keep").unwrap();
        assert_eq!(listen(&file).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "keep");
        let long = folder.join("x".repeat(120));
        assert_eq!(vacate(&long).unwrap_err().kind(), ErrorKind::InvalidInput);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
