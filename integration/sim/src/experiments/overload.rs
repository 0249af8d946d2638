//! A WAN queue that gets as much as it can carry, or more: what arrives with the gateways and without.

use std::io;

use serde_json::json;

use super::flow::{Flow, Traffic};
use super::pair::{Pair, PairConfig, Protection, roomy};
use super::report::{Check, Report, on_threads};
use super::settings::Options;
use super::streams::open_flow;
use super::writes::MTU;
use crate::endpoint::rc::{
    DcqcnConfig, Recovery, Requester, RequesterConfig, Responder, ResponderConfig,
};
use crate::net::loss::Loss;
use crate::net::queue::{Marking, QueueConfig};
use crate::{Duration, Instant};

const RTT: Duration = Duration::from_millis(25);
const CAPACITY: f64 = 2.5e9;
/// Octets that may wait: ten milliseconds of the queue's rate.
const ROOM: u64 = 3_125_000;
const PORT_RATE: f64 = 100e9;
const FLOWS: u16 = 4;
/// Load before the onset, as a share of the capacity.
const CALM: f64 = 0.4;
const CALM_TIME: Duration = Duration::from_secs(3);
/// What is measured begins this long after the onset.
const SETTLE: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(6);
const LOADS: [f64; 11] = [0.5, 0.7, 0.9, 0.95, 1.0, 1.02, 1.05, 1.1, 1.3, 1.6, 2.0];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// ECN marks and open loop.
    Ecn,
    /// Tail drop and open loop.
    TailDrop,
    /// ECN marks and endpoints that react.
    Reacting,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Ecn => "ECN",
            Kind::TailDrop => "tail drop",
            Kind::Reacting => "CNP",
        }
    }

    fn queue(self) -> QueueConfig {
        let marking = match self {
            Kind::TailDrop => Marking::Off,
            Kind::Ecn | Kind::Reacting => Marking::Ramp {
                low: ROOM / 20,
                high: ROOM / 2,
                at_high: 0.2,
            },
        };
        QueueConfig {
            rate: CAPACITY,
            capacity: ROOM,
            marking,
            cross: None,
        }
    }
}

struct Case {
    kind: Kind,
    load: f64,
    /// Loss in transmission besides.
    loss: f64,
    on: bool,
}

#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Packets delivered, each once, in the first two seconds and after them.
    first: u64,
    settled: u64,
    ordinary: u64,
    coded: u64,
    sources: u64,
    dropped: u64,
}

fn delivered(pair: &Pair) -> u64 {
    let unique = |flow: &Flow| match &flow.traffic {
        Traffic::Open { sink, .. } => sink.unique,
        Traffic::Writes { responder, .. } => responder.figures().unique,
    };
    pair.flows.iter().map(unique).sum()
}

fn reacting(number: u16) -> Flow {
    let recovery = Recovery::Selective {
        reorder: Duration::from_micros(50),
    };
    let mut config = RequesterConfig::for_path(recovery, MTU, CAPACITY as u64 / 2, RTT);
    config.batch = Duration::from_micros(100);
    config.dcqcn = Some(DcqcnConfig::default());
    config.first = u64::from(number) * 100_003;
    let responder = ResponderConfig::facing(&config);
    Flow::new(
        number,
        Traffic::Writes {
            requester: Box::new(Requester::new(config)),
            responder: Box::new(Responder::new(responder)),
            octets: 1 << 20,
            outstanding: 64,
            messages: u64::MAX,
        },
    )
}

fn run_case(case: &Case, seed: u64) -> Outcome {
    let protection = if case.on {
        Protection::Crem(Box::new(roomy()))
    } else {
        Protection::Bare
    };
    let mut config = PairConfig::new(protection, RTT, PORT_RATE, seed);
    config.path.queue = Some(case.kind.queue());
    if case.loss > 0.0 {
        config.path.loss = Loss::Uniform(case.loss);
    }
    config.poll = Duration::from_micros(50);
    let start = Instant(1_000_000_000);
    let onset = start + CALM_TIME;
    let end = onset + SETTLE + MEASURED;
    let flow = |number| match case.kind {
        Kind::Reacting => reacting(number),
        _ => open_flow(number, start, CALM * CAPACITY / f64::from(FLOWS), end),
    };
    let mut pair = Pair::new(config, (0..FLOWS).map(flow).collect());
    pair.run_until(onset);
    for flow in &mut pair.flows {
        if let Traffic::Open { source, .. } = &mut flow.traffic {
            let rate = case.load * CAPACITY / f64::from(FLOWS);
            source.set_gap((f64::from(MTU) + 82.0) * 8e9 / rate);
        }
    }
    let (at_onset, before) = (delivered(&pair), pair.tally());
    pair.run_until(onset + SETTLE);
    let at_settled = delivered(&pair);
    pair.run_until(end);
    let tally = pair.tally().since(&before);
    Outcome {
        first: at_settled - at_onset,
        settled: delivered(&pair) - at_settled,
        ordinary: tally.ordinary,
        coded: tally.coded,
        sources: tally.sources,
        dropped: tally.sources_dropped,
    }
}

fn cases(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in [Kind::Ecn, Kind::TailDrop, Kind::Reacting] {
        for load in LOADS {
            for loss in [0.0, 1e-3] {
                // Endpoints that react choose their load themselves.
                let wanted = kind != Kind::Reacting || load == LOADS[0];
                if wanted && options.wants(&label(kind, load, loss)) {
                    for on in [false, true] {
                        cases.push(Case {
                            kind,
                            load,
                            loss,
                            on,
                        });
                    }
                }
            }
        }
    }
    cases
}

fn label(kind: Kind, load: f64, loss: f64) -> String {
    match kind {
        Kind::Reacting => format!("CNP, loss {loss:e}"),
        _ => format!("{}, load {load}, loss {loss:e}", kind.name()),
    }
}

/// Overload, FEC on against off.
pub fn run(options: &Options) -> io::Result<bool> {
    let mut report = Report::new("overload");
    let cases = cases(options);
    let outcomes = on_threads(options.threads, &cases, |case| run_case(case, options.seed));
    for (case, pair) in cases.chunks(2).zip(outcomes.chunks(2)) {
        if let ([case, _], [off, on]) = (case, pair) {
            judge(&mut report, case, off, on);
        }
    }
    report.finish(options)
}

fn judge(report: &mut Report, case: &Case, off: &Outcome, on: &Outcome) {
    let label = label(case.kind, case.load, case.loss);
    let ratio = |on: u64, off: u64| on as f64 / off.max(1) as f64;
    let (first, settled) = (ratio(on.first, off.first), ratio(on.settled, off.settled));
    println!(
        "{label}: delivered on/off, first 2 s {first:.5}, after {settled:.5}; symbols {:.4} + {:.4}, dropped {:.4} (off {:.4})",
        on.ordinary as f64 / on.sources as f64,
        on.coded as f64 / on.sources as f64,
        on.dropped as f64 / on.sources as f64,
        off.dropped as f64 / off.sources as f64,
    );
    report.figures(
        label.clone(),
        json!({
            "first_2s_ratio": first,
            "settled_ratio": settled,
            "off_delivered": off.settled,
            "on_delivered": on.settled,
            "ordinary": on.ordinary,
            "coded": on.coded,
            "sources": on.sources,
            "dropped_on": on.dropped,
            "dropped_off": off.dropped,
        }),
    );
    let bound = match case.kind {
        Kind::Reacting => 0.99,
        _ if case.load < 1.0 => 0.999,
        _ => 0.995,
    };
    let what = format!("delivered on/off ({label})");
    report.check(Check::at_least(what, settled, bound));
}
