//! Rank from coefficients alone (AMB-RANK): how many independent equations a set of held symbols gives
//! for a set of unknown positions. No octets are touched; the protocol core decides with it.

use crate::eliminate::Eliminator;
use crate::{PositionSet, Scheme};

/// What a held symbol says without its octets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Equation {
    /// FEC scheme.
    pub scheme: Scheme,
    /// Repair Index; with [`Scheme::Copy`] the position.
    pub index: u8,
    /// The set L; ignored with [`Scheme::Copy`], whose set is its index alone.
    pub set: PositionSet,
}

impl Equation {
    /// The factor of `position` in the symbol: zero outside L, and where the scheme has none.
    pub(crate) fn factor(&self, position: u8) -> u8 {
        if self.scheme != Scheme::Copy && !self.set.contains(position) {
            return 0;
        }
        self.scheme.coefficient(self.index, position).unwrap_or(0)
    }

    /// The positions that the symbol depends on.
    pub(crate) fn named(&self) -> PositionSet {
        match self.scheme {
            Scheme::Copy => [self.index].into_iter().collect(),
            Scheme::Cauchy | Scheme::Xor => self.set,
        }
    }

    /// Whether every coefficient that the symbol needs exists.
    pub(crate) fn is_possible(&self) -> bool {
        match self.scheme {
            Scheme::Copy => true,
            Scheme::Xor => self.index == 0,
            Scheme::Cauchy => self
                .set
                .last()
                .is_none_or(|last| Scheme::Cauchy.coefficient(self.index, last).is_some()),
        }
    }
}

/// The rank of `equations` in the unknowns of `unknown`; all other positions count as known.
///
/// Allocates if the sets are mixed; [`RankSolver`] keeps the memory.
pub fn rank(equations: impl IntoIterator<Item = Equation> + Clone, unknown: PositionSet) -> usize {
    RankSolver::default().rank(equations, unknown)
}

/// Computes ranks, keeping its memory from one to the next.
#[derive(Debug, Default)]
pub struct RankSolver {
    eliminator: Eliminator,
}

impl RankSolver {
    /// A solver that does not allocate for up to `unknowns` unknowns.
    pub fn with_capacity(unknowns: usize) -> Self {
        Self {
            eliminator: Eliminator::with_capacity(unknowns.min(256), false),
        }
    }

    /// The rank of `equations` in the unknowns of `unknown`; all other positions count as known.
    pub fn rank(
        &mut self,
        equations: impl IntoIterator<Item = Equation> + Clone,
        unknown: PositionSet,
    ) -> usize {
        if let Some(rank) = distinct_covering(equations.clone(), &unknown) {
            return rank;
        }
        let mut columns = [0; 256];
        let count = columns
            .iter_mut()
            .zip(unknown.iter())
            .map(|(c, p)| *c = p)
            .count();
        self.eliminator.reset(count, false);
        for equation in equations {
            self.eliminator.insert(|c| equation.factor(columns[c]));
        }
        self.eliminator.rank()
    }

    /// Whether the last of `equations` adds rank to the ones before it.
    pub fn is_independent(
        &mut self,
        held: impl IntoIterator<Item = Equation> + Clone,
        new: Equation,
        unknown: PositionSet,
    ) -> bool {
        let before = self.rank(held.clone(), unknown);
        let after = self.rank(Chained { held, new }, unknown);
        after > before
    }
}

/// The usual case without elimination: all symbols are of scheme 1 and over sets that contain every
/// unknown. Any square part of a Cauchy matrix is regular, so distinct indices are independent.
fn distinct_covering(
    equations: impl IntoIterator<Item = Equation>,
    unknown: &PositionSet,
) -> Option<usize> {
    let mut indices = PositionSet::EMPTY;
    for equation in equations {
        let covering = equation.scheme == Scheme::Cauchy
            && equation.set.contains_all(unknown)
            && equation.is_possible();
        if !covering {
            return None;
        }
        indices.insert(equation.index);
    }
    Some(indices.len().min(unknown.len()))
}

/// `held` followed by `new`.
#[derive(Clone)]
struct Chained<I> {
    held: I,
    new: Equation,
}

impl<I: IntoIterator<Item = Equation>> IntoIterator for Chained<I> {
    type Item = Equation;
    type IntoIter = core::iter::Chain<I::IntoIter, core::iter::Once<Equation>>;

    fn into_iter(self) -> Self::IntoIter {
        self.held.into_iter().chain(core::iter::once(self.new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coded(index: u8, set: &[u8]) -> Equation {
        Equation {
            scheme: Scheme::Cauchy,
            index,
            set: set.iter().copied().collect(),
        }
    }

    // shows: AMB-RANK
    #[test]
    fn distinct_indices_over_partial_sets_may_be_singular() {
        let unknown: PositionSet = [0u8, 2, 7].into_iter().collect();
        let held = [coded(21, &[0, 7]), coded(17, &[2, 7]), coded(5, &[0, 2, 7])];
        assert_eq!(rank(held, unknown), 2);
        assert!(!RankSolver::default().is_independent([held[0], held[1]], held[2], unknown));
        assert!(RankSolver::default().is_independent([held[0]], held[1], unknown));
    }

    // shows: CREM-FEC-10
    #[test]
    fn covering_sets_count_distinct_indices() {
        let unknown: PositionSet = [3u8, 9].into_iter().collect();
        let all: Vec<u8> = (0..12).collect();
        let held = [
            coded(0, &all),
            coded(0, &all),
            coded(4, &all),
            coded(5, &all),
        ];
        assert_eq!(rank(held[..2].iter().copied(), unknown), 1);
        assert_eq!(rank(held, unknown), 2);
        assert_eq!(rank([], unknown), 0);
    }

    #[test]
    fn other_schemes_and_impossible_symbols() {
        let unknown: PositionSet = [1u8, 2].into_iter().collect();
        let copy = Equation {
            scheme: Scheme::Copy,
            index: 1,
            set: PositionSet::EMPTY,
        };
        let xor = Equation {
            scheme: Scheme::Xor,
            index: 0,
            set: (0..6u8).collect(),
        };
        assert_eq!(rank([copy, xor], unknown), 2);
        assert_eq!(rank([copy, copy], unknown), 1);
        assert_eq!(rank([Equation { index: 1, ..xor }], unknown), 0);
        assert_eq!(
            rank([coded(254, &[1, 2])], unknown),
            0,
            "C(254, 1) does not exist"
        );
    }
}
