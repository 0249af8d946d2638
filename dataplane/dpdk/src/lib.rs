//! Safe EAL, ports, mempools and mbufs on the system's DPDK.
//!
//! What lives here: the process-wide environment ([`Eal`]), packet memory ([`Mempool`], [`Mbuf`],
//! [`Batch`]), ports and their queues ([`Port`], [`RxQueue`], [`TxQueue`]), virtual device arguments
//! ([`vdev`]), and what a polling thread needs of the machine ([`Clock`], [`thread`], [`iface`],
//! [`Rings`]).
//! What does not: anything about the protocol, and any decision about a packet.
//!
//! ```no_run
//! use crem_dpdk::{Batch, Eal, EalConfig, MempoolConfig, Port, PortConfig, vdev};
//!
//! # fn main() -> Result<(), crem_dpdk::Error> {
//! let lan = vdev::af_packet("net_af_packet0", "g0", 4300, 2048);
//! let wan = vdev::af_packet("net_af_packet1", "g1", 4300, 2048);
//! let room = vdev::af_packet_room(4300);
//! let eal = Eal::init(EalConfig { vdevs: vec![lan, wan], ..EalConfig::default() })?;
//! let pool = eal.mempool(&MempoolConfig { name: "rx", count: 8191, room, ..Default::default() })?;
//! let lan = Port::open(&eal, "net_af_packet0", &PortConfig::default(), &pool)?;
//! let wan = Port::open(&eal, "net_af_packet1", &PortConfig::default(), &pool)?;
//! let (mut rx, mut tx) = (lan.rx_queue(0)?, wan.tx_queue(0)?);
//! let mut batch = Batch::<32>::new();
//! loop {
//!     rx.burst(&mut batch);
//!     tx.burst(&mut batch);
//!     batch.clear(); // what did not fit the TX ring is dropped here, by our own decision
//! }
//! # }
//! ```
//!
//! # Threads
//!
//! Everything that is per packet may be called from any thread, one thread per queue (`burst` takes
//! `&mut self`). What differs is the mempool cache: it belongs to lcores. The thread that ran
//! [`Eal::init`] is one; any other becomes one with [`Registrar::register`]. A thread that is none
//! works too, but each allocation and free goes to the pool's shared ring (measured costs in
//! `docs/dpdk.md`). [`Eal`] itself stays on the thread that made it.
//!
//! # Why nothing dangles
//!
//! An [`Mbuf`] is eight octets and carries no reference to its pool: counting per packet would cost
//! more than the packet. Instead pool memory is never unmapped before the whole EAL is torn down, and
//! that happens only when every port is closed, every element of every pool is back, and no other
//! thread that ever freed an mbuf is still running. Where one of these is not so, the memory stays
//! until the process exits, and [`Eal::shutdown`] says which.

mod batch;
mod clock;
mod eal;
mod error;
pub mod iface;
mod lcore;
mod lifetime;
mod log;
mod mbuf;
mod mempool;
mod port;
mod queue;
mod rings;
mod segment;
mod spread;
pub mod thread;
pub mod vdev;

pub use batch::{BURST, Batch, Drain};
pub use clock::{Clock, TimeSource, rdtsc};
pub use eal::{Eal, EalConfig, Iova, Memory, free_hugepage_mb};
pub use error::{Errno, Error};
pub use lcore::{LcoreGuard, Registrar};
pub use log::{LogLevel, LogSink};
pub use mbuf::{HEADROOM, Mbuf, MbufError};
pub use mempool::{Mempool, MempoolConfig};
pub use port::{
    FecAt, FecKinds, FlowControl, Link, LinkFec, LinkSettings, LinkTold, Pause, Port, PortConfig,
    PortInfo, PortStats, PriorityFlowControl, QueuesTold, Told,
};
pub use queue::{RxQueue, TxQueue};
pub use rings::Rings;
pub use segment::Segments;
pub use vdev::Vdev;

/// The DPDK release that runs, as it calls itself.
pub fn dpdk_version() -> String {
    // SAFETY: rte_version returns a NUL-terminated string that is built once and never freed.
    unsafe { core::ffi::CStr::from_ptr(dpdk_sys::rte_version()) }
        .to_string_lossy()
        .into_owned()
}
