//! The position bitmap of REPAIR and REPAIR_REQUEST: up to 255 positions, bit 0 is the most
//! significant bit of the first 32-bit word on the wire (CREM, Message Formats, REPAIR).

/// A set of block positions 0 ..= 254.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Bitmap([u64; 4]);

impl Bitmap {
    /// The empty set.
    pub const EMPTY: Self = Self([0; 4]);

    /// The set 0 .. `count`; `count` up to 255.
    pub fn first(count: usize) -> Self {
        let mut set = Self::EMPTY;
        for position in 0..count.min(255) {
            set.insert(position as u8);
        }
        set
    }

    /// Adds a position.
    pub fn insert(&mut self, position: u8) {
        self.0[usize::from(position / 64)] |= 1 << (position % 64);
    }

    /// Removes a position.
    pub fn remove(&mut self, position: u8) {
        self.0[usize::from(position / 64)] &= !(1 << (position % 64));
    }

    /// Whether the set has the position.
    pub fn contains(&self, position: u8) -> bool {
        self.0[usize::from(position / 64)] >> (position % 64) & 1 == 1
    }

    /// Number of positions in the set.
    pub fn len(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether the set has no position.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// Positions in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(core::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Positions in either set.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
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

    /// The positions in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        self.0.iter().enumerate().flat_map(|(i, &word)| {
            let mut rest = word;
            core::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros();
                    rest &= rest - 1;
                    (i as u32 * 64 + bit) as u8
                })
            })
        })
    }

    /// The highest position, if any.
    pub fn last(&self) -> Option<u8> {
        (0..4).rev().find(|&i| self.0[i] != 0).map(|i| (i as u32 * 64 + 63 - self.0[i].leading_zeros()) as u8)
    }
}

impl FromIterator<u8> for Bitmap {
    fn from_iter<I: IntoIterator<Item = u8>>(positions: I) -> Self {
        let mut set = Self::EMPTY;
        for position in positions {
            set.insert(position);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterates_in_order() {
        let set: Bitmap = [200u8, 0, 63, 64, 127].into_iter().collect();
        assert!(set.iter().eq([0u8, 63, 64, 127, 200]));
        assert_eq!(set.last(), Some(200));
        assert_eq!(set.len(), 5);
    }
}
