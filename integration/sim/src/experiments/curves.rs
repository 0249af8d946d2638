//! Goodput and completion time of WRITEs against loss, for both kinds of endpoints, with what the repair
//! costs: bare wire, fixed FEC, coded retransmission alone, CREM.

use std::io;

use serde_json::{Value, json};

use super::report::on_threads;
use super::settings::{ENDPOINTS, Options, SCHEMES};
use super::svg::{Chart, Line, Panel};
use super::writes::{MTU, WriteCell, WriteResult};
use crate::Duration;
use crate::net::loss::Loss;

const RATE: u64 = 25_000_000_000;
const PORT_RATE: f64 = 40e9;
const OCTETS: u32 = 4 << 20;
const RTTS_MS: [u64; 4] = [1, 10, 25, 100];
const LOSSES: [f64; 8] = [1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2];
const WRITES: u64 = 1_000;
/// WRITEs before the loss begins, and with it before measuring begins.
const CALM: u64 = 20;
const WARM: u64 = 100;
/// Packets after which a cell ends, done or not.
const BUDGET: u64 = 2_000_000;
/// Packets of the measurement of goodput, at least.
const STREAM: u64 = 600_000;
/// Round trips of packets before the loss begins, with it before goodput is measured, and while it is, at
/// least.
const CALM_ROUNDS: u64 = 8;
const WARM_ROUNDS: u64 = 10;
const ROUNDS: u64 = 10;

struct Cell {
    endpoint: usize,
    scheme: usize,
    rtt_ms: u64,
    loss: f64,
}

struct Point {
    single: WriteResult,
    stream: WriteResult,
}

impl Cell {
    fn writes(&self, options: &Options) -> WriteCell {
        let rtt = Duration::from_millis(self.rtt_ms);
        WriteCell {
            protection: SCHEMES[self.scheme].1.protection(rtt),
            recovery: ENDPOINTS[self.endpoint].1,
            rtt,
            rate: RATE,
            port_rate: PORT_RATE,
            octets: OCTETS,
            outstanding: 1,
            loss: Loss::Uniform(self.loss),
            back_loss: 0.0,
            calm: CALM * u64::from(OCTETS.div_ceil(u32::from(MTU))),
            warm: WARM + CALM,
            warm_budget: options.size(BUDGET / 2),
            messages: options.size(WRITES),
            budget: options.size(BUDGET),
            seed: options.seed,
        }
    }

    fn run(&self, options: &Options) -> Point {
        let single = self.writes(options);
        // As many at a time as fill the path twice.
        let octets = RATE as f64 / 8.0 * single.rtt.as_secs_f64();
        let outstanding = (2.0 * octets / f64::from(OCTETS)).ceil() as u32 + 2;
        // A binding takes some round trips, and so does an estimate; a figure needs some as well.
        let round = (octets / f64::from(MTU)) as u64;
        let stream = WriteCell {
            outstanding,
            messages: u64::MAX / 2,
            calm: round * CALM_ROUNDS,
            warm: u64::MAX / 2,
            warm_budget: round * (CALM_ROUNDS + WARM_ROUNDS),
            budget: options.size(STREAM).max(round * ROUNDS),
            ..single.clone()
        };
        Point {
            single: single.run(),
            stream: stream.run(),
        }
    }

    fn json(&self, point: &Point) -> Value {
        let (single, stream) = (&point.single, &point.stream);
        json!({
            "endpoint": ENDPOINTS[self.endpoint].0,
            "scheme": SCHEMES[self.scheme].0,
            "rtt_ms": self.rtt_ms,
            "loss": self.loss,
            "goodput_gbit_s": stream.goodput() / 1e9,
            "stream_repair": stream.overhead(),
            "writes": single.times.len(),
            "mean_ms": single.mean() * 1e3,
            "p99_ms": single.quantile(0.99) * 1e3,
            "p999_ms": single.quantile(0.999) * 1e3,
            "repair": single.overhead(),
            "sent_again": single.again,
            "failed": single.failed || stream.failed,
        })
    }
}

