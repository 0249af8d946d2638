//! The environment of the process: arguments, memory choice, start and end. Ports and pools are made
//! from it but live elsewhere.

use core::ffi::{c_char, c_int};
use core::marker::PhantomData;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Errno, Error};
use crate::lcore::Registrar;
use crate::lifetime::{self, Shared, State};
use crate::log::{self, LogLevel, LogSink};
use crate::mempool::{Mempool, MempoolConfig};
use crate::thread::Affinity;
use crate::vdev::Vdev;

/// Where packet memory comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// Hugepages where `mb` of them are free at this moment, else ordinary pages. Two processes that
    /// start at the same moment can both see the same free pages: give them an explicit choice.
    Auto {
        /// Packet memory that all pools and rings together need, in MB.
        mb: u32,
    },
    /// Hugepages; `mb` are reserved at start, more is taken as pools need it. No file or mount is used
    /// or left behind.
    Huge {
        /// Reserved at start, in MB.
        mb: u32,
    },
    /// Ordinary pages: exactly `mb`, reserved at start (about a second for 512 MB). Same speed on
    /// virtual devices; no DMA, so no real NIC.
    NoHuge {
        /// All there will be, in MB; at least 32.
        mb: u32,
    },
}

/// How DPDK addresses memory towards devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Iova {
    /// Virtual addresses: virtual devices, and NICs behind an IOMMU.
    Va,
    /// As DPDK decides from the devices it finds.
    Auto,
}

/// How to start EAL.
#[derive(Clone, Debug)]
pub struct EalConfig {
    /// The CPU that the calling thread is pinned to; `None` leaves its affinity as it is.
    pub cpu: Option<u32>,
    /// Packet memory.
    pub memory: Memory,
    /// Virtual devices.
    pub vdevs: Vec<Vdev>,
    /// PCI devices by address ("0000:01:00.0"); where there are none the PCI bus is not looked at.
    pub pci: Vec<String>,
    /// Addresses towards devices.
    pub iova: Iova,
    /// DPDK messages of this level and graver go to the sink.
    pub log_level: LogLevel,
    /// Where they go.
    pub log_sink: LogSink,
}

impl Default for EalConfig {
    fn default() -> Self {
        EalConfig {
            cpu: None,
            memory: Memory::Auto { mb: 128 },
            vdevs: Vec::new(),
            pci: Vec::new(),
            iova: Iova::Va,
            log_level: LogLevel::Warning,
            log_sink: log::to_stderr,
        }
    }
}

/// Free hugepages of all sizes, in MB. Zero where the kernel has none or does not tell.
pub fn free_hugepage_mb() -> u32 {
    let Ok(dir) = std::fs::read_dir("/sys/kernel/mm/hugepages") else {
        return 0;
    };
    let mb = dir.flatten().filter_map(|size| {
        let name = size.file_name();
        let kb: u64 = name
            .to_str()?
            .strip_prefix("hugepages-")?
            .strip_suffix("kB")?
            .parse()
            .ok()?;
        let free = std::fs::read_to_string(size.path().join("free_hugepages")).ok()?;
        Some(free.trim().parse::<u64>().ok()? * kb / 1024)
    });
    u32::try_from(mb.sum::<u64>()).unwrap_or(u32::MAX)
}

/// The least that EAL starts with without hugepages.
const NO_HUGE_LEAST_MB: u32 = 32;

impl EalConfig {
    /// Huge or NoHuge.
    fn resolved_memory(&self) -> Result<Memory, Error> {
        let free_mb = free_hugepage_mb();
        match self.memory {
            Memory::Auto { mb } if free_mb >= mb.max(2) => Ok(Memory::Huge { mb }),
            Memory::Auto { mb } => Ok(Memory::NoHuge {
                mb: mb.max(NO_HUGE_LEAST_MB),
            }),
            Memory::Huge { mb } if free_mb < mb.max(2) => Err(Error::NoHugepages {
                needed_mb: mb.max(2),
                free_mb,
            }),
            Memory::NoHuge { mb } if mb < NO_HUGE_LEAST_MB => Err(Error::Argument {
                what: "memory without hugepages",
                value: format!("{mb} MB"),
                expected: format!("at least {NO_HUGE_LEAST_MB} MB"),
            }),
            given => Ok(given),
        }
    }

