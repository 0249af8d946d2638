//! What only the kernel knows about ports that are its interfaces: whether their link is up, and what
//! it dropped because the port's ring was full. DPDK's driver tells neither.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crem_dpdk::{Rings, iface};

use crate::metering::Shared;
use crate::snapshot::Snapshot;

/// One interface that is a port.
#[derive(Debug)]
struct KernelPort {
    segment: usize,
    lan: bool,
    name: String,
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
    /// It is the LAN port, else the WAN port.
    pub lan: bool,
    /// Interface.
    pub name: String,
}

impl KernelPorts {
    /// Finds the rings of open ports.
    pub(super) fn new(ports: &[PortInterface]) -> Self {
        Self(ports.iter().map(KernelPort::new).collect())
    }

    /// Sequence observation may begin at ports whose drops can be told.
    pub(super) fn find_blind(&self, metered: &[(usize, Arc<Shared>)]) {
        for port in self.0.iter().filter(|port| port.rings.is_some()) {
            for (_, shared) in metered.iter().filter(|(number, _)| *number == port.segment) {
                let [lan, wan] = &shared.blind;
                let blind = if port.lan { lan } else { wan };
                blind.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Corrects a snapshot by what the kernel says now, and logs links that came or went.
    pub(super) fn complete(&mut self, snapshot: &mut Snapshot) {
        for port in &mut self.0 {
            let Some(segment) = snapshot.segments.get_mut(port.segment) else {
                continue;
            };
            let (up, counters) = if port.lan {
                (&mut segment.lan_up, &mut segment.counters.lan)
            } else {
                (&mut segment.wan_up, &mut segment.counters.wan)
            };
            *up &= port.look();
            counters.ring_drops = port.rings.as_mut().map_or(0, Rings::drops);
        }
    }
}

impl KernelPort {
    fn new(port: &PortInterface) -> Self {
        let rings = match iface::index(&port.name).map(Rings::of) {
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
            segment: port.segment,
            lan: port.lan,
            name: port.name.clone(),
            rings,
            up: true,
        }
    }

    fn look(&mut self) -> bool {
        let up = iface::is_running(&self.name);
        if up != self.up {
            self.up = up;
            if up {
                tracing::info!("interface {}: link up", self.name);
            } else {
                tracing::warn!("interface {}: link down, or interface gone", self.name);
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
        let port = |lan, name: &str| PortInterface {
            segment: 0,
            lan,
            name: name.to_owned(),
        };
        let mut ports = KernelPorts::new(&[port(true, "crem-none0")]);
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
