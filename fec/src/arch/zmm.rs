//! A 512-bit register of x86-64, as the kernels for AVX-512 share it, with and without GFNI.

use core::arch::x86_64::{
    __m512i, __mmask64, _mm512_loadu_si512, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8,
    _mm512_maskz_mov_epi8, _mm512_setzero_si512, _mm512_storeu_si512, _mm512_xor_si512,
};

use super::group::Register;

/// 64 octets.
#[derive(Clone, Copy)]
pub(super) struct Zmm(pub(super) __m512i);

/// Lanes 0 .. `count`, fewer than 64.
#[inline(always)]
fn first(count: usize) -> __mmask64 {
    !(u64::MAX << (count & 63))
}

// Every function below needs AVX-512 F or BW, which its caller vouches for as the trait demands.
impl Register for Zmm {
    const OCTETS: usize = 64;
    const MASKED: bool = true;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: AVX-512 F by contract.
        unsafe { Self(_mm512_setzero_si512()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: AVX-512 F and 64 readable octets by contract; the load needs no alignment.
        unsafe { Self(_mm512_loadu_si512(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: AVX-512 F and 64 writable octets by contract; the store needs no alignment.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const u8, count: usize) -> Self {
        // SAFETY: AVX-512 BW and `count` readable octets by contract; lanes outside the mask are not
        // read and cannot fault.
        unsafe { Self(_mm512_maskz_loadu_epi8(first(count), from.cast())) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut u8, count: usize) {
        // SAFETY: AVX-512 BW and `count` writable octets by contract; lanes outside the mask are not
        // written and cannot fault.
        unsafe { _mm512_mask_storeu_epi8(to.cast(), first(count), self.0) }
    }

    #[inline(always)]
    unsafe fn clear_first(self, count: usize) -> Self {
        let keep = if count < 64 { u64::MAX << count } else { 0 };
        // SAFETY: AVX-512 BW by contract.
        unsafe { Self(_mm512_maskz_mov_epi8(keep, self.0)) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: AVX-512 F by contract.
        unsafe { Self(_mm512_xor_si512(self.0, other.0)) }
    }
}
