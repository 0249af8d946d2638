//! AVX2 with GFNI: products by an 8x8 bit matrix, `vgf2p8affineqb`, on 256-bit registers.
//! (`gf2p8mulb` is of no use: it multiplies in the field of AES.)

use core::arch::x86_64::{__m256i, _mm256_gf2p8affine_epi64_epi8, _mm256_set1_epi64x};

use super::bits::BIT_MATRICES;
use super::group::{Call, Products, Table, run, table};
use super::ymm::Ymm;

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
    // SAFETY: the caller's, passed on; this function enables the instructions of `Affine`.
    unsafe { run::<Affine, M, U, PREFETCH>(call) }
}

/// Products by bit matrices.
struct Affine;

// Every function below needs AVX2 or GFNI, which its caller vouches for as the trait demands; `run` is
// inlined into `entry`, which enables them.
impl Products for Affine {
    type Register = Ymm;
    const PAIRS: bool = false;
    type Factor = u64;
    type Matrix = __m256i;

    #[inline(always)]
    fn factor(factor: u8) -> u64 {
        BIT_MATRICES[usize::from(factor)]
    }

    #[inline(always)]
    unsafe fn matrix(factor: u64) -> __m256i {
        // SAFETY: AVX2 by contract.
        unsafe { _mm256_set1_epi64x(factor.cast_signed()) }
    }

    #[inline(always)]
    unsafe fn multiply(octets: Ymm, matrix: __m256i) -> Ymm {
        // SAFETY: AVX2 and GFNI by contract.
        unsafe { Ymm(_mm256_gf2p8affine_epi64_epi8::<0>(octets.0, matrix)) }
    }
}
