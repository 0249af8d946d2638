//! One packet in DPDK's memory: an owning handle with reference count, segments, and the rules of when
//! its octets may be changed. Pools and ports are elsewhere.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::batch::into_raw;
use crate::lifetime;
use crate::mempool::Mempool;
use crate::segment::{Seg, SegIter, Segments};

/// Octets before the data of a fresh mbuf.
pub const HEADROOM: u16 = dpdk_sys::SHIM_PKTMBUF_HEADROOM;

/// References to one packet that stop the process; half of what the count can hold.
const MAX_REFERENCES: u16 = 1 << 15;

/// Why an operation on an mbuf was refused. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MbufError {
    /// Others hold a reference, or the octets belong to another mbuf.
    #[error("the mbuf is shared and may not be changed")]
    Shared,
    /// Head- or tailroom is too small, or a chain would be too long.
    #[error("not enough room in the mbuf")]
    NoRoom,
    /// The segment holds fewer octets than were to be cut.
    #[error("the segment is shorter than that")]
    TooShort,
    /// The pool has no free element.
    #[error("the pool is empty")]
    Empty,
}

/// An owned reference to a packet: one or more segments of octets.
///
/// Dropping it gives one reference back; the last one returns the elements to their pool (4 to 5 ns,
/// without a system call).
///
/// # Sharing
///
/// [`Mbuf::share`] makes a second handle to the same packet without copying (for retention: keep one,
/// send the other). From then on **nothing of the packet may change**, neither octets nor lengths,
/// through any handle: another handle may be inside a driver whose hardware reads the memory after
/// `tx burst` returned. So all `&mut self` methods answer [`MbufError::Shared`] until this handle is
/// the only one again. To send a held packet with other headers, put a header mbuf before an indirect
/// clone: [`Mbuf::clone_indirect`] and [`Mbuf::chain`].
///
/// Sendable to other threads (the count is atomic), but one handle is not for two threads at once:
/// DPDK's count has a fast path that takes "count is 1" for "nobody else counts".
#[repr(transparent)]
pub struct Mbuf {
    raw: NonNull<dpdk_sys::rte_mbuf>,
}

// SAFETY: a handle owns one reference. The count is atomic (the shim refuses a DPDK where it is not),
// everything else of a packet is written only when its owner has seen a count of 1, after an acquire
// fence, and frees release; pools take elements back from any thread. `&Mbuf` is not shared between
// threads (no Sync), which `share` needs.
unsafe impl Send for Mbuf {}

impl Mbuf {
    /// Takes over one reference.
    ///
    /// # Safety
    /// `raw` is a valid packet head and the caller gives up one reference to all of its segments.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: NonNull<dpdk_sys::rte_mbuf>) -> Mbuf {
        Mbuf { raw }
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut dpdk_sys::rte_mbuf {
        self.raw.as_ptr()
    }

