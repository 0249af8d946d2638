//! The portable kernel: one table row per factor. It is the oracle that every other kernel is tested
//! against, so it stays as plain as it can be.

use crate::gf::MUL;

/// acc ^= factor * src over the octets that both have.
pub(super) fn mul_add(factor: u8, src: &[u8], acc: &mut [u8]) {
    match factor {
        0 => {}
        1 => acc.iter_mut().zip(src).for_each(|(a, s)| *a ^= s),
        _ => {
            let row = &MUL[usize::from(factor)];
            acc.iter_mut()
                .zip(src)
                .for_each(|(a, &s)| *a ^= row[usize::from(s)]);
        }
    }
}
