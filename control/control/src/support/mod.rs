//! Support bundles: everything that those who help need to see, in one file, without secrets. Bounded in number and
//! in what goes in. What is secret is in [`redact`], the form of the file in [`tar`].

mod redact;
mod tar;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crem_api::rest::{AuditRecord, Bundle, BundleList, BundlePhase, Event, Problem, VersionInfo};
use crem_api::state::Flows;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::clock;
use crate::digest::random_hex;
use crate::problem::{Kind, problem};
use crate::view::View;
use crate::watcher::Seen;

use redact::Redactor;

/// Bundles that are kept; the oldest one makes room.
const MAX_BUNDLES: usize = 4;
/// Flows in a bundle.
const MAX_FLOWS: usize = 2_000;
/// Operations in a bundle, the last ones.
const MAX_OPERATIONS: usize = 100;
/// Lines of the audit log in a bundle, the last ones.
pub const MAX_AUDIT: usize = 1_000;

/// What a bundle is made of.
#[derive(Debug)]
pub struct Sources {
    /// The documents and their history.
    pub view: Arc<View>,
    /// What the data plane and the exporting process said last.
    pub seen: Arc<Seen>,
    /// Flows, if the data plane answered.
    pub flows: Option<Arc<Flows>>,
    /// What happened lately.
    pub events: Vec<Event>,
    /// Who did what lately.
    pub audit: Vec<AuditRecord>,
    /// Metrics as Prometheus gets them.
    pub metrics: String,
    /// Versions of the programs.
    pub versions: VersionInfo,
}

/// The bundles of a gateway.
#[derive(Debug)]
pub struct Bundles {
    directory: PathBuf,
    known: Mutex<BTreeMap<String, Bundle>>,
    changed: watch::Sender<()>,
}

impl Bundles {
    /// None yet; the directory is made if need be, and emptied: bundles are of one run of the process.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn open(directory: &Path) -> io::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        for entry in fs::read_dir(directory)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(Self {
            directory: directory.to_path_buf(),
            known: Mutex::default(),
            changed: watch::Sender::new(()),
        })
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Bundle>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}.tar.gz"))
    }

    /// All of them.
    pub fn list(&self) -> BundleList {
        let mut bundles: Vec<Bundle> = self.known().values().cloned().collect();
        bundles.sort_by_key(|bundle| bundle.at_ms);
        BundleList { bundles }
    }

    /// One of them.
    ///
    /// # Errors
    /// There is none with this id.
    pub fn get(&self, id: &str) -> Result<Bundle, Box<Problem>> {
        self.known().get(id).cloned().ok_or_else(missing)
    }

    /// Changes with every bundle that is done.
    pub fn follow(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// A place for a new one. The oldest that is done makes room.
    ///
    /// # Errors
    /// All of them are being made.
    pub fn begin(&self, actor: String, at_ms: u64) -> Result<Bundle, Box<Problem>> {
        let mut known = self.known();
        if known.len() >= MAX_BUNDLES {
            let done = known.values().filter(|b| b.state != BundlePhase::Running);
            let oldest = done.min_by_key(|b| b.at_ms).map(|b| b.id.clone());
            let full = || problem(Kind::NoRoom, "Too many bundles are being made.");
            let oldest = oldest.ok_or_else(full)?;
            known.remove(&oldest);
            let _ = fs::remove_file(self.file(&oldest));
        }
        let id = random_hex::<6>().map_err(internal)?;
        let bundle = Bundle {
            id: id.clone(),
            actor,
            at_ms,
            state: BundlePhase::Running,
            detail: None,
            files: Vec::new(),
            octets: 0,
        };
        known.insert(id, bundle.clone());
        Ok(bundle)
    }

    /// Makes the file of one that was begun. Blocks.
    pub fn make(&self, id: &str, sources: io::Result<Sources>) {
        let made = sources.and_then(|sources| {
            let files = contents(&sources)?;
            let octets = self.write(id, &files)?;
            Ok((files, octets))
        });
        if let Some(bundle) = self.known().get_mut(id) {
            match made {
                Ok((files, octets)) => {
                    bundle.state = BundlePhase::Succeeded;
                    bundle.files = files.into_iter().map(|(name, _)| name).collect();
                    bundle.octets = octets;
                }
                Err(error) => {
                    bundle.state = BundlePhase::Failed;
                    bundle.detail = Some(error.to_string());
                }
            }
        }
        self.changed.send_replace(());
    }

    fn write(&self, id: &str, files: &[(String, Vec<u8>)]) -> io::Result<u64> {
        let path = self.file(id);
        let mut options = fs::OpenOptions::new();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        let mut packed = GzEncoder::new(io::BufWriter::new(file), Compression::default());
        tar::write(&mut packed, files, clock::now().wall_ms / 1000)?;
        packed.finish()?.flush()?;
        Ok(fs::metadata(path)?.len())
    }

    /// The file of one, with its length.
    ///
    /// # Errors
    /// There is none with this id, or it has no file.
    pub fn read(&self, id: &str) -> Result<(fs::File, u64), Box<Problem>> {
        let bundle = self.get(id)?;
        if bundle.state != BundlePhase::Succeeded {
            let detail = bundle
                .detail
                .unwrap_or("It is still being made.".to_owned());
            return Err(problem(Kind::NotReady, detail));
        }
        let file = fs::File::open(self.file(id)).map_err(internal)?;
        Ok((file, bundle.octets))
    }

    /// Removes one that is done, with its file.
    ///
    /// # Errors
    /// There is none with this id, or it is being made.
    pub fn remove(&self, id: &str) -> Result<(), Box<Problem>> {
        let mut known = self.known();
        let bundle = known.get(id).ok_or_else(missing)?;
        if bundle.state == BundlePhase::Running {
            return Err(problem(Kind::NotReady, "It is still being made."));
        }
        known.remove(id);
        match fs::remove_file(self.file(id)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(internal(e)),
            _ => Ok(()),
        }
    }
}