    #[inline]
    fn head(&self) -> Seg<'_> {
        Seg {
            raw: self.raw,
            packet: PhantomData,
        }
    }

    fn last(&self) -> Seg<'_> {
        self.segs().last().unwrap_or_else(|| self.head())
    }

    #[inline]
    fn segs(&self) -> SegIter<'_> {
        SegIter {
            next: Some(self.head()),
        }
    }

    /// The octets of the first segment, where the headers are.
    #[inline]
    pub fn data(&self) -> &[u8] {
        self.head().data()
    }

    /// The whole packet, where it is in one segment.
    #[inline]
    pub fn contiguous(&self) -> Option<&[u8]> {
        (self.segment_count() == 1).then(|| self.data())
    }

    /// The octets of each segment in order.
    #[inline]
    pub fn segments(&self) -> Segments<'_> {
        Segments { inner: self.segs() }
    }

    /// Octets of the packet, all segments together.
    #[inline]
    pub fn len(&self) -> u32 {
        // SAFETY: the offset is that of this field, of this type.
        unsafe { self.head().field(dpdk_sys::SHIM_OFF_PKT_LEN) }
    }

    /// Whether the packet has no octets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Segments of the packet.
    #[inline]
    pub fn segment_count(&self) -> u16 {
        // SAFETY: the offset is that of this field, of this type.
        unsafe { self.head().field(dpdk_sys::SHIM_OFF_NB_SEGS) }
    }

    /// DPDK's number of the port that received it; 65535 where none did.
    #[inline]
    pub fn port(&self) -> u16 {
        // SAFETY: the offset is that of this field, of this type.
        unsafe { self.head().field(dpdk_sys::SHIM_OFF_PORT) }
    }

    /// References to the first segment. A value above 1 may be old by the time it is used; 1 stays true
    /// as long as this handle is not shared.
    #[inline]
    pub fn refcnt(&self) -> u16 {
        self.head().refcnt()
    }

    /// Whether the octets are in this mbuf's own element (not an indirect clone, no external buffer).
    #[inline]
    pub fn is_direct(&self) -> bool {
        self.head().is_direct()
    }

    /// Free octets before the data of the first segment.
    #[inline]
    pub fn headroom(&self) -> u16 {
        self.head().data_off()
    }

    /// Free octets behind the data of the last segment.
    #[inline]
    pub fn tailroom(&self) -> u16 {
        self.last().tailroom()
    }

    /// The address of the packet's header: equal for handles of one packet.
    #[inline]
    pub fn id(&self) -> usize {
        self.raw.as_ptr().addr()
    }

    /// One more handle to the same packet (one addition per segment, about 1 ns when nobody contends).
    /// See the rules of sharing above.
    ///
    /// Aborts the process at 32,768 references to one packet, which only a defect reaches and which
    /// would otherwise come near the end of the 16-bit count (as `Arc` does for its own).
    #[inline]
    #[must_use]
    pub fn share(&self) -> Mbuf {
        self.abort_on_overflow();
        // Each count was below half of its range a moment ago and each other thread adds at most one before
        // it looks again, so it cannot wrap.
        if self.segment_count() == 1 {
            self.head().add_reference();
        } else {
            self.segs().for_each(Seg::add_reference);
        }
        Mbuf { raw: self.raw }
    }

    #[inline]
    fn abort_on_overflow(&self) {
        // One segment is by far the most: the chain stands in the header's second cache line.
        let over = if self.segment_count() == 1 {
            self.refcnt() >= MAX_REFERENCES
        } else {
            self.segs().any(|s| s.refcnt() >= MAX_REFERENCES)
        };
        if over {
            std::process::abort();
        }
    }

    /// A new packet whose segments point into the octets of this one (nothing is copied; one element of
    /// `pool` per segment, which only needs room for the mbuf header). Its lengths may be cut without
    /// touching the original; the octets are shared and immutable.
    ///
    /// # Errors
    /// [`MbufError::Empty`] where the pool has too few elements.
    pub fn clone_indirect(&self, pool: &Mempool) -> Result<Mbuf, MbufError> {
        self.abort_on_overflow();
        // SAFETY: both are valid; DPDK reads this packet and adds references to its segments (atomic),
        // and frees what it took where the pool ends.
        let m = unsafe { dpdk_sys::rte_pktmbuf_clone(self.as_ptr(), pool.as_ptr()) };
        // SAFETY: DPDK gave us this mbuf with its only reference.
        NonNull::new(m)
            .map(|m| unsafe { Mbuf::from_raw(m) })
            .ok_or(MbufError::Empty)
    }

    /// The octets of the first segment for change.
    ///
    /// # Errors
    /// [`MbufError::Shared`] unless this is the only handle and the octets are its own.
    #[inline]
    pub fn data_mut(&mut self) -> Result<&mut [u8], MbufError> {
        let head = self.head();
        if !head.owns_octets() {
            return Err(MbufError::Shared);
        }
        let (p, len) = (head.start(), usize::from(head.data_len()));
        // SAFETY: start and length describe the segment's data, inside its buffer, in memory that was
        // initialised (mapped zeroed) from the beginning; the element is referenced once and by `self`,
        // which is borrowed mutably, so nothing else reads or writes it while the slice lives.
        Ok(unsafe { core::slice::from_raw_parts_mut(p, len) })
    }

    /// Grows the last segment by `len` octets and returns them. They hold what was there before.
    ///
    /// # Errors
    /// [`MbufError::NoRoom`] where the tailroom is smaller; [`MbufError::Shared`] as for
    /// [`Self::data_mut`], for the first and the last segment.
    #[inline]
    pub fn append(&mut self, len: u16) -> Result<&mut [u8], MbufError> {
        let last = self.last();
        if !self.head().is_sole() || !last.owns_octets() {
            return Err(MbufError::Shared);
        }
        // SAFETY: the packet is valid and its first and last segment are ours alone; DPDK checks the
        // tailroom and returns null.
        let p = unsafe { dpdk_sys::shim_pktmbuf_append(self.as_ptr(), len) };
        Self::new_octets(p, len)
    }

    /// Grows the first segment by `len` octets at the front and returns them. They hold what was there
    /// before.
    ///
    /// # Errors
    /// [`MbufError::NoRoom`] where the headroom is smaller; [`MbufError::Shared`] as for
    /// [`Self::data_mut`].
    #[inline]
    pub fn prepend(&mut self, len: u16) -> Result<&mut [u8], MbufError> {
        if !self.head().owns_octets() {
            return Err(MbufError::Shared);
        }
        // SAFETY: the packet is valid and its first segment ours alone; DPDK checks the headroom and
        // returns null.
        let p = unsafe { dpdk_sys::shim_pktmbuf_prepend(self.as_ptr(), len) };
        Self::new_octets(p, len)
    }

    #[inline]
    fn new_octets<'a>(p: *mut core::ffi::c_char, len: u16) -> Result<&'a mut [u8], MbufError> {
        if p.is_null() {
            return Err(MbufError::NoRoom);
        }
        // SAFETY: append and prepend return the start of `len` octets inside the segment's buffer, which
        // the callers know to be theirs alone and have borrowed mutably for the slice's life.
        Ok(unsafe { core::slice::from_raw_parts_mut(p.cast(), usize::from(len)) })
    }

    /// Cuts `len` octets off the front of the first segment. Works on an indirect clone too.
    ///
    /// # Errors
    /// [`MbufError::TooShort`], or [`MbufError::Shared`] where others hold the same handle's packet.
    #[inline]
    pub fn trim_front(&mut self, len: u16) -> Result<(), MbufError> {
        if !self.head().is_sole() {
            return Err(MbufError::Shared);
        }
        // SAFETY: the packet is valid and the lengths of its first segment are ours alone; DPDK checks
        // the length and returns null.
        let p = unsafe { dpdk_sys::shim_pktmbuf_adj(self.as_ptr(), len) };
        if p.is_null() {
            Err(MbufError::TooShort)
        } else {
            Ok(())
        }
    }

    /// Cuts `len` octets off the end of the last segment. Works on an indirect clone too.
    ///
    /// # Errors
    /// As [`Self::trim_front`], for the first and the last segment.
    #[inline]
    pub fn trim_back(&mut self, len: u16) -> Result<(), MbufError> {
        if !self.head().is_sole() || !self.last().is_sole() {
            return Err(MbufError::Shared);
        }
        // SAFETY: the packet is valid and the lengths of its first and last segment are ours alone;
        // DPDK checks the length and returns -1.
        let ret = unsafe { dpdk_sys::shim_pktmbuf_trim(self.as_ptr(), len) };
        if ret == 0 {
            Ok(())
        } else {
            Err(MbufError::TooShort)
        }
    }

    /// Appends the segments of `tail`.
    ///
    /// # Errors
    /// Gives `tail` back with [`MbufError::Shared`] where one of the two is shared, with
    /// [`MbufError::NoRoom`] where the chain would be longer than DPDK allows.
    pub fn chain(&mut self, tail: Mbuf) -> Result<(), (Mbuf, MbufError)> {
        let sole = |m: &Mbuf| m.segs().all(|s| s.is_sole());
        if !sole(self) || !sole(&tail) {
            return Err((tail, MbufError::Shared));
        }
        // SAFETY: both packets are valid and the headers of all their segments ours alone. On success
        // the chain owns the tail's references, so its handle is given up below; on failure DPDK has
        // changed nothing.
        if unsafe { dpdk_sys::shim_pktmbuf_chain(self.as_ptr(), tail.as_ptr()) } != 0 {
            return Err((tail, MbufError::NoRoom));
        }
        into_raw(tail);
        Ok(())
    }

    /// Copies `to.len()` octets from `offset` on, over segment borders; false where the packet ends
    /// before that (nothing useful is in `to` then).
    pub fn copy_to(&self, offset: usize, to: &mut [u8]) -> bool {
        let (mut skip, mut done) = (offset, 0);
        for segment in self.segments() {
            let Some(from) = segment.get(skip..) else {
                skip -= segment.len();
                continue;
            };
            skip = 0;
            let n = from.len().min(to.len() - done);
            to[done..done + n].copy_from_slice(&from[..n]);
            done += n;
        }
        done == to.len() && skip == 0
    }

    /// Asks the processor to load the first cache line of the data, for which it reads the mbuf's
    /// header. A hint, never a fault.
    #[inline]
    pub fn prefetch(&self) {
        load(self.head().start());
    }

    /// Asks the processor to load the part of the mbuf's own header without which nothing else can be
    /// read, nor the mbuf freed. A hint, never a fault.
    #[inline]
    pub fn prefetch_header(&self) {
        load(self.as_ptr().cast());
    }
}

/// Into the second-level cache. On Zen 4 that looks the page up and does not load the line; but the look-up is
/// a good part of the wait, and those of a burst go on together. Asked for into the first level, a burst's
/// worth of lines found no place in its queue, and packets took a tenth longer in all.
#[inline]
fn load(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching has no effect on memory or flags, for any address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        if !lifetime::attach() {
            return;
        }
        // Most packets have one segment, and most references are not the last.
        let head = self.head();
        if self.segment_count() == 1 && head.is_direct() && head.give_up_shared() {
            return;
        }
        // SAFETY: we own one reference to all segments and give it up; the thread is attached, so the
        // pool is mapped.
        unsafe { dpdk_sys::shim_pktmbuf_free(self.as_ptr()) }
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mbuf")
            .field("len", &self.len())
            .field("segments", &self.segment_count())
            .field("refcnt", &self.refcnt())
            .finish_non_exhaustive()
    }
}
