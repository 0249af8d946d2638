//! Peers over the API: their test and whether they fit, with a data plane that answers from a script. Echoes
//! go over the loopback interface.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::json;
use support::{Control, document};

fn configured(control: &Control, peer: &str) {
    let mut value = document(32);
    value["segments"]["a"]["peers"]["10.0.2.0/24"]["address"] = json!(peer);
    let headers = [("If-Match", "*"), ("Content-Type", "application/json")];
    let put = control.ask("PUT", "/v1/config", &headers, value.to_string().as_bytes());
    assert_eq!(put.status, 200, "{put:?}");
    control.until("/readyz", |a| a.status == 200);
}

#[test]
fn a_peer_is_tested_with_echoes_and_with_what_flows_show() {
    let (control, _dataplane) = Control::start(false);
    configured(&control, "192.0.2.2");
    let listed = control.get("/v1/state/peers").json();
    assert_eq!(listed["peers"][1]["id"], "a@192.0.2.2");
    let tested = control
        .ask("POST", "/v1/peers/a@192.0.2.2/test?echoes=2", &[], b"")
        .json();
    let flows = &tested["flows"][0];
    assert_eq!(
        (&flows["direction"], &flows["flows"]),
        (&json!("to_peer"), &json!(250))
    );
    assert_eq!(flows["protected"], 125);
    // Sent over the interface that the station is on: the loopback interface answers for every address.
    let echo = &tested["echo"];
    assert!(
        echo["received"] == 2 || echo["unavailable"].is_string(),
        "{tested}"
    );
    assert_eq!(tested["path"]["breaker"], "closed");
    for (query, status) in [("?echoes=0", 400), ("?echoes=101", 400), ("?echo=1", 400)] {
        let refused = control.ask(
            "POST",
            &format!("/v1/peers/a@192.0.2.2/test{query}"),
            &[],
            b"",
        );
        assert_eq!(refused.problem(), (status, "bad-request".to_owned()));
    }
    for other in ["a@192.0.2.9", "b@192.0.2.2", "a", "x@y"] {
        let refused = control.ask("POST", &format!("/v1/peers/{other}/test"), &[], b"");
        assert_eq!(refused.problem(), (404, "not-found".to_owned()), "{other}");
    }
}

#[test]
fn echoes_of_this_machine_come_back() {
    let (control, _dataplane) = Control::start(false);
    configured(&control, "192.0.2.2");
    let tested = control.ask("POST", "/v1/peers/a@127.0.0.1/test?echoes=3", &[], b"");
    let tested = tested.json();
    if let Some(why) = tested["echo"]["unavailable"].as_str() {
        println!("skipped: {why}");
        return;
    }
    assert_eq!(tested["echo"]["received"], 3, "{tested}");
    // The loopback interface takes more than path_mtu.
    assert_eq!(tested["echo"]["mtu_both_ways"], 4500, "{tested}");
}

#[test]
fn what_was_agreed_on_is_beside_what_is_configured() {
    let (control, _dataplane) = Control::start(false);
    configured(&control, "192.0.2.2");
    let fits = control.get("/v1/peers/a@192.0.2.2/compatibility").json();
    assert_eq!(
        (&fits["answers"], &fits["protocol"], &fits["flows"]),
        (&json!(true), &json!(1), &json!(250))
    );
    let k = &fits["settings"][0];
    assert_eq!(
        (&k["pointer"], &k["configured"]),
        (&json!("/segments/a/policy/k"), &json!(32))
    );
    let mismatch = &fits["mismatches"][0];
    assert_eq!(
        (&mismatch["pointer"], &mismatch["flows"]),
        (&json!("/segments/a/path_mtu"), &json!(125))
    );
    let missing = control.get("/v1/peers/a@192.0.2.9/compatibility");
    assert_eq!(missing.problem(), (404, "not-found".to_owned()));
}

#[test]
fn without_a_data_plane_nothing_is_known_of_peers() {
    let (control, _) = Control::start(true);
    let headers = [("If-Match", "*"), ("Content-Type", "application/json")];
    control.ask(
        "PUT",
        "/v1/config",
        &headers,
        document(32).to_string().as_bytes(),
    );
    let refused = control.ask("POST", "/v1/peers/a@192.0.2.2/test", &[], b"");
    assert_eq!(refused.problem(), (503, "dataplane-absent".to_owned()));
}
