//! From Hop Entries to a message that fits the path: how many octets it takes, and which PSNs are left out
//! where it would be too long.

use core::net::IpAddr;
use crem_wire::crem::registry::COMMON_HEADER_LEN;
use crem_wire::crem::{FlowDescriptor, HopEntry};

use crate::plan::Family;

/// Octets of a UDP header.
const UDP: usize = 8;
/// Method, Entry Count, AF, Reserved; Flow Label.
const FIXED: usize = 8;
/// Octets of a Hop Entry without PSNs.
pub(super) const ENTRY: usize = 20;
/// Octets of a PSN in a Hop Entry.
pub(super) const PSN: usize = 4;

/// Octets that the Hop Entries of a report on `flow` may take on the way to `to` with this IP MTU.
pub(super) fn room(flow: &FlowDescriptor, to: IpAddr, mtu: usize) -> usize {
    let address = if flow.source.is_ipv4() { 4 } else { 16 };
    let ip = match Family::of(&to) {
        Family::V4 => 20,
        Family::V6 => 40,
    };
    mtu.saturating_sub(ip + UDP + COMMON_HEADER_LEN + FIXED + 2 * address)
}

/// Octets of Hop Entries.
pub(super) fn octets(entries: &[HopEntry]) -> usize {
    let psns: usize = entries.iter().map(|entry| entry.dropped.len()).sum();
    entries.len() * ENTRY + psns * PSN
}

/// Cuts lists of PSNs, the last ones first, until the entries fit into `room` octets; gives the number of
/// PSNs left out. Lost Counts stay what they are.
pub(super) fn cut(entries: &mut [HopEntry], room: usize) -> usize {
    let mut excess = octets(entries).saturating_sub(room).div_ceil(PSN);
    let mut left_out = 0;
    for entry in entries.iter_mut().rev() {
        let fewer = excess.min(entry.dropped.len());
        entry.dropped.truncate(entry.dropped.len() - fewer);
        excess -= fewer;
        left_out += fewer;
    }
    left_out
}
