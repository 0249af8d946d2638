//! Octet strings as the caller holds them: in one piece or in several. Nothing is copied here.

/// An octet string in the caller's buffers.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// In one piece.
    Whole(&'a [u8]),
    /// In consecutive pieces; empty ones are allowed.
    Parts(&'a [&'a [u8]]),
}

impl<'a> Payload<'a> {
    /// Octets in all.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(octets) => octets.len(),
            Self::Parts(parts) => total(parts),
        }
    }

    /// Whether there is no octet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first piece that is not empty; empty if there is none.
    pub(crate) fn first_piece(&self) -> &'a [u8] {
        match *self {
            Self::Whole(octets) => octets,
            Self::Parts(_) => self.pieces().next().map_or(&[], |(_, piece)| piece),
        }
    }

    /// The non-empty pieces, each with its offset in the string.
    pub fn pieces(&self) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let (whole, parts): (&'a [u8], &'a [&'a [u8]]) = match *self {
            Self::Whole(octets) => (octets, &[]),
            Self::Parts(parts) => (&[], parts),
        };
        let mut offset = 0;
        core::iter::once(whole)
            .chain(parts.iter().copied())
            .filter(|piece| !piece.is_empty())
            .map(move |piece| {
                let at = offset;
                offset += piece.len();
                (at, piece)
            })
    }
}

/// Octets of all parts; apart, so that the usual case stays small where it is inlined.
#[cold]
fn total(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(octets: &'a [u8]) -> Self {
        Self::Whole(octets)
    }
}

/// A source packet: the UDP payload P at its position in the block. Its symbol is
/// S = uint16(len(P)) || P || zeros to T octets; prefix and zeros are never stored.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Position j in the block.
    pub position: u8,
    /// P.
    pub payload: Payload<'a>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_carry_their_offsets() {
        let parts: [&[u8]; 4] = [b"", b"ab", b"", b"cde"];
        let payload = Payload::Parts(&parts);
        assert_eq!(payload.len(), 5);
        assert!(payload.pieces().eq([(0, &b"ab"[..]), (2, &b"cde"[..])]));
        assert!(Payload::Whole(b"xy").pieces().eq([(0, &b"xy"[..])]));
        assert!(Payload::Whole(b"").is_empty());
    }
}
