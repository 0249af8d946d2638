//! Bounds on what is referenced: packets and octets over all flows (AMB-HOLD memory cap, CREM
//! Operational Considerations). Counting only; who gives up what is decided by the callers.

/// A bound in packets and octets, and what is in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    max_packets: u64,
    max_octets: u64,
    packets: u64,
    octets: u64,
}

impl Budget {
    /// Nothing in use.
    pub(crate) const fn new(max_packets: u64, max_octets: u64) -> Self {
        Self {
            max_packets,
            max_octets,
            packets: 0,
            octets: 0,
        }
    }

    /// Changes the bounds; what is in use stays.
    pub(crate) fn set_bounds(&mut self, max_packets: u64, max_octets: u64) {
        self.max_packets = max_packets;
        self.max_octets = max_octets;
    }

    /// Whether one more packet of `octets` fits.
    pub(crate) const fn fits(&self, octets: u16) -> bool {
        self.packets < self.max_packets && self.octets + octets as u64 <= self.max_octets
    }

    /// Whether `packets` of `octets` each fit.
    pub(crate) const fn has_room(&self, packets: u64, octets: u64) -> bool {
        self.packets + packets <= self.max_packets
            && self.octets + packets * octets <= self.max_octets
    }

    /// Whether half of either bound is in use.
    pub(crate) const fn is_half_used(&self) -> bool {
        self.packets * 2 >= self.max_packets || self.octets * 2 >= self.max_octets
    }

    /// Counts a packet in.
    pub(crate) fn add(&mut self, octets: u16) {
        self.packets += 1;
        self.octets += u64::from(octets);
    }

    /// Counts a packet out.
    pub(crate) fn remove(&mut self, octets: u16) {
        self.packets = self.packets.saturating_sub(1);
        self.octets = self.octets.saturating_sub(u64::from(octets));
    }

    /// Packets in use.
    pub(crate) const fn packets(&self) -> u64 {
        self.packets
    }

    /// Octets in use.
    pub(crate) const fn octets(&self) -> u64 {
        self.octets
    }
}
