//! Rebuilding the frame of a restored UDP payload: every header from Ethernet to UDP out of the frames
//! of the flow that did arrive (AMB-HDRREST), the IPv4 Identification out of the ICRC (AMB-IPID). The
//! lost frame itself is never seen here.

use core::fmt;

use crate::Psn;
use crate::frame::{
    self, Class, Ip, MIN_FRAME_LEN, ParseConfig, Parsed, Udp, ipv4_header_checksum, restored_tos,
    udp_checksum,
};
use crate::icrc;
use crate::ident;
use crate::roce::{Bth, MIN_PAYLOAD};

/// A frame of the flow that arrived.
#[derive(Clone, Copy, Debug)]
pub struct NeighbourRef<'a> {
    /// The whole frame without FCS.
    pub frame: &'a [u8],
    /// Its PSN.
    pub psn: Psn,
}

/// What a rebuilt packet may look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RebuildPolicy {
    /// How the flow's frames are taken apart.
    pub parse: ParseConfig,
    /// ECT(0) instead of Not-ECT (AMB-RESTECN).
    pub ect0: bool,
    /// Largest distance of two neighbours' Identifications between which a solved one is believed.
    pub max_between: u16,
    /// How far ahead of an earlier neighbour's Identification a solved one is believed when there is no
    /// later neighbour.
    pub max_ahead: u16,
}

impl Default for RebuildPolicy {
    fn default() -> Self {
        Self {
            parse: ParseConfig::default(),
            ect0: false,
            max_between: 4096,
            max_ahead: 64,
        }
    }
}

/// Where the IPv4 Identification of a rebuilt packet came from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Identification {
    /// IPv6 has none.
    Absent,
    /// The same as in a neighbour.
    Copied,
    /// Solved from the ICRC.
    Solved,
}

/// A rebuilt frame; its ICRC verifies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rebuilt {
    /// Octets of the frame, from the front of `out`, with padding to the least that Ethernet takes.
    pub len: usize,
    /// Offset of the UDP payload.
    pub payload_off: usize,
    /// Octets of the UDP payload, without padding.
    pub payload_len: usize,
    /// PSN in the payload's BTH, to be compared with the position that was restored.
    pub psn: Psn,
    /// Where the Identification came from.
    pub identification: Identification,
}

/// Why no frame was rebuilt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RebuildError {
    /// No neighbour, or none that is a RoCEv2 frame toward the same queue pair.
    NoNeighbour,
    /// The payload has no complete BTH of version 0 and ICRC.
    Payload,
    /// The packet would be longer than its length fields can say.
    TooLong,
    /// `out` is too small; the frame needs this many octets.
    NoRoom(usize),
    /// The ICRC does not verify, with no Identification at all.
    Icrc,
    /// The Identification that the ICRC asks for is implausible: counts as an ICRC failure.
    Identification,
}

impl fmt::Display for RebuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNeighbour => f.write_str("no received frame can lend its headers"),
            Self::Payload => f.write_str("the payload is too short or not RoCEv2"),
            Self::TooLong => f.write_str("the packet would be too long"),
            Self::NoRoom(needed) => write!(f, "the frame needs a buffer of {needed} octets"),
            Self::Icrc => f.write_str("the ICRC does not verify"),
            Self::Identification => {
                f.write_str("the ICRC asks for an implausible IPv4 Identification")
            }
        }
    }
}

impl core::error::Error for RebuildError {}

/// Writes to `out` the frame that carried `payload` (BTH to ICRC), as it would have arrived: headers
/// of the neighbour nearest in PSN, lengths and checksums made right, no ECN mark, padding behind a packet
/// that is shorter than Ethernet frames are. `before` and `after`
/// are frames of the same flow with an earlier and a later PSN.
///
/// # Errors
/// See [`RebuildError`]; `out` holds nothing useful then.
pub fn rebuild(
    payload: &[u8],
    before: Option<NeighbourRef<'_>>,
    after: Option<NeighbourRef<'_>>,
    policy: &RebuildPolicy,
    out: &mut [u8],
) -> Result<Rebuilt, RebuildError> {
    let bth = Bth::parse(payload)
        .filter(|bth| bth.version() == 0 && payload.len() >= MIN_PAYLOAD)
        .ok_or(RebuildError::Payload)?;
    let before = before.and_then(|neighbour| Lender::new(neighbour, &bth, policy));
    let after = after.and_then(|neighbour| Lender::new(neighbour, &bth, policy));
    let lender = nearest(&before, &after, bth.psn).ok_or(RebuildError::NoNeighbour)?;

    let payload_off = usize::from(lender.udp.payload_off);
    let packet_end = payload_off + payload.len();
    let len = packet_end.max(MIN_FRAME_LEN);
    let headers = lender
        .frame
        .get(..payload_off)
        .ok_or(RebuildError::NoNeighbour)?;
    let out = out.get_mut(..len).ok_or(RebuildError::NoRoom(len))?;
    let (out, padding) = out.split_at_mut(packet_end);
    padding.fill(0);
    out[..payload_off].copy_from_slice(headers);
    out[payload_off..].copy_from_slice(payload);

    set_datagram(out, &lender.ip, &lender.udp, policy)?;
    let identification = match lender.ip.ident {
        None if icrc::verify(
            &out[usize::from(lender.ip.offset)..],
            usize::from(lender.ip.header_len),
        ) =>
        {
            Identification::Absent
        }
        None => return Err(RebuildError::Icrc),
        Some(_) => set_ident(out, &lender.ip, ident_of(&before), ident_of(&after), policy)?,
    };
    finish_checksums(out, &lender.ip, &lender.udp);
    if let Some(tunnel) = &lender.parsed.tunnel {
        set_datagram(out, &tunnel.ip, &tunnel.udp, policy)?;
        finish_checksums(out, &tunnel.ip, &tunnel.udp);
    }
    Ok(Rebuilt {
        len,
        payload_off,
        payload_len: payload.len(),
        psn: bth.psn,
        identification,
    })
}

