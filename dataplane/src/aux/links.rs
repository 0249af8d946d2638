//! Link propagation at the ports there are: what `operate::links` decides is carried out by the driver, or by the
//! kernel where the port is an interface of it.

use crem_core::time::Instant;

use crate::aux::documents::About;
use crate::classify::Side;
use crate::operate::links::{Act, Links, Seen};
use crate::snapshot::Snapshot;

/// Takes a port's link down or lets it come up; why not, where that is not possible.
pub type LinkSwitch = Box<dyn Fn(bool) -> Result<(), String> + Send>;

/// The links of a segment, LAN and WAN.
struct Pair {
    links: Links,
    switches: [LinkSwitch; 2],
    /// It was said that the driver cannot.
    told: bool,
}

/// Those of all segments, in the order of the document.
pub(super) struct AllLinks(Vec<Pair>);

impl AllLinks {
    /// Nothing is known of the links yet. Where links are mirrored, both ports are let come up: what ended before us
    /// may have held one down.
    pub(super) fn new(switches: Vec<[LinkSwitch; 2]>, about: &About) -> Self {
        let pairs = switches.into_iter().zip(&about.segments);
        let pairs = pairs.map(|(switches, about)| {
            let mirrors = about.link_propagation.mode == crem_api::Propagation::Wire;
            for switch in switches.iter().filter(|_| mirrors) {
                if let Err(why) = switch(true) {
                    tracing::warn!(segment = %about.id, "a link cannot be mirrored: {why}");
                }
            }
            Pair {
                links: Links::new(about.link_propagation),
                switches,
                told: false,
            }
        });
        Self(pairs.collect())
    }

    /// Looks at the links that a snapshot shows, acts, and adds what there is to tell.
    pub(super) fn look(&mut self, about: &About, snapshot: &mut Snapshot) {
        let now = Instant(snapshot.at_ns);
        let segments = snapshot.segments.iter_mut().zip(&about.segments);
        for (pair, (segment, about)) in self.0.iter_mut().zip(segments) {
            let undone = pair.links.configure(about.link_propagation);
            let seen = Seen::of(segment.lan_up, segment.wan_up);
            let acts = pair.links.look(now, seen);
            for act in undone.into_iter().chain(acts.into_iter().flatten()) {
                pair.carry_out(act, &about.id);
            }
            segment.links = pair.links.counters();
            segment.held_down = pair.links.held();
        }
    }

    /// Lets every link go, at the end.
    pub(super) fn let_go(&mut self) {
        for pair in &mut self.0 {
            if let Some(act) = pair.links.let_go() {
                pair.carry_out(act, "");
            }
        }
    }
}

impl Pair {
    fn carry_out(&mut self, act: Act, segment: &str) {
        let (side, up) = match act {
            Act::Lower(side) => (side, false),
            Act::Raise(side) => (side, true),
        };
        let [lan, wan] = &self.switches;
        let switch = match side {
            Side::Lan => lan,
            Side::Wan => wan,
        };
        match switch(up) {
            Ok(()) if up => tracing::info!(segment, "{side:?}: link let go"),
            Ok(()) => tracing::warn!(segment, "{side:?}: link taken down as the other one is"),
            Err(why) => {
                self.links.refused();
                if !self.told {
                    tracing::error!(segment, "{side:?}: the link cannot be switched: {why}");
                }
                self.told = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::aux::documents::AboutSegment;
    use crate::snapshot::SegmentSnapshot;
    use crem_api::{LinkPropagation, Propagation};

    fn about(mode: Propagation) -> About {
        About {
            version: String::new(),
            instance: String::new(),
            revision: None,
            numa: Vec::new(),
            instead: None,
            confinement: crem_api::Confinement::default(),
            segments: vec![AboutSegment {
                id: "a".to_owned(),
                link_propagation: LinkPropagation {
                    mode,
                    down_delay_ms: 0,
                    up_delay_ms: 0,
                },
                ..AboutSegment::default()
            }],
        }
    }

    type Said = Arc<Mutex<Vec<(Side, bool)>>>;

    fn switches(said: &Said, works: bool) -> Vec<[LinkSwitch; 2]> {
        let switch = |side| -> LinkSwitch {
            let said = Arc::clone(said);
            Box::new(move |up| {
                said.lock().unwrap().push((side, up));
                if works {
                    Ok(())
                } else {
                    Err("it cannot".to_owned())
                }
            })
        };
        vec![[switch(Side::Lan), switch(Side::Wan)]]
    }

    fn look(links: &mut AllLinks, about: &About, lan_up: bool, wan_up: bool) -> SegmentSnapshot {
        let mut snapshot = Snapshot {
            segments: vec![SegmentSnapshot {
                lan_up,
                wan_up,
                ..SegmentSnapshot::default()
            }],
            ..Snapshot::default()
        };
        links.look(about, &mut snapshot);
        snapshot.segments.pop().unwrap()
    }

    #[test]
    fn what_is_decided_is_carried_out_and_told() {
        let (said, wire) = (Said::default(), about(Propagation::Wire));
        let mut links = AllLinks::new(switches(&said, true), &wire);
        assert_eq!(
            said.lock().unwrap().drain(..).collect::<Vec<_>>(),
            [(Side::Lan, true), (Side::Wan, true)]
        );
        look(&mut links, &wire, true, true);
        let down = look(&mut links, &wire, true, false);
        assert_eq!(*said.lock().unwrap(), [(Side::Lan, false)]);
        assert_eq!(
            (down.held_down, down.links.lan_induced),
            (Some(Side::Lan), 1)
        );
        // The switch in the document is the way back as well.
        let hub = look(&mut links, &about(Propagation::Hub), false, false);
        assert_eq!(
            *said.lock().unwrap(),
            [(Side::Lan, false), (Side::Lan, true)]
        );
        assert_eq!((hub.held_down, hub.links.released), (None, 1));
        links.let_go();
        assert_eq!(said.lock().unwrap().len(), 2);
    }

    #[test]
    fn a_driver_that_cannot_is_counted_and_nothing_is_held() {
        let (said, wire) = (Said::default(), about(Propagation::Wire));
        let mut links = AllLinks::new(switches(&said, false), &wire);
        look(&mut links, &wire, true, true);
        let down = look(&mut links, &wire, false, true);
        assert_eq!((down.held_down, down.links.refused), (None, 1));
    }
}
