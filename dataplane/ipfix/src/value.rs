//! Values of Information Elements and their octets (RFC 7011 section 6).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::element::DataType;

/// Seconds from 1900, the start of NTP era 0, to 1970.
const NTP_OFFSET: u64 = 2_208_988_800;

/// A value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// Unsigned integers.
    Unsigned(u64),
    /// Signed integers.
    Signed(i64),
    /// Numbers with a fraction.
    Float(f64),
    /// Truth values; `None` is neither 1 nor 2.
    Boolean(Option<bool>),
    /// A text, if it is UTF-8.
    Text(&'a str),
    /// Octets, of any type without a better form.
    Octets(&'a [u8]),
    /// Addresses.
    Address(IpAddr),
    /// Seconds since 1970.
    Seconds(u64),
    /// Milliseconds since 1970.
    Millis(u64),
    /// Nanoseconds since 1970, of NTP times.
    Nanos(u64),
}

impl<'a> Value<'a> {
    /// The value of a field of this type; octets that do not fit the type are kept as octets.
    pub fn decode(data_type: DataType, octets: &'a [u8]) -> Self {
        use DataType as T;
        let fixed = u16::try_from(octets.len()).is_ok_and(|length| data_type.fits(length));
        if !fixed {
            return Self::Octets(octets);
        }
        match data_type {
            T::Unsigned8 | T::Unsigned16 | T::Unsigned32 | T::Unsigned64 => {
                Self::Unsigned(unsigned(octets))
            }
            T::Signed8 | T::Signed16 | T::Signed32 | T::Signed64 => Self::Signed(signed(octets)),
            T::Float32 | T::Float64 => match *octets {
                [a, b, c, d] => Self::Float(f64::from(f32::from_be_bytes([a, b, c, d]))),
                _ => Self::Float(f64::from_bits(unsigned(octets))),
            },
            T::Boolean => Self::Boolean(match octets {
                [1] => Some(true),
                [2] => Some(false),
                _ => None,
            }),
            T::String => match std::str::from_utf8(octets) {
                Ok(text) => Self::Text(text),
                Err(_) => Self::Octets(octets),
            },
            T::DateTimeSeconds => Self::Seconds(unsigned(octets)),
            T::DateTimeMilliseconds => Self::Millis(unsigned(octets)),
            T::DateTimeMicroseconds | T::DateTimeNanoseconds => {
                Self::Nanos(from_ntp(unsigned(octets)))
            }
            T::Ipv4Address => match *octets {
                [a, b, c, d] => Self::Address(Ipv4Addr::new(a, b, c, d).into()),
                _ => Self::Octets(octets),
            },
            T::Ipv6Address => match <[u8; 16]>::try_from(octets) {
                Ok(octets) => Self::Address(Ipv6Addr::from(octets).into()),
                Err(_) => Self::Octets(octets),
            },
            T::OctetArray
            | T::MacAddress
            | T::BasicList
            | T::SubTemplateList
            | T::SubTemplateMultiList => Self::Octets(octets),
        }
    }

    /// The value if it is an unsigned integer or a time, in the unit of its type.
    pub const fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::Unsigned(value)
            | Self::Seconds(value)
            | Self::Millis(value)
            | Self::Nanos(value) => Some(value),
            _ => None,
        }
    }

    /// Appends a value as a field of this type and length; `false`, and nothing appended, if it does not
    /// fit without losing something. A variable length (65535) gets its prefix.
    #[must_use]
    pub fn encode(&self, data_type: DataType, length: u16, out: &mut Vec<u8>) -> bool {
        if length == crate::template::VARIABLE {
            return self.encode_variable(data_type, out);
        }
        let length = usize::from(length);
        let number = match *self {
            Self::Unsigned(value) | Self::Seconds(value) | Self::Millis(value) => value,
            Self::Nanos(nanos) => to_ntp(nanos),
            Self::Boolean(Some(value)) => 2 - u64::from(value),
            Self::Float(value) if length == 4 => u64::from((value as f32).to_bits()),
            Self::Float(value) => value.to_bits(),
            Self::Signed(value) => return encode_signed(value, length, out),
            Self::Boolean(None) => return false,
            Self::Text(text) => return encode_octets(text.as_bytes(), length, out),
            Self::Octets(octets) => return encode_octets(octets, length, out),
            Self::Address(IpAddr::V4(v4)) => return encode_octets(&v4.octets(), length, out),
            Self::Address(IpAddr::V6(v6)) => return encode_octets(&v6.octets(), length, out),
        };
        encode_unsigned(number, length, out)
    }

    fn encode_variable(&self, data_type: DataType, out: &mut Vec<u8>) -> bool {
        let octets = match self {
            Self::Text(text) if data_type == DataType::String => text.as_bytes(),
            Self::Octets(octets) if data_type.size().is_none() => octets,
            _ => return false,
        };
        let Ok(length) = u16::try_from(octets.len()) else {
            return false;
        };
        write_variable(octets, length, out);
        true
    }
}

