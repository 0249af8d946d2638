//! Following the config document: reading its part on IPFIX, and noticing that it has changed. What
//! changes because of it is decided in the parent.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use crem_api::{Invalid, Issue};
use crem_ipfix::plan::Plan;

use super::collectors::{Wanted, wanted};

/// What tells one version of a file from another.
type Stamp = Option<(SystemTime, u64, u64)>;

/// The document of the process.
#[derive(Debug)]
pub(super) struct Document {
    path: PathBuf,
    /// Set by a signal: read it now.
    reload: Arc<AtomicBool>,
    /// As it was when it was read, or refused.
    read: Stamp,
    /// As it was at the last look: one that is being written is not read yet.
    looked: Stamp,
}

impl Document {
    pub(super) fn new(path: PathBuf, reload: Arc<AtomicBool>) -> Self {
        Self {
            path,
            reload,
            read: None,
            looked: None,
        }
    }

    /// Reads it for the first time.
    ///
    /// # Errors
    /// As [`Document::read`], and if there is nothing to export.
    pub(super) fn begin(&mut self) -> Result<Wanted, Invalid> {
        self.read()?.ok_or_else(|| Invalid {
            issues: vec![Issue::new(
                "/ipfix",
                "nothing",
                "a table that says what to export",
            )],
        })
    }

    /// Reads it, whatever was read before; `None` without a part on IPFIX.
    ///
    /// # Errors
    /// Everything in it that cannot be carried out here.
    pub(super) fn read(&mut self) -> Result<Option<Wanted>, Invalid> {
        self.read = stamp(&self.path);
        self.looked = self.read;
        let document = crem_api::load(&self.path)?;
        let Some(ipfix) = document.ipfix else {
            return Ok(None);
        };
        let plan = Plan::new(&ipfix, document.workers)?;
        wanted(&ipfix, &plan).map(Some)
    }

    /// Whether a signal asks to read it now.
    pub(super) fn is_asked_for(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }

    /// Whether it is another one than was read, and was so at the last look as well.
    pub(super) fn has_changed(&mut self) -> bool {
        let now = stamp(&self.path);
        let settled = now == self.looked;
        self.looked = now;
        settled && now.is_some() && now != self.read
    }
}

fn stamp(path: &Path) -> Stamp {
    let data = std::fs::metadata(path).ok()?;
    Some((data.modified().ok()?, data.len(), data.ino()))
}
