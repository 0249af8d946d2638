//! Ports: open, ask, count, close. Polling is `queue.rs`; which packet goes where is decided elsewhere.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::eal::Eal;
use crate::error::{DpdkLog, Errno, Error};
use crate::lifetime::Shared;
use crate::log::{self, Mark};
use crate::mempool::Mempool;
use crate::queue::{Queue, RxQueue, TxQueue};
use crate::spread;

mod info;
mod link;
mod pause;
mod settings;
mod told;

pub use info::PortInfo;
pub use link::Link;
pub use settings::{LinkFec, LinkSettings, Pause};
pub use told::{FecAt, FecKinds, FlowControl, LinkTold, PriorityFlowControl, QueuesTold, Told};

use info::{info, raw_info, used_offloads};

/// How to open a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues.
    pub tx_queues: u16,
    /// Descriptors per receive queue; adjusted to what the driver allows. af_packet has its own ring
    /// ([`crate::vdev::af_packet`]) and ignores it.
    pub rx_descriptors: u16,
    /// Descriptors per transmit queue, likewise.
    pub tx_descriptors: u16,
    /// Receive frames for any address.
    pub promiscuous: bool,
    /// Octets of IP in the longest frame; `None` leaves it to the driver, which mostly means 1500. No more than
    /// [`PortInfo::max_mtu`].
    pub mtu: Option<u16>,
    /// The link.
    pub link: LinkSettings,
}

impl Default for PortConfig {
    fn default() -> Self {
        PortConfig {
            rx_queues: 1,
            tx_queues: 1,
            rx_descriptors: 1024,
            tx_descriptors: 1024,
            promiscuous: true,
            mtu: None,
            link: LinkSettings::default(),
        }
    }
}

/// Counters since the port was opened or [`Port::reset_stats`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    /// Frames received.
    pub rx_packets: u64,
    /// Octets received.
    pub rx_octets: u64,
    /// Frames that the device dropped for want of descriptors.
    pub rx_missed: u64,
    /// Frames received in error.
    pub rx_errors: u64,
    /// Frames lost because the pool was empty.
    pub rx_no_mbuf: u64,
    /// Frames sent. af_packet counts those too that it dropped for their length.
    pub tx_packets: u64,
    /// Octets sent.
    pub tx_octets: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
}

/// An open, running port. Closed when it and all its queues are dropped; a closed virtual device cannot
/// be opened again.
///
/// Control calls take microseconds to milliseconds: not for a polling loop.
#[derive(Debug)]
pub struct Port {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) id: u16,
    pub(crate) name: String,
    pub(crate) config: PortConfig,
    pub(crate) taken: Mutex<BTreeSet<(Way, u16)>>,
    /// What of the link's settings the driver did not do, and why.
    not_applied: Mutex<Vec<String>>,
    /// Whether the device has pause frames by priority, once they were set.
    pauses: OnceLock<bool>,
    /// Descriptors that each receive and each transmit queue was set up with.
    asked: OnceLock<(u16, u16)>,
    shared: Arc<Shared>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Way {
    Rx,
    Tx,
}

