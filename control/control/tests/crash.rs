//! The process is killed at random moments of applies: what a start begins with is the old or the new
//! confirmed revision, whole, and the history goes on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::{Control, document};

/// Names the directory of the process that is to be killed.
const PLACE: &str = "CREM_CRASH_PLACE";

/// Runs only inside [`killed_at_random_it_boots_one_confirmed_revision`]: applies without end, every
/// second document with a commit that is confirmed.
#[test]
fn applies_until_it_is_killed() {
    let Some(place) = std::env::var_os(PLACE) else {
        return;
    };
    let control = Control::at(Path::new(&place));
    for n in 1.. {
        let k = 1 + n % 128;
        let query = if n % 2 == 0 { "?confirm=60s" } else { "" };
        let written = control.change(query, &document(k)).json();
        if written["pending"].is_object() {
            let revision = &written["revision"];
            control.post(
                "/v1/commit:confirm",
                &serde_json::json!({"revision": revision}),
            );
        }
    }
}

fn booted(place: &Path) -> Option<Value> {
    let text = std::fs::read_to_string(place.join("confirmed.json")).ok()?;
    Some(serde_json::from_str(&text).expect("never half a document"))
}

#[test]
fn killed_at_random_it_boots_one_confirmed_revision() {
    let place: PathBuf = std::env::temp_dir().join(format!("crem-crash-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).unwrap();
    let mut revisions = 0;
    for round in 0..20 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "applies_until_it_is_killed", "--nocapture"])
            .env(PLACE, &place)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut octet = [0];
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut octet).unwrap();
        std::thread::sleep(Duration::from_millis(200 + u64::from(octet[0])));
        child.kill().unwrap();
        child.wait().unwrap();
        let begun_with = booted(&place);
        let control = Control::at(&place);
        assert_eq!(
            control.get("/v1/commit").json()["state"],
            "none",
            "round {round}"
        );
        let Some(begun_with) = begun_with else {
            control.leave();
            continue;
        };
        let running = control.get("/v1/config");
        assert_eq!(
            running.json(),
            begun_with,
            "round {round}: data plane and control agree"
        );
        let k = begun_with["segments"]["a"]["policy"]["k"].as_u64().unwrap();
        assert_eq!(begun_with, document(k), "round {round}: no mix");
        let history = control.get("/v1/revisions?limit=1").json();
        revisions = history["revisions"][0]["number"].as_u64().unwrap();
        // The next process needs the lock and the socket.
        control.leave();
    }
    assert!(revisions > 20, "{revisions} revisions in 20 lives");
    std::fs::remove_dir_all(&place).unwrap();
}
