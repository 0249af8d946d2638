//! One segment of a packet: the fields of its header read in place, and the two questions that decide
//! what may be changed. What may be done with them is `mbuf.rs`.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, Ordering, fence};

use crate::mbuf::Mbuf;

/// One segment of a packet that lives for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct Seg<'a> {
    pub(crate) raw: NonNull<dpdk_sys::rte_mbuf>,
    pub(crate) packet: PhantomData<&'a Mbuf>,
}

impl<'a> Seg<'a> {
    /// Reads a field of the mbuf header.
    ///
    /// # Safety
    /// `offset` is that of a field of type `T`, one that nobody writes while others hold a reference
    /// (all but the count).
    #[inline]
    pub(crate) unsafe fn field<T: Copy>(self, offset: u32) -> T {
        // SAFETY: the segment is valid for `'a`; the caller vouches for offset and type, and DPDK's
        // fields are naturally aligned.
        unsafe {
            self.raw
                .as_ptr()
                .cast::<u8>()
                .add(offset as usize)
                .cast::<T>()
                .read()
        }
    }

    #[inline]
    pub(crate) fn data_off(self) -> u16 {
        // SAFETY: the offset is that of this field, of this type.
        unsafe { self.field(dpdk_sys::SHIM_OFF_DATA_OFF) }
    }

    #[inline]
    pub(crate) fn data_len(self) -> u16 {
        // SAFETY: the offset is that of this field, of this type.
        unsafe { self.field(dpdk_sys::SHIM_OFF_DATA_LEN) }
    }

    #[inline]
    pub(crate) fn tailroom(self) -> u16 {
        // SAFETY: the offset is that of this field, of this type.
        let buf_len: u16 = unsafe { self.field(dpdk_sys::SHIM_OFF_BUF_LEN) };
        buf_len
            .saturating_sub(self.data_off())
            .saturating_sub(self.data_len())
    }

    #[inline]
    pub(crate) fn start(self) -> *mut u8 {
        // SAFETY: the offset is that of this field, of this type; data_off lies within the buffer that
        // buf_addr points to.
        unsafe {
            let buf: *mut u8 = self.field(dpdk_sys::SHIM_OFF_BUF_ADDR);
            buf.add(usize::from(self.data_off()))
        }
    }

    #[inline]
    pub(crate) fn data(self) -> &'a [u8] {
        // SAFETY: start and length describe initialised octets of the segment's buffer (mapped zeroed
        // at first); they are not written while anyone but a sole owner holds them, and a sole owner
        // needs `&mut Mbuf` to write, which excludes the borrow `'a`.
        unsafe { core::slice::from_raw_parts(self.start(), usize::from(self.data_len())) }
    }

    /// The count as DPDK's own functions change it: by atomic additions, or by a store of whoever holds the
    /// only reference.
    #[inline]
    fn count(self) -> &'a AtomicU16 {
        let offset = dpdk_sys::SHIM_OFF_REFCNT as usize;
        // SAFETY: the segment is valid for `'a`, the offset is that of the count, which is aligned and only
        // ever accessed atomically.
        unsafe { AtomicU16::from_ptr(self.raw.as_ptr().cast::<u8>().add(offset).cast()) }
    }

    #[inline]
    pub(crate) fn refcnt(self) -> u16 {
        self.count().load(Ordering::Relaxed)
    }

    /// Adds a reference for the holder of one, who is not at the end of the range.
    #[inline]
    pub(crate) fn add_reference(self) {
        match self.refcnt() {
            // Nobody else counts.
            1 => self.count().store(2, Ordering::Relaxed),
            _ => {
                self.count().fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Gives up a reference of the holder if others are left. Then the segment must not be touched any more.
    #[inline]
    pub(crate) fn give_up_shared(self) -> bool {
        if self.refcnt() == 1 {
            return false;
        }
        // What we read of the packet happened before the last holder changes or frees it.
        if self.count().fetch_sub(1, Ordering::AcqRel) > 1 {
            return true;
        }
        // The others were faster: the reference is the last one after all.
        self.count().store(1, Ordering::Relaxed);
        false
    }

    #[inline]
    pub(crate) fn is_direct(self) -> bool {
        let other = dpdk_sys::SHIM_MBUF_F_INDIRECT | dpdk_sys::SHIM_MBUF_F_EXTERNAL;
        // SAFETY: the offset is that of this field, of this type.
        let flags: u64 = unsafe { self.field(dpdk_sys::SHIM_OFF_OL_FLAGS) };
        flags & other == 0
    }

    /// Whether ours is the only reference: the header may be changed.
    #[inline]
    pub(crate) fn is_sole(self) -> bool {
        let sole = self.refcnt() == 1;
        if sole {
            // Pairs with the releasing decrement of whoever held the others: what they read happened
            // before what we write.
            fence(Ordering::Acquire);
        }
        sole
    }

    /// Whether the octets may be changed too.
    #[inline]
    pub(crate) fn owns_octets(self) -> bool {
        self.is_sole() && self.is_direct()
    }
}

pub(crate) struct SegIter<'a> {
    pub(crate) next: Option<Seg<'a>>,
}

impl<'a> Iterator for SegIter<'a> {
    type Item = Seg<'a>;

    #[inline]
    fn next(&mut self) -> Option<Seg<'a>> {
        let seg = self.next?;
        // SAFETY: the offset is that of this field, of this type.
        let next: *mut dpdk_sys::rte_mbuf = unsafe { seg.field(dpdk_sys::SHIM_OFF_NEXT) };
        self.next = NonNull::new(next).map(|raw| Seg {
            raw,
            packet: PhantomData,
        });
        Some(seg)
    }
}

/// See [`Mbuf::segments`].
pub struct Segments<'a> {
    pub(crate) inner: SegIter<'a>,
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.inner.next().map(Seg::data)
    }
}

impl fmt::Debug for Segments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Segments")
    }
}
