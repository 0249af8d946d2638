//! SHA-256 as text, and random names.

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

/// SHA-256 in hexadecimal digits.
pub fn sha256(octets: &[u8]) -> String {
    hex(digest(&SHA256, octets).as_ref())
}

/// So many random octets in hexadecimal digits.
///
/// # Errors
/// The system has no randomness.
pub fn random_hex<const N: usize>() -> std::io::Result<String> {
    let mut octets = [0; N];
    SystemRandom::new()
        .fill(&mut octets)
        .map_err(|_| std::io::Error::other("no random numbers"))?;
    Ok(hex(&octets))
}

fn hex(octets: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 * octets.len());
    for octet in octets {
        // Writing to a string does not fail.
        let _ = write!(text, "{octet:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_digest_is_the_standard_one() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc"), expected);
    }

    #[test]
    fn random_names_differ() {
        let (a, b) = (random_hex::<16>().unwrap(), random_hex::<16>().unwrap());
        assert_eq!(a.len(), 32);
        assert_ne!(a, b);
    }
}
