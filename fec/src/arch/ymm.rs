//! A 256-bit register of x86-64, as the kernels for AVX2 share it, with and without GFNI.

use core::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_loadu_si256, _mm256_setzero_si256, _mm256_storeu_si256,
    _mm256_xor_si256,
};

use super::group::Register;

/// 32 octets.
#[derive(Clone, Copy)]
pub(super) struct Ymm(pub(super) __m256i);

// Every function below needs AVX2, which its caller vouches for as the trait demands.
impl Register for Ymm {
    const OCTETS: usize = 32;
    const MASKED: bool = false;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: AVX2 by contract.
        unsafe { Self(_mm256_setzero_si256()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: AVX2 and 32 readable octets by contract; the load needs no alignment.
        unsafe { Self(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: AVX2 and 32 writable octets by contract; the store needs no alignment.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const u8, count: usize) -> Self {
        // SAFETY: AVX2 and `count` readable octets by contract.
        unsafe { Self(load_part(from, count)) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut u8, count: usize) {
        // SAFETY: AVX2 and `count` writable octets by contract.
        unsafe { store_part(self.0, to, count) }
    }

    #[inline(always)]
    unsafe fn clear_first(self, count: usize) -> Self {
        // SAFETY: AVX2 by contract.
        unsafe { Self(_mm256_and_si256(self.0, mask_from(count))) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: AVX2 by contract.
        unsafe { Self(_mm256_xor_si256(self.0, other.0)) }
    }
}

/// The first `count` octets (fewer than 32) of `from`, zeros behind.
///
/// # Safety
/// `from` is valid for reads of `count` octets; the processor has AVX2.
#[inline(always)]
unsafe fn load_part(from: *const u8, count: usize) -> __m256i {
    let mut octets = [0u8; 32];
    // SAFETY: the caller vouches for `count` octets at `from`; the array has 32, `count` is fewer and
    // checked; the two cannot overlap since the array is local. The load takes the whole array.
    unsafe {
        core::ptr::copy_nonoverlapping(from, octets.as_mut_ptr(), count.min(32));
        _mm256_loadu_si256(octets.as_ptr().cast())
    }
}

/// Writes the first `count` octets (fewer than 32) to `to`.
///
/// # Safety
/// `to` is valid for writes of `count` octets; the processor has AVX2.
#[inline(always)]
unsafe fn store_part(value: __m256i, to: *mut u8, count: usize) {
    let mut octets = [0u8; 32];
    // SAFETY: as in `load_part`, the other way round.
    unsafe {
        _mm256_storeu_si256(octets.as_mut_ptr().cast(), value);
        core::ptr::copy_nonoverlapping(octets.as_ptr(), to, count.min(32));
    }
}

/// A mask that is zero in the first `count` octets, at most 32, and all ones behind.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn mask_from(count: usize) -> __m256i {
    static SLIDE: [u8; 64] = {
        let mut slide = [0; 64];
        let mut at = 32;
        while at < 64 {
            slide[at] = 0xff;
            at += 1;
        }
        slide
    };
    // SAFETY: the offset is 0 ..= 32, so the 32 octets read end inside the 64.
    unsafe { _mm256_loadu_si256(SLIDE.as_ptr().add(32 - count.min(32)).cast()) }
}