    fn arguments(&self, memory: Memory) -> Vec<String> {
        let mut args: Vec<String> = vec!["crem".into()];
        let cpu = self.cpu.unwrap_or_else(first_allowed_cpu);
        // One lcore, numbered 0 whatever CPU it is on: lcore numbers end at 127, CPUs do not. Other
        // workers are threads that register themselves.
        args.push(format!("--lcores=0@{cpu}"));
        match memory {
            Memory::Auto { mb } | Memory::Huge { mb } => {
                args.push("--in-memory".into());
                if mb > 0 {
                    args.extend(["-m".into(), mb.to_string()]);
                }
            }
            Memory::NoHuge { mb } => {
                args.extend(["--no-huge".into(), "--no-shconf".into()]);
                // With no-shconf nothing is written under this name: processes may share it.
                args.extend(["-m".into(), mb.to_string(), "--file-prefix=crem".into()]);
            }
        }
        args.push("--no-telemetry".into());
        if self.iova == Iova::Va {
            args.push("--iova-mode=va".into());
        }
        if self.pci.is_empty() {
            args.push("--no-pci".into());
        }
        args.extend(self.pci.iter().flat_map(|p| ["-a".into(), p.clone()]));
        args.extend(self.vdevs.iter().map(Vdev::argument));
        args.push(format!("--log-level={}", self.log_level.number()));
        args
    }
}

fn first_allowed_cpu() -> u32 {
    Affinity::of_current_thread()
        .ok()
        .and_then(|a| a.first())
        .unwrap_or(0)
}

/// The running environment. One per process, kept on the thread that made it; ends when dropped.
#[derive(Debug)]
pub struct Eal {
    shared: Arc<Shared>,
    memory: Memory,
    before: Affinity,
    ended: bool,
    /// Teardown has to happen on the thread of the start.
    not_send: PhantomData<*const ()>,
}

impl Eal {
    /// Starts EAL: 120 to 200 ms (DPDK measures the clock for 100 of them), about a second more for
    /// 512 MB without hugepages.
    ///
    /// The calling thread becomes DPDK's main lcore and, where [`EalConfig::cpu`] is set, is pinned to
    /// that CPU. **Threads inherit the pin**: let them call [`Affinity::apply`] on
    /// [`Eal::original_affinity`] first, or start them before.
    ///
    /// Signal handlers stay as they are (a test holds DPDK to it); the tap driver alone adds one for a
    /// realtime signal.
    ///
    /// # Errors
    /// [`Error::Argument`], [`Error::NoInterface`], [`Error::NoHugepages`] before anything was done, so
    /// that a corrected call may follow. [`Error::Init`] with DPDK's own messages, after which the
    /// process cannot try again: [`Error::AlreadyInitialised`].
    pub fn init(config: EalConfig) -> Result<Eal, Error> {
        check_unique(&config.vdevs)?;
        config.vdevs.iter().try_for_each(Vdev::check)?;
        let memory = config.resolved_memory()?;
        let args = config.arguments(memory);
        let argv = args
            .into_iter()
            .map(CString::new)
            .collect::<Result<Vec<_>, _>>();
        let argv = argv.map_err(|e| Error::Argument {
            what: "EAL arguments",
            value: e.to_string(),
            expected: "text without NUL".into(),
        })?;
        let before = Affinity::of_current_thread()?;

        let mut state = lifetime::state();
        if !matches!(*state, State::Fresh) {
            return Err(Error::AlreadyInitialised);
        }
        *state = State::Gone;
        start(&config, argv)?;
        if config.cpu.is_none() {
            before.apply()?;
        }
        let shared = Arc::new(Shared {
            vdevs: config.vdevs,
            claimed: Mutex::new(BTreeSet::new()),
            pools: Mutex::new(Vec::new()),
        });
        *state = State::Live(Arc::downgrade(&shared));
        Ok(Eal {
            shared,
            memory,
            before,
            ended: false,
            not_send: PhantomData,
        })
    }

