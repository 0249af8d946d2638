//! Gaussian elimination over GF(2^8), one equation at a time: which equations are independent, which
//! unknowns they determine, and by which combination of equations.

use alloc::vec::Vec;

use crate::gf;

/// Reduced row echelon form of the equations accepted so far. With `trace`, each row also carries the
/// factors of the accepted equations that it is a combination of.
#[derive(Debug, Default)]
pub(crate) struct Eliminator {
    unknowns: usize,
    width: usize,
    rows: Vec<u8>,
    pivots: Vec<usize>,
    candidate: Vec<u8>,
}

impl Eliminator {
    /// An eliminator that will not allocate for up to `unknowns` unknowns.
    pub(crate) fn with_capacity(unknowns: usize, trace: bool) -> Self {
        let width = if trace { 2 * unknowns } else { unknowns };
        Self {
            unknowns: 0,
            width: 0,
            rows: Vec::with_capacity(width * unknowns),
            pivots: Vec::with_capacity(unknowns),
            candidate: Vec::with_capacity(width),
        }
    }

    /// Starts over with `unknowns` unknowns and no equation.
    pub(crate) fn reset(&mut self, unknowns: usize, trace: bool) {
        self.unknowns = unknowns;
        self.width = if trace { 2 * unknowns } else { unknowns };
        self.rows.clear();
        self.pivots.clear();
    }

    /// Number of independent equations so far.
    pub(crate) fn rank(&self) -> usize {
        self.pivots.len()
    }

    /// Takes the equation with the factor `factor(c)` for unknown c; says whether it is independent of
    /// the earlier ones. A dependent one leaves no trace.
    pub(crate) fn insert(&mut self, factor: impl FnMut(usize) -> u8) -> bool {
        if self.rank() == self.unknowns {
            return false;
        }
        self.candidate.clear();
        self.candidate.extend((0..self.unknowns).map(factor));
        self.candidate.resize(self.width, 0);
        if let Some(own) = self.candidate.get_mut(self.unknowns + self.pivots.len()) {
            *own = 1;
        }
        for (row, &pivot) in self.rows.chunks_exact(self.width).zip(&self.pivots) {
            let factor = self.candidate[pivot];
            add_multiple(&mut self.candidate, factor, row);
        }
        let Some(pivot) = self.candidate[..self.unknowns].iter().position(|&c| c != 0) else {
            return false;
        };
        if let Some(scale) = gf::inv(self.candidate[pivot]) {
            self.candidate
                .iter_mut()
                .for_each(|c| *c = gf::mul(scale, *c));
        }
        for row in self.rows.chunks_exact_mut(self.width) {
            let factor = row[pivot];
            add_multiple(row, factor, &self.candidate);
        }
        self.rows.extend_from_slice(&self.candidate);
        self.pivots.push(pivot);
        true
    }

    /// The factors by which the accepted equations, in the order of acceptance, combine to unknown
    /// `unknown`; `None` if they do not determine it.
    pub(crate) fn solution(&self, unknown: usize) -> Option<&[u8]> {
        let at = self.pivots.iter().position(|&pivot| pivot == unknown)?;
        let row = self.rows.chunks_exact(self.width).nth(at)?;
        let (factors, trace) = row.split_at(self.unknowns);
        // In reduced form every other pivot column is zero here, so a second factor is a free unknown.
        let alone = factors.iter().filter(|&&c| c != 0).count() == 1;
        alone.then(|| &trace[..self.rank().min(trace.len())])
    }
}

fn add_multiple(acc: &mut [u8], factor: u8, row: &[u8]) {
    if factor != 0 {
        acc.iter_mut()
            .zip(row)
            .for_each(|(a, &r)| *a ^= gf::mul(factor, r));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cauchy;

    #[test]
    fn partial_systems_deliver_what_they_determine() {
        let mut e = Eliminator::with_capacity(3, true);
        e.reset(3, true);
        assert!(e.insert(|c| [1, 0, 0][c]));
        assert!(e.insert(|c| [5, 7, 9][c]));
        assert!(!e.insert(|c| [0, 7, 9][c]), "a combination of the two");
        assert_eq!(e.rank(), 2);
        assert_eq!(e.solution(0).unwrap(), [1, 0]);
        assert_eq!((e.solution(1), e.solution(2)), (None, None));
        assert!(e.insert(|c| [0, 1, 0][c]));
        assert_eq!(e.solution(1).unwrap(), [0, 0, 1]);
        assert!(e.solution(2).is_some());
        assert!(!e.insert(|_| 3));
    }

    #[test]
    fn solution_is_the_inverse() {
        let (indices, columns) = ([0u8, 3, 7, 9], [1u8, 20, 31, 40]);
        let mut e = Eliminator::default();
        e.reset(4, true);
        for i in indices {
            assert!(e.insert(|c| cauchy::coefficient(i, columns[c]).unwrap()));
        }
        for (a, _) in columns.iter().enumerate() {
            let factors = e.solution(a).unwrap();
            for (b, &column) in columns.iter().enumerate() {
                let sum = indices.iter().zip(factors).fold(0, |sum, (&i, &f)| {
                    sum ^ gf::mul(f, cauchy::coefficient(i, column).unwrap())
                });
                assert_eq!(sum, u8::from(a == b));
            }
        }
    }
}
