//! Commands on what the gateway does.

use serde_json::Value;

use super::config::waiting;
use super::machine;
use super::{get, items, listed, pretty, query, quoted};
use crate::args::{Arguments, Flows, Show};
use crate::client::{Ask, open};
use crate::{Failure, table};

pub(super) async fn run(arguments: &Arguments, show: &Show) -> Result<String, Failure> {
    match show {
        Show::Dataplane => listed(arguments, "/v1/state/dataplane", pretty).await,
        Show::Segments => listed(arguments, "/v1/state/segments", segments).await,
        Show::Peers => {
            let members = [
                "segment",
                "address",
                "answered",
                "flows",
                "protected_flows",
                "next_hop_mac",
            ];
            let text = |v: &Value| table::objects(&members, items(&v["peers"]));
            listed(arguments, "/v1/state/peers", text).await
        }
        Show::Flows(filter) => flows(arguments, filter).await,
        Show::Counters => listed(arguments, "/v1/state/counters", counters).await,
        Show::Drops => {
            let text = |v: &Value| {
                let some = items(&v["drops"]).filter(|d| d["frames"] != 0);
                table::objects(&["segment", "reason", "frames"], some)
            };
            listed(arguments, "/v1/state/drops", text).await
        }
        Show::Ipfix => listed(arguments, "/v1/state/ipfix", collectors).await,
        Show::Confinement => listed(arguments, "/v1/state/confinement", machine::confinement).await,
        Show::Interfaces => listed(arguments, "/v1/state/interfaces", machine::interfaces).await,
        Show::Routes => {
            let members = [
                "destination",
                "gateway",
                "interface",
                "metric",
                "configured",
            ];
            let text = |v: &Value| table::objects(&members, items(&v["routes"]));
            listed(arguments, "/v1/state/routes", text).await
        }
        Show::Drift => {
            let members = ["pointer", "kind", "configured", "operational"];
            let text = |v: &Value| table::objects(&members, items(&v["drift"]));
            listed(arguments, "/v1/state/drift", text).await
        }
        Show::Dns => listed(arguments, "/v1/state/dns", machine::pairs).await,
        Show::Time => listed(arguments, "/v1/state/time", machine::pairs).await,
        Show::Ports => listed(arguments, "/v1/state/ports", machine::ports).await,
        Show::Lldp => {
            let members = ["interface", "system_name", "chassis", "port", "ttl_ms"];
            let text = |v: &Value| table::objects(&members, items(&v["neighbours"]));
            listed(arguments, "/v1/state/lldp", text).await
        }
        Show::Syslog => listed(arguments, "/v1/state/syslog", machine::syslog).await,
        Show::Events { after, count } => events(arguments, *after, *count).await,
        Show::Commit => listed(arguments, "/v1/commit", waiting).await,
        Show::Operation { id } => operation(arguments, id).await,
        Show::Version => listed(arguments, "/v1/version", pretty).await,
    }
}

fn segments(all: &Value) -> String {
    let row = |(id, s): (&String, &Value)| {
        let port = |p: &Value| {
            let link = if p["link_up"] == true { "up" } else { "down" };
            format!("{} {link}", table::cell(&p["device"]))
        };
        let why = table::cell(&s["mode_reason"]);
        vec![
            id.clone(),
            table::cell(&s["mode"]),
            why,
            port(&s["lan"]),
            port(&s["wan"]),
        ]
    };
    let rows: Vec<Vec<String>> = all.as_object().into_iter().flatten().map(row).collect();
    table::rows(&["segment", "mode", "why", "lan", "wan"], &rows)
}

/// One line a counter that is not 0.
fn counters(all: &Value) -> String {
    let mut rows = Vec::new();
    for (segment, groups) in all["segments"].as_object().into_iter().flatten() {
        for (group, counters) in groups.as_object().into_iter().flatten() {
            for (name, count) in counters.as_object().into_iter().flatten() {
                if *count != 0 {
                    rows.push(vec![
                        segment.clone(),
                        group.clone(),
                        name.clone(),
                        count.to_string(),
                    ]);
                }
            }
        }
    }
    table::rows(&["segment", "group", "counter", "count"], &rows)
}

fn collectors(all: &Value) -> String {
    let row = |(name, c): (&String, &Value)| {
        let count = |n: &str| table::cell(&c["counters"][n]);
        vec![
            name.clone(),
            table::cell(&c["state"]),
            table::cell(&c["session"]),
            count("records"),
            count("lost"),
        ]
    };
    let rows: Vec<Vec<String>> = all["collectors"]
        .as_object()
        .into_iter()
        .flatten()
        .map(row)
        .collect();
    table::rows(&["collector", "state", "session", "records", "lost"], &rows)
}

