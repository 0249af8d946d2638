//! Runs test vectors against the product crates: finds the files, hands each to the module of its kind,
//! adds up. The kinds hold no protocol arithmetic; every case calls public product functions.

mod case;
mod coding;
mod collector;
mod ecn;
mod frames;
mod icrc;
mod ipfix;
mod messages;
mod plan;
mod policy;
mod seq_traces;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use serde_json::{Value, json};

pub use case::{Failure, Tally};

/// Why a directory or a file cannot be run at all.
#[derive(Debug)]
pub enum VectorsError {
    /// A path cannot be read or written.
    Io(PathBuf, io::Error),
    /// A file is not JSON.
    Json(PathBuf, serde_json::Error),
    /// The directory has no vector file.
    Empty(PathBuf),
}

impl fmt::Display for VectorsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Json(path, error) => write!(f, "{}: not JSON: {error}", path.display()),
            Self::Empty(path) => write!(f, "{}: no *.json or *.json.gz in it", path.display()),
        }
    }
}

impl std::error::Error for VectorsError {}

/// What became of one file.
#[derive(Debug)]
pub struct FileReport {
    /// Its name without extensions: the kind.
    pub name: String,
    /// Its cases.
    pub tally: Tally,
}

/// What became of a directory.
#[derive(Debug, Default)]
pub struct Report {
    /// By file, in the order of their names.
    pub files: Vec<FileReport>,
}

impl Report {
    /// Passed, failed and not covered cases in all.
    pub fn totals(&self) -> (u64, u64, u64) {
        self.files
            .iter()
            .fold((0, 0, 0), |(passed, failed, rest), file| {
                let tally = &file.tally;
                (
                    passed + tally.passed,
                    failed + tally.failures.len() as u64,
                    rest + tally.not_covered,
                )
            })
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let (passed, failed, not_covered) = self.totals();
        let files: serde_json::Map<String, Value> = self
            .files
            .iter()
            .map(|file| {
                let failures: Vec<Value> = file
                    .tally
                    .failures
                    .iter()
                    .map(|failure| json!({"case": failure.case, "what": failure.what}))
                    .collect();
                let value = json!({
                    "passed": file.tally.passed,
                    "failed": failures.len(),
                    "not_covered": file.tally.not_covered,
                    "failures": failures,
                });
                (file.name.clone(), value)
            })
            .collect();
        json!({"passed": passed, "failed": failed, "not_covered": not_covered, "files": files})
    }
}

/// Runs every `*.json` and `*.json.gz` of a directory.
///
/// # Errors
/// The directory or a file cannot be read, a file is not JSON, or there is none.
pub fn run_directory(directory: &Path) -> Result<Report, VectorsError> {
    let failed = |error| VectorsError::Io(directory.to_path_buf(), error);
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if kind_of(&path).is_some() {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.is_empty() {
        return Err(VectorsError::Empty(directory.to_path_buf()));
    }
    let mut report = Report::default();
    for path in paths {
        let document = read(&path)?;
        let name = kind_of(&path).unwrap_or_default().to_owned();
        let tally = run_document(&name, &document);
        report.files.push(FileReport { name, tally });
    }
    Ok(report)
}

/// The file name without `.json` or `.json.gz`; `None` for other files.
fn kind_of(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    name.strip_suffix(".json")
        .or_else(|| name.strip_suffix(".json.gz"))
}

fn read(path: &Path) -> Result<Value, VectorsError> {
    let failed = |error| VectorsError::Io(path.to_path_buf(), error);
    let mut octets = fs::read(path).map_err(failed)?;
    if path.extension().is_some_and(|extension| extension == "gz") {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&octets[..])
            .read_to_end(&mut plain)
            .map_err(failed)?;
        octets = plain;
    }
    serde_json::from_slice(&octets).map_err(|error| VectorsError::Json(path.to_path_buf(), error))
}

/// Runs one file. Lists that no module claims count as not covered.
fn run_document(kind: &str, document: &Value) -> Tally {
    let mut tally = Tally::default();
    let covered: &[&str] = match kind {
        "coding" => coding::run(document, &mut tally),
        "collector" => collector::run(document, &mut tally),
        "ecn" => ecn::run(document, &mut tally),
        "frames" => frames::run(document, &mut tally),
        "icrc" => icrc::run(document, &mut tally),
        "ipfix" => ipfix::run(document, &mut tally),
        "messages" => messages::run(document, &mut tally),
        "plan" => plan::run(document, &mut tally),
        "policy" => policy::run(document, &mut tally),
        "seq_traces" => seq_traces::run(document, &mut tally),
        _ => &[],
    };
    for (key, value) in document.as_object().into_iter().flatten() {
        if let Some(list) = value.as_array()
            && !covered.contains(&key.as_str())
        {
            tally.not_covered += list.len() as u64;
        }
    }
    tally
}