impl Port {
    /// Configures and starts the port `name` (a virtual device's name or a PCI address); received
    /// packets come from `pool`.
    ///
    /// # Errors
    /// [`Error::NoPort`] where the device did not probe, [`Error::InUse`] where it is open,
    /// [`Error::Argument`] for more queues than it has, [`Error::Port`] where the driver refuses, each
    /// with what DPDK logged. After [`Error::Port`] the device is closed, as after a drop.
    pub fn open(eal: &Eal, name: &str, config: &PortConfig, pool: &Mempool) -> Result<Port, Error> {
        let shared = eal.shared();
        let id = find(shared, name)?;
        let info = raw_info(name, id)?;
        check_queues(name, "receive queues", config.rx_queues, info.max_rx_queues)?;
        check_queues(
            name,
            "transmit queues",
            config.tx_queues,
            info.max_tx_queues,
        )?;
        let mut claimed = shared
            .claimed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !claimed.insert(id) {
            return Err(Error::InUse {
                name: name.into(),
                what: "it".into(),
            });
        }
        drop(claimed);
        let port = Port {
            inner: Arc::new(Inner {
                id,
                name: name.into(),
                config: *config,
                taken: Mutex::new(BTreeSet::new()),
                not_applied: Mutex::default(),
                pauses: OnceLock::new(),
                asked: OnceLock::new(),
                shared: Arc::clone(shared),
            }),
        };
        port.inner.start(&info, pool)?;
        Ok(port)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// DPDK's number of it, as in [`crate::Mbuf::port`].
    pub fn id(&self) -> u16 {
        self.inner.id
    }

    /// The receive queue `index`, for one owner at a time.
    ///
    /// # Errors
    /// [`Error::InUse`], or [`Error::Argument`] where there is no such queue.
    pub fn rx_queue(&self, index: u16) -> Result<RxQueue, Error> {
        Ok(RxQueue {
            queue: Queue::take(&self.inner, Way::Rx, index)?,
        })
    }

    /// The transmit queue `index`, for one owner at a time.
    ///
    /// # Errors
    /// [`Error::InUse`], or [`Error::Argument`] where there is no such queue.
    pub fn tx_queue(&self, index: u16) -> Result<TxQueue, Error> {
        Ok(TxQueue {
            queue: Queue::take(&self.inner, Way::Tx, index)?,
        })
    }

    /// What the driver says.
    ///
    /// # Errors
    /// [`Error::Port`].
    pub fn info(&self) -> Result<PortInfo, Error> {
        info(&self.inner.name, self.inner.id)
    }

    /// What the driver says of a port that is not open.
    ///
    /// # Errors
    /// [`Error::NoPort`] where the device did not probe, [`Error::Port`].
    pub fn look(eal: &Eal, name: &str) -> Result<PortInfo, Error> {
        info(name, find(eal.shared(), name)?)
    }

    /// The port's own Ethernet address.
    ///
    /// # Errors
    /// [`Error::Port`].
    pub fn mac(&self) -> Result<[u8; 6], Error> {
        let mut mac = dpdk_sys::rte_ether_addr { addr_bytes: [0; 6] };
        let mark = log::mark();
        // SAFETY: the pointer is to a live local.
        let ret = unsafe { dpdk_sys::rte_eth_macaddr_get(self.inner.id, &raw mut mac) };
        self.inner.done("rte_eth_macaddr_get", ret, mark)?;
        Ok(mac.addr_bytes)
    }

    /// The counters. Any thread, also while queues are polled.
    ///
    /// # Errors
    /// [`Error::Port`].
    pub fn stats(&self) -> Result<PortStats, Error> {
        let mut raw = dpdk_sys::rte_eth_stats::default();
        let mark = log::mark();
        // SAFETY: the pointer is to a live local.
        let ret = unsafe { dpdk_sys::rte_eth_stats_get(self.inner.id, &raw mut raw) };
        self.inner.done("rte_eth_stats_get", ret, mark)?;
        Ok(PortStats {
            rx_packets: raw.ipackets,
            rx_octets: raw.ibytes,
            rx_missed: raw.imissed,
            rx_errors: raw.ierrors,
            rx_no_mbuf: raw.rx_nombuf,
            tx_packets: raw.opackets,
            tx_octets: raw.obytes,
            tx_errors: raw.oerrors,
        })
    }

    /// Sets the counters to zero. Not while another thread polls the port's queues, or some frames go
    /// uncounted.
    ///
    /// # Errors
    /// [`Error::Port`].
    pub fn reset_stats(&mut self) -> Result<(), Error> {
        // SAFETY: takes a number.
        self.inner.call("rte_eth_stats_reset", |id| unsafe {
            dpdk_sys::rte_eth_stats_reset(id)
        })
    }

    /// The MTU that the driver goes by, in octets of IP. af_packet does not go by it: see
    /// [`crate::vdev::af_packet`].
    ///
    /// # Errors
    /// [`Error::Port`].
    pub fn mtu(&self) -> Result<u16, Error> {
        let mut mtu = 0;
        let mark = log::mark();
        // SAFETY: the pointer is to a live local.
        let ret = unsafe { dpdk_sys::rte_eth_dev_get_mtu(self.inner.id, &raw mut mtu) };
        self.inner.done("rte_eth_dev_get_mtu", ret, mark)?;
        Ok(mtu)
    }

    /// Sets the driver's MTU (and with a tap that of the kernel interface), while the port runs.
    ///
    /// # Errors
    /// [`Error::Port`] where the driver refuses: af_packet always does above 1500.
    pub fn set_mtu(&mut self, mtu: u16) -> Result<(), Error> {
        self.inner.call("rte_eth_dev_set_mtu", |id| {
            // SAFETY: takes two numbers.
            unsafe { dpdk_sys::rte_eth_dev_set_mtu(id, mtu) }
        })
    }

    /// Whether frames for any address are received.
    ///
    /// # Errors
    /// [`Error::Port`].
    pub fn promiscuous(&self) -> Result<bool, Error> {
        let mark = log::mark();
        // SAFETY: takes a number.
        let ret = unsafe { dpdk_sys::rte_eth_promiscuous_get(self.inner.id) };
        self.inner.done("rte_eth_promiscuous_get", ret, mark)?;
        Ok(ret == 1)
    }

    /// Receives frames for any address, or only for the port's own.
    ///
    /// # Errors
    /// [`Error::Port`].
    pub fn set_promiscuous(&mut self, on: bool) -> Result<(), Error> {
        self.inner.set_promiscuous(on)
    }
}

fn find(shared: &Shared, name: &str) -> Result<u16, Error> {
    let mut id = 0;
    let found = CString::new(name).is_ok_and(|c_name| {
        // SAFETY: the name is NUL-terminated, the pointer to a live local; EAL runs.
        unsafe { dpdk_sys::rte_eth_dev_get_port_by_name(c_name.as_ptr(), &raw mut id) == 0 }
    });
    if found {
        return Ok(id);
    }
    let iface = shared
        .vdevs
        .iter()
        .find(|v| v.name() == name)
        .and_then(|v| v.iface());
    // The probe ran inside EAL's start: the whole log is of interest.
    let said = log::since(Mark::START).0;
    let about = said
        .into_iter()
        .filter(|l| l.contains(name) || iface.is_some_and(|i| l.contains(i)));
    Err(Error::NoPort {
        name: name.into(),
        iface: iface.map(Into::into),
        log: DpdkLog(about.collect()),
    })
}

fn check_queues(name: &str, what: &'static str, n: u16, most: u16) -> Result<(), Error> {
    if (1..=most).contains(&n) {
        return Ok(());
    }
    let expected = format!("1 to {most} for port {name}");
    Err(Error::Argument {
        what,
        value: n.to_string(),
        expected,
    })
}

/// What a control call returned, as a result.
fn done(name: &str, call: &'static str, ret: i32, mark: Mark) -> Result<(), Error> {
    if ret >= 0 {
        return Ok(());
    }
    Err(Error::Port {
        name: name.into(),
        call,
        errno: Errno::of(ret),
        log: log::since(mark),
    })
}

impl Inner {
    fn done(&self, call: &'static str, ret: i32, mark: Mark) -> Result<(), Error> {
        done(&self.name, call, ret, mark)
    }

