//! Packets in memory as a gateway sees them: slots of a ring much larger than the caches, on 2 MB pages
//! where there are any, taken in shuffled order. And symbol buffers with their bodies on cache lines.

use std::io;

use memmap2::{Advice, MmapMut, MmapOptions};

/// Sources of a block.
pub(crate) const K: usize = 32;
/// Most symbols of a block.
pub(crate) const MAX_M: usize = 8;
/// Symbols that are kept with each block for decoding.
pub(crate) const KEPT: usize = 4;
/// Blocks that are coded in one call.
pub(crate) const BURST: usize = 4;
/// Cache line.
const LINE: usize = 64;

/// How memory was got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pages {
    /// Reserved 2 MB pages.
    Huge,
    /// Ordinary pages that the system was asked to merge.
    Transparent,
    /// Ordinary pages.
    Small,
}

/// `octets` of zeroed memory.
fn map(octets: usize) -> io::Result<(MmapMut, Pages)> {
    let mut options = MmapOptions::new();
    options.len(octets.next_multiple_of(1 << 21));
    if let Ok(map) = options.clone().huge(Some(21)).populate().map_anon() {
        return Ok((map, Pages::Huge));
    }
    let map = options.map_anon()?;
    let pages = if map.advise(Advice::HugePage).is_ok() {
        Pages::Transparent
    } else {
        Pages::Small
    };
    Ok((map, pages))
}

/// A generator for content and order; nothing depends on its quality.
pub(crate) struct Noise(u64);

impl Noise {
    /// From a seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// 32 bits.
    pub(crate) fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 32) as u32
    }
}

/// Blocks of [`K`] packets in shuffled slots, each with [`KEPT`] symbols.
pub(crate) struct Ring {
    t: usize,
    stride: usize,
    packets: MmapMut,
    symbols: MmapMut,
    order: Vec<u32>,
    /// How the packets' memory was got.
    pub(crate) pages: Pages,
}

impl Ring {
    /// A ring of about `octets` with packets for symbols of `t` octets.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn new(octets: usize, t: usize) -> io::Result<Self> {
        // Not a power of two, as with a packet pool.
        let stride = t.next_multiple_of(LINE) + 2 * LINE;
        let blocks = (octets / stride / K).max(BURST);
        let (mut packets, pages) = map(blocks * K * stride)?;
        let (symbols, _) = map(blocks * KEPT * stride)?;
        let mut noise = Noise::new(t as u64);
        for word in packets.chunks_exact_mut(4) {
            word.copy_from_slice(&noise.next().to_le_bytes());
        }
        let mut order: Vec<u32> = (0..(blocks * K) as u32).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, noise.next() as usize % (at + 1));
        }
        Ok(Self {
            t,
            stride,
            packets,
            symbols,
            order,
            pages,
        })
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.order.len() / K
    }

    /// The T octets of packet `n` of block `block`.
    #[inline]
    pub(crate) fn packet(&self, block: usize, n: usize) -> &[u8] {
        let at = self.order[block * K + n] as usize * self.stride;
        &self.packets[at..at + self.t]
    }

    /// Symbol `n` of block `block`.
    #[inline]
    pub(crate) fn symbol(&self, block: usize, n: usize) -> &[u8] {
        let at = (block * KEPT + n) * self.stride;
        &self.symbols[at..at + self.t]
    }

    /// Puts the symbols of block `block` in, one after the other.
    pub(crate) fn set_symbols(&mut self, block: usize, symbols: &[Vec<u8>]) {
        for (n, symbol) in symbols.iter().enumerate().take(KEPT) {
            let at = (block * KEPT + n) * self.stride;
            self.symbols[at..at + self.t].copy_from_slice(symbol);
        }
    }
}

/// Symbol buffers for a burst.
pub(crate) struct Symbols {
    t: usize,
    memory: MmapMut,
}

impl Symbols {
    /// Buffers of `t` octets for a burst.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn new(t: usize) -> io::Result<Self> {
        let (memory, _) = map(BURST * MAX_M * Self::stride(t))?;
        Ok(Self { t, memory })
    }

    fn stride(t: usize) -> usize {
        t.next_multiple_of(LINE) + 3 * LINE
    }

    /// All buffers. `lead` octets of each stand before a cache line: 2 puts the body on it, 0 the
    /// symbol.
    pub(crate) fn rows(&mut self, lead: usize) -> impl Iterator<Item = &mut [u8]> {
        let t = self.t;
        self.memory
            .chunks_exact_mut(Self::stride(t))
            .map(move |row| &mut row[LINE - lead..][..t])
    }
}
