//! What a polling thread wants from the kernel: where it runs, how exactly it sleeps, which signals it
//! is spared. No thread is started here.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::unistd::Pid;

use crate::error::Error;

/// The CPUs that a thread may run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Affinity(CpuSet);

impl Affinity {
    /// Of the calling thread.
    ///
    /// # Errors
    /// [`Error::System`] where the machine has more CPUs than the set holds (1024).
    pub fn of_current_thread() -> Result<Affinity, Error> {
        let this = Pid::from_raw(0);
        sched_getaffinity(this)
            .map(Affinity)
            .map_err(|e| Error::system("reading the affinity", e))
    }

    /// One CPU.
    ///
    /// # Errors
    /// [`Error::Argument`] for numbers that no set holds.
    pub fn of_cpu(cpu: u32) -> Result<Affinity, Error> {
        Self::of_cpus(&[cpu])
    }

    /// Several CPUs.
    ///
    /// # Errors
    /// [`Error::Argument`] for numbers that no set holds.
    pub fn of_cpus(cpus: &[u32]) -> Result<Affinity, Error> {
        let mut set = CpuSet::new();
        for cpu in cpus {
            set.set(*cpu as usize).map_err(|_| Error::Argument {
                what: "CPU",
                value: cpu.to_string(),
                expected: format!("0 to {}", CpuSet::count() - 1),
            })?;
        }
        Ok(Affinity(set))
    }

    /// The CPUs in it, lowest first.
    pub fn cpus(&self) -> Vec<u32> {
        let all = 0..u32::try_from(CpuSet::count()).unwrap_or(u32::MAX);
        all.filter(|&c| self.0.is_set(c as usize).unwrap_or(false))
            .collect()
    }

    /// The lowest CPU in it.
    pub fn first(&self) -> Option<u32> {
        self.cpus().first().copied()
    }

    /// Makes it the calling thread's; threads started from it later inherit it.
    ///
    /// # Errors
    /// [`Error::System`] where none of the CPUs may be used.
    pub fn apply(&self) -> Result<(), Error> {
        sched_setaffinity(Pid::from_raw(0), &self.0)
            .map_err(|e| Error::system(format!("binding to CPUs {:?}", self.cpus()), e))
    }
}

/// How late the kernel may wake the calling thread from a sleep, to save wake-ups: 50,000 ns by default,
/// which is more than a short back-off sleep itself. Threads started later inherit it.
///
/// # Errors
/// [`Error::System`] where the kernel refuses.
pub fn set_timer_slack(ns: u64) -> Result<(), Error> {
    // The kernel takes 0 for "back to the default".
    prctl::set_timerslack(ns.max(1)).map_err(|e| Error::system("setting the timer slack", e))
}

/// Spares the calling thread the realtime signals: the tap driver raises one per frame that its kernel
/// interface sends, and the kernel gives it to any thread that takes it. At least one thread has to.
/// Threads started later inherit it.
///
/// # Errors
/// [`Error::System`] where the kernel refuses.
pub fn block_realtime_signals() -> Result<(), Error> {
    let mut set = nix::libc::sigset_t::empty();
    for signal in nix::libc::SIGRTMIN()..=nix::libc::SIGRTMAX() {
        set.add(signal);
    }
    set.block()
}

/// The few operations on a raw signal set; nix's own knows no realtime signals.
trait RawSet: Sized {
    fn empty() -> Self;
    fn add(&mut self, signal: i32);
    fn block(self) -> Result<(), Error>;
}

impl RawSet for nix::libc::sigset_t {
    fn empty() -> Self {
        // nix builds an empty set without unsafe code of ours.
        *SigSet::empty().as_ref()
    }

    fn add(&mut self, signal: i32) {
        // SAFETY: the set is initialised and ours; a number out of range is refused by the call.
        unsafe { nix::libc::sigaddset(self, signal) };
    }

    fn block(self) -> Result<(), Error> {
        // SAFETY: the set was made by sigemptyset and sigaddset.
        let set = unsafe { SigSet::from_sigset_t_unchecked(self) };
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&set), None)
            .map_err(|e| Error::system("blocking realtime signals", e))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn affinity_goes_to_one_cpu_and_back() {
        let before = Affinity::of_current_thread().unwrap();
        let cpu = before.first().unwrap();
        let one = Affinity::of_cpu(cpu).unwrap();
        one.apply().unwrap();
        assert_eq!(Affinity::of_current_thread().unwrap().cpus(), [cpu]);
        before.apply().unwrap();
        assert_eq!(Affinity::of_current_thread().unwrap(), before);
        assert!(Affinity::of_cpu(u32::MAX).is_err());
    }

    #[test]
    fn timer_slack_is_what_was_set() {
        set_timer_slack(1).unwrap();
        assert_eq!(prctl::get_timerslack().unwrap(), 1);
        set_timer_slack(50_000).unwrap();
        assert_eq!(prctl::get_timerslack().unwrap(), 50_000);
    }

    #[test]
    fn realtime_signals_are_blocked_and_others_are_not() {
        std::thread::spawn(|| {
            block_realtime_signals().unwrap();
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = status
                .lines()
                .find_map(|l| l.strip_prefix("SigBlk:"))
                .unwrap();
            let mask = u64::from_str_radix(line.trim(), 16).unwrap();
            assert_ne!(mask & (1 << (nix::libc::SIGRTMIN() - 1)), 0);
            assert_eq!(mask & (1 << (nix::libc::SIGTERM - 1)), 0);
        })
        .join()
        .unwrap();
    }
}
