//! What is in etcd, as far as it concerns this gateway, and what follows from it: which document is desired, and
//! whether it is our turn to change. Reading and following the keys is the business of whoever has the connection.

use std::collections::BTreeMap;

use crem_api::rest::Problem;
use serde::{Deserialize, Serialize};

use crate::keys::Keys;
use crate::layers::{Desired, Version, merge};

/// Most pairs that change at once.
const MAX_PAIRS: u32 = 64;

/// One key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// Revision of etcd in which it was made; another one if it was removed and made again.
    pub create_revision: u64,
    /// Revision of etcd in which it was written last.
    pub mod_revision: u64,
    /// Lease that it goes with; 0 if none.
    pub lease: u64,
    /// What is in it.
    pub value: Vec<u8>,
}

/// How rollouts of a fleet go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Pairs that may change at once.
    pub max_pairs: u32,
    /// Nobody begins.
    pub paused: bool,
    /// Nobody begins after a gateway refused a document or failed with it, until a newer one is written.
    pub halt_on_failure: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_pairs: 1,
            paused: false,
            halt_on_failure: true,
        }
    }
}

/// What a lock and a place hold.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Holder {
    /// The gateway that is changing.
    pub node: String,
    /// Its pair.
    pub pair: String,
    /// The version that it changes to.
    pub version: String,
}

/// Why nobody begins.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Halt {
    /// The gateway where something went wrong.
    pub node: String,
    /// The version.
    pub version: String,
    /// What went wrong.
    pub problem: Box<Problem>,
}

/// How to take the lock of the pair and a place: what has to be so for it to be ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turn {
    /// Key of the lock, and the revision in which it was made: 0 if nobody may have it yet, else ours from before a
    /// restart.
    pub lock: (String, u64),
    /// The same of the place.
    pub place: (String, u64),
    /// Key of the halt, and the revision in which it was written last; 0 if there is none.
    pub halted: (String, u64),
    /// What both will hold.
    pub holder: Holder,
}

/// The keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Store {
    keys: Keys,
    entries: BTreeMap<String, Entry>,
    revision: u64,
    changes: u64,
}

impl Store {
    /// As they are at a revision of etcd.
    pub fn new(
        keys: Keys,
        revision: u64,
        entries: impl IntoIterator<Item = (String, Entry)>,
    ) -> Self {
        Self {
            keys,
            entries: entries.into_iter().collect(),
            revision,
            changes: 0,
        }
    }

    /// Names of the keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The newest revision of etcd that is known of.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Another value is another content. Changes of one key may be known before older ones of another.
    pub(crate) fn edition(&self) -> (u64, u64) {
        (self.revision, self.changes)
    }

    /// Notes that a key was written (`Some`) or removed in a revision; what is known already stays.
    pub fn note(&mut self, key: String, revision: u64, entry: Option<Entry>) {
        self.revision = self.revision.max(revision);
        self.changes += 1;
        let known = self.entries.get(&key).map_or(0, |e| e.mod_revision);
        if known > revision {
            return;
        }
        match entry {
            Some(entry) => self.entries.insert(key, entry),
            None => self.entries.remove(&key),
        };
    }

    /// The document that we are to have; none if there is no layer.
    pub fn desired(&self) -> Option<Desired> {
        let layers = self.keys.layers();
        merge(layers.iter().filter_map(|key| {
            let entry = self.entries.get(key)?;
            Some((key.as_str(), entry))
        }))
    }

    /// How rollouts go. What cannot be read stops them: nobody knows what was meant.
    pub fn policy(&self) -> Result<Policy, String> {
        let key = self.keys.policy();
        let Some(entry) = self.entries.get(&key) else {
            return Ok(Policy::default());
        };
        let policy: Policy =
            serde_json::from_slice(&entry.value).map_err(|e| format!("{key}: {e}"))?;
        if !(1..=MAX_PAIRS).contains(&policy.max_pairs) {
            return Err(format!("{key}: max_pairs is 1 to {MAX_PAIRS}"));
        }
        Ok(policy)
    }

