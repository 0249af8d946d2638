//! NEON: products by two table look-ups of sixteen entries, `tbl`, on 128-bit registers. Every 64-bit
//! ARM processor that the standard library runs on has it.

use core::arch::aarch64::{
    uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8, vshrq_n_u8, vst1q_u8,
};

use super::group::{Call, Products, Register, Table, run, table};
use crate::gf::NIBBLES;

/// The kernels. 32 registers, two of them for a factor.
pub(super) static TABLE: Table = table!(entry, [4 4 4 4 2 2 2 2]);

/// # Safety
/// As [`super::group::GroupFn`].
#[target_feature(enable = "neon")]
unsafe fn entry<const M: usize, const U: usize, const PREFETCH: bool>(call: &Call) {
    // SAFETY: the caller's, passed on; this function enables the instructions of `Shuffle`.
    unsafe { run::<Shuffle, M, U, PREFETCH>(call) }
}

#[derive(Clone, Copy)]
struct Vector(uint8x16_t);

/// Products of a factor with the low and with the high half of an octet.
#[derive(Clone, Copy)]
struct Nibbles {
    low: uint8x16_t,
    high: uint8x16_t,
}

/// Products by table look-ups.
struct Shuffle;

// Every function below needs NEON, which its caller vouches for as the traits demand; `run` is inlined
// into `entry`, which enables it.
impl Register for Vector {
    const OCTETS: usize = 16;
    const MASKED: bool = false;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: NEON by contract.
        unsafe { Self(vdupq_n_u8(0)) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: NEON and 16 readable octets by contract; the load needs no alignment.
        unsafe { Self(vld1q_u8(from)) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: NEON and 16 writable octets by contract; the store needs no alignment.
        unsafe { vst1q_u8(to, self.0) }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const u8, count: usize) -> Self {
        let mut octets = [0u8; 16];
        // SAFETY: the caller vouches for `count` octets at `from`; the local array has 16 and `count`
        // is cut to that; the load takes the whole array.
        unsafe {
            core::ptr::copy_nonoverlapping(from, octets.as_mut_ptr(), count.min(16));
            Self(vld1q_u8(octets.as_ptr()))
        }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut u8, count: usize) {
        let mut octets = [0u8; 16];
        // SAFETY: as in `load_part`, the other way round.
        unsafe {
            vst1q_u8(octets.as_mut_ptr(), self.0);
            core::ptr::copy_nonoverlapping(octets.as_ptr(), to, count.min(16));
        }
    }

    #[inline(always)]
    unsafe fn clear_first(self, count: usize) -> Self {
        static SLIDE: [u8; 32] = {
            let mut slide = [0; 32];
            let mut at = 16;
            while at < 32 {
                slide[at] = 0xff;
                at += 1;
            }
            slide
        };
        // SAFETY: NEON by contract; the offset is 0 ..= 16, so the 16 octets read end inside the 32.
        unsafe {
            Self(vandq_u8(
                self.0,
                vld1q_u8(SLIDE.as_ptr().add(16 - count.min(16))),
            ))
        }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: NEON by contract.
        unsafe { Self(veorq_u8(self.0, other.0)) }
    }
}

impl Products for Shuffle {
    type Register = Vector;
    const PAIRS: bool = false;
    type Factor = &'static [u8; 32];
    type Matrix = Nibbles;

    #[inline(always)]
    fn factor(factor: u8) -> Self::Factor {
        &NIBBLES[usize::from(factor)]
    }

    #[inline(always)]
    unsafe fn matrix(factor: Self::Factor) -> Nibbles {
        let tables = factor.as_ptr();
        // SAFETY: NEON by contract; both reads are inside the 32 octets of this factor's entry.
        unsafe {
            Nibbles {
                low: vld1q_u8(tables),
                high: vld1q_u8(tables.add(16)),
            }
        }
    }

    #[inline(always)]
    unsafe fn multiply(octets: Vector, matrix: Nibbles) -> Vector {
        // SAFETY: NEON by contract.
        unsafe {
            let low = vandq_u8(octets.0, vdupq_n_u8(0x0f));
            let high = vshrq_n_u8::<4>(octets.0);
            Vector(veorq_u8(
                vqtbl1q_u8(matrix.low, low),
                vqtbl1q_u8(matrix.high, high),
            ))
        }
    }
}
