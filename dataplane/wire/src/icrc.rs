//! The invariant CRC of RoCEv2: CRC-32 over the IP packet without its last four octets, eight octets
//! of ones in front, with the fields that routers may change replaced by ones. The bytes on the wire
//! are the CRC with its least significant octet first.

use crc32fast::Hasher;

use crate::frame::{Class, Ip, Parsed};
use crate::mutate::{self, Fault};
use crate::roce::ICRC_LEN;

/// Octets of an IPv4 header without options.
const IPV4_LEN: usize = 20;
/// Octets of an IPv6 header without extensions.
const IPV6_LEN: usize = 40;
/// Octets of UDP header and BTH together.
const UDP_BTH_LEN: usize = 20;
/// Octets of ones that stand for the missing local route header.
const PREFIX_LEN: usize = 8;

/// The ICRC of an IP packet, as the four octets that belong to its end. `udp_offset` is the offset of
/// the UDP header. The present last four octets are not looked at. `None` if the packet is no IP packet
/// or has no room for UDP header, BTH and ICRC.
pub fn compute(packet: &[u8], udp_offset: usize) -> Option<[u8; ICRC_LEN]> {
    let covered = packet.get(..packet.len().checked_sub(ICRC_LEN)?)?;
    let (headers, payload) = covered.split_at_checked(udp_offset.checked_add(UDP_BTH_LEN)?)?;
    let mut hasher = Hasher::new();
    if mutate::has(Fault::Icrc) {
        hasher.update(&[0]);
    }
    match headers.first()? >> 4 {
        4 => hash_ipv4(&mut hasher, headers, udp_offset)?,
        6 => hash_ipv6(&mut hasher, headers, udp_offset)?,
        _ => return None,
    }
    hasher.update(payload);
    Some(hasher.finalize().to_le_bytes())
}

/// Whether the last four octets of an IP packet are its ICRC.
pub fn verify(packet: &[u8], udp_offset: usize) -> bool {
    compute(packet, udp_offset).is_some_and(|icrc| packet.ends_with(&icrc))
}

/// Writes the ICRC to the end of an IP packet; `false` if [`compute`] cannot tell it.
pub fn write(packet: &mut [u8], udp_offset: usize) -> bool {
    let Some(icrc) = compute(packet, udp_offset) else {
        return false;
    };
    let end = packet.len() - ICRC_LEN;
    packet[end..].copy_from_slice(&icrc);
    true
}

/// Whether the ICRC of a RoCEv2 frame verifies; `parsed` must be of this frame. `false` for any other
/// frame.
pub fn verify_frame(frame: &[u8], parsed: &Parsed) -> bool {
    match (&parsed.class, &parsed.ip) {
        (Class::Roce(_), Some(ip)) => {
            packet_of(frame, ip).is_some_and(|p| verify(p, usize::from(ip.header_len)))
        }
        _ => false,
    }
}

/// Writes the ICRC of a RoCEv2 frame; `false` if it is none or too short to have one.
pub fn write_frame(frame: &mut [u8], parsed: &Parsed) -> bool {
    match (&parsed.class, &parsed.ip) {
        (Class::Roce(_), Some(ip)) => {
            let udp_offset = usize::from(ip.header_len);
            frame
                .get_mut(usize::from(ip.offset)..ip.end())
                .is_some_and(|packet| write(packet, udp_offset))
        }
        _ => false,
    }
}

fn packet_of<'a>(frame: &'a [u8], ip: &Ip) -> Option<&'a [u8]> {
    frame.get(usize::from(ip.offset)..ip.end())
}

fn hash_ipv4(hasher: &mut Hasher, headers: &[u8], udp_offset: usize) -> Option<()> {
    let options = headers.get(IPV4_LEN..udp_offset)?;
    let mut masked = [0xff; PREFIX_LEN + IPV4_LEN + UDP_BTH_LEN];
    let (front, transport) = masked.split_at_mut(PREFIX_LEN + IPV4_LEN);
    let ip = &mut front[PREFIX_LEN..];
    ip.copy_from_slice(&headers[..IPV4_LEN]);
    ip[1] = 0xff;
    ip[8] = 0xff;
    ip[10..12].fill(0xff);
    mask_transport(transport, &headers[udp_offset..])?;
    if options.is_empty() {
        hasher.update(&masked);
    } else {
        hasher.update(&masked[..PREFIX_LEN + IPV4_LEN]);
        hasher.update(options);
        hasher.update(&masked[PREFIX_LEN + IPV4_LEN..]);
    }
    Some(())
}

fn hash_ipv6(hasher: &mut Hasher, headers: &[u8], udp_offset: usize) -> Option<()> {
    let extensions = headers.get(IPV6_LEN..udp_offset)?;
    let mut masked = [0xff; PREFIX_LEN + IPV6_LEN + UDP_BTH_LEN];
    let (front, transport) = masked.split_at_mut(PREFIX_LEN + IPV6_LEN);
    let ip = &mut front[PREFIX_LEN..];
    ip.copy_from_slice(&headers[..IPV6_LEN]);
    ip[0] |= 0x0f;
    ip[1..4].fill(0xff);
    ip[7] = 0xff;
    mask_transport(transport, &headers[udp_offset..])?;
    hasher.update(&masked[..PREFIX_LEN + IPV6_LEN]);
    hasher.update(extensions);
    hasher.update(&masked[PREFIX_LEN + IPV6_LEN..]);
    Some(())
}

/// UDP header and BTH with the UDP checksum and BTH octet 4 as ones.
fn mask_transport(out: &mut [u8], transport: &[u8]) -> Option<()> {
    out.copy_from_slice(transport.get(..UDP_BTH_LEN)?);
    out[6..8].fill(0xff);
    out[12] = 0xff;
    Some(())
}

#[cfg(test)]
mod tests;
