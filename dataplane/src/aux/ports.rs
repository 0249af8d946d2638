//! What only the kernel knows about ports that are its interfaces: whether their link is up, and what
//! it dropped because the port's ring was full. DPDK's driver tells neither.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crem_dpdk::{Rings, iface};

use crate::classify::Side;
use crate::metering::Shared;
use crate::snapshot::Snapshot;

/// One interface that is a port.
#[derive(Debug)]
struct KernelPort {
    at: PortInterface,
    rings: Option<Rings>,
    /// As last seen.
    up: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct KernelPorts(Vec<KernelPort>);

/// A port's place in the document, and its interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortInterface {
    /// Segment, in the order of the document.
    pub segment: usize,
    /// Which of its ports.
    pub side: Side,
    /// Interface.
    pub name: String,
    /// It is reached through AF_PACKET, whose rings count what the kernel drops.
    pub ring: bool,
}

impl KernelPorts {
    /// Finds the rings of open ports.
    pub(super) fn new(ports: &[PortInterface]) -> Self {
        Self(ports.iter().map(KernelPort::new).collect())
    }

    /// Sequence observation may begin at ports whose drops can be told.
    pub(super) fn find_blind(&self, metered: &[(usize, Arc<Shared>)]) {
        for port in self.0.iter().filter(|port| port.rings.is_some()) {
            for (_, shared) in metered
                .iter()
                .filter(|(number, _)| *number == port.at.segment)
            {
                shared.blind[port.at.side as usize].store(false, Ordering::Relaxed);
            }
        }
    }

    /// Corrects a snapshot by what the kernel says now, and logs links that came or went.
    pub(super) fn complete(&mut self, snapshot: &mut Snapshot) {
        for port in &mut self.0 {
            let Some(segment) = snapshot.segments.get_mut(port.at.segment) else {
                continue;
            };
            let (up, counters) = match port.at.side {
                Side::Lan => (&mut segment.lan_up, &mut segment.counters.lan),
                Side::Wan => (&mut segment.wan_up, &mut segment.counters.wan),
            };
            *up &= port.look();
            counters.ring_drops = port.rings.as_mut().map_or(0, Rings::drops);
        }
    }
}

impl KernelPort {
    fn new(port: &PortInterface) -> Self {
        let rings = match iface::index(&port.name).map(Rings::of) {
            _ if !port.ring => None,
            Some(Ok(rings)) if !rings.is_empty() => Some(rings),
            _ => {
                tracing::warn!(
                    "interface {}: its ring was not found, so what the kernel drops in front of it is not counted",
                    port.name
                );
                None
            }
        };
        Self {
            at: port.clone(),
            rings,
            up: true,
        }
    }

    fn look(&mut self) -> bool {
        let up = iface::is_running(&self.at.name);
        if up != self.up {
            self.up = up;
            if up {
                tracing::info!("interface {}: link up", self.at.name);
            } else {
                tracing::warn!("interface {}: link down, or interface gone", self.at.name);
            }
        }
        up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::SegmentSnapshot;

    #[test]
    fn an_interface_that_is_gone_has_no_link() {
        let mut ports = KernelPorts::new(&[PortInterface {
            segment: 0,
            side: Side::Lan,
            name: "crem-none0".to_owned(),
            ring: true,
        }]);
        let segment = SegmentSnapshot {
            lan_up: true,
            wan_up: true,
            ..SegmentSnapshot::default()
        };
        let mut snapshot = Snapshot {
            segments: vec![segment],
            ..Snapshot::default()
        };
        ports.complete(&mut snapshot);
        let [segment] = &snapshot.segments[..] else {
            unreachable!("one segment went in");
        };
        assert!(
            !segment.lan_up && segment.wan_up,
            "only the port that is gone"
        );
    }
}
