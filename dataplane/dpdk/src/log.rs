//! DPDK's log: caught in memory so that an error can quote it, and passed on to one sink. Without this
//! it would go to standard output and syslog. No log of our own lives here.

use core::ffi::{c_char, c_void};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::error::DpdkLog;

/// How grave a message of DPDK is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Something failed (DPDK's emergency, alert, critical and error).
    Error,
    /// Something is odd.
    Warning,
    /// Normal but worth knowing.
    Notice,
    /// Progress.
    Info,
    /// Everything.
    Debug,
}

impl LogLevel {
    /// The number that `--log-level` takes.
    pub(crate) const fn number(self) -> u32 {
        match self {
            LogLevel::Error => 4,
            LogLevel::Warning => 5,
            LogLevel::Notice => 6,
            LogLevel::Info => 7,
            LogLevel::Debug => 8,
        }
    }

    fn from_number(n: i32) -> LogLevel {
        match n {
            ..=4 => LogLevel::Error,
            5 => LogLevel::Warning,
            6 => LogLevel::Notice,
            7 => LogLevel::Info,
            _ => LogLevel::Debug,
        }
    }
}

/// Where DPDK's messages go, one call per message, on the thread that logs. Must not call DPDK.
pub type LogSink = fn(LogLevel, &str);

/// The default sink: standard error.
pub(crate) fn to_stderr(level: LogLevel, text: &str) {
    eprintln!("dpdk {level:?}: {text}");
}

/// Messages kept for errors to quote.
const KEPT: usize = 64;

/// Messages of DPDK that look like faults and are none here; they pass as [`LogLevel::Debug`].
const HARMLESS: &[&str] = &[
    // One hugepage size without free pages, while another has them. Where all lack, EAL says more.
    "hugepages reported on node",
    // Tap wants a queueing discipline for flow rules, which are not used.
    "Specified qdisc kind is unknown",
    "Could not add multiq qdisc",
    "failed to create multiq qdisc",
    "Disabling rte flow support",
    // Tap and memif tell secondary processes, of which there are none.
    "to secondary",
    "Failed to register mp action",
];

struct Log {
    sink: LogSink,
    level: LogLevel,
    next: u64,
    kept: VecDeque<(u64, LogLevel, String)>,
}

static LOG: Mutex<Log> = Mutex::new(Log {
    sink: to_stderr,
    level: LogLevel::Warning,
    next: 0,
    kept: VecDeque::new(),
});

/// A place in the log; see [`since`].
#[derive(Clone, Copy)]
pub(crate) struct Mark(u64);

impl Mark {
    /// The beginning of the process.
    pub(crate) const START: Mark = Mark(0);
}

/// Redirects DPDK's log here, and what is of `level` or graver to `sink`. False where the C library could not make the stream: DPDK then logs as
/// it always does.
pub(crate) fn install(level: LogLevel, sink: LogSink) -> bool {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    (log.level, log.sink) = (level, sink);
    drop(log);
    // SAFETY: `write` has the signature that the shim expects, is safe to call from any thread, and is
    // a function, so it lives as long as the stream that keeps it (the process).
    unsafe { dpdk_sys::shim_log_to(Some(write)) == 0 }
}

/// The present end of the log.
pub(crate) fn mark() -> Mark {
    Mark(LOG.lock().unwrap_or_else(PoisonError::into_inner).next)
}

/// What DPDK logged as warning or worse since `mark`, as far as it is kept.
pub(crate) fn since(mark: Mark) -> DpdkLog {
    let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let new = log
        .kept
        .iter()
        .filter(|(n, level, _)| *n >= mark.0 && *level <= LogLevel::Warning);
    DpdkLog(new.map(|(_, _, text)| text.clone()).collect())
}

unsafe extern "C" fn write(_: *mut c_void, text: *const c_char, len: usize) -> isize {
    // SAFETY: the C library calls this with `len` readable octets of its stream buffer, which it does
    // not touch before this returns.
    let text = unsafe { core::slice::from_raw_parts(text.cast::<u8>(), len) };
    // SAFETY: reads a thread-local of libdpdk; valid inside a log call, which is where we are.
    let level = LogLevel::from_number(unsafe { dpdk_sys::rte_log_cur_msg_loglevel() });
    // A panic (of the sink) must not unwind into C.
    let done = std::panic::catch_unwind(|| {
        for line in String::from_utf8_lossy(text)
            .lines()
            .filter(|l| !l.trim().is_empty())
        {
            record(level, line.trim());
        }
    });
    drop(done);
    isize::try_from(len).unwrap_or(isize::MAX)
}

fn record(level: LogLevel, line: &str) {
    let harmless = HARMLESS.iter().any(|h| line.contains(h));
    let level = if harmless { LogLevel::Debug } else { level };
    let sink = {
        let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        if log.kept.len() == KEPT {
            log.kept.pop_front();
        }
        let n = log.next;
        log.next += 1;
        log.kept.push_back((n, level, line.to_owned()));
        (level <= log.level).then_some(log.sink)
    };
    if let Some(sink) = sink {
        sink(level, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_quote_what_was_said_since_and_what_matters() {
        record(LogLevel::Error, "before");
        let here = mark();
        record(LogLevel::Info, "progress");
        record(
            LogLevel::Error,
            "tap: Failed to send start req to secondary 95",
        );
        record(LogLevel::Error, "the cause");
        assert_eq!(since(here).to_string(), "; DPDK said: the cause");
        for i in 0..2 * KEPT {
            record(LogLevel::Debug, &i.to_string());
        }
        assert_eq!(
            since(here),
            DpdkLog::default(),
            "only so many lines are kept"
        );
    }
}
