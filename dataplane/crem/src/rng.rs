//! Randomness: one generator per protocol function, seeded by the caller, so that a run repeats
//! exactly. It is cryptographic because nonces and Flow IDs are a defence (AMB-FLOWID0, AMB-NONCE).

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};

/// ChaCha20 stream.
#[derive(Clone, Debug)]
pub struct Rng(ChaCha20Rng);

impl Rng {
    /// The generator that this seed determines.
    pub fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha20Rng::from_seed(seed))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_stream() {
        let (mut a, mut b, mut c) = (Rng::new([1; 32]), Rng::new([1; 32]), Rng::new([2; 32]));
        let first = a.next_u64();
        assert_eq!(first, b.next_u64());
        assert_ne!(first, c.next_u64());
        assert_ne!(first, a.next_u64());
    }
}