/// Appends octets behind a length of one octet, or of three from 255 on.
fn write_variable(octets: &[u8], length: u16, out: &mut Vec<u8>) {
    match u8::try_from(length) {
        Ok(short) if short < 255 => out.push(short),
        _ => {
            out.push(255);
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
    out.extend_from_slice(octets);
}

fn encode_octets(octets: &[u8], length: usize, out: &mut Vec<u8>) -> bool {
    let fits = octets.len() == length;
    if fits {
        out.extend_from_slice(octets);
    }
    fits
}

fn encode_unsigned(value: u64, length: usize, out: &mut Vec<u8>) -> bool {
    let octets = value.to_be_bytes();
    let Some((front, rest)) = octets
        .len()
        .checked_sub(length)
        .map(|at| octets.split_at(at))
    else {
        return false;
    };
    let fits = front.iter().all(|octet| *octet == 0) && length > 0;
    if fits {
        out.extend_from_slice(rest);
    }
    fits
}

fn encode_signed(value: i64, length: usize, out: &mut Vec<u8>) -> bool {
    let bits = 8 * length as u32;
    if length == 0 || length > 8 || (bits < 64 && (value << (64 - bits)) >> (64 - bits) != value) {
        return false;
    }
    out.extend_from_slice(&value.to_be_bytes()[8 - length..]);
    true
}

/// Big-endian octets, at most eight, as a number.
pub(crate) fn unsigned(octets: &[u8]) -> u64 {
    octets
        .iter()
        .fold(0, |value, octet| value << 8 | u64::from(*octet))
}

fn signed(octets: &[u8]) -> i64 {
    let unused = 64 - 8 * (octets.len().clamp(1, 8) as u32);
    ((unsigned(octets) << unused) as i64) >> unused
}

/// NTP time of nanoseconds since 1970, the era left out. The fraction is rounded up: whoever cuts it off
/// again then has the same nanosecond.
pub const fn to_ntp(nanos: u64) -> u64 {
    let seconds = (nanos / 1_000_000_000 + NTP_OFFSET) & 0xffff_ffff;
    let fraction = ((nanos % 1_000_000_000) << 32).div_ceil(1_000_000_000);
    seconds << 32 | fraction
}

/// Nanoseconds since 1970 of an NTP time. Times before 1970 in era 0 are of era 1, from 2036 on.
pub const fn from_ntp(ntp: u64) -> u64 {
    let seconds = ntp >> 32;
    let seconds = if seconds < NTP_OFFSET {
        seconds + (1 << 32)
    } else {
        seconds
    } - NTP_OFFSET;
    seconds * 1_000_000_000 + (((ntp & 0xffff_ffff) * 1_000_000_000) >> 32)
}

#[cfg(test)]
mod tests;
