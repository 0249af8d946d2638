//! Metrics of the fleet agent, which is a process of its own: what its file with the status says. The file is not
//! ours, so it is taken for nothing but what it can be: a regular file, not too long, that says what a status says.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crem_api::fleet::{Agent, Phase, REASONS};
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use serde::Deserialize;

/// Longest file, octets: a status may carry all the problems of a document.
const MAX_FILE: u64 = 1 << 20;
/// From this age on the agent is taken for gone. It writes every ten seconds, later only while it waits for an answer.
const STALE: Duration = Duration::from_secs(60);
/// Why a file that is there was not taken.
const NOT_TAKEN: [&str; 4] = ["not_a_file", "too_large", "malformed", "unreadable"];
/// The states by name.
const STATES: [(Phase, &str); 7] = [
    (Phase::None, "none"),
    (Phase::Waiting, "waiting"),
    (Phase::RollingOut, "rolling_out"),
    (Phase::Applied, "applied"),
    (Phase::ChangedLocally, "changed_locally"),
    (Phase::Refused, "refused"),
    (Phase::Failed, "failed"),
];

/// What is read of the file; what else it says is of no concern here.
#[derive(Deserialize)]
struct Told {
    state: Phase,
    #[serde(default)]
    desired: Option<String>,
    #[serde(default)]
    applied: Option<String>,
    /// None of an agent that is older than this.
    #[serde(default)]
    agent: Option<Agent>,
}

