//! Deliberate faults for the test of the vectors runner. Without the feature `mutate` nothing here can
//! be switched on and the calls vanish.

/// Added to every product of [`crate::gf::mul`].
#[inline(always)]
pub(crate) fn gf_product() -> u8 {
    #[cfg(feature = "mutate")]
    return u8::from(active::on());
    #[cfg(not(feature = "mutate"))]
    0
}

#[cfg(feature = "mutate")]
pub use active::set;

#[cfg(feature = "mutate")]
mod active {
    use core::sync::atomic::{AtomicBool, Ordering};

    static ON: AtomicBool = AtomicBool::new(false);

    /// Switches the fault of this crate on or off: field products come out wrong.
    pub fn set(on: bool) {
        ON.store(on, Ordering::Relaxed);
    }

    pub(super) fn on() -> bool {
        ON.load(Ordering::Relaxed)
    }
}