    /// The memory in use: [`Memory::Huge`] or [`Memory::NoHuge`].
    pub fn memory(&self) -> Memory {
        self.memory
    }

    /// The affinity that the calling thread of [`Eal::init`] had before.
    pub fn original_affinity(&self) -> Affinity {
        self.before
    }

    /// Makes a pool of mbufs.
    ///
    /// # Errors
    /// [`Error::Argument`], or [`Error::Pool`] where memory does not suffice.
    pub fn mempool(&self, config: &MempoolConfig<'_>) -> Result<Mempool, Error> {
        Mempool::new(&self.shared, config)
    }

    /// What other threads need to become lcores: send it to them.
    pub fn registrar(&self) -> Registrar {
        Registrar {
            shared: Arc::clone(&self.shared),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Ends EAL and gives everything back. Ports, queues and pool handles have to be dropped before, and
    /// threads that handled mbufs joined (this waits up to 200 ms for them).
    ///
    /// # Errors
    /// [`Error::Busy`] names what is still out; then nothing is unmapped and what is out stays valid.
    pub fn shutdown(mut self) -> Result<(), Error> {
        self.ended = true;
        end(&self.shared)
    }
}

impl Drop for Eal {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if let Err(e) = end(&self.shared) {
            log::to_stderr(LogLevel::Warning, &e.to_string());
        }
    }
}

fn check_unique(vdevs: &[Vdev]) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    match vdevs.iter().find(|v| !seen.insert(v.name())) {
        None => Ok(()),
        Some(twice) => Err(Error::Argument {
            what: "vdev name",
            value: twice.name().into(),
            expected: "each name once".into(),
        }),
    }
}

fn start(config: &EalConfig, argv: Vec<CString>) -> Result<(), Error> {
    if !log::install(config.log_level, config.log_sink) {
        log::to_stderr(
            LogLevel::Warning,
            "its messages cannot be caught and go to standard output",
        );
    }
    let mark = log::mark();
    // DPDK keeps pointers into its arguments.
    let argv: &'static mut [CString] = argv.leak();
    let mut pointers: Vec<*mut c_char> = argv.iter().map(|a| a.as_ptr().cast_mut()).collect();
    let argc = c_int::try_from(pointers.len()).unwrap_or(c_int::MAX);
    pointers.push(core::ptr::null_mut());
    let pointers = pointers.leak();
    // SAFETY: argc and argv are as for `main`, NUL-terminated and live for ever; getopt only permutes
    // the pointers. The lock on the state makes this the first and only call in the process.
    if unsafe { dpdk_sys::rte_eal_init(argc, pointers.as_mut_ptr()) } < 0 {
        return Err(Error::Init {
            errno: Errno::last(),
            log: log::since(mark),
        });
    }
    Ok(())
}

/// How long an end waits for threads that are about to exit.
const GRACE: Duration = Duration::from_millis(200);

fn end(shared: &Arc<Shared>) -> Result<(), Error> {
    lifetime::detach();
    let give_up = Instant::now() + GRACE;
    while Arc::strong_count(shared) > 1 && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut state = lifetime::state();
    let out = outstanding(shared);
    if !out.is_empty() {
        *state = State::Left;
        return Err(Error::Busy(out.join(", ")));
    }
    *state = State::Gone;
    let pools = std::mem::take(&mut *shared.pools.lock().unwrap_or_else(PoisonError::into_inner));
    for pool in pools {
        // SAFETY: all elements are back, no handle to the pool is left (they hold `shared`, of which this
        // is the only reference) and no attached thread is inside a free.
        unsafe { dpdk_sys::rte_mempool_free(pool.raw.as_ptr()) };
    }
    // SAFETY: we are on the thread of the start (Eal is not Send), all ports are closed and pools freed,
    // and the state forbids every later use; threads that would attach wait for its lock.
    let ret = unsafe { dpdk_sys::rte_eal_cleanup() };
    if ret < 0 {
        return Err(Error::system("rte_eal_cleanup", Errno::of(ret)));
    }
    Ok(())
}

