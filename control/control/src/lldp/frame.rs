//! What an LLDP frame says (IEEE 802.1AB-2016 section 8). Anything may stand in it: no length is believed, and
//! texts are made fit to be shown.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crem_api::MacAddr;
use crem_api::rest::LldpNeighbour;

/// Characters of a text that are kept.
const MAX_TEXT: usize = 255;
/// Management addresses that are kept.
const MAX_ADDRESSES: usize = 16;

/// Kinds of TLVs (table 8-1).
mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const CHASSIS: u8 = 1;
    pub(super) const PORT: u8 = 2;
    pub(super) const TTL: u8 = 3;
    pub(super) const PORT_DESCRIPTION: u8 = 4;
    pub(super) const SYSTEM_NAME: u8 = 5;
    pub(super) const SYSTEM_DESCRIPTION: u8 = 6;
    pub(super) const CAPABILITIES: u8 = 7;
    pub(super) const ADDRESS: u8 = 8;
    pub(super) const ORGANISATION: u8 = 127;
}

/// Names of the bits of capabilities (table 8-4).
const CAPABILITIES: [&str; 11] = [
    "other",
    "repeater",
    "bridge",
    "access_point",
    "router",
    "telephone",
    "docsis",
    "station",
    "c_vlan",
    "s_vlan",
    "relay",
];
/// IEEE 802.1 and 802.3 as makers of TLVs.
const IEEE_802_1: [u8; 3] = [0x00, 0x80, 0xc2];
const IEEE_802_3: [u8; 3] = [0x00, 0x12, 0x0f];

/// Why a frame says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// A TLV is longer than the frame.
    Truncated,
    /// The first three are not chassis, port and time to live, in this order and each once.
    Order,
    /// An id is empty or has no known form, or the time to live has not two octets.
    Mandatory,
}

/// A frame: who says it, and for how many seconds it holds; 0 is a farewell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// The neighbour, without the interface and the time that is left.
    pub neighbour: LldpNeighbour,
    /// Seconds.
    pub ttl_s: u16,
}

struct Tlvs<'a>(&'a [u8]);

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<(u8, &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let Some((&[a, b], rest)) = self.0.split_first_chunk::<2>() else {
            self.0 = &[];
            return Some(Err(Malformed::Truncated));
        };
        let length = usize::from(a & 1) << 8 | usize::from(b);
        let Some((value, rest)) = rest.split_at_checked(length) else {
            self.0 = &[];
            return Some(Err(Malformed::Truncated));
        };
        self.0 = rest;
        Some(Ok((a >> 1, value)))
    }
}

/// Reads what follows the Ethertype.
///
/// # Errors
/// [`Malformed`]; the frame is dropped as a whole then, as section 9.2.8 asks for.
pub fn parse(payload: &[u8]) -> Result<Said, Malformed> {
    let mut tlvs = Tlvs(payload);
    let mut mandatory = |wanted: u8| match tlvs.next() {
        Some(Ok((kind, value))) if kind == wanted => Ok(value),
        Some(Err(malformed)) => Err(malformed),
        _ => Err(Malformed::Order),
    };
    let (chassis_kind, chassis) = chassis(mandatory(kind::CHASSIS)?)?;
    let (port_kind, port) = port(mandatory(kind::PORT)?)?;
    let ttl: [u8; 2] = mandatory(kind::TTL)?
        .get(..2)
        .and_then(|v| v.try_into().ok())
        .ok_or(Malformed::Mandatory)?;
    let mut neighbour = LldpNeighbour {
        chassis_kind: chassis_kind.to_owned(),
        chassis,
        port_kind: port_kind.to_owned(),
        port,
        ..LldpNeighbour::default()
    };
    for tlv in tlvs {
        match tlv? {
            (kind::END, _) => break,
            (kind::CHASSIS | kind::PORT | kind::TTL, _) => return Err(Malformed::Order),
            (kind, value) => optional(&mut neighbour, kind, value),
        }
    }
    Ok(Said {
        neighbour,
        ttl_s: u16::from_be_bytes(ttl),
    })
}

