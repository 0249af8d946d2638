//! AVX-512 with GFNI: products by an 8x8 bit matrix, `vgf2p8affineqb`, on 512-bit registers.

use core::arch::x86_64::{__m512i, _mm512_gf2p8affine_epi64_epi8, _mm512_set1_epi64};

use super::bits::BIT_MATRICES;
use super::group::{Call, Products, Table, run, table};
use super::zmm::Zmm;

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
    // SAFETY: the caller's, passed on; this function enables the instructions of `Affine`.
    unsafe { run::<Affine, M, U, PREFETCH>(call) }
}

/// Products by bit matrices.
struct Affine;

// Every function below needs AVX-512 F and BW or GFNI, which its caller vouches for as the trait
// demands; `run` is inlined into `entry`, which enables them.
impl Products for Affine {
    type Register = Zmm;
    const PAIRS: bool = true;
    type Factor = u64;
    type Matrix = __m512i;

    #[inline(always)]
    fn factor(factor: u8) -> u64 {
        BIT_MATRICES[usize::from(factor)]
    }

    #[inline(always)]
    unsafe fn matrix(factor: u64) -> __m512i {
        // SAFETY: AVX-512 F by contract.
        unsafe { _mm512_set1_epi64(factor.cast_signed()) }
    }

    #[inline(always)]
    unsafe fn multiply(octets: Zmm, matrix: __m512i) -> Zmm {
        // SAFETY: AVX-512 F and GFNI by contract.
        unsafe { Zmm(_mm512_gf2p8affine_epi64_epi8::<0>(octets.0, matrix)) }
    }
}
