//! Deliberate faults, for tests of what has to find them: the vectors runner and the simulator. Without
//! the feature `mutate` nothing here can be switched on and the calls vanish.

/// A fault that the simulator has to find.
#[cfg_attr(not(feature = "mutate"), allow(unreachable_pub))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
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
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::IndexAgain,
        Self::AnswersAgain,
        Self::TokensIgnored,
        Self::HeldTooLong,
        Self::NotAcknowledged,
    ];
}

/// Added to the number of symbols that answer a request, see [`crate::plan::respond`].
#[inline(always)]
pub(crate) fn response_count() -> usize {
    #[cfg(feature = "mutate")]
    return usize::from(active::on());
    #[cfg(not(feature = "mutate"))]
    0
}

/// Whether this fault is planted.
#[inline(always)]
pub(crate) fn is_planted(fault: Fault) -> bool {
    #[cfg(feature = "mutate")]
    return active::planted(fault);
    #[cfg(not(feature = "mutate"))]
    {
        let _ = fault;
        false
    }
}

#[cfg(feature = "mutate")]
pub use active::{plant, set};

#[cfg(feature = "mutate")]
mod active {
    use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

    use super::Fault;

    static ON: AtomicBool = AtomicBool::new(false);
    /// One above the planted fault; zero for none.
    static PLANTED: AtomicU8 = AtomicU8::new(0);

    /// Switches the fault of the vectors on or off: coded responses get a symbol too many.
    pub fn set(on: bool) {
        ON.store(on, Ordering::Relaxed);
    }

    pub(super) fn on() -> bool {
        ON.load(Ordering::Relaxed)
    }

    /// Plants this fault in place of any other, or none.
    pub fn plant(fault: Option<Fault>) {
        let number = fault.map_or(0, |fault| fault as u8 + 1);
        PLANTED.store(number, Ordering::Relaxed);
    }

    pub(super) fn planted(fault: Fault) -> bool {
        PLANTED.load(Ordering::Relaxed) == fault as u8 + 1
    }
}