/// Why EAL cannot be torn down, nothing where it can.
fn outstanding(shared: &Arc<Shared>) -> Vec<String> {
    let mut out = Vec::new();
    let ports = shared
        .claimed
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .len();
    let handles = Arc::strong_count(shared) - 1;
    if ports > 0 {
        out.push(format!("{ports} ports open"));
    }
    if handles > 0 {
        out.push(format!(
            "{handles} handles of ports, pools or threads alive"
        ));
    }
    for pool in &*shared.pools.lock().unwrap_or_else(PoisonError::into_inner) {
        // SAFETY: pools are freed at teardown only, which is this thread's to decide.
        let (free, size) = unsafe {
            let size = pool
                .raw
                .as_ptr()
                .cast::<u8>()
                .add(dpdk_sys::SHIM_OFF_POOL_SIZE as usize);
            (
                dpdk_sys::rte_mempool_avail_count(pool.raw.as_ptr()),
                size.cast::<u32>().read(),
            )
        };
        if free != size {
            out.push(format!(
                "{} mbufs of pool {} not given back",
                size - free.min(size),
                pool.name
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn line(config: &EalConfig, memory: Memory) -> String {
        config.arguments(memory).join(" ")
    }

    #[test]
    fn arguments_of_both_memory_modes() {
        let config = EalConfig {
            cpu: Some(1),
            ..Default::default()
        };
        assert_eq!(
            line(&config, Memory::Huge { mb: 64 }),
            "crem --lcores=0@1 --in-memory -m 64 --no-telemetry --iova-mode=va --no-pci --log-level=5"
        );
        assert_eq!(
            line(&config, Memory::NoHuge { mb: 64 }),
            "crem --lcores=0@1 --no-huge --no-shconf -m 64 --file-prefix=crem --no-telemetry \
             --iova-mode=va --no-pci --log-level=5"
        );
    }

    #[test]
    fn devices_become_arguments() {
        let config = EalConfig {
            pci: vec!["0000:01:00.0".into()],
            iova: Iova::Auto,
            vdevs: vec![crate::vdev::sink("net_null0")],
            ..EalConfig::default()
        };
        let line = line(&config, Memory::Huge { mb: 0 });
        assert!(
            line.contains("-a 0000:01:00.0 --vdev=net_null0,no-rx=1"),
            "{line}"
        );
        assert!(!line.contains("--no-pci") && !line.contains("iova") && !line.contains("-m "));
    }

    #[test]
    fn memory_that_cannot_be_had_is_refused_with_both_numbers() {
        let config = EalConfig {
            memory: Memory::Huge { mb: u32::MAX },
            ..Default::default()
        };
        assert!(matches!(
            config.resolved_memory(),
            Err(Error::NoHugepages {
                needed_mb: u32::MAX,
                ..
            })
        ));
        let config = EalConfig {
            memory: Memory::NoHuge { mb: 1 },
            ..Default::default()
        };
        assert!(matches!(
            config.resolved_memory(),
            Err(Error::Argument { .. })
        ));
    }

    #[test]
    fn automatic_memory_falls_back_to_ordinary_pages() {
        let config = EalConfig {
            memory: Memory::Auto { mb: u32::MAX },
            ..Default::default()
        };
        assert_eq!(
            config.resolved_memory().unwrap(),
            Memory::NoHuge { mb: u32::MAX }
        );
    }

    #[test]
    fn a_device_named_twice_is_refused() {
        let twice = [
            crate::vdev::sink("net_null0"),
            crate::vdev::ring("net_null0"),
        ];
        assert!(matches!(check_unique(&twice), Err(Error::Argument { .. })));
    }
}
