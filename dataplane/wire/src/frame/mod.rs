//! Ethernet frames: taking them apart down to the RoCEv2 or CREM layer (`parse`), building them
//! (`build`), checksums, and DSCP and ECN (`tos`). Only layouts; what to do with a frame is decided
//! elsewhere.

mod build;
mod checksum;
mod link;
mod parse;
#[cfg(test)]
mod tests;
mod tos;

pub(crate) use build::set_tos_of;
pub use build::{UdpFrame, VxlanHeader, set_outer_tos, set_tos};
pub use checksum::{Checksum, ipv4_header_checksum, udp_checksum, udp_checksum_ok};
pub use link::{Link, Mac, Tag, Tags};
pub use parse::{Class, Ip, Network, ParseConfig, Parsed, Reason, Tunnel, Udp, parse};
pub use tos::{Ecn, decapsulate_ecn, dscp_of, repair_tos, restored_tos, tos};

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// EtherType of ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// TPID of a customer tag (802.1Q).
pub const ETHERTYPE_VLAN: u16 = 0x8100;
/// TPID of a service tag (802.1ad, QinQ).
pub const ETHERTYPE_QINQ: u16 = 0x88a8;
/// EtherType of MAC control: pause and PFC, of one link only.
pub const ETHERTYPE_MAC_CONTROL: u16 = 0x8808;
/// IP protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// UDP port that VXLAN is assigned.
pub const VXLAN_PORT: u16 = 4789;

/// Octets of the shortest Ethernet frame, without FCS: what is shorter is padded behind the packet.
pub const MIN_FRAME_LEN: usize = 60;

const ETHERNET_LEN: usize = 14;
const TAG_LEN: usize = 4;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;
const VXLAN_LEN: usize = 8;
