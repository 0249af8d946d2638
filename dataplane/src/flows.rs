//! Flows as documents show them, from what the protocol functions say of them.

use std::time::Duration;

use crem_core::{crf, csf};

use crate::snapshot::FlowSnapshot;

/// The state in documents of a flow that is protected.
const PROTECTED: &str = "protected";

/// A flow at the sender function.
pub(crate) fn sender(segment: usize, f: &csf::FlowStatus) -> FlowSnapshot {
    let c = &f.counts;
    FlowSnapshot {
        segment,
        is_sender: true,
        key: f.key,
        state: if f.unprotected.is_none() {
            PROTECTED.to_owned()
        } else {
            words(f.state)
        },
        reason: f.unprotected.map(words),
        flow_id: f.bound.map(|(_, id)| id.get()),
        parameters: (f.k > 0).then_some((f.k, f.m, f.t)),
        counters: vec![
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
        ],
    }
}

/// A flow at the receiver function.
pub(crate) fn receiver(segment: usize, f: &crf::FlowStatus) -> FlowSnapshot {
    let mut counters = vec![
        ("loss_ppm", ppm(f.loss)),
        ("srtt_ns", nanoseconds(f.srtt)),
        ("min_rtt_ns", nanoseconds(f.min_rtt)),
        ("allowance_ns", nanoseconds(f.allowance)),
        ("hold_ns", nanoseconds(f.hold)),
        ("kept_frames", u64::from(f.kept)),
        ("held_frames", u64::from(f.held)),
        ("open_blocks", u64::from(f.open_blocks)),
        ("gaps", u64::from(f.gaps)),
    ];
    let figures = &f.figures;
    counters.extend([
        ("sources", figures.sources),
        ("lost", figures.lost),
        ("restored_ordinary", figures.restored_ordinary),
        ("restored_coded", figures.restored_coded),
        ("restored_copy", figures.restored_copy),
        ("left", figures.left),
        ("requests", figures.requests),
    ]);
    FlowSnapshot {
        segment,
        is_sender: false,
        key: f.key,
        state: if f.config.is_some() {
            PROTECTED.to_owned()
        } else {
            words(f.life)
        },
        reason: f
            .config
            .is_none()
            .then(|| "no_parameters_in_force".to_owned()),
        flow_id: f.flow.map(|id| id.get()),
        parameters: f.config.map(|c| (c.k, c.m, c.t)),
        counters,
    }
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
