//! Deliberate faults for the test of the vectors runner. Without the feature `mutate` nothing here can
//! be switched on and the calls vanish.

/// A fault that can be switched on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(feature = "mutate"), allow(unreachable_pub))]
#[repr(u8)]
pub enum Fault {
    /// Coded responses get a symbol too many, see [`crate::plan::respond`].
    Response = 1,
    /// Blocks may fail ten times as often, see [`crate::policy::need`].
    Epsilon,
    /// The circuit breaker takes twice the loss, see [`crate::policy::Interval::violates`].
    Breaker,
}

/// Whether a fault is on.
#[cfg(not(feature = "mutate"))]
#[inline(always)]
pub(crate) const fn has(_: Fault) -> bool {
    false
}

#[cfg(feature = "mutate")]
pub(crate) use active::has;
#[cfg(feature = "mutate")]
pub use active::set;

#[cfg(feature = "mutate")]
mod active {
    use core::sync::atomic::{AtomicU8, Ordering};

    use super::Fault;

    /// The fault that is on, 0 for none.
    static ON: AtomicU8 = AtomicU8::new(0);

    /// Switches one fault of this crate on, or all off.
    pub fn set(fault: Option<Fault>) {
        ON.store(fault.map_or(0, |fault| fault as u8), Ordering::Relaxed);
    }

    pub(crate) fn has(fault: Fault) -> bool {
        ON.load(Ordering::Relaxed) == fault as u8
    }
}
