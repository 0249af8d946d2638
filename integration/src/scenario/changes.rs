//! Other documents for running gateways, one after the other, each asked for afterwards.

use std::time::{Duration, Instant};

use crem_api::Impact;
use crem_api::client::{Client, ClientError};
use crem_api::protocol::{Apply, Running};
use crem_api::state::Status;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Failure;
use super::gateway::{Gateway, SEGMENT};
use super::spec::Set;

/// Time for an answer.
const LIMIT: Duration = Duration::from_secs(3);
/// Changes of one gateway, in turn. Out of each two changes of the mode the second restores it.
const KINDS: [&str; 8] = [
    "limits",
    "target",
    "reporter",
    "collector",
    "point",
    "connection",
    "mode",
    "mode",
];
/// Places of the one Observation Point in turn.
const PLACES: [&str; 5] = [
    "lan_ingress",
    "wan_egress",
    "wan_ingress",
    "lan_egress_before_repair",
    "lan_egress_after_repair",
];
/// Targets in turn.
const TARGETS: [f64; 5] = [1e-4, 1e-5, 1e-6, 2e-6, 5e-6];
/// Changes of each gateway between two looks at everything else.
const STEPS: usize = 5;
/// Changes of the mode are rare, since each ends protection for a while: one turn in so many.
const RARELY: u64 = 15;

/// What was changed so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// Documents brought into force.
    pub made: u64,
    /// Of these, seen in force afterwards with the value that was to change.
    pub seen: u64,
    /// The same by kind.
    pub kinds: std::collections::BTreeMap<String, u64>,
    /// Longest time from the request to the answer, milliseconds.
    pub slowest_ms: f64,
}

impl Changes {
    /// Changes every gateway a few times.
    pub(crate) fn step(&mut self, gateways: &[Gateway]) -> Result<(), Failure> {
        for gateway in gateways.iter().cycle().take(STEPS * gateways.len()) {
            let mut client = Client::connect(gateway.socket(), LIMIT)?;
            self.change(&mut client)
                .map_err(|e| format!("{:?}: {e}", gateway.host))?;
        }
        Ok(())
    }

    fn change(&mut self, client: &mut Client) -> Result<(), ClientError> {
        let turn = self.made / 2;
        let before = client.document()?;
        let (kind, pointer, value) = next(turn, &before.document);
        let mut document = before.document;
        set(&mut document, &pointer, &value);
        let begun = Instant::now();
        let applied = client.apply(Apply {
            revision: Some(turn),
            max_impact: Impact::Segment,
            dry_run: false,
            document,
        })?;
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        self.slowest_ms = self.slowest_ms.max(ms);
        self.made += 1;
        let after: Running = client.document()?;
        let status = status_of(client, applied.generation)?;
        let mode = value.as_str().filter(|_| kind == "mode");
        let in_mode = |mode| status.segments.get(SEGMENT).is_some_and(|s| s.mode == mode);
        let seen = applied.generation == before.generation + 1
            && after.generation == applied.generation
            && after.document.pointer(&pointer) == Some(&value)
            && status.generation == applied.generation
            && status.revision == Some(turn)
            && mode.is_none_or(in_mode)
            && (kind != "point" || is_observed(client, &value)?);
        self.seen += u64::from(seen);
        *self.kinds.entry(kind.to_owned()).or_default() += 1;
        Ok(())
    }
}

