//! Support bundles over the API: what is in them, and that no secret is, there or in the log of the process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use support::{Answer, Control, document};

/// Where every line goes that the process under test logs.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The files in a bundle, as the tar of the system sees them.
fn unpacked(answer: &Answer) -> BTreeMap<String, String> {
    let tar = |arguments: &[&str]| {
        let mut child = Command::new("tar")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut to, octets) = (child.stdin.take().unwrap(), answer.octets.clone());
        let writer = std::thread::spawn(move || to.write_all(&octets));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let names = tar(&["-t", "-z"]);
    let file = |name: &str| (name.to_owned(), tar(&["-x", "-z", "-O", name]));
    names.lines().map(file).collect()
}

fn made(control: &Control) -> (String, Value) {
    let begun = control.ask("POST", "/v1/support-bundles", &[], b"");
    assert_eq!(begun.status, 202, "{begun:?}");
    let at = begun.headers["location"].clone();
    let bundle = control.get(&format!("{at}?wait=20s")).json();
    assert_eq!(bundle["state"], "succeeded", "{bundle}");
    (at, bundle)
}

#[test]
fn a_bundle_has_everything_but_secrets() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone());
    tracing::subscriber::set_global_default(subscriber.finish()).unwrap();
    let (control, _dataplane) = Control::start(false);
    // A secret wherever a document, a token, a file or a request can hold one.
    let pem = "-----BEGIN PRIVATE KEY-----\ncanary-pem\n-----END PRIVATE KEY-----\n";
    std::fs::write(control.state.join("canary-file.key"), pem).unwrap();
    let mut secret = document(32);
    secret["segments"]["a"]["bypass"] = json!({"reason": "canary-reason"});
    secret["segments"]["a"]["wan"] = json!({"vdev": "net_pcap0,password=canary-device"});
    secret["management"] = json!({
        "tls": {"key": pem, "certificate": "canary-certificate-path", "client_authorities": "ca.pem"},
        "clients": {"ops.example": {"access": "admin"}},
    });
    let headers = [("If-Match", "*"), ("Content-Type", "application/json")];
    let path = "/v1/config?comment=canary-comment&confirm=60s&max_impact=process";
    let put = control.ask("PUT", path, &headers, secret.to_string().as_bytes());
    assert_eq!(put.status, 202, "{put:?}");
    assert_eq!(
        control
            .post("/v1/commit:confirm", &json!({"revision": 1}))
            .status,
        200
    );
    let token = control.post(
        "/v1/tokens",
        &json!({"name": "bot", "access": "viewer", "life": "1h"}),
    );
    let token = token.json()["token"].as_str().unwrap().to_owned();
    control.ask(
        "GET",
        "/v1/version",
        &[("Authorization", &format!("Bearer {token}"))],
        b"",
    );
    control.ask(
        "GET",
        "/v1/version?canary-query=1",
        &[("Authorization", "Basic canary-header")],
        b"",
    );
    control.until("/readyz", |a| a.status == 200);
    let (at, bundle) = made(&control);
    let file = control.get(&format!("{at}/file"));
    assert_eq!(file.headers["content-type"], "application/gzip");
    assert_eq!(bundle["octets"], file.octets.len());
    let files = unpacked(&file);
    let names: Vec<&str> = bundle["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_str().unwrap())
        .collect();
    assert_eq!(names.len(), files.len());
    for (name, text) in &files {
        for needle in ["canary", "PRIVATE KEY", token.rsplit('_').next().unwrap()] {
            assert!(!text.contains(needle), "{needle} in {name}: {text}");
        }
    }
    let json_of = |name: &str| -> Value {
        serde_json::from_str(&files[&format!("crem-support/{name}")]).unwrap()
    };
    let config = json_of("config.json");
    assert_eq!(config["segments"]["a"]["policy"]["k"], 32);
    assert_eq!(config["management"]["tls"]["key"], "[redacted]");
    assert_eq!(
        config["segments"]["a"]["wan"]["vdev"],
        "net_pcap0,[redacted]"
    );
    assert_eq!(json_of("revisions.json")[0]["number"], 1);
    assert_eq!(json_of("operations.json")[0]["state"], "succeeded");
    assert_eq!(
        json_of("flows.json")["flows"].as_array().unwrap().len(),
        250
    );
    assert_eq!(
        json_of("counters.json")["segments"]["a"]["drops"]["tx_full_wan"],
        3
    );
    assert!(json_of("dataplane.json")["instance"].is_string());
    let audit = json_of("audit.json");
    assert!(
        audit
            .as_array()
            .unwrap()
            .iter()
            .any(|r| r["action"] == "PUT /v1/config"),
        "{audit}"
    );
    let events = json_of("events.json");
    assert!(
        events
            .as_array()
            .unwrap()
            .iter()
            .any(|e| e["type"] == "commit_confirmed"),
        "{events}"
    );
    assert!(files["crem-support/metrics.txt"].contains("crem_build_info"));
    let log = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("commit_confirmed"), "the log is seen: {log}");
    for needle in ["canary", "PRIVATE KEY", token.rsplit('_').next().unwrap()] {
        assert!(!log.contains(needle), "{needle} in the log: {log}");
    }
    assert_eq!(control.ask("DELETE", &at, &[], b"").status, 204);
    assert_eq!(
        control.get(&format!("{at}/file")).problem(),
        (404, "not-found".to_owned())
    );
}

#[test]
fn bundles_are_bounded_and_are_made_without_a_data_plane_too() {
    let (control, _) = Control::start(true);
    let first = made(&control).0;
    for _ in 0..4 {
        made(&control);
    }
    let listed = control.get("/v1/support-bundles").json();
    assert_eq!(listed["bundles"].as_array().unwrap().len(), 4);
    assert_eq!(control.get(&first).problem(), (404, "not-found".to_owned()));
    let files = std::fs::read_dir(control.state.join("support"))
        .unwrap()
        .count();
    assert_eq!(files, 4);
}
