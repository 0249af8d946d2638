//! Who did what, one JSON line each, only ever appended, each with the hash of the line before it: what
//! is changed or left out later shows. What a request carried is not in it, so no secret is.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

pub use crem_api::rest::AuditRecord as Record;

use crate::digest::sha256;

/// Size at which the log becomes `audit.jsonl.1` and a new one begins, octets.
const ROTATE: u64 = 16 << 20;

#[derive(Debug)]
struct Open {
    file: File,
    length: u64,
    seq: u64,
    last_hash: String,
}

/// The log.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    open: Mutex<Open>,
}

impl Log {
    /// Opens or begins the log and checks its chain.
    ///
    /// # Errors
    /// It cannot be read or written, or a line does not follow the one before.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (seq, last_hash) = match File::open(path) {
            Ok(file) => check(BufReader::new(file))
                .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => (0, String::new()),
            Err(e) => return Err(e),
        };
        let file = append_to(path)?;
        let open = Open {
            length: file.metadata()?.len(),
            file,
            seq,
            last_hash,
        };
        Ok(Self {
            path: path.to_path_buf(),
            open: Mutex::new(open),
        })
    }

    /// Adds a line; `seq` and `prev_hash` are filled in here. What cannot be written is logged: a full
    /// disk must not keep anybody from rolling back.
    pub fn append(&self, record: Record) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.write(&mut open, record) {
            tracing::error!("{}: {error}", self.path.display());
        }
    }

    /// Something that nobody asked for.
    pub fn system(&self, at_ms: u64, action: &str, revision: u64, outcome: &str) {
        self.append(Record {
            at_ms,
            actor: "system".to_owned(),
            via: "system".to_owned(),
            action: action.to_owned(),
            revision: Some(revision),
            outcome: outcome.to_owned(),
            ..Record::default()
        });
    }

    fn write(&self, open: &mut Open, record: Record) -> io::Result<()> {
        if open.length >= ROTATE {
            let mut old = self.path.clone().into_os_string();
            old.push(".1");
            std::fs::rename(&self.path, old)?;
            open.file = append_to(&self.path)?;
            open.length = 0;
        }
        let record = Record {
            seq: open.seq + 1,
            prev_hash: open.last_hash.clone(),
            ..record
        };
        let mut line = serde_json::to_string(&record)?;
        let hash = sha256(line.as_bytes());
        line.push('\n');
        open.file.write_all(line.as_bytes())?;
        open.file.sync_data()?;
        open.length += line.len() as u64;
        open.seq = record.seq;
        open.last_hash = hash;
        Ok(())
    }

    /// The number of the last line.
    pub fn last(&self) -> u64 {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).seq
    }

    /// The lines after number `after`, at most `limit`, of the current file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self, after: u64, limit: usize) -> io::Result<Vec<Record>> {
        let mut found = Vec::new();
        for line in BufReader::new(File::open(&self.path)?).lines() {
            // A line that is being written has no end yet.
            let Ok(record) = serde_json::from_str::<Record>(&line?) else {
                continue;
            };
            if record.seq > after {
                found.push(record);
                if found.len() == limit {
                    break;
                }
            }
        }
        Ok(found)
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    // A line that was cut short when the machine stopped gets its end, so that it spoils no other.
    if std::fs::read(path)?.last().is_some_and(|end| *end != b'\n') {
        file.write_all(b"\n")?;
    }
    Ok(file)
}

/// Number and hash of the last line.
fn check(lines: impl BufRead) -> io::Result<(u64, String)> {
    let (mut seq, mut last) = (0, None::<String>);
    for line in lines.lines() {
        let line = line?;
        let Ok(record) = serde_json::from_str::<Record>(&line) else {
            // The last one when the machine stopped.
            tracing::warn!("a line of the audit log is cut short after number {seq}");
            continue;
        };
        if last.as_ref().is_some_and(|last| *last != record.prev_hash) {
            let text = format!("line {} does not follow the one before it", record.seq);
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        seq = record.seq;
        last = Some(sha256(line.as_bytes()));
    }
    Ok((seq, last.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn record(action: &str) -> Record {
        Record {
            action: action.to_owned(),
            ..Record::default()
        }
    }

    fn place(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("crem-audit-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn lines_are_chained_over_restarts() {
        let path = place("chain");
        Log::open(&path).unwrap().append(record("a"));
        let log = Log::open(&path).unwrap();
        log.append(record("b"));
        let records = log.read(0, 10).unwrap();
        assert_eq!(records.iter().map(|r| r.seq).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(log.read(1, 10).unwrap().len(), 1);
        let text = std::fs::read_to_string(&path).unwrap();
        let first = text.lines().next().unwrap();
        assert_eq!(records[1].prev_hash, sha256(first.as_bytes()));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_changed_or_missing_line_shows() {
        for spoil in [
            |text: String| text.replacen("\"action\":\"b\"", "\"action\":\"x\"", 1),
            |text: String| {
                let lines: Vec<&str> = text.lines().collect();
                format!("{}\n{}\n", lines[0], lines[2])
            },
        ] {
            let path = place("spoilt");
            let log = Log::open(&path).unwrap();
            for action in ["a", "b", "c"] {
                log.append(record(action));
            }
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, spoil(text)).unwrap();
            let error = Log::open(&path).unwrap_err().to_string();
            assert!(error.contains("does not follow"), "{error}");
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_line_cut_short_spoils_no_other() {
        let path = place("short");
        Log::open(&path).unwrap().append(record("a"));
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"seq\":2,\"prev");
        std::fs::write(&path, text).unwrap();
        Log::open(&path).unwrap().append(record("b"));
        let records = Log::open(&path).unwrap().read(0, 10).unwrap();
        assert_eq!(records.len(), 2);
        std::fs::remove_file(path).unwrap();
    }
}
