//! What can go wrong, in the operator's words: what was tried, what DPDK said, what was expected and
//! what to do. No retry or policy lives here.

use core::ffi::CStr;
use core::fmt;

/// An error number of DPDK (the system's, or one of DPDK's own above 1000).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// The number that a call returned negated; where it only returned -1, the thread's `rte_errno`.
    pub(crate) fn of(ret: i32) -> Errno {
        if ret < -1 {
            Errno(ret.saturating_neg())
        } else {
            Errno::last()
        }
    }

    /// `rte_errno` of this thread.
    pub(crate) fn last() -> Errno {
        // SAFETY: reads a thread-local integer of libdpdk.
        Errno(unsafe { dpdk_sys::shim_errno() })
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: rte_strerror returns a NUL-terminated string for every number, static or in a
        // thread-local buffer that only the next call on this thread overwrites; it is copied out
        // before this function returns.
        let text = unsafe { CStr::from_ptr(dpdk_sys::rte_strerror(self.0)) };
        write!(f, "{} (error {})", text.to_string_lossy(), self.0)
    }
}

/// The last lines of DPDK's own log, for an error's text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DpdkLog(pub(crate) Vec<String>);

impl DpdkLog {
    /// The lines, oldest first.
    pub fn lines(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for DpdkLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write!(f, "; DPDK said: {}", self.0.join(" | "))
    }
}

/// Why an operation of this crate failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// EAL runs once per process, also after a failure and after its end.
    #[error(
        "EAL was already initialised in this process; DPDK allows it once, start a new process"
    )]
    AlreadyInitialised,
    /// A configured value is impossible.
    #[error("{what} = {value:?}: expected {expected}")]
    Argument {
        /// The configuration item.
        what: &'static str,
        /// The value found.
        value: String,
        /// What would have been right.
        expected: String,
    },
    /// Hugepages were demanded and there are not enough.
    #[error(
        "{needed_mb} MB of hugepages are needed and {free_mb} MB are free; \
         set vm.nr_hugepages, or choose memory without hugepages"
    )]
    NoHugepages {
        /// What the configuration asks for, in MB.
        needed_mb: u32,
        /// What the kernel has free, in MB.
        free_mb: u32,
    },
    /// The kernel interface of a port is not in this network namespace.
    #[error(
        "port {port}: no interface {iface:?} in this network namespace; \
         `ip link show` lists what is there"
    )]
    NoInterface {
        /// The port that names it.
        port: String,
        /// The interface.
        iface: String,
    },
    /// `rte_eal_init` failed.
    #[error("EAL did not start: {errno}{log}")]
    Init {
        /// What `rte_errno` says.
        errno: Errno,
        /// What DPDK logged.
        log: DpdkLog,
    },
    /// DPDK has no port of this name. A virtual device that fails to probe does not fail EAL; this is
    /// where it shows.
    #[error("port {name}{}: DPDK has no such port{log}", match iface {
        Some(i) => format!(" (interface {i:?})"),
        None => String::new(),
    })]
    NoPort {
        /// The port.
        name: String,
        /// The kernel interface under it, where there is one.
        iface: Option<String>,
        /// What DPDK logged about it.
        log: DpdkLog,
    },
    /// The port, or this queue of it, has an owner.
    #[error("port {name}: {what} is in use already")]
    InUse {
        /// The port.
        name: String,
        /// What has an owner.
        what: String,
    },
    /// A control call on a port failed.
    #[error("port {name}: {call} failed: {errno}{log}")]
    Port {
        /// The port.
        name: String,
        /// The DPDK function.
        call: &'static str,
        /// What it returned.
        errno: Errno,
        /// What DPDK logged.
        log: DpdkLog,
    },
    /// A pool could not be made.
    #[error("pool {name} of {count} elements, about {needed_mb} MB: {errno}{log}")]
    Pool {
        /// The pool.
        name: String,
        /// Elements asked for.
        count: u32,
        /// Memory that they need, in MB.
        needed_mb: u32,
        /// What `rte_errno` says.
        errno: Errno,
        /// What DPDK logged.
        log: DpdkLog,
    },
    /// The environment could not be given back at the end; its memory stays until the process exits.
    #[error("EAL was left in place: {0}")]
    Busy(String),
    /// A call to the kernel failed.
    #[error("{call}: {error}")]
    System {
        /// What was tried.
        call: String,
        /// The kernel's answer.
        error: String,
    },
}

impl Error {
    pub(crate) fn system(call: impl Into<String>, error: impl fmt::Display) -> Error {
        Error::System {
            call: call.into(),
            error: error.to_string(),
        }
    }
}
