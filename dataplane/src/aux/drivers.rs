//! What drivers say of links, asked for with the status and never by a worker.

use std::time::{Duration, Instant};

use crem_api::state::{LinkLayer, Status};

use crate::aux::documents::About;

/// Asks the driver of a port; `None` once the port is closed.
pub type LinkReader = Box<dyn Fn() -> Option<LinkLayer> + Send>;

/// For so long an answer holds: some devices ask their firmware, which takes milliseconds.
const HOLDS: Duration = Duration::from_secs(1);

/// The drivers of the LAN and the WAN port of all segments, in the order of the document.
pub(super) struct Drivers {
    readers: Vec<[LinkReader; 2]>,
    /// When they were asked, and what they said.
    said: Option<(Instant, Vec<[Option<LinkLayer>; 2]>)>,
}

impl Drivers {
    pub(super) fn new(readers: Vec<[LinkReader; 2]>) -> Self {
        Self {
            readers,
            said: None,
        }
    }

    /// Adds to a status what drivers say.
    pub(super) fn complete(&mut self, now: Instant, about: &About, status: &mut Status) {
        let fresh = |at: Instant| now.saturating_duration_since(at) < HOLDS;
        let said = match self.said.take() {
            Some(said) if fresh(said.0) => said,
            _ => {
                let ask = |[lan, wan]: &[LinkReader; 2]| [lan(), wan()];
                (now, self.readers.iter().map(ask).collect())
            }
        };
        for (about, [lan, wan]) in about.segments.iter().zip(&said.1) {
            if let Some(segment) = status.segments.get_mut(&about.id) {
                segment.lan.link_layer.clone_from(lan);
                segment.wan.link_layer.clone_from(wan);
            }
        }
        self.said = Some(said);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::aux::AboutSegment;
    use crem_api::Confinement;
    use crem_api::state::SegmentStatus;

    fn about(ids: &[&str]) -> About {
        let segment = |id: &&str| AboutSegment {
            id: (*id).to_owned(),
            ..AboutSegment::default()
        };
        About {
            version: String::new(),
            instance: String::new(),
            revision: None,
            instead: None,
            segments: ids.iter().map(segment).collect(),
            numa: Vec::new(),
            confinement: Confinement::default(),
        }
    }

    fn status(ids: &[&str]) -> Status {
        let segment = |id: &&str| ((*id).to_owned(), SegmentStatus::default());
        Status {
            segments: ids.iter().map(segment).collect(),
            ..Status::default()
        }
    }

    /// Says how often it was asked.
    fn reader(name: &'static str, asked: &Arc<AtomicU32>) -> LinkReader {
        let asked = Arc::clone(asked);
        Box::new(move || {
            let times = asked.fetch_add(1, Ordering::Relaxed) + 1;
            Some(LinkLayer {
                flow_control: format!("{name} {times}"),
                ..LinkLayer::default()
            })
        })
    }

    fn flow_control(layer: &Option<LinkLayer>) -> &str {
        &layer.as_ref().unwrap().flow_control
    }

    #[test]
    fn each_port_has_what_its_driver_says_at_most_a_second_old() {
        let asked = Arc::new(AtomicU32::new(0));
        let closed: LinkReader = Box::new(|| None);
        let mut drivers = Drivers::new(vec![
            [reader("a", &Arc::default()), reader("b", &asked)],
            [reader("c", &Arc::default()), closed],
        ]);
        let (ids, start) = (["first", "second"], Instant::now());
        let mut at = |ms| {
            let mut status = status(&ids);
            let now = start + Duration::from_millis(ms);
            drivers.complete(now, &about(&ids), &mut status);
            status
        };
        let said = at(0);
        let [first, second] = ids.map(|id| said.segments.get(id).unwrap().clone());
        assert_eq!(flow_control(&first.lan.link_layer), "a 1");
        assert_eq!(flow_control(&first.wan.link_layer), "b 1");
        assert_eq!(flow_control(&second.lan.link_layer), "c 1");
        assert_eq!(second.wan.link_layer, None);
        let wan = |status: Status| status.segments.get("first").unwrap().wan.link_layer.clone();
        assert_eq!(flow_control(&wan(at(999))), "b 1");
        assert_eq!(flow_control(&wan(at(1000))), "b 2");
        assert_eq!(flow_control(&wan(at(1999))), "b 2");
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}
