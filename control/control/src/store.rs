//! What is on disk: immutable revisions, which of them is confirmed, the commit that is armed, and
//! operations. Every change of a file is one that either happened or did not, whenever the machine stops:
//! a new file is written beside, flushed, renamed, and its directory flushed. Nothing is decided here.
//!
//! | path | what |
//! |---|---|
//! | `revisions/N.json` | the document of revision N, never changed |
//! | `revisions/N.meta.json` | what is known of it, with the hash chain; the revision exists once this does |
//! | `confirmed.json` | symbolic link to the document that a start begins with |
//! | `armed.json` | the way back while a commit is under way |
//! | `operations/ID.json` | operations |

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use crem_api::rest::{Operation, Revision};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::commit::Armed;
use crate::digest::sha256;

/// Revisions kept; the oldest go first, but never the confirmed one nor one that is under way.
pub const MAX_REVISIONS: usize = 200;
/// Operations kept.
pub const MAX_OPERATIONS: usize = 1000;

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file is not what was written.
    #[error("{path}: {what}")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

/// Whether files are flushed to the device. Without it a crash of the machine may lose what was reported
/// as done; a crash of the process does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// They are.
    #[default]
    Flushed,
    /// They are not: for measuring what flushing costs.
    Unflushed,
}

/// A new revision before it has its number.
#[derive(Clone, Debug)]
pub struct NewRevision<'a> {
    /// The document.
    pub document: &'a Value,
    /// Revision it was made from.
    pub parent: Option<u64>,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Who.
    pub actor: &'a str,
    /// By what.
    pub source: &'a str,
    /// Why, in words.
    pub comment: Option<&'a str>,
    /// What it disturbs.
    pub impact: crem_api::Impact,
}

/// The store.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    durability: Durability,
    revisions: BTreeMap<u64, Revision>,
    operations: BTreeMap<String, Operation>,
    /// Changes of files left before every further one fails, for tests of crashes.
    #[cfg(test)]
    pub(crate) steps_left: Option<u32>,
}

impl Store {
    /// Opens the store in a directory, making it if there is none, and checks the chain of hashes.
    ///
    /// # Errors
    /// Files that cannot be read, or that are not as they were written.
    pub fn open(directory: &Path, durability: Durability) -> Result<Self, StoreError> {
        for path in [
            directory.to_path_buf(),
            directory.join("revisions"),
            directory.join("operations"),
        ] {
            let made = fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(&path);
            made.map_err(|error| StoreError::Io { path, error })?;
        }
        let mut store = Self {
            directory: directory.to_path_buf(),
            durability,
            revisions: BTreeMap::new(),
            operations: BTreeMap::new(),
            #[cfg(test)]
            steps_left: None,
        };
        for name in names(&directory.join("revisions"), ".meta.json")? {
            let path = directory.join("revisions").join(&name);
            let revision: Revision = read(&path)?;
            store.revisions.insert(revision.number, revision);
        }
        store.check_chain()?;
        for name in names(&directory.join("operations"), ".json")? {
            let operation: Operation = read(&directory.join("operations").join(&name))?;
            store.operations.insert(operation.id.clone(), operation);
        }
        Ok(store)
    }

    fn check_chain(&self) -> Result<(), StoreError> {
        let mut before: Option<&Revision> = None;
        for revision in self.revisions.values() {
            let path = self.meta_path(revision.number);
            let damaged = |what: &str| StoreError::Damaged {
                path: path.clone(),
                what: what.to_owned(),
            };
            if revision.hash != hash(revision) {
                return Err(damaged("changed after it was written"));
            }
            if before.is_some_and(|b| b.hash != revision.prev_hash) {
                return Err(damaged("does not follow the revision before it"));
            }
            before = Some(revision);
        }
        Ok(())
    }

    /// The revisions by number.
    pub fn revisions(&self) -> &BTreeMap<u64, Revision> {
        &self.revisions
    }

    /// The operations by id.
    pub fn operations(&self) -> &BTreeMap<String, Operation> {
        &self.operations
    }

