//! The portable kernel: one table row per factor, one source and one row at a time. It is the oracle
//! that every other kernel is tested against, so it stays as plain as it can be.

use super::group::{Call, Table, table};
use crate::gf::MUL;

/// The portable kernels; it has no registers and does not prefetch.
pub(super) static TABLE: Table = table!(entry, [1 1 1 1 1 1 1 1]);

/// # Safety
/// As [`super::group::GroupFn`].
unsafe fn entry<const M: usize, const U: usize, const PREFETCH: bool>(call: &Call) {
    let len = call.to - call.from;
    for (r, row) in call.rows.iter().enumerate().take(M) {
        // SAFETY: the caller vouches for octets 0 .. `to`, which nothing else of the call aliases.
        let row = unsafe { core::slice::from_raw_parts_mut(row.add(call.from), len) };
        if call.overwrite {
            row.fill(0);
        }
        for (source, column) in call.sources.iter().zip(&call.columns).take(call.count) {
            // SAFETY: the first `count` places are filled in; the caller vouches for octets `origin` ..
            // `to` of the source, and `from` is not below `origin`.
            let (column, source) = unsafe {
                let start = source.assume_init().wrapping_add(call.from);
                (
                    column.assume_init_ref(),
                    core::slice::from_raw_parts(start, len),
                )
            };
            mul_add(column[r], source, row);
        }
    }
}

/// acc += factor * source over the octets that both have.
fn mul_add(factor: u8, source: &[u8], acc: &mut [u8]) {
    match factor {
        0 => {}
        1 => acc.iter_mut().zip(source).for_each(|(a, s)| *a ^= s),
        _ => {
            let products = &MUL[usize::from(factor)];
            acc.iter_mut()
                .zip(source)
                .for_each(|(a, &s)| *a ^= products[usize::from(s)]);
        }
    }
}
