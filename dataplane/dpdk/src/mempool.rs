//! Pools of mbufs. What is in an mbuf is `mbuf.rs`; nothing is decided about packets here.

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};

use crate::batch::Batch;
use crate::error::{Errno, Error};
use crate::lifetime::{RawPool, Shared};
use crate::log;
use crate::mbuf::{HEADROOM, Mbuf, MbufError};

/// Octets of a page without hugepages.
const ORDINARY_PAGE: u64 = 1 << 12;
/// Octets of the smallest hugepage.
const HUGE_PAGE: u64 = 1 << 21;
/// Octets of a cache line.
const LINE: u64 = 64;
/// Octets of a pointer in the ring of free elements.
const POINTER: u64 = 8;
/// Octets of the caches, which a pool has for each lcore that there could be: 128 of them, each with place for three
/// times the largest cache.
const CACHES: u64 = 128 * (3 * 512 * POINTER + 2 * LINE);

/// How to make a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MempoolConfig<'a> {
    /// A name for messages; need not be unique.
    pub name: &'a str,
    /// Elements. A power of two minus one uses memory best.
    pub count: u32,
    /// Octets of each element's buffer, the [`HEADROOM`] included.
    pub room: u16,
    /// Elements that each lcore may keep for itself (at most 512; 0: none). Counts as free.
    pub cache: u32,
    /// NUMA node; `None`: any.
    pub socket: Option<u16>,
}

impl Default for MempoolConfig<'_> {
    fn default() -> Self {
        MempoolConfig {
            name: "pool",
            count: 8191,
            room: 2048 + HEADROOM,
            cache: 256,
            socket: None,
        }
    }
}

impl MempoolConfig<'_> {
    /// Memory that the pool needs where it is on hugepages, in MB, rounded up.
    pub fn needed_mb(&self) -> u32 {
        self.needed_in(HUGE_PAGE)
    }

    /// The same where it is on ordinary pages.
    ///
    /// DPDK lets no element that fits a page cross into the next one, and for larger ones it reserves whole pages
    /// although it fills them without gaps then. With less free than that it reserves a half, and a half of the rest,
    /// and so on: what is left for others can be anything.
    pub fn needed_ordinary_mb(&self) -> u32 {
        self.needed_in(ORDINARY_PAGE)
    }

    fn needed_in(&self, page: u64) -> u32 {
        let (count, element) = (u64::from(self.count), self.element());
        let elements = match page / element {
            0 => count * element.next_multiple_of(page),
            fit => count.div_ceil(fit) * page,
        };
        let ring = (count + 1).next_power_of_two() * POINTER;
        let caches = if self.cache == 0 { 0 } else { CACHES };
        u32::try_from((elements + ring + caches).div_ceil(1 << 20)).unwrap_or(u32::MAX)
    }

    /// Octets of each element: its buffer, the mbuf header and the pool's own header, in cache lines of an odd number,
    /// which DPDK takes so that elements begin on all channels of the memory alike.
    fn element(&self) -> u64 {
        let octets = u64::from(self.room) + 128 + 64;
        (octets.div_ceil(LINE) | 1) * LINE
    }

    fn check(&self) -> Result<(), Error> {
        let wrong = |what, value: String, expected: String| {
            Err(Error::Argument {
                what,
                value,
                expected,
            })
        };
        if self.count == 0 {
            return wrong("pool count", self.count.to_string(), "at least 1".into());
        }
        if self.room < HEADROOM {
            let expected = format!("at least the headroom of {HEADROOM}");
            return wrong("pool room", self.room.to_string(), expected);
        }
        // DPDK takes one and a half times the cache as its flush mark, which has to fit the pool.
        let most = dpdk_sys::SHIM_MEMPOOL_CACHE_MAX_SIZE.min(self.count / 3 * 2);
        if self.cache > most {
            return wrong(
                "pool cache",
                self.cache.to_string(),
                format!("at most {most}"),
            );
        }
        Ok(())
    }
}

/// A pool of mbufs. A clone is another handle to the same pool.
///
/// Pools are made at start: their memory is given back when the [`crate::Eal`] ends, not when the last
/// handle goes.
#[derive(Clone, Debug)]
pub struct Mempool {
    raw: NonNull<dpdk_sys::rte_mempool>,
    name: Arc<str>,
    count: u32,
    room: u16,
    #[expect(dead_code, reason = "keeps the memory mapped")]
    shared: Arc<Shared>,
}

// SAFETY: the pool is made with multi-producer, multi-consumer handlers, so DPDK allows its functions
// from any thread at once, also from threads that are no lcores; the pointer is valid while `shared` is
// held; the other fields are immutable.
unsafe impl Send for Mempool {}
// SAFETY: as above; no method needs more than what DPDK synchronises itself.
unsafe impl Sync for Mempool {}

/// DPDK wants names that are unique in the process; this makes them so.
static SERIAL: AtomicU32 = AtomicU32::new(0);

