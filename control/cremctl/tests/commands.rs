//! `cremctl` against a gateway that answers from a script: what it asks for, what it shows, and its exit
//! status.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use support::{Gateway, Place, cremctl};

fn problem(name: &str, status: u16) -> Value {
    json!({
        "type": format!("urn:crem:problem:{name}"), "title": "Title", "status": status, "detail": "Detail.",
        "errors": [{"pointer": "/version", "code": "missing", "detail": "Found nothing, expected 1."}],
    })
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
    let toml = Place::file("d.toml", "version = 1\n");
    let arguments = ["config", "apply", &toml.name(), "--confirm", "120s"];
    let (status, out, err) = cremctl(&gateway, &arguments);
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
fn a_mode_is_changed_alone() {
    let written = json!({
        "changed": true, "revision": 8, "impact": "segment",
        "diff": [{"op": "replace", "pointer": "/segments/a/mode", "old": "active", "new": "monitor"}],
    });
    let answers = vec![(200, "\"7-abc\"", json!({})), (200, "\"8-def\"", written)];
    let gateway = Gateway::new("mode", answers);
    let (status, out, _) = cremctl(&gateway, &["mode", "a", "monitor", "--comment", "try"]);
    assert_eq!(status, 0);
    assert!(out.ends_with("revision 8 runs, impact segment\n"), "{out}");
    let asked = gateway.asked();
    let (request, etag, body) = &asked[1];
    let expected = ("PATCH /v1/config?comment=try", "\"7-abc\"");
    assert_eq!((request.as_str(), etag.as_str()), expected);
    let patch: Value = serde_json::from_str(body).unwrap();
    let one = json!([{"op": "add", "path": "/segments/a/mode", "value": "monitor"}]);
    assert_eq!(patch, one);
    assert_eq!(cremctl(&gateway, &["mode", "a", "off"]).0, 2);
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
    let nobody = Gateway::nowhere();
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
fn settings_of_links_that_are_otherwise_stand_below_the_ports_with_the_reason() {
    let port = |role: &str, not_applied: Value| {
        json!({
            "segment": "a", "role": role, "device": format!("{role}0"), "dataplane_link_up": true,
            "not_applied": not_applied, "link": {"speed_mbit": 40_000, "not_known": []},
        })
    };
    let lan = json!([
        "speed_mbit: the device has no 25000 Mbit/s",
        "pause of priority 3: EINVAL: not taken",
        "words without a setting",
    ]);
    let list = json!({"ports": [port("lan", lan.clone()), port("wan", json!([]))]});
    let well = json!({"ports": [port("lan", json!([])), port("wan", json!([]))]});
    let answers = vec![
        (200, "", list.clone()),
        (200, "", list.clone()),
        (200, "", well),
    ];
    let gateway = Gateway::new("ports", answers);
    let (status, out, err) = cremctl(&gateway, &["show", "ports"]);
    assert_eq!((status, err.as_str()), (0, ""));
    let (ports, reasons) = out.split_once("\n\n").unwrap();
    let counts: Vec<&str> = ports
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().nth(7).unwrap())
        .collect();
    assert_eq!(counts, ["3", "0"], "{out}");
    let expected = "\
SEGMENT  ROLE  NOT AS ASKED         WHY
a        lan   speed_mbit           the device has no 25000 Mbit/s
a        lan   pause of priority 3  EINVAL: not taken
a        lan   -                    words without a setting
";
    assert_eq!(reasons, expected, "{out}");
    let (status, out, _) = cremctl(&gateway, &["show", "ports", "--json"]);
    assert_eq!(status, 0);
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["ports"][0]["not_applied"], lan);
    let (_, out, _) = cremctl(&gateway, &["show", "ports"]);
    assert_eq!(out.lines().count(), 3, "nothing is otherwise: {out}");
}

#[test]
fn completion_and_manual_pages_need_no_gateway() {
    let nobody = Gateway::nowhere();
    let (status, out, _) = cremctl(&nobody, &["completion", "bash"]);
    assert!(status == 0 && out.contains("cremctl"), "{out}");
    let place = Place::new("man");
    let directory = place.path();
    std::fs::create_dir_all(directory).unwrap();
    assert_eq!(cremctl(&nobody, &["man", &place.name()]).0, 0);
    assert!(directory.join("cremctl.1").exists());
    assert!(directory.join("cremctl-config-apply.1").exists());
}

