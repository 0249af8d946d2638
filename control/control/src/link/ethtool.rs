//! Asks drivers over ethtool's family of generic netlink, and tells them: link modes, link state, FEC, memory of modules.

use std::io;

use crem_api::LinkFec;
use crem_api::rest::{FecState, PortLink};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};

use super::netlink::{Answer, Attributes, answers, each, find, number, request, text};
use super::optics::Place;
use super::settings::{Step, fec_name};

/// The family that tells numbers of families.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// Requests of the family, and the header that each has.
const LINKINFO_GET: u8 = 2;
const LINKMODES_GET: u8 = 4;
const LINKMODES_SET: u8 = 5;
const LINKSTATE_GET: u8 = 6;
const FEC_GET: u8 = 29;
const FEC_SET: u8 = 30;
const MODULE_EEPROM_GET: u8 = 31;
const HEADER: u16 = 1;
const HEADER_NAME: u16 = 2;

/// Link modes that stand for a kind of FEC in force.
const FEC_MODES: [(u32, &str); 4] = [(49, "none"), (50, "rs"), (51, "base_r"), (74, "llrs")];
/// Names of what is plugged in, by ethtool's number.
const CONNECTORS: [(u32, &str); 6] = [
    (0, "twisted_pair"),
    (1, "aui"),
    (2, "mii"),
    (3, "fibre"),
    (5, "direct_attach"),
    (0xef, "none"),
];
/// A speed that is not known.
const UNKNOWN_SPEED: u32 = u32::MAX;

/// An open way to drivers.
#[derive(Debug)]
pub struct Ethtool {
    socket: Socket,
    family: u16,
    sequence: u32,
}

impl Ethtool {
    /// Opens it.
    ///
    /// # Errors
    /// No socket, or a kernel without this family.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // The kernel answers before sending returns: nothing is waited for.
        socket.set_non_blocking(true)?;
        let mut ethtool = Self {
            socket,
            family: CONTROL,
            sequence: 0,
        };
        let name = Attributes::default().text(FAMILY_NAME, "ethtool");
        let answer = ethtool.ask(GET_FAMILY, &name)?;
        let id = find(&answer, FAMILY_ID).and_then(number);
        ethtool.family = id
            .and_then(|id| u16::try_from(id).ok())
            .ok_or_else(|| io::Error::other("the kernel has no such family"))?;
        Ok(ethtool)
    }

    /// Asks once: attributes of the answer.
    fn ask(&mut self, command: u8, attributes: &Attributes) -> io::Result<Vec<u8>> {
        self.sequence = self.sequence.wrapping_add(1);
        let message = request(self.family, command, self.sequence, attributes);
        self.socket.send(&message, 0)?;
        let mut data = Vec::new();
        loop {
            let (octets, _) = self.socket.recv_from_full()?;
            for answer in answers(&octets, self.sequence) {
                match answer {
                    Answer::Data(attributes) => data.extend_from_slice(attributes),
                    Answer::End(0) => return Ok(data),
                    Answer::End(error) => return Err(io::Error::from_raw_os_error(error)),
                }
            }
        }
    }

    fn of(interface: &str) -> Attributes {
        let header = Attributes::default().text(HEADER_NAME, interface);
        Attributes::default().nest(HEADER, &header)
    }

    /// All but the module. What the driver does not tell is in words.
    pub fn link(&mut self, interface: &str) -> PortLink {
        let mut link = PortLink::default();
        let mut not_known = Vec::new();
        let mut ask = |what: &str, command| match self.ask(command, &Self::of(interface)) {
            Ok(answer) => Some(answer),
            Err(error) => {
                not_known.push(format!("{what}: {}", words(&error)));
                None
            }
        };
        if let Some(answer) = ask("link", LINKSTATE_GET) {
            link.up = find(&answer, 2).and_then(number).map(|up| up == 1);
        }
        if let Some(answer) = ask("modes", LINKMODES_GET) {
            modes(&answer, &mut link);
        }
        if let Some(answer) = ask("connector", LINKINFO_GET) {
            let port = find(&answer, 2).and_then(number);
            link.connector = port.and_then(|p| named(&CONNECTORS, p));
        }
        if let Some(answer) = ask("fec", FEC_GET) {
            link.fec = Some(fec(&answer));
        }
        link.not_known = not_known;
        link
    }

    /// Tells a driver.
    ///
    /// # Errors
    /// In words: it cannot, or this process may not.
    pub fn set(&mut self, interface: &str, step: Step) -> Result<(), String> {
        let (command, told) = match step {
            Step::Modes {
                autonegotiation,
                speed_mbit,
            } => (
                LINKMODES_SET,
                modes_told(interface, autonegotiation, speed_mbit),
            ),
            Step::Fec(fec) => (FEC_SET, fec_told(interface, fec)),
        };
        match self.ask(command, &told) {
            Ok(_) => Ok(()),
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                Err("the driver does not offer it".to_owned())
            }
            Err(e) => Err(words(&e)),
        }
    }

    /// Octets of the module's memory.
    ///
    /// # Errors
    /// No module, or a driver that cannot read it.
    pub fn module(&mut self, interface: &str, place: Place) -> Result<Vec<u8>, String> {
        let asked = Self::of(interface)
            .number(2, place.offset.into())
            .number(3, place.length.into())
            .put(4, &[place.page])
            .put(5, &[0])
            .put(6, &[place.i2c]);
        let answer = self.ask(MODULE_EEPROM_GET, &asked).map_err(|e| words(&e))?;
        let data = find(&answer, 7).map(<[u8]>::to_vec);
        data.filter(|data| data.len() == usize::from(place.length))
            .ok_or_else(|| "the driver told less than was asked for".to_owned())
    }
}

