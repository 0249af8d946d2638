//! The position bitmap of REPAIR and REPAIR_REQUEST: up to 255 positions, bit 0 is the most
//! significant bit of the first 32-bit word on the wire (CREM, Message Formats, REPAIR).

/// A set of block positions 0 ..= 254.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Bitmap([u64; 4]);

impl Bitmap {
    /// The empty set.
    pub const EMPTY: Self = Self([0; 4]);

    /// The set with these words: position p is bit p % 64 of word p / 64. Position 255 does not exist
    /// and is dropped.
    pub const fn from_words(words: [u64; 4]) -> Self {
        let [a, b, c, d] = words;
        Self([a, b, c, d & (u64::MAX >> 1)])
    }

    /// The words: position p is bit p % 64 of word p / 64.
    pub const fn words(&self) -> [u64; 4] {
        self.0
    }

    /// The set 0 .. `count`; `count` up to 255.
    pub fn first(count: usize) -> Self {
        let count = count.min(255);
        Self(core::array::from_fn(|i| {
            match count.saturating_sub(i * 64) {
                0 => 0,
                bits @ 1..=63 => (1 << bits) - 1,
                _ => u64::MAX,
            }
        }))
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

    /// Number of octets that a bitmap of `k` positions takes on the wire: ceil(k/32) 32-bit words.
    pub const fn wire_len(k: u8) -> usize {
        (k as usize).div_ceil(32) * 4
    }

    /// Writes ceil(k/32) big-endian words to the front of `out`, as far as it has room. Positions at
    /// or beyond `k` are left out, since a receiver discards a message that has one (AMB-BITPAD).
    pub fn write_wire(&self, k: u8, out: &mut [u8]) {
        let inside = self.and(&Self::first(usize::from(k)));
        for (w, word) in out
            .chunks_exact_mut(4)
            .take(Self::wire_len(k) / 4)
            .enumerate()
        {
            // Storage is least significant bit first, the wire is most significant bit first.
            let bits = (inside.0[w / 2] >> (w % 2 * 32)) as u32;
            word.copy_from_slice(&bits.reverse_bits().to_be_bytes());
        }
    }

    /// Reads the words of a bitmap of `k` positions. `None` if a bit at or beyond `k` is set
    /// (AMB-BITPAD) or `octets` is not exactly [`Bitmap::wire_len`] long.
    pub fn from_wire(octets: &[u8], k: u8) -> Option<Self> {
        if octets.len() != Self::wire_len(k) {
            return None;
        }
        let mut set = Self::EMPTY;
        for (w, word) in octets.as_chunks::<4>().0.iter().enumerate() {
            set.0[w / 2] |= u64::from(u32::from_be_bytes(*word).reverse_bits()) << (w % 2 * 32);
        }
        Self::first(usize::from(k))
            .contains_all(&set)
            .then_some(set)
    }

    /// The highest position, if any.
    pub fn last(&self) -> Option<u8> {
        (0..4)
            .rev()
            .find(|&i| self.0[i] != 0)
            .map(|i| (i as u32 * 64 + 63 - self.0[i].leading_zeros()) as u8)
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
        assert_eq!(Bitmap::from_words(set.words()), set);
        assert_eq!(Bitmap::from_words([u64::MAX; 4]).len(), 255);
    }

    #[test]
    fn first_is_a_prefix() {
        for count in 0..=255usize {
            assert!(
                Bitmap::first(count).iter().map(usize::from).eq(0..count),
                "{count}"
            );
        }
    }

    // shows: CREM-MSG-10, AMB-BITPAD
    #[test]
    fn wire_order_is_most_significant_first() {
        let set: Bitmap = [0u8, 31, 32, 95].into_iter().collect();
        let mut out = [0xee; 16];
        set.write_wire(96, &mut out);
        assert_eq!(out[..12], [0x80, 0, 0, 1, 0x80, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(out[12..], [0xee; 4]);
        assert_eq!(Bitmap::from_wire(&out[..12], 96), Some(set));
        assert_eq!(Bitmap::from_wire(&out[..12], 95), None);
        assert_eq!(Bitmap::from_wire(&out[..8], 96), None);
    }
}
