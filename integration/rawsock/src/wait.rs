//! Waiting: for sockets, for a time, and for the signal to stop.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

/// Becomes true when the process is told to end (SIGTERM or SIGINT).
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Installs the handlers. A second signal while the flag is up ends the process at once.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn install() -> std::io::Result<Self> {
        let flag = Self::default();
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag.0))?;
            signal_hook::flag::register(signal, Arc::clone(&flag.0))?;
        }
        Ok(flag)
    }

    /// Whether a signal came.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Raises the flag from within the process.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes sleeps of this thread exact to about a microsecond; the default slack is 50 µs.
pub fn precise_timers() {
    // Only precision is lost if the kernel refuses.
    let _ = nix::sys::prctl::set_timerslack(1_000);
}

/// Waits until a descriptor is readable or `nanoseconds` have passed; `None` waits without end.
/// Returns early on a signal. True in the answer for each descriptor that is readable.
///
/// # Errors
/// The poll call fails for another reason.
pub fn wait_readable<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    nanoseconds: Option<u64>,
) -> Result<[bool; N], Errno> {
    let mut polled = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    let timeout = nanoseconds.map(|ns| TimeSpec::from_duration(Duration::from_nanos(ns)));
    match ppoll(&mut polled, timeout, None) {
        // An error condition is reported by the next receive call.
        Ok(_) => Ok(polled.map(|fd| fd.any().unwrap_or(true))),
        Err(Errno::EINTR) => Ok([false; N]),
        Err(errno) => Err(errno),
    }
}

/// Sleeps without watching any socket.
pub fn sleep_ns(nanoseconds: u64) {
    std::thread::sleep(Duration::from_nanos(nanoseconds));
}
