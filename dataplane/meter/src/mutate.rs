//! A deliberate fault for the test of the vectors runner. Without the feature `mutate` nothing here can
//! be switched on and the call vanishes.

/// Added to the lower end of the retained interval of a sequence window.
#[inline(always)]
pub(crate) fn low_shift() -> u64 {
    #[cfg(feature = "mutate")]
    return u64::from(active::on());
    #[cfg(not(feature = "mutate"))]
    0
}

#[cfg(feature = "mutate")]
pub use active::set;

#[cfg(feature = "mutate")]
mod active {
    use core::sync::atomic::{AtomicBool, Ordering};

    static ON: AtomicBool = AtomicBool::new(false);

    /// Switches the fault of this crate on or off: the oldest retained position counts as not retained.
    pub fn set(on: bool) {
        ON.store(on, Ordering::Relaxed);
    }

    pub(super) fn on() -> bool {
        ON.load(Ordering::Relaxed)
    }
}
