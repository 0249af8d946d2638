//! What the pipeline needs of frame buffers, pools and ports, so that it runs over DPDK and, in tests,
//! over memory of the heap. The DPDK side is in `dpdk.rs`.

use crem_core::packet::PktBuf;

/// Frames taken from a port at once.
pub const BURST: usize = 32;

/// One counted reference to a frame. A frame that has several is never changed.
pub trait Buffer: PktBuf {
    /// The frame from its Ethernet header on, without FCS.
    fn octets(&self) -> &[u8];

    /// The frame for change; `None` while another reference exists.
    fn octets_mut(&mut self) -> Option<&mut [u8]>;

    /// Takes octets off the front; `false`, with nothing done, if the frame is shorter or another
    /// reference exists.
    fn trim_front(&mut self, count: u16) -> bool;

    /// A hint that the frame, or its last reference, is about to be touched: loads what is needed to
    /// reach its octets, or to free it.
    fn prefetch_header(&self) {}

    /// A hint that the front of the frame is about to be read, after [`Buffer::prefetch_header`].
    fn prefetch(&self) {}

    /// Whether both refer to the same frame.
    fn is_same(&self, other: &Self) -> bool {
        core::ptr::eq(self.octets().as_ptr(), other.octets().as_ptr())
    }
}

/// Where new frames come from.
pub trait Pool<B> {
    /// A frame of `len` octets of any content; `None` if the pool is empty or `len` does not fit.
    fn take(&self, len: u16) -> Option<B>;

    /// Buffers taken and buffers in all.
    fn usage(&self) -> (u32, u32);
}

/// One side of a segment.
pub trait Port<B> {
    /// Appends at most [`BURST`] received frames. Never waits.
    fn receive(&mut self, into: &mut Vec<B>);

    /// Gives frames to the device in order, from the front, as many as it takes, and removes those.
    /// Never waits.
    fn send(&mut self, frames: &mut Vec<B>);

    /// Says which of the frames sent from now on were restored here. Only matters where another worker
    /// sends them.
    fn mark_restored(&mut self, _restored: &[B]) {}

    /// Frames that the device says it could not deliver to us or send, as far as it tells.
    fn device_drops(&self) -> u64 {
        0
    }

    /// Frames that came by and that we never got, as far as the device tells.
    fn missed(&self) -> u64 {
        0
    }

    /// Whether the link is up.
    fn link_up(&self) -> bool {
        true
    }
}

/// The kinds that belong together.
pub trait Platform {
    /// Frames.
    type Buf: Buffer + Send + 'static;
    /// Their source.
    type Pool: Pool<Self::Buf>;
    /// Ports.
    type Port: Port<Self::Buf>;
}

#[cfg(test)]
pub(crate) mod heap {
    //! Frames on the heap, and ports that are queues.

    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::sync::Arc;

    use super::{BURST, Buffer, Platform, Pool, Port};
    use crem_core::packet::PktBuf;

    thread_local! {
        static CLONES_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// Makes the `n`-th clone of a frame from now on panic on this thread, once.
    pub(crate) fn panic_at_clone(n: u32) {
        CLONES_LEFT.set(Some(n));
    }

    #[derive(Debug)]
    pub(crate) struct HeapBuf {
        octets: Arc<Vec<u8>>,
        start: usize,
    }

    impl Clone for HeapBuf {
        fn clone(&self) -> Self {
            let left = CLONES_LEFT.get();
            CLONES_LEFT.set(left.and_then(|n| n.checked_sub(1)).filter(|n| *n > 0));
            assert!(left != Some(1), "this clone was to panic");
            Self {
                octets: Arc::clone(&self.octets),
                start: self.start,
            }
        }
    }

    impl HeapBuf {
        pub(crate) fn new(octets: &[u8]) -> Self {
            Self {
                octets: Arc::new(octets.to_vec()),
                start: 0,
            }
        }
    }

    impl PktBuf for HeapBuf {}

    impl Buffer for HeapBuf {
        fn octets(&self) -> &[u8] {
            &self.octets[self.start..]
        }
        fn octets_mut(&mut self) -> Option<&mut [u8]> {
            Arc::get_mut(&mut self.octets).map(|o| &mut o[self.start..])
        }
        fn trim_front(&mut self, count: u16) -> bool {
            let alone = Arc::get_mut(&mut self.octets).is_some();
            let fits = usize::from(count) <= self.octets.len() - self.start;
            if alone && fits {
                self.start += usize::from(count);
            }
            alone && fits
        }
    }

    #[derive(Default)]
    pub(crate) struct HeapPool {
        pub(crate) taken: Cell<u32>,
        pub(crate) empty: Cell<bool>,
    }

    impl Pool<HeapBuf> for HeapPool {
        fn take(&self, len: u16) -> Option<HeapBuf> {
            if self.empty.get() {
                return None;
            }
            self.taken.set(self.taken.get() + 1);
            Some(HeapBuf::new(&vec![0xa5; usize::from(len)]))
        }
        fn usage(&self) -> (u32, u32) {
            (self.taken.get(), u32::MAX)
        }
    }

    #[derive(Default)]
    pub(crate) struct HeapPort {
        pub(crate) waiting: RefCell<VecDeque<HeapBuf>>,
        pub(crate) sent: Vec<HeapBuf>,
        /// Frames that it takes before it is full; `None`: never full.
        pub(crate) room: Option<usize>,
        /// Frames that it says it missed.
        pub(crate) missed: u64,
    }

    impl HeapPort {
        pub(crate) fn arrive(&mut self, frame: &[u8]) {
            self.waiting.borrow_mut().push_back(HeapBuf::new(frame));
        }
    }

    impl Port<HeapBuf> for HeapPort {
        fn missed(&self) -> u64 {
            self.missed
        }
        fn receive(&mut self, into: &mut Vec<HeapBuf>) {
            let mut waiting = self.waiting.borrow_mut();
            let count = waiting.len().min(BURST);
            into.extend(waiting.drain(..count));
        }
        fn send(&mut self, frames: &mut Vec<HeapBuf>) {
            let count = frames.len().min(self.room.unwrap_or(usize::MAX));
            self.sent.extend(frames.drain(..count));
            if let Some(room) = &mut self.room {
                *room -= count;
            }
        }
    }

    pub(crate) struct Heap;

    impl Platform for Heap {
        type Buf = HeapBuf;
        type Pool = HeapPool;
        type Port = HeapPort;
    }
}
