//! Messages of etcd's JSON gateway (`/v3/…`), which is part of every etcd since 3.4: bodies of requests, and what is
//! read out of answers. Keys and values are in base64, numbers of 64 bits are texts. Nothing is sent from here.

use serde_json::{Value, json};

use crate::layers::{decode, encode};
use crate::store::{Entry, Store, Turn};

/// Longest line of a watch: etcd takes 1.5 MB for a value, of which there may be some in one.
pub const MAX_LINE: usize = 32 << 20;

/// Where etcd answers what.
pub mod path {
    /// Several operations as one.
    pub const TXN: &str = "/v3/kv/txn";
    /// Writes a key.
    pub const PUT: &str = "/v3/kv/put";
    /// Follows keys.
    pub const WATCH: &str = "/v3/watch";
    /// Makes a lease.
    pub const GRANT: &str = "/v3/lease/grant";
    /// Keeps a lease.
    pub const KEEP_ALIVE: &str = "/v3/lease/keepalive";
    /// Ends a lease and the keys that go with it.
    pub const REVOKE: &str = "/v3/lease/revoke";
    /// Gives a token for a user and a password.
    pub const AUTHENTICATE: &str = "/v3/auth/authenticate";
}

/// Key of a range: from a first name up to another one, without it; one key where there is none.
type Range = (String, Option<String>);

fn range_of((from, to): &Range) -> Value {
    let mut range = json!({ "key": encode(from) });
    if let Some(to) = to {
        range["range_end"] = encode(to).into();
    }
    range
}

/// Reads ranges, all at one revision.
pub fn read(ranges: &[Range]) -> Value {
    let reads = ranges
        .iter()
        .map(|range| json!({ "request_range": range_of(range) }));
    json!({ "success": reads.collect::<Vec<_>>() })
}

/// Follows ranges from a revision on. The answer has no end, see [`Event`].
pub fn watch(ranges: &[Range], from: u64) -> String {
    let watches = ranges.iter().map(|range| {
        let mut request = range_of(range);
        request["start_revision"] = from.to_string().into();
        json!({ "create_request": request }).to_string()
    });
    watches.collect::<Vec<_>>().join("\n")
}

/// Writes a key that goes with a lease; with none if that is 0.
pub fn put(key: &str, value: &str, lease: u64) -> Value {
    json!({ "key": encode(key), "value": encode(value), "lease": lease.to_string() })
}

/// Makes a lease.
pub fn grant(seconds: u64) -> Value {
    json!({ "TTL": seconds.to_string() })
}

/// Names a lease.
pub fn lease(id: u64) -> Value {
    json!({ "ID": id.to_string() })
}

/// A user and a password.
pub fn credentials(name: &str, password: &str) -> Value {
    json!({ "name": name, "password": password })
}

fn made_in(key: &str, revision: u64) -> Value {
    let revision = revision.to_string();
    json!({ "target": "CREATE", "result": "EQUAL", "key": encode(key), "create_revision": revision })
}

/// Takes the lock of the pair and a place, if all is as it was seen.
pub fn take(turn: &Turn, lease: u64) -> Value {
    let (halted, seen) = &turn.halted;
    let halted = json!({
        "target": "MOD", "result": "EQUAL", "key": encode(halted), "mod_revision": seen.to_string()
    });
    // Text only: it cannot fail to be JSON.
    let holder = serde_json::to_string(&turn.holder).unwrap_or_default();
    let puts = [&turn.lock, &turn.place];
    json!({
        "compare": [made_in(&turn.lock.0, turn.lock.1), made_in(&turn.place.0, turn.place.1), halted],
        "success": puts.map(|(key, _)| json!({ "request_put": put(key, &holder, lease) })),
    })
}

/// Notes that a turn was taken, by the answer to [`take`], before the watch tells it.
pub fn note_taken(store: &mut Store, turn: &Turn, lease: u64, answer: &Value) {
    let revision = number(&answer["header"]["revision"]);
    for (key, made) in [&turn.lock, &turn.place] {
        let entry = Entry {
            create_revision: if *made == 0 { revision } else { *made },
            mod_revision: revision,
            lease,
            value: serde_json::to_vec(&turn.holder).unwrap_or_default(),
        };
        store.note(key.clone(), revision, Some(entry));
    }
}

