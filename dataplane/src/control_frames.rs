//! Frames of protocols between neighbours on one link: telling them apart, and which of them stop here
//! (AMB-QOS-PFC). Pause and PFC are no matter of configuration and not here.

use crem_api::{ControlFrames as Config, ControlPolicy};
use crem_wire::frame::{ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Link, Mac};

/// A protocol between neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// LLDP.
    Lldp,
    /// Spanning tree: of 802.1, of provider bridges, per VLAN.
    Stp,
    /// LACP and its marker protocol.
    Lacp,
    /// 802.1X.
    Dot1x,
    /// MACsec.
    Macsec,
    /// PTP over Ethernet.
    Ptp,
    /// Another one to an address that bridges keep to themselves.
    Other,
}

/// Which of them stop here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlFrames {
    stops: [bool; 7],
}

const ETHERTYPE_LLDP: u16 = 0x88cc;
const ETHERTYPE_SLOW: u16 = 0x8809;
const ETHERTYPE_DOT1X: u16 = 0x888e;
const ETHERTYPE_MACSEC: u16 = 0x88e5;
const ETHERTYPE_PTP: u16 = 0x88f7;
/// Below, the field is a length and an LLC header follows.
const FIRST_ETHERTYPE: u16 = 0x0600;
/// Bridges' own group addresses end with 0 to 15.
const RESERVED: [u8; 5] = [0x01, 0x80, 0xc2, 0x00, 0x00];
/// Group of all bridges, and of all provider bridges.
const BRIDGES: [u8; 2] = [0x00, 0x08];
/// Spanning trees per VLAN go here.
const PER_VLAN: Mac = Mac([0x01, 0x00, 0x0c, 0xcc, 0xcc, 0xcd]);
/// Subtypes of the slow protocols.
const LACP: u8 = 1;
const MARKER: u8 = 2;

impl ControlFrames {
    /// Those that the document lets pass pass.
    pub fn new(config: &Config) -> Self {
        let Config {
            lldp,
            stp,
            lacp,
            dot1x,
            macsec,
            ptp,
            other,
        } = *config;
        // In the order of `Control`.
        let all = [lldp, stp, lacp, dot1x, macsec, ptp, other];
        Self {
            stops: all.map(|policy| policy == ControlPolicy::Drop),
        }
    }

    /// The protocol of a frame, if that is one that stops here.
    #[inline]
    pub fn stopped(&self, frame: &[u8], link: &Link) -> Option<Control> {
        if matches!(
            link.ethertype,
            ETHERTYPE_IPV4 | ETHERTYPE_IPV6 | ETHERTYPE_ARP
        ) {
            return None;
        }
        control_of(frame, link).filter(|control| self.stops[*control as usize])
    }
}

impl Default for ControlFrames {
    fn default() -> Self {
        Self::new(&Config::default())
    }
}

/// The protocol of a frame that is neither IP nor ARP.
fn control_of(frame: &[u8], link: &Link) -> Option<Control> {
    let subtype = frame.get(usize::from(link.next)).copied();
    let [front @ .., last] = link.destination.0;
    let reserved = front == RESERVED && last < 16;
    match (link.ethertype, subtype) {
        (ETHERTYPE_LLDP, _) => Some(Control::Lldp),
        (ETHERTYPE_SLOW, Some(LACP | MARKER)) => Some(Control::Lacp),
        (ETHERTYPE_DOT1X, _) => Some(Control::Dot1x),
        (ETHERTYPE_MACSEC, _) => Some(Control::Macsec),
        (ETHERTYPE_PTP, _) => Some(Control::Ptp),
        _ if link.ethertype < FIRST_ETHERTYPE
            && (reserved && BRIDGES.contains(&last) || link.destination == PER_VLAN) =>
        {
            Some(Control::Stp)
        }
        _ if reserved => Some(Control::Other),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crem_wire::frame::{ParseConfig, parse};

    fn frame(destination: [u8; 6], kind: u16, first: u8) -> Vec<u8> {
        let mut frame = [&destination[..], &[2, 0, 0, 0, 0, 1], &kind.to_be_bytes()].concat();
        frame.resize(60, 0);
        frame[14] = first;
        frame
    }

    fn found(frame: &[u8]) -> Option<Control> {
        control_of(frame, &parse(frame, &ParseConfig::default()).link.unwrap())
    }

    const fn bridges(last: u8) -> [u8; 6] {
        [1, 0x80, 0xc2, 0, 0, last]
    }

    // shows: AMB-QOS-PFC
    #[test]
    fn each_protocol_has_a_policy_of_its_own() {
        let samples = [
            (frame(bridges(0x0e), 0x88cc, 2), Control::Lldp),
            (frame(bridges(0), 38, 0x42), Control::Stp),
            (frame(bridges(8), 38, 0x42), Control::Stp),
            (frame(PER_VLAN.0, 50, 0xaa), Control::Stp),
            (frame(bridges(2), 0x8809, 1), Control::Lacp),
            (frame(bridges(2), 0x8809, 2), Control::Lacp),
            (frame(bridges(3), 0x888e, 2), Control::Dot1x),
            (frame([2, 0, 0, 0, 0, 9], 0x88e5, 0), Control::Macsec),
            (frame([1, 0x1b, 0x19, 0, 0, 0], 0x88f7, 0), Control::Ptp),
            (frame(bridges(0x0e), 0x88f7, 0), Control::Ptp),
            // OAM of the link, and one that is not known.
            (frame(bridges(2), 0x8809, 3), Control::Other),
            (frame(bridges(7), 0x1234, 0), Control::Other),
        ];
        for (number, (octets, control)) in samples.iter().enumerate() {
            assert_eq!(found(octets), Some(*control), "{number}");
            let link = parse(octets, &ParseConfig::default()).link.unwrap();
            for stopped in 0..7 {
                let mut stops = [false; 7];
                stops[stopped] = true;
                let one = ControlFrames { stops };
                let mine = *control as usize == stopped;
                assert_eq!(one.stopped(octets, &link), mine.then_some(*control));
            }
        }
        for plain in [
            frame(bridges(16), 0x1234, 0),
            frame([2, 0, 0, 0, 0, 9], 0x8915, 0),
            frame([2, 0, 0, 0, 0, 9], 38, 0x42),
        ] {
            assert_eq!(found(&plain), None);
        }
    }

    // shows: QOS-PFC-06
    #[test]
    fn only_lldp_stops_by_default() {
        let stops = ControlFrames::default().stops;
        assert_eq!(stops, [true, false, false, false, false, false, false]);
    }
}
