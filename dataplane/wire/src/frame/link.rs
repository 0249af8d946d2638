//! The Ethernet layer: addresses and VLAN tags.

use core::fmt;

use super::{ETHERNET_LEN, ETHERTYPE_QINQ, ETHERTYPE_VLAN, TAG_LEN};

/// A 48-bit Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether the group bit is set: multicast or broadcast.
    pub const fn is_group(&self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A VLAN tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tag {
    /// 0x8100 or 0x88a8.
    pub tpid: u16,
    /// PCP (3 bits), DEI (1), VID (12).
    pub tci: u16,
}

impl Tag {
    /// A customer tag with this TCI.
    pub const fn vlan(tci: u16) -> Self {
        Self {
            tpid: ETHERTYPE_VLAN,
            tci,
        }
    }

    /// VLAN identifier.
    pub const fn vid(self) -> u16 {
        self.tci & 0x0fff
    }

    /// Priority code point.
    pub const fn pcp(self) -> u8 {
        (self.tci >> 13) as u8
    }
}

/// The tags of a frame, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tags {
    tags: [Tag; Self::MAX],
    len: u8,
}

impl Tags {
    /// Tags that are taken apart; a frame with more is carried but not looked into.
    pub const MAX: usize = 2;

    /// No tag.
    pub const NONE: Self = Self {
        tags: [Tag { tpid: 0, tci: 0 }; Self::MAX],
        len: 0,
    };

    /// Appends a tag inside the present ones; `false` if there is no room.
    pub fn push(&mut self, tag: Tag) -> bool {
        match self.tags.get_mut(usize::from(self.len)) {
            Some(place) => {
                *place = tag;
                self.len += 1;
                true
            }
            None => false,
        }
    }

    /// The tags, outermost first.
    pub fn as_slice(&self) -> &[Tag] {
        &self.tags[..usize::from(self.len)]
    }
}

/// The Ethernet layer of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Link {
    /// Destination address.
    pub destination: Mac,
    /// Source address.
    pub source: Mac,
    /// VLAN tags.
    pub tags: Tags,
    /// EtherType behind the tags.
    pub ethertype: u16,
    /// Offset in the frame of what the EtherType names.
    pub next: u16,
}

impl Link {
    /// The Ethernet layer at `offset` of `frame`; `None` if it is cut. A third tag is left as the
    /// EtherType.
    #[inline(always)]
    pub(super) fn parse(frame: &[u8], offset: usize) -> Option<Self> {
        let header = frame.get(offset..)?.first_chunk::<ETHERNET_LEN>()?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, e0, e1] = *header;
        let mut ethertype = u16::from_be_bytes([e0, e1]);
        let mut next = offset + ETHERNET_LEN;
        let mut tags = Tags::NONE;
        while matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_QINQ) {
            let [t0, t1, e0, e1] = *frame.get(next..)?.first_chunk::<TAG_LEN>()?;
            if !tags.push(Tag {
                tpid: ethertype,
                tci: u16::from_be_bytes([t0, t1]),
            }) {
                break;
            }
            ethertype = u16::from_be_bytes([e0, e1]);
            next += TAG_LEN;
        }
        Some(Self {
            destination: Mac([d0, d1, d2, d3, d4, d5]),
            source: Mac([s0, s1, s2, s3, s4, s5]),
            tags,
            ethertype,
            next: u16::try_from(next).ok()?,
        })
    }
}