/// A neighbour that can lend its headers.
struct Lender<'a> {
    frame: &'a [u8],
    psn: Psn,
    parsed: Parsed,
    ip: Ip,
    udp: Udp,
}

impl<'a> Lender<'a> {
    fn new(neighbour: NeighbourRef<'a>, bth: &Bth, policy: &RebuildPolicy) -> Option<Self> {
        let parsed = frame::parse(neighbour.frame, &policy.parse);
        let Class::Roce(its) = parsed.class else {
            return None;
        };
        if its.dest_qp != bth.dest_qp {
            return None;
        }
        let (ip, udp) = (parsed.ip?, parsed.udp?);
        Some(Self {
            frame: neighbour.frame,
            psn: neighbour.psn,
            parsed,
            ip,
            udp,
        })
    }
}

/// The one nearer to `psn`; the earlier one if both are as near.
fn nearest<'l, 'a>(
    before: &'l Option<Lender<'a>>,
    after: &'l Option<Lender<'a>>,
    psn: Psn,
) -> Option<&'l Lender<'a>> {
    let distance = |lender: &Lender<'_>| lender.psn.distance_from(psn).unsigned_abs();
    before
        .iter()
        .chain(after)
        .min_by_key(|lender| distance(lender))
}

fn ident_of(lender: &Option<Lender<'_>>) -> Option<u16> {
    lender.as_ref()?.ip.ident
}

/// Lengths of IP and UDP for a datagram that reaches to the end of `frame`, its DSCP without a mark.
fn set_datagram(
    frame: &mut [u8],
    ip: &Ip,
    udp: &Udp,
    policy: &RebuildPolicy,
) -> Result<(), RebuildError> {
    let length_from =
        |offset: usize| u16::try_from(frame.len() - offset).map_err(|_| RebuildError::TooLong);
    let (ip_off, udp_off) = (usize::from(ip.offset), usize::from(udp.offset));
    let (total, segment) = (length_from(ip_off)?, length_from(udp_off)?);
    let (at, value) = if ip.source.is_ipv4() {
        (ip_off + 2, total)
    } else {
        // The payload length of IPv6 has no base header in it, but the extension headers.
        (ip_off + 4, total.saturating_sub(40))
    };
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
    frame[udp_off + 4..udp_off + 6].copy_from_slice(&segment.to_be_bytes());
    frame::set_tos_of(frame, ip, restored_tos(ip.tos, policy.ect0));
    Ok(())
}

/// Finds and writes the Identification with which the ICRC verifies, if it may be believed.
fn set_ident(
    frame: &mut [u8],
    ip: &Ip,
    before: Option<u16>,
    after: Option<u16>,
    policy: &RebuildPolicy,
) -> Result<Identification, RebuildError> {
    let offset = usize::from(ip.offset);
    let solved =
        ident::solve(&frame[offset..], usize::from(ip.header_len)).ok_or(RebuildError::Icrc)?;
    if !believable(solved, before, after, policy) {
        return Err(RebuildError::Identification);
    }
    frame[offset + 4..offset + 6].copy_from_slice(&solved.to_be_bytes());
    let copied = before == Some(solved) || after == Some(solved);
    Ok(if copied {
        Identification::Copied
    } else {
        Identification::Solved
    })
}

/// The rules of AMB-IPID: the flow's constant value, between the neighbours' values, or a little ahead
/// of an earlier neighbour when there is no later one.
fn believable(
    solved: u16,
    before: Option<u16>,
    after: Option<u16>,
    policy: &RebuildPolicy,
) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            let span = after.wrapping_sub(before);
            span <= policy.max_between && solved.wrapping_sub(before) <= span
        }
        (Some(before), None) => solved.wrapping_sub(before) <= policy.max_ahead,
        (None, Some(after)) => solved == after,
        (None, None) => false,
    }
}

/// IPv4 header checksum, and the UDP checksum if the flow uses one.
fn finish_checksums(frame: &mut [u8], ip: &Ip, udp: &Udp) {
    let (ip_off, udp_off) = (usize::from(ip.offset), usize::from(udp.offset));
    if ip.source.is_ipv4() {
        let checksum = ipv4_header_checksum(&frame[ip_off..udp_off]);
        frame[ip_off + 10..ip_off + 12].copy_from_slice(&checksum.to_be_bytes());
    }
    if udp.checksum != 0 {
        let checksum = udp_checksum(ip.source, ip.destination, &frame[udp_off..]);
        frame[udp_off + 6..udp_off + 8].copy_from_slice(&checksum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
