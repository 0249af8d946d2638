//! What the x86-64 kernels share: factor tables, and parts of a 256-bit register.

use core::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256};

use crate::gf;

/// For each factor the 8x8 bit matrix of `gf2p8affineqb`. The instruction computes output bit i as the
/// parity of the input octet and matrix octet 7 - i, so that octet holds which input bits reach bit i.
pub(super) static BIT_MATRICES: [u64; 256] = bit_matrices();

const fn bit_matrices() -> [u64; 256] {
    let mut table = [0; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut input = 0;
        while input < 8 {
            let product = gf::MUL[factor][1 << input];
            let mut output = 0;
            while output < 8 {
                if product >> output & 1 == 1 {
                    table[factor] |= 1 << ((7 - output) * 8 + input);
                }
                output += 1;
            }
            input += 1;
        }
        factor += 1;
    }
    table
}

/// The first `count` octets (fewer than 32) of `from`, zeros behind.
///
/// # Safety
/// `from` is valid for reads of `count` octets; the processor has AVX2.
#[inline(always)]
pub(super) unsafe fn load_part_256(from: *const u8, count: usize) -> __m256i {
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
pub(super) unsafe fn store_part_256(value: __m256i, to: *mut u8, count: usize) {
    let mut octets = [0u8; 32];
    // SAFETY: as in `load_part_256`, the other way round.
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
pub(super) unsafe fn mask_from_256(count: usize) -> __m256i {
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
