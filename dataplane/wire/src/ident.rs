//! Solving for the IPv4 Identification of a packet from its ICRC (AMB-IPID).
//!
//! CRC-32 is linear over GF(2): changing the two Identification octets by a pattern I changes the CRC
//! by I·x^(8n+32) modulo the CRC polynomial, n being the covered octets behind them. The polynomial has
//! a constant term, so x has an inverse and the pattern is the CRC difference times x^-(8n+32); it is a
//! solution exactly if it fits in sixteen bits. Whether a solution may be believed is `rebuild`'s
//! business.

use crate::icrc;
use crate::roce::ICRC_LEN;

/// The CRC-32 polynomial without x^32, coefficients of x^0 first (bit 31).
const POLYNOMIAL: u32 = 0xedb8_8320;
/// The polynomial 1.
const ONE: u32 = 1 << 31;
/// Offset of the Identification in an IPv4 header.
const IDENT_OFFSET: usize = 4;

/// x^-(8·2^i) modulo the CRC polynomial.
const INVERSE_SHIFTS: [u32; 16] = inverse_shifts();

/// a·b modulo the CRC polynomial.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = ONE;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        // b·x: the coefficient of x^31, bit 0, becomes x^32, which is the polynomial.
        b = if b & 1 != 0 {
            b >> 1 ^ POLYNOMIAL
        } else {
            b >> 1
        };
        bit >>= 1;
    }
    product
}

const fn inverse_shifts() -> [u32; 16] {
    // x^-1 = (P(x) - 1) / x, with the x^31 that stands for P's leading term.
    let inverse_x = (POLYNOMIAL ^ ONE) << 1 | 1;
    let mut power = inverse_x;
    let mut doubled = 0;
    while doubled < 3 {
        power = multiply(power, power);
        doubled += 1;
    }
    let mut table = [0; 16];
    let mut i = 0;
    while i < table.len() {
        table[i] = power;
        power = multiply(power, power);
        i += 1;
    }
    table
}

/// `value`·x^-(8·`octets`) modulo the CRC polynomial, for up to 65,535 octets.
fn shift_back(mut value: u32, octets: u16) -> u32 {
    for (i, power) in INVERSE_SHIFTS.iter().enumerate() {
        if octets >> i & 1 == 1 {
            value = multiply(*power, value);
        }
    }
    value
}

/// The change of an Identification that changes an ICRC from `computed` to `wanted` (octets as on the
/// wire), with `octets_behind` covered octets behind the Identification; `None` if there is none. XOR
/// it to the Identification that `computed` was computed with.
pub fn solve_difference(
    computed: [u8; ICRC_LEN],
    wanted: [u8; ICRC_LEN],
    octets_behind: u16,
) -> Option<u16> {
    let difference = u32::from_le_bytes(computed) ^ u32::from_le_bytes(wanted);
    let pattern = shift_back(shift_back(difference, octets_behind), 4);
    // The coefficients of x^16 and above are the low half. Of the rest the first octet on the wire is
    // the lower one.
    if pattern & 0xffff != 0 {
        return None;
    }
    let [second, first, _, _] = pattern.to_be_bytes();
    Some(u16::from_be_bytes([first, second]))
}

/// The Identification with which the ICRC of an IPv4 packet verifies, whatever Identification the
/// packet has now; there is at most one. `None` if there is none or the packet is not IPv4 with room
/// for UDP header, BTH and ICRC. `udp_offset` is the offset of the UDP header in the packet.
pub fn solve(packet: &[u8], udp_offset: usize) -> Option<u16> {
    if packet.first()? >> 4 != 4 {
        return None;
    }
    let computed = icrc::compute(packet, udp_offset)?;
    let wanted = *packet.last_chunk::<ICRC_LEN>()?;
    let present = packet.get(IDENT_OFFSET..)?.first_chunk::<2>()?;
    let behind = u16::try_from(packet.len() - ICRC_LEN - IDENT_OFFSET - 2).ok()?;
    Some(u16::from_be_bytes(*present) ^ solve_difference(computed, wanted, behind)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn inverse_of_x_is_an_inverse() {
        assert_eq!(multiply(ONE >> 1, (POLYNOMIAL ^ ONE) << 1 | 1), ONE);
        // x^8 is bit 23.
        assert_eq!(multiply(1 << 23, INVERSE_SHIFTS[0]), ONE);
    }

    fn packet(ident: u16, payload: &[u8]) -> Vec<u8> {
        let total = (28 + payload.len()) as u16;
        let mut packet = vec![
            0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet[4..6].copy_from_slice(&ident.to_be_bytes());
        packet.extend_from_slice(&[0xc0, 0, 0x12, 0xb7]);
        packet.extend_from_slice(&(total - 20).to_be_bytes());
        packet.extend_from_slice(&[0, 0]);
        packet.extend_from_slice(payload);
        assert!(icrc::write(&mut packet, 20));
        packet
    }

    proptest! {
        #[test]
        fn finds_what_was_used(ident: u16, other: u16, payload in prop::collection::vec(any::<u8>(), 16..5000)) {
            let mut packet = packet(ident, &payload);
            packet[4..6].copy_from_slice(&other.to_be_bytes());
            prop_assert_eq!(solve(&packet, 20), Some(ident));
        }

        #[test]
        fn never_panics(packet in prop::collection::vec(any::<u8>(), 0..200), udp_offset in 0usize..100) {
            if let Some(ident) = solve(&packet, udp_offset) {
                let mut packet = packet;
                packet[4..6].copy_from_slice(&ident.to_be_bytes());
                prop_assert!(icrc::verify(&packet, udp_offset));
            }
        }
    }

    #[test]
    fn one_damaged_bit_has_no_solution() {
        let good = packet(0x1234, &[0x5a; 64]);
        // Behind the Identification every single bit is too far away to look like one.
        for bit in 28 * 8..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let masked = bit / 8 == 32;
            assert_eq!(solve(&bad, 20), masked.then_some(0x1234), "bit {bit}");
        }
    }
}
