//! IP prefixes, and the VLAN or VXLAN context a packet is in.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use crem_wire::frame::Parsed;

/// A set of addresses of one family that share their first bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Prefix {
    bits: Bits,
    len: u8,
}

/// Network address and mask.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Bits {
    V4(u32, u32),
    V6(u128, u128),
}

impl Prefix {
    /// `None` if `len` exceeds the bits of the family. Bits of `address` behind the prefix are dropped.
    pub fn new(address: IpAddr, len: u8) -> Option<Self> {
        let bits = match address {
            IpAddr::V4(v4) => {
                let unused = 32u32.checked_sub(len.into())?;
                let mask = u32::MAX.checked_shl(unused).unwrap_or(0);
                Bits::V4(v4.to_bits() & mask, mask)
            }
            IpAddr::V6(v6) => {
                let unused = 128u32.checked_sub(len.into())?;
                let mask = u128::MAX.checked_shl(unused).unwrap_or(0);
                Bits::V6(v6.to_bits() & mask, mask)
            }
        };
        Some(Self { bits, len })
    }

    /// The prefix that holds one address.
    pub const fn host(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self {
                bits: Bits::V4(v4.to_bits(), u32::MAX),
                len: 32,
            },
            IpAddr::V6(v6) => Self {
                bits: Bits::V6(v6.to_bits(), u128::MAX),
                len: 128,
            },
        }
    }

    /// Whether the address is in it.
    #[inline]
    pub const fn contains(&self, address: IpAddr) -> bool {
        match (self.bits, address) {
            (Bits::V4(bits, mask), IpAddr::V4(v4)) => v4.to_bits() & mask == bits,
            (Bits::V6(bits, mask), IpAddr::V6(v6)) => v6.to_bits() & mask == bits,
            _ => false,
        }
    }

    /// Whether it holds one address only.
    pub const fn is_host(&self) -> bool {
        match self.bits {
            Bits::V4(_, mask) => mask == u32::MAX,
            Bits::V6(_, mask) => mask == u128::MAX,
        }
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        match self.bits {
            Bits::V4(bits, _) => Ipv4Addr::from_bits(bits).into(),
            Bits::V6(bits, _) => Ipv6Addr::from_bits(bits).into(),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(), self.len)
    }
}

/// A text is not an address with the length of a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAPrefix;

impl fmt::Display for NotAPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a prefix: expected ADDRESS/LENGTH or ADDRESS")
    }
}

impl core::error::Error for NotAPrefix {}

impl FromStr for Prefix {
    type Err = NotAPrefix;

    fn from_str(text: &str) -> Result<Self, NotAPrefix> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address = address.parse().map_err(|_| NotAPrefix)?;
        match len {
            None => Ok(Self::host(address)),
            Some(len) => {
                let len = len.parse().map_err(|_| NotAPrefix)?;
                Self::new(address, len).ok_or(NotAPrefix)
            }
        }
    }
}

/// The layer at which packets are looked at, and the network they belong to there (AMB-BTH-LAYER,
/// AMB-TENANT).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Encapsulation {
    /// On the wire, without a VLAN tag.
    Untagged,
    /// On the wire, with this one VLAN identifier.
    Vlan(u16),
    /// On the wire, with a service and a customer VLAN identifier.
    QinQ(u16, u16),
    /// On the wire, whatever its tags: only where identifiers do not part tenants.
    AnyTags,
    /// Inside VXLAN with this network identifier.
    Vxlan(u32),
}

impl Encapsulation {
    /// Whether a packet is in it.
    pub fn holds(&self, parsed: &Parsed) -> bool {
        if let Self::Vxlan(vni) = self {
            return parsed.tunnel.is_some_and(|tunnel| tunnel.vni == *vni);
        }
        let (Some(link), None) = (&parsed.link, &parsed.tunnel) else {
            return false;
        };
        match (self, link.tags.as_slice()) {
            (Self::AnyTags, _) | (Self::Untagged, []) => true,
            (Self::Vlan(vid), [tag]) => tag.vid() == *vid,
            (Self::QinQ(outer, inner), [first, second]) => {
                first.vid() == *outer && second.vid() == *inner
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn prefixes_hold_their_addresses() {
        let prefix: Prefix = "10.1.2.3/16".parse().unwrap();
        assert_eq!(prefix.to_string(), "10.1.0.0/16");
        assert!(prefix.contains("10.1.255.1".parse().unwrap()));
        assert!(!prefix.contains("10.2.0.1".parse().unwrap()));
        assert!(!prefix.is_host());
        let v6: Prefix = "2001:db8::/33".parse().unwrap();
        assert!(v6.contains("2001:db8:7fff::1".parse().unwrap()));
        assert!(!v6.contains("2001:db8:8000::1".parse().unwrap()));
        let host: Prefix = "192.0.2.1".parse().unwrap();
        assert!(host.is_host() && host.contains("192.0.2.1".parse().unwrap()));
        assert_eq!(Some(host), Prefix::new("192.0.2.1".parse().unwrap(), 32));
    }

    #[test]
    fn a_prefix_of_all_addresses_is_of_one_family() {
        let all: Prefix = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("255.255.255.255".parse().unwrap()));
        assert!(!all.contains("::".parse().unwrap()));
        assert!(
            !"::/0"
                .parse::<Prefix>()
                .unwrap()
                .contains("0.0.0.0".parse().unwrap())
        );
    }

    #[test]
    fn other_texts_are_none() {
        for text in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "10.0.0.0/-1",
            "10.0.0.0/",
        ] {
            assert_eq!(text.parse::<Prefix>(), Err(NotAPrefix), "{text}");
        }
    }
}
