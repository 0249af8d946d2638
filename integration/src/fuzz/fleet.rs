//! What etcd says to the fleet agent: answers and lines of watches, good and damaged, and layers of documents in them;
//! and the agent's own settings.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crem_fleet::keys::Keys;
use crem_fleet::settings::{Identity, Settings};
use crem_fleet::store::Store;
use crem_fleet::wire::{self, Event};
use serde_json::Value;

use super::Reader;

/// Values that keys hold.
const LAYERS: [&str; 8] = [
    r#"{"version":1,"segments":{"a":{"mode":"active"}}}"#,
    r#"{"segments":{"a":{"mode":null,"path_mtu":4214}}}"#,
    r#"{"max_pairs":2,"paused":false}"#,
    r#"{"node":"a","pair":"p","version":"3-0123456789abcdef"}"#,
    r#"{"node":"b","pair":"p","version":"4-0123456789abcdef"}"#,
    "[1]",
    "",
    "null",
];
/// The settings of an agent.
const SETTINGS: &str = "node = \"a\"\nfleet = \"f\"\nsite = \"s\"\n[etcd]\nendpoints = [\"https://[::1]:2379\"]\n\
    authorities = \"/a.pem\"\nlease_s = 30\n[rollout]\nconfirm_s = 60\nmax_impact = \"segment\"\n";

fn keys() -> Keys {
    let identity = Identity {
        node: "a".to_owned(),
        fleet: "f".to_owned(),
        site: Some("s".to_owned()),
        pair: "p".to_owned(),
    };
    Keys::new("/x", &identity)
}

/// A key with its value, as etcd writes it.
fn pair(reader: &mut Reader<'_>, keys: &Keys) -> Value {
    let mut names = keys.layers();
    names.extend([keys.policy(), keys.halted(), keys.lock(), keys.place(0)]);
    let name = reader.pick(&names).cloned().unwrap_or_default();
    let mut value = reader
        .pick(&LAYERS)
        .map_or_else(Vec::new, |layer| layer.as_bytes().to_vec());
    if reader.once_in(2) {
        reader.damage(&mut value);
    }
    serde_json::json!({
        "key": STANDARD.encode(name), "value": STANDARD.encode(value), "lease": reader.octet().to_string(),
        "create_revision": reader.octet().to_string(), "mod_revision": reader.word().to_string(),
    })
}

/// A text that was JSON once.
fn damaged(reader: &mut Reader<'_>, text: &Value) -> Vec<u8> {
    let mut octets = text.to_string().into_bytes();
    if reader.once_in(3) {
        reader.damage(&mut octets);
    }
    octets
}

/// Takes an answer to a read and lines of a watch, and asks what follows from them; how many could be read. A document
/// that comes out of layers is an object, what cannot be one has a problem with words, and a revision never goes back.
///
/// # Panics
/// What must hold does not: what the fuzzer is looking for.
pub fn answers(data: &[u8]) -> u64 {
    let mut reader = Reader::new(data);
    settings(&mut reader);
    let keys = keys();
    let kvs: Vec<Value> = (0..reader.octet() % 6)
        .map(|_| pair(&mut reader, &keys))
        .collect();
    let read = serde_json::json!({ "header": {"revision": reader.octet().to_string()}, "succeeded": true,
        "responses": [{"response_range": {"kvs": kvs}}], "ID": "7", "token": "t", "result": {"TTL": "5"} });
    let answer = damaged(&mut reader, &read);
    let Ok(answer) = serde_json::from_slice::<Value>(&answer) else {
        return 0;
    };
    let _ = (wire::granted(&answer), wire::is_kept(&answer));
    let _ = (wire::succeeded(&answer), wire::token(&answer));
    let Some((revision, entries)) = wire::entries(&answer) else {
        return 0;
    };
    let mut store = Store::new(keys.clone(), revision, entries);
    let mut read = 1;
    while !reader.is_empty() {
        let kind = if reader.once_in(3) { "DELETE" } else { "PUT" };
        let line = serde_json::json!({"result": {"events": [{"type": kind, "kv": pair(&mut reader, &keys)}]}});
        let line = damaged(&mut reader, &line);
        let before = store.revision();
        if Event::parse(&line).note_in(&mut store).is_ok() {
            read += 1;
        }
        assert!(store.revision() >= before);
        decided(&mut store);
    }
    read
}

fn decided(store: &mut Store) {
    let Some(desired) = store.desired() else {
        return;
    };
    match &desired.document {
        Ok(document) => assert!(document.is_object()),
        Err(problem) => assert!(!problem.errors.is_empty()),
    }
    match store.turn("a", "p", &desired.version) {
        Ok(turn) => {
            let asked = wire::take(&turn, 9);
            assert_eq!(asked["success"].as_array().map(Vec::len), Some(2));
            assert!(store.policy().is_ok());
        }
        Err(why) => assert!(!why.is_empty()),
    }
    let _ = (store.held("a"), store.may_halt(&desired.version));
    for (key, _) in store.ours("a") {
        assert!(key.starts_with("/x/"));
    }
}

fn settings(reader: &mut Reader<'_>) {
    let mut text = SETTINGS.as_bytes().to_vec();
    reader.damage(&mut text);
    if let Err(invalid) = Settings::parse(&String::from_utf8_lossy(&text)) {
        assert!(!invalid.issues.is_empty());
        assert!(invalid.issues.iter().all(|i| !i.to_string().is_empty()));
    }
}
