//! The list of a range request. Requests are made and taken per loss, so the list is part of the message:
//! only what is longer than any request of ours goes to the heap.

use alloc::vec::Vec;

use super::PsnRange;
use crate::Psn;

/// Ranges that need no memory besides the message itself.
const INLINE: usize = 48;

/// PSN ranges in the order in which they stand in the message.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ranges {
    /// As on the wire: PSN and count. What is not in use is 0.
    words: [u32; INLINE],
    len: u8,
    more: Vec<u32>,
}

impl Default for Ranges {
    fn default() -> Self {
        Self::new()
    }
}

impl Ranges {
    /// As many ranges fit without an allocation.
    pub const INLINE: usize = INLINE;

    /// No ranges.
    pub const fn new() -> Self {
        Self {
            words: [0; INLINE],
            len: 0,
            more: Vec::new(),
        }
    }

    /// Appends a range.
    pub fn push(&mut self, range: PsnRange) {
        let word = range.start.get() << 8 | u32::from(range.count);
        match self.words.get_mut(usize::from(self.len)) {
            Some(free) => {
                *free = word;
                self.len += 1;
            }
            None => self.more.push(word),
        }
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        usize::from(self.len) + self.more.len()
    }

    /// Whether there are none; a message has at least one.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The ranges as they stand in the message.
    pub fn iter(&self) -> impl Iterator<Item = PsnRange> {
        let used = self.words.iter().take(usize::from(self.len));
        used.chain(&self.more).map(|word| PsnRange {
            start: Psn::new(word >> 8),
            count: *word as u8,
        })
    }
}

impl FromIterator<PsnRange> for Ranges {
    fn from_iter<I: IntoIterator<Item = PsnRange>>(ranges: I) -> Self {
        let mut all = Self::new();
        ranges.into_iter().for_each(|range| all.push(range));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_what_was_put_in_however_much_it_is() {
        for n in [0, 1, INLINE - 1, INLINE, INLINE + 1, 1000] {
            let range = |i: usize| PsnRange {
                start: Psn::new(0xff_fff0 + i as u32),
                count: (i % 255) as u8 + 1,
            };
            let ranges: Ranges = (0..n).map(range).collect();
            assert_eq!((ranges.len(), ranges.is_empty()), (n, n == 0));
            assert!(ranges.iter().eq((0..n).map(range)));
            assert_eq!(ranges.more.capacity() > 0, n > INLINE);
        }
    }
}
