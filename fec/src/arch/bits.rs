//! Factors as the x86-64 kernels with GFNI take them.

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