    /// The document of a revision.
    ///
    /// # Errors
    /// It does not exist, cannot be read, or is not what was written.
    pub fn document(&self, number: u64) -> Result<Value, StoreError> {
        let path = self.document_path(number);
        let octets = fs::read(&path).map_err(|error| StoreError::Io {
            path: path.clone(),
            error,
        })?;
        let damaged = |what: String| StoreError::Damaged {
            path: path.clone(),
            what,
        };
        let known = self.revisions.get(&number);
        if known.is_none_or(|r| r.document_sha256 != sha256(&octets)) {
            return Err(damaged("not what its hash says".to_owned()));
        }
        serde_json::from_slice(&octets).map_err(|e| damaged(e.to_string()))
    }

    /// The confirmed revision.
    ///
    /// # Errors
    /// The link is not one of ours.
    pub fn confirmed(&self) -> Result<Option<u64>, StoreError> {
        let path = self.directory.join("confirmed.json");
        let target = match fs::read_link(&path) {
            Ok(target) => target,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::Io { path, error }),
        };
        let number = target
            .file_stem()
            .and_then(|stem| stem.to_str())
            .and_then(|stem| stem.parse().ok());
        match number {
            Some(number) if self.revisions.contains_key(&number) => Ok(Some(number)),
            _ => Err(StoreError::Damaged {
                path,
                what: format!("points to {}, which is no revision", target.display()),
            }),
        }
    }

    /// The commit that is under way.
    ///
    /// # Errors
    /// The file cannot be read or is not as it was written.
    pub fn armed(&self) -> Result<Option<Armed>, StoreError> {
        let path = self.directory.join("armed.json");
        if path.exists() {
            read(&path).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Adds a revision. `keep` are numbers that may not be pruned.
    ///
    /// # Errors
    /// A file could not be written; then there is no such revision.
    pub fn append(&mut self, new: &NewRevision<'_>, keep: &[u64]) -> Result<Revision, StoreError> {
        let text = pretty(new.document);
        let last = self.revisions.values().next_back();
        let mut revision = Revision {
            number: last.map_or(1, |last| last.number + 1),
            parent: new.parent,
            at_ms: new.at_ms,
            actor: new.actor.to_owned(),
            source: new.source.to_owned(),
            comment: new.comment.map(str::to_owned),
            impact: new.impact,
            document_sha256: sha256(text.as_bytes()),
            prev_hash: last.map(|last| last.hash.clone()).unwrap_or_default(),
            hash: String::new(),
        };
        revision.hash = hash(&revision);
        self.replace(&self.document_path(revision.number), text.as_bytes())?;
        let meta = pretty(&revision);
        self.replace(&self.meta_path(revision.number), meta.as_bytes())?;
        self.revisions.insert(revision.number, revision.clone());
        self.prune(keep);
        Ok(revision)
    }

    /// Removes what exceeds [`MAX_REVISIONS`], oldest first. The meta file goes first: without it there is
    /// no revision.
    fn prune(&mut self, keep: &[u64]) {
        while self.revisions.len() > MAX_REVISIONS {
            // A gap in the middle would break the chain, so that a kept one ends the pruning.
            let Some(oldest) = self.revisions.keys().next().copied() else {
                return;
            };
            if keep.contains(&oldest) {
                return;
            }
            for path in [self.meta_path(oldest), self.document_path(oldest)] {
                if let Err(e) = fs::remove_file(&path) {
                    tracing::warn!("{}: {e}", path.display());
                    return;
                }
            }
            self.revisions.remove(&oldest);
        }
    }

    /// Makes a revision the confirmed one. Readers of the link see the one before or this one.
    ///
    /// # Errors
    /// The link could not be made; the one before is still there.
    pub fn promote(&mut self, number: u64) -> Result<(), StoreError> {
        let path = self.directory.join("confirmed.json");
        let beside = self.directory.join(".confirmed.json.new");
        self.step(&path)?;
        let _ = fs::remove_file(&beside);
        let linked = symlink(format!("revisions/{number}.json"), &beside)
            .and_then(|()| fs::rename(&beside, &path))
            .and_then(|()| self.flush(&self.directory));
        linked.map_err(|error| StoreError::Io { path, error })
    }

    /// Writes down the way back.
    ///
    /// # Errors
    /// It could not be written.
    pub fn arm(&mut self, armed: &Armed) -> Result<(), StoreError> {
        self.replace(&self.directory.join("armed.json"), pretty(armed).as_bytes())
    }

    /// Forgets the way back.
    ///
    /// # Errors
    /// The file could not be removed.
    pub fn disarm(&mut self) -> Result<(), StoreError> {
        let path = self.directory.join("armed.json");
        self.step(&path)?;
        match fs::remove_file(&path).and_then(|()| self.flush(&self.directory)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::Io { path, error })
            }
            _ => Ok(()),
        }
    }

    /// Writes an operation down, the oldest ones that are over going where there are too many.
    ///
    /// # Errors
    /// It could not be written.
    pub fn save(&mut self, operation: &Operation) -> Result<(), StoreError> {
        let path = self.operation_path(&operation.id);
        self.replace(&path, pretty(operation).as_bytes())?;
        self.operations
            .insert(operation.id.clone(), operation.clone());
        while self.operations.len() > MAX_OPERATIONS {
            // Ids begin with the time, so the first is the oldest.
            let Some(oldest) = self.operations.keys().next().cloned() else {
                break;
            };
            self.operations.remove(&oldest);
            let _ = fs::remove_file(self.operation_path(&oldest));
        }
        Ok(())
    }

    /// Path of the document that a start begins with.
    pub fn confirmed_path(&self) -> PathBuf {
        self.directory.join("confirmed.json")
    }

    fn document_path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("revisions/{number}.json"))
    }

    fn meta_path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("revisions/{number}.meta.json"))
    }

    fn operation_path(&self, id: &str) -> PathBuf {
        self.directory.join(format!("operations/{id}.json"))
    }

    /// Writes a file so that it has either its old content or all of the new one.
    fn replace(&mut self, path: &Path, content: &[u8]) -> Result<(), StoreError> {
        self.step(path)?;
        let beside = path.with_extension("new");
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .open(&beside)
            .and_then(|mut file| {
                file.write_all(content)?;
                match self.durability {
                    Durability::Flushed => file.sync_all(),
                    Durability::Unflushed => Ok(()),
                }
            });
        written
            .and_then(|()| self.renamed(&beside, path))
            .map_err(|error| StoreError::Io {
                path: path.to_path_buf(),
                error,
            })
    }

    fn renamed(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(to).map_err(io::Error::other)?;
        fs::rename(from, to)?;
        self.flush(to.parent().unwrap_or(&self.directory))
    }

    fn flush(&self, directory: &Path) -> io::Result<()> {
        match self.durability {
            Durability::Flushed => File::open(directory)?.sync_all(),
            Durability::Unflushed => Ok(()),
        }
    }

    #[cfg(not(test))]
    #[allow(clippy::unnecessary_wraps, clippy::unused_self)]
    fn step(&mut self, _: &Path) -> Result<(), StoreError> {
        Ok(())
    }

    /// Fails as if the process had been killed here.
    #[cfg(test)]
    fn step(&mut self, path: &Path) -> Result<(), StoreError> {
        match &mut self.steps_left {
            None => Ok(()),
            Some(0) => Err(StoreError::Io {
                path: path.to_path_buf(),
                error: io::Error::other("killed"),
            }),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}

fn hash(revision: &Revision) -> String {
    let unsealed = Revision {
        hash: String::new(),
        ..revision.clone()
    };
    sha256(pretty(&unsealed).as_bytes())
}

fn pretty(value: &impl Serialize) -> String {
    // Text keys, numbers and strings only: there is nothing in it that JSON cannot hold.
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, StoreError> {
    let octets = fs::read(path).map_err(|error| StoreError::Io {
        path: path.to_path_buf(),
        error,
    })?;
    serde_json::from_slice(&octets).map_err(|e| StoreError::Damaged {
        path: path.to_path_buf(),
        what: e.to_string(),
    })
}

/// Names in a directory that end so; what a stopped process left half written ends otherwise.
fn names(directory: &Path, end: &str) -> Result<Vec<String>, StoreError> {
    let listed = fs::read_dir(directory).and_then(|entries| {
        entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()
    });
    let mut names = listed.map_err(|error| StoreError::Io {
        path: directory.to_path_buf(),
        error,
    })?;
    names.retain(|name| name.ends_with(end));
    Ok(names)
}