/// Takes keys away, as long as they are the ones that were made in those revisions.
pub fn give_back(keys: &[(String, u64)]) -> Value {
    let removals = keys
        .iter()
        .map(|(key, _)| json!({ "request_delete_range": { "key": encode(key) } }));
    let compare = keys.iter().map(|(key, revision)| made_in(key, *revision));
    json!({
        "compare": compare.collect::<Vec<_>>(),
        "success": removals.collect::<Vec<_>>(),
    })
}

/// A number, which the gateway leaves out where it is 0.
fn number(value: &Value) -> u64 {
    let text = value.as_str().and_then(|t| t.parse().ok());
    text.or_else(|| value.as_u64()).unwrap_or(0)
}

/// Whether all that a transaction compared was so.
pub fn succeeded(answer: &Value) -> bool {
    answer["succeeded"] == true
}

/// The lease of an answer to [`grant`].
pub fn granted(answer: &Value) -> Option<u64> {
    Some(number(&answer["ID"])).filter(|&id| id != 0)
}

/// Whether a lease is still there, by an answer to a request to keep it.
pub fn is_kept(answer: &Value) -> bool {
    number(&answer["result"]["TTL"]) > 0
}

/// The token of an answer to [`credentials`].
pub fn token(answer: &Value) -> Option<&str> {
    answer["token"].as_str().filter(|token| !token.is_empty())
}

fn entry(kv: &Value) -> Option<(String, Entry)> {
    let key = String::from_utf8(decode(kv["key"].as_str()?)?).ok()?;
    let value = kv["value"].as_str().unwrap_or_default();
    let entry = Entry {
        create_revision: number(&kv["create_revision"]),
        mod_revision: number(&kv["mod_revision"]),
        lease: number(&kv["lease"]),
        value: decode(value)?,
    };
    Some((key, entry))
}

/// Revision and entries of an answer to [`read`]; none if it is none.
pub fn entries(answer: &Value) -> Option<(u64, Vec<(String, Entry)>)> {
    let revision = Some(number(&answer["header"]["revision"])).filter(|&r| r > 0)?;
    let mut found = Vec::new();
    for response in answer["responses"].as_array()? {
        let kvs = response["response_range"]["kvs"].as_array();
        for kv in kvs.into_iter().flatten() {
            found.push(entry(kv)?);
        }
    }
    Some((revision, found))
}

/// What a line of a watch says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Keys with the revisions in which they were written or removed.
    Changes(Vec<(String, u64, Option<Entry>)>),
    /// It is over, for a reason: everything has to be read anew.
    Over(String),
}

impl Event {
    /// Reads a line.
    pub fn parse(line: &[u8]) -> Self {
        let Ok(value) = serde_json::from_slice::<Value>(line) else {
            return Self::Over("a line that is no JSON".to_owned());
        };
        let result = &value["result"];
        if result["canceled"] == true {
            let compacted = number(&result["compact_revision"]);
            let why = match result["cancel_reason"].as_str() {
                Some(why) => why.to_owned(),
                None => format!("revisions before {compacted} are gone"),
            };
            return Self::Over(why);
        }
        if !result.is_object() {
            let why = value["error"]["message"].as_str().unwrap_or("an error");
            return Self::Over(why.to_owned());
        }
        let events = result["events"].as_array();
        let changes = events.into_iter().flatten().map(|event| {
            let (key, entry) = entry(&event["kv"])?;
            let revision = entry.mod_revision;
            let there = event["type"] != "DELETE";
            Some((key, revision, there.then_some(entry)))
        });
        match changes.collect::<Option<Vec<_>>>() {
            Some(changes) => Self::Changes(changes),
            None => Self::Over("an event that cannot be read".to_owned()),
        }
    }

