//! The retained interval [L, H] of a sequence observer and the label of every position in it: seen or
//! pending (section 5 of the sequence draft). No counters of an epoch and no packets.
//!
//! A label is a bit in a ring of blocks. Each block also has the number of its pending positions, so a
//! late packet in a block without any needs no bit, and a jump expires whole blocks by adding up numbers.
//! A jump over whole blocks marks them in the number alone (`LAZY`); their bits are written when one is
//! looked at. So a jump of the largest W costs a thousand numbers instead of half a megabyte.

use alloc::boxed::Box;
use alloc::vec;

use crem_wire::Psn;

use crate::mutate;

/// Positions in a block, as a power of two.
const BLOCK_SHIFT: u32 = 12;
const BLOCK: u64 = 1 << BLOCK_SHIFT;
/// Words of a block's bits.
const WORDS: usize = (BLOCK / 64) as usize;
/// All positions of the block are pending and its bits are not written yet.
const LAZY: u16 = 0x8000;
const COUNT: u16 = LAZY - 1;
/// Extended positions start here, a multiple of 2^24: below it is room for every late packet.
const BASE: u64 = 1 << 40;
/// An epoch ends before its high-water position gets here.
const LIMIT: u64 = u64::MAX - (1 << 25);

/// What a position at or below the high-water position was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Label {
    /// Pending until now, seen from now on.
    Filled,
    /// Seen before.
    Seen,
    /// Below L: not known.
    Unclassified,
}

/// The retained interval with its labels.
#[derive(Clone, Debug)]
pub struct Window {
    width: u64,
    start: u64,
    high: u64,
    pending: u32,
    /// Place in the ring of the block that holds H.
    head: usize,
    /// Pending positions per block within [L, H], or `LAZY` and their number.
    counts: Box<[u16]>,
    bits: Box<[u64]>,
}

impl Window {
    /// Largest W: 2^22 positions.
    pub const MAX_WIDTH: u32 = 1 << 22;

    /// A window of `width` positions, 1 ..= 2^22 (others are brought into that range), without a
    /// position yet: [`Window::restart`] comes first.
    pub fn new(width: u32) -> Self {
        let blocks = Self::blocks(width);
        Self {
            width: u64::from(width.clamp(1, Self::MAX_WIDTH)),
            start: BASE,
            high: BASE,
            pending: 0,
            head: 0,
            counts: vec![0; blocks].into_boxed_slice(),
            bits: vec![0; blocks * WORDS].into_boxed_slice(),
        }
    }

    /// Octets of memory that a window of this width holds, beside the structure itself.
    pub const fn memory(width: u32) -> usize {
        Self::blocks(width) * (WORDS * 8 + 2)
    }

    /// Blocks that W positions can touch.
    const fn blocks(width: u32) -> usize {
        let width = if width == 0 {
            1
        } else if width > Self::MAX_WIDTH {
            Self::MAX_WIDTH
        } else {
            width
        };
        (width as usize - 1).div_ceil(BLOCK as usize) + 1
    }

    /// Changes W, at most to the width the window was made with. [`Window::restart`] comes next.
    pub fn set_width(&mut self, width: u32) {
        let largest = (self.counts.len() as u64 - 1) * BLOCK + 1;
        self.width = u64::from(width.max(1)).min(largest);
    }

    /// W.
    pub const fn width(&self) -> u32 {
        self.width as u32
    }

    /// Number of pending positions, at most W - 1.
    pub const fn pending(&self) -> u32 {
        self.pending
    }

    /// The PSN of the high-water position.
    pub const fn high(&self) -> Psn {
        Psn::new(self.high as u32)
    }

    /// Whether the next advance might leave the range of extended positions.
    pub const fn is_exhausted(&self) -> bool {
        self.high >= LIMIT
    }

    /// Forgets everything and retains only `first`, as seen: S = H = `first`.
    pub fn restart(&mut self, first: Psn) {
        self.start = BASE + u64::from(first.get());
        self.high = self.start;
        self.pending = 0;
        self.head = 0;
        self.reset_head();
    }

    /// L.
    fn low(&self, high: u64) -> u64 {
        self.start.max(high + 1 - self.width) + mutate::low_shift()
    }

    /// Moves H by one; the position becomes seen. Returns how many pending positions expired, 0 or 1.
    #[inline]
    pub fn step(&mut self) -> u32 {
        if self.pending == 0 && self.high & (BLOCK - 1) != BLOCK - 1 {
            self.high += 1;
            return 0;
        }
        self.advance(1)
    }

    /// Moves H by `distance`, 1 ..= W; the positions jumped over become pending, the new one seen.
    /// Returns how many pending positions expired. A distance out of that range is brought into it.
    pub fn advance(&mut self, distance: u32) -> u32 {
        let distance = u64::from(distance).clamp(1, self.width);
        let high = self.high + distance;
        let expired = self.expire(high);
        self.mark(high);
        self.pending += distance as u32 - 1;
        expired
    }

