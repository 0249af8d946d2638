//! The pipeline's buffers, pools and ports on DPDK.

use std::sync::Arc;

use crem_core::packet::PktBuf;
use crem_dpdk::{
    Batch, Error, HEADROOM, Mbuf, Mempool, Port as DpdkPort, PortStats, RxQueue, TxQueue,
};

use crate::buffer::{BURST, Buffer, Platform, Pool, Port};
use crate::team::Outlet;

/// An mbuf.
#[derive(Debug)]
pub struct Frame(Mbuf);

impl From<Mbuf> for Frame {
    fn from(mbuf: Mbuf) -> Self {
        Self(mbuf)
    }
}

impl Frame {
    /// Grows the frame by `len` octets of any content and gives these; `None`, with nothing done, if
    /// they do not fit the buffer or another reference exists.
    pub fn append(&mut self, len: u16) -> Option<&mut [u8]> {
        self.0.append(len).ok()
    }
}

impl Clone for Frame {
    fn clone(&self) -> Self {
        Self(self.0.share())
    }
}

impl PktBuf for Frame {}

impl Buffer for Frame {
    fn octets(&self) -> &[u8] {
        // Ports are opened without scatter: a frame is one segment.
        self.0.data()
    }

    fn octets_mut(&mut self) -> Option<&mut [u8]> {
        self.0.data_mut().ok()
    }

    fn trim_front(&mut self, count: u16) -> bool {
        self.0.trim_front(count).is_ok()
    }

    #[inline]
    fn prefetch_header(&self) {
        self.0.prefetch_header();
    }

    #[inline]
    fn prefetch(&self) {
        self.0.prefetch();
    }
}

/// A pool of mbufs.
#[derive(Clone, Debug)]
pub struct FramePool(pub Mempool);

impl Pool<Frame> for FramePool {
    fn take(&self, len: u16) -> Option<Frame> {
        if len > self.0.room().saturating_sub(HEADROOM) {
            return None;
        }
        let mut mbuf = self.0.alloc()?;
        mbuf.append(len).ok()?;
        Some(Frame(mbuf))
    }

    fn usage(&self) -> (u32, u32) {
        (self.0.in_use(), self.0.count())
    }
}

/// One queue of a port, both ways.
#[derive(Debug)]
pub struct Device {
    rx: RxQueue,
    tx: TxQueue,
    port: Arc<DpdkPort>,
    received: Batch<BURST>,
    sending: Batch<BURST>,
}

impl Device {
    /// The first queue of an open port.
    ///
    /// # Errors
    /// If it is in use.
    pub fn new(port: DpdkPort) -> Result<Self, Error> {
        Self::queue(&Arc::new(port), 0)
    }

    /// Queue `index` of an open port that others share.
    ///
    /// # Errors
    /// If it is in use, or not there.
    pub fn queue(port: &Arc<DpdkPort>, index: u16) -> Result<Self, Error> {
        let (rx, tx) = (port.rx_queue(index)?, port.tx_queue(index)?);
        let port = Arc::clone(port);
        Ok(Self {
            rx,
            tx,
            port,
            received: Batch::new(),
            sending: Batch::new(),
        })
    }
}

impl Port<Frame> for Device {
    fn receive(&mut self, into: &mut Vec<Frame>) {
        self.rx.burst(&mut self.received);
        into.extend(self.received.drain().map(Frame));
    }

    fn send(&mut self, frames: &mut Vec<Frame>) {
        while !frames.is_empty() && self.sending.is_empty() {
            let count = frames.len().min(self.sending.spare());
            for Frame(mbuf) in frames.drain(..count) {
                // There is room: it was counted.
                let _ = self.sending.push(mbuf);
            }
            self.tx.burst(&mut self.sending);
        }
        // The device is full: what it did not take goes back to the front.
        frames.splice(0..0, self.sending.drain().map(Frame));
    }

    fn device_drops(&self) -> u64 {
        let stats = self.port.stats().unwrap_or_default();
        missed(&stats) + stats.tx_errors
    }

    fn missed(&self) -> u64 {
        missed(&self.port.stats().unwrap_or_default())
    }

    fn link_up(&self) -> bool {
        self.port.link().is_ok_and(|link| link.up)
    }
}

/// Frames that came by and that we never got.
const fn missed(stats: &PortStats) -> u64 {
    stats.rx_missed + stats.rx_errors + stats.rx_no_mbuf
}

/// Everything on DPDK. A worker has a queue of each port, or sends by that of another worker.
#[derive(Debug)]
pub struct Dpdk;

impl Platform for Dpdk {
    type Buf = Frame;
    type Pool = FramePool;
    type Port = Outlet<Device, Frame>;
}