/// The status once it is of `generation`, or the last one: it is made anew ten times a second at least.
fn status_of(client: &mut Client, generation: u64) -> Result<Status, ClientError> {
    let end = Instant::now() + Duration::from_millis(500);
    loop {
        let status = client.status()?;
        if status.generation >= generation || Instant::now() > end {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether what is observed is at the place of this point, and nowhere else.
fn is_observed(client: &mut Client, point: &Value) -> Result<bool, ClientError> {
    let counters = client.counters()?;
    let Some(metering) = counters.segments.get(SEGMENT).map(|s| &s.metering) else {
        return Ok(false);
    };
    Ok(PLACES.iter().all(|place| {
        let counted = metering.contains_key(&format!("{place}_observed"));
        counted == (point["place"] == *place)
    }))
}

/// The kind of a change, its place, and a value that is not there.
fn next(turn: u64, document: &Value) -> (&'static str, String, Value) {
    let segment = |rest: &str| format!("/segments/{SEGMENT}/{rest}");
    let count = KINDS.len() as u64;
    let kind = KINDS[(turn % count) as usize];
    let kind = if kind == "mode" && !(turn / count).is_multiple_of(RARELY) {
        "limits"
    } else {
        kind
    };
    let (pointer, value) = match kind {
        "limits" => (
            segment("limits/retained_frames"),
            json!(1_000 + turn % 1_000),
        ),
        "target" => (
            segment("policy/target_fec"),
            json!(TARGETS[(turn / count % TARGETS.len() as u64) as usize]),
        ),
        "reporter" => {
            let third = turn % 250;
            (
                segment("reporters"),
                json!({ format!("198.51.{third}.0/24"): {} }),
            )
        }
        "collector" => (
            "/ipfix/collectors/c/retry_ms".to_owned(),
            json!(60_000 + turn),
        ),
        "point" => {
            let round = turn / count;
            let point = json!({
                "segment": SEGMENT,
                "place": PLACES[(round % PLACES.len() as u64) as usize],
                "base": 100 + round % 3,
                "flows": true,
                "sequence": true,
            });
            ("/ipfix/points/p".to_owned(), point)
        }
        "connection" => ("/ipfix/connections/n/window".to_owned(), json!(64 + turn)),
        _ => {
            let pointer = segment("mode");
            let active = document.pointer(&pointer) == Some(&json!("active"));
            (
                pointer,
                json!(if active { "passthrough" } else { "active" }),
            )
        }
    };
    (kind, pointer, value)
}

/// Brings one value of a gateway's segment into force; whether the document has it then.
pub(crate) fn set_value(gateway: &Gateway, wanted: &Set) -> Result<bool, Failure> {
    let mut client = Client::connect(gateway.socket(), LIMIT)?;
    let mut document = client.document()?.document;
    let pointer = format!("/segments/{SEGMENT}/{}", wanted.key);
    let value = serde_json::to_value(&wanted.value)?;
    set(&mut document, &pointer, &value);
    client.apply(Apply {
        revision: None,
        max_impact: Impact::Segment,
        dry_run: false,
        document,
    })?;
    Ok(client.document()?.document.pointer(&pointer) == Some(&value))
}

fn set(document: &mut Value, pointer: &str, value: &Value) {
    let Some((place, key)) = pointer.rsplit_once('/') else {
        return;
    };
    if let Some(Value::Object(map)) = document.pointer_mut(place) {
        map.insert(key.to_owned(), value.clone());
    }
}

/// The part on IPFIX that a document needs for a collector, a point and a connection to be changed. Nobody
/// listens.
pub(crate) fn collector() -> toml::Table {
    let text = r#"
        domain = 1
        pen = 32473
        first_element = 1
        scopes = { s = { source = "0.0.0.0/0", destination = "0.0.0.0/0" } }
        sequence = { max_connections = 16, max_epochs = 16 }
        [points.p]
        segment = "wan"
        place = "lan_ingress"
        base = 1
        flows = true
        [connections.n]
        source = "10.0.0.0/8"
        destination = "10.0.0.0/8"
        window = 63
        only_send_and_write = true
        complete_and_unambiguous = true
        packets_per_s = 1000000
        longest_retry_ms = 1000
        [collectors.c]
        transport = "tls"
        host = "192.0.2.9"
        port = 4740
        sequence = true
        tls = { certificate = "c", key = "k", authorities = "a", names = { n = {} } }
    "#;
    text.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn every_document_in_turn_can_be_taken() {
        let text = format!(
            r#"
            version = 1
            [segments.{SEGMENT}]
            mode = "active"
            crem_port = 4801
            path_mtu = 4500
            lan = {{ vdev = "net_null0" }}
            wan = {{ vdev = "net_null1" }}
            served = {{ "10.0.1.0/24" = {{}} }}
            peers = {{ "10.0.2.0/24" = {{ address = "192.0.2.2" }} }}
            inband = {{ address = "192.0.2.1/24" }}
            "#
        );
        let mut table: toml::Table = text.parse().unwrap();
        table.insert("ipfix".to_owned(), collector().into());
        let begin = crem_api::parse(&table.to_string(), crem_api::Syntax::Toml);
        let mut document = crem_api::to_value(&begin.unwrap_or_else(|e| panic!("{e}")));
        for turn in 0..200 {
            let (_, pointer, value) = next(turn, &document);
            set(&mut document, &pointer, &value);
            let taken =
                crem_api::from_value(&document).unwrap_or_else(|e| panic!("{pointer}: {e}"));
            assert!(taken.ipfix.is_some());
        }
    }

    #[test]
    fn every_change_differs_from_what_is_there() {
        let mut document = json!({
            "segments": {SEGMENT: {"mode": "active", "limits": {}, "policy": {}, "reporters": {}}},
            "ipfix": {"collectors": {"c": {}}, "points": {}, "connections": {"n": {}}},
        });
        let mut kinds = std::collections::BTreeSet::new();
        for turn in 0..500 {
            let (kind, pointer, value) = next(turn, &document);
            assert_ne!(document.pointer(&pointer), Some(&value), "{turn}");
            set(&mut document, &pointer, &value);
            assert_eq!(document.pointer(&pointer), Some(&value), "{turn}");
            kinds.insert(kind);
        }
        assert_eq!(kinds.len(), 7);
        assert_eq!(document["segments"][SEGMENT]["mode"], "active");
    }
}
