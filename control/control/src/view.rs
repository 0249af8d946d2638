//! What readers see: one immutable picture of the whole state, replaced after every change. Readers wait
//! for nobody and nobody waits for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crem_api::Document;
use crem_api::rest::{Commit, Operation, Revision};
use serde_json::Value;

use crate::commit::{Machine, Now};

/// ETag while there is no revision.
pub const ETAG_OF_NOTHING: &str = "\"0\"";

/// The picture.
#[derive(Clone, Debug)]
pub struct View {
    /// Revisions by number.
    pub revisions: Arc<BTreeMap<u64, Revision>>,
    /// Operations by id.
    pub operations: Arc<BTreeMap<String, Operation>>,
    /// The document that runs, as it was written; `null` if none does.
    pub value: Arc<Value>,
    /// The same with every value set.
    pub document: Option<Arc<Document>>,
    /// The commit machine, for what it says of itself.
    pub machine: Machine,
    /// Whether the data plane takes the running document only at its next start.
    pub restart_needed: bool,
    /// Commits rolled back since the start, by cause.
    pub rollbacks: BTreeMap<&'static str, u64>,
}

impl View {
    /// The revision that runs.
    pub fn running(&self) -> Option<&Revision> {
        self.machine.running().and_then(|n| self.revisions.get(&n))
    }

    /// The ETag of the document that runs.
    pub fn etag(&self) -> String {
        self.running()
            .map_or_else(|| ETAG_OF_NOTHING.to_owned(), Revision::etag)
    }

    /// The commit under way.
    pub fn commit(&self, now: Now) -> Commit {
        self.machine.commit(now)
    }
}
