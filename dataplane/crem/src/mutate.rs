//! Deliberate faults, for tests of what has to find them: the vectors runner and the simulator. Without
//! the feature `mutate` nothing here can be switched on and the calls vanish.

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
    /// Coded responses begin with the first Repair Index again.
    IndexAgain,
    /// A block is answered as often as it is asked for.
    AnswersAgain,
    /// Ordinary symbols cost no tokens.
    TokensIgnored,
    /// A hold lasts eight times too long.
    HeldTooLong,
    /// A configuration comes into force without its acknowledgment.
    NotAcknowledged,
}

#[cfg(feature = "mutate")]
impl Fault {
    /// Those that the simulator has to find; the vectors find the others.
    pub const SIMULATED: [Self; 5] = [
        Self::IndexAgain,
        Self::AnswersAgain,
        Self::TokensIgnored,
        Self::HeldTooLong,
        Self::NotAcknowledged,
    ];
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

    /// Switches one fault of this crate on in place of any other, or all off.
    pub fn set(fault: Option<Fault>) {
        ON.store(fault.map_or(0, |fault| fault as u8), Ordering::Relaxed);
    }

    pub(crate) fn has(fault: Fault) -> bool {
        ON.load(Ordering::Relaxed) == fault as u8
    }
}
