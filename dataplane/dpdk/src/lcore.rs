//! Lcore numbers for threads that EAL did not start. Threads themselves are the caller's.

use core::marker::PhantomData;
use std::sync::Arc;

use crate::error::{Errno, Error};
use crate::lifetime::Shared;

/// Gives threads lcore numbers. May be sent to them.
#[derive(Clone, Debug)]
pub struct Registrar {
    pub(crate) shared: Arc<Shared>,
}

impl Registrar {
    /// Gives the calling thread an lcore number, and with it a mempool cache, until the guard is
    /// dropped. A thread that is an lcore already keeps its number.
    ///
    /// # Errors
    /// [`Error::System`] where all numbers are taken.
    pub fn register(&self) -> Result<LcoreGuard, Error> {
        let ours = !is_lcore();
        // SAFETY: EAL runs while `shared` is held. Registering a thread once and from itself is what the
        // function is for; `is_lcore` says that it has no number yet.
        if ours && unsafe { dpdk_sys::rte_thread_register() } < 0 {
            return Err(Error::system(
                "registering a thread as lcore",
                Errno::last(),
            ));
        }
        Ok(LcoreGuard {
            ours,
            shared: Arc::clone(&self.shared),
            not_send: PhantomData,
        })
    }
}

/// Whether the calling thread has an lcore number.
fn is_lcore() -> bool {
    // SAFETY: reads a thread-local integer.
    unsafe { dpdk_sys::shim_lcore_id() < dpdk_sys::SHIM_MAX_LCORE }
}

/// The calling thread is an lcore as long as this lives.
#[derive(Debug)]
pub struct LcoreGuard {
    ours: bool,
    #[expect(dead_code, reason = "keeps EAL running")]
    shared: Arc<Shared>,
    not_send: PhantomData<*const ()>,
}

impl Drop for LcoreGuard {
    fn drop(&mut self) {
        if self.ours {
            // SAFETY: this thread was registered by us (the guard cannot leave it), and EAL runs.
            unsafe { dpdk_sys::rte_thread_unregister() }
        }
    }
}
