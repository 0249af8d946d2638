//! AVX2 with GFNI: products by an 8x8 bit matrix, `vgf2p8affineqb`, on 256-bit registers.
//! (`gf2p8mulb` is of no use: it multiplies in the field of AES.)

use core::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256,
    _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_storeu_si256, _mm256_xor_si256,
};

use super::group::{Call, Lanes, Table, run, table};
use super::x86;

/// The kernels. Sixteen registers in all.
pub(super) static TABLE: Table = table!(entry, [4 4 2 2 2 2 1 1]);

/// Whether this processor can run them.
#[cfg(feature = "std")]
pub(super) fn available() -> bool {
    std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("gfni")
}

/// Without the standard library only what the build enables is known.
#[cfg(not(feature = "std"))]
pub(super) fn available() -> bool {
    cfg!(all(target_feature = "avx2", target_feature = "gfni"))
}

/// # Safety
/// As [`super::group::GroupFn`].
#[target_feature(enable = "avx2,gfni")]
unsafe fn entry<const M: usize, const U: usize, const PREFETCH: bool>(call: &Call) {
    // SAFETY: the caller's, passed on; this function enables the instructions of `Ymm`.
    unsafe { run::<Ymm, M, U, PREFETCH>(call) }
}

#[derive(Clone, Copy)]
struct Ymm(__m256i);

// Every function below needs AVX2 or GFNI, which its caller vouches for as the trait demands; `run` is
// inlined into `entry`, which enables them.
impl Lanes for Ymm {
    const OCTETS: usize = 32;
    const MASKED: bool = false;
    const PAIRS: bool = false;
    type Factor = u64;
    type Matrix = __m256i;

    #[inline(always)]
    fn factor(factor: u8) -> u64 {
        x86::BIT_MATRICES[usize::from(factor)]
    }

    #[inline(always)]
    unsafe fn matrix(factor: u64) -> __m256i {
        // SAFETY: AVX2 by contract.
        unsafe { _mm256_set1_epi64x(factor.cast_signed()) }
    }

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
        unsafe { Self(x86::load_part_256(from, count)) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut u8, count: usize) {
        // SAFETY: AVX2 and `count` writable octets by contract.
        unsafe { x86::store_part_256(self.0, to, count) }
    }

    #[inline(always)]
    unsafe fn clear_first(self, count: usize) -> Self {
        // SAFETY: AVX2 by contract.
        unsafe { Self(_mm256_and_si256(self.0, x86::mask_from_256(count))) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: AVX2 by contract.
        unsafe { Self(_mm256_xor_si256(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn multiply(self, matrix: __m256i) -> Self {
        // SAFETY: AVX2 and GFNI by contract.
        unsafe { Self(_mm256_gf2p8affine_epi64_epi8::<0>(self.0, matrix)) }
    }
}
