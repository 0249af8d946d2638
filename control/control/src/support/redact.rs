//! What has no place in a support bundle, and taking it out: values of members that may be secret, words that people
//! wrote, and whatever looks like a key or a token, wherever it stands.

use std::collections::BTreeSet;

use serde_json::Value;

/// Members whose values are taken out whatever they are. Those of the document are paths of files, as long as nobody
/// pastes a key in place of its path.
const SECRET: [&str; 9] = [
    "authorization",
    "certificate",
    "community",
    "key",
    "passphrase",
    "password",
    "psk",
    "secret",
    "token",
];
/// Members that hold what people wrote.
const WORDS: [&str; 2] = ["comment", "reason"];
/// A table of the document whose `reason` people wrote; elsewhere reasons are names of ours.
const BYPASS: &str = "bypass";
/// What stands in place of what was taken out.
const GONE: &str = "[redacted]";
/// Shorter texts are not looked for elsewhere: they would be found in everything.
const LOOKED_FOR: usize = 6;
/// Begins a token of ours.
const TOKEN: &str = "crem_";
/// Begins everything in PEM.
const PEM: &str = "-----BEGIN";

/// Takes out of texts what documents say is secret.
#[derive(Default, Debug)]
pub(super) struct Redactor {
    /// Texts to take out wherever they stand, longest first by [`Self::learn_all`].
    known: Vec<String>,
}

impl Redactor {
    /// Knows the secrets of some documents.
    pub(super) fn of<'a>(documents: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut known = BTreeSet::new();
        for document in documents {
            learn("", "", document, &mut known);
        }
        let mut known: Vec<String> = known.into_iter().collect();
        known.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Self { known }
    }

    /// A document without them.
    pub(super) fn document(&self, mut value: Value) -> Value {
        self.clean("", "", &mut value);
        value
    }

    fn clean(&self, parent: &str, name: &str, value: &mut Value) {
        match value {
            _ if is_secret(parent, name) && !value.is_object() && !value.is_null() => {
                *value = GONE.into();
            }
            Value::String(text) => *text = self.text(text),
            Value::Array(list) => list.iter_mut().for_each(|v| self.clean(parent, name, v)),
            Value::Object(members) => {
                let taken = std::mem::take(members);
                for (key, mut below) in taken {
                    self.clean(name, &key, &mut below);
                    members.insert(self.text(&key), below);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// A text without them.
    pub(super) fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.known {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), GONE);
            }
        }
        if let Some(at) = text.find(PEM) {
            text.truncate(at);
            text.push_str(GONE);
        }
        without_users(without_tokens(text))
    }
}

/// Whether what stands under a name is taken out.
fn is_secret(parent: &str, name: &str) -> bool {
    let words = WORDS.contains(&name) && (name != "reason" || parent == BYPASS);
    SECRET.contains(&name) || words
}

/// Gathers the texts that a document holds as secrets.
fn learn(parent: &str, name: &str, value: &Value, known: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if is_secret(parent, name) && text.len() >= LOOKED_FOR => {
            known.insert(text.clone());
        }
        // What follows the name of a device are its arguments, and what they mean is the driver's.
        Value::String(text) if name == "vdev" => {
            let arguments = text.split_once(',').map(|(_, rest)| rest.to_owned());
            known.extend(arguments.filter(|rest| rest.len() >= LOOKED_FOR));
        }
        Value::Array(list) => list.iter().for_each(|v| learn(parent, name, v, known)),
        Value::Object(members) => members.iter().for_each(|(k, v)| learn(name, k, v, known)),
        _ => {}
    }
}

/// Tokens of ours keep their id and lose the rest.
fn without_tokens(text: String) -> String {
    let Some(at) = text.find(TOKEN) else {
        return text;
    };
    let (before, rest) = text.split_at(at + TOKEN.len());
    let hex = |text: &str| text.bytes().take_while(u8::is_ascii_hexdigit).count();
    let id = hex(rest);
    let secret = rest.get(id..).and_then(|rest| rest.strip_prefix('_'));
    let length = secret.map_or(0, hex);
    if id == 0 || length < 16 {
        return format!("{before}{}", without_tokens(rest.to_owned()));
    }
    let (id, rest) = (&rest[..id], rest.get(id + 1 + length..).unwrap_or_default());
    format!("{before}{id}_{GONE}{}", without_tokens(rest.to_owned()))
}

/// `scheme://user:password@host` loses what stands before the host.
fn without_users(text: String) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text;
    };
    let authority = rest.split(['/', ' ', '"']).next().unwrap_or_default();
    match authority.rsplit_once('@') {
        Some((user, _)) => format!("{scheme}://{GONE}{}", &rest[user.len()..]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_go_wherever_they_stand_and_the_rest_stays() {
        let document = json!({
            "management": {"tls": {"key": "pasted-key", "certificate": "/etc/crem/api.pem"}},
            "segments": {"a": {
                "bypass": {"reason": "call 555-1234", "duration_s": 60},
                "lan": {"vdev": "net_pcap0,iface=canary-argument"},
            }},
        });
        let redactor = Redactor::of([&document]);
        let clean = redactor.document(document.clone());
        assert_eq!(clean["management"]["tls"]["key"], GONE);
        assert_eq!(clean["segments"]["a"]["bypass"]["duration_s"], 60);
        assert_eq!(
            clean["segments"]["a"]["lan"]["vdev"],
            "net_pcap0,[redacted]"
        );
        // An event that repeats it.
        let event = json!({"text": "segment a: bypass begins: call 555-1234", "reason": "no_peer"});
        let event = redactor.document(event);
        assert_eq!(event["text"], "segment a: bypass begins: [redacted]");
        assert_eq!(event["reason"], "no_peer", "a name of ours");
    }

    #[test]
    fn keys_tokens_and_passwords_are_known_by_their_looks() {
        let redactor = Redactor::default();
        let token = format!(
            "Bearer crem_0123456789ab_{} x crem_gateway",
            "9f".repeat(32)
        );
        assert_eq!(
            redactor.text(&token),
            "Bearer crem_0123456789ab_[redacted] x crem_gateway"
        );
        assert_eq!(
            redactor.text("a -----BEGIN PRIVATE KEY-----\nMII"),
            "a [redacted]"
        );
        assert_eq!(redactor.text("http://u:p@h/x"), "http://[redacted]@h/x");
        assert_eq!(redactor.text("http://h/x@y"), "http://h/x@y");
        let named = redactor.document(json!({"crem_ab_0123456789abcdef0123": {"token": ["x", 1]}}));
        assert_eq!(named, json!({"crem_ab_[redacted]": {"token": GONE}}));
    }
}
