//! Messages out of a stream of octets (RFC 7011 section 10.4.3), as TCP, TLS and files carry them: the
//! Length of each is all that parts them.

use crate::decode::{DecodeError, HEADER_LEN, VERSION};

/// Octets of a stream that are not yet a whole message.
#[derive(Clone, Debug, Default)]
pub struct Deframer {
    octets: Vec<u8>,
    /// Octets in front that were taken out.
    taken: usize,
}

impl Deframer {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends octets of the stream. No more are kept than one message and what is given here.
    pub fn push(&mut self, octets: &[u8]) {
        self.octets.drain(..self.taken);
        self.taken = 0;
        self.octets.extend_from_slice(octets);
    }

    /// The next whole message; `None` if more octets are needed.
    ///
    /// # Errors
    /// `Version` or `Length`: the stream is not IPFIX from here on and cannot be taken up again.
    pub fn message(&mut self) -> Result<Option<&[u8]>, DecodeError> {
        let rest = self.octets.get(self.taken..).unwrap_or_default();
        let Some([v0, v1, l0, l1]) = rest.first_chunk::<4>() else {
            return Ok(None);
        };
        let version = u16::from_be_bytes([*v0, *v1]);
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let length = u16::from_be_bytes([*l0, *l1]);
        if usize::from(length) < HEADER_LEN {
            return Err(DecodeError::Length(length, rest.len()));
        }
        let Some(message) = rest.get(..usize::from(length)) else {
            return Ok(None);
        };
        self.taken += usize::from(length);
        Ok(Some(message))
    }

    /// Whether the stream ends within a message.
    pub fn is_partial(&self) -> bool {
        self.taken < self.octets.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn message(body: &[u8]) -> Vec<u8> {
        let mut octets = vec![0, 10];
        octets.extend_from_slice(&(16 + body.len() as u16).to_be_bytes());
        octets.extend_from_slice(&[0; 12]);
        octets.extend_from_slice(body);
        octets
    }

    proptest! {
        #[test]
        fn messages_come_out_whole_however_they_are_cut(
            bodies in proptest::collection::vec(any::<Vec<u8>>(), 1..8),
            cuts in proptest::collection::vec(1..40usize, 1..20),
        ) {
            let messages: Vec<Vec<u8>> = bodies.iter().map(|body| message(body)).collect();
            let stream = messages.concat();
            let mut deframer = Deframer::new();
            let (mut found, mut at) = (Vec::new(), 0);
            for cut in cuts.iter().cycle() {
                let end = (at + cut).min(stream.len());
                deframer.push(&stream[at..end]);
                at = end;
                while let Some(message) = deframer.message().unwrap() {
                    found.push(message.to_vec());
                }
                if at == stream.len() {
                    break;
                }
            }
            prop_assert_eq!(found, messages);
            prop_assert!(!deframer.is_partial());
        }
    }

    #[test]
    fn what_is_not_ipfix_ends_the_stream() {
        let mut deframer = Deframer::new();
        deframer.push(&[0, 9, 0, 16]);
        assert_eq!(deframer.message(), Err(DecodeError::Version(9)));
        let mut deframer = Deframer::new();
        deframer.push(&[0, 10, 0, 15, 1]);
        assert_eq!(deframer.message(), Err(DecodeError::Length(15, 5)));
        assert!(deframer.is_partial());
    }
}
