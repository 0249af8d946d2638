//! How much packet memory a data plane is started with. On ordinary pages that is all there will be, so that everything
//! which takes of it is counted; what the kernel has for rings of ports is not of it.

use crem_api::{Device, Document};
use crem_dpdk::{Memory, MempoolConfig, free_hugepage_mb};

use crate::start::MemoryKind;

/// EAL itself, tables of ports, alignment, and what the allocator cannot use, in MB.
const SLACK_MB: u32 = 8;
/// What a driver takes of a queue besides the descriptors, in MB.
const QUEUE_MB: u32 = 1;
/// Octets of a descriptor with what a driver notes of its frame, both ways.
const DESCRIPTOR: u64 = 128;
/// What the tap driver makes for each of its ports, whether frames will be split or not.
const TAP_POOL: MempoolConfig<'static> = MempoolConfig {
    name: "tap",
    count: 512,
    room: 256,
    cache: 4,
    socket: None,
};
/// The tap driver's other structures, in MB.
const TAP_MB: u32 = 1;

/// What takes packet memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Takers<'a> {
    /// Segments with their ports and in-band interfaces.
    pub document: &'a Document,
    /// Frame buffers.
    pub pool: &'a MempoolConfig<'a>,
    /// Queues of a port that is a kernel interface; other ports have one for each worker.
    pub interface_queues: u16,
    /// Descriptors of each queue.
    pub ring_frames: u32,
}

impl Takers<'_> {
    /// Where packet memory comes from and how much, `mb` if that is given.
    ///
    /// Hugepages and ordinary pages differ in what a pool takes, so the choice between them is made here: hugepages if
    /// enough are free at this moment, and always for PCI devices.
    pub(crate) fn memory(&self, kind: MemoryKind, mb: Option<u32>) -> Memory {
        let huge = mb.unwrap_or_else(|| self.huge_mb());
        let ordinary = mb.unwrap_or_else(|| self.ordinary_mb());
        let kind = match kind {
            MemoryKind::Auto if self.has_pci() || free_hugepage_mb() >= huge.max(2) => {
                MemoryKind::Huge
            }
            MemoryKind::Auto => MemoryKind::NoHuge,
            given => given,
        };
        match kind {
            MemoryKind::NoHuge => Memory::NoHuge { mb: ordinary },
            MemoryKind::Auto | MemoryKind::Huge => Memory::Huge { mb: huge },
        }
    }

    fn huge_mb(&self) -> u32 {
        let taps = self.taps() * (TAP_POOL.needed_mb() + TAP_MB);
        self.pool.needed_mb() + taps + self.ports_mb() + SLACK_MB
    }

    fn ordinary_mb(&self) -> u32 {
        let taps = self.taps() * (TAP_POOL.needed_ordinary_mb() + TAP_MB);
        self.pool.needed_ordinary_mb() + taps + self.ports_mb() + SLACK_MB
    }

    fn taps(&self) -> u32 {
        let inband = self.document.segments.values();
        inband.map(|s| u32::from(s.inband.is_some())).sum()
    }

    /// Queues and descriptors of all ports, in MB.
    fn ports_mb(&self) -> u32 {
        let queues = |device: &Device| match device {
            Device::Interface(_) => u32::from(self.interface_queues),
            // One, whatever the number of workers.
            Device::Xdp(_) => 1,
            Device::Pci(_) | Device::Vdev(_) => u32::from(self.document.workers),
        };
        let segments = self.document.segments.values();
        let queues: u32 = segments.flat_map(|s| [&s.lan, &s.wan]).map(queues).sum();
        let descriptors = u64::from(queues) * u64::from(self.ring_frames) * DESCRIPTOR;
        let mb = u32::try_from(descriptors.div_ceil(1 << 20)).unwrap_or(u32::MAX);
        mb.saturating_add(queues * QUEUE_MB)
    }

    fn has_pci(&self) -> bool {
        let mut devices = self
            .document
            .segments
            .values()
            .flat_map(|s| [&s.lan, &s.wan]);
        devices.any(|device| matches!(device, Device::Pci(_)))
    }
}