impl Mempool {
    /// Called through [`crate::Eal::mempool`].
    pub(crate) fn new(shared: &Arc<Shared>, config: &MempoolConfig<'_>) -> Result<Mempool, Error> {
        config.check()?;
        let unique = format!("crem{}", SERIAL.fetch_add(1, Ordering::Relaxed));
        let c_name = CString::new(unique).map_err(|e| Error::system("pool name", e))?;
        let mark = log::mark();
        // SAFETY: EAL runs (`shared` exists only then); the name is NUL-terminated and copied by DPDK;
        // the sizes were checked, and DPDK checks them again and returns null.
        let raw = unsafe {
            dpdk_sys::rte_pktmbuf_pool_create(
                c_name.as_ptr(),
                config.count,
                config.cache,
                0,
                config.room,
                config.socket.map_or(-1, i32::from), // -1: SOCKET_ID_ANY
            )
        };
        let Some(raw) = NonNull::new(raw) else {
            return Err(Error::Pool {
                name: config.name.into(),
                count: config.count,
                needed_mb: config.needed_mb(),
                errno: Errno::last(),
                log: log::since(mark),
            });
        };
        let mut pools = shared.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.push(RawPool {
            name: config.name.into(),
            raw,
        });
        Ok(Mempool {
            raw,
            name: config.name.into(),
            count: config.count,
            room: config.room,
            shared: Arc::clone(shared),
        })
    }

    /// The name it was made with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Elements, free or not.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Octets of each element's buffer, headroom included.
    pub fn room(&self) -> u16 {
        self.room
    }

    /// Free elements, those in lcore caches included. Walks all caches (about 128 loads): not for every
    /// packet. Exact when no other thread uses the pool at this moment.
    pub fn available(&self) -> u32 {
        // SAFETY: the pool is valid while `self` is.
        unsafe { dpdk_sys::rte_mempool_avail_count(self.raw.as_ptr()) }
    }

    /// Elements that are out: held by us, in driver rings, on the wire. Cost as [`Self::available`].
    pub fn in_use(&self) -> u32 {
        self.count.saturating_sub(self.available())
    }

    /// A fresh mbuf of length 0 with [`HEADROOM`] octets of headroom; `None` where the pool is empty.
    #[inline]
    pub fn alloc(&self) -> Option<Mbuf> {
        // SAFETY: the pool is valid while `self` is.
        let m = unsafe { dpdk_sys::shim_pktmbuf_alloc(self.raw.as_ptr()) };
        // SAFETY: DPDK gave us this mbuf with its only reference.
        NonNull::new(m).map(|m| unsafe { Mbuf::from_raw(m) })
    }

    /// Fills up `batch` to `n` more mbufs of length 0: all of them or, where the pool has too few or the
    /// batch no room, none.
    #[inline]
    pub fn alloc_bulk<const N: usize>(&self, batch: &mut Batch<N>, n: usize) -> bool {
        if n > batch.spare() {
            return false;
        }
        let Ok(count) = u32::try_from(n) else {
            return false;
        };
        // SAFETY: the pool is valid; the batch has room for `n` pointers; on success DPDK wrote that
        // many mbufs, each with its only reference, and on failure none.
        unsafe {
            let to = batch.spare_ptr();
            let ok = dpdk_sys::shim_pktmbuf_alloc_bulk(self.raw.as_ptr(), to, count) == 0;
            if ok {
                batch.grow(n);
            }
            ok
        }
    }

    /// A new mbuf with a copy of `data`, in one segment.
    ///
    /// # Errors
    /// [`MbufError::Empty`] where the pool has none left, [`MbufError::NoRoom`] where `data` is longer
    /// than room less headroom.
    pub fn alloc_from(&self, data: &[u8]) -> Result<Mbuf, MbufError> {
        let mut m = self.alloc().ok_or(MbufError::Empty)?;
        let len = u16::try_from(data.len()).map_err(|_| MbufError::NoRoom)?;
        m.append(len)?.copy_from_slice(data);
        Ok(m)
    }

    pub(crate) fn as_ptr(&self) -> *mut dpdk_sys::rte_mempool {
        self.raw.as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_take_pages_as_dpdk_reserves_them() {
        let pool = |count, room| MempoolConfig {
            count,
            room,
            cache: 0,
            ..MempoolConfig::default()
        };
        // 155 lines each, 211 of them in a page of 2 MB: 39 pages, and 64 KB of pointers.
        let large = pool(8191, 9728);
        assert_eq!(large.needed_mb(), 39 * 2 + 1);
        // Three pages of 4 KB each.
        assert_eq!(large.needed_ordinary_mb(), 96 + 1);
        // One page each, although the rest of it is lost.
        assert_eq!(pool(8191, 2176).needed_ordinary_mb(), 32 + 1);
        assert_eq!(pool(8191, 2176).needed_mb(), 20 + 1);
        let cached = MempoolConfig {
            cache: 1,
            ..pool(511, 256)
        };
        assert_eq!(cached.needed_ordinary_mb(), 2);
    }
}
