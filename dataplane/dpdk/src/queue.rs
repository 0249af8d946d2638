//! Receive and transmit queues: the per-packet calls. Opening and counting is `port.rs`.

use core::marker::PhantomData;
use std::cell::Cell;
use std::sync::{Arc, PoisonError};

use crate::batch::Batch;
use crate::error::Error;
use crate::port::{Inner, Way};

/// One queue of a running port, with one owner.
#[derive(Debug)]
pub(crate) struct Queue {
    port: Arc<Inner>,
    way: Way,
    index: u16,
    /// A queue may move to another thread but is not for two at once.
    not_sync: PhantomData<Cell<()>>,
}

impl Queue {
    pub(crate) fn take(port: &Arc<Inner>, way: Way, index: u16) -> Result<Queue, Error> {
        let n = if way == Way::Rx {
            port.config.rx_queues
        } else {
            port.config.tx_queues
        };
        if index >= n {
            let expected = format!("less than {n} for port {}", port.name);
            return Err(Error::Argument {
                what: "queue",
                value: index.to_string(),
                expected,
            });
        }
        if !port
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert((way, index))
        {
            let what = format!("{way:?} queue {index}");
            return Err(Error::InUse {
                name: port.name.clone(),
                what,
            });
        }
        Ok(Queue {
            port: Arc::clone(port),
            way,
            index,
            not_sync: PhantomData,
        })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut taken = self
            .port
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        taken.remove(&(self.way, self.index));
    }
}

/// A receive queue.
#[derive(Debug)]
pub struct RxQueue {
    pub(crate) queue: Queue,
}

impl RxQueue {
    /// Puts waiting packets behind those in `batch`, as many as there is room for; returns how many.
    /// Never waits. An empty poll costs 5 to 20 ns. Some NIC drivers give nothing to a request for fewer
    /// than four: pass a batch with room.
    #[inline]
    pub fn burst<const N: usize>(&mut self, batch: &mut Batch<N>) -> usize {
        let room = u16::try_from(batch.spare()).unwrap_or(u16::MAX);
        let (port, index) = (self.queue.port.id, self.queue.index);
        // SAFETY: the port runs and the queue exists while `self` does, and `&mut self` makes this its
        // only user; the batch has room for that many pointers; DPDK wrote as many as it returns, each an
        // mbuf with a reference of its own.
        unsafe {
            let n = usize::from(dpdk_sys::shim_rx_burst(
                port,
                index,
                batch.spare_ptr(),
                room,
            ));
            batch.grow(n);
            n
        }
    }

    /// The port's name.
    pub fn port_name(&self) -> &str {
        &self.queue.port.name
    }
}

/// A transmit queue.
#[derive(Debug)]
pub struct TxQueue {
    pub(crate) queue: Queue,
}

impl TxQueue {
    /// Sends packets from the front of `batch`; returns how many. What was sent is gone from the batch
    /// (the driver has the reference), the others stay, in order, for the caller to keep or drop.
    ///
    /// af_packet copies during the call; hardware reads the memory later, which is why a shared packet
    /// may not be changed.
    #[inline]
    pub fn burst<const N: usize>(&mut self, batch: &mut Batch<N>) -> usize {
        let count = u16::try_from(batch.len()).unwrap_or(u16::MAX);
        if count == 0 {
            return 0;
        }
        let (port, index) = (self.queue.port.id, self.queue.index);
        // SAFETY: the port runs and the queue exists while `self` does, and `&mut self` makes this its
        // only user; the batch's slots are owned mbufs; DPDK took the references of the first `n`.
        unsafe {
            let first = batch.as_mut_ptr().cast();
            let n = usize::from(dpdk_sys::shim_tx_burst(port, index, first, count));
            batch.forget_front(n);
            n
        }
    }

    /// The port's name.
    pub fn port_name(&self) -> &str {
        &self.queue.port.name
    }
}
