//! PSNs counted without wrap. Endpoints work on serials; packets carry the low 24 bits.

/// A PSN that does not wrap: PSN plus a multiple of 2^24.
pub type Serial = u64;

const MODULUS: u64 = 1 << 24;

/// The serial nearest to `near` whose low 24 bits are `psn`.
pub fn unwrap_psn(psn: u32, near: Serial) -> Serial {
    let ahead = (u64::from(psn).wrapping_sub(near)) & (MODULUS - 1);
    if ahead < MODULUS / 2 {
        near + ahead
    } else {
        (near + ahead).saturating_sub(MODULUS)
    }
}

/// The 24 bits of a serial that go on the wire.
pub(super) fn psn_of(serial: Serial) -> u32 {
    (serial & (MODULUS - 1)) as u32
}
