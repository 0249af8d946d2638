//! AVX-512 with GFNI: products by an 8x8 bit matrix, `vgf2p8affineqb`, on 512-bit registers.

use core::arch::x86_64::{
    __m512i, __mmask64, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_mask_storeu_epi8,
    _mm512_maskz_loadu_epi8, _mm512_maskz_mov_epi8, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_storeu_si512, _mm512_xor_si512,
};

use super::group::{Call, Lanes, Table, run, table};
use super::x86;

/// The kernels. 32 registers: sums and octets of two sources in up to 24 of them.
pub(super) static TABLE: Table = table!(entry, [8 4 2 2 2 2 2 2], [4 4 2 2 2 2 2 2]);

/// Whether this processor can run them.
#[cfg(feature = "std")]
pub(super) fn available() -> bool {
    std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("avx512bw")
        && std::is_x86_feature_detected!("gfni")
}

/// Without the standard library only what the build enables is known.
#[cfg(not(feature = "std"))]
pub(super) fn available() -> bool {
    cfg!(all(
        target_feature = "avx512f",
        target_feature = "avx512bw",
        target_feature = "gfni"
    ))
}

/// # Safety
/// As [`super::group::GroupFn`].
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn entry<const M: usize, const U: usize, const PREFETCH: bool>(call: &Call) {
    // SAFETY: the caller's, passed on; this function enables the instructions of `Zmm`.
    unsafe { run::<Zmm, M, U, PREFETCH>(call) }
}

#[derive(Clone, Copy)]
struct Zmm(__m512i);

/// Lanes 0 .. `count`, fewer than 64.
#[inline(always)]
fn first(count: usize) -> __mmask64 {
    !(u64::MAX << (count & 63))
}

// Every function below needs AVX-512 F and BW or GFNI, which its caller vouches for as the trait
// demands; `run` is inlined into `entry`, which enables them.
impl Lanes for Zmm {
    const OCTETS: usize = 64;
    const MASKED: bool = true;
    const PAIRS: bool = true;
    type Factor = u64;
    type Matrix = __m512i;

    #[inline(always)]
    fn factor(factor: u8) -> u64 {
        x86::BIT_MATRICES[usize::from(factor)]
    }

    #[inline(always)]
    unsafe fn matrix(factor: u64) -> __m512i {
        // SAFETY: AVX-512 F by contract.
        unsafe { _mm512_set1_epi64(factor.cast_signed()) }
    }

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

    #[inline(always)]
    unsafe fn multiply(self, matrix: __m512i) -> Self {
        // SAFETY: AVX-512 F and GFNI by contract.
        unsafe { Self(_mm512_gf2p8affine_epi64_epi8::<0>(self.0, matrix)) }
    }
}