fn cells(options: &Options) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (endpoint, (end, _)) in ENDPOINTS.iter().enumerate() {
        for rtt_ms in RTTS_MS {
            for loss in LOSSES {
                for (scheme, (name, _)) in SCHEMES.iter().enumerate() {
                    if options.wants(&format!("{name}, {end}, {rtt_ms} ms, {loss}")) {
                        cells.push(Cell {
                            endpoint,
                            scheme,
                            rtt_ms,
                            loss,
                        });
                    }
                }
            }
        }
    }
    cells
}

/// What a chart shows of a point.
struct Metric {
    file: &'static str,
    title: &'static str,
    unit: &'static str,
    log_y: bool,
    value: fn(&Point) -> f64,
}

const METRICS: [Metric; 5] = [
    Metric {
        file: "goodput",
        title: "Goodput of a stream of 4 MiB WRITEs at 25 Gbit/s",
        unit: "goodput, Gbit/s",
        log_y: false,
        value: |p| p.stream.goodput() / 1e9,
    },
    Metric {
        file: "mean",
        title: "Completion time of single 4 MiB WRITEs at 25 Gbit/s: mean",
        unit: "completion time, ms",
        log_y: true,
        value: |p| p.single.mean() * 1e3,
    },
    Metric {
        file: "p99",
        title: "Completion time of single 4 MiB WRITEs at 25 Gbit/s: 99th percentile",
        unit: "completion time, ms",
        log_y: true,
        value: |p| p.single.quantile(0.99) * 1e3,
    },
    Metric {
        file: "p999",
        title: "Completion time of single 4 MiB WRITEs at 25 Gbit/s: 99.9th percentile",
        unit: "completion time, ms",
        log_y: true,
        value: |p| p.single.quantile(0.999) * 1e3,
    },
    Metric {
        file: "repair",
        title: "REPAIR messages per packet, stream of 4 MiB WRITEs",
        unit: "REPAIR messages per packet",
        log_y: false,
        value: |p| p.stream.overhead(),
    },
];

fn chart(metric: &Metric, cells: &[Cell], points: &[Point]) -> Chart {
    let mut panels = Vec::new();
    for (endpoint, (name, _)) in ENDPOINTS.iter().enumerate() {
        for rtt_ms in RTTS_MS {
            let line = |scheme| Line {
                name: scheme,
                points: cells
                    .iter()
                    .zip(points)
                    .filter(|(c, _)| (c.endpoint, c.rtt_ms, c.scheme) == (endpoint, rtt_ms, scheme))
                    .map(|(c, p)| (c.loss, (metric.value)(p)))
                    .collect(),
            };
            panels.push(Panel {
                title: format!("{name}, RTT {rtt_ms} ms"),
                lines: (0..SCHEMES.len()).map(line).collect(),
            });
        }
    }
    Chart {
        title: metric.title.into(),
        x_label: "packets lost toward the receiver, share".into(),
        y_label: metric.unit.into(),
        names: SCHEMES.iter().map(|(name, _)| (*name).into()).collect(),
        columns: RTTS_MS.len(),
        log_y: metric.log_y,
        panels,
    }
}

/// Measures all points and writes `curves.json` and a chart for each metric.
pub fn run(options: &Options) -> io::Result<bool> {
    let cells = cells(options);
    let points = on_threads(options.threads, &cells, |cell| {
        let point = cell.run(options);
        println!("{}", cell.json(&point));
        point
    });
    std::fs::create_dir_all(&options.docs)?;
    std::fs::create_dir_all(&options.results)?;
    let all: Vec<_> = cells.iter().zip(&points).map(|(c, p)| c.json(p)).collect();
    let document =
        json!({ "writes_per_point": options.size(WRITES), "seed": options.seed, "points": all });
    let document = serde_json::to_string_pretty(&document)? + "\n";
    std::fs::write(options.docs.join("curves.json"), &document)?;
    std::fs::write(options.results.join("curves.json"), &document)?;
    for metric in &METRICS {
        let svg = chart(metric, &cells, &points).render();
        std::fs::write(options.docs.join(format!("{}.svg", metric.file)), svg)?;
    }
    let failed = points.iter().filter(|p| p.single.failed || p.stream.failed);
    println!(
        "curves: ok points={} writes_per_point={} queue_pairs_failed={}",
        cells.len(),
        options.size(WRITES),
        failed.count()
    );
    Ok(true)
}
