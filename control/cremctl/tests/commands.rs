//! `cremctl` against a gateway that answers from a script: what it asks for, what it shows, and its exit
//! status.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// Status, ETag and document of an answer.
type Answer = (u16, &'static str, Value);

/// Answers requests in turn and notes them: first line, If-Match and body.
struct Gateway {
    socket: PathBuf,
    asked: Arc<Mutex<Vec<(String, String, String)>>>,
}

impl Gateway {
    fn new(name: &str, answers: Vec<Answer>) -> Self {
        let socket = std::env::temp_dir().join(format!("cremctl-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&asked);
        std::thread::spawn(move || {
            for (status, etag, value) in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut first, mut expected, mut length) = (String::new(), String::new(), 0);
                reader.read_line(&mut first).unwrap();
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    match line.trim().to_ascii_lowercase().split_once(": ") {
                        Some(("if-match", value)) => expected = value.to_owned(),
                        Some(("content-length", value)) => length = value.parse().unwrap(),
                        Some(_) => {}
                        None => break,
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let first = first.trim_end_matches(" HTTP/1.1\r\n").to_owned();
                let body = String::from_utf8(body).unwrap();
                notes.lock().unwrap().push((first, expected, body));
                let text = value.to_string();
                let answer = format!(
                    "HTTP/1.1 {status} X\r\nETag: {etag}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
                    text.len()
                );
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        Self { socket, asked }
    }

    fn asked(&self) -> Vec<(String, String, String)> {
        self.asked.lock().unwrap().clone()
    }
}

/// Exit status, standard output, standard error.
fn cremctl(gateway: &Gateway, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_cremctl"))
        .arg("--socket")
        .arg(&gateway.socket)
        .args(arguments)
        .output()
        .unwrap();
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn problem(name: &str, status: u16) -> Value {
    json!({
        "type": format!("urn:crem:problem:{name}"), "title": "Title", "status": status, "detail": "Detail.",
        "errors": [{"pointer": "/version", "code": "missing", "detail": "Found nothing, expected 1."}],
    })
}

fn file(name: &str, text: &str) -> String {
    let path = std::env::temp_dir().join(format!("cremctl-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_change_is_made_of_what_was_seen() {
    let written = json!({
        "changed": true, "revision": 8, "impact": "hot",
        "diff": [{"op": "replace", "pointer": "/version", "old": 0, "new": 1}],
        "pending": {"state": "pending", "remaining_ms": 120_000},
    });
    let gateway = Gateway::new(
        "apply",
        vec![(200, "\"7-abc\"", json!({})), (202, "\"8-def\"", written)],
    );
    let toml = file("d.toml", "version = 1\n");
    let (status, out, err) = cremctl(&gateway, &["config", "apply", &toml, "--confirm", "120s"]);
    assert_eq!((status, err.as_str()), (0, ""));
    let expected = "~ /version: 0 -> 1\nrevision 8 runs and is rolled back in 120 s: \
                    cremctl config confirm 8\n";
    assert_eq!(out, expected);
    let asked = gateway.asked();
    assert_eq!(asked[0].0, "GET /v1/config");
    let put = (
        "PUT /v1/config?confirm=120s",
        "\"7-abc\"",
        "{\"version\":1}",
    );
    let found = (
        asked[1].0.as_str(),
        asked[1].1.as_str(),
        asked[1].2.as_str(),
    );
    assert_eq!(found, put);
}

#[test]
fn confirming_names_the_commit_that_waits() {
    let waits = json!({"state": "pending", "revision": 8, "remaining_ms": 1000});
    let gateway = Gateway::new(
        "confirm",
        vec![(200, "", waits), (200, "", json!({"state": "none"}))],
    );
    let (status, out, _) = cremctl(&gateway, &["config", "confirm"]);
    assert_eq!((status, out.as_str()), (0, "no commit waits\n"));
    let asked = gateway.asked();
    assert_eq!(asked[1].0, "POST /v1/commit:confirm");
    assert_eq!(asked[1].2, "{\"revision\":8}");
}

#[test]
fn each_kind_of_failure_has_its_status_and_is_one_document() {
    for (name, code, status) in [
        ("internal", 500, 1),
        ("validation", 422, 3),
        ("commit-pending", 409, 4),
        ("revision-conflict", 412, 4),
        ("unauthenticated", 401, 1),
    ] {
        let answers = vec![
            (code, "", problem(name, code)),
            (code, "", problem(name, code)),
        ];
        let gateway = Gateway::new(name, answers);
        let (found, out, err) = cremctl(&gateway, &["show", "commit"]);
        assert_eq!((found, out.as_str()), (status, ""), "{name}");
        assert!(
            err.contains("Title. Detail.\n  /version: Found nothing"),
            "{err}"
        );
        let (found, out, err) = cremctl(&gateway, &["show", "commit", "--json"]);
        assert_eq!((found, err.as_str()), (status, ""), "{name}");
        let document: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(document["status"], code);
    }
    let over = json!({"state": "rolled_back", "problem": problem("rolled-back", 200)});
    let gateway = Gateway::new("rolled", vec![(200, "", over)]);
    assert_eq!(cremctl(&gateway, &["show", "operation", "op-1"]).0, 5);
    let nobody = Gateway {
        socket: "/nowhere/c.sock".into(),
        asked: Arc::default(),
    };
    let (status, out, _) = cremctl(&nobody, &["show", "commit", "--json"]);
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (status, &document["type"]),
        (1, &json!("urn:crem:problem:client"))
    );
    assert_eq!(cremctl(&nobody, &["show", "nothing"]).0, 2);
}

#[test]
fn all_pages_of_flows_are_one_table_with_the_reason() {
    let flow = |qp: u32, reason: Value| {
        json!({
            "segment": "a", "role": "csf", "source": "10.0.1.1", "destination": "10.0.2.1", "qp": qp,
            "supported": true, "state": "idle", "reason": reason,
            "matched": {"peer": "192.0.2.2:4801", "answered": true}, "applied": {"k": 32, "m": 2},
            "loss": {"before_ppm": 10_000, "after_ppm": 0},
        })
    };
    let first = json!({"flows": [flow(1, Value::Null)], "total": 2, "next_cursor": "a|b"});
    let second = json!({"flows": [flow(2, json!("mtu"))], "total": 2});
    let gateway = Gateway::new("flows", vec![(200, "", first), (200, "", second)]);
    let (status, out, _) = cremctl(&gateway, &["show", "flows", "--segment", "a"]);
    assert_eq!(status, 0);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert!(
        lines[0].starts_with("SEGMENT") && lines[0].ends_with("WHY"),
        "{out}"
    );
    assert!(
        lines[1].contains("k=32 m=2") && lines[1].contains("10000 ppm"),
        "{out}"
    );
    assert!(lines[2].ends_with("mtu"), "{out}");
    let asked = gateway.asked();
    assert_eq!(
        asked[1].0,
        "GET /v1/state/flows?limit=1000&segment=a&cursor=a%7Cb"
    );
}

#[test]
fn completion_and_manual_pages_need_no_gateway() {
    let nobody = Gateway {
        socket: "/nowhere/c.sock".into(),
        asked: Arc::default(),
    };
    let (status, out, _) = cremctl(&nobody, &["completion", "bash"]);
    assert!(status == 0 && out.contains("cremctl"), "{out}");
    let directory = std::env::temp_dir().join(format!("cremctl-{}-man", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.display().to_string();
    assert_eq!(cremctl(&nobody, &["man", &path]).0, 0);
    assert!(directory.join("cremctl.1").exists());
    assert!(directory.join("cremctl-config-apply.1").exists());
    std::fs::remove_dir_all(directory).unwrap();
}
