//! AVX-512 without GFNI: products by two table look-ups of sixteen entries, `vpshufb`, on 512-bit
//! registers.

use core::arch::x86_64::{
    __m128i, __m512i, _mm_loadu_si128, _mm512_and_si512, _mm512_broadcast_i32x4, _mm512_set1_epi8,
    _mm512_shuffle_epi8, _mm512_srli_epi64, _mm512_xor_si512,
};

use super::group::{Call, Products, Table, run, table};
use super::zmm::Zmm;
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
    // SAFETY: the caller's, passed on; this function enables the instructions of `Shuffle`.
    unsafe { run::<Shuffle, M, U, PREFETCH>(call) }
}

/// Products by shuffles.
struct Shuffle;

/// Products of a factor with the low and with the high half of an octet.
#[derive(Clone, Copy)]
struct Nibbles {
    low: __m512i,
    high: __m512i,
}

// Every function below needs AVX-512 F or BW, which its caller vouches for as the trait demands; `run`
// is inlined into `entry`, which enables them.
impl Products for Shuffle {
    type Register = Zmm;
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
    unsafe fn multiply(octets: Zmm, matrix: Nibbles) -> Zmm {
        // SAFETY: AVX-512 F and BW by contract.
        unsafe {
            let half = _mm512_set1_epi8(0x0f);
            let low = _mm512_and_si512(octets.0, half);
            let high = _mm512_and_si512(_mm512_srli_epi64::<4>(octets.0), half);
            Zmm(_mm512_xor_si512(
                _mm512_shuffle_epi8(matrix.low, low),
                _mm512_shuffle_epi8(matrix.high, high),
            ))
        }
    }
}
