//! What gateways in mode `monitor` say against what the WAN says that it did.

use crem_api::state::{Flow, Named};
use crem_wan::{Class, DirectionReport, Fate};

use super::check::Finding;
use super::ledger::Ledger;
use super::report::{RunReport, gateway_name};
use super::spec::Host;

/// How far the estimated rate of one flow may be from that of all on the WAN, as a factor: it is an estimate over
/// recent packets.
const RATE: f64 = 2.0;

/// Everything about a run in which both gateways only watch.
pub(crate) fn judge(run: &RunReport, found: &mut Vec<Finding>) {
    for (way, name) in [(&run.wan.a_to_b, "A to B"), (&run.wan.b_to_a, "B to A")] {
        let crem = received(way, Class::CremRepair) + received(way, Class::CremOther);
        found.push(Finding::new(
            crem == 0,
            format!("monitor: {crem} CREM frames on the WAN, {name}"),
        ));
    }
    let ends = [
        (Host::A, &run.wan.b_to_a, &run.b_to_a),
        (Host::B, &run.wan.a_to_b, &run.a_to_b),
    ];
    for (host, way, ledger) in ends {
        if received(way, Class::RoceSource) > 0 {
            at(host, way, ledger, run, found);
        }
    }
}

fn received(way: &DirectionReport, class: Class) -> u64 {
    way.count(class, Fate::Received)
}

fn at(
    host: Host,
    way: &DirectionReport,
    ledger: &Ledger,
    run: &RunReport,
    found: &mut Vec<Finding>,
) {
    let name = gateway_name(host);
    let seen = run.gateways.get(name).map(|g| &g.monitor);
    let seen = |key: &str| seen.and_then(|named: &Named| named.get(key)).copied();
    let delivered = way.count(Class::RoceSource, Fate::Delivered);
    found.push(Finding::new(
        seen("packets") == Some(delivered),
        format!(
            "{name}: watched {:?} packets of {delivered} delivered",
            seen("packets")
        ),
    ));
    let marked = way.count(Class::RoceSource, Fate::Marked);
    found.push(Finding::new(
        seen("ce") == Some(marked),
        format!(
            "{name}: {:?} packets with CE of {marked} marked",
            seen("ce")
        ),
    ));
    // The last packet of a message may be sent again before a later one shows that it was lost.
    let lost = ledger.new_sources_lost;
    let near = |n: u64| n <= lost && n + lost / 50 + 3 >= lost;
    found.push(Finding::new(
        seen("lost").is_some_and(near) && lost > 0,
        format!(
            "{name}: {:?} lost of {lost} new packets that the WAN lost",
            seen("lost")
        ),
    ));
    let gaps = seen("gaps");
    found.push(Finding::new(
        gaps.is_some_and(|n| n > 0 && Some(n) <= seen("lost")),
        format!("{name}: {gaps:?} gaps"),
    ));
    let sources = received(way, Class::RoceSource);
    let rate = way.count(Class::RoceSource, Fate::Lost) as f64 / sources as f64;
    let flows = run.watched.get(name).map_or(&[][..], Vec::as_slice);
    found.push(Finding::new(
        !flows.is_empty(),
        format!("{name}: {} flows watched", flows.len()),
    ));
    found.extend(flows.iter().map(|flow| chosen(name, flow, rate)));
}

/// What policy would have chosen for one flow.
fn chosen(name: &str, flow: &Flow, rate: f64) -> Finding {
    let estimated = flow.counters.get("loss_ppm").copied().unwrap_or(0) as f64 / 1e6;
    let near = estimated < rate * RATE && estimated > rate / RATE;
    let chosen = flow.would_apply;
    let ok = chosen.is_some_and(|c| {
        c.m > 0 && c.k > 0 && c.overhead_ppm > 0 && c.residual > 0.0 && c.residual < rate
    });
    Finding::new(
        ok && near && flow.reason.as_deref() == Some("monitor"),
        format!(
            "{name}: QP {:#x} loses {estimated:.4} (the WAN {rate:.4}): {chosen:?}, {:?}",
            flow.qp, flow.reason
        ),
    )
}
