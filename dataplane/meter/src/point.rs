//! Observation Points: where in the box a packet is seen, and how the point is numbered.

/// A place in the box. What is before and behind the repair of the receiver function are different
/// places, so that restored packets are never mixed with received ones (AMB-BTH-RESTORED).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Place {
    /// Received from the LAN, before anything is done.
    LanIngress,
    /// Sent to the WAN.
    WanEgress,
    /// Received from the WAN: as it arrived, before repair.
    WanIngress,
    /// Sent to the LAN, restored packets left out.
    LanEgressBeforeRepair,
    /// Sent to the LAN, restored packets included: behind a middlebox function.
    LanEgressAfterRepair,
}

impl Place {
    /// Every place.
    pub const ALL: [Self; 5] = [
        Self::LanIngress,
        Self::WanEgress,
        Self::WanIngress,
        Self::LanEgressBeforeRepair,
        Self::LanEgressAfterRepair,
    ];

    /// Position in [`Place::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Direction of the packets relative to the point.
    pub const fn direction(self) -> Direction {
        match self {
            Self::LanIngress | Self::WanIngress => Direction::Ingress,
            _ => Direction::Egress,
        }
    }

    /// Whether counters are of packets behind a middlebox function: then aggregates have the post
    /// elements (section 4.3 of the BTH draft; egress alone is not enough).
    pub const fn is_after_repair(self) -> bool {
        matches!(self, Self::LanEgressAfterRepair)
    }

    /// A short stable name, as configuration and documents use it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LanIngress => "lan_ingress",
            Self::WanEgress => "wan_egress",
            Self::WanIngress => "wan_ingress",
            Self::LanEgressBeforeRepair => "lan_egress_before_repair",
            Self::LanEgressAfterRepair => "lan_egress_after_repair",
        }
    }
}

/// flowDirection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Direction {
    /// Towards the box.
    Ingress = 0,
    /// Away from the box.
    Egress = 1,
}

/// An Observation Point of one worker. Its identifier is the configured base plus the number of the
/// worker: what one worker sees keeps its order all the way to the collector.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Point {
    /// Where.
    pub place: Place,
    /// observationPointId.
    pub id: u64,
}

impl Point {
    /// The point of a worker; `None` if the identifier would pass 2^64 - 1.
    pub fn new(place: Place, base: u64, worker: u16) -> Option<Self> {
        Some(Self {
            place,
            id: base.checked_add(u64::from(worker))?,
        })
    }
}
