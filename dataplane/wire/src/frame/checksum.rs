//! The Internet checksum: of an IPv4 header, of UDP with its pseudo-header, and incremental updates.

use core::net::IpAddr;

use super::{PROTOCOL_UDP, UDP_LEN};

/// A running one's-complement sum of 16-bit words. Every piece but the last must have an even number
/// of octets.
#[derive(Clone, Copy, Default, Debug)]
pub struct Checksum(u64);

impl Checksum {
    /// Adds octets as big-endian words, an odd last octet padded with zero.
    #[must_use]
    pub fn add_octets(mut self, octets: &[u8]) -> Self {
        let (words, rest) = octets.as_chunks::<4>();
        for word in words {
            // Two words at once: the carries between them are folded in `finish`.
            self.0 += u64::from(u32::from_be_bytes(*word));
        }
        let mut tail = [0; 4];
        tail[..rest.len()].copy_from_slice(rest);
        self.0 += u64::from(u32::from_be_bytes(tail));
        self
    }

    /// Adds one word.
    #[must_use]
    pub fn add_word(self, word: u16) -> Self {
        Self(self.0 + u64::from(word))
    }

    /// The complement of the folded sum.
    pub fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

/// The checksum that belongs into an IPv4 header of any length, whatever its checksum field holds.
pub fn ipv4_header_checksum(header: &[u8]) -> u16 {
    let (front, rest) = header.split_at(header.len().min(10));
    Checksum::default()
        .add_octets(front)
        .add_octets(rest.get(2..).unwrap_or_default())
        .finish()
}

fn udp_sum(source: IpAddr, destination: IpAddr, segment: &[u8]) -> Checksum {
    let mut sum = Checksum::default();
    for address in [source, destination] {
        sum = match address {
            IpAddr::V4(v4) => sum.add_octets(&v4.octets()),
            IpAddr::V6(v6) => sum.add_octets(&v6.octets()),
        };
    }
    sum.add_word(u16::from(PROTOCOL_UDP))
        .add_word(segment.len() as u16)
}

/// The checksum that belongs into the UDP header of `segment` (header and payload), whatever its
/// checksum field holds. Never 0, which would mean "none".
pub fn udp_checksum(source: IpAddr, destination: IpAddr, segment: &[u8]) -> u16 {
    let (ports_and_length, rest) = segment.split_at(segment.len().min(6));
    let sum = udp_sum(source, destination, segment).add_octets(ports_and_length);
    match sum.add_octets(rest.get(2..).unwrap_or_default()).finish() {
        0 => 0xffff,
        value => value,
    }
}

/// Whether the UDP checksum of `segment` verifies; a checksum of 0 counts as absent, which IPv4
/// allows and RoCEv2 uses over IPv6 too.
pub fn udp_checksum_ok(source: IpAddr, destination: IpAddr, segment: &[u8]) -> bool {
    match segment.first_chunk::<UDP_LEN>() {
        Some([.., 0, 0]) => true,
        Some(_) => {
            udp_sum(source, destination, segment)
                .add_octets(segment)
                .finish()
                == 0
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_ipv4_header() {
        let header = [
            0x45, 0x00, 0x00, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0,
            0xa8, 0, 0xc7,
        ];
        assert_eq!(ipv4_header_checksum(&header), 0xb861);
        assert_eq!(Checksum::default().add_octets(&header).finish(), 0);
    }

    #[test]
    fn udp_of_odd_length_verifies() {
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut segment = [0x12, 0x34, 0x12, 0xb7, 0, 11, 0, 0, 0xaa, 0xbb, 0xcc];
        let value = udp_checksum(a, b, &segment);
        segment[6..8].copy_from_slice(&value.to_be_bytes());
        assert_eq!(udp_checksum(a, b, &segment), value);
        assert!(udp_checksum_ok(a, b, &segment));
        segment[10] ^= 1;
        assert!(!udp_checksum_ok(a, b, &segment));
        segment[6..8].fill(0);
        assert!(udp_checksum_ok(a, b, &segment));
        assert!(!udp_checksum_ok(a, b, &segment[..7]));
    }
}
