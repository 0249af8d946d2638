//! What a process tells the service manager that started it, if one did: that it is ready, that it is alive, that
//! it ends. The protocol is a datagram to the socket that `NOTIFY_SOCKET` names.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Tells the manager something, such as `READY=1`; without one, or if it is gone, nothing happens.
pub(crate) fn tell(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    // Forwarding and the API do not depend on whether somebody listens.
    let _ = address.and_then(|to| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &to));
}

/// How often the manager has to hear `WATCHDOG=1` from this process; none if it does not wait for it.
pub(crate) fn watchdog() -> Option<Duration> {
    let of = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let meant = of("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let within = of("WATCHDOG_USEC").filter(|&us| meant && us > 0)?;
    Some(Duration::from_micros(within / 3))
}
