//! Taking big-endian fields off the front of octets.

use super::Fault;

/// By whose rules a message is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// By those for whoever writes it.
    Sent,
    /// By those for whoever gets it.
    Received,
}

/// The octets not read yet.
pub(super) struct Cursor<'a>(pub(super) &'a [u8], pub(super) Manner);

impl<'a> Cursor<'a> {
    pub(super) fn octets(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (front, rest) = self.0.split_at_checked(count).ok_or(Fault("too short"))?;
        self.0 = rest;
        Ok(front)
    }

    /// A field of `count` octets, at most eight.
    pub(super) fn field(&mut self, count: usize) -> Result<u64, Fault> {
        let octets = self.octets(count)?;
        Ok(octets.iter().fold(0, |all, o| all << 8 | u64::from(*o)))
    }

    pub(super) fn u8(&mut self) -> Result<u8, Fault> {
        Ok(self.field(1)? as u8)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Fault> {
        Ok(self.field(2)? as u16)
    }

    pub(super) fn u24(&mut self) -> Result<u32, Fault> {
        Ok(self.field(3)? as u32)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        Ok(self.field(4)? as u32)
    }

    /// A rule for senders that receivers do not enforce.
    pub(super) fn sender(&self, holds: bool, rule: &'static str) -> Result<(), Fault> {
        if holds || self.1 == Manner::Received {
            Ok(())
        } else {
            Err(Fault(rule))
        }
    }

    /// A reserved field: a sender sets it to zero.
    pub(super) fn reserved(&mut self, count: usize) -> Result<(), Fault> {
        let zero = self.field(count)? == 0;
        self.sender(zero, "reserved field not zero")
    }

    /// Nothing may follow.
    pub(super) fn end(&self) -> Result<(), Fault> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Fault("octets after the end"))
        }
    }

    /// A bitmap of `k` positions: whole words, bit j counted from the most significant bit of the first
    /// word, nothing set at or beyond k. Positions in ascending order.
    pub(super) fn bitmap(&mut self, k: u8) -> Result<Vec<u8>, Fault> {
        let words = usize::from(k).div_ceil(32);
        let mut positions = Vec::new();
        for word in 0..words {
            let bits = self.u32()?;
            for bit in 0..32 {
                if bits & (0x8000_0000 >> bit) != 0 {
                    let position = word * 32 + bit;
                    if position >= usize::from(k) {
                        return Err(Fault("bitmap padding not zero"));
                    }
                    positions.push(position as u8);
                }
            }
        }
        Ok(positions)
    }
}
