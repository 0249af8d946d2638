//! Who still may touch DPDK's memory. Threads that free mbufs attach themselves here once, so that
//! tearing down EAL can be refused while one of them runs. No per-packet counting lives here.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::vdev::Vdev;

/// What ports, pools and attached threads hold on to. EAL is torn down only when [`crate::Eal`] holds
/// the last reference.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) vdevs: Vec<Vdev>,
    /// Ports that have an owner.
    pub(crate) claimed: Mutex<BTreeSet<u16>>,
    /// Pools that were made; freed at teardown only.
    pub(crate) pools: Mutex<Vec<RawPool>>,
}

/// A pool's address, kept for teardown.
#[derive(Clone, Debug)]
pub(crate) struct RawPool {
    pub(crate) name: String,
    pub(crate) raw: core::ptr::NonNull<dpdk_sys::rte_mempool>,
}

// SAFETY: the pointer is only dereferenced by DPDK's mempool functions, which allow any thread
// (multi-producer, multi-consumer ring), and by teardown, which is alone by then.
unsafe impl Send for RawPool {}

/// How far EAL is in its one life.
pub(crate) enum State {
    /// Never initialised.
    Fresh,
    /// Running.
    Live(Weak<Shared>),
    /// Ended without unmapping anything: memory stays valid until the process exits.
    Left,
    /// Torn down or never started: nothing of DPDK's memory may be touched.
    Gone,
}

static STATE: Mutex<State> = Mutex::new(State::Fresh);

/// Locks the state. Teardown holds this lock while it decides and acts.
pub(crate) fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Attached(#[expect(dead_code, reason = "held for its count")] Arc<Shared>);

impl Drop for Attached {
    fn drop(&mut self) {
        IS_ATTACHED.set(false);
    }
}

thread_local! {
    // Const and without destructor: reading it is one load.
    static IS_ATTACHED: Cell<bool> = const { Cell::new(false) };
    static ATTACHED: RefCell<Option<Attached>> = const { RefCell::new(None) };
}

/// Makes teardown wait for this thread. True: DPDK's memory is valid until the thread ends (or, on
/// EAL's own thread, until EAL is dropped there). False: it may not be touched any more.
#[inline]
pub(crate) fn attach() -> bool {
    IS_ATTACHED.get() || attach_slow()
}

#[cold]
fn attach_slow() -> bool {
    let state = state();
    match &*state {
        State::Left => true,
        State::Fresh | State::Gone => false,
        State::Live(shared) => {
            let Some(shared) = shared.upgrade() else {
                return false;
            };
            // Fails only while this thread's locals are being destroyed.
            let kept = ATTACHED.try_with(|a| *a.borrow_mut() = Some(Attached(shared)));
            IS_ATTACHED.set(kept.is_ok());
            kept.is_ok()
        }
    }
}

/// Ends what [`attach`] began, on EAL's own thread, right before teardown.
pub(crate) fn detach() {
    // The old value is dropped outside the borrow.
    let old = ATTACHED.try_with(|a| a.borrow_mut().take());
    drop(old);
}