    /// Notes the changes.
    ///
    /// # Errors
    /// Why it is over.
    pub fn note_in(self, store: &mut Store) -> Result<(), String> {
        match self {
            Self::Changes(changes) => {
                for (key, revision, entry) in changes {
                    store.note(key, revision, entry);
                }
                Ok(())
            }
            Self::Over(why) => Err(why),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::Holder;

    #[test]
    fn answers_of_etcd_are_read() {
        // As etcd 3.4.23 writes them.
        let read = json!({
            "header": {"cluster_id": "324952591200643719", "revision": "3", "raft_term": "2"},
            "succeeded": true,
            "responses": [
                {"response_range": {"header": {"revision": "3"}, "kvs": [
                    {"key": "L2E=", "create_revision": "2", "mod_revision": "3", "version": "2", "value": "e30="}
                ], "count": "1"}},
                {"response_range": {"header": {"revision": "3"}}},
            ],
        });
        let (revision, found) = entries(&read).unwrap();
        assert_eq!((revision, found.len()), (3, 1));
        assert_eq!(found[0].0, "/a");
        assert_eq!(found[0].1.value, b"{}");
        assert_eq!(entries(&json!({"error": "x"})), None);
        assert_eq!(
            granted(&json!({"ID": "2324035726389105158", "TTL": "5"})),
            Some(2_324_035_726_389_105_158)
        );
        assert!(is_kept(&json!({"result": {"ID": "1", "TTL": "5"}})));
        assert!(!is_kept(&json!({"result": {"ID": "1"}})), "gone");
    }

    #[test]
    fn lines_of_a_watch_are_read() {
        let put = br#"{"result":{"header":{"revision":"4"},"watch_id":"1","events":[
            {"kv":{"key":"L3k=","create_revision":"4","mod_revision":"4","version":"1"}}]}}"#;
        let Event::Changes(changes) = Event::parse(put) else {
            unreachable!("it changes something");
        };
        assert!(matches!(&changes[..], [(key, 4, Some(e))] if key == "/y" && e.value.is_empty()));
        let gone =
            br#"{"result":{"events":[{"type":"DELETE","kv":{"key":"L3g=","mod_revision":"5"}}]}}"#;
        assert_eq!(
            Event::parse(gone),
            Event::Changes(vec![("/x".to_owned(), 5, None)])
        );
        let created = br#"{"result":{"header":{"revision":"3"},"created":true}}"#;
        assert_eq!(Event::parse(created), Event::Changes(Vec::new()));
    }

    #[test]
    fn a_watch_that_cannot_go_on_says_why() {
        let compacted = br#"{"result":{"header":{},"canceled":true,"compact_revision":"4"}}"#;
        let over = |line: &[u8]| match Event::parse(line) {
            Event::Over(why) => why,
            Event::Changes(_) => String::new(),
        };
        assert_eq!(over(compacted), "revisions before 4 are gone");
        assert_eq!(over(br#"{"error":{"message":"no leader"}}"#), "no leader");
        assert!(!over(b"<html>").is_empty());
        assert!(!over(br#"{"result":{"events":[{"kv":{"key":"%"}}]}}"#).is_empty());
    }

    #[test]
    fn a_turn_is_taken_only_as_it_was_seen() {
        let turn = Turn {
            lock: ("/l".to_owned(), 0),
            place: ("/p".to_owned(), 7),
            halted: ("/h".to_owned(), 3),
            holder: Holder {
                node: "a".to_owned(),
                pair: "p".to_owned(),
                version: "1-x".to_owned(),
            },
        };
        let txn = take(&turn, 9);
        assert_eq!(txn["compare"][0]["create_revision"], "0");
        assert_eq!(txn["compare"][1]["create_revision"], "7");
        assert_eq!(txn["compare"][2]["mod_revision"], "3");
        assert_eq!(txn["success"][1]["request_put"]["lease"], "9");
        let back = give_back(&[("/l".to_owned(), 7)]);
        assert_eq!(back["compare"][0]["create_revision"], "7");
        assert!(back["success"][0]["request_delete_range"].is_object());
    }
}
