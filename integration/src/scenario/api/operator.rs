//! Somebody who changes the documents of running gateways through their API, in the ways that there are, and
//! looks each time whether what was asked for is so.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http::{Answer, Ask, Http};
use crate::scenario::Failure;
use crate::scenario::changes::Changes;
use crate::scenario::gateway::SEGMENT;

/// Ways of changing a document, in turn.
const KINDS: [&str; 5] = ["merged", "confirmed", "operations", "part", "rolled_back"];
/// Between two changes.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the data plane may take to tell the revision that it runs.
const TOLD: Duration = Duration::from_secs(3);
/// What a change of a number may be to: `retained_frames`.
const LEAST: u64 = 1000;

/// Somebody at work.
#[derive(Debug)]
pub(crate) struct Operator {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Changes, String>>,
}

impl Operator {
    /// Makes so many changes, at each gateway in turn.
    pub(crate) fn start(count: u64, sockets: Vec<PathBuf>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut changes = Changes::default();
            for (turn, socket) in (0..count).zip(sockets.iter().cycle()) {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                // Each gateway sees every kind.
                let kind = KINDS[(turn / sockets.len() as u64) as usize % KINDS.len()];
                make(kind, turn, socket, &mut changes)
                    .map_err(|e| format!("change {turn}, {kind}: {e}"))?;
                std::thread::sleep(PAUSE);
            }
            Ok(changes)
        });
        Self { stop, thread }
    }

    /// Whether everything was changed, or something failed.
    pub(crate) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// What was changed.
    pub(crate) fn finish(self) -> Result<Changes, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let changes = self.thread.join().map_err(|_| "the operator panicked")?;
        Ok(changes?)
    }
}

fn make(kind: &str, turn: u64, socket: &Path, changes: &mut Changes) -> Result<(), Failure> {
    let pointer = format!("/segments/{SEGMENT}/limits/retained_frames");
    let (before, etag) = running(socket)?;
    let value = json!(LEAST + turn);
    let begun = Instant::now();
    let answer = write(kind, socket, &etag, &pointer, &value)?;
    let ms = begun.elapsed().as_secs_f64() * 1e3;
    changes.slowest_ms = changes.slowest_ms.max(ms);
    let written = answer.json();
    let expected = if written["pending"].is_object() {
        202
    } else {
        200
    };
    if answer.status != expected || written["changed"] != true {
        return Err(answer.words().into());
    }
    changes.made += 1;
    let so = match kind {
        "confirmed" => confirm(socket, &written)? && is_in_force(socket, &pointer, &value)?,
        "rolled_back" => {
            rolled_back(socket, &written)?
                && running(socket)?.0.pointer(&pointer) == before.pointer(&pointer)
        }
        _ => is_in_force(socket, &pointer, &value)?,
    };
    // Who has not seen it yet is not let through.
    let stale = write("merged", socket, &etag, &pointer, &json!(LEAST - 1))?;
    let refused = stale.status == 412 || kind == "rolled_back";
    changes.seen += u64::from(so && refused);
    *changes.kinds.entry(kind.to_owned()).or_default() += 1;
    Ok(())
}

/// The document that runs, with every value set, and its ETag.
fn running(socket: &Path) -> Result<(Value, String), Failure> {
    let answer = Http::connect(socket)?.ask(Ask::get("/v1/config?filled=true"))?;
    let etag = answer.etag.clone().ok_or_else(|| answer.words())?;
    Ok((answer.json(), etag))
}

fn write(
    kind: &str,
    socket: &Path,
    etag: &str,
    pointer: &str,
    value: &Value,
) -> Result<Answer, Failure> {
    let merge = json!({"segments": {SEGMENT: {"limits": {"retained_frames": value}}}}).to_string();
    let (method, path, media_type, body) = match kind {
        "operations" => {
            // Its place is not there before the first change of it.
            let limits = pointer.trim_end_matches("/retained_frames");
            let operations =
                json!([{"op": "add", "path": limits, "value": {"retained_frames": value}}]);
            let media_type = "application/json-patch+json";
            (
                "PATCH",
                "/v1/config".to_owned(),
                media_type,
                operations.to_string(),
            )
        }
        "part" => {
            let path = format!("/v1/config{pointer}?comment=during+a+transfer");
            ("PUT", path, "application/json", value.to_string())
        }
        _ => {
            let query = match kind {
                "confirmed" => "?confirm=30s",
                "rolled_back" => "?confirm=1s",
                _ => "",
            };
            let media_type = "application/merge-patch+json";
            ("PATCH", format!("/v1/config{query}"), media_type, merge)
        }
    };
    Http::connect(socket)?.ask(Ask {
        method,
        path: &path,
        headers: &[("If-Match", etag), ("Content-Type", media_type)],
        body: &body,
    })
}

fn confirm(socket: &Path, written: &Value) -> Result<bool, Failure> {
    let body = json!({"revision": written["revision"]}).to_string();
    let answer = Http::connect(socket)?.ask(Ask {
        method: "POST",
        path: "/v1/commit:confirm",
        headers: &[("Content-Type", "application/json")],
        body: &body,
    })?;
    Ok(answer.status == 200 && answer.json()["state"] == "none")
}

/// Nobody confirms it: the operation tells how it ended.
fn rolled_back(socket: &Path, written: &Value) -> Result<bool, Failure> {
    let id = written["operation"].as_str().unwrap_or_default();
    let path = format!("/v1/operations/{id}?wait=10s");
    let over = Http::connect(socket)?.ask(Ask::get(&path))?.json();
    Ok(over["state"] == "rolled_back" && over["problem"]["cause"] == "timeout")
}

/// The API has the value, and the data plane says that it runs that revision.
fn is_in_force(socket: &Path, pointer: &str, value: &Value) -> Result<bool, Failure> {
    if running(socket)?.0.pointer(pointer) != Some(value) {
        return Ok(false);
    }
    let mut http = Http::connect(socket)?;
    let revision = http.ask(Ask::get("/v1/revisions?limit=1"))?.json()["running"].clone();
    let end = Instant::now() + TOLD;
    while Instant::now() < end {
        let status = http.ask(Ask::get("/v1/state/dataplane"))?.json();
        if status["revision"] == revision {
            return Ok(true);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(false)
}
