//! The Alternate-Marking option of IPv6 (RFC 9343): reading its marks out of a frame that was parsed. It
//! stands in a Hop-by-Hop or Destination Options header that the edges of a measured domain add and remove;
//! nothing here writes one, since marking is no business of CREM. Counting by marks is in `crem-core`.

use core::net::IpAddr;

use crate::frame::Ip;

/// Option Type: skip over if not known, may not change on the way.
pub const OPTION_TYPE: u8 = 0x12;
/// Octets of the option's data.
pub const OPTION_LEN: usize = 4;

const IPV6_LEN: usize = 40;
/// Offset of Next Header in the IPv6 header.
const NEXT_HEADER: usize = 6;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION: u8 = 60;
/// The option that is one octet of padding, without a length.
const PAD1: u8 = 0;

/// FlowMonID: 20 bits that name a monitored flow inside a measured domain, together with its addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FlowMonId(u32);

impl FlowMonId {
    /// The low 20 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & 0xf_ffff)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The marks of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AltMark {
    /// The monitored flow.
    pub flow_mon_id: FlowMonId,
    /// L: colour of the marking period, for loss.
    pub loss: bool,
    /// D: the packet is timed, for delay.
    pub delay: bool,
}

impl AltMark {
    /// The marks in the option data of a packet.
    pub const fn from_data(data: [u8; OPTION_LEN]) -> Self {
        let word = u32::from_be_bytes(data);
        Self {
            flow_mon_id: FlowMonId::new(word >> 12),
            loss: word & 0x800 != 0,
            delay: word & 0x400 != 0,
        }
    }

    /// The marks of the packet whose IP header was found in `frame`; `None` without the option, with
    /// another length of its data, or where options do not fit their header.
    pub fn of_packet(frame: &[u8], ip: &Ip) -> Option<Self> {
        if !matches!(ip.source, IpAddr::V6(_)) {
            return None;
        }
        let start = usize::from(ip.offset);
        let headers = frame.get(start..start + usize::from(ip.header_len))?;
        let (fixed, mut rest) = headers.split_at_checked(IPV6_LEN)?;
        let mut next = *fixed.get(NEXT_HEADER)?;
        while let [following, len, ..] = *rest {
            let (header, behind) = rest.split_at_checked(8 * (usize::from(len) + 1))?;
            match next {
                HOP_BY_HOP | DESTINATION => {
                    if let Some(mark) = in_options(header.get(2..)?) {
                        return Some(mark);
                    }
                }
                ROUTING => {}
                _ => return None,
            }
            (next, rest) = (following, behind);
        }
        None
    }
}

/// Looks through the options of one header.
fn in_options(mut options: &[u8]) -> Option<AltMark> {
    loop {
        options = match *options {
            [PAD1, ..] => options.get(1..)?,
            [option, len, ..] => {
                let (data, behind) = options.get(2..)?.split_at_checked(usize::from(len))?;
                if option == OPTION_TYPE
                    && let Ok(data) = data.try_into()
                {
                    return Some(AltMark::from_data(data));
                }
                behind
            }
            _ => return None,
        };
    }
}

#[cfg(test)]
mod tests;