fn modes_told(interface: &str, autonegotiation: Option<bool>, speed: Option<u32>) -> Attributes {
    let mut told = Ethtool::of(interface);
    if let Some(on) = autonegotiation {
        told = told.put(2, &[u8::from(on)]);
    }
    if let Some(speed) = speed {
        // Full duplex: there is no other above 1 Gbit/s.
        told = told.number(5, speed).put(6, &[1]);
    }
    told
}

fn fec_told(interface: &str, fec: LinkFec) -> Attributes {
    let told = Ethtool::of(interface);
    if fec == LinkFec::Auto {
        return told.put(3, &[1]);
    }
    // A set of bits by their names, in which what is not named is off.
    let bit = Attributes::default().text(2, fec_name(fec));
    let bits = Attributes::default().nest(1, &bit);
    let set = Attributes::default().put(1, &[]).nest(3, &bits);
    told.nest(2, &set).put(3, &[0])
}

fn words(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => "the driver does not tell".to_owned(),
        Some(libc::ENODEV) => "no such interface".to_owned(),
        _ => error.to_string(),
    }
}

fn named(names: &[(u32, &str)], value: u32) -> Option<String> {
    let found = names.iter().find(|(n, _)| *n == value);
    found.map(|(_, name)| (*name).to_owned())
}

fn modes(answer: &[u8], link: &mut PortLink) {
    link.autonegotiation = find(answer, 2).and_then(number).map(|on| on == 1);
    link.advertised = find(answer, 3).map(set_bits).unwrap_or_default();
    link.advertised_by_peer = find(answer, 4).map(set_bits).unwrap_or_default();
    let speed = find(answer, 5).and_then(number);
    link.speed_mbit = speed.filter(|s| *s != UNKNOWN_SPEED && *s != 0);
    link.duplex = match find(answer, 6).and_then(number) {
        Some(0) => Some("half".to_owned()),
        Some(1) => Some("full".to_owned()),
        _ => None,
    };
}

fn fec(answer: &[u8]) -> FecState {
    FecState {
        configured: find(answer, 2).map(set_bits).unwrap_or_default(),
        automatic: find(answer, 3).and_then(number) == Some(1),
        active: find(answer, 4)
            .and_then(number)
            .and_then(|m| named(&FEC_MODES, m)),
    }
}

/// Names of the bits that are set. With a mask, bits that are only supported are told as well.
fn set_bits(bitset: &[u8]) -> Vec<String> {
    let no_mask = find(bitset, 1).is_some();
    let bits = find(bitset, 3).unwrap_or_default();
    let set = |(_, bit): (u16, &[u8])| {
        let counts = no_mask || find(bit, 3).is_some();
        let name = find(bit, 2).map(text)?;
        counts.then_some(name)
    };
    each(bits).filter_map(set).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn bit(name: &str, set: bool) -> Attributes {
        let bit = Attributes::default().number(1, 3).text(2, name);
        if set { bit.put(3, &[]) } else { bit }
    }

    #[test]
    fn answers_of_a_driver_are_understood() {
        let bits = Attributes::default()
            .nest(1, &bit("100000baseKR4/Full", true))
            .nest(1, &bit("25000baseCR/Full", false));
        let set = Attributes::default().number(2, 120).nest(3, &bits);
        let answer = Attributes::default()
            .put(2, &[1])
            .nest(3, &set)
            .number(5, 100_000)
            .put(6, &[1]);
        let message = request(1, 1, 1, &answer);
        let [Answer::Data(octets)] = answers(&message, 1)[..] else {
            panic!("no data")
        };
        let mut link = PortLink::default();
        modes(octets, &mut link);
        assert_eq!(link.advertised, ["100000baseKR4/Full"]);
        assert_eq!(
            (link.speed_mbit, link.autonegotiation),
            (Some(100_000), Some(true))
        );
        assert_eq!(link.duplex.as_deref(), Some("full"));
        let fixed = Attributes::default()
            .put(1, &[])
            .nest(3, &Attributes::default().nest(1, &bit("RS", false)));
        let answer = Attributes::default()
            .nest(2, &fixed)
            .put(3, &[0])
            .number(4, 50);
        let message = request(1, 1, 1, &answer);
        let [Answer::Data(octets)] = answers(&message, 1)[..] else {
            panic!("no data")
        };
        let fec = fec(octets);
        assert_eq!(
            (fec.configured, fec.active.as_deref()),
            (vec!["RS".to_owned()], Some("rs"))
        );
    }
}
