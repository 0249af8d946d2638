//! The data: a function of a seed and the offset in the stream of all messages, so that either end
//! knows every octet without having seen it.

/// The pattern of one seed.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    seed: u64,
}

impl Pattern {
    /// The pattern of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Eight octets from stream offset `8 * index` on.
    fn word(self, index: u64) -> [u8; 8] {
        let mut z = (index ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (z ^ (z >> 32)).to_le_bytes()
    }

    /// Appends `count` octets from stream offset `offset` on.
    pub fn append(self, offset: u64, count: usize, out: &mut Vec<u8>) {
        let end = out.len() + count;
        let mut index = offset / 8;
        let skip = (offset % 8) as usize;
        out.extend(self.word(index).iter().skip(skip).take(count));
        while out.len() + 8 <= end {
            index += 1;
            out.extend_from_slice(&self.word(index));
        }
        let rest = end - out.len();
        out.extend(self.word(index + 1).iter().take(rest));
    }

    /// Number of octets of `data`, found at stream offset `offset`, that are not the pattern's.
    pub fn wrong(self, offset: u64, data: &[u8]) -> u64 {
        let mut wrong = 0;
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let skip = (at % 8) as usize;
            let word = self.word(at / 8);
            let expected = word.get(skip..).unwrap_or_default();
            let (now, later) = rest.split_at(rest.len().min(expected.len()));
            if !expected.starts_with(now) {
                wrong += now.iter().zip(expected).filter(|(a, b)| a != b).count() as u64;
            }
            at += now.len() as u64;
            rest = later;
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_gives_the_same_octets() {
        let pattern = Pattern::new(5);
        let mut whole = Vec::new();
        pattern.append(0, 100, &mut whole);
        for start in 0..40usize {
            for count in 0..40usize {
                let mut part = Vec::new();
                pattern.append(start as u64, count, &mut part);
                assert_eq!(part, whole[start..start + count], "{start} {count}");
                assert_eq!(pattern.wrong(start as u64, &part), 0);
            }
        }
    }

    #[test]
    fn every_wrong_octet_counts() {
        let pattern = Pattern::new(5);
        let mut data = Vec::new();
        pattern.append(3, 64, &mut data);
        data[0] ^= 1;
        data[40] ^= 0x80;
        data[63] ^= 3;
        assert_eq!(pattern.wrong(3, &data), 3);
        assert!(pattern.wrong(4, &data) > 32);
    }
}