    fn call(&self, call: &'static str, f: impl FnOnce(u16) -> i32) -> Result<(), Error> {
        let mark = log::mark();
        self.done(call, f(self.id), mark)
    }

    fn start(&self, info: &dpdk_sys::rte_eth_dev_info, pool: &Mempool) -> Result<(), Error> {
        let speeds = self.link_speeds(info.speed_capa);
        let refused = self.start_with(info, pool, speeds);
        // Some drivers refuse the whole port for a speed that they list: then it runs with the device's own.
        if let Err(error) = refused {
            if speeds == 0 {
                return Err(error);
            }
            self.not_applied(format!("speed_mbit: {error}"));
            self.start_with(info, pool, 0)?;
        }
        self.settle_link();
        self.set_promiscuous(self.config.promiscuous)
    }

    fn start_with(
        &self,
        info: &dpdk_sys::rte_eth_dev_info,
        pool: &Mempool,
        link_speeds: u32,
    ) -> Result<(), Error> {
        self.configure(info, link_speeds)?;
        self.set_up_queues(pool)?;
        // SAFETY: takes a number; the port is configured and stopped.
        self.call("rte_eth_dev_start", |id| unsafe {
            dpdk_sys::rte_eth_dev_start(id)
        })
    }

    /// No receive offloads (a VLAN tag stays in the frame); chains where the driver can send them; never
    /// the fast free, which must not be used on packets that are held.
    fn configure(&self, info: &dpdk_sys::rte_eth_dev_info, link_speeds: u32) -> Result<(), Error> {
        let mut conf = dpdk_sys::rte_eth_conf::default();
        conf.txmode.offloads = used_offloads(info);
        conf.link_speeds = link_speeds;
        // Zero leaves the driver's own.
        conf.rxmode.mtu = u32::from(self.config.mtu.unwrap_or(0));
        let (rx, tx) = (self.config.rx_queues, self.config.tx_queues);
        let mut key = spread::key();
        if rx > 1 {
            spread::by_address(&mut conf, info, &mut key);
        }
        self.call("rte_eth_dev_configure", |id| {
            // SAFETY: the configuration and the key it points to are live locals that DPDK copies; the
            // port is ours and stopped.
            unsafe { dpdk_sys::rte_eth_dev_configure(id, rx, tx, &raw const conf) }
        })
    }

