//! The API over its local socket, from outside.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::json;
use support::{Control, ask_over, document};

fn k(value: u64) -> serde_json::Value {
    json!({"segments": {"a": {"policy": {"k": value}}}})
}

/// Puts the first document there.
fn configured(control: &Control) -> String {
    let headers = [("If-Match", "\"0\""), ("Content-Type", "application/json")];
    let body = document(32).to_string();
    let answer = control.ask("PUT", "/v1/config", &headers, body.as_bytes());
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.headers["etag"].clone()
}

#[test]
fn a_document_is_put_read_changed_and_restored() {
    let (control, dataplane) = Control::start(false);
    let dataplane = dataplane.unwrap();
    assert_eq!(control.get("/v1/config").problem().0, 404);
    let etag = configured(&control);
    let read = control.get("/v1/config");
    assert_eq!((read.json(), &read.headers["etag"]), (document(32), &etag));
    let filled = control.get("/v1/config?filled=true").json();
    assert_eq!(filled["segments"]["a"]["policy"]["k_max"], 128);
    assert_eq!(dataplane.running(), (Some(1), document(32)));
    let part = control.get("/v1/config/segments/a/policy");
    assert_eq!(part.json(), json!({"k": 32}));
    let headers = [
        ("If-Match", etag.as_str()),
        ("Content-Type", "application/json"),
    ];
    let put = control.ask(
        "PUT",
        "/v1/config/segments/a/policy",
        &headers,
        br#"{"k":40}"#,
    );
    assert_eq!(put.json()["diff"][0]["pointer"], "/segments/a/policy/k");
    assert_eq!(dataplane.running(), (Some(2), document(40)));
    assert_eq!(control.get("/v1/config?view=rev:1").json(), document(32));
    let differences = control.get("/v1/revisions/1/diff/2").json();
    assert_eq!(differences[0]["new"], 40);
    let restored = control.ask("POST", "/v1/revisions/1/restore", &[("If-Match", "*")], b"");
    assert_eq!(restored.json()["revision"], 3);
    assert_eq!(control.get("/v1/config").json(), document(32));
    let history = control.get("/v1/revisions?limit=2").json();
    assert_eq!(history["revisions"][0]["source"], "restore");
    assert_eq!(history["confirmed"], 3);
    let audit = control.get("/v1/audit").json();
    assert_eq!(
        audit["records"][0]["actor"],
        format!("uid:{}", nix::unistd::getuid())
    );
    assert_eq!(audit["records"].as_array().unwrap().len(), 3);
}