/// Takes what is understood; the rest is none of our business.
fn optional(neighbour: &mut LldpNeighbour, kind: u8, value: &[u8]) {
    match kind {
        kind::PORT_DESCRIPTION => neighbour.port_description = Some(text(value)),
        kind::SYSTEM_NAME => neighbour.system_name = Some(text(value)),
        kind::SYSTEM_DESCRIPTION => neighbour.system_description = Some(text(value)),
        kind::CAPABILITIES => {
            if let [_, _, high, low, ..] = value {
                neighbour.capabilities = capabilities(u16::from_be_bytes([*high, *low]));
            }
        }
        kind::ADDRESS => {
            let found = value.split_first().and_then(|(length, rest)| {
                let (subtype, octets) = rest.get(..usize::from(*length))?.split_first()?;
                ip(*subtype, octets)
            });
            if let Some(address) = found
                && neighbour.addresses.len() < MAX_ADDRESSES
            {
                neighbour.addresses.push(address);
            }
        }
        kind::ORGANISATION => organisation(neighbour, value),
        _ => {}
    }
}

fn organisation(neighbour: &mut LldpNeighbour, value: &[u8]) {
    let Some((maker, rest)) = value.split_first_chunk::<3>() else {
        return;
    };
    match (*maker, rest) {
        // Port VLAN ID (802.1Q annex D.2.1).
        (IEEE_802_1, [1, high, low, ..]) => {
            let vlan = u16::from_be_bytes([*high, *low]);
            neighbour.vlan = (vlan != 0).then_some(vlan);
        }
        // Maximum frame size (802.3 clause 79.3.4).
        (IEEE_802_3, [4, high, low, ..]) => {
            neighbour.max_frame = Some(u16::from_be_bytes([*high, *low]));
        }
        _ => {}
    }
}

/// Table 8-2.
fn chassis(value: &[u8]) -> Result<(&'static str, String), Malformed> {
    match value.split_first() {
        Some((subtype, id)) if !id.is_empty() => match subtype {
            1 => Ok(("component", text(id))),
            2 => Ok(("interface_alias", text(id))),
            3 => Ok(("port_component", text(id))),
            4 => mac(id).map(|mac| ("mac", mac)),
            5 => address(id).map(|address| ("address", address)),
            6 => Ok(("interface_name", text(id))),
            7 => Ok(("local", text(id))),
            _ => Err(Malformed::Mandatory),
        },
        _ => Err(Malformed::Mandatory),
    }
}

/// Table 8-3.
fn port(value: &[u8]) -> Result<(&'static str, String), Malformed> {
    match value.split_first() {
        Some((subtype, id)) if !id.is_empty() => match subtype {
            1 => Ok(("interface_alias", text(id))),
            2 => Ok(("port_component", text(id))),
            3 => mac(id).map(|mac| ("mac", mac)),
            4 => address(id).map(|address| ("address", address)),
            5 => Ok(("interface_name", text(id))),
            6 => Ok(("circuit", text(id))),
            7 => Ok(("local", text(id))),
            _ => Err(Malformed::Mandatory),
        },
        _ => Err(Malformed::Mandatory),
    }
}

fn mac(id: &[u8]) -> Result<String, Malformed> {
    let octets: [u8; 6] = id.try_into().map_err(|_| Malformed::Mandatory)?;
    Ok(MacAddr(octets).to_string())
}

fn address(id: &[u8]) -> Result<String, Malformed> {
    let (family, octets) = id.split_first().ok_or(Malformed::Mandatory)?;
    let address = ip(*family, octets).ok_or(Malformed::Mandatory)?;
    Ok(address.to_string())
}

/// By the number of the address family of IANA.
fn ip(family: u8, octets: &[u8]) -> Option<IpAddr> {
    match family {
        1 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?).into()),
        2 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).into()),
        _ => None,
    }
}

fn capabilities(bits: u16) -> Vec<String> {
    let named = CAPABILITIES.iter().enumerate();
    named
        .filter(|(bit, _)| bits >> bit & 1 == 1)
        .map(|(_, name)| (*name).to_owned())
        .collect()
}

