//! Somebody who looks closer at a gateway while flows run, through its API: captures messages, tests the peer, asks
//! whether it fits, and has a support bundle made.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::http::{Answer, Ask, Http};
use crate::scenario::Failure;
use crate::scenario::check::Finding;
use crate::scenario::gateway::SEGMENT;

/// How pcapng begins, and how gzip does.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Echoes of a test.
const ECHOES: u64 = 50;

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Frames in the capture.
    pub frames: u64,
    /// Octets of its file.
    pub file_octets: usize,
    /// Echoes that came back.
    pub echoes: u64,
    /// The shortest round trip, microseconds.
    pub rtt_min_us: u64,
    /// The longest packet that passed both ways, octets.
    pub mtu: u64,
    /// Whether the peer answers, as the question of compatibility has it.
    pub answers: bool,
    /// Octets of the support bundle.
    pub bundle_octets: usize,
}

/// Somebody at it.
#[derive(Debug)]
pub(crate) struct Diagnostician(JoinHandle<Result<Diagnosis, String>>);

impl Diagnostician {
    pub(crate) fn start(socket: PathBuf) -> Self {
        Self(std::thread::spawn(move || {
            diagnose(&socket).map_err(|e| e.to_string())
        }))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    pub(crate) fn finish(self) -> Result<Diagnosis, Failure> {
        let seen = self.0.join().map_err(|_| "who looks closer panicked")?;
        Ok(seen?)
    }
}

/// One request over a connection of its own.
fn ask(socket: &Path, method: &str, path: &str, body: &str) -> Result<Answer, Failure> {
    let answer = Http::connect(socket)?.ask(Ask {
        method,
        path,
        headers: &[("Content-Type", "application/json")],
        body,
    })?;
    if answer.status >= 300 {
        return Err(format!("{method} {path}: {}", answer.words()).into());
    }
    Ok(answer)
}

fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str, Failure> {
    let found = value[name].as_str();
    found.ok_or_else(|| format!("no {name} in {value}").into())
}

fn diagnose(socket: &Path) -> Result<Diagnosis, Failure> {
    let mut seen = Diagnosis::default();
    let new = format!(r#"{{"segment":"{SEGMENT}","port":"wan","kind":"crem","seconds":30}}"#);
    let capture = ask(socket, "POST", "/v1/captures", &new)?.json();
    let capture = format!("/v1/captures/{}", text(&capture, "id")?);
    let peers = ask(socket, "GET", "/v1/state/peers", "")?.json();
    let peer = format!("/v1/peers/{}", text(&peers["peers"][0], "id")?);
    let path = format!("{peer}/test?echoes={ECHOES}");
    let echo = &ask(socket, "POST", &path, "")?.json()["echo"];
    let number = |name: &str| echo[name].as_u64().unwrap_or(0);
    (seen.echoes, seen.rtt_min_us) = (number("received"), number("rtt_min_us"));
    seen.mtu = number("mtu_both_ways");
    let fits = ask(socket, "GET", &format!("{peer}/compatibility"), "")?.json();
    seen.answers = fits["answers"] == true;
    let bundle = ask(socket, "POST", "/v1/support-bundles", "")?.json();
    let bundle = format!("/v1/support-bundles/{}", text(&bundle, "id")?);
    ask(socket, "GET", &format!("{bundle}?wait=20s"), "")?;
    let file = ask(socket, "GET", &format!("{bundle}/file"), "")?.body;
    seen.bundle_octets = if file.starts_with(&GZIP) {
        file.len()
    } else {
        0
    };
    let stopped = ask(socket, "POST", &format!("{capture}/stop"), "")?.json();
    seen.frames = stopped["frames"].as_u64().unwrap_or(0);
    let file = ask(socket, "GET", &format!("{capture}/pcapng"), "")?.body;
    seen.file_octets = if file.starts_with(&PCAPNG) {
        file.len()
    } else {
        0
    };
    ask(socket, "DELETE", &capture, "")?;
    Ok(seen)
}

/// What has to be seen on a path with this round-trip time, microseconds.
pub(super) fn judge(mode: &str, seen: &Diagnosis, rtt_us: u64, found: &mut Vec<Finding>) {
    // A path that loses one of a hundred each way.
    let echoes = seen.echoes * 10 >= ECHOES * 8;
    let in_time = (rtt_us..rtt_us + 100_000).contains(&seen.rtt_min_us);
    let files = seen.frames > 0 && seen.file_octets > 0 && seen.bundle_octets > 0;
    found.push(Finding::new(
        echoes && in_time && files && seen.answers && seen.mtu == 1500,
        format!(
            "{mode}: a capture of {} messages in {} octets, {} of {ECHOES} echoes back after {:.1} ms at least, \
             {} octets both ways, the peer answers {}, a bundle of {} octets",
            seen.frames,
            seen.file_octets,
            seen.echoes,
            seen.rtt_min_us as f64 / 1e3,
            seen.mtu,
            seen.answers,
            seen.bundle_octets,
        ),
    ));
}
