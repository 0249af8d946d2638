//! Captures over the API, with a data plane that answers from a script.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::json;
use support::{CAPTURED, Control};

fn files(control: &Control) -> Vec<String> {
    let entries = std::fs::read_dir(control.state.join("captures")).unwrap();
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_capture_is_begun_ended_fetched_and_removed_with_its_file() {
    let (control, _dataplane) = Control::start(false);
    let asked = json!({"segment": "a", "port": "wan", "kind": "roce", "address": "10.0.1.1", "seconds": 5.0});
    let begun = control.post("/v1/captures", &asked);
    assert_eq!(begun.status, 201, "{begun:?}");
    let capture = begun.json();
    assert_eq!(
        (&capture["state"], &capture["asked"]["seconds"]),
        (&json!("running"), &json!(5))
    );
    let at = format!("/v1/captures/{}", capture["id"].as_str().unwrap());
    assert_eq!(files(&control).len(), 2);
    let early = control.get(&format!("{at}/pcapng"));
    assert_eq!(early.problem(), (409, "capture-running".to_owned()));
    let second = control.post("/v1/captures", &json!({"segment": "a"}));
    assert_eq!(second.problem(), (409, "capture-running".to_owned()));
    let stopped = control.post(&format!("{at}/stop"), &json!(null)).json();
    assert_eq!(
        (&stopped["state"], &stopped["frames"]),
        (&json!("stopped"), &json!(1))
    );
    let file = control.get(&format!("{at}/pcapng"));
    assert_eq!((file.status, file.octets.as_slice()), (200, CAPTURED));
    assert_eq!(file.headers["content-type"], "application/x-pcapng");
    assert_eq!(file.headers["content-length"], CAPTURED.len().to_string());
    let listed = control.get("/v1/captures").json();
    assert_eq!(listed["captures"][0], control.get(&at).json());
    assert_eq!(control.ask("DELETE", &at, &[], b"").status, 204);
    assert_eq!(control.get(&at).problem(), (404, "not-found".to_owned()));
    assert!(files(&control).is_empty());
    // Also who took what the frames hold is on record.
    let audit = control.get("/v1/audit").json();
    let actions: Vec<&str> = audit["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["action"].as_str().unwrap())
        .collect();
    assert!(actions.contains(&"POST /v1/captures"), "{actions:?}");
    assert!(
        actions.contains(&format!("GET {at}/pcapng").as_str()),
        "{actions:?}"
    );
    assert!(
        actions.contains(&format!("DELETE {at}").as_str()),
        "{actions:?}"
    );
}

#[test]
fn everything_wrong_with_a_capture_is_told_at_its_place() {
    let (control, _dataplane) = Control::start(false);
    let wrong =
        json!({"segment": "a", "snap_octets": 1, "max_frames": 0, "seconds": 10_000_000_000_u64});
    let refused = control.post("/v1/captures", &wrong);
    assert_eq!(refused.problem(), (422, "validation".to_owned()));
    let pointers: Vec<String> = refused.json()["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["pointer"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(pointers, ["/snap_octets", "/max_frames", "/seconds"]);
    let other = control.post("/v1/captures", &json!({"segment": "b"}));
    assert_eq!(other.json()["errors"][0]["pointer"], "/segment");
    for wrong in [
        json!({"segment": "a", "file": "/etc/x"}),
        json!({}),
        json!({"segment": "a", "port": "dmz"}),
    ] {
        let refused = control.post("/v1/captures", &wrong);
        assert_eq!(
            refused.problem(),
            (400, "bad-request".to_owned()),
            "{wrong}"
        );
    }
    assert!(files(&control).is_empty());
}

#[test]
fn files_take_no_more_than_their_room() {
    let (control, dataplane) = Control::start(false);
    let dataplane = dataplane.unwrap();
    let free = control.get("/v1/captures").json()["free_octets"]
        .as_u64()
        .unwrap();
    let large =
        json!({"segment": "a", "snap_octets": 9216, "max_frames": 10_000_000, "max_octets": free});
    let refused = control.post("/v1/captures", &large);
    assert_eq!(refused.problem(), (409, "no-room".to_owned()));
    for _ in 0..16 {
        let begun = control.post("/v1/captures", &json!({"segment": "a", "max_octets": 1}));
        assert_eq!(begun.status, 201, "{begun:?}");
        dataplane.end_capture();
    }
    let one_more = control.post("/v1/captures", &json!({"segment": "a", "max_octets": 1}));
    assert_eq!(one_more.problem(), (409, "no-room".to_owned()));
    assert_eq!(files(&control).len(), 32);
}

#[test]
fn captures_outlive_the_control_process_and_end_with_the_data_plane() {
    let (control, dataplane) = Control::start(false);
    let dataplane = dataplane.unwrap();
    let begin = |control: &Control| {
        let begun = control
            .post("/v1/captures", &json!({"segment": "a"}))
            .json();
        format!("/v1/captures/{}", begun["id"].as_str().unwrap())
    };
    let first = begin(&control);
    let control = control.again();
    assert_eq!(control.get(&first).json()["state"], "running");
    dataplane.end_capture();
    assert_eq!(control.get(&first).json()["state"], "time");
    let second = begin(&control);
    dataplane.restart();
    assert_eq!(control.get(&second).json()["state"], "lost");
    assert_eq!(control.get(&format!("{second}/pcapng")).octets, CAPTURED);
    // What has no record does not stay.
    std::fs::write(control.state.join("captures/stray.pcapng"), b"x").unwrap();
    let control = control.again();
    assert_eq!(files(&control).len(), 4);
    assert_eq!(control.get(&first).json()["state"], "time");
}

#[test]
fn without_a_data_plane_there_is_no_capture() {
    let (control, _) = Control::start(true);
    let refused = control.post("/v1/captures", &json!({"segment": "a"}));
    assert_eq!(refused.problem(), (503, "dataplane-absent".to_owned()));
    assert!(files(&control).is_empty());
}
