//! Messages of generic netlink as octets: a header, attributes, attributes in attributes. No socket. Lengths
//! that do not fit end the reading.

/// `NLM_F_REQUEST | NLM_F_ACK`.
const REQUEST_ACK: u16 = 1 | 4;
/// Types of messages below those of families.
const ERROR: u16 = 2;
/// Bits of a type that are not its number.
const NUMBER: u16 = 0x3fff;
const NESTED: u16 = 0x8000;
/// Octets of the two headers.
const HEADER: usize = 16;
const GENERIC: usize = 4;

/// Attributes that are being written.
#[derive(Clone, Debug, Default)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds one.
    #[must_use]
    pub fn put(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Adds one that holds others.
    #[must_use]
    pub fn nest(self, kind: u16, inner: &Self) -> Self {
        self.put(kind | NESTED, &inner.0)
    }

    /// Adds a number.
    #[must_use]
    pub fn number(self, kind: u16, value: u32) -> Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Adds a text with the zero at its end.
    #[must_use]
    pub fn text(self, kind: u16, value: &str) -> Self {
        let octets = [value.as_bytes(), &[0]].concat();
        self.put(kind, &octets)
    }
}

/// A request that asks for an acknowledgment as well, so that every one has an end.
pub fn request(family: u16, command: u8, sequence: u32, attributes: &Attributes) -> Vec<u8> {
    let length = u32::try_from(HEADER + GENERIC + attributes.0.len()).unwrap_or(u32::MAX);
    let mut message = Vec::new();
    message.extend(length.to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend(REQUEST_ACK.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend([command, 1, 0, 0]);
    message.extend(&attributes.0);
    message
}

/// What came back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer<'a> {
    /// Attributes.
    Data(&'a [u8]),
    /// The end: 0, or an error number.
    End(i32),
}

/// Answers to one request in what was received.
pub fn answers(mut octets: &[u8], sequence: u32) -> Vec<Answer<'_>> {
    let mut found = Vec::new();
    while let (Some(length), Some(kind), Some(of)) =
        (u32_at(octets, 0), u16_at(octets, 4), u32_at(octets, 8))
    {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(message) = octets.get(HEADER..length) else {
            break;
        };
        if of == sequence {
            if kind == ERROR {
                let error = u32_at(message, 0).map_or(0, |e| e.cast_signed());
                found.push(Answer::End(error.saturating_neg()));
            } else if let Some(attributes) = message.get(GENERIC..) {
                found.push(Answer::Data(attributes));
            }
        }
        octets = octets.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

/// Attributes with their kinds.
pub fn each(mut octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, kind) = (usize::from(u16_at(octets, 0)?), u16_at(octets, 2)?);
        let value = octets.get(4..length)?;
        octets = octets.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & NUMBER, value))
    })
}

/// The first attribute of a kind.
pub fn find(octets: &[u8], kind: u16) -> Option<&[u8]> {
    each(octets)
        .find(|(k, _)| *k == kind)
        .map(|(_, value)| value)
}

/// A number of any of the usual lengths.
pub fn number(value: &[u8]) -> Option<u32> {
    match *value {
        [a] => Some(u32::from(a)),
        [a, b] => Some(u32::from(u16::from_ne_bytes([a, b]))),
        [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d])),
        _ => None,
    }
}

/// A text up to its zero.
pub fn text(value: &[u8]) -> String {
    let end = value.iter().position(|o| *o == 0).unwrap_or(value.len());
    String::from_utf8_lossy(value.get(..end).unwrap_or_default()).into_owned()
}

fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(octets.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(octets.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read_again() {
        let inner = Attributes::default().text(2, "eth0").number(3, 7);
        let message = request(
            40,
            4,
            9,
            &Attributes::default().nest(1, &inner).put(5, &[1]),
        );
        let found = answers(&message, 9);
        let [Answer::Data(attributes)] = found[..] else {
            panic!("{found:?}")
        };
        let inner = find(attributes, 1).unwrap();
        assert_eq!(text(find(inner, 2).unwrap()), "eth0");
        assert_eq!(number(find(inner, 3).unwrap()), Some(7));
        assert_eq!(find(attributes, 5).and_then(number), Some(1));
        assert!(answers(&message, 8).is_empty(), "of another request");
    }

    #[test]
    fn an_error_is_the_end() {
        let mut message = Vec::new();
        message.extend(36u32.to_ne_bytes());
        message.extend(ERROR.to_ne_bytes());
        message.extend([0, 0]);
        message.extend(5u32.to_ne_bytes());
        message.extend([0; 4]);
        message.extend((-95i32).to_ne_bytes());
        message.extend([0; 16]);
        assert_eq!(answers(&message, 5), [Answer::End(95)]);
    }

    proptest! {
        #[test]
        fn anything_is_read_without_harm(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
            for answer in answers(&octets, 0) {
                if let Answer::Data(attributes) = answer {
                    prop_assert!(each(attributes).count() <= 300);
                }
            }
            prop_assert!(each(&octets).count() <= 300);
        }
    }
}
