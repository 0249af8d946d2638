//! AVX2: products by two table look-ups of sixteen entries, `vpshufb`.

use core::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_set1_epi8, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_xor_si256,
};

use super::group::{Call, Products, Table, run, table};
use super::ymm::Ymm;
use crate::gf::NIBBLES;

/// The kernels. Sixteen registers in all, two of them for a factor.
pub(super) static TABLE: Table = table!(entry, [4 2 2 2 1 1 1 1]);

/// Whether this processor can run them.
#[cfg(feature = "std")]
pub(super) fn available() -> bool {
    std::is_x86_feature_detected!("avx2")
}

/// Without the standard library only what the build enables is known.
#[cfg(not(feature = "std"))]
pub(super) fn available() -> bool {
    cfg!(target_feature = "avx2")
}

/// # Safety
/// As [`super::group::GroupFn`].
#[target_feature(enable = "avx2")]
unsafe fn entry<const M: usize, const U: usize, const PREFETCH: bool>(call: &Call) {
    // SAFETY: the caller's, passed on; this function enables the instructions of `Shuffle`.
    unsafe { run::<Shuffle, M, U, PREFETCH>(call) }
}

/// Products by shuffles.
struct Shuffle;

/// Products of a factor with the low and with the high half of an octet.
#[derive(Clone, Copy)]
struct Nibbles {
    low: __m256i,
    high: __m256i,
}

// Every function below needs AVX2, which its caller vouches for as the trait demands; `run` is inlined
// into `entry`, which enables it.
impl Products for Shuffle {
    type Register = Ymm;
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
        // SAFETY: AVX2 by contract; both reads are inside the 32 octets of this factor's entry.
        unsafe {
            Nibbles {
                low: _mm256_broadcastsi128_si256(_mm_loadu_si128(tables)),
                high: _mm256_broadcastsi128_si256(_mm_loadu_si128(tables.add(1))),
            }
        }
    }

    #[inline(always)]
    unsafe fn multiply(octets: Ymm, matrix: Nibbles) -> Ymm {
        // SAFETY: AVX2 by contract.
        unsafe {
            let half = _mm256_set1_epi8(0x0f);
            let low = _mm256_and_si256(octets.0, half);
            let high = _mm256_and_si256(_mm256_srli_epi64::<4>(octets.0), half);
            Ymm(_mm256_xor_si256(
                _mm256_shuffle_epi8(matrix.low, low),
                _mm256_shuffle_epi8(matrix.high, high),
            ))
        }
    }
}
