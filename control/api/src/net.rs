//! Address types of the documents: prefixes and MAC addresses, with their text forms.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Text that is not the address it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAnAddress;

impl fmt::Display for NotAnAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an address of the expected form")
    }
}

impl std::error::Error for NotAnAddress {}

/// An IP prefix: an address and the number of its leading bits that count. The other bits are kept, so
/// that `192.0.2.1/24` can also stand for an interface address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// What every text form of one looks like; not everything that looks like it is one.
    pub(crate) const PATTERN: &'static str = "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$";

    /// `None` if `length` exceeds the bits of the address.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        (length <= bits(address)).then_some(Self { address, length })
    }

    /// The address with all its bits.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Number of leading bits that count.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Whether `address` is of the same family and has the same leading bits.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX
                    .checked_shl(32 - u32::from(self.length))
                    .unwrap_or(0);
                (u32::from(own) ^ u32::from(other)) & mask == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.length))
                    .unwrap_or(0);
                (u128::from(own) ^ u128::from(other)) & mask == 0
            }
            _ => false,
        }
    }

    /// Whether an address exists that both contain.
    pub fn overlaps(&self, other: &Prefix) -> bool {
        self.contains(other.address) && self.length <= other.length
            || other.contains(self.address) && other.length <= self.length
    }

    /// Whether the address can be that of a station on this prefix: neither unspecified, multicast,
    /// loopback, IPv6 link-local, nor the network's own or its broadcast address.
    pub fn is_station(&self) -> bool {
        match self.address {
            IpAddr::V4(a) => {
                let host = u32::MAX.checked_shr(u32::from(self.length)).unwrap_or(0);
                let bits = u32::from(a) & host;
                // Prefixes of 31 and 32 bits have neither.
                let plain = self.length >= 31 || (bits != 0 && bits != host);
                plain
                    && !(a.is_unspecified()
                        || a.is_multicast()
                        || a.is_loopback()
                        || a.is_broadcast())
            }
            IpAddr::V6(a) => {
                !(a.is_unspecified()
                    || a.is_multicast()
                    || a.is_loopback()
                    || a.is_unicast_link_local())
            }
        }
    }

    /// Whether no bit beyond the length is set.
    pub fn is_network(&self) -> bool {
        match self.address {
            IpAddr::V4(a) => {
                u32::from(a)
                    .checked_shl(u32::from(self.length))
                    .unwrap_or(0)
                    == 0
            }
            IpAddr::V6(a) => {
                u128::from(a)
                    .checked_shl(u32::from(self.length))
                    .unwrap_or(0)
                    == 0
            }
        }
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl FromStr for Prefix {
    type Err = NotAnAddress;

    /// `192.0.2.0/24`, `2001:db8::/32`; an address alone is a host.
    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotAnAddress)?;
        let length = match length {
            Some(length) if length.bytes().all(|b| b.is_ascii_digit()) => {
                length.parse().map_err(|_| NotAnAddress)?
            }
            Some(_) => return Err(NotAnAddress),
            None => bits(address),
        };
        Self::new(address, length).ok_or(NotAnAddress)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// A 48-bit Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Whether it can name one station: not a group address and not all zero.
    pub fn is_station(&self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl FromStr for MacAddr {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts
                .next()
                .filter(|p| is_hex_octet(p))
                .ok_or(NotAnAddress)?;
            *octet = u8::from_str_radix(part, 16).map_err(|_| NotAnAddress)?;
        }
        if parts.next().is_some() {
            Err(NotAnAddress)
        } else {
            Ok(Self(octets))
        }
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

fn is_hex_octet(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

macro_rules! serde_as_text {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    };
}
serde_as_text!(Prefix);
serde_as_text!(MacAddr);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn prefixes_contain_by_leading_bits() {
        assert!(prefix("10.0.1.0/24").contains("10.0.1.255".parse().unwrap()));
        assert!(!prefix("10.0.1.0/24").contains("10.0.2.0".parse().unwrap()));
        assert!(prefix("0.0.0.0/0").contains("203.0.113.9".parse().unwrap()));
        assert!(!prefix("0.0.0.0/0").contains("2001:db8::1".parse().unwrap()));
        assert!(prefix("::/0").contains("2001:db8::1".parse().unwrap()));
        assert!(prefix("192.0.2.1").contains("192.0.2.1".parse().unwrap()));
        assert!(!prefix("192.0.2.1").contains("192.0.2.0".parse().unwrap()));
    }

    #[test]
    fn overlap_is_symmetric() {
        let (wide, narrow, other) = (
            prefix("10.0.0.0/8"),
            prefix("10.1.0.0/16"),
            prefix("11.0.0.0/8"),
        );
        assert!(wide.overlaps(&narrow) && narrow.overlaps(&wide));
        assert!(!wide.overlaps(&other) && !other.overlaps(&narrow));
    }

    #[test]
    fn host_bits_are_seen() {
        assert!(prefix("10.0.1.0/24").is_network());
        assert!(!prefix("10.0.1.7/24").is_network());
        assert!(prefix("2001:db8::/32").is_network());
        assert!(prefix("10.0.1.7/32").is_network());
        assert!(prefix("0.0.0.0/0").is_network());
    }

    #[test]
    fn stations_are_told_from_other_addresses() {
        for text in [
            "192.0.2.1/24",
            "192.0.2.0/31",
            "192.0.2.255/32",
            "2001:db8::1/64",
        ] {
            assert!(prefix(text).is_station(), "{text}");
        }
        for text in [
            "192.0.2.0/24",
            "192.0.2.255/24",
            "127.0.0.1/8",
            "255.255.255.255/32",
            "0.0.0.0/0",
            "224.0.0.1/32",
            "fe80::1/64",
            "::1/128",
            "ff02::1/128",
            "::/0",
        ] {
            assert!(!prefix(text).is_station(), "{text}");
        }
    }

    #[test]
    fn bad_text_is_refused() {
        for text in [
            "10.0.0.0/33",
            "10.0.0/8",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "::/129",
            "",
            "x/8",
        ] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
        for text in [
            "02:00:00:00:00",
            "02:00:00:00:00:0g",
            "02:00:00:00:00:+1",
            "2:0:0:0:0:1",
            "02:00:00:00:00:01:02",
        ] {
            assert!(text.parse::<MacAddr>().is_err(), "{text}");
        }
    }

    #[test]
    fn text_forms_round_trip() {
        assert_eq!(prefix("2001:db8::/32").to_string(), "2001:db8::/32");
        assert_eq!(
            "02:0a:ff:00:10:01".parse::<MacAddr>().unwrap().to_string(),
            "02:0a:ff:00:10:01"
        );
    }
}