#[test]
fn a_capture_is_asked_for_as_it_was_said_and_fetched_into_a_new_file() {
    let capture = json!({
        "id": "ab12", "actor": "uid:0", "state": "running", "frames": 0, "octets": 0, "lost": 0,
        "asked": {"segment": "a", "port": "wan"},
    });
    let answers = vec![
        (201, "", capture),
        (200, "", json!({"captures": []})),
        (200, "", json!("frames")),
        (409, "", problem("capture-running", 409)),
    ];
    let gateway = Gateway::new("capture", answers);
    let start = [
        "capture",
        "start",
        "a",
        "--port",
        "wan",
        "--kind",
        "roce",
        "--address",
        "10.0.1.1",
        "--snap",
        "64",
        "--seconds",
        "5",
    ];
    let (status, out, err) = cremctl(&gateway, &start);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.contains("ab12  a        wan   running"), "{out}");
    assert_eq!(cremctl(&gateway, &["capture", "list"]).0, 0);
    let place = Place::new("fetched");
    let (path, name) = (place.path(), place.name());
    let (status, out, _) = cremctl(&gateway, &["capture", "fetch", "ab12", &name]);
    assert_eq!((status, out), (0, format!("{name}: 8 octets\n")));
    assert_eq!(std::fs::read_to_string(path).unwrap(), "\"frames\"");
    std::fs::remove_file(path).unwrap();
    let (status, _, err) = cremctl(&gateway, &["capture", "fetch", "ab12", &name]);
    assert_eq!(status, 4, "{err}");
    assert!(!path.exists());
    let asked = gateway.asked();
    assert_eq!(asked[0].0, "POST /v1/captures");
    let body: Value = serde_json::from_str(&asked[0].2).unwrap();
    let expected = json!({
        "segment": "a", "port": "wan", "kind": "roce", "address": "10.0.1.1", "snap_octets": 64, "seconds": 5,
    });
    assert_eq!(body, expected);
    assert_eq!(asked[2].0, "GET /v1/captures/ab12/pcapng");
}

#[test]
fn a_bundle_is_waited_for_and_copied_over_nothing() {
    let bundle = |state: &str| json!({"id": "cd34", "state": state, "octets": 4});
    let answers = vec![
        (202, "", bundle("running")),
        (200, "", bundle("running")),
        (200, "", bundle("succeeded")),
        (200, "", json!("xy")),
    ];
    let gateway = Gateway::new("support", answers);
    let (status, out, err) = cremctl(&gateway, &["support", "make", "-"]);
    assert_eq!((status, out.as_str(), err.as_str()), (0, "\"xy\"", ""));
    let asked = gateway.asked();
    assert_eq!(asked[1].0, "GET /v1/support-bundles/cd34?wait=20s");
    assert_eq!(asked[3].0, "GET /v1/support-bundles/cd34/file");
    let place = Place::file("taken", "mine");
    let taken = place.name();
    let gateway = Gateway::new("support-taken", vec![(200, "", json!("xy"))]);
    assert_eq!(
        cremctl(&gateway, &["support", "fetch", "cd34", &taken]).0,
        1
    );
    assert_eq!(std::fs::read_to_string(&taken).unwrap(), "mine");
}

#[test]
fn what_is_known_of_a_peer_is_said_in_sentences() {
    let tested = json!({
        "echo": {"sent": 20, "received": 19, "rtt_min_us": 10, "mtu_both_ways": 1372, "mtu_tried": 1500},
        "flows": [{"direction": "to_peer", "flows": 2}], "findings": ["1 of 20 echoes were lost."],
    });
    let fits = json!({
        "answers": true, "settings": [{"pointer": "/segments/a/policy/k", "configured": 32}],
        "mismatches": [{"pointer": "/segments/a/path_mtu", "flows": 3, "text": "Too large."}],
    });
    let gateway = Gateway::new("peer", vec![(200, "", tested), (200, "", fits)]);
    let (status, out, _) = cremctl(
        &gateway,
        &["peer", "test", "a@2001:db8::2", "--echoes", "20"],
    );
    assert_eq!(status, 0);
    assert!(
        out.starts_with("echoes: 19 of 20 came back, round trip 10 / - / - us"),
        "{out}"
    );
    assert!(out.ends_with("1 of 20 echoes were lost.\n"), "{out}");
    let (_, out, _) = cremctl(&gateway, &["peer", "compatibility", "a@192.0.2.2"]);
    assert!(
        out.ends_with("/segments/a/path_mtu: Too large. (3 flows)\n"),
        "{out}"
    );
    let asked = gateway.asked();
    assert_eq!(
        asked[0].0,
        "POST /v1/peers/a%402001%3Adb8%3A%3A2/test?echoes=20"
    );
}
