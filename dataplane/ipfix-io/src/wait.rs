//! Waiting for descriptors, so that one thread can serve exporters and collectors together.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// What is waited for at a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Interest<'fd> {
    /// The descriptor.
    pub fd: BorrowedFd<'fd>,
    /// That something can be read.
    pub read: bool,
    /// That something can be written.
    pub write: bool,
}

/// Waits until one of these is the case, or the time is over.
///
/// # Errors
/// Those of poll(2) but EINTR, which counts as over.
pub fn wait(interests: &[Interest<'_>], timeout: Duration) -> io::Result<()> {
    let mut fds: Vec<PollFd<'_>> = interests
        .iter()
        .map(|interest| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, interest.read);
            flags.set(PollFlags::POLLOUT, interest.write);
            PollFd::new(interest.fd, flags)
        })
        .collect();
    // Rounded up, or the last millisecond is spent without waiting.
    let millis =
        timeout.as_millis() + u128::from(!timeout.subsec_nanos().is_multiple_of(1_000_000));
    let timeout = PollTimeout::try_from(millis.min(60_000)).unwrap_or(PollTimeout::MAX);
    match poll(&mut fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether a descriptor can be written now.
pub(crate) fn is_writable(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut fds = [PollFd::new(fd, PollFlags::POLLOUT)];
    poll(&mut fds, PollTimeout::ZERO)?;
    Ok(fds[0].any().unwrap_or(true))
}

/// Whether a descriptor can be read now, or its other end is gone.
pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::ZERO) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