fn missing() -> Box<Problem> {
    problem(Kind::NotFound, "There is no such bundle.")
}

fn internal(error: io::Error) -> Box<Problem> {
    problem(Kind::Internal, error.to_string())
}

/// The files of a bundle, by their names in it.
fn contents(sources: &Sources) -> io::Result<Vec<(String, Vec<u8>)>> {
    let view = &sources.view;
    let redactor = redactor(sources)?;
    let mut files = Vec::new();
    let mut add = |name: &str, value: Value| {
        let text = format!("{:#}\n", redactor.document(value));
        files.push((format!("crem-support/{name}"), text.into_bytes()));
    };
    add("about.json", about(sources));
    add("config.json", view.value.as_ref().clone());
    add("commit.json", json(&view.commit(clock::now()))?);
    let revisions: Vec<_> = view.revisions.values().rev().collect();
    add("revisions.json", json(&revisions)?);
    let mut operations: Vec<_> = view.operations.values().cloned().collect();
    operations.sort_by_key(|operation| std::cmp::Reverse(operation.revision));
    operations.truncate(MAX_OPERATIONS);
    operations
        .iter_mut()
        .for_each(|operation| operation.idempotency = None);
    add("operations.json", json(&operations)?);
    add("dataplane.json", json(&sources.seen.status)?);
    add("counters.json", json(&sources.seen.counters)?);
    add("ipfix.json", json(&sources.seen.export)?);
    add("flows.json", flows(sources)?);
    add("events.json", json(&sources.events)?);
    add("audit.json", json(&sources.audit)?);
    let metrics = redactor.text(&sources.metrics);
    files.push(("crem-support/metrics.txt".to_owned(), metrics.into_bytes()));
    Ok(files)
}

/// Knows what is secret in any document or state that goes in.
fn redactor(sources: &Sources) -> io::Result<Redactor> {
    let view = &sources.view;
    let status = json(&sources.seen.status)?;
    let (revisions, audit) = (json(view.revisions.as_ref())?, json(&sources.audit)?);
    Ok(Redactor::of([
        view.value.as_ref(),
        &status,
        &revisions,
        &audit,
    ]))
}

fn json(value: &impl Serialize) -> io::Result<Value> {
    serde_json::to_value(value).map_err(io::Error::other)
}

/// What is in the bundle, and what is not.
fn about(sources: &Sources) -> Value {
    json!({
        "made_at_ms": clock::now().wall_ms,
        "versions": sources.versions,
        "state_at_ms": sources.seen.at_ms,
        "bounds": {
            "flows": MAX_FLOWS, "operations": MAX_OPERATIONS, "audit": MAX_AUDIT,
            "events": crate::journal::MAX_EVENTS,
        },
        "redacted": "Paths and contents of keys and certificates, tokens, passwords, comments, reasons that people \
                     gave, arguments of virtual devices. Addresses and names are as they are.",
    })
}

/// The first flows, and how many there are.
fn flows(sources: &Sources) -> io::Result<Value> {
    let Some(all) = &sources.flows else {
        return Ok(Value::Null);
    };
    let some: Vec<_> = all.flows.iter().take(MAX_FLOWS).collect();
    let left_out = all.left_out + (all.flows.len() - some.len()) as u64;
    Ok(json!({"flows": some, "left_out": left_out}))
}