/// Whoever sent it does not get to control a terminal.
fn text(octets: &[u8]) -> String {
    let text = String::from_utf8_lossy(octets);
    let shown = text.trim_end_matches('\0').chars().take(MAX_TEXT);
    shown
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len()).unwrap();
        let head = u16::from(kind) << 9 | length;
        [&head.to_be_bytes()[..], value].concat()
    }

    pub(crate) fn frame(ttl: u16, more: &[(u8, &[u8])]) -> Vec<u8> {
        let mut frame = tlv(1, b"\x04\x02\0\0\0\0\x01");
        frame.extend(tlv(2, b"\x05Ethernet1/7"));
        frame.extend(tlv(3, &ttl.to_be_bytes()));
        for (kind, value) in more {
            frame.extend(tlv(*kind, value));
        }
        frame.extend(tlv(0, b""));
        frame
    }

    #[test]
    fn a_switch_says_what_it_is() {
        let octets = frame(
            120,
            &[
                (4, b"to the \x1b[31mgateway\0"),
                (5, b"leaf-1"),
                (7, &[0, 0x14, 0, 0x14]),
                (8, b"\x05\x01\xc0\0\x02\x09\x02\0\0\0\x01\0"),
                (127, b"\0\x80\xc2\x01\0\x64"),
                (127, b"\0\x12\x0f\x04\x23\xee"),
                (127, b"\0"),
                (99, b"unknown"),
            ],
        );
        let said = parse(&octets).unwrap();
        let n = &said.neighbour;
        assert_eq!(said.ttl_s, 120);
        assert_eq!(
            (n.chassis_kind.as_str(), n.chassis.as_str()),
            ("mac", "02:00:00:00:00:01")
        );
        assert_eq!(
            (n.port_kind.as_str(), n.port.as_str()),
            ("interface_name", "Ethernet1/7")
        );
        assert_eq!(n.port_description.as_deref(), Some("to the  [31mgateway"));
        assert_eq!(n.system_name.as_deref(), Some("leaf-1"));
        assert_eq!(n.capabilities, ["bridge", "router"]);
        assert_eq!(n.addresses, ["192.0.2.9".parse::<IpAddr>().unwrap()]);
        assert_eq!((n.vlan, n.max_frame), (Some(100), Some(9198)));
        // Padding follows the end.
        let padded = [octets, vec![0xff; 20]].concat();
        assert_eq!(parse(&padded).unwrap(), said);
    }

    #[test]
    fn what_lacks_a_mandatory_part_says_nothing() {
        let (chassis, port, ttl) = (tlv(1, b"\x07a"), tlv(2, b"\x07b"), tlv(3, &[0, 1]));
        let all = |parts: &[&Vec<u8>]| {
            parts
                .iter()
                .flat_map(|p| p.iter().copied())
                .collect::<Vec<_>>()
        };
        assert!(parse(&all(&[&chassis, &port, &ttl])).is_ok());
        for (parts, why) in [
            (vec![], Malformed::Order),
            (vec![&port, &chassis, &ttl], Malformed::Order),
            (vec![&chassis, &port], Malformed::Order),
            (vec![&chassis, &port, &ttl, &ttl], Malformed::Order),
        ] {
            assert_eq!(parse(&all(&parts)), Err(why));
        }
        for wrong in [
            tlv(1, b""),
            tlv(1, b"\x07"),
            tlv(1, b"\x04abc"),
            tlv(1, b"\x09a"),
            tlv(1, b"\x05\x01ab"),
        ] {
            assert_eq!(
                parse(&all(&[&wrong, &port, &ttl])),
                Err(Malformed::Mandatory)
            );
        }
        assert_eq!(
            parse(&all(&[&chassis, &port, &tlv(3, &[1])])),
            Err(Malformed::Mandatory)
        );
        let mut short = all(&[&chassis, &port, &ttl]);
        short.extend([0x0a, 0x05, b'x']);
        assert_eq!(parse(&short), Err(Malformed::Truncated));
    }

    proptest! {
        #[test]
        fn anything_is_read_without_harm(octets in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = parse(&octets);
        }

        #[test]
        fn a_good_frame_with_damage_is_read_without_harm(at in 0usize..80, octet: u8) {
            let mut octets = frame(9, &[(5, b"name"), (8, b"\x05\x01\xc0\0\x02\x09"), (127, b"\0\x80\xc2\x01\0\x64")]);
            if let Some(place) = octets.get_mut(at) {
                *place = octet;
            }
            if let Ok(said) = parse(&octets) {
                prop_assert!(said.neighbour.addresses.len() <= MAX_ADDRESSES);
                prop_assert!(!said.neighbour.port.chars().any(char::is_control));
            }
        }
    }
}
