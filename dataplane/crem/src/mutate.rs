//! A deliberate fault for the test of the vectors runner. Without the feature `mutate` nothing here can
//! be switched on and the call vanishes.

/// Added to the number of symbols that answer a request, see [`crate::plan::respond`].
#[inline(always)]
pub(crate) fn response_count() -> usize {
    #[cfg(feature = "mutate")]
    return usize::from(active::on());
    #[cfg(not(feature = "mutate"))]
    0
}

#[cfg(feature = "mutate")]
pub use active::set;

#[cfg(feature = "mutate")]
mod active {
    use core::sync::atomic::{AtomicBool, Ordering};

    static ON: AtomicBool = AtomicBool::new(false);

    /// Switches the fault of this crate on or off: coded responses get a symbol too many.
    pub fn set(on: bool) {
        ON.store(on, Ordering::Relaxed);
    }

    pub(super) fn on() -> bool {
        ON.load(Ordering::Relaxed)
    }
}