    /// Looks up the position `back` below H, and fills it if it was pending.
    pub fn look_back(&mut self, back: u32) -> Label {
        let position = self.high - u64::from(back);
        if position < self.low(self.high) {
            return Label::Unclassified;
        }
        let block = self.place(position);
        if self.counts[block] == 0 {
            return Label::Seen;
        }
        self.write_lazy(block);
        let word = &mut self.bits[block * WORDS + word_of(position)];
        let bit = 1 << (position & 63);
        if *word & bit == 0 {
            return Label::Seen;
        }
        *word &= !bit;
        self.counts[block] -= 1;
        self.pending -= 1;
        Label::Filled
    }

    /// Expires what a move of H to `high` leaves below L.
    fn expire(&mut self, high: u64) -> u32 {
        let (old, new) = (self.low(self.high), self.low(high));
        if self.pending == 0 || new <= old {
            return 0;
        }
        let expired = if new > self.high {
            self.reset_head();
            self.pending
        } else {
            let whole = (new >> BLOCK_SHIFT) - (old >> BLOCK_SHIFT);
            let first = self.place(old);
            let mut sum = 0;
            for (from, to) in self.run(first, whole as usize) {
                sum += self.counts[from..to]
                    .iter()
                    .map(|count| u32::from(count & COUNT))
                    .sum::<u32>();
            }
            let start = if whole == 0 { old } else { new & !(BLOCK - 1) };
            sum + self.clear(start, new)
        };
        self.pending -= expired;
        expired
    }

    /// Clears the positions `from .. to`, all of one block, and returns how many were pending.
    fn clear(&mut self, from: u64, to: u64) -> u32 {
        let block = self.place(to);
        if self.counts[block] == 0 || from == to {
            return 0;
        }
        self.write_lazy(block);
        let bits = &mut self.bits[block * WORDS..][..WORDS];
        let mut cleared = 0;
        for (word, mask) in masks(from & (BLOCK - 1), to & (BLOCK - 1)) {
            cleared += (bits[word] & mask).count_ones();
            bits[word] &= !mask;
        }
        self.counts[block] -= cleared as u16;
        cleared
    }

    /// Marks the positions between H and `high` as pending and moves H.
    fn mark(&mut self, high: u64) {
        let blocks = ((high >> BLOCK_SHIFT) - (self.high >> BLOCK_SHIFT)) as usize;
        let from = (self.high & (BLOCK - 1)) + 1;
        self.high = high;
        let to = high & (BLOCK - 1);
        if blocks == 0 {
            self.set_in_head(from, to);
            return;
        }
        self.set_in_head(from, BLOCK);
        let next = self.after(self.head, 1);
        for (from, to) in self.run(next, blocks - 1) {
            self.counts[from..to].fill(LAZY | BLOCK as u16);
        }
        self.head = self.after(self.head, blocks);
        self.reset_head();
        self.set_in_head(0, to);
    }

    /// Sets the bits `from .. to` of the head block, which are all clear.
    fn set_in_head(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let bits = &mut self.bits[self.head * WORDS..][..WORDS];
        for (word, mask) in masks(from, to) {
            bits[word] |= mask;
        }
        self.counts[self.head] += (to - from) as u16;
    }

    fn reset_head(&mut self) {
        self.counts[self.head] = 0;
        self.bits[self.head * WORDS..][..WORDS].fill(0);
    }

    /// Writes the bits of a block that is pending throughout.
    fn write_lazy(&mut self, block: usize) {
        if self.counts[block] & LAZY != 0 {
            self.counts[block] &= COUNT;
            self.bits[block * WORDS..][..WORDS].fill(u64::MAX);
        }
    }

    /// Place in the ring of the block of a retained position.
    fn place(&self, position: u64) -> usize {
        let back = ((self.high >> BLOCK_SHIFT) - (position >> BLOCK_SHIFT)) as usize;
        if back <= self.head {
            self.head - back
        } else {
            self.head + self.counts.len() - back
        }
    }

    /// `count` places after `place` in the ring, at most once around.
    fn after(&self, place: usize, count: usize) -> usize {
        let sum = place + count;
        if sum < self.counts.len() {
            sum
        } else {
            sum - self.counts.len()
        }
    }

    /// The ranges of `count` places from `first` in the ring.
    fn run(&self, first: usize, count: usize) -> [(usize, usize); 2] {
        let end = first + count;
        let size = self.counts.len();
        if end <= size {
            [(first, end), (0, 0)]
        } else {
            [(first, size), (0, end - size)]
        }
    }
}

/// Word of a position within its block.
const fn word_of(position: u64) -> usize {
    ((position & (BLOCK - 1)) >> 6) as usize
}

/// The words and masks of the offsets `from .. to` of a block.
fn masks(from: u64, to: u64) -> impl Iterator<Item = (usize, u64)> {
    let words = if from < to {
        from >> 6..((to - 1) >> 6) + 1
    } else {
        0..0
    };
    words.map(move |word| {
        let base = word << 6;
        let low = if from > base {
            u64::MAX << (from - base)
        } else {
            u64::MAX
        };
        let high = if to < base + 64 {
            !(u64::MAX << (to - base))
        } else {
            u64::MAX
        };
        (word as usize, low & high)
    })
}

#[cfg(test)]
mod tests;
