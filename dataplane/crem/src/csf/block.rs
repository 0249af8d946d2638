//! The block that is being formed: which packets become part of it and when it is complete. It holds
//! references to its packets; what happens to a closed block is decided in `repair.rs`.

use alloc::vec::Vec;
use crem_wire::{Bitmap, Psn};

use super::ahead::BegunId;
use super::params::Config;
use crate::actions::SourceRef;
use crate::packet::Desc;
use crate::time::Instant;

/// A block with at least one source whose last position is still to come.
#[derive(Debug)]
pub(super) struct OpenBlock<B> {
    pub(super) start: Psn,
    pub(super) config: Config,
    pub(super) present: Bitmap,
    /// Positions inside READ spans: they stay absent (AMB-REREAD).
    spans: Bitmap,
    /// Positions 0 .. covered are known to be present or absent.
    covered: u16,
    /// Its symbols, if they were begun.
    pub(super) begun: Option<BegunId>,
    /// When its first packet came.
    pub(super) opened: Instant,
    pub(super) sources: Vec<SourceRef<B>>,
    pub(super) octets: u64,
}

impl<B: Clone> OpenBlock<B> {
    /// An empty block that starts at `start`; `sources` is an empty list to use.
    pub(super) fn new(
        start: Psn,
        config: Config,
        sources: Vec<SourceRef<B>>,
        now: Instant,
    ) -> Self {
        Self {
            start,
            config,
            present: Bitmap::EMPTY,
            spans: Bitmap::EMPTY,
            covered: 0,
            begun: None,
            opened: now,
            sources,
            octets: 0,
        }
    }

    /// The position of a PSN, if the block has room for it.
    pub(super) fn position(&self, psn: Psn) -> Option<u8> {
        let distance = psn.distance_from(self.start);
        u8::try_from(distance)
            .ok()
            .filter(|position| *position < self.config.k)
    }

    /// Whether a packet behind the highest PSN fills a position that never carried one: it came late,
    /// and the position is in no READ span (AMB-UPGAP).
    pub(super) fn wants_late(&self, psn: Psn) -> bool {
        self.position(psn).is_some_and(|p| {
            u16::from(p) < self.covered && !self.present.contains(p) && !self.spans.contains(p)
        })
    }

    /// Makes a packet part of the block. Its position must be free.
    pub(super) fn insert(&mut self, position: u8, packet: &Desc<B>) {
        self.present.insert(position);
        self.sources.push(SourceRef {
            position,
            buf: packet.buf.clone(),
            off: packet.payload_off,
            len: packet.payload_len,
        });
        self.octets += u64::from(packet.payload_len);
    }

    /// Notes that everything up to `position`, and `absent` positions of a READ after it, is covered.
    pub(super) fn cover(&mut self, position: u8, absent: u32) {
        let first = u16::from(position) + 1;
        let end = u32::from(first)
            .saturating_add(absent)
            .min(u32::from(self.config.k)) as u16;
        for p in first..end {
            self.spans.insert(p as u8);
        }
        self.covered = self.covered.max(end);
    }

    /// Whether all positions are covered.
    pub(super) fn is_full(&self) -> bool {
        self.covered >= u16::from(self.config.k)
    }

    /// k of the block if it is closed now without further positions.
    pub(super) fn covered(&self) -> u8 {
        u8::try_from(self.covered)
            .unwrap_or(u8::MAX)
            .clamp(1, self.config.k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csf::testing::{desc, key};
    use crem_wire::ConfigId;

    fn block(start: u32, k: u8) -> OpenBlock<u32> {
        let config = Config {
            id: ConfigId(1),
            scheme: 1,
            k,
            m: 2,
            t: 1062,
        };
        OpenBlock::new(Psn::new(start), config, Vec::new(), Instant(0))
    }

    // shows: CREM-BLOCK-01
    #[test]
    fn positions_wrap() {
        let block = block(0xff_fffe, 4);
        assert_eq!(block.position(Psn::new(0xff_fffe)), Some(0));
        assert_eq!(block.position(Psn::new(1)), Some(3));
        assert_eq!(block.position(Psn::new(2)), None);
        assert_eq!(block.position(Psn::new(0xff_fffd)), None);
    }

    #[test]
    fn late_packets_fill_gaps_but_not_read_spans() {
        let mut block = block(10, 8);
        block.insert(0, &desc(key(1), 10));
        block.cover(0, 2);
        block.insert(4, &desc(key(1), 14));
        block.cover(4, 0);
        assert!(!block.wants_late(Psn::new(10)), "already there");
        assert!(!block.wants_late(Psn::new(11)), "inside the READ");
        assert!(!block.wants_late(Psn::new(12)), "inside the READ");
        assert!(block.wants_late(Psn::new(13)));
        assert!(!block.wants_late(Psn::new(15)), "not covered yet");
        assert_eq!(block.covered(), 5);
        assert!(!block.is_full());
        block.cover(4, 1_000_000);
        assert!(block.is_full());
    }
}
