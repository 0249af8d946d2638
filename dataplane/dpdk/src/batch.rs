//! An array of mbufs for bursts: no allocation, one call to free what is left. No port lives here.

use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};

use crate::lifetime;
use crate::mbuf::Mbuf;

/// The burst size that everything here is tuned for.
pub const BURST: usize = 32;

/// Up to `N` owned mbufs, in order. Derefs to a slice. Dropping or [`Batch::clear`] frees all in one
/// call.
pub struct Batch<const N: usize = BURST> {
    len: usize,
    slots: [MaybeUninit<Mbuf>; N],
}

impl<const N: usize> Batch<N> {
    /// An empty batch.
    #[inline]
    pub const fn new() -> Batch<N> {
        Batch {
            len: 0,
            slots: [const { MaybeUninit::uninit() }; N],
        }
    }

    /// Mbufs in it.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many more fit.
    #[inline]
    pub const fn spare(&self) -> usize {
        N - self.len
    }

    /// Puts one at the end.
    ///
    /// # Errors
    /// Gives the mbuf back where the batch is full.
    #[inline]
    pub fn push(&mut self, m: Mbuf) -> Result<(), Mbuf> {
        match self.slots.get_mut(self.len) {
            Some(slot) => {
                slot.write(m);
                self.len += 1;
                Ok(())
            }
            None => Err(m),
        }
    }

    /// Takes the last one.
    #[inline]
    pub fn pop(&mut self) -> Option<Mbuf> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: slots below the old length are initialised; the length now excludes this one, so it
        // is moved out once.
        Some(unsafe { self.slots[self.len].assume_init_read() })
    }

    /// Takes all of them, first to last. What the iterator has not given when it is dropped is freed.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_, N> {
        let end = self.len;
        // The iterator owns them from here on, also if it is leaked.
        self.len = 0;
        Drain {
            batch: self,
            next: 0,
            end,
        }
    }

    /// Frees all of them.
    #[inline]
    pub fn clear(&mut self) {
        let n = self.len;
        self.len = 0;
        free(&mut self.slots[..n]);
    }

    /// Frees the first `n` (all, where there are fewer) and moves the others to the front.
    pub fn drop_front(&mut self, n: usize) {
        let n = n.min(self.len);
        free(&mut self.slots[..n]);
        // SAFETY: the first `n` were just given away.
        unsafe { self.forget_front(n) };
    }

    /// Where the next mbufs go.
    #[inline]
    pub(crate) fn spare_ptr(&mut self) -> *mut *mut dpdk_sys::rte_mbuf {
        // Mbuf is a transparent non-null pointer to rte_mbuf.
        self.slots[self.len..].as_mut_ptr().cast()
    }

    /// Counts `n` more mbufs.
    ///
    /// # Safety
    /// They were written at [`Self::spare_ptr`], `n` is at most [`Self::spare`], and each is owned.
    #[inline]
    pub(crate) unsafe fn grow(&mut self, n: usize) {
        debug_assert!(n <= self.spare());
        self.len += n;
    }

    /// Removes the first `n` without freeing them.
    ///
    /// # Safety
    /// `n` is at most the length and something else owns them now.
    #[inline]
    pub(crate) unsafe fn forget_front(&mut self, n: usize) {
        debug_assert!(n <= self.len);
        let rest = self.len - n;
        // SAFETY: both ranges lie within the initialised slots; `copy` allows overlap; the sources that
        // are not overwritten are outside the new length, so none is owned twice.
        unsafe {
            let p = self.slots.as_mut_ptr();
            core::ptr::copy(p.add(n), p, rest);
        }
        self.len = rest;
    }
}

/// Frees mbufs that the caller has already taken out of its own accounting.
#[inline]
fn free(slots: &mut [MaybeUninit<Mbuf>]) {
    let Ok(n) = u32::try_from(slots.len()) else {
        return;
    };
    if n == 0 || !lifetime::attach() {
        return;
    }
    // SAFETY: the callers pass initialised slots that they own and will not touch again; Mbuf is a
    // transparent pointer to rte_mbuf; the thread is attached, so the pools are mapped.
    unsafe { dpdk_sys::rte_pktmbuf_free_bulk(slots.as_mut_ptr().cast(), n) };
}

impl<const N: usize> core::ops::Deref for Batch<N> {
    type Target = [Mbuf];
    #[inline]
    fn deref(&self) -> &[Mbuf] {
        // SAFETY: the first `len` slots are initialised, and MaybeUninit<Mbuf> is laid out as Mbuf.
        unsafe { core::slice::from_raw_parts(self.slots.as_ptr().cast(), self.len) }
    }
}

impl<const N: usize> core::ops::DerefMut for Batch<N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Mbuf] {
        // SAFETY: as in `deref`; `&mut self` makes it the only access.
        unsafe { core::slice::from_raw_parts_mut(self.slots.as_mut_ptr().cast(), self.len) }
    }
}

impl<const N: usize> Drop for Batch<N> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<const N: usize> Default for Batch<N> {
    fn default() -> Self {
        Batch::new()
    }
}

impl<const N: usize> fmt::Debug for Batch<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// See [`Batch::drain`].
#[derive(Debug)]
pub struct Drain<'a, const N: usize> {
    batch: &'a mut Batch<N>,
    next: usize,
    end: usize,
}

impl<const N: usize> Iterator for Drain<'_, N> {
    type Item = Mbuf;

    #[inline]
    fn next(&mut self) -> Option<Mbuf> {
        if self.next == self.end {
            return None;
        }
        let at = self.next;
        self.next += 1;
        // SAFETY: slots up to `end` were initialised when the drain began and the batch counts none of
        // them since; `next` only grows, so each is moved out once.
        Some(unsafe { self.batch.slots[at].assume_init_read() })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.next, Some(self.end - self.next))
    }
}

impl<const N: usize> ExactSizeIterator for Drain<'_, N> {}

impl<const N: usize> Drop for Drain<'_, N> {
    fn drop(&mut self) {
        free(&mut self.batch.slots[self.next..self.end]);
    }
}

/// Gives up ownership of an mbuf without freeing it.
#[inline]
pub(crate) fn into_raw(m: Mbuf) -> *mut dpdk_sys::rte_mbuf {
    ManuallyDrop::new(m).as_ptr()
}