/// Files that were not taken, by the reason.
#[derive(Debug, Default)]
pub(super) struct NotTaken(BTreeMap<&'static str, u64>);

pub(super) fn describe() {
    describe_gauge!(
        "crem_fleet_agent_up",
        "1 if the fleet agent has written its status lately."
    );
    describe_gauge!(
        "crem_fleet_agent_written_timestamp_seconds",
        Unit::Seconds,
        "When the fleet agent wrote its status last."
    );
    describe_counter!(
        "crem_fleet_status_not_taken_total",
        "Files with a status of the fleet agent that could not be used, by reason."
    );
    describe_gauge!("crem_fleet_etcd_up", "1 if etcd answers the fleet agent.");
    describe_gauge!(
        "crem_fleet_state",
        "1 for how the gateway stands to the document of the fleet."
    );
    describe_gauge!(
        "crem_fleet_revision",
        "Revision of etcd of the document that the gateway is to have, and of the one that it applied last."
    );
    describe_counter!(
        "crem_fleet_documents_total",
        "Documents of the fleet by what became of them, since the agent started."
    );
    describe_counter!(
        "crem_fleet_rollbacks_total",
        "Changes of the fleet agent that were in force and taken back, since it started."
    );
    describe_counter!(
        "crem_fleet_halts_total",
        "Halts of the fleet that this gateway asked for, since the agent started."
    );
    describe_counter!(
        "crem_fleet_failures_total",
        "Documents of the fleet that were refused or given up, by reason, since the agent started."
    );
}

/// Without a file there is no agent, and nothing to tell.
pub(super) fn set(path: &Path, now: SystemTime, not_taken: &mut NotTaken) {
    let read = read(path);
    if let Err(Some(reason)) = &read {
        *not_taken.0.entry(reason).or_default() += 1;
    }
    for reason in NOT_TAKEN {
        let count = not_taken.0.get(reason).copied().unwrap_or(0);
        counter!("crem_fleet_status_not_taken_total", "reason" => reason).absolute(count);
    }
    let up = |up: bool| gauge!("crem_fleet_agent_up").set(f64::from(u8::from(up)));
    match read {
        Err(None) => {}
        Err(Some(_)) => up(false),
        Ok((told, written)) => {
            let since = written.duration_since(SystemTime::UNIX_EPOCH);
            let seconds = since.unwrap_or_default().as_secs_f64();
            gauge!("crem_fleet_agent_written_timestamp_seconds").set(seconds);
            let lately = is_lately(written, now);
            up(lately);
            // What an agent that is gone has said holds no more.
            if lately {
                tell(&told);
            }
        }
    }
}

/// A time in the future says as little as an old one: how old the file is, nobody knows.
fn is_lately(written: SystemTime, now: SystemTime) -> bool {
    let apart = now.duration_since(written).unwrap_or_else(|e| e.duration());
    apart < STALE
}

fn tell(told: &Told) {
    for (state, name) in STATES {
        let is = f64::from(u8::from(told.state == state));
        gauge!("crem_fleet_state", "state" => name).set(is);
    }
    for (kind, version) in [("desired", &told.desired), ("applied", &told.applied)] {
        gauge!("crem_fleet_revision", "kind" => kind).set(revision(version.as_deref()) as f64);
    }
    let Some(agent) = &told.agent else { return };
    gauge!("crem_fleet_etcd_up").set(f64::from(u8::from(agent.etcd)));
    let counts = &agent.counts;
    for (outcome, count) in [
        ("applied", counts.applied),
        ("refused", counts.refused),
        ("failed", counts.failed),
    ] {
        counter!("crem_fleet_documents_total", "outcome" => outcome).absolute(count);
    }
    counter!("crem_fleet_rollbacks_total").absolute(counts.rolled_back);
    counter!("crem_fleet_halts_total").absolute(counts.halts);
    // Only those that we know: the names in a file are anybody's.
    for reason in REASONS {
        let count = counts.reasons.get(reason).copied().unwrap_or(0);
        counter!("crem_fleet_failures_total", "reason" => reason).absolute(count);
    }
}

/// The revision of etcd in a version such as `1742-9f86d081884c7d65`; 0 without one.
fn revision(version: Option<&str>) -> u64 {
    let first = version.and_then(|v| v.split('-').next());
    first.and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// What the file says and when it was written.
///
/// # Errors
/// Why it was not taken; none if there is no file.
fn read(path: &Path) -> Result<(Told, SystemTime), Option<&'static str>> {
    let file = File::options()
        .read(true)
        // Whatever it is, opening it does not wait; and a link leads elsewhere.
        .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY)
        .open(path);
    let file = file.map_err(|e| match (e.kind(), e.raw_os_error()) {
        (ErrorKind::NotFound, _) => None,
        // A link, or a socket.
        (_, Some(libc::ELOOP | libc::ENXIO)) => Some("not_a_file"),
        _ => Some("unreadable"),
    })?;
    let about = file.metadata().map_err(|_| Some("unreadable"))?;
    if !about.is_file() {
        return Err(Some("not_a_file"));
    }
    let mut text = Vec::new();
    let read = file.take(MAX_FILE + 1).read_to_end(&mut text);
    if read.map_err(|_| Some("unreadable"))? as u64 > MAX_FILE {
        return Err(Some("too_large"));
    }
    let told = serde_json::from_slice(&text).map_err(|_| Some("malformed"))?;
    let written = about.modified().map_err(|_| Some("unreadable"))?;
    Ok((told, written))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use metrics::with_local_recorder;
    use metrics_exporter_prometheus::PrometheusBuilder;
    use std::path::PathBuf;

    const STATUS: &str = r#"{"node": "a", "fleet": "f", "pair": "p", "software": "9", "state": "failed",
        "desired": "1742-9f86d081884c7d65", "applied": "1698-2c26b46b68ffc68f", "hobby": [1, {"x": null}],
        "problem": {"type": "x", "status": 200, "title": "t", "detail": "d"},
        "agent": {"etcd": true, "uptime": 3, "counts": {"applied": 5, "refused": 1, "failed": 2, "rolled_back": 4,
            "halts": 3, "reasons": {"fleet-health": 2, "validation": 1, "made up\n1": 7}}}}"#;

    /// A directory that goes with the value.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let id = std::process::id();
            let place = std::env::temp_dir().join(format!("crem-fleet-metrics-{name}-{id}"));
            std::fs::create_dir_all(&place).unwrap();
            Self(place)
        }

        fn file(&self) -> PathBuf {
            self.0.join("fleet-status.json")
        }

        fn write(&self, octets: &[u8]) {
            std::fs::write(self.file(), octets).unwrap();
        }

        fn written(&self, at: SystemTime) {
            let file = File::options().append(true).open(self.file()).unwrap();
            file.set_modified(at).unwrap();
        }

        fn rendered(&self, not_taken: &mut NotTaken) -> String {
            let recorder = PrometheusBuilder::new().build_recorder();
            let handle = recorder.handle();
            with_local_recorder(&recorder, || {
                describe();
                set(&self.file(), SystemTime::now(), not_taken);
            });
            handle.render()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn series(text: &str) -> Vec<&str> {
        let lines = text.lines();
        lines
            .filter(|l| !l.is_empty() && !l.starts_with('#'))
            .collect()
    }

    fn has(text: &str, line: &str) {
        assert!(text.lines().any(|l| l == line), "{line} not in\n{text}");
    }

    #[test]
    fn a_status_becomes_metrics_with_labels_of_a_fixed_list() {
        let (place, mut not_taken) = (Place::new("good"), NotTaken::default());
        place.write(STATUS.as_bytes());
        let text = place.rendered(&mut not_taken);
        for line in [
            "crem_fleet_agent_up 1",
            "crem_fleet_etcd_up 1",
            "crem_fleet_state{state=\"failed\"} 1",
            "crem_fleet_state{state=\"applied\"} 0",
            "crem_fleet_revision{kind=\"desired\"} 1742",
            "crem_fleet_revision{kind=\"applied\"} 1698",
            "crem_fleet_documents_total{outcome=\"applied\"} 5",
            "crem_fleet_documents_total{outcome=\"refused\"} 1",
            "crem_fleet_documents_total{outcome=\"failed\"} 2",
            "crem_fleet_rollbacks_total 4",
            "crem_fleet_halts_total 3",
            "crem_fleet_failures_total{reason=\"fleet-health\"} 2",
            "crem_fleet_failures_total{reason=\"other\"} 0",
            "crem_fleet_status_not_taken_total{reason=\"malformed\"} 0",
        ] {
            has(&text, line);
        }
        let all = 2 + 1 + STATES.len() + 2 + 3 + 2 + REASONS.len() + NOT_TAKEN.len();
        assert_eq!(series(&text).len(), all, "{text}");
        assert!(!text.contains("made up"), "{text}");
    }

    #[test]
    fn without_a_file_there_is_no_agent() {
        let (place, mut not_taken) = (Place::new("none"), NotTaken::default());
        let text = place.rendered(&mut not_taken);
        assert_eq!(series(&text).len(), NOT_TAKEN.len(), "{text}");
        assert!(not_taken.0.is_empty());
    }

    #[test]
    fn an_old_file_and_one_of_the_future_are_of_an_agent_that_is_gone() {
        let (place, mut not_taken) = (Place::new("age"), NotTaken::default());
        place.write(STATUS.as_bytes());
        let now = SystemTime::now();
        for (at, up) in [
            (now - Duration::from_secs(30), "1"),
            (now - Duration::from_secs(61), "0"),
            (now + Duration::from_secs(30), "1"),
            (now + Duration::from_secs(3_600), "0"),
            (SystemTime::UNIX_EPOCH, "0"),
            (SystemTime::UNIX_EPOCH - Duration::from_secs(9), "0"),
        ] {
            place.written(at);
            let text = place.rendered(&mut not_taken);
            has(&text, &format!("crem_fleet_agent_up {up}"));
            let told = text.contains("crem_fleet_revision{");
            assert_eq!(told, up == "1", "{text}");
        }
        assert!(not_taken.0.is_empty());
    }

    #[test]
    fn what_is_no_status_is_counted_and_waited_for_by_nobody() {
        let (place, mut not_taken) = (Place::new("bad"), NotTaken::default());
        let mut counted = |reason: &str, times: u64| {
            let text = place.rendered(&mut not_taken);
            has(&text, "crem_fleet_agent_up 0");
            let line = format!("crem_fleet_status_not_taken_total{{reason=\"{reason}\"}} {times}");
            has(&text, &line);
            let all = 1 + NOT_TAKEN.len();
            assert_eq!(series(&text).len(), all, "nothing else is told: {text}");
        };
        let deep = format!("{{\"x\":{}", "[".repeat(100_000));
        let wrong = [
            &b""[..],
            b"\xff\xfe\x00garbage",
            b"[]",
            b"{\"state\": \"sleeping\"}",
            b"{\"state\": \"applied\", \"agent\": {\"counts\": {\"applied\": -1}}}",
            deep.as_bytes(),
        ];
        for (n, octets) in wrong.into_iter().enumerate() {
            place.write(octets);
            counted("malformed", n as u64 + 1);
        }
        // Far longer than memory, and good but for its length.
        place.write(STATUS.as_bytes());
        let file = File::options().write(true).open(place.file()).unwrap();
        file.set_len(1 << 40).unwrap();
        counted("too_large", 1);
        let path = place.file();
        std::fs::remove_file(&path).unwrap();
        let elsewhere = place.0.join("elsewhere");
        std::fs::write(&elsewhere, STATUS).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        counted("not_a_file", 1);
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        counted("not_a_file", 2);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        counted("not_a_file", 3);
        std::fs::remove_dir(&path).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        counted("not_a_file", 4);
    }
}
