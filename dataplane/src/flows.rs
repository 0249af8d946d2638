//! Flows as documents show them, from what the protocol functions say of them.

use std::collections::BTreeMap;
use std::time::Duration;

use crem_core::{crf, csf};

use crem_api::state::{Flow, Parameters, Role};
use crem_core::packet::{PsnSpace, StreamKey};

use crate::snapshot::FlowSnapshot;

/// The state in documents of a flow that is protected.
const PROTECTED: &str = "protected";

/// One flow.
pub(crate) fn flow(segment: &str, flow: &FlowSnapshot) -> Flow {
    match flow {
        FlowSnapshot::Sender(f) => sender(segment, f),
        FlowSnapshot::Receiver(f) => receiver(segment, f),
    }
}

fn of_key(segment: &str, role: Role, key: &StreamKey) -> Flow {
    Flow {
        segment: segment.to_owned(),
        role,
        source: key.source,
        destination: key.destination,
        qp: key.qp.get(),
        space: match key.space {
            PsnSpace::Requests => "requests".to_owned(),
            PsnSpace::Responses => "responses".to_owned(),
        },
        state: PROTECTED.to_owned(),
        reason: None,
        flow_id: None,
        parameters: None,
        counters: BTreeMap::new(),
    }
}

fn named<const N: usize>(counters: [(&str, u64); N]) -> BTreeMap<String, u64> {
    counters
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn sender(segment: &str, f: &csf::FlowStatus) -> Flow {
    let c = &f.counts;
    let mut flow = of_key(segment, Role::Csf, &f.key);
    if f.unprotected.is_some() {
        flow.state = words(f.state);
    }
    flow.reason = f.unprotected.map(words);
    flow.flow_id = f.bound.map(|(_, id)| id.get());
    flow.parameters = (f.k > 0).then_some(Parameters {
        k: f.k,
        m: f.m,
        t: f.t,
    });
    flow.counters = named([
        ("m_allowed", u64::from(f.m_allowed)),
        ("rdma_mtu", u64::from(f.rdma_mtu)),
        ("loss_ppm", ppm(f.loss)),
        ("srtt_ns", nanoseconds(f.srtt)),
        ("min_rtt_ns", nanoseconds(f.min_rtt)),
        ("retained_frames", u64::from(f.retained)),
        ("sources", c.sources),
        ("behind", c.behind),
        ("blocks", c.blocks),
        ("ordinary", c.ordinary),
        ("coded", c.coded),
        ("copies", c.copies),
        ("info", c.info),
        ("reported_expected", c.reported_expected),
        ("reported_lost", c.reported_lost),
        ("reported_restored", c.reported_restored),
    ]);
    flow
}

fn receiver(segment: &str, f: &crf::FlowStatus) -> Flow {
    let figures = &f.figures;
    let mut flow = of_key(segment, Role::Crf, &f.key);
    if f.config.is_none() {
        flow.state = words(f.life);
        flow.reason = Some("no_parameters_in_force".to_owned());
    }
    flow.flow_id = f.flow.map(|id| id.get());
    flow.parameters = f.config.map(|c| Parameters {
        k: c.k,
        m: c.m,
        t: c.t,
    });
    flow.counters = named([
        ("loss_ppm", ppm(f.loss)),
        ("srtt_ns", nanoseconds(f.srtt)),
        ("min_rtt_ns", nanoseconds(f.min_rtt)),
        ("allowance_ns", nanoseconds(f.allowance)),
        ("hold_ns", nanoseconds(f.hold)),
        ("kept_frames", u64::from(f.kept)),
        ("held_frames", u64::from(f.held)),
        ("open_blocks", u64::from(f.open_blocks)),
        ("gaps", u64::from(f.gaps)),
        ("sources", figures.sources),
        ("lost", figures.lost),
        ("restored_ordinary", figures.restored_ordinary),
        ("restored_coded", figures.restored_coded),
        ("restored_copy", figures.restored_copy),
        ("left", figures.left),
        ("requests", figures.requests),
    ]);
    flow
}

/// The name of a state or reason of the core: `PeerDead` becomes `peer_dead`.
fn words(value: impl core::fmt::Debug) -> String {
    let mut out = String::new();
    for c in format!("{value:?}").chars() {
        if c.is_ascii_uppercase() && out.ends_with(|last: char| last.is_ascii_alphanumeric()) {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

fn ppm(rate: f64) -> u64 {
    // Rates lie between 0 and 1.
    (rate * 1e6).round() as u64
}

/// Zero stands for unknown.
fn nanoseconds(time: Option<Duration>) -> u64 {
    time.map_or(0, |t| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crem_core::events::Unprotected;

    #[test]
    fn reasons_become_words() {
        assert_eq!(words(Unprotected::PeerDead), "peer_dead");
        assert_eq!(words(Unprotected::ClosedByPeer(3)), "closed_by_peer(3)");
        let mtu = Unprotected::Mtu {
            needed: 4214,
            available: 1500,
        };
        assert_eq!(words(mtu), "mtu { needed: 4214, available: 1500 }");
    }
}
