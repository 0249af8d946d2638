//! Asking for memory before it is needed. Every processor of an architecture here can do this, whatever
//! its vector instructions.

/// Asks for the line at `address`, which need not be valid, into the second-level cache: far more can
/// be under way to it than to the first, and the kernels take it from there at full speed.
#[inline(always)]
pub(super) fn prefetch(address: *const u8) {
    // The interpreter that checks for undefined behaviour does not know the instructions.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch reads nothing architecturally and cannot fault, whatever the address; it
        // is part of SSE, which every x86-64 processor has.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: PRFM is a hint: it reads nothing architecturally and cannot fault.
    unsafe {
        core::arch::asm!("prfm pldl2keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(
        all(target_arch = "x86_64", not(miri)),
        all(target_arch = "aarch64", not(miri))
    )))]
    let _ = address;
}

/// Asks for the line at `address`, which need not be valid, into the first-level cache: for the few that
/// are worked on next.
#[inline(always)]
pub(super) fn prefetch_near(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: as in `prefetch`.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as in `prefetch`.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(
        all(target_arch = "x86_64", not(miri)),
        all(target_arch = "aarch64", not(miri))
    )))]
    let _ = address;
}
