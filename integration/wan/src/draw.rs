//! Random numbers by position: no state, so that a decision depends on nothing drawn before it.

/// What a number is drawn for; each use of one frame has its own.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Transition = 1,
    Loss,
    Jitter,
    Reorder,
    Duplicate,
    Corrupt,
    Bit,
}

/// Numbers of one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    key: u64,
}

impl Draw {
    pub(crate) fn new(seed: u64, direction: u64) -> Self {
        Self {
            key: mix(mix(seed) ^ direction),
        }
    }

    /// The number for frame `index`, even over all 64-bit values.
    pub(crate) fn number(self, index: u64, purpose: Purpose) -> u64 {
        mix(mix(self.key ^ index) ^ purpose as u64)
    }

    /// True with `probability`.
    pub(crate) fn happens(self, index: u64, purpose: Purpose, probability: f64) -> bool {
        probability > 0.0 && self.unit(index, purpose) < probability
    }

    /// An even number in 0 .. `bound`; 0 if `bound` is 0.
    pub(crate) fn below(self, index: u64, purpose: Purpose, bound: u64) -> u64 {
        ((u128::from(self.number(index, purpose)) * u128::from(bound)) >> 64) as u64
    }

    /// An even number in 0 .. 1, from the 53 bits that a double holds.
    fn unit(self, index: u64, purpose: Purpose) -> f64 {
        (self.number(index, purpose) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// SplitMix64: one step and its output function.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_match_probabilities() {
        let draw = Draw::new(7, 1);
        let hits = (0..100_000)
            .filter(|&i| draw.happens(i, Purpose::Loss, 0.01))
            .count();
        assert!((900..1100).contains(&hits), "{hits}");
        assert!((0..1000).all(|i| draw.below(i, Purpose::Bit, 10) < 10));
        assert!((0..1000).all(|i| draw.happens(i, Purpose::Loss, 1.0)));
    }

    #[test]
    fn directions_and_purposes_differ() {
        let (a, b) = (Draw::new(7, 0), Draw::new(7, 1));
        assert_ne!(a.number(5, Purpose::Loss), b.number(5, Purpose::Loss));
        assert_ne!(a.number(5, Purpose::Loss), a.number(5, Purpose::Corrupt));
    }
}
