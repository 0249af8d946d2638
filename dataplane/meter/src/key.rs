//! What tells connections and flows apart, in six words. They are compared and hashed with every packet, as
//! words: an array is compared octet by octet by a function that has to wait until what was just written is
//! in the cache.

use core::hash::{Hash, Hasher};
use core::net::IpAddr;

/// Addresses and two words of whatever else is a key.
#[derive(Clone, Copy, Eq, Debug)]
pub(crate) struct Words([u64; 6]);

impl Words {
    /// Those of no key, as long as the last word of none has all bits set.
    pub(crate) const NONE: Self = Self([u64::MAX; 6]);

    /// Equal exactly if all arguments are. Bit 0 of the first of `rest` is left clear: it is the family.
    #[inline(always)]
    pub(crate) fn new(source: &IpAddr, destination: &IpAddr, rest: [u64; 2]) -> Self {
        let word = |octets: [u8; 4]| u64::from(u32::from_be_bytes(octets));
        let (family, [s0, s1], [d0, d1]) = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => (
                0,
                [0, word(source.octets())],
                [0, word(destination.octets())],
            ),
            (source, destination) => (1, halves(source), halves(destination)),
        };
        Self([s0, s1, d0, d1, rest[0] | family, rest[1]])
    }

    /// The same number for packets between the same addresses, source first.
    pub(crate) fn of_addresses(&self) -> u64 {
        self.0[..4].iter().fold(0, |mixed, word| {
            (mixed.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        })
    }
}

impl PartialEq for Words {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        pairs.fold(0, |differ, (one, two)| differ | (one ^ two)) == 0
    }
}

impl Hash for Words {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.iter().for_each(|word| state.write_u64(*word));
    }
}

/// The address as two words, IPv4 addresses mapped.
fn halves(address: &IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn whatever_differs_tells_keys_apart() {
        let addresses: Vec<IpAddr> = ["10.0.0.1", "10.0.0.2", "::ffff:10.0.0.1", "2001:db8::1"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let mut all = Vec::new();
        for source in &addresses {
            for destination in &addresses {
                for rest in [[0, 0], [2, 0], [0, 1], [0, 1 << 63]] {
                    all.push((
                        (source, destination, rest),
                        Words::new(source, destination, rest),
                    ));
                }
            }
        }
        for (one, words) in &all {
            for (other, others) in &all {
                // A mapped address beside one of the other family is that address.
                let mixed = |(a, b, _): &(&IpAddr, &IpAddr, _)| a.is_ipv4() != b.is_ipv4();
                if !mixed(one) && !mixed(other) {
                    assert_eq!(words == others, one == other, "{one:?} {other:?}");
                }
            }
            assert!(*words != Words::NONE);
        }
    }
}