    /// Whether the lock of our pair is ours; if so, the revision in which we took it.
    pub fn held(&self, node: &str) -> Option<u64> {
        let lock = self.keys.lock();
        self.is_of(&lock, node).then(|| self.create_revision(&lock))
    }

    /// How to take our turn with a version.
    ///
    /// # Errors
    /// What stands in the way, in words.
    pub fn turn(&self, node: &str, pair: &str, version: &Version) -> Result<Turn, String> {
        let policy = self.policy()?;
        let holder = Holder {
            node: node.to_owned(),
            pair: pair.to_owned(),
            version: version.to_string(),
        };
        let halted = self.keys.halted();
        let halt = self.entries.get(&halted).map_or(0, |e| e.mod_revision);
        let made = |key: String| {
            let revision = self.create_revision(&key);
            (key, revision)
        };
        let turn = |place: String| Turn {
            lock: made(self.keys.lock()),
            place: made(place),
            halted: (halted.clone(), halt),
            holder: holder.clone(),
        };
        // What was begun before a restart goes on.
        if self.held(node).is_some() {
            let places = (0..MAX_PAIRS).map(|n| self.keys.place(n));
            let mut own = places.filter(|place| self.is_of(place, node));
            return Ok(turn(own.next().unwrap_or_else(|| self.keys.place(0))));
        }
        if policy.paused {
            return Err(format!("{} is paused", self.keys.policy()));
        }
        if halt > version.revision && policy.halt_on_failure {
            return Err(format!("{halted} is there"));
        }
        if let Some(other) = self.holder(&self.keys.lock()) {
            return Err(format!("{} of the pair is changing", other.node));
        }
        let mut places = (0..policy.max_pairs).map(|n| self.keys.place(n));
        let free = places.find(|place| !self.entries.contains_key(place));
        let most = policy.max_pairs;
        free.map(turn)
            .ok_or_else(|| format!("as many pairs as may are changing: {most}"))
    }

    /// Whether a halt of a version that we are not beyond is there, or need not be.
    pub fn may_halt(&self, version: &Version) -> bool {
        let wanted = self.policy().is_ok_and(|p| p.halt_on_failure);
        let there = self.entries.get(&self.keys.halted());
        wanted && there.is_none_or(|entry| entry.mod_revision <= version.revision)
    }

    /// Keys that are ours and that nobody needs once we do not change any more.
    pub fn ours(&self, node: &str) -> Vec<(String, u64)> {
        let places = (0..MAX_PAIRS).map(|n| self.keys.place(n));
        let keys = [self.keys.lock()].into_iter().chain(places);
        keys.filter(|key| self.is_of(key, node))
            .map(|key| {
                let revision = self.create_revision(&key);
                (key, revision)
            })
            .collect()
    }

    fn create_revision(&self, key: &str) -> u64 {
        self.entries.get(key).map_or(0, |e| e.create_revision)
    }

    /// Who holds a lock. What cannot be read is held by somebody.
    fn holder(&self, key: &str) -> Option<Holder> {
        let entry = self.entries.get(key)?;
        let unknown = || Holder {
            node: "somebody".to_owned(),
            pair: String::new(),
            version: String::new(),
        };
        Some(serde_json::from_slice(&entry.value).unwrap_or_else(|_| unknown()))
    }

