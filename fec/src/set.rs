//! A set of block positions as a 256-bit word set. The wire form of bitmaps lives in crem-wire.

/// A set of positions 0 ..= 255: position p is bit p % 64 of word p / 64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct PositionSet([u64; 4]);

impl PositionSet {
    /// The empty set.
    pub const EMPTY: Self = Self([0; 4]);

    /// The set with these words.
    pub const fn from_words(words: [u64; 4]) -> Self {
        Self(words)
    }

    /// The words: position p is bit p % 64 of word p / 64.
    pub const fn words(&self) -> [u64; 4] {
        self.0
    }

    /// Adds a position; says whether it is new.
    pub fn insert(&mut self, position: u8) -> bool {
        let word = &mut self.0[usize::from(position / 64)];
        let bit = 1 << (position % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Whether the set has the position.
    pub fn contains(&self, position: u8) -> bool {
        self.0[usize::from(position / 64)] >> (position % 64) & 1 == 1
    }

    /// Number of positions.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set has no position.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// Positions in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(core::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// Positions of this set that are not in `other`.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        Self(core::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// Whether every position of `other` is in this set.
    pub fn contains_all(&self, other: &Self) -> bool {
        other.minus(self).is_empty()
    }

    /// The highest position, if any.
    pub fn last(&self) -> Option<u8> {
        (0..4u8).rev().find_map(|i| {
            let word = self.0[usize::from(i)];
            (word != 0).then(|| i * 64 + 63 - word.leading_zeros() as u8)
        })
    }

    /// The positions in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u8> + use<> {
        let words = self.0;
        (0..4u8).flat_map(move |i| {
            let mut rest = words[usize::from(i)];
            core::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros() as u8;
                    rest &= rest - 1;
                    i * 64 + bit
                })
            })
        })
    }
}

impl FromIterator<u8> for PositionSet {
    fn from_iter<I: IntoIterator<Item = u8>>(positions: I) -> Self {
        // Positions mostly come in order, so the word at work stays in a register.
        let mut words = [0; 4];
        let (mut at, mut word) = (0, 0);
        for position in positions {
            if usize::from(position / 64) != at {
                words[at] |= word;
                (at, word) = (usize::from(position / 64), 0);
            }
            word |= 1 << (position % 64);
        }
        words[at] |= word;
        Self(words)
    }
}

impl From<[u64; 4]> for PositionSet {
    fn from(words: [u64; 4]) -> Self {
        Self(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_operations() {
        let mut set: PositionSet = [255u8, 0, 63, 64, 127].into_iter().collect();
        assert!(set.iter().eq([0u8, 63, 64, 127, 255]));
        assert_eq!((set.last(), set.len()), (Some(255), 5));
        assert!(!set.insert(64) && set.insert(65) && set.contains(65));
        let low: PositionSet = (0..=63u8).collect();
        assert!(set.minus(&low).iter().eq([64u8, 65, 127, 255]));
        assert!(set.union(&low).contains_all(&low) && !set.contains_all(&low));
        assert_eq!(PositionSet::EMPTY.last(), None);
    }
}
