//! AVX-512 without GFNI: products by two table look-ups of sixteen entries, `vpshufb`, on 512-bit
//! registers.

use core::arch::x86_64::{
    __m128i, __m512i, __mmask64, _mm_loadu_si128, _mm512_and_si512, _mm512_broadcast_i32x4,
    _mm512_loadu_si512, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_maskz_mov_epi8,
    _mm512_set1_epi8, _mm512_setzero_si512, _mm512_shuffle_epi8, _mm512_srli_epi64,
    _mm512_storeu_si512, _mm512_xor_si512,
};

use super::group::{Call, Lanes, Table, run, table};
use crate::gf::NIBBLES;

/// The kernels. 32 registers, two of them for a factor.
pub(super) static TABLE: Table = table!(entry, [4 4 4 4 3 3 2 2]);

/// Whether this processor can run them.
#[cfg(feature = "std")]
pub(super) fn available() -> bool {
    std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("avx512bw")
}

/// Without the standard library only what the build enables is known.
#[cfg(not(feature = "std"))]
pub(super) fn available() -> bool {
    cfg!(all(target_feature = "avx512f", target_feature = "avx512bw"))
}

/// # Safety
/// As [`super::group::GroupFn`].
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn entry<const M: usize, const U: usize, const PREFETCH: bool>(call: &Call) {
    // SAFETY: the caller's, passed on; this function enables the instructions of `Zmm`.
    unsafe { run::<Zmm, M, U, PREFETCH>(call) }
}

#[derive(Clone, Copy)]
struct Zmm(__m512i);

/// Products of a factor with the low and with the high half of an octet.
#[derive(Clone, Copy)]
struct Nibbles {
    low: __m512i,
    high: __m512i,
}

/// Lanes 0 .. `count`, fewer than 64.
#[inline(always)]
fn first(count: usize) -> __mmask64 {
    !(u64::MAX << (count & 63))
}

// Every function below needs AVX-512 F or BW, which its caller vouches for as the trait demands; `run`
// is inlined into `entry`, which enables them.
impl Lanes for Zmm {
    const OCTETS: usize = 64;
    const MASKED: bool = true;
    const PAIRS: bool = false;
    type Factor = &'static [u8; 32];
    type Matrix = Nibbles;

    #[inline(always)]
    fn factor(factor: u8) -> Self::Factor {
        &NIBBLES[usize::from(factor)]
    }

    #[inline(always)]
    unsafe fn matrix(factor: Self::Factor) -> Nibbles {
        let tables: *const __m128i = factor.as_ptr().cast();
        // SAFETY: AVX-512 F by contract; both reads are inside the 32 octets of this factor's entry.
        unsafe {
            Nibbles {
                low: _mm512_broadcast_i32x4(_mm_loadu_si128(tables)),
                high: _mm512_broadcast_i32x4(_mm_loadu_si128(tables.add(1))),
            }
        }
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
    unsafe fn multiply(self, matrix: Nibbles) -> Self {
        // SAFETY: AVX-512 F and BW by contract.
        unsafe {
            let half = _mm512_set1_epi8(0x0f);
            let low = _mm512_and_si512(self.0, half);
            let high = _mm512_and_si512(_mm512_srli_epi64::<4>(self.0), half);
            Self(_mm512_xor_si512(
                _mm512_shuffle_epi8(matrix.low, low),
                _mm512_shuffle_epi8(matrix.high, high),
            ))
        }
    }
}