/// All pages of flows.
async fn flows(arguments: &Arguments, filter: &Flows) -> Result<String, Failure> {
    let most = filter.limit.unwrap_or(usize::MAX);
    let (mut found, mut cursor, mut last) = (Vec::new(), None, Value::Null);
    while found.len() < most {
        let path = query(&[
            ("limit", Some((most - found.len()).min(1000).to_string())),
            ("segment", filter.segment.clone()),
            ("reason", filter.reason.clone()),
            ("protected", filter.protected.map(|p| p.to_string())),
            ("network", filter.network.clone()),
            ("cursor", cursor),
        ]);
        last = get(arguments, format!("/v1/state/flows{path}"))
            .await?
            .value;
        found.extend(items(&last["flows"]).cloned());
        cursor = last["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    if arguments.json {
        last["flows"] = Value::Array(found);
        return Ok(pretty(&last));
    }
    let rows: Vec<Vec<String>> = found.iter().map(flow).collect();
    let header = [
        "segment",
        "role",
        "source",
        "destination",
        "qp",
        "supported",
        "matched",
        "applied",
        "loss before",
        "after",
        "state",
        "why",
    ];
    Ok(table::rows(&header, &rows))
}

fn flow(f: &Value) -> Vec<String> {
    let applied = &f["applied"];
    let applied = match applied["k"].as_u64() {
        Some(k) => format!("k={k} m={}", applied["m"]),
        None => "-".to_owned(),
    };
    let ppm = |name: &str| {
        f["loss"][name]
            .as_u64()
            .map_or("-".to_owned(), |n| format!("{n} ppm"))
    };
    let matched = &f["matched"];
    let matched = match matched["answered"].as_bool() {
        None => "-".to_owned(),
        Some(answered) => {
            let peer = table::cell(&matched["peer"]);
            if answered {
                peer
            } else {
                format!("{peer} silent")
            }
        }
    };
    let cell = |name: &str| table::cell(&f[name]);
    vec![
        cell("segment"),
        cell("role"),
        cell("source"),
        cell("destination"),
        cell("qp"),
        cell("supported"),
        matched,
        applied,
        ppm("before_ppm"),
        ppm("after_ppm"),
        cell("state"),
        cell("reason"),
    ]
}

async fn operation(arguments: &Arguments, id: &str) -> Result<String, Failure> {
    let value = get(arguments, format!("/v1/operations/{}", quoted(id)))
        .await?
        .value;
    if value["state"] == "rolled_back" {
        let problem = serde_json::from_value(value["problem"].clone()).unwrap_or_default();
        return Err(Failure::Problem(Box::new(problem)));
    }
    Ok(if arguments.json {
        pretty(&value)
    } else {
        let steps = table::objects(&["at_ms", "text"], items(&value["steps"]));
        format!(
            "revision {}: {}\n{steps}",
            value["revision"],
            table::cell(&value["state"])
        )
    })
}

/// Shows events as they come, each at once.
async fn events(
    arguments: &Arguments,
    after: Option<u64>,
    count: Option<u64>,
) -> Result<String, Failure> {
    let mut request = Ask::get("/v1/events");
    if let Some(after) = after {
        request.headers.push(("last-event-id", after.to_string()));
    }
    let response = open(&arguments.reach, request).await?;
    if !response.status().is_success() {
        return Err(Failure::Local(format!(
            "the gateway answered {}",
            response.status()
        )));
    }
    let mut body = response.into_body();
    let (mut pending, mut shown) = (String::new(), 0);
    while let Some(frame) = http_body_util::BodyExt::frame(&mut body).await {
        let frame = frame.map_err(|e| Failure::Local(e.to_string()))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        pending.push_str(&String::from_utf8_lossy(&data));
        while let Some((line, rest)) = pending.split_once('\n') {
            let data = line.strip_prefix("data: ").map(str::to_owned);
            pending = rest.to_owned();
            let Some(event) = data.and_then(|d| serde_json::from_str::<Value>(&d).ok()) else {
                continue;
            };
            let text = if arguments.json {
                format!("{event}\n")
            } else {
                let cell = |name: &str| table::cell(&event[name]);
                format!(
                    "{} {} {}: {}\n",
                    cell("id"),
                    cell("at_ms"),
                    cell("type"),
                    cell("text")
                )
            };
            std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes())?;
            shown += 1;
            if count.is_some_and(|count| shown >= count) {
                return Ok(String::new());
            }
        }
    }
    Ok(String::new())
}
