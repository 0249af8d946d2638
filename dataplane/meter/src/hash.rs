//! The BOB hash that RFC 5475 gives for hash-based selection (its appendix A.2), after Bob Jenkins' public
//! domain function of 1997, and the generator for random selection. Neither is cryptographic.

const GOLDEN: u32 = 0x9e37_79b9;

/// The BOB hash of `octets`, with an initial value.
pub fn bob(octets: &[u8], initial: u32) -> u32 {
    let mut state = [GOLDEN, GOLDEN, initial];
    let (blocks, rest) = octets.as_chunks::<12>();
    for block in blocks {
        add(&mut state, block);
        mix(&mut state);
    }
    // The length takes the lowest octet of the last word, so what remains goes one octet up there.
    let mut last = [0u8; 12];
    let (low, high) = rest.split_at(rest.len().min(8));
    last[..low.len()].copy_from_slice(low);
    last[9..9 + high.len()].copy_from_slice(high);
    add(&mut state, &last);
    state[2] = state[2].wrapping_add(octets.len() as u32);
    mix(&mut state);
    state[2]
}

fn add(state: &mut [u32; 3], block: &[u8; 12]) {
    let (words, _) = block.as_chunks::<4>();
    for (value, word) in state.iter_mut().zip(words) {
        *value = value.wrapping_add(u32::from_le_bytes(*word));
    }
}

fn mix([a, b, c]: &mut [u32; 3]) {
    const SHIFTS: [(u32, u32, u32); 3] = [(13, 8, 13), (12, 16, 5), (3, 10, 15)];
    for (first, second, third) in SHIFTS {
        *a = a.wrapping_sub(*b).wrapping_sub(*c) ^ *c >> first;
        *b = b.wrapping_sub(*c).wrapping_sub(*a) ^ *a << second;
        *c = c.wrapping_sub(*a).wrapping_sub(*b) ^ *b >> third;
    }
}

/// SplitMix64: a seed determines the stream.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes() {
        // From a separate implementation of the published function.
        let octets: [u8; 40] = core::array::from_fn(|n| (n * 7 + 1) as u8);
        assert_eq!(bob(&octets[..0], 0x0), 0xbd49d10d);
        assert_eq!(bob(&octets[..1], 0x0), 0xb93913a8);
        assert_eq!(bob(&octets[..8], 0x5), 0x8b52c922);
        assert_eq!(bob(&octets[..9], 0x0), 0x48809413);
        assert_eq!(bob(&octets[..11], 0x0), 0xda62f0c2);
        assert_eq!(bob(&octets[..12], 0x0), 0xd18ebf95);
        assert_eq!(bob(&octets[..13], 0x7), 0x84c46bff);
        assert_eq!(bob(&octets[..20], 0x0), 0xb9d34a28);
        assert_eq!(bob(&octets[..23], 0x1), 0x0af7437c);
        assert_eq!(bob(&octets[..24], 0x0), 0xe33b41e8);
        assert_eq!(bob(&octets[..40], 0xdeadbeef), 0xa56a663a);
    }

    #[test]
    fn every_octet_counts() {
        let mut octets = [0u8; 20];
        let zero = bob(&octets, 0);
        for at in 0..20 {
            octets[at] = 1;
            assert_ne!(bob(&octets, 0), zero, "octet {at}");
            octets[at] = 0;
        }
    }

    #[test]
    fn a_seed_determines_the_stream() {
        // The published first values for seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }
}