    fn set_up_queues(&self, pool: &Mempool) -> Result<(), Error> {
        let (mut rx, mut tx) = (self.config.rx_descriptors, self.config.tx_descriptors);
        self.call("rte_eth_dev_adjust_nb_rx_tx_desc", |id| {
            // SAFETY: both pointers are to live locals.
            unsafe { dpdk_sys::rte_eth_dev_adjust_nb_rx_tx_desc(id, &raw mut rx, &raw mut tx) }
        })?;
        let _ = self.asked.set((rx, tx));
        // SAFETY: takes a number; -1 (any) where unknown, which the cast below keeps as SOCKET_ID_ANY.
        let socket = unsafe { dpdk_sys::rte_eth_dev_socket_id(self.id) }.cast_unsigned();
        let default = core::ptr::null();
        for q in 0..self.config.rx_queues {
            self.call("rte_eth_rx_queue_setup", |id| {
                let pool = pool.as_ptr();
                // SAFETY: the queue is below the configured number, a null configuration means the
                // driver's own, and the pool outlives the port: it is freed only after all are closed.
                unsafe { dpdk_sys::rte_eth_rx_queue_setup(id, q, rx, socket, default, pool) }
            })?;
        }
        let default = core::ptr::null();
        for q in 0..self.config.tx_queues {
            self.call("rte_eth_tx_queue_setup", |id| {
                // SAFETY: as for the receive queues.
                unsafe { dpdk_sys::rte_eth_tx_queue_setup(id, q, tx, socket, default) }
            })?;
        }
        Ok(())
    }

    fn set_promiscuous(&self, on: bool) -> Result<(), Error> {
        let call = if on {
            "rte_eth_promiscuous_enable"
        } else {
            "rte_eth_promiscuous_disable"
        };
        let mark = log::mark();
        // SAFETY: takes a number.
        let ret = unsafe {
            if on {
                dpdk_sys::rte_eth_promiscuous_enable(self.id)
            } else {
                dpdk_sys::rte_eth_promiscuous_disable(self.id)
            }
        };
        // Drivers without the notion (ring, pcap) receive everything anyway.
        if ret == -nix::libc::ENOTSUP {
            Ok(())
        } else {
            self.done(call, ret, mark)
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the queues hold this by Arc, so no burst can be running or follow. Stopping a port that
        // never started is allowed. Close frees what the driver holds; there is nobody to tell of errors.
        unsafe {
            dpdk_sys::rte_eth_dev_stop(self.id);
            dpdk_sys::rte_eth_dev_close(self.id);
        }
        self.shared
            .claimed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.id);
    }
}