#[test]
fn planning_tells_everything_and_changes_nothing() {
    let (control, _dataplane) = Control::start(false);
    configured(&control);
    let tried = control.change("?confirm=60s", &k(33));
    assert_eq!(tried.status, 202);
    let before = control.get("/v1/commit").json();
    let plan = control.post("/v1/config:plan", &document(34)).json();
    assert_eq!(
        (&plan["valid"], &plan["impact"]),
        (&json!(true), &json!("hot"))
    );
    assert_eq!(plan["diff"][0]["new"], 34);
    let mut wrong = document(300);
    wrong["segments"]["a"]["mode"] = json!("on");
    wrong["extra"] = json!(1);
    let plan = control.post("/v1/config:plan", &wrong).json();
    let errors = plan["errors"].as_array().unwrap();
    let of = |pointer: &str| errors.iter().find(|e| e["pointer"] == pointer).unwrap();
    assert_eq!(of("/segments/a/policy/k")["limit"], json!([1, 128]));
    assert_eq!(of("/segments/a/policy/k")["code"], "out_of_range");
    assert_eq!(of("/segments/a/mode")["code"], "invalid_value");
    assert_eq!(of("/extra")["code"], "unknown_key");
    assert!(of("/extra")["detail"].as_str().unwrap().ends_with('.'));
    let mut after = control.get("/v1/commit").json();
    after["remaining_ms"] = before["remaining_ms"].clone();
    assert_eq!(after, before);
    assert_eq!(
        control.get("/v1/revisions").json()["revisions"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn a_commit_is_confirmed_over_a_new_connection_only() {
    let (control, _dataplane) = Control::start(false);
    configured(&control);
    let mut old = BufReader::new(UnixStream::connect(&control.socket).unwrap());
    old.get_mut()
        .write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut line = String::new();
    old.read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
    std::thread::sleep(Duration::from_millis(20));
    let written = control.change("?confirm=60s&comment=why", &k(33)).json();
    assert_eq!(written["pending"]["rollback_to"], 1);
    let headers = [("Content-Type", "application/json")];
    let body = br#"{"revision":2}"#;
    let refused = ask_over(
        old.into_inner(),
        "POST",
        "/v1/commit:confirm",
        &headers,
        body,
    );
    assert!(refused.text.contains("old-connection"), "{refused:?}");
    let confirmed = control.post("/v1/commit:confirm", &json!({"revision": 2}));
    assert_eq!(confirmed.json()["state"], "none");
    let operation = written["operation"].as_str().unwrap();
    let operation = control.get(&format!("/v1/operations/{operation}")).json();
    assert_eq!(operation["state"], "succeeded");
    let again = control.post("/v1/commit:confirm", &json!({"revision": 2}));
    assert_eq!(again.problem(), (409, "no-such-commit".to_owned()));
}

#[test]
fn what_nobody_confirms_comes_back_by_itself_and_is_told() {
    let (control, dataplane) = Control::start(false);
    let dataplane = dataplane.unwrap();
    configured(&control);
    let written = control.change("?confirm=1s", &k(33)).json();
    assert_eq!(dataplane.running().0, Some(2));
    let operation = written["operation"].as_str().unwrap();
    let over = control
        .get(&format!("/v1/operations/{operation}?wait=10s"))
        .json();
    assert_eq!(over["state"], "rolled_back");
    assert_eq!(over["problem"]["cause"], "timeout");
    assert_eq!(dataplane.running(), (Some(1), document(32)));
    assert_eq!(control.get("/v1/config").json(), document(32));
    let audit = control.get("/v1/audit").json();
    let last = audit["records"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        (&last["actor"], &last["action"]),
        (&json!("system"), &json!("rollback"))
    );
    let metrics = control.get("/metrics").text;
    assert!(
        metrics.contains("crem_config_rollbacks_total{cause=\"timeout\"} 1"),
        "{metrics}"
    );
}

#[test]
fn a_restart_of_either_process_rolls_a_pending_commit_back() {
    let (control, dataplane) = Control::start(false);
    let dataplane = dataplane.unwrap();
    configured(&control);
    control.until("/readyz", |a| a.status == 200);
    control.change("?confirm=60s", &k(33));
    let control = control.again();
    assert_eq!(control.get("/v1/commit").json()["state"], "none");
    assert_eq!(dataplane.running(), (Some(1), document(32)));
    control.until("/readyz", |a| a.status == 200);
    control.change("?confirm=60s", &k(34));
    dataplane.restart();
    control.until("/v1/commit", |a| a.json()["state"] == "none");
    let operations = control.get("/v1/revisions").json();
    assert_eq!(operations["running"], 1);
    let metrics = control.get("/metrics").text;
    assert!(
        metrics.contains("cause=\"dataplane_restart\"} 1"),
        "{metrics}"
    );
    // Without a commit it is given what runs.
    dataplane.restart();
    control.until("/livez", |_| dataplane.running().0 == Some(1));
}

/// Method, path, headers, body; status and name of the problem.
type Case<'a> = (
    &'a str,
    &'a str,
    &'a [(&'a str, &'a str)],
    &'a [u8],
    u16,
    &'a str,
);

#[test]
fn each_bad_request_gets_its_problem_document() {
    let (control, _dataplane) = Control::start(false);
    configured(&control);
    let json_type = ("Content-Type", "application/json");
    let any = ("If-Match", "*");
    let long = vec![b' '; 10 << 20];
    let cases: &[Case<'_>] = &[
        ("GET", "/nothing", &[], b"", 404, "not-found"),
        ("POST", "/v1/config", &[], b"", 405, "method-not-allowed"),
        (
            "PUT",
            "/v1/config",
            &[json_type],
            b"{}",
            428,
            "precondition-required",
        ),
        (
            "PUT",
            "/v1/config",
            &[any, json_type],
            b"{",
            400,
            "bad-request",
        ),
        (
            "PUT",
            "/v1/config",
            &[any, json_type],
            b"{}",
            422,
            "validation",
        ),
        (
            "PUT",
            "/v1/config",
            &[any, json_type],
            b"[1]",
            422,
            "validation",
        ),
        (
            "PUT",
            "/v1/config",
            &[any],
            b"{}",
            415,
            "unsupported-media-type",
        ),
        (
            "PUT",
            "/v1/config",
            &[any, json_type],
            &long,
            413,
            "too-large",
        ),
        (
            "PUT",
            "/v1/config?confirm=9h",
            &[any, json_type],
            b"{}",
            400,
            "bad-request",
        ),
        (
            "PUT",
            "/v1/config?confirm=x",
            &[any, json_type],
            b"{}",
            400,
            "bad-request",
        ),
        (
            "PUT",
            "/v1/config?what=x",
            &[any, json_type],
            b"{}",
            400,
            "bad-request",
        ),
        (
            "PATCH",
            "/v1/config",
            &[("If-Match", "\"7-0\""), json_type],
            b"{}",
            412,
            "revision-conflict",
        ),
        (
            "PATCH",
            "/v1/config",
            &[any, json_type],
            br#"{"a":1}"#,
            422,
            "validation",
        ),
        (
            "PATCH",
            "/v1/config",
            &[any, ("Content-Type", "application/json-patch+json")],
            b"{}",
            422,
            "validation",
        ),
        (
            "DELETE",
            "/v1/config/segments/b",
            &[any],
            b"",
            404,
            "not-found",
        ),
        ("GET", "/v1/config?view=old", &[], b"", 400, "bad-request"),
        ("GET", "/v1/config?view=rev:99", &[], b"", 404, "not-found"),
        ("GET", "/v1/revisions/x", &[], b"", 404, "not-found"),
        ("GET", "/v1/revisions?limit=0", &[], b"", 400, "bad-request"),
        ("GET", "/v1/operations/none", &[], b"", 404, "not-found"),
        (
            "GET",
            "/v1/state/flows?limit=5000",
            &[],
            b"",
            400,
            "bad-request",
        ),
        (
            "GET",
            "/v1/state/flows?network=x",
            &[],
            b"",
            400,
            "bad-request",
        ),
        ("GET", "/v1/state/segments/z", &[], b"", 404, "not-found"),
        ("GET", "/v1/state/ipfix", &[], b"", 404, "not-found"),
        (
            "POST",
            "/v1/commit:confirm",
            &[json_type],
            br#"{"revision":1}"#,
            409,
            "no-such-commit",
        ),
        (
            "POST",
            "/v1/commit:extend",
            &[json_type],
            br#"{"revision":1}"#,
            400,
            "bad-request",
        ),
        (
            "POST",
            "/v1/commit:cancel",
            &[json_type],
            br#"{"number":1}"#,
            400,
            "bad-request",
        ),
        (
            "POST",
            "/v1/tokens",
            &[json_type],
            br#"{"name":"","access":"viewer","life":"1h"}"#,
            400,
            "bad-request",
        ),
        ("DELETE", "/v1/tokens/none", &[], b"", 404, "not-found"),
    ];
    for (method, path, headers, body, status, name) in cases {
        let answer = control.ask(method, path, headers, body);
        assert_eq!(
            answer.problem(),
            (*status, (*name).to_owned()),
            "{method} {path}"
        );
    }
    let mut other = document(32);
    other["segments"]["a"]["lan"]["interface"] = json!("lan1");
    let refused = control.change("", &other);
    assert_eq!(refused.problem(), (409, "impact-not-allowed".to_owned()));
    assert_eq!(
        refused.json()["fields"][0]["pointer"],
        "/segments/a/lan/interface"
    );
    let locked = control.change("", &json!({"management": {"listeners": {}}}));
    assert_eq!(locked.problem(), (409, "confirm-required".to_owned()));
    assert_eq!(control.change("?confirm=60s", &k(33)).status, 202);
    let second = control.change("", &k(34));
    assert_eq!(second.problem(), (409, "commit-pending".to_owned()));
    assert_eq!(second.json()["commit"]["revision"], 2);
}

#[test]
fn without_a_data_plane_changes_are_kept_for_its_start() {
    let (control, _) = Control::start(true);
    configured(&control);
    assert_eq!(
        control.get("/readyz").problem(),
        (503, "dataplane-absent".to_owned())
    );
    assert_eq!(control.get("/v1/state/flows").problem().0, 503);
    assert_eq!(control.change("", &k(33)).json()["changed"], true);
    let started_with = std::fs::read_to_string(control.state.join("confirmed.json")).unwrap();
    let started_with: serde_json::Value = serde_json::from_str(&started_with).unwrap();
    assert_eq!(started_with, document(33));
    assert!(control.get("/metrics").text.contains("crem_dataplane_up 0"));
}

#[test]
fn flows_come_in_pages_and_peers_are_counted() {
    let (control, _dataplane) = Control::start(false);
    control.until("/readyz", |a| a.status == 200);
    let (mut seen, mut cursor) = (0, String::new());
    loop {
        let page = control
            .get(&format!("/v1/state/flows?limit=100{cursor}"))
            .json();
        seen += page["flows"].as_array().unwrap().len();
        assert_eq!(page["total"], 250);
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={}", next.replace('|', "%7C")),
            None => break,
        }
    }
    assert_eq!(seen, 250);
    let page = control
        .get("/v1/state/flows?protected=false&limit=1")
        .json();
    assert_eq!(
        (&page["total"], &page["flows"][0]["reason"]),
        (&json!(125), &json!("mtu"))
    );
    let peers = control.get("/v1/state/peers").json();
    assert_eq!(peers["peers"][1]["protected_flows"], 125);
    let drops = control.get("/v1/state/drops").json();
    assert_eq!(
        drops["drops"][0],
        json!({"segment": "a", "reason": "tx_full_wan", "frames": 3})
    );
    let metrics = control.get("/metrics").text;
    let line = "crem_port_receive_bytes_total{segment=\"a\",port=\"lan\"} 700";
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn the_same_key_makes_one_revision() {
    let (control, _dataplane) = Control::start(false);
    configured(&control);
    let ask = |body: &[u8]| {
        let headers = [
            ("If-Match", "*"),
            ("Content-Type", "application/json"),
            ("Idempotency-Key", "once"),
        ];
        control.ask("PATCH", "/v1/config/segments/a/policy", &headers, body)
    };
    let first = ask(br#"{"k":33}"#).json();
    assert_eq!(ask(br#"{"k":33}"#).json()["operation"], first["operation"]);
    let other = ask(br#"{"k":34}"#);
    assert_eq!(other.problem(), (422, "idempotency-key-reused".to_owned()));
    assert_eq!(control.get("/v1/revisions").json()["running"], 2);
}

#[test]
fn events_are_followed_and_resumed() {
    let (control, _dataplane) = Control::start(false);
    let follow = |last: &str| {
        let mut stream = UnixStream::connect(&control.socket).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let request =
            format!("GET /v1/events HTTP/1.1\r\nHost: x\r\nLast-Event-ID: {last}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        BufReader::new(stream)
    };
    let until = |stream: &mut BufReader<UnixStream>, wanted: &str| {
        let mut id = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(stream.read_line(&mut line).unwrap(), 0, "{wanted}");
            if let Some(number) = line.strip_prefix("id: ") {
                id = number.trim().to_owned();
            }
            if line.trim() == format!("event: {wanted}") {
                return id;
            }
        }
    };
    let mut stream = follow("0");
    configured(&control);
    let seen = until(&mut stream, "commit_confirmed");
    drop(stream);
    control.change("?confirm=60s", &k(33));
    control.post("/v1/commit:cancel", &json!({"revision": 2}));
    let mut stream = follow(&seen);
    until(&mut stream, "commit_pending");
    until(&mut stream, "commit_rolled_back");
    until(&mut follow("999999"), "reset");
}

#[test]
fn secrets_are_told_once() {
    let (control, _dataplane) = Control::start(false);
    let made = control.post(
        "/v1/tokens",
        &json!({"name": "bot", "access": "viewer", "life": "1h"}),
    );
    assert_eq!(made.status, 201, "{made:?}");
    let token = made.json()["token"].as_str().unwrap().to_owned();
    let secret = token.rsplit('_').next().unwrap();
    for path in ["/v1/tokens", "/v1/audit", "/metrics"] {
        let text = control.get(path).text;
        assert!(!text.contains(secret), "{path}");
    }
    let listed = control.get("/v1/tokens").text;
    assert!(
        listed.contains("bot") && !listed.contains("hash"),
        "{listed}"
    );
    for entry in std::fs::read_dir(&control.state).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(!text.contains(secret), "{}", path.display());
    }
}

#[test]
fn metrics_pass_the_checker_of_prometheus() {
    let Some(promtool) = std::env::var_os("PROMTOOL").filter(|p| !p.is_empty()) else {
        println!("skipped: PROMTOOL names no promtool");
        return;
    };
    let (control, _dataplane) = Control::start(false);
    configured(&control);
    control.until("/readyz", |a| a.status == 200);
    control.change("?confirm=60s", &k(33));
    let fleet = json!({
        "state": "applied", "desired": "7-ab", "applied": "7-ab",
        "agent": {"etcd": true, "counts": {"applied": 1}},
    });
    std::fs::write(control.state.join("fleet-status.json"), fleet.to_string()).unwrap();
    let mut checker = std::process::Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let text = control.get("/metrics").text;
    assert!(text.contains("\ncrem_fleet_agent_up 1\n"), "{text}");
    checker
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let checked = checker.wait_with_output().unwrap();
    let complaints = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{complaints}\n{text}");
}