    fn is_of(&self, key: &str, node: &str) -> bool {
        self.holder(key).is_some_and(|holder| holder.node == node)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::settings::Identity;
    use serde_json::{Value, json};

    pub(crate) fn keys() -> Keys {
        let identity = Identity {
            node: "a".to_owned(),
            fleet: "f".to_owned(),
            site: None,
            pair: "p".to_owned(),
        };
        Keys::new("/x", &identity)
    }

    /// A key as it is when it was made and written at once.
    pub(crate) fn put(store: &mut Store, key: &str, revision: u64, value: &Value) {
        let entry = Entry {
            create_revision: revision,
            mod_revision: revision,
            lease: 0,
            value: value.to_string().into_bytes(),
        };
        store.note(key.to_owned(), revision, Some(entry));
    }

    fn version(revision: u64) -> Version {
        Version {
            revision,
            digest: "d".to_owned(),
        }
    }

    fn held_by(node: &str, pair: &str) -> Value {
        json!({"node": node, "pair": pair, "version": "1-d"})
    }

    #[test]
    fn a_turn_needs_the_lock_of_the_pair_and_a_place() {
        let mut store = Store::new(keys(), 1, []);
        let turn = |store: &Store| store.turn("a", "p", &version(5));
        let free = turn(&store).unwrap();
        assert_eq!((free.lock.1, free.place.1, free.halted.1), (0, 0, 0));
        assert_eq!(free.place.0, "/x/fleets/f/rollout/places/0");
        put(&mut store, &keys().lock(), 6, &held_by("b", "p"));
        assert!(turn(&store).unwrap_err().contains("b of the pair"));
        store.note(keys().lock(), 7, None);
        put(&mut store, &keys().place(0), 8, &held_by("c", "q"));
        assert!(turn(&store).unwrap_err().contains("as many pairs"));
        put(&mut store, &keys().policy(), 9, &json!({"max_pairs": 2}));
        assert_eq!(turn(&store).unwrap().place.0, keys().place(1));
    }

    #[test]
    fn who_was_at_it_before_a_restart_goes_on_also_in_a_pause() {
        let mut store = Store::new(keys(), 1, []);
        put(&mut store, &keys().lock(), 6, &held_by("a", "p"));
        put(&mut store, &keys().place(2), 6, &held_by("a", "p"));
        put(&mut store, &keys().policy(), 7, &json!({"paused": true}));
        let turn = store.turn("a", "p", &version(5)).unwrap();
        assert_eq!((turn.lock.1, turn.place), (6, (keys().place(2), 6)));
        assert_eq!(store.held("a"), Some(6));
        assert_eq!(store.ours("a").len(), 2);
        assert!(store.ours("b").is_empty());
    }

    #[test]
    fn a_halt_or_a_pause_keeps_everybody_until_something_newer_is_written() {
        let mut store = Store::new(keys(), 1, []);
        put(&mut store, &keys().halted(), 6, &json!({}));
        assert!(store.turn("a", "p", &version(5)).is_err());
        assert!(!store.may_halt(&version(5)), "it is there");
        assert!(store.turn("a", "p", &version(7)).is_ok());
        assert!(store.may_halt(&version(7)));
        let policy = json!({"halt_on_failure": false});
        put(&mut store, &keys().policy(), 8, &policy);
        assert!(store.turn("a", "p", &version(5)).is_ok());
        assert!(!store.may_halt(&version(7)), "nobody wants one");
        put(&mut store, &keys().policy(), 9, &json!({"paused": true}));
        assert!(store.turn("a", "p", &version(7)).is_err());
    }

    #[test]
    fn a_policy_that_cannot_be_read_stops_rollouts() {
        let mut store = Store::new(keys(), 1, []);
        for wrong in [json!({"max_pears": 1}), json!({"max_pairs": 0}), json!(3)] {
            put(&mut store, &keys().policy(), 6, &wrong);
            let words = store.turn("a", "p", &version(7)).unwrap_err();
            assert!(words.starts_with("/x/fleets/f/rollout: "), "{words}");
        }
    }

    #[test]
    fn old_news_changes_nothing() {
        let mut store = Store::new(keys(), 1, []);
        put(&mut store, &keys().base(), 9, &json!({"v": 9}));
        put(&mut store, &keys().base(), 8, &json!({"v": 8}));
        assert_eq!(store.desired().unwrap().version.revision, 9);
        assert_eq!(store.revision(), 9);
        let edition = store.edition();
        put(&mut store, &keys().lock(), 12, &held_by("a", "p"));
        store.note(keys().base(), 10, None);
        assert_eq!(store.desired(), None, "news of another key came first");
        assert_ne!(store.edition(), edition);
    }
}
