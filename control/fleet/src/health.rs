//! Whether a box is as well after a change as it was before. What did not work before need not work afterwards:
//! a gateway that gets its first document has no data plane yet.

use std::collections::BTreeMap;

use crem_api::rest::Problem;
use crem_api::state::{Flow, Role, Status};
use serde::{Deserialize, Serialize};

/// What is compared.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Health {
    /// The data plane, if it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataplane: Option<Plane>,
    /// Peers by address, as far as flows are matched to them.
    #[serde(default)]
    pub peers: BTreeMap<String, Peer>,
    /// Largest loss of a flow after restoration, packets a million.
    #[serde(default)]
    pub loss_ppm: u64,
}

/// The data plane.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Plane {
    /// Drawn at its start.
    pub instance: String,
    /// Revision in force.
    pub revision: Option<u64>,
    /// Segments by id.
    pub segments: BTreeMap<String, Segment>,
}

/// A segment.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Segment {
    /// Mode in force.
    pub mode: String,
    /// Whether that is the one of the document.
    pub as_configured: bool,
    /// Whether the links are up, LAN and WAN.
    pub links: [bool; 2],
}

/// A peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Peer {
    /// It answers for a flow.
    pub answered: bool,
    /// Flows that are matched to it.
    pub flows: u64,
    /// Those of them that are protected.
    pub protected: u64,
}

impl Health {
    /// Of what the data plane says of itself and of its flows; none if it does not answer.
    pub fn of(status: Option<&Status>, flows: &[Flow]) -> Self {
        let mut health = Self {
            dataplane: status.map(Plane::of),
            ..Self::default()
        };
        for flow in flows {
            let after = flow.loss.map_or(0, |loss| loss.after_ppm);
            if flow.role == Role::Crf {
                health.loss_ppm = health.loss_ppm.max(after);
            }
            let Some(matched) = flow.matched else {
                continue;
            };
            let peer = health.peers.entry(matched.peer.ip().to_string());
            let peer = peer.or_default();
            peer.answered |= matched.answered;
            peer.flows += 1;
            peer.protected += u64::from(flow.reason.is_none());
        }
        health
    }

    /// What is not as well as before, after `revision` was brought into force; nothing if all is well.
    pub fn worse_than(&self, before: &Self, revision: u64, allowed_loss_ppm: u64) -> Vec<String> {
        let mut worse = Vec::new();
        if let Some(was) = &before.dataplane {
            match &self.dataplane {
                None => worse.push("the data plane does not answer".to_owned()),
                Some(is) => is.worse_than(was, revision, &mut worse),
            }
        }
        for (address, was) in &before.peers {
            // Flows may have ended; those that are there should be as well off.
            let is = self.peers.get(address).copied().unwrap_or_default();
            if was.answered && is.flows > 0 && !is.answered {
                worse.push(format!("peer {address} does not answer"));
            } else if was.protected > 0 && is.flows > 0 && is.protected == 0 {
                worse.push(format!("no flow with peer {address} is protected"));
            }
        }
        let allowed = allowed_loss_ppm.max(before.loss_ppm);
        if self.loss_ppm > allowed {
            let loss = self.loss_ppm;
            worse.push(format!(
                "a flow loses {loss} packets a million after restoration, {allowed} are allowed"
            ));
        }
        worse
    }
}

impl Plane {
    fn of(status: &Status) -> Self {
        let segment = |s: &crem_api::state::SegmentStatus| Segment {
            mode: s.mode.clone(),
            as_configured: s.mode_reason.is_none(),
            links: [s.lan.link_up, s.wan.link_up],
        };
        let segments = status.segments.iter();
        Self {
            instance: status.instance.clone(),
            revision: status.revision,
            segments: segments.map(|(id, s)| (id.clone(), segment(s))).collect(),
        }
    }

    fn worse_than(&self, before: &Self, revision: u64, worse: &mut Vec<String>) {
        if self.revision != Some(revision) {
            worse.push(format!("the data plane does not run revision {revision}"));
        }
        for (id, was) in &before.segments {
            // A segment that is gone was taken out by the document.
            let Some(is) = self.segments.get(id) else {
                continue;
            };
            if was.as_configured && !is.as_configured {
                let mode = &is.mode;
                worse.push(format!("segment {id} is in mode {mode} by itself"));
            }
            for (name, (was, is)) in ["LAN", "WAN"]
                .into_iter()
                .zip(was.links.into_iter().zip(is.links))
            {
                if was && !is {
                    worse.push(format!("the {name} link of segment {id} is down"));
                }
            }
        }
    }
}

/// The problem document of a change that was given up.
pub fn problem(worse: &[String]) -> Box<Problem> {
    Box::new(Problem {
        kind: "urn:crem:problem:fleet-health".to_owned(),
        title: "The gateway was not as well as before".to_owned(),
        status: 200,
        detail: format!("The change was taken back: {}.", worse.join("; ")),
        ..Problem::default()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn well(revision: u64) -> Health {
        let segment = Segment {
            mode: "active".to_owned(),
            as_configured: true,
            links: [true, true],
        };
        let peer = Peer {
            answered: true,
            flows: 4,
            protected: 3,
        };
        Health {
            dataplane: Some(Plane {
                instance: "x".to_owned(),
                revision: Some(revision),
                segments: [("s".to_owned(), segment)].into(),
            }),
            peers: [("10.0.0.2".to_owned(), peer)].into(),
            loss_ppm: 10,
        }
    }

    fn worse(spoil: impl Fn(&mut Health)) -> String {
        let mut after = well(8);
        spoil(&mut after);
        after.worse_than(&well(7), 8, 1_000).join("; ")
    }

    fn peer(health: &mut Health) -> &mut Peer {
        health.peers.get_mut("10.0.0.2").unwrap()
    }

    fn segment(health: &mut Health) -> &mut Segment {
        let plane = health.dataplane.as_mut().unwrap();
        plane.segments.get_mut("s").unwrap()
    }

    #[test]
    fn what_worked_before_has_to_work_afterwards() {
        assert_eq!(worse(|_| ()), "");
        type Spoil = fn(&mut Health);
        let cases: [(Spoil, &str); 7] = [
            (|h| h.dataplane = None, "does not answer"),
            (
                |h| h.dataplane.as_mut().unwrap().revision = Some(7),
                "does not run revision 8",
            ),
            (|h| segment(h).as_configured = false, "by itself"),
            (|h| segment(h).links[1] = false, "the WAN link"),
            (
                |h| peer(h).answered = false,
                "peer 10.0.0.2 does not answer",
            ),
            (|h| peer(h).protected = 0, "no flow with peer"),
            (|h| h.loss_ppm = 1_001, "loses 1001"),
        ];
        for (spoil, words) in cases {
            let found = worse(spoil);
            assert!(found.contains(words), "{words:?}: {found}");
        }
    }

    #[test]
    fn flows_that_ended_and_what_never_worked_are_no_failure() {
        assert_eq!(worse(|h| h.peers.clear()), "");
        assert_eq!(worse(|h| peer(h).protected = 1), "");
        let nothing = Health::default();
        assert!(nothing.worse_than(&nothing, 1, 0).is_empty());
        assert!(well(1).worse_than(&nothing, 1, 10).is_empty());
        let mut lossy = well(7);
        lossy.loss_ppm = 5_000;
        let after = Health {
            loss_ppm: 4_000,
            ..well(8)
        };
        assert!(after.worse_than(&lossy, 8, 1_000).is_empty());
    }
}
