//! What checking and applying a large document costs: 200 peers and 2,000 connections whose sequence is
//! observed. Prints milliseconds; with `--check` it fails above 50 ms without flushing to the device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crem_api::Impact;
use crem_control::audit;
use crem_control::engine::{Parts, WriteRequest, start};
use crem_control::plan::{Base, Edit, plan};
use crem_control::plane::SocketPlane;
use crem_control::store::{Durability, Store};
use serde_json::{Map, Value, json};

const LIMIT: Duration = Duration::from_millis(50);
const ROUNDS: u32 = 20;

fn document(k: u32) -> Value {
    let peers: Map<String, Value> = (0..200)
        .map(|n| {
            (
                format!("10.{}.0.0/16", n + 1),
                json!({"address": format!("192.0.2.{}", n + 2)}),
            )
        })
        .collect();
    let connections: Map<String, Value> = (0..2000)
        .map(|n| {
            let connection = json!({
                "source": format!("172.16.{}.{}/32", n / 250, n % 250),
                "destination": format!("10.{}.0.0/16", n % 200 + 1),
                "qp": n + 2, "only_send_and_write": true, "complete_and_unambiguous": true,
                "packets_per_s": 100_000, "longest_retry_ms": 500,
            });
            (format!("c{n}"), connection)
        })
        .collect();
    json!({
        "version": 1,
        "segments": {"a": {
            "mode": "active", "crem_port": 4801, "path_mtu": 4500,
            "lan": {"interface": "lan0"}, "wan": {"interface": "wan0"},
            "served": {"172.16.0.0/16": {}}, "peers": peers,
            "inband": {"address": "192.0.2.1/24"}, "policy": {"k": k},
        }},
        "ipfix": {
            "domain": 1, "pen": 32473, "first_element": 100,
            "scopes": {"all": {"source": "0.0.0.0/0", "destination": "0.0.0.0/0"}},
            "points": {"in": {"segment": "a", "place": "lan_ingress", "base": 1, "sequence": true}},
            "sequence": {"max_connections": 2048, "max_epochs": 2048},
            "connections": connections,
            "collectors": {"c": {
                "transport": "tcp", "host": "127.0.0.1", "sequence": true,
            }},
        },
    })
}

/// Median and maximum.
fn times(mut work: impl FnMut(u32)) -> (Duration, Duration) {
    let mut all: Vec<Duration> = (0..ROUNDS)
        .map(|n| {
            let begin = Instant::now();
            work(n);
            begin.elapsed()
        })
        .collect();
    all.sort_unstable();
    (all[all.len() / 2], all[all.len() - 1])
}

fn apply(directory: &Path, durability: Durability) -> (Duration, Duration) {
    let _ = std::fs::remove_dir_all(directory);
    let store = Store::open(directory, durability).unwrap();
    let (engine, thread) = start(Parts {
        store,
        plane: Box::new(SocketPlane::new(&directory.join("none.sock"))),
        journal: Arc::default(),
        audit: Arc::new(audit::Log::open(&directory.join("audit.jsonl")).unwrap()),
    })
    .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    // What clients sent, as it was read: making it up is no part of an apply.
    let mut sent: Vec<Value> = (1..ROUNDS + 2).rev().map(document).collect();
    let mut write = || {
        let request = WriteRequest {
            edit: Edit::Replace(sent.pop().unwrap()),
            pointer: String::new(),
            source: "put",
            expected: None,
            window_ms: None,
            max_impact: Impact::Hot,
            comment: None,
            idempotency: None,
            actor: "bench".to_owned(),
        };
        assert!(runtime.block_on(engine.write(request)).unwrap().changed);
    };
    write();
    let measured = times(|_| write());
    engine.stop();
    thread.join().unwrap();
    std::fs::remove_dir_all(directory).unwrap();
    measured
}

fn main() {
    let text = document(1).to_string();
    let running = document(1);
    let typed = crem_api::from_value(&running).unwrap_or_else(|e| panic!("{e}"));
    let validate = times(|n| {
        let value: Value =
            serde_json::from_str(&text.replace("\"k\":1", &format!("\"k\":{}", n + 2))).unwrap();
        let base = Base {
            value: &running,
            document: Some(&typed),
        };
        assert_eq!(plan(base, Edit::Replace(value)).unwrap().fields.len(), 1);
    });
    let directory = std::env::temp_dir().join(format!("crem-bench-config-{}", std::process::id()));
    let unflushed = apply(&directory, Durability::Unflushed);
    let flushed = apply(&directory, Durability::Flushed);
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    println!(
        "document of {} octets, {ROUNDS} rounds, median and maximum in ms",
        text.len()
    );
    let rows = [
        ("validate", validate),
        ("apply", unflushed),
        ("apply_flushed", flushed),
    ];
    for (name, (median, most)) in rows {
        println!("{name:20} {:8.2} {:8.2}", ms(median), ms(most));
    }
    // What the disk takes is printed and not judged.
    let ok = rows[..2].iter().all(|(_, (median, _))| *median <= LIMIT);
    let figures = rows.map(|(name, (median, most))| {
        (
            name.to_owned(),
            json!({ "median_ms": ms(median), "most_ms": ms(most) }),
        )
    });
    let result = json!({
        "ok": ok,
        "limit_ms": ms(LIMIT),
        "rows": Map::from_iter(figures),
    });
    std::fs::create_dir_all("target/results").unwrap();
    std::fs::write("target/results/bench-config.json", format!("{result:#}\n")).unwrap();
    let word = if ok { "ok" } else { "short" };
    let figures = rows.map(|(name, (median, _))| format!("{name}_ms={:.1}", ms(median)));
    println!("bench-config: {word} {}", figures.join(" "));
    if !ok && std::env::args().any(|a| a == "--check") {
        std::process::exit(1);
    }
}
