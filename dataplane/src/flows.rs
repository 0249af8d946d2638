//! Flows as documents show them, from what the protocol functions say of them.

use std::collections::BTreeMap;
use std::time::Duration;

use crem_core::{crf, csf};

use crem_api::state::{Advice, Applied, Flow, Loss, Matched, PathStatus, Role, WouldApply};
use crem_core::events::Unprotected;
use crem_core::monitor::MonitoredFlow;
use crem_core::packet::{PsnSpace, StreamKey};

use crate::snapshot::FlowSnapshot;

/// The state in documents of a flow that is protected.
const PROTECTED: &str = "protected";

/// One flow.
pub(crate) fn flow(segment: &str, flow: &FlowSnapshot) -> Flow {
    match flow {
        FlowSnapshot::Sender(f) => sender(segment, f),
        FlowSnapshot::Receiver(f) => receiver(segment, f),
        FlowSnapshot::Watched(f) => watched(segment, f),
        FlowSnapshot::Datagrams(f) => datagrams(segment, f),
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
        reason_values: BTreeMap::new(),
        supported: true,
        matched: None,
        flow_id: None,
        applied: None,
        loss: None,
        loss_class: None,
        would_apply: None,
        advice: None,
        counters: BTreeMap::new(),
    }
}

fn named<'a>(counters: impl IntoIterator<Item = (&'a str, u64)>) -> BTreeMap<String, u64> {
    counters
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn explain(flow: &mut Flow, why: Unprotected) {
    flow.reason = Some(why.name().to_owned());
    flow.reason_values = named(why.values());
}

fn sender(segment: &str, f: &csf::FlowStatus) -> Flow {
    let c = &f.counts;
    let mut flow = of_key(segment, Role::Csf, &f.key);
    if let Some(why) = f.unprotected {
        flow.state = words(f.state);
        explain(&mut flow, why);
    }
    flow.matched = f
        .bound
        .map(|(peer, _)| peer)
        .or(f.peer)
        .map(|peer| Matched {
            peer,
            answered: f.bound.is_some(),
        });
    flow.flow_id = f.bound.map(|(_, id)| id.get());
    flow.applied = f.config.map(|(config, scheme)| Applied {
        config: config.0,
        scheme,
        k: f.k,
        m: f.m,
        t: f.t,
    });
    flow.loss = f.bound.map(|_| Loss {
        before_ppm: ppm(f.loss),
        after_ppm: ppm(f.loss_after),
    });
    flow.loss_class = f.bound.map(|_| f.class.name().to_owned());
    flow.advice = advice(f);
    flow.counters = named([
        ("m_allowed", u64::from(f.m_allowed)),
        ("rdma_mtu", u64::from(f.rdma_mtu)),
        ("path_loss_ppm", ppm(f.path_loss)),
        ("srtt_ns", nanoseconds(f.srtt)),
        ("min_rtt_ns", nanoseconds(f.min_rtt)),
        ("retained_frames", u64::from(f.retained)),
        ("early_retransmissions", u64::from(f.early_runs)),
        ("early_after_ns", nanoseconds(f.early_after)),
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

/// The adapter's timeout ends before a repair can have arrived.
fn advice(f: &csf::FlowStatus) -> Option<Advice> {
    let raise_to = f.raise_timeout_to?;
    let after = f.early_after.unwrap_or_default();
    Some(Advice {
        text: format!(
            "the adapter of {} sends again after {:.1} ms, before a repair can arrive: raise its \
             retransmission timeout to {:.1} ms at least",
            f.key.source,
            after.as_secs_f64() * 1e3,
            raise_to.as_secs_f64() * 1e3,
        ),
        rnic_timeout_ns: Some(nanoseconds(Some(raise_to))),
        hold_ns: None,
    })
}

/// The operator's hold ends before an answer to a request can have arrived (AMB-HOLD).
fn advice_on_hold(f: &crf::FlowStatus) -> Option<Advice> {
    let needed = f.hold_for_round?;
    let hold = f.hold.unwrap_or_default();
    Some(Advice {
        text: format!(
            "the hold of {:.1} ms ends before a coded retransmission can arrive: a host that goes back N \
             needs one of {:.1} ms at least",
            hold.as_secs_f64() * 1e3,
            needed.as_secs_f64() * 1e3,
        ),
        rnic_timeout_ns: None,
        hold_ns: Some(nanoseconds(Some(needed))),
    })
}

/// The path to a peer.
pub(crate) fn path(path: &csf::PathStatus) -> PathStatus {
    PathStatus {
        loss_ppm: ppm(path.loss),
        // A run is at least one packet long, and no longer than PSNs count.
        burst_milli: (path.burst * 1e3).round() as u64,
        loss_class: path.class.name().to_owned(),
        breaker: words(path.breaker),
    }
}

fn receiver(segment: &str, f: &crf::FlowStatus) -> Flow {
    let figures = &f.figures;
    let mut flow = of_key(segment, Role::Crf, &f.key);
    if f.config.is_none() {
        flow.state = words(f.life);
        explain(&mut flow, Unprotected::AwaitingParameters);
    }
    flow.matched = f.peer.map(|peer| Matched {
        peer,
        answered: true,
    });
    flow.flow_id = f.flow.map(|id| id.get());
    flow.applied = f.config.map(|c| Applied {
        config: c.id.0,
        scheme: c.scheme,
        k: c.k,
        m: c.m,
        t: c.t,
    });
    flow.advice = advice_on_hold(f);
    flow.loss = f.config.map(|_| Loss {
        before_ppm: ppm(f.loss),
        after_ppm: ppm(f.loss_after),
    });
    flow.counters = named([
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
        ("restored_late", figures.restored_late),
        ("replayed", figures.replayed),
        ("resent_needlessly", figures.resent_needlessly),
        ("left", figures.left),
        ("requests", figures.requests),
    ]);
    flow
}

/// A flow from the WAN in mode `monitor`.
fn watched(segment: &str, f: &MonitoredFlow) -> Flow {
    let seen = &f.seen;
    let mut flow = of_key(segment, Role::Crf, &f.key);
    flow.state = words(csf::State::Observing);
    explain(&mut flow, f.unprotected);
    flow.would_apply = Some(WouldApply {
        k: f.would.choice.k,
        m: f.would.choice.m,
        overhead_ppm: ppm(f.would.overhead),
        residual: f.would.residual,
    });
    flow.counters = named([
        ("packets", seen.packets),
        ("ce", seen.ce),
        ("lost", seen.lost),
        ("gaps", seen.gaps),
        ("longest_gap", u64::from(seen.longest)),
        ("reordered", seen.reordered),
        ("resent", seen.resent),
        ("duplicates", seen.duplicates),
        ("behind", seen.behind),
        ("jumps", seen.jumps),
        ("loss_ppm", ppm(f.loss)),
        // A run is at least one packet long, and no longer than PSNs count.
        ("burst_milli", (f.burst * 1e3).round() as u64),
    ]);
    flow
}

/// Their PSNs are their senders', so they have no space of their own.
fn datagrams(segment: &str, f: &csf::DatagramStatus) -> Flow {
    let key = StreamKey {
        namespace: f.key.namespace,
        source: f.key.source,
        destination: f.key.destination,
        qp: f.key.qp,
        space: PsnSpace::Requests,
    };
    let mut flow = of_key(segment, Role::Csf, &key);
    flow.space = "datagrams".to_owned();
    flow.state = words(csf::State::Observing);
    flow.supported = false;
    explain(&mut flow, f.unprotected);
    flow.counters = named([("packets", f.packets)]);
    flow
}

/// The name of a state of the core: `SilentQueued` becomes `silent_queued`.
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
    use crem_core::csf::State;

    #[test]
    fn states_become_words() {
        assert_eq!(words(State::SilentQueued), "silent_queued");
        assert_eq!(words(State::Active), "active");
    }

    #[test]
    fn a_reason_comes_with_its_numbers() {
        let key = StreamKey {
            namespace: crem_core::packet::Namespace(0),
            source: [10, 0, 1, 1].into(),
            destination: [10, 0, 2, 1].into(),
            qp: crem_wire::Qpn::new(7),
            space: PsnSpace::Requests,
        };
        let explained = |why| {
            let mut flow = of_key("a", Role::Csf, &key);
            explain(&mut flow, why);
            (flow.reason.unwrap_or_default(), flow.reason_values)
        };
        let (needed, available) = (4214, 1500);
        assert_eq!(
            explained(Unprotected::Mtu { needed, available }),
            (
                "mtu".to_owned(),
                named([("path_mtu_needed", 4214), ("path_mtu", 1500)])
            )
        );
        let closed = explained(Unprotected::ClosedByPeer(3));
        assert_eq!(
            closed,
            ("closed_by_peer".to_owned(), named([("close_reason", 3)]))
        );
        assert_eq!(
            explained(Unprotected::Breaker),
            ("breaker".to_owned(), named([]))
        );
    }
}
