//! The Cauchy matrix of scheme 1 (CREM, FEC Schemes): x_i = 255 - i for Repair Index i, y_j = j for
//! source position j, C(i, j) = 1 / (x_i + y_j).

use crate::gf;

/// C(i, j) for Repair Index `index` and source position `position`; `None` where i + j >= 255, where
/// the coefficient has its pole or leaves the range that the protocol allows.
#[inline]
pub fn coefficient(index: u8, position: u8) -> Option<u8> {
    if u16::from(index) + u16::from(position) >= 255 {
        return None;
    }
    gf::inv((255 - index) ^ position)
}

/// Whether `m` ordinary symbols (indices 0 to m - 1) exist for blocks of `k` positions: k is
/// 1 ..= 255, and every index satisfies i + k <= 255.
pub const fn valid_parameters(k: u8, m: u8) -> bool {
    k > 0 && (m == 0 || m as u16 - 1 + k as u16 <= 255)
}

/// Number of Repair Indices that exist for a block of `k` positions: 0 ..= 255 - k.
pub const fn index_count(k: u8) -> u16 {
    256 - k as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use reed_solomon_erasure::galois_8;

    #[test]
    fn coefficients_are_the_documents_example() {
        let expected = [
            [0xfd, 0x7e, 0xff, 0x7f],
            [0x7e, 0xfd, 0x7f, 0xff],
            [0xff, 0x7f, 0xfd, 0x7e],
        ];
        for (i, row) in expected.iter().enumerate() {
            for (j, &c) in row.iter().enumerate() {
                assert_eq!(coefficient(i as u8, j as u8), Some(c));
            }
        }
    }

    #[test]
    fn coefficients_exist_exactly_below_the_pole() {
        for i in 0..=255u8 {
            for j in 0..=255u8 {
                let exists = u16::from(i) + u16::from(j) < 255;
                assert_eq!(coefficient(i, j).is_some(), exists);
                if let Some(c) = coefficient(i, j) {
                    assert_eq!(c, galois_8::div(1, galois_8::add(255 - i, j)));
                }
            }
        }
    }

    #[test]
    fn limits() {
        assert!(valid_parameters(255, 1) && !valid_parameters(255, 2));
        assert!(valid_parameters(240, 16) && !valid_parameters(241, 16));
        assert!(valid_parameters(1, 255) && !valid_parameters(0, 1) && valid_parameters(255, 0));
        assert_eq!(index_count(250), 6);
        assert_eq!(index_count(255), 1);
    }
}
