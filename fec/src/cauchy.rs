//! The Cauchy matrix of scheme 1 (CREM, FEC Schemes): x_i = 255 - i for Repair Index i, y_j = j for
//! source position j, C(i, j) = 1 / (x_i + y_j).

use crate::arch::{Column, MAX_ROWS};
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

/// x_i of a Repair Index.
#[inline]
const fn point(index: u8) -> u8 {
    255 - index
}

/// `factor` times C(`index`, j) for any position j, without meaning beyond the pole.
#[inline]
pub(crate) fn times(factor: u8, index: u8) -> impl Fn(u8) -> u8 {
    let (products, point) = (gf::products(factor), point(index));
    move |position| products[usize::from(gf::INV[usize::from(point ^ position)])]
}

/// The columns of the first Repair Indices, which ordinary symbols have, by position.
static ORDINARY: [Column; 256] = {
    let mut columns = [[0; MAX_ROWS]; 256];
    let mut position = 0;
    while position < 256 {
        let mut index = 0;
        while index < MAX_ROWS {
            columns[position][index] = gf::inverse(point(index as u8) ^ position as u8);
            index += 1;
        }
        position += 1;
    }
    columns
};

/// C(i, j) for a few indices and any position.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    points: [u8; MAX_ROWS],
    count: usize,
    ordinary: bool,
}

impl Columns {
    /// For these indices; more than [`MAX_ROWS`] are left out.
    pub(crate) fn new(indices: impl Iterator<Item = u8>) -> Self {
        let mut columns = Self {
            points: [0; MAX_ROWS],
            count: 0,
            ordinary: true,
        };
        for (place, index) in columns.points.iter_mut().zip(indices) {
            *place = point(index);
            columns.ordinary &= usize::from(index) == columns.count;
            columns.count += 1;
        }
        columns
    }

    /// The factors by position, for the first indices in order: what ordinary symbols have. So that a
    /// loop over sources need not ask for each which case it is.
    pub(crate) fn table(&self) -> Option<&'static [Column; 256]> {
        self.ordinary.then_some(&ORDINARY)
    }

    /// The factors of `position`, zero beyond the last index or without meaning. So is a pair beyond
    /// the pole: callers have checked.
    #[inline(always)]
    pub(crate) fn of(&self, position: u8) -> Column {
        if self.ordinary {
            ORDINARY[usize::from(position)]
        } else {
            self.compute(position)
        }
    }

    /// Not inlined, so that the usual case stays small where it is.
    #[inline(never)]
    fn compute(&self, position: u8) -> Column {
        let mut column = [0; MAX_ROWS];
        for (factor, point) in column.iter_mut().zip(self.points).take(self.count) {
            *factor = gf::INV[usize::from(point ^ position)];
        }
        column
    }
}

/// The inverse of the square matrix C(i, j) over `indices` (rows) and `positions` (columns), in closed
/// form: row l of the result, of as many factors as there are indices, tells how the equations combine
/// to unknown l. With x and y as above, A(z) the product of z + x over all indices and B(z) the product
/// of z + y over all positions, the factor is A(y_l) B(x_i) / ((x_i + y_l) A'(x_i) B'(y_l)), where the
/// primes leave out the own factor.
///
/// Indices are distinct, positions are distinct, both lists are of one length, and every coefficient
/// exists.
pub(crate) fn invert(indices: &[u8], positions: &[u8], inverse: &mut [u8]) {
    if let (&[index], &[position], [factor]) = (indices, positions, &mut *inverse) {
        // The usual loss: the inverse of 1 / (x + y).
        *factor = point(index) ^ position;
        return;
    }
    // Logarithm of the product of z + f over `full`, divided by that over `partial` without z itself.
    // Sums of 512 logarithms stay far below 2^32.
    fn ratio(z: u8, full: impl Iterator<Item = u8>, partial: impl Iterator<Item = u8>) -> u32 {
        let above: u32 = full.map(|f| gf::log(z ^ f)).sum();
        let below: u32 = partial
            .filter(|&p| p != z)
            .map(|p| 255 - gf::log(z ^ p))
            .sum();
        (above + below) % 255
    }
    let xs = indices.iter().map(|&index| point(index));
    let ys = positions.iter().copied();
    let mut by_row = [0; 256];
    for (log, x) in by_row.iter_mut().zip(xs.clone()) {
        *log = ratio(x, ys.clone(), xs.clone());
    }
    for (row, y) in inverse
        .chunks_exact_mut(indices.len().max(1))
        .zip(ys.clone())
    {
        let own = ratio(y, xs.clone(), ys.clone());
        for ((factor, x), log) in row.iter_mut().zip(xs.clone()).zip(by_row) {
            *factor = gf::exp(own + log + 255 - gf::log(x ^ y));
        }
    }
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

    // shows: CREM-FEC-05
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

    // shows: CREM-FEC-05, CREM-FEC-06
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
    fn closed_form_is_the_inverse() {
        for (indices, positions) in [
            (vec![0], vec![0]),
            (vec![3, 0, 9], vec![200, 7, 41]),
            ((0..16).collect(), (100..116).collect()),
            ((0..120).collect(), (0..120).rev().collect()),
        ] {
            let u = indices.len();
            let mut inverse = vec![0; u * u];
            invert(&indices, &positions, &mut inverse);
            for (l, row) in inverse.chunks_exact(u).enumerate() {
                for (column, &position) in positions.iter().enumerate() {
                    let sum = row.iter().zip(&indices).fold(0, |sum, (&factor, &index)| {
                        sum ^ gf::mul(factor, coefficient(index, position).unwrap_or(0))
                    });
                    assert_eq!(sum, u8::from(l == column), "u={u}");
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
